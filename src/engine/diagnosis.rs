//! Why a container died, loops, hangs or does not start: evidence in, one cause out.
//!
//! The rules are in `configs/causes.yaml`; here is how they are weighed, and what no table can
//! express.

use super::causes::{
    self, CauseAdvice, CauseRule, FailureCause, PhaseMark, TABLE, has_sign, refused_flag,
};
use super::log::auto::AutoParser;
use super::log::text;
use super::log::words::Words;
use super::{EngineId, LogParser, UnknownEngine};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cell::{LazyCell, RefCell};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Lines around a failure in which a function of its traceback is looked for.
const TRACEBACK_LINES: usize = 150;
/// Those that outweigh others.
const CLOSE_LINES: usize = 25;
/// Lines around a failure in which its figures are looked for.
const FIGURE_LINES: usize = 40;
/// Lines at the end of a log that count as its last.
const LAST_LINES: usize = 4;
/// Lines of interest that are kept of one log; of more, the first and the last are.
const MOST_LINES: usize = 20_000;
/// GiB beside this process that the driver, a desktop or WSL hold.
const UNOWNED_GIB: f64 = 2.5;
/// GiB that an ordinary host has: what needs less fails for what others use.
const ORDINARY_HOST_GIB: f64 = 16.0;
/// A card has less than this, GiB; what is printed above is an artefact.
const LARGEST_CARD_GIB: f64 = 1024.0;

/// Where a line of evidence is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvidenceSource {
    /// The container's log.
    Log,
    /// The host's kernel log.
    Kernel,
    /// Docker's own message.
    Docker,
    /// A fact of the container, as `name=value`.
    Fact,
}

/// What is known of a container beside its log.
#[derive(Debug, Clone, Default)]
pub struct CaseFacts {
    /// The engine, by its name in `--engine`.
    pub engine: Option<EngineId>,
    /// Facts as `name=value`: `exit_code=137`, `gpu=NVIDIA GB10`.
    pub facts: Vec<String>,
}

impl CaseFacts {
    /// The document of these facts, as [`CaseFacts::from_document`] reads it.
    pub fn to_document(&self) -> Value {
        let container: Map<String, Value> = (self.facts.iter())
            .filter_map(|fact| fact.split_once('='))
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect();
        let engine = self.engine.map(|engine| engine.name);
        serde_json::json!({"engine": engine, "container": container})
    }

    /// Reads `engine`, `version`, `gpu` and `container` of a document of facts.
    ///
    /// # Errors
    /// An engine that is not known.
    pub fn from_document(document: &Value) -> Result<CaseFacts, UnknownEngine> {
        let mut facts = Vec::new();
        let mut note = |name: &str, value: &Value| match value {
            Value::Null => {}
            Value::String(text) => facts.push(format!("{name}={text}")),
            other => facts.push(format!("{name}={other}")),
        };
        for name in ["version", "gpu"] {
            note(name, document.get(name).unwrap_or(&Value::Null));
        }
        if let Some(container) = document.get("container").and_then(Value::as_object) {
            container.iter().for_each(|(name, value)| note(name, value));
        }
        let engine = document.get("engine").and_then(Value::as_str);
        // Of the collected cases some are of no server that is known.
        let engine = engine.filter(|name| *name != "other");
        let engine = engine.map(EngineId::from_name).transpose()?;
        Ok(CaseFacts { engine, facts })
    }
}

/// A line that a sign of the table, a figure or a phase may be in.
#[derive(Debug, Clone)]
struct EvidenceLine {
    source: EvidenceSource,
    number: usize,
    text: String,
    /// Indices in [`WORD_LIST`].
    words: BTreeSet<usize>,
}

/// Reads evidence line by line and judges it.
#[derive(Default)]
pub struct CauseFinder {
    lines: Vec<EvidenceLine>,
    last: Vec<usize>,
    count: usize,
    facts: CaseFacts,
    engine: AutoParser,
}

/// What is found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Diagnosis {
    /// The cause's name; null where none was found or the evidence does not decide.
    pub cause: Option<String>,
    /// Where in its life the engine was.
    pub phase: Option<String>,
    /// `high`, `medium` or `low`; null without a cause.
    pub confidence: Option<String>,
    /// Whether something failed and the evidence does not decide what.
    pub abstained: bool,
    /// The cause in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub means: Option<String>,
    /// What to change, the best first.
    pub advice: Vec<DiagnosisAdvice>,
    /// Figures as printed, the unit in the key.
    pub numbers: Map<String, Value>,
    /// The lines it rests on.
    pub evidence: Vec<DiagnosisEvidence>,
    /// Other causes that the evidence speaks of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Where to look for what is not in the evidence.
    pub look_at: Vec<String>,
    /// How the container and its host stand now: sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<String>,
    /// What could not be read, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Memory before the end, where it was watched; the last reading last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_readings: Vec<LastReading>,
}

/// Memory in use before a container ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastReading {
    /// Seconds before the end.
    pub before_end_s: f64,
    /// The device or cgroup: `GPU 0`.
    pub device: String,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// Something to change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiagnosisAdvice {
    /// The setting.
    pub setting: String,
    /// In which direction.
    pub way: String,
    /// To what, where that is known.
    pub value: Option<Value>,
    /// As a sentence.
    pub text: String,
}

/// A line that a diagnosis rests on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiagnosisEvidence {
    /// The line.
    pub quote: String,
    /// Where it is: `log line 12`.
    pub source: String,
}

/// Words of all signs, phases and figures, sorted.
static WORD_LIST: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let rules = TABLE.causes.iter().flat_map(|cause| &cause.rules);
    let signs = rules.flat_map(|r| {
        let elsewhere = r.with.iter().chain(&r.unless).chain(&r.healed_by);
        let elsewhere = elsewhere.chain(&r.below);
        r.is.iter().chain(elsewhere)
    });
    let marks = (TABLE.phases.iter()).flat_map(|p| p.frame.iter().chain(&p.mark));
    let outcomes = [&TABLE.lines.wrappers, &TABLE.lines.failed_starts];
    let outcomes = outcomes.into_iter().flatten().map(String::as_str);
    let words: BTreeSet<&str> = (signs.chain(marks))
        .filter(|sign| !sign.starts_with('@'))
        .map(|sign| causes::longest_part(sign))
        .chain(TABLE.numbers.iter().map(|n| longest_literal(n)))
        .chain(outcomes)
        .chain(
            TABLE
                .lines
                .exceptions
                .iter()
                .map(|sign| causes::longest_part(sign)),
        )
        .chain([MODEL_ARGUMENT, TRACEBACK])
        .filter(|word| word.len() > 2)
        .collect();
    words.into_iter().collect()
});

/// Finds them.
static WORDS: LazyLock<Words> = LazyLock::new(|| Words::overlapping(&WORD_LIST));

/// The patterns of figures by the index of their word, each with its row: the first row that a line has counts.
static PATTERNS: LazyLock<Vec<Vec<(usize, &str)>>> = LazyLock::new(|| {
    let mut by_word = vec![Vec::new(); WORD_LIST.len()];
    for (row, pattern) in TABLE.numbers.iter().enumerate() {
        if let Ok(word) = WORD_LIST.binary_search(&longest_literal(pattern)) {
            by_word[word].push((row, pattern.as_str()));
        }
    }
    by_word
});

const TRACEBACK: &str = "Traceback (most recent call last)";
/// Ollama's record of a model that it could not load, on the level INFO.
const LOAD_FAILED: &str = "msg=\"Load failed\"";
/// In vLLM's report of its rates.
const RATES: &str = "Avg generation throughput: ";
/// Before a model's name in a configuration.
const MODEL_ARGUMENT: &str = "model='";

/// The indices of the words in a text.
fn words_in(text: &str) -> BTreeSet<usize> {
    let mut words = BTreeSet::new();
    WORDS.each(text.as_bytes(), |word, _| {
        words.insert(word);
    });
    words
}

/// The longest text of a pattern of figures outside its braces.
fn longest_literal(pattern: &str) -> &str {
    let literals = pattern
        .split('{')
        .enumerate()
        .map(|(index, part)| match index {
            0 => part,
            _ => part.split_once('}').map_or("", |(_, text)| text),
        });
    let pieces = literals.flat_map(|text| text.split('…'));
    pieces.max_by_key(|piece| piece.len()).unwrap_or("")
}

impl CauseFinder {
    /// A finder that knows `facts`.
    pub fn new(facts: CaseFacts) -> CauseFinder {
        CauseFinder {
            facts,
            ..CauseFinder::default()
        }
    }

    /// Takes a line of the log.
    pub fn line(&mut self, raw: &[u8]) {
        self.take(EvidenceSource::Log, raw);
    }

    /// Takes a line from elsewhere.
    pub fn take(&mut self, source: EvidenceSource, raw: &[u8]) {
        let mut cleaned = String::new();
        text::clean(
            &raw[..raw.len().min(super::lines::LONGEST_LINE)],
            &mut cleaned,
        );
        self.count += 1;
        if has_any(&cleaned, &TABLE.lines.quoting) {
            return;
        }
        if source == EvidenceSource::Log && self.facts.engine.is_none() {
            self.engine.line(raw, None);
        }
        // An error's debug string has its newlines as `\n`.
        for piece in cleaned.split(['\r', '\n']).flat_map(|p| p.split("\\n")) {
            if source == EvidenceSource::Log && !piece.trim().is_empty() && !piece.contains("[...]")
            {
                self.last.push(self.count);
                if self.last.len() > LAST_LINES {
                    self.last.remove(0);
                }
            }
            let words = words_in(piece);
            if !words.is_empty() || is_error_record(piece) {
                if self.lines.len() >= MOST_LINES {
                    self.lines.drain(MOST_LINES / 4..MOST_LINES / 2);
                }
                self.lines.push(EvidenceLine {
                    source,
                    number: self.count,
                    text: piece.trim_end().to_owned(),
                    words,
                });
            }
        }
    }

    /// The cause that the evidence shows.
    pub fn conclude(mut self) -> Diagnosis {
        for fact in &self.facts.facts {
            self.lines.push(EvidenceLine {
                source: EvidenceSource::Fact,
                number: usize::MAX,
                words: words_in(fact),
                text: fact.clone(),
            });
        }
        let engine = self.facts.engine.or_else(|| self.engine.engine());
        let engine = engine.map_or("", |engine| engine.name);
        // The reference engine prints as vLLM does.
        let engine = match engine {
            "" | "reference" | "transformers" => "vllm",
            engine => engine,
        };
        let last = self.last.first().copied().unwrap_or(0);
        Judge::new(&self.lines, last, engine).judge(self.count)
    }
}

/// A record of the level error by its letter: glog's `E0713 ...`, llama.cpp's `0.00.074.100 E srv ...`.
fn is_error_record(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let digits =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    // TensorFlow's of its start have no date.
    let dated = (first.strip_prefix('E')).filter(|rest| *rest != "0000");
    let glog = dated.is_some_and(|rest| rest.len() == 4 && digits(rest));
    glog || second == "E" && digits(first)
}

/// The level of a line's record, where it stands: behind service, date and process, before the message.
fn level_of(text: &str) -> Option<&str> {
    const LEVELS: &[&str] = &["INFO", "WARNING", "DEBUG"];
    let mut in_group = false;
    for word in text.split_whitespace().take(16) {
        // `(Worker pid=3, ip=10.0.0.2)` names a process.
        let grouped = in_group || word.starts_with('(');
        in_group = grouped && !word.ends_with(')');
        if grouped {
            continue;
        }
        let word = word.trim_start_matches("level=");
        let mut pieces = word.split(['[', ']', '|', ':', ',', '"']);
        if let Some(level) = pieces.find(|piece| LEVELS.contains(piece)) {
            return Some(level);
        }
        if word.contains("Error")
            || ["ERROR", "CRITICAL", "FATAL"]
                .iter()
                .any(|l| word.contains(l))
        {
            return None;
        }
    }
    None
}

/// A record of the level INFO, WARNING or DEBUG: no part of a traceback.
fn is_quiet(line: &EvidenceLine) -> bool {
    level_of(&line.text).is_some()
}

/// Whether a line is of an engine that ends, and not of one request that failed.
fn ends_engine(line: &EvidenceLine) -> bool {
    has_any(&line.text, &TABLE.lines.wrappers) || has_any(&line.text, &TABLE.lines.failed_starts)
}

/// Whether a line points to a failure elsewhere.
fn points_elsewhere(line: &EvidenceLine) -> bool {
    ends_engine(line) || line.text.contains(TRACEBACK)
}

fn has_any(text: &str, signs: &[String]) -> bool {
    signs.iter().any(|sign| text.contains(sign))
}

/// A rule that holds.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    cause: &'static FailureCause,
    rule: &'static CauseRule,
    sign: &'static str,
    at: usize,
    line: &'a EvidenceLine,
    phase: Option<&'static str>,
    life: usize,
    /// Lines between it and the frame of its traceback that the rule names.
    distance: usize,
}

struct Judge<'a> {
    lines: &'a [EvidenceLine],
    /// Number of the first of the last lines.
    last: usize,
    engine: &'static str,
    /// Indices of lines by word.
    by_word: Vec<Vec<usize>>,
    /// Lines of the level INFO, WARNING or DEBUG.
    quiet: Vec<bool>,
    /// A line is of an engine that ends.
    ends: bool,
    /// The engine came to serve.
    served: bool,
    /// Phases by line, where they were looked for.
    phases: RefCell<Vec<Option<Option<&'static str>>>>,
    /// In which start of the engine each line is, counted from 0.
    lives: Vec<usize>,
    /// By start, the first line that shows that it serves, where none before is of an end.
    served_from: Vec<Option<usize>>,
    /// Rows of the table of phases that lines of progress mark, and functions in tracebacks.
    marks: Vec<Option<&'static PhaseMark>>,
    frames: Vec<Option<usize>>,
}

impl<'a> Judge<'a> {
    fn new(lines: &'a [EvidenceLine], last: usize, engine: &'static str) -> Judge<'a> {
        let mut judge = Judge {
            lines,
            last,
            engine,
            by_word: vec![Vec::new(); WORD_LIST.len()],
            quiet: lines.iter().map(is_quiet).collect(),
            ends: lines.iter().any(ends_engine),
            served: false,
            phases: RefCell::new(vec![None; lines.len()]),
            lives: Vec::new(),
            served_from: Vec::new(),
            marks: vec![None; lines.len()],
            frames: vec![None; lines.len()],
        };
        for (at, line) in lines.iter().enumerate() {
            line.words
                .iter()
                .for_each(|word| judge.by_word[*word].push(at));
        }
        // Of several rows that a line has, the first counts.
        for (index, row) in TABLE.phases.iter().enumerate().rev() {
            for at in judge.lines_with_any(&row.mark) {
                judge.marks[at] = Some(row);
            }
            for at in judge.lines_with_any(&row.frame) {
                if !judge.quiet[at] {
                    judge.frames[at] = Some(index);
                }
            }
        }
        let mut life = 0;
        let lives = lines.iter().zip(&judge.marks).map(|(line, mark)| {
            let is_log = line.source == EvidenceSource::Log;
            life += usize::from(is_log && mark.is_some_and(|row| row.start));
            life
        });
        judge.lives = lives.collect();
        // llama.cpp looks for devices before it prints that it starts.
        for at in 1..lines.len() {
            if judge.lives[at] == judge.lives[at - 1] {
                continue;
            }
            let of_devices = |line: &EvidenceLine| {
                line.source == EvidenceSource::Log && has_any(&line.text, &TABLE.lines.devices)
            };
            let before = lines[..at].iter().rev();
            let own = before.take_while(|line| of_devices(line)).count();
            let life = judge.lives[at];
            judge.lives[at - own..at].fill(life);
        }
        let (mut served_from, mut ended) = (vec![None; life + 1], vec![false; life + 1]);
        for (at, line) in lines.iter().enumerate() {
            let life = judge.lives[at];
            ended[life] |= !judge.quiet[at] && ends_engine(line);
            if judge.serves_at(at) && !ended[life] {
                served_from[life].get_or_insert(at);
            }
        }
        judge.served_from = served_from;
        judge.served = (0..lines.len()).any(|at| judge.serves_at(at));
        judge
    }

    /// Indices of the lines that have a sign.
    fn lines_with(&self, sign: &str) -> Vec<usize> {
        if sign.starts_with('@') {
            let facts = (0..self.lines.len()).rev();
            let facts = facts.take_while(|at| self.lines[*at].source == EvidenceSource::Fact);
            return facts.filter(|at| is_in(sign, &self.lines[*at])).collect();
        }
        let holds = |at: &usize| is_in(sign, &self.lines[*at]);
        let lines = self.lines_with_word(sign).iter();
        lines.copied().filter(holds).collect()
    }

    /// The lines that have the longest part of a sign.
    fn lines_with_word(&self, sign: &str) -> &[usize] {
        let word = WORD_LIST.binary_search(&causes::longest_part(sign));
        word.map_or(&[][..], |word| &self.by_word[word])
    }

    /// The lines that have one of these signs.
    fn lines_with_any(&self, signs: &[String]) -> Vec<usize> {
        signs.iter().flat_map(|s| self.lines_with(s)).collect()
    }

    fn has_any(&self, signs: &[String], from: usize) -> bool {
        self.lines_with_any(signs).iter().any(|at| *at >= from)
    }

    fn judge(&self, count: usize) -> Diagnosis {
        let mut found = self.candidates();
        // The last death counts; a hint of it does not outweigh a statement about an earlier one.
        found.sort_by_key(|c| {
            let tier = c.rule.tier();
            (
                std::cmp::Reverse((tier >= 2, tier >= 4, c.life, tier)),
                c.distance,
                c.at,
            )
        });
        let Some(best) = found.first() else {
            return self.without_cause(count);
        };
        let numbers = self.numbers(best);
        // Other rules on the same line are no second finding, and a weaker sign about the same start is no other one.
        let others = found[1..].iter().filter(|c| {
            c.line.text != best.line.text
                && (c.life != best.life || c.rule.tier() >= best.rule.tier())
        });
        let others = others.filter(|c| c.cause.name != best.cause.name && !c.rule.abstain);
        let also: BTreeSet<&str> = others.map(|c| c.cause.name.as_str()).collect();
        let mut evidence = vec![quote(best.line)];
        for other in found[1..]
            .iter()
            .filter(|c| c.cause.name == best.cause.name && c.line.text != best.line.text)
        {
            if evidence.len() < 3 && !evidence.contains(&quote(other.line)) {
                evidence.push(quote(other.line));
            }
        }
        let advice = self.advice(best, &numbers);
        let confidence = match best.rule.tier() {
            4 => "high",
            3 if best.phase.is_some() || best.rule.in_phases.is_empty() => "high",
            2 | 3 => "medium",
            _ => "low",
        };
        let abstained = best.rule.abstain;
        let mut means = best
            .rule
            .means
            .as_ref()
            .unwrap_or(&best.cause.means)
            .clone();
        if best.rule.tier() < 4 && self.is_served_after(best.life) {
            means.push_str("; a later start in this log serves");
        }
        // Every start prints its arguments first, so that mark alone does not show how far a start came.
        let marked = best.phase.filter(|phase| *phase != "argparse");
        let own = best.rule.phase.as_deref().or(marked);
        let usual = (best.cause.phase.as_deref())
            .filter(|phase| *phase != "serving" || self.may_have_served(best.life));
        let phase = own.or(usual);
        let mut look_at: Vec<String> = Vec::new();
        for place in best.rule.look_at.iter().chain(&best.cause.look_at) {
            if !look_at.contains(place) {
                look_at.push(place.clone());
            }
        }
        Diagnosis {
            cause: (!abstained).then(|| best.cause.name.clone()),
            phase: phase.filter(|_| !abstained).map(str::to_owned),
            confidence: (!abstained).then(|| confidence.to_owned()),
            abstained,
            means: (!abstained).then_some(means),
            advice: if abstained { Vec::new() } else { advice },
            numbers,
            evidence,
            also: also.into_iter().map(str::to_owned).collect(),
            look_at,
            ..Diagnosis::default()
        }
    }

    /// Nothing of the table is in the evidence: healthy, or a death that it does not explain.
    fn without_cause(&self, count: usize) -> Diagnosis {
        let fact = |name: &str| self.fact(name);
        let code = fact("exit_code").and_then(|code| code.parse::<i64>().ok());
        let status = fact("status").unwrap_or("");
        let ended = code.is_some_and(|code| code != 0)
            || ["exited", "dead", "restarting"]
                .iter()
                .any(|word| status.contains(word));
        let is_served = self.served;
        let recovered = TABLE.groups.get("recovered");
        let recovered = recovered.filter(|_| self.engine == "ollama");
        let starts = recovered.map_or_else(Vec::new, |signs| self.lines_with_any(signs));
        let starts: Vec<usize> = starts.iter().map(|at| self.lines[*at].number).collect();
        let points = |line: &&EvidenceLine| {
            // Ollama starts its runner anew at once, with less on the GPU.
            let anew =
                |start: &usize| *start > line.number && *start - line.number <= TRACEBACK_LINES;
            !is_quiet(line) && points_elsewhere(line) && !starts.iter().any(anew)
        };
        // One request's traceback ends no server.
        let is_final = |line: &&EvidenceLine| !is_served || ends_engine(line);
        let wrapper = self.lines.iter().filter(points).find(is_final);
        // The last exception that no rule knows and that points to no other; of a server that served, its last words.
        let last_life = self.lives.last().copied().unwrap_or(0);
        let log = |line: &&EvidenceLine| line.source == EvidenceSource::Log;
        let mut fatal = self.lines.iter().rev().filter(log);
        let fatal = fatal.find(|line| has_any(&line.text, &TABLE.lines.fatal));
        let is_of_end = |line: &EvidenceLine| {
            let behind = fatal.is_some_and(|fatal| {
                let until = fatal.number.saturating_add(TRACEBACK_LINES);
                (fatal.number..=until).contains(&line.number)
            });
            line.number >= self.last || behind
        };
        let exception = (self.lines.iter().zip(&self.lives).rev())
            .filter(|(line, life)| line.source == EvidenceSource::Log && **life == last_life)
            .map(|(line, _)| line)
            .filter(|line| !is_quiet(line) && (!is_served || is_of_end(line)))
            .find(|line| {
                let mut named = TABLE.lines.exceptions.iter();
                let named =
                    named.any(|sign| has_sign(sign, &line.text)) || is_error_record(&line.text);
                named && !points_elsewhere(line) && !has_any(&line.text, &TABLE.lines.pointers)
            });
        let named = exception.filter(|_| !is_served || wrapper.is_some());
        let wrapper = named.or(wrapper);
        let failed = ended || (wrapper.is_some() && !(is_served && status == "running"));
        let mut look_at = Vec::new();
        if failed {
            look_at.push(match named {
                Some(_) => "the traceback around this line, and the engine's issues for its text",
                None => {
                    "the log above what is given here: wrapper lines only point to an earlier one"
                }
            });
            if code.is_none() {
                look_at.push("`docker inspect`: State.ExitCode, State.OOMKilled and State.Error; the host's kernel log");
            }
        } else if count == 0 {
            look_at.push("the container's log: nothing was given");
        }
        let silent = count == 0 && code.is_none() && status.is_empty();
        let is_up = (is_served || status == "running") && self.idle_reports(last_life) == 0;
        let no_mark = self.marks.iter().all(Option::is_none);
        let mut numbers = self.figures(self.lines.iter());
        if let Some(code) = code.filter(|_| failed) {
            numbers.insert("exit_code".into(), Value::from(code));
        }
        Diagnosis {
            cause: (!failed && !silent).then(|| "no_failure".to_owned()),
            phase: self.last_phase().map(str::to_owned),
            confidence: (!failed && !silent).then(|| if is_up { "high" } else { "low" }.to_owned()),
            abstained: failed || silent,
            means: (!failed && !silent).then(|| {
                match status {
                    "running" => "it runs, and no failure is in its log",
                    _ if no_mark => {
                        "this log has no known failure, and no line of an engine's start"
                    }
                    _ => "no failure is in this log",
                }
                .to_owned()
            }),
            evidence: wrapper.filter(|_| failed).map(quote).into_iter().collect(),
            numbers,
            look_at: look_at.into_iter().map(str::to_owned).collect(),
            ..Diagnosis::default()
        }
    }

    fn candidates(&self) -> Vec<Candidate<'a>> {
        let mut found = Vec::new();
        for cause in &TABLE.causes {
            let mut taken = BTreeSet::new();
            for rule in &cause.rules {
                let hits = rule.is.iter().flat_map(|sign| {
                    self.lines_with(sign)
                        .into_iter()
                        .map(move |at| (sign.as_str(), at))
                });
                for (sign, at) in hits.collect::<Vec<_>>() {
                    let candidate = Candidate {
                        cause,
                        rule,
                        sign,
                        at,
                        line: &self.lines[at],
                        // Looked for where it decides: it takes a look at hundreds of lines.
                        phase: (!rule.in_phases.is_empty())
                            .then(|| self.phase_at(at))
                            .flatten(),
                        life: self.lives[at],
                        distance: 0,
                    };
                    if taken.contains(&at) || !self.holds(&candidate) {
                        continue;
                    }
                    let Some(distance) = self.distance(rule, at) else {
                        continue;
                    };
                    // A rule by frames does not decide before a nearer one is looked for.
                    if rule.below.is_empty() {
                        taken.insert(at);
                    }
                    found.push(Candidate {
                        distance,
                        phase: self.phase_at(at),
                        ..candidate
                    });
                }
            }
        }
        // A fact of the container is about its last life.
        let last = self.lives.last().copied().unwrap_or(0);
        for candidate in &mut found {
            if candidate.line.source != EvidenceSource::Log {
                candidate.life = last;
            }
        }
        found
    }

    /// Lines from a frame that a rule names to the line that ends its traceback; 0 for a rule that names none, and
    /// further than any for the one that takes whatever is left.
    fn distance(&self, rule: &CauseRule, at: usize) -> Option<usize> {
        if rule.below.is_empty() {
            let takes_rest = rule.check.as_deref() == Some("ends_engine") && rule.tier() == 1;
            return Some(if takes_rest { usize::MAX } else { 0 });
        }
        let line = &self.lines[at];
        let is_frame = |index: &usize| {
            let frame = &self.lines[*index];
            let near = line.number.saturating_sub(frame.number) <= TRACEBACK_LINES;
            near && frame.source == line.source && !self.quiet[*index]
        };
        let frames = rule.below.iter().flat_map(|sign| {
            let lines = self.lines_with_word(sign);
            let until = lines.partition_point(|index| *index < at);
            let near = lines[..until].iter().rev().take(TRACEBACK_LINES).copied();
            let mut near = near.filter(|index| is_in(sign, &self.lines[*index]));
            near.find(is_frame)
        });
        let nearest = frames.max()?;
        Some(1 + line.number - self.lines[nearest].number)
    }

    fn holds(&self, c: &Candidate<'_>) -> bool {
        let rule = c.rule;
        let phase = c.phase.unwrap_or("unknown");
        (rule.engines.is_empty() || rule.engines.iter().any(|e| e == self.engine))
            && !(rule.not_in_line.iter()).any(|sign| match sign.as_str() {
                level @ ("INFO" | "WARNING") => {
                    level_of(&c.line.text) == Some(level) && !c.line.text.contains(LOAD_FAILED)
                }
                sign => has_sign(sign, &c.line.text),
            })
            && (rule.in_phases.is_empty() || rule.in_phases.iter().any(|p| p == phase))
            && (!rule.at_end || c.line.number >= self.last)
            && (rule.with.is_empty() || self.has_any(&rule.with, 0))
            && !self.has_any(&rule.unless, 0)
            && !self.has_any(&rule.healed_by, c.at)
            && !self.is_outlived(c)
            && rule
                .check
                .as_deref()
                .is_none_or(|check| self.check(check, c))
    }

    /// Whether the engine went on after this sign: it came to serve after that of a failed start, or it serves on after
    /// that of a failed request.
    fn is_outlived(&self, c: &Candidate<'_>) -> bool {
        // The servers of the others start before they load a model, which they do on request.
        let loads_first = matches!(self.engine, "vllm" | "sglang" | "tensorrt_llm" | "tgi");
        if !loads_first || c.line.source != EvidenceSource::Log || c.rule.tier() == 4 {
            return false;
        }
        let Some(from) = self.served_from[c.life] else {
            return false;
        };
        if c.at < from {
            let phase = (c.rule.phase.as_deref()).or(c.cause.phase.as_deref());
            return phase.is_some_and(|phase| !matches!(phase, "http_bind" | "serving"));
        }
        let serves_on = |at: usize| self.lives[at] == c.life && self.serves_at(at);
        // TGI loads adapters on request.
        c.cause.at_start && self.engine != "tgi" && (c.at..self.lines.len()).any(serves_on)
    }

    /// The phase of the line at an index: a function near it, else the last progress before it.
    fn phase_at(&self, at: usize) -> Option<&'static str> {
        if let Some(known) = self.phases.borrow()[at] {
            return known;
        }
        let phase = self.find_phase(at);
        self.phases.borrow_mut()[at] = Some(phase);
        phase
    }

    fn find_phase(&self, at: usize) -> Option<&'static str> {
        let line = &self.lines[at];
        if line.source == EvidenceSource::Fact {
            return self.last_phase();
        }
        let phase_of = |row: usize| Some(TABLE.phases[row].phase.as_str());
        if let Some(row) = self.frames[at] {
            return phase_of(row);
        }
        let is_near = |index: &usize| {
            let other = &self.lines[*index];
            other.source == line.source
                && self.lives[*index] == self.lives[at]
                && other.number.abs_diff(line.number) <= TRACEBACK_LINES
        };
        let before = (0..at).rev().take_while(is_near);
        let behind = (at..self.lines.len()).take_while(is_near);
        let around: Vec<usize> = before.chain(behind).collect();
        // llama.cpp prints no tracebacks: its functions head lines of progress.
        let has_frames = !matches!(self.engine, "llama_cpp" | "ollama");
        let framed_within = |most: usize| {
            let close = |index: &&usize| self.lines[**index].number.abs_diff(line.number) <= most;
            (around.iter().filter(close))
                .filter_map(|index| self.frames[*index])
                .min()
        };
        let framed = framed_within(CLOSE_LINES).or_else(|| framed_within(TRACEBACK_LINES));
        if let Some(row) = framed.filter(|_| has_frames) {
            return phase_of(row);
        }
        let before = (0..at)
            .rev()
            .filter(|index| self.lines[*index].source == line.source);
        let progress = before.filter_map(|index| self.marks[index]).next();
        let progress = progress.map(|row| row.phase.as_str());
        let failed_start =
            |index: &usize| has_any(&self.lines[*index].text, &TABLE.lines.failed_starts);
        match progress {
            // Graphs are captured already: torch counts their pools.
            None if line.text.contains("allocated in private pools") => Some("warmup"),
            _ if line.text.contains("allocated in private pools") => Some("serving"),
            Some("serving" | "http_bind") if around.iter().any(failed_start) => None,
            // Progress bars do not pass through the logger: they may appear after the failure that ended them.
            None | Some("argparse" | "distributed_init") => {
                let next = around.iter().filter(|index| **index > at);
                let next = next.filter_map(|index| self.marks[*index]).next();
                let loads = next.is_some_and(|row| row.phase == "weights" && !row.start);
                if loads { Some("weights") } else { progress }
            }
            other => other,
        }
    }

    /// Whether a start served, or nothing of it shows how far it came.
    fn may_have_served(&self, life: usize) -> bool {
        let here = |at: &usize| self.lives[*at] == life;
        let mut own = (0..self.lines.len()).filter(here);
        own.all(|at| {
            self.marks[at].is_none() && !has_any(&self.lines[at].text, &TABLE.lines.failed_starts)
        }) || self.served_from[life].is_some()
    }

    /// How many reports of rates at the end of a start's log have requests and no tokens.
    fn idle_reports(&self, life: usize) -> usize {
        let own = self.lines.iter().zip(&self.lives).rev();
        let reports = own.filter(|(line, of)| **of == life && line.text.contains(RATES));
        let idle = reports.take_while(|(line, _)| {
            let sum_of = |signs: &[&str]| -> f64 {
                let numbers = signs
                    .iter()
                    .filter_map(|sign| number_behind(&line.text, sign));
                numbers.sum()
            };
            let open = sum_of(&["Running: ", "Waiting: ", "Pending: "]);
            sum_of(&["Avg prompt throughput: ", RATES]) == 0.0 && open > 0.0
        });
        idle.count()
    }

    /// Whether a line of progress shows that it serves.
    fn serves_at(&self, at: usize) -> bool {
        let phase = self.marks[at].map(|row| row.phase.as_str());
        matches!(phase, Some("serving" | "http_bind"))
    }

    /// Whether a start after this one came to serve, and is the last.
    fn is_served_after(&self, life: usize) -> bool {
        let last = self.lives.last().copied().unwrap_or(0);
        let serving = |at: usize| self.lives[at] == last && self.serves_at(at);
        life < last && (0..self.lines.len()).any(serving)
    }

    fn last_phase(&self) -> Option<&'static str> {
        self.marks
            .iter()
            .rev()
            .flatten()
            .next()
            .map(|row| row.phase.as_str())
    }

    fn fact(&self, name: &str) -> Option<&'a str> {
        let facts = self
            .lines
            .iter()
            .filter(|line| line.source == EvidenceSource::Fact);
        facts
            .filter_map(|line| line.text.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// What no sign can express.
    fn check(&self, check: &str, c: &Candidate<'_>) -> bool {
        let numbers = LazyCell::new(|| self.figures(std::iter::once(c.line)));
        let gib = |name: &str| size_of(&numbers, name);
        match check {
            "neighbour_holds_memory" => {
                let held = gib("total")
                    .zip(gib("free"))
                    .map(|(total, free)| total - free);
                let unified = TABLE
                    .causes
                    .iter()
                    .flat_map(|cause| &cause.rules)
                    .any(|rule| {
                        rule.with.iter().any(|sign| {
                            sign.starts_with("@gpu=")
                                && self.lines.iter().any(|line| is_in(sign, line))
                        })
                    });
                let others = self
                    .fact("other_containers_on_gpu")
                    .is_some_and(|n| n != "0");
                others || (!unified && held.is_some_and(|held| held > UNOWNED_GIB))
            }
            "asked_less_than_free" => gib("requested")
                .zip(gib("free"))
                .is_some_and(|(asked, free)| free > 1.5 * asked),
            "other_process_in_line" => {
                let others = ProcessShares::of_line(&c.line.text).others;
                let total = gib("total").unwrap_or(f64::MAX);
                others < LARGEST_CARD_GIB
                    && others > 1.0
                    && others > 0.1 * total
                    && !self.check("rank_shares_gpu", c)
            }
            // What is reserved and not allocated would do, were it in one piece.
            "is_fragmented" => gib("requested")
                .zip(gib("unallocated"))
                .is_some_and(|(asked, unallocated)| unallocated > asked),
            "rank_shares_gpu" => {
                let word = |sign: &str| number_behind(&c.line.text, sign);
                let apart = word("[RANK ")
                    .zip(word("GPU "))
                    .is_some_and(|(rank, gpu)| rank as u64 % 8 != gpu as u64);
                apart
                    && listed_processes(&c.line.text)
                        .iter()
                        .filter(|gib| **gib > 1.0)
                        .count()
                        > 1
            }
            "host_is_full" => {
                let of = |name: &str| numbers.get(name).and_then(Value::as_f64);
                of("host_used_mib")
                    .zip(of("host_total_mib"))
                    .is_some_and(|(used, total)| used > 0.95 * total)
            }
            "flag_takes_value" => refused_flag(c.sign, &c.line.text).is_some(),
            "is_unloadable_library" => c.line.text.contains("cannot open shared object file"),
            "wants_remote_code" => {
                c.line.text.contains("requires you to execute") || c.line.text.contains("rror")
            }
            // A request's exception ends no server.
            "ends_engine" => {
                !self.served || self.fact("exit_code").is_some_and(|code| code != "0") || self.ends
            }
            // SGLang ends all its processes by SIGKILL once one of them has failed.
            "killed_by_others" => {
                let before = self.lines[..c.at].iter().zip(&self.lives);
                let mut own = before.filter(|(_, life)| **life == c.life);
                !own.any(|(line, _)| has_any(&line.text, &TABLE.lines.ends_all))
            }
            "shared_memory_dominates" => {
                let of = |name: &str| numbers.get(name).and_then(Value::as_f64);
                of("shmem_rss_kb")
                    .zip(of("anon_rss_kb"))
                    .is_some_and(|(shared, own)| shared > own)
            }
            "stands_still" => {
                let is_last = !self.lines[c.at + 1..]
                    .iter()
                    .any(|l| l.text.contains(RATES));
                is_last && self.idle_reports(c.life) > 1
            }
            "needs_little" => gib("needed").is_some_and(|needed| needed <= ORDINARY_HOST_GIB),
            "repeats" => {
                let same = |line: &&EvidenceLine| has_sign(c.sign, &line.text);
                self.lines.iter().filter(same).count() > 2
            }
            _ => false,
        }
    }

    /// Figures near the line that decides, the nearest first, and those of its start.
    fn numbers(&self, best: &Candidate<'_>) -> Map<String, Value> {
        let away = |line: &EvidenceLine| line.number.abs_diff(best.line.number);
        let is_near =
            |line: &&EvidenceLine| line.source == best.line.source && away(line) <= FIGURE_LINES;
        // Figures of another start would be wrong here.
        let same_life = |lines: &'a [EvidenceLine]| {
            let lives = lines.iter().zip(&self.lives);
            let here = lives.filter(|(line, life)| {
                line.source != EvidenceSource::Log || **life == self.lives[best.at]
            });
            here.map(|(line, _)| line).collect::<Vec<_>>()
        };
        let mut near = same_life(self.lines);
        near.retain(is_near);
        near.sort_by_key(|line| away(line));
        let facts = (self.lines.iter()).filter(|line| line.source == EvidenceSource::Fact);
        // Lines of the kernel and Docker are few and separate from the log.
        let elsewhere = (self.lines.iter())
            .filter(|l| matches!(l.source, EvidenceSource::Kernel | EvidenceSource::Docker));
        let before = same_life(&self.lines[..best.at]).into_iter().rev();
        let lines = std::iter::once(best.line).chain(near);
        self.figures(lines.chain(facts).chain(elsewhere).chain(before))
    }

    /// Of each figure the first.
    fn figures<'l>(&self, lines: impl Iterator<Item = &'l EvidenceLine>) -> Map<String, Value> {
        let mut numbers = Map::new();
        let mut known = BTreeSet::new();
        for line in lines {
            let patterns = line.words.iter().flat_map(|word| &PATTERNS[*word]);
            let patterns: BTreeSet<_> = patterns.collect();
            for (_, pattern) in patterns {
                let Some(values) = read_pattern(pattern, &line.text) else {
                    continue;
                };
                for (name, value) in values {
                    let stem = unit_of(&name).map_or(name.as_str(), |(stem, _)| stem);
                    if known.insert(stem.to_owned()) {
                        numbers.insert(name, value);
                    }
                }
            }
            let own = ProcessShares::of_line(&line.text).own;
            if let Some(own) = own.filter(|_| known.insert("process".to_owned())) {
                numbers.insert("process_gib".into(), json_number(own));
            }
        }
        numbers.retain(|name, value| {
            let in_gib = value.as_f64().filter(|_| name.ends_with("_gib"));
            in_gib.is_none_or(|gib| gib < LARGEST_CARD_GIB * 8.0)
        });
        numbers
    }

    fn advice(&self, best: &Candidate<'_>, numbers: &Map<String, Value>) -> Vec<DiagnosisAdvice> {
        let rows = if best.rule.advice.is_empty() {
            &best.cause.advice
        } else {
            &best.rule.advice
        };
        let is_in_vain = self.weights_exceed_card();
        let fraction = ["utilization", "mem_fraction_static"]
            .iter()
            .find_map(|name| numbers.get(*name)?.as_f64());
        let mut advice = Vec::new();
        for row in rows {
            let Some(one) = self.one_advice(row, best, numbers) else {
                continue;
            };
            let is_spent = |below| is_in_vain || fraction.is_some_and(|share| share >= below);
            if !row.below.is_some_and(is_spent) {
                advice.push(one);
            }
        }
        advice
    }

    /// Whether weights of 16 bits, by the number of parameters in the model's name, are larger
    /// than the card: no share of it can be enough.
    fn weights_exceed_card(&self) -> bool {
        let card = self.fact("gpu").and_then(|gpu| {
            let (before, _) = gpu.split_once(" GB").or_else(|| gpu.split_once(" GiB"))?;
            before.rsplit(' ').next()?.parse::<f64>().ok()
        });
        let named = self.lines.iter().find_map(|line| {
            let (_, rest) = line.text.split_once(MODEL_ARGUMENT)?;
            let wide = line.text.contains("float16") && line.text.contains("quantization=None");
            let name = rest.split('\'').next().filter(|_| wide)?;
            let billions = |part: &str| part.strip_suffix(['B', 'b'])?.parse::<f64>().ok();
            name.split(['-', '_', '/']).find_map(billions)
        });
        card.zip(named)
            .is_some_and(|(card, billions)| billions * 2.0 > card)
    }

    fn one_advice(
        &self,
        row: &CauseAdvice,
        best: &Candidate<'_>,
        numbers: &Map<String, Value>,
    ) -> Option<DiagnosisAdvice> {
        if !row.engines.is_empty() && !row.engines.iter().any(|engine| engine == self.engine) {
            return None;
        }
        let share = fraction_of_free(numbers);
        let sizes_known = size_of(numbers, "total").and(size_of(numbers, "free"));
        if row.value.as_deref() == Some("fraction_of_free")
            && share.is_none()
            && sizes_known.is_some()
        {
            // What is free suffices for no engine.
            return None;
        }
        let lever = match &row.lever {
            Some(lever) => Some(TABLE.lever_of(lever, self.engine)?),
            None => None,
        };
        let flag = refused_flag(best.sign, &best.line.text);
        let value_of = |name: &str| match name {
            "flag" => lever.map(|(_, flag)| flag.to_owned()),
            "refused_flag" => flag.map(str::to_owned),
            "limit" => self.fact("memory_limit").map(str::to_owned),
            "stopped_by" => self.fact("stopped_by").map(str::to_owned),
            "fraction_of_free" => share.map(|share| share.to_string()),
            name => numbers.iter().find_map(|(key, value)| {
                let is = key == name || unit_of(key).is_some_and(|(word, _)| word == name);
                is.then(|| figure_text(key, value))
            }),
        };
        let value = row.value.as_deref().and_then(|name| match name {
            "fraction_of_free" => share.map(Value::from),
            name if is_named_figure(name) => numbers.get(name).cloned(),
            literal => Some(Value::from(literal)),
        });
        let setting = match (&row.set, lever) {
            (Some(set), _) => causes::fill_text(set, &value_of)?,
            (None, Some((name, _))) => name.to_owned(),
            (None, None) => return None,
        };
        Some(DiagnosisAdvice {
            setting,
            way: row.way.clone(),
            value,
            text: causes::fill_text(&row.text, &value_of)?,
        })
    }
}

/// Units of the names of figures, and as people write them.
const UNITS: [(&str, &str); 8] = [
    ("_gib", "GiB"),
    ("_gb", "GB"),
    ("_mib", "MiB"),
    ("_mb", "MB"),
    ("_kib", "KiB"),
    ("_kb", "KiB"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
];

/// The name of a figure without its unit, and that unit.
fn unit_of(name: &str) -> Option<(&str, &'static str)> {
    let mut units = UNITS.iter();
    units.find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
}

/// Whether lines give a figure of this name: else the table means the word itself.
fn is_named_figure(name: &str) -> bool {
    let written = [format!("{{{name}}}"), format!("{{{name}:")];
    let gives = |pattern: &String| written.iter().any(|w| pattern.contains(w.as_str()));
    TABLE.numbers.iter().any(gives)
}

/// A figure with its unit: `14.3 GiB` of `requested_gib`.
fn figure_text(name: &str, value: &Value) -> String {
    let unit = unit_of(name).map_or("", |(_, unit)| unit);
    let scale: Option<u64> = match unit {
        "bytes" => Some(1),
        "KiB" => Some(1024),
        _ => None,
    };
    if let Some((scale, count)) = scale.zip(value.as_u64()) {
        return Bytes(count.saturating_mul(scale)).to_string();
    }
    match value {
        Value::String(text) => text.clone(),
        value => format!("{value} {unit}").trim_end().to_owned(),
    }
}

/// A figure in words: what it is, and its value with its unit.
pub fn describe_figure(name: &str, value: &Value) -> (String, String) {
    let bare = unit_of(name).map_or(name, |(word, _)| word);
    let known = TABLE.figures.get(bare).cloned();
    let label = known.unwrap_or_else(|| bare.replace('_', " "));
    (label, figure_text(name, value))
}

/// The largest fraction, in hundredths, that what is free and what the engine itself held suffice for; `None` where
/// that is too little for any engine.
fn fraction_of_free(numbers: &Map<String, Value>) -> Option<f64> {
    let (total, free) = size_of(numbers, "total").zip(size_of(numbers, "free"))?;
    let own = size_of(numbers, "process").unwrap_or(0.0);
    let share = ((free + own) / total * 100.0).floor() / 100.0;
    (LEAST_SHARE..=1.0).contains(&share).then_some(share)
}

/// GiB of a size under any of its units: `name_gib`, `name_mib` or `name_kb`.
pub fn size_of(numbers: &Map<String, Value>, name: &str) -> Option<f64> {
    let unit = |unit: &str| {
        numbers
            .get(&format!("{name}_{unit}"))
            .and_then(Value::as_f64)
    };
    let mib = || unit("mib").or_else(|| unit("kb").map(|kb| kb / 1024.0));
    unit("gib").or_else(|| mib().map(|mib| mib / 1024.0))
}

/// A smaller share of a GPU is no advice.
const LEAST_SHARE: f64 = 0.05;

/// What PyTorch's message on a lack of memory says of the processes on the GPU, GiB.
///
/// The message names its own process, or, where that has another id in its container, only processes by number: then its
/// own is the smallest of those that are as large as what PyTorch had allocated.
#[derive(Debug, Default)]
struct ProcessShares {
    own: Option<f64>,
    others: f64,
}

impl ProcessShares {
    fn of_line(text: &str) -> ProcessShares {
        let mut listed = listed_processes(text);
        if let Some(own) = size_behind(text, "this process has ") {
            return ProcessShares {
                own: Some(own),
                others: listed.iter().sum(),
            };
        }
        let Some(torch) = size_behind(text, "Of the allocated memory ").filter(|t| *t > 0.0) else {
            return ProcessShares::default();
        };
        listed.sort_by(f64::total_cmp);
        let own = listed.iter().position(|held| *held >= torch);
        ProcessShares {
            own: own.map(|at| listed.remove(at)),
            others: listed.iter().sum(),
        }
    }
}

/// GiB of each process that a message on a lack of memory lists by number.
fn listed_processes(line: &str) -> Vec<f64> {
    let each = line.match_indices("Process ");
    let each = each.filter_map(|(at, _)| size_behind(&line[at..], " has "));
    each.collect()
}

/// The size behind these words, GiB.
fn size_behind(text: &str, words: &str) -> Option<f64> {
    let (_, rest) = text.split_once(words)?;
    let (name, value) = read_size(rest, "x")?;
    size_of(&Map::from_iter([(name, value)]), "x")
}

fn number_behind(line: &str, sign: &str) -> Option<f64> {
    let (_, rest) = line.split_once(sign)?;
    read_number(rest).map(|(number, _)| number)
}

fn read_number(text: &str) -> Option<(f64, &str)> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-');
    let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let digits = text[..length].trim_end_matches([',', '.', '-']);
    let number = digits.replace(',', "").parse().ok()?;
    Some((number, &text[digits.len()..]))
}

/// `44.28 GiB` as its key by unit and its value.
fn read_size(text: &str, name: &str) -> Option<(String, Value)> {
    let (number, rest) = read_number(text)?;
    let unit = match rest.trim_start().get(..3).unwrap_or(rest.trim_start()) {
        "GiB" => "gib",
        "MiB" => "mib",
        "KiB" => "kib",
        word if word.starts_with("GB") => "gb",
        word if word.starts_with("MB") => "mb",
        _ => return None,
    };
    Some((format!("{name}_{unit}"), json_number(number)))
}

fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

/// The figures of a pattern in a line; `None` where the line does not have it.
fn read_pattern(pattern: &str, line: &str) -> Option<Vec<(String, Value)>> {
    let (head, fields) = pattern.split_once('{')?;
    let (first, others) = head.split_once('…').unwrap_or((head, ""));
    // A head as short as `(` also stands before other words: `(EngineCore pid=7) … (3.4/79.2 GiB)`.
    line.match_indices(first).find_map(|(start, _)| {
        let mut at = &line[start + first.len()..];
        for part in others.split('…') {
            at = &at[at.find(part)? + part.len()..];
        }
        // With no words before it, a figure is known by those behind it: `4.0 GB/`.
        if head.is_empty() {
            let behind = fields.split_once('}')?.1;
            let (_, rest) = read_number(at)?;
            rest.starts_with(behind.split('{').next()?).then_some(())?;
        }
        read_fields(fields, at)
    })
}

/// Characters within which a figure ends and the words behind it begin.
const LONGEST_FIGURE: usize = 80;

/// Whether a text is no more than a figure with its unit.
fn is_figure(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || " .…".contains(c))
}

/// The figures of a pattern from its first field on.
fn read_fields(fields: &str, line: &str) -> Option<Vec<(String, Value)>> {
    let (mut rest_pattern, mut at) = (fields, line);
    let mut values = Vec::new();
    loop {
        let (field, behind) = rest_pattern.split_once('}')?;
        let (name, kind) = field.split_once(':').unwrap_or((field, ""));
        let (literal, next) = behind
            .split_once('{')
            .map_or((behind, None), |(l, n)| (l, Some(n)));
        let value = match kind {
            "size" => read_size(at, name)?,
            "word" => {
                let end = at.find(['\'', '"', '`'])?;
                (name.to_owned(), Value::from(&at[..end]))
            }
            "" => (name.to_owned(), json_number(read_number(at)?.0)),
            unit => (format!("{name}_{unit}"), json_number(read_number(at)?.0)),
        };
        values.push(value);
        let first = literal.split('…').next().unwrap_or("");
        let near = at
            .char_indices()
            .nth(LONGEST_FIGURE)
            .map_or(at, |(end, _)| &at[..end]);
        match (first.is_empty(), near.find(first)) {
            (true, _) => {}
            (false, Some(found)) => at = &at[found + first.len()..],
            // A message may be cut off behind its first figures.
            (false, None) if (values.len() > 1 || next.is_some()) && is_figure(at) => {
                return Some(values);
            }
            (false, None) => return None,
        }
        for part in literal.split('…').skip(1) {
            at = &at[at.find(part)? + part.len()..];
        }
        match next {
            Some(next) => rest_pattern = next,
            None => return Some(values),
        }
    }
}

fn is_in(sign: &str, line: &EvidenceLine) -> bool {
    match sign.strip_prefix('@') {
        Some(fact) if fact.ends_with('=') => {
            line.source == EvidenceSource::Fact && line.text.starts_with(fact)
        }
        Some(fact) => {
            line.source == EvidenceSource::Fact
                && line.text.starts_with(fact.split('…').next().unwrap_or(""))
                && has_sign(fact, &line.text)
                && (fact.contains('…') || line.text == fact)
        }
        None => line.source != EvidenceSource::Fact && has_sign(sign, &line.text),
    }
}

fn quote(line: &EvidenceLine) -> DiagnosisEvidence {
    DiagnosisEvidence {
        quote: text::quote(line.text.trim(), 0),
        source: match line.source {
            EvidenceSource::Log => format!("log line {}", line.number),
            EvidenceSource::Kernel => "kernel log".to_owned(),
            EvidenceSource::Docker => "Docker".to_owned(),
            EvidenceSource::Fact => "the container's state".to_owned(),
        },
    }
}

impl Diagnosis {
    /// The cause that a text of some lines states.
    pub fn of_text(text: &str) -> Diagnosis {
        Diagnosis::of_text_with_limit(text, None)
    }

    /// The cause that a text states, of a container with this memory limit.
    pub fn of_text_with_limit(text: &str, limit: Option<String>) -> Diagnosis {
        let facts = limit
            .map(|limit| format!("memory_limit={limit}"))
            .into_iter()
            .collect();
        let mut finder = CauseFinder::new(CaseFacts {
            engine: None,
            facts,
        });
        text.lines().for_each(|line| finder.line(line.as_bytes()));
        finder.conclude()
    }

    /// Whether a failure was found and named.
    pub fn names_failure(&self) -> bool {
        self.cause
            .as_deref()
            .is_some_and(|cause| cause != "no_failure")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn diagnose(facts: Value, log: &str) -> Diagnosis {
        let mut finder = CauseFinder::new(CaseFacts::from_document(&facts).unwrap());
        log.lines().for_each(|line| finder.line(line.as_bytes()));
        finder.conclude()
    }

    #[test]
    fn a_start_of_vllm_is_known_by_its_banner() {
        let banner = "(APIServer pid=1) INFO [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\n";
        let dead = "ValueError: No available memory for the cache blocks.\n";
        let log = [
            banner,
            dead,
            banner,
            "INFO: Application startup complete.\n",
        ]
        .concat();
        let means = diagnose(json!({}), &log).means.unwrap();
        assert!(
            means.ends_with("a later start in this log serves"),
            "{means}"
        );
    }

    /// A failure of one line, and the first setting that is advised, with its value.
    #[test]
    fn a_line_that_names_its_cause_has_the_advice_for_it() {
        let lines = [
            (
                "vllm",
                "ValueError: Selected backend AttentionBackendEnum.X is not valid for this configuration. Reason: ['sparse not supported']",
                "attention_backend off",
            ),
            (
                "vllm",
                "NotImplementedError: NvFp4 MoE backend 'X' does not support the deployment configuration since kernel does not support current device cuda.",
                "moe_backend off",
            ),
            (
                "vllm",
                "vllm serve: error: unrecognized arguments: --task embed",
                "runner set pooling",
            ),
            (
                "vllm",
                "vllm serve: error: unrecognized arguments: -language-model-only",
                "command fix",
            ),
            (
                "vllm",
                "Value error, torch.bfloat16 is not supported for quantization method gptq. Supported dtypes: [torch.float16]",
                "dtype set float16",
            ),
            (
                "vllm",
                "Value error, num_speculative_tokens must be provided with speculative model",
                "speculative_config fix",
            ),
            (
                "vllm",
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': -4}",
                "cpu replace",
            ),
            (
                "vllm",
                "ValueError: Model architectures ['EagleNewForCausalLM'] are not supported for now.",
                "speculative_config off",
            ),
            (
                "sglang",
                "Exception: Capture cuda graph failed: Internal Triton PTX codegen error:\nptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'",
                "image up",
            ),
            (
                "sglang",
                "Pyspy failed to dump PID 7. Error: /bin/bash: line 1: py-spy: command not found\nRuntimeError: pidfd_getfd: Operation not permitted",
                "cap_add set SYS_PTRACE",
            ),
            (
                "sglang",
                "Watchdog timeout (self.watchdog_timeout=300)\nSIGQUIT received. signum=None, frame=None. It usually means one child failed.",
                "diagnose stack",
            ),
            (
                "llama_cpp",
                "E srv llama_server: failed to initialize router models: option 'x' not recognized in preset '*'",
                "command fix",
            ),
            (
                "llama_cpp",
                "server.cpp:3840: GGML_ASSERT(!slot.prompt.tokens.has_mtmd) failed",
                "cache_ram set 0",
            ),
            (
                "ollama",
                "ggml_cuda_init: found 1 CUDA devices: Device 0: X, compute capability 5.0\nCUDA error: no kernel image is available for execution on the device",
                "env:OLLAMA_LLM_LIBRARY set cuda_v12",
            ),
            (
                "tensorrt_llm",
                "ERROR Could not find a profile that is currently runnable with the detected hardware.",
                "env:NIM_MODEL_PROFILE set",
            ),
        ];
        for (engine, line, advised) in lines {
            let found = diagnose(json!({"engine": engine}), line);
            let best = &found.advice[0];
            let value = best.value.as_ref().and_then(Value::as_str).unwrap_or("");
            let first_advice = format!("{} {} {value}", best.setting, best.way);
            assert_eq!(first_advice.trim_end(), advised, "{line}");
        }
    }

    #[test]
    fn an_example_in_a_hint_is_no_setting() {
        let log = "ValueError: Available memory on node 0 (2.79/4.0 GiB) on startup is less than desired CPU memory utilization (0.92, 3.68 GiB). To resolve: decrease `--gpu-memory-utilization` (e.g. `--gpu-memory-utilization 0.5`)";
        let found = diagnose(json!({"engine": "vllm"}), log);
        assert_eq!(found.numbers["utilization"], json!(0.92));
        assert_eq!(first(&found), "gpu_memory_utilization down");
    }

    #[test]
    fn what_an_engine_outlived_did_not_end_it() {
        let banner = "INFO [api_server.py:1839] vLLM API server version 0.11.0\n";
        let retry = "ERROR [config.py:278] Error retrieving safetensors: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/m', retrying 1 of 2\n";
        let loaded = "INFO Model loading took 15.27 GiB and 4.1 seconds\n";
        let serves = "INFO:     Application startup complete.\n";
        let died = format!(
            "ERROR EngineCore failed to start.\n  File \"/x/gpu_model_runner.py\", line 3437, in capture_model\n{OOM}"
        );
        let cause = |log: &[&str]| diagnose(json!({"engine": "vllm"}), &log.concat()).cause;
        let healthy = cause(&[banner, retry, loaded, serves]);
        assert_eq!(healthy.as_deref(), Some("no_failure"));
        let oom = cause(&[banner, retry, loaded, &died]);
        assert_eq!(oom.as_deref(), Some("graph_capture_oom"));
        let absent = "OSError: Incorrect path_or_model_id: '/models/m'. Please provide a path\n";
        let absent = cause(&[banner, retry, absent]);
        assert_eq!(absent.as_deref(), Some("model_not_found_or_gated"));
        // One of several that ended, though another came to serve.
        let other = cause(&[banner, loaded, &died, "\n", serves]);
        assert_eq!(other.as_deref(), Some("graph_capture_oom"));
        // A tactic that does not fit is skipped; so is what a start survives.
        let tactic = "WARNING [Autotuner]: Skipping tactic 12, due to failure while profiling: CUDA out of memory. Tried to allocate 1.20 GiB\n";
        let tuned = cause(&[banner, loaded, tactic, serves]);
        assert_eq!(tuned.as_deref(), Some("no_failure"));
    }

    #[test]
    fn an_error_of_a_request_ends_no_server() {
        let serves = "INFO:     Application startup complete.\n";
        let image = "ERROR requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://example.com/dog.png\n";
        let on = "INFO Avg prompt throughput: 1201.1 tokens/s\n";
        let quoted =
            "INFO [logger.py:66] Generated response chatcmpl-1: output: 'CUDA out of memory'\n";
        let of = |log: &[&str]| diagnose(json!({"engine": "vllm"}), &log.concat()).cause;
        assert_eq!(of(&[serves, image, on]).as_deref(), Some("no_failure"));
        assert_eq!(of(&[serves, quoted, on]).as_deref(), Some("no_failure"));
        // One that restarted without its first line, and failed.
        assert_eq!(
            of(&[serves, image]).as_deref(),
            Some("model_not_found_or_gated")
        );
        // Ollama loads models on request: it serves its list before and after one that does not fit.
        let oom =
            "cudaMalloc failed: out of memory\nError: failed to allocate buffer for kv cache\n";
        let list = "[GIN] 2026/01/09 | 200 | 21µs | 127.0.0.1 | GET \"/api/tags\"\n";
        let found = diagnose(json!({"engine": "ollama"}), &[oom, list].concat());
        assert_eq!(found.cause.as_deref(), Some("kv_alloc_oom"));
    }

    #[test]
    fn a_kill_is_excused_by_a_failure_of_its_own_start_alone() {
        let start = "server_args=ServerArgs(model_path='m')\n";
        let bug = "Scheduler hit an exception: Traceback (most recent call last):\nAttributeError: x\nReceived sigquit from a child process. It usually means the child failed.\n";
        let killed =
            "/bin/bash: line 1:     7 Killed                  python3 -m sglang.launch_server\n";
        let facts = json!({"engine": "sglang"});
        let of = |log: &[&str]| diagnose(facts.clone(), &log.concat()).cause;
        let own = of(&[start, bug, killed]);
        assert_eq!(own.as_deref(), Some("engine_bug_no_memory"));
        let later = of(&[start, bug, start, killed]);
        assert_eq!(later.as_deref(), Some("host_ram_oom_kernel"));
    }

    #[test]
    fn a_server_whose_child_failed_did_not_serve_on() {
        let log = "[TP0] The server is fired up and ready to roll!\n[TP0] Scheduler hit an exception: Traceback (most recent call last):\nAttributeError: 'NoneType' object has no attribute 'accept_token'\n\nReceived sigquit from a child process. It usually means the child failed.\n/bin/bash: line 1:     7 Killed                  python3 -m sglang.launch_server";
        let found = diagnose(json!({"engine": "sglang"}), log);
        assert_eq!(found.cause.as_deref(), Some("engine_bug_no_memory"));
        let limited =
            json!({"engine": "sglang", "container": {"exit_code": 137, "memory_limit": "64 GiB"}});
        assert_eq!(
            diagnose(limited, log).cause.as_deref(),
            Some("engine_bug_no_memory")
        );
    }

    #[test]
    fn a_line_with_its_cure_has_it_as_advice() {
        for (engine, line, cause, setting) in [
            (
                "vllm",
                "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (241). Please lower max_num_seqs to at most 241 or increase",
                "kv_pool_too_small_for_max_model_len",
                "max_num_seqs down",
            ),
            (
                "sglang",
                "max_total_tokens=65536 is larger than the profiled value -4711. Use the profiled value instead.",
                "kv_pool_empty",
                "mem_fraction_static up",
            ),
            (
                "sglang",
                "ModelOptFp8Config only supports static FP8 quantization in SGLang. For FP4 quantization, use ModelOptFp4Config",
                "bad_flag",
                "quantization set",
            ),
            (
                "vllm",
                "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight loading. Waited 600s",
                "hang_no_progress",
                "env:VLLM_ENGINE_READY_TIMEOUT_S up",
            ),
            (
                "vllm",
                "misc/ibvwrap.cc:94 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
                "nccl_or_p2p",
                "ulimit up",
            ),
            (
                "vllm",
                "torch.distributed.DistBackendError: NCCL error in: x.cpp:77, unhandled system error (run with NCCL_DEBUG=INFO for details)",
                "nccl_or_p2p",
                "shm_size up",
            ),
            (
                "sglang",
                "ValueError: TRTLLM MHA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",
                "unsupported_architecture_or_dtype",
                "attention_backend off",
            ),
            (
                "vllm",
                "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
                "unsupported_architecture_or_dtype",
                "image up",
            ),
            (
                "vllm",
                "InductorError: PermissionError: [Errno 13] Permission denied: 'nvcc'",
                "model_not_found_or_gated",
                "command fix",
            ),
            (
                "llama_cpp",
                "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 8589934592",
                "host_ram_oom_kernel",
                "host_ram up",
            ),
            (
                "llama_cpp",
                "gguf_init_from_file_impl: unknown (magic, version) combination: 73726576, 206e6f69; is this really a GGML file?",
                "model_not_found_or_gated",
                "model fix",
            ),
            (
                "ollama",
                "OCI runtime exec failed: exec failed: unable to start container process: exec: \"curl\": executable file not found in $PATH: unknown",
                "program_not_found",
                "healthcheck fix",
            ),
            (
                "ollama",
                "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0",
                "no_gpu_visible",
                "nvidia_container_toolkit set",
            ),
            (
                "vllm",
                "failed to authorize: failed to fetch anonymous token: unexpected status from GET request: 401 Unauthorized",
                "image_not_available",
                "image fix",
            ),
            (
                "vllm",
                "0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint",
                "no_gpu_visible",
                "gpu_devices set",
            ),
            (
                "tensorrt_llm",
                "[TRT] [E] The engine plan file is generated on an incompatible device, expecting compute 9.0 got compute 8.6, please rebuild.",
                "unsupported_architecture_or_dtype",
                "model fix",
            ),
            (
                "ollama",
                "level=WARN msg=\"amdgpu detected, but no compatible rocm library found.\"",
                "no_gpu_visible",
                "image set",
            ),
            (
                "vllm",
                "ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
                "bad_flag",
                "max_lora_rank up",
            ),
            (
                "vllm",
                "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
                "unsupported_architecture_or_dtype",
                "image set",
            ),
            (
                "vllm",
                "ValueError: The supplied chat template (/t/x.jinja) looks like a file path, but it failed to be opened. Reason: [Errno 2] No such file or directory: '/t/x.jinja'",
                "bad_flag",
                "chat_template fix",
            ),
            (
                "vllm",
                "misc/socket.cc:506 NCCL WARN socketStartConnect: Connect to 172.17.0.3<41231> failed : No route to host",
                "nccl_or_p2p",
                "env:NCCL_SOCKET_IFNAME set",
            ),
            (
                "vllm",
                "OSError: [Errno 28] No space left on device: '/root/.cache/vllm/x'\nINFO [shm_broadcast.py:289] vLLM message queue communication handle",
                "disk_full",
                "volume move_or_grow",
            ),
            (
                "llama_cpp",
                "llama_init_from_model: V cache quantization requires flash_attn",
                "bad_flag",
                "flash_attn on",
            ),
            (
                "tensorrt_llm",
                "mpirun noticed that process rank 3 with PID 0 on node a exited on signal 9 (Killed).",
                "host_ram_oom_kernel",
                "host_ram up",
            ),
        ] {
            let found = diagnose(json!({"engine": engine}), line);
            assert_eq!(found.cause.as_deref(), Some(cause), "{line}");
            assert_eq!(first(&found), setting, "{line}");
        }
        let log = "UserWarning: Found GPU0 Tesla V100 which is of cuda capability 7.0.\ntorch.AcceleratorError: CUDA error: no kernel image is available for execution on the device";
        assert_eq!(
            first(&diagnose(json!({"engine": "vllm"}), log)),
            "image down"
        );
    }

    #[test]
    fn what_every_start_prints_is_no_cause() {
        // vLLM asks for each platform in turn; NCCL, for each network.
        let probes = "DEBUG [__init__.py:58] Exception happens when checking CUDA platform: NVML Shared Library Not Found\nDEBUG [__init__.py:69] CUDA platform is not available because: NVML Shared Library Not Found\n";
        let found = "INFO [__init__.py:241] Automatically detected platform rocm.\n";
        let network = "x:7:7 [0] NCCL INFO NET/IB : No device found.\n";
        let serves = "INFO:     Application startup complete.\n";
        let of = |log: &[&str]| diagnose(json!({"engine": "vllm"}), &log.concat()).cause;
        let healthy = of(&[probes, found, network, serves]);
        assert_eq!(healthy.as_deref(), Some("no_failure"));
        assert_eq!(of(&[network]).as_deref(), Some("no_failure"));
        let oom = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n  File \"/x/gpu_model_runner.py\", line 3437, in capture_model\n";
        let oom = of(&[probes, found, oom]);
        assert_eq!(oom.as_deref(), Some("graph_capture_oom"));
        // Kubernetes asks from the first second on; only a kill ends a container.
        let probe = "Warning  Unhealthy  4s (x4 over 34s)  kubelet  Startup probe failed: Get \"http://10.0.0.7:8000/health\": dial tcp: connect: connection refused\n";
        assert_eq!(of(&[probe]), None);
        let killed = "Normal  Killing  2s  kubelet  Container vllm failed startup probe, will be restarted\n";
        let ended = of(&[probe, killed]);
        assert_eq!(ended.as_deref(), Some("killed_by_user_or_orchestrator"));
    }

    #[test]
    fn a_weaker_sign_of_the_same_start_is_no_other_cause() {
        let log = "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:32440kB\nproc died, exitcode: -9";
        let found = diagnose(json!({}), log);
        assert_eq!(found.cause.as_deref(), Some("host_ram_oom_cgroup"));
        assert!(found.also.is_empty(), "{:?}", found.also);
    }

    fn first(found: &Diagnosis) -> String {
        let first = found.advice.first();
        first.map_or_else(String::new, |a| format!("{} {}", a.setting, a.way))
    }

    const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.";

    #[test]
    fn one_message_has_a_cause_and_a_direction_by_phase() {
        for (frame, cause, direction) in [
            (
                "File \"/x/llama.py\", line 1, in make_layers",
                "weights_do_not_fit",
                "quantization set",
            ),
            (
                "File \"/x/gpu_worker.py\", line 1, in determine_available_memory",
                "profiling_oom",
                "max_num_seqs down",
            ),
            (
                "File \"/x/gpu_model_runner.py\", line 1, in capture_model",
                "graph_capture_oom",
                "gpu_memory_utilization down",
            ),
            (
                "File \"/x/gpu_model_runner.py\", line 1, in _dummy_sampler_run",
                "warmup_oom",
                "max_num_seqs down",
            ),
            (
                "File \"/x/core.py\", line 1, in run_busy_loop",
                "runtime_oom_torch",
                "gpu_memory_utilization down",
            ),
        ] {
            let log = format!("Traceback (most recent call last):\n  {frame}\n{OOM}");
            let found = diagnose(serde_json::json!({"engine": "vllm"}), &log);
            assert_eq!(found.cause.as_deref(), Some(cause), "{frame}");
            assert_eq!(first(&found), direction, "{frame}");
            assert_eq!(found.numbers["requested_gib"], 2, "{frame}");
        }
    }

    #[test]
    fn an_exception_that_no_rule_knows_is_no_healthy_log() {
        let found = diagnose(
            Value::Null,
            "INFO loading\nCustomEngineError: no such thing",
        );
        assert_eq!((found.cause, found.abstained), (None, true));
        // A request's exception ends no server.
        let served = "INFO: Application startup complete.\nTypeError: 'NoneType' object is not subscriptable";
        let found = diagnose(Value::Null, served);
        assert_eq!(found.cause.as_deref(), Some("no_failure"));
    }

    #[test]
    fn messages_of_several_engines_have_their_cause() {
        for (engine, line, cause, first_setting) in [
            (
                "tensorrt-llm",
                "[TensorRT-LLM][WARNING] Requested amount of GPU memory (14483456000 bytes) could not be allocated.",
                "weights_do_not_fit",
                "quantization",
            ),
            (
                "vllm",
                "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
                "model_not_found_or_gated",
                "model",
            ),
            (
                "vllm",
                "PermissionError: [Errno 13] Permission denied: '/root/.cache/huggingface/hub'",
                "model_not_found_or_gated",
                "volume",
            ),
            (
                "sglang",
                "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.6.",
                "kv_pool_empty",
                "mem_fraction_static",
            ),
            (
                "tgi",
                "Error: NotEnoughCUDADevices(\"`sharded` is true but only found 1 CUDA devices\")",
                "no_gpu_visible",
                "gpu_devices",
            ),
            (
                "vllm",
                "(RayWorkerWrapper pid=7) AssertionError: local_world_size (16) must be less than or equal to the number of visible devices (8).",
                "no_gpu_visible",
                "image",
            ),
            (
                "vllm",
                "AssertionError: local_world_size (4) must be less than or equal to the number of visible devices (2).",
                "no_gpu_visible",
                "gpu_devices",
            ),
            (
                "llama.cpp",
                "error: failed to download model from Hugging Face",
                "model_not_found_or_gated",
                "volume",
            ),
            (
                "tgi",
                "thread 'main' panicked at router/src/infer/mod.rs:120:14:",
                "engine_bug_no_memory",
                "version",
            ),
            (
                "vllm",
                "ImportError: /x/vllm/_C.abi3.so: undefined symbol: _ZN3c10",
                "unsupported_architecture_or_dtype",
                "image",
            ),
            (
                "tensorrt-llm",
                "The following component could not be created: Model",
                "weights_do_not_fit",
                "quantization",
            ),
            (
                "tensorrt-llm",
                "The following component could not be created: Initial KV cache (temporary for KV cache size estimation)",
                "profiling_oom",
                "max_num_tokens",
            ),
            (
                "tensorrt-llm",
                "The following component could not be created: KV cache",
                "kv_alloc_oom",
                "max_batch_size",
            ),
            (
                "ollama",
                "error=\"memory layout cannot be allocated with num_gpu = 65\"",
                "profiling_oom",
                "num_gpu",
            ),
            (
                "ollama",
                "timed out waiting for llama runner to start - progress 0.35 -",
                "hang_no_progress",
                "env:OLLAMA_LOAD_TIMEOUT",
            ),
            (
                "llama.cpp",
                "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 600000000",
                "profiling_oom",
                "ubatch_size",
            ),
            (
                "vllm",
                "node1:99:180 [0] init.cc:1 NCCL WARN Cuda failure 2 'out of memory'",
                "gpu_memory_in_use_by_others",
                "free_others",
            ),
            (
                "vllm",
                "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
                "no_gpu_visible",
                "free_others",
            ),
            (
                "vllm",
                "torch.AcceleratorError: CUDA error: invalid device ordinal",
                "no_gpu_visible",
                "gpu_devices",
            ),
            (
                "vllm",
                "OSError: Can't load tokenizer for '/models/my-finetune'.",
                "model_not_found_or_gated",
                "tokenizer",
            ),
            (
                "vllm",
                "OSError: [Errno 24] Too many open files",
                "open_files_limit",
                "ulimit",
            ),
            (
                "vllm",
                "Application startup complete.\nRuntimeError: Triton Error [CUDA]: out of memory",
                "runtime_oom_torch",
                "gpu_memory_utilization",
            ),
            (
                "vllm",
                "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination",
                "driver_or_toolkit_mismatch",
                "env:LD_LIBRARY_PATH",
            ),
            (
                "vllm",
                "ValueError: Weight input_size_per_partition = 7392 is not divisible by min_thread_k = 128.",
                "bad_flag",
                "quantization",
            ),
            (
                "vllm",
                "RuntimeError: No compiled cutlass_scaled_mm for CUDA device capability: 120",
                "unsupported_architecture_or_dtype",
                "image",
            ),
            (
                "vllm",
                "Out of memory: Killed process 9 (VLLM::Worker) total-vm:9kB, anon-rss:10kB, file-rss:0kB, shmem-rss:20kB",
                "host_ram_oom_kernel",
                "cpu_offload_gb",
            ),
            (
                "ollama",
                "time=x level=INFO msg=\"Load failed\" error=\"timed out waiting for llama-server to start: context canceled\"",
                "hang_no_progress",
                "client_timeout",
            ),
            (
                "llama.cpp",
                "ggml_vulkan: No devices found.\nwarning: no usable GPU found, --gpu-layers option will be ignored",
                "no_gpu_visible",
                "gpu_devices",
            ),
            (
                "vllm",
                "docker: no matching manifest for linux/arm64/v8 in the manifest list entries.",
                "image_not_available",
                "image",
            ),
            (
                "vllm",
                "nvidia-container-cli: ldcache error: process /sbin/ldconfig terminated with signal 9",
                "no_gpu_visible",
                "nvidia_container_toolkit",
            ),
        ] {
            let found = diagnose(serde_json::json!({"engine": engine}), line);
            assert_eq!(found.cause.as_deref(), Some(cause), "{line}");
            assert_eq!(found.advice[0].setting, first_setting, "{line}");
        }
    }

    #[test]
    fn requests_without_tokens_are_a_hang_and_idle_reports_are_none() {
        let report = |running: u32| {
            format!(
                "INFO [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 \
                 tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
            )
        };
        let cause = |reports: &[u32]| {
            let lines: String = reports.iter().map(|n| report(*n)).collect();
            let log = format!("INFO: Application startup complete.\n{lines}");
            diagnose(Value::Null, &log).cause.unwrap_or_default()
        };
        assert_eq!(cause(&[2, 2]), "hang_no_progress");
        assert_eq!(cause(&[2, 2, 0]), "no_failure");
        assert_eq!(cause(&[0, 0]), "no_failure");
    }

    #[test]
    fn a_real_start_and_an_ordinary_end_are_no_failure() {
        // vLLM ends its own engine by SIGTERM, and warns of NUMA in every container.
        for log in [
            include_str!("../../tests/fixtures/vllm/captured/serve-eager.log"),
            include_str!("../../tests/fixtures/vllm/captured/bench-latency.log"),
        ] {
            let found = diagnose(serde_json::json!({"engine": "vllm"}), log);
            assert_eq!(found.cause.as_deref(), Some("no_failure"), "{found:?}");
        }
    }

    #[test]
    fn the_exception_that_ended_a_server_is_shown() {
        let log = "INFO: Application startup complete.\n\
            ERROR [core.py:1] EngineCore encountered a fatal error.\n\
            ERROR [core.py:1] ValueError: No valid structured output parameter found\n\
            ERROR [async_llm.py:7] EngineDeadError: EngineCore encountered an issue.\n\
            INFO: 1 \"POST /v1/chat HTTP/1.1\" 500\nINFO: 2\nINFO: 3\nINFO: 4\nINFO: 5";
        let found = diagnose(serde_json::json!({"engine": "vllm"}), log);
        assert!(found.abstained, "{found:?}");
        assert!(
            found.evidence[0].quote.contains("structured output"),
            "{found:?}"
        );
        // Before its first line of life llama.cpp looks for devices.
        let twice = "build: 1 (a) with x\nsrv  llama_server: server is listening on a\n\
            ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n\
            build: 1 (a) with x\nsrv  llama_server: server is listening on a";
        let means = diagnose(serde_json::json!({"engine": "llama.cpp"}), twice).means;
        assert!(
            !means.unwrap_or_default().contains("a later start"),
            "the last one lost its GPU"
        );
    }

    #[test]
    fn of_a_pool_in_host_memory_the_pool_is_to_shrink() {
        // What vLLM 0.19.1 on CPU and the kernel printed when the container's limit was reached.
        let log = "(EngineCore pid=26) INFO 11-26 12:34:25 [cpu_model_runner.py:71] Starting to load model /models/tiny-llama...\n\
            (EngineCore pid=26) INFO 11-26 12:34:26 [kv_cache_utils.py:1319] GPU KV cache size: 6,182,912 tokens\n\
            Memory cgroup out of memory: Killed process 13851 (VLLM::EngineCor) total-vm:8166464kB, anon-rss:3761664kB";
        let advised = |log: &str| {
            let found = diagnose(serde_json::json!({"engine": "vllm"}), log);
            assert_eq!(found.cause.as_deref(), Some("host_ram_oom_cgroup"));
            found
                .advice
                .into_iter()
                .map(|a| a.setting)
                .collect::<Vec<_>>()
        };
        assert_eq!(advised(log), ["memory_limit", "VLLM_CPU_KVCACHE_SPACE"]);
        let newer = log.replace("GPU KV cache size", "CPU KV cache size");
        assert_eq!(advised(&newer), ["memory_limit", "VLLM_CPU_KVCACHE_SPACE"]);
        let before_the_pool = log.replace("GPU KV cache size", "weights");
        assert_eq!(advised(&before_the_pool), ["memory_limit", "model_size"]);
    }

    #[test]
    fn progress_printed_after_a_failure_gives_its_phase() {
        let died = |behind: &str| {
            let log = format!(
                "INFO [api_server.py:1] vLLM API server version 0.25.1\n\
                 ERROR [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 502.00 MiB.\n\
                 {behind}\nRuntimeError: Engine core initialization failed. See root cause above.\n"
            );
            diagnose(serde_json::json!({"engine": "vllm"}), &log).phase
        };
        let bar =
            "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<00:02,  1.03it/s]";
        assert_eq!(died(bar).as_deref(), Some("weights"));
        assert_eq!(
            died("INFO [gpu_worker.py:1] Available KV cache memory: 1.0 GiB"),
            None
        );
    }

    #[test]
    fn without_a_phase_nothing_is_advised() {
        let found = diagnose(serde_json::json!({"engine": "vllm"}), OOM);
        assert_eq!(
            (found.cause, found.abstained, found.advice.len()),
            (None, true, 0)
        );
        assert!(!found.look_at.is_empty());
    }

    /// An engine that ran out of memory beside `others`, in this phase.
    fn beside(phase: &str, others: &str) -> Diagnosis {
        let log = format!(
            "INFO [api_server.py:1] vLLM API server version 0.11.0\n{phase}\n\
             torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 192.00 MiB. GPU 0 has a total capacity of \
             79.18 GiB of which 100.31 MiB is free. {others} Of the allocated memory 7.30 GiB is allocated by PyTorch, and \
             20.11 MiB is reserved by PyTorch but unallocated."
        );
        diagnose(serde_json::json!({"engine": "vllm"}), &log)
    }

    #[test]
    fn an_engine_is_told_from_other_processes_by_what_pytorch_holds() {
        let unnamed =
            "Process 42 has 71.20 GiB memory in use. Process 51 has 7.80 GiB memory in use.";
        let named = "Process 42 has 71.20 GiB memory in use. Including non-PyTorch memory, this process has 7.80 GiB memory in use.";
        for others in [unnamed, named] {
            let found = beside("Starting to load model m", others);
            assert_eq!(found.cause.as_deref(), Some("gpu_memory_in_use_by_others"));
            assert_eq!(size_of(&found.numbers, "process"), Some(7.8), "{others}");
            // A smaller share helps no weights.
            let settings: Vec<&str> = found.advice.iter().map(|a| a.setting.as_str()).collect();
            assert_eq!(settings, ["free_others", "model_size"]);
            let served = beside("Application startup complete.", others);
            let share = served
                .advice
                .iter()
                .find(|a| a.setting == "gpu_memory_utilization");
            assert_eq!(share.and_then(|a| a.value.clone()), Some(Value::from(0.09)));
        }
        // Alone under another id.
        let alone = beside(
            "Starting to load model m",
            "Process 42 has 78.90 GiB memory in use.",
        );
        assert_eq!(alone.cause.as_deref(), Some("weights_do_not_fit"));
    }

    #[test]
    fn memory_that_pytorch_holds_in_pieces_is_named_first() {
        let line = |unallocated: &str| {
            format!(
                "Application startup complete.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 \
                 has a total capacity of 44.40 GiB of which 612.31 MiB is free. Of the allocated memory 36.71 GiB is allocated \
                 by PyTorch, and {unallocated} is reserved by PyTorch but unallocated."
            )
        };
        let first = |unallocated| {
            let found = diagnose(serde_json::json!({"engine": "vllm"}), &line(unallocated));
            found
                .advice
                .first()
                .map(|a| a.setting.clone())
                .unwrap_or_default()
        };
        assert_eq!(first("6.22 GiB"), "env:PYTORCH_CUDA_ALLOC_CONF");
        assert_eq!(first("20.00 MiB"), "gpu_memory_utilization");
    }

    #[test]
    fn advice_is_of_the_engine_that_failed() {
        let settings = |engine: &str, log: &str| {
            let found = diagnose(serde_json::json!({"engine": engine}), log);
            let advice = found.advice.iter().map(|a| a.setting.clone());
            advice.collect::<Vec<String>>()
        };
        // SGLang's activations are outside of its share.
        let sglang = settings(
            "sglang",
            "Load weight end.\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        );
        assert_eq!(
            sglang,
            ["mem_fraction_static", "model_size", "tensor_parallel_size"]
        );
        let llama = settings(
            "llama.cpp",
            "llama_kv_cache: failed to allocate buffer for kv cache",
        );
        assert_eq!(llama, ["ctx_size", "cache_type_k", "n_gpu_layers"]);
    }

    #[test]
    fn the_engines_own_hint_is_checked() {
        let log = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
        let flags = |share: &str| serde_json::json!({"engine": "vllm", "container": {"flags": format!("--gpu-memory-utilization {share}")}});
        assert_eq!(
            first(&diagnose(flags("0.5"), log)),
            "gpu_memory_utilization up"
        );
        assert_eq!(first(&diagnose(flags("0.95"), log)), "model_size down");
        let beside =
            serde_json::json!({"engine": "vllm", "container": {"other_containers_on_gpu": 1}});
        assert_eq!(
            diagnose(beside, log).cause.as_deref(),
            Some("gpu_memory_in_use_by_others")
        );
    }

    #[test]
    fn who_holds_the_memory_decides_what_a_refused_share_means() {
        let log = |free: &str| {
            format!(
                "ValueError: Free memory on device cuda:0 ({free}/79.25 GiB) on startup is less than desired GPU memory utilization (0.99, 78.46 GiB)."
            )
        };
        let own_pid = format!("(EngineCore pid=7) ERROR [core.py:1231] {}", log("3.44"));
        let beside = diagnose(Value::Null, &own_pid);
        assert_eq!(first(&beside), "free_others free_others");
        assert_eq!(beside.advice.len(), 1, "nothing is left to give a share of");
        assert_eq!(beside.numbers["free_gib"], 3.44);
        // Other figures in parentheses are none of these.
        let unread = diagnose(Value::Null, &log("nan"));
        assert!(
            !unread.numbers.contains_key("free_gib"),
            "{:?}",
            unread.numbers
        );
        let alone = diagnose(Value::Null, &log("78.01"));
        assert_eq!(alone.cause.as_deref(), Some("utilization_above_free"));
        assert_eq!(alone.advice[0].value, Some(Value::from(0.98)));
        assert_eq!(
            first(&diagnose(Value::Null, &log("40.5"))),
            "free_others free_others"
        );
        let unified = serde_json::json!({"gpu": "NVIDIA GB10"});
        assert_eq!(
            first(&diagnose(unified, &log("60.0"))),
            "gpu_memory_utilization down"
        );
    }

    #[test]
    fn exit_code_137_is_three_things() {
        let case = |container: Value| {
            diagnose(
                serde_json::json!({"engine": "vllm", "container": container}),
                "INFO loading",
            )
        };
        let killed = case(
            serde_json::json!({"exit_code": 137, "oom_killed": true, "memory_limit": "8 GiB"}),
        );
        assert_eq!(first(&killed), "memory_limit up");
        assert!(killed.advice[0].text.contains("8 GiB"), "{killed:?}");
        let stopped = case(
            serde_json::json!({"exit_code": 137, "oom_killed": false, "stopped_by": "`docker stop`"}),
        );
        assert_eq!(
            stopped.cause.as_deref(),
            Some("killed_by_user_or_orchestrator")
        );
        let unknown = case(serde_json::json!({"exit_code": 137, "oom_killed": false}));
        assert!(unknown.abstained && unknown.cause.is_none(), "{unknown:?}");
    }

    #[test]
    fn the_last_life_counts_and_information_is_no_failure() {
        let healthy = "INFO CUDA graphs can take additional memory. If you are running out of memory, consider decreasing `gpu_memory_utilization`\nINFO Free memory on device (70.1/79.2 GiB) on startup. Desired GPU memory utilization is (0.8, 63 GiB).\nINFO: Application startup complete.";
        assert_eq!(
            diagnose(Value::Null, healthy).cause.as_deref(),
            Some("no_failure")
        );
        let looping = "INFO vLLM API server version 0.9\nvllm: error: unrecognized arguments: --x\nINFO vLLM API server version 0.9\nOSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use";
        let found = diagnose(Value::Null, looping);
        assert_eq!(found.cause.as_deref(), Some("port_in_use"));
        assert_eq!(found.numbers["port"], 8000);
        let prompt = "INFO Received request a: prompt: 'CUDA out of memory. Tried'\nINFO: Application startup complete.";
        assert_eq!(
            diagnose(Value::Null, prompt).cause.as_deref(),
            Some("no_failure")
        );
    }

    #[test]
    fn a_start_is_judged_by_its_own_lines() {
        let died = format!(
            "INFO vLLM API server version 0.11\nINFO GPU KV cache size: 53,200 tokens\n  File \"/x.py\", line 1, in capture_model\n{OOM}\n"
        );
        let serves = format!(
            "{died}INFO vLLM API server version 0.11\nINFO Graph capturing finished in 9 secs, took 0.61 GiB\nINFO: Application startup complete."
        );
        let found = diagnose(Value::Null, &serves);
        assert_eq!(found.cause.as_deref(), Some("graph_capture_oom"));
        let means = found.means.unwrap();
        assert!(
            means.ends_with("a later start in this log serves"),
            "{means}"
        );
        assert!(!found.numbers.contains_key("graph_gib"));
        let another = format!(
            "{died}INFO vLLM API server version 0.11\nINFO Available KV cache memory: 1.50 GiB\nValueError: To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed"
        );
        let found = diagnose(Value::Null, &another);
        assert_eq!(
            found.cause.as_deref(),
            Some("kv_pool_too_small_for_max_model_len")
        );
        assert_eq!(found.phase.as_deref(), Some("kv_alloc"));
        assert!(
            !found.numbers.contains_key("total_gib"),
            "{:?}",
            found.numbers
        );
    }

    #[test]
    fn an_unknown_exception_is_shown_and_not_the_line_that_points_to_it() {
        let log = "ERROR EngineCore failed to start.\nTraceback (most recent call last):\n  File \"x\"\nValueError: Adapter slot 64 is beyond 16.\nTraceback (most recent call last):\nRuntimeError: Engine core initialization failed. See root cause above.";
        let found = diagnose(serde_json::json!({"container": {"exit_code": 1}}), log);
        assert!(found.abstained || found.confidence.as_deref() == Some("low"));
        let quotes: Vec<&str> = found.evidence.iter().map(|e| e.quote.as_str()).collect();
        assert!(quotes.iter().any(|q| q.contains("slot 64")), "{quotes:?}");
        assert!(
            !found
                .look_at
                .iter()
                .any(|place| place.contains("State.ExitCode"))
        );
    }

    #[test]
    fn every_sign_is_found_and_every_function_of_the_table_is_there() {
        let levers = [
            "vllm",
            "sglang",
            "tgi",
            "tensorrt_llm",
            "llama_cpp",
            "ollama",
        ];
        for cause in &TABLE.causes {
            assert!(!cause.name.is_empty());
            let written = !cause.means.is_empty() && !cause.advice.is_empty();
            assert!(written && !cause.rules.is_empty(), "{}", cause.name);
            for rule in &cause.rules {
                assert!(!rule.is.is_empty(), "{}", cause.name);
                for sign in rule.is.iter().filter(|sign| !sign.starts_with('@')) {
                    let end = if sign.ends_with('$') { "" } else { "x" };
                    let line = sign.trim_end_matches('$').replace('…', "x ") + end;
                    assert!(
                        has_sign(sign, &line) && WORDS.hold(line.as_bytes()),
                        "{sign}"
                    );
                    assert!(!sign.starts_with('+'), "{sign}");
                }
                for advice in rule.advice.iter().chain(&cause.advice) {
                    let known = |l: &String| levers.iter().any(|e| TABLE.lever_of(l, e).is_some());
                    assert!(advice.lever.as_ref().is_none_or(known), "{advice:?}");
                }
            }
        }
        assert!(TABLE.causes.len() > 27, "the table is read");
    }
}
