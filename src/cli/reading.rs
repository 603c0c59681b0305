//! Flags of the verbs that show what was kept: `report`, `replay` and `why`.

use super::{LogArgs, OUTPUT, ProcessArgs, number, some_text};
use clap::Args;
use std::path::PathBuf;

/// `plimsoll report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Profiles, captures, documents, or folders with these in them; - is a document on standard input
    #[arg(required = true, value_name = "DIR|FILE")]
    pub paths: Vec<PathBuf>,
    /// Formats, separated by commas (a wrong one lists the known) [default: what --output ends in, else html]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = OUTPUT)]
    pub format: Vec<String>,
    /// Folder, or a file for a single format; - is standard output [default: beside the input]
    #[arg(long, short, value_name = "DIR|FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Overwrite files that are not reports
    #[arg(long, help_heading = OUTPUT)]
    pub force: bool,
    /// Everything in Markdown [default: a summary]
    #[arg(long, help_heading = OUTPUT)]
    pub full: bool,
    /// Title of the report
    #[arg(long, value_name = "TEXT", value_parser = some_text)]
    pub title: Option<String>,
    /// Price of one GPU hour: adds the cost per million tokens
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub gpu_hour_price: Option<f64>,
    /// Currency of that price, as USD
    #[arg(long, value_name = "WORD", requires = "gpu_hour_price", value_parser = some_text)]
    pub currency: Option<String>,
    /// Compare two profiles, or two sweeps; the baseline first
    #[arg(long)]
    pub compare: bool,
}

fn price(text: &str) -> Result<f64, String> {
    number(
        text.trim(),
        |p| p > 0.0 && p < 1e9,
        "must be a number above 0",
    )
}

/// `plimsoll replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Profile, `.capture` folder, recording, or a folder with one run
    pub path: PathBuf,
    /// Begin at this second of the run
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = moment)]
    pub from: Option<f64>,
    /// End at this second of the run
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = moment)]
    pub to: Option<f64>,
    /// Show this device only, by its index
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Play it on the terminal, this many times as fast
    #[arg(long, value_name = "N", value_parser = speed)]
    pub speed: Option<f64>,
}

fn moment(text: &str) -> Result<f64, String> {
    let text = text.trim().trim_end_matches('s').trim_end();
    number(text, f64::is_finite, "a number of seconds, as 12.5")
}

fn speed(text: &str) -> Result<f64, String> {
    let is_right = |n: f64| n.is_finite() && n > 0.0;
    number(
        text.trim().trim_end_matches('x'),
        is_right,
        "a number above 0, as 10",
    )
}

/// `plimsoll why`
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Container (in any state), Compose project, log file, capture, profile or bundle; - reads
    /// standard input
    #[arg(
        value_name = "NAME|ID|PROJECT|LOG|DIR",
        required_unless_present = "process",
        conflicts_with = "process"
    )]
    pub target: Option<String>,
    /// Without Docker.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Its log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Facts about a log: what `docker inspect` prints, or JSON with engine, version, gpu and container
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// Watch for the next death; show the memory of the minute before
    #[arg(long, conflicts_with = "facts")]
    pub watch: bool,
    /// Also write the evidence, redacted, to an archive for a bug report
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub bundle: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

impl WhyArgs {
    /// What is named by position; empty where the flags name a process.
    pub fn named(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_an_amount_of_money() {
        assert_eq!(price("2.5"), Ok(2.5));
        for text in ["0", "-1", "nan", "inf", "1e12", "free"] {
            assert!(price(text).is_err(), "{text}");
        }
    }
}
