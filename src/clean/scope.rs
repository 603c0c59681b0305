//! What of all that was judged the user asked about, and whether that came to a good end.

use super::apply::{ActOutcome, ActResult};
use super::facts::Survey;
use super::verdict::{
    CleanAct, CleanRequest, CleanRule, CleanVerdict, VerdictSubject, chosen_ids, named_ids,
};
use std::collections::BTreeSet;

/// Whether a verdict is of one of these containers.
pub fn is_of(ids: &BTreeSet<String>, verdict: &CleanVerdict) -> bool {
    matches!(&verdict.of, VerdictSubject::Container(id) if ids.contains(id))
}

/// Names, labels and images narrow the scope: nothing else is then shown or touched.
pub fn narrow_verdicts(
    survey: &Survey,
    ask: &CleanRequest,
    mut verdicts: Vec<CleanVerdict>,
) -> Vec<CleanVerdict> {
    if narrows(ask) {
        let ids = chosen_ids(survey, ask);
        verdicts.retain(|v| is_of(&ids, v));
    }
    verdicts
}

/// Of a look what could not be looked at of others than who is meant.
pub fn narrow_notes(survey: &mut Survey, ask: &CleanRequest) {
    if narrows(ask) {
        let ids = chosen_ids(survey, ask);
        let others = survey.containers.iter().filter(|c| !ids.contains(&c.id));
        let others: Vec<String> = others.map(|c| format!("`{}`", c.name)).collect();
        (survey.blind).retain(|sentence| !others.iter().any(|name| sentence.contains(name)));
    }
}

fn narrows(ask: &CleanRequest) -> bool {
    !(ask.names.is_empty() && ask.labels.is_empty() && ask.images.is_empty())
}

/// Those of the verdicts that are still the same after another look.
pub fn still_confirmed(before: &[CleanVerdict], mut now: Vec<CleanVerdict>) -> Vec<CleanVerdict> {
    let same =
        |a: &CleanVerdict, b: &CleanVerdict| (&a.of, a.act, a.rule) == (&b.of, b.act, b.rule);
    now.retain(|v| !v.act.changes_anything() || before.iter().any(|b| same(b, v)));
    now
}

/// Whether the verdict belongs to the question what is stuck. A process that uses a GPU outside of
/// any container is shown, and nothing is wrong with it.
pub fn is_stuck(verdict: &CleanVerdict) -> bool {
    verdict.act != CleanAct::Keep && verdict.rule != CleanRule::Foreign
}

/// Whether anything is to be touched that the user chose and did not name.
pub fn unnamed_choice(survey: &Survey, ask: &CleanRequest, verdicts: &[CleanVerdict]) -> bool {
    let ids = named_ids(survey, ask);
    let selected = |v: &CleanVerdict| matches!(v.rule, CleanRule::Selected | CleanRule::Idle);
    (verdicts.iter()).any(|v| selected(v) && v.act.changes_anything() && !is_of(&ids, v))
}

/// Number of stuck or named items that are unchanged after everything possible was done. A broken
/// GPU is reported and not counted.
pub fn count_left(
    survey: &Survey,
    ask: &CleanRequest,
    verdicts: &[CleanVerdict],
    outcomes: &[ActOutcome],
) -> usize {
    let ids = named_ids(survey, ask);
    let failed = outcomes.iter().filter(|o| match o.done {
        ActResult::Cleaned | ActResult::AlreadyGone => false,
        // It changed since it was judged: whoever named it wanted it gone.
        ActResult::Kept => is_of(&ids, &o.verdict),
        ActResult::NotDone => true,
    });
    let helpless = verdicts.iter().filter(|v| match v.act {
        CleanAct::Report => is_stuck(v) && !matches!(v.of, VerdictSubject::Device(_)),
        // What has ended is gone, and what is busy was meant to stay.
        CleanAct::Keep => {
            is_of(&ids, v) && !matches!(v.rule, CleanRule::Ended | CleanRule::NotIdle)
        }
        _ => false,
    });
    failed.count() + helpless.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::facts::ContainerLook;

    fn survey() -> Survey {
        let container = |id: &str, name: &str| ContainerLook {
            id: id.into(),
            name: name.into(),
            image: if name == "other" { "some/image" } else { "" }.into(),
            ..ContainerLook::default()
        };
        Survey {
            containers: vec![
                container("abcd1111", "llm"),
                container("eeee2222", "abcd"),
                container("ffff3333", "other"),
            ],
            ..Survey::default()
        }
    }

    fn ask(names: &[&str]) -> CleanRequest {
        CleanRequest {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            ..CleanRequest::default()
        }
    }

    fn verdict(of: VerdictSubject, act: CleanAct, rule: CleanRule) -> CleanVerdict {
        CleanVerdict {
            of,
            name: String::new(),
            act,
            rule,
            why: String::new(),
            advice: None,
        }
    }

    fn container(id: &str, act: CleanAct, rule: CleanRule) -> CleanVerdict {
        verdict(VerdictSubject::Container(id.into()), act, rule)
    }

    #[test]
    fn names_leave_everything_else_alone() {
        let all = vec![
            container("abcd1111", CleanAct::Stop, CleanRule::Named),
            container("eeee2222", CleanAct::Stop, CleanRule::OwnerDead),
            container("ffff3333", CleanAct::Stop, CleanRule::Selected),
            verdict(
                VerdictSubject::Process(7, Some(1)),
                CleanAct::EndProcess,
                CleanRule::Orphan,
            ),
        ];
        let kept = narrow_verdicts(&survey(), &ask(&["llm"]), all.clone());
        assert_eq!(kept, [all[0].clone()]);
        let with_image = |names: &[&str]| CleanRequest {
            images: vec!["some/*".into()],
            ..ask(names)
        };
        let kept = narrow_verdicts(&survey(), &with_image(&["llm"]), all.clone());
        assert_eq!(kept, [all[0].clone(), all[2].clone()]);
        let kept = narrow_verdicts(&survey(), &with_image(&[]), all.clone());
        assert_eq!(kept, [all[2].clone()]);
        assert_eq!(narrow_verdicts(&survey(), &ask(&[]), all.clone()), all);
        assert!(unnamed_choice(&survey(), &ask(&["llm"]), &all));
        assert!(
            !unnamed_choice(&survey(), &ask(&["other"]), &all),
            "it was named as well"
        );
    }

    #[test]
    fn notes_of_others_are_left_out() {
        let mut survey = survey();
        let note = |name: &str| format!("Docker did not answer about container `{name}`");
        survey.blind = vec![note("llm"), note("other"), "there is no GPU".into()];
        narrow_notes(&mut survey, &ask(&[]));
        assert_eq!(survey.blind.len(), 3);
        narrow_notes(&mut survey, &ask(&["llm"]));
        assert_eq!(survey.blind, [note("llm"), "there is no GPU".into()]);
    }

    #[test]
    fn what_has_changed_since_it_was_shown_is_left_alone() {
        let shown = [
            container("abcd1111", CleanAct::Stop, CleanRule::Idle),
            container("eeee2222", CleanAct::Stop, CleanRule::Selected),
        ];
        let now = vec![
            container("abcd1111", CleanAct::Keep, CleanRule::NotIdle),
            container("eeee2222", CleanAct::Stop, CleanRule::Selected),
            container("ffff3333", CleanAct::Stop, CleanRule::Idle),
        ];
        let acts: Vec<CleanVerdict> = still_confirmed(&shown, now)
            .into_iter()
            .filter(|v| v.act.changes_anything())
            .collect();
        assert_eq!(acts, [shown[1].clone()]);
    }

    #[test]
    fn what_is_left_is_what_failed_and_what_was_named_and_is_kept() {
        let count = |names: &[&str], verdicts: &[CleanVerdict], outcomes: &[ActOutcome]| {
            count_left(&survey(), &ask(names), verdicts, outcomes)
        };
        let stop = container("abcd1111", CleanAct::Stop, CleanRule::OwnerDead);
        assert_eq!(
            count(
                &[],
                std::slice::from_ref(&stop),
                &[ActOutcome::new(&stop, ActResult::Cleaned)]
            ),
            0
        );
        assert_eq!(
            count(&[], &[], &[ActOutcome::new(&stop, ActResult::AlreadyGone)]),
            0
        );
        assert_eq!(
            count(&[], &[], &[ActOutcome::new(&stop, ActResult::NotDone)]),
            1
        );
        assert_eq!(
            count(&[], &[], &[ActOutcome::new(&stop, ActResult::Kept)]),
            0
        );
        assert_eq!(
            count(&["llm"], &[], &[ActOutcome::new(&stop, ActResult::Kept)]),
            1
        );
        let protected = container("abcd1111", CleanAct::Keep, CleanRule::Protected);
        assert_eq!(count(&[], std::slice::from_ref(&protected), &[]), 0);
        assert_eq!(count(&["llm"], &[protected], &[]), 1);
        for rule in [CleanRule::NotIdle, CleanRule::Ended] {
            assert_eq!(
                count(
                    &["llm"],
                    &[container("abcd1111", CleanAct::Keep, rule)],
                    &[]
                ),
                0
            );
        }
        let zombies = container("eeee2222", CleanAct::Report, CleanRule::Zombies);
        let device = verdict(
            VerdictSubject::Device("GPU-1".into()),
            CleanAct::Report,
            CleanRule::DeviceBroken,
        );
        let foreign = verdict(
            VerdictSubject::Process(7, Some(1)),
            CleanAct::Report,
            CleanRule::Foreign,
        );
        assert_eq!(count(&[], &[zombies, device, foreign], &[]), 1);
    }
}
