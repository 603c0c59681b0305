//! A diagnosis as a report.

use super::content::{Action, Answer, AnswerState, Chapter, ContentBlock, Report, facts_block};
use super::layout::capitalize_first;
use crate::engine::causes::TABLE;
use crate::engine::diagnosis::{Diagnosis, describe_figure, size_of};
use crate::profile::MemoryGauge;
use crate::units::{Bytes, GIB};
use serde::{Deserialize, Serialize};

/// A diagnosis as a document.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WhyDocument {
    /// [`WHY_DOCUMENT`].
    pub document: String,
    /// The container or log.
    pub subject: String,
    /// What was found.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
}

/// The kind of [`WhyDocument`].
pub const WHY_DOCUMENT: &str = "why";

/// The report on why `subject` failed.
pub fn report_of_diagnosis(subject: &str, found: &Diagnosis) -> Report {
    let evidence = found.evidence.iter();
    let evidence = evidence.map(|line| (line.source.clone(), line.quote.clone()));
    let figures = (found.numbers.iter()).map(|(name, value)| describe_figure(name, value));
    let readings = found.last_readings.iter().map(|reading| {
        let (at, device) = (reading.before_end_s, &reading.device);
        let before = format!("{at:.1} s before the end, {device}");
        (before, Bytes(reading.used_bytes).to_string())
    });
    let tables = [
        facts_chapter("evidence", "Evidence", evidence.collect()),
        facts_chapter("figures", "Figures, as printed", figures.collect()),
        facts_chapter("last_readings", "Memory before the end", readings.collect()),
    ];
    let also = (found.also.iter()).map(|name| TABLE.meaning_of(name).to_owned());
    let also: Vec<String> = also.collect();
    let further = [
        Chapter::of_sentences("also", "Also in the evidence", &also),
        Chapter::of_sentences("look_at", "Where to look further", &found.look_at),
        Chapter::of_sentences("now", "Current state", &found.now),
        Chapter::of_sentences("unread", "Not read", &found.unread),
    ];
    let actions = found.advice.iter();
    let actions = actions.map(|advice| Action::of_advice(&advice.text));
    let answer = Answer {
        gauge: gauge_of(found),
        actions: actions.collect(),
        ..Answer::of_verdict(state_of(found), verdict_of(found))
    };
    let is_said = |block: &ContentBlock| *block != ContentBlock::Text(String::new());
    let chapters = (tables.into_iter().chain(further).flatten())
        .filter(|chapter| chapter.all_blocks().any(is_said));
    Report::of_chapters(subject, answer, chapters.collect())
}

fn facts_chapter(id: &str, title: &str, facts: Vec<(String, String)>) -> Option<Chapter> {
    (!facts.is_empty()).then(|| Chapter::of_blocks(id, title, vec![facts_block(id, facts)]))
}

/// How full the GPU or the limit was, by the figures of the message that decides.
fn gauge_of(found: &Diagnosis) -> Option<MemoryGauge> {
    let size = |name: &str| size_of(&found.numbers, name);
    let killed = size("limit").zip(size("anon_rss"));
    let refused = (size("total").zip(size("free")))
        .filter(|(total, free)| free <= total)
        .map(|(total, free)| (total, total - free));
    let cause = found.cause.as_deref().unwrap_or_default();
    let of_host = cause.starts_with("host_ram");
    let (label, (total, used)) = match (killed, refused) {
        (Some(killed), _) => ("Memory limit at the kill", killed),
        (None, refused) if of_host => ("Memory at the failure", refused?),
        (None, refused) => ("GPU memory at the failure", refused?),
    };
    Some(MemoryGauge {
        label: label.to_owned(),
        used_bytes: (used * GIB) as u64,
        total_bytes: (total * GIB) as u64,
        ..MemoryGauge::default()
    })
}

fn state_of(found: &Diagnosis) -> AnswerState {
    match found.cause.as_deref() {
        Some("no_failure") => AnswerState::Safe,
        Some(_) => AnswerState::Failed,
        None => AnswerState::Unknown,
    }
}

fn verdict_of(found: &Diagnosis) -> String {
    let Some(cause) = &found.cause else {
        let quotes = || found.evidence.iter().map(|line| line.quote.to_lowercase());
        if quotes().any(|quote| quote.contains("out of memory")) {
            return "GPU memory ran out; in which phase is not in what was read".to_owned();
        }
        return match found.numbers.get("exit_code") {
            Some(code) => {
                format!("It ended with exit code {code}; the cause is not in what was read")
            }
            None => "The cause is not in what was read".to_owned(),
        };
    };
    let means = found.means.as_deref().unwrap_or(cause);
    if cause == "no_failure" {
        return capitalize_first(means);
    }
    let confidence = found.confidence.as_deref().unwrap_or("low");
    let phase = found.phase.as_ref().map_or_else(String::new, |phase| {
        format!(", in phase {}", phase.replace('_', " "))
    });
    let means = capitalize_first(means);
    format!("{means} ({cause}{phase}; confidence {confidence})")
}
