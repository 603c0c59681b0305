//! Command lines of SGLang's benches, their progress and results: a file has one line of JSON per run, the last line
//! is the current run's.
//!
//! `bench_serving` loads a running server; `bench_one_batch` and `bench_offline_throughput` load a
//! model of their own. Since 0.5.15 the code is in `sglang.benchmark`; 0.5.23 removed the old names
//! of the latter two.

use crate::engine::bench::ProgressSign::{self, Begins, Holds, UnnamedSteps};
use crate::engine::bench::{
    BATCH_SIZE, BenchLine, CONCURRENCY, ITERATIONS, NUM_PROMPTS, NUM_WARMUPS, Object, PROMPTS,
    REQUEST_RATE, RequestedPart, count, number, progress_of, required, served,
};
use crate::engine::settings::arguments_of;
use crate::engine::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, EngineId, PlanError, ReadError,
};
use std::collections::BTreeMap;

const WARMUPS: RequestedPart = ("number of warm-up iterations", |job| {
    job.workload.num_iters_warmup.is_some()
});

/// Old and new module of a bench.
fn modules(kind: BenchKind) -> (&'static str, &'static str) {
    match kind {
        BenchKind::Latency => ("sglang.bench_one_batch", "sglang.benchmark.one_batch"),
        BenchKind::Throughput => (
            "sglang.bench_offline_throughput",
            "sglang.benchmark.offline_throughput",
        ),
        // The probe is refused earlier.
        BenchKind::Serve | BenchKind::Probe => ("sglang.bench_serving", "sglang.benchmark.serving"),
    }
}

fn ask(module: &str) -> Vec<String> {
    ["python3", "-m", module, "--help"]
        .map(str::to_owned)
        .to_vec()
}

/// The command that asks a bench for its flags.
pub fn question(kind: BenchKind) -> Vec<String> {
    ask(modules(kind).0)
}

/// The same under its new name, where the old one is not there.
pub fn question_again(kind: BenchKind, first: &str) -> Option<Vec<String>> {
    let gone = first.contains("No module named");
    gone.then(|| ask(modules(kind).1))
}

/// Whether a help text lists a flag; without one, those of 0.5 are assumed.
fn knows(help: Option<&str>, flag: &str) -> bool {
    help.is_none_or(|help| {
        help.match_indices(flag).any(|(at, _)| {
            let next = help[at + flag.len()..].chars().next();
            next.is_none_or(|c| !(c.is_alphanumeric() || c == '-' || c == '_'))
        })
    })
}

/// Plans a bench. `help` is the help output of the installed bench.
pub fn plan(job: &BenchJob<'_>, help: Option<&str>) -> Result<BenchPlan, PlanError> {
    let load = job.workload;
    job.check_model()?;
    job.check_lengths()?;
    let (old, new) = modules(job.kind);
    // argparse begins its help with the file that was run.
    let file = new.rsplit('.').next().unwrap_or(new);
    let renamed = help.is_some_and(|h| h.contains(&format!("usage: {file}.py")));
    let module = if renamed { new } else { old };
    let result_path = job.result_path("jsonl");
    let bench = format!("SGLang's {} bench", job.kind.as_str());
    let knows = |flag: &str| knows(help, flag);
    let mut line = BenchLine::new(job, bench, &["python3", "-m", module], &knows);
    if help.is_none() {
        line.notes.push(format!(
            "the flags of the installed `{module}` could not be read; those of 0.5 are assumed"
        ));
    }
    match job.kind {
        BenchKind::Probe => {
            return Err(job.no_such_bench("sglang", crate::engine::NO_PROBE));
        }
        BenchKind::Latency => {
            line.need("--model-path", job.model);
            line.need("--batch-size", load.batch_size.unwrap_or(1));
            line.need("--input-len", load.input_len);
            line.need("--output-len", load.output_len);
            line.need("--result-filename", &result_path);
            line.no_effect(&[ITERATIONS, WARMUPS, PROMPTS, CONCURRENCY, REQUEST_RATE]);
        }
        BenchKind::Throughput => {
            line.need("--model-path", job.model);
            random(job, help, &mut line);
            line.need("--num-prompts", load.num_prompts.unwrap_or(NUM_PROMPTS));
            line.need("--result-filename", &result_path);
            line.no_effect(&[BATCH_SIZE, ITERATIONS, CONCURRENCY, REQUEST_RATE]);
        }
        BenchKind::Serve => {
            line.need("--backend", "sglang");
            // Not the server's published port: the bench runs inside the server's container.
            line.need("--host", "127.0.0.1");
            line.need("--port", job.port);
            // It loads the tokenizer of this name; the backend's requests need no name.
            line.need("--model", job.model);
            random(job, help, &mut line);
            line.need("--num-prompts", load.num_prompts.unwrap_or(NUM_PROMPTS));
            line.asked("--max-concurrency", load.max_concurrency);
            line.asked("--request-rate", load.request_rate);
            line.asked_or("--warmup-requests", load.num_iters_warmup, NUM_WARMUPS);
            line.need("--output-file", &result_path);
            if *job.settings != Default::default() || !job.extra_engine_args.is_empty() {
                line.notes.push(
                    "the server is already running; engine settings have no effect".to_owned(),
                );
            }
            line.no_effect(&[BATCH_SIZE, ITERATIONS]);
        }
    }
    if job.kind != BenchKind::Serve {
        line.argv
            .extend(arguments_of(EngineId::Sglang, job.settings).concat());
        line.argv.extend(job.extra_engine_args.iter().cloned());
    }
    line.finish(&format!("python3 -m {module}"), result_path)
}

/// Random prompts of the requested lengths. `random` takes its words from a data set that it
/// downloads; `random-ids`, if available, needs none.
fn random(job: &BenchJob<'_>, help: Option<&str>, line: &mut BenchLine<'_>) {
    let offline = help.is_some_and(|h| h.contains("random-ids"));
    let name = if offline { "random-ids" } else { "random" };
    line.need("--dataset-name", name);
    if !offline {
        line.notes.push(
            "`--dataset-name random` takes its words from a data set that SGLang downloads"
                .to_owned(),
        );
    }
    line.need("--random-input-len", job.workload.input_len);
    line.need("--random-output-len", job.workload.output_len);
    // Its default draws lengths between one token and the requested ones.
    line.need("--random-range-ratio", "1.0");
    line.asked("--seed", job.workload.seed);
}

#[rustfmt::skip]
const SERVE: &[ProgressSign] = &[
    MAIN_RUN,
    Begins("Starting warmup with", BenchProgress::Warmup),
    Begins("Starting initial single prompt", BenchProgress::Warmup),
    UnnamedSteps,
];

const OWN_MODEL: &[ProgressSign] = &[
    MAIN_RUN,
    Begins("Warmup ...", BenchProgress::Warmup),
    Begins("Warmup...", BenchProgress::Warmup),
    // What follows the warm-up of one batch, and what many prompts begin with.
    Begins("Benchmark ...", BenchProgress::Measuring),
    Begins("Benchmark...", BenchProgress::Measuring),
    UnnamedSteps,
];

const MAIN_RUN: ProgressSign = Holds("Starting main benchmark run", BenchProgress::Measuring);

/// Reads one output line.
pub fn progress(kind: BenchKind, line: &str) -> Option<BenchProgress> {
    let signs = match kind {
        BenchKind::Serve | BenchKind::Probe => SERVE,
        BenchKind::Latency | BenchKind::Throughput => OWN_MODEL,
    };
    progress_of(line, signs)
}

/// Reads a result file.
pub fn read_result(kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
    let line = result.lines().rev().find(|l| !l.trim().is_empty());
    // Python's words for what JSON has none for.
    let line = line
        .unwrap_or_default()
        .replace(": NaN", ": null")
        .replace(": Infinity", ": null");
    let object: Object = serde_json::from_str(&line).map_err(|e| ReadError::Json(e.to_string()))?;
    match kind {
        BenchKind::Latency => latency(&object),
        BenchKind::Throughput => throughput(&object),
        BenchKind::Serve | BenchKind::Probe => served(&object, "total_throughput", "e2e_latency"),
    }
}

/// One batch, measured once; seconds in, milliseconds out.
fn latency(object: &Object) -> Result<BenchResult, ReadError> {
    let total = required(object, "total_latency")?;
    let batch = number(object, "batch_size");
    let tokens = |key: &str| Some((batch? * number(object, key)?) as u64);
    let output = tokens("output_len");
    let figure = |key: &str| number(object, key).map(|s| s * 1e3);
    let one = |ms: Option<f64>, name: &str| -> BTreeMap<String, f64> {
        ms.map(|v| (name.to_owned(), v)).into_iter().collect()
    };
    Ok(BenchResult {
        mean_latency_ms: total.map(|s| s * 1e3),
        latencies_ms: total.map(|s| s * 1e3).into_iter().collect(),
        duration_s: total,
        total_tokens_per_second: number(object, "overall_throughput"),
        output_tokens_per_second: total
            .filter(|t| *t > 0.0)
            .zip(output)
            .map(|(t, n)| n as f64 / t),
        total_input_tokens: tokens("input_len"),
        total_output_tokens: output,
        ttft_ms: one(figure("prefill_latency"), "mean"),
        tpot_ms: one(figure("median_decode_latency"), "median"),
        ..BenchResult::default()
    })
}

fn throughput(object: &Object) -> Result<BenchResult, ReadError> {
    let duration = required(object, "total_latency")?;
    Ok(BenchResult {
        duration_s: duration,
        completed: count(object, "successful_requests"),
        requests_per_second: number(object, "request_throughput"),
        output_tokens_per_second: number(object, "output_throughput"),
        total_tokens_per_second: number(object, "total_throughput"),
        total_input_tokens: count(object, "total_input_tokens"),
        total_output_tokens: count(object, "total_output_tokens"),
        ..BenchResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{RequestedSettings, Workload};

    fn planned(kind: BenchKind, help: Option<&str>) -> Result<BenchPlan, PlanError> {
        let workload = Workload {
            input_len: 16,
            output_len: 8,
            num_prompts: Some(5),
            max_concurrency: (kind == BenchKind::Serve).then_some(2),
            ..Workload::default()
        };
        plan(
            &BenchJob {
                kind,
                model: "m",
                served_model_name: None,
                port: 30000,
                workload: &workload,
                settings: &RequestedSettings::default(),
                extra_engine_args: &[],
                workdir: "/tmp/w/",
                repeat: 2,
            },
            help,
        )
    }

    #[test]
    fn every_bench_of_both_generations() {
        let help = "usage: bench_serving.py [-h]\n --backend --host --port --model --dataset-name {random,random-ids} --random-input-len --random-output-len --random-range-ratio --num-prompts --max-concurrency --warmup-requests --output-file";
        let p = planned(BenchKind::Serve, Some(help)).unwrap();
        assert_eq!(
            p.argv.join(" "),
            "python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model m --dataset-name random-ids --random-input-len 16 --random-output-len 8 --random-range-ratio 1.0 --num-prompts 5 --max-concurrency 2 --warmup-requests 3 --output-file /tmp/w/serve-2.jsonl"
        );
        assert_eq!(p.notes, [""; 0]);
        let short = help.replace("--max-concurrency", "");
        assert!(matches!(
            planned(BenchKind::Serve, Some(&short)),
            Err(PlanError::UnknownFlags { flags, .. }) if flags == "--max-concurrency"
        ));
        let help = "usage: one_batch.py --model-path --batch-size --input-len --output-len --result-filename";
        let p = planned(BenchKind::Latency, Some(help)).unwrap();
        assert!(
            p.argv
                .join(" ")
                .starts_with("python3 -m sglang.benchmark.one_batch --model-path m")
        );
        let p = planned(BenchKind::Throughput, None).unwrap();
        assert_eq!(p.argv[2], "sglang.bench_offline_throughput");
        assert_eq!(
            question_again(BenchKind::Latency, "No module named sglang.bench_one_batch").unwrap()
                [2],
            "sglang.benchmark.one_batch"
        );
        assert_eq!(question_again(BenchKind::Latency, help), None);
    }

    #[test]
    fn how_far_it_is() {
        let read = |line| progress(BenchKind::Serve, line);
        assert_eq!(
            read("Starting warmup with 1 sequences..."),
            Some(BenchProgress::Warmup)
        );
        assert_eq!(
            read("Warmup completed with 1 sequences. Starting main benchmark run..."),
            Some(BenchProgress::Measuring)
        );
        assert_eq!(
            read(" 40%|████      | 2/5 [00:01<00:02]"),
            Some(BenchProgress::Step { done: 2, of: 5 })
        );
        assert_eq!(read("anything"), None);
        assert_eq!(
            progress(BenchKind::Latency, "Warmup ..."),
            Some(BenchProgress::Warmup)
        );
        assert_eq!(
            progress(BenchKind::Latency, "Benchmark ..."),
            Some(BenchProgress::Measuring)
        );
    }
}

#[cfg(test)]
mod result_tests {
    use super::*;

    #[test]
    fn every_kind() {
        let r = read_result(
            BenchKind::Serve,
            "{\"old\": 1}\n{\"duration\": 2.0, \"completed\": 4, \"num_prompts\": 5, \"output_throughput\": 10.0, \"input_throughput\": 30.0, \"mean_ttft_ms\": 7.5, \"p99_itl_ms\": 3.0, \"mean_e2e_latency_ms\": 90.0, \"std_tpot_ms\": NaN}\n",
        )
        .unwrap();
        assert_eq!(
            (r.duration_s, r.completed, r.failed),
            (Some(2.0), Some(4), Some(1))
        );
        assert_eq!(r.total_tokens_per_second, Some(40.0));
        assert_eq!(
            (r.ttft_ms["mean"], r.itl_ms["p99"], r.mean_latency_ms),
            (7.5, 3.0, Some(90.0))
        );
        let r = read_result(
            BenchKind::Latency,
            r#"{"run_name":"x","batch_size":2,"input_len":16,"output_len":8,"prefill_latency":0.5,"median_decode_latency":0.01,"total_latency":2.0,"overall_throughput":24.0}"#,
        )
        .unwrap();
        assert_eq!(
            (r.mean_latency_ms, r.total_output_tokens),
            (Some(2000.0), Some(16))
        );
        assert_eq!(
            (r.output_tokens_per_second, r.tpot_ms["median"]),
            (Some(8.0), 10.0)
        );
        let r = read_result(
            BenchKind::Throughput,
            r#"{"total_latency":4.0,"total_input_tokens":10,"total_throughput":5.5}"#,
        )
        .unwrap();
        assert_eq!(
            (r.duration_s, r.total_tokens_per_second),
            (Some(4.0), Some(5.5))
        );
        for (kind, text) in [
            (BenchKind::Serve, ""),
            (BenchKind::Serve, "{}"),
            (BenchKind::Latency, "[1]"),
            (BenchKind::Throughput, "{\"x\":1}"),
        ] {
            assert!(read_result(kind, text).is_err(), "{text}");
        }
    }
}
