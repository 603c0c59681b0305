//! Flags of `config`, `schema` and `models`.

use super::OUTPUT;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `plimsoll config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do with the file.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What can be done with a sweep file besides running it.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a sweep file and count its cells
    Check {
        /// The file; - reads it from standard input
        file: PathBuf,
    },
    /// Write an example sweep file with comments
    Init {
        /// File to write; it must not exist [default: standard output]
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of the sweep file, for editors
    Schema,
}

/// `plimsoll schema`
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// What to do instead of printing it.
    #[command(subcommand)]
    pub command: Option<SchemaCommand>,
}

/// What can be done with the schema besides printing it.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Check documents against the schema of their own version
    Check {
        /// Profiles, captures (`capture.json`), load lines, calibrations
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// `plimsoll models`
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Only models that match all of these words: `qwen3 moe`
    #[arg(long, short, value_name = "WORDS", num_args = 1..)]
    pub search: Vec<String>,
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}
