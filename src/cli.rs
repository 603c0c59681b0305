//! The command line: flags and help. Nothing else imports clap.

use crate::collect::MemorySource;
use crate::container::process_target::ProcessPlace;
use crate::telemetry::BackendChoice;
use crate::units::{parse_duration, some_time};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

mod ablation;
mod clean;
mod compare;
mod config;
mod engine;
mod estimate;
mod experiment;
mod loadline;
mod page;
mod reading;
mod shell;
mod sweep;
mod tune;
mod values;
mod words;

pub use ablation::{AblateArgs, CudaGraphsArgs};
pub use clean::CleanArgs;
pub use compare::{CalibrateArgs, CompareArgs, FailOn, Limits, ValidateArgs};
pub use config::{ConfigArgs, ConfigCommand, ModelsArgs, SchemaArgs, SchemaCommand};
pub use engine::{EngineFlags, LogArgs, ProcessArgs, StartArgs};
pub use estimate::EstimateArgs;
pub use experiment::{
    ConcurrencyArgs, ExperimentArgs, ExperimentCommand, ExperimentFlags, MixedArgs, SeqlenArgs,
};
pub use loadline::LoadlineArgs;
pub use page::whole_command;
pub use reading::{ReplayArgs, ReportArgs, WhyArgs};
pub use shell::{CompletionsArgs, ManArgs, ManPage, man_pages};
pub use sweep::{MachineArgs, MergeArgs, Scheduler, SweepArgs, SweepCommand, SweepRunArgs};
pub use tune::TuneArgs;
pub use words::{HEALTH_TIMEOUT, flags_under_headings, words_to_pass_on};

// Headings of help pages.
/// How a container is started.
pub const STARTING: &str = "Starting a container";
const LOAD: &str = "Load";
const MEASURING: &str = "Measuring";
const OUTPUT: &str = "Output";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Measure and plan the memory of LLM engines in containers.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, styles = STYLES, max_term_width = 100)]
pub struct Cli {
    /// How much is printed, and in which colours.
    #[command(flatten)]
    pub talk: OutputArgs,
    /// Path of NVIDIA's management library, if it is not found
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "PLIMSOLL_NVML_LIBRARY",
        hide_env_values = true,
        hide_short_help = true,
        // Takes an empty one as well: a variable that is set to nothing names nothing.
        value_parser = clap::value_parser!(std::ffi::OsString),
        help_heading = MEASURING
    )]
    pub nvml_lib: Option<std::ffi::OsString>,
    /// For testing: a directory to read instead of /sys, where AMD GPUs are (or PLIMSOLL_SYSFS_ROOT)
    #[arg(long, global = true, value_name = "DIR", hide = true, help_heading = MEASURING)]
    pub sysfs_root: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How much is printed, and in which colours.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct OutputArgs {
    /// Print only warnings and errors
    #[arg(
        long,
        short,
        global = true,
        hide_short_help = true,
        conflicts_with = "verbose"
    )]
    pub quiet: bool,
    /// Print more (twice: debug messages)
    #[arg(long, short, global = true, hide_short_help = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colour
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "WHEN",
        default_value = "auto"
    )]
    pub color: ColorWhen,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Profile a running container: memory by part, latency, throughput
    Profile(Box<ProfileArgs>),
    /// Start a container, profile it, then stop and remove it
    Run(Box<RunArgs>),
    /// Measure a matrix of models, settings and loads
    Sweep(Box<SweepArgs>),
    /// Vary concurrency, prompt length or prompt mix in a few steps
    #[command(visible_alias = "exp")]
    Experiment(Box<ExperimentArgs>),
    /// Find the settings that serve most within limits, in few starts
    Tune(Box<TuneArgs>),
    /// Measure two engine settings in turn and compare them
    Ablate(Box<AblateArgs>),
    /// Measure the memory that CUDA graphs use (vLLM, TensorRT-LLM)
    CudaGraphs(Box<CudaGraphsArgs>),
    /// Find the highest load without preemption, queueing or errors
    Loadline(Box<LoadlineArgs>),
    /// Calculate the memory of a deployment, and whether it fits
    Estimate(Box<EstimateArgs>),
    /// Compare two profiles part by part
    Compare(Box<CompareArgs>),
    /// Compare measured memory with the estimate, for many profiles
    Validate(ValidateArgs),
    /// Learn engine overheads from your profiles, for `estimate`
    Calibrate(CalibrateArgs),
    /// Write a report of results: HTML, Markdown, CSV
    Report(ReportArgs),
    /// Show the memory timeline of a stored run in the terminal
    Replay(ReplayArgs),
    /// Compute a profile again from its stored capture
    Derive(DeriveArgs),
    /// Show what an engine's log reports about memory
    Parse(ParseArgs),
    /// Find why a container died, restarts or hangs; name what to change
    Why(WhyArgs),
    /// Show live GPU and host memory by container
    Top(TopArgs),
    /// Monitor every engine on this host; serve metrics to Prometheus
    Watch(WatchArgs),
    /// Find leftovers that hold GPU memory; free it with --apply
    Clean(Box<CleanArgs>),
    /// List the GPUs of this host and a catalogue of GPUs
    Gpus(GpusArgs),
    /// List the built-in models
    Models(ModelsArgs),
    /// Record memory samples to a file
    Record(RecordArgs),
    /// Check this machine: Docker, GPUs, memory backends, engines
    #[command(visible_alias = "env")]
    Doctor(DoctorArgs),
    /// Tour of four verbs on stored files: no engine, no GPU, no Docker
    Demo(DemoArgs),
    /// Create or check a sweep file, or print its schema
    Config(ConfigArgs),
    /// Print the JSON Schema of profiles, or validate documents
    Schema(SchemaArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Print the manual page, or write all pages to a folder
    Man(ManArgs),
}

/// `plimsoll profile`
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Container: name, id (4 or more characters), or label=KEY[=VALUE]
    #[arg(required_unless_present = "process", conflicts_with = "process")]
    pub container: Option<String>,
    /// Without Docker.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Its log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Longest wait for a server that is still loading; 0 does not wait [default: 20m on a terminal, else 0]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "20m", value_parser = parse_duration)]
    pub wait: Option<Duration>,
    /// Run even if the estimate says that it does not fit
    #[arg(long)]
    pub run_anyway: bool,
    /// What `run` takes too.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// `plimsoll run`
#[derive(Debug, Args)]
#[command(
    override_usage = "plimsoll run [OPTIONS] <-i IMAGE|--preset NAME|--compose FILE|-- COMMAND>"
)]
#[group(id = "what", args = ["image", "preset", "compose", "words"], required = true, multiple = true)]
pub struct RunArgs {
    /// Image to start
    #[arg(long, short, help_heading = STARTING)]
    pub image: Option<String>,
    /// Built-in preset (an unknown name lists them) or YAML file
    #[arg(long, value_name = "NAME|FILE", help_heading = STARTING)]
    pub preset: Option<String>,
    /// Name of the container [default: plimsoll- and the run's id]
    #[arg(long, help_heading = STARTING)]
    pub name: Option<String>,
    /// How it is started.
    #[command(flatten, next_help_heading = STARTING)]
    pub start: StartArgs,
    /// Leave the container running at the end
    #[arg(long, help_heading = STARTING)]
    pub keep: bool,
    /// Run even if the estimate says that it does not fit
    #[arg(long, help_heading = STARTING)]
    pub run_anyway: bool,
    /// Memory to leave free for others: a running container or a size; may be repeated
    #[arg(long, value_name = "NAME|SIZE", value_parser = some_text, help_heading = STARTING)]
    pub beside: Vec<String>,
    /// Compose file whose engines are started side by side, and each profiled
    #[arg(long, value_name = "FILE", help_heading = STARTING, conflicts_with_all = ["image", "preset", "model", "name", "output", "words"])]
    pub compose: Option<PathBuf>,
    /// Service of --compose; may be repeated
    #[arg(long, value_name = "NAME", value_parser = some_text, requires = "compose", help_heading = STARTING)]
    pub service: Vec<String>,
    /// With --dry-run: print the command or file that starts the same container
    #[arg(
        long = "as",
        value_name = "FORM",
        requires = "dry_run",
        help_heading = STARTING
    )]
    pub written_as: Option<WrittenForm>,
    /// What `profile` takes too.
    #[command(flatten)]
    pub load: LoadArgs,
    /// A `docker run` command, after --: that container is started and profiled
    #[arg(help_heading = STARTING, last = true, value_name = "COMMAND", conflicts_with_all = ["image", "preset", "model"])]
    pub words: Vec<String>,
}

/// How `run --dry-run` writes what it would start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WrittenForm {
    /// A line of `docker run`
    DockerRun,
    /// A file of Compose
    Compose,
}

/// Figures of a model without a readable config.json.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Model (where no config.json can be read)")]
pub struct ModelFigures {
    /// Parameters, as in 6.7e9
    #[arg(long, value_name = "N")]
    pub model_params: Option<f64>,
    /// Layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub num_layers: Option<u32>,
    /// Attention heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub num_heads: Option<u32>,
    /// Key and value heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub num_kv_heads: Option<u32>,
    /// Head dimension
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub head_dim: Option<u32>,
    /// Hidden size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hidden_size: Option<u32>,
}

impl ModelFigures {
    /// Those that are given, by the keys of a sweep file.
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let all = [
            ("model_params", self.model_params),
            ("num_layers", self.num_layers.map(f64::from)),
            ("num_heads", self.num_heads.map(f64::from)),
            ("num_kv_heads", self.num_kv_heads.map(f64::from)),
            ("head_dim", self.head_dim.map(f64::from)),
            ("hidden_size", self.hidden_size.map(f64::from)),
        ];
        let given = all
            .into_iter()
            .filter_map(|(name, n)| Some((name.to_owned(), n?)));
        given.collect()
    }
}

/// Model, load, engine settings and measuring: common to `profile` and `run`.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// Model id, or its path in the container
    #[arg(long, short, env = "PLIMSOLL_MODEL", hide_env_values = true, value_parser = some_text)]
    pub model: Option<String>,
    /// Engine, if it is not recognised (an unknown name lists them)
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// The model, where its configuration cannot be read.
    #[command(flatten)]
    pub figures: ModelFigures,

    /// Bench to run: one of the engine's in the container, or builtin (plimsoll's client)
    #[arg(long, value_name = "KIND", default_value = "auto", help_heading = LOAD)]
    pub bench: BenchChoice,
    /// Prompt tokens per request
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=LONGEST_INPUT), help_heading = LOAD)]
    pub input_len: u32,
    /// Text of the prompt, instead of --input-len (builtin, transformers)
    #[arg(long, value_name = "TEXT", value_parser = some_text, conflicts_with = "input_len", help_heading = LOAD)]
    pub prompt: Option<String>,
    /// Generated tokens per request
    #[arg(long, visible_alias = "max-tokens", value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub output_len: u32,
    /// Sequences per batch (latency, transformers)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub batch_size: Option<u32>,
    /// Measured iterations (latency, transformers) [default: 10, transformers 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub num_iters: Option<u32>,
    /// Warm-up iterations (latency, transformers) or requests (serve, builtin) [default: 3; builtin, transformers: 1]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub num_iters_warmup: Option<u32>,
    /// Requests (throughput, serve, builtin) [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub num_prompts: Option<u32>,
    /// Most concurrent requests (serve, builtin)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub max_concurrency: Option<u32>,
    /// Requests per second, at random times (serve, builtin); or inf
    #[arg(long, value_name = "RPS", value_parser = request_rate, help_heading = LOAD)]
    pub request_rate: Option<f64>,
    /// Random seed of the bench [default: the engine's; builtin: 0]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub seed: Option<u64>,
    /// Number of bench runs; mean and spread are reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = LOAD)]
    pub repeats: u32,
    /// Memory by operator and layer, by torch.profiler (transformers)
    #[arg(long, help_heading = LOAD)]
    pub per_layer: bool,
    /// How long to sample with --bench none [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = some_time, help_heading = LOAD)]
    pub duration: Option<Duration>,

    /// Settings of the engine.
    #[command(flatten)]
    pub settings: EngineFlags,

    /// Source of memory readings: auto, nvml, amd, intel, host, or replay:FILE for a recording
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_arg, help_heading = MEASURING)]
    pub memory_backend: MemorySource,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval, help_heading = MEASURING)]
    pub sample_interval: Duration,
    /// How long to sample before the load
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration, help_heading = MEASURING)]
    pub baseline: Duration,
    /// Longest time for the whole run
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = some_time, help_heading = MEASURING)]
    pub timeout: Duration,
    /// Largest part of the log to keep
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size, help_heading = MEASURING)]
    pub max_log: String,
    /// Show the plan as text; run nothing
    #[arg(long, conflicts_with = "json", help_heading = MEASURING)]
    pub dry_run: bool,

    /// Where results go.
    #[command(flatten)]
    pub results: ResultsArgs,
    /// File for the profile, instead of a name in the results directory
    #[arg(long, short, value_name = "FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Print the profile as JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// Where results go.
#[derive(Debug, Clone, Args)]
pub struct ResultsArgs {
    /// Results directory
    #[arg(long = "results-dir", id = "results_dir", value_name = "DIR", default_value = "results", env = "PLIMSOLL_RESULTS_DIR", hide_env_values = true, help_heading = OUTPUT)]
    pub dir: PathBuf,
}

/// The benches that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchChoice {
    /// The serve bench against a serving engine (the built-in one where the engine has none that
    /// can be used), the latency bench in an idle container, the probe for transformers
    Auto,
    /// One batch after the other; the bench loads the engine
    Latency,
    /// Many requests at once; the bench loads the engine
    Throughput,
    /// The engine's own client, against the running server
    Serve,
    /// plimsoll's own client, from this host: any engine that streams
    Builtin,
    /// No load: sample only, for --duration or until Ctrl-C
    None,
}

/// `plimsoll record`
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File to write; it must not exist
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Container to record: name or id [default: every GPU of the host]
    #[arg(long, value_name = "NAME", conflicts_with = "process")]
    pub container: Option<String>,
    /// Without Docker.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Source of memory readings
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub memory_backend: BackendChoice,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval)]
    pub interval: Duration,
    /// How long to record [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub duration: Option<Duration>,
}

/// `plimsoll top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print once and exit
    #[arg(long)]
    pub once: bool,
    /// Show a recording instead of this host
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Print JSON instead of text, one document per scan
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Time between scans, 1s or more
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = look_interval)]
    pub interval: Duration,
}

/// `plimsoll watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Serve metrics to Prometheus at this address, as 9400 or 127.0.0.1:9400; a bare port is on the
    /// loopback interface
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub listen: Option<std::net::SocketAddr>,
    /// Time between two scans, 1s or more
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = look_interval)]
    pub interval: Duration,
    /// Process id of an engine on this host to follow too; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(2..), help_heading = engine::WITHOUT_DOCKER)]
    pub pid: Vec<u32>,
    /// Cgroup of an engine to follow too (service, scope or slice); may be repeated
    #[arg(long, value_name = "PATH", value_parser = some_text, help_heading = engine::WITHOUT_DOCKER)]
    pub cgroup: Vec<String>,
    /// Kubernetes pod on this node to follow too: [NAMESPACE/]POD[/CONTAINER]; may be repeated
    #[arg(long, value_name = "POD", value_parser = some_text, help_heading = engine::WITHOUT_DOCKER)]
    pub pod: Vec<String>,
    /// Keep the latest profile of each container in this folder, as NAME.json
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub profiles: Option<PathBuf>,
    /// Print JSON instead of text, a line for each event
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

impl WatchArgs {
    /// Engines that are named, beside those of containers.
    pub fn places(&self) -> Vec<ProcessPlace> {
        let by_pid = self.pid.iter().map(|pid| ProcessPlace::Pid(*pid));
        let by_cgroup = self.cgroup.iter().cloned().map(ProcessPlace::Cgroup);
        let by_pod = self.pod.iter().cloned().map(ProcessPlace::Pod);
        by_pid.chain(by_cgroup).chain(by_pod).collect()
    }
}

/// `plimsoll gpus`
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// `plimsoll derive`
#[derive(Debug, Args)]
pub struct DeriveArgs {
    /// A `.capture` folder, or the profile beside it
    pub capture: PathBuf,
    /// File for the profile [default: the one beside the capture]
    #[arg(long, short, value_name = "FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Print the profile as JSON instead of text, and write nothing
    #[arg(long, conflicts_with = "output", help_heading = OUTPUT)]
    pub json: bool,
}

/// `plimsoll demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where its files go.
    #[command(flatten)]
    pub results: ResultsArgs,
}

/// `plimsoll parse`
#[derive(Debug, Args)]
pub struct ParseArgs {
    /// Engine that wrote the log; auto: recognised by its lines
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub engine: String,
    /// Log file, or - for standard input
    pub log: PathBuf,
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// `plimsoll doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// The longest prompt that can be asked for, tokens: beyond what any model reads, and no more than
/// this host can hold of it.
const LONGEST_INPUT: i64 = 10_000_000;

/// A text that is not blank.
fn some_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("must not be empty".into())
    } else {
        Ok(text.to_owned())
    }
}

/// A number that is right, else what is wanted.
fn number(text: &str, is_right: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n| is_right(*n));
    number.ok_or_else(|| wanted.into())
}

/// A text without its percent sign.
fn without_percent(text: &str) -> &str {
    text.trim().trim_end_matches('%').trim_end()
}

/// `5%` and `5`.
fn percent(text: &str) -> Result<f64, String> {
    let is_right = |p| (0.0..=90.0).contains(&p);
    number(
        without_percent(text),
        is_right,
        "must be 0 to 90 percent: 5%",
    )
}

/// A size, kept as it was written.
fn size(text: &str) -> Result<String, String> {
    text.parse::<crate::units::Bytes>()
        .map(|_| text.to_owned())
        .map_err(|e| e.to_string())
}

/// A request of GPUs, kept as it was written.
fn gpus(text: &str) -> Result<String, String> {
    text.parse::<crate::preset::GpuRequest>()
        .map(|_| text.to_owned())
}

/// Words as a shell would split them, kept as they were written.
fn arguments(text: &str) -> Result<String, String> {
    shlex::split(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "a quote is left open".to_owned())
}

fn sample_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(10) {
        return Err("must be 10ms or more: faster reading would disturb the measurement".into());
    }
    if interval > Duration::from_secs(60) {
        return Err("must be 60s or less".into());
    }
    Ok(interval)
}

fn look_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_secs(1) {
        return Err("must be 1s or more".into());
    }
    Ok(interval)
}

/// `9400` and `:9400` mean the loopback interface: metrics are not public unless configured.
fn listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok((std::net::Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse()
        .map_err(|_| format!("invalid address `{text}`: write it as 9400 or 127.0.0.1:9400"))
}

fn backend_arg(text: &str) -> Result<MemorySource, String> {
    match text.strip_prefix("replay:") {
        Some("") => Err("name the recording: replay:FILE".into()),
        Some(path) => Ok(MemorySource::Recorded(path.into())),
        None => BackendChoice::from_str(text, true)
            .map(MemorySource::Live)
            .map_err(|_| {
                format!(
                    "invalid memory backend `{text}`: one of auto, nvml, amd, intel, host, replay:FILE"
                )
            }),
    }
}

fn share(text: &str) -> Result<f64, String> {
    number(
        text,
        |v| v > 0.0 && v <= 1.0,
        "must be above 0 and at most 1",
    )
}

fn request_rate(text: &str) -> Result<f64, String> {
    number(text, |v| v > 0.0, "must be above 0, or inf")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn backends_and_addresses_are_read_as_people_write_them() {
        assert_eq!(
            backend_arg("nvml"),
            Ok(MemorySource::Live(BackendChoice::Nvml))
        );
        assert_eq!(
            backend_arg("replay:a b.jsonl"),
            Ok(MemorySource::Recorded("a b.jsonl".into()))
        );
        assert!(backend_arg("replay:").is_err() && backend_arg("cuda").is_err());
        let address = |text| listen_address(text).map(|a| a.to_string());
        for text in ["9400", ":9400", "127.0.0.1:9400"] {
            assert_eq!(address(text).as_deref(), Ok("127.0.0.1:9400"));
        }
        assert_eq!(address("0.0.0.0:80").as_deref(), Ok("0.0.0.0:80"));
        assert!(address("host:80").is_err() && address("99999").is_err());
    }

    #[test]
    fn no_sampling_is_too_fast() {
        assert!(sample_interval("1ms").is_err() && sample_interval("10ms").is_ok());
    }
}
