//! The sweep file: YAML to cells, checked strictly, each mistake reported with its place.

mod entry;
mod keys;
mod patterns;
mod scalars;
mod tree;
mod variables;

use super::cell::{Cell, CellId};
use super::expand::MAX_CELLS;
use super::plan::SweepDefinition;
use crate::error::Failure;
use crate::preset::Preset;
use crate::redact::{REDACTED, Secrets};
use entry::{GivenKeys, ModelEntry};
pub(super) use keys::flag_of_name;
pub use keys::sweep_schema;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tree::{FileFault, NodePlace, YamlNode, YamlValue};

/// The longest file, bytes.
const MAX_BYTES: usize = 4 << 20;

/// Bytes that making all cells may copy and compare: some seconds.
const MOST_EFFORT: usize = 4_000_000_000;

/// Where presets come from.
pub type Presets<'p> = &'p dyn Fn(&str) -> Result<Preset, Failure>;

/// Reads a sweep file. `shown` is the file's name in messages, `var` looks environment variables
/// up, `presets` loads a preset by the word in the file.
///
/// # Errors
/// Whatever is wrong, with its place in front: `FILE:LINE:COLUMN: …`.
pub fn read_sweep(
    shown: &str,
    text: &str,
    var: &dyn Fn(&str) -> Option<String>,
    presets: Presets<'_>,
) -> Result<SweepDefinition, Failure> {
    read_at_most(MAX_CELLS, shown, text, var, presets)
}

/// The same with another limit of cells than [`MAX_CELLS`].
///
/// # Errors
/// As [`read_sweep`].
pub fn read_at_most(
    cells: usize,
    shown: &str,
    text: &str,
    var: &dyn Fn(&str) -> Option<String>,
    presets: Presets<'_>,
) -> Result<SweepDefinition, Failure> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        return Err(Failure::usage(format!(
            "{shown} is longer than 4 MiB, the most of a sweep file"
        ))
        .hint("name the sweep's YAML file: `plimsoll config init FILE` writes one"));
    }
    let mut secrets = Secrets::default();
    let sweep = tree::read_tree(text).and_then(|mut root| {
        tree::tidy_maps(&mut root)?;
        variables::put_in(&mut root, var, &mut secrets)?;
        sweep(&root, shown, cells, presets)
    });
    sweep.map_err(|fault| {
        // What a variable brought may be a secret wherever it turns up, however short it is.
        let without = |text: &str| {
            let text = secrets.redactor().redact_text(text).into_owned();
            secrets
                .secret_values()
                .filter(|v| !REDACTED.contains(v))
                .fold(text, |text, value| text.replace(value, REDACTED))
        };
        let mut message = format!("{shown}:{}: {}", fault.at, without(&fault.message));
        if let Some(other) = fault.other {
            message.push_str(&format!(" (the other is at {other})"));
        }
        fault
            .hints
            .iter()
            .fold(Failure::usage(message), |failure, hint| {
                failure.hint(without(hint))
            })
    })
}

fn sweep(
    root: &YamlNode,
    shown: &str,
    limit: usize,
    presets: Presets<'_>,
) -> Result<SweepDefinition, FileFault> {
    if root.value == YamlValue::Null {
        return Err(FileFault::new(root.at, "there is nothing in it"));
    }
    let top = GivenKeys::sort_keys("a sweep file", root, &keys::KEYS.file)?;
    if let Some(version) = top.value_of("schema_version") {
        if scalars::read_whole("schema_version", version, 0..=u64::MAX) != Ok(1) {
            return Err(scalars::wrong_value("schema_version", "1", version));
        }
    }
    let nothing = GivenKeys::default();
    let defaults = match top.value_of("defaults") {
        Some(node) => GivenKeys::sort_keys("`defaults`", node, &keys::KEYS.entry)?,
        None => nothing,
    };
    let models = match top.value_of("models") {
        Some(node) => scalars::elements_of_maps("models", node)?,
        None => {
            return Err(FileFault::new(root.at, "`models` is missing")
                .with_hint("`plimsoll config init` writes a file to begin with"));
        }
    };
    let time = |name: &str| -> Result<Option<Duration>, FileFault> {
        let node = top.value_of(name);
        node.map(|n| time(name, n)).transpose()
    };
    let sweep = SweepDefinition {
        name: match top.value_of("name") {
            Some(node) => parse_name(node)?,
            None => name_of_file(shown),
        },
        cells: Vec::new(),
        timeout: time("timeout")?,
        health_timeout: time("health_timeout")?,
    };
    let entries: Vec<ModelEntry> = models
        .iter()
        .map(|node| entry::read_entry(node, &defaults, presets))
        .collect::<Result<_, _>>()?;
    let mut size = 0usize;
    let mut effort = 0usize;
    for entry in &entries {
        size = size.saturating_add(entry.matrix.max_cells());
        if size > limit {
            let message = match size {
                usize::MAX => format!("more cells than a sweep may have, {limit}"),
                size => format!("{size} cells up to here, and a sweep may have {limit}"),
            };
            return Err(FileFault::new(entry.at, message));
        }
        effort = effort.saturating_add(
            entry
                .matrix
                .max_cells()
                .saturating_mul(entry.matrix.cell_weight()),
        );
        if effort > MOST_EFFORT {
            let message =
                format!("{size} cells up to here: too many patterns and arguments for this number");
            return Err(FileFault::new(entry.at, message));
        }
    }
    Ok(SweepDefinition {
        cells: expand_entries(root, &entries)?,
        ..sweep
    })
}

/// The cells of all entries. Each is there once, and each pattern of `exclude` matches one.
fn expand_entries(root: &YamlNode, entries: &[ModelEntry]) -> Result<Vec<Cell>, FileFault> {
    let mut cells: Vec<Cell> = Vec::new();
    // Of which entry a cell is: where each entry's cells end.
    let mut ends: Vec<usize> = Vec::new();
    // A pattern of the defaults applies to every entry, and one match is enough.
    let mut left_out: BTreeMap<NodePlace, usize> = BTreeMap::new();
    for entry in entries {
        let expanded = entry.matrix.expand_cells();
        cells.extend(expanded.cells);
        ends.push(cells.len());
        for (&at, n) in entry.exclude_at.iter().zip(expanded.left_out) {
            *left_out.entry(at).or_default() += n;
        }
    }
    if let Some((at, _)) = left_out.iter().find(|(_, n)| **n == 0) {
        return Err(FileFault::new(*at, "this matches no cell").with_hint(
            "a key that is not in the pattern may have any value; check those that are",
        ));
    }
    if cells.is_empty() {
        return Err(FileFault::new(root.at, "no cell is left"));
    }
    let entry_of = |cell: usize| {
        let i = ends.partition_point(|&end| end <= cell);
        entries.get(i).map_or(root.at, |e| e.at)
    };
    let mut seen: HashMap<&CellId, usize> = HashMap::with_capacity(cells.len());
    for (i, cell) in cells.iter().enumerate() {
        if let Some(first) = seen.insert(&cell.id, i) {
            let message = format!(
                "the cell `{}` of `{}` is there twice",
                cell.describe_load(),
                cell.server.model
            );
            let (here, there) = (entry_of(i), entry_of(first));
            return Err(FileFault::new(here, message).with_other(there));
        }
    }
    Ok(cells)
}

/// What messages call a file that has no name.
pub const STANDARD_INPUT: &str = "standard input";

/// The longest name.
const LONGEST_NAME: usize = 100;

fn is_sound(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// A name that can be a folder's.
fn parse_name(node: &YamlNode) -> Result<String, FileFault> {
    let name = scalars::read_text("name", node)?;
    let sound = name.chars().all(is_sound) && !name.starts_with('.') && name.len() <= LONGEST_NAME;
    if sound {
        Ok(name)
    } else {
        Err(scalars::wrong_value(
            "name",
            "letters, digits, `-`, `_` and `.`, as it names a folder",
            node,
        ))
    }
}

/// The file's name without folder and ending, made fit for a folder.
fn name_of_file(shown: &str) -> String {
    let file = shown.rsplit(['/', '\\']).next().unwrap_or(shown);
    let stem = file.strip_suffix(".yaml").or(file.strip_suffix(".yml"));
    let name: String = stem
        .unwrap_or(file)
        .trim_start_matches('.')
        .chars()
        .map(|c| if is_sound(c) { c } else { '-' })
        .take(LONGEST_NAME)
        .collect();
    if name.trim_matches('-').is_empty() || shown == STANDARD_INPUT {
        "sweep".into()
    } else {
        name
    }
}

fn time(name: &str, node: &YamlNode) -> Result<Duration, FileFault> {
    let text = scalars::read_word(name, node)?;
    crate::units::some_time(&text).map_err(|_| {
        scalars::wrong_value(name, "a length of time above 0, as 90s, 30m or 2h", node)
    })
}
