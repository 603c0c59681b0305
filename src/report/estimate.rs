//! An estimate as a report: each component with its band, the pool, whether it fits, and each formula
//! with its inputs.

mod sharing;
#[cfg(test)]
mod tests;

pub use sharing::{SharedGpu, SharedGpus, SharedTenant};

use super::content::{
    Action, Answer, AnswerState, Chapter, ContentBlock, Grid, Report, TableCell, facts_block,
    note_block,
};
use super::figures::{count_cell, estimate_cell};
use super::layout::{counted_noun, group_items, grouped_count};
use super::tables::TableBuilder;
use crate::breakdown::Component as Part;
use crate::engine::facts::Severity;
use crate::estimate::non_torch::CONTEXT_GIB;
use crate::estimate::question::{self, Choice, Entry, Reading, Remedy, Risk, Solution};
use crate::estimate::{Component, Gpu, Model, Term, Unknown};
use crate::profile::MemoryGauge;
use crate::profile::stats::saturating_sum;
use crate::units::{Bytes, to_gib};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What an estimate's report is of, as `estimate --json` writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EstimatePage {
    /// [`ESTIMATE_DOCUMENT`].
    pub document: String,
    /// The model, as it was asked for.
    #[serde(rename = "id")]
    pub model: String,
    /// Parameters; 0 where only flags are known.
    pub parameters: u64,
    /// Where the model's facts come from.
    pub source: String,
    /// The engine with its version.
    pub engine: String,
    /// The GPUs: `2 x H100 SXM 80GB, 79.18 GiB each`; `None` where none is named.
    pub gpus: Option<String>,
    /// How many GPUs one replica takes.
    pub gpu_count: u64,
    /// Settings in force.
    pub settings: Vec<EngineSetting>,
    /// The terms.
    pub terms: Vec<Term>,
    /// Bytes on each GPU outside the engine's share, in none of the terms: the driver's context, a sampler's warm-up.
    #[serde(default)]
    pub outside_bytes: u64,
    /// Of these the sampler's warm-up.
    #[serde(default)]
    pub warm_up_bytes: u64,
    /// The pool on each GPU: bytes and tokens.
    pub pool: Option<PoolFigures>,
    /// Bytes that a token adds on each GPU.
    pub per_token: Known<u64>,
    /// The longest sequence.
    #[serde(rename = "max_model_len")]
    pub longest: Option<u64>,
    /// Requests at once that were asked for.
    pub concurrency: u64,
    /// Why it fits or does not, by the engine's rule.
    pub reason: String,
    /// How it fits, or why that is unknown.
    pub reading: Known<Reading>,
    /// Sentences.
    pub warnings: Vec<String>,
    /// The GPU.
    pub gpu: Option<Gpu>,
    /// What makes it fit, each estimated with its new value.
    pub actions: Vec<Action>,
    /// The answer of `--solve`, a sentence.
    pub solution: Option<String>,
    /// All that are on the same GPUs, where others were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedGpus>,
}

/// The kind of an estimate's document.
pub const ESTIMATE_DOCUMENT: &str = "estimate";

/// A figure, or why it is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Known<T> {
    /// The figure.
    Value(T),
    /// Why there is none.
    Missing(Unknown),
}

impl<T> From<Result<T, Unknown>> for Known<T> {
    fn from(result: Result<T, Unknown>) -> Known<T> {
        result.map_or_else(Known::Missing, Known::Value)
    }
}

/// A setting in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSetting {
    /// In the engine's words: `max_model_len`.
    pub name: String,
    /// Its value, as shown.
    pub value: String,
    /// Whether it is the engine's default.
    pub default: bool,
}

/// The pool for keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFigures {
    /// Bytes on each GPU.
    pub bytes: u64,
    /// Tokens, as the engine prints them.
    pub tokens: u64,
}

/// GPUs that hold a deployment, as `estimate --recommend-gpu --json` writes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuChoices {
    /// `gpu_choices`.
    pub document: String,
    /// The model.
    pub id: String,
    /// What is asked for, in a sentence.
    pub title: String,
    /// Requests at once.
    pub concurrency: u64,
    /// Tokens of each.
    pub max_model_len: u64,
    /// The GPUs, the smallest first.
    pub recommend: Vec<Choice>,
    /// How many GPUs were tried.
    pub tried: usize,
    /// Sentences.
    pub warnings: Vec<String>,
}

/// Memory by tokens and requests, as `estimate --table --json` writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EstimateTable {
    /// `estimate_table`.
    pub document: String,
    /// The model.
    pub id: String,
    /// What is asked for, in a sentence.
    pub title: String,
    /// The cells.
    pub table: Vec<Entry>,
    /// Sentences.
    pub warnings: Vec<String>,
}

/// The answers of several releases, as `estimate --engine-version A,B --json` writes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EstimateVersions {
    /// `estimate_versions`.
    pub document: String,
    /// The model.
    pub id: String,
    /// What is asked for, in a sentence.
    pub title: String,
    /// The releases, as they were named.
    pub versions: Vec<VersionAnswer>,
    /// Sentences.
    pub warnings: Vec<String>,
}

/// The answer of one release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersionAnswer {
    /// The release.
    pub version: String,
    /// Its terms.
    pub terms: Vec<Term>,
    /// Tokens of the pool, as the release prints them.
    pub kv_pool_tokens: Option<u64>,
    /// Requests of the longest length at once.
    pub max_concurrency: Option<f64>,
    /// It starts, and holds one request of the longest length.
    pub fits: Option<bool>,
    /// Why: a sentence.
    pub reason: String,
}

/// The report. `explain`: formulas are for a first reading, too.
pub fn estimate_report(page: &EstimatePage, explain: bool) -> Report {
    let shared = page.shared.as_ref().map(sharing::shared_chapter);
    let mut chapters: Vec<Chapter> = shared.into_iter().collect();
    let blocks = estimate_blocks(page);
    chapters.push(Chapter::of_blocks("estimate", "Estimated memory", blocks));
    let facts = facts_block("kv_cache_facts", cache_facts(page));
    chapters.push(Chapter::of_blocks("kv_cache", "KV cache", vec![facts]));
    let formulas = page.terms.iter().map(explain_term).collect();
    let mut formulas = Chapter::of_blocks("formulas", "Formulas", formulas);
    if !explain {
        formulas.move_to_details();
    }
    chapters.push(formulas);
    let warnings = warning_blocks(&page.warnings);
    chapters.extend(Chapter::of_parts("warnings", "To know", warnings, vec![]));
    let gpus = page.gpus.as_ref().map(|g| format!(" on {g}"));
    let gpus = gpus.unwrap_or_default();
    let title = format!("{}, {}{gpus}", page.model, page.engine);
    Report::of_chapters(title, answer_of_estimate(page), chapters)
}

fn warning_blocks(warnings: &[String]) -> Vec<ContentBlock> {
    let notes = warnings.iter().cloned();
    let notes = notes.map(|text| note_block(Severity::Warning, "estimate", text));
    notes.collect()
}

/// The terms together; `None` where one is unknown.
fn sum_of_terms(page: &EstimatePage) -> Option<u64> {
    page.terms.iter().try_fold(0u64, |sum, term| {
        sum.checked_add(*term.bytes.as_ref().ok()?)
    })
}

/// Whether it fits, how full the GPU is, and what makes it fit.
pub fn answer_of_estimate(page: &EstimatePage) -> Answer {
    let (state, verdict) = match &page.shared {
        Some(shared) => sharing::verdict_of_sharing(shared),
        None => verdict_of_estimate(page),
    };
    let used = sum_of_terms(page);
    let gauge = page.gpu.as_ref().zip(used).map(|(gpu, used)| {
        let mut parts = BTreeMap::new();
        for term in &page.terms {
            let bytes = term.bytes.as_ref().copied().unwrap_or(0);
            *parts.entry(part_of_term(term.component)).or_default() += bytes;
        }
        *parts.entry(Part::Runtime).or_default() += page.outside_bytes;
        // The cache of such an engine is as large as what is asked for; the term is that of one request.
        let asked = match &page.reading {
            Known::Value(reading) if reading.on.is_some_and(|on| on.grows) => {
                reading.request.saturating_mul(page.concurrency.max(1))
            }
            _ => 0,
        };
        let cache = parts.entry(Part::KvCache).or_default();
        let further = asked.saturating_sub(*cache);
        *cache += further;
        parts.retain(|_, bytes| *bytes > 0);
        let others = (page.shared.as_ref()).map_or(gpu.in_use, |s| s.beside_main_bytes);
        if others > 0 {
            parts.insert(Part::Baseline, others);
        }
        MemoryGauge {
            label: gpu.name.clone(),
            used_bytes: saturating_sum([used, further, page.outside_bytes, others]),
            total_bytes: gpu.total,
            parts,
        }
    });
    let verdict = match &page.solution {
        Some(solution) => format!("{solution}. {verdict}"),
        None => verdict,
    };
    Answer {
        state,
        verdict,
        gauge,
        actions: page.actions.clone(),
        ..Answer::default()
    }
}

/// What a deployment holds after a change: `holds 8 requests of 32,992 tokens`.
pub fn describe_hold(remedy: &Remedy, model: &Model) -> String {
    let requests = remedy.concurrency.floor().max(0.0) as u64;
    let longest = question::longest(model, &remedy.deployment).ok();
    let grows = remedy.deployment.engine.takes_what_is_asked();
    format!("holds {}", describe_requests(requests, longest, grows))
}

/// `8 requests of 32,992 tokens`. `grows`: the engine takes a cache of the size that is asked for, which one request of the
/// longest length fills.
fn describe_requests(requests: u64, longest: Option<u64>, grows: bool) -> String {
    let counted = counted_noun(requests as usize, "request");
    let Some(longest) = longest else {
        return counted;
    };
    let with = match requests.saturating_mul(longest) {
        all if grows && requests > 1 => format!(" with a cache of {} in all", grouped_count(all)),
        _ => String::new(),
    };
    format!("{counted} of {} tokens{with}", grouped_count(longest))
}

fn part_of_term(component: Component) -> Part {
    match component {
        Component::Weights | Component::Draft => Part::ModelWeights,
        Component::KvCache => Part::KvCache,
        Component::Activation => Part::Activations,
        Component::CudaGraphs => Part::CudaGraphs,
        Component::NonTorch => Part::NonTorch,
    }
}

/// Why something is unknown, and what would make it known.
fn with_hint(why: &Unknown) -> String {
    match &why.hint {
        Some(hint) => format!("{why}: {hint}"),
        None => why.to_string(),
    }
}

/// Of an engine that moves layers which do not fit.
const SLOWER: &str = "the engine keeps layers on the processor then, and is slower";

fn verdict_of_estimate(page: &EstimatePage) -> (AnswerState, String) {
    let unknown = |text: String| (AnswerState::Unknown, text);
    let reading = match &page.reading {
        Known::Value(reading) => reading,
        Known::Missing(why) => {
            let why = with_hint(why);
            return unknown(format!("Unknown whether it fits: {why}"));
        }
    };
    let Some(risk) = reading.risk(page.concurrency) else {
        return unknown("Whether it fits depends on the GPU: name it with --gpu".into());
    };
    let several = page.concurrency > 1;
    let grows = reading.on.as_ref().is_some_and(|on| on.grows);
    let requests = match page.concurrency {
        0 | 1 => "one longest request".to_owned(),
        n => describe_requests(n, page.longest, grows),
    };
    let asked = if several {
        format!(", {requests}")
    } else {
        String::new()
    };
    let fits = || {
        let meaning = reading.meaning(risk, &requests, several);
        format!("{asked}; risk {}: {meaning}", risk.as_str())
    };
    match risk {
        Risk::Low => (AnswerState::Safe, format!("Fits{}", fits())),
        Risk::Medium => (AnswerState::Tight, format!("Fits{}", fits())),
        Risk::High if reading.fits(page.concurrency) == Some(true) => {
            // An engine that moves layers starts all the same.
            let verdict = if reading.moves_layers {
                format!("Not all of it may fit{}; {SLOWER}", fits())
            } else {
                format!("May not fit{}", fits())
            };
            (AnswerState::Critical, verdict)
        }
        Risk::High | Risk::DoesNotFit => {
            let (short, why) = shortage(page, reading);
            let short = short.map_or(String::new(), |b| format!(" by {}", Bytes(b)));
            let verdict = format!("{short}{asked}: {why}");
            if risk == Risk::High {
                let verdict = format!("Not all of it fits{verdict}; {SLOWER}");
                return (AnswerState::Critical, verdict);
            }
            if reading.refused {
                let reason = &page.reason;
                return (AnswerState::Failed, format!("Does not start: {reason}"));
            }
            let possibly = reading.may_hold(page.concurrency);
            let shorter = page.pool.filter(|_| reading.serves_shorter);
            let verdict = match shorter {
                Some(pool) => {
                    let hold = if possibly {
                        "probably does not hold"
                    } else {
                        "does not hold"
                    };
                    let requests = describe_requests(page.concurrency.max(1), page.longest, false);
                    let tokens = grouped_count(pool.tokens);
                    format!(
                        "Starts, but {hold} {requests}: {why}. The engine refuses requests of more than about {tokens} tokens"
                    )
                }
                None if possibly => {
                    let verb = if several { "they fit" } else { "it fits" };
                    format!(
                        "Probably does not fit{verdict}; at the upper end of its interval {verb}"
                    )
                }
                None => format!("Does not fit{verdict}"),
            };
            if possibly || shorter.is_some() {
                (AnswerState::Critical, verdict)
            } else {
                (AnswerState::Failed, verdict)
            }
        }
    }
}

/// Bytes that are lacking on each GPU, where that is one figure, and what they are for.
fn shortage(page: &EstimatePage, reading: &Reading) -> (Option<u64>, String) {
    let Some(on) = &reading.on else {
        return (None, Risk::DoesNotFit.meaning("", false));
    };
    let cache = reading.request.saturating_mul(page.concurrency.max(1));
    // Of engines that take what is asked for, all of it is missing at the start; SGLang's pool may have room though what
    // lies beside it does not.
    let all = reading.besides.saturating_add(cache);
    if on.grows && all > on.budget {
        let (needed, room) = (Bytes(all), Bytes(on.budget));
        let why = format!("{needed} are needed per GPU; {room} available");
        return (Some(all - on.budget), why);
    }
    // What is needed at least has no parts, and a sentence of its own.
    let has_parts = reading.request > 0 || page.reason.is_empty();
    if has_parts && reading.besides >= on.budget && on.pool == 0 {
        let (needs, may) = (Bytes(reading.besides), Bytes(on.budget));
        let why =
            format!("everything but the KV cache needs {needs} per GPU; the engine may take {may}");
        return (Some(reading.besides - on.budget), why);
    }
    if on.concurrency <= 0.0 && !page.reason.is_empty() {
        return (None, page.reason.clone());
    }
    let (needs, pool) = (Bytes(cache), Bytes(on.pool));
    let why = format!("the KV cache needs {needs} per GPU; {pool} available");
    (cache.checked_sub(on.pool).filter(|b| *b > 0), why)
}

/// The answer of `--solve`, in a sentence, to be read above its report.
pub fn solution_text(found: &Solution, concurrency: u64) -> String {
    let what = found.what.as_str();
    match found.value {
        Some(v) if v.fract() > 0.0 => format!("{what} {v:.2}: {}", found.bound),
        Some(v) if found.deployment.gpus() > 1 && what == "min-gpus" => format!(
            "{what} {}: tensor parallelism {}, pipeline parallelism {}; {}",
            grouped_count(v as u64),
            found.deployment.tp,
            found.deployment.pp,
            found.bound
        ),
        Some(v) => format!("{what} {}: {}", grouped_count(v as u64), found.bound),
        None if concurrency > 1 => format!(
            "{what}: none; {} requests of the longest length do not fit, whatever it is",
            grouped_count(concurrency)
        ),
        None => {
            format!("{what}: none; one request of the longest length does not fit, whatever it is")
        }
    }
}

/// The GPUs of `--recommend-gpu`.
pub fn choices_report(document: &GpuChoices) -> Report {
    let (found, tried) = (&document.recommend, document.tried);
    let gib = |c: &Choice| to_gib(c.memory.saturating_mul(c.count));
    let cell = |gib: f64| TableCell::number_cell(gib, format!("{gib:.0}"));
    let grid = TableBuilder::of_items(found)
        .words("GPU", "gpu", |c| &c.gpu)
        .figures("number", "count", |c| count_cell(c.count))
        .figures("GiB in all", "memory_gib", |c| cell(gib(c)))
        .figures("concurrent requests", "max_concurrency", |c| {
            TableCell::number_cell(c.max_concurrency, at_once(c.max_concurrency))
        })
        .words("risk", "risk", |c| c.risk.as_str())
        .grid_of_rows("gpus", "");
    let none = format!("None of the {tried} known GPUs holds it, up to 8 of a kind.");
    let block = grid.map_or(ContentBlock::Text(none), ContentBlock::Table);
    // One that may not fit is no answer where another fits.
    let sure = found.iter().find(|choice| choice.risk < Risk::High);
    let verdict = match sure.or(found.first()) {
        Some(first) => format!("The smallest: {} x {}.", first.count, first.gpu),
        None => format!("None of the {tried} known GPUs holds it."),
    };
    let title = (document.title.as_str(), "GPUs that hold it");
    of_one_chapter(title, vec![block], verdict, &document.warnings)
}

/// What a line starts: an object of `--show-settings`, or a list of them.
pub fn settings_report(shown: &Value) -> Report {
    let one = std::slice::from_ref(shown);
    let all = shown.as_array().map_or(one, Vec::as_slice);
    let chapters = all.iter().map(|one| {
        let facts = one.as_object().into_iter().flatten();
        let facts =
            facts.filter_map(|(name, value)| Some((name.replace('_', " "), setting_words(value)?)));
        let title = one["service"].as_str().unwrap_or("Settings");
        Chapter::of_blocks("settings", title, vec![facts_block("settings", facts)])
    });
    Report::of_chapters("What the line starts", None, chapters.collect())
}

/// A value as people read it; `None` for nothing.
fn setting_words(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let words: Vec<String> = all.iter().filter_map(setting_words).collect();
            words.join(" ")
        }
        Value::Object(all) => {
            let pair = |(k, v): (&String, &Value)| Some(format!("{k} {}", setting_words(v)?));
            let pairs: Vec<String> = all.iter().filter_map(pair).collect();
            pairs.join(", ")
        }
        other => other.to_string(),
    };
    (!text.is_empty()).then_some(text)
}

/// A report of one chapter; the titles of both.
fn of_one_chapter(
    (title, chapter): (&str, &str),
    blocks: Vec<ContentBlock>,
    verdict: String,
    warnings: &[String],
) -> Report {
    let blocks = blocks.into_iter().chain(warning_blocks(warnings));
    let answer = Answer::of_verdict(AnswerState::Unknown, verdict);
    let chapter = Chapter::of_blocks("choices", chapter, blocks.collect());
    Report::of_chapters(title, answer, vec![chapter])
}

/// The table of several releases: a row for each, and what sets them apart.
pub fn versions_report(document: &EstimateVersions) -> Report {
    let all = &document.versions;
    let mut rows = TableBuilder::of_items(all).words("version", "version", |a| &a.version);
    for (component, title, key) in [
        (Component::Weights, "weights", "weights_gib"),
        (Component::KvCache, "KV cache", "kv_pool_gib"),
        (Component::Activation, "activations", "activation_gib"),
        (Component::CudaGraphs, "CUDA graphs", "cuda_graph_gib"),
        (Component::NonTorch, "non-torch", "non_torch_gib"),
    ] {
        rows = rows.figures(title, key, |a| {
            let term = a.terms.iter().find(|t| t.component == component);
            let bytes = term.and_then(|t| t.bytes.as_ref().ok());
            bytes.copied().map_or_else(unknown_cell, estimate_cell)
        });
    }
    let grid = rows
        .figures("tokens", "kv_pool_tokens", |a| {
            a.kv_pool_tokens.map_or_else(unknown_cell, count_cell)
        })
        .words("fits", "fits", |a| match a.fits {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        })
        .grid_of_rows("versions", "GiB on each GPU");
    let reasons: Vec<String> = (all.iter())
        .map(|a| format!("{}: {}", a.version, a.reason))
        .collect();
    let mut answers: Vec<Option<bool>> = all.iter().map(|a| a.fits).collect();
    answers.dedup();
    let verdict = match answers.as_slice() {
        [_] => "The releases agree on whether it fits.",
        _ => "The releases do not agree on whether it fits.",
    };
    let verdict = format!("{verdict} {}.", reasons.join("; "));
    let blocks = grid.map(ContentBlock::Table).into_iter().collect();
    let title = (document.title.as_str(), "By release");
    of_one_chapter(title, blocks, verdict, &document.warnings)
}

/// In the column of a figure that is not known.
fn unknown_cell() -> TableCell {
    TableCell::text_cell("unknown")
}

/// The table of `--table`.
pub fn table_report(document: &EstimateTable) -> Report {
    let entries = &document.table;
    let mut concurrencies: Vec<u64> = entries.iter().map(|e| e.concurrency).collect();
    concurrencies.sort_unstable();
    concurrencies.dedup();
    let mut lengths: Vec<u64> = entries.iter().map(|e| e.length).collect();
    lengths.dedup();
    let cell = |e: &Entry| {
        let mark = match e.risk {
            Some(Risk::DoesNotFit) => "!",
            Some(Risk::High) => "?",
            Some(_) => " ",
            None => "",
        };
        let gib = to_gib(e.needed);
        TableCell::number_cell(gib, format!("{gib:.2}{mark}"))
    };
    let mut table = TableBuilder::of_items(lengths).figures("tokens", "tokens", count_cell);
    for asked in concurrencies {
        let key = format!("requests_{asked}");
        table = table.figures(&grouped_count(asked), &key, |length| {
            let mut all = entries.iter();
            let of = all.find(|e| (e.length, e.concurrency) == (length, asked));
            of.map(cell).unwrap_or_default()
        });
    }
    let grid = table.grid("table", "");
    let is_printed = |risk| entries.iter().any(|e| e.risk == Some(risk));
    let mut printed = Vec::new();
    if is_printed(Risk::DoesNotFit) {
        printed.push("! does not fit");
    }
    if is_printed(Risk::High) {
        printed.push("? may not fit: the risk is high");
    }
    let mut blocks = vec![ContentBlock::Table(grid)];
    if !printed.is_empty() {
        blocks.push(ContentBlock::Text(printed.join("; ")));
    }
    let fits = entries.iter().filter(|e| e.risk != Some(Risk::DoesNotFit));
    let known = entries.iter().any(|e| e.risk.is_some());
    let verdict = match fits.count() {
        _ if !known => "GiB on each GPU; name a GPU with --gpu to see what fits.".to_owned(),
        n => format!("{n} of {} combinations fit.", entries.len()),
    };
    let title = (document.title.as_str(), "By tokens and concurrent requests");
    of_one_chapter(title, blocks, verdict, &document.warnings)
}

fn estimate_blocks(page: &EstimatePage) -> Vec<ContentBlock> {
    let size = match page.parameters {
        0 => String::new(),
        n => format!("{} parameters; ", format_parameters(n)),
    };
    let text = format!("{size}facts from {}.", page.source);
    let mut blocks = vec![ContentBlock::Text(text)];
    if !page.settings.is_empty() {
        let setting = |setting: &EngineSetting| {
            let mark = if setting.default { " (default)" } else { "" };
            format!("{} {}{mark}", setting.name, setting.value)
        };
        let words: Vec<String> = page.settings.iter().map(setting).collect();
        blocks.push(ContentBlock::Text(words.join(", ")));
    }
    blocks.push(ContentBlock::Table(terms_table(page)));
    // One reason is one sentence, however many terms it leaves unknown.
    let unknown = (page.terms.iter()).filter_map(|t| Some((t, t.bytes.as_ref().err()?)));
    let unknown = group_items(unknown, |(_, why)| *why).into_iter();
    blocks.extend(unknown.map(|(why, terms)| {
        let names: Vec<&str> = terms.iter().map(|(t, _)| t.component.words()).collect();
        ContentBlock::Text(format!("{}: {}", names.join(", "), with_hint(why)))
    }));
    blocks
}

fn terms_table(page: &EstimatePage) -> Grid {
    let mut rows: Vec<(TableCell, TableCell, String, &str)> = Vec::new();
    for term in &page.terms {
        let name = TableCell {
            swatch: Some(part_of_term(term.component)),
            ..TableCell::text_cell(term.component.words())
        };
        let bytes = match (&term.bytes, term.at_least) {
            (Ok(bytes), _) => estimate_cell(*bytes),
            (Err(_), Some(least)) => TableCell::text_cell(format!("{:.2} or more", to_gib(least))),
            (Err(_), None) => unknown_cell(),
        };
        let is_pool = term.component == Component::KvCache;
        let (band, from) = match &term.band {
            _ if term.bytes.is_err() => (String::new(), ""),
            Some(b) => {
                let range = format!("{:.2} to {:.2}", to_gib(b.low), to_gib(b.high));
                (range, b.source.as_str())
            }
            None if is_pool => (String::new(), ""),
            None => ("no data".into(), ""),
        };
        rows.push((name, bytes, band, from));
    }
    let sum = sum_of_terms(page);
    let total = sum.map_or_else(unknown_cell, estimate_cell);
    rows.push(("total".into(), total, String::new(), ""));
    let mut of = "the driver's context".to_owned();
    if sum.is_some() && page.outside_bytes > 0 {
        if to_gib(page.outside_bytes.saturating_sub(page.warm_up_bytes)) > CONTEXT_GIB {
            of.push_str(", NCCL");
        }
        if page.warm_up_bytes > 0 {
            let gib = to_gib(page.warm_up_bytes);
            of.push_str(&format!(", the sampler's warm-up ({gib:.2})"));
        }
        let outside = estimate_cell(page.outside_bytes);
        rows.push(("outside the share".into(), outside, String::new(), &of));
    }
    let each = match page.gpu_count {
        1 => "component".to_owned(),
        n => format!("each of {n} GPUs"),
    };
    TableBuilder::of_items(&rows)
        .cells(&each, "component", |row| row.0.clone())
        .figures("GiB", "gib", |row| row.1.clone())
        .words("90 % interval", "band", |row| &row.2)
        .words("interval source", "band_source", |row| row.3)
        .grid("terms", "")
}

fn cache_facts(page: &EstimatePage) -> Vec<(&'static str, String)> {
    let per_token = match &page.per_token {
        Known::Value(bytes) => Bytes(*bytes).to_string(),
        Known::Missing(why) => format!("unknown: {why}"),
    };
    let mut facts = vec![("per token", per_token)];
    let pool = page.pool.as_ref();
    facts.extend(pool.map(|p| ("pool", format!("{} tokens", grouped_count(p.tokens)))));
    let (Some(longest), Known::Value(reading)) = (page.longest, &page.reading) else {
        return facts;
    };
    // Of what cannot start the rest is not known.
    if reading.request == 0 {
        return facts;
    }
    let tokens = grouped_count(longest);
    let request = format!("{} for {tokens} tokens", Bytes(reading.request));
    facts.push(("a request", request));
    if let Some(on) = &reading.on {
        let requests = match on.concurrency {
            n if n >= 1.0 => at_once(n),
            _ => "0".into(),
        };
        let mut capacity = format!("{requests} concurrent requests of {tokens} tokens");
        if on.grows {
            capacity.push_str(", where a cache for them is asked for");
        }
        facts.push(("capacity", capacity));
    }
    facts
}

/// The formula of a term with its inputs and its result.
fn explain_term(term: &Term) -> ContentBlock {
    let name = term.component.words();
    let mut facts = vec![(name.to_owned(), term.formula.clone())];
    facts.extend(term.inputs.iter().map(|(name, v)| (name.clone(), input(v))));
    let result = match &term.bytes {
        Ok(bytes) => format!("{} ({} bytes)", Bytes(*bytes), grouped_count(*bytes)),
        Err(why) => format!("unknown: {why}"),
    };
    facts.push(("=".into(), result));
    facts.extend(term.band.as_ref().map(|b| {
        let (low, high) = (Bytes(b.low), Bytes(b.high));
        let text = format!("{low} to {high}, from {} ({} cases)", b.source, b.cases);
        ("90 % interval".to_owned(), text)
    }));
    facts_block(&format!("formula_{}", name.replace(' ', "_")), facts)
}

/// An input of a formula as people read it.
fn input(value: &Value) -> String {
    match value {
        Value::Number(n) => match n.as_u64() {
            Some(n) => grouped_count(n),
            None => n.to_string(),
        },
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `8.19 B`, `494 M`.
fn format_parameters(n: u64) -> String {
    match n {
        n if n >= 1_000_000_000 => format!("{:.2} B", n as f64 / 1e9),
        n if n >= 1_000_000 => format!("{:.0} M", n as f64 / 1e6),
        n => grouped_count(n),
    }
}

/// Requests at once: with a decimal while it matters. Rounded down: 6.96 are not 7.
fn at_once(n: f64) -> String {
    match n {
        n if n < 100.0 => format!("{:.1}", (n * 10.0 + 1e-6).floor() / 10.0),
        n => grouped_count(n as u64),
    }
}
