//! The `plimsoll` binary: parse, run, print an error once, exit code.

use clap::Parser;
use plimsoll::cli::Cli;
use plimsoll::commands;
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(Cli::parse()).into()
}
