//! The `plimsoll` binary: parse, run, print an error once, exit code.

use clap::Parser;
use plimsoll::cli::Cli;
use plimsoll::{commands, console};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => commands::run(cli).into(),
        Err(said) => console::not_understood(&said),
    }
}
