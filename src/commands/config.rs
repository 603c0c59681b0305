//! `plimsoll config`: checks a sweep file, writes one to begin with, prints its schema.

use crate::cli::{ConfigArgs, ConfigCommand};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::matrix::{self, Cell, EnginePlace, SweepDefinition};
use crate::preset;
use crate::store::{bounded, private};
use crate::wording::{count_noun, plural_noun};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::Path;

/// The file to begin with. A test reads it as any other.
const STARTER: &str = include_str!("../../configs/sweeps/starter.yaml");

pub fn run_config(console: &Console, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        ConfigCommand::Check { file } => {
            let sweep = read_file(file)?;
            let line = format!("{}: {}\n", file.display(), summarise_cells(&sweep.cells));
            console.write_data(line.as_bytes())?;
        }
        ConfigCommand::Init { file: None } => console.write_data(STARTER.as_bytes())?,
        ConfigCommand::Init { file: Some(file) } => {
            write_new(file)?;
            console.print_note(&format!(
                "`{0}` is written: edit it, then `plimsoll config check {0}`",
                file.display()
            ));
        }
        ConfigCommand::Schema => {
            console.print_json(&matrix::sweep_schema())?;
        }
    }
    Ok(ExitCode::Done)
}

/// Reads a sweep file, `-` from standard input, with this environment and the presets that ship or
/// lie in files.
fn read_file(file: &Path) -> Result<SweepDefinition, Failure> {
    parse_sweep_text(file, &read_sweep_text(file)?)
}

/// What a sweep file means.
pub(super) fn parse_sweep_text(file: &Path, text: &str) -> Result<SweepDefinition, Failure> {
    let var = |name: &str| std::env::var(name).ok();
    matrix::read_sweep(&shown_name(file), text, &var, &preset::load_preset)
}

fn shown_name(file: &Path) -> String {
    match file.to_str() {
        Some("-") => matrix::STANDARD_INPUT.to_owned(),
        _ => file.display().to_string(),
    }
}

/// The text of a sweep file, `-` from standard input.
pub(super) fn read_sweep_text(file: &Path) -> Result<String, Failure> {
    let shown = shown_name(file);
    let unreadable = |e: std::io::Error| {
        bounded::unreadable_input(Path::new(&shown), e)
            .hint("`plimsoll config init FILE` writes one to begin with")
    };
    // No sweep file is that long; without an end a device would be read for ever.
    let longest = 8 << 20;
    let mut bytes = Vec::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin()
            .lock()
            .take(longest)
            .read_to_end(&mut bytes),
        _ => bounded::open_named(file).and_then(|f| f.take(longest).read_to_end(&mut bytes)),
    };
    read.map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage(format!("sweep file {shown} is not text in UTF-8"))
            .hint("name the YAML file, or save it as UTF-8")
    })
}

/// `30 cells in 2 groups, in container `vllm``
fn summarise_cells(cells: &[Cell]) -> String {
    let mut containers = Vec::new();
    let mut images = Vec::new();
    let mut groups = HashSet::new();
    for cell in cells {
        groups.insert(&cell.group);
        let names = match &cell.server.place {
            EnginePlace::Container(_) => &mut containers,
            EnginePlace::Image(_) => &mut images,
        };
        let name = cell.server.place.place_name();
        // Cells of one place follow each other: few comparisons.
        if names.last() != Some(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text = format!(
        "{} in {}",
        count_noun(cells.len(), "cell"),
        count_noun(groups.len(), "group")
    );
    for (what, names) in [("container", containers), ("image", images)] {
        if !names.is_empty() {
            let noun = if names.len() == 1 {
                what.to_owned()
            } else {
                plural_noun(what)
            };
            text.push_str(&format!(", {noun} {}", names.join(", ")));
        }
    }
    text
}

fn write_new(file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let written = private::create_file(file).and_then(|mut f| f.write_all(STARTER.as_bytes()));
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("`{shown}` exists and was not changed"))
                .hint("name a new file, or remove that one")
        }
        _ => Failure::environment(format!("cannot write `{shown}`")).caused_by(e),
    })
}
