//! Tests of the chapters of experiments and of load lines.

use super::answer::answer_of_material;
use super::samples_tests::render_plain;
use super::{Sources, experiment, load_line};
use crate::report::material::{Material, StoredDocument};
use serde_json::{Value, json};

fn stored(document: Value) -> Vec<StoredDocument> {
    vec![StoredDocument {
        name: "results/x.json".into(),
        document,
    }]
}

fn experiments(document: Value) -> String {
    let material = Material {
        experiments: stored(document),
        ..Material::default()
    };
    render_plain(&experiment::write_experiment_chapter(
        &material,
        &mut Sources::default(),
    ))
}

fn load_lines(document: Value) -> String {
    let material = Material {
        load_lines: stored(document),
        ..Material::default()
    };
    render_plain(&load_line::write_load_line_chapter(
        &material,
        &mut Sources::default(),
    ))
}

#[test]
fn an_experiment_over_concurrency() {
    let level = |n: u64, used: Option<f64>| {
        json!({"name": n.to_string(), "x": n, "state": "done",
            "asked": {"concurrency": n, "prompt_tokens": 128, "output_tokens": 64, "requests": 3 * n, "repeats": 1},
            "successful": 3 * n, "failed": 0, "error_rate": 0.0,
            "peak_bytes": 8u64 << 30, "kv_pool_bytes": 4u64 << 30, "kv_used_bytes": used.map(|g| g * 1_073_741_824.0),
            "total_tokens_per_s": 40.0 * n as f64, "mean_latency_s": 1.5, "p95_latency_s": 1.75, "mean_ttft_s": 0.125})
    };
    let oom = json!({"name": "16", "x": 16, "state": "failed", "cause": "oom", "message": "CUDA out of memory",
        "asked": {"concurrency": 16, "prompt_tokens": 128, "output_tokens": 64, "requests": 48, "repeats": 1},
        "peak_bytes": 5});
    insta::assert_snapshot!(experiments(json!({
        "document": "experiment", "kind": "concurrency", "timestamp": "2026-11-20T10:00:00Z", "interrupted": false,
        "simulated": true, "model": "org/Tiny-1B", "engine": "vllm", "engine_version": "0.32.0", "memory_of": "GPU memory",
        "levels": [level(1, Some(0.25)), level(4, Some(1.0)), level(8, None), oom],
        "not_measured": {"kv_used_bytes": "the engine's gauges were not read"},
        "readings": ["The peak is the same at every level: the pool is reserved at the start."],
        "notes": ["levels are short"],
    })));
}

#[test]
fn an_experiment_in_part_failed_is_not_called_safe() {
    let device = json!({"label": "Container", "used_bytes": 1u64 << 30, "total_bytes": 4u64 << 30});
    let level = |n: u64, state: &str, cause: Option<&str>| {
        json!({"name": n.to_string(), "x": n, "state": state, "cause": cause, "asked": {"concurrency": n},
            "fullest_device": if state == "done" { device.clone() } else { Value::Null }})
    };
    let answer = |levels: [Value; 2]| {
        let document = json!({"document": "experiment", "kind": "concurrency", "levels": levels,
            "readings": ["Throughput rises."]});
        let material = Material {
            experiments: stored(document),
            ..Material::default()
        };
        answer_of_material(&material, &mut Sources::default())
            .unwrap()
            .verdict
    };
    let failed = answer([level(1, "done", None), level(16, "failed", Some("oom"))]);
    let words = "1 of 2 levels failed: 16 (oom). Throughput rises. The others are safe: at most 1.00 GiB of";
    assert!(failed.starts_with(words), "{failed}");
    let whole = answer([level(1, "done", None), level(16, "done", None)]);
    assert!(whole.starts_with("Throughput rises. Safe: "), "{whole}");
}

#[test]
fn a_load_line_predicted_and_measured() {
    let round = |number: u64, concurrency: u64, faults: Value| {
        json!({"number": number, "concurrency": concurrency, "requests": 3 * concurrency, "held": faults == json!([]),
            "faults": faults, "ran_out": if faults == json!([]) { Value::Null } else { "kv_pool".into() },
            "seen": {"completed": 3 * concurrency, "failed": 0, "preemptions": 0, "kv_usage_most": concurrency as f64 / 32.0,
                "result": {"output_tokens_per_second": 10.0 * concurrency as f64, "mean_latency_ms": 900.0, "ttft_ms": {"mean": 60.5, "p95": 2.75 * concurrency as f64},
                    "itl_ms": {"p95": 20.0}, "tpot_ms": {}, "e2el_ms": {}, "latency_percentiles_ms": {}, "latencies_ms": []}, "running_most": concurrency.min(30), "readings": 9, "generation_s": 4.0, "queue_mean_s": 0.25,
                "queued_long": concurrency - concurrency.min(30)},
            "profile": format!("round-{number}.json")})
    };
    insta::assert_snapshot!(load_lines(json!({
        "document": "loadline", "timestamp": "2026-11-20T10:00:00Z", "simulated": false, "engine": "vllm", "engine_version": "0.32.0",
        "objectives": [{"metric": "ttft", "statistic": "p95", "limit_ms": 84.0}, {"metric": "../e2e", "statistic": "p95", "limit_ms": 1.0}],
        "model": "org/Tiny-1B", "lengths": {"input": 128, "output": 256},
        "prediction": {"concurrency": 32, "resource": "kv_pool", "notes": [],
            "limits": [{"resource": "kv_pool", "concurrency": 32, "formula": "floor(1023 blocks / 31 blocks a request)", "source": "the engine's log"},
                       {"resource": "sequences", "concurrency": 256, "formula": "max_num_seqs", "source": "its command"}]},
        "measured": {"concurrency": 30, "fails_at": 31, "closed": true, "limiting": "kv_pool"},
        "difference_percent": -6.25, "limiting": "kv_pool",
        "advice": ["Raise --gpu-memory-utilization: the pool grows with it."],
        "rounds": [round(1, 32, json!([{"kind": "preemption", "count": 2}, {"kind": "queueing", "together": 30, "of": 32}])),
                   round(2, 30, json!([])), round(3, 31, json!([{"kind": "latency", "metric": "ttft", "statistic": "p95", "limit_ms": 84.0, "measured_ms": 85.25}]))],
        "notes": [],
    })));
}

#[test]
fn documents_that_are_broken_give_what_they_have() {
    for document in [
        json!(null),
        json!([]),
        json!({"levels": 5, "rounds": {"a": 1}, "measured": []}),
        json!({"kind": 1, "levels": [null, {}, {"x": "a", "peak_bytes": -1}, {"x": 1e300, "total_tokens_per_s": 1e300}],
            "rounds": [3, {}, {"faults": [null, {}, {"kind": "new_one"}, {"kind": "errors", "failed": -3}]}],
            "prediction": {"concurrency": -1e300, "limits": [null]}, "measured": {"concurrency": 1e300, "fails_at": "x"}}),
    ] {
        assert!(
            experiments(document.clone()).contains("levels"),
            "{document}"
        );
        assert!(load_lines(document).contains("The load line"));
    }
}
