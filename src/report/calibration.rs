//! What was learned of overheads, and what moves with what, as pages.

use super::figures::with_plus;
use super::layout::{Align, TextTable, grouped_count};
use super::page::TextPage;
use super::text::TextOptions;
use crate::compare::correlate::{Correlation, Correlations};
use crate::estimate::calibration::{Calibration, CalibrationRun, FEWEST_RUNS, Learned};
use crate::units::GIB;

/// The page of the database. `skipped` are the runs that taught nothing, by reason.
pub fn render_calibration(
    calibration: &Calibration,
    skipped: &[(String, u64)],
    options: TextOptions,
) -> String {
    let mut page = TextPage::new(options);
    let runs = calibration.runs.len();
    page.write_line(&format!(
        "Learned from {runs} {}",
        if runs == 1 { "run" } else { "runs" }
    ));
    if !calibration.entries.is_empty() {
        page.write_title(
            "Overheads, GiB on the fullest GPU: median, first to third quartile, runs",
        );
        let mut table = TextTable::new(&[
            ("engine", Align::Left),
            ("attention", Align::Left),
            ("type", Align::Left),
            ("TP", Align::Right),
            ("GPU", Align::Left),
            ("activation peak", Align::Left),
            ("non-torch", Align::Left),
            ("CUDA graphs", Align::Left),
        ]);
        for e in &calibration.entries {
            table.add_row(vec![
                format!("{} {}", e.key.engine, e.key.version),
                e.key.attention.clone(),
                e.key.dtype.clone(),
                e.key.tp.to_string(),
                e.key.gpu.clone(),
                learned(&e.activation),
                learned(&e.non_torch),
                learned(&e.cuda_graphs),
            ]);
        }
        page.write_table(&table);
        page.write_aside(&format!("fewer than {FEWEST_RUNS} runs are no data"));
    }
    last_starts(&mut page, calibration);
    let reasons: Vec<String> = skipped
        .iter()
        .map(|(why, n)| format!("{n} of them: {why}"))
        .collect();
    page.write_asides("Taught nothing", &reasons);
    page.into_text()
}

fn learned(learned: &Learned) -> String {
    let gib = |bytes: u64| format!("{:.2}", bytes as f64 / GIB);
    match learned.figures {
        Some(f) => format!(
            "{}, {} to {}, {}",
            gib(f.median),
            gib(f.q1),
            gib(f.q3),
            learned.n
        ),
        None => match learned.n {
            0 => "no data".into(),
            n => format!("no data ({n})"),
        },
    }
}

/// CUDA graphs as each model last took them.
fn last_starts(page: &mut TextPage, calibration: &Calibration) {
    let same = |r: &CalibrationRun| {
        let k = &r.key;
        calibration.last_start(&r.model, |of| {
            (&of.engine, &of.version, &of.gpu, of.tp) == (&k.engine, &k.version, &k.gpu, k.tp)
        })
    };
    let last: Vec<&CalibrationRun> = calibration
        .runs
        .iter()
        .filter(|r| same(r).is_some_and(|last| last.run_id == r.run_id))
        .collect();
    if last.is_empty() {
        return;
    }
    page.write_title("CUDA graphs at the last start");
    let mut table = TextTable::new(&[
        ("model", Align::Left),
        ("engine", Align::Left),
        ("GPU", Align::Left),
        ("TP", Align::Right),
        ("GiB", Align::Right),
        ("when", Align::Left),
    ]);
    for r in last {
        let bytes = r.cuda_graphs.unwrap_or_default() as f64;
        table.add_row(vec![
            r.model.clone(),
            format!("{} {}", r.key.engine, r.key.version),
            r.key.gpu.clone(),
            r.key.tp.to_string(),
            format!("{:.2}", bytes / GIB),
            r.timestamp.clone(),
        ]);
    }
    page.write_table(&table);
}

/// The page of the correlations.
pub fn render_correlations(correlations: &Correlations, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    let n = correlations.profiles;
    page.write_line(&format!(
        "What moves with what, in {n} {}",
        if n == 1 { "profile" } else { "profiles" }
    ));
    section(
        &mut page,
        "Across runs, a point for each",
        &correlations.across_runs,
        false,
    );
    section(
        &mut page,
        "Within runs, a point for each moment (medians over the runs)",
        &correlations.within_runs,
        true,
    );
    page.write_aside(
        "A coefficient tells that two figures move together, and not why; few runs say little.",
    );
    page.into_text()
}

fn section(page: &mut TextPage, title: &str, all: &[Correlation], with_runs: bool) {
    page.write_title(title);
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("with", Align::Left),
        ("points", Align::Right),
        (if with_runs { "runs" } else { "" }, Align::Right),
        ("Pearson", Align::Right),
        ("Spearman", Align::Right),
    ]);
    for c in all {
        let value = |v: Option<f64>| match (v, &c.unknown) {
            (Some(v), _) => with_plus(v, format!("{v:.2}")),
            (None, _) => "no data".into(),
        };
        table.add_row(vec![
            c.x.clone(),
            c.y.clone(),
            grouped_count(c.n),
            if with_runs {
                c.runs.to_string()
            } else {
                String::new()
            },
            value(c.pearson),
            value(c.spearman),
        ]);
    }
    page.write_table(&table);
}
