//! The command line of `vllm bench` for the installed release and the requested load, and its progress by its output:
//! plain lines and tqdm bars.

use super::help::{Help, refused};
use crate::capture::Workload;
use crate::engine::bench::ProgressSign::{self, AtZero, Begins, Holds, Steps, UnnamedSteps};
use crate::engine::bench::{
    BATCH_SIZE, BenchLine, CONCURRENCY, ITERATIONS, NUM_ITERS, NUM_PROMPTS, NUM_WARMUPS, PROMPTS,
    REQUEST_RATE, WARMUP, progress_of,
};
use crate::engine::settings::arguments_of;
use crate::engine::{BenchJob, BenchKind, BenchPlan, BenchProgress, EngineId, PlanError};

/// Plans a bench. `help` is the help output of the installed bench.
pub fn plan(job: &BenchJob<'_>, help: Option<&str>) -> Result<BenchPlan, PlanError> {
    check(job)?;
    if help.is_some_and(|text| refused(job.kind, text)) {
        return Err(PlanError::Invalid(format!(
            "the installed vLLM has no `vllm bench {}`; it came with 0.8.5",
            job.kind.as_str()
        )));
    }
    let command = format!("vllm bench {}", job.kind.as_str());
    let read = help.and_then(Help::read);
    let is_read = read.is_some();
    let help = read.unwrap_or(Help::Newest);
    let knows = |flag: &str| help.knows(flag);
    let bench = format!("the {} bench", job.kind.as_str());
    let mut line = BenchLine::new(job, bench, &["vllm", "bench", job.kind.as_str()], &knows);
    if !is_read {
        line.notes.push(format!(
            "the flags of the installed `{command}` could not be read; those of 0.32 are assumed"
        ));
    }
    match job.kind {
        BenchKind::Latency => latency(job, &mut line),
        BenchKind::Throughput => throughput(job, &help, &mut line),
        BenchKind::Serve => serve(job, &help, &mut line),
        BenchKind::Probe => {
            return Err(job.no_such_bench("vllm", crate::engine::NO_PROBE));
        }
    }
    let result_path = job.result_path("json");
    // `serve` loads a server that exists already; only the other benches start an engine.
    let env = if job.kind == BenchKind::Serve {
        line.need_switch("--save-result");
        line.need("--result-dir", job.folder());
        line.need("--result-filename", job.result_name("json"));
        Vec::new()
    } else {
        line.need("--output-json", &result_path);
        line.argv.extend(job.extra_engine_args.iter().cloned());
        own_engine(&result_path)
    };
    let plan = line.finish(&command, result_path)?;
    Ok(BenchPlan { env, ..plan })
}

/// The environment of an engine within the bench. Its sockets and compiled kernels go where the
/// result goes, and go with it: in the container's `/tmp` they would stay.
fn own_engine(result_path: &str) -> Vec<(String, String)> {
    let folder = result_path.rsplit_once('/').map(|(folder, _)| folder);
    let variables = super::DEBUG_LOG.iter().copied();
    variables
        .chain(folder.map(|folder| ("TMPDIR", folder)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
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

fn latency(job: &BenchJob<'_>, line: &mut BenchLine<'_>) {
    let load = job.workload;
    line.need("--model", job.model);
    line.need("--input-len", load.input_len);
    line.need("--output-len", load.output_len);
    line.asked("--batch-size", load.batch_size);
    line.asked_or("--num-iters", load.num_iters, NUM_ITERS);
    line.asked_or("--num-iters-warmup", load.num_iters_warmup, NUM_WARMUPS);
    engine(job, line);
    line.no_effect(&[PROMPTS, CONCURRENCY, REQUEST_RATE]);
}

fn throughput(job: &BenchJob<'_>, help: &Help, line: &mut BenchLine<'_>) {
    let load = job.workload;
    line.need("--model", job.model);
    random_dataset(load, help, line);
    line.asked_or("--num-prompts", load.num_prompts, NUM_PROMPTS);
    // Most releases have none here, and the requested load is the same without.
    if line.knows("--num-warmups") {
        line.asked("--num-warmups", load.num_iters_warmup.filter(|n| *n > 0));
    } else {
        line.no_effect(&[WARMUP]);
    }
    engine(job, line);
    line.no_effect(&[BATCH_SIZE, ITERATIONS, CONCURRENCY, REQUEST_RATE]);
}

fn serve(job: &BenchJob<'_>, help: &Help, line: &mut BenchLine<'_>) {
    let load = job.workload;
    let backend = if line.knows("--backend") {
        "--backend"
    } else {
        "--endpoint-type"
    };
    // Some early releases call the same client by the engine's name.
    let client = if help.offers(backend, "openai") {
        "openai"
    } else {
        "vllm"
    };
    line.need(backend, client);
    // Not the server's published port: the bench runs inside the server's container.
    line.need("--base-url", format!("http://127.0.0.1:{}", job.port));
    line.need("--endpoint", "/v1/completions");
    match job.served_model_name.filter(|name| *name != job.model) {
        Some(name) if line.knows("--served-model-name") => {
            line.need("--model", job.model);
            line.need("--served-model-name", name);
        }
        Some(name) => {
            line.need("--model", name);
            line.need("--tokenizer", job.model);
        }
        None => line.need("--model", job.model),
    }
    let trusts = |a: &&String| *a == "--trust-remote-code";
    if job.extra_engine_args.iter().any(|a| trusts(&a)) {
        // The tokenizer of such a model is code as well.
        line.our_switch("--trust-remote-code");
    }
    random_dataset(load, help, line);
    line.asked_or("--num-prompts", load.num_prompts, NUM_PROMPTS);
    line.asked("--max-concurrency", load.max_concurrency);
    line.asked("--request-rate", load.request_rate);
    match load.num_iters_warmup {
        Some(0) => {}
        Some(n) => line.need("--num-warmups", n),
        None if line.ours("--num-warmups", NUM_WARMUPS) => {}
        None => line
            .notes
            .push("this release has no warm-up requests but its one test request".to_owned()),
    }
    // The output length is a length and not a limit.
    line.our_switch("--ignore-eos");
    line.asked("--seed", load.seed);
    line.ours("--percentile-metrics", "ttft,tpot,itl,e2el");
    line.ours("--metric-percentiles", "50,90,95,99");
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
    line.no_effect(&[BATCH_SIZE, ITERATIONS]);
}

/// Random prompts of the requested lengths. `--random-range-ratio` keeps its default, which means
/// fixed lengths in every release, while its values changed their meaning in 0.9.
fn random_dataset(load: &Workload, help: &Help, line: &mut BenchLine<'_>) {
    if help.offers("--dataset-name", "random") {
        line.ours("--dataset-name", "random");
    }
    // Where both are known the long one must be used: its default (1024) beats the short one.
    for (long, short, tokens) in [
        ("--random-input-len", "--input-len", load.input_len),
        ("--random-output-len", "--output-len", load.output_len),
    ] {
        let flag = if line.knows(long) { long } else { short };
        line.need(flag, tokens);
    }
}

/// Seed and engine settings of a bench that runs the engine itself.
fn engine(job: &BenchJob<'_>, line: &mut BenchLine<'_>) {
    line.asked("--seed", job.workload.seed);
    for words in arguments_of(EngineId::Vllm, job.settings) {
        match words.get(1) {
            Some(value) => line.need(&words[0], value),
            None => line.need_switch(&words[0]),
        }
    }
}

const LATENCY: &[ProgressSign] = &[
    Begins("Warming up...", BenchProgress::Warmup),
    AtZero("Warmup iterations:", BenchProgress::Warmup),
    Steps("Bench iterations:"),
];

const THROUGHPUT: &[ProgressSign] = &[
    // Adding and rendering prompts is in the measured time already.
    AtZero("Rendering prompts:", BenchProgress::Measuring),
    AtZero("Adding requests:", BenchProgress::Measuring),
    Steps("Processed prompts:"),
];

#[rustfmt::skip]
const SERVE: &[ProgressSign] = &[
    // Some releases end the first sentence and begin the second on one line.
    Holds("Starting main benchmark run", BenchProgress::Measuring),
    Begins("Starting initial single prompt test run", BenchProgress::Warmup),
    Begins("Warming up with ", BenchProgress::Warmup),
    // The bar of the warm-up requests looks the same: steps count only after the measured part has
    // begun.
    UnnamedSteps,
];

/// The part that the line begins, or the step it reports.
pub fn read_progress(kind: BenchKind, line: &str) -> Option<BenchProgress> {
    let signs = match kind {
        BenchKind::Latency => LATENCY,
        BenchKind::Throughput => THROUGHPUT,
        BenchKind::Serve => SERVE,
        BenchKind::Probe => return None,
    };
    progress_of(line, signs)
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;

#[cfg(test)]
mod progress_tests {
    use super::*;
    use BenchProgress::{Measuring, Step, Warmup};
    use proptest::prelude::*;

    #[test]
    fn latency_lines() {
        let read = |line| read_progress(BenchKind::Latency, line);
        assert_eq!(read("Warming up..."), Some(Warmup));
        assert_eq!(
            read("Warmup iterations:   0%|          | 0/2 [00:00<?, ?it/s]"),
            Some(Warmup)
        );
        assert_eq!(
            read("Warmup iterations:  50%|█████     | 1/2 [00:00<00:00,  1.94it/s]"),
            None
        );
        assert_eq!(
            read("Bench iterations:   0%|          | 0/5 [00:00<?, ?it/s]"),
            Some(Measuring)
        );
        assert_eq!(
            read("Bench iterations:  20%|██        | 1/5 [00:00<00:02,  1.91it/s]"),
            Some(Step { done: 1, of: 5 })
        );
        let redrawn = "Bench iterations:   0%|          | 0/5 [00:00<?]\r\rBench iterations: 100%|██████████| 5/5 [00:02<00:00]\r\n";
        assert_eq!(read(redrawn), Some(Step { done: 5, of: 5 }));
        assert_eq!(
            read(
                "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 45.42it/s]"
            ),
            None
        );
        assert_eq!(read("Avg latency: 0.53 seconds"), None);
    }

    #[test]
    fn throughput_lines() {
        let read = |line| read_progress(BenchKind::Throughput, line);
        assert_eq!(
            read("Rendering prompts:   0%|          | 0/40 [00:00<?, ?it/s]"),
            Some(Measuring)
        );
        assert_eq!(
            read("Rendering prompts:  80%|████████  | 32/40 [00:00<00:00, 312.47it/s]"),
            None
        );
        assert_eq!(
            read(
                "Processed prompts:   0%|          | 0/40 [00:00<?, ?it/s, est. speed input: 0.00 toks/s, output: 0.00 toks/s]"
            ),
            Some(Measuring)
        );
        assert_eq!(
            read(
                "Processed prompts: 100%|██████████| 40/40 [00:05<00:00,  4.98s/it, est. speed input: 505.70 toks/s]"
            ),
            Some(Step { done: 40, of: 40 })
        );
    }

    #[test]
    fn serve_lines() {
        let read = |line| read_progress(BenchKind::Serve, line);
        assert_eq!(
            read("Starting initial single prompt test run..."),
            Some(Warmup)
        );
        assert_eq!(read("Warming up with 3 requests..."), Some(Warmup));
        assert_eq!(read("Starting main benchmark run..."), Some(Measuring));
        assert_eq!(
            read("Initial test run completed. Starting main benchmark run..."),
            Some(Measuring)
        );
        assert_eq!(
            read(" 22%|██▎       | 9/40 [00:02<00:06,  5.05it/s]"),
            Some(Step { done: 9, of: 40 })
        );
        assert_eq!(read("10% off | 1/2 [x"), Some(Step { done: 1, of: 2 }));
        assert_eq!(
            read("Capturing CUDA graphs: 10%|█ | 1/2 [00:02<00:06]"),
            None
        );
        assert_eq!(read(""), None);
    }

    /// The steps for a follower that hands over every state of a bar.
    fn states(kind: BenchKind, output: &str) -> Vec<BenchProgress> {
        output
            .split(['\r', '\n'])
            .filter_map(|line| read_progress(kind, line))
            .collect()
    }

    #[test]
    fn whole_benches() {
        let shown = states(
            BenchKind::Latency,
            include_str!("../../../tests/fixtures/vllm/bench-output/latency.log"),
        );
        assert_eq!(
            shown[..4],
            [Warmup, Warmup, Measuring, Step { done: 1, of: 5 }]
        );
        assert_eq!(shown.last(), Some(&Step { done: 5, of: 5 }));
        let shown = states(
            BenchKind::Throughput,
            include_str!("../../../tests/fixtures/vllm/bench-output/throughput.log"),
        );
        assert_eq!(shown[..3], [Measuring, Measuring, Step { done: 1, of: 40 }]);
        assert_eq!(shown.last(), Some(&Step { done: 40, of: 40 }));
        let shown = states(
            BenchKind::Serve,
            include_str!("../../../tests/fixtures/vllm/bench-output/serve.log"),
        );
        assert_eq!(shown[..3], [Warmup, Measuring, Step { done: 0, of: 40 }]);
        assert_eq!(shown.last(), Some(&Step { done: 40, of: 40 }));
    }

    proptest! {
        #[test]
        fn never_panics(line in "\\PC{0,40}|(Bench iterations: |Processed prompts: )?[0-9%|/ \\[\r]{0,30}") {
            for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
                read_progress(kind, &line);
            }
        }
    }
}
