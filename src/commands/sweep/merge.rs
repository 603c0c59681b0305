//! `plimsoll sweep merge`: the results of several runs as one.

use crate::cli::MergeArgs;
use crate::console::Console;
use crate::error::ExitCode;
use crate::report::sweep::{Results, text};
use crate::sweep::merge::{default_output, merge};
use std::path::{Path, PathBuf};

pub fn run(console: &Console, args: &MergeArgs) -> anyhow::Result<ExitCode> {
    joined(console, &args.dirs, args.output.as_deref())?;
    Ok(ExitCode::Done)
}

/// Joins runs and shows the results.
pub fn joined(
    console: &Console,
    dirs: &[PathBuf],
    output: Option<&Path>,
) -> anyhow::Result<Results> {
    let now = jiff::Zoned::now();
    let output = match output {
        Some(output) => output.to_owned(),
        None => default_output(dirs, &now),
    };
    let merged = merge(dirs, &output, &now)?;
    console.data(text::render(&merged.results, console.text_options()).as_bytes())?;
    merged.results.notes.iter().for_each(|n| console.note(n));
    console.note(&format!("results: {}", merged.folder.display()));
    Ok(merged.results)
}
