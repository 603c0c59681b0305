//! Sweeps: what was swept and its results, as sentences, maps, curves and tables.

mod axes;
mod calculated;
mod curves;
mod maps;
pub(super) mod read;
pub(super) mod tables;
#[cfg(test)]
mod tests;

use super::Sources;
use crate::engine::facts::Severity;
use crate::report::chart::Chart;
use crate::report::content::{Block, Chapter, Note};
use crate::report::layout;
use crate::report::layout::counted_words;
use crate::report::material::Material;
pub(super) use axes::ordered;
use axes::varying;
pub(super) use maps::capital;
use read::{Sweep, Tried};

/// The chapters of every sweep.
pub(super) fn write(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let several = material.sweeps.len() > 1;
    let sweeps = material.sweeps.iter().enumerate();
    sweeps
        .flat_map(|(i, stored)| {
            let prefix = if several {
                format!("sweep{}", i + 1)
            } else {
                "sweep".to_owned()
            };
            let sweep = Sweep::of(&stored.document, &stored.name);
            let mut chapters = of_sweep(&sweep, &prefix, several);
            let grid = calculated::table(&sweep, &stored.name, &material.runs, &prefix);
            if let Some((first, grid)) = chapters.first_mut().zip(grid) {
                first.blocks.push(Block::Table(grid));
            }
            chapters
        })
        .collect()
}

fn of_sweep(sweep: &Sweep, prefix: &str, several: bool) -> Vec<Chapter> {
    let title = |words: &str| {
        if several {
            format!("{words}: {}", sweep.name)
        } else {
            words.to_owned()
        }
    };
    let mut chapters = vec![Chapter {
        id: prefix.to_owned(),
        title: title("The sweep"),
        blocks: overview(sweep, prefix),
    }];
    let mut pictures = |id: &str, words: &str, (charts, left_out): (Vec<Chart>, usize)| {
        if charts.is_empty() {
            return;
        }
        let mut blocks: Vec<Block> = charts.into_iter().map(Block::Chart).collect();
        if left_out > 0 {
            blocks.push(Block::Text(format!(
                "{left_out} more pictures are left out; their figures are in the table of all cells."
            )));
        }
        chapters.push(Chapter {
            id: format!("{prefix}_{id}"),
            title: title(words),
            blocks,
        });
    };
    pictures(
        "curves",
        "Throughput, latency and memory by load",
        curves::curves(sweep, prefix),
    );
    pictures("maps", "Maps", maps::maps(sweep, prefix));
    chapters.push(Chapter {
        id: format!("{prefix}_all"),
        title: title("All cells"),
        blocks: vec![Block::Table(tables::all(sweep, prefix))],
    });
    chapters
}

/// What was swept and its results.
fn overview(sweep: &Sweep, prefix: &str) -> Vec<Block> {
    let mut blocks = vec![Block::Text(came_of(sweep))];
    let cells: Vec<&Tried> = sweep.cells.iter().collect();
    let models = sweep.models();
    let mut swept: Vec<String> = varying(&cells)
        .iter()
        .map(|axis| format!("{}: {}", axis.title(), few(&axis.values)))
        .collect();
    if models.len() > 1 {
        let models: Vec<String> = models.iter().map(|m| (*m).to_owned()).collect();
        swept.insert(0, format!("model: {}", few(&models)));
    }
    if !swept.is_empty() {
        blocks.push(Block::Text(format!("Swept: {}.", swept.join("; "))));
    }
    if sweep.simulated() {
        let n = sweep.cells.iter().filter(|c| c.simulated).count();
        blocks.push(note(
            Severity::Warning,
            "simulated",
            format!("{} of an engine or a device that only pretends: their figures say nothing of hardware", counted_words(n, "cell is", "cells are")),
        ));
    }
    for (code, what, pick) in [
        (
            "several_backends",
            "memory was measured by",
            Tried::backend as fn(&Tried) -> Option<&str>,
        ),
        ("several_engines", "engines", Tried::engine),
    ] {
        let mut seen: Vec<String> = Vec::new();
        for word in cells.iter().filter(|c| c.done()).filter_map(|c| pick(c)) {
            if !seen.iter().any(|s| s == word) {
                seen.push(word.to_owned());
            }
        }
        if seen.len() > 1 {
            blocks.push(note(
                Severity::Info,
                code,
                format!("{what}: {}", few(&seen)),
            ));
        }
    }
    let told = sweep.notes.iter().take(20);
    blocks.extend(told.map(|n| note(Severity::Info, "told_by_the_sweep", n.clone())));
    blocks.extend(tables::best(sweep, prefix).map(Block::Table));
    blocks.extend(tables::causes(sweep, prefix).map(Block::Table));
    let lacked = sweep.cells.iter().filter(|c| tables::lacked(c)).count();
    if lacked > 0 {
        blocks.push(Block::Text(format!(
            "{} for lack of memory.",
            counted_words(lacked, "cell has no figures", "cells have no figures")
        )));
        blocks.extend(tables::out_of_memory(sweep, prefix).map(Block::Table));
    }
    blocks
}

/// `small: 12 cells, 9 measured, 2 failed, 1 skipped; 2 h 07 min of work, begun …`.
fn came_of(sweep: &Sweep) -> String {
    let count = |status: &str| sweep.cells.iter().filter(|c| c.status == status).count();
    let mut parts = vec![counted_words(sweep.cells.len(), "cell", "cells")];
    let known = [
        ("done", "measured"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("not_run", "not run"),
    ];
    let mut rest = sweep.cells.len();
    for (status, word) in known {
        let n = count(status);
        rest -= n;
        if n > 0 {
            parts.push(format!("{} {word}", layout::count(n as u64)));
        }
    }
    if rest > 0 {
        parts.push(format!("{rest} that ended in a way unknown here"));
    }
    let mut text = format!("{}: {}", sweep.name, parts.join(", "));
    if let Some(took) = sweep.took_s.filter(|s| *s > 0.0) {
        text.push_str(&format!("; {} of work", layout::duration(took)));
    }
    if let Some(started) = &sweep.started {
        text.push_str(&format!(", begun {started}"));
    }
    text.push('.');
    text
}

impl Tried {
    fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    fn engine(&self) -> Option<&str> {
        self.engine.as_deref()
    }
}

/// The values, the middle left out where they are many.
pub(super) fn few(values: &[String]) -> String {
    match values {
        [first @ .., last] if values.len() > 12 => {
            let first: Vec<&str> = first.iter().take(10).map(String::as_str).collect();
            format!("{}, …, {last} ({} values)", first.join(", "), values.len())
        }
        values => values.join(", "),
    }
}

/// A note without a quote.
pub(super) fn note(severity: Severity, code: &str, message: String) -> Block {
    Block::Note(Note {
        severity,
        code: Some(code.to_owned()),
        message,
        quote: None,
    })
}
