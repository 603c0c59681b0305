//! The example in results/example is what this plimsoll makes of its capture.

use assert_cmd::Command;
use std::path::Path;

#[test]
fn the_example_is_derived_from_its_capture_byte_for_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/example");
    let derived = Command::cargo_bin("plimsoll")
        .unwrap()
        .args(["derive", "--json"])
        .arg(folder.join("tiny-profile.capture"))
        .assert()
        .success();
    let stored = std::fs::read(folder.join("tiny-profile.json")).unwrap();
    assert!(
        derived.get_output().stdout == stored,
        "results/example/tiny-profile.json is not what derive makes of its capture: \
         run `plimsoll derive results/example/tiny-profile.capture` and look at the diff"
    );
}

/// Measured on a real H100: the parts sum to what the GPU held, and those that the log names are those of the log.
#[test]
fn the_captures_of_a_real_gpu_account_for_every_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/h100");
    let parts_of = |name: &str| {
        let derived = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(["derive", "--json"])
            .arg(folder.join(name))
            .assert()
            .success();
        let profile: serde_json::Value =
            serde_json::from_slice(&derived.get_output().stdout).unwrap();
        assert_eq!(profile["metadata"]["simulated"], false);
        let breakdown = &profile["memory_breakdown"];
        let parts: std::collections::BTreeMap<String, f64> = breakdown["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| {
                let name = part["component"].as_str().unwrap().to_owned();
                (
                    name,
                    part["bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 30),
                )
            })
            .collect();
        let total = breakdown["total_measured_bytes"].as_f64().unwrap() / f64::from(1 << 30);
        (parts, total)
    };
    for (capture, pool, held) in [
        ("vllm-latency.capture", 55.85, 76.43),
        ("vllm-serve.capture", 56.51, 75.69),
    ] {
        let (parts, total) = parts_of(capture);
        assert!((total - held).abs() < 0.01, "{capture}: {total}");
        let sum: f64 = parts.values().sum();
        assert!((sum - total).abs() < 0.001, "{capture}: {parts:?}");
        assert!((parts["kv_cache"] - pool).abs() < 0.01, "{parts:?}");
        assert!((parts["model_weights"] - 15.0).abs() < 0.01, "{parts:?}");
        assert!(parts["unexplained"] < 0.04 * total, "{parts:?}");
    }
}

/// The same starts, estimated: the pool within 1 %, and what the GPU held before the load (75.21 GiB) within 0.5 %.
#[test]
fn the_estimate_of_what_a_real_gpu_held_is_close() {
    let gib = f64::from(1 << 30);
    for (step, pool, held) in [("8192", 56.51, Some(75.21)), ("16384", 55.85, None)] {
        let estimated = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(["estimate", "llama-3-8b", "--gpu", "H100", "--json"])
            .args(["--engine-version", "0.25.1", "--max-model-len", "8192"])
            .args(["--max-num-batched-tokens", step])
            .assert()
            .success();
        let page: serde_json::Value =
            serde_json::from_slice(&estimated.get_output().stdout).unwrap();
        let estimated = page["pool"]["bytes"].as_f64().unwrap() / gib;
        assert!((estimated / pool - 1.0).abs() < 0.01, "{step}: {estimated}");
        let terms = page["terms"].as_array().unwrap().iter();
        let total: f64 = terms.map(|term| term["bytes"].as_f64().unwrap()).sum();
        let all = (total + page["outside_bytes"].as_f64().unwrap()) / gib;
        if let Some(held) = held {
            assert!((all / held - 1.0).abs() < 0.005, "{step}: {all}");
        }
    }
}

/// A tour of the main verbs for somebody who has neither an engine nor a GPU: each command can be typed again.
#[test]
fn the_tour_needs_nothing_and_leaves_what_it_showed() {
    let dir = tempfile::tempdir().unwrap();
    let plimsoll = || {
        let mut command = Command::cargo_bin("plimsoll").unwrap();
        command
            .current_dir(dir.path())
            .env_remove("PLIMSOLL_RESULTS_DIR");
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock");
        command
    };
    // Twice: what the first left is in nobody's way.
    plimsoll().arg("demo").assert().success();
    let shown = plimsoll().arg("demo").assert().success();
    let shown = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    assert!(shown.contains("SIMULATED"), "{shown}");
    let typed: Vec<&str> = shown
        .lines()
        .filter_map(|l| l.strip_prefix("$ plimsoll "))
        .collect();
    let verbs: Vec<_> = typed.iter().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(verbs, ["derive", "report", "why", "estimate"]);
    for line in typed {
        plimsoll().args(line.split(' ')).assert().success();
    }
    assert!(dir.path().join("results/demo/tiny-report.html").is_file());
}
