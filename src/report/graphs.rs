//! The cost of CUDA graphs as a report: both arms, then what they show together.

use super::content::{
    Answer, AnswerState, Chapter, ContentBlock, Report, TableCell, facts_block, note_block,
};
use super::figures::cell_by;
use super::tables::TableBuilder;
use crate::compare::graph_report::{GraphArm, GraphReport, MemoryMb};
use crate::compare::graphs::MIB;

/// The report.
pub fn graphs_report(report: &GraphReport) -> Report {
    let version = report.engine_version.as_deref().unwrap_or("—");
    let s = &report.settings;
    let about = format!(
        "{} ({}), batches up to {}, drafts of {}, sequences up to {}.",
        report.model_name, report.model_path, s.max_batch_size, s.max_draft_len, s.max_seq_len
    );
    let about = vec![ContentBlock::Text(about)];
    let mut chapters = vec![Chapter::of_blocks("settings", "Settings", about)];
    chapters.extend(report.arms.iter().enumerate().map(arm_chapter));
    chapters.push(analysis_chapter(report));
    let findings = report.findings.iter();
    let findings = findings.map(|f| note_block(f.severity, &f.code, f.message.clone()));
    let findings = Chapter::of_parts("findings", "Findings", findings.collect(), Vec::new());
    chapters.extend(findings);
    let title = format!(
        "{}: CUDA graphs of TensorRT-LLM {version}, {} speculation",
        report.container, report.speculation
    );
    let answer = Answer::of_verdict(AnswerState::Unknown, reading_text(report));
    Report::of_chapters(title, answer, chapters).mark_simulated(report.simulated)
}

fn arm_chapter((i, arm): (usize, &GraphArm)) -> Chapter {
    let mut facts: Vec<(&str, String)> = Vec::new();
    let failed = (arm.error.as_ref()).map(|e| ("FAILED", format!("{} ({})", e.message, e.kind)));
    facts.extend(failed);
    for (label, memory) in [
        ("memory before", &arm.memory_before),
        ("memory after", &arm.memory_after),
    ] {
        facts.extend(memory.as_ref().map(|m| (label, memory_levels(m))));
    }
    if let Some(host) = &arm.host {
        let of = if host.gpu {
            "GPUs"
        } else {
            "the container's own memory, not the GPU's"
        };
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB);
        let all = [host.before_bytes, host.after_bytes, host.peak_bytes];
        let [before, after, most] = all.map(mib);
        let backend = &host.backend;
        let text = format!("{before} before, {after} after, {most} at most ({backend}: {of})");
        facts.push(("from the host", text));
    }
    facts.push(("CUDA graphs", graphs_text(arm)));
    let title = format!("Experiment {}", arm.experiment);
    let id = format!("arm{}", i + 1);
    Chapter::of_blocks(&id, title, vec![facts_block(&format!("{id}_facts"), facts)])
}

fn graphs_text(arm: &GraphArm) -> String {
    let Some(n) = arm.num_cuda_graphs else {
        return "— (neither the engine nor its log has a count)".into();
    };
    let by = arm.cuda_graphs_by_draft_len.iter();
    let by: Vec<String> = by.map(|(len, n)| format!("{len}: {n}")).collect();
    let by = match by.join(", ") {
        none if none.is_empty() => none,
        by => format!(" ({by})"),
    };
    let from = match arm.counted_from.as_deref() {
        Some("structure") if arm.log.is_some() => {
            "counted in the engine's structures and in its log"
        }
        Some("structure") => "counted in the engine's structures; its log has no count",
        _ => "counted in its log",
    };
    format!("{n}{by}, {from}")
}

fn analysis_chapter(report: &GraphReport) -> Chapter {
    let analysis = &report.analysis;
    let mut blocks = Vec::new();
    if !analysis.overheads.is_empty() {
        let name = |i: usize| report.arms.get(i).map_or("", |a| a.experiment.as_str());
        let mib =
            |bytes: i64| TableCell::number_cell(bytes as f64, format!("{:.1}", bytes as f64 / MIB));
        let one = |v: Option<f64>| cell_by(v, "not known", |v| format!("{v:.1}"));
        let grid = TableBuilder::of_items(&analysis.overheads)
            .words("MiB, by", "witness", |o| witness_label(&o.witness))
            .figures(name(0), "a", |o| mib(o.a_bytes))
            .figures(name(1), "b", |o| mib(o.b_bytes))
            .figures("overhead", "overhead_mib", |o| one(Some(o.overhead_mib)))
            .figures("%", "overhead_percent", |o| one(o.overhead_percent))
            .figures("per added graph", "mib_per_added_graph", |o| {
                one(o.mib_per_additional_graph)
            })
            .grid("overheads", "");
        blocks.push(ContentBlock::Table(grid));
    }
    let added = match analysis.additional_cuda_graphs {
        Some(n) => n.to_string(),
        None => unknown_text(report, "additional_cuda_graphs"),
    };
    blocks.push(ContentBlock::Text(format!("Added graphs: {added}.")));
    let spread = "Each arm was run once, so the spread is unknown. What a graph takes is measured here and no constant; it differs by model and release.";
    blocks.push(ContentBlock::Text(spread.into()));
    Chapter::of_blocks("analysis", "Analysis", blocks)
}

fn unknown_text(report: &GraphReport, path: &str) -> String {
    let why = report.unknown.get(&format!("analysis.{path}"));
    format!("— ({})", why.map_or("not known", String::as_str))
}

fn reading_text(report: &GraphReport) -> String {
    let analysis = &report.analysis;
    match (analysis.reading, analysis.overheads.first()) {
        (Some(reading), Some(first)) => {
            let reading = report.thresholds.describe_reading(reading);
            format!("{reading}, by {}", witness_label(&first.witness))
        }
        _ => format!("No reading: {}", unknown_text(report, "reading")),
    }
}

fn witness_label(name: &str) -> &'static str {
    match name {
        "device" => "the driver",
        "reserved" => "torch, reserved",
        "allocated" => "torch, allocated",
        _ => "the host",
    }
}

fn memory_levels(memory: &MemoryMb) -> String {
    let all = [
        ("allocated", memory.allocated_mb),
        ("reserved", memory.reserved_mb),
        ("max allocated", memory.max_allocated_mb),
        ("whole device", memory.device_used_mb),
    ];
    let words = all.map(|(name, mb)| match mb {
        Some(mb) => format!("{name} {mb:.1}"),
        None => format!("{name} —"),
    });
    format!("{} MiB", words.join(", "))
}
