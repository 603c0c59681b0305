//! The `plimsoll` binary: parse, run, print an error once, exit code.

use plimsoll::cli::Cli;
use plimsoll::{commands, console};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::from_arguments() {
        Ok(cli) => commands::run_command(cli).into(),
        Err(error) => {
            let text = error.render();
            let (plain, coloured) = (text.to_string(), text.ansi().to_string());
            console::about_arguments(error.use_stderr(), &plain, &coloured);
            u8::try_from(error.exit_code()).unwrap_or(2).into()
        }
    }
}
