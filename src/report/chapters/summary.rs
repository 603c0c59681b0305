//! The first chapter: what ran, on what, when, and the figures that matter.

use super::Sources;
use super::figures::gib_cell;
use super::words;
use crate::capture::RunEnd;
use crate::compare::subject::Subject;
use crate::engine::facts::Severity;
use crate::profile::Profile;
use crate::report::content::{Chapter, ContentBlock, TableCell, facts_block, note_block};
use crate::report::layout::format_duration;
use crate::report::material::{Material, ReportRun, StoredDocument};
use crate::report::tables::{TableBuilder, word_or_reason};
use crate::units::GIB;

/// Path, title and unit of what engine and bench reported.
pub(super) const KV_TOKENS: &str = "vllm_internal_metrics.total_gpu_kv_cache_tokens";
pub(super) const LATENCY: &str = "latency_stats.mean_latency_ms";
pub(super) const TOKENS: &str = "latency_stats.tokens_per_second";
/// What a figure of the bench rests on.
pub(super) const BENCH: &str = "the bench's result";

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
        blocks.push(older_documents_table(&material.older));
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
    let answers = super::answer::document_answers(material);
    let table = TableBuilder::of_items(&answers)
        .words("document", "document", |(kind, name, _)| {
            format!("{kind}: {name}")
        })
        .words("answer", "answer", |(.., sentence)| sentence);
    ContentBlock::Table(table.grid("documents", ""))
}

/// Documents of earlier schemas: the figures that all of them have.
fn older_documents_table(documents: &[StoredDocument]) -> ContentBlock {
    let keys = [
        ("total", "peak, GiB"),
        ("model_weights", "weights, GiB"),
        ("kv_cache", "KV cache, GiB"),
        ("activations", "activations, GiB"),
        ("framework_overhead", "overhead, GiB"),
    ];
    let subjects: Vec<Subject> = (documents.iter())
        .map(|stored| Subject::of_older(&stored.document, &stored.name))
        .collect();
    let mut table = TableBuilder::of_items(documents.iter().zip(&subjects))
        .words("document", "document", |(stored, _)| &stored.name)
        .cells("model", "model", |(_, subject)| {
            word_or_reason(subject.who.model.as_ref(), "the document does not have it")
        });
    for (key, title) in keys {
        table = table.figures(title, &format!("{key}_gib"), |(_, subject)| {
            match subject.figure_bytes(key) {
                Ok(bytes) if bytes.abs() < 1e6 * GIB => gib_cell(bytes as i64),
                Ok(_) => TableCell::missing_cell("no device has so much"),
                Err(why) => TableCell::missing_cell(why),
            }
        });
    }
    let caption = "Documents of earlier schemas: their figures as they say them, without witnesses";
    ContentBlock::Table(table.grid("older", caption))
}

/// A run that did not come to its end: what is to be known before any figure.
fn note_run_end(run: &ReportRun, many: bool) -> Option<ContentBlock> {
    let end = &run.profile.metadata.outcome;
    let severity = match end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => Severity::Warning,
        _ => Severity::Error,
    };
    let text = super::of_run_text(&words::describe_end(end), run, many);
    Some(note_block(severity, "not_whole", text))
}

fn write_run_summary(blocks: &mut Vec<ContentBlock>, run: &ReportRun) {
    let p = &run.profile;
    blocks.extend(note_run_end(run, false));
    let m = &p.metadata;
    let memory = [words::devices_label(p), words::backend_label(p)].join(", ");
    let container = match (&m.container.name, m.container.image.as_str()) {
        (name, "") => name.clone(),
        (name, image) => format!("{name} ({image})"),
    };
    let took = format_duration(m.duration_s);
    let ended = words::outcome_label(&m.outcome);
    let mut facts = vec![
        ("model", words::model_label(p)),
        ("engine", engine_fact(p)),
        ("load", words::load_label(p)),
        ("memory", memory.trim_end_matches(", ").to_owned()),
        ("container", container),
        ("mode", words::mode_label(p).to_owned()),
        ("beside it", p.parameters.beside.join(", ")),
        ("run", format!("{}, {took}, {ended}", m.timestamp)),
    ];
    facts.retain(|(name, fact)| *name != "beside it" || !fact.is_empty());
    blocks.push(facts_block("run", facts));
}
