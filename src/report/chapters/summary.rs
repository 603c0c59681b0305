//! The first chapter: what ran, on what, when, and the figures that matter.

use super::Sources;
use super::words;
use crate::capture::RunEnd;
use crate::engine::facts::Severity;
use crate::profile::Profile;
use crate::report::content::{
    Chapter, ContentBlock, Grid, TableCell, facts_block, note_block, text_column,
};
use crate::report::layout::format_duration;
use crate::report::material::{Material, ReportRun};

/// Path, title and unit of what engine and bench reported.
pub(super) const KV_TOKENS: &str = "vllm_internal_metrics.total_gpu_kv_cache_tokens";
pub(super) const LATENCY: &str = "latency_stats.mean_latency_ms";
pub(super) const TOKENS: &str = "latency_stats.tokens_per_second";

pub(super) fn write_summary_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let mut blocks = Vec::new();
    match material.runs.as_slice() {
        [] => {}
        [run] => write_run_summary(&mut blocks, run),
        runs => {
            // Of very many, the findings chapter has the others.
            blocks.extend(runs.iter().filter_map(|r| note_run_end(r, true)).take(20));
            super::runs::add_run_blocks(&mut blocks, runs, sources);
        }
    }
    if material.document_counts().len() > 1 {
        blocks.insert(0, documents_table(material));
    }
    if !material.older.is_empty() {
        blocks.push(super::older::older_documents_table(&material.older));
    }
    let unread = material.unread.iter();
    blocks.extend(unread.map(|s| note_block(Severity::Warning, "unread", s.clone())));
    Chapter::of_parts("summary", "Summary", blocks, Vec::new())
}

/// The engine with its version, and the attention backend that it reports.
fn engine_fact(p: &Profile) -> String {
    let engine = words::engine_label(p);
    match &p.vllm_internal_metrics.attention_backend {
        Some(backend) => format!("{engine}, attention backend {backend}"),
        None => engine,
    }
}

/// What each document of several kinds answers.
fn documents_table(material: &Material) -> ContentBlock {
    let answers = super::answer::document_answers(material).into_iter();
    let rows = answers.map(|(kind, name, sentence)| {
        let document = format!("{kind}: {name}");
        [document, sentence].map(TableCell::text_cell).to_vec()
    });
    ContentBlock::Table(Grid {
        id: "documents".into(),
        caption: String::new(),
        columns: vec![
            text_column("document", "document"),
            text_column("answer", "answer"),
        ],
        rows: rows.collect(),
    })
}

/// A run that did not come to its end: what is to be known before any figure.
fn note_run_end(run: &ReportRun, many: bool) -> Option<ContentBlock> {
    let end = &run.profile.metadata.outcome;
    let severity = match end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => Severity::Warning,
        _ => Severity::Error,
    };
    let text = match end.failure() {
        Some(why) => format!("{}: {why}", words::outcome_label(end)),
        None => words::outcome_label(end).to_owned(),
    };
    let text = super::of_run_text(text, run, many);
    Some(note_block(severity, "not_whole", text))
}

fn write_run_summary(blocks: &mut Vec<ContentBlock>, run: &ReportRun) {
    let p = &run.profile;
    blocks.extend(note_run_end(run, false));
    let facts = [
        ("model", words::model_label(p)),
        ("engine", engine_fact(p)),
        ("load", words::load_label(p)),
        (
            "memory",
            [words::devices_label(p), words::backend_label(p)]
                .join(", ")
                .trim_end_matches(", ")
                .to_owned(),
        ),
        (
            "container",
            match (
                &p.metadata.container.name,
                p.metadata.container.image.as_str(),
            ) {
                (name, "") => name.clone(),
                (name, image) => format!("{name} ({image})"),
            },
        ),
        ("mode", words::mode_label(p).to_owned()),
        ("beside it", p.parameters.beside.join(", ")),
        (
            "run",
            format!(
                "{}, {}, {}",
                p.metadata.timestamp,
                format_duration(p.metadata.duration_s),
                words::outcome_label(&p.metadata.outcome)
            ),
        ),
    ];
    let has_value = |(name, fact): &(&str, String)| *name != "beside it" || !fact.is_empty();
    let facts: Vec<_> = facts.into_iter().filter(has_value).collect();
    blocks.push(facts_block("run", facts));
}
