//! What plimsoll knows about inference engines: text in, values out. No I/O, no clock.
//!
//! A new engine is one new file (or folder) here and one line in [`EngineId`]'s list.

pub mod argv;
pub mod bench_figures;
mod builtin;
pub mod causes;
pub mod command;
pub mod cuda_graphs;
pub mod defaults;
pub mod endpoints;
pub mod facts;
mod id;
pub mod limits;
pub mod lines;
pub mod llama_cpp;
pub mod log;
pub mod ollama;
pub mod process;
pub mod prometheus;
pub mod queueing;
pub mod reference;
pub mod same;
pub mod settings;
pub mod sglang;
pub mod tensorrt_llm;
pub mod tgi;
pub mod torch_probe;
#[cfg(test)]
mod toy;
pub mod transformers;
pub mod vllm;

pub use builtin::{Dialect, LoadKind, read_builtin, read_builtin_notes};
pub use id::{EngineId, UnknownEngine};

use crate::capture::{AtNs, ContainerFacts, Probe, RequestedSettings, Workload};
use facts::LogReport;
use limits::LoadLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A fresh parser for `engine`'s log, with or without a carrier's wrapping.
pub fn parser_of(engine: EngineId) -> Box<dyn LogParser> {
    Box::new(log::unwrap::Unwrapped::new(engine.log_parser()))
}

/// The engine of a container: the first with its server as process 1, else the first recognised by
/// other signs (an image of one engine can run another).
pub fn recognise(facts: &ContainerFacts) -> Option<(EngineId, Recognition)> {
    let mut present = None;
    for engine in EngineId::ALL.iter().copied() {
        match engine.recognise(facts) {
            Some(seen) if seen.serving => return Some((engine, seen)),
            seen => present = present.or(seen.map(|seen| (engine, seen))),
        }
    }
    present
}

/// Everything plimsoll knows about one engine.
pub trait Engine: Sync {
    /// The name in flags and documents: `vllm`.
    fn name(&self) -> &'static str;

    /// Other names that people give it in `--engine`.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the engine is simulated (the reference engine); every output marks it so.
    fn simulated(&self) -> bool {
        false
    }

    /// Arguments that disable CUDA graphs, if the engine has such.
    fn without_graphs(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// The engine that `estimate` models this one as: itself, or its runner. `None`: no memory
    /// model is known.
    fn estimated_as(&self) -> Option<EngineId> {
        None
    }

    /// What limits its concurrent requests.
    fn load_limits(&self) -> LoadLimits {
        LoadLimits::UNKNOWN
    }

    /// Images with the engine's versions as tags; tags of other images are their makers' own.
    fn release_images(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it uses every visible GPU unless configured otherwise.
    fn takes_all_gpus(&self) -> bool {
        false
    }

    /// Recognises the engine in a container by command, image and labels.
    fn recognise(&self, facts: &ContainerFacts) -> Option<Recognition>;

    /// Settings in the command and environment of process 1.
    fn settings(&self, facts: &ContainerFacts) -> ServerSettings;

    /// Default port inside the container.
    fn default_port(&self) -> u16 {
        8000
    }

    /// Paths to GET from a serving engine, in order of use.
    fn endpoints(&self) -> &'static [&'static str];

    /// Paths that only this engine answers, each with a text that its reply contains; they identify
    /// a server that its command does not.
    fn identity(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Endpoint polled every second under load; `None` if there is none, or if reading it drains
    /// data that other clients need.
    fn gauges_endpoint(&self) -> Option<&'static str> {
        self.endpoints().iter().copied().find(|p| *p == "/metrics")
    }

    /// Name of the histogram of queueing time in the metrics, seconds; `None` for an engine without
    /// one.
    fn queue_histogram(&self) -> Option<&'static str> {
        None
    }

    /// Reads the endpoints' replies.
    fn read_probes(&self, probes: &[Probe]) -> ProbeFacts;

    /// Words that only this engine's log lines contain, at least four bytes each and at most 64:
    /// they identify a log of unknown origin ([`log::auto`]).
    fn log_marks(&self) -> &'static [&'static str];

    /// The marks that decide against an engine with the same lines (Ollama against its runner,
    /// llama.cpp): a line with one counts twice.
    fn own_log_marks(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the log of a running engine lacks about memory, and how to enable it: one sentence.
    /// `on_gpu`: its memory is a GPU's.
    fn untold(&self, _log: &LogReport, _on_gpu: bool) -> Option<&'static str> {
        None
    }

    /// Fraction of a GPU's memory that this release takes by default.
    fn default_memory_fraction(&self, _version: &str) -> Option<f64> {
        None
    }

    /// A fresh parser for this engine's log, without its carrier: see [`parser_of`].
    fn log_parser(&self) -> Box<dyn LogParser>;

    /// The default load generator. An engine without a usable bench answers [`LoadKind::Builtin`]
    /// for a serving container.
    fn default_bench(&self, serving: bool) -> LoadKind {
        if serving {
            LoadKind::Serve
        } else {
            LoadKind::Latency
        }
    }

    /// Protocol of plimsoll's load client for this engine's servers.
    fn dialect(&self) -> Dialect {
        Dialect::Completions
    }

    /// The command that prints the flags of the installed bench; runs before [`Engine::bench`].
    fn bench_help(&self, kind: BenchKind) -> Option<Vec<String>>;

    /// A second command for the case that the first prints no flags. `first` is the first one's
    /// output, stdout and stderr; it is empty if the image lacks the program. `None` if the first
    /// answer suffices or no other command helps.
    fn bench_help_again(&self, _kind: BenchKind, _first: &str) -> Option<Vec<String>> {
        None
    }

    /// The command that runs the bench. `help` is the output of [`Engine::bench_help`], or that of
    /// [`Engine::bench_help_again`] where it was asked.
    fn bench(&self, job: &BenchJob<'_>, help: Option<&str>) -> Result<BenchPlan, PlanError>;

    /// The program of a bench client that is a Python script and may run many times in one process:
    /// only its imports persist between runs. `None`: each run needs its own process.
    fn kept_program(&self, _kind: BenchKind) -> Option<&'static str> {
        None
    }

    /// Reads the bench's result file.
    fn read_bench(&self, kind: BenchKind, result: &str) -> Result<BenchResult, ReadError>;

    /// Memory as a probe inside the engine's process measured it, if the bench is one.
    fn read_memory(&self, _kind: BenchKind, _result: &str) -> Option<torch_probe::TorchReport> {
        None
    }

    /// The part of the bench's run that an output line begins, if any. A beginning may be reported
    /// several times, and the first counts; steps count only after the measured part has begun. A
    /// line may contain several states of one progress bar, separated by carriage returns.
    fn bench_progress(&self, kind: BenchKind, line: &str) -> Option<BenchProgress>;

    /// Command and environment that make a container of this engine serve (`plimsoll run`).
    fn serve(&self, job: &ServeJob<'_>) -> ServePlan;

    /// The words before [`ServePlan::cmd`] where no image's entrypoint supplies them.
    fn program(&self) -> &'static [&'static str] {
        &[]
    }

    /// The whole command of a server in a container that waits idly.
    fn serve_argv(&self, job: &ServeJob<'_>) -> Vec<String> {
        let program = self.program().iter().map(|w| (*w).to_owned());
        program.chain(self.serve(job).cmd).collect()
    }

    /// Entrypoint and command that make a container of its image wait idly.
    fn idle(&self) -> (Option<Vec<String>>, Vec<String>) {
        (Some(vec!["sleep".to_owned()]), vec!["infinity".to_owned()])
    }
}

/// Why a container was attributed to an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognition {
    /// What was seen, as a sentence.
    pub evidence: String,
    /// Whether process 1 is the engine's server. False for an idle container with the engine in it.
    pub serving: bool,
}

/// What command and environment of a server say. `None` is the engine's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSettings {
    /// Port that it listens on.
    pub port: Option<u16>,
    /// Address that it binds.
    pub host: Option<String>,
    /// Path or name of the model.
    pub model: Option<String>,
    /// Name under which requests ask for it.
    pub served_model_name: Option<String>,
    /// Whether clients need a key. The key itself is never kept.
    pub needs_api_key: bool,
    /// Settings in the field's words: flag name with underscores → value as text.
    pub values: BTreeMap<String, String>,
}

/// What the endpoints of a running engine say. Unknown is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeFacts {
    /// `/version`.
    pub engine_version: Option<String>,
    /// Model path or id.
    pub model: Option<String>,
    /// Name under which requests ask for it.
    pub served_model_name: Option<String>,
    /// Longest sequence, tokens.
    pub max_model_len: Option<u64>,
    /// Tokens per KV block.
    pub block_size: Option<u64>,
    /// Blocks in the KV pool (one engine; data-parallel pools are summed).
    pub num_gpu_blocks: Option<u64>,
    /// Blocks swapped to host memory, where the engine has such.
    pub num_cpu_blocks: Option<u64>,
    /// Tokens that the KV pool holds.
    pub kv_cache_tokens: Option<u64>,
    /// Bytes of the KV pool on one device of each engine, where the engine says so
    /// (data-parallel pools are summed).
    pub kv_cache_bytes: Option<u64>,
    /// Share of the KV pool in use, 0 to 1.
    pub kv_cache_usage: Option<f64>,
    /// KV type, the engine's own word.
    pub kv_cache_dtype: Option<String>,
    /// Share of device memory the engine may take.
    pub gpu_memory_utilization: Option<f64>,
    /// Preemptions since the start.
    pub preemptions: Option<u64>,
    /// Requests running.
    pub requests_running: Option<u64>,
    /// Requests waiting.
    pub requests_waiting: Option<u64>,
    /// Every other setting read back, the engine's own words.
    pub values: BTreeMap<String, String>,
}

/// An incremental reader of an engine's log.
pub trait LogParser: Send {
    /// Takes one line without its newline. Must be cheap for irrelevant lines, use bounded memory,
    /// and never panic, whatever the bytes.
    fn line(&mut self, line: &[u8], at: Option<AtNs>);

    /// Milestones passed so far. Cheap: called after every line of a running engine.
    fn steps_seen(&self) -> usize;

    /// The report on the lines so far.
    fn report(&self) -> LogReport;

    /// The line that best explains why the engine failed to start or died, if one was seen: the
    /// root cause, not the last wrapper.
    fn root_cause(&self) -> Option<String>;

    /// Whether the engine reported that it is ready to serve.
    fn ready(&self) -> bool;
}

/// A bench of an engine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
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

impl BenchKind {
    /// `latency`, `throughput`, `serve`, `probe`.
    pub fn as_str(self) -> &'static str {
        match self {
            BenchKind::Latency => "latency",
            BenchKind::Throughput => "throughput",
            BenchKind::Serve => "serve",
            BenchKind::Probe => "probe",
        }
    }
}

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
    #[error("the installed `{bench}` does not know {flags}")]
    UnknownFlags {
        /// The bench's command.
        bench: String,
        /// The flags, comma separated.
        flags: String,
    },
    /// The engine has no such bench.
    #[error("engine `{engine}` has no {kind} bench: {reason}")]
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
    #[error("the bench's result is no valid JSON: {0}")]
    Json(String),
    /// JSON without a required key.
    #[error("the bench's result lacks `{0}`")]
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

/// What to serve.
#[derive(Debug, Clone)]
pub struct ServeJob<'a> {
    /// Model.
    pub model: &'a str,
    /// Port inside the container.
    pub port: u16,
    /// Settings.
    pub settings: &'a RequestedSettings,
    /// Extra arguments, as given.
    pub extra_engine_args: &'a [String],
}

/// How to make a container serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServePlan {
    /// Arguments after the image's entrypoint.
    pub cmd: Vec<String>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Path that answers 200 once the engine serves.
    pub health_path: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_by_name_and_by_container() {
        for engine in EngineId::ALL {
            assert_eq!(EngineId::from_name(engine.name()), Ok(*engine));
            assert_eq!(engine.log_parser().report().engine, engine.name());
        }
        let facts = |argv: &[&str]| ContainerFacts {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            ..ContainerFacts::default()
        };
        let name = |argv: &[&str]| recognise(&facts(argv)).map(|(e, r)| (e.name(), r.serving));
        assert_eq!(name(&["vllm", "serve", "m"]), Some(("vllm", true)));
        assert_eq!(
            name(&["/reference-engine", "idle"]),
            Some(("reference", false))
        );
        assert_eq!(name(&["postgres"]), None);
        // An image of one engine can run another.
        let facts = ContainerFacts {
            image: "vllm/vllm-openai:latest".to_owned(),
            ..facts(&["/opt/llama-server", "-m", "m.gguf"])
        };
        assert_eq!(
            recognise(&facts).map(|(e, r)| (e.name(), r.serving)),
            Some(("llama_cpp", true))
        );
    }

    #[test]
    fn what_a_log_leaves_out_is_told_with_the_way_to_it() {
        let untold = |engine: &str, lines: &[&str], on_gpu| {
            let engine = EngineId::from_name(engine).unwrap();
            let mut parser = parser_of(engine);
            lines.iter().for_each(|l| parser.line(l.as_bytes(), None));
            engine.untold(&parser.report(), on_gpu)
        };
        let quiet = "INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: 2.0 GiB";
        let loud = "DEBUG 01-01 00:00:00 [gpu_worker.py:1] Memory profiling takes 1.0 seconds. Total non KV cache memory: 1.5GiB; torch peak memory increase: 0.2GiB; non-torch forward increase memory: 0.1GiB; weights memory: 1.2GiB.";
        assert!(
            untold("vllm", &[quiet], true).is_some_and(|t| t.contains("VLLM_LOGGING_LEVEL=DEBUG"))
        );
        assert_eq!(untold("vllm", &[quiet, loud], true), None);
        assert_eq!(untold("vllm", &[quiet], false), None);
        assert_eq!(untold("vllm", &[], true), None);
        let default = include_str!("../../tests/fixtures/llama_cpp/server-cpu-default.log");
        let verbose = include_str!("../../tests/fixtures/llama_cpp/server-cpu-verbose.log");
        let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
        assert!(untold("llama_cpp", &lines(default), false).is_some_and(|t| t.contains("-lv 4")));
        assert_eq!(untold("llama_cpp", &lines(verbose), false), None);
    }

    #[test]
    fn help_is_asked_again_where_the_first_answer_is_no_list() {
        let vllm = EngineId::from_name("vllm").unwrap();
        assert_eq!(
            vllm.bench_help(BenchKind::Latency).unwrap().join(" "),
            "vllm bench latency --help=all"
        );
        let again = |first: &str| {
            vllm.bench_help_again(BenchKind::Latency, first)
                .map(|a| a.join(" "))
        };
        assert_eq!(
            again("\nParameters matching 'all':\n  --x X\n").as_deref(),
            Some("vllm bench latency --help")
        );
        assert_eq!(
            again(include_str!(
                "../../tests/fixtures/vllm/help/help-bench-latency-all.txt"
            )),
            None
        );
        assert_eq!(again("vllm: error: invalid choice: 'bench'"), None);
    }
}
