//! A sweep on a real vLLM (on CPU), whose bench client is kept for the cells of a group; and the
//! keeping itself, with programs of which it is known what they must say. Slow: minutes.

use crate::common;
use crate::common::sweeps;
use common::e2e::{Engine, models, older_vllm, parts_sum_to_the_peak, read, vllm_image};
use common::{docker, runtime};
use plimsoll::capture::{ExecEnd, Stream};
use plimsoll::collect::KeptBench;
use plimsoll::container::exec::{ExecRequest, ExecResult};
use std::time::Duration;
use sweeps::Desk;
use tokio_util::sync::CancellationToken;

/// Counts how often a module was loaded and how often it ran, and says with what.
const COUNTING: &str = r#"#!/usr/bin/env python3
import os, sys
try:
    import plimsoll_counted
except ImportError:
    plimsoll_counted = type(sys)("plimsoll_counted")
    plimsoll_counted.runs = 0
    sys.modules["plimsoll_counted"] = plimsoll_counted
plimsoll_counted.runs += 1
print("run", plimsoll_counted.runs, "argv", sys.argv[1:], "env", os.environ.get("GIVEN"), "in", os.getcwd())
print("to stderr", file=sys.stderr)
print("read", repr(sys.stdin.read()))
os.environ["LEFT"] = "behind"
os.chdir("/")
if sys.argv[1] == "write":
    print("no end of line", end="")
    open("/tmp/written", "w").write('{"\u00fc\U0001f6a2 "\n' * 3000)
    sys.exit(0)
if sys.argv[1] == "words":
    sys.exit("last words")
if sys.argv[1] == "raise":
    raise ValueError("a bug")
if sys.argv[1] == "wait":
    import time
    print("waiting", flush=True)
    time.sleep(600)
sys.exit(int(sys.argv[1]))
"#;

/// A container with Python in it, and a program of ours.
fn container(program: &str, text: &str) -> Engine {
    let engine = Engine::run(
        "kept",
        &["--entrypoint", "sleep", "--workdir", "/tmp"],
        vllm_image(),
        &["infinity"],
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(program);
    std::fs::write(&path, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    let into = format!("{}:/usr/local/bin/{program}", engine.id);
    docker(&["cp", &path.display().to_string(), &into]).unwrap();
    engine
}

async fn ran(
    kept: &KeptBench,
    word: &str,
    env: &[(&str, &str)],
) -> (ExecResult, Vec<(Stream, String)>) {
    let request = ExecRequest {
        argv: vec!["counting".into(), word.into(), "two words".into()],
        env: env
            .iter()
            .map(|(n, v)| ((*n).into(), (*v).into()))
            .collect(),
        ..ExecRequest::default()
    };
    let mut lines = Vec::new();
    let nobody = CancellationToken::new();
    let sink = |stream, line: String| lines.push((stream, line));
    let done = kept.run_order(&request, None, &nobody, sink).await.unwrap();
    assert_eq!(done.written, None, "no file was asked for");
    let result = done.ended;
    lines.retain(|(_, line)| !line.is_empty());
    (result, lines)
}

fn text(lines: &[(Stream, String)], of: Stream) -> String {
    let lines = lines.iter().filter(|(stream, _)| *stream == of);
    lines
        .map(|(_, line)| line.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_program_runs_as_if_started_anew_but_for_what_it_imported() {
    needs!(Docker, Vllm);
    let runtime = runtime().await.unwrap();
    let engine = container("counting", COUNTING);
    let kept = KeptBench::start_process(&runtime, &engine.id, "/tmp", "counting", "kept-1").await;
    let kept = kept.unwrap();

    let (first, lines) = ran(&kept, "0", &[("GIVEN", "a secret")]).await;
    assert_eq!(first.end, ExecEnd::Exited(0));
    assert_eq!(
        text(&lines, Stream::Stdout),
        "run 1 argv ['0', 'two words'] env a secret in /tmp\nread ''"
    );
    assert_eq!(text(&lines, Stream::Stderr), "to stderr");
    // Nothing of one run is there in the next but what was imported.
    let (second, lines) = ran(&kept, "7", &[]).await;
    assert_eq!(second.end, ExecEnd::Exited(7));
    assert_eq!(
        text(&lines, Stream::Stdout),
        "run 2 argv ['7', 'two words'] env None in /tmp\nread ''"
    );
    let (third, lines) = ran(&kept, "words", &[]).await;
    assert_eq!(third.end, ExecEnd::Exited(1));
    assert!(
        text(&lines, Stream::Stderr).ends_with("last words"),
        "{lines:?}"
    );
    let (fourth, lines) = ran(&kept, "raise", &[]).await;
    assert_eq!(fourth.end, ExecEnd::Exited(1));
    let said = text(&lines, Stream::Stderr);
    assert!(said.ends_with("ValueError: a bug"), "{said}");
    let (fifth, lines) = ran(&kept, "0", &[]).await;
    assert_eq!(fifth.end, ExecEnd::Exited(0));
    assert!(
        text(&lines, Stream::Stdout).starts_with("run 5 "),
        "{lines:?}"
    );

    // What a run writes comes with its words, whole, and not as its words.
    let request = ExecRequest {
        argv: vec!["counting".into(), "write".into()],
        ..ExecRequest::default()
    };
    let mut said = String::new();
    let sink = |stream, line: String| {
        if stream == Stream::Stdout {
            said.push_str(&line);
        }
    };
    let nobody = CancellationToken::new();
    let written = Some("/tmp/written");
    let done = kept
        .run_order(&request, written, &nobody, sink)
        .await
        .unwrap();
    assert_eq!(done.ended.end, ExecEnd::Exited(0));
    assert_eq!(done.written, Some("{\"ü🚢 \"\n".repeat(3000)));
    assert!(said.ends_with("no end of line"), "{said}");
    let missing = Some("/tmp/not-there");
    let none = kept.run_order(&request, missing, &nobody, |_, _| ()).await;
    assert_eq!(none.unwrap().written, None);

    // What it is told reaches no command line, and it goes with its orders.
    let processes = engine.processes().join("\n");
    assert!(processes.contains("kept_bench.py") && !processes.contains("secret"));
    kept.end_process().await;
    assert!(!engine.processes().join("\n").contains("kept_bench.py"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_a_run_ends_the_process() {
    needs!(Docker, Vllm);
    let runtime = runtime().await.unwrap();
    let engine = container("counting", COUNTING);
    let start = |run_id| KeptBench::start_process(&runtime, &engine.id, "/tmp", "counting", run_id);
    let request = |deadline| ExecRequest {
        argv: vec!["counting".into(), "wait".into()],
        deadline,
        ..ExecRequest::default()
    };
    let kept = start("kept-1").await.unwrap();
    let stop = CancellationToken::new();
    let sink = |_, line: String| {
        if line == "waiting" {
            stop.cancel();
        }
    };
    let stopped = kept.run_order(&request(None), None, &stop, sink).await;
    let stopped = stopped.unwrap().ended;
    assert_eq!(stopped.end, ExecEnd::Cancelled);
    assert!(stopped.killed > 0 && stopped.survivors == 0, "{stopped:?}");
    assert!(!engine.processes().join("\n").contains("kept_bench.py"));
    // Nothing runs in it any more, and that is told.
    let (after, lines) = ran(&kept, "0", &[]).await;
    assert_eq!((after.end, lines.len()), (ExecEnd::Unknown, 0));

    let kept = start("kept-2").await.unwrap();
    let nobody = CancellationToken::new();
    let short = Some(Duration::from_millis(500));
    let late = kept
        .run_order(&request(short), None, &nobody, |_, _| ())
        .await;
    assert_eq!(late.unwrap().ended.end, ExecEnd::Deadline);
    assert!(!engine.processes().join("\n").contains("kept_bench.py"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_told_and_why() {
    needs!(Docker, Vllm);
    let runtime = runtime().await.unwrap();
    let engine = container("counting", "#!/bin/sh\nexit 0\n");
    let start = |program| KeptBench::start_process(&runtime, &engine.id, "/tmp", program, "kept-1");
    let why = start("counting").await.err().unwrap();
    assert_eq!(why, "`/usr/local/bin/counting` is not a script of Python's");
    let why = start("not-there").await.err().unwrap();
    assert_eq!(why, "no `not-there` in PATH");
    assert!(!engine.processes().join("\n").contains("kept_bench.py"));
}

/// The memory of the bench's client in a profile, bytes.
fn client(profile: &serde_json::Value) -> i64 {
    let parts = profile["memory_breakdown"]["components"]
        .as_array()
        .unwrap();
    let client = parts.iter().find(|c| c["component"] == "bench_client");
    client.map_or(0, |c| c["bytes"].as_i64().unwrap())
}

#[test]
fn cells_share_a_client_that_is_told_from_the_engine() {
    needs!(Docker, Vllm);
    let desk = Desk::new();
    let file = desk.file(&format!(
        r#"
name: kept
models:
  - model_id: /models/tiny-llama
    preset: vllm-cpu
    image: {}
    env: {}
    volumes: ["{}:/models:ro"]
    max_model_len: 512
    input_lengths: [32, 64, 128]
    output_lengths: [8]
    batch_sizes: [2]
"#,
        vllm_image(),
        older_vllm().map_or("{}", |_| "{VLLM_CPU_KVCACHE_SPACE: \"1\"}"),
        models().display()
    ));
    let mut command = desk.command(&[&file]);
    // Otherwise an earlier run's answer of the bench may be known.
    command.env("XDG_CACHE_HOME", desk.dir().join("cache"));
    let swept = sweeps::Swept::of(common::e2e::Live::start(command).end().expect(0));
    let captures: Vec<serde_json::Value> = swept
        .cells()
        .map(|cell| {
            let path = cell["row"]["profile"].as_str().unwrap();
            let capture = swept.folder.join(path).with_extension("capture");
            read(&capture.join("capture.json"))
        })
        .collect();
    for (cell, capture) in swept.cells().zip(&captures) {
        let profile = swept.profile(cell);
        assert_eq!(profile["metadata"]["outcome"], "completed");
        parts_sum_to_the_peak(&profile);
        // A client that imported vLLM holds hundreds of MiB; were it taken for the engine's, that
        // would be activations.
        assert!(
            client(&profile) > 100 << 20,
            "{:#}",
            profile["memory_breakdown"]
        );
        let execs = capture["execs"].as_array().unwrap();
        let bench = execs.iter().find(|e| e["role"] == "bench").unwrap();
        assert_eq!(bench["kept"], true);
    }
    assert_eq!(captures.len(), 3);
    let helps = captures
        .iter()
        .flat_map(|c| c["execs"].as_array().unwrap())
        .filter(|e| e["role"] == "help");
    assert_eq!(helps.count(), 1);
}
