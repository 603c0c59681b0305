//! An estimate as a page: each component with its band, the pool, whether it fits, and with
//! `--explain` each formula with its inputs.

use super::content::{Action, Answer, AnswerState, Gauge};
use super::layout::{Align, TextTable, grouped_count, text_width, wrap_text};
use super::page::TextPage;
use super::text::TextOptions;
use crate::breakdown::Component as Part;
use crate::estimate::question::{Choice, Entry, Reading, Risk, Solution};
use crate::estimate::{Component, Term, Unknown};
use crate::units::{Bytes, to_gib};
use serde_json::Value;

/// Content of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimatePage<'a> {
    /// The model, as it was asked for.
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
    /// Settings in force: name and value, and whether it is the engine's default.
    pub settings: Vec<(String, String, bool)>,
    /// The terms.
    pub terms: &'a [Term],
    /// The pool on each GPU: bytes and tokens.
    pub pool: Option<PoolFigures>,
    /// Bytes that a token adds on each GPU.
    pub per_token: Result<u64, Unknown>,
    /// The longest sequence.
    pub longest: Option<u64>,
    /// Requests at once that were asked for.
    pub concurrency: u64,
    /// Why it fits or does not, by the engine's rule.
    pub reason: String,
    /// How it fits, or why that is unknown.
    pub reading: Result<Reading, Unknown>,
    /// Sentences.
    pub warnings: Vec<String>,
    /// The GPU: its name, its memory and what others hold of it, bytes.
    pub gpu: Option<(String, u64, u64)>,
    /// What makes it fit, each estimated with its new value.
    pub actions: Vec<Action>,
}

/// The pool for keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Bytes on each GPU.
    pub bytes: u64,
    /// Tokens, as the engine prints them.
    pub tokens: u64,
}

/// The page.
pub fn render_estimate(told: &EstimatePage<'_>, explain: bool, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    page.write_head(told);
    page.terms(told);
    page.cache(told);
    if explain {
        page.explain(told);
    }
    page.warnings(&told.warnings);
    page.write_line("");
    page.write_answer(&answer_of_estimate(told));
    page.into_text()
}

/// Whether it fits, how full the GPU is, and what makes it fit.
pub fn answer_of_estimate(page: &EstimatePage<'_>) -> Answer {
    let (state, verdict) = verdict_of_estimate(page);
    let used: Option<u64> = page.terms.iter().try_fold(0u64, |sum, term| {
        sum.checked_add(*term.bytes.as_ref().ok()?)
    });
    let gauge = page
        .gpu
        .as_ref()
        .zip(used)
        .map(|((name, total, in_use), used)| {
            let known = page.terms.iter();
            let parts =
                known.filter_map(|t| Some((part_of_term(t.component), *t.bytes.as_ref().ok()?)));
            let others = Some((Part::Baseline, *in_use)).filter(|(_, bytes)| *bytes > 0);
            Gauge {
                label: name.clone(),
                used: used.saturating_add(*in_use),
                total: *total,
                parts: others.into_iter().chain(parts).collect(),
            }
        });
    Answer {
        state,
        verdict,
        gauge,
        figures: Vec::new(),
        actions: page.actions.clone(),
    }
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

fn verdict_of_estimate(page: &EstimatePage<'_>) -> (AnswerState, String) {
    let unknown = |text: String| (AnswerState::Unknown, text);
    let reading = match &page.reading {
        Ok(reading) => reading,
        Err(why) => {
            let hint = why
                .hint
                .as_ref()
                .map_or(String::new(), |h| format!(": {h}"));
            return unknown(format!("Unknown whether it fits: {why}{hint}"));
        }
    };
    let Some(risk) = reading.risk(page.concurrency) else {
        return unknown("Whether it fits depends on the GPU: name it with --gpu".into());
    };
    let asked = match (page.concurrency, page.longest) {
        (0 | 1, _) => String::new(),
        (n, Some(longest)) => {
            let (n, longest) = (grouped_count(n), grouped_count(longest));
            format!(", {n} requests of {longest} tokens")
        }
        (n, None) => format!(", {} requests", grouped_count(n)),
    };
    let fits = || format!("{asked}; risk {}: {}", risk.as_str(), reading.meaning(risk));
    match risk {
        Risk::Low => (AnswerState::Safe, format!("Fits{}", fits())),
        Risk::Medium => (AnswerState::Tight, format!("Fits{}", fits())),
        Risk::High => (AnswerState::Critical, format!("May not fit{}", fits())),
        Risk::DoesNotFit => {
            let (short, why) = shortage(page, reading);
            let short = short.map_or(String::new(), |b| format!(" by {}", Bytes(b)));
            (
                AnswerState::Failed,
                format!("Does not fit{short}{asked}: {why}"),
            )
        }
    }
}

/// Bytes that are lacking on each GPU, where that is one figure, and what they are for.
fn shortage(page: &EstimatePage<'_>, reading: &Reading) -> (Option<u64>, String) {
    let Some(on) = &reading.on else {
        return (None, Risk::DoesNotFit.meaning().into());
    };
    if reading.besides >= on.budget {
        let why = format!(
            "everything but the KV cache needs {} per GPU; the engine may take {}",
            Bytes(reading.besides),
            Bytes(on.budget)
        );
        return (Some(reading.besides - on.budget), why);
    }
    if on.concurrency <= 0.0 && !page.reason.is_empty() {
        return (None, page.reason.clone());
    }
    let needed = reading.request.saturating_mul(page.concurrency.max(1));
    let why = format!(
        "the KV cache needs {} per GPU; {} available",
        Bytes(needed),
        Bytes(on.pool)
    );
    (needed.checked_sub(on.pool).filter(|b| *b > 0), why)
}

/// The answer of `--solve`, in a sentence, to be read above its page.
pub fn render_solution(found: &Solution, concurrency: u64, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    let what = found.what.as_str();
    page.write_sentence(
        0,
        &match found.value {
            Some(v) if v.fract() > 0.0 => format!("{what} {v:.2}: {}", found.bound),
            Some(v) if found.deployment.gpus() > 1 && what == "min-gpus" => format!(
                "{what} {}: tensor parallelism {}, pipeline parallelism {}; {}",
                grouped_count(v as u64),
                found.deployment.tp,
                found.deployment.pp,
                found.bound
            ),
            Some(v) => format!("{what} {}: {}", grouped_count(v as u64), found.bound),
            None => format!(
                "{what}: none; {} of the longest length {} not fit, whatever it is",
                if concurrency > 1 {
                    format!("{} requests", grouped_count(concurrency))
                } else {
                    "one request".into()
                },
                if concurrency > 1 { "do" } else { "does" },
            ),
        },
    );
    page.into_text()
}

/// The GPUs of `--recommend-gpu`.
pub fn render_choices(title: &str, found: &[Choice], tried: usize, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    page.write_sentence(0, title);
    if found.is_empty() {
        page.write_sentence(
            0,
            &format!("none of the {tried} known GPUs holds it, up to 8 of a kind"),
        );
        return page.into_text();
    }
    let mut table = TextTable::new(&[
        ("GPU", Align::Left),
        ("number", Align::Right),
        ("GiB in all", Align::Right),
        ("requests at once", Align::Right),
        ("risk", Align::Left),
    ]);
    for c in found {
        table.add_row(vec![
            c.gpu.clone(),
            c.count.to_string(),
            format!("{:.0}", to_gib(c.memory.saturating_mul(c.count))),
            at_once(c.max_concurrency),
            c.risk.as_str().into(),
        ]);
    }
    page.write_table(&table);
    page.into_text()
}

/// The table of `--table`.
pub fn render_table(title: &str, entries: &[Entry], options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    page.write_sentence(0, title);
    let mut concurrencies: Vec<u64> = entries.iter().map(|e| e.concurrency).collect();
    concurrencies.sort_unstable();
    concurrencies.dedup();
    let heads: Vec<String> = concurrencies.iter().map(|c| grouped_count(*c)).collect();
    let mut columns = vec![("tokens", Align::Right)];
    columns.extend(heads.iter().map(|h| (h.as_str(), Align::Right)));
    let mut table = TextTable::new(&columns);
    let mut lengths: Vec<u64> = entries.iter().map(|e| e.length).collect();
    lengths.dedup();
    let mut marks = [false; 2];
    for length in lengths {
        let mut row = vec![grouped_count(length)];
        for concurrency in &concurrencies {
            let entry = entries
                .iter()
                .find(|e| e.length == length && e.concurrency == *concurrency);
            row.push(entry.map_or(String::new(), |e| {
                let mark = match e.risk {
                    Some(Risk::DoesNotFit) => "!",
                    Some(Risk::High) => "?",
                    Some(_) => " ",
                    None => "",
                };
                marks[0] |= mark == "!";
                marks[1] |= mark == "?";
                format!("{:.2}{mark}", to_gib(e.needed))
            }));
        }
        table.add_row(row);
    }
    page.write_table(&table);
    if marks[0] {
        page.write_sentence(0, "! does not fit");
    }
    if marks[1] {
        page.write_sentence(0, "? may not fit: the risk is high");
    }
    page.into_text()
}

impl TextPage {
    fn write_head(&mut self, told: &EstimatePage<'_>) {
        let gpus = told.gpus.as_ref().map(|g| format!(" on {g}"));
        let gpus = gpus.unwrap_or_default();
        self.write_sentence(0, &format!("{}, {}{gpus}", told.model, told.engine));
        let size = match told.parameters {
            0 => String::new(),
            n => format!("{} parameters; ", format_parameters(n)),
        };
        self.write_sentence(0, &format!("{size}facts from {}", told.source));
        if !told.settings.is_empty() {
            let words: Vec<String> = told
                .settings
                .iter()
                .map(|(name, value, default)| {
                    let mark = if *default { " (default)" } else { "" };
                    format!("{name} {value}{mark}")
                })
                .collect();
            self.write_sentence(0, &words.join(", "));
        }
    }

    fn terms(&mut self, told: &EstimatePage<'_>) {
        self.write_line("");
        let each = match told.gpu_count {
            1 => "component".to_owned(),
            n => format!("each of {n} GPUs"),
        };
        let mut table = TextTable::new(&[
            (&each, Align::Left),
            ("GiB", Align::Right),
            ("band", Align::Left),
            ("band from", Align::Left),
        ]);
        let mut unknown: Vec<(&str, &Unknown)> = Vec::new();
        let mut sum: Option<u64> = Some(0);
        for term in told.terms {
            let name = term.component.words();
            let pool = term.component == Component::KvCache;
            match &term.bytes {
                Ok(bytes) => {
                    sum = sum.and_then(|s| s.checked_add(*bytes));
                    let (band, from) = match &term.band {
                        Some(b) => (
                            format!("{:.2} to {:.2}", to_gib(b.low), to_gib(b.high)),
                            b.source.clone(),
                        ),
                        None if pool => (String::new(), String::new()),
                        None => ("no data".into(), String::new()),
                    };
                    table.add_row(vec![
                        name.into(),
                        format!("{:.2}", to_gib(*bytes)),
                        band,
                        from,
                    ]);
                }
                Err(why) => {
                    sum = None;
                    unknown.push((name, why));
                    table.add_row(vec![
                        name.into(),
                        (term.at_least)
                            .map_or("unknown".into(), |b| format!("{:.2} or more", to_gib(b))),
                        String::new(),
                        String::new(),
                    ]);
                }
            }
        }
        let sum = sum.map_or("unknown".to_owned(), |s| format!("{:.2}", to_gib(s)));
        table.add_row(vec!["total".into(), sum, String::new(), String::new()]);
        let lines = table.render_lines();
        // Where the bands come from is left out where there is no room: --json and --explain have it.
        let room = self.options.width.saturating_sub(2);
        if lines.iter().all(|l| text_width(l) <= room) {
            self.write_table(&table)
        } else {
            let narrow = table.without_column(3);
            self.write_table(&narrow);
        }
        // One reason is one sentence, however many terms it leaves unknown.
        while let Some((_, why)) = unknown.first().copied() {
            let (same, others): (Vec<_>, Vec<_>) = unknown.iter().partition(|(_, w)| *w == why);
            let names: Vec<&str> = same.iter().map(|(name, _)| *name).collect();
            let hint = why.hint.as_ref().map(|h| format!(": {h}"));
            let hint = hint.unwrap_or_default();
            self.write_sentence(2, &format!("{}: {why}{hint}", names.join(", ")));
            unknown = others;
        }
    }

    fn cache(&mut self, told: &EstimatePage<'_>) {
        self.write_line("");
        self.write_line("KV cache");
        match &told.per_token {
            Ok(bytes) => self.pair("per token", &Bytes(*bytes).to_string()),
            Err(why) => self.pair("per token", &format!("unknown: {why}")),
        }
        if let Some(pool) = &told.pool {
            self.pair("pool", &format!("{} tokens", grouped_count(pool.tokens)));
        }
        let (Some(longest), Ok(reading)) = (told.longest, &told.reading) else {
            return;
        };
        // Of what cannot start the rest is not known.
        if reading.request == 0 {
            return;
        }
        self.pair(
            "a request",
            &format!(
                "{} for {} tokens",
                Bytes(reading.request),
                grouped_count(longest)
            ),
        );
        if let Some(on) = &reading.on {
            let (label, end) = if on.grows {
                ("room for", ", where a cache for them is asked for")
            } else {
                ("holds", "")
            };
            let text = match on.concurrency {
                n if n >= 1.0 => format!(
                    "{} requests of {} tokens at once{end}",
                    at_once(n),
                    grouped_count(longest)
                ),
                _ => format!("not one request of {} tokens", grouped_count(longest)),
            };
            self.pair(label, &text);
        }
    }

    fn explain(&mut self, told: &EstimatePage<'_>) {
        for term in told.terms {
            self.write_line("");
            self.write_line(term.component.words());
            self.write_sentence(2, &term.formula);
            let names = term.inputs.keys().map(|k| text_width(k)).max().unwrap_or(0);
            for (name, value) in &term.inputs {
                let value = input(value);
                let room = self.options.width.saturating_sub(names + 6).max(24);
                for (i, part) in wrap_text(&value, room).iter().enumerate() {
                    let name = if i == 0 { name.as_str() } else { "" };
                    self.write_line(&format!("    {name:names$}  {part}"));
                }
            }
            match &term.bytes {
                Ok(bytes) => self.write_line(&format!(
                    "  = {} ({} bytes)",
                    Bytes(*bytes),
                    grouped_count(*bytes)
                )),
                Err(why) => self.write_sentence(2, &format!("unknown: {why}")),
            }
            if let Some(b) = &term.band {
                let text = format!(
                    "nine of ten lie from {} to {}: {} ({} cases)",
                    Bytes(b.low),
                    Bytes(b.high),
                    b.source,
                    b.cases
                );
                self.write_sentence(2, &text);
            }
        }
    }

    fn warnings(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        self.write_line("");
        for warning in warnings {
            self.write_sentence(0, &format!("note: {warning}"));
        }
    }

    fn pair(&mut self, label: &str, value: &str) {
        let room = self.options.width.saturating_sub(14).max(24);
        for (i, part) in wrap_text(value, room).iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.write_line(&format!("  {label:10}  {part}"));
        }
    }
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

/// Requests at once: with a decimal while it matters.
fn at_once(n: f64) -> String {
    match n {
        n if n < 100.0 => format!("{n:.1}"),
        n => grouped_count(n as u64),
    }
}

#[cfg(test)]
mod tests;
