//! The file as a tree of values, each with its place.

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
pub struct NodePlace {
    line: usize,
    column: usize,
    number: u32,
}

/// The beginning of the file.
impl Default for NodePlace {
    fn default() -> NodePlace {
        NodePlace {
            line: 1,
            column: 1,
            number: 0,
        }
    }
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlNode {
    /// Its place.
    pub at: NodePlace,
    /// What it is.
    pub value: YamlValue,
    /// A variable was put into it.
    pub from_variable: bool,
    /// That variable looks like a secret.
    pub secret: bool,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum YamlValue {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// Each key once, in the order of the file.
    Map(Vec<(YamlKey, YamlNode)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlKey {
    pub at: NodePlace,
    pub name: String,
}

impl YamlNode {
    /// As an error may name it.
    pub fn describe_value(&self) -> String {
        if self.secret {
            return crate::redact::REDACTED.into();
        }
        let text = match &self.value {
            YamlValue::Null => "null".into(),
            YamlValue::Bool(b) => b.to_string(),
            YamlValue::Int(n) => n.to_string(),
            YamlValue::Float(x) => format_number(*x),
            YamlValue::Text(t) if t.is_empty() => return "an empty text".into(),
            YamlValue::Text(t) => t.clone(),
            YamlValue::List(_) => return "a list".into(),
            YamlValue::Map(_) => return "a map".into(),
        };
        quote_short(&text)
    }
}

/// A text of the file in an error: in backticks, and cut where it is long.
pub fn quote_short(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{short}`")
}

/// As it would be written: `0.9`, `1.0`, `6700000000`.
pub fn format_number(x: f64) -> String {
    if x.fract() == 0.0 && (1e3..1e15).contains(&x.abs()) {
        format!("{x}")
    } else {
        format!("{x:?}")
    }
}

/// Reads a text as a tree. Keys are as written; [`tidy`] looks after them.
pub fn read_tree(text: &str) -> Result<YamlNode, FileFault> {
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
            (Event::StreamEnd, at) => return Err(FileFault::new(at, "there is nothing in it")),
            (event, at) => break composer.node(event, at, 0)?,
        }
    };
    loop {
        match composer.next_event()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(_), at) => {
                let message = "a second document begins, and only one is read";
                return Err(FileFault::new(at, message));
            }
            _ => {}
        }
    }
}

/// Refuses characters that are in no text file, and directives.
fn refuse_characters(text: &str) -> Result<(), FileFault> {
    let control = text.char_indices().find(|(_, c)| {
        c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    });
    if let Some((byte, c)) = control {
        let message = format!("a character (U+{:04X}) that is in no text file", c as u32);
        return Err(FileFault::new(place_of(text, byte), message));
    }
    match crate::preset::directive_line(text) {
        Some(byte) => Err(FileFault::new(
            place_of(text, byte),
            "a YAML directive (`%…`) is not supported here",
        )),
        None => Ok(()),
    }
}

/// The place of a byte.
fn place_of(text: &str, byte: usize) -> NodePlace {
    let before = &text[..byte];
    let line_begins = before.rfind('\n').map_or(0, |i| i + 1);
    NodePlace {
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
    anchors: HashMap<usize, Option<(YamlNode, u32)>>,
}

impl<'t> Composer<'t> {
    fn next_event(&mut self) -> Result<(Event<'t>, NodePlace), FileFault> {
        match self.parser.next_event() {
            Some(Ok((event, Span { start, .. }))) => {
                let at = NodePlace {
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
    fn explain(&self, error: &ScanError) -> FileFault {
        let (marker, info) = (error.marker(), error.info());
        let mut at = NodePlace {
            line: marker.line(),
            column: marker.col() + 1,
            number: 0,
        };
        let line = (self.text.lines().nth(at.line.saturating_sub(1))).unwrap_or_default();
        let indentation = &line[..line.len() - line.trim_start().len()];
        if info.contains("unknown anchor") {
            let message = "an alias (`*name`) of which there is no anchor (`&name`) before it";
            return FileFault::new(at, message);
        }
        if info.contains("recursion limit") {
            return FileFault::new(at, "nested too deeply");
        }
        if let Some(tab) = indentation.find('\t') {
            at.column = tab + 1;
            return FileFault::new(at, "a tab: YAML is indented with spaces");
        }
        let fault = FileFault::new(at, format!("not YAML: {info}"));
        if info.contains("invalid indentation") {
            fault.with_hint(
                "indent the lines of brackets and quotes deeper than the key before them",
            )
        } else {
            fault
        }
    }

    /// The node that begins with this event.
    fn node(
        &mut self,
        event: Event<'t>,
        at: NodePlace,
        depth: usize,
    ) -> Result<YamlNode, FileFault> {
        if depth > MAX_DEPTH {
            return Err(FileFault::new(at, "nested too deeply"));
        }
        self.count_nodes(at, 1)?;
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
                (anchor, YamlValue::List(list))
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
                (anchor, YamlValue::Map(map))
            }
            _ => return Err(FileFault::new(at, "not YAML")),
        };
        let node = YamlNode {
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

    fn count_nodes(&mut self, at: NodePlace, nodes: u32) -> Result<(), FileFault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            let message = "more values than a sweep file can hold";
            return Err(FileFault::new(at, message));
        }
        Ok(())
    }

    /// The nodes that an alias repeats, with numbers of their own.
    fn repeat(&mut self, anchor: usize, at: NodePlace) -> Result<YamlNode, FileFault> {
        let Some(Some((node, size))) = self.anchors.get(&anchor) else {
            // The alias is within what it repeats.
            return Err(FileFault::new(at, "nested too deeply"));
        };
        let (mut node, size) = (node.clone(), *size);
        let written = self.nodes - self.repeated;
        self.repeated = self.repeated.saturating_add(size);
        if self.repeated > written.saturating_mul(MAX_REPEATS) {
            let message = "aliases repeat more than a file of this size can need";
            return Err(FileFault::new(at, message));
        }
        let mut number = self.nodes;
        self.count_nodes(at, size)?;
        renumber(&mut node, &mut number);
        Ok(node)
    }
}

fn renumber(node: &mut YamlNode, number: &mut u32) {
    node.at.number = *number;
    *number += 1;
    match &mut node.value {
        YamlValue::List(list) => list.iter_mut().for_each(|node| renumber(node, number)),
        YamlValue::Map(map) => map.iter_mut().for_each(|(_, node)| renumber(node, number)),
        _ => {}
    }
}

fn key_of(node: YamlNode) -> Result<YamlKey, FileFault> {
    let name = match node.value {
        YamlValue::Text(name) => name,
        YamlValue::Bool(b) => b.to_string(),
        YamlValue::Int(n) => n.to_string(),
        YamlValue::Float(x) => format_number(x),
        YamlValue::Null => String::new(),
        YamlValue::List(_) | YamlValue::Map(_) => {
            return Err(FileFault::new(node.at, "a key must be a word"));
        }
    };
    Ok(YamlKey { at: node.at, name })
}

/// Only YAML's own tags (`!!str`) mean something.
fn refuse_tag(tag: Option<&Tag>, at: NodePlace) -> Result<(), FileFault> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => Err(FileFault::new(
            at,
            "a YAML tag (`!word`) is not supported here",
        )),
        _ => Ok(()),
    }
}

/// What a scalar is: text where it is quoted or tagged so, else as it looks.
fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    at: NodePlace,
) -> Result<YamlValue, FileFault> {
    refuse_tag(tag, at)?;
    Ok(match tag {
        Some(tag) if tag.suffix == "str" => YamlValue::Text(text.into_owned()),
        None if style != ScalarStyle::Plain => YamlValue::Text(text.into_owned()),
        _ => resolve_plain(&text).unwrap_or_else(|| YamlValue::Text(text.into_owned())),
    })
}

/// YAML 1.2's core schema, with `0b` beside it; a number with zeros in front is text.
fn resolve_plain(text: &str) -> Option<YamlValue> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(YamlValue::Null),
        "true" | "True" | "TRUE" => return Some(YamlValue::Bool(true)),
        "false" | "False" | "FALSE" => return Some(YamlValue::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Some(YamlValue::Float(f64::NAN)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(YamlValue::Float(f64::NEG_INFINITY)),
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
        return Some(YamlValue::Int(int));
    }
    let digits = unsigned.bytes().all(|b| b.is_ascii_digit());
    if digits && unsigned.len() > 1 && unsigned.starts_with('0') {
        return None;
    }
    if let Ok(int) = text.parse() {
        return Some(YamlValue::Int(int));
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(YamlValue::Float(f64::INFINITY));
    }
    let float = text.parse::<f64>().ok().filter(|x| x.is_finite());
    float.map(YamlValue::Float)
}

/// Checks that each key occurs once, and resolves merge keys (`<<: *base`): a map's own keys win
/// over those it merges.
pub fn tidy_maps(node: &mut YamlNode) -> Result<(), FileFault> {
    match &mut node.value {
        YamlValue::List(list) => list.iter_mut().try_for_each(tidy_maps),
        YamlValue::Map(map) => {
            let mut seen: HashMap<&str, NodePlace> = HashMap::new();
            for (key, _) in map.iter() {
                if let Some(first) = seen.insert(&key.name, key.at) {
                    let message = format!("{} is a duplicate", quote_short(&key.name));
                    return Err(FileFault::new(key.at, message).with_other(first));
                }
            }
            map.iter_mut().try_for_each(|(_, value)| tidy_maps(value))?;
            let Some(merge) = map.iter().position(|(key, _)| key.name == "<<") else {
                return Ok(());
            };
            let (key, base) = map.remove(merge);
            let bases = match base.value {
                YamlValue::List(list) => list,
                _ => vec![base],
            };
            let mut own: std::collections::HashSet<String> =
                map.iter().map(|(k, _)| k.name.clone()).collect();
            for base in bases {
                let YamlValue::Map(entries) = base.value else {
                    return Err(FileFault::new(
                        key.at,
                        format!("`<<` merges maps, and {} is none", base.describe_value()),
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

/// A mistake.
#[derive(Debug, Clone, PartialEq)]
pub struct FileFault {
    /// Where.
    pub at: NodePlace,
    /// What is wrong.
    pub message: String,
    /// Another place that belongs to it.
    pub other: Option<NodePlace>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl FileFault {
    pub fn new(at: NodePlace, message: impl Into<String>) -> FileFault {
        FileFault {
            at,
            message: message.into(),
            other: None,
            hints: Vec::new(),
        }
    }

    /// With another place that belongs to it, unless it is the same one.
    pub fn with_other(mut self, at: NodePlace) -> FileFault {
        self.other = Some(at).filter(|at| *at != self.at);
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> FileFault {
        self.hints.push(hint.into());
        self
    }

    pub fn with_hint_if(mut self, hint: Option<String>) -> FileFault {
        self.hints.extend(hint);
        self
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
                serde_yaml::Value::Null => YamlValue::Null,
                serde_yaml::Value::Bool(b) => YamlValue::Bool(b),
                serde_yaml::Value::Number(n) => match n.as_i64() {
                    Some(int) => YamlValue::Int(int.into()),
                    None => YamlValue::Float(n.as_f64().unwrap()),
                },
                serde_yaml::Value::String(text) => YamlValue::Text(text),
                other => YamlValue::Text(format!("{other:?}")),
            };
            let same = match (read_tree(text).unwrap().value, other) {
                (YamlValue::List(_), YamlValue::Text(_)) => true,
                // This reader has room for larger whole numbers.
                (YamlValue::Int(n), YamlValue::Float(x)) => n as f64 == x,
                (YamlValue::Float(a), YamlValue::Float(b)) => a == b || a.is_nan() && b.is_nan(),
                (a, b) => a == b,
            };
            assert!(same, "{text}: {:?}", read_tree(text).unwrap().value);
        }
    }

    #[test]
    fn what_an_alias_repeats_stands_at_the_same_place_and_is_another_node() {
        let root = read_tree("a: &a [x]\nb: *a\n").unwrap();
        let YamlValue::Map(map) = root.value else {
            panic!("no map");
        };
        let (first, second) = (&map[0].1, &map[1].1);
        assert_eq!(first.at.to_string(), "1:4");
        assert_eq!(second.at.to_string(), "1:4");
        assert!(first.at != second.at && elements(first)[0].at != elements(second)[0].at);
    }

    fn elements(node: &YamlNode) -> &[YamlNode] {
        match &node.value {
            YamlValue::List(list) => list,
            _ => &[],
        }
    }
}
