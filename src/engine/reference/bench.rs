//! The reference engine's benches: command line and progress.

use super::{PHASE, PROGRAM};
use crate::engine::bench::{
    BATCH_SIZE, BenchLine, CONCURRENCY, ITERATIONS, NUM_ITERS, NUM_PROMPTS, NUM_WARMUPS, PROMPTS,
    REQUEST_RATE, phase_progress,
};
use crate::engine::{BenchJob, BenchKind, BenchPlan, BenchProgress, PlanError};

/// Plans a bench. Memory flags reach it as extra engine arguments.
pub fn plan(job: &BenchJob<'_>) -> Result<BenchPlan, PlanError> {
    let load = job.workload;
    if job.kind == BenchKind::Probe {
        return Err(job.no_such_bench("reference", crate::engine::NO_PROBE));
    }
    job.check_lengths()?;
    let result_path = job.result_path("json");
    let bench = format!("the {} bench", job.kind.as_str());
    let program = format!("/{PROGRAM}");
    let words = [program.as_str(), "bench", job.kind.as_str()];
    let mut line = BenchLine::new(job, bench, &words, &|_| true);
    if job.kind == BenchKind::Serve {
        line.need("--model", job.served_model_name.unwrap_or(job.model));
        line.need("--base-url", format!("http://127.0.0.1:{}", job.port));
    } else {
        line.need("--model", job.model);
    }
    line.need("--input-len", load.input_len);
    line.need("--output-len", load.output_len);
    match job.kind {
        BenchKind::Latency => {
            line.asked("--batch-size", load.batch_size);
            line.asked_or("--num-iters-warmup", load.num_iters_warmup, NUM_WARMUPS);
            line.asked_or("--num-iters", load.num_iters, NUM_ITERS);
        }
        BenchKind::Throughput => {
            line.asked_or("--num-prompts", load.num_prompts, NUM_PROMPTS);
            line.asked("--num-warmups", load.num_iters_warmup);
        }
        BenchKind::Serve => {
            line.asked_or("--num-prompts", load.num_prompts, NUM_PROMPTS);
            line.asked("--max-concurrency", load.max_concurrency);
            line.asked("--request-rate", load.request_rate);
            line.asked_or("--num-warmups", load.num_iters_warmup, NUM_WARMUPS);
        }
        // Refused above.
        BenchKind::Probe => {}
    }
    line.need("--output-json", &result_path);
    line.no_effect(match job.kind {
        BenchKind::Latency => &[PROMPTS, CONCURRENCY, REQUEST_RATE],
        BenchKind::Throughput => &[BATCH_SIZE, ITERATIONS, CONCURRENCY, REQUEST_RATE],
        BenchKind::Serve | BenchKind::Probe => &[BATCH_SIZE, ITERATIONS],
    });
    if *job.settings != Default::default() {
        line.notes.push("the reference engine has no dtype, quantization or other such settings; they were ignored".to_owned());
    }
    if job.kind != BenchKind::Serve {
        line.argv.extend(job.extra_engine_args.iter().cloned());
    } else if !job.extra_engine_args.is_empty() {
        line.notes.push(
            "the server is already running; extra engine arguments have no effect".to_owned(),
        );
    }
    line.finish(PROGRAM, result_path)
}

/// Reads one output line.
pub fn progress(line: &str) -> Option<BenchProgress> {
    let parts = [
        ("warmup_start", BenchProgress::Warmup),
        ("bench_start", BenchProgress::Measuring),
    ];
    phase_progress(line, PHASE, &parts, "bench_iteration")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{RequestedSettings, Workload};

    fn line(kind: BenchKind, load: Workload) -> String {
        let settings = RequestedSettings {
            enforce_eager: true,
            ..RequestedSettings::default()
        };
        let extra = ["--weights".to_owned(), "64MiB".to_owned()];
        let plan = plan(&BenchJob {
            kind,
            model: "toy",
            served_model_name: None,
            port: 8000,
            workload: &load,
            settings: &settings,
            extra_engine_args: &extra,
            workdir: "/tmp/r",
            repeat: 1,
        })
        .unwrap();
        assert_eq!(plan.result_path, format!("/tmp/r/{}-1.json", kind.as_str()));
        assert!(!plan.notes.is_empty());
        plan.argv.join(" ")
    }

    #[test]
    fn command_lines() {
        let load = Workload {
            input_len: 8,
            output_len: 4,
            ..Workload::default()
        };
        assert_eq!(
            line(
                BenchKind::Latency,
                Workload {
                    batch_size: Some(2),
                    num_iters: Some(5),
                    ..load.clone()
                }
            ),
            "/reference-engine bench latency --model toy --input-len 8 --output-len 4 --batch-size 2 --num-iters-warmup 3 \
             --num-iters 5 --output-json /tmp/r/latency-1.json --weights 64MiB"
        );
        assert_eq!(
            line(BenchKind::Throughput, load.clone()),
            "/reference-engine bench throughput --model toy --input-len 8 --output-len 4 --num-prompts 32 \
             --output-json /tmp/r/throughput-1.json --weights 64MiB"
        );
        assert_eq!(
            line(
                BenchKind::Serve,
                Workload {
                    max_concurrency: Some(4),
                    request_rate: Some(1.5),
                    ..load
                }
            ),
            "/reference-engine bench serve --model toy --base-url http://127.0.0.1:8000 --input-len 8 --output-len 4 --num-prompts 32 \
             --max-concurrency 4 --request-rate 1.5 --num-warmups 3 --output-json /tmp/r/serve-1.json"
        );
    }

    #[test]
    fn progress_lines() {
        assert_eq!(
            progress("reference-engine phase=warmup_start"),
            Some(BenchProgress::Warmup)
        );
        assert_eq!(
            progress("reference-engine phase=bench_start of=10"),
            Some(BenchProgress::Measuring)
        );
        assert_eq!(
            progress("reference-engine phase=bench_iteration n=1 of=10"),
            Some(BenchProgress::Step { done: 1, of: 10 })
        );
        assert_eq!(progress("reference-engine phase=bench_iteration n=x"), None);
        assert_eq!(progress("reference-engine phase=ready"), None);
        assert_eq!(progress("anything else"), None);
    }
}
