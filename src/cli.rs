//! The command line: flags and help. Nothing else imports clap.

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
mod estimate;
mod examples;
mod experiment;
mod loadline;
mod replay;
mod report;
mod shell;
mod start;
mod sweep;
mod target;
mod tune;
mod why;
mod words;

pub use ablation::{AblateArgs, CudaGraphsArgs};
pub use clean::CleanArgs;
pub use compare::{BasisChoice, CalibrateArgs, CompareArgs, FailOn, Limits, ValidateArgs};
pub use config::{ConfigArgs, ConfigCommand, ModelsArgs, SchemaArgs, SchemaCommand};
pub use estimate::{EstimateArgs, SolveWord};
pub use experiment::{
    ConcurrencyArgs, ExperimentArgs, ExperimentCommand, ExperimentFlags, MixedArgs, SeqlenArgs,
};
pub use loadline::LoadlineArgs;
pub use replay::ReplayArgs;
pub use report::ReportArgs;
pub use shell::{CompletionsArgs, ManArgs, ManPage, man_pages};
pub use start::{EngineFlags, StartArgs};
pub use sweep::{MergeArgs, Scheduler, SweepArgs, SweepBench, SweepCommand, SweepRunArgs};
pub use target::{LogArgs, ProcessArgs};
pub use tune::{GoalWord, TuneArgs};
pub use why::WhyArgs;

// Headings of help pages.
const LOAD: &str = "Load";
const MEASURING: &str = "Measuring";
const OUTPUT: &str = "Output";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// How much memory does this LLM container really use, and where does every byte go.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, styles = STYLES, after_help = examples::MAIN, max_term_width = 100)]
pub struct Cli {
    /// How much is printed, and in which colours.
    #[command(flatten)]
    pub talk: OutputArgs,
    /// NVIDIA's management library, where it is not where libraries are
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
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true, help_heading = MEASURING)]
    pub sysfs_root: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How much is printed, and in which colours.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct OutputArgs {
    /// Say nothing but warnings and errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more (twice: debug)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Also off a terminal
    Always,
    /// Nowhere
    Never,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Profile a running container by name
    Profile(Box<ProfileArgs>),
    /// Start a container, profile it when it serves, stop and remove it
    Run(Box<RunArgs>),
    /// Measure a matrix of models, settings and loads, from a file or flags
    Sweep(Box<SweepArgs>),
    /// Vary one thing over a few levels: requests at once, prompt lengths, or mixed prompts
    #[command(visible_alias = "exp")]
    Experiment(Box<ExperimentArgs>),
    /// Find the settings that serve most within latency limits, in a fraction of a sweep's starts
    Tune(Box<TuneArgs>),
    /// Measure two settings of the engine in an idle container, in turn, and compare them
    Ablate(Box<AblateArgs>),
    /// Measure what CUDA graphs cost, on vLLM or TensorRT-LLM
    CudaGraphs(Box<CudaGraphsArgs>),
    /// Find how much load a running engine holds without preemption, queueing or errors
    Loadline(Box<LoadlineArgs>),
    /// Tell what a deployment will need and whether it fits, before it is started
    Estimate(Box<EstimateArgs>),
    /// Compare two profiles part by part, or profiles with figures from elsewhere
    Compare(Box<CompareArgs>),
    /// Hold what was measured against what `estimate` calculates, over a folder of profiles
    Validate(ValidateArgs),
    /// Learn from profiles what the engines' overheads are, for `estimate`
    Calibrate(CalibrateArgs),
    /// Make a report of profiles, sweeps, experiments or load lines: HTML, Markdown, CSV
    Report(ReportArgs),
    /// Show a stored run's memory over time in the terminal
    Replay(ReplayArgs),
    /// Derive the profile of a stored capture again
    Derive(DeriveArgs),
    /// Tell what an engine's log says about memory
    Parse(ParseArgs),
    /// Find why a container died, loops or hangs, and what to change
    Why(WhyArgs),
    /// Show live whose memory the GPUs hold, by container
    Top(TopArgs),
    /// Follow every engine on this host: memory by part, deaths and their causes, as metrics
    Watch(WatchArgs),
    /// Find what holds GPU memory and should not; with --apply get it back
    Clean(Box<CleanArgs>),
    /// List the GPUs that are here, and facts about GPUs for planning
    Gpus(GpusArgs),
    /// List the models whose facts ship, for planning
    Models(ModelsArgs),
    /// Record the memory of GPUs or of a container, to be replayed
    Record(RecordArgs),
    /// Look at the machine: Docker, GPUs, memory backends, engines
    #[command(visible_alias = "env")]
    Doctor(DoctorArgs),
    /// Check a sweep file, write one to begin with, or print its schema
    Config(ConfigArgs),
    /// Print the JSON Schema of the profile document, or check documents against it
    Schema(SchemaArgs),
    /// Print a script by which a shell completes commands and flags
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands into a folder
    Man(ManArgs),
}

/// `plimsoll profile`
#[derive(Debug, Args)]
#[command(after_help = examples::PROFILE)]
pub struct ProfileArgs {
    /// Container: its name, its id or 4 or more characters of it, label=KEY or label=KEY=VALUE
    #[arg(required_unless_present = "process", conflicts_with = "process")]
    pub container: Option<String>,
    /// Without Docker.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Its log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Wait for a server that still loads, this long at most; 0 waits for none [default: 20m on a terminal, else 0]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "20m", value_parser = parse_duration)]
    pub wait: Option<Duration>,
    /// Also run what does not fit on the GPUs that are here, by the estimate
    #[arg(long)]
    pub run_anyway: bool,
    /// What `run` takes too.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// `plimsoll run`
#[derive(Debug, Args)]
#[command(after_help = examples::RUN, override_usage = "plimsoll run [OPTIONS] <--image IMAGE|--preset NAME|-- COMMAND>")]
#[group(id = "what", args = ["image", "preset", "words"], required = true, multiple = true)]
pub struct RunArgs {
    /// Image to start
    #[arg(long, short, help_heading = "Starting a container")]
    pub image: Option<String>,
    /// Preset: a shipped one by name (a wrong name lists them) or a YAML file; flags win over it
    #[arg(long, value_name = "NAME|FILE", help_heading = "Starting a container")]
    pub preset: Option<String>,
    /// Name of the container [default: plimsoll- and the run's id]
    #[arg(long, help_heading = "Starting a container")]
    pub name: Option<String>,
    /// How it is started.
    #[command(flatten, next_help_heading = "Starting a container")]
    pub start: StartArgs,
    /// Leave the container running at the end
    #[arg(long, help_heading = "Starting a container")]
    pub keep: bool,
    /// Also run what does not fit on the GPUs that are here, by the estimate
    #[arg(long, help_heading = "Starting a container")]
    pub run_anyway: bool,
    /// What else is to be on the same GPUs: a container that runs, or a size to leave free; may be repeated
    #[arg(long, value_name = "NAME|SIZE", value_parser = some_text, help_heading = "Starting a container")]
    pub beside: Vec<String>,
    /// Print with --dry-run the line, or the file, that starts the same container without plimsoll
    #[arg(
        long = "as",
        value_name = "FORM",
        requires = "dry_run",
        help_heading = "Starting a container"
    )]
    pub written_as: Option<WrittenForm>,
    /// What `profile` takes too.
    #[command(flatten)]
    pub load: LoadArgs,
    /// A line of `docker run`, after --: the same container is started, and profiled
    #[arg(help_heading = "Starting a container", last = true, value_name = "COMMAND", conflicts_with_all = ["image", "preset", "model"])]
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
    /// Model, as the engine knows it: id or path in the container
    #[arg(long, short, env = "PLIMSOLL_MODEL", hide_env_values = true, value_parser = some_text)]
    pub model: Option<String>,
    /// Engine, where it is not recognised (a wrong name lists the known ones)
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// The model, where its configuration cannot be read.
    #[command(flatten)]
    pub figures: ModelFigures,

    /// Bench to run: one of the engine's own in the container, or builtin, plimsoll's own client
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
    /// Requests in flight at most (serve, builtin)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub max_concurrency: Option<u32>,
    /// Requests per second, at random moments (serve, builtin): a number, or inf
    #[arg(long, value_name = "RPS", value_parser = request_rate, help_heading = LOAD)]
    pub request_rate: Option<f64>,
    /// Random seed of the bench [default: the engine's; builtin: 0]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub seed: Option<u64>,
    /// Run the bench so many times; mean and spread are reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = LOAD)]
    pub repeats: u32,
    /// Tell operators and layers apart, by torch.profiler (transformers)
    #[arg(long, help_heading = LOAD)]
    pub per_layer: bool,
    /// How long to watch with --bench none [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = some_time, help_heading = LOAD)]
    pub duration: Option<Duration>,

    /// Settings of the engine.
    #[command(flatten)]
    pub settings: EngineFlags,

    /// What reads the memory: auto, nvml, amd, host, or replay:FILE for a session that `record` wrote
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_arg, help_heading = MEASURING)]
    pub memory_backend: BackendArg,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval, help_heading = MEASURING)]
    pub sample_interval: Duration,
    /// How long to sample before the load
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration, help_heading = MEASURING)]
    pub baseline: Duration,
    /// Longest time for the whole run
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = some_time, help_heading = MEASURING)]
    pub timeout: Duration,
    /// How much of the log to keep at most
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size, help_heading = MEASURING)]
    pub max_log: String,
    /// Say what would be run, and run nothing
    #[arg(long, help_heading = MEASURING)]
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
    /// One batch after the other, in an engine that the bench loads itself
    Latency,
    /// Many requests at once, in an engine that the bench loads itself
    Throughput,
    /// The engine's own client, against the server that runs in the container
    Serve,
    /// plimsoll's own client, from this host, against that server: any engine that streams
    Builtin,
    /// No load: only watch, for --duration or until Ctrl-C
    None,
}

/// The memory backends that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendWord {
    /// NVML where the container uses an NVIDIA GPU that can be read, else its AMD GPUs, else host
    Auto,
    /// NVIDIA GPUs, through the driver's library
    Nvml,
    /// The container's AMD GPUs, through the kernel's files or AMD's tools
    Amd,
    /// The container's host memory, through its cgroup
    Host,
}

/// A live backend, or a recorded session in place of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendArg {
    /// A live one.
    Live(BackendWord),
    /// What `record` has written, or a stored capture.
    Replay(PathBuf),
}

/// `plimsoll record`
#[derive(Debug, Args)]
#[command(after_help = examples::RECORD)]
pub struct RecordArgs {
    /// File to write; it must not be there yet
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Container whose devices to record: its name, its id or 4 or more characters of it [default: every GPU of the host]
    #[arg(long, value_name = "NAME", conflicts_with = "process")]
    pub container: Option<String>,
    /// Without Docker.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// What reads the memory of the container
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub memory_backend: BackendWord,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval)]
    pub interval: Duration,
    /// How long to record [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub duration: Option<Duration>,
}

/// `plimsoll top`
#[derive(Debug, Args)]
#[command(after_help = examples::TOP)]
pub struct TopArgs {
    /// Look once and end
    #[arg(long)]
    pub once: bool,
    /// Show a recording of `record` instead of this host, as it went
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Print JSON instead of text, a document for each look
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Time between two looks, 1s or more
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = look_interval)]
    pub interval: Duration,
}

/// `plimsoll watch`
#[derive(Debug, Args)]
#[command(after_help = examples::WATCH)]
pub struct WatchArgs {
    /// Serve metrics to Prometheus at this address, as 9400 or 127.0.0.1:9400; a bare port is on the
    /// loopback interface
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub listen: Option<std::net::SocketAddr>,
    /// Time between two scans, 1s or more
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = look_interval)]
    pub interval: Duration,
    /// Keep the latest profile of each container in this folder, as NAME.json
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub profiles: Option<PathBuf>,
    /// Print JSON instead of text, a line for each event
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// `plimsoll gpus`
#[derive(Debug, Args)]
#[command(after_help = examples::GPUS)]
pub struct GpusArgs {
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// `plimsoll derive`
#[derive(Debug, Args)]
#[command(after_help = examples::DERIVE)]
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

/// `plimsoll parse`
#[derive(Debug, Args)]
#[command(after_help = examples::PARSE)]
pub struct ParseArgs {
    /// Engine whose log it is; auto: told from its lines
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
#[command(after_help = examples::DOCTOR)]
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
        return Err(
            "must be 10ms or more: reading memory faster than that would disturb what is measured"
                .into(),
        );
    }
    if interval > Duration::from_secs(60) {
        return Err("must be 60s or less".into());
    }
    Ok(interval)
}

fn look_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_secs(1) {
        return Err("must be 1s or more: lists of processes are read no more often".into());
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

fn backend_arg(text: &str) -> Result<BackendArg, String> {
    match text.strip_prefix("replay:") {
        Some("") => Err("name the recording: replay:FILE".into()),
        Some(path) => Ok(BackendArg::Replay(path.into())),
        None => BackendWord::from_str(text, true)
            .map(BackendArg::Live)
            .map_err(|_| {
                format!(
                    "invalid memory backend `{text}`: one of auto, nvml, amd, host, replay:FILE"
                )
            }),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 1.0 => Ok(v),
        _ => Err("must be above 0 and at most 1".into()),
    }
}

fn request_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 => Ok(v),
        _ => Err("must be above 0, or inf".into()),
    }
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
        assert_eq!(backend_arg("nvml"), Ok(BackendArg::Live(BackendWord::Nvml)));
        assert_eq!(
            backend_arg("replay:a b.jsonl"),
            Ok(BackendArg::Replay("a b.jsonl".into()))
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
