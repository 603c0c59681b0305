//! `plimsoll completions`: a script by which a shell completes what is typed.

use crate::cli::CompletionsArgs;
use crate::console::Console;
use crate::error::ExitCode;

pub fn run(console: &Console, args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    console.data(&args.script())?;
    Ok(ExitCode::Done)
}
