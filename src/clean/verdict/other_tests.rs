//! What is decided of each kind of trouble that people meet, one case each: processes and GPUs.

use super::cases_tests::*;
use super::*;
use crate::clean::facts::*;
use crate::container::leftovers::Owner;

#[test]
fn a_worker_that_outlived_its_container_is_ended_if_it_is_surely_ours() {
    use {CleanAct::*, CleanRule::*};
    let changed = |change: &dyn Fn(&mut ProcessLook)| {
        let mut look = orphan();
        change(&mut look);
        look
    };
    let record = |change: fn(&mut StartRecord)| changed(&|p| change(p.record.as_mut().unwrap()));
    stray(
        "ours",
        orphan(),
        EndProcess,
        Orphan,
        "outlived `plimsoll-r7`",
    );
    stray(
        "as old as its container",
        changed(&|p| p.started = Some(900)),
        EndProcess,
        Orphan,
        "",
    );
    stray(
        "older",
        changed(&|p| p.started = Some(899)),
        Keep,
        PidReused,
        "older",
    );
    stray(
        "age unknown",
        changed(&|p| p.started = None),
        Keep,
        PidReused,
        "not known",
    );
    stray(
        "owner lives",
        record(|r| r.owner = Owner::Alive),
        Keep,
        OwnerLives,
        "",
    );
    stray(
        "owner unknown",
        record(|r| r.owner = Owner::Unknown),
        Report,
        Orphan,
        "",
    );
    stray(
        "of another container",
        record(|r| r.container = "beef".into()),
        Report,
        Foreign,
        "",
    );
    stray(
        "in no container",
        changed(&|p| p.container = None),
        Report,
        Foreign,
        "",
    );
    stray(
        "not alone in its pid namespace",
        changed(&|p| p.shared_by = vec![99]),
        Report,
        Shared,
        "pid 99",
    );
    stray(
        "zombie",
        changed(&|p| p.state = Some('Z')),
        Report,
        Zombies,
        "end its parent (pid 1)",
    );
    stray(
        "waits for a disk",
        changed(&|p| p.state = Some('D')),
        Report,
        Orphan,
        "interrupt",
    );
    let thread = StuckThread {
        tid: 1,
        waits_in: None,
        for_s: 61,
    };
    stray(
        "stuck",
        changed(&|p| p.stuck = vec![thread.clone()]),
        Report,
        Uninterruptible,
        "in the kernel",
    );
    stray(
        "state unknown",
        changed(&|p| p.state = None),
        Report,
        Orphan,
        "state",
    );
    stray(
        "cgroup unknown",
        changed(&|p| p.cgroup = None),
        Report,
        Orphan,
        "cgroup",
    );
    stray(
        "daemon",
        changed(&|p| p.name = "containerd-shim".into()),
        Keep,
        NeverTouched,
        "",
    );
    stray(
        "kernel",
        changed(&|p| p.kernel = true),
        Keep,
        NeverTouched,
        "",
    );
    stray(
        "above us",
        changed(&|p| p.ancestor = true),
        Keep,
        NeverTouched,
        "",
    );
    for pid in [0, 1, u32::MAX] {
        stray(
            "no such pid",
            changed(&|p| p.pid = pid),
            Keep,
            NeverTouched,
            "",
        );
    }
    stray(
        "pod",
        changed(&|p| p.cgroup = Some("/kubepods.slice/x".into())),
        Keep,
        RuledByOthers,
        "",
    );
    stray(
        "job",
        changed(&|p| p.cgroup = Some("/slurm/uid_1/job_2".into())),
        Keep,
        RuledByOthers,
        "",
    );
    stray(
        "a living run's",
        changed(&|p| p.mark = mark(Owner::Alive)),
        Keep,
        OwnerLives,
        "r8",
    );
    let survey = Survey {
        strays: vec![orphan()],
        containers: vec![with(theirs(), |c| c.id = GONE.into())],
        ..Default::default()
    };
    decided(
        &judge_survey(&survey, &CleanRequest::default()),
        "Docker has it after all",
        Keep,
        Foreign,
        "",
    );
}

#[test]
fn the_holder_of_memory_that_is_not_ours_is_named() {
    let foreign = ProcessLook {
        record: None,
        command: "python3 train.py\x1b[2J".into(),
        ..orphan()
    };
    stray(
        "theirs",
        foreign,
        CleanAct::Report,
        CleanRule::Foreign,
        "pid 77 (python3) of user 1000, `python3 train.py[2J` holds 22.00 GiB on GPU-0a, and is not ours",
    );
}

#[test]
fn memory_without_a_listed_process_is_reported() {
    let much = |d: &mut DeviceLook| d.unlisted_bytes = Some((256 << 20) + 1);
    device(
        "no process has it open",
        much,
        CleanRule::UnlistedMemory,
        "another pid namespace",
    );
    let opened = |d: &mut DeviceLook| {
        much(d);
        d.open_by = vec![process(7, 1)];
    };
    device(
        "somebody has",
        opened,
        CleanRule::UnlistedMemory,
        "open in pid 7 (python3) of user 1000",
    );
    let amd = |d: &mut DeviceLook| {
        much(d);
        d.id = "0000:c1:00.0".into();
    };
    device("AMD", amd, CleanRule::UnlistedMemory, "KFD");
    let changes: [fn(&mut DeviceLook); 4] = [
        |_| {},
        |d| d.unlisted_bytes = Some(256 << 20),
        |d| {
            d.unlisted_bytes = Some(GIB);
            d.unlisted_readings = 2;
        },
        |d| d.unlisted_bytes = None,
    ];
    for change in changes {
        let mut look = gpu();
        change(&mut look);
        let survey = Survey {
            devices: vec![look],
            ..Default::default()
        };
        assert_eq!(judge_survey(&survey, &CleanRequest::default()), []);
    }
}

#[test]
fn a_broken_gpu_and_mps_are_reported() {
    let broken = |what: &'static str| move |d: &mut DeviceLook| d.broken = Some(what.into());
    device(
        "lost",
        broken("the GPU is lost"),
        CleanRule::DeviceBroken,
        "nvidia-smi --gpu-reset",
    );
    device(
        "updated",
        broken("driver/library version mismatch"),
        CleanRule::DeviceBroken,
        "load the new module",
    );
    device("MPS", |d| d.mps = true, CleanRule::Mps, "terminate_client");
}

#[test]
fn names_that_choose_nothing_are_reported() {
    let second = with(theirs(), |c| {
        c.id = "0001".repeat(15) + "ffff";
        c.name = "other".into();
    });
    let survey = Survey {
        containers: vec![theirs(), second],
        ..Default::default()
    };
    let names = ["llm", "nobody", "0001"].into_iter();
    let unmatched: Vec<String> = names.filter_map(|n| why_unmatched(&survey, n)).collect();
    assert_eq!(unmatched.len(), 2, "{unmatched:?}");
    assert!(
        unmatched[0].contains("`nobody`") && unmatched[1].contains("llm, other"),
        "{unmatched:?}"
    );
}
