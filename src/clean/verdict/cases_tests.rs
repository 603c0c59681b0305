//! A container, a process and a GPU as they often are, for cases to change.

use super::*;
use crate::clean::facts::*;
use crate::container::RUN_LABEL;
use crate::container::leftovers::Owner;
use std::collections::BTreeMap;

pub(super) const GONE: &str = "dead0000dead0000dead0000dead0000dead0000dead0000dead0000dead0000";
pub(super) const GIB: u64 = 1 << 30;

pub(super) fn on_gpu(bytes: u64) -> BTreeMap<String, u64> {
    [("GPU-0a".to_owned(), bytes)].into()
}

pub(super) fn process(pid: u32, parent: u32) -> ProcessLook {
    ProcessLook {
        pid,
        started: Some(1000 + u64::from(pid)),
        name: "python3".into(),
        command: "python3 -m engine".into(),
        uid: Some(1000),
        parent: Some(parent),
        state: Some('S'),
        cgroup: Some("/system.slice/docker-0001.scope".into()),
        ..Default::default()
    }
}

/// A container of another owner, with a server and its worker, in which nothing is wrong.
pub(super) fn theirs() -> ContainerLook {
    let mut worker = process(21, 20);
    worker.gpu_bytes = on_gpu(20 * GIB);
    ContainerLook {
        id: "0001".repeat(16),
        name: "llm".into(),
        image: "vllm/vllm-openai:v0.10".into(),
        labels: [("team".into(), "red".into())].into(),
        status: "running".into(),
        status_for_s: Some(7200),
        health: EngineHealth::Well,
        processes: Some(vec![process(20, 2), worker]),
        gpu_bytes: Some(on_gpu(20 * GIB)),
        activity: Activity {
            gpu_idle_s: Some(2400),
            requests_idle_s: Some(1900),
            log_silent_s: Some(5000),
        },
        ..Default::default()
    }
}

/// The same, created by a plimsoll.
pub(super) fn ours(owner: Owner) -> ContainerLook {
    let mut look = theirs();
    look.ours = true;
    look.owner = owner;
    look.labels.insert(RUN_LABEL.into(), "r7".into());
    look
}

pub(super) fn with(
    mut look: ContainerLook,
    change: impl FnOnce(&mut ContainerLook),
) -> ContainerLook {
    change(&mut look);
    look
}

pub(super) fn worker(look: &mut ContainerLook) -> &mut ProcessLook {
    look.processes.as_mut().unwrap().last_mut().unwrap()
}

/// A worker of ours that outlived its container, which Docker has forgotten.
pub(super) fn orphan() -> ProcessLook {
    ProcessLook {
        container: Some(GONE.into()),
        cgroup: Some(format!("/system.slice/docker-{GONE}.scope (deleted)")),
        record: Some(StartRecord {
            container: GONE.into(),
            name: "plimsoll-r7".into(),
            owner: Owner::Dead,
            started: 900,
            daemon: "d".into(),
        }),
        gpu_bytes: on_gpu(22 * GIB),
        ..process(77, 1)
    }
}

pub(super) fn gpu() -> DeviceLook {
    DeviceLook {
        id: "GPU-0a".into(),
        name: "H100".into(),
        used_bytes: Some(GIB),
        total_bytes: Some(80 * GIB),
        unlisted_bytes: Some(40 << 20),
        unlisted_readings: 3,
        ..Default::default()
    }
}

pub(super) fn asks(change: impl FnOnce(&mut CleanRequest)) -> CleanRequest {
    let mut ask = CleanRequest::default();
    change(&mut ask);
    ask
}

pub(super) fn name_it() -> CleanRequest {
    asks(|a| a.names = vec!["llm".into()])
}

pub(super) fn idle(minutes: u64) -> Option<Duration> {
    Some(Duration::from_secs(60 * minutes))
}

#[track_caller]
pub(super) fn decided(
    verdicts: &[CleanVerdict],
    title: &str,
    act: CleanAct,
    rule: CleanRule,
    word: &str,
) {
    let [one] = verdicts else {
        panic!("{title}: {verdicts:?}");
    };
    assert_eq!((one.act, one.rule), (act, rule), "{title}: {one:?}");
    let text = format!("{} / {}", one.why, one.advice.as_deref().unwrap_or(""));
    assert!(text.contains(word), "{title}: `{word}` is not in: {text}");
}

#[track_caller]
pub(super) fn container(
    title: &str,
    look: ContainerLook,
    ask: &CleanRequest,
    act: CleanAct,
    rule: CleanRule,
    word: &str,
) {
    let survey = Survey {
        containers: vec![look],
        ..Default::default()
    };
    decided(&judge_survey(&survey, ask), title, act, rule, word);
}

#[track_caller]
pub(super) fn stray(title: &str, look: ProcessLook, act: CleanAct, rule: CleanRule, word: &str) {
    let survey = Survey {
        strays: vec![look],
        ..Default::default()
    };
    decided(
        &judge_survey(&survey, &CleanRequest::default()),
        title,
        act,
        rule,
        word,
    );
}

#[track_caller]
pub(super) fn device(
    title: &str,
    change: impl FnOnce(&mut DeviceLook),
    rule: CleanRule,
    word: &str,
) {
    let mut look = gpu();
    change(&mut look);
    let survey = Survey {
        devices: vec![look],
        ..Default::default()
    };
    let verdicts = judge_survey(&survey, &CleanRequest::default());
    decided(&verdicts, title, CleanAct::Report, rule, word);
}

pub(super) fn mark(owner: Owner) -> Option<RunMark> {
    Some(RunMark {
        run_id: "r8".into(),
        owner,
    })
}
