//! Logs as drivers keep them: lines of every kind come whole, a rotated log is followed without
//! doubles, and what a profile says of a log that cannot be read.
#![allow(missing_docs)]

use crate::common;
use common::e2e::{
    Engine, Live, REFERENCE_IMAGE, Results, codes, everything_in, plimsoll, run, skip, wait_for,
};
use common::{TestContainer, docker, podman, runtime, this_test};
use plimsoll::container::lines::LONGEST_LINE;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use tokio_util::sync::CancellationToken;

const MIB: usize = 1 << 20;

/// Every line that Docker cuts, or that is no text, and then `end`.
const ODD_LINES: &str = r"x() { head -c $1 /dev/zero | tr '\0' $2; }
for n in 16383 16384 16385 32768 65536; do x $n x; echo; done
x 10485760 y; echo
printf '\377\376 is no text\n'; printf '\303\n'; echo; printf 'a\0b\n'; x 16384 z; printf '\303\244\n'; echo end; exec sleep 600";

async fn follow_until_end(c: &TestContainer) -> Vec<String> {
    let runtime = runtime().await.expect("runtime");
    let facts = runtime.find_container(&c.id).await.expect("found").facts;
    let cancel = CancellationToken::new();
    let mut lines = Vec::new();
    let follow = runtime.log_follow(&facts, 0, &cancel, |_, _, line| {
        if line == "end" {
            cancel.cancel();
        }
        lines.push(line);
    });
    let log = follow.await;
    assert_eq!(log.error, None);
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_lines_come_whole_from_every_driver() {
    let Some(runtime) = runtime().await else {
        return;
    };
    let drivers: &[&str] = if podman() {
        &["k8s-file"]
    } else {
        &["json-file", "local"]
    };
    for driver in drivers {
        // Where the daemon rotates at 10 MB, it would cut the longest line apart.
        let mut options = vec!["--log-driver", driver];
        if !podman() {
            options.extend(["--log-opt", "max-size=64m"]);
        }
        let c = TestContainer::run("odd", &options, ODD_LINES);
        let followed = follow_until_end(&c).await;
        let lengths: Vec<usize> = followed.iter().map(String::len).collect();
        assert_eq!(
            lengths[..5],
            [16383, 16384, 16385, 32768, 65536],
            "{driver}: pieces are put together"
        );
        // The last word of what is kept goes too: it may be the beginning of a secret.
        let (kept, cut) = followed[5].split_once(" [").expect("what was cut is said");
        let cut = cut.strip_suffix(" more bytes cut]").expect("bytes");
        let cut: usize = cut.parse().expect("a number");
        assert_eq!(kept.len() + cut, 10 * MIB, "{driver}");
        let last_word = LONGEST_LINE - kept.len();
        assert!(last_word <= 1024, "{driver}: {last_word}");
        assert_eq!(
            followed[6..10],
            ["\u{fffd}\u{fffd} is no text", "\u{fffd}", "", "a\0b"],
            "{driver}"
        );
        assert_eq!(followed[10], format!("{}ä", "z".repeat(16384)), "{driver}");
        assert_eq!(followed.len(), 12, "{driver}");

        let facts = runtime.find_container(&c.id).await.expect("found").facts;
        let mut history = Vec::new();
        let none = CancellationToken::new();
        let read = runtime.log_history(&facts, None, u64::MAX, &none, |_, _, line| {
            history.push(line);
            ControlFlow::Continue(())
        });
        assert!(read.await.complete);
        assert_eq!(history, followed, "{driver}: read afterwards");
    }
}

/// Numbered lines, a few hundred kB of them.
const MANY: &str = "i=0; while [ $i -lt 4000 ]; do echo line $i of a log that is rotated all the time; \
    i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.05; done; echo end; exec sleep 600";

/// A log that is rotated away while it is followed may have gaps, which nobody can fill, and what
/// follows missed and is still there comes at the end; but no line comes twice, and the last one comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_log_is_followed_without_doubles() {
    let Some(runtime) = runtime().await else {
        return;
    };
    if podman() {
        return skip(&this_test(), "podman's log has no max-file");
    }
    for (driver, files) in [("json-file", "1"), ("json-file", "2"), ("local", "2")] {
        let (size, file) = ("max-size=10k".to_owned(), format!("max-file={files}"));
        let mut options = vec![
            "--log-driver",
            driver,
            "--log-opt",
            &size,
            "--log-opt",
            &file,
        ];
        if driver == "local" {
            options.extend(["--log-opt", "compress=false"]);
        }
        let c = TestContainer::run("rotated", &options, MANY);
        let followed = follow_until_end(&c).await;
        let numbers: Vec<u32> = followed
            .iter()
            .filter_map(|l| l.strip_prefix("line ")?.split(' ').next()?.parse().ok())
            .collect();
        let once: BTreeSet<u32> = numbers.iter().copied().collect();
        assert_eq!(once.len(), numbers.len(), "{driver} {files}: {numbers:?}");
        assert_eq!(once.last(), Some(&3999), "{driver} {files}");

        // Afterwards the beginning is gone, and what is there is whole lines.
        let facts = runtime.find_container(&c.id).await.expect("found").facts;
        let mut left = Vec::new();
        let none = CancellationToken::new();
        let read = runtime.log_history(&facts, None, u64::MAX, &none, |_, _, line| {
            left.push(line);
            ControlFlow::Continue(())
        });
        assert!(read.await.complete);
        assert!(
            left.iter().all(|l| l == "end" || l.starts_with("line ")),
            "{left:?}"
        );
        assert_eq!(left.last().map(String::as_str), Some("end"));
        assert!(
            left.len() < 1000,
            "{driver} {files}: {} lines are left",
            left.len()
        );
    }
}

const SMALL: &[&str] = &[
    "--weights",
    "16MiB",
    "--kv-pool",
    "8MiB",
    "--activation",
    "4MiB",
    "--start-ms",
    "50",
    "--load-ms",
    "0",
    "--settle-ms",
    "50",
];

/// A load that ends only with its container.
const ENDLESS: &[&str] = &[
    "--baseline=300ms",
    "--num-prompts=100000",
    "--memory-backend=host",
];

/// A serving engine with these options is profiled, and its log is, or is not, in the capture.
#[track_caller]
fn profiled(what: &str, options: &[&str], readable: bool) -> serde_json::Value {
    let args = [&["serve", "--model", "reference/test"], SMALL].concat();
    let engine = Engine::run(what, options, REFERENCE_IMAGE, &args);
    match readable {
        true => engine.wait_for_log("phase=ready"),
        false => wait_for("the engine", || {
            let out = std::process::Command::new("curl");
            let mut asked = out;
            let url = format!("http://{}:8000/health", engine.address());
            let asked = asked.args(["-sf", "-m", "2", &url]).output();
            asked.is_ok_and(|a| a.status.success()).then_some(())
        }),
    }
    let results = Results::new();
    let few = [
        "--baseline=300ms",
        "--num-prompts=8",
        "--memory-backend=host",
    ];
    let dir = results.arg();
    let ended = run(&[&["profile", &engine.name, &dir], &few[..]].concat()).expect(0);
    let text = everything_in(&results.captures()[0]);
    assert_eq!(text.contains("phase=loading_weights"), readable);
    let document = results.document();
    let told = codes(&document).contains(&"log_unreadable");
    assert_eq!(told, !readable, "{:#}", document["findings"]);
    if !readable {
        let page: Vec<&str> = ended.stdout.split_whitespace().collect();
        assert!(
            page.join(" ")
                .contains("keeps no log that Docker can read back")
        );
    }
    document
}

/// The memory is measured all the same; that the log is no witness is told, with the way out.
#[test]
fn a_log_that_nobody_keeps_is_told_on_the_page() {
    needs!(Docker, ReferenceEngine);
    let document = profiled("log-none", &["--log-driver", "none"], false);
    assert_eq!(document["metadata"]["outcome"], "completed");
}

#[test]
fn a_terminals_log_and_one_of_another_driver_are_read() {
    needs!(Docker, ReferenceEngine);
    profiled("log-tty", &["-t"], true);
    if !podman() {
        profiled("log-local", &["--log-driver", "local"], true);
    }
    // Where the host has no journal, Docker refuses such a container.
    let journal = std::path::Path::new("/run/systemd/journal/socket").exists();
    match journal {
        true => drop(profiled(
            "log-journald",
            &["--log-driver", "journald"],
            true,
        )),
        false => skip(test_name!(), "journald: this host has no journal"),
    }
}

/// A policy that starts a container again does not make one run of two lives.
#[test]
fn a_container_that_its_policy_starts_again_is_lost_to_the_run() {
    // Whoever ends it by Docker's own means switches the policy off.
    needs!(Docker, ReferenceEngine, Root);
    let args = [&["serve", "--model", "reference/test"], SMALL].concat();
    let engine = Engine::run("policy", &["--restart", "always"], REFERENCE_IMAGE, &args);
    engine.wait_for_log("phase=ready");
    let results = Results::new();
    let dir = results.arg();
    let args = [&["profile", &engine.name, &dir], ENDLESS].concat();
    let mut live = Live::start(plimsoll(&args));
    live.until("bench 1/1");
    let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &engine.id]).expect("pid");
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("pid"), rustix::process::Signal::KILL).expect("kill");
    let ended = live.end().expect(4);
    assert!(
        ended.error().contains("the container was"),
        "{}",
        ended.stderr
    );
    let document = results.document();
    assert!(
        codes(&document).contains(&"container_lost"),
        "{:#}",
        document["findings"]
    );
    wait_for("its next life", || {
        let count = docker(&["inspect", "-f", "{{.RestartCount}}", &engine.id]).ok()?;
        (count != "0").then_some(())
    });
}

/// A server that is frozen answers nobody: the run ends at once, and says so.
#[test]
fn a_serving_container_that_is_paused() {
    needs!(Docker, ReferenceEngine);
    let args = [&["serve", "--model", "reference/test"], SMALL].concat();
    let engine = Engine::run("paused-serving", &[], REFERENCE_IMAGE, &args);
    engine.wait_for_log("phase=ready");
    let before = engine.processes();
    let results = Results::new();
    let dir = results.arg();
    let args = [&["profile", &engine.name, &dir], ENDLESS].concat();
    let mut live = Live::start(plimsoll(&args));
    live.until("bench 1/1");
    // A busy kernel does not freeze a busy process at the first attempt.
    wait_for("its pause", || docker(&["pause", &engine.id]).ok());
    live.end()
        .expect(4)
        .says(&["the container was paused"], "log.txt");
    assert!(codes(&results.document()).contains(&"container_lost"));
    docker(&["unpause", &engine.id]).expect("unpause");
    wait_for("the client's end", || {
        (engine.processes() == before).then_some(())
    });
}
