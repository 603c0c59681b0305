//! What the cleaner sees of real containers: whose they are, who is in them, what they hold on the
//! stand-in NVML's GPUs.

use crate::common;
use crate::common::stage::staged;
use common::e2e::{Engine, wait_for};
use common::skip;
use common::{TestContainer, docker, image, podman};
use plimsoll::clean::facts::{ContainerLook, EngineHealth, ProcessLook};
use plimsoll::clean::survey::{HostLook, SurveyOptions, Surveyor};
use plimsoll::collect;
use plimsoll::container::Runtime;
use plimsoll::container::launch::{LaunchSpec, owner_label};
use plimsoll::container::leftovers::{Owner, boot_id};
use plimsoll::container::processes::start_time;
use plimsoll::store::started::{self, StartedContainer};
use plimsoll::telemetry::{MeasuredContainer, cgroup_directory};
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

const GPUS: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090
at 0 gpu 0 used=70000 power=690000 temp=66 util=97
at 0 gpu 1 used=12 power=22000 temp=40 util=0
";
const H100: &str = "GPU-00000000-aaaa-0000-0000-000000000000";
const RTX: &str = "GPU-11111111-bbbb-1111-1111-111111111111";

/// Waits while a child process of the test's own; ended when dropped.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeping() -> Own {
    let mut sleep = Command::new("sleep");
    Own(sleep.arg("300").stdin(Stdio::null()).spawn().unwrap())
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

async fn look(options: SurveyOptions) -> HostLook {
    let runtime = Runtime::connect().await.unwrap();
    let mut surveyor = Surveyor::open_devices(runtime, options).await;
    surveyor.look_at_host().await.unwrap()
}

fn at_once() -> SurveyOptions {
    SurveyOptions {
        starting: Duration::ZERO,
        ..SurveyOptions::default()
    }
}

#[track_caller]
fn container<'a>(look: &'a HostLook, id: &str) -> &'a ContainerLook {
    let found = look.survey.containers.iter().find(|c| c.id == id);
    found.unwrap_or_else(|| panic!("{id} is not in {:#?}", look.survey))
}

fn named<'a>(look: &'a ContainerLook, part: &str) -> Vec<&'a ProcessLook> {
    let all = look.processes.as_ref().expect("its processes are visible");
    all.iter().filter(|p| p.command.contains(part)).collect()
}

/// Nobody: its number is above what the kernel gives out, or long gone.
fn dead() -> String {
    format!("{}:4194303:1", boot_id())
}

fn labelled(what: &str, owner: &str, more: &[&str]) -> TestContainer {
    let label = format!("plimsoll.owner={owner}");
    let mut options = vec!["--label", "plimsoll.run=r7", "--label", &label];
    options.extend(more);
    TestContainer::run(what, &options, "exec sleep 300")
}

fn pid_of(id: &str) -> u32 {
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", id]).unwrap();
    pid.parse().unwrap()
}

#[test]
fn whose_a_container_is_follows_from_its_own_labels() {
    needs!(Docker, Root);
    staged(test_name!(), GPUS, |_| {
        let lost = dead();
        let dead = labelled("dead", &lost, &["--label", "plimsoll.deadline=100"]);
        let live = labelled("live", &owner_label(), &[]);
        let kept = labelled("kept", &owner_label(), &["--label", "plimsoll.keep=true"]);
        let foreign = TestContainer::run("foreign", &[], "exec sleep 300");
        // An image made of a container of ours has its labels.
        let copy = format!("{}:dev", common::unique("copy"));
        docker(&["commit", &dead.id, &copy]).unwrap();
        let copied = TestContainer::of(&copy, "run", "copied", &[], "exec sleep 300");
        // Who makes a container anew from an inspected one copies its labels as well.
        let created = ["--label", "plimsoll.created=2026-01-01T00:00:00Z"];
        let anew = labelled("anew", &lost, &created);
        let ended = labelled("ended", &owner_label(), &[]);
        let pid = format!("container:{}", dead.name);
        let guest = TestContainer::run("guest", &["--pid", &pid], "exec sleep 300");
        docker(&["kill", &ended.id]).unwrap();
        // In no container, so Docker knows nothing of it.
        let mut stranger = std::process::Command::new("nsenter")
            .args(["--pid", "--target", &pid_of(&live.id).to_string()])
            .args(["/bin/sh", "-c", "echo up; read end"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        std::io::Read::read_exact(stranger.stdout.as_mut().unwrap(), &mut said).unwrap();

        let seen = block_on(look(at_once()));
        let of = |c: &TestContainer| {
            let c = container(&seen, &c.id);
            (c.ours, c.owner, c.status.as_str())
        };
        assert_eq!(of(&dead), (true, Owner::Dead, "running"));
        assert_eq!(of(&live), (true, Owner::Alive, "running"));
        assert_eq!(of(&kept), (false, Owner::Unknown, "running"));
        assert_eq!(of(&foreign), (false, Owner::Unknown, "running"));
        assert_eq!(of(&copied), (false, Owner::Unknown, "running"));
        assert_eq!(of(&anew), (false, Owner::Unknown, "running"));
        assert_eq!(of(&ended), (true, Owner::Alive, "exited"));
        assert!(container(&seen, &dead.id).past_deadline_s.unwrap() > 0);
        assert_eq!(container(&seen, &live.id).past_deadline_s, None);
        assert!(container(&seen, &ended.id).status_for_s.is_some());
        assert!(!container(&seen, &dead.id).this_one);
        let shared = |c: &TestContainer| container(&seen, &c.id).shared_by.clone();
        assert_eq!(shared(&dead), [guest.name.as_str()]);
        assert_eq!(shared(&guest), [""; 0]);
        let strangers = shared(&live);
        let is_sh = |name: &String| name.starts_with("pid ") && name.ends_with(" (sh)");
        assert!(
            strangers.len() == 1 && is_sh(&strangers[0]),
            "{strangers:?}"
        );
        drop(stranger.stdin.take());
        stranger.wait().unwrap();
        drop(copied);
        docker(&["rmi", &copy]).unwrap();
    });
}

#[test]
fn memory_is_told_by_container_and_strangers_are_named() {
    needs!(Docker);
    staged(test_name!(), GPUS, |stage| {
        let ours = labelled("holder", &dead(), &[]);
        let foreign = TestContainer::run("neighbour", &[], "exec sleep 300");
        let stranger = sleeping();
        stage.play(&format!(
            "{GPUS}at 0 proc 0 {} 40000 both\nat 0 proc 0 {} 20000\nat 0 proc 0 {} 500\nat 0 proc 1 {} 7\n",
            pid_of(&ours.id),
            pid_of(&foreign.id),
            stranger.0.id(),
            pid_of(&foreign.id),
        ));
        let seen = block_on(look(SurveyOptions {
            activity: true,
            ..at_once()
        }));
        let held = |c: &TestContainer, gpu: &str| {
            let bytes = container(&seen, &c.id).gpu_bytes.as_ref().unwrap();
            bytes.get(gpu).map(|b| b / MIB)
        };
        assert_eq!((held(&ours, H100), held(&ours, RTX)), (Some(40000), None));
        assert_eq!(
            (held(&foreign, H100), held(&foreign, RTX)),
            (Some(20000), Some(7))
        );
        let worker = &container(&seen, &ours.id).processes.as_ref().unwrap()[0];
        assert_eq!(worker.gpu_bytes[H100] / MIB, 40000);
        assert_eq!(worker.container.as_deref(), Some(ours.id.as_str()));
        assert!(worker.cgroup.as_ref().unwrap().contains(&ours.id));

        let stray = seen.survey.strays.iter().find(|p| p.pid == stranger.0.id());
        let stray = stray.expect("a process in no container");
        assert_eq!((stray.gpu_bytes[H100] / MIB, &stray.record), (500, &None));
        assert_eq!(stray.command, "sleep 300");
        let pids: Vec<u32> = seen.survey.strays.iter().map(|p| p.pid).collect();
        assert_eq!(pids, [stranger.0.id()], "those in containers are no strays");

        let gpu = &seen.survey.devices[0];
        assert_eq!((gpu.id.as_str(), gpu.simulated), (H100, true));
        assert_eq!(gpu.unlisted_bytes, Some((70000 - 60500) * MIB));
        assert!(
            gpu.unlisted_readings >= 3 && gpu.broken.is_none(),
            "{gpu:?}"
        );
        let busy = |c: &TestContainer| {
            let seen = seen.observations.iter().find(|o| o.id == c.id);
            seen.unwrap().gpu_percent
        };
        assert_eq!(busy(&ours), Some(97));
    });
}

#[test]
fn what_runs_in_a_container_is_seen_with_its_marks_and_its_zombies() {
    needs!(Docker, OwnsProcesses);
    staged(test_name!(), GPUS, |_| {
        // Its second process ends, and `sleep` never asks for it.
        let user = TestContainer::run("user", &[], "sleep 0 & exec sleep 300");
        let exec = |run: &str, owner: &str, script: &str| {
            let (run, owner) = (
                format!("PLIMSOLL_RUN={run}"),
                format!("PLIMSOLL_OWNER={owner}"),
            );
            let marks = ["exec", "-d", "-e", &run, "-e", &owner];
            docker(&[&marks[..], &[&user.id, "sh", "-c", script]].concat()).unwrap();
        };
        exec("gone", &dead(), "exec sleep 301");
        exec("here", &owner_label(), "exec sleep 302");
        docker(&["exec", "-d", &user.id, "sh", "-c", "exec sleep 303"]).unwrap();
        let seen = wait_for("its processes", || {
            let seen = block_on(look(at_once()));
            let all = container(&seen, &user.id).processes.clone()?;
            let zombie = all.iter().any(|p| p.state == Some('Z'));
            (all.len() == 5 && zombie).then_some(seen)
        });
        let look = container(&seen, &user.id);
        let mark = |part: &str| {
            let found = named(look, part);
            assert_eq!(found.len(), 1, "{look:#?}");
            found[0].mark.as_ref().map(|m| (m.run_id.as_str(), m.owner))
        };
        assert_eq!(mark("sleep 301"), Some(("gone", Owner::Dead)));
        assert_eq!(mark("sleep 302"), Some(("here", Owner::Alive)));
        assert_eq!((mark("sleep 303"), mark("sleep 300")), (None, None));
        let first = pid_of(&user.id);
        let zombies = look.processes.iter().flatten();
        let zombie = zombies.clone().find(|p| p.state == Some('Z')).unwrap();
        assert_eq!(zombie.parent, Some(first));
        assert!(!look.ours && !look.locked);
    });
}

/// Whoever gave a container the environment of an exec of ours has not made it ours.
#[test]
fn a_mark_that_a_container_has_from_its_user_is_not_ours() {
    needs!(Docker, OwnsProcesses);
    staged(test_name!(), GPUS, |_| {
        let owner = format!("PLIMSOLL_OWNER={}", dead());
        let marks = ["-e", "PLIMSOLL_RUN=copied", "-e", &owner];
        // Its first process keeps the mark, or has none.
        for script in [
            "sleep 301 & exec sleep 300",
            "sleep 301 & unset PLIMSOLL_RUN; exec sleep 300",
        ] {
            let user = TestContainer::run("marked", &marks, script);
            let exec = ["exec", "-d", "-e", "PLIMSOLL_RUN=gone", &user.id];
            docker(&[&exec[..], &["sh", "-c", "exec sleep 302"]].concat()).unwrap();
            let seen = wait_for("its processes", || {
                let seen = block_on(look(at_once()));
                let all = container(&seen, &user.id).processes.clone()?;
                let is = |part: &str| all.iter().any(|p| p.command == part);
                (is("sleep 300") && is("sleep 301") && is("sleep 302")).then_some(seen)
            });
            let look = container(&seen, &user.id);
            let mark = |part: &str| {
                named(look, part)[0]
                    .mark
                    .as_ref()
                    .map(|m| m.run_id.as_str())
            };
            assert_eq!((mark("sleep 300"), mark("sleep 301")), (None, None));
            assert_eq!(mark("sleep 302"), Some("gone"), "an exec's own");
        }
    });
}

#[test]
fn an_exec_of_ours_says_who_started_it() {
    needs!(Docker, OwnsProcesses);
    staged(test_name!(), GPUS, |_| {
        let user = TestContainer::run("marked", &[], "exec sleep 300");
        block_on(async {
            let runtime = Runtime::connect().await.unwrap();
            let request = plimsoll::container::exec::ExecRequest {
                argv: ["sh", "-c", "exec sleep 301"].map(str::to_owned).into(),
                run_id: "r9".into(),
                ..Default::default()
            };
            let cancel = tokio_util::sync::CancellationToken::new();
            let running = runtime.run_exec(&user.id, request, &cancel, |_, _| {});
            let watched = async {
                loop {
                    let seen = look(at_once()).await;
                    let found = named(container(&seen, &user.id), "sleep 301");
                    // Between fork and exec it is still somebody else.
                    if let Some(mark) = found.first().and_then(|p| p.mark.clone()) {
                        return mark;
                    }
                }
            };
            tokio::pin!(running);
            let mark = tokio::select! {
                ended = &mut running => panic!("{ended:?}"),
                mark = watched => mark,
            };
            cancel.cancel();
            running.await.unwrap();
            assert_eq!((mark.run_id.as_str(), mark.owner), ("r9", Owner::Alive));
        });
    });
}

#[test]
fn who_works_on_a_container_is_seen_by_its_lock() {
    needs!(Docker);
    staged(test_name!(), GPUS, |_| {
        let (one, two) = (
            labelled("locked", &dead(), &[]),
            labelled("free", &dead(), &[]),
        );
        let target = MeasuredContainer {
            init_pid: Some(pid_of(&one.id)),
            container_id: one.id.clone(),
            ..MeasuredContainer::default()
        };
        let mut flock = Command::new("flock");
        match cgroup_directory(&target) {
            Some(directory) => flock.arg(directory),
            None => return,
        };
        flock.args(["-c", "echo held; read line"]);
        let child = flock.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut worker = Own(child.unwrap());
        let mut said = [0; 5];
        worker
            .0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        let seen = block_on(look(at_once()));
        assert!(container(&seen, &one.id).locked);
        assert!(!container(&seen, &two.id).locked);
    });
}

#[test]
fn how_an_engine_is_and_what_it_does_is_asked_from_outside() {
    needs!(Docker, ReferenceEngine);
    staged(test_name!(), GPUS, |_| {
        let well = Engine::serving("well", &[], &["--kv-pool", "32MiB"]);
        let hung = Engine::serving("hung", &[], &["--kv-pool", "32MiB"]);
        docker(&["kill", "-s", "STOP", &hung.id]).unwrap();
        let check = [
            "--health-cmd",
            "false",
            "--health-interval",
            "1s",
            "--health-retries",
            "1",
        ];
        let failing = TestContainer::run("failing", &check, "exec sleep 300");
        let other = TestContainer::run("no-engine", &[], "echo hello; exec sleep 300");
        // Podman's checks are timers of systemd, which may not be there.
        let checks = !podman();
        wait_for("Docker's own check", || {
            let health = docker(&["inspect", "-f", "{{.State.Health.Status}}", &failing.id]);
            (!checks || health.as_deref() == Ok("unhealthy")).then_some(())
        });
        let options = SurveyOptions {
            activity: true,
            ..at_once()
        };
        let seen = block_on(look(options));
        let health = |id: &str| container(&seen, id).health;
        assert_eq!(health(&well.id), EngineHealth::Well);
        let first = EngineHealth::Ill { for_s: 0 };
        assert_eq!(health(&hung.id), first, "one look says nothing of before");
        assert!(!checks || matches!(health(&failing.id), EngineHealth::Ill { .. }));
        assert_eq!(health(&other.id), EngineHealth::Unknown);
        let did = |id: &str| seen.observations.iter().find(|o| o.id == id).unwrap();
        assert_eq!(did(&well.id).requests_now, Some(0));
        assert_eq!(did(&well.id).requests, Some(0));
        assert!(did(&well.id).started_ns.is_some() && did(&well.id).last_log_ns.is_some());
        assert_eq!(
            did(&well.id).gpu_percent,
            Some(0),
            "it holds no memory on a GPU"
        );
        assert!(
            did(&other.id).last_log_ns > did(&other.id).started_ns.map(|ns| ns - 5_000_000_000)
        );
        assert_eq!(did(&other.id).requests_now, None);
        assert_eq!(did(&failing.id).last_log_ns, None, "it never said anything");
        // One that only just started is not asked.
        let seen = block_on(look(SurveyOptions::default()));
        assert_eq!(container(&seen, &hung.id).health, EngineHealth::Starting);
    });
}

/// What was started is written down with the daemon's id.
const NO_ID: &str = "Podman makes up another id for every answer";

/// A folder in the cgroup file system that is named as a container's; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` where cgroups cannot be made here.
    fn of(id: &str) -> Option<Cgroup> {
        let roots = [
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/pids",
            "/sys/fs/cgroup",
        ];
        let made = roots
            .iter()
            .map(|root| PathBuf::from(root).join("docker").join(id));
        made.filter(|dir| {
            dir.ancestors()
                .nth(2)
                .is_some_and(|r| r.join("cgroup.procs").exists())
        })
        .find(|dir| std::fs::create_dir_all(dir).is_ok())
        .map(Cgroup)
    }

    fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_that_outlived_its_recorded_container_is_a_stray() {
    needs!(Docker, Root);
    if podman() {
        return skip::skip(test_name!(), NO_ID);
    }
    staged(test_name!(), GPUS, |_| {
        let (gone, strange) = ("c0ffee00".repeat(8), "decafbad".repeat(8));
        let older = "0ddba11a".repeat(8);
        let groups = || {
            let (group, other) = (Cgroup::of(&gone)?, Cgroup::of(&strange)?);
            let before = Cgroup::of(&older)?;
            // Of a daemon in that container, or one whose containers are to lie there.
            let nested = Cgroup(group.0.join("feedface".repeat(8)));
            std::fs::create_dir(&nested.0).ok()?;
            Some((nested, group, other, before))
        };
        let Some((nested, group, other, before)) = groups() else {
            return skip::skip(
                "a stray of a recorded container",
                "no cgroup can be made here",
            );
        };
        let (orphan, stranger) = (sleeping(), sleeping());
        let (inner, old) = (sleeping(), sleeping());
        group.take(orphan.0.id());
        other.take(stranger.0.id());
        nested.take(inner.0.id());
        before.take(old.0.id());
        let running = TestContainer::run("recorded", &[], "exec sleep 300");
        block_on(async {
            let daemon = Runtime::connect().await.unwrap().daemon_identity().await;
            let daemon = daemon.expect("its identity can be seen");
            let note = |id: &str, daemon: &str| {
                let note = StartedContainer {
                    container: id.to_owned(),
                    name: "llm".into(),
                    daemon: daemon.to_owned(),
                    owner: dead(),
                    started: start_time(orphan.0.id()).unwrap(),
                    boot: boot_id(),
                };
                started::note_started(&note).unwrap();
            };
            let empty = "0".repeat(64);
            // An older plimsoll wrote only the ID: of which daemon is not known.
            note(&older, daemon.split(' ').next().unwrap());
            note(&gone, &daemon);
            note(&empty, &daemon);
            note(&running.id, &daemon);
            note(&strange, "another daemon");
            let seen = look(at_once()).await;
            let strays: Vec<u32> = seen.survey.strays.iter().map(|p| p.pid).collect();
            assert_eq!(strays, [orphan.0.id()], "{:#?}", seen.survey.strays);
            let stray = &seen.survey.strays[0];
            let record = stray.record.as_ref().expect("it is recorded");
            assert_eq!(
                (record.container.as_str(), record.owner),
                (gone.as_str(), Owner::Dead)
            );
            assert!(stray.started >= Some(record.started));
            assert_eq!(stray.container.as_deref(), Some(gone.as_str()));
            // What is over is struck out, and nothing else is.
            let mut left: Vec<String> = started::list_started(&boot_id())
                .into_iter()
                .map(|s| s.container)
                .collect();
            left.sort();
            let mut expected = [&gone, &running.id, &strange, &older].map(String::clone);
            expected.sort();
            assert_eq!(left, expected);
        });
        drop((orphan, stranger, inner, old));
        wait_for("the cgroups to be empty", || {
            let empty = |g: &Cgroup| std::fs::read_to_string(g.0.join("cgroup.procs"));
            [&nested, &group, &other, &before]
                .iter()
                .all(|g| empty(g).is_ok_and(|t| t.is_empty()))
                .then_some(())
        });
    });
}

#[test]
fn what_plimsoll_starts_is_written_down_until_it_is_removed() {
    needs!(Docker, OwnsProcesses);
    if podman() {
        return skip::skip(test_name!(), NO_ID);
    }
    staged(test_name!(), GPUS, |_| {
        block_on(async {
            let runtime = Runtime::connect().await.unwrap();
            let spec = LaunchSpec {
                name: common::unique("noted"),
                image: image().unwrap(),
                run_id: "r5".into(),
                cmd: ["sh", "-c", "exec sleep 300"].map(str::to_owned).into(),
                labels: [("plimsoll.test".to_owned(), "1".to_owned())].into(),
                ..LaunchSpec::default()
            };
            let found = collect::launch_container(&runtime, &spec).await.unwrap();
            let noted = started::list_started(&boot_id());
            let seen = look(at_once()).await;
            collect::end_container(&runtime, &found.facts.id, Duration::ZERO)
                .await
                .unwrap();
            assert_eq!(noted.len(), 1);
            assert_eq!(noted[0].container, found.facts.id);
            assert_eq!(noted[0].owner, owner_label());
            assert_eq!(
                Some(noted[0].started),
                container(&seen, &found.facts.id)
                    .processes
                    .as_ref()
                    .unwrap()[0]
                    .started
            );
            let of = container(&seen, &found.facts.id);
            assert_eq!((of.ours, of.owner), (true, Owner::Alive));
            assert_eq!(seen.survey.strays, []);
            assert_eq!(started::list_started(&boot_id()), []);
        });
    });
}

#[test]
fn a_gpu_that_is_lost_is_told_as_broken() {
    needs!(Docker);
    let scenario = format!("{GPUS}at 0 fail nvmlDeviceGetMemoryInfo_v2 15 1\n");
    staged(test_name!(), GPUS, |stage| {
        block_on(async {
            let runtime = Runtime::connect().await.unwrap();
            let mut surveyor = Surveyor::open_devices(runtime, at_once()).await;
            stage.play(&scenario);
            for _ in 0..2 {
                let seen = surveyor.look_at_host().await.unwrap();
                let [first, second] = &seen.survey.devices[..] else {
                    panic!("{:#?}", seen.survey.devices);
                };
                assert_eq!(first.broken, None);
                assert!(
                    second.broken.is_some() && second.used_bytes.is_none(),
                    "{second:?}"
                );
            }
        });
    });
}

#[test]
fn a_host_that_is_not_asked_for_gpus_has_none() {
    needs!(Docker);
    assert!(image().is_ok());
    let options = SurveyOptions {
        memory: plimsoll::telemetry::BackendChoice::Host,
        ..at_once()
    };
    let idle = TestContainer::run("cpu", &[], "exec sleep 300");
    let seen = block_on(look(options));
    assert_eq!(seen.survey.devices, []);
    let look = container(&seen, &idle.id);
    assert_eq!(look.gpu_bytes.as_ref().map(|held| held.len()), Some(0));
}
