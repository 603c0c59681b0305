//! Command lines of SGLang's benches, and their progress.
//!
//! `bench_serving` loads a running server; `bench_one_batch` and `bench_offline_throughput` load a
//! model of their own. Since 0.5.15 the code is in `sglang.benchmark`; 0.5.23 removed the old names
//! of the latter two.

use crate::engine::bench::{NUM_PROMPTS, NUM_WARMUPS};
use crate::engine::settings::arguments_of;
use crate::engine::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, EngineId, PlanError, ignored_notes,
};

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

/// A command line in the making.
struct Words<'a> {
    help: Option<&'a str>,
    argv: Vec<String>,
    unknown: Vec<&'static str>,
    notes: Vec<String>,
}

impl Words<'_> {
    fn knows(&self, flag: &str) -> bool {
        self.help.is_none_or(|help| {
            help.match_indices(flag).any(|(at, _)| {
                let next = help[at + flag.len()..].chars().next();
                next.is_none_or(|c| !(c.is_alphanumeric() || c == '-' || c == '_'))
            })
        })
    }

    /// A flag that the request cannot do without.
    fn need(&mut self, flag: &'static str, value: impl ToString) {
        if !self.ours(flag, value) {
            self.unknown.push(flag);
        }
    }

    /// A flag for a value that the user set, if any.
    fn asked(&mut self, flag: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.need(flag, value);
        }
    }

    /// A flag that only improves the bench.
    fn ours(&mut self, flag: &'static str, value: impl ToString) -> bool {
        let known = self.knows(flag);
        if known {
            self.argv.extend([flag.to_owned(), value.to_string()]);
        }
        known
    }

    fn no_effect(&mut self, kind: BenchKind, asked: &[(&str, bool)]) {
        let bench = format!("SGLang's {} bench", kind.as_str());
        self.notes.extend(ignored_notes(&bench, asked));
    }
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
    let mut w = Words {
        help,
        argv: ["python3", "-m", module].map(str::to_owned).to_vec(),
        unknown: Vec::new(),
        notes: Vec::new(),
    };
    if help.is_none() {
        w.notes.push(format!(
            "the flags of the installed `{module}` could not be read; those of 0.5 are assumed"
        ));
    }
    match job.kind {
        BenchKind::Probe => {
            return Err(job.no_such_bench("sglang", crate::engine::NO_PROBE));
        }
        BenchKind::Latency => {
            w.need("--model-path", job.model);
            w.need("--batch-size", load.batch_size.unwrap_or(1));
            w.need("--input-len", load.input_len);
            w.need("--output-len", load.output_len);
            w.need("--result-filename", &result_path);
            w.no_effect(
                job.kind,
                &[
                    ("number of iterations", load.num_iters.is_some()),
                    (
                        "number of warm-up iterations",
                        load.num_iters_warmup.is_some(),
                    ),
                    ("number of prompts", load.num_prompts.is_some()),
                    ("concurrency", load.max_concurrency.is_some()),
                    ("request rate", load.request_rate.is_some()),
                ],
            );
        }
        BenchKind::Throughput => {
            w.need("--model-path", job.model);
            random(&mut w, job);
            w.need("--num-prompts", load.num_prompts.unwrap_or(NUM_PROMPTS));
            w.need("--result-filename", &result_path);
            w.no_effect(
                job.kind,
                &[
                    ("batch size", load.batch_size.is_some()),
                    ("number of iterations", load.num_iters.is_some()),
                    ("concurrency", load.max_concurrency.is_some()),
                    ("request rate", load.request_rate.is_some()),
                ],
            );
        }
        BenchKind::Serve => {
            w.need("--backend", "sglang");
            // Not the server's published port: the bench runs inside the server's container.
            w.need("--host", "127.0.0.1");
            w.need("--port", job.port);
            // It loads the tokenizer of this name; the backend's requests need no name.
            w.need("--model", job.model);
            random(&mut w, job);
            w.need("--num-prompts", load.num_prompts.unwrap_or(NUM_PROMPTS));
            w.asked("--max-concurrency", load.max_concurrency);
            w.asked("--request-rate", load.request_rate);
            match load.num_iters_warmup {
                Some(n) => w.need("--warmup-requests", n),
                None => {
                    w.ours("--warmup-requests", NUM_WARMUPS);
                }
            }
            w.need("--output-file", &result_path);
            if *job.settings != Default::default() || !job.extra_engine_args.is_empty() {
                w.notes.push(
                    "the server is already running; engine settings have no effect".to_owned(),
                );
            }
            w.no_effect(
                job.kind,
                &[
                    ("batch size", load.batch_size.is_some()),
                    ("number of iterations", load.num_iters.is_some()),
                ],
            );
        }
    }
    if job.kind != BenchKind::Serve {
        w.argv
            .extend(arguments_of(EngineId::Sglang, job.settings).concat());
        w.argv.extend(job.extra_engine_args.iter().cloned());
    }
    if !w.unknown.is_empty() {
        return Err(PlanError::UnknownFlags {
            bench: format!("python3 -m {module}"),
            flags: w.unknown.join(", "),
        });
    }
    Ok(BenchPlan {
        argv: w.argv,
        result_path,
        notes: w.notes,
        ..BenchPlan::default()
    })
}

/// Random prompts of the requested lengths. `random` takes its words from a data set that it
/// downloads; `random-ids`, if available, needs none.
fn random(w: &mut Words<'_>, job: &BenchJob<'_>) {
    let offline = w.help.is_some_and(|h| h.contains("random-ids"));
    let name = if offline { "random-ids" } else { "random" };
    w.need("--dataset-name", name);
    if !offline {
        w.notes.push(
            "`--dataset-name random` takes its words from a data set that SGLang downloads"
                .to_owned(),
        );
    }
    w.need("--random-input-len", job.workload.input_len);
    w.need("--random-output-len", job.workload.output_len);
    // Its default draws lengths between one token and the requested ones.
    w.need("--random-range-ratio", "1.0");
    w.asked("--seed", job.workload.seed);
}

/// Reads one output line.
pub fn progress(kind: BenchKind, line: &str) -> Option<BenchProgress> {
    let line = line
        .rsplit(['\r', '\n'])
        .map(str::trim)
        .find(|l| !l.is_empty())?;
    if line.contains("Starting main benchmark run") {
        return Some(BenchProgress::Measuring);
    }
    let begins = |word: &str| line.starts_with(word);
    match kind {
        BenchKind::Serve | BenchKind::Probe => {
            if begins("Starting warmup with") || begins("Starting initial single prompt") {
                return Some(BenchProgress::Warmup);
            }
        }
        BenchKind::Latency | BenchKind::Throughput => {
            if begins("Warmup ...") || begins("Warmup...") {
                return Some(BenchProgress::Warmup);
            }
            // What follows the warm-up of one batch, and what many prompts begin with.
            if begins("Benchmark ...") || begins("Benchmark...") {
                return Some(BenchProgress::Measuring);
            }
        }
    }
    let (percent, rest) = line.split_once('%')?;
    percent.trim().parse::<u8>().ok()?;
    let (done, of) = rest
        .rsplit_once('|')?
        .1
        .split('[')
        .next()?
        .trim()
        .split_once('/')?;
    Some(BenchProgress::Step {
        done: done.trim().parse().ok()?,
        of: of.trim().parse().ok()?,
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
