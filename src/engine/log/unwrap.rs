//! A log line without what carried it: Docker's json-file, Kubernetes' CRI, JSON records.
//!
//! | carrier | line |
//! |---|---|
//! | Docker `json-file` | `{"log":"text\n","stream":"stderr","time":"…"}`, a line over 16 KiB in pieces without `\n` |
//! | CRI | `2026-01-01T00:00:00.000000000Z stderr F text`, `P` for a piece that goes on |
//! | an engine's or collector's JSON | `{"level":"INFO","fields":{"message":"text","rank":0},"target":"t"}`, `{"message":"text"}` |
//!
//! Prefixes of text before a message need no unwrapping: messages are searched, not anchored.

use super::text;
use crate::capture::AtNs;
use crate::engine::LogParser;
use crate::engine::causes::fails_before_engine;
use crate::engine::facts::{Finding, LogReport, Severity};
use crate::engine::lines::LONGEST_LINE;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Longest name of a service, bytes.
const LONGEST_NAME: usize = 64;
/// Maximum number of services counted.
const MOST_SERVICES: usize = 8;

/// What `docker compose logs` puts between a service and its line.
static BAR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" | "));

/// A parser that unwraps lines for another one.
pub struct Unwrapped {
    parser: Box<dyn LogParser>,
    /// A line to be continued, by stream.
    begun: [Vec<u8>; 2],
    /// Services seen in prefixes of `docker compose logs`, counted up to the limit.
    services: BTreeSet<String>,
    /// The first line of a loader, a shell, an init or an argument parser that states a failure.
    failed_before_engine: Option<String>,
}

impl Unwrapped {
    /// Puts the unwrapping before `parser`.
    pub fn new(parser: Box<dyn LogParser>) -> Unwrapped {
        Unwrapped {
            parser,
            begun: [Vec::new(), Vec::new()],
            services: BTreeSet::new(),
            failed_before_engine: None,
        }
    }

    fn hand_on(&mut self, line: &[u8], at: Option<AtNs>) {
        self.parser.line(line, at);
        if self.failed_before_engine.is_none() && !self.parser.ready() && fails_before_engine(line)
        {
            let mut cleaned = String::new();
            text::clean(&line[..line.len().min(LONGEST_LINE)], &mut cleaned);
            self.failed_before_engine = Some(text::quote(cleaned.trim(), 0));
        }
    }

    fn take(&mut self, piece: &Piece<'_>, at: Option<AtNs>) {
        let begun = &mut self.begun[usize::from(piece.stderr)];
        if begun.is_empty() && !piece.goes_on {
            // An escaped newline inside a record parts messages.
            for line in piece.text.split('\n') {
                self.hand_on(line.as_bytes(), at);
            }
            return;
        }
        let room = LONGEST_LINE.saturating_sub(begun.len());
        let bytes = piece.text.as_bytes();
        begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if !piece.goes_on {
            let whole = std::mem::take(begun);
            for line in whole.split(|b| *b == b'\n') {
                self.hand_on(line, at);
            }
        }
    }
}

impl Unwrapped {
    /// Notes the service that `docker compose logs` put before a line: `name-1  | text`.
    fn service(&mut self, raw: &[u8]) {
        let head = &raw[..raw.len().min(LONGEST_NAME)];
        let Some(bar) = BAR.find(head) else {
            return;
        };
        let name = head[..bar].trim_ascii();
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if name.first().is_some_and(u8::is_ascii_alphabetic)
            && name.iter().all(plain)
            && self.services.len() < MOST_SERVICES
        {
            self.services
                .insert(String::from_utf8_lossy(name).into_owned());
        }
    }
}

impl LogParser for Unwrapped {
    fn line(&mut self, raw: &[u8], at: Option<AtNs>) {
        match unwrap(raw) {
            Some(piece) => self.take(&piece, at),
            None => {
                self.service(raw);
                self.hand_on(raw, at);
            }
        }
    }

    fn step_count(&self) -> usize {
        self.parser.step_count()
    }

    fn report(&self) -> LogReport {
        let mut report = self.parser.report();
        if self.services.len() > 1 {
            let names: Vec<&str> = self.services.iter().map(String::as_str).collect();
            report.findings.push(Finding {
                code: "several_services".to_owned(),
                severity: Severity::Info,
                message: format!(
                    "lines of several services are mixed ({}): where more than one of them is an engine, facts are of whichever spoke last",
                    names.join(", ")
                ),
                quote: None,
            });
        }
        report
    }

    fn root_cause(&self) -> Option<String> {
        // An engine that served has got past its start.
        let before = || self.failed_before_engine.clone();
        (self.parser.root_cause()).or_else(|| before().filter(|_| !self.parser.ready()))
    }

    fn ready(&self) -> bool {
        self.parser.ready()
    }
}

/// The message in a carrier's line.
#[derive(Debug, PartialEq)]
struct Piece<'a> {
    text: Cow<'a, str>,
    stderr: bool,
    goes_on: bool,
}

/// The message of a carried line; `None` for any other.
fn unwrap(raw: &[u8]) -> Option<Piece<'_>> {
    match raw.first()? {
        b'{' => json(raw),
        b'0'..=b'9' => cri(raw),
        _ => None,
    }
}

/// `2026-01-01T00:00:00Z stdout F text`.
fn cri(raw: &[u8]) -> Option<Piece<'_>> {
    let head = &raw[..raw.len().min(48)];
    let stdout = memchr::memmem::find(head, b" stdout ").map(|at| (at, false));
    let (at, stderr) =
        stdout.or_else(|| memchr::memmem::find(head, b" stderr ").map(|at| (at, true)))?;
    // One word before it: the time.
    if head[..at].contains(&b' ') {
        return None;
    }
    let rest = raw.get(at + 8..)?;
    let (goes_on, text) = match rest {
        [b'F', b' ', text @ ..] => (false, text),
        [b'P', b' ', text @ ..] => (true, text),
        [b'F'] => (false, &rest[1..]),
        _ => return None,
    };
    Some(Piece {
        text: String::from_utf8_lossy(text),
        stderr,
        goes_on,
    })
}

/// Docker's own form, which is read without building a tree.
#[derive(Deserialize)]
struct JsonFile<'a> {
    #[serde(borrow)]
    log: Cow<'a, str>,
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
}

fn json(raw: &[u8]) -> Option<Piece<'_>> {
    if raw.starts_with(b"{\"log\":") {
        if let Ok(line) = serde_json::from_slice::<JsonFile<'_>>(raw) {
            let goes_on = !line.log.ends_with('\n') && !line.stream.is_empty();
            let text = match line.log {
                Cow::Borrowed(text) => Cow::Borrowed(without_end(text)),
                Cow::Owned(text) => Cow::Owned(without_end(&text).to_owned()),
            };
            return Some(Piece {
                text,
                stderr: line.stream == "stderr",
                goes_on,
            });
        }
    }
    let record: Map<String, Value> = serde_json::from_slice(raw).ok()?;
    let whole = |text: String| Piece {
        text: Cow::Owned(without_end(&text).to_owned()),
        stderr: false,
        goes_on: false,
    };
    // A record of Rust's `tracing`: `LEVEL target: message key=value`, as its text form has it.
    if let Some(fields) = record.get("fields").and_then(Value::as_object) {
        let message = fields.get("message").and_then(Value::as_str)?;
        return Some(whole(traced(&record, message, fields)));
    }
    let message = ["log", "message", "msg", "MESSAGE", "textPayload"]
        .iter()
        .find_map(|key| record.get(*key).and_then(Value::as_str))?;
    Some(whole(traced(&record, message, &Map::new())))
}

fn traced(record: &Map<String, Value>, message: &str, fields: &Map<String, Value>) -> String {
    let word = |key: &str| record.get(key).and_then(Value::as_str);
    let mut text = String::new();
    if let Some(level) = word("level") {
        text.push_str(level);
        text.push(' ');
    }
    if let Some(target) = word("target") {
        text.push_str(target);
        text.push_str(": ");
    }
    text.push_str(message);
    // The span of a message names its rank, too.
    let none = Map::new();
    let span = record.get("span").and_then(Value::as_object);
    let span = span.unwrap_or(&none).iter();
    let more = span.filter(|(key, _)| *key != "name" && !fields.contains_key(*key));
    for (key, value) in fields
        .iter()
        .filter(|(key, _)| *key != "message")
        .chain(more)
    {
        text.push_str(&format!(" {key}={value}"));
    }
    text
}

fn without_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};

    /// Writes down what it gets.
    struct Scribe(Arc<Mutex<Vec<String>>>);

    impl LogParser for Scribe {
        fn line(&mut self, line: &[u8], _: Option<AtNs>) {
            let text = String::from_utf8_lossy(line).into_owned();
            self.0.lock().unwrap().push(text);
        }
        fn step_count(&self) -> usize {
            0
        }
        fn report(&self) -> LogReport {
            LogReport::default()
        }
        fn root_cause(&self) -> Option<String> {
            None
        }
        fn ready(&self) -> bool {
            false
        }
    }

    fn unwrapped(lines: &[&str]) -> Vec<String> {
        let received = Arc::new(Mutex::new(Vec::new()));
        let mut parser = Unwrapped::new(Box::new(Scribe(received.clone())));
        for line in lines {
            parser.line(line.as_bytes(), None);
        }
        let received = received.lock().unwrap();
        received.clone()
    }

    #[test]
    fn every_carrier() {
        for (carried, text) in [
            (
                r#"{"log":"INFO \u001b[1mx\u001b[0m \"y\"\r\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}"#,
                "INFO \u{1b}[1mx\u{1b}[0m \"y\"",
            ),
            ("2026-01-01T00:00:00.000000000Z stdout F INFO x", "INFO x"),
            (
                r#"{"timestamp":"t","level":"INFO","fields":{"message":"KV-cache blocks: 3, size: 1","rank":0},"target":"launcher"}"#,
                "INFO launcher: KV-cache blocks: 3, size: 1 rank=0",
            ),
            (
                r#"{"timestamp":"t","level":"INFO","message":"Warming up model","target":"router"}"#,
                "INFO router: Warming up model",
            ),
            (
                r#"{"level":"INFO","fields":{"message":"Shard ready in 3s"},"target":"launcher","span":{"rank":3,"name":"shard-manager"}}"#,
                "INFO launcher: Shard ready in 3s rank=3",
            ),
            (
                r#"{"timestamp":1700000000000,"message":"INFO x"}"#,
                "INFO x",
            ),
        ] {
            assert_eq!(unwrapped(&[carried]), [text], "{carried}");
        }
    }

    #[test]
    fn pieces_of_a_long_line_are_joined_by_stream() {
        assert_eq!(
            unwrapped(&[
                r#"{"log":"one ","stream":"stdout","time":"t"}"#,
                r#"{"log":"other\n","stream":"stderr","time":"t"}"#,
                r#"{"log":"line\n","stream":"stdout","time":"t"}"#,
                "2026-01-01T00:00:00Z stdout P first ",
                "2026-01-01T00:00:00Z stdout F second",
            ]),
            ["other", "one line", "first second"]
        );
    }

    #[test]
    fn mixed_services_are_reported() {
        let codes = |lines: &[&str]| {
            let mut parser = Unwrapped::new(Box::new(Scribe(Arc::default())));
            lines.iter().for_each(|l| parser.line(l.as_bytes(), None));
            let findings = parser.report().findings;
            findings
                .iter()
                .map(|f| f.message.clone())
                .collect::<String>()
        };
        assert_eq!(
            codes(&["a-1  | x", "a-1  | y", "two words | z", "7 | z"]),
            ""
        );
        let shown = codes(&["a-1  | x", "b-1  | y"]);
        assert!(shown.contains("(a-1, b-1)"), "{shown}");
    }

    #[test]
    fn text_without_a_carrier_is_kept() {
        for line in [
            r#"{"model_id":"m","max_total_tokens":6024}"#,
            r#"{"log":"cut"#,
            "12:00:01 INFO stdout F x",
            "[12:00] x",
            "",
        ] {
            assert_eq!(unwrapped(&[line]), [line]);
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_out_of_docker_as_it_went_in(texts in proptest::collection::vec("[^\n\r]{0,40}", 1..5)) {
            let carried: Vec<String> = texts
                .iter()
                .map(|t| serde_json::json!({"log": format!("{t}\n"), "stream": "stdout", "time": "t"}).to_string())
                .collect();
            let carried: Vec<&str> = carried.iter().map(String::as_str).collect();
            prop_assert_eq!(unwrapped(&carried), texts);
        }

        #[test]
        fn never_panics(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..6)) {
            let mut parser = Unwrapped::new(Box::new(Scribe(Arc::default())));
            for line in &lines {
                parser.line(line, None);
                parser.line(&[b"{\"log\":", line.as_slice()].concat(), None);
                parser.line(&[b"0 stdout P ", line.as_slice()].concat(), None);
            }
        }
    }
}
