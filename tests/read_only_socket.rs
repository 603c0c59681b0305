//! Behind a proxy of Docker's socket that lets questions pass alone: what only looks works, what starts something is refused
//! in words, and what is lost is said.

use crate::common;
use common::docker;
use common::e2e::{
    Ended, Engine, Live, Results, codes, everything_in, parts_sum_to_the_peak, plimsoll,
};
use common::wire::Wire;
use serde_json::Value;

fn behind(wire: &Wire, args: &[&str]) -> Ended {
    let mut command = plimsoll(args);
    command.env("DOCKER_HOST", wire.host());
    Live::start(command).end()
}

/// Requests that are no question, by class.
fn changes(wire: &Wire) -> Vec<String> {
    let asked = wire.asked().into_iter().map(|asked| asked.class);
    asked
        .filter(|class| !class.starts_with("GET ") && !class.starts_with("HEAD "))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_works_behind_a_read_only_socket() {
    needs!(ReferenceEngine);
    let engine = Engine::serving(
        "readonly",
        &[],
        &["--weights", "64MiB", "--kv-pool", "32MiB"],
    );
    let wire = Wire::read_only();

    let why = behind(&wire, &["why", &engine.name, "--json"]).expect(9);
    let found: Value = serde_json::from_str(&why.stdout).unwrap();
    assert_eq!(found["cause"], "no_failure", "{found:#}");
    let top = behind(&wire, &["top", "--once", "--json"]).expect(0);
    assert!(top.stdout.contains(&engine.name), "{}", top.stdout);

    let results = Results::new();
    let dir = results.arg();
    let watch = [
        "profile",
        &engine.name,
        &dir,
        "--bench",
        "none",
        "--duration",
        "1s",
    ];
    behind(&wire, &watch).expect(0);
    let document = results.document();
    parts_sum_to_the_peak(&document);
    let kept = everything_in(results.0.path());
    assert!(kept.contains("container address"), "its endpoints answered");
    // Files that the archive does not have would be looked for by a program of the image.
    assert!(
        changes(&wire)
            .iter()
            .all(|class| class == "POST /containers/ID/exec"),
        "{:?}",
        changes(&wire)
    );
    assert_eq!(engine.processes().len(), 1);

    let doctor = behind(&wire, &["doctor"]).expect(0);
    assert!(
        doctor.stdout.contains("only answers questions"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor.stdout.contains("no bench runs in the container"),
        "{}",
        doctor.stdout
    );
    // The daemon itself knows no such container, so the question changes nothing.
    let asked = docker(&["ps", "-aq", "--filter", "name=plimsoll-asks-only"]).unwrap();
    assert_eq!(asked.trim(), "");
    let open = plimsoll(&["doctor"]);
    assert!(
        !Live::start(open)
            .end()
            .stdout
            .contains("only answers questions")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_in_the_container_is_refused_with_the_way_out() {
    needs!(ReferenceEngine);
    let engine = Engine::serving(
        "readonly",
        &[],
        &["--weights", "64MiB", "--kv-pool", "32MiB"],
    );
    let wire = Wire::read_only();
    let results = Results::new();
    let dir = results.arg();
    let refused = behind(&wire, &["profile", &engine.name, &dir, "--bench", "serve"]).expect(3);
    let words = ["refuses to run a command", "it only answers questions"];
    refused.says(&words, "--bench builtin");
    let results = Results::new();
    let dir = results.arg();
    behind(
        &wire,
        &[
            "profile",
            &engine.name,
            &dir,
            "--bench",
            "builtin",
            "--num-prompts",
            "4",
        ],
    )
    .expect(0);
    assert!(codes(&results.document()).contains(&"simulated_engine"));
    assert_eq!(engine.processes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_behind_a_read_only_socket_is_said() {
    needs!(ReferenceEngine);
    let args = ["--weights", "64MiB", "--kv-pool", "32MiB"];
    let engine = Engine::serving("readonly", &["--network", "none"], &args);
    let wire = Wire::read_only();
    let results = Results::new();
    let dir = results.arg();
    let watch = [
        "profile",
        &engine.name,
        &dir,
        "--bench",
        "none",
        "--duration",
        "1s",
    ];
    let watched = behind(&wire, &watch).expect(0);
    let words = [
        "only answers questions",
        "no port is asked that only it reaches",
    ];
    for part in words {
        assert!(watched.stderr.contains(part), "{}", watched.stderr);
    }
    parts_sum_to_the_peak(&results.document());
}
