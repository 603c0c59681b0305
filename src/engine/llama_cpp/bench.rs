//! llama.cpp's benches: command lines, results, progress. Both load a model of their own.
//!
//! `latency` is `llama-bench` with one prompt and one response in sequence (`-pg`); `throughput` is
//! `llama-batched-bench` with many concurrent sequences. They print their results, so a shell with
//! a fixed script redirects these into a file; every word of the request is an argument of that
//! script.

use crate::capture::RequestedSettings;
use crate::engine::bench::{NUM_ITERS, NUM_PROMPTS, figure_at};
use crate::engine::settings::arguments_of;
use crate::engine::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, EngineId, PlanError, ReadError,
};
use serde_json::Value;

/// Images of llama.cpp keep their programs in `/app`, which is on no path.
const RUN: &str = r#"PATH="$PATH:/app"; out="$1"; shift; exec "$@" > "$out""#;
const ASK: &str = r#"PATH="$PATH:/app"; exec "$1" --help"#;

fn program(kind: BenchKind) -> Option<&'static str> {
    match kind {
        BenchKind::Latency => Some("llama-bench"),
        BenchKind::Throughput => Some("llama-batched-bench"),
        BenchKind::Serve | BenchKind::Probe => None,
    }
}

/// The command that prints a bench's flags.
pub fn question(kind: BenchKind) -> Option<Vec<String>> {
    let program = program(kind)?;
    Some(["sh", "-c", ASK, "sh", program].map(str::to_owned).to_vec())
}

/// Plans a bench. `help` is the help output of the installed bench.
pub fn plan(job: &BenchJob<'_>, help: Option<&str>) -> Result<BenchPlan, PlanError> {
    let Some(program) = program(job.kind) else {
        return Err(job.no_such_bench(
            "llama_cpp",
            "its programs load a model of their own (--bench latency or throughput); the \
             built-in client loads the running server",
        ));
    };
    let load = job.workload;
    if job.model.is_empty() || load.input_len == 0 || load.output_len == 0 {
        return Err(PlanError::Invalid(
            "the bench needs a model and lengths of at least one token".to_owned(),
        ));
    }
    let Some(help) = help else {
        return Err(PlanError::Invalid(format!(
            "`{program}` does not run in this container: the `server` images of llama.cpp have no bench, the `full` ones have"
        )));
    };
    let result_path = job.result_path("json");
    let mut argv: Vec<String> = [
        "sh",
        "-c",
        RUN,
        "sh",
        &result_path,
        program,
        "-m",
        job.model,
    ]
    .map(str::to_owned)
    .to_vec();
    let mut notes = vec![format!(
        "`{program}` loads the model a second time, beside any server that runs"
    )];
    let mut put = |words: &[&str]| argv.extend(words.iter().map(|w| (*w).to_owned()));
    let (input, output) = (load.input_len.to_string(), load.output_len.to_string());
    if job.kind == BenchKind::Latency {
        let repeats = load.num_iters.unwrap_or(NUM_ITERS).to_string();
        let lengths = format!("{input},{output}");
        put(&["-p", "0", "-n", "0", "-pg", &lengths, "-r", &repeats]);
        put(&["-o", "json"]);
        if help.contains("--progress") {
            put(&["--progress"]);
        }
        if load.batch_size.is_some_and(|n| n > 1) {
            notes.push("llama-bench runs one sequence; the batch size was ignored".to_owned());
        }
    } else {
        let many = load.batch_size.or(load.num_prompts).unwrap_or(NUM_PROMPTS);
        let tokens = u64::from(load.input_len) + u64::from(load.output_len);
        let context = tokens.saturating_mul(u64::from(many)).to_string();
        put(&["-npp", &input, "-ntg", &output, "-npl", &many.to_string()]);
        put(&["-c", &context, "--output-format", "jsonl"]);
    }
    let cache_type = RequestedSettings {
        kv_cache_dtype: job.settings.kv_cache_dtype.clone(),
        ..RequestedSettings::default()
    };
    argv.extend(arguments_of(EngineId::LlamaCpp, &cache_type).concat());
    argv.extend_from_slice(job.extra_engine_args);
    if *job.settings != cache_type {
        notes.push(
            "llama.cpp takes weights as the file has them; only the cache's type was set"
                .to_owned(),
        );
    }
    if load.request_rate.is_some() || load.max_concurrency.is_some() {
        notes.push(format!(
            "`{program}` has no request rate or concurrency; ignored"
        ));
    }
    Ok(BenchPlan {
        argv,
        result_path,
        notes,
        ..BenchPlan::default()
    })
}

/// Reads a result.
pub fn read(kind: BenchKind, result: &str) -> Result<BenchResult, ReadError> {
    if kind == BenchKind::Latency {
        return latency(result);
    }
    // The bench's own log may surround the one line of JSON.
    let line = result.lines().rev().find(|l| l.trim().starts_with('{'));
    let run: Value = serde_json::from_str(line.unwrap_or_default())
        .map_err(|e| ReadError::Json(e.to_string()))?;
    let seconds = figure_at(&run, "t").ok_or(ReadError::Missing("t"))?;
    let count = |key: &str| run.get(key).and_then(Value::as_u64);
    let many = count("pl");
    let all = |key: &str| many?.checked_mul(count(key)?);
    Ok(BenchResult {
        duration_s: Some(seconds),
        completed: many,
        requests_per_second: many.filter(|_| seconds > 0.0).map(|n| n as f64 / seconds),
        output_tokens_per_second: figure_at(&run, "speed_tg"),
        total_tokens_per_second: figure_at(&run, "speed"),
        total_input_tokens: all("pp"),
        total_output_tokens: all("tg"),
        ..BenchResult::default()
    })
}

/// Nanoseconds in, milliseconds out.
fn latency(result: &str) -> Result<BenchResult, ReadError> {
    let runs: Vec<Value> =
        serde_json::from_str(result).map_err(|e| ReadError::Json(e.to_string()))?;
    let run = runs.last().ok_or(ReadError::Missing("avg_ns"))?;
    let mean = figure_at(run, "avg_ns").ok_or(ReadError::Missing("avg_ns"))?;
    let samples = run.get("samples_ns").and_then(Value::as_array);
    let latencies: Vec<f64> = samples
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .map(|ns| ns / 1e6)
        .collect();
    let output = figure_at(run, "n_gen");
    let per_run = |n: Option<f64>| {
        let tokens = n? * latencies.len().max(1) as f64;
        Some(tokens as u64)
    };
    Ok(BenchResult {
        mean_latency_ms: Some(mean / 1e6),
        duration_s: (!latencies.is_empty()).then(|| latencies.iter().sum::<f64>() / 1e3),
        total_tokens_per_second: figure_at(run, "avg_ts"),
        output_tokens_per_second: output.filter(|_| mean > 0.0).map(|n| n / (mean / 1e9)),
        total_input_tokens: per_run(figure_at(run, "n_prompt")),
        total_output_tokens: per_run(output),
        latencies_ms: latencies,
        ..BenchResult::default()
    })
}

/// Reads one output line.
pub fn progress(kind: BenchKind, line: &str) -> Option<BenchProgress> {
    // `llama-bench: benchmark 1/1: warmup prompt run`, `… generation run 2/5`
    let step = line.trim().strip_prefix("llama-bench: benchmark ")?;
    if kind != BenchKind::Latency {
        return None;
    }
    if step.contains("warmup") {
        return Some(BenchProgress::Warmup);
    }
    match step.rsplit_once(" run ") {
        Some((_, counts)) => {
            let (done, of) = counts.trim().split_once('/')?;
            let (done, of) = (done.parse::<u64>().ok()?, of.parse().ok()?);
            // A run is printed at its start.
            Some(match done {
                0 | 1 => BenchProgress::Measuring,
                _ => BenchProgress::Step { done: done - 1, of },
            })
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Workload;

    #[test]
    fn commands_notes_and_refusals() {
        let workload = Workload {
            input_len: 16,
            output_len: 8,
            num_iters: Some(2),
            num_prompts: Some(4),
            ..Workload::default()
        };
        let settings = RequestedSettings::default();
        let job = |kind| BenchJob {
            kind,
            model: "/m $(x).gguf",
            served_model_name: None,
            port: 8080,
            workload: &workload,
            settings: &settings,
            extra_engine_args: &[],
            workdir: "/tmp/w",
            repeat: 1,
        };
        let p = plan(&job(BenchKind::Latency), Some("--progress")).unwrap();
        // What was asked for is an argument and never a part of the script.
        assert_eq!(p.argv[2], RUN);
        assert_eq!(
            p.argv[4..].join(" "),
            "/tmp/w/latency-1.json llama-bench -m /m $(x).gguf -p 0 -n 0 -pg 16,8 -r 2 -o json --progress"
        );
        assert!(p.notes[0].contains("a second time"));
        let p = plan(&job(BenchKind::Throughput), Some("")).unwrap();
        assert!(
            p.argv
                .join(" ")
                .ends_with("-npp 16 -ntg 8 -npl 4 -c 96 --output-format jsonl")
        );
        assert!(matches!(
            plan(&job(BenchKind::Serve), None),
            Err(PlanError::NoSuchBench {
                engine: "llama_cpp",
                kind: "serve",
                ..
            })
        ));
        assert!(matches!(
            plan(&job(BenchKind::Latency), None),
            Err(PlanError::Invalid(_))
        ));
    }

    #[test]
    fn results_and_progress() {
        let r = read(
            BenchKind::Latency,
            r#"[{"n_prompt":16,"n_gen":8,"avg_ns":2000000000,"avg_ts":12.0,"samples_ns":[1000000000,3000000000]}]"#,
        )
        .unwrap();
        assert_eq!((r.mean_latency_ms, r.duration_s), (Some(2000.0), Some(4.0)));
        assert_eq!(r.latencies_ms, [1000.0, 3000.0]);
        assert_eq!(
            (r.output_tokens_per_second, r.total_output_tokens),
            (Some(4.0), Some(16))
        );
        let r = read(
            BenchKind::Throughput,
            "main: x\n{\"n_kv_max\":96,\"pp\":16,\"tg\":8,\"pl\":4,\"t_pp\":1.0,\"t_tg\":1.0,\"t\":2.0,\"speed\":48.0,\"speed_tg\":32.0}\n",
        )
        .unwrap();
        assert_eq!(
            (r.requests_per_second, r.total_output_tokens),
            (Some(2.0), Some(32))
        );
        for (kind, text) in [
            (BenchKind::Latency, "[]"),
            (BenchKind::Latency, "{}"),
            (BenchKind::Throughput, ""),
            (BenchKind::Throughput, "{\"x\":1}"),
        ] {
            assert!(read(kind, text).is_err(), "{text}");
        }
        let read = |line| progress(BenchKind::Latency, line);
        assert_eq!(
            read("llama-bench: benchmark 1/1: warmup prompt run"),
            Some(BenchProgress::Warmup)
        );
        assert_eq!(
            read("llama-bench: benchmark 1/1: generation run 1/5"),
            Some(BenchProgress::Measuring)
        );
        assert_eq!(
            read("llama-bench: benchmark 1/1: generation run 3/5"),
            Some(BenchProgress::Step { done: 2, of: 5 })
        );
        assert_eq!(read("llama-bench: benchmark 1/1: starting"), None);
    }
}
