//! How the engine was set up: asked for, in force, and where the two differ.

use super::Sources;
use crate::compare::settings;
use crate::engine::facts::Severity;
use crate::report::content::{
    Chapter, ContentBlock, Grid, Listing, TableCell, note_block, text_column as column,
};
use crate::report::layout::counted_noun;
use crate::report::material::{Material, ReportRun};
use std::collections::{BTreeMap, BTreeSet};

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
    vec![Chapter {
        id: "configuration".into(),
        title: "Configuration".into(),
        blocks,
        details,
    }]
}

/// The settings that are not in force as asked for.
fn note_differences(run: &ReportRun) -> Option<ContentBlock> {
    let differences = &run.profile.configuration.differences;
    let each: Vec<String> = (differences.iter())
        .map(|d| {
            format!(
                "{}: asked for {}, in force {}",
                d.setting, d.requested, d.effective
            )
        })
        .collect();
    let n = counted_noun(each.len(), "setting");
    let message = format!("{n} not in force as asked for: {}", each.join("; "));
    (!each.is_empty()).then(|| note_block(Severity::Warning, "settings_differ", message))
}

fn write_run_settings(blocks: &mut Vec<ContentBlock>, run: &ReportRun) {
    let c = &run.profile.configuration;
    let names: BTreeSet<&String> = c.requested.keys().chain(c.effective.keys()).collect();
    let cell = |of: &BTreeMap<String, String>, name: &str, why: &str| match of.get(name) {
        Some(value) => TableCell::text_cell(value),
        None => TableCell::missing_cell(why),
    };
    let rows: Vec<Vec<TableCell>> = (names.into_iter())
        .map(|name| {
            let differs = c.differences.iter().any(|d| d.setting == *name);
            vec![
                TableCell::text_cell(name),
                cell(&c.requested, name, "not asked for: left to the engine"),
                cell(
                    &c.effective,
                    name,
                    "neither the engine's log nor its endpoints have it",
                ),
                TableCell::text_cell(if differs { "differs" } else { "" }),
            ]
        })
        .collect();
    if rows.is_empty() {
        blocks.push(ContentBlock::Text(
            "No setting was asked for, and the engine reported none.".into(),
        ))
    } else {
        blocks.push(ContentBlock::Table(Grid {
            id: "settings".into(),
            caption: "Settings of the engine".into(),
            columns: vec![
                column("setting", "setting"),
                column("asked for", "requested"),
                column("in force", "effective"),
                column("", "differs"),
            ],
            rows,
        }))
    }
    let container = &run.profile.metadata.container;
    let extra = &run.profile.parameters.extra_engine_args;
    let mut text = container.argv.join("\n");
    if !extra.is_empty() {
        text.push_str("\n\nFurther arguments of the engine:\n");
        text.push_str(&extra.join("\n"));
    }
    if !text.trim().is_empty() {
        blocks.push(ContentBlock::Listing(Listing {
            title: "Command of the container".into(),
            text,
            folded: true,
        }));
    }
    let env: Vec<String> = (container.env.iter())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !env.is_empty() {
        blocks.push(ContentBlock::Listing(Listing {
            title: "Environment of the container".into(),
            text: env.join("\n"),
            folded: true,
        }));
    }
}

/// Settings of several runs: what differs first, then what all have.
fn side_by_side(runs: &[ReportRun]) -> Grid {
    let all: Vec<settings::ProfileSettings> = runs
        .iter()
        .map(|r| settings::settings_of_profile(&r.profile))
        .collect();
    let mut names: Vec<&String> = (all.iter().flat_map(|s| s.keys()))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let differs = |name: &str| {
        let mut values = all.iter().map(|s| s.get(name));
        let one = values.next();
        values.any(|v| Some(v) != one)
    };
    names.sort_by_key(|name| (!differs(name), settings::position_of(name)));
    let columns = runs.len() <= MOST_COLUMNS;
    let rows = names.into_iter().map(|name| {
        let mut row = vec![
            TableCell::text_cell(name),
            TableCell::text_cell(if differs(name) { "differs" } else { "" }),
        ];
        let cell = |value: Option<&String>| match value {
            Some(value) => TableCell::text_cell(value),
            None => TableCell::missing_cell("this run does not have it"),
        };
        if columns {
            row.extend(all.iter().map(|s| cell(s.get(name))));
        } else {
            row.push(TableCell::text_cell(distinct_values(&all, name)));
        }
        row
    });
    let mut heads = vec![column("setting", "setting"), column("", "differs")];
    if columns {
        heads.extend(
            runs.iter()
                .enumerate()
                .map(|(i, r)| column(&r.name, &format!("run_{}", i + 1))),
        )
    } else {
        heads.push(column("values, and in how many runs", "values"))
    }
    Grid {
        id: "settings".into(),
        caption: "Settings in force, else asked for".into(),
        columns: heads,
        rows: rows.collect(),
    }
}

/// The values of a setting over many runs, the commonest first.
fn distinct_values(all: &[settings::ProfileSettings], name: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for settings in all {
        let value = settings.get(name).map_or("unknown", String::as_str);
        *counts.entry(value).or_default() += 1;
    }
    if let [(value, _)] = counts.iter().collect::<Vec<_>>().as_slice() {
        return (**value).to_owned();
    }
    let mut sorted: Vec<(&str, usize)> = counts.into_iter().collect();
    sorted.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let mut shown: Vec<String> = (sorted.iter().take(NAMED))
        .map(|(value, n)| format!("{value} ({n})"))
        .collect();
    if sorted.len() > NAMED {
        shown.push(format!("{} other values", sorted.len() - NAMED));
    }
    shown.join(", ")
}
