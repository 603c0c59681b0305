//! Surveys and asks at random, in which what must not be touched and a reason to touch it come
//! together often.

use super::*;
use crate::clean::facts::*;
use crate::container::RUN_LABEL;
use crate::container::leftovers::Owner;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

/// Names of what the host needs, as the kernel lists them.
pub(super) const HOSTS_OWN: [&str; 6] = [
    "dockerd",
    "containerd-shim",
    "dcgm-exporter",
    "nvidia-cuda-mps",
    "nvidia-persiste",
    "Xorg",
];

/// Ids of containers that a survey may have; those from [`LISTED`] on it never has.
fn id(number: usize) -> String {
    format!("{:04x}", 0xa000 + number).repeat(16)
}

const LISTED: usize = 5;

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![5 => Just(Owner::Dead), 5 => Just(Owner::Unknown), 1 => Just(Owner::Alive)]
}

fn gpu_bytes() -> impl Strategy<Value = BTreeMap<String, u64>> {
    let bytes = select(vec![0, 1 << 20, 21 << 30, 40 << 30]);
    proptest::collection::btree_map(
        select(vec!["GPU-0".to_owned(), "GPU-1".into()]),
        bytes,
        0..3,
    )
}

fn process(number: usize) -> BoxedStrategy<ProcessLook> {
    let name = prop_oneof![
        30 => Just("python3".to_owned()),
        1 => select(HOSTS_OWN.to_vec()).prop_map(str::to_owned),
    ];
    let cgroup = prop_oneof![
        30 => Just("/system.slice/docker-x.scope"),
        1 => Just("/kubepods.slice/pod"),
        1 => Just("/slurm/uid_0/job_1"),
    ];
    let stuck =
        (weighted(0.7, Just("nv_wait".to_owned())), 0..120u64).prop_map(|(waits_in, for_s)| {
            StuckThread {
                tid: 1,
                waits_in,
                for_s,
            }
        });
    let rare = || prop::bool::weighted(0.02);
    // A pid of 1 or of no process, as a driver may report it.
    let pid = prop_oneof![30 => Just(100 + number as u32), 1 => select(vec![0, 1, u32::MAX])];
    (
        (
            pid,
            weighted(0.9, 0..20u64),
            name,
            weighted(0.9, select(vec![2, 100, 101])),
        ),
        (
            weighted(
                0.93,
                prop_oneof![12 => Just('S'), 3 => Just('R'), 2 => Just('Z'), 1 => Just('D')],
            ),
            rare(),
            rare(),
        ),
        (
            weighted(0.93, cgroup.prop_map(str::to_owned)),
            weighted(0.2, owner()),
            gpu_bytes(),
        ),
        vec(stuck, 0..2).prop_flat_map(|s| weighted(0.15, Just(s))),
    )
        .prop_map(
            |(
                (pid, started, name, parent),
                (state, kernel, ancestor),
                (cgroup, mark, gpu_bytes),
                stuck,
            )| ProcessLook {
                pid,
                started,
                name,
                parent,
                state,
                kernel,
                ancestor,
                cgroup,
                mark: mark.map(|owner| RunMark {
                    run_id: "r1".into(),
                    owner,
                }),
                gpu_bytes,
                stuck: stuck.unwrap_or_default(),
                ..Default::default()
            },
        )
        .boxed()
}

fn processes() -> impl Strategy<Value = Vec<ProcessLook>> {
    let orphans = prop::bool::weighted(0.3);
    let all = (process(0), process(1), process(2), 0..4usize, orphans);
    all.prop_map(|(a, b, c, n, orphans)| {
        let mut all = vec![a, b, c];
        all.truncate(n);
        // Their parents are gone: whatever started them is not in the container.
        for process in all.iter_mut().filter(|_| orphans) {
            process.parent = Some(2);
            process.started = process.started.or(Some(3));
        }
        all
    })
}

pub(super) fn container(number: usize) -> BoxedStrategy<ContainerLook> {
    let label = |key: &'static str, share, values: Vec<&'static str>| {
        weighted(share, select(values)).prop_map(move |v| v.map(|v| (key.to_owned(), v.to_owned())))
    };
    let labels = (
        label(PROTECT_LABEL, 0.12, vec!["", "true", "false"]),
        label("team", 0.5, vec!["red", "blue"]),
        label("io.kubernetes.pod.name", 0.04, vec!["x"]),
    )
        .prop_map(|(a, b, c)| [a, b, c].into_iter().flatten().collect::<BTreeMap<_, _>>());
    let status = prop_oneof![
        10 => Just("running"),
        4 => select(vec!["paused", "restarting", "created", "exited", "removing", "dead", "hibernating"]),
    ];
    let health = prop_oneof![
        3 => select(vec![EngineHealth::Well, EngineHealth::Starting, EngineHealth::Unknown]),
        3 => (0..900u64).prop_map(|for_s| EngineHealth::Ill { for_s }),
    ];
    let seconds = || weighted(0.9, select(vec![0, 100, 1800, 5000]));
    let activity = (seconds(), seconds(), seconds()).prop_map(|(g, r, l)| Activity {
        gpu_idle_s: g,
        requests_idle_s: r,
        log_silent_s: l,
    });
    (
        (
            labels,
            status,
            weighted(0.9, 0..60u64),
            any::<bool>(),
            owner(),
        ),
        (
            weighted(0.3, -5..5i64),
            weighted(0.04, Just("Slurm".to_owned())),
        ),
        (
            prop::bool::weighted(0.04),
            prop::bool::weighted(0.06),
            health,
        ),
        (
            weighted(0.93, processes()),
            weighted(0.9, gpu_bytes()),
            activity,
        ),
        select(vec!["vllm/vllm-openai:v1", "lmsysorg/sglang:latest"]),
    )
        .prop_map(
            move |(
                (mut labels, status, status_for_s, ours, owner),
                (past_deadline_s, ruled_by),
                (this_one, locked, health),
                (processes, gpu_bytes, activity),
                image,
            )| {
                if ours {
                    labels.insert(RUN_LABEL.into(), "r1".into());
                }
                // Mostly because the server died that had started them.
                let left = (processes.iter().flatten())
                    .filter(|p| p.parent == Some(2))
                    .count();
                let health = match left {
                    2.. => EngineHealth::Ill { for_s: 100 },
                    _ => health,
                };
                ContainerLook {
                    id: id(number),
                    name: format!("llm-{number}"),
                    image: image.into(),
                    labels,
                    status: status.into(),
                    status_for_s,
                    ours,
                    owner,
                    past_deadline_s,
                    ruled_by,
                    this_one,
                    shared_by: Vec::new(),
                    locked,
                    freezer: None,
                    health,
                    processes,
                    gpu_bytes,
                    activity,
                }
            },
        )
        .boxed()
}

fn stray(number: usize) -> BoxedStrategy<ProcessLook> {
    // Mostly of a container that is gone, and recorded so.
    let inside = || prop_oneof![4 => Just(LISTED), 1 => 0..LISTED + 2];
    let record = (inside(), owner(), 0..8u64).prop_map(|(n, owner, started)| StartRecord {
        container: id(n),
        name: format!("plimsoll-{n}"),
        owner,
        started,
        daemon: "d".into(),
    });
    let apart = weighted(0.15, weighted(0.8, inside()));
    (process(number), apart, weighted(0.9, record))
        .prop_map(|(process, apart, record)| ProcessLook {
            container: match apart {
                Some(elsewhere) => elsewhere.map(id),
                None => record.as_ref().map(|r| r.container.clone()),
            },
            record,
            ..process
        })
        .boxed()
}

fn device(number: usize) -> BoxedStrategy<DeviceLook> {
    (
        weighted(0.9, 0..600u64),
        0..6u32,
        vec(process(9), 0..2),
        prop::bool::weighted(0.2),
        weighted(
            0.2,
            select(vec!["lost".to_owned(), "version mismatch".into()]),
        ),
    )
        .prop_map(
            move |(mib, unlisted_readings, open_by, mps, broken)| DeviceLook {
                id: format!("GPU-{number}"),
                unlisted_bytes: mib.map(|m| m << 20),
                unlisted_readings,
                open_by,
                mps,
                broken,
                ..Default::default()
            },
        )
        .boxed()
}

pub(super) fn survey() -> BoxedStrategy<Survey> {
    (
        (
            container(0),
            container(1),
            container(2),
            container(3),
            0..5usize,
        ),
        (stray(10), stray(20), stray(30), 0..4usize),
        (device(0), device(1), 0..3usize),
    )
        .prop_map(
            |((a, b, c, d, containers), (e, f, g, strays), (h, i, devices))| {
                let mut survey = Survey {
                    containers: vec![a, b, c, d],
                    strays: vec![e, f, g],
                    devices: vec![h, i],
                    ..Default::default()
                };
                survey.containers.truncate(containers);
                survey.strays.truncate(strays);
                survey.devices.truncate(devices);
                survey
            },
        )
        .boxed()
}

pub(super) fn ask() -> BoxedStrategy<CleanRequest> {
    let words = |share, all: &[&str]| {
        let all: Vec<String> = all.iter().map(|w| (*w).to_owned()).collect();
        let some = 1..=all.len().min(2);
        let chosen = weighted(share, proptest::sample::subsequence(all, some));
        chosen.prop_map(Option::unwrap_or_default)
    };
    (
        words(0.4, &["llm-0", "llm-1", "a002a", "a00", "a000a000", "llm"]),
        words(0.2, &["team", "team=red", "te"]),
        words(0.2, &["vllm/*", "*sglang*", "vllm"]),
        prop::bool::weighted(0.2),
        weighted(0.3, select(vec![0, 90, 1800]).prop_map(Duration::from_secs)),
    )
        .prop_map(|(names, labels, images, all_gpu, idle)| CleanRequest {
            names,
            labels,
            images,
            all_gpu,
            idle,
        })
        .boxed()
}
