//! What of all that was judged the user asked about, and whether that came to a good end.

use super::apply::{Done, Outcome};
use super::facts::Survey;
use super::verdict::{Act, Ask, Of, Rule, Verdict};
use std::collections::BTreeSet;

/// Shortest part of an id that means a container.
const SHORTEST_ID: usize = 4;

/// The containers that the user named, by their ids. A name wins over an id that begins alike.
pub fn named(survey: &Survey, ask: &Ask) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for name in &ask.names {
        let name = name.trim().trim_start_matches('/');
        let exact: Vec<&str> = (survey.containers.iter())
            .filter(|c| c.name == name || c.id == name)
            .map(|c| c.id.as_str())
            .collect();
        let part = name.to_ascii_lowercase();
        let beginning = (survey.containers.iter())
            .map(|c| c.id.as_str())
            .filter(|id| part.len() >= SHORTEST_ID && id.starts_with(&part));
        match exact.is_empty() {
            true => ids.extend(beginning.map(str::to_owned)),
            false => ids.extend(exact.into_iter().map(str::to_owned)),
        }
    }
    ids
}

/// Whether a verdict is of one of these containers.
pub fn is_of(ids: &BTreeSet<String>, verdict: &Verdict) -> bool {
    matches!(&verdict.of, Of::Container(id) if ids.contains(id))
}

/// Who names containers means these: then nothing else is told of or touched, but what was chosen
/// by a label, an image or `--all-gpu-containers` besides.
pub fn narrowed(survey: &Survey, ask: &Ask, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    if !ask.names.is_empty() {
        let ids = named(survey, ask);
        let chosen = |v: &Verdict| matches!(v.rule, Rule::Selected | Rule::Idle | Rule::NotIdle);
        verdicts.retain(|v| is_of(&ids, v) || chosen(v));
    }
    verdicts
}

/// Whether it is news for somebody who wants to know what is stuck. That a process outside of any
/// container uses a GPU is told, and nothing is wrong with it.
pub fn is_stuck(verdict: &Verdict) -> bool {
    verdict.act != Act::Keep && verdict.rule != Rule::Foreign
}

/// Whether anything is to be touched that the user chose and did not name.
pub fn unnamed_choice(survey: &Survey, ask: &Ask, verdicts: &[Verdict]) -> bool {
    let ids = named(survey, ask);
    let chosen = |v: &Verdict| matches!(v.rule, Rule::Selected | Rule::Idle);
    (verdicts.iter()).any(|v| chosen(v) && v.act.touches() && !is_of(&ids, v))
}

/// How many that are stuck, or were named, are as they were after all was done that could be. What
/// is wrong with a GPU itself is told and not counted.
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
    fn a_name_is_no_part_of_an_id() {
        let ids = |names: &[&str]| {
            named(&survey(), &ask(names))
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&["llm", "/other"]), ["abcd1111", "ffff3333"]);
        assert_eq!(
            ids(&["abcd"]),
            ["eeee2222"],
            "its name, though an id begins so"
        );
        assert_eq!(ids(&["ABCD1"]), ["abcd1111"]);
        assert_eq!(ids(&["fff", "nobody"]), Vec::<String>::new());
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
        assert_eq!(kept, [all[0].clone(), all[2].clone()]);
        assert_eq!(narrowed(&survey(), &ask(&[]), all.clone()), all);
        assert!(unnamed_choice(&survey(), &ask(&["llm"]), &all));
        assert!(
            !unnamed_choice(&survey(), &ask(&["other"]), &all),
            "it was named as well"
        );
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
