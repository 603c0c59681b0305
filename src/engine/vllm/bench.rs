//! The command line of `vllm bench` for the installed release and the requested load.

use super::help::{Help, refused};
use crate::capture::Workload;
use crate::engine::bench::{NUM_ITERS, NUM_PROMPTS, NUM_WARMUPS};
use crate::engine::settings::arguments_of;
use crate::engine::{BenchJob, BenchKind, BenchPlan, EngineId, PlanError, ignored_notes};

/// Plans a bench. `help` is the help output of the installed bench.
pub fn plan(job: &BenchJob<'_>, help: Option<&str>) -> Result<BenchPlan, PlanError> {
    check(job)?;
    if help.is_some_and(|text| refused(job.kind, text)) {
        return Err(PlanError::Invalid(format!(
            "the installed vLLM has no `vllm bench {}`; it came with 0.8.5",
            job.kind.as_str()
        )));
    }
    let mut line = Line::new(job.kind, help);
    match job.kind {
        BenchKind::Latency => latency(job, &mut line),
        BenchKind::Throughput => throughput(job, &mut line),
        BenchKind::Serve => serve(job, &mut line),
        BenchKind::Probe => {
            return Err(job.no_such_bench("vllm", crate::engine::NO_PROBE));
        }
    }
    let result_path = job.result_path("json");
    if job.kind == BenchKind::Serve {
        line.need("--save-result", None);
        line.need("--result-dir", Some(job.folder().to_owned()));
        line.need("--result-filename", Some(job.result_name("json")));
    } else {
        line.need("--output-json", Some(result_path.clone()));
        line.argv.extend(job.extra_engine_args.iter().cloned());
    }
    line.finish(job.kind, result_path)
}

/// The environment of an engine within the bench. Its sockets and compiled kernels go where the
/// result goes, and go with it: in the container's `/tmp` they would stay.
fn own_engine(result_path: &str) -> Vec<(String, String)> {
    let mut env = super::debug_log();
    if let Some((folder, _)) = result_path.rsplit_once('/') {
        env.push(("TMPDIR".to_owned(), folder.to_owned()));
    }
    env
}

fn check(job: &BenchJob<'_>) -> Result<(), PlanError> {
    job.check_model()?;
    job.check_lengths()?;
    job.check_counts()?;
    let (input_len, output_len) = (job.workload.input_len, job.workload.output_len);
    let sequence = u64::from(input_len) + u64::from(output_len);
    match job.settings.max_model_len {
        Some(longest) if job.kind != BenchKind::Serve && sequence > longest => {
            Err(PlanError::Invalid(format!(
                "input length {input_len} and output length {output_len} do not fit into the model length asked for: {longest}"
            )))
        }
        _ => Ok(()),
    }
}

fn latency(job: &BenchJob<'_>, line: &mut Line) {
    let load = job.workload;
    line.need("--model", Some(job.model.to_owned()));
    line.need("--input-len", Some(load.input_len.to_string()));
    line.need("--output-len", Some(load.output_len.to_string()));
    line.asked("--batch-size", load.batch_size);
    line.asked_or("--num-iters", load.num_iters, NUM_ITERS);
    line.asked_or("--num-iters-warmup", load.num_iters_warmup, NUM_WARMUPS);
    line.engine(job);
    line.no_effect(&[
        ("number of prompts", load.num_prompts.is_some()),
        ("concurrency", load.max_concurrency.is_some()),
        ("request rate", load.request_rate.is_some()),
    ]);
}

fn throughput(job: &BenchJob<'_>, line: &mut Line) {
    let load = job.workload;
    line.need("--model", Some(job.model.to_owned()));
    line.random_dataset(load);
    line.asked_or("--num-prompts", load.num_prompts, NUM_PROMPTS);
    // Most releases have none here, and the requested load is the same without.
    if line.help.knows("--num-warmups") {
        line.asked("--num-warmups", load.num_iters_warmup.filter(|n| *n > 0));
    } else {
        line.no_effect(&[("warm-up", load.num_iters_warmup.is_some_and(|n| n > 0))]);
    }
    line.engine(job);
    line.no_effect(&[
        ("batch size", load.batch_size.is_some()),
        ("number of iterations", load.num_iters.is_some()),
        ("concurrency", load.max_concurrency.is_some()),
        ("request rate", load.request_rate.is_some()),
    ]);
}

fn serve(job: &BenchJob<'_>, line: &mut Line) {
    let load = job.workload;
    let backend = if line.help.knows("--backend") {
        "--backend"
    } else {
        "--endpoint-type"
    };
    // Some early releases call the same client by the engine's name.
    let client = if line.help.offers(backend, "openai") {
        "openai"
    } else {
        "vllm"
    };
    line.need(backend, Some(client.to_owned()));
    // Not the server's published port: the bench runs inside the server's container.
    line.need("--base-url", Some(format!("http://127.0.0.1:{}", job.port)));
    line.need("--endpoint", Some("/v1/completions".to_owned()));
    match job.served_model_name.filter(|name| *name != job.model) {
        Some(name) if line.help.knows("--served-model-name") => {
            line.need("--model", Some(job.model.to_owned()));
            line.need("--served-model-name", Some(name.to_owned()));
        }
        Some(name) => {
            line.need("--model", Some(name.to_owned()));
            line.need("--tokenizer", Some(job.model.to_owned()));
        }
        None => line.need("--model", Some(job.model.to_owned())),
    }
    let trusts = |a: &&String| *a == "--trust-remote-code";
    if job.extra_engine_args.iter().any(|a| trusts(&a)) {
        // The tokenizer of such a model is code as well.
        line.ours("--trust-remote-code", None);
    }
    line.random_dataset(load);
    line.asked_or("--num-prompts", load.num_prompts, NUM_PROMPTS);
    line.asked("--max-concurrency", load.max_concurrency);
    line.asked("--request-rate", load.request_rate);
    match load.num_iters_warmup {
        Some(0) => {}
        Some(n) => line.need("--num-warmups", Some(n.to_string())),
        None if line.ours("--num-warmups", Some(NUM_WARMUPS.to_string())) => {}
        None => line
            .notes
            .push("this release has no warm-up requests but its one test request".to_owned()),
    }
    // The output length is a length and not a limit.
    line.ours("--ignore-eos", None);
    line.asked("--seed", load.seed);
    line.ours(
        "--percentile-metrics",
        Some("ttft,tpot,itl,e2el".to_owned()),
    );
    line.ours("--metric-percentiles", Some("50,90,95,99".to_owned()));
    let set = arguments_of(EngineId::Vllm, job.settings);
    let mut idle: Vec<String> = set
        .into_iter()
        .filter_map(|w| w.into_iter().next())
        .collect();
    idle.extend(
        job.extra_engine_args
            .iter()
            .filter(|a| a.starts_with('-') && !trusts(a))
            .cloned(),
    );
    if !idle.is_empty() {
        let verb = if idle.len() == 1 { "has" } else { "have" };
        line.notes.push(format!(
            "the server is already running; {} {verb} no effect",
            idle.join(", ")
        ));
    }
    line.no_effect(&[
        ("batch size", load.batch_size.is_some()),
        ("number of iterations", load.num_iters.is_some()),
    ]);
}

/// A command line in the making.
struct Line {
    help: Help,
    kind: BenchKind,
    argv: Vec<String>,
    unknown: Vec<String>,
    notes: Vec<String>,
}

impl Line {
    fn new(kind: BenchKind, help: Option<&str>) -> Line {
        let read = help.and_then(Help::read);
        let notes = match &read {
            Some(_) => Vec::new(),
            None => vec![format!(
                "the flags of the installed `vllm bench {}` could not be read; those of 0.32 are assumed",
                kind.as_str()
            )],
        };
        let argv = ["vllm", "bench", kind.as_str()].map(str::to_owned).to_vec();
        Line {
            help: read.unwrap_or(Help::Newest),
            kind,
            argv,
            unknown: Vec::new(),
            notes,
        }
    }

    /// A flag that the request cannot do without.
    fn need(&mut self, flag: &str, value: Option<String>) {
        if !self.ours(flag, value) {
            self.unknown.push(flag.to_owned());
        }
    }

    /// A flag for a value that the user set, if any.
    fn asked(&mut self, flag: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.need(flag, Some(value.to_string()));
        }
    }

    /// The same with a value of ours where the user has none.
    fn asked_or(&mut self, flag: &'static str, value: Option<u32>, ours: u32) {
        match value {
            Some(value) => self.need(flag, Some(value.to_string())),
            None => {
                self.ours(flag, Some(ours.to_string()));
            }
        }
    }

    /// A flag that only improves the bench; left out where it is unknown.
    fn ours(&mut self, flag: &str, value: Option<String>) -> bool {
        let known = self.help.knows(flag);
        if known {
            self.argv.push(flag.to_owned());
            self.argv.extend(value);
        }
        known
    }

    /// Random prompts of the requested lengths. `--random-range-ratio` keeps its default, which
    /// means fixed lengths in every release, while its values changed their meaning in 0.9.
    fn random_dataset(&mut self, load: &Workload) {
        if self.help.offers("--dataset-name", "random") {
            self.ours("--dataset-name", Some("random".to_owned()));
        }
        // Where both are known the long one must be used: its default (1024) beats the short one.
        for (long, short, tokens) in [
            ("--random-input-len", "--input-len", load.input_len),
            ("--random-output-len", "--output-len", load.output_len),
        ] {
            let flag = if self.help.knows(long) { long } else { short };
            self.need(flag, Some(tokens.to_string()));
        }
    }

    /// Seed and engine settings of a bench that runs the engine itself.
    fn engine(&mut self, job: &BenchJob<'_>) {
        self.asked("--seed", job.workload.seed);
        for words in arguments_of(EngineId::Vllm, job.settings) {
            self.need(&words[0], words.get(1).cloned());
        }
    }

    fn no_effect(&mut self, asked: &[(&str, bool)]) {
        let bench = format!("the {} bench", self.kind.as_str());
        self.notes.extend(ignored_notes(&bench, asked));
    }

    fn finish(self, kind: BenchKind, result_path: String) -> Result<BenchPlan, PlanError> {
        if !self.unknown.is_empty() {
            let bench = format!("vllm bench {}", kind.as_str());
            return Err(PlanError::UnknownFlags {
                bench,
                flags: self.unknown.join(", "),
            });
        }
        Ok(BenchPlan {
            argv: self.argv,
            // `serve` loads a server that exists already; only the other benches start an engine.
            env: match kind {
                BenchKind::Serve => Vec::new(),
                _ => own_engine(&result_path),
            },
            result_path,
            notes: self.notes,
            ..BenchPlan::default()
        })
    }
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;
