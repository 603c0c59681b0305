//! What plimsoll knows about inference engines: text in, values out. No I/O, no clock.
//!
//! A new engine is one new file (or folder) here and one line in [`EngineId`]'s list.

pub mod argv;
pub mod bench;
mod builtin;
pub mod causes;
pub mod command;
pub mod cuda_graphs;
pub mod diagnosis;
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

pub use bench::{
    BenchJob, BenchKind, BenchPlan, BenchProgress, BenchResult, NO_PROBE, PlanError, PlannedFile,
    ReadError,
};
pub use builtin::{Dialect, LoadKind, read_builtin, read_builtin_notes};
pub use id::{EngineId, UnknownEngine, shown_name};

use crate::capture::{AtNs, ContainerFacts, Probe, RequestedSettings};
use facts::LogReport;
use limits::LoadLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::arguments_of;
use std::collections::BTreeMap;

/// A fresh parser for `engine`'s log, with or without a carrier's wrapping.
pub fn parser_of(engine: EngineId) -> Box<dyn LogParser> {
    Box::new(log::unwrap::Unwrapped::new((engine.log_parser)()))
}

/// The engine of a container: the first with its server as process 1, else the first recognised by
/// other signs (an image of one engine can run another).
pub fn recognise(facts: &ContainerFacts) -> Option<(EngineId, Recognition)> {
    let mut present = None;
    for engine in EngineId::ALL.iter().copied() {
        match (engine.recognise)(facts) {
            Some(found) if found.serving => return Some((engine, found)),
            found => present = present.or(found.map(|found| (engine, found))),
        }
    }
    present
}

/// Everything plimsoll knows about one engine: what is constant, and the functions that read what it
/// writes and plan what it runs.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// The name in flags and documents: `vllm`.
    pub name: &'static str,
    /// The name that people read, where it is another: `llama.cpp`.
    pub shown: Option<&'static str>,
    /// Other names that people give it in `--engine`.
    pub aliases: &'static [&'static str],
    /// Whether the engine is simulated (the reference engine); every output marks it so.
    pub simulated: bool,
    /// Arguments that disable CUDA graphs, if the engine has such.
    pub without_graphs: Option<&'static [&'static str]>,
    /// The engine that `estimate` models this one as: itself, or its runner. `None`: no memory
    /// model is known.
    pub estimated_as: Option<EngineId>,
    /// What limits its concurrent requests.
    pub load_limits: LoadLimits,
    /// Images with the engine's versions as tags; tags of other images are their makers' own.
    pub release_images: &'static [&'static str],
    /// Whether it uses every visible GPU unless configured otherwise.
    pub takes_all_gpus: bool,
    /// Default port inside the container.
    pub default_port: u16,
    /// Paths to GET from a serving engine, in order of use.
    pub endpoints: &'static [&'static str],
    /// Paths that only this engine answers, each with a text that its reply contains; they identify
    /// a server that its command does not.
    pub identity: &'static [(&'static str, &'static str)],
    /// Name of the histogram of queueing time in the metrics, seconds; `None` for an engine without
    /// one.
    pub queue_histogram: Option<&'static str>,
    /// Words that only this engine's log lines contain, at least four bytes each and at most 64:
    /// they identify a log of unknown origin ([`log::auto`]).
    pub log_marks: &'static [&'static str],
    /// The marks that decide against an engine with the same lines (Ollama against its runner,
    /// llama.cpp): a line with one counts twice.
    pub own_log_marks: &'static [&'static str],
    /// The words before [`ServePlan::cmd`] where no image's entrypoint supplies them.
    pub program: &'static [&'static str],
    /// The words that make an image of it serve, with places for `{model}` and `{port}`.
    pub serve: &'static str,
    /// The same where the model is a file (a path, or a name that ends in `.gguf`), if it differs.
    pub serve_file: Option<&'static str>,
    /// The whole command of its server, where it is not `program` and `serve`.
    pub serve_alone: Option<&'static str>,
    /// Variables for a server that plimsoll starts, with the same places.
    pub serve_env: &'static [(&'static str, &'static str)],
    /// Whether such a server is given the requested settings.
    pub serve_settings: bool,
    /// The path that answers 200 once it serves.
    pub health_path: &'static str,
    /// Protocol of plimsoll's load client for this engine's servers.
    pub dialect: Dialect,
    /// The default load generators: for a serving container, and for an idle one. An engine without
    /// a usable bench has [`LoadKind::Builtin`] for the first.
    pub default_loads: (LoadKind, LoadKind),
    /// The program of a serving bench that is a Python script and may run many times in one process:
    /// only its imports persist between runs. `None`: each run needs its own process.
    pub kept_program: Option<&'static str>,
    /// Commands that check for a model in a serving container, and that fetch it; the model is their
    /// last word. `None` where the server does so itself.
    pub pull_commands: Option<[&'static [&'static str]; 2]>,
    /// Entrypoint and command that make a container of its image wait idly.
    pub idle: (Option<&'static str>, &'static str),
    /// Recognises the engine in a container by command, image and labels.
    pub recognise: fn(&ContainerFacts) -> Option<Recognition>,
    /// Settings in the command and environment of process 1.
    pub settings: fn(&ContainerFacts) -> ServerSettings,
    /// Reads the endpoints' replies.
    pub read_probes: fn(&[Probe]) -> ProbeFacts,
    /// What the log of a running engine lacks about memory, and how to enable it: one sentence. The
    /// second argument: whether its memory is a GPU's.
    pub missing_log_detail: fn(&LogReport, bool) -> Option<&'static str>,
    /// Fraction of a GPU's memory that a release, by its version, takes by default.
    pub default_memory_fraction: fn(&str) -> Option<f64>,
    /// A fresh parser for this engine's log, without its carrier: see [`parser_of`].
    pub log_parser: fn() -> Box<dyn LogParser>,
    /// Every text that the reader of its log looks for: `scripts/engine-drift` holds them against the
    /// engine's source.
    pub log_signs: fn() -> Vec<&'static str>,
    /// The command that prints the flags of the installed bench; runs before [`Engine::bench`].
    pub bench_help: fn(BenchKind) -> Option<Vec<String>>,
    /// A second command for the case that the first prints no flags. The second argument is the
    /// first one's output, stdout and stderr; it is empty if the image lacks the program. `None` if
    /// the first answer suffices or no other command helps.
    pub bench_help_again: fn(BenchKind, &str) -> Option<Vec<String>>,
    /// The command that runs the bench. The second argument is the output of [`Engine::bench_help`],
    /// or that of [`Engine::bench_help_again`] where it was asked.
    pub bench: fn(&BenchJob<'_>, Option<&str>) -> Result<BenchPlan, PlanError>,
    /// Reads the bench's result file.
    pub read_bench: fn(BenchKind, &str) -> Result<BenchResult, ReadError>,
    /// Memory as a probe inside the engine's process measured it, if the bench is one.
    pub read_memory: fn(BenchKind, &str) -> Option<torch_probe::TorchReport>,
    /// The part of the bench's run that an output line begins, if any. A beginning may be reported
    /// several times, and the first counts; steps count only after the measured part has begun. A
    /// line may contain several states of one progress bar, separated by carriage returns.
    pub bench_progress: fn(BenchKind, &str) -> Option<BenchProgress>,
}

impl Engine {
    /// What holds for an engine that says no more than how its log is read and its bench is run (or
    /// why it has none).
    pub const fn defaults(
        log_parser: fn() -> Box<dyn LogParser>,
        bench: fn(&BenchJob<'_>, Option<&str>) -> Result<BenchPlan, PlanError>,
    ) -> Engine {
        Engine {
            name: "",
            shown: None,
            aliases: &[],
            simulated: false,
            without_graphs: None,
            estimated_as: None,
            load_limits: LoadLimits::UNKNOWN,
            release_images: &[],
            takes_all_gpus: false,
            default_port: 8000,
            endpoints: &[],
            identity: &[],
            queue_histogram: None,
            log_marks: &[],
            own_log_marks: &[],
            program: &[],
            serve: "",
            serve_file: None,
            serve_alone: None,
            serve_env: &[],
            serve_settings: true,
            health_path: "/health",
            dialect: Dialect::Completions,
            default_loads: (LoadKind::Serve, LoadKind::Latency),
            kept_program: None,
            pull_commands: None,
            idle: (Some("sleep"), "infinity"),
            recognise: |_| None,
            settings: |_| ServerSettings::default(),
            read_probes: |_| ProbeFacts::default(),
            missing_log_detail: |_, _| None,
            default_memory_fraction: |_| None,
            log_parser,
            log_signs: Vec::new,
            bench_help: |_| None,
            bench_help_again: |_, _| None,
            bench,
            read_bench: |_, _| Err(ReadError::Missing("a bench: the engine has none")),
            read_memory: |_, _| None,
            bench_progress: |_, _| None,
        }
    }

    /// The name that people read.
    pub fn shown(&self) -> &'static str {
        self.shown.unwrap_or(self.name)
    }

    /// The endpoint that is polled every second under load, if there is one.
    pub fn gauges_endpoint(&self) -> Option<&'static str> {
        let mut endpoints = self.endpoints.iter().copied();
        endpoints.find(|path| path.ends_with("/metrics"))
    }

    /// The default load generator.
    pub fn default_bench(&self, serving: bool) -> LoadKind {
        let (for_server, for_idle) = self.default_loads;
        if serving { for_server } else { for_idle }
    }

    /// How the command of its server begins, also where its images' entrypoint supplies that.
    pub fn server_program(&self) -> Vec<String> {
        match self.program {
            [] => vec![self.name.to_owned(), "serve".to_owned()],
            words => words.iter().map(|w| (*w).to_owned()).collect(),
        }
    }
}

/// Why a container was attributed to an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognition {
    /// Why it was recognised, as a sentence.
    pub evidence: String,
    /// Whether process 1 is the engine's server. False for an idle container with the engine in it.
    pub serving: bool,
}

impl Recognition {
    /// Process 1 is the engine's server.
    pub fn serving(evidence: impl Into<String>) -> Recognition {
        Recognition {
            evidence: evidence.into(),
            serving: true,
        }
    }

    /// The engine is installed and does not serve; `process` is a clause on process 1.
    pub fn present(evidence: &str, process: &str) -> Recognition {
        Recognition {
            evidence: format!("{evidence}; {process}"),
            serving: false,
        }
    }
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
    /// Bytes of the KV pool on one device of each engine, where the engine shows them
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
    fn step_count(&self) -> usize;

    /// The report on the lines so far.
    fn report(&self) -> LogReport;

    /// The line that best explains why the engine failed to start or died, if one was seen: the
    /// root cause, not the last wrapper.
    fn root_cause(&self) -> Option<String>;

    /// Whether the engine reported that it is ready to serve.
    fn ready(&self) -> bool;
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

impl EngineId {
    /// Command and environment that make a container of this engine serve (`plimsoll run`).
    pub fn serve(self, job: &ServeJob<'_>) -> ServePlan {
        let is_file = job.model.ends_with(".gguf") || job.model.starts_with('/');
        let words = self.serve_file.filter(|_| is_file).unwrap_or(self.serve);
        self.plan_server(job, words)
    }

    /// The whole command of a server in a container that waits idly.
    pub fn serve_argv(self, job: &ServeJob<'_>) -> Vec<String> {
        if let Some(words) = self.serve_alone {
            return self.plan_server(job, words).cmd;
        }
        let program = self.program.iter().map(|w| (*w).to_owned());
        program.chain(self.serve(job).cmd).collect()
    }

    fn plan_server(self, job: &ServeJob<'_>, words: &str) -> ServePlan {
        let port = job.port.to_string();
        // The model last: its name may contain anything.
        let fill = |text: &str| text.replace("{port}", &port).replace("{model}", job.model);
        let mut cmd: Vec<String> = words.split_whitespace().map(fill).collect();
        let variables = self.serve_env.iter();
        let mut env: Vec<(String, String)> = variables
            .map(|(name, value)| ((*name).to_owned(), fill(value)))
            .collect();
        let settings = arguments_of(self, job.settings).into_iter();
        for words in settings.filter(|_| self.serve_settings) {
            match words[0].split_once('=') {
                Some((name, value)) if !name.starts_with('-') => {
                    env.push((name.to_owned(), value.to_owned()));
                }
                _ => cmd.extend(words),
            }
        }
        cmd.extend(job.extra_engine_args.iter().cloned());
        ServePlan {
            cmd,
            env,
            health_path: self.health_path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_by_name_and_by_container() {
        for engine in EngineId::ALL {
            assert_eq!(EngineId::from_name(engine.name), Ok(*engine));
            assert_eq!((engine.log_parser)().report().engine, engine.name);
        }
        let facts = |argv: &[&str]| ContainerFacts {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            ..ContainerFacts::default()
        };
        let name = |argv: &[&str]| recognise(&facts(argv)).map(|(e, r)| (e.name, r.serving));
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
            recognise(&facts).map(|(e, r)| (e.name, r.serving)),
            Some(("llama_cpp", true))
        );
    }

    #[test]
    fn what_a_log_leaves_out_is_reported_with_the_way_to_it() {
        let missing_log_detail = |engine: &str, lines: &[&str], on_gpu| {
            let engine = EngineId::from_name(engine).unwrap();
            let mut parser = parser_of(engine);
            lines.iter().for_each(|l| parser.line(l.as_bytes(), None));
            (engine.missing_log_detail)(&parser.report(), on_gpu)
        };
        let quiet = "INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: 2.0 GiB";
        let loud = "DEBUG 01-01 00:00:00 [gpu_worker.py:1] Memory profiling takes 1.0 seconds. Total non KV cache memory: 1.5GiB; torch peak memory increase: 0.2GiB; non-torch forward increase memory: 0.1GiB; weights memory: 1.2GiB.";
        assert!(
            missing_log_detail("vllm", &[quiet], true)
                .is_some_and(|t| t.contains("VLLM_LOGGING_LEVEL=DEBUG"))
        );
        assert_eq!(missing_log_detail("vllm", &[quiet, loud], true), None);
        assert_eq!(missing_log_detail("vllm", &[quiet], false), None);
        assert_eq!(missing_log_detail("vllm", &[], true), None);
        let default = include_str!("../../tests/fixtures/llama_cpp/server-cpu-default.log");
        let verbose = include_str!("../../tests/fixtures/llama_cpp/server-cpu-verbose.log");
        let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
        assert!(
            missing_log_detail("llama_cpp", &lines(default), false)
                .is_some_and(|t| t.contains("-lv 4"))
        );
        assert_eq!(
            missing_log_detail("llama_cpp", &lines(verbose), false),
            None
        );
    }

    #[test]
    fn help_is_asked_again_where_the_first_answer_is_no_list() {
        let vllm = EngineId::from_name("vllm").unwrap();
        assert_eq!(
            (vllm.bench_help)(BenchKind::Latency).unwrap().join(" "),
            "vllm bench latency --help=all"
        );
        let again =
            |first: &str| (vllm.bench_help_again)(BenchKind::Latency, first).map(|a| a.join(" "));
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
