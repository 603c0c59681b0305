//! Flags of `tune`.

use super::loadline::percentile;
use super::{ExperimentFlags, LOAD, LONGEST_INPUT, MachineArgs, percent, some_time};
use crate::matrix::SettingValues;
use crate::tune::TuningGoal;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;
use std::time::Duration;

const SEARCH: &str = "Search";

/// `plimsoll tune`
#[derive(Debug, Args)]
#[command(
    mut_arg("container", |arg| arg
        .value_name("FILE|NAME")
        .help("Sweep file with the settings to try, or an idle container")),
    mut_arg("results_dir", |arg| arg.help("Results directory: a run goes to DIR/tune/NAME/TIME/")),
    mut_arg("output_dir", |arg| arg.help("Folder for this run, new or empty, instead of a name in the results directory")),
    mut_arg("num_prompts", |arg| arg
        .help("Requests of a long load [default: 4 for each concurrent request, at least 16]; a short one has a quarter")),
    mut_arg("repeats", |arg| arg.default_value("3").help("Number of long loads of the winner; mean and spread are reported")),
    mut_arg("gen_toks", |arg| arg.help("Generated tokens per request; a FILE has its own lengths")),
    mut_arg("seed", |arg| arg.help("Random seed of the search and of the prompts [default: 0]")),
    mut_arg("timeout", |arg| arg.help("Longest time for one load")),
    mut_arg("baseline", |arg| arg.help("How long to sample before each load")),
    mut_arg("max_log", |arg| arg.help("Largest part of the log to keep, per load")),
    mut_arg("num_iters_warmup", |arg| arg.help("Warm-up requests of each load [default: 1]")),
    mut_arg("shard", |arg| arg.help("Run one part of several, as 2/4; `sweep merge` joins the parts, --resume=JOINED answers")),
    mut_arg("no_wait", |arg| arg.help("Submit and exit; `sweep merge` joins the shards later, and --resume=JOINED answers")),
    mut_arg("bench", |arg| arg.help("What puts the load on; only builtin measures the latency of single requests"))
)]
pub struct TuneArgs {
    /// What to maximize
    #[arg(long, value_name = "GOAL", default_value = "throughput", help_heading = SEARCH)]
    pub goal: TuningGoal,
    /// Latency limits, as ttft=500ms,itl.p99=50ms; may be repeated
    #[arg(long, value_name = "LIMITS", help_heading = SEARCH)]
    pub slo: Vec<String>,
    /// Percentile of limits that name no statistic: 50, 90, 95 or 99
    #[arg(long, value_name = "P", default_value_t = 95, value_parser = percentile, requires = "slo", help_heading = SEARCH)]
    pub slo_percentile: u32,
    /// Memory of the fullest device that must stay free, percent
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent, help_heading = SEARCH)]
    pub headroom: f64,
    /// A setting and its values, as max-num-seqs=16,64; may be repeated
    ///
    /// `true` is the flag alone, `false` leaves it out.
    #[arg(long, value_name = "NAME=VALUES", help_heading = SEARCH)]
    pub set: Vec<SettingValues>,
    /// Engines to start at most [default: one for 5 combinations, at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = SEARCH)]
    pub max_starts: Option<u32>,
    /// Start no engine that would probably end after this time, all runs that were resumed together
    #[arg(long, value_name = "TIME", value_parser = some_time, help_heading = SEARCH)]
    pub budget: Option<Duration>,
    /// Resume the latest run, or the one in DIR
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = OsStringValueParser::new().map(PathBuf::from), conflicts_with = "output_dir", help_heading = SEARCH)]
    pub resume: Option<PathBuf>,
    /// Measure again what earlier runs in the results directory measured
    #[arg(long, help_heading = SEARCH)]
    pub again: bool,

    /// Start engines without the compile caches that earlier starts left in a Docker volume
    #[arg(long, help_heading = SEARCH)]
    pub cold_starts: bool,

    /// Concurrent requests of the loads, from few to many [default: 4,16,64, or the batch sizes of a FILE]
    #[arg(long, visible_alias = "levels", value_name = "N", num_args = 1.., value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = LOAD)]
    pub concurrency: Vec<u32>,
    /// Prompt tokens per request; a FILE has its own lengths
    #[arg(long, visible_alias = "prompt-toks", value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=LONGEST_INPUT), help_heading = LOAD)]
    pub input_len: u32,

    /// Where it runs and how it is measured.
    #[command(flatten)]
    pub flags: ExperimentFlags,
    /// Where else it runs.
    #[command(flatten)]
    pub machines: MachineArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(line: &str) -> Result<Box<TuneArgs>, String> {
        let words = ["plimsoll", "tune"]
            .into_iter()
            .chain(line.split_whitespace());
        match Cli::try_parse_from(words)
            .map_err(|e| e.to_string())?
            .command
        {
            Command::Tune(args) => Ok(args),
            _ => Err("another command".into()),
        }
    }

    #[test]
    fn settings_goals_and_limits_are_read() {
        let args =
            parsed("idle --set max-num-seqs=16,64 --set tp=1,2 --goal cost --headroom 8%").unwrap();
        assert_eq!(args.flags.container(), Some("idle"));
        assert_eq!((args.set.len(), args.goal), (2, TuningGoal::Cost));
        assert_eq!((args.headroom, args.flags.repeats), (8.0, 3));
        assert_eq!(
            parsed("idle --resume").unwrap().resume,
            Some(PathBuf::new())
        );
        assert!(
            parsed("idle --headroom 95")
                .unwrap_err()
                .contains("0 to 90")
        );
        assert!(parsed("idle --set x").unwrap_err().contains("no values"));
        assert!(
            parsed("idle --goal fast")
                .unwrap_err()
                .contains("throughput")
        );
    }
}
