//! The flags of `sweep` and `config`.

use super::{
    MEASURING, OUTPUT, ResultsArgs, backend_arg, parse_duration, percent, sample_interval, size,
    some_text, some_time,
};
use crate::collect::MemorySource;
use crate::matrix::BenchWord;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const NO_FILE: &str = "Without a file";
const MACHINES: &str = "Beyond one machine";

/// `plimsoll sweep`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    /// `merge`, beside the running itself.
    #[command(subcommand)]
    pub command: Option<SweepCommand>,
    /// What to run.
    #[command(flatten)]
    pub run: SweepRunArgs,
}

/// What can be done with sweeps besides running one.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Join several runs: shards of one sweep, or stages
    Merge(MergeArgs),
}

/// `plimsoll sweep merge`
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Folders of runs, each with its journal
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Folder for the joined results; it must be new or empty [default: beside the first, named merged-TIME]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Running a sweep.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("results_dir", |arg| arg.help("Results directory: a run goes to DIR/NAME/TIME/")))]
// `requires` of an argument is skipped where what it requires is in conflict with another.
#[command(group(ArgGroup::new("instead_of_file")
    .multiple(true)
    .requires("container")
    .conflicts_with_all(["file", "config"])))]
pub struct SweepRunArgs {
    /// File with the models and their settings; - reads it from standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["container", "config"], conflicts_with = "container")]
    pub file: Option<PathBuf>,
    /// Another name for FILE
    #[arg(long = "config", short = 'c', value_name = "FILE", hide = true, conflicts_with_all = ["file", "container"])]
    pub config: Option<PathBuf>,
    /// Show the plan, its duration, and checks of containers, models, GPUs and disk; run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Measure the loads where memory ends or a curve bends; interpolate the others, within PERCENT
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = percent, conflicts_with = "fresh")]
    pub adaptive: Option<f64>,
    /// Start the engine again for each cell, even if only the load differs
    #[arg(long)]
    pub fresh: bool,
    /// Start the engine's bench client again for each cell
    #[arg(long)]
    pub fresh_client: bool,
    /// Keep the engines' compile caches in a Docker volume, from one start to the next
    #[arg(long)]
    pub compile_cache: bool,
    // An empty value means the latest, which a parser of paths would refuse.
    /// Resume the latest run of this sweep, or the one in DIR
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub resume: Option<PathBuf>,
    /// Resume, and repeat failed cells
    #[arg(long)]
    pub retry_failed: bool,
    /// Also run cells that ran out of memory before, or need more memory than these
    #[arg(long)]
    pub retry_oom: bool,
    /// Run even if the estimate says that it does not fit
    #[arg(long)]
    pub run_anyway: bool,
    /// Run only the cells with these ids (or beginnings of ids)
    #[arg(long, value_name = "ID")]
    pub only: Vec<String>,
    /// Retries per cell after transient errors (Docker did not answer)
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub retries: u32,

    /// Container to measure in: name or id
    #[arg(long, value_name = "NAME", num_args = 1.., help_heading = NO_FILE)]
    pub container: Vec<String>,
    /// Model id, or its path in the container
    #[arg(long, short, value_name = "MODEL", num_args = 1.., group = "instead_of_file", help_heading = NO_FILE)]
    pub model: Vec<String>,
    /// Engine, if it is not recognised (an unknown name lists them)
    #[arg(long, value_name = "NAME", group = "instead_of_file", help_heading = NO_FILE)]
    pub engine: Option<String>,
    /// Prompt tokens per request, one or more
    #[arg(long, value_name = "TOKENS", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..), group = "instead_of_file", help_heading = NO_FILE)]
    pub input_len: Vec<u32>,
    /// Generated tokens per request, one or more
    #[arg(long, value_name = "TOKENS", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..), group = "instead_of_file", help_heading = NO_FILE)]
    pub output_len: Vec<u32>,
    /// Sequences per batch, one or more
    #[arg(long, value_name = "N", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..), group = "instead_of_file", help_heading = NO_FILE)]
    pub batch_size: Vec<u32>,
    /// Parameters of the model, as in 6.7e9 (kept with the results)
    #[arg(long, value_name = "N", group = "instead_of_file", help_heading = NO_FILE)]
    pub model_params: Option<f64>,
    /// Layers of the model (kept with the results)
    #[arg(long, value_name = "N", group = "instead_of_file", help_heading = NO_FILE)]
    pub num_layers: Option<u32>,
    /// Attention heads of the model (kept with the results)
    #[arg(long, value_name = "N", group = "instead_of_file", help_heading = NO_FILE)]
    pub num_heads: Option<u32>,
    /// Key and value heads of the model (kept with the results)
    #[arg(long, value_name = "N", group = "instead_of_file", help_heading = NO_FILE)]
    pub num_kv_heads: Option<u32>,
    /// Head dimension of the model (kept with the results)
    #[arg(long, value_name = "N", group = "instead_of_file", help_heading = NO_FILE)]
    pub head_dim: Option<u32>,
    /// Hidden size of the model (kept with the results)
    #[arg(long, value_name = "N", group = "instead_of_file", help_heading = NO_FILE)]
    pub hidden_size: Option<u32>,

    /// Source of the load, if the file does not set it
    #[arg(long, value_name = "KIND", help_heading = MEASURING)]
    pub bench: Option<BenchWord>,
    /// Source of memory readings: auto, nvml, amd, intel, host
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_arg, help_heading = MEASURING)]
    pub memory_backend: MemorySource,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval, help_heading = MEASURING)]
    pub sample_interval: Duration,
    /// How long to sample before the load of a cell
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration, help_heading = MEASURING)]
    pub baseline: Duration,
    /// Longest time for one cell [default: the file's, or 1h]
    #[arg(long, value_name = "TIME", value_parser = some_time, help_heading = MEASURING)]
    pub timeout: Option<Duration>,
    /// Longest wait for an engine to serve [default: the file's, or 20m]
    #[arg(long, value_name = "TIME", value_parser = some_time, help_heading = MEASURING)]
    pub health_timeout: Option<Duration>,
    /// Longest wait for memory to be freed between two engines
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time, help_heading = MEASURING)]
    pub settle_timeout: Duration,
    /// Largest part of the log to keep, per cell
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size, help_heading = MEASURING)]
    pub max_log: String,

    /// Name of the sweep [default: the file's]
    #[arg(long, value_name = "NAME", value_parser = some_text, help_heading = OUTPUT)]
    pub name: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Folder for this run, instead of a name in the results directory
    #[arg(long, short, value_name = "DIR", help_heading = OUTPUT, conflicts_with = "resume")]
    pub output_dir: Option<PathBuf>,
    /// Print the results (with --dry-run: the plan) as JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,

    /// Where else it runs.
    #[command(flatten)]
    pub machines: MachineArgs,
}

/// Beyond this machine: as one part of several, on a cluster, or over ssh.
#[derive(Debug, Clone, Default, Args)]
pub struct MachineArgs {
    /// Run one part of several, as 2/4; `sweep merge` joins the parts
    #[arg(long, value_name = "I/N", help_heading = MACHINES)]
    pub shard: Option<String>,
    /// Resume the run in DIR, or begin it there (for schedulers that restart jobs)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "output_dir"], help_heading = MACHINES)]
    pub begin_or_resume: Option<PathBuf>,
    /// Submit it to a scheduler as an array of shards; wait and merge
    #[arg(long, value_name = "SCHEDULER", help_heading = MACHINES, conflicts_with_all = ["shard", "dry_run"])]
    pub submit: Option<Scheduler>,
    /// Number of shards (largest number of nodes)
    #[arg(long, value_name = "N", requires = "submit", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = MACHINES)]
    pub nodes: Option<u32>,
    /// Partition to submit to
    #[arg(long, value_name = "NAME", requires = "submit", help_heading = MACHINES)]
    pub partition: Option<String>,
    /// Generic resources of each task, as gpu:8
    #[arg(long, value_name = "GRES", requires = "submit", help_heading = MACHINES)]
    pub gres: Option<String>,
    /// Time limit of each task, as the scheduler writes it
    #[arg(long, value_name = "TIME", requires = "submit", help_heading = MACHINES)]
    pub time_limit: Option<String>,
    /// Account to charge
    #[arg(long, value_name = "NAME", requires = "submit", help_heading = MACHINES)]
    pub account: Option<String>,
    /// Further argument for sbatch; may be repeated
    #[arg(long, value_name = "ARG", requires = "submit", allow_hyphen_values = true, help_heading = MACHINES)]
    pub sbatch_arg: Vec<String>,
    /// Print the script that would be submitted, and submit nothing
    #[arg(long, requires = "submit", help_heading = MACHINES)]
    pub print: bool,
    /// Submit and exit; `sweep merge` joins the shards later
    #[arg(long, requires = "submit", help_heading = MACHINES)]
    pub no_wait: bool,
    /// Run it on another machine with plimsoll: ssh://USER@HOST:PORT; user and port are optional
    #[arg(long, value_name = "URL", conflicts_with = "submit", help_heading = MACHINES)]
    pub docker_host: Option<String>,
}

/// Schedulers that a sweep can be submitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scheduler {
    /// Slurm, by sbatch
    Slurm,
}
