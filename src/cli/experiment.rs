//! Flags of `experiment`.

use super::{
    EngineFlags, LOAD, LONGEST_INPUT, MEASURING, OUTPUT, ResultsArgs, STARTING, StartArgs,
    backend_arg, number, parse_duration, sample_interval, size, some_text, some_time,
};
use crate::collect::MemorySource;
use crate::matrix::BenchWord;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// `plimsoll experiment`
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// What is varied.
    #[command(subcommand)]
    pub command: ExperimentCommand,
}

/// What an experiment varies.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Vary the number of concurrent requests
    Concurrency(ConcurrencyArgs),
    /// Vary the prompt length
    Seqlen(SeqlenArgs),
    /// Measure short, long and mixed prompts
    Mixed(MixedArgs),
}

/// `plimsoll experiment concurrency`
#[derive(Debug, Args)]
pub struct ConcurrencyArgs {
    /// Concurrent requests of each level
    #[arg(long, visible_alias = "concurrency", value_name = "N", num_args = 1.., value_delimiter = ',', default_value = "1,2,4,8", value_parser = requests_at_once, help_heading = "Levels")]
    pub levels: Vec<u32>,
    /// Prompt tokens per request
    #[arg(long, visible_alias = "input-len", value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=LONGEST_INPUT), help_heading = "Levels")]
    pub prompt_toks: u32,
    /// What all kinds take.
    #[command(flatten)]
    pub flags: ExperimentFlags,
}

/// `plimsoll experiment seqlen`
#[derive(Debug, Args)]
pub struct SeqlenArgs {
    /// Prompt tokens per request of each level
    #[arg(long, visible_alias = "prompt-toks", value_name = "TOKENS", num_args = 1.., value_delimiter = ',', default_value = "64,128,256,512", value_parser = prompt_tokens, help_heading = "Levels")]
    pub seqlens: Vec<u32>,
    /// Concurrent requests in all levels
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Levels")]
    pub concurrency: u32,
    /// What all kinds take.
    #[command(flatten)]
    pub flags: ExperimentFlags,
}

/// `plimsoll experiment mixed`
#[derive(Debug, Args)]
pub struct MixedArgs {
    /// Tokens of a short prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=LONGEST_INPUT), help_heading = "Levels")]
    pub short: u32,
    /// Tokens of a long prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=LONGEST_INPUT), help_heading = "Levels")]
    pub long: u32,
    /// Share of short prompts in the mix, between 0 and 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = inner_share, help_heading = "Levels")]
    pub ratio: f64,
    /// Concurrent requests in all levels
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Levels")]
    pub concurrency: u32,
    /// What all kinds take.
    #[command(flatten)]
    pub flags: ExperimentFlags,
}

/// What all kinds of experiments take.
#[derive(Debug, Args)]
#[command(mut_arg("results_dir", |arg| arg.help("Results directory: an experiment goes to DIR/experiments/KIND-TIME/")))]
pub struct ExperimentFlags {
    /// Container with the engine: name or id
    #[arg(value_name = "CONTAINER")]
    pub container: Option<String>,
    /// Container, as a flag
    #[arg(long = "container", value_name = "NAME", conflicts_with = "container")]
    pub container_flag: Option<String>,
    /// Image to start instead; it is stopped and removed at the end
    #[arg(long, short, value_name = "IMAGE", conflicts_with_all = ["container", "container_flag"], help_heading = STARTING)]
    pub image: Option<String>,
    /// Preset to start instead: built-in (an unknown name lists them) or a YAML file
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["container", "container_flag"], help_heading = STARTING)]
    pub preset: Option<String>,
    /// How it is started.
    #[command(flatten, next_help_heading = STARTING)]
    pub start: StartArgs,

    /// Model id, or its path in the container [default: the served model]
    #[arg(long, short, env = "PLIMSOLL_MODEL", hide_env_values = true, value_parser = some_text, help_heading = LOAD)]
    pub model: Option<String>,
    /// Engine, if it is not recognised (an unknown name lists them)
    #[arg(long, value_name = "NAME", help_heading = LOAD)]
    pub engine: Option<String>,
    /// Generated tokens per request
    #[arg(long, visible_alias = "output-len", value_name = "TOKENS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub gen_toks: u32,
    /// Requests of a level [default: 4 per concurrent request, at least 16]
    #[arg(long, visible_alias = "requests", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = LOAD)]
    pub num_prompts: Option<u32>,
    /// Warm-up requests of each level
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub num_iters_warmup: Option<u32>,
    /// Number of runs of each level
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = LOAD)]
    pub repeats: u32,
    /// Random seed of prompts and lengths; each level uses the next [default: from the clock, so
    /// that prefix caches do not match]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub seed: Option<u64>,
    /// Source of the load; only builtin has a row per request, and mixed prompts
    #[arg(long, value_name = "KIND", default_value = "builtin", help_heading = LOAD)]
    pub bench: BenchWord,

    /// Settings of the engine.
    #[command(flatten)]
    pub settings: EngineFlags,

    /// Source of memory readings: auto, nvml, amd, intel, host
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_arg, help_heading = MEASURING)]
    pub memory_backend: MemorySource,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval, help_heading = MEASURING)]
    pub sample_interval: Duration,
    /// How long to sample before the load of a level
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration, help_heading = MEASURING)]
    pub baseline: Duration,
    /// Longest time for one level
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = some_time, help_heading = MEASURING)]
    pub timeout: Duration,
    /// Largest part of the log to keep, per level
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size, help_heading = MEASURING)]
    pub max_log: String,
    /// Show the plan; run nothing
    #[arg(long, help_heading = MEASURING)]
    pub dry_run: bool,

    /// Where results go.
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Folder for this experiment, new or empty, instead of a name in the results directory
    #[arg(long, short, value_name = "DIR", help_heading = OUTPUT)]
    pub output_dir: Option<PathBuf>,
    /// Print the document as JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

impl ExperimentFlags {
    /// The container that is named, one way or the other.
    pub fn container(&self) -> Option<&str> {
        self.container.as_deref().or(self.container_flag.as_deref())
    }
}

/// Most requests at once: each has a connection of its own.
const MOST_AT_ONCE: u32 = 10_000;

fn requests_at_once(text: &str) -> Result<u32, String> {
    level(text, MOST_AT_ONCE)
}

fn prompt_tokens(text: &str) -> Result<u32, String> {
    level(text, u32::try_from(LONGEST_INPUT).unwrap_or(u32::MAX))
}

/// One level: the name of a container that comes after the levels is taken for one of them.
fn level(text: &str, most: u32) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(0) => Err(format!("must be 1 to {most}")),
        Ok(n) if n <= most => Ok(n),
        Ok(_) => Err(format!("must be 1 to {most}")),
        Err(_) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            Err(format!("must be a whole number, 1 to {most}"))
        }
        Err(_) => {
            Err("not a number (write the container before the levels, or after --container)".into())
        }
    }
}

fn inner_share(text: &str) -> Result<f64, String> {
    number(text, |v| v > 0.0 && v < 1.0, "must be above 0 and below 1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(line: &str) -> Result<ExperimentCommand, String> {
        let words = ["plimsoll", "experiment"]
            .into_iter()
            .chain(line.split_whitespace());
        match Cli::try_parse_from(words)
            .map_err(|e| e.to_string())?
            .command
        {
            Command::Experiment(args) => Ok(args.command),
            _ => Err("another command".into()),
        }
    }

    #[test]
    fn levels_are_written_with_spaces_or_commas() {
        for line in [
            "concurrency llm --levels 1 2 8",
            "concurrency llm --levels 1,2,8",
            "concurrency --concurrency 1,2 8 --container llm",
            "concurrency --levels=1,2,8 llm",
        ] {
            let Ok(ExperimentCommand::Concurrency(args)) = parsed(line) else {
                panic!("{line}: {:?}", parsed(line));
            };
            assert_eq!(args.levels, [1, 2, 8], "{line}");
            assert_eq!(args.flags.container(), Some("llm"), "{line}");
        }
        let Ok(ExperimentCommand::Seqlen(args)) =
            parsed("seqlen llm --seqlens 64 128 --gen-toks 8")
        else {
            panic!("no seqlen");
        };
        assert_eq!((args.seqlens, args.flags.gen_toks), (vec![64, 128], 8));
    }

    #[test]
    fn an_invalid_level_is_refused() {
        let refused = |line: &str| parsed(line).unwrap_err();
        assert!(refused("concurrency llm --levels 0").contains("1 to 10000"));
        assert!(refused("concurrency llm --levels 1 x").contains("before the levels"));
        assert!(refused("concurrency --levels 1 2 llm").contains("before the levels"));
        assert!(refused("concurrency llm --levels 1.5").contains("whole number"));
        assert!(refused("mixed llm --ratio 1").contains("below 1"));
        assert!(refused("concurrency llm --image x").contains("cannot be used with"));
        assert!(refused("concurrency llm --level 1").contains("--levels"));
    }
}
