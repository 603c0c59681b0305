//! The cleaner's acts on real containers and processes: what goes, what stays, and what is left
//! when the daemon fails in the middle. Skipped, and said so, where no daemon answers.
#![allow(missing_docs, clippy::print_stdout)]

use crate::common;
use crate::common::faults;
use common::{TestContainer, docker, e2e, runtime};
use faults::{Fault, FaultySocket, Rule as Wrong};
use plimsoll::clean::apply::{ActOutcome, ActResult, ApplyOptions, apply_verdicts};
use plimsoll::clean::facts::{ContainerLook, ProcessLook, RunMark, StartRecord, Survey};
use plimsoll::clean::survey::{SurveyOptions, Surveyor};
use plimsoll::clean::verdict::{CleanAct, CleanRule, CleanVerdict, VerdictSubject};
use plimsoll::container::leftovers::Owner;
use plimsoll::container::teardown::Patience;
use plimsoll::container::{OWNER_LABEL, PROTECT_LABEL, RUN_LABEL, Runtime, launch};
use plimsoll::host::processes::ProcessId;
use plimsoll::progress::Sink;
use plimsoll::store::ContainerLock;
use plimsoll::telemetry::{MeasuredContainer, cgroup_directory};
use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Says that it is there, and ends when asked to.
const OBEYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";
/// Does not end when asked to.
const IGNORES: &str = "trap '' TERM; echo up; while true; do sleep 0.1; done";

fn options() -> ApplyOptions {
    ApplyOptions {
        patience: Patience {
            grace: Duration::from_secs(2),
            kill_wait: Duration::from_secs(5),
            retry_after: Duration::from_secs(2),
        },
        settle: Duration::from_secs(10),
        side_by_side: 8,
    }
}

/// Of this boot, and of no process.
fn dead_owner() -> String {
    let owner = launch::owner_label();
    let boot = owner.split(':').next().expect("boot");
    format!("{boot}:4194303:1")
}

/// A container with plimsoll's labels whose owner is dead.
fn ours(what: &str, script: &str) -> TestContainer {
    owned(what, script, &dead_owner(), &[])
}

fn owned(what: &str, script: &str, owner: &str, more: &[&str]) -> TestContainer {
    let owner = format!("{OWNER_LABEL}={owner}");
    let run = format!("{RUN_LABEL}=test-run");
    let mut options = vec!["--label", &owner, "--label", &run];
    options.extend(more);
    up(TestContainer::run(what, &options, script))
}

/// Once its traps are set.
fn up(container: TestContainer) -> TestContainer {
    e2e::wait_for("the container's first word", || {
        let log = docker(&["logs", &container.id]).ok()?;
        log.contains("up").then_some(())
    });
    container
}

fn foreign(what: &str, options: &[&str]) -> TestContainer {
    up(TestContainer::run(what, options, OBEYS))
}

fn status(id: &str) -> String {
    let state = docker(&["inspect", "-f", "{{.State.Status}}", id]);
    state.unwrap_or_else(|_| "gone".into())
}

fn started(id: &str) -> String {
    docker(&["inspect", "-f", "{{.State.StartedAt}}", id]).expect("started")
}

/// What a look at these containers finds.
fn survey(ours: &[&TestContainer], theirs: &[&TestContainer]) -> Survey {
    let look = |c: &TestContainer, ours: bool| ContainerLook {
        id: c.id.clone(),
        name: c.name.clone(),
        status: status(&c.id),
        ours,
        owner: if ours { Owner::Dead } else { Owner::Unknown },
        processes: Some(
            c.processes()
                .into_iter()
                .map(|(pid, command)| process(pid, &command))
                .collect(),
        ),
        ..ContainerLook::default()
    };
    Survey {
        at: jiff::Timestamp::now().to_string(),
        containers: ours
            .iter()
            .map(|c| look(c, true))
            .chain(theirs.iter().map(|c| look(c, false)))
            .collect(),
        ..Survey::default()
    }
}

fn process(pid: u32, command: &str) -> ProcessLook {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ProcessLook {
        pid,
        started: start_of(pid),
        name: comm.trim_end().to_owned(),
        command: command.to_owned(),
        ..ProcessLook::default()
    }
}

fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = &stat[stat.rfind(')')? + 1..];
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn verdict(of: &TestContainer, act: CleanAct, rule: CleanRule) -> CleanVerdict {
    CleanVerdict {
        of: VerdictSubject::Container(of.id.clone()),
        name: of.name.clone(),
        act,
        rule,
        why: "the test says so".into(),
        advice: None,
    }
}

fn stop(of: &TestContainer) -> CleanVerdict {
    verdict(of, CleanAct::Stop, CleanRule::OwnerDead)
}

fn no_news() -> Sink {
    Arc::new(|_| {})
}

async fn act(runtime: &Runtime, survey: &Survey, verdicts: &[CleanVerdict]) -> Vec<ActOutcome> {
    let never = CancellationToken::new();
    apply_verdicts(runtime, survey, verdicts, &options(), &never, &no_news()).await
}

async fn act_on_one(runtime: &Runtime, survey: &Survey, verdict: &CleanVerdict) -> ActOutcome {
    let mut outcomes = act(runtime, survey, std::slice::from_ref(verdict)).await;
    assert_eq!(outcomes.len(), 1);
    let outcome = outcomes.remove(0);
    assert_eq!(&outcome.verdict, verdict);
    outcome
}

#[track_caller]
fn says(outcome: &ActOutcome, step: &str) {
    assert!(
        outcome.steps.iter().any(|s| s.contains(step)),
        "no step says `{step}`: {outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_a_dead_owner_goes_however_it_behaves() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let obeys = ours("obeys", OBEYS);
    let ignores = ours("ignores", IGNORES);
    let frozen = ours("sigstopped", OBEYS);
    docker(&["kill", "--signal", "STOP", &frozen.id]).expect("SIGSTOP");
    let paused = ours("paused", OBEYS);
    docker(&["pause", &paused.id]).expect("pause");
    let ended = ours("ended", "echo up");
    e2e::wait_for("its end", || (status(&ended.id) == "exited").then_some(()));
    let bystander = foreign("bystander", &[]);
    let since = started(&bystander.id);

    let all = [&obeys, &ignores, &frozen, &paused, &ended];
    let survey = survey(&all, &[&bystander]);
    let mut verdicts: Vec<CleanVerdict> = all[..4].iter().map(|c| stop(c)).collect();
    verdicts.push(verdict(&ended, CleanAct::Remove, CleanRule::Ended));
    verdicts.push(verdict(&bystander, CleanAct::Keep, CleanRule::Foreign));
    let outcomes = act(&runtime, &survey, &verdicts).await;

    assert_eq!(outcomes.len(), 5, "what is kept is no act: {outcomes:?}");
    for (outcome, container) in outcomes.iter().zip(all) {
        assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
        assert_eq!(outcome.verdict.name, container.name, "in their order");
        assert_eq!(status(&container.id), "gone");
        assert_eq!(outcome.problem, None);
        says(outcome, "removed");
    }
    says(&outcomes[0], "stopped in");
    says(&outcomes[1], "killed after");
    says(&outcomes[2], "killed after");
    assert!(!outcomes[4].steps.iter().any(|s| s.contains("stopped")));
    assert_eq!(status(&bystander.id), "running");
    assert_eq!(started(&bystander.id), since);

    // The same again, as a cleaner that came late would.
    let again = act(&runtime, &survey, &verdicts).await;
    assert!(
        again.iter().all(|o| o.done == ActResult::AlreadyGone),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_container_is_stopped_when_named_and_never_removed() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let named = foreign("named", &["--restart", "always"]);
    let plain = foreign("plain", &[]);
    let survey = survey(&[], &[&named, &plain]);
    let outcome = act_on_one(
        &runtime,
        &survey,
        &verdict(&named, CleanAct::Stop, CleanRule::Named),
    )
    .await;
    assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
    assert_eq!(status(&named.id), "exited");
    says(&outcome, "restart policy `always`");

    // A verdict that went wrong somewhere: nobody chose it, and it is not ours.
    for rule in [
        CleanRule::OwnerDead,
        CleanRule::Unhealthy,
        CleanRule::Ended,
        CleanRule::Foreign,
    ] {
        for verb in [CleanAct::Stop, CleanAct::Remove] {
            let outcome = act_on_one(&runtime, &survey, &verdict(&plain, verb, rule)).await;
            assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
        }
    }
    let of_user = verdict(&plain, CleanAct::EndMarked, CleanRule::Named);
    assert_eq!(
        act_on_one(&runtime, &survey, &of_user).await.done,
        ActResult::Kept
    );
    assert_eq!(status(&plain.id), "running");
    // Removing is for ours, also when the user named it.
    let remove = verdict(&named, CleanAct::Remove, CleanRule::Named);
    act_on_one(&runtime, &survey, &remove).await;
    assert_eq!(status(&named.id), "exited");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_since_it_was_judged_is_kept() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let again = ours("again", OBEYS);
    let protected = owned(
        "protected",
        OBEYS,
        &dead_owner(),
        &["--label", &format!("{PROTECT_LABEL}=")],
    );
    let alive = owned("alive", OBEYS, &launch::owner_label(), &[]);
    let ended = ours("ended", OBEYS);
    docker(&["stop", &ended.id]).expect("stop");
    let survey = survey(&[&again, &protected, &alive, &ended], &[]);
    docker(&["restart", &again.id]).expect("restart");
    docker(&["start", &ended.id]).expect("start");

    let mut verdicts: Vec<CleanVerdict> = [&again, &protected, &alive].map(stop).into();
    verdicts.push(verdict(&ended, CleanAct::Remove, CleanRule::Ended));
    verdicts.push(verdict(&protected, CleanAct::Stop, CleanRule::Named));
    verdicts.push(verdict(&alive, CleanAct::Stop, CleanRule::Named));
    let outcomes = act(&runtime, &survey, &verdicts).await;
    for outcome in &outcomes {
        assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
        assert!(outcome.problem.is_some() && outcome.steps.is_empty());
    }
    for container in [&again, &protected, &alive, &ended] {
        assert_eq!(status(&container.id), "running", "{}", container.name);
    }
    // Whoever names it means it, restarted or not.
    let named = verdict(&again, CleanAct::Stop, CleanRule::Named);
    let outcome = act_on_one(&runtime, &survey, &named).await;
    assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
    assert_eq!(status(&again.id), "gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_somebody_works_on_is_left_until_he_has_done() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let container = ours("locked", OBEYS);
    let survey = survey(&[&container], &[]);
    let facts = runtime
        .find_container(&container.id)
        .await
        .expect("found")
        .facts;
    let cgroup = cgroup_directory(&MeasuredContainer::of_container(&facts));
    assert!(cgroup.is_some(), "else the lock is another one");
    let lock = ContainerLock::take_lock(&facts.id, &facts.name, cgroup.as_deref()).expect("lock");

    let outcome = act_on_one(&runtime, &survey, &stop(&container)).await;
    assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
    let pid = format!("pid {}", std::process::id());
    assert!(outcome.problem.as_ref().expect("why").contains(&pid));
    assert_eq!(status(&container.id), "running");

    drop(lock);
    let outcome = act_on_one(&runtime, &survey, &stop(&container)).await;
    assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
    assert_eq!(status(&container.id), "gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_cleaners_at_once_do_no_harm() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let containers = [ours("two", OBEYS), ours("two", IGNORES)];
    let theirs = foreign("two-theirs", &[]);
    let survey = survey(&[&containers[0], &containers[1]], &[&theirs]);
    let verdicts = [stop(&containers[0]), stop(&containers[1])];
    let (one, two) = tokio::join!(
        act(&runtime, &survey, &verdicts),
        act(&runtime, &survey, &verdicts)
    );
    for (a, b) in one.iter().zip(&two) {
        let both = [a.done, b.done];
        assert!(both.contains(&ActResult::Cleaned), "{a:?} {b:?}");
        // Whoever came second found it gone, or did what was left to be done.
        let well = |d: &ActResult| matches!(d, ActResult::Cleaned | ActResult::AlreadyGone);
        assert!(both.iter().all(well), "{a:?} {b:?}");
    }
    for container in &containers {
        assert_eq!(status(&container.id), "gone");
    }
    assert_eq!(status(&theirs.id), "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_begins_nothing_and_finishes_what_was_begun() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let first = ours("first", IGNORES);
    let second = ours("second", OBEYS);
    let survey = survey(&[&first, &second], &[]);
    let verdicts = [stop(&first), stop(&second)];
    let cancel = CancellationToken::new();
    let one_by_one = ApplyOptions {
        side_by_side: 1,
        ..options()
    };
    let news = no_news();
    let acting = apply_verdicts(&runtime, &survey, &verdicts, &one_by_one, &cancel, &news);
    let interrupt = async {
        // The first is being stopped once its lock is held.
        let facts = runtime
            .find_container(&first.id)
            .await
            .expect("found")
            .facts;
        let cgroup = cgroup_directory(&MeasuredContainer::of_container(&facts));
        loop {
            match ContainerLock::take_lock(&facts.id, &facts.name, cgroup.as_deref()) {
                Ok(lock) => drop(lock),
                Err(_) => break,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cancel.cancel();
    };
    let (outcomes, ()) = tokio::join!(acting, interrupt);
    assert_eq!(outcomes[0].done, ActResult::Cleaned, "{outcomes:?}");
    assert_eq!(outcomes[1].done, ActResult::NotDone, "{outcomes:?}");
    assert_eq!(
        (status(&first.id).as_str(), status(&second.id).as_str()),
        ("gone", "running")
    );
}

/// A cgroup of the test's own that is named as a container's, and a process in it.
struct Orphan {
    child: Child,
    cgroup: PathBuf,
    container: String,
    /// The daemon that is said to have started it.
    daemon: String,
}

impl Orphan {
    fn start(daemon: &str, script: &str) -> Option<Orphan> {
        let word = || format!("{:016x}", random());
        let container = [word(), word(), word(), word()].concat();
        let cgroup = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"]
            .iter()
            .map(|mount| PathBuf::from(mount).join("docker"))
            .filter(|parent| parent.is_dir())
            .map(|parent| parent.join(&container))
            .find(|dir| std::fs::create_dir(dir).is_ok())?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("read begin; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("child");
        std::fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).expect("moved");
        // Only now: its children are to be in the cgroup too.
        drop(child.stdin.take());
        // Only when it says so has it done what comes before its loop.
        let mut said = String::new();
        let out = child.stdout.take().expect("stdout");
        std::io::BufReader::new(out)
            .read_line(&mut said)
            .expect("a word");
        Some(Orphan {
            child,
            cgroup,
            container,
            daemon: daemon.to_owned(),
        })
    }

    fn look(&self) -> ProcessLook {
        ProcessLook {
            container: Some(self.container.clone()),
            record: Some(StartRecord {
                container: self.container.clone(),
                name: "plimsoll-gone".into(),
                owner: Owner::Dead,
                started: 1,
                daemon: self.daemon.clone(),
            }),
            ..process(self.child.id(), "sh")
        }
    }

    /// The same of the first process of a pid namespace, which its script made.
    fn look_inside(&self) -> ProcessLook {
        let procs = std::fs::read_to_string(self.cgroup.join("cgroup.procs")).expect("procs");
        let mut pids = procs.lines().filter_map(|l| l.parse().ok());
        let first = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
            numbers.is_some_and(|n| n.split_whitespace().skip(1).last() == Some("1"))
        };
        ProcessLook {
            container: Some(self.container.clone()),
            record: self.look().record,
            ..process(pids.find(first).expect("its first process"), "sh")
        }
    }

    fn lives(&self, look: &ProcessLook) -> bool {
        let id = ProcessId {
            pid: look.pid,
            started: start_of(look.pid).unwrap_or_default(),
        };
        id.is_alive()
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let state = std::collections::hash_map::RandomState::new();
    state.build_hasher().finish()
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        e2e::wait_for("its cgroup's end", || {
            let gone = std::fs::remove_dir(&self.cgroup).is_ok() || !self.cgroup.exists();
            gone.then_some(())
        });
    }
}

fn end(look: &ProcessLook) -> CleanVerdict {
    CleanVerdict {
        of: VerdictSubject::Process(look.pid, look.started),
        name: format!("pid {} ({})", look.pid, look.name),
        act: CleanAct::EndProcess,
        rule: CleanRule::Orphan,
        why: "the test says so".into(),
        advice: None,
    }
}

fn of_strays(strays: &[&ProcessLook]) -> Survey {
    Survey {
        at: jiff::Timestamp::now().to_string(),
        strays: strays.iter().map(|p| (*p).clone()).collect(),
        ..Survey::default()
    }
}

/// Why no process is ended where Podman runs.
const PODMAN_HAS_NO_IDENTITY: &str =
    "Podman answers with another ID each time: nothing can be recorded as its own";

/// The identity of the daemon, which every Docker has and no Podman.
async fn identity_of(runtime: &Runtime) -> Option<String> {
    let identity = runtime.daemon_identity().await;
    assert_eq!(identity.is_none(), runtime.version().podman, "{identity:?}");
    identity
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_outlived_its_container_ends_and_only_it() {
    needs!(Docker, Root);
    let runtime = Runtime::connect().await.expect("daemon");
    let Some(daemon) = identity_of(&runtime).await else {
        return common::skip::skip(&common::this_test(), PODMAN_HAS_NO_IDENTITY);
    };
    let started = || -> Option<[Orphan; 2]> {
        let ignores = "trap '' TERM; echo ready; while true; do sleep 0.1; done";
        Some([
            Orphan::start(&daemon, "echo ready; while true; do sleep 0.1; done")?,
            Orphan::start(&daemon, ignores)?,
        ])
    };
    let Some(orphans) = started() else {
        common::skip::skip(
            &common::this_test(),
            "no cgroup of Docker's can be written to here",
        );
        return;
    };
    let looks = orphans.each_ref().map(Orphan::look);
    let survey = of_strays(&[&looks[0], &looks[1]]);

    // Nothing is signalled that differs in anything from what was judged.
    let of_daemon = |daemon: &str| ProcessLook {
        record: looks[0].record.clone().map(|record| StartRecord {
            daemon: daemon.to_owned(),
            ..record
        }),
        ..looks[0].clone()
    };
    let only_id = daemon.split(' ').next().expect("an ID");
    let differs: [(&str, ProcessLook); 8] = [
        ("another daemon started it", of_daemon("another /d 1:2")),
        ("an older plimsoll wrote it down", of_daemon(only_id)),
        (
            "its number is used again",
            ProcessLook {
                started: looks[0].started.map(|s| s - 1),
                ..looks[0].clone()
            },
        ),
        (
            "nobody knows since when it runs",
            ProcessLook {
                started: None,
                ..looks[0].clone()
            },
        ),
        (
            "it runs another program",
            ProcessLook {
                name: "python3".into(),
                ..looks[0].clone()
            },
        ),
        (
            "it is in another cgroup",
            ProcessLook {
                container: looks[1].container.clone(),
                record: looks[1].record.clone(),
                ..looks[0].clone()
            },
        ),
        (
            "nothing was written down of its container",
            ProcessLook {
                record: None,
                ..looks[0].clone()
            },
        ),
        (
            "it is above us",
            ProcessLook {
                ancestor: true,
                ..looks[0].clone()
            },
        ),
    ];
    for (what, look) in &differs {
        let outcome = act_on_one(&runtime, &of_strays(&[look]), &end(look)).await;
        assert!(
            matches!(outcome.done, ActResult::Kept | ActResult::AlreadyGone),
            "{what}: {outcome:?}"
        );
        assert!(outcome.steps.is_empty(), "{what}: {outcome:?}");
        assert!(orphans[0].lives(&looks[0]), "{what}");
    }

    let outcomes = act(&runtime, &survey, &[end(&looks[0]), end(&looks[1])]).await;
    for (outcome, (orphan, look)) in outcomes.iter().zip(orphans.iter().zip(&looks)) {
        assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
        assert!(!orphan.lives(look));
    }
    says(&outcomes[0], "ended in");
    says(&outcomes[1], "killed after");
    let again = act(&runtime, &survey, &[end(&looks[0])]).await;
    assert_eq!(again[0].done, ActResult::AlreadyGone, "{again:?}");
}

/// A process of somebody's in the pid namespace of another process; it ends when dropped.
struct Sharer(Child);

impl Sharer {
    fn of(pid: u32) -> Sharer {
        let mut child = Command::new("nsenter")
            .args(["--pid", "--target", &pid.to_string()])
            .args(["/bin/sh", "-c", "echo up; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter");
        let mut said = String::new();
        let out = child.stdout.take().expect("stdout");
        std::io::BufReader::new(out)
            .read_line(&mut said)
            .expect("a word");
        assert_eq!(said, "up\n");
        Sharer(child)
    }

    fn lives(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_kept_while_others_share_its_pid_namespace() {
    needs!(Docker, Root);
    let runtime = Runtime::connect().await.expect("daemon");
    let Some(daemon) = identity_of(&runtime).await else {
        return common::skip::skip(&common::this_test(), PODMAN_HAS_NO_IDENTITY);
    };
    let script = "exec unshare --pid --fork --kill-child \
                  /bin/sh -c 'echo ready; while true; do sleep 0.1; done'";
    let Some(orphan) = Orphan::start(&daemon, script) else {
        let why = "no cgroup of Docker's can be written to here";
        return common::skip::skip(&common::this_test(), why);
    };
    let look = orphan.look_inside();
    let survey = of_strays(&[&look]);
    let mut sharer = Sharer::of(look.pid);
    let outcome = act_on_one(&runtime, &survey, &end(&look)).await;
    assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
    assert!(sharer.lives() && orphan.lives(&look), "{outcome:?}");
    let why = outcome.problem.expect("why");
    assert!(why.contains("pid namespace"), "{why}");

    drop(sharer);
    let outcome = act_on_one(&runtime, &survey, &end(&look)).await;
    assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_kept_while_others_share_its_pid_namespace() {
    needs!(Docker, Root);
    let runtime = Runtime::connect().await.expect("daemon");
    let container = ours("joined", OBEYS);
    let survey = survey(&[&container], &[]);
    // Since the look, and of no container: Docker knows nothing of it.
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &container.id]).expect("pid");
    let mut sharer = Sharer::of(pid.parse().expect("a number"));
    let outcome = act_on_one(&runtime, &survey, &stop(&container)).await;
    assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
    assert!(sharer.lives(), "{outcome:?}");
    let why = outcome.problem.expect("why");
    assert!(why.contains("pid namespace"), "{why}");

    // Whoever names it means that too.
    let named = verdict(&container, CleanAct::Stop, CleanRule::Named);
    let outcome = act_on_one(&runtime, &survey, &named).await;
    assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
    assert!(!sharer.lives());
}

/// On a clone of this machine, reached by `ssh -L`: its owner lives there, and the id of the machine
/// is the same.
#[tokio::test(flavor = "multi_thread")]
async fn through_a_forwarded_socket_nobody_is_known_to_have_ended() {
    needs!(Docker);
    let ended = ours("cloned", "echo up");
    e2e::wait_for("its end", || (status(&ended.id) == "exited").then_some(()));
    let socket = FaultySocket::showing(Some(&ended.name), &[]);
    // Who listens is known by its name alone. Tests that run in this process besides keep their own.
    let own = std::fs::read_to_string("/proc/self/comm").expect("a name");
    std::fs::write("/proc/self/comm", "ssh").expect("a name");
    let runtime = Runtime::connect_to(&socket.host()).await.expect("connect");
    std::fs::write("/proc/self/comm", own.trim_end()).expect("a name");
    let found = Surveyor::open_devices(runtime.clone(), SurveyOptions::default()).await;
    let seen = { found }.look_at_host().await.expect("a look").survey;
    assert_eq!(seen.containers.len(), 1);
    assert_eq!(seen.containers[0].owner, Owner::Unknown);
    let remove = verdict(&ended, CleanAct::Remove, CleanRule::OwnerDead);
    let outcome = act_on_one(&runtime, &survey(&[&ended], &[]), &remove).await;
    assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
    assert_eq!(status(&ended.id), "exited");
}

/// Docker waits for the end of what is frozen, and does not answer about it meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_docker_hangs_on_because_it_is_frozen_is_thawed() {
    needs!(Docker, Root);
    let (lost, theirs) = (ours("frozenhang", OBEYS), foreign("frozenhang", &[]));
    let file = |id: &str| format!("/sys/fs/cgroup/freezer/docker/{id}/freezer.state");
    if !PathBuf::from(file(&lost.id)).exists() {
        let why = "no freezer of cgroup version 1";
        return common::skip::skip(&common::this_test(), why);
    }
    let hang = |c: &TestContainer| {
        docker(&["pause", &c.id]).expect("pause");
        let part = format!("/containers/{}/json", c.id);
        Wrong {
            method: hyper::Method::GET,
            part: Box::leak(part.into_boxed_str()),
            fault: Fault::WhileFrozen(Box::leak(file(&c.id).into_boxed_str())),
            times: usize::MAX,
        }
    };
    let rules = [hang(&lost), hang(&theirs)];
    let part = format!("frozenhang-{}-", std::process::id());
    let socket = FaultySocket::showing(Some(&part), &rules);
    let state = tempfile::tempdir().expect("tempdir");
    let mut command = e2e::plimsoll(&["clean", "--apply", "--yes", "--memory-backend=host"]);
    command
        .env("DOCKER_HOST", socket.host())
        .env("XDG_STATE_HOME", state.path());
    let ended = tokio::task::spawn_blocking(|| e2e::Live::start(command).end());
    let ended = ended.await.expect("its end").expect(8);

    assert_eq!(status(&lost.id), "gone", "{}", ended.stdout);
    assert!(ended.stdout.contains("thawed"), "{}", ended.stdout);
    assert_eq!(status(&theirs.id), "paused", "{}", ended.stdout);
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let command = format!("echo THAWED | sudo tee {}", file(&theirs.id));
    assert!(words.join(" ").contains(&command), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_in_a_container_that_docker_knows_is_no_orphan() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let container = foreign("known", &[]);
    let (pid, command) = container.processes().remove(0);
    let look = ProcessLook {
        container: Some(container.id.clone()),
        record: Some(StartRecord {
            container: container.id.clone(),
            name: container.name.clone(),
            owner: Owner::Dead,
            started: 1,
            daemon: runtime.daemon_identity().await.unwrap_or_default(),
        }),
        ..process(pid, &command)
    };
    let outcome = act_on_one(&runtime, &of_strays(&[&look]), &end(&look)).await;
    assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
    assert_eq!(status(&container.id), "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_users_container_only_a_dead_runs_processes_end() {
    needs!(OwnsProcesses);
    let Some(runtime) = runtime().await else {
        return;
    };
    let container = foreign("marked", &[]);
    for (run, seconds) in [("dead-run", "7001"), ("live-run", "7002")] {
        let mark = format!("PLIMSOLL_RUN={run}");
        let argv = ["exec", "-d", "-e", &mark, &container.id, "sh", "-c"];
        let script = format!("trap '' TERM; sleep {seconds}; true");
        docker(&[&argv[..], &[&script]].concat()).expect("exec");
    }
    docker(&["exec", "-d", &container.id, "sh", "-c", "sleep 7003; true"]).expect("exec");
    for seconds in ["7001", "7002", "7003"] {
        e2e::wait_for("the commands", || {
            let found = container.processes_with(&format!("sleep {seconds}"));
            found
                .iter()
                .any(|(_, a)| a.starts_with("sleep"))
                .then_some(())
        });
    }
    let mut survey = survey(&[], &[&container]);
    for look in survey.containers[0].processes.iter_mut().flatten() {
        let mark = |run: &str, owner| {
            Some(RunMark {
                run_id: run.into(),
                owner,
            })
        };
        look.mark = match look.command.as_str() {
            c if c.contains("7001") => mark("dead-run", Owner::Dead),
            c if c.contains("7002") => mark("live-run", Owner::Unknown),
            _ => None,
        };
    }
    let marked = verdict(&container, CleanAct::EndMarked, CleanRule::Leftover);
    let outcome = act_on_one(&runtime, &survey, &marked).await;
    assert_eq!(outcome.done, ActResult::Cleaned, "{outcome:?}");
    says(&outcome, "ended");
    assert_eq!(container.processes_with("7001"), []);
    for seconds in ["7002", "7003"] {
        assert!(!container.processes_with(seconds).is_empty(), "{seconds}");
    }
    assert_eq!(status(&container.id), "running");
    let again = act_on_one(&runtime, &survey, &marked).await;
    assert_eq!(again.done, ActResult::AlreadyGone, "{again:?}");
}

/// In a pid namespace of its own a plimsoll has another lock: it may work in the container while this
/// one has locked it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_plimsoll_that_may_live_runs_in_a_container_goes_on() {
    needs!(OwnsProcesses);
    let Some(runtime) = runtime().await else {
        return;
    };
    let container = foreign("busy", &[]);
    let elsewhere = format!("{}:402", dead_owner());
    let owners = [("7011", dead_owner()), ("7012", elsewhere)];
    for (seconds, owner) in &owners {
        let marks = [
            format!("PLIMSOLL_RUN=run{seconds}"),
            format!("PLIMSOLL_OWNER={owner}"),
        ];
        let script = format!("sleep {seconds}; true");
        let env = ["exec", "-d", "-e", &marks[0], "-e", &marks[1]];
        docker(&[&env[..], &[&container.id, "sh", "-c", &script]].concat()).expect("exec");
        e2e::wait_for("the command", || {
            let found = container.processes_with(&format!("sleep {seconds}"));
            let begun = found.iter().any(|(_, args)| args.starts_with("sleep"));
            begun.then_some(())
        });
    }
    let facts = runtime
        .find_container(&container.id)
        .await
        .expect("found")
        .facts;
    assert_eq!(runtime.end_orphans(&facts).await, (2, 0));
    assert_eq!(container.processes_with("7011"), []);
    assert_eq!(container.processes_with("7012").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_bears_the_mark_of_its_container_is_not_a_dead_runs() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let container = foreign("own-mark", &["-e", "PLIMSOLL_RUN=dead-run"]);
    let argv = ["exec", "-d", &container.id, "sh", "-c", "sleep 7004; true"];
    docker(&argv).expect("exec");
    e2e::wait_for("the command", || {
        (!container.processes_with("sleep 7004").is_empty()).then_some(())
    });
    let mut survey = survey(&[], &[&container]);
    for look in survey.containers[0].processes.iter_mut().flatten() {
        look.mark = Some(RunMark {
            run_id: "dead-run".into(),
            owner: Owner::Dead,
        });
    }
    let marked = verdict(&container, CleanAct::EndMarked, CleanRule::Leftover);
    let outcome = act_on_one(&runtime, &survey, &marked).await;
    assert_eq!(outcome.done, ActResult::Kept, "{outcome:?}");
    assert!(!container.processes_with("sleep 7004").is_empty());
    // Nor for whoever is about to work in it.
    let id = &container.id;
    let found = runtime
        .inspect_container(id)
        .await
        .expect("inspect")
        .expect("there");
    assert_eq!(runtime.end_orphans(&found.facts).await, (0, 0));
    assert!(!container.processes_with("sleep 7004").is_empty());
}

/// For as long as the socket is there.
const ALWAYS: usize = 1000;
const IN_PROGRESS: Fault = Fault::Answer(409, "removal of container x is already in progress");
const BROKEN: Fault = Fault::Answer(500, "something went wrong");

/// What goes wrong, and whether the first cleaner gets by in spite of it.
fn faults() -> Vec<(&'static str, Wrong, bool)> {
    let slow = Fault::Slow(Duration::from_secs(3));
    let hangs = Fault::Slow(Duration::from_secs(600));
    vec![
        ("looks are slow", Wrong::inspect(slow, 2), true),
        ("a look fails", Wrong::inspect(BROKEN, 1), true),
        ("a look is cut", Wrong::inspect(Fault::CutAfter, 1), true),
        ("looks fail", Wrong::inspect(BROKEN, ALWAYS), false),
        ("stopping is slow", Wrong::stop(slow, 1), true),
        ("the stop is never answered", Wrong::stop(hangs, 1), true),
        ("a stop fails", Wrong::stop(BROKEN, 1), true),
        ("stops fail", Wrong::stop(BROKEN, ALWAYS), false),
        (
            "a stop is cut before",
            Wrong::stop(Fault::CutBefore, 1),
            true,
        ),
        (
            "a stop is cut during",
            Wrong::stop(Fault::CutDuring, 1),
            true,
        ),
        ("a stop is cut after", Wrong::stop(Fault::CutAfter, 1), true),
        (
            "stops are cut before",
            Wrong::stop(Fault::CutBefore, ALWAYS),
            false,
        ),
        ("removing is slow", Wrong::remove(slow, 1), true),
        ("a removal fails", Wrong::remove(BROKEN, 1), true),
        ("removals fail", Wrong::remove(BROKEN, ALWAYS), false),
        (
            "a removal is in progress",
            Wrong::remove(IN_PROGRESS, 1),
            true,
        ),
        (
            "removals are in progress",
            Wrong::remove(IN_PROGRESS, ALWAYS),
            false,
        ),
        (
            "a removal is cut before",
            Wrong::remove(Fault::CutBefore, 1),
            true,
        ),
        (
            "a removal is cut during",
            Wrong::remove(Fault::CutDuring, 1),
            true,
        ),
        (
            "a removal is cut after",
            Wrong::remove(Fault::CutAfter, 1),
            true,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_fails_in_the_middle_leaves_nothing_that_a_second_run_does_not_finish() {
    let Some(plain) = runtime().await else {
        return;
    };
    let theirs = foreign("faults-theirs", &[]);
    let since = started(&theirs.id);
    let one = async |(what, wrong, gets_by): (&str, Wrong, bool)| {
        // Docker's own client, waited for elsewhere: here it would hold up what the others measure.
        let made = tokio::task::spawn_blocking(|| ours("faults", OBEYS)).await;
        let container = made.expect("a container");
        let survey = survey(&[&container], &[&theirs]);
        let verdicts = [
            stop(&container),
            verdict(&theirs, CleanAct::Keep, CleanRule::Foreign),
        ];
        let met = wrong.times;
        let socket = FaultySocket::start(&[wrong]);
        let faulty = Runtime::connect_to(&socket.host()).await.expect("proxy");
        let first = act(&faulty, &survey, &verdicts).await;
        assert_eq!(
            socket.left() == 0,
            met < ALWAYS,
            "{what}: the fault was met: {first:?}"
        );
        let expected = if gets_by {
            ActResult::Cleaned
        } else {
            ActResult::NotDone
        };
        assert_eq!(first[0].done, expected, "{what}: {first:?}");
        assert_eq!(first[0].problem.is_none(), gets_by, "{what}: {first:?}");
        let second = act(&plain, &survey, &verdicts).await;
        let expected = if gets_by {
            ActResult::AlreadyGone
        } else {
            ActResult::Cleaned
        };
        assert_eq!(second[0].done, expected, "{what}: {second:?}");
        let left = tokio::task::spawn_blocking(move || status(&container.id)).await;
        assert_eq!(left.expect("its state"), "gone", "{what}");
    };
    // A few at a time, since most of it is waiting: of more a daemon with one processor takes too long to answer.
    use futures::StreamExt;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    futures::stream::iter(faults())
        .for_each_concurrent(3 * processors.min(2), one)
        .await;
    assert_eq!(status(&theirs.id), "running");
    assert_eq!(started(&theirs.id), since);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_obey_goes_though_stopping_fails_half_way() {
    let Some(runtime) = runtime().await else {
        return;
    };
    // Cut while Docker waits for it, and then the kill is lost as well.
    let container = ours("half-way", IGNORES);
    let survey = survey(&[&container], &[]);
    let socket = FaultySocket::start(&[
        Wrong::stop(Fault::CutBefore, 1),
        Wrong::stop(Fault::Slow(Duration::from_secs(600)), 1),
        Wrong::remove(Fault::CutBefore, 1),
    ]);
    let faulty = Runtime::connect_to(&socket.host()).await.expect("proxy");
    let first = act_on_one(&faulty, &survey, &stop(&container)).await;
    // The one further attempt was needed for the stop, so the removal is left to the next run.
    assert_eq!(first.done, ActResult::NotDone, "{first:?}");
    assert_eq!(status(&container.id), "exited");
    let second = act_on_one(&runtime, &survey, &stop(&container)).await;
    assert_eq!(second.done, ActResult::Cleaned, "{second:?}");
    assert_eq!(status(&container.id), "gone");
}
