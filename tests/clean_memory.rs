//! Memory after an act, on real containers and a stand-in driver that lists their real processes.
#![allow(missing_docs)]

use crate::common;
use crate::common::stage;
use common::{TestContainer, docker, e2e, image, skip};
use plimsoll::capture::MemorySample;
use plimsoll::clean::apply::{ActOutcome, ActResult, ApplyOptions, apply_verdicts};
use plimsoll::clean::facts::{ContainerLook, DeviceLook, ProcessLook, Survey};
use plimsoll::clean::verdict::{CleanAct, CleanRule, CleanVerdict, VerdictSubject};
use plimsoll::clock::Clock;
use plimsoll::container::leftovers::boot_id;
use plimsoll::container::teardown::Patience;
use plimsoll::container::{OWNER_LABEL, RUN_LABEL, Runtime};
use plimsoll::telemetry::{Wanted, open_host};
use stage::{Stage, staged};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const GPU: &str = "GPU-00000000-aaaa-0000-0000-000000000000";
const MIB: u64 = 1 << 20;

/// A GPU with so much in use, and these processes on it (pid, MiB).
fn scenario(used: u64, processes: &[(u32, u64)]) -> String {
    let mut text = format!(
        "gpu {GPU} 81559 551 NVIDIA H100 80GB HBM3\nat 0 gpu 0 used={used} power=690000 temp=66 util=100\n"
    );
    for (pid, mib) in processes {
        text.push_str(&format!("at 0 proc 0 {pid} {mib}\n"));
    }
    text
}

fn used_bytes() -> u64 {
    let mut backend = open_host().expect("the stand-in");
    let mut samples: Vec<MemorySample> = Vec::new();
    let read = backend.sample(&Clock::start(), Wanted::default(), &mut samples);
    read.expect("a reading");
    samples[0].used_bytes
}

fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = &stat[stat.rfind(')')? + 1..];
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

struct Cast {
    doomed: TestContainer,
    doomed_pid: u32,
    theirs: TestContainer,
    theirs_pid: u32,
}

impl Cast {
    fn new() -> Cast {
        let script = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";
        let run = |what: &str, options: &[&str]| {
            let container = TestContainer::run(what, options, script);
            e2e::wait_for("its first word", || {
                let log = docker(&["logs", &container.id]).ok()?;
                log.contains("up").then_some(())
            });
            let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &container.id]);
            let pid = pid.expect("inspect").parse().expect("pid");
            (container, pid)
        };
        let owner = format!("{OWNER_LABEL}={}:4194305:1", boot_id());
        let of_run = format!("{RUN_LABEL}=test-run");
        let (doomed, doomed_pid) = run("gpu-ours", &["--label", &owner, "--label", &of_run]);
        let (theirs, theirs_pid) = run("gpu-theirs", &[]);
        Cast {
            doomed,
            doomed_pid,
            theirs,
            theirs_pid,
        }
    }

    /// Acts on our container, which held 7000 MiB beside the 2000 of another; once it is gone the
    /// driver says `after`.
    fn act(&self, stage: &Stage, extra: Option<ProcessLook>, after: &str) -> ActOutcome {
        stage.play(&scenario(
            10_000,
            &[(self.doomed_pid, 7000), (self.theirs_pid, 2000)],
        ));
        let look = |c: &TestContainer, pid: u32, ours: bool, mib: u64| ContainerLook {
            id: c.id.clone(),
            name: c.name.clone(),
            ours,
            processes: Some(vec![ProcessLook {
                pid,
                started: start_of(pid),
                container: Some(c.id.clone()),
                command: "engine".into(),
                ..ProcessLook::default()
            }]),
            gpu_bytes: Some(BTreeMap::from([(GPU.to_owned(), mib * MIB)])),
            ..ContainerLook::default()
        };
        let mut doomed = look(&self.doomed, self.doomed_pid, true, 7000);
        doomed.processes.as_mut().expect("processes").extend(extra);
        let survey = Survey {
            at: jiff::Timestamp::now().to_string(),
            containers: vec![doomed, look(&self.theirs, self.theirs_pid, false, 2000)],
            devices: vec![DeviceLook {
                id: GPU.into(),
                used_bytes: Some(used_bytes()),
                ..DeviceLook::default()
            }],
            ..Survey::default()
        };
        let verdict = CleanVerdict {
            of: VerdictSubject::Container(self.doomed.id.clone()),
            name: self.doomed.name.clone(),
            act: CleanAct::Stop,
            rule: CleanRule::OwnerDead,
            why: "the test says so".into(),
            advice: None,
        };
        let options = ApplyOptions {
            patience: Patience::for_grace(Duration::from_secs(5)),
            settle: Duration::from_secs(3),
            ..ApplyOptions::default()
        };
        let never = CancellationToken::new();
        let news: plimsoll::progress::Sink = Arc::new(|_| {});
        let tokio = tokio::runtime::Runtime::new().expect("tokio");
        let mut outcomes = tokio.block_on(async {
            let runtime = Runtime::connect().await.expect("daemon");
            let verdicts = [verdict];
            let acting = apply_verdicts(&runtime, &survey, &verdicts, &options, &never, &news);
            let driver = async {
                while runtime
                    .container_state(&self.doomed.id)
                    .await
                    .expect("state")
                    .is_some()
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                stage.play(after);
            };
            tokio::join!(acting, driver).0
        });
        assert_eq!(
            docker(&["inspect", "-f", "{{.State.Status}}", &self.theirs.id]).as_deref(),
            Ok("running")
        );
        outcomes.remove(0)
    }
}

fn on_stage(test: &str, body: impl FnOnce(&Stage)) {
    match image() {
        Ok(_) => staged(test, &scenario(10, &[]), body),
        Err(why) => skip::skip(test, &why),
    }
}

#[test]
fn memory_that_came_back_is_counted_whatever_others_take_meanwhile() {
    on_stage(test_name!(), |stage| {
        let cast = Cast::new();
        // The other container takes 4000 MiB more: that is its own business.
        let after = scenario(7_000, &[(cast.theirs_pid, 6000)]);
        let outcome = cast.act(stage, None, &after);
        assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
        assert_eq!(outcome.freed_bytes, Some(7000 * MIB));
        assert!(outcome.holders.is_empty() && outcome.problem.is_none());
    });
}

#[test]
fn memory_that_no_process_is_listed_with_is_not_given_back() {
    on_stage(test_name!(), |stage| {
        let cast = Cast::new();
        let after = scenario(8_000, &[(cast.theirs_pid, 2000)]);
        let outcome = cast.act(stage, None, &after);
        assert_eq!(outcome.done, ActResult::NotDone, "{outcome:?}");
        assert_eq!(outcome.freed_bytes, None);
        let problem = outcome.problem.expect("problem");
        assert!(
            problem.contains("4.88 GiB more than expected") && problem.contains(GPU),
            "{problem}"
        );
        assert!(outcome.steps.contains(&"removed".to_owned()));
    });
}

#[test]
fn a_worker_that_escaped_is_named_with_what_it_holds() {
    on_stage(test_name!(), |stage| {
        let cast = Cast::new();
        // It was the container's when that was looked at, and is in no cgroup of it any more.
        let mut worker = std::process::Command::new("sleep")
            .arg("7100")
            .spawn()
            .expect("worker");
        let look = ProcessLook {
            pid: worker.id(),
            started: start_of(worker.id()),
            command: "python3 -m worker".into(),
            gpu_bytes: BTreeMap::from([(GPU.to_owned(), 5000 * MIB)]),
            ..ProcessLook::default()
        };
        let after = scenario(8_000, &[(cast.theirs_pid, 2000), (worker.id(), 5000)]);
        let outcome = cast.act(stage, Some(look), &after);
        worker.kill().expect("kill");
        worker.wait().expect("wait");
        assert_eq!(outcome.done, ActResult::NotDone, "{outcome:?}");
        let holder = outcome.holders.join("\n");
        for part in [
            &format!("pid {}", worker.id()),
            "user ",
            "4.88 GiB",
            "python3 -m worker",
            &cast.doomed.name,
        ] {
            assert!(holder.contains(part), "`{part}` is not in {holder}");
        }
        assert!(!holder.contains(&cast.theirs.name), "{holder}");
    });
}

#[test]
fn a_device_that_cannot_be_read_again_proves_nothing() {
    on_stage(test_name!(), |stage| {
        let cast = Cast::new();
        let after = format!(
            "{}at 0 fail nvmlDeviceGetMemoryInfo_v2 15\nat 0 fail nvmlDeviceGetMemoryInfo 15\n",
            scenario(3_000, &[(cast.theirs_pid, 2000)])
        );
        let outcome = cast.act(stage, None, &after);
        assert_eq!(outcome.done, ActResult::NotDone, "{outcome:?}");
        assert!(outcome.problem.expect("problem").contains("cannot be read"));
    });
}
