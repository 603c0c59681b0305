//! The command lines of TensorRT-LLM's benches, how far one is, and their results: the report of
//! `trtllm-bench`, and the client's, which has vLLM's keys.

use crate::engine::bench::ProgressSign::{self, Holds};
use crate::engine::bench::{
    BATCH_SIZE, BenchLine, CONCURRENCY, ITERATIONS, NUM_ITERS, NUM_PROMPTS, NUM_WARMUPS, PROMPTS,
    REQUEST_RATE, WARMUP, figure_at, percentiles, progress_of,
};
use crate::engine::vllm::{read_bench_progress, read_bench_result};
use crate::engine::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, PlanError, ReadError,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Writes a file of random requests, then executes the bench that reads it: `trtllm-bench` takes
/// its load from a file only, and its own tool for such files has moved between releases.
/// Arguments: file, requests, input tokens, output tokens, seed, then the bench's command.
///
/// The token ids are small enough for every vocabulary.
const WITH_REQUESTS: &str = "\
import json, os, random, sys
path, (count, given, wanted, seed) = sys.argv[1], map(int, sys.argv[2:6])
r = random.Random(seed)
with open(path, 'w') as f:
    for i in range(count):
        tokens = [r.randrange(100, 1000) for _ in range(given)]
        f.write(json.dumps({'task_id': i, 'input_ids': tokens, 'output_tokens': wanted}) + '\\n')
os.execvp(sys.argv[6], sys.argv[6:])
";

/// Plans a bench.
pub fn plan(job: &BenchJob<'_>) -> Result<BenchPlan, PlanError> {
    job.check_model()?;
    job.check_lengths()?;
    job.check_counts()?;
    match job.kind {
        BenchKind::Serve => serve(job),
        BenchKind::Latency | BenchKind::Throughput => own_copy(job),
        BenchKind::Probe => Err(job.no_such_bench("tensorrt_llm", crate::engine::NO_PROBE)),
    }
}

/// A command line of a bench that is not asked which flags it has.
fn line_of<'a>(job: &'a BenchJob<'a>, program: &[&str]) -> BenchLine<'a> {
    let bench = format!("the {} bench of TensorRT-LLM", job.kind.as_str());
    BenchLine::new(job, bench, program, &|_| true)
}

/// `trtllm-bench`, which loads the model itself.
fn own_copy(job: &BenchJob<'_>) -> Result<BenchPlan, PlanError> {
    let load = job.workload;
    let result_path = job.result_path("json");
    let requests_path = format!("{}/requests.jsonl", job.folder());
    let latency = job.kind == BenchKind::Latency;
    let requests = if latency {
        load.num_iters.unwrap_or(NUM_ITERS)
    } else {
        load.num_prompts.unwrap_or(NUM_PROMPTS)
    };
    let warmups = load.num_iters_warmup.unwrap_or(NUM_WARMUPS);
    let mut line = line_of(job, &["python3", "-c", WITH_REQUESTS, &requests_path]);
    let numbers = [
        // The warm-up uses the same file.
        u64::from(requests.max(warmups)),
        load.input_len.into(),
        load.output_len.into(),
        load.seed.unwrap_or(0),
    ];
    line.argv.extend(numbers.iter().map(u64::to_string));
    line.argv.push("trtllm-bench".to_owned());
    line.need("--model", job.model);
    if job.model.starts_with('/') {
        line.need("--model_path", job.model);
    }
    line.argv.push(job.kind.as_str().to_owned());
    line.need("--dataset", requests_path);
    line.need("--backend", "pytorch");
    line.need("--num_requests", requests);
    line.need("--warmup", warmups);
    if latency {
        line.asked("--concurrency", load.batch_size);
    } else {
        line.asked("--concurrency", load.max_concurrency);
        line.need_switch("--streaming");
    }
    let settings = job.settings;
    line.asked("--tp", settings.tensor_parallel_size);
    line.asked(
        "--kv_cache_free_gpu_mem_fraction",
        settings.gpu_memory_utilization,
    );
    line.asked("--max_seq_len", settings.max_model_len);
    line.need("--report_json", &result_path);
    line.argv.extend(job.extra_engine_args.iter().cloned());
    line.notes.push(
        "trtllm-bench loads a copy of the model of its own: beside a running server both must fit"
            .to_owned(),
    );
    line.no_effect(&[
        ("dtype", |job| job.settings.dtype.is_some()),
        ("quantization", |job| job.settings.quantization.is_some()),
        ("KV cache type", |job| job.settings.kv_cache_dtype.is_some()),
        ("eager mode", |job| job.settings.enforce_eager),
        REQUEST_RATE,
    ]);
    if latency {
        line.no_effect(&[PROMPTS, CONCURRENCY]);
    } else {
        line.no_effect(&[BATCH_SIZE]);
    }
    line.finish("trtllm-bench", result_path)
}

/// The client against the running server, a descendant of vLLM's.
fn serve(job: &BenchJob<'_>) -> Result<BenchPlan, PlanError> {
    let load = job.workload;
    let module = "tensorrt_llm.serve.scripts.benchmark_serving";
    let mut line = line_of(job, &["python3", "-m", module]);
    line.need("--backend", "openai");
    line.need("--base-url", format!("http://127.0.0.1:{}", job.port));
    line.need("--endpoint", "/v1/completions");
    // Requests ask by the server's name for it; the tokenizer lies where the model does.
    line.need("--model", job.served_model_name.unwrap_or(job.model));
    line.need("--tokenizer", job.model);
    line.need("--dataset-name", "random");
    // Without this it downloads texts to cut the prompts from.
    line.need_switch("--random-ids");
    line.need("--random-input-len", load.input_len);
    line.need("--random-output-len", load.output_len);
    line.need("--num-prompts", load.num_prompts.unwrap_or(NUM_PROMPTS));
    line.asked("--max-concurrency", load.max_concurrency);
    line.asked("--request-rate", load.request_rate);
    line.asked("--seed", load.seed);
    line.need_switch("--ignore-eos");
    line.need("--percentile-metrics", "ttft,tpot,itl,e2el");
    line.need("--metric-percentiles", "50,90,95,99");
    if job
        .extra_engine_args
        .iter()
        .any(|a| a == "--trust-remote-code" || a == "--trust_remote_code")
    {
        line.need_switch("--trust-remote-code");
    }
    line.need_switch("--save-result");
    line.need("--result-dir", job.folder());
    line.need("--result-filename", job.result_name("json"));
    line.no_effect(&[WARMUP, BATCH_SIZE, ITERATIONS]);
    line.finish(module, job.result_path("json"))
}

const OWN_COPY: &[ProgressSign] = &[
    Holds("Warmup done", BenchProgress::Measuring),
    Holds("Setting up for warmup", BenchProgress::Warmup),
    Holds("Running warmup", BenchProgress::Warmup),
    // Where no warm-up was requested.
    Holds("Ready to start benchmark", BenchProgress::Measuring),
];

/// The part that the line begins, or the step it reports.
pub fn progress(kind: BenchKind, line: &str) -> Option<BenchProgress> {
    match kind {
        BenchKind::Serve => read_bench_progress(kind, line),
        _ => progress_of(line, OWN_COPY),
    }
}

/// Reads a result file.
pub fn read_result(kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
    if kind == BenchKind::Serve {
        return read_bench_result(kind, result);
    }
    let report: Value = serde_json::from_str(result).map_err(|e| ReadError::Json(e.to_string()))?;
    let performance = report
        .get("performance")
        .ok_or(ReadError::Missing("performance"))?;
    let of_all = |key: &str| figure_at(performance, key);
    let duration_ms =
        of_all("total_latency_ms").ok_or(ReadError::Missing("performance.total_latency_ms"))?;
    let info = report.get("request_info");
    let count = |key: &str| info?.get(key)?.as_u64();
    let completed = count("num_requests");
    let average = |key: &str| Some(figure_at(info?, key)? * completed? as f64);
    let streaming = report.get("streaming_metrics");
    let mean_latency_ms = of_all("avg_request_latency_ms");
    Ok(BenchResult {
        mean_latency_ms,
        latency_percentiles_ms: percentiles(performance.get("request_latency_percentiles_ms"), 1.0),
        duration_s: Some(duration_ms / 1e3),
        completed,
        requests_per_second: of_all("request_throughput_req_s"),
        output_tokens_per_second: of_all("system_output_throughput_tok_s"),
        total_tokens_per_second: of_all("system_total_throughput_tok_s"),
        total_input_tokens: average("avg_input_length").map(|v| v.round() as u64),
        total_output_tokens: average("avg_output_length").map(|v| v.round() as u64),
        ttft_ms: streamed(streaming, "avg_ttft_ms", "ttft_percentiles"),
        tpot_ms: streamed(streaming, "avg_tpot_ms", "tpot_percentiles"),
        ..BenchResult::default()
    })
}

fn streamed(metrics: Option<&Value>, mean: &str, percent: &str) -> BTreeMap<String, f64> {
    let Some(metrics) = metrics else {
        return BTreeMap::new();
    };
    let mut found = percentiles(metrics.get(percent), 1.0);
    if let Some(ms) = figure_at(metrics, mean) {
        found.insert("mean".to_owned(), ms);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{RequestedSettings, Workload};

    fn planned(kind: BenchKind, load: Workload) -> BenchPlan {
        plan(&BenchJob {
            kind,
            model: "/models/m",
            served_model_name: Some("m"),
            port: 8000,
            workload: &load,
            settings: &RequestedSettings::default(),
            extra_engine_args: &[],
            workdir: "/tmp/p",
            repeat: 2,
        })
        .unwrap()
    }

    fn load() -> Workload {
        Workload {
            input_len: 128,
            output_len: 16,
            batch_size: None,
            num_iters: None,
            num_iters_warmup: Some(1),
            num_prompts: Some(20),
            max_concurrency: Some(4),
            request_rate: None,
            seed: Some(7),
            ..Workload::default()
        }
    }

    #[test]
    fn an_own_copy_of_the_weights_is_reported() {
        let plan = planned(BenchKind::Throughput, load());
        assert_eq!(
            plan.argv[3..].join(" "),
            "/tmp/p/requests.jsonl 20 128 16 7 trtllm-bench --model /models/m --model_path /models/m throughput \
             --dataset /tmp/p/requests.jsonl --backend pytorch --num_requests 20 --warmup 1 --concurrency 4 --streaming \
             --report_json /tmp/p/throughput-2.json"
        );
        assert!(plan.notes[0].contains("of its own"), "{:?}", plan.notes);
        let latency = planned(BenchKind::Latency, load());
        assert!(latency.argv.join(" ").contains(" latency --dataset "));
        assert!(!latency.argv.contains(&"--streaming".to_owned()));
    }

    #[test]
    fn the_client_asks_the_running_server() {
        let plan = planned(BenchKind::Serve, load());
        assert_eq!(
            plan.argv.join(" "),
            "python3 -m tensorrt_llm.serve.scripts.benchmark_serving --backend openai --base-url http://127.0.0.1:8000 \
             --endpoint /v1/completions --model m --tokenizer /models/m --dataset-name random --random-ids --random-input-len 128 \
             --random-output-len 16 --num-prompts 20 --max-concurrency 4 --seed 7 --ignore-eos --percentile-metrics ttft,tpot,itl,e2el \
             --metric-percentiles 50,90,95,99 --save-result --result-dir /tmp/p --result-filename serve-2.json"
        );
        assert_eq!(plan.result_path, "/tmp/p/serve-2.json");
        assert_eq!(
            plan.notes,
            ["the serve bench of TensorRT-LLM has no warm-up; it was ignored"]
        );
    }

    #[test]
    fn requests_are_written_as_the_bench_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.jsonl");
        let python = std::process::Command::new("python3")
            .args(["-c", WITH_REQUESTS])
            .arg(&file)
            .args(["3", "5", "9", "1", "echo", "then"])
            .output();
        let Ok(output) = python else {
            return; // No Python on this machine; every image of the engine has one.
        };
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "then\n",
            "{output:?}"
        );
        let text = std::fs::read_to_string(&file).unwrap();
        let rows: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[2]["task_id"], 2);
        assert_eq!(rows[0]["input_ids"].as_array().unwrap().len(), 5);
        assert_eq!(rows[0]["output_tokens"], 9);
    }

    #[test]
    fn parts_of_a_run() {
        let read = |line| progress(BenchKind::Throughput, line);
        assert_eq!(
            read("[TRT-LLM] [I] Setting up for warmup..."),
            Some(BenchProgress::Warmup)
        );
        assert_eq!(
            read("[TRT-LLM] [I] Warmup done."),
            Some(BenchProgress::Measuring)
        );
        assert_eq!(read("x"), None);
        let bar = " 50%|█████     | 10/20 [00:01<00:01]";
        assert_eq!(
            progress(BenchKind::Serve, bar),
            Some(BenchProgress::Step { done: 10, of: 20 })
        );
    }
}

#[cfg(test)]
mod result_tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: &str = r#"{"engine":{"model":"m","version":"1.0.0"},
        "request_info":{"num_requests":40,"avg_num_concurrent_requests":4.0,"avg_input_length":128.0,"avg_output_length":16.0},
        "performance":{"total_latency_ms":2500.0,"avg_request_latency_ms":240.5,"request_throughput_req_s":16.0,
            "system_output_throughput_tok_s":256.0,"system_total_throughput_tok_s":2304.0,
            "request_latency_percentiles_ms":{"p50":230.0,"p90":260.0,"p99":300.0,"minimum":200.0,"average":240.5}},
        "streaming_metrics":{"avg_ttft_ms":20.0,"ttft_percentiles":{"p99":31.0},"avg_tpot_ms":9.0}}"#;

    #[test]
    fn a_report() {
        let result = read_result(BenchKind::Throughput, REPORT).unwrap();
        assert_eq!((result.duration_s, result.completed), (Some(2.5), Some(40)));
        assert_eq!(result.mean_latency_ms, Some(240.5));
        assert_eq!(result.latency_percentiles_ms["median"], 230.0);
        assert!(!result.latency_percentiles_ms.contains_key("minimum"));
        assert_eq!(result.output_tokens_per_second, Some(256.0));
        assert_eq!(result.total_tokens_per_second, Some(2304.0));
        assert_eq!(result.total_input_tokens, Some(5120));
        assert_eq!(
            (result.ttft_ms["mean"], result.ttft_ms["p99"]),
            (20.0, 31.0)
        );
        assert_eq!(result.tpot_ms["mean"], 9.0);
    }

    #[test]
    fn what_is_no_report() {
        assert!(matches!(
            read_result(BenchKind::Latency, "x"),
            Err(ReadError::Json(_))
        ));
        assert_eq!(
            read_result(BenchKind::Latency, "{}"),
            Err(ReadError::Missing("performance"))
        );
        let serve = r#"{"duration":1.5,"completed":3,"total_input_tokens":9,"output_throughput":4.0,"mean_ttft_ms":7.0}"#;
        let result = read_result(BenchKind::Serve, serve).unwrap();
        assert_eq!((result.completed, result.ttft_ms["mean"]), (Some(3), 7.0));
    }

    proptest! {
        #[test]
        fn never_panics(cut in 0..REPORT.len()) {
            let _ = read_result(BenchKind::Throughput, &REPORT[..cut]);
        }
    }
}
