//! How the engine was set up: asked for, in force, and where the two differ.

use super::Sources;
use crate::compare::settings;
use crate::engine::facts::Severity;
use crate::report::content::{Chapter, ContentBlock, Grid, listing_block, note_block};
use crate::report::layout::{count_words, counted_noun, join_first};
use crate::report::material::{Material, ReportRun};
use crate::report::tables::{TableBuilder, word_or_reason};
use std::collections::BTreeSet;

/// Runs that get a column of their own.
const MOST_COLUMNS: usize = 5;
/// Different values of a setting that are named.
const NAMED: usize = 6;

pub(super) fn write_configuration_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let (mut blocks, mut details) = (Vec::new(), Vec::new());
    match material.runs.as_slice() {
        [] => return Vec::new(),
        [run] => {
            blocks.extend(note_differences(run));
            write_run_settings(&mut details, run);
        }
        runs => details.push(ContentBlock::Table(side_by_side(runs))),
    }
    Chapter::of_parts("configuration", "Configuration", blocks, details)
}

/// The settings that are not in force as asked for.
fn note_differences(run: &ReportRun) -> Option<ContentBlock> {
    let differences = &run.profile.configuration.differences;
    let each = differences.iter().map(|d| {
        let (asked, in_force) = (&d.requested, &d.effective);
        format!("{}: asked for {asked}, in force {in_force}", d.setting)
    });
    let each: Vec<String> = each.collect();
    let n = counted_noun(each.len(), "setting");
    let message = format!("{n} not in force as asked for: {}", each.join("; "));
    (!each.is_empty()).then(|| note_block(Severity::Warning, "settings_differ", message))
}

fn write_run_settings(blocks: &mut Vec<ContentBlock>, run: &ReportRun) {
    let c = &run.profile.configuration;
    let names: BTreeSet<&String> = c.requested.keys().chain(c.effective.keys()).collect();
    let not_asked = "not asked for: left to the engine";
    let not_reported = "neither the engine's log nor its endpoints have it";
    let differs = |name: &String| c.differences.iter().any(|d| d.setting == *name);
    let table = TableBuilder::of_items(names)
        .words("setting", "setting", |n| n)
        .cells("asked for", "requested", |n| {
            word_or_reason(c.requested.get(n), not_asked)
        })
        .cells("in force", "effective", |n| {
            word_or_reason(c.effective.get(n), not_reported)
        })
        .words("", "differs", |n| if differs(n) { "differs" } else { "" })
        .grid_of_rows("settings", "Settings of the engine");
    blocks.push(match table {
        Some(table) => ContentBlock::Table(table),
        None => {
            let asked = if c.ignored.is_empty() {
                "was asked for"
            } else {
                "that was asked for was used (see the findings)"
            };
            format!("No setting {asked}, and the engine reported none.").into()
        }
    });
    let container = &run.profile.metadata.container;
    let extra = &run.profile.parameters.extra_engine_args;
    let mut text = container.argv.join("\n");
    if !extra.is_empty() {
        text.push_str("\n\nFurther arguments of the engine:\n");
        text.push_str(&extra.join("\n"));
    }
    let env: Vec<String> = (container.env.iter())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    for (title, text) in [("Command", text), ("Environment", env.join("\n"))] {
        if !text.trim().is_empty() {
            let title = format!("{title} of the container");
            blocks.push(listing_block(title, text, true));
        }
    }
}

/// Settings of several runs: what differs first, then what all have.
fn side_by_side(runs: &[ReportRun]) -> Grid {
    let all = runs.iter();
    let all: Vec<settings::ProfileSettings> = all
        .map(|r| settings::settings_of_profile(&r.profile))
        .collect();
    let names: BTreeSet<&String> = all.iter().flat_map(|s| s.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    let differs = |name: &str| {
        let mut values = all.iter().map(|s| s.get(name));
        let one = values.next();
        values.any(|v| Some(v) != one)
    };
    names.sort_by_key(|name| (!differs(name), settings::position_of(name)));
    let mut table = TableBuilder::of_items(names)
        .words("setting", "setting", |n| n)
        .words("", "differs", |n| if differs(n) { "differs" } else { "" });
    if runs.len() > MOST_COLUMNS {
        let title = "values, and in how many runs";
        table = table.words(title, "values", |n| distinct_values(&all, n));
    } else {
        for (i, (run, settings)) in runs.iter().zip(&all).enumerate() {
            table = table.cells(&run.name, &format!("run_{}", i + 1), |n| {
                word_or_reason(settings.get(n), "this run does not have it")
            });
        }
    }
    table.grid("settings", "Settings in force, else asked for")
}

/// The values of a setting over many runs, the commonest first.
fn distinct_values(all: &[settings::ProfileSettings], name: &str) -> String {
    let values = all.iter().map(|settings| settings.get(name));
    let sorted = count_words(values.map(|value| value.map_or("unknown", String::as_str)));
    if let [(value, _)] = sorted.as_slice() {
        return (*value).to_owned();
    }
    let word = |(value, n): &(&str, usize)| format!("{value} ({n})");
    join_first(&sorted, NAMED, ", ", word, |n| {
        format!(", {n} other values")
    })
}
