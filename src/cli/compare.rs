//! Flags of `compare`, `validate` and `calibrate`.

use super::{OUTPUT, ResultsArgs, number, without_percent};
use crate::compare::given::KvBasis;
use crate::units::{Bytes, GIB};
use clap::Args;
use std::path::PathBuf;

const CALCULATED: &str = "Calculated elsewhere";

/// `plimsoll compare`
#[derive(Debug, Args)]
#[group(id = "judging", args = ["fail_on", "against"], multiple = false)]
pub struct CompareArgs {
    /// Two profiles, the baseline first; or one or more with --calc-*
    #[arg(required = true, value_name = "PROFILE")]
    pub profiles: Vec<PathBuf>,
    /// Compare one profile with a baseline of 3 or more profiles; may be repeated
    #[arg(long, value_name = "PROFILE|DIR", help_heading = "Judging")]
    pub against: Vec<PathBuf>,
    /// Calculated weights, GiB over all GPUs, or with a unit
    #[arg(long, value_name = "GIB", value_parser = gib, help_heading = CALCULATED)]
    pub calc_weights: Option<u64>,
    /// Calculated KV cache, GiB over all GPUs
    #[arg(long, value_name = "GIB", value_parser = gib, help_heading = CALCULATED)]
    pub calc_kv: Option<u64>,
    /// Calculated activations, GiB over all GPUs
    #[arg(long, value_name = "GIB", value_parser = gib, help_heading = CALCULATED)]
    pub calc_activations: Option<u64>,
    /// Calculated overhead, GiB over all GPUs
    #[arg(long, value_name = "GIB", value_parser = gib, help_heading = CALCULATED)]
    pub calc_overhead: Option<u64>,
    /// Meaning of --calc-kv
    #[arg(long, value_name = "WHAT", default_value = "pool", requires = "calc_kv", help_heading = CALCULATED)]
    pub kv_basis: KvBasis,
    /// How large differences may be.
    #[command(flatten)]
    pub limits: Limits,
    /// Judge even if batch, lengths, precision or memory differ
    #[arg(long, requires = "judging", help_heading = "Judging")]
    pub force: bool,
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Write the table to a CSV file, too
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub csv: Option<PathBuf>,
}

/// How large differences may be.
#[derive(Debug, Clone, Copy, Args)]
pub struct Limits {
    /// Exit with code 7 if a component differs by more, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Judging")]
    pub fail_on: Option<f64>,
    /// Ignore differences up to this size
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = bytes, requires = "judging", help_heading = "Judging")]
    pub ignore_below: u64,
}

/// `plimsoll validate`
#[derive(Debug, Args)]
#[command(mut_arg("results_dir", |arg| arg.help("Results directory: reports go to DIR/validation-reports/")))]
pub struct ValidateArgs {
    /// Profiles, or folders with profiles in them
    #[arg(required = true, value_name = "PROFILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Exit with code 7 if an item is off by more, in percent, or by its own tolerance
    #[arg(long, value_name = "PERCENT|tolerance", value_parser = fail_on, help_heading = "Judging")]
    pub fail_on: Option<FailOn>,
    /// Where results go.
    #[command(flatten)]
    pub results: ResultsArgs,
    /// Folder for the reports, instead of one in the results directory
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub output_dir: Option<PathBuf>,
    /// Print JSON instead of text; write reports only with --output-dir
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// How far a calculation may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FailOn {
    /// By this many percent.
    Percent(f64),
    /// Each item by its own tolerance.
    Tolerance,
}

/// `plimsoll calibrate`
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Profiles, or folders with profiles in them [default: the results directory]
    #[arg(value_name = "PROFILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Where results go.
    #[command(flatten)]
    pub results: ResultsArgs,
    /// File for the database [default: in the state folder]
    #[arg(long, short, value_name = "FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Forget the runs in the database
    #[arg(long)]
    pub fresh: bool,
    /// Show correlations instead: memory with power, temperature, batch and KV use
    #[arg(long, conflicts_with_all = ["output", "fresh"])]
    pub correlations: bool,
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

/// `13.5` is GiB; another unit may be given.
fn gib(text: &str) -> Result<u64, String> {
    match text.trim().parse::<f64>() {
        Ok(gib) if gib.is_finite() && (0.0..=1e9).contains(&gib) => Ok((gib * GIB).round() as u64),
        Ok(_) => Err("must be 0 or more GiB".into()),
        Err(_) => bytes(text),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<Bytes>()
        .map(|b| b.0)
        .map_err(|e| e.to_string())
}

/// `5%` and `5`.
fn percent(text: &str) -> Result<f64, String> {
    let is_right = |p: f64| p.is_finite() && p >= 0.0;
    number(
        without_percent(text),
        is_right,
        "must be 0 or more percent: 5%",
    )
}

fn fail_on(text: &str) -> Result<FailOn, String> {
    match text.trim() {
        "tolerance" => Ok(FailOn::Tolerance),
        other => percent(other)
            .map(FailOn::Percent)
            .map_err(|_| "must be 0 or more percent (5%), or tolerance".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_calculators_print_them() {
        assert_eq!(gib("0.5"), Ok(1 << 29));
        assert_eq!(gib("512MiB"), Ok(1 << 29));
        assert!(gib("-1").is_err() && gib("nan").is_err() && gib("1e300").is_err());
        assert_eq!(percent("5%"), Ok(5.0));
        assert_eq!(percent("0.5 %"), Ok(0.5));
        assert!(percent("-5%").is_err() && percent("inf").is_err() && percent("%").is_err());
        assert_eq!(fail_on("tolerance"), Ok(FailOn::Tolerance));
    }
}
