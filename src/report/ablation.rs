//! An A/B run as a report: arms, memory part by part, latency and throughput.

use super::content::{
    Answer, AnswerState, Chapter, ContentBlock, Grid, Report, TableCell, note_block,
};
use super::figures::{cell_by, change_cell, percent_text};
use super::layout::{counted_noun, format_figure, unsigned_zero};
use super::tables::TableBuilder;
use crate::capture::RunEnd;
use crate::compare::ablation::{Ablation, Arm};
use crate::compare::graphs::MIB;
use crate::compare::{Judgement, Row, Side, Unit};
use crate::profile::MemoryGauge;
use crate::units::Bytes;

/// The report.
pub fn ablation_report(ablation: &Ablation) -> Report {
    let version = ablation.engine_version.as_deref().unwrap_or("—");
    let mut blocks = vec![ContentBlock::Text(format!(
        "{} {version}, {}, {} bench, memory read by {}.",
        ablation.engine,
        ablation.model.as_deref().unwrap_or("model —"),
        ablation.bench,
        ablation.memory_backend
    ))];
    let arms = [("A", &ablation.a), ("B", &ablation.b)];
    blocks.extend(arms.map(|(letter, arm)| ContentBlock::Text(describe_arm(letter, arm))));
    blocks.extend(findings(arms));
    blocks.push(ContentBlock::Table(memory_table(ablation)));
    if !ablation.comparison.others.is_empty() {
        blocks.push(ContentBlock::Table(others_table(ablation)));
    }
    blocks.extend(ablation.graphs.as_ref().map(|graphs| {
        let text = match (graphs.overhead_bytes, graphs.reading) {
            (Some(bytes), Some(reading)) => format!(
                "CUDA graphs: {:.1} MiB, {}: {}.",
                bytes / MIB,
                graphs.witness,
                graphs.thresholds.describe_reading(reading)
            ),
            _ => format!("CUDA graphs: no reading: {}.", graphs.witness),
        };
        ContentBlock::Text(text)
    }));
    let title = format!(
        "{}: {} against {}",
        ablation.container, ablation.b.name, ablation.a.name
    );
    let chapters = vec![Chapter::of_blocks("ablation", "A against B", blocks)];
    Report::of_chapters(title, answer_of_ablation(ablation), chapters)
        .mark_simulated(ablation.simulated)
}

/// How far the peak of B is from that of A, and whether that is more than noise.
fn answer_of_ablation(ablation: &Ablation) -> Option<Answer> {
    let total = &ablation.comparison.total;
    let (a, b) = total.a.median.zip(total.b.median)?;
    let moved = Bytes((b - a).abs() as u64);
    let verdict = match (b.total_cmp(&a), judgement(total)) {
        (std::cmp::Ordering::Equal, _) => "B peaks as high as A.".to_owned(),
        (side, judgement) => {
            let side = if side.is_gt() { "higher" } else { "lower" };
            let comma = if judgement.is_empty() { "" } else { ", " };
            let (a, b) = (&ablation.a.name, &ablation.b.name);
            format!("B ({b}) peaks {moved} {side} than A ({a}){comma}{judgement}.")
        }
    };
    let arms = [&ablation.a, &ablation.b].into_iter();
    let gauges = arms.filter_map(|arm| arm.fullest_device.clone());
    let answer = Answer::of_verdict(AnswerState::Unknown, verdict);
    Some(answer.with_gauge(MemoryGauge::fullest_of(gauges)))
}

fn describe_arm(letter: &str, arm: &Arm) -> String {
    let args = match arm.engine_args.as_slice() {
        [] => "no arguments of its own".to_owned(),
        args => args.join(" "),
    };
    let runs = counted_noun(arm.runs.len(), "run");
    let failed = (arm.runs.iter()).filter(|r| r.outcome != RunEnd::Completed);
    let failed = match failed.count() {
        0 => String::new(),
        n => format!(", {n} FAILED"),
    };
    format!("{letter} = {}: {args} ({runs}{failed})", arm.name)
}

/// What the runs warn of: an argument without effect makes two arms that are the same.
fn findings(arms: [(&str, &Arm); 2]) -> Vec<ContentBlock> {
    let in_both = |message: &str| {
        (arms.iter()).all(|(_, arm)| arm.findings.iter().any(|f| f.message == message))
    };
    let mut notes = Vec::new();
    for (letter, arm) in arms {
        for finding in &arm.findings {
            let both = in_both(&finding.message);
            if both && letter == "B" {
                continue;
            }
            let of = if both { "both" } else { letter };
            let message = format!("{of}: {}", finding.message);
            notes.push(note_block(finding.severity, &finding.code, message));
        }
    }
    notes
}

fn memory_table(ablation: &Ablation) -> Grid {
    let c = &ablation.comparison;
    let rows = [&c.total].into_iter().chain(&c.components);
    let caption = "Memory at the peak, MiB (medians)";
    sides_table("part", rows.chain([&c.remainder]), |row| row.label.clone())
        .grid("ablation_memory", caption)
}

fn others_table(ablation: &Ablation) -> Grid {
    let label = |row: &Row| match row.unit {
        Unit::Bytes => format!("{}, MiB", row.label),
        _ => row.label.clone(),
    };
    sides_table("figure", &ablation.comparison.others, label)
        .words("A, lowest to highest", "a_range", |row| {
            format_range(row.unit, &row.a)
        })
        .words("B, lowest to highest", "b_range", |row| {
            format_range(row.unit, &row.b)
        })
        .grid("ablation_others", "Pool, latency, throughput (medians)")
}

/// Label, A, B, difference, percent, judgement.
fn sides_table<'a>(
    first: &str,
    rows: impl IntoIterator<Item = &'a Row>,
    label: impl Fn(&Row) -> String,
) -> TableBuilder<&'a Row> {
    let side = |unit: Unit, side: &Side| {
        let why = side.unknown.as_deref().unwrap_or("unknown");
        cell_by(side.median, why, |v| format_value(unit, v))
    };
    TableBuilder::of_items(rows)
        .words(first, first, label)
        .figures("A", "a", |row| side(row.unit, &row.a))
        .figures("B", "b", |row| side(row.unit, &row.b))
        .figures("B - A", "diff", |row| {
            change_cell(row.difference, "not known of both", |v| {
                format_value(row.unit, v)
            })
        })
        .figures("%", "diff_pct", |row| match row.difference_percent {
            Some(percent) => TableCell::number_cell(percent, percent_text(percent)),
            None => TableCell::default(),
        })
        .words("noise", "judgement", judgement)
}

fn judgement(row: &Row) -> &'static str {
    match row.judgement {
        None => "",
        Some(Judgement::Equal) => "equal",
        Some(Judgement::WithinNoise) => "within noise",
        Some(Judgement::BeyondNoise) => "beyond noise",
        Some(Judgement::SpreadUnknown) => "spread unknown",
    }
}

fn format_value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Bytes => unsigned_zero(format!("{:.1}", value / MIB)),
        _ => format_figure(value),
    }
}

fn format_range(unit: Unit, side: &Side) -> String {
    match side.spread.filter(|s| s.n > 1) {
        None => String::new(),
        Some(s) => {
            let [low, high] = [s.min, s.max].map(|value| format_value(unit, value));
            format!("{low} to {high}")
        }
    }
}
