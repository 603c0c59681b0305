//! Benches of engines: what is requested of one, how its command is planned, and what its result
//! file shows. The result files of vLLM's and SGLang's clients have nearly the same keys.

use super::shown_name;
use crate::capture::{RequestedSettings, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use strum::IntoStaticStr;

// The default load: enough to reach the peak of memory, little enough for a CPU. Lengths always come
// from the request.

/// Measured iterations of a latency bench. vLLM's own 30 take long and show no higher memory.
pub const NUM_ITERS: u32 = 10;
/// Warm-up iterations (latency) or requests (serve).
pub const NUM_WARMUPS: u32 = 3;
/// Requests of a throughput or serve bench; vLLM's own are 1000.
pub const NUM_PROMPTS: u32 = 32;

/// A bench of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BenchKind {
    /// Fixed batch, repeated; the engine in the bench's own process.
    Latency,
    /// Many prompts at once; the engine in the bench's own process.
    Throughput,
    /// A client against the running server.
    Serve,
    /// plimsoll's own script in the container, which loads the model and looks from inside.
    Probe,
}

crate::wording::as_written!(BenchKind);

/// What to bench.
#[derive(Debug, Clone)]
pub struct BenchJob<'a> {
    /// Which bench.
    pub kind: BenchKind,
    /// Model: path or id for the in-process benches and the tokenizer.
    pub model: &'a str,
    /// Name under which the server knows it (serve).
    pub served_model_name: Option<&'a str>,
    /// Port of the server, as seen inside the container (serve).
    pub port: u16,
    /// Load.
    pub workload: &'a Workload,
    /// Engine settings (in-process benches).
    pub settings: &'a RequestedSettings,
    /// Extra engine arguments, as given (in-process benches).
    pub extra_engine_args: &'a [String],
    /// Folder inside the container, made for this run; the result file goes here.
    pub workdir: &'a str,
    /// Repeat, from 1.
    pub repeat: u32,
}

impl BenchJob<'_> {
    /// Refuses a bench without a model.
    pub fn check_model(&self) -> Result<(), PlanError> {
        check(
            !self.model.is_empty(),
            "the bench needs a model: its path or id",
        )
    }

    /// Refuses lengths of zero.
    pub fn check_lengths(&self) -> Result<(), PlanError> {
        let given = self.workload.input_len > 0 && self.workload.output_len > 0;
        check(given, "input and output length must be at least one token")
    }

    /// Refuses counts of zero.
    pub fn check_counts(&self) -> Result<(), PlanError> {
        let load = self.workload;
        let counts = [load.num_prompts, load.num_iters, load.batch_size];
        check(
            !counts.contains(&Some(0)),
            "a bench of nothing: prompts, iterations and batch size must be at least 1",
        )
    }

    /// The error for a kind that the engine lacks.
    pub fn no_such_bench(&self, engine: &'static str, reason: &'static str) -> PlanError {
        PlanError::NoSuchBench {
            engine,
            kind: self.kind.as_str(),
            reason,
        }
    }

    /// [`BenchJob::workdir`] without a slash at its end.
    pub fn folder(&self) -> &str {
        self.workdir.trim_end_matches('/')
    }

    /// The name of the result file.
    pub fn result_name(&self, ending: &str) -> String {
        format!("{}-{}.{ending}", self.kind.as_str(), self.repeat)
    }

    /// The path of the result file.
    pub fn result_path(&self, ending: &str) -> String {
        format!("{}/{}", self.folder(), self.result_name(ending))
    }
}

fn check(valid: bool, otherwise: &str) -> Result<(), PlanError> {
    let refusal = || PlanError::Invalid(otherwise.to_owned());
    valid.then_some(()).ok_or_else(refusal)
}

/// A part of what is requested: its name in notes, and whether it was asked for.
pub type RequestedPart = (&'static str, fn(&BenchJob<'_>) -> bool);

/// A fixed batch.
pub const BATCH_SIZE: RequestedPart = ("batch size", |job| job.workload.batch_size.is_some());
/// Measured iterations.
pub const ITERATIONS: RequestedPart = ("number of iterations", |job| {
    job.workload.num_iters.is_some()
});
/// Requests of a bench that has iterations.
pub const PROMPTS: RequestedPart = ("number of prompts", |job| {
    job.workload.num_prompts.is_some()
});
/// The most requests at once.
pub const CONCURRENCY: RequestedPart =
    ("concurrency", |job| job.workload.max_concurrency.is_some());
/// Requests per second.
pub const REQUEST_RATE: RequestedPart = ("request rate", |job| job.workload.request_rate.is_some());
/// A warm-up of at least one iteration.
pub const WARMUP: RequestedPart = ("warm-up", |job| {
    job.workload.num_iters_warmup.is_some_and(|n| n > 0)
});

/// A bench's command line in the making. Flags that the installed bench lacks are not passed.
pub struct BenchLine<'a> {
    job: &'a BenchJob<'a>,
    /// The bench, as notes call it.
    bench: String,
    knows: &'a dyn Fn(&str) -> bool,
    /// The words so far.
    pub argv: Vec<String>,
    unknown: Vec<String>,
    /// [`BenchPlan::notes`] so far.
    pub notes: Vec<String>,
}

impl<'a> BenchLine<'a> {
    /// The line that begins with `program`; `bench` is what notes call it, `knows` whether it has a
    /// flag.
    pub fn new(
        job: &'a BenchJob<'a>,
        bench: String,
        program: &[&str],
        knows: &'a dyn Fn(&str) -> bool,
    ) -> BenchLine<'a> {
        BenchLine {
            job,
            bench,
            knows,
            argv: program.iter().map(|word| (*word).to_owned()).collect(),
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Whether the installed bench has a flag.
    pub fn knows(&self, flag: &str) -> bool {
        (self.knows)(flag)
    }

    /// A flag that the request cannot do without.
    pub fn need(&mut self, flag: &str, value: impl ToString) {
        if !self.ours(flag, value) {
            self.unknown.push(flag.to_owned());
        }
    }

    /// The same without a value.
    pub fn need_switch(&mut self, flag: &str) {
        if !self.our_switch(flag) {
            self.unknown.push(flag.to_owned());
        }
    }

    /// A flag for a value that the user set, if any.
    pub fn asked(&mut self, flag: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.need(flag, value);
        }
    }

    /// The same with a value of ours where the user has none.
    pub fn asked_or(&mut self, flag: &str, value: Option<u32>, ours: u32) {
        match value {
            Some(value) => self.need(flag, value),
            None => {
                self.ours(flag, ours);
            }
        }
    }

    /// A flag that only improves the bench; left out where it is unknown.
    pub fn ours(&mut self, flag: &str, value: impl ToString) -> bool {
        let known = self.our_switch(flag);
        self.argv.extend(known.then(|| value.to_string()));
        known
    }

    /// The same without a value.
    pub fn our_switch(&mut self, flag: &str) -> bool {
        let known = self.knows(flag);
        self.argv.extend(known.then(|| flag.to_owned()));
        known
    }

    /// Notes which of these parts were requested: the bench has none of them.
    pub fn no_effect(&mut self, parts: &[RequestedPart]) {
        for (part, _) in parts.iter().filter(|(_, requested)| requested(self.job)) {
            let note = format!("{} has no {part}; it was ignored", self.bench);
            self.notes.push(note);
        }
    }

    /// The plan of this line. `command` is what an error calls the bench.
    pub fn finish(self, command: &str, result_path: String) -> Result<BenchPlan, PlanError> {
        if !self.unknown.is_empty() {
            return Err(PlanError::UnknownFlags {
                bench: command.to_owned(),
                flags: self.unknown.join(", "),
            });
        }
        Ok(BenchPlan {
            argv: self.argv,
            result_path,
            notes: self.notes,
            ..BenchPlan::default()
        })
    }
}

/// A command to run inside the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BenchPlan {
    /// Arguments; never a shell string.
    pub argv: Vec<String>,
    /// Environment beyond the container's own.
    pub env: Vec<(String, String)>,
    /// The file inside the container that the bench will write.
    pub result_path: String,
    /// Requested settings that this release does not support; sentences.
    pub notes: Vec<String>,
    /// Files to lay into [`BenchJob::workdir`] before it runs.
    pub files: Vec<PlannedFile>,
}

/// A file that a bench needs in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlannedFile {
    /// Name in the folder of the run.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Why an engine has no [`BenchKind::Probe`].
pub const NO_PROBE: &str = "the probe loads a model by transformers itself: --engine transformers";

/// Why a bench cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The installed bench does not know the flag that the request needs.
    #[error(
        "`{bench}` of this engine's version has no {flags}; leave that out, or use --bench builtin"
    )]
    UnknownFlags {
        /// The bench's command.
        bench: String,
        /// The flags, comma separated.
        flags: String,
    },
    /// The engine has no such bench.
    #[error("engine `{}` has no {kind} bench: {reason}", shown_name(engine))]
    NoSuchBench {
        /// The engine.
        engine: &'static str,
        /// The requested kind.
        kind: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The image lacks something that the bench needs; a sentence.
    #[error("{0}")]
    Lacking(String),
    /// The request is contradictory or incomplete.
    #[error("{0}")]
    Invalid(String),
}

/// Why a bench's result could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not JSON, or cut off.
    #[error("the bench wrote a result that is not JSON, so its figures are unknown: {0}")]
    Json(String),
    /// JSON without a required key.
    #[error(
        "the bench's result has no `{0}`: its release may name it otherwise. Use --bench builtin"
    )]
    Missing(&'static str),
}

/// What a bench measured. Unknown is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchResult {
    /// Mean latency of a batch (latency bench) or of a request end to end (serve), milliseconds.
    pub mean_latency_ms: Option<f64>,
    /// Percentiles of the same, milliseconds: `p10` … `p99`, `median`.
    pub latency_percentiles_ms: BTreeMap<String, f64>,
    /// Each measured latency, milliseconds, where the bench lists them.
    pub latencies_ms: Vec<f64>,
    /// Generated tokens per second.
    pub output_tokens_per_second: Option<f64>,
    /// Prompt and generated tokens per second.
    pub total_tokens_per_second: Option<f64>,
    /// Requests per second.
    pub requests_per_second: Option<f64>,
    /// Duration of the measured part, seconds.
    pub duration_s: Option<f64>,
    /// Requests that succeeded.
    pub completed: Option<u64>,
    /// Requests that failed.
    pub failed: Option<u64>,
    /// Prompt tokens in all.
    pub total_input_tokens: Option<u64>,
    /// Generated tokens in all.
    pub total_output_tokens: Option<u64>,
    /// Time to first token, milliseconds: `mean`, `median`, `p99`, ….
    pub ttft_ms: BTreeMap<String, f64>,
    /// Time per output token after the first, milliseconds.
    pub tpot_ms: BTreeMap<String, f64>,
    /// Inter-token latency, milliseconds.
    pub itl_ms: BTreeMap<String, f64>,
    /// End-to-end latency, milliseconds.
    pub e2el_ms: BTreeMap<String, f64>,
}

/// A step of the bench, seen in its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchProgress {
    /// The bench's warm-up begins: the engine inside is loaded.
    Warmup,
    /// The measured part begins.
    Measuring,
    /// The measured part is over; what follows is not load.
    Over,
    /// Progress in iterations or requests.
    Step {
        /// Done so far.
        done: u64,
        /// Total.
        of: u64,
    },
}

/// How a bench's progress is recognised in an output line.
pub enum ProgressSign {
    /// A line that begins so begins the part.
    Begins(&'static str, BenchProgress),
    /// A line with the text begins the part.
    Holds(&'static str, BenchProgress),
    /// The bar of this name begins the part while it is at 0, and is ignored afterwards.
    AtZero(&'static str, BenchProgress),
    /// The bar of this name begins the measured part at 0, and reports its steps afterwards.
    Steps(&'static str),
    /// A bar without a name reports steps.
    UnnamedSteps,
}

/// Reads one output line by the first of the signs that it has.
pub fn progress_of(line: &str, signs: &[ProgressSign]) -> Option<BenchProgress> {
    // A bar redraws itself after a carriage return: only its last state counts.
    let mut states = line.rsplit(['\r', '\n']).map(str::trim);
    let line = states.find(|state| !state.is_empty())?;
    // Bars go to stderr and can be glued to what stdout left unfinished.
    let bar_of = |name: &str| Some(&line[line.rfind(name)? + name.len()..]);
    for sign in signs {
        match sign {
            ProgressSign::Begins(text, part) if line.starts_with(text) => return Some(*part),
            ProgressSign::Holds(text, part) if line.contains(text) => return Some(*part),
            ProgressSign::Begins(..) | ProgressSign::Holds(..) => {}
            ProgressSign::AtZero(name, part) => {
                if let Some(bar) = bar_of(name) {
                    return (bar_counts(bar)?.0 == 0).then_some(*part);
                }
            }
            ProgressSign::Steps(name) => {
                if let Some(bar) = bar_of(name) {
                    return Some(match bar_counts(bar)? {
                        (0, _) => BenchProgress::Measuring,
                        (done, of) => BenchProgress::Step { done, of },
                    });
                }
            }
            ProgressSign::UnnamedSteps => {
                let (done, of) = bar_counts(line)?;
                return Some(BenchProgress::Step { done, of });
            }
        }
    }
    None
}

/// ` 20%|██        | 1/5 [00:00<00:02,  1.91it/s]` → 1 of 5.
fn bar_counts(bar: &str) -> Option<(u64, u64)> {
    let (percent, rest) = bar.split_once('%')?;
    percent.trim().parse::<u8>().ok()?;
    let counts = rest.rsplit_once('|')?.1.split('[').next()?;
    let (done, of) = counts.trim().split_once('/')?;
    Some((done.trim().parse().ok()?, of.trim().parse().ok()?))
}

/// `key=value` words of a line of plimsoll's own programs, from `mark` on, which ends in `phase=`.
pub fn phase_words<'a>(line: &'a str, mark: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let text = line.find(mark).map_or("", |at| &line[at..]);
    let words = text.split_whitespace().skip(1);
    words.filter_map(|word| word.split_once('='))
}

/// Reads one such line: the part that each phase begins, and the phase that reports `n=` of `of=`.
pub fn phase_progress(
    line: &str,
    mark: &str,
    parts: &[(&str, BenchProgress)],
    step: &str,
) -> Option<BenchProgress> {
    let word = |key: &str| phase_words(line, mark).find_map(|(k, v)| (k == key).then_some(v));
    let phase = word("phase")?;
    if phase == step {
        return Some(BenchProgress::Step {
            done: word("n")?.parse().ok()?,
            of: word("of")?.parse().ok()?,
        });
    }
    let part = parts.iter().find(|(name, _)| *name == phase);
    part.map(|(_, part)| *part)
}

/// A result file's JSON object.
pub type Object = Map<String, Value>;

/// The value of a JSON number that is not negative.
pub fn figure(value: &Value) -> Option<f64> {
    value.as_f64().filter(|v| v.is_finite() && *v >= 0.0)
}

/// The non-negative number under `key` of a value that may be no object.
pub fn figure_at(value: &Value, key: &str) -> Option<f64> {
    figure(value.get(key)?)
}

/// The non-negative number under `key`.
pub fn number(object: &Object, key: &str) -> Option<f64> {
    figure(object.get(key)?)
}

/// The unsigned integer under `key`.
pub fn count(object: &Object, key: &str) -> Option<u64> {
    object.get(key)?.as_u64()
}

/// A number that every release writes. Null (NaN in the engine) is unknown; an absent key or
/// another type is an error: the file is not such a result.
pub fn required(object: &Object, key: &'static str) -> Result<Option<f64>, ReadError> {
    match object.get(key) {
        Some(Value::Null) => Ok(None),
        Some(value @ Value::Number(_)) => Ok(figure(value)),
        _ => Err(ReadError::Missing(key)),
    }
}

/// Whether a text is a percentile's number, 0 to 100.
fn is_percent(text: &str) -> bool {
    text.parse::<f64>()
        .is_ok_and(|p| (0.0..=100.0).contains(&p))
}

/// Percentiles by name, `p50` or `50`, times `scale` as milliseconds, and the median; what a bench
/// writes beside them (`average`) is left out.
pub fn percentiles(object: Option<&Value>, scale: f64) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for (name, value) in object.and_then(Value::as_object).into_iter().flatten() {
        let percent = name.strip_prefix(['p', 'P']).unwrap_or(name);
        if let (true, Some(value)) = (is_percent(percent), figure(value)) {
            found.insert(format!("p{percent}"), value * scale);
        }
    }
    if let Some(median) = found.get("p50").copied() {
        found.insert("median".to_owned(), median);
    }
    found
}

/// Reads a client's serving result; latencies in milliseconds. `total` is its key for total tokens
/// per second, `whole` its name for end-to-end latency.
///
/// # Errors
/// A key that every such result has is missing.
pub fn served(object: &Object, total: &str, whole: &str) -> Result<BenchResult, ReadError> {
    let duration = required(object, "duration")?;
    required(object, "completed")?;
    let completed = count(object, "completed");
    let mut result = BenchResult {
        duration_s: duration,
        completed,
        failed: count(object, "num_prompts").and_then(|asked| asked.checked_sub(completed?)),
        total_input_tokens: count(object, "total_input_tokens"),
        total_output_tokens: count(object, "total_output_tokens"),
        requests_per_second: number(object, "request_throughput"),
        output_tokens_per_second: number(object, "output_throughput"),
        total_tokens_per_second: number(object, total).or_else(|| {
            // Early releases gave the two halves.
            Some(number(object, "input_throughput")? + number(object, "output_throughput")?)
        }),
        ..BenchResult::default()
    };
    if completed == Some(0) {
        // Nothing was measured: zeros written then are not latencies.
        return Ok(result);
    }
    for (key, value) in object {
        let Some((statistic, metric)) = key.strip_suffix("_ms").and_then(|k| k.split_once('_'))
        else {
            continue;
        };
        let known = matches!(statistic, "mean" | "median" | "std")
            || statistic.strip_prefix('p').is_some_and(is_percent);
        let (true, Some(value)) = (known, figure(value)) else {
            continue;
        };
        let group = match metric {
            "ttft" => &mut result.ttft_ms,
            "tpot" => &mut result.tpot_ms,
            "itl" => &mut result.itl_ms,
            metric if metric == whole => &mut result.e2el_ms,
            _ => continue,
        };
        group.insert(statistic.to_owned(), value);
    }
    result.mean_latency_ms = result.e2el_ms.get("mean").copied();
    result.latency_percentiles_ms = result.e2el_ms.clone();
    result
        .latency_percentiles_ms
        .retain(|k, _| k.starts_with('p') || k == "median");
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BenchResult, ReadError> {
        let Value::Object(object) = serde_json::from_str(text).unwrap() else {
            panic!("no object: {text}");
        };
        served(&object, "all_throughput", "whole")
    }

    #[test]
    fn a_client() {
        let r = read(
            r#"{"duration":2.0,"completed":3,"num_prompts":4,"all_throughput":9.0,"mean_whole_ms":5.0,
                "p99_whole_ms":7.0,"std_whole_ms":1.0,"p101_ttft_ms":1.0,"mean_ttft_ms":-1.0,"median_itl_ms":2.0}"#,
        )
        .unwrap();
        assert_eq!((r.failed, r.total_tokens_per_second), (Some(1), Some(9.0)));
        assert_eq!(r.mean_latency_ms, Some(5.0));
        assert_eq!(r.e2el_ms.len(), 3);
        let percentiles: Vec<&String> = r.latency_percentiles_ms.keys().collect();
        assert_eq!(percentiles, ["p99"]);
        assert!(r.ttft_ms.is_empty(), "{:?}", r.ttft_ms);
        assert_eq!(r.itl_ms["median"], 2.0);
    }

    #[test]
    fn nothing_completed_is_no_latency() {
        let r = read(r#"{"duration":null,"completed":0,"mean_ttft_ms":0.0}"#).unwrap();
        assert_eq!((r.duration_s, r.completed, r.failed), (None, Some(0), None));
        assert!(r.ttft_ms.is_empty());
        assert_eq!(read("{}"), Err(ReadError::Missing("duration")));
        assert_eq!(
            read(r#"{"duration":1.0,"completed":"3"}"#),
            Err(ReadError::Missing("completed"))
        );
    }
}
