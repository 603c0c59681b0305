//! `plimsoll estimate`: what a deployment will need, and whether it fits.

use crate::cli::EstimateArgs;
use crate::console::Console;
use crate::error::{ExitCode, Failure};

pub fn run(_console: &Console, _args: EstimateArgs) -> anyhow::Result<ExitCode> {
    Err(Failure::usage("not yet").into())
}
