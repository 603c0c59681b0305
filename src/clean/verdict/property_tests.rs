//! What holds of every verdict, whatever was found and asked.

use super::generated_tests::*;
use super::*;
use crate::clean::facts::*;
use crate::container::leftovers::Owner;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Whether the user chose it, decided otherwise than by the verdict.
fn chosen(look: &ContainerLook, ask: &CleanRequest) -> bool {
    let prefix = |n: &String| n.len() >= 4 && look.id.starts_with(n.as_str());
    let team = look.labels.get("team");
    ask.names.iter().any(|n| *n == look.name || prefix(n))
        || ask.labels.iter().any(|l| {
            l == "team" && team.is_some() || l == "team=red" && team.is_some_and(|t| t == "red")
        })
        || ask.images.iter().any(|i| {
            i == "vllm/*" && look.image.starts_with("vllm/")
                || i == "*sglang*" && look.image.contains("sglang")
        })
        || ask.all_gpu && look.gpu_bytes.iter().flatten().any(|(_, bytes)| *bytes > 0)
}

fn all(look: &ContainerLook) -> impl Iterator<Item = &ProcessLook> {
    look.processes.iter().flatten()
}

fn hosts_own(process: &ProcessLook) -> bool {
    let path = process.cgroup.as_deref().unwrap_or("");
    HOSTS_OWN.contains(&process.name.as_str())
        || process.kernel
        || process.ancestor
        || [0, 1, u32::MAX].contains(&process.pid)
        || path.contains("kubepods")
        || path.contains("slurm")
}

/// What must be kept whatever is asked.
fn sacred(look: &ContainerLook) -> bool {
    look.labels.get(PROTECT_LABEL).is_some_and(|v| v != "false")
        || look.labels.contains_key("io.kubernetes.pod.name")
        || look.ruled_by.is_some()
        || look.this_one
        || all(look).any(hosts_own)
}

fn lives(look: &ContainerLook) -> bool {
    let alive = |p: &ProcessLook| p.mark.as_ref().is_some_and(|m| m.owner == Owner::Alive);
    look.owner == Owner::Alive || look.locked || all(look).any(alive)
}

/// What is acted upon, with how.
fn touched(verdicts: &[CleanVerdict]) -> BTreeMap<VerdictSubject, CleanAct> {
    let acts = verdicts.iter().filter(|v| v.act.changes_anything());
    acts.map(|v| (v.of.clone(), v.act)).collect()
}

/// The containers that are acted upon, with how.
fn touched_containers<'a>(
    survey: &'a Survey,
    ask: &CleanRequest,
) -> Vec<(&'a ContainerLook, CleanAct)> {
    let touched = touched(&judge_survey(survey, ask));
    let each = survey.containers.iter();
    each.filter_map(|c| Some((c, *touched.get(&VerdictSubject::Container(c.id.clone()))?)))
        .collect()
}

/// The processes that are acted upon on their own.
fn touched_processes<'a>(survey: &'a Survey, ask: &CleanRequest) -> Vec<&'a ProcessLook> {
    let touched = touched(&judge_survey(survey, ask));
    let key = |p: &ProcessLook| VerdictSubject::Process(p.pid, p.started);
    survey
        .strays
        .iter()
        .filter(|p| touched.contains_key(&key(p)))
        .collect()
}

/// Takes away what is known of one fact, wherever it is. What is `None` where there is nothing
/// (marks, records, rulers) is no such fact.
fn forget(survey: &mut Survey, which: usize, what: usize) {
    let containers = survey.containers.len().max(1);
    if let Some(look) = survey.containers.get_mut(which % containers) {
        match what {
            0 => look.status_for_s = None,
            // A label is there or it is not: a deadline ahead is never forgotten.
            1 => look.past_deadline_s = look.past_deadline_s.filter(|past| *past < 0),
            // In others nothing runs, and that is known.
            2 if ["running", "paused"].contains(&look.status.as_str()) => look.processes = None,
            3 => look.gpu_bytes = None,
            4 => look.activity.gpu_idle_s = None,
            5 => look.activity.requests_idle_s = None,
            6 => look.activity.log_silent_s = None,
            _ => {}
        }
        let mut processes = look.processes.iter_mut().flatten();
        if let Some(process) = processes.nth(which / containers % 3) {
            forget_of(process, what);
        }
    }
    let strays = survey.strays.len().max(1);
    if let Some(process) = survey.strays.get_mut(which % strays) {
        forget_of(process, what);
        match what {
            11 => process.cgroup = None,
            12 => process.container = None,
            _ => {}
        }
    }
    let devices = survey.devices.len().max(1);
    if let Some(device) = survey
        .devices
        .get_mut(which % devices)
        .filter(|_| what == 13)
    {
        device.unlisted_bytes = None;
    }
}

fn forget_of(process: &mut ProcessLook, what: usize) {
    match what {
        7 => process.started = None,
        8 => process.parent = None,
        9 => process.state = None,
        10 => process.stuck.iter_mut().for_each(|t| t.waits_in = None),
        _ => {}
    }
}

proptest! {
    #[test]
    fn nothing_is_touched_that_is_not_ours_and_was_not_chosen(survey in survey(), ask in ask()) {
        for (look, act) in touched_containers(&survey, &ask) {
            let left = |p: &ProcessLook| p.mark.as_ref().is_some_and(|m| m.owner == Owner::Dead);
            match act {
                CleanAct::EndMarked => prop_assert!(all(look).any(left), "{look:?}"),
                CleanAct::Remove => prop_assert!(look.ours, "{look:?}"),
                _ => prop_assert!(look.ours || chosen(look, &ask), "{look:?}"),
            }
        }
        for process in touched_processes(&survey, &ask) {
            prop_assert!(process.record.is_some(), "{process:?}");
        }
    }

    #[test]
    fn what_must_be_kept_is_kept_whatever_is_asked(survey in survey(), ask in ask()) {
        for (look, _) in touched_containers(&survey, &ask) {
            prop_assert!(!sacred(look), "{look:?}");
        }
        for process in touched_processes(&survey, &ask) {
            prop_assert!(!hosts_own(process), "{process:?}");
        }
    }

    #[test]
    fn what_a_living_plimsoll_owns_or_works_on_is_kept(survey in survey(), ask in ask()) {
        for (look, _) in touched_containers(&survey, &ask) {
            prop_assert!(!lives(look), "{look:?}");
        }
        for process in touched_processes(&survey, &ask) {
            let owners = [process.record.as_ref().map(|r| r.owner), process.mark.as_ref().map(|m| m.owner)];
            prop_assert!(!owners.contains(&Some(Owner::Alive)), "{process:?}");
        }
    }

    #[test]
    fn a_process_is_ended_only_if_it_surely_is_the_one(survey in survey(), ask in ask()) {
        for process in touched_processes(&survey, &ask) {
            let record = process.record.as_ref().unwrap();
            prop_assert!(process.started.is_some_and(|s| s >= record.started), "{process:?}");
            prop_assert_eq!(process.container.as_ref(), Some(&record.container));
            prop_assert!(survey.containers.iter().all(|c| c.id != record.container));
            prop_assert_eq!(record.owner, Owner::Dead);
            prop_assert!(process.pid > 1, "{process:?}");
            prop_assert!(!matches!(process.state, None | Some('Z' | 'D')), "{process:?}");
        }
    }

    #[test]
    fn every_container_gets_one_verdict_and_always_the_same(survey in survey(), ask in ask()) {
        let verdicts = judge_survey(&survey, &ask);
        let of = |id: &str| verdicts.iter().filter(|v| v.of == VerdictSubject::Container(id.to_owned())).count();
        for look in &survey.containers {
            prop_assert_eq!(of(&look.id), 1);
        }
        let most = survey.containers.len() + survey.strays.len() + survey.devices.len();
        prop_assert!(verdicts.len() <= most);
        for verdict in &verdicts {
            prop_assert!(!verdict.why.is_empty() && !verdict.name.is_empty(), "{verdict:?}");
            let device = matches!(verdict.of, VerdictSubject::Device(_));
            prop_assert!(!device || verdict.act == CleanAct::Report, "{verdict:?}");
        }
        prop_assert_eq!(&verdicts, &judge_survey(&survey, &ask));
        // Two strays with the same number and start stay in their order.
        let mut turned = survey.clone();
        turned.containers.reverse();
        turned.devices.reverse();
        prop_assert_eq!(&verdicts, &judge_survey(&turned, &ask));
    }

    #[test]
    fn one_more_container_changes_nothing_for_the_others(survey in survey(), ask in ask(), more in container(4)) {
        let before = judge_survey(&survey, &ask);
        let mut larger = survey;
        larger.containers.push(ContainerLook { id: "f".repeat(64), name: "one more".into(), ..more });
        let mut after = judge_survey(&larger, &ask);
        after.retain(|v| v.of != VerdictSubject::Container("f".repeat(64)));
        prop_assert_eq!(before, after);
    }

    #[test]
    fn knowing_less_is_no_reason_to_touch_more(survey in survey(), ask in ask(), which in 0..12usize) {
        let before = touched(&judge_survey(&survey, &ask));
        for what in 0..=13 {
            let mut less = survey.clone();
            forget(&mut less, which, what);
            // A process whose start is forgotten has another key.
            let after: BTreeSet<VerdictSubject> = touched(&judge_survey(&less, &ask)).into_keys().collect();
            for of in after {
                prop_assert!(before.contains_key(&of), "{what}: {of:?} in {less:?}");
            }
        }
    }

    #[test]
    fn idleness_alone_chooses_nothing(survey in survey(), ask in ask()) {
        let only_idle = CleanRequest { idle: ask.idle, ..CleanRequest::default() };
        prop_assert_eq!(judge_survey(&survey, &only_idle), judge_survey(&survey, &CleanRequest::default()));
        // And it never adds to a choice.
        let without = touched(&judge_survey(&survey, &CleanRequest { idle: None, ..ask.clone() }));
        for of in touched(&judge_survey(&survey, &ask)).keys() {
            prop_assert!(without.contains_key(of), "{of:?}");
        }
    }
}

#[test]
fn the_generated_surveys_have_every_case_often() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut tempted = BTreeMap::<&str, usize>::new();
    for _ in 0..1000 {
        let (survey, ask) = (survey(), ask()).new_tree(&mut runner).unwrap().current();
        for verdict in judge_survey(&survey, &ask) {
            *counts.entry(format!("{:?}", verdict.rule)).or_default() += 1;
            *counts.entry(format!("{:?}", verdict.act)).or_default() += 1;
        }
        // What must be kept, with a reason not to.
        for look in &survey.containers {
            let runs = ["running", "paused", "restarting"].contains(&look.status.as_str());
            let reason = runs
                && (look.ours && look.owner == Owner::Dead
                    || ask.idle.is_none() && chosen(look, &ask));
            for (case, is) in [
                ("sacred", sacred(look)),
                ("lives", lives(look) && !sacred(look)),
            ] {
                *tempted.entry(case).or_default() += usize::from(reason && is);
            }
        }
        for process in &survey.strays {
            let Some(record) = process.record.as_ref().filter(|r| {
                r.owner == Owner::Dead && process.container.as_ref() == Some(&r.container)
            }) else {
                continue;
            };
            let age = process.started.is_some_and(|s| s < record.started);
            for (case, is) in [
                ("young", age),
                ("ageless", process.started.is_none()),
                ("host's own", hosts_own(process)),
            ] {
                *tempted.entry(case).or_default() += usize::from(is);
            }
        }
    }
    let rules = [
        "Protected",
        "ThisOne",
        "RuledByOthers",
        "NeverTouched",
        "OwnerLives",
        "OwnerDead",
        "Unhealthy",
        "PastDeadline",
        "Named",
        "Selected",
        "Idle",
        "NotIdle",
        "Ended",
        "Unseen",
        "Orphan",
        "PidReused",
        "Leftover",
        "Zombies",
        "Uninterruptible",
        "RemovalStuck",
        "UnlistedMemory",
        "DeviceBroken",
        "Mps",
        "Foreign",
        "NothingWrong",
    ];
    let acts = [
        "Keep",
        "Stop",
        "Remove",
        "EndProcess",
        "EndMarked",
        "Report",
    ];
    for case in rules.iter().chain(&acts) {
        let times = counts.get(*case).copied().unwrap_or(0);
        assert!(times >= 10, "{case}: {times} times of {counts:?}");
    }
    for case in ["sacred", "lives", "young", "ageless", "host's own"] {
        let times = tempted.get(case).copied().unwrap_or(0);
        assert!(times >= 25, "{case}: {times} times of {tempted:?}");
    }
}
