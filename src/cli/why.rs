//! Flags of `why`.

use clap::Args;
use std::path::PathBuf;

/// `plimsoll why`
#[derive(Debug, Args)]
#[command(after_help = super::examples::WHY)]
pub struct WhyArgs {
    /// Container by name or id (running, restarting, exited, created or paused), a log file, a
    /// capture or its profile, or - for standard input
    #[arg(value_name = "NAME|ID|LOG|DIR")]
    pub target: String,
    /// Known facts for a log: JSON with engine, version, gpu and container
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, help_heading = super::OUTPUT)]
    pub json: bool,
}
