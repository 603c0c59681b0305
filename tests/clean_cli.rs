//! `plimsoll clean` as people and services use it: what is refused, what is shown, what is touched.
//!
//! Other tests share the daemon: what is applied here is always named or chosen by a label of the
//! test's own.

use crate::common;
use common::e2e::{Ended, Live, plimsoll, run};
use common::{TestContainer, docker, unique};
use plimsoll::container::leftovers::boot_id;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Waits for TERM and ends.
const OBEDIENT: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

/// `plimsoll clean` where no daemon is.
fn without_docker(args: &[&str]) -> Ended {
    let mut command = plimsoll(&["clean"]);
    command
        .args(args)
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    Live::start(command).end()
}

fn state(container: &TestContainer) -> String {
    docker(&[
        "inspect",
        "-f",
        "{{.State.Status}} {{.State.StartedAt}}",
        &container.id,
    ])
    .unwrap_or_else(|_| "gone".into())
}

fn document(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).expect("one JSON document")
}

/// The entry of a container.
#[track_caller]
fn entry<'a>(document: &'a Value, container: &TestContainer) -> &'a Value {
    let entries = document["verdicts"].as_array().expect("verdicts");
    let mine = |e: &&Value| e["of"]["container"] == container.id.as_str();
    let mut found = entries.iter().filter(mine);
    let entry = found
        .next()
        .unwrap_or_else(|| panic!("no verdict: {document:#}"));
    assert!(found.next().is_none(), "one verdict for each container");
    entry
}

#[test]
fn what_is_asked_wrongly_is_refused_before_anything_is_looked_at() {
    for (args, says, hint) in [
        (
            &["--idle", "30m"][..],
            "does not say which",
            "--all-gpu-containers",
        ),
        (&["--all-gpu-containers", "--apply"], "no terminal", "--yes"),
        (&["--label", "a=b", "--apply"], "no terminal", "--yes"),
        (
            &["x", "--image", "vllm/*", "--apply"],
            "no terminal",
            "--yes",
        ),
        (
            &["--watch", "--image", "*", "--apply"],
            "unattended",
            "--yes",
        ),
    ] {
        without_docker(args).expect(2).says(&[says], hint);
    }
    let replay = without_docker(&["--memory-backend", "replay:x.jsonl"]).expect(2);
    assert!(replay.error().contains("recording"), "{}", replay.stderr);
    for args in [
        &["--yes"][..],
        &["--interval", "5s"],
        &["--watch", "--interval", "1ms"],
        &["--label", "="],
        &["--aply"],
    ] {
        let ended = without_docker(args).expect(2);
        assert!(!ended.error().is_empty() && ended.stdout.is_empty());
    }
}

#[test]
fn without_a_daemon_there_is_nothing_to_clean() {
    for args in [&[][..], &["--json"], &["x", "--apply"]] {
        let ended = without_docker(args).expect(3);
        assert!(
            ended.error().contains("/nowhere/docker.sock"),
            "{}",
            ended.stderr
        );
        assert!(ended.stdout.is_empty());
    }
}

#[test]
fn the_help_says_what_is_safe_and_how_it_ends() {
    let help = run(&["clean", "--help"]).expect(0).stdout;
    for part in [
        "Without --apply nothing is changed",
        "plimsoll.protect",
        "8 not all could be cleaned",
        "--idle",
        "--watch",
    ] {
        assert!(
            help.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(part),
            "{part}: {help}"
        );
    }
}

#[test]
fn a_wrong_name_is_answered_with_what_was_meant_and_nothing_is_done() {
    needs!(Docker);
    let (meant, other) = (
        TestContainer::idle("clean-meant"),
        TestContainer::idle("clean-other"),
    );
    let before = (state(&meant), state(&other));
    let wrong = meant.name.replacen("clean-meant", "clean-maent", 1);
    let ended = run(&["clean", &other.name, &wrong, "--apply"]).expect(3);
    ended.says(
        &[&format!("`{wrong}`")],
        &format!("did you mean `{}`", meant.name),
    );
    assert_eq!((state(&meant), state(&other)), before, "all or nothing");
}

#[test]
fn a_dry_run_says_what_it_would_do_and_touches_nothing() {
    needs!(Docker);
    let (named, ours) = (TestContainer::idle("clean-dry"), lost("clean-dry-ours"));
    let before = (state(&named), state(&ours));
    let ended = run(&["clean", &named.name]).expect(0);
    for part in [
        "1 container to clean",
        &named.name,
        "[named]",
        "nothing was touched",
        &format!("→ plimsoll clean {} --apply: ", named.name),
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(
        !ended.stdout.contains(&ours.name),
        "with names only these: {}",
        ended.stdout
    );
    let all = run(&["clean", "-v"]).expect(0);
    assert!(
        all.stdout.contains(&ours.name) && all.stdout.contains("[owner_dead]"),
        "{}",
        all.stdout
    );
    assert_eq!((state(&named), state(&ours)), before);
}

#[test]
fn the_document_carries_evidence_of_what_is_stuck_and_of_what_is_kept() {
    needs!(Docker);
    let protected = TestContainer::run(
        "clean-json-kept",
        &["--label", "plimsoll.protect"],
        OBEDIENT,
    );
    let ours = lost("clean-json-ours");
    let ended = run(&["clean", "--json"]).expect(0);
    let all = document(&ended);
    assert_eq!(
        (&all["version"], &all["applied"], &all["outcomes"]),
        (&1.into(), &false.into(), &Value::Array(vec![]))
    );
    assert!(all["at"].is_string() && all["simulated"].is_boolean() && all["blind"].is_array());
    let stuck = entry(&all, &ours);
    assert_eq!(
        (&stuck["act"], &stuck["rule"], &stuck["name"]),
        (
            &"stop".into(),
            &"owner_dead".into(),
            &ours.name.as_str().into()
        )
    );
    let facts = &stuck["evidence"]["container"];
    assert_eq!(
        (&facts["owner"], &facts["ours"], &facts["status"]),
        (&"dead".into(), &true.into(), &"running".into())
    );
    let kept = entry(&all, &protected);
    assert_eq!(
        (&kept["act"], &kept["rule"]),
        (&"keep".into(), &"protected".into())
    );
    // The label keeps it, also when it is named.
    let named = run(&["clean", &protected.name, "--json", "--apply"]).expect(8);
    assert_eq!(entry(&document(&named), &protected)["act"], "keep");
    assert!(
        named.error().contains("could not be cleaned"),
        "{}",
        named.stderr
    );
    assert!(state(&protected).starts_with("running"));
}

#[test]
fn what_is_named_is_stopped_and_only_what_is_ours_removed() {
    needs!(Docker);
    let (theirs, ours, bystander) = (
        TestContainer::run("clean-theirs", &[], OBEDIENT),
        lost("clean-ours"),
        TestContainer::run("clean-bystander", &[], OBEDIENT),
    );
    let before = state(&bystander);
    let ended = run(&[
        "clean",
        &theirs.name,
        &ours.name,
        "--apply",
        "--json",
        "--grace",
        "20s",
    ])
    .expect(0);
    let all = document(&ended);
    assert_eq!(all["applied"], true);
    let outcomes = all["outcomes"].as_array().expect("outcomes");
    assert_eq!(outcomes.len(), 2, "{all:#}");
    assert!(outcomes.iter().all(|o| o["done"] == "cleaned"), "{all:#}");
    assert!(state(&theirs).starts_with("exited"), "{}", state(&theirs));
    assert_eq!(state(&ours), "gone");
    assert_eq!(state(&bystander), before);
    // Once more there is nothing left to do for what has ended.
    let again = run(&["clean", &theirs.name, "--apply"]).expect(0);
    assert!(again.stdout.contains("nothing"), "{}", again.stdout);
}

#[test]
fn what_is_not_known_to_be_idle_stays_and_what_was_seen_is_remembered() {
    needs!(Docker);
    let busy = TestContainer::idle("clean-idle");
    let before = state(&busy);
    let home = tempfile::tempdir().expect("tempdir");
    let mut command = plimsoll(&["clean", &busy.name, "--idle", "1h", "--apply", "--json"]);
    command.env("XDG_STATE_HOME", home.path());
    // Whoever asks for what is idle has got it: nothing is left undone.
    let ended = Live::start(command).end().expect(0);
    let kept = document(&ended);
    let kept = entry(&kept, &busy);
    assert_eq!(
        (&kept["act"], &kept["rule"]),
        (&"keep".into(), &"not_idle".into())
    );
    assert_eq!(state(&busy), before);
    let remembered = home.path().join("plimsoll/activity.json");
    let remembered = std::fs::read_to_string(remembered).expect("what was seen");
    assert!(remembered.contains(&busy.id), "{remembered}");
}

#[test]
fn what_is_chosen_by_a_label_is_shown_and_confirmed_on_the_terminal() {
    needs!(Docker);
    if common::e2e::program("script").is_none() {
        return common::skip::skip(test_name!(), "no script (Debian: bsdutils)");
    }
    let label = format!("plimsoll.test.chosen={}", unique("label"));
    let chosen = TestContainer::run("clean-chosen", &["--label", &label], OBEDIENT);
    let named = TestContainer::run("clean-chosen-named", &[], OBEDIENT);
    let args = ["clean", &named.name, "--label", &label, "--apply"];
    let before = state(&chosen);
    let (said, code) = at_a_terminal(&args, "n\n");
    assert!(
        said.contains(&chosen.name) && said.contains("[y/N]"),
        "{said}"
    );
    assert_eq!((code, state(&chosen)), (130, before), "{said}");
    let (said, code) = at_a_terminal(&args, "y\n");
    assert_eq!(code, 0, "{said}");
    for container in [&chosen, &named] {
        assert!(state(container).starts_with("exited"), "{said}");
    }
}

/// Runs it at a terminal of its own and types; what it said, and its exit code.
fn at_a_terminal(args: &[&str], typed: &str) -> (String, i32) {
    let line = [&[env!("CARGO_BIN_EXE_plimsoll")], args].concat();
    let line = line.iter().map(|w| shlex::try_quote(w).expect("word"));
    let line: Vec<_> = line.collect();
    let mut command = Command::new("script");
    command
        .args([
            "--quiet",
            "--return",
            "--command",
            &line.join(" "),
            "/dev/null",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("script");
    let mut stdin: ChildStdin = child.stdin.take().expect("stdin");
    stdin.write_all(typed.as_bytes()).expect("typed");
    let ended = child.wait_with_output().expect("its end");
    drop(stdin);
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    (said, ended.status.code().unwrap_or(-1))
}

/// A container as a plimsoll that was killed left it.
fn lost(what: &str) -> TestContainer {
    let run = format!("plimsoll.run={}", unique("run"));
    // Of this boot, and of no process.
    let owner = format!("plimsoll.owner={}:4194303:1", boot_id());
    let created = format!("plimsoll.created={}", jiff::Timestamp::now());
    TestContainer::run(
        what,
        &["--label", &run, "--label", &owner, "--label", &created],
        OBEDIENT,
    )
}

/// A service whose lines are read as they come.
struct Service {
    child: Child,
    lines: Receiver<Value>,
}

impl Service {
    fn start(mut command: Command) -> Service {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("plimsoll");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("each line is JSON");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Service { child, lines }
    }

    /// The next line that is wanted; others are of other tests' containers.
    #[track_caller]
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(common::e2e::PATIENCE);
            let line = line.unwrap_or_else(|e| panic!("no {what}: {e}"));
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Ends it by SIGTERM; its exit code and the lines that nobody has read.
    fn end(mut self) -> (Option<i32>, Vec<Value>) {
        let pid = i32::try_from(self.child.id()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("pid"), Signal::TERM).expect("signal");
        let status = self.child.wait().expect("its end");
        (status.code(), self.lines.iter().collect())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_service_tells_each_decision_once_and_ends_in_order() {
    needs!(Docker);
    let first = lost("clean-watch-first");
    let before = state(&first);
    let service = Service::start(plimsoll(&["clean", "--watch", "--interval", "1s"]));
    let of = |container: &TestContainer| {
        let id = container.id.clone();
        move |line: &Value| line["of"]["container"] == id.as_str()
    };
    let line = service.until("decision", of(&first));
    assert_eq!(
        (&line["event"], &line["act"], &line["rule"]),
        (&"decision".into(), &"stop".into(), &"owner_dead".into())
    );
    assert_eq!(
        (&line["doing"], &line["name"]),
        (&"nothing".into(), &first.name.as_str().into())
    );
    assert!(line["at"].is_string() && line.get("evidence").is_none());
    // A second one is met by a later look, and the first is not told again meanwhile.
    let second = lost("clean-watch-second");
    let met = |line: &Value| {
        assert_ne!(line["of"]["container"], first.id.as_str(), "once: {line}");
        line["of"]["container"] == second.id.as_str()
    };
    service.until("second decision", met);
    docker(&["rm", "-f", &second.id]).expect("removed");
    // A look may fall into its removal, which takes a while on a busy machine: then it is kept.
    let end = service.until("end", met);
    assert!(end["event"] == "gone" || end["act"] == "keep", "{end}");
    let (code, unread) = service.end();
    assert_eq!(code, Some(0));
    assert!(!unread.iter().any(of(&first)), "{unread:?}");
    assert_eq!(state(&first), before, "a dry run");
}

#[test]
fn a_service_that_may_act_tells_what_came_of_it() {
    needs!(Docker);
    let (mine, other) = (lost("clean-watch-act"), lost("clean-watch-act-other"));
    let before = state(&other);
    let args = [
        "clean",
        &mine.name,
        "--watch",
        "--interval",
        "1s",
        "--apply",
        "--json",
    ];
    let service = Service::start(plimsoll(&args));
    let decided = service.until("decision", |line| line["event"] == "decision");
    assert_eq!(
        (&decided["name"], &decided["doing"]),
        (&mine.name.as_str().into(), &"now".into())
    );
    assert_eq!(
        decided["evidence"]["container"]["ours"], true,
        "with --json"
    );
    let outcome = service.until("outcome", |line| line["event"] == "outcome");
    assert_eq!(
        (&outcome["done"], &outcome["name"]),
        (&"cleaned".into(), &mine.name.as_str().into()),
        "{outcome}"
    );
    assert_eq!(state(&mine), "gone");
    let (code, unread) = service.end();
    assert_eq!((code, unread), (Some(0), vec![]));
    assert_eq!(state(&other), before, "it was not named");
}

#[test]
fn a_daemon_that_is_away_is_told_once_and_waited_for() {
    needs!(Docker);
    let dir = tempfile::tempdir().expect("tempdir");
    let socket = dir.path().join("docker.sock");
    let mut command = plimsoll(&["clean", "--watch", "--interval", "1s"]);
    command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    let service = Service::start(command);
    let away = service.until("line", |_| true);
    assert_eq!(away["event"], "away");
    assert!(
        away["why"].as_str().expect("why").contains("docker.sock"),
        "{away}"
    );
    // Then it is there.
    let real = std::env::var("DOCKER_HOST").unwrap_or_default();
    let real = real
        .strip_prefix("unix://")
        .unwrap_or("/var/run/docker.sock");
    std::os::unix::fs::symlink(real, &socket).expect("socket");
    let back = service.until("line", |_| true);
    assert_eq!(back["event"], "back", "away is told once: {back}");
    assert_eq!(service.end().0, Some(0));
}

/// Whoever installs what lies in containers/clean gets a service that touches nothing.
#[test]
fn what_is_shipped_is_a_dry_run() {
    let read = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("containers/clean");
        std::fs::read_to_string(path.join(name)).expect(name)
    };
    let unit = read("plimsoll-clean.service");
    let start: Vec<&str> = unit
        .lines()
        .filter(|l| l.starts_with("ExecStart="))
        .collect();
    assert_eq!(start, ["ExecStart=/usr/local/bin/plimsoll clean --watch"]);
    // What is wrong usage at one start is so at the next.
    assert!(unit.lines().any(|l| l == "RestartPreventExitStatus=2"));
    let compose: Value = serde_yaml::from_str(&read("compose.yaml")).expect("YAML");
    let service = &compose["services"]["plimsoll-clean"];
    assert_eq!(service["command"], serde_json::json!(["clean", "--watch"]));
    assert_eq!(
        (&service["pid"], &service["cgroup"]),
        (&"host".into(), &"host".into())
    );
    assert_eq!(service["labels"]["plimsoll.protect"], "true");
}
