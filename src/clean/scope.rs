//! What of all that was judged the user asked about, and whether that came to a good end.

use super::apply::{Done, Outcome};
use super::facts::Survey;
use super::verdict::{Act, Ask, Of, Rule, Verdict, chosen, named};
use std::collections::BTreeSet;

/// Whether a verdict is of one of these containers.
pub fn is_of(ids: &BTreeSet<String>, verdict: &Verdict) -> bool {
    matches!(&verdict.of, Of::Container(id) if ids.contains(id))
}

/// Names, labels and images narrow the scope: nothing else is then shown or touched.
pub fn narrowed(survey: &Survey, ask: &Ask, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    if narrows(ask) {
        let ids = chosen(survey, ask);
        verdicts.retain(|v| is_of(&ids, v));
    }
    verdicts
}

/// Of a look what could not be looked at of others than who is meant.
pub fn narrow_notes(survey: &mut Survey, ask: &Ask) {
    if narrows(ask) {
        let ids = chosen(survey, ask);
        let others = survey.containers.iter().filter(|c| !ids.contains(&c.id));
        let others: Vec<String> = others.map(|c| format!("`{}`", c.name)).collect();
        (survey.blind).retain(|sentence| !others.iter().any(|name| sentence.contains(name)));
    }
}

fn narrows(ask: &Ask) -> bool {
    !(ask.names.is_empty() && ask.labels.is_empty() && ask.images.is_empty())
}

/// Those of the verdicts that are still the same after another look.
pub fn confirmed(before: &[Verdict], mut now: Vec<Verdict>) -> Vec<Verdict> {
    let same = |a: &Verdict, b: &Verdict| (&a.of, a.act, a.rule) == (&b.of, b.act, b.rule);
    now.retain(|v| !v.act.touches() || before.iter().any(|b| same(b, v)));
    now
}

/// Whether the verdict belongs to the question what is stuck. A process that uses a GPU outside of
/// any container is shown, and nothing is wrong with it.
pub fn is_stuck(verdict: &Verdict) -> bool {
    verdict.act != Act::Keep && verdict.rule != Rule::Foreign
}

/// Whether anything is to be touched that the user chose and did not name.
pub fn unnamed_choice(survey: &Survey, ask: &Ask, verdicts: &[Verdict]) -> bool {
    let ids = named(survey, ask);
    let selected = |v: &Verdict| matches!(v.rule, Rule::Selected | Rule::Idle);
    (verdicts.iter()).any(|v| selected(v) && v.act.touches() && !is_of(&ids, v))
}

/// Number of stuck or named items that are unchanged after everything possible was done. A broken
/// GPU is reported and not counted.
pub fn left(survey: &Survey, ask: &Ask, verdicts: &[Verdict], outcomes: &[Outcome]) -> usize {
    let ids = named(survey, ask);
    let failed = outcomes.iter().filter(|o| match o.done {
        Done::Cleaned | Done::AlreadyGone => false,
        // It changed since it was judged: whoever named it wanted it gone.
        Done::Kept => is_of(&ids, &o.verdict),
        Done::NotDone => true,
    });
    let helpless = verdicts.iter().filter(|v| match v.act {
        Act::Report => is_stuck(v) && !matches!(v.of, Of::Device(_)),
        // What has ended is gone, and what is busy was meant to stay.
        Act::Keep => is_of(&ids, v) && !matches!(v.rule, Rule::Ended | Rule::NotIdle),
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

    fn ask(names: &[&str]) -> Ask {
        Ask {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            ..Ask::default()
        }
    }

    fn verdict(of: Of, act: Act, rule: Rule) -> Verdict {
        Verdict {
            of,
            name: String::new(),
            act,
            rule,
            why: String::new(),
            advice: None,
        }
    }

    fn container(id: &str, act: Act, rule: Rule) -> Verdict {
        verdict(Of::Container(id.into()), act, rule)
    }

    fn outcome(verdict: &Verdict, done: Done) -> Outcome {
        Outcome {
            verdict: verdict.clone(),
            done,
            steps: Vec::new(),
            freed_bytes: None,
            problem: None,
            holders: Vec::new(),
        }
    }

    #[test]
    fn names_leave_everything_else_alone() {
        let all = vec![
            container("abcd1111", Act::Stop, Rule::Named),
            container("eeee2222", Act::Stop, Rule::OwnerDead),
            container("ffff3333", Act::Stop, Rule::Selected),
            verdict(Of::Process(7, Some(1)), Act::EndProcess, Rule::Orphan),
        ];
        let kept = narrowed(&survey(), &ask(&["llm"]), all.clone());
        assert_eq!(kept, [all[0].clone()]);
        let with_image = |names: &[&str]| Ask {
            images: vec!["some/*".into()],
            ..ask(names)
        };
        let kept = narrowed(&survey(), &with_image(&["llm"]), all.clone());
        assert_eq!(kept, [all[0].clone(), all[2].clone()]);
        let kept = narrowed(&survey(), &with_image(&[]), all.clone());
        assert_eq!(kept, [all[2].clone()]);
        assert_eq!(narrowed(&survey(), &ask(&[]), all.clone()), all);
        assert!(unnamed_choice(&survey(), &ask(&["llm"]), &all));
        assert!(
            !unnamed_choice(&survey(), &ask(&["other"]), &all),
            "it was named as well"
        );
    }

    #[test]
    fn notes_of_others_are_left_out() {
        let mut survey = survey();
        let note = |name: &str| format!("Docker did not tell of container `{name}`");
        survey.blind = vec![note("llm"), note("other"), "there is no GPU".into()];
        narrow_notes(&mut survey, &ask(&[]));
        assert_eq!(survey.blind.len(), 3);
        narrow_notes(&mut survey, &ask(&["llm"]));
        assert_eq!(survey.blind, [note("llm"), "there is no GPU".into()]);
    }

    #[test]
    fn what_has_changed_since_it_was_shown_is_left_alone() {
        let shown = [
            container("abcd1111", Act::Stop, Rule::Idle),
            container("eeee2222", Act::Stop, Rule::Selected),
        ];
        let now = vec![
            container("abcd1111", Act::Keep, Rule::NotIdle),
            container("eeee2222", Act::Stop, Rule::Selected),
            container("ffff3333", Act::Stop, Rule::Idle),
        ];
        let acts: Vec<Verdict> = confirmed(&shown, now)
            .into_iter()
            .filter(|v| v.act.touches())
            .collect();
        assert_eq!(acts, [shown[1].clone()]);
    }

    #[test]
    fn what_is_left_is_what_failed_and_what_was_named_and_stays() {
        let count = |names: &[&str], verdicts: &[Verdict], outcomes: &[Outcome]| {
            left(&survey(), &ask(names), verdicts, outcomes)
        };
        let stop = container("abcd1111", Act::Stop, Rule::OwnerDead);
        assert_eq!(
            count(
                &[],
                std::slice::from_ref(&stop),
                &[outcome(&stop, Done::Cleaned)]
            ),
            0
        );
        assert_eq!(count(&[], &[], &[outcome(&stop, Done::AlreadyGone)]), 0);
        assert_eq!(count(&[], &[], &[outcome(&stop, Done::NotDone)]), 1);
        assert_eq!(count(&[], &[], &[outcome(&stop, Done::Kept)]), 0);
        assert_eq!(count(&["llm"], &[], &[outcome(&stop, Done::Kept)]), 1);
        let protected = container("abcd1111", Act::Keep, Rule::Protected);
        assert_eq!(count(&[], std::slice::from_ref(&protected), &[]), 0);
        assert_eq!(count(&["llm"], &[protected], &[]), 1);
        for rule in [Rule::NotIdle, Rule::Ended] {
            assert_eq!(
                count(&["llm"], &[container("abcd1111", Act::Keep, rule)], &[]),
                0
            );
        }
        let zombies = container("eeee2222", Act::Report, Rule::Zombies);
        let device = verdict(Of::Device("GPU-1".into()), Act::Report, Rule::DeviceBroken);
        let foreign = verdict(Of::Process(7, Some(1)), Act::Report, Rule::Foreign);
        assert_eq!(count(&[], &[zombies, device, foreign], &[]), 1);
    }
}
