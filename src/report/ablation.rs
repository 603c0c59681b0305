//! An A/B run as a report: arms, memory part by part, latency and throughput.

use super::content::{
    Answer, Chapter, ContentBlock, Grid, Report, TableCell, note_block, number_column, text_column,
};
use super::figures::{cell_by, change_cell, percent_text};
use super::layout::{counted_noun, format_figure, unsigned_zero};
use crate::capture::RunEnd;
use crate::compare::ablation::{Ablation, Arm};
use crate::compare::graphs::MIB;
use crate::compare::{Judgement, Row, Side, Unit};
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
    Report {
        title: format!(
            "{}: {} against {}",
            ablation.container, ablation.b.name, ablation.a.name
        ),
        simulated: (ablation.simulated).then(|| "an engine or a GPU here is simulated".into()),
        answer: answer_of_ablation(ablation),
        chapters: vec![Chapter::of_blocks("ablation", "A against B", blocks)],
        ..Report::default()
    }
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
            let noise = match judgement {
                "" => String::new(),
                judgement => format!(", {judgement}"),
            };
            format!(
                "B ({}) peaks {moved} {side} than A ({}){noise}.",
                ablation.b.name, ablation.a.name
            )
        }
    };
    Some(Answer {
        verdict,
        ..Answer::default()
    })
}

fn describe_arm(letter: &str, arm: &Arm) -> String {
    let args = if arm.engine_args.is_empty() {
        "no arguments of its own".to_owned()
    } else {
        arm.engine_args.join(" ")
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
    Grid {
        id: "ablation_memory".into(),
        caption: "Memory at the peak, MiB (medians)".into(),
        columns: columns("part"),
        rows: rows.chain([&c.remainder]).map(row_cells).collect(),
    }
}

fn others_table(ablation: &Ablation) -> Grid {
    let mut columns = columns("figure");
    columns.push(text_column("A, lowest to highest", "a_range"));
    columns.push(text_column("B, lowest to highest", "b_range"));
    let rows = ablation.comparison.others.iter().map(|row| {
        let mut cells = row_cells(row);
        if let (Unit::Bytes, Some(label)) = (row.unit, cells.first_mut()) {
            label.text.push_str(", MiB");
        }
        cells.extend([&row.a, &row.b].map(|s| TableCell::text_cell(format_range(row.unit, s))));
        cells
    });
    Grid {
        id: "ablation_others".into(),
        caption: "Pool, latency, throughput (medians)".into(),
        columns,
        rows: rows.collect(),
    }
}

fn columns(first: &str) -> Vec<super::content::TableColumn> {
    vec![
        text_column(first, first),
        number_column("A", "a"),
        number_column("B", "b"),
        number_column("B - A", "diff"),
        number_column("%", "diff_pct"),
        text_column("noise", "judgement"),
    ]
}

/// Label, A, B, difference, percent, judgement.
fn row_cells(row: &Row) -> Vec<TableCell> {
    let why = |side: &Side| side.unknown.clone().unwrap_or_else(|| "unknown".into());
    let value = |v: f64| format_value(row.unit, v);
    let one_sided = "not known of both";
    vec![
        TableCell::text_cell(&row.label),
        cell_by(row.a.median, &why(&row.a), value),
        cell_by(row.b.median, &why(&row.b), value),
        change_cell(row.difference, one_sided, value),
        match row.difference_percent {
            Some(percent) => TableCell::number_cell(percent, percent_text(percent)),
            None => TableCell::default(),
        },
        TableCell::text_cell(judgement(row)),
    ]
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
        Some(s) => format!(
            "{} to {}",
            format_value(unit, s.min),
            format_value(unit, s.max)
        ),
    }
}
