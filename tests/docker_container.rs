//! `container` against the real daemon. Skipped, and said so, where none answers.
#![allow(missing_docs, clippy::print_stdout)]

use crate::common;
use common::skip::skip;
use common::{TestContainer, docker, podman, rootless, runtime, this_test, unique};
use plimsoll::capture::{ExecEnd, Stream};
use plimsoll::container::exec::{CommandBound, ExecRequest, ExecResult, Input};
use plimsoll::container::launch::{GpuRequest, LaunchSpec};
use plimsoll::container::{RUN_LABEL, Runtime};
use plimsoll::error::ExitCode;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

fn request(script: &str) -> ExecRequest {
    ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        run_id: "test-run".into(),
        ..Default::default()
    }
}

async fn exec(
    runtime: &Runtime,
    id: &str,
    request: ExecRequest,
) -> (ExecResult, Vec<(Stream, String)>) {
    let mut lines = Vec::new();
    let result = runtime
        .run_exec(id, request, &CancellationToken::new(), |s, l| {
            lines.push((s, l))
        })
        .await
        .expect("exec");
    (result, lines)
}

/// What stuck benches do. The marker is in every process' command line.
const STUCK: &[(&str, &str)] = &[
    ("sleeper", "sleep 7654"),
    (
        "ignores TERM",
        "trap '' TERM; while true; do sleep 0.7654; done",
    ),
    ("forks and waits", "sleep 7654 & sleep 7654 & wait"),
    (
        "leaves its session, keeps its mark",
        "(setsid sh -c '(sleep 7654 &); sleep 7654' &) ; (setsid sleep 7654 &); sleep 7654",
    ),
    (
        "leaves its session and its environment, after a while",
        "env -i /bin/busybox setsid /bin/sh -c 'sleep 2.7654; (busybox sleep 7654 &)' & sleep 7654",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_leaves_no_process_and_spares_those_from_before() {
    let Some(runtime) = runtime().await else {
        return;
    };
    for (what, script) in STUCK {
        let c = TestContainer::idle("deadline");
        docker(&["exec", "-d", &c.id, "sh", "-c", "sleep 9999"]).expect("a process from before");
        let pids = || {
            c.processes_with("sleep 9999")
                .into_iter()
                .map(|p| p.0)
                .collect::<Vec<_>>()
        };
        let before = wait_for(pids).await;
        let began = Instant::now();
        let (result, _) = exec(
            &runtime,
            &c.id,
            ExecRequest {
                deadline: Some(Duration::from_secs(4)),
                ..request(script)
            },
        )
        .await;
        assert_eq!(result.end, ExecEnd::Deadline, "{what}");
        assert_eq!(
            (result.survivors, result.bound),
            (0, CommandBound::Host),
            "{what}"
        );
        assert!(result.killed >= 1, "{what}: {result:?}");
        assert!(
            began.elapsed() < Duration::from_secs(14),
            "{what}: {:?}",
            began.elapsed()
        );
        assert_eq!(c.processes_with("7654"), [], "{what}");
        assert_eq!(pids(), before, "{what}: a process from before was touched");
        assert_eq!(
            docker(&["inspect", "-f", "{{.State.Running}}", &c.id]).as_deref(),
            Ok("true"),
            "{what}"
        );
    }
}

/// Polls until there is something; the test's own timeout ends it.
async fn wait_for<T>(mut look: impl FnMut() -> Vec<T>) -> Vec<T> {
    for _ in 0..100 {
        let found = look();
        if !found.is_empty() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never came");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_leaves_no_process_and_pids_are_told_meanwhile() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::idle("cancel");
    for (what, script) in &STUCK[..4] {
        let (sender, mut pids) = watch::channel(Vec::new());
        let cancel = CancellationToken::new();
        let request = ExecRequest {
            pids: Some(sender),
            ..request(script)
        };
        let run = {
            let (runtime, id, cancel) = (runtime.clone(), c.id.clone(), cancel.clone());
            tokio::spawn(async move { runtime.run_exec(&id, request, &cancel, |_, _| {}).await })
        };
        let told = pids
            .wait_for(|p| !p.is_empty())
            .await
            .expect("pids")
            .clone();
        assert!(
            c.processes().iter().any(|(pid, _)| told.contains(pid)),
            "{what}: {told:?}"
        );
        wait_for(|| c.processes_with("7654")).await;
        cancel.cancel();
        let result = run.await.expect("task").expect("exec");
        assert_eq!(
            (result.end, result.survivors),
            (ExecEnd::Cancelled, 0),
            "{what}"
        );
        assert_eq!(c.processes_with("7654"), [], "{what}");
        assert!(pids.borrow().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellation_before_the_start_leaves_nothing() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::idle("early");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let result = runtime
        .run_exec(&c.id, request("sleep 7654"), &cancel, |_, _| {})
        .await
        .expect("exec");
    assert_eq!((result.end, result.survivors), (ExecEnd::Cancelled, 0));
    assert_eq!(c.processes_with("7654"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_comes_in_lines_with_its_exit_code() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::idle("lines");
    let script = r"echo $PLIMSOLL_RUN $GREETING; printf 'e1\ne2' >&2; printf '\r 10%%\r 20%%\r\nend\n'; exit 7";
    let env = BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]);
    let (result, lines) = exec(
        &runtime,
        &c.id,
        ExecRequest {
            env,
            ..request(script)
        },
    )
    .await;
    assert_eq!(
        (result.end, result.exit_code, result.killed),
        (ExecEnd::Exited(7), Some(7), 0)
    );
    let of = |s: Stream| {
        lines
            .iter()
            .filter(|l| l.0 == s)
            .map(|l| l.1.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(Stream::Stdout),
        ["test-run hello", " 10%", " 20%", "end"]
    );
    assert_eq!(of(Stream::Stderr), ["e1", "e2"]);

    // Much output is drained, and no line is lost.
    let (result, lines) = exec(
        &runtime,
        &c.id,
        request("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"),
    )
    .await;
    assert_eq!((result.end, lines.len()), (ExecEnd::Exited(0), 20000));
    assert!(
        lines
            .iter()
            .enumerate()
            .all(|(i, l)| l.1 == format!("line {i}"))
    );

    // Standard input is read to its end.
    let (result, lines) = exec(
        &runtime,
        &c.id,
        ExecRequest {
            stdin: Some(Input::Bytes(vec![b'x'; 300_000])),
            ..request("wc -c")
        },
    )
    .await;
    assert_eq!(
        (result.end, lines[0].1.trim()),
        (ExecEnd::Exited(0), "300000")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_told_from_a_failing_one() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::idle("missing");
    let missing = ExecRequest {
        argv: vec!["no-such-bench".into(), "--x".into()],
        ..Default::default()
    };
    let (result, _) = exec(&runtime, &c.id, missing).await;
    assert!(
        matches!(&result.end, ExecEnd::NotFound(m) if m.contains("no-such-bench")),
        "{result:?}"
    );
    let (result, _) = exec(&runtime, &c.id, request("no-such-bench")).await;
    assert_eq!(result.end, ExecEnd::Exited(127));
    let (result, _) = exec(&runtime, &c.id, request("kill -9 $$")).await;
    assert_eq!(
        result.end,
        ExecEnd::Exited(137),
        "killed, but the container lives"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_behind_is_ended() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::idle("leftover");
    let began = Instant::now();
    let (result, lines) = exec(&runtime, &c.id, request("sleep 7654 & echo done; exit 3")).await;
    assert_eq!(
        (result.end, result.killed, result.survivors),
        (ExecEnd::Exited(3), 1, 0)
    );
    assert_eq!(lines[0].1, "done");
    assert!(
        began.elapsed() < Duration::from_secs(12),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(c.processes_with("7654"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_goes_ends_the_command() {
    let Some(runtime) = runtime().await else {
        return;
    };
    for end in [&["rm", "-f"][..], &["kill"], &["restart", "-t", "0"]] {
        let c = TestContainer::idle("gone");
        let (sender, mut pids) = watch::channel(Vec::new());
        let request = ExecRequest {
            pids: Some(sender),
            ..request("echo up; sleep 7654")
        };
        let run = {
            let (runtime, id) = (runtime.clone(), c.id.clone());
            tokio::spawn(async move {
                runtime
                    .run_exec(&id, request, &CancellationToken::new(), |_, _| {})
                    .await
            })
        };
        pids.wait_for(|p| !p.is_empty()).await.expect("pids");
        docker(&[end, &[c.id.as_str()]].concat()).expect("docker");
        let result = run.await.expect("task").expect("exec");
        assert_eq!(
            (result.end, result.survivors),
            (ExecEnd::ContainerGone, 0),
            "{end:?}"
        );
        let (after, _) = exec(
            &runtime,
            &c.id,
            ExecRequest {
                argv: vec!["sh".into(), "-c".into(), "true".into()],
                ..Default::default()
            },
        )
        .await;
        let expected = if end[0] == "restart" {
            ExecEnd::Exited(0)
        } else {
            ExecEnd::ContainerGone
        };
        assert_eq!(after.end, expected, "{end:?}");
    }
}

/// A daemon that is reached over TCP under a name that is not this machine's: no view from the host.
async fn remote() -> Option<Runtime> {
    runtime().await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.ok()?;
    let host = format!("tcp://{}", listener.local_addr().ok()?);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut to) = tokio::net::UnixStream::connect(common::socket()).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    });
    match Runtime::connect_to(&host).await {
        Ok(runtime) => Some(runtime),
        Err(failure) => {
            skip(&this_test(), &failure.to_string());
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_view_from_the_host_the_deadline_holds_inside() {
    let Some(runtime) = remote().await else {
        return;
    };
    let c = TestContainer::idle("remote");
    for (what, script) in &STUCK[..4] {
        let (result, _) = exec(
            &runtime,
            &c.id,
            ExecRequest {
                deadline: Some(Duration::from_secs(2)),
                ..request(script)
            },
        )
        .await;
        assert_eq!(
            (&result.end, result.bound, result.survivors),
            (&ExecEnd::Deadline, CommandBound::Inside, 0),
            "{what}: {result:?}"
        );
    }
    // What left the session is not `timeout`'s to end; the mark finds it on cancellation.
    let cancel = CancellationToken::new();
    let run = {
        let (runtime, id, cancel) = (runtime.clone(), c.id.clone(), cancel.clone());
        tokio::spawn(async move {
            runtime
                .run_exec(
                    &id,
                    request(
                        "(setsid sleep 8765 &) ; trap '' TERM; while true; do sleep 0.8765; done",
                    ),
                    &cancel,
                    |_, _| {},
                )
                .await
        })
    };
    wait_for(|| c.processes_with("sleep 8765")).await;
    cancel.cancel();
    let result = run.await.expect("task").expect("exec");
    assert_eq!((result.end, result.survivors), (ExecEnd::Cancelled, 0));
    assert_eq!(c.processes_with("8765"), []);
}

const COUNTING: &str = "trap 'echo bye; exit 0' TERM; [ -f /tmp-n ] || echo 0 > /tmp-n; \
    while true; do i=$(cat /tmp-n); echo line $i; echo $((i+1)) > /tmp-n; sleep 0.02; done";

#[tokio::test(flavor = "multi_thread")]
async fn following_survives_restarts_without_gap_or_duplicate() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::run("follow", &[], COUNTING);
    let facts = runtime.find_container(&c.name).await.expect("found").facts;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let cancel = CancellationToken::new();
    let run = {
        let (runtime, lines, cancel) = (runtime.clone(), lines.clone(), cancel.clone());
        tokio::spawn(async move {
            runtime
                .log_follow(&facts, 0, &cancel, |ns, s, l| {
                    lines.lock().expect("lines").push((ns, s, l))
                })
                .await
        })
    };
    let numbers = |lines: &Mutex<Vec<(i64, Stream, String)>>| -> Vec<u64> {
        lines
            .lock()
            .expect("lines")
            .iter()
            .filter_map(|l| l.2.strip_prefix("line ")?.parse().ok())
            .collect()
    };
    for _ in 0..3 {
        let at = numbers(&lines).len();
        wait_for(|| {
            if numbers(&lines).len() > at + 20 {
                vec![()]
            } else {
                vec![]
            }
        })
        .await;
        docker(&["restart", "-t", "1", &c.id]).expect("restart");
    }
    let at = numbers(&lines).len();
    wait_for(|| {
        if numbers(&lines).len() > at + 20 {
            vec![()]
        } else {
            vec![]
        }
    })
    .await;
    docker(&["stop", &c.id]).expect("stop");
    let log = docker(&["logs", &c.id]).expect("logs");
    let all = log.lines().count();
    wait_for(|| {
        if lines.lock().expect("lines").len() >= all {
            vec![()]
        } else {
            vec![]
        }
    })
    .await;
    cancel.cancel();
    let facts = run.await.expect("task");
    // A shell that is stopped between saying a number and saving it says it twice itself.
    let said = |line: &str| line.strip_prefix("line ")?.parse().ok();
    let expected: Vec<u64> = log.lines().filter_map(said).collect();
    let mut got = numbers(&lines);
    if podman() {
        // Its follow leaves out a line now and then, which comes with the next replay.
        got.sort_unstable();
    }
    assert_eq!(got, expected);
    assert!(facts.reconnects >= 3, "{facts:?}");
    assert_eq!((facts.lines as usize, facts.error), (all, None));
    let lines = lines.lock().expect("lines");
    assert!(podman() || lines.windows(2).all(|w| w[0].0 <= w[1].0));
    assert_eq!(lines.iter().filter(|l| l.2 == "bye").count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_stops_where_the_caller_says_and_following_goes_on_from_there() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let script = "head -c 40000 /dev/zero | tr '\\0' x; echo; echo ready; echo err >&2; i=0; while [ $i -lt 50 ]; do echo after $i; i=$((i+1)); done; printf tail; exec sleep 600";
    let c = TestContainer::run("history", &[], script);
    wait_for(|| {
        docker(&["logs", &c.id])
            .unwrap_or_default()
            .lines()
            .filter(|l| l.contains("after 49"))
            .map(str::to_owned)
            .collect()
    })
    .await;
    let facts = runtime.find_container(&c.id).await.expect("found").facts;
    let none = CancellationToken::new();

    let mut lines = Vec::new();
    let history = runtime.log_history(&facts, None, u64::MAX, &none, |ns, s, l| {
        // The streams have no order between them.
        if s == Stream::Stdout {
            lines.push((ns, s, l));
        }
        if lines.last().is_some_and(|l| l.2 == "ready") {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let history = history.await;
    assert!(!history.complete && history.facts.error.is_none());
    assert_eq!(
        lines.iter().map(|l| l.2.len()).collect::<Vec<_>>(),
        [40000, 5]
    );
    assert_eq!(history.last_ns, lines.last().map(|l| l.0));

    let whole = runtime
        .log_history(&facts, None, u64::MAX, &none, |_, _, _| {
            ControlFlow::Continue(())
        })
        .await;
    assert!(whole.complete);
    // Docker writes a tail without newline when its process ends, podman at once, but for its journal.
    let driver = docker(&[
        "inspect",
        "--format",
        "{{.HostConfig.LogConfig.Type}}",
        &c.id,
    ]);
    let at_once = podman() && driver.is_ok_and(|driver| driver.trim() != "journald");
    assert_eq!(whole.facts.lines, if at_once { 54 } else { 53 });
    let capped = runtime
        .log_history(&facts, None, 40_050, &none, |_, _, _| {
            ControlFlow::Continue(())
        })
        .await;
    assert!(!capped.complete && capped.facts.bytes < 42_000);

    // The last line without newline comes with the end of the process.
    docker(&["kill", &c.id]).expect("kill");
    let cancel = CancellationToken::new();
    let mut followed = Vec::new();
    let follow = runtime.log_follow(&facts, 0, &cancel, |_, s, l| {
        if l == "tail" {
            cancel.cancel();
        }
        followed.push((s, l));
    });
    let facts = follow.await;
    assert_eq!(facts.lines, 54);
    assert!(followed.contains(&(Stream::Stderr, "err".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_and_an_unreadable_log_are_handled() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let none = CancellationToken::new();
    let c = TestContainer::run(
        "tty",
        &["-t"],
        "echo out; echo err >&2; printf '\\001\\000\\000\\000\\000\\000\\000\\005weird\\n'; echo after; exec sleep 600",
    );
    wait_for(|| {
        docker(&["logs", &c.id])
            .unwrap_or_default()
            .lines()
            .filter(|l| l.contains("after"))
            .map(str::to_owned)
            .collect()
    })
    .await;
    let facts = runtime.find_container(&c.id).await.expect("found").facts;
    let mut lines = Vec::new();
    runtime
        .log_history(&facts, None, u64::MAX, &none, |_, s, l| {
            lines.push((s, l));
            ControlFlow::Continue(())
        })
        .await;
    assert_eq!(
        lines.iter().map(|l| l.1.as_str()).collect::<Vec<_>>(),
        ["out", "err", "\u{1}\0\0\0\0\0\0\u{5}weird", "after"]
    );
    assert!(lines.iter().all(|l| l.0 == Stream::Console));

    let c = TestContainer::run("nolog", &["--log-driver", "none"], "exec sleep 600");
    let facts = runtime.find_container(&c.id).await.expect("found").facts;
    let history = runtime
        .log_history(&facts, None, u64::MAX, &none, |_, _, _| {
            ControlFlow::Continue(())
        })
        .await;
    assert!(
        history
            .facts
            .error
            .as_deref()
            .is_some_and(|e| e.contains("logging driver")),
        "{history:?}"
    );
    let log = runtime.log_follow(&facts, 0, &none, |_, _, _| {}).await;
    assert_eq!(log.error, history.facts.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_without_command_lines() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::idle("events");
    let events = Arc::new(Mutex::new(Vec::new()));
    let run = {
        let (runtime, id, events) = (runtime.clone(), c.id.clone(), events.clone());
        let since = Some(jiff::Timestamp::now().as_nanosecond() as i64);
        tokio::spawn(async move {
            runtime
                .watch_events(Some(&id), since, None, &CancellationToken::new(), |e| {
                    events.lock().expect("events").push(e)
                })
                .await
        })
    };
    let secret = "s3cr3t-of-the-test";
    exec(
        &runtime,
        &c.id,
        ExecRequest {
            argv: vec![
                "sh".into(),
                "-c".into(),
                "true".into(),
                "--api-key".into(),
                secret.into(),
            ],
            ..Default::default()
        },
    )
    .await;
    docker(&["restart", "-t", "0", &c.id]).expect("restart");
    docker(&["rm", "-f", &c.id]).expect("rm");
    let error = tokio::time::timeout(Duration::from_secs(20), run)
        .await
        .expect("ends with the container")
        .expect("task");
    assert_eq!(error, None);
    let events = events.lock().expect("events");
    let actions: Vec<&str> = events.iter().map(|e| e.action.as_str()).collect();
    for action in [
        "exec_create",
        "exec_start",
        "exec_die",
        "die",
        "start",
        "restart",
        "destroy",
    ] {
        // Newer podmans tell of an exec only when it starts.
        let untold = podman() && action == "exec_create";
        assert!(untold || actions.contains(&action), "{action}: {actions:?}");
    }
    assert!(!format!("{events:?}").contains(secret));
    let die = events.iter().find(|e| e.action == "die").expect("die");
    // Asked to end and then killed without time between: whichever came first.
    let code = die.attributes["exitCode"].as_str();
    assert!(["0", "137"].contains(&code), "{code}");
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_found_by_what_they_are_called_and_by_nothing_else() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let label = unique("label");
    let c = TestContainer::run(
        "find",
        &[
            "--label",
            &format!("kind={label}"),
            "-e",
            "HF_TOKEN=hf_0123456789abcdefgh",
            "-m",
            "64m",
        ],
        "exec sleep 600",
    );
    let found = runtime.find_container(&c.name).await.expect("by name");
    assert_eq!(found.facts.id, c.id);
    assert_eq!(found.facts.env["HF_TOKEN"], "[redacted]");
    assert_eq!(found.secrets.get("HF_TOKEN"), Some("hf_0123456789abcdefgh"));
    assert_eq!(found.facts.memory_limit_bytes, Some(64 << 20));
    assert_eq!(found.facts.argv[..2], ["/bin/sh", "-c"]);
    assert_eq!(
        (
            found.facts.state.status.as_str(),
            found.facts.state.exit_code
        ),
        ("running", None)
    );
    assert!(found.facts.state.pid.is_some() && !found.facts.addresses.is_empty());
    for by in [
        c.id.as_str(),
        &c.id[..12],
        &format!("label=kind={label}"),
        &format!("/{}", c.name),
    ] {
        assert_eq!(runtime.find_container(by).await.expect(by).facts.id, c.id);
    }
    assert!(
        runtime
            .list_running()
            .await
            .expect("list")
            .iter()
            .any(|f| f.id == c.id && f.name == c.name)
    );

    let wrong = runtime
        .find_container(&c.name[..c.name.len() - 1])
        .await
        .expect_err("part of a name");
    assert_eq!(wrong.code, ExitCode::Environment);
    assert!(
        wrong.hints.iter().any(|h| h.contains(&c.name)),
        "{:?}",
        wrong.hints
    );
    assert_eq!(
        runtime
            .find_container("../../etc")
            .await
            .expect_err("no name")
            .code,
        ExitCode::Usage
    );

    docker(&["kill", &c.id]).expect("kill");
    let stopped = runtime.find_container(&c.name).await.expect_err("stopped");
    assert!(
        stopped.message.contains("exited, exit code 137"),
        "{}",
        stopped.message
    );
    assert_eq!(
        stopped.hints[0],
        format!("start it: `docker start {}`", c.name)
    );
    assert_eq!(
        runtime
            .find_any(&c.name)
            .await
            .expect("whatever state")
            .facts
            .state
            .exit_code,
        Some(137)
    );
    docker(&["rm", &c.id]).expect("rm");
    assert!(
        runtime
            .inspect_container(&c.id)
            .await
            .expect("inspect")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_in_and_out_also_where_the_archive_endpoint_is_blind() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let c = TestContainer::run("copy", &["--tmpfs", "/mem"], "exec sleep 600");
    for dir in ["/data/a b", "/mem/x"] {
        let file = format!("{dir}/run.json");
        runtime.make_dir(&c.id, dir).await.expect("mkdir");
        let content = vec![b'z'; 100_000];
        runtime
            .write_file(&c.id, &file, &content, false)
            .await
            .expect("write");
        assert_eq!(
            runtime
                .read_file(&c.id, &file, 1 << 20)
                .await
                .expect("read"),
            Some(content)
        );
        // Docker does not see into a tmpfs.
        let size = if dir.starts_with("/mem") && !podman() {
            None
        } else {
            Some(100_000)
        };
        assert_eq!(runtime.file_size(&c.id, &file).await.expect("size"), size);
        assert!(
            runtime.read_file(&c.id, &file, 1000).await.is_err(),
            "larger than asked for"
        );
        assert_eq!(
            runtime.read_start(&c.id, &file, 1000).await.expect("start"),
            Some(vec![b'z'; 1000])
        );
        assert!(runtime.remove_dir(&c.id, dir).await);
        assert_eq!(
            runtime
                .read_file(&c.id, &file, 1 << 20)
                .await
                .expect("read"),
            None
        );
    }
    let (_, lines) = exec(
        &runtime,
        &c.id,
        request("mkdir -p /l; echo hi > /l/f; ln -s f /l/s; mkfifo /l/pipe; echo ok"),
    )
    .await;
    assert_eq!(lines[0].1, "ok");
    assert_eq!(
        runtime.read_file(&c.id, "/l/s", 100).await.expect("link"),
        Some(b"hi\n".to_vec())
    );
    for (file, start) in [("/l/s", Some(b"hi".to_vec())), ("/l/none", None)] {
        let read = runtime.read_start(&c.id, file, 2).await.expect("start");
        assert_eq!(read, start, "{file}");
    }
    assert!(
        runtime
            .write_file(&c.id, "/nowhere/f", b"x", false)
            .await
            .is_err()
    );
    for not_ours in ["/", "/data", "relative/dir", "/a/../b"] {
        assert!(!runtime.remove_dir(&c.id, not_ours).await, "{not_ours}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_reached_by_every_route() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let script =
        "mkdir -p /www; echo metrics 1 > /www/metrics; exec busybox httpd -f -p 8000 -h /www";
    let published = TestContainer::run("http", &["-p", "127.0.0.1::8000"], script);
    // A stand-in for curl: the image has none, and what it was asked is seen.
    let curl = r#"printf '#!/bin/sh\necho "$@" > /www/argv; cat > /www/stdin; cat /www/metrics; printf "\\n200"\n' > /bin/curl; chmod 755 /bin/curl; "#;
    let isolated = TestContainer::run(
        "http",
        &["--network", "none"],
        &format!("mkdir -p /www; {curl}{script}"),
    );
    for (c, route) in [(&published, "published port"), (&isolated, "exec curl")] {
        let mut facts = runtime.find_container(&c.id).await.expect("found").facts;
        let mut reply = Default::default();
        for _ in 0..50 {
            reply = runtime.get_inside(&facts, 8000, "/metrics", None).await;
            if reply.status.is_some() {
                break;
            }
        }
        assert_eq!(
            (reply.status, reply.body.as_str(), reply.route.as_str()),
            (Some(200), "metrics 1\n", route),
            "{reply:?}"
        );
        if route == "published port" {
            assert_eq!(
                runtime
                    .get_inside(&facts, 8000, "/nope", Some("key"))
                    .await
                    .status,
                Some(404)
            );
            let other = Runtime::connect().await.expect("connect");
            facts.published_ports.clear();
            let route = if rootless() {
                "exec busybox wget"
            } else {
                "container address"
            };
            assert_eq!(
                other.get_inside(&facts, 8000, "/metrics", None).await.route,
                route
            );
        }
        if route == "published port" {
            let nothing = runtime.get_inside(&facts, 8001, "/metrics", None).await;
            assert!(nothing.status.is_none() && nothing.error.is_some());
        } else {
            runtime
                .get_inside(&facts, 8000, "/metrics", Some("the-key"))
                .await;
            let file = async |name: &str| {
                String::from_utf8(
                    runtime
                        .read_file(&c.id, name, 10_000)
                        .await
                        .expect("read")
                        .expect("file"),
                )
                .expect("text")
            };
            assert!(
                file("/www/stdin")
                    .await
                    .contains("Authorization: Bearer the-key")
            );
            assert!(
                !file("/www/argv").await.contains("the-key"),
                "arguments are seen by everybody"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_begins_to_listen_is_not_asked_through_its_container_for_ever() {
    let Some(runtime) = runtime().await else {
        return;
    };
    // Nothing listens until the ways from outside were tried: `curl` in the container has the server
    // started, and answers when it serves.
    let curl = r#"printf '#!/bin/sh\ncat >/dev/null; touch /begin\nuntil busybox wget -q -O - http://127.0.0.1:8000/metrics; do sleep 0.1; done\nprintf "\\n200"\n' > /bin/curl; chmod 755 /bin/curl; "#;
    let script = format!(
        "mkdir -p /www; echo metrics 1 > /www/metrics; {curl} touch /ready; until [ -e /begin ]; do sleep 0.1; done; exec busybox httpd -f -p 8000 -h /www"
    );
    let c = TestContainer::run("late", &["-p", "127.0.0.1::8000"], &script);
    let facts = runtime.find_container(&c.id).await.expect("found").facts;
    for _ in 0..100 {
        if let Ok(Some(_)) = runtime.read_file(&c.id, "/ready", 10).await {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    for _ in 0..2 {
        let reply = runtime.get_inside(&facts, 8000, "/metrics", None).await;
        let got = (reply.status, reply.body.as_str(), reply.route.as_str());
        assert_eq!(got, (Some(200), "metrics 1\n", "published port"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_containers_are_launched_and_removed_and_nobody_elses() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let spec = LaunchSpec {
        name: unique("launch"),
        image: common::image().expect("image"),
        run_id: "test-run".into(),
        entrypoint: Some(vec!["/bin/sh".into(), "-c".into()]),
        cmd: vec!["trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done".into()],
        env: BTreeMap::from([("A".into(), "b".into())]),
        labels: BTreeMap::from([("plimsoll.test".into(), "1".into())]),
        ports: BTreeMap::from([(8000, 0)]),
        memory_bytes: Some(64 << 20),
        shm_size_bytes: Some(32 << 20),
        ..Default::default()
    };
    let launched = runtime.launch_container(&spec).await.expect("launch");
    let guard = TestContainer {
        id: launched.facts.id.clone(),
        name: spec.name.clone(),
    };
    assert_eq!(launched.facts.state.status, "running");
    assert_eq!(launched.facts.labels[RUN_LABEL], "test-run");
    assert_eq!(
        (
            launched.facts.memory_limit_bytes,
            launched.facts.shm_size_bytes
        ),
        (Some(64 << 20), Some(32 << 20))
    );
    assert!(launched.facts.published_ports[&8000].starts_with("127.0.0.1:"));
    assert!(
        runtime
            .list_ours()
            .await
            .expect("ours")
            .iter()
            .any(|c| c.id == guard.id)
    );
    let twice = runtime
        .launch_container(&spec)
        .await
        .expect_err("the name is taken");
    assert!(
        twice.message.contains("exists already"),
        "{}",
        twice.message
    );
    wait_for(|| {
        docker(&["logs", &guard.id])
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    })
    .await;
    let grace = Duration::from_secs(5);
    runtime.end_ours(&guard.id, grace).await.expect("end");
    assert!(
        runtime
            .inspect_container(&guard.id)
            .await
            .expect("inspect")
            .is_none()
    );
    let twice = runtime.end_ours(&guard.id, grace).await;
    twice.expect("ending twice is no error");

    let foreign = TestContainer::idle("foreign");
    assert!(runtime.end_ours(&foreign.id, Duration::ZERO).await.is_err());
    assert!(runtime.find_container(&foreign.id).await.is_ok());

    let no_image = LaunchSpec {
        name: unique("noimage"),
        image: "plimsoll/no-such-image:1".into(),
        ..spec.clone()
    };
    let failure = runtime
        .launch_container(&no_image)
        .await
        .expect_err("no image");
    assert_eq!(
        failure.hints,
        ["get it: `docker pull plimsoll/no-such-image:1`"]
    );

    let bad = LaunchSpec {
        name: unique("bad"),
        entrypoint: Some(vec!["/no/such/program".into()]),
        ..spec.clone()
    };
    assert!(runtime.launch_container(&bad).await.is_err());
    assert!(
        runtime
            .inspect_container(&bad.name)
            .await
            .expect("inspect")
            .is_none(),
        "what cannot start is not left behind"
    );

    if !std::path::Path::new("/dev/nvidiactl").exists() {
        let gpu = LaunchSpec {
            name: unique("gpu"),
            gpus: GpuRequest::All,
            ..spec
        };
        let failure = runtime
            .launch_container(&gpu)
            .await
            .expect_err("no GPU here");
        let way_out = match podman() {
            true => "podman run --device",
            false => "NVIDIA Container Toolkit",
        };
        assert!(
            failure.hints.iter().any(|h| h.contains(way_out)),
            "{failure:?}"
        );
        assert!(
            runtime
                .inspect_container(&gpu.name)
                .await
                .expect("inspect")
                .is_none()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_deadline_is_backed_by_timeout_in_the_image() {
    const IMAGE: &str = "debian:bookworm-slim";
    let Some(runtime) = runtime().await else {
        return;
    };
    if !common::has_image(IMAGE) {
        skip(&this_test(), &format!("no image {IMAGE}"));
        return;
    }
    let c = TestContainer::of(IMAGE, "run", "gnu", &["--init"], "exec sleep 600");
    let cancel = CancellationToken::new();
    let long = |request: ExecRequest| ExecRequest {
        deadline: Some(Duration::from_secs(60)),
        ..request
    };
    let run = {
        let (runtime, id, cancel, request) = (
            runtime.clone(),
            c.id.clone(),
            cancel.clone(),
            long(request("trap '' TERM; while true; do sleep 0.7654; done")),
        );
        tokio::spawn(async move { runtime.run_exec(&id, request, &cancel, |_, _| {}).await })
    };
    wait_for(|| c.processes_with("timeout -k 5 90 sh -c")).await;
    cancel.cancel();
    let result = run.await.expect("task").expect("exec");
    assert_eq!(
        (result.end, result.survivors, result.bound),
        (ExecEnd::Cancelled, 0, CommandBound::Host)
    );
    assert_eq!(c.processes_with("7654"), []);

    let (result, _) = exec(&runtime, &c.id, long(request("exit 5"))).await;
    assert_eq!((result.end, result.killed), (ExecEnd::Exited(5), 0));
    let (result, _) = exec(
        &runtime,
        &c.id,
        long(ExecRequest {
            argv: vec!["no-such-bench".into()],
            ..Default::default()
        }),
    )
    .await;
    assert!(
        matches!(&result.end, ExecEnd::NotFound(m) if m.contains("no-such-bench")),
        "{result:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn python_in_the_image_is_a_route_too() {
    let image = common::e2e::vllm_image();
    let Some(runtime) = runtime().await else {
        return;
    };
    if !common::has_image(image) {
        skip(&this_test(), &format!("no image {image}"));
        return;
    }
    let script = "mkdir /www; cd /www; echo metrics 1 > metrics; exec python3 -m http.server 8000";
    let c = TestContainer::of(image, "run", "python", &["--network", "none"], script);
    let facts = runtime.find_container(&c.id).await.expect("found").facts;
    let mut reply = Default::default();
    for _ in 0..20 {
        reply = runtime
            .get_inside(&facts, 8000, "/metrics", Some("key"))
            .await;
        if reply.status.is_some() {
            break;
        }
    }
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (Some(200), "metrics 1\n"),
        "{reply:?}"
    );
    assert!(
        ["exec curl", "exec python3"].contains(&reply.route.as_str()),
        "{}",
        reply.route
    );
    assert_eq!(
        runtime.get_inside(&facts, 8000, "/nope", None).await.status,
        Some(404)
    );
}
