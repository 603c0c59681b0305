//! The reference engine's benches: command line and progress.

use super::{PROGRAM, phase_line};
use crate::engine::bench::{NUM_ITERS, NUM_PROMPTS, NUM_WARMUPS};
use crate::engine::{BenchJob, BenchKind, BenchPlan, BenchProgress, PlanError, ignored_notes};

/// Plans a bench. Memory flags reach it as extra engine arguments.
pub fn plan(job: &BenchJob<'_>) -> Result<BenchPlan, PlanError> {
    let load = job.workload;
    if job.kind == BenchKind::Probe {
        return Err(job.no_such_bench("reference", crate::engine::NO_PROBE));
    }
    job.check_lengths()?;
    let result_path = job.result_path("json");
    let mut argv = [&format!("/{PROGRAM}"), "bench", job.kind.as_str()]
        .map(str::to_owned)
        .to_vec();
    let mut put = |flag: &str, value: Option<String>| {
        argv.extend(value.into_iter().flat_map(|v| [flag.to_owned(), v]));
    };
    let number = |given: Option<u32>, ours: u32| Some(given.unwrap_or(ours).to_string());
    if job.kind == BenchKind::Serve {
        put(
            "--model",
            Some(job.served_model_name.unwrap_or(job.model).to_owned()),
        );
        put("--base-url", Some(format!("http://127.0.0.1:{}", job.port)));
    } else {
        put("--model", Some(job.model.to_owned()));
    }
    put("--input-len", Some(load.input_len.to_string()));
    put("--output-len", Some(load.output_len.to_string()));
    match job.kind {
        BenchKind::Latency => {
            put("--batch-size", load.batch_size.map(|v| v.to_string()));
            put(
                "--num-iters-warmup",
                number(load.num_iters_warmup, NUM_WARMUPS),
            );
            put("--num-iters", number(load.num_iters, NUM_ITERS));
        }
        BenchKind::Throughput => {
            put("--num-prompts", number(load.num_prompts, NUM_PROMPTS));
            put(
                "--num-warmups",
                load.num_iters_warmup.map(|v| v.to_string()),
            );
        }
        BenchKind::Serve => {
            put("--num-prompts", number(load.num_prompts, NUM_PROMPTS));
            put(
                "--max-concurrency",
                load.max_concurrency.map(|v| v.to_string()),
            );
            put("--request-rate", load.request_rate.map(|v| v.to_string()));
            put("--num-warmups", number(load.num_iters_warmup, NUM_WARMUPS));
        }
        // Refused above.
        BenchKind::Probe => {}
    }
    put("--output-json", Some(result_path.clone()));
    let mut notes = Vec::new();
    if job.kind != BenchKind::Latency && load.batch_size.is_some() {
        let bench = format!("the {} bench", job.kind.as_str());
        notes.extend(ignored_notes(&bench, &[("batch size", true)]));
    }
    if *job.settings != Default::default() {
        notes.push("the reference engine has no dtype, quantization or other such settings; they were ignored".to_owned());
    }
    if job.kind != BenchKind::Serve {
        argv.extend(job.extra_engine_args.iter().cloned());
    } else if !job.extra_engine_args.is_empty() {
        notes.push(
            "the server is already running; extra engine arguments have no effect".to_owned(),
        );
    }
    Ok(BenchPlan {
        argv,
        result_path,
        notes,
        ..BenchPlan::default()
    })
}

/// Reads one output line.
pub fn progress(line: &str) -> Option<BenchProgress> {
    let mut phase = "";
    let (mut done, mut of) = (None, None);
    for (key, value) in phase_line(line)? {
        match key {
            "phase" => phase = value,
            "n" => done = value.parse().ok(),
            "of" => of = value.parse().ok(),
            _ => {}
        }
    }
    match phase {
        "warmup_start" => Some(BenchProgress::Warmup),
        "bench_start" => Some(BenchProgress::Measuring),
        "bench_iteration" => Some(BenchProgress::Step {
            done: done?,
            of: of?,
        }),
        _ => None,
    }
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
