//! `--bench builtin` on a container that serves: the profile, its capture, and what is refused.

use crate::common;
use common::docker;
use common::e2e::{
    Engine, Live, Results, codes, everything_in, parts_sum_to_the_peak, plimsoll, run, shell_image,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const SMALL: [&str; 10] = [
    "--weights",
    "16MiB",
    "--kv-pool",
    "8MiB",
    "--activation",
    "4MiB",
    "--settle-ms",
    "100",
    "--start-ms",
    "100",
];

/// The requests that a capture has kept.
fn rows(profile: &Path) -> Vec<Value> {
    let file = profile.with_extension("capture").join("requests.jsonl");
    let text = std::fs::read_to_string(file).expect("requests.jsonl");
    text.lines()
        .map(|l| serde_json::from_str(l).expect("a row"))
        .collect()
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no count: {value}"))
}

#[test]
fn a_closed_and_an_open_loop_on_a_serving_container() {
    needs!(Docker, ReferenceEngine);
    let engine = Engine::serving("builtin", &[], &SMALL);
    let load = [
        "--num-prompts=12",
        "--input-len=24",
        "--output-len=8",
        "--baseline=300ms",
    ];
    for more in [
        &["--max-concurrency=3"][..],
        &[
            "--request-rate=40",
            "--repeats=2",
            "--seed=7",
            "--num-iters-warmup=2",
        ],
    ] {
        let results = Results::new();
        let dir = results.arg();
        let mut command = vec!["profile", &engine.name, "--bench=builtin", &dir];
        command.extend(load);
        command.extend(more);
        let repeats = if more.len() > 1 { 2 } else { 1 };
        let ended = run(&command).expect(0);
        assert!(ended.stdout.contains("builtin bench, "), "{}", ended.stdout);
        assert!(
            ended.stdout.contains("in words, not tokens"),
            "{}",
            ended.stdout
        );
        let profile = results.profile();
        let document = results.document();
        parts_sum_to_the_peak(&document);
        assert_eq!(document["parameters"]["bench"], "builtin");
        assert_eq!(document["metadata"]["mode"], "serving");
        let stats = &document["latency_stats"];
        assert_eq!(stats["bench"], "builtin");
        assert_eq!(stats["repeats"].as_array().map(Vec::len), Some(repeats));
        for repeat in stats["repeats"].as_array().expect("repeats") {
            let result = &repeat["result"];
            assert_eq!(
                (count(&result["completed"]), count(&result["failed"])),
                (12, 0)
            );
            assert_eq!(count(&result["total_output_tokens"]), 12 * 8);
            for kind in ["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"] {
                for statistic in ["mean", "median", "p90", "p95", "p99"] {
                    let figure = result[kind][statistic].as_f64();
                    // Tokens that one read brings have the same moment.
                    let may_be_zero = ["tpot_ms", "itl_ms"].contains(&kind) && statistic != "mean";
                    assert!(
                        figure.is_some_and(|ms| ms > 0.0 || may_be_zero && ms == 0.0),
                        "{kind} {statistic}: {result:#}"
                    );
                }
            }
            assert!(result["output_tokens_per_second"].as_f64() > Some(0.0));
            // The load is in the peak of the memory, too.
            assert!(count(&repeat["peak_bytes"]) >= 24 << 20, "{repeat:#}");
        }

        // A row for each request, on the clock of the capture, and the same figures in them.
        let rows = rows(&profile);
        assert_eq!(rows.len(), 12 * repeats);
        let of: BTreeSet<(u64, u64)> = rows
            .iter()
            .map(|r| (count(&r["repeat"]), count(&r["number"])))
            .collect();
        assert_eq!(of.len(), rows.len());
        let capture = profile.with_extension("capture").join("capture.json");
        let capture: Value =
            serde_json::from_slice(&std::fs::read(capture).expect("capture")).expect("JSON");
        let exec = &capture["execs"][0];
        for row in rows.iter().filter(|r| r["repeat"] == 1) {
            let at = |key: &str| row[key].as_i64().expect("a moment");
            let moments = [
                exec["started_at_ns"].as_i64().expect("start"),
                at("intended_at_ns"),
                at("sent_at_ns"),
                at("first_at_ns"),
                at("last_at_ns"),
                at("ended_at_ns"),
                exec["ended_at_ns"].as_i64().expect("end"),
            ];
            assert!(moments.is_sorted(), "{moments:?}");
            assert_eq!(
                (
                    count(&row["events"]),
                    row["gaps_us"].as_array().map(Vec::len)
                ),
                (8, Some(7))
            );
            assert!(row["error"].is_null());
        }
        // The server itself has counted: warm-ups included, so many and no more.
        let again = run(&[
            "derive",
            "--json",
            &profile.with_extension("capture").display().to_string(),
        ]);
        assert_eq!(
            again.expect(0).stdout,
            std::fs::read_to_string(&profile).expect("profile")
        );
    }
    assert_eq!(engine.leftovers(), [""; 0]);
}

#[test]
fn interrupted_it_ends_at_once_and_keeps_what_it_has() {
    needs!(Docker, ReferenceEngine);
    // An answer takes 0.2 s, so that some are whole, and the run would take hours.
    let mut args = SMALL.to_vec();
    args.extend(["--token-us", "50000"]);
    let engine = Engine::serving("builtin-int", &[], &args);
    let results = Results::new();
    let dir = results.arg();
    let mut live = Live::start(plimsoll(&[
        "profile",
        &engine.name,
        "--bench=builtin",
        &dir,
        "--num-prompts=100000",
        "--max-concurrency=2",
        "--input-len=8",
        "--output-len=4",
        "--baseline=100ms",
    ]));
    live.until("bench 1/1");
    // Some are over once the server has counted more than the warm-up.
    common::e2e::wait_for("three answers", || {
        let metrics = std::net::TcpStream::connect((engine.address().as_str(), 8000)).ok()?;
        let text = ask(metrics)?;
        let line = text
            .lines()
            .find(|l| l.starts_with("reference:generation_tokens_total "))?;
        (line.rsplit(' ').next()?.parse::<f64>().ok()? >= 16.0).then_some(())
    });
    live.signal(Signal::INT);
    let ended = live.end().expect(130);
    assert!(ended.error().starts_with("interrupted"), "{}", ended.stderr);
    let document = results.document();
    assert!(codes(&document).contains(&"interrupted"));
    let result = &document["latency_stats"]["repeats"][0]["result"];
    assert!(count(&result["completed"]) >= 3, "{result:#}");
    assert_eq!(count(&result["failed"]), 0);
    assert!(result["ttft_ms"]["median"].as_f64() > Some(0.0));
    let cut = rows(&results.profile())
        .iter()
        .filter(|r| r["error"]["kind"] == "cancelled")
        .count();
    assert!(cut <= 2, "{cut} were in flight");
}

/// One GET of `/metrics`.
fn ask(mut stream: std::net::TcpStream) -> Option<String> {
    use std::io::{Read, Write};
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn what_it_cannot_do_is_refused_before_anything_runs() {
    needs!(Docker, ReferenceEngine);
    // Only the inside of it reaches the server: there is no network, and a client is in the image.
    let mut args = vec!["serve", "--model", "reference/test"];
    args.extend(SMALL);
    let cut_off = Engine::run("builtin-none", &["--network", "none"], shell_image(), &args);
    cut_off.wait_for_log("phase=ready");
    let results = Results::new();
    let dir = results.arg();
    run(&["profile", &cut_off.name, "--bench=builtin", &dir])
        .expect(3)
        .says(
            &[
                "sends its requests from this host",
                "port 8000",
                &cut_off.name,
            ],
            "publish the port",
        );
    results.is_empty();

    let idle = Engine::idle("builtin-idle");
    run(&["profile", &idle.name, "--bench=builtin", "--model=m", &dir])
        .expect(2)
        .says(&["no engine serves", &idle.name], "start the server");
    results.is_empty();

    let server = Engine::serving(
        "builtin-short",
        &[],
        &[&SMALL[..], &["--max-model-len", "20"]].concat(),
    );
    let asked = ["profile", &server.name, "--bench=builtin", &dir];
    // Told, and nothing done.
    let ended = run(&[&asked[..], &["--dry-run", "--batch-size=3"]].concat()).expect(0);
    assert!(ended.stdout.contains("/v1/completions"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("has no batch size"),
        "{}",
        ended.stdout
    );
    results.is_empty();
    // What does not fit is known with the first request.
    run(&[&asked[..], &["--input-len=64", "--baseline=100ms"]].concat())
        .expect(4)
        .says(
            &[
                "a test, to /v1/completions",
                "HTTP 400",
                "context length is 20",
            ],
            "",
        );
    let document = results.document();
    assert!(codes(&document).contains(&"bench_failed"));
    assert!(document["latency_stats"].is_null());
}

#[test]
fn run_uses_it_too_and_a_key_is_nowhere() {
    needs!(Docker, ReferenceEngine);
    let results = Results::new();
    let dir = results.arg();
    let extra = format!("--extra-engine-args={}", SMALL.join(" "));
    run(&[
        "run",
        "--preset=reference",
        "--bench=builtin",
        &dir,
        &extra,
        "--env=API_KEY=sk-a-key-of-a-test-0123456789",
        "--num-prompts=4",
        "--input-len=8",
        "--output-len=4",
    ])
    .expect(0);
    let document = results.document();
    assert_eq!(document["metadata"]["mode"], "started");
    assert_eq!(document["latency_stats"]["bench"], "builtin");
    let container = document["metadata"]["container"]["id"]
        .as_str()
        .expect("id");
    assert!(docker(&["inspect", container]).is_err(), "it is removed");
    assert_eq!(rows(&results.profile()).len(), 4);
    let kept = everything_in(results.0.path());
    assert!(!kept.contains("sk-a-key-of-a-test"));
}
