//! `bench latency` and `bench throughput`: the engine inside the bench's own process. Also what all benches share:
//! statistics, and the result file with its faults.

use crate::args::{Args, Flag, Kind as Value, Spec, Stop};
use crate::faults::{self, Kind};
use crate::json;
use crate::memory::Engine;
use crate::phases::{Phase, Phases, say};
use crate::truth::{self, Truth};
use std::thread;
use std::time::{Duration, Instant};

pub const COMMON: &[Flag] = &[
    Flag::new("input-len", Value::Count, "32", "prompt tokens per request"),
    Flag::new("output-len", Value::Count, "32", "output tokens per request"),
    Flag::optional("output-json", "where to write the result [stdout]"),
];

const GAP: Flag = Flag::new("iter-gap-ms", Value::Count, "50", "pause between iterations, at the steady level");

pub const LATENCY: Spec = Spec {
    usage: "reference-engine bench latency --model NAME [flags]",
    about: "Load, warm up, and time batches; one activation spike each.",
    groups: &[
        truth::FLAGS,
        COMMON,
        &[
            Flag::new("batch-size", Value::Count, "8", "requests per batch; they share a spike and their time"),
            Flag::new("num-iters-warmup", Value::Count, "3", "batches before the timed ones"),
            Flag::new("num-iters", Value::Count, "10", "timed batches"),
            GAP,
        ],
        faults::FLAGS,
    ],
};

pub const THROUGHPUT: Spec = Spec {
    usage: "reference-engine bench throughput --model NAME [flags]",
    about: "Load, warm up, and run prompts one after the other; one activation spike each.",
    groups: &[
        truth::FLAGS,
        COMMON,
        &[
            Flag::new("num-prompts", Value::Count, "10", "timed prompts"),
            Flag::new("num-warmups", Value::Count, "1", "prompts before the timed ones"),
            GAP,
        ],
        faults::FLAGS,
    ],
};

pub fn latency(args: &Args, truth: &Truth, phases: &Phases) -> Result<i32, Stop> {
    let latencies = run(args, truth, phases, args.count("num-iters-warmup")?, args.count("num-iters")?)?;
    let mut sorted = latencies.clone();
    sorted.sort_by(f64::total_cmp);
    let percentiles: Vec<String> = [10, 25, 50, 75, 90, 99]
        .map(|p| format!("\"{p}\": {}", json::number(percentile(&sorted, p as f64))))
        .into_iter()
        .collect();
    let listed: Vec<String> = latencies.iter().map(|&seconds| json::number(seconds)).collect();
    let result = format!(
        "{{\"model_id\": {}, \"batch_size\": {}, \"avg_latency\": {}, \"latencies\": [{}], \"percentiles\": {{{}}}}}\n",
        json::string(&truth.model),
        args.count("batch-size")?,
        json::number(mean(&latencies)),
        listed.join(", "),
        percentiles.join(", ")
    );
    write_result(args, phases, &result)?;
    Ok(0)
}

pub fn throughput(args: &Args, truth: &Truth, phases: &Phases) -> Result<i32, Stop> {
    let requests = args.count("num-prompts")?;
    let elapsed: f64 = run(args, truth, phases, args.count("num-warmups")?, requests)?.iter().sum();
    let tokens = requests * (args.count("input-len")? + args.count("output-len")?);
    let result = format!(
        "{{\"elapsed_time\": {}, \"num_requests\": {requests}, \"total_num_tokens\": {tokens}, \
         \"requests_per_second\": {}, \"tokens_per_second\": {}}}\n",
        json::number(elapsed),
        json::number(requests as f64 / elapsed),
        json::number(tokens as f64 / elapsed)
    );
    write_result(args, phases, &result)?;
    Ok(0)
}

/// The seconds of every timed iteration, the gaps between them aside.
fn run(args: &Args, truth: &Truth, phases: &Phases, warmups: u64, iterations: u64) -> Result<Vec<f64>, Stop> {
    let failed = |why: std::io::Error| Stop::Failed(format!("out of memory: {why}"));
    let gap = Duration::from_millis(args.count("iter-gap-ms")?);
    let decode = Duration::from_micros(truth.token_us) * args.count("output-len")? as u32;
    let iteration = |engine: &Engine| {
        let begin = Instant::now();
        engine.spike().map_err(failed)?;
        thread::sleep(decode);
        let seconds = begin.elapsed().as_secs_f64();
        thread::sleep(gap);
        Ok(seconds)
    };

    phases.banner(&truth.model);
    phases.enter(Phase::Start, "");
    let engine = Engine::load(truth, phases).map_err(failed)?;
    phases.enter(Phase::Ready, "");
    phases.enter(Phase::WarmupStart, "");
    for _ in 0..warmups {
        iteration(&engine)?;
    }
    phases.enter(Phase::WarmupEnd, "");
    phases.enter(Phase::BenchStart, "");
    let mut seconds = Vec::new();
    for n in 1..=iterations {
        phases.iteration(n, iterations);
        seconds.push(iteration(&engine)?);
    }
    phases.enter(Phase::BenchEnd, "");
    Ok(seconds)
}

/// The result file is complete or, where a fault says so, broken or missing.
pub fn write_result(args: &Args, phases: &Phases, result: &str) -> Result<(), Stop> {
    if phases.has(|fault| fault.kind == Kind::NoJson) {
        return Ok(());
    }
    let whole = !phases.has(|fault| fault.kind == Kind::BadJson);
    let text = if whole { result } else { &result[..result.len() * 2 / 3] };
    match args.optional("output-json") {
        None => say(text.trim_end()),
        Some(file) => {
            std::fs::write(file, text).map_err(|why| Stop::Failed(format!("cannot write {file}: {why}")))?;
        }
    }
    Ok(())
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Linear between neighbours, as numpy has it. NaN of nothing.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let at = percent / 100.0 * sorted.len().saturating_sub(1) as f64;
    match (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize)) {
        (Some(below), Some(above)) => below + (above - below) * at.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&values, 50.0), 3.0);
        assert_eq!(percentile(&values, 100.0), 8.0);
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert!(percentile(&[], 50.0).is_nan() && mean(&[]).is_nan());
        assert_eq!(mean(&values), 3.75);
    }
}
