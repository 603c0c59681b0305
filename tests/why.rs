//! `why` on containers that really died: each cause from Docker's state, its events and the log.

use crate::common;
use common::e2e::{run, wait_for};
use common::{TestContainer, docker};
use serde_json::Value;

/// The answer of `why` on a container.
#[track_caller]
fn why(container: &TestContainer, code: i32) -> Value {
    let ended = run(&["why", &container.name, "--json"]).expect(code);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[track_caller]
fn answers(container: &TestContainer, cause: &str, setting: &str) {
    let answer = why(container, 0);
    assert_eq!(answer["cause"], cause, "{answer:#}");
    assert_eq!(answer["advice"][0]["setting"], setting, "{answer:#}");
    assert!(answer["evidence"][0]["quote"].is_string(), "{answer:#}");
}

fn state(container: &TestContainer, field: &str) -> String {
    docker(&[
        "inspect",
        "--format",
        &format!("{{{{{field}}}}}"),
        &container.name,
    ])
    .expect("state")
}

/// Waits until a container has ended.
fn ended(container: TestContainer) -> TestContainer {
    docker(&["wait", &container.name]).expect("its end");
    container
}

#[test]
fn each_death_has_its_cause() {
    needs!(Docker);
    let flag = "echo 'vllm: error: unrecognized arguments: --no-such-flag'; exit 2";
    let dead = |options: &[&str], script| ended(TestContainer::run("why", options, script));
    answers(&dead(&[], flag), "bad_flag", "command");
    let shm = "dd if=/dev/zero of=/dev/shm/nccl-x bs=64k count=100; exit 1";
    answers(&dead(&["--shm-size=1m"], shm), "shm_too_small", "shm_size");
    let disk = "dd if=/dev/zero of=/models/blob bs=64k count=100; exit 1";
    answers(
        &dead(&["--tmpfs=/models:size=1m"], disk),
        "disk_full",
        "volume",
    );
    let unexplained = why(&dead(&[], "echo bye; exit 3"), 9);
    assert_eq!(
        (&unexplained["cause"], &unexplained["abstained"]),
        (&Value::Null, &Value::Bool(true))
    );
}

#[test]
fn a_stop_and_a_kill_are_no_lack_of_memory() {
    needs!(Docker);
    for deed in ["stop", "kill"] {
        let container = TestContainer::idle("why");
        docker(&[deed, &container.name]).expect(deed);
        answers(
            &container,
            "killed_by_user_or_orchestrator",
            "stopped_from_outside",
        );
    }
}

#[test]
fn a_container_that_loops_is_judged_by_its_last_death() {
    needs!(Docker);
    let script = "echo 'OSError: [Errno 98] error while attempting to bind on address: address already in use'; exit 1";
    for policy in ["always", "unless-stopped", "on-failure:2"] {
        let looping = TestContainer::run("why", &[&format!("--restart={policy}")], script);
        wait_for("a restart", || {
            (state(&looping, ".RestartCount") != "0").then_some(())
        });
        answers(&looping, "port_in_use", "port");
    }
}

#[test]
fn what_never_started_says_so() {
    needs!(Docker);
    let created = TestContainer::create("why", &[], "true");
    let answer = why(&created, 9);
    assert!(
        answer["means"]
            .as_str()
            .is_some_and(|means| means.contains("never started")),
        "{answer:#}"
    );
}
