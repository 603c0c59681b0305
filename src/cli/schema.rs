//! The flags of `schema`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `plimsoll schema`
#[derive(Debug, Args)]
#[command(after_help = super::examples::SCHEMA)]
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
