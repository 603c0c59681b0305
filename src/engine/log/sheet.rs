//! The sheet that an engine's parser writes: facts with their lines, milestones, failures.

use super::Line;
use crate::capture::AtNs;
use crate::engine::facts::{
    EngineStep, Fact, FactKey, FactValue, Finding, LogReport, Severity, StepMark, key,
};
use std::collections::BTreeMap;

/// Milestones kept: a container that restarts forever must not fill memory.
const MOST_STEPS: usize = 256;
/// Findings kept.
const MOST_FINDINGS: usize = 64;
/// Ranks, devices or rows of one fact.
const MOST_ENTRIES: usize = 1024;
/// Lines quoted for one fact.
const MOST_QUOTES: usize = 64;
/// Code of the finding on an out-of-memory error.
const OOM: &str = "oom";

/// Facts, milestones and findings of the lines so far.
#[derive(Debug, Clone, Default)]
pub struct Sheet {
    facts: BTreeMap<FactKey, Fact>,
    version: Option<String>,
    steps: Vec<StepMark>,
    ready: bool,
    findings: Vec<Finding>,
    cause: Option<Cause>,
    earlier_runs: u32,
    earlier_cause: Option<String>,
}

impl Sheet {
    /// Sets a fact; a later line replaces an earlier one. `needle` is the part of the line that
    /// must stay visible in a shortened quote.
    pub fn set(&mut self, key: FactKey, value: FactValue, line: &Line<'_>, needle: &str) {
        self.facts.insert(key, line.fact(value, needle));
    }

    /// Sets a fact unless it is known.
    pub fn set_first(&mut self, key: FactKey, value: FactValue, line: &Line<'_>, needle: &str) {
        if !self.facts.contains_key(&key) {
            self.set(key, value, line, needle);
        }
    }

    /// Sets a figure in the unit that its key names; ignores NaN and infinities.
    pub fn figure(&mut self, key: FactKey, value: f64, line: &Line<'_>, needle: &str) {
        if value.is_finite() {
            self.set(key, FactValue::Float(value), line, needle);
        }
    }

    /// Sets a count.
    pub fn count(&mut self, key: FactKey, value: u64, line: &Line<'_>, needle: &str) {
        if let Ok(value) = i64::try_from(value) {
            self.set(key, FactValue::Int(value), line, needle);
        }
    }

    /// Sets a name.
    pub fn text(&mut self, key: FactKey, value: &str, line: &Line<'_>, needle: &str) {
        self.set(key, FactValue::Text(value.to_owned()), line, needle);
    }

    /// Sets a flag.
    pub fn flag(&mut self, key: FactKey, value: bool, line: &Line<'_>, needle: &str) {
        self.set(key, FactValue::Bool(value), line, needle);
    }

    /// Sets the figure of one rank, device or buffer, in a fact that has one for each.
    pub fn entry(&mut self, key: FactKey, label: &str, value: FactValue, line: &Line<'_>) {
        let fact = self.open(key, line, || FactValue::Record(BTreeMap::new()));
        if let FactValue::Record(entries) = &mut fact.value {
            if entries.len() < MOST_ENTRIES || entries.contains_key(label) {
                entries.insert(label.to_owned(), value);
                quote_also(fact, line, label);
            }
        }
    }

    /// Adds to the figure of one device or buffer: pieces of one buffer are printed one by one.
    pub fn entry_more(&mut self, key: FactKey, label: &str, more: f64, line: &Line<'_>) {
        let before = match self.facts.get(&key).map(|f| &f.value) {
            Some(FactValue::Record(entries)) => match entries.get(label) {
                Some(FactValue::Float(v)) => *v,
                _ => 0.0,
            },
            _ => 0.0,
        };
        self.entry(key, label, FactValue::Float(before + more), line);
    }

    /// Adds one figure to a list.
    pub fn item(&mut self, key: FactKey, value: f64, line: &Line<'_>) {
        if !value.is_finite() {
            return;
        }
        let fact = self.open(key, line, || FactValue::List(Vec::new()));
        if let FactValue::List(items) = &mut fact.value {
            if items.len() < MOST_ENTRIES {
                items.push(value);
                quote_also(fact, line, "");
            }
        }
    }

    /// Adds a row to a fact that is a table.
    pub fn row(&mut self, key: FactKey, row: BTreeMap<String, FactValue>, line: &Line<'_>) {
        let fact = self.open(key, line, || FactValue::Rows(Vec::new()));
        if let FactValue::Rows(rows) = &mut fact.value {
            if rows.len() < MOST_ENTRIES {
                rows.push(row);
                quote_also(fact, line, "");
            }
        }
    }

    /// Puts a fact derived from others, with their quotes.
    pub fn conclude(&mut self, key: FactKey, fact: Fact) {
        self.facts.insert(key, fact);
    }

    /// A fact.
    pub fn get(&self, key: FactKey) -> Option<&Fact> {
        self.facts.get(&key)
    }

    /// A figure or count.
    pub fn number(&self, key: FactKey) -> Option<f64> {
        self.facts.get(&key)?.value.number()
    }

    /// Removes a fact and returns it: a later line replaced it, or it was misread.
    pub fn take(&mut self, key: FactKey) -> Option<Fact> {
        self.facts.remove(&key)
    }

    /// The engine's version, as the log announces it. The first one counts.
    pub fn version(&mut self, version: &str) {
        if self.version.is_none() && !version.is_empty() {
            self.version = Some(version.chars().take(64).collect());
        }
    }

    /// Notes a milestone. One that every rank passes counts when the first passes it.
    pub fn step(&mut self, step: EngineStep, line: &Line<'_>, needle: &str) {
        match step {
            EngineStep::Ready => self.ready = true,
            EngineStep::Stopping => self.ready = false,
            _ => {}
        }
        let known = self.steps.iter().any(|m| m.step == step);
        if !known && self.steps.len() < MOST_STEPS {
            self.steps.push(StepMark {
                step,
                at_ns: line.at,
                quote: line.quote(needle),
            });
        }
    }

    /// Notes a milestone at a later line than the one it was first seen at.
    pub fn restep(&mut self, step: EngineStep, line: &Line<'_>, needle: &str) {
        self.steps.retain(|m| m.step != step);
        self.step(step, line, needle);
    }

    /// Notes a milestone that is passed when the last rank passes it, unless the next one was.
    pub fn step_of_last_rank(&mut self, step: EngineStep, line: &Line<'_>, needle: &str) {
        let is_later = |m: &StepMark| m.step > step && m.step != EngineStep::Stopping;
        if self.steps.iter().any(is_later) {
            self.step(step, line, needle);
        } else {
            self.restep(step, line, needle);
        }
    }

    /// A milestone that was passed.
    pub fn mark(&self, step: EngineStep) -> Option<&StepMark> {
        self.steps.iter().find(|m| m.step == step)
    }

    /// Whether a milestone was passed.
    pub fn passed(&self, step: EngineStep) -> bool {
        self.steps.iter().any(|m| m.step == step)
    }

    /// Number of milestones passed.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Whether the engine reported that it is ready to serve.
    pub fn ready(&self) -> bool {
        self.ready
    }

    /// Adds a finding, once for each code.
    pub fn finding(
        &mut self,
        code: &str,
        severity: Severity,
        message: impl Into<String>,
        line: &Line<'_>,
        needle: &str,
    ) {
        if self.findings.len() < MOST_FINDINGS && !self.findings.iter().any(|f| f.code == code) {
            self.findings.push(Finding {
                code: code.to_owned(),
                severity,
                message: message.into(),
                quote: Some(line.quote(needle)),
            });
        }
    }

    /// Adds a finding that follows from several lines.
    pub fn note(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Notes a line that explains a failure: the first of those with the highest weight is the root
    /// cause.
    pub fn cause(&mut self, weight: Weight, line: &Line<'_>, needle: &str) {
        if self.cause.as_ref().is_none_or(|c| weight > c.weight) {
            self.cause = Some(Cause {
                weight,
                quote: line.quote(needle),
            });
        }
    }

    /// Notes an out-of-memory error: fact `oom`, the root cause, and the phase in which it happened
    /// (`oom_phase`, from the milestones passed).
    pub fn out_of_memory(&mut self, line: &Line<'_>, needle: &str) {
        self.out_of_memory_in(self.phase(), line, needle);
    }

    /// The same, with a phase that the line states better than the milestones do.
    pub fn out_of_memory_in(&mut self, phase: &str, line: &Line<'_>, needle: &str) {
        self.cause(Weight::Memory, line, needle);
        if !self.lacked_memory() {
            self.flag(key::oom, true, line, needle);
            self.text(key::oom_phase, phase, line, needle);
            self.finding(
                OOM,
                Severity::Error,
                format!("the engine ran out of memory {}", spoken(phase)),
                line,
                needle,
            );
        }
    }

    /// Whether memory ran out, as far as is known now.
    pub fn lacked_memory(&self) -> bool {
        let fact = self.facts.get(&key::oom).map(|f| &f.value);
        matches!(fact, Some(FactValue::Bool(true)))
    }

    /// Notes that all memory was allocated: fact `oom` becomes false, by this line, unless it is
    /// known already.
    pub fn enough_memory(&mut self, line: &Line<'_>, needle: &str) {
        if !self.facts.contains_key(&key::oom) {
            self.flag(key::oom, false, line, needle);
        }
    }

    /// The engine retries with less after an out-of-memory error: the failure is no longer final,
    /// and the outcome of the retry is unknown.
    pub fn tries_again(&mut self) {
        self.facts.remove(&key::oom);
        self.facts.remove(&key::oom_phase);
        self.findings.retain(|f| f.code != OOM);
        self.cause = self.cause.take().filter(|c| c.weight < Weight::Memory);
    }

    /// The engine begins something that it repeats within one log, such as loading a model on
    /// demand: keeps the facts in `keep` and the steps up to its start.
    pub fn begin_again(&mut self, keep: &[FactKey]) {
        self.facts.retain(|key, _| keep.contains(key));
        self.steps.retain(|m| m.step == EngineStep::Started);
        self.findings.retain(|f| f.code != OOM);
        self.ready = false;
        self.cause = None;
    }

    /// Whether a line was seen that explains a failure.
    pub fn failed(&self) -> bool {
        self.cause.is_some()
    }

    /// What the engine was doing last, in one word.
    pub fn phase(&self) -> &'static str {
        match self.steps.iter().map(|m| m.step).max() {
            None | Some(EngineStep::Started) => "start",
            Some(EngineStep::LoadingWeights) => "loading_weights",
            Some(EngineStep::WeightsLoaded) => "profiling",
            Some(EngineStep::Profiled) => "kv_cache_allocation",
            Some(EngineStep::KvCacheAllocated) => "graph_capture",
            Some(EngineStep::GraphsCaptured) => "start_of_server",
            Some(EngineStep::Ready) => "serving",
            Some(EngineStep::Stopping) => "stopping",
        }
    }

    /// The engine restarts in the same log: discards the earlier state except the root cause.
    pub fn restart(&mut self) {
        self.restart_after(self.root_cause());
    }

    /// The same, where `cause` explains why the engine failed before.
    pub fn restart_after(&mut self, cause: Option<String>) {
        *self = Sheet {
            earlier_runs: self.earlier_runs.saturating_add(1),
            earlier_cause: cause,
            ..Sheet::default()
        };
    }

    /// Whether anything was written.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.steps.is_empty() && self.cause.is_none()
    }

    /// The line that explains why the engine failed; `None` while a server continues after errors
    /// of single requests.
    pub fn root_cause(&self) -> Option<String> {
        self.cause
            .as_ref()
            .filter(|c| c.weight > Weight::Hint || !self.ready)
            .map(|c| c.quote.clone())
            .or_else(|| self.earlier_cause.clone().filter(|_| !self.ready))
    }

    /// The report on everything written.
    pub fn report(mut self, engine: &str) -> LogReport {
        if self.earlier_runs > 0 {
            self.findings.push(Finding {
                code: "engine_restarted".to_owned(),
                severity: Severity::Warning,
                message: format!(
                    "the log holds {} starts of the engine; facts and steps are those of the last one",
                    self.earlier_runs.saturating_add(1)
                ),
                quote: None,
            });
        }
        LogReport {
            engine: engine.to_owned(),
            engine_version: self.version,
            facts: self.facts,
            steps: self.steps,
            findings: self.findings,
        }
    }

    fn open(&mut self, key: FactKey, line: &Line<'_>, empty: impl Fn() -> FactValue) -> &mut Fact {
        let fresh = || Fact {
            value: empty(),
            quote: Vec::new(),
            at_ns: line.at,
        };
        let fact = self.facts.entry(key).or_insert_with(fresh);
        if std::mem::discriminant(&fact.value) != std::mem::discriminant(&empty()) {
            *fact = fresh();
        }
        fact
    }
}

/// A phase in words.
fn spoken(phase: &str) -> &'static str {
    match phase {
        "loading_weights" => "while it loaded the weights",
        "profiling" => "after its weights were loaded",
        "kv_cache_allocation" => "when it allocated the KV pool",
        "graph_capture" => "after the KV pool was allocated",
        "compute_buffers" => "when it reserved the compute buffers",
        "start_of_server" => "after the graphs were captured",
        "serving" => "while it served",
        _ => "when it started",
    }
}

fn quote_also(fact: &mut Fact, line: &Line<'_>, needle: &str) {
    let quote = line.quote(needle);
    if fact.quote.len() < MOST_QUOTES && fact.quote.last() != Some(&quote) {
        fact.quote.push(quote);
    }
}

/// The latest time among facts, for one derived from them.
pub fn latest(facts: &[&Fact]) -> Option<AtNs> {
    facts.iter().filter_map(|f| f.at_ns).max()
}

/// How well a line explains a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A warning about the probable cause.
    Hint,
    /// Follows from the failure of another process.
    Consequence,
    /// A process died for an unknown reason.
    Death,
    /// An error of the process itself.
    Cause,
    /// An error that names the memory that was missing.
    Memory,
}

/// A line that explains a failure.
#[derive(Debug, Clone)]
pub struct Cause {
    /// How well.
    pub weight: Weight,
    /// The line.
    pub quote: String,
}

/// Whether `message` is the last line of a Python traceback: `module.SomeError: text` or
/// `SomeError`.
pub fn is_exception(message: &str) -> bool {
    let class = message.split(':').next().unwrap_or_default();
    let name = class.rsplit('.').next().unwrap_or_default();
    class.len() < 120
        && !class.contains(' ')
        && class
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_'))
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && ["Error", "Exception", "Interrupt", "Terminated", "Exit"]
            .iter()
            .any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line<'_> {
        Line {
            text,
            ..Line::default()
        }
    }

    #[test]
    fn entries_are_by_label_and_the_last_one_counts() {
        let mut sheet = Sheet::default();
        sheet.entry(key::weights_gib, "TP0", FactValue::Float(1.0), &line("a 1"));
        sheet.entry(key::weights_gib, "TP1", FactValue::Float(2.0), &line("b 2"));
        sheet.entry(key::weights_gib, "TP0", FactValue::Float(3.0), &line("c 3"));
        let fact = sheet.get(key::weights_gib).unwrap();
        assert_eq!(fact.quote, ["a 1", "b 2", "c 3"]);
        let FactValue::Record(entries) = &fact.value else {
            panic!("{fact:?}")
        };
        assert_eq!(entries["TP0"], FactValue::Float(3.0));
        sheet.entry_more(key::kv_cache_gib, "CUDA0", 1.5, &line("x"));
        sheet.entry_more(key::kv_cache_gib, "CUDA0", 0.5, &line("y"));
        assert!(matches!(&sheet.get(key::kv_cache_gib).unwrap().value,
            FactValue::Record(r) if r["CUDA0"] == FactValue::Float(2.0)));
    }

    #[test]
    fn a_lack_that_is_over_leaves_no_finding() {
        for over in [Sheet::tries_again, |sheet: &mut Sheet| {
            sheet.begin_again(&[])
        }] {
            let mut sheet = Sheet::default();
            sheet.out_of_memory(&line("out of memory"), "");
            assert!(sheet.lacked_memory());
            over(&mut sheet);
            sheet.enough_memory(&line("ready"), "");
            let report = sheet.report("x");
            assert!(report.findings.is_empty(), "{:?}", report.findings);
        }
    }

    #[test]
    fn the_root_cause_is_the_first_of_the_weightiest() {
        let mut sheet = Sheet::default();
        sheet.cause(Weight::Cause, &line("ValueError: a"), "");
        sheet.step(EngineStep::LoadingWeights, &line("loading"), "");
        sheet.out_of_memory(&line("CUDA out of memory. one"), "");
        sheet.out_of_memory(&line("CUDA out of memory. two"), "");
        sheet.cause(Weight::Consequence, &line("RPC failed"), "");
        assert_eq!(
            sheet.root_cause().as_deref(),
            Some("CUDA out of memory. one")
        );
        let report = sheet.clone().report("x");
        assert_eq!(report.text(key::oom_phase), Some("loading_weights"));
        assert_eq!(report.findings.len(), 1);
        sheet.enough_memory(&line("ready"), "");
        assert_eq!(sheet.get(key::oom).unwrap().value, FactValue::Bool(true));
        sheet.restart();
        assert!(sheet.is_empty());
        assert_eq!(
            sheet.root_cause().as_deref(),
            Some("CUDA out of memory. one")
        );
        sheet.step(EngineStep::Ready, &line("ready"), "");
        assert_eq!(sheet.root_cause(), None);
    }

    #[test]
    fn exceptions_are_distinguished_from_prose() {
        for message in [
            "ValueError: x",
            "torch.OutOfMemoryError: CUDA out of memory.",
            "AssertionError",
            "OSError: y",
        ] {
            assert!(is_exception(message), "{message}");
        }
        for message in [
            "raise ValueError(",
            "x.py:138: FutureWarning: y",
            "Error in memory",
            "Exception: Call to f failed, see: ValueError: x"
                .split_at(11)
                .1,
            "UserWarning: Both",
        ] {
            assert!(!is_exception(message), "{message}");
        }
    }
}
