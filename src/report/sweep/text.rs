//! The results of a sweep as a page: a table for each group, then what failed and what was left out.

use super::words::first_few;
use super::{CellOutcome, Results, server_settings, server_title};
use crate::matrix::{CellLoad, RowFigures, RowStatus};
use crate::report::layout::counted_noun;
use crate::report::layout::{Align, TextTable, format_duration, format_figure, text_width};
use crate::report::page::TextPage;
use crate::report::text::TextOptions;
use crate::units::to_gib;
use std::cmp::Ordering;
use std::collections::HashMap;

/// A cell's figure.
type FigureOfCell = fn(&RowFigures) -> Option<f64>;

/// Columns of figures, and whether a narrow page goes without: the table of results has them.
const FIGURES: &[(&str, bool, FigureOfCell)] = &[
    ("peak", false, |f| f.peak_bytes.map(to_gib)),
    ("weights", true, |f| f.model_weights_bytes.map(to_gib)),
    ("KV", true, |f| f.kv_cache_bytes.map(to_gib)),
    ("activ.", true, |f| f.activations_bytes.map(to_gib)),
    ("ms", false, |f| f.mean_latency_ms),
    ("tokens/s", false, |f| f.tokens_per_second),
];

/// Of cells that failed alike at most this many are named.
const NAMED: usize = 4;

/// The page.
pub fn render_results(results: &Results, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    write_head(&mut page, results);
    let done = results.cell_counts().done;
    let mixed = (1..done).contains(&results.count_simulated());
    let mut narrow = false;
    for mut group in results.groups() {
        group.sort_by(|a, b| by_lengths(&a.cell.load, &b.cell.load));
        narrow |= write_table(&mut page, &group, mixed);
    }
    if narrow {
        page.write_line("");
        page.write_sentence(
            0,
            "Parts of the peak that have no room here are in results.csv.",
        );
    }
    write_reasons(&mut page, results, RowStatus::Failed, "Failed");
    write_reasons(&mut page, results, RowStatus::Skipped, "Skipped");
    if !results.notes.is_empty() {
        page.write_title("Notes");
    }
    for note in &results.notes {
        page.write_sentence(2, note);
    }
    page.into_text()
}

fn write_head(page: &mut TextPage, results: &Results) {
    let simulated = results.count_simulated();
    let tag = if simulated > 0 { "  SIMULATED" } else { "" };
    page.write_line(&format!("Sweep {}{tag}", results.name));
    let counts = results.cell_counts();
    let mut parts = vec![format!("{} done", counts.done)];
    for (n, word) in [
        (counts.failed, "FAILED"),
        (counts.skipped, "skipped"),
        (counts.not_run, "not run"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {word}"));
        }
    }
    page.write_line(&format!(
        "{}: {}",
        counted_noun(counts.cells, "cell"),
        parts.join(", ")
    ));
    let to_the_second = |at: &String| match at.split_once('.') {
        Some((whole, _)) => format!("started {whole}Z"),
        None => format!("started {at}"),
    };
    let started = results.started.as_ref().map(to_the_second);
    let took = results
        .took_s
        .map(|s| format!("took {}", format_duration(s)));
    let when: Vec<String> = started.into_iter().chain(took).collect();
    if !when.is_empty() {
        page.write_line(&when.join(", "));
    }
    if simulated > 0 {
        let which = if simulated == results.cell_counts().done {
            "The figures are".to_owned()
        } else {
            format!("The figures of {} are", counted_noun(simulated, "cell"))
        };
        page.write_sentence(
            0,
            &format!("{which} of an engine or a device that only pretends: they say nothing of a real one."),
        );
    }
}

/// As people look cells up, not as they were run.
fn by_lengths(a: &CellLoad, b: &CellLoad) -> Ordering {
    // No limit is more than any number at once.
    let at_once = |load: &CellLoad| (load.batch_size.is_none(), load.batch_size);
    let key = |load: &CellLoad| (load.input_len, load.output_len, at_once(load));
    let rate = |load: &CellLoad| load.request_rate.unwrap_or(0.0);
    let rest = |load: &CellLoad| (load.bench as u8, load.named_counts());
    key(a)
        .cmp(&key(b))
        .then_with(|| rate(a).total_cmp(&rate(b)))
        .then_with(|| rest(a).cmp(&rest(b)))
}

/// One group's table. Returns whether the page was too narrow for all of it. `mixed`: some cells of
/// the sweep are simulated, and each has the mark.
fn write_table(page: &mut TextPage, group: &[&CellOutcome], mixed: bool) -> bool {
    let Some(first) = group.first() else {
        return false;
    };
    let server = &first.cell.server;
    page.write_title(&server_title(server));
    let settings = server_settings(server);
    if !settings.is_empty() {
        page.write_sentence(2, &settings);
    }
    let known = |of: FigureOfCell| {
        let figures = group.iter().filter_map(|o| of(&o.row.as_ref()?.figures));
        figures.count() > 0
    };
    let mut columns: Vec<_> = FIGURES.iter().filter(|c| known(c.2)).collect();
    if columns.iter().any(|c| c.0 == "peak") {
        page.write_line("  memory at the peak and its parts in GiB, mean latency in ms");
    }
    let mut lines = render_rows(group, &columns, mixed);
    let mut narrow = false;
    // From the right, the parts first: the profile describes a part better.
    while lines.iter().any(|l| text_width(l) + 2 > page.options.width) {
        let Some(last) = columns.iter().rposition(|c| c.1) else {
            break;
        };
        columns.remove(last);
        lines = render_rows(group, &columns, mixed);
        narrow = true;
    }
    for line in lines {
        page.write_line(&format!("  {line}"));
    }
    narrow
}

/// A column of the load: its name, its alignment, and its content.
type LoadColumn = (
    &'static str,
    Align,
    Box<dyn Fn(&CellLoad) -> Option<String>>,
);

/// What distinguishes the loads of a group.
fn load_columns(group: &[&CellOutcome]) -> Vec<LoadColumn> {
    let loads = || group.iter().map(|o| &o.cell.load);
    let mut said: Vec<LoadColumn> = vec![
        (
            "input",
            Align::Right,
            Box::new(|l| Some(l.input_len.to_string())),
        ),
        (
            "output",
            Align::Right,
            Box::new(|l| Some(l.output_len.to_string())),
        ),
    ];
    if loads().any(|l| l.batch_size.is_some()) {
        let batch = |l: &CellLoad| l.batch_size.map(|n| n.to_string());
        said.push(("batch", Align::Right, Box::new(batch)));
    }
    if loads().any(|l| l.request_rate.is_some()) {
        let rate = |l: &CellLoad| l.request_rate.map(|r| r.to_string());
        said.push(("rate/s", Align::Right, Box::new(rate)));
    }
    let Some(first) = loads().next() else {
        return said;
    };
    if loads().any(|l| l.bench != first.bench) {
        let bench = |l: &CellLoad| Some(l.bench.as_str().to_owned());
        said.push(("bench", Align::Left, Box::new(bench)));
    }
    for (i, (name, value)) in first.named_counts().into_iter().enumerate() {
        if loads().any(|l| l.named_counts()[i].1 != value) {
            let count = move |l: &CellLoad| match (name, l.named_counts()[i].1) {
                ("repeats", None) => Some("1".to_owned()),
                (_, count) => count.map(|n| n.to_string()),
            };
            said.push((name, Align::Right, Box::new(count)));
        }
    }
    said
}

fn render_rows(
    group: &[&CellOutcome],
    figures: &[&(&str, bool, FigureOfCell)],
    mixed: bool,
) -> Vec<String> {
    let said = load_columns(group);
    let mut columns: Vec<_> = said.iter().map(|c| (c.0, c.1)).collect();
    columns.extend(figures.iter().map(|c| (c.0, Align::Right)));
    columns.push(("", Align::Left));
    let mut table = TextTable::new(&columns);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "—".into());
    for outcome in group {
        let load = &outcome.cell.load;
        let mut cells: Vec<String> = said.iter().map(|c| or_dash((c.2)(load))).collect();
        for (_, _, of) in figures {
            let row = outcome.row.as_ref();
            cells.push(or_dash(row.and_then(|r| of(&r.figures)).map(format_figure)));
        }
        cells.push(ending(outcome, mixed));
        table.add_row(cells);
    }
    table.render_lines()
}

/// How a cell ended: its cause, where it has one.
fn ending(outcome: &CellOutcome, mixed: bool) -> String {
    let word = match &outcome.row {
        None => "not run",
        Some(row) => row.cause.map_or(row.status.as_str(), |c| c.as_str()),
    };
    if mixed && outcome.count_simulated() {
        format!("{word}, simulated")
    } else {
        word.to_owned()
    }
}

/// Why cells have no figures; cells of a group that ended alike stand together.
fn write_reasons(page: &mut TextPage, results: &Results, status: RowStatus, title: &str) {
    let mut alike: HashMap<(&str, String, &str), usize> = HashMap::new();
    let mut said: Vec<(String, Vec<String>, String)> = Vec::new();
    for outcome in &results.cells {
        let Some(row) = outcome.row.as_ref().filter(|r| r.status == status) else {
            continue;
        };
        let cause = row.cause.map_or("unknown", |c| c.as_str());
        let cause = match row.phase.filter(|_| status == RowStatus::Failed) {
            Some(phase) => format!("{cause} ({})", phase.as_str()),
            None => cause.to_owned(),
        };
        let message = row.message.as_deref().unwrap_or("no reason was told");
        let key = (outcome.cell.group.0.as_str(), cause.clone(), message);
        let i = *alike.entry(key).or_insert(said.len());
        if i == said.len() {
            let model = &outcome.cell.server.model;
            said.push((format!("{model}, {cause}"), Vec::new(), message.to_owned()));
        }
        if let Some((_, cells, _)) = said.get_mut(i) {
            cells.push(outcome.cell.describe_load());
        }
    }
    if !said.is_empty() {
        page.write_title(title);
    }
    for (head, cells, message) in said {
        page.write_sentence(2, &format!("{head}: {}", first_few(&cells, NAMED)));
        page.write_sentence(4, &message);
    }
}
