//! The probe as a bench: which Python can run it, its command line, progress and result.

use crate::engine::bench::{BenchLine, phase_progress};
use crate::engine::torch_probe::TorchReport;
use crate::engine::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, PlanError, PlannedFile, ReadError,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The probe itself.
const SCRIPT: &[u8] = include_bytes!("../../../scripts/probes/transformers_memory.py");

/// Its name in the folder that is made for the run.
const SCRIPT_NAME: &str = "transformers_memory.py";
/// The prompt is in a separate file: arguments appear in Docker's events and are limited in length.
const PROMPT_NAME: &str = "prompt.txt";

/// Measured iterations: each generates in full, and shows the same memory.
const ITERATIONS: u32 = 3;
/// Iterations before them.
const WARMUPS: u32 = 1;

/// Asks an interpreter which modules it has, without importing them.
const QUESTION: &str = "import importlib.util as u, json, sys\ntry:\n import importlib.metadata as m\nexcept ImportError:\n m = None\ndef v(n):\n if u.find_spec(n) is None:\n  return None\n try:\n  return m.version(n)\n except Exception:\n  return '?'\nprint('plimsoll-python ' + json.dumps({'executable': sys.executable, 'version': '.'.join(map(str, sys.version_info[:3])), 'modules': {n: v(n) for n in ('torch', 'transformers', 'accelerate')}}))";

/// The question to an interpreter.
pub fn question(interpreter: &str) -> Vec<String> {
    [interpreter, "-c", QUESTION].map(str::to_owned).to_vec()
}

/// An interpreter's answer.
#[derive(Debug, Deserialize)]
struct Interpreter {
    executable: String,
    version: String,
    modules: BTreeMap<String, Option<String>>,
}

impl Interpreter {
    fn read(answer: &str) -> Option<Interpreter> {
        let line = answer
            .lines()
            .find_map(|l| l.trim().strip_prefix("plimsoll-python "))?;
        serde_json::from_str(line)
            .ok()
            .filter(|i: &Interpreter| !i.executable.is_empty())
    }

    /// The modules that it does not have and the probe needs.
    fn missing(&self) -> Vec<&'static str> {
        ["torch", "transformers"]
            .into_iter()
            .filter(|name| self.modules.get(*name).is_none_or(Option::is_none))
            .collect()
    }

    /// The reason why the probe cannot run, as a sentence's end.
    fn lack(&self) -> Option<String> {
        let mut parts = self
            .version
            .split('.')
            .map(|p| p.parse::<u32>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version < (3, 9) {
            return Some("is older than 3.9".to_owned());
        }
        let missing = self.missing();
        (!missing.is_empty()).then(|| format!("has no {}", missing.join(" and no ")))
    }
}

/// Whether an answer is missing, or from an interpreter that cannot run the probe.
pub fn lacks(answer: &str) -> bool {
    Interpreter::read(answer).is_none_or(|i| i.lack().is_some())
}

/// Plans the probe's run.
pub fn plan(job: &BenchJob<'_>, answer: Option<&str>) -> Result<BenchPlan, PlanError> {
    if job.kind != BenchKind::Probe {
        return Err(job.no_such_bench(
            "transformers",
            "a script that calls a model has no bench of its own: use the probe",
        ));
    }
    let python = answer.and_then(Interpreter::read).ok_or_else(|| {
        PlanError::Lacking("the Python in the image did not list its packages".to_owned())
    })?;
    if let Some(lack) = python.lack() {
        let (path, version) = (&python.executable, &python.version);
        return Err(PlanError::Lacking(format!(
            "`{path}` in the image (Python {version}) {lack}"
        )));
    }
    let workdir = job.folder();
    let result_path = job.result_path("json");
    let load = job.workload;
    let mut files = vec![PlannedFile {
        name: SCRIPT_NAME.to_owned(),
        bytes: SCRIPT.to_vec(),
    }];
    let bench = "the transformers probe".to_owned();
    let mut line = BenchLine::new(job, bench, &[&python.executable], &|_| true);
    line.argv.push(format!("{workdir}/{SCRIPT_NAME}"));
    line.argv.push(result_path.clone());
    line.need("--model", job.model);
    match &load.prompt {
        Some(prompt) => {
            files.push(PlannedFile {
                name: PROMPT_NAME.to_owned(),
                bytes: prompt.clone().into_bytes(),
            });
            line.need("--prompt-file", format!("{workdir}/{PROMPT_NAME}"));
        }
        None => line.need("--prompt-tokens", load.input_len),
    }
    line.need("--max-tokens", load.output_len);
    line.need("--batch-size", load.batch_size.unwrap_or(1));
    line.asked_or("--warmup", load.num_iters_warmup, WARMUPS);
    line.asked_or("--iterations", load.num_iters, ITERATIONS);
    line.asked("--dtype", job.settings.dtype.as_ref());
    line.asked("--seed", load.seed);
    if load.per_layer {
        line.need_switch("--per-layer");
    }
    line.argv.extend(job.extra_engine_args.iter().cloned());

    let known = crate::capture::RequestedSettings {
        dtype: job.settings.dtype.clone(),
        ..Default::default()
    };
    if *job.settings != known {
        line.notes.push("of the engine settings the transformers probe knows the type of the weights alone (--dtype); the others were ignored".to_owned());
    }
    Ok(BenchPlan {
        // Output is needed when it is printed, not later.
        env: vec![("PYTHONUNBUFFERED".to_owned(), "1".to_owned())],
        files,
        ..line.finish(SCRIPT_NAME, result_path)?
    })
}

/// The mark of the probe's lines.
pub(super) const PHASE: &str = "plimsoll-probe phase=";

/// Reads one output line.
pub fn progress(line: &str) -> Option<BenchProgress> {
    let parts = [
        ("warmup", BenchProgress::Warmup),
        ("measure", BenchProgress::Measuring),
        ("measured", BenchProgress::Over),
    ];
    phase_progress(line, PHASE, &parts, "iteration")
}

/// The newest form of the file that is understood.
const SCHEMA: u64 = 1;

/// The whole of it.
pub fn read_report(result: &str) -> Result<TorchReport, ReadError> {
    let value: serde_json::Value =
        serde_json::from_str(result).map_err(|e| ReadError::Json(e.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(1..=SCHEMA) => {}
        _ => return Err(ReadError::Missing("schema")),
    }
    if value.get("error").is_some_and(|e| !e.is_null()) {
        return Err(ReadError::Missing("weights"));
    }
    serde_json::from_value(value).map_err(|e| ReadError::Json(e.to_string()))
}

/// Latency and throughput, the part that every bench reports.
pub fn read_result(result: &str) -> Result<BenchResult, ReadError> {
    let memory = read_report(result)?.memory;
    let (load, latency) = (&memory.load, &memory.latency);
    let latencies_ms: Vec<f64> = memory.iterations.iter().map(|i| i.ms).collect();
    let total_ms: f64 = latencies_ms.iter().sum();
    let iterations = latencies_ms.len() as u64;
    let sequences = load.batch_size.saturating_mul(iterations);
    let per_second = |tokens: u64| {
        let all = tokens.saturating_mul(sequences) as f64;
        (total_ms > 0.0).then(|| all / (total_ms / 1e3))
    };
    Ok(BenchResult {
        mean_latency_ms: (iterations > 0).then_some(latency.mean_ms),
        latency_percentiles_ms: BTreeMap::from([("median".to_owned(), latency.median_ms)]),
        latencies_ms,
        output_tokens_per_second: per_second(load.generated_tokens),
        total_tokens_per_second: per_second(load.total_tokens),
        duration_s: Some(total_ms / 1e3),
        total_input_tokens: Some(load.prompt_tokens.saturating_mul(sequences)),
        total_output_tokens: Some(load.generated_tokens.saturating_mul(sequences)),
        ttft_ms: latency
            .prefill_ms
            .map(|ms| ("mean".to_owned(), ms))
            .into_iter()
            .collect(),
        ..BenchResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{RequestedSettings, Workload};

    fn answer(version: &str, torch: &str, transformers: &str) -> String {
        format!(
            "a warning\nplimsoll-python {{\"executable\": \"/opt/venv/bin/python3\", \"version\": \"{version}\", \"modules\": {{\"torch\": {torch}, \"transformers\": {transformers}, \"accelerate\": null}}}}\n"
        )
    }

    fn planned(
        load: &Workload,
        settings: &RequestedSettings,
        answer: &str,
    ) -> Result<BenchPlan, PlanError> {
        let job = BenchJob {
            kind: BenchKind::Probe,
            model: "org/model",
            served_model_name: None,
            port: 8000,
            workload: load,
            settings,
            extra_engine_args: &[],
            workdir: "/tmp/plimsoll-x/",
            repeat: 2,
        };
        plan(&job, Some(answer))
    }

    #[test]
    fn the_command_line_and_the_files() {
        let good = answer("3.11.2", "\"2.9\"", "\"?\"");
        let load = Workload {
            input_len: 64,
            output_len: 8,
            batch_size: Some(4),
            per_layer: true,
            ..Workload::default()
        };
        let settings = RequestedSettings {
            dtype: Some("float16".to_owned()),
            ..Default::default()
        };
        let plan = planned(&load, &settings, &good).unwrap();
        assert_eq!(
            plan.argv.join(" "),
            "/opt/venv/bin/python3 /tmp/plimsoll-x/transformers_memory.py /tmp/plimsoll-x/probe-2.json --model org/model \
             --prompt-tokens 64 --max-tokens 8 --batch-size 4 --warmup 1 --iterations 3 --dtype float16 --per-layer"
        );
        assert!(plan.notes.is_empty());
        let names: Vec<&str> = plan.files.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["transformers_memory.py"]);
        assert!(plan.files[0].bytes.starts_with(b"#!/usr/bin/env python3"));

        // A prompt is a file: it must not show where arguments show.
        let load = Workload {
            prompt: Some("a word".to_owned()),
            ..load
        };
        let settings = RequestedSettings {
            enforce_eager: true,
            ..settings
        };
        let plan = planned(&load, &settings, &good).unwrap();
        assert!(!plan.argv.join(" ").contains("a word"));
        assert_eq!(plan.files[1].bytes, b"a word");
        assert!(plan.argv.contains(&"--prompt-file".to_owned()));
        assert_eq!(plan.notes.len(), 1);
    }

    #[test]
    fn what_the_image_lacks_is_named() {
        let load = Workload::default();
        let shown = |answer: &str| {
            let refused = planned(&load, &RequestedSettings::default(), answer);
            refused.expect_err("a refusal").to_string()
        };
        for (text, lack) in [
            (
                answer("3.11.2", "null", "\"4\""),
                "(Python 3.11.2) has no torch",
            ),
            (
                answer("3.12.1", "null", "null"),
                "has no torch and no transformers",
            ),
            (answer("3.8.10", "\"1\"", "\"4\""), "is older than 3.9"),
            ("Traceback".to_owned(), "did not list"),
        ] {
            assert!(lacks(&text));
            let shown = shown(&text);
            assert!(shown.contains(lack), "{shown}");
        }
        assert!(!lacks(&answer("3.9.0", "\"2\"", "\"4\"")));
    }

    #[test]
    fn progress_lines() {
        let read = |rest: &str| progress(&format!("plimsoll-probe phase={rest}"));
        assert_eq!(read("warmup of=1"), Some(BenchProgress::Warmup));
        assert_eq!(read("measure of=3"), Some(BenchProgress::Measuring));
        assert_eq!(read("measured"), Some(BenchProgress::Over));
        assert_eq!(
            read("iteration n=2 of=3"),
            Some(BenchProgress::Step { done: 2, of: 3 })
        );
        assert_eq!(read("iteration n=x of=3"), None);
        assert_eq!(progress("phase=warmup"), None);
    }
}
