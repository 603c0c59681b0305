//! The file as a tree of values, each with its place.

use super::fault::Fault;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// The most nodes of a file, those counted again that an alias repeats.
const MAX_NODES: u32 = 1_000_000;

/// Lists and maps within each other.
const MAX_DEPTH: usize = 128;

/// Nodes that aliases repeat, for each that is written: no file needs more.
const MAX_REPEATS: u32 = 100;

/// Place of a node: line and column, both from 1. Nodes that an alias repeats have the same place,
/// and numbers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    line: usize,
    column: usize,
    number: u32,
}

/// The beginning of the file.
impl Default for At {
    fn default() -> At {
        At {
            line: 1,
            column: 1,
            number: 0,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its place.
    pub at: At,
    /// What it is.
    pub value: Value,
    /// A variable was put into it.
    pub from_variable: bool,
    /// That variable looks like a secret.
    pub secret: bool,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Each key once, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub at: At,
    pub name: String,
}

impl Node {
    /// As an error may name it.
    pub fn shown(&self) -> String {
        if self.secret {
            return crate::redact::REDACTED.into();
        }
        let text = match &self.value {
            Value::Null => "null".into(),
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => number(*x),
            Value::Text(t) if t.is_empty() => return "an empty text".into(),
            Value::Text(t) => t.clone(),
            Value::List(_) => return "a list".into(),
            Value::Map(_) => return "a map".into(),
        };
        quoted(&text)
    }
}

/// A text of the file in an error: in backticks, and cut where it is long.
pub fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{short}`")
}

/// As it would be written: `0.9`, `1.0`, `6700000000`.
pub fn number(x: f64) -> String {
    if x.fract() == 0.0 && (1e3..1e15).contains(&x.abs()) {
        format!("{x}")
    } else {
        format!("{x:?}")
    }
}

/// Reads a text as a tree. Keys are as written; [`tidy`] looks after them.
pub fn read(text: &str) -> Result<Node, Fault> {
    refuse_characters(text)?;
    let mut composer = Composer {
        text,
        parser: Parser::new_from_str(text),
        nodes: 0,
        repeated: 0,
        anchors: HashMap::new(),
    };
    let root = loop {
        match composer.next_event()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (Event::StreamEnd, at) => return Err(Fault::new(at, "there is nothing in it")),
            (event, at) => break composer.node(event, at, 0)?,
        }
    };
    loop {
        match composer.next_event()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(_), at) => {
                let message = "a second document begins, and only one is read";
                return Err(Fault::new(at, message));
            }
            _ => {}
        }
    }
}

/// Refuses characters that are in no text file, and directives.
fn refuse_characters(text: &str) -> Result<(), Fault> {
    let control = text.char_indices().find(|(_, c)| {
        c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    });
    if let Some((byte, c)) = control {
        let message = format!("a character (U+{:04X}) that is in no text file", c as u32);
        return Err(Fault::new(place_of(text, byte), message));
    }
    match crate::preset::directive(text) {
        Some(byte) => Err(Fault::new(
            place_of(text, byte),
            "a directive (`%…`) means nothing here",
        )),
        None => Ok(()),
    }
}

/// The place of a byte.
fn place_of(text: &str, byte: usize) -> At {
    let before = &text[..byte];
    let line_begins = before.rfind('\n').map_or(0, |i| i + 1);
    At {
        line: before.matches('\n').count() + 1,
        column: before[line_begins..].chars().count() + 1,
        number: 0,
    }
}

/// Builds the tree from the parser's events.
struct Composer<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    /// Nodes up to now, those that aliases repeat with them.
    nodes: u32,
    repeated: u32,
    /// The node of an anchor, and its size in nodes; `None` while it is being read.
    anchors: HashMap<usize, Option<(Node, u32)>>,
}

impl<'t> Composer<'t> {
    fn next_event(&mut self) -> Result<(Event<'t>, At), Fault> {
        match self.parser.next_event() {
            Some(Ok((event, Span { start, .. }))) => {
                let at = At {
                    line: start.line(),
                    column: start.col() + 1,
                    number: self.nodes,
                };
                Ok((event, at))
            }
            Some(Err(error)) => Err(self.explain(&error)),
            None => Ok((Event::StreamEnd, place_of(self.text, self.text.len()))),
        }
    }

    /// An error of the parser, in our words where those are clearer.
    fn explain(&self, error: &ScanError) -> Fault {
        let (marker, info) = (error.marker(), error.info());
        let mut at = At {
            line: marker.line(),
            column: marker.col() + 1,
            number: 0,
        };
        let line = (self.text.lines().nth(at.line.saturating_sub(1))).unwrap_or_default();
        let indentation = &line[..line.len() - line.trim_start().len()];
        if info.contains("unknown anchor") {
            let message = "an alias (`*name`) of which there is no anchor (`&name`) before it";
            return Fault::new(at, message);
        }
        if info.contains("recursion limit") {
            return Fault::new(at, "nested too deeply");
        }
        if let Some(tab) = indentation.find('\t') {
            at.column = tab + 1;
            return Fault::new(at, "a tab: YAML is indented with spaces");
        }
        let fault = Fault::new(at, format!("this is no YAML: {info}"));
        if info.contains("invalid indentation") {
            fault.hint("indent the lines of brackets and quotes deeper than the key before them")
        } else {
            fault
        }
    }

    /// The node that begins with this event.
    fn node(&mut self, event: Event<'t>, at: At, depth: usize) -> Result<Node, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::new(at, "nested too deeply"));
        }
        self.count(at, 1)?;
        let before = self.nodes;
        let (anchor, value) = match event {
            Event::Alias(anchor) => return self.repeat(anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar(text, style, tag.as_deref(), at)?)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), at)?;
                self.anchors.insert(anchor, None);
                let mut list = Vec::new();
                loop {
                    match self.next_event()? {
                        (Event::SequenceEnd, _) => break,
                        (event, at) => list.push(self.node(event, at, depth + 1)?),
                    }
                }
                (anchor, Value::List(list))
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), at)?;
                self.anchors.insert(anchor, None);
                let mut map = Vec::new();
                loop {
                    let key = match self.next_event()? {
                        (Event::MappingEnd, _) => break,
                        (event, at) => key_of(self.node(event, at, depth + 1)?)?,
                    };
                    let (event, at) = self.next_event()?;
                    map.push((key, self.node(event, at, depth + 1)?));
                }
                (anchor, Value::Map(map))
            }
            _ => return Err(Fault::new(at, "this is no YAML")),
        };
        let node = Node {
            at,
            value,
            from_variable: false,
            secret: false,
        };
        // An anchor's number is above 0.
        if anchor > 0 {
            let size = self.nodes - before + 1;
            self.anchors.insert(anchor, Some((node.clone(), size)));
        }
        Ok(node)
    }

    fn count(&mut self, at: At, nodes: u32) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            let message = "more values than a sweep file can hold";
            return Err(Fault::new(at, message));
        }
        Ok(())
    }

    /// The nodes that an alias repeats, with numbers of their own.
    fn repeat(&mut self, anchor: usize, at: At) -> Result<Node, Fault> {
        let Some(Some((node, size))) = self.anchors.get(&anchor) else {
            // The alias is within what it repeats.
            return Err(Fault::new(at, "nested too deeply"));
        };
        let (mut node, size) = (node.clone(), *size);
        let written = self.nodes - self.repeated;
        self.repeated = self.repeated.saturating_add(size);
        if self.repeated > written.saturating_mul(MAX_REPEATS) {
            let message = "aliases repeat more than a file of this size can need";
            return Err(Fault::new(at, message));
        }
        let mut number = self.nodes;
        self.count(at, size)?;
        renumber(&mut node, &mut number);
        Ok(node)
    }
}

fn renumber(node: &mut Node, number: &mut u32) {
    node.at.number = *number;
    *number += 1;
    match &mut node.value {
        Value::List(list) => list.iter_mut().for_each(|node| renumber(node, number)),
        Value::Map(map) => map.iter_mut().for_each(|(_, node)| renumber(node, number)),
        _ => {}
    }
}

fn key_of(node: Node) -> Result<Key, Fault> {
    let name = match node.value {
        Value::Text(name) => name,
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) => number(x),
        Value::Null => String::new(),
        Value::List(_) | Value::Map(_) => return Err(Fault::new(node.at, "a key must be a word")),
    };
    Ok(Key { at: node.at, name })
}

/// Only YAML's own tags (`!!str`) mean something.
fn refuse_tag(tag: Option<&Tag>, at: At) -> Result<(), Fault> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => {
            Err(Fault::new(at, "a tag (`!word`) means nothing here"))
        }
        _ => Ok(()),
    }
}

/// What a scalar is: text where it is quoted or tagged so, else as it looks.
fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    at: At,
) -> Result<Value, Fault> {
    refuse_tag(tag, at)?;
    Ok(match tag {
        Some(tag) if tag.suffix == "str" => Value::Text(text.into_owned()),
        None if style != ScalarStyle::Plain => Value::Text(text.into_owned()),
        _ => resolve_plain(&text).unwrap_or_else(|| Value::Text(text.into_owned())),
    })
}

/// YAML 1.2's core schema, with `0b` beside it; a number with zeros in front is text.
fn resolve_plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Some(Value::Float(f64::NAN)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Value::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.starts_with(['-', '+']) {
        return None;
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let of_radix = |radix| {
        let digits = &unsigned[2..];
        let signed = digits.starts_with(['-', '+']);
        i128::from_str_radix(&format!("{sign}{digits}"), radix)
            .ok()
            .filter(|_| !signed)
    };
    let int = match unsigned.get(..2) {
        Some("0x") => of_radix(16),
        Some("0o") => of_radix(8),
        Some("0b") => of_radix(2),
        _ => None,
    };
    if let Some(int) = int {
        return Some(Value::Int(int));
    }
    let digits = unsigned.bytes().all(|b| b.is_ascii_digit());
    if digits && unsigned.len() > 1 && unsigned.starts_with('0') {
        return None;
    }
    if let Ok(int) = text.parse() {
        return Some(Value::Int(int));
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(Value::Float(f64::INFINITY));
    }
    let float = text.parse::<f64>().ok().filter(|x| x.is_finite());
    float.map(Value::Float)
}

/// Checks that each key occurs once, and resolves merge keys (`<<: *base`): a map's own keys win
/// over those it merges.
pub fn tidy(node: &mut Node) -> Result<(), Fault> {
    match &mut node.value {
        Value::List(list) => list.iter_mut().try_for_each(tidy),
        Value::Map(map) => {
            let mut seen: HashMap<&str, At> = HashMap::new();
            for (key, _) in map.iter() {
                if let Some(first) = seen.insert(&key.name, key.at) {
                    let message = format!("{} is here twice", quoted(&key.name));
                    return Err(Fault::new(key.at, message).other(first));
                }
            }
            map.iter_mut().try_for_each(|(_, value)| tidy(value))?;
            let Some(merge) = map.iter().position(|(key, _)| key.name == "<<") else {
                return Ok(());
            };
            let (key, base) = map.remove(merge);
            let bases = match base.value {
                Value::List(list) => list,
                _ => vec![base],
            };
            let mut own: std::collections::HashSet<String> =
                map.iter().map(|(k, _)| k.name.clone()).collect();
            for base in bases {
                let Value::Map(entries) = base.value else {
                    return Err(Fault::new(
                        key.at,
                        format!("`<<` merges maps, and {} is none", base.shown()),
                    ));
                };
                for (key, value) in entries {
                    if own.insert(key.name.clone()) {
                        map.push((key, value));
                    }
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_scalar_is_what_other_documents_read_it_as() {
        for text in [
            "~",
            "null",
            "Null",
            "nul",
            "true",
            "TRUE",
            "tRue",
            "yes",
            "0",
            "-0",
            "+7",
            "-7",
            "007",
            "-08",
            "0x1F",
            "-0x1f",
            "0x-1",
            "0o17",
            "0b101",
            "0b2",
            "1_000",
            "1.",
            ".5",
            "-.5e3",
            "1e400",
            ".inf",
            "-.INF",
            "+.inf",
            ".nan",
            "nan",
            "inf",
            "--1",
            "+-1",
            "1:30",
            "2024-01-01",
            "0x",
            "- ",
            "'7'",
            "\"true\"",
            "!!str 7",
            "!!int 7",
        ] {
            let other = match serde_yaml::from_str::<serde_yaml::Value>(text).unwrap() {
                serde_yaml::Value::Null => Value::Null,
                serde_yaml::Value::Bool(b) => Value::Bool(b),
                serde_yaml::Value::Number(n) => match n.as_i64() {
                    Some(int) => Value::Int(int.into()),
                    None => Value::Float(n.as_f64().unwrap()),
                },
                serde_yaml::Value::String(text) => Value::Text(text),
                other => Value::Text(format!("{other:?}")),
            };
            let same = match (read(text).unwrap().value, other) {
                (Value::List(_), Value::Text(_)) => true,
                // This reader has room for larger whole numbers.
                (Value::Int(n), Value::Float(x)) => n as f64 == x,
                (Value::Float(a), Value::Float(b)) => a == b || a.is_nan() && b.is_nan(),
                (a, b) => a == b,
            };
            assert!(same, "{text}: {:?}", read(text).unwrap().value);
        }
    }

    #[test]
    fn what_an_alias_repeats_stands_at_the_same_place_and_is_another_node() {
        let root = read("a: &a [x]\nb: *a\n").unwrap();
        let Value::Map(map) = root.value else {
            panic!("no map");
        };
        let (first, second) = (&map[0].1, &map[1].1);
        assert_eq!(first.at.to_string(), "1:4");
        assert_eq!(second.at.to_string(), "1:4");
        assert!(first.at != second.at && elements(first)[0].at != elements(second)[0].at);
    }

    fn elements(node: &Node) -> &[Node] {
        match &node.value {
            Value::List(list) => list,
            _ => &[],
        }
    }
}
