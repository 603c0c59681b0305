//! What is mended when a connection breaks: each repair by itself, on the real daemon.

use crate::common::wire::{Fault, Place, Wire};
use crate::common::{TestContainer, docker, image, unique};
use plimsoll::capture::ExecEnd;
use plimsoll::container::Runtime;
use plimsoll::container::exec::ExecRequest;
use plimsoll::container::launch::LaunchSpec;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn at(class: &str, frame: usize) -> Place {
    Place {
        class: class.into(),
        nth: 0,
        frame,
    }
}

const START: &str = "POST /exec/ID/start";
const LOGS: &str = "GET /containers/ID/logs";

async fn broken(fault: Fault, place: Place) -> (Wire, Runtime) {
    let wire = Wire::start(None, Some((fault, place)));
    let runtime = Runtime::connect_to(&wire.host()).await.expect("a daemon");
    (wire, runtime)
}

fn sh(script: &str) -> ExecRequest {
    ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        run_id: "faults".into(),
        ..ExecRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_asked_again() {
    needs!(Docker);
    let container = TestContainer::idle("asked-again");
    for class in ["GET /containers/json", "GET /containers/ID/json"] {
        for fault in [
            Fault::Refused,
            Fault::Lost,
            Fault::Truncated,
            Fault::Answer(500),
            Fault::Restart,
        ] {
            let (wire, runtime) = broken(fault, at(class, 0)).await;
            let found = runtime.find_container(&container.name).await;
            assert!(wire.met(), "{fault:?} {class}");
            assert_eq!(found.expect("found").facts.id, container.id);
        }
        // What is refused stays refused; what is gone is not waited for without end.
        let (_wire, runtime) = broken(Fault::Answer(409), at(class, 0)).await;
        assert!(
            runtime.find_container(&container.name).await.is_err(),
            "{class}"
        );
    }
    let (_wire, runtime) = broken(Fault::Gone, at("GET /containers/json", 0)).await;
    assert!(runtime.find_container(&container.name).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_has_every_line_once_wherever_it_is_cut() {
    needs!(Docker);
    let script = "trap 'exit 0' TERM; i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; echo last; while true; do sleep 0.1; done";
    for fault in [
        Fault::InHeader,
        Fault::InPayload,
        Fault::Truncated,
        Fault::Restart,
        Fault::Mute,
    ] {
        let container = TestContainer::run("log-cut", &[], script);
        let (wire, runtime) = broken(fault, at(LOGS, 20)).await;
        let facts = runtime
            .find_container(&container.name)
            .await
            .expect("found")
            .facts;
        let cancel = CancellationToken::new();
        let ended = async {
            // Whether it is seen or not: all has been written when this comes.
            loop {
                let log = docker(&["logs", &container.id]).expect("log");
                if log.contains("last") && wire.met() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            if fault != Fault::Mute {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            cancel.cancel();
        };
        let mut lines = Vec::new();
        let follow = runtime.log_follow(&facts, 0, &cancel, |_, _, line| lines.push(line));
        let (log, ()) = tokio::join!(follow, ended);
        let mut expected: Vec<String> = (0..60).map(|i| format!("line {i}")).collect();
        expected.push("last".into());
        assert_eq!(lines, expected, "{fault:?}");
        assert_eq!(log.error, None, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_breaks_off_is_taken_up_again() {
    needs!(Docker);
    let script = "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let container = TestContainer::run("history-cut", &[], script);
    crate::common::e2e::wait_for("its last line", || {
        let log = docker(&["logs", &container.id]).ok()?;
        log.contains("line 199").then_some(())
    });
    for fault in [
        Fault::Refused,
        Fault::InHeader,
        Fault::InPayload,
        Fault::Truncated,
    ] {
        let (wire, runtime) = broken(fault, at(LOGS, 77)).await;
        let facts = runtime
            .find_container(&container.name)
            .await
            .expect("found")
            .facts;
        let mut lines = Vec::new();
        let never = CancellationToken::new();
        let history = runtime
            .log_history(&facts, None, 1 << 20, &never, |_, _, line| {
                lines.push(line);
                std::ops::ControlFlow::Continue(())
            })
            .await;
        assert!(wire.met(), "{fault:?}");
        let expected: Vec<String> = (0..200).map(|i| format!("line {i}")).collect();
        assert_eq!(lines, expected, "{fault:?}");
        assert!(history.complete && history.facts.error.is_none());
    }
}

/// The end of an output is not the end of a command, and the beginning of a line is no line.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_output_is_cut_is_waited_for() {
    needs!(Docker);
    let container = TestContainer::idle("exec-cut");
    for fault in [
        Fault::InHeader,
        Fault::InPayload,
        Fault::Truncated,
        Fault::Lost,
        Fault::Mute,
    ] {
        let (wire, runtime) = broken(fault, at(START, 3)).await;
        let script = "for i in 1 2 3 4 5; do echo figure=12345$i; sleep 0.1; done; sleep 3; echo end > /end; exit 7";
        let mut lines = Vec::new();
        let never = CancellationToken::new();
        let result = runtime
            .run_exec(&container.id, sh(script), &never, |_, line| {
                lines.push(line)
            })
            .await;
        let result = result.expect("it ran");
        assert!(wire.met(), "{fault:?}");
        // Docker forgets the exit code of a command whose listener it lost.
        let told = matches!(result.end, ExecEnd::Exited(7) | ExecEnd::Unknown);
        assert!(told, "{fault:?}: {result:?}");
        let end = docker(&["exec", &container.id, "busybox", "cat", "/end"]).expect("end");
        assert_eq!((end.as_str(), result.killed), ("end", 0), "{fault:?}");
        docker(&["exec", &container.id, "busybox", "rm", "/end"]).expect("rm");
        let said: Vec<String> = (1..=5).map(|i| format!("figure=12345{i}")).collect();
        if fault == Fault::Lost && !result.cut {
            // The daemon had not begun it when its answer was lost, so that it was asked again.
            assert_eq!((&lines, result.exit_code), (&said, Some(7)));
        } else {
            assert!(result.cut, "{fault:?}: {result:?}");
            // How many came in one frame is the container's business.
            assert!(
                lines.len() < 5 && said.starts_with(&lines),
                "{fault:?}: {lines:?}"
            );
        }
        assert_eq!(container.processes_with("figure").len(), 0, "{fault:?}");
    }
}

/// Started once, whatever is lost: it counts itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_started_once() {
    needs!(Docker);
    let container = TestContainer::idle("exec-once");
    let create = "POST /containers/ID/exec";
    for (number, (fault, class)) in [
        (Fault::Refused, START),
        (Fault::Lost, START),
        (Fault::Answer(500), START),
        (Fault::Restart, START),
        (Fault::Refused, create),
        (Fault::Lost, create),
        (Fault::Restart, create),
    ]
    .into_iter()
    .enumerate()
    {
        let (wire, runtime) = broken(fault, at(class, 0)).await;
        let script = format!("echo once >> /count{number}");
        let never = CancellationToken::new();
        let result = runtime.run_exec(&container.id, sh(&script), &never, |_, _| ());
        let result = result.await.expect("it ran");
        assert!(wire.met());
        assert_eq!(result.end, ExecEnd::Exited(0), "{fault:?} {class}");
        let file = format!("/count{number}");
        let count = docker(&["exec", &container.id, "busybox", "cat", &file]).expect("count");
        assert_eq!(count, "once", "{fault:?} {class}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_whole_or_not_at_all() {
    needs!(Docker);
    let container = TestContainer::idle("write-cut");
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    for (fault, class) in [
        (Fault::Lost, START),
        (Fault::Refused, START),
        (Fault::Restart, START),
        (Fault::Truncated, START),
        (Fault::InPayload, START),
    ] {
        let (wire, runtime) = broken(fault, at(class, 0)).await;
        let wrote = runtime.write_file(&container.id, "/f", &content, false);
        wrote.await.expect("written");
        assert!(wire.met(), "{fault:?}");
        let size = docker(&["exec", &container.id, "busybox", "wc", "-c", "/f"]).expect("size");
        assert_eq!(size, format!("{} /f", content.len()), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_created_once_and_not_left_behind() {
    needs!(Docker);
    let (create, start) = ("POST /containers/create", "POST /containers/ID/start");
    for (fault, class) in [
        (Fault::Refused, create),
        (Fault::Lost, create),
        (Fault::Truncated, create),
        (Fault::Answer(500), create),
        (Fault::Restart, create),
        (Fault::Refused, start),
        (Fault::Lost, start),
        (Fault::Restart, start),
        (Fault::Answer(500), start),
        (Fault::Answer(404), "GET /containers/ID/json"),
    ] {
        let (wire, runtime) = broken(fault, at(class, 0)).await;
        let run_id = unique("once");
        let spec = LaunchSpec {
            name: run_id.clone(),
            image: image().expect("image"),
            run_id: run_id.clone(),
            cmd: [
                "sh",
                "-c",
                "trap 'exit 0' TERM; while true; do sleep 0.1; done",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..LaunchSpec::default()
        };
        let launched = runtime.launch_container(&spec).await;
        assert!(wire.met(), "{fault:?} {class}");
        let label = format!("label=plimsoll.run={run_id}");
        let list = docker(&["ps", "-aq", "--filter", &label]).expect("list");
        let there = list.lines().count();
        match &launched {
            Ok(found) => {
                assert_eq!(there, 1, "{fault:?} {class}");
                assert_eq!(found.facts.state.status, "running");
                let ended = runtime.end_ours(&found.facts.id, Duration::from_secs(1));
                ended.await.expect("ended");
            }
            // What the daemon refuses by itself is not asked for again.
            Err(failure) => {
                let _ = docker(&["rm", "-f", &run_id]);
                assert!(matches!(fault, Fault::Answer(_)), "{failure}");
                assert_eq!(there, 0, "{fault:?} {class}: {failure}");
            }
        }
    }
}

/// One that is named alike and is another run's is not taken for ours, and not touched.
#[tokio::test(flavor = "multi_thread")]
async fn another_runs_container_of_that_name_is_left_alone() {
    needs!(Docker);
    let theirs = TestContainer::run(
        "named-alike",
        &[
            "--label",
            "plimsoll.run=other",
            "--label",
            "plimsoll.owner=x",
        ],
        "trap 'exit 0' TERM; while true; do sleep 0.1; done",
    );
    let (wire, runtime) = broken(Fault::Lost, at("POST /containers/create", 0)).await;
    let spec = LaunchSpec {
        name: theirs.name.clone(),
        image: image().expect("image"),
        run_id: unique("mine"),
        ..LaunchSpec::default()
    };
    let refused = runtime
        .launch_container(&spec)
        .await
        .expect_err("the name is taken");
    assert!(wire.met(), "{refused}");
    assert_eq!(
        docker(&["inspect", "-f", "{{.State.Status}}", &theirs.id]).as_deref(),
        Ok("running")
    );
}
