//! Flags of `loadline`.

use super::{
    LOAD, LONGEST_INPUT, MEASURING, OUTPUT, ResultsArgs, number, sample_interval, size, some_text,
    without_percent,
};
use crate::telemetry::BackendChoice;
use crate::units::{parse_duration, some_time};
use clap::Args;
use std::time::Duration;

/// `plimsoll loadline`
#[derive(Debug, Args)]
#[command(mut_arg("results_dir", |arg| arg.help("Results directory: a load line goes to DIR/loadline/CONTAINER-TIME/")))]
pub struct LoadlineArgs {
    /// Container with a serving engine: name, id, or label=KEY[=VALUE]
    pub container: String,
    /// Model id, or its path in the container [default: the served model]
    #[arg(long, short, env = "PLIMSOLL_MODEL", hide_env_values = true, value_parser = some_text)]
    pub model: Option<String>,
    /// Engine, if it is not recognised (an unknown name lists them)
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,

    /// Prompt tokens per request
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=LONGEST_INPUT), help_heading = LOAD)]
    pub input_len: u32,
    /// Generated tokens per request
    #[arg(long, visible_alias = "max-tokens", value_name = "TOKENS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..), help_heading = LOAD)]
    pub output_len: u32,
    /// Requests per round and concurrent request; the first wave starts together
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = LOAD)]
    pub waves: u32,
    /// Latency limits that the load must meet; may be repeated
    #[arg(long, value_name = "LIMITS", help_heading = LOAD)]
    pub slo: Vec<String>,
    /// Percentile of limits without a statistic: 50, 90, 95 or 99
    #[arg(long, value_name = "P", default_value_t = 95, value_parser = percentile, requires = "slo", help_heading = LOAD)]
    pub slo_percentile: u32,
    /// Random seed of the prompts; each round uses the next [default: from the clock, so that
    /// prefix caches do not match]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub seed: Option<u64>,

    /// Most rounds
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Search")]
    pub max_rounds: u32,
    /// Stop when the bracket is within this percentage, or one request
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = tolerance, help_heading = "Search")]
    pub tolerance: f64,
    /// Concurrent requests of the first round [default: the prediction, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Search")]
    pub start: Option<u32>,
    /// Most concurrent requests
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Search")]
    pub max_concurrency: u32,
    /// Predict from the engine's settings; send no request
    #[arg(long, help_heading = "Search")]
    pub predict_only: bool,

    /// Source of memory readings
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = MEASURING)]
    pub memory_backend: BackendChoice,
    /// Time between samples, 10ms or more
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = sample_interval, help_heading = MEASURING)]
    pub sample_interval: Duration,
    /// How long to sample before each load
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, help_heading = MEASURING)]
    pub baseline: Duration,
    /// Longest time for one round
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = some_time, help_heading = MEASURING)]
    pub timeout: Duration,
    /// Largest part of the log to keep, per round
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size, help_heading = MEASURING)]
    pub max_log: String,

    /// Where results go.
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Print the document as JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// A percentile that the client gives.
pub(super) fn percentile(text: &str) -> Result<u32, String> {
    match text.trim().trim_start_matches('p').parse() {
        Ok(p @ (50 | 90 | 95 | 99)) => Ok(p),
        _ => Err("one of 50, 90, 95, 99".into()),
    }
}

/// `5%` and `5`, as a part of one.
fn tolerance(text: &str) -> Result<f64, String> {
    let wanted = "must be above 0 and at most 50 percent: 5%";
    number(without_percent(text), |p| p > 0.0 && p <= 50.0, wanted).map(|p| p / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_and_percentiles_are_read_as_people_write_them() {
        assert_eq!(tolerance("5%"), Ok(0.05));
        assert_eq!(tolerance("10"), Ok(0.10));
        assert!(tolerance("0").is_err() && tolerance("80%").is_err() && tolerance("x").is_err());
        assert_eq!(percentile("p99"), Ok(99));
        assert!(percentile("42").is_err() && percentile("").is_err());
    }
}
