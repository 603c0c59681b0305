//! Flags of `why`.

use clap::Args;
use std::path::PathBuf;

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
    pub process: super::ProcessArgs,
    /// Its log.
    #[command(flatten)]
    pub log: super::LogArgs,
    /// Facts about a log: what `docker inspect` prints, or JSON with engine, version, gpu and container
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// Watch for the next death; show the memory of the minute before
    #[arg(long, conflicts_with = "facts")]
    pub watch: bool,
    /// Also write the evidence, redacted, to an archive for a bug report
    #[arg(long, value_name = "FILE", help_heading = super::OUTPUT)]
    pub bundle: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, help_heading = super::OUTPUT)]
    pub json: bool,
}

impl WhyArgs {
    /// What is named by position; empty where the flags name a process.
    pub fn named(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }
}
