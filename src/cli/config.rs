//! The flags of `config`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `plimsoll config`
#[derive(Debug, Args)]
#[command(after_help = super::examples::CONFIG)]
pub struct ConfigArgs {
    /// What to do with the file.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What can be done with a sweep file besides running it.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a sweep file and say how many cells it means
    Check {
        /// The file; - reads it from standard input
        file: PathBuf,
    },
    /// Write a sweep file to begin with, each part explained
    Init {
        /// Where to write it; it must not be there yet [default: standard output]
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of the sweep file, for editors
    Schema,
}
