//! The file as a tree of values, and where each of them stands.
//!
//! The reader of YAML tells places only of errors that are raised while it reads. So nodes are
//! numbered as they are met, and the place of a node is found by reading the text once more and
//! failing there. Checks can then be made on the whole tree, in whatever order is clear.

use serde::de::{DeserializeSeed, EnumAccess, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

use super::fault::Fault;

/// A node's number, in the order of reading.
pub type At = u32;

/// The most nodes of a file, those counted again that an alias repeats.
const MAX_NODES: u32 = 1_000_000;

/// Brackets within brackets: beyond this the reader's time grows with the square of the text.
const MAX_BRACKETS: usize = 500;

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its number.
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
    match x.fract() == 0.0 && (1e3..1e15).contains(&x.abs()) {
        true => format!("{x}"),
        false => format!("{x:?}"),
    }
}

/// Line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a text is no tree.
#[derive(Debug, PartialEq)]
pub struct Broken {
    pub spot: Spot,
    pub message: String,
}

/// Reads a text as a tree. Keys are as written; [`tidy`] looks after them.
pub fn read(text: &str) -> Result<Node, Broken> {
    refuse(text)?;
    let mut reader = Reader::default();
    let read = Build(&mut reader).deserialize(serde_yaml::Deserializer::from_str(text));
    read.map_err(|e| {
        let spot = e.location().map(|l| Spot {
            line: l.line(),
            column: l.column(),
        });
        match reader.refused {
            Some(message) => Broken {
                spot: spot.unwrap_or(TOP),
                message,
            },
            None => explain(&e.to_string(), spot, text),
        }
    })
}

/// Where a node of the text stands.
pub fn spot(text: &str, at: At) -> Spot {
    let mut reader = Reader {
        stop_at: Some(at),
        ..Reader::default()
    };
    Build(&mut reader)
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err()
        .and_then(|e| e.location())
        .map_or(TOP, |l| Spot {
            line: l.line(),
            column: l.column(),
        })
}

const TOP: Spot = Spot { line: 1, column: 1 };

/// The place of a byte.
fn spot_of(text: &str, byte: usize) -> Spot {
    let before = &text[..byte];
    let line_begins = before.rfind('\n').map_or(0, |i| i + 1);
    Spot {
        line: before.matches('\n').count() + 1,
        column: before[line_begins..].chars().count() + 1,
    }
}

/// What the reader of YAML would take too long for, or tell without a place.
fn refuse(text: &str) -> Result<(), Broken> {
    let broken = |byte, message: String| Broken {
        spot: spot_of(text, byte),
        message,
    };
    let control = text.char_indices().find(|(_, c)| {
        c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    });
    if let Some((byte, c)) = control {
        return Err(broken(
            byte,
            format!("a character (U+{:04X}) that is in no text file", c as u32),
        ));
    }
    if let Some(byte) = crate::preset::directive(text) {
        let message = "a directive (`%…`) means nothing here";
        return Err(broken(byte, message.into()));
    }
    let mut depth = 0usize;
    for (byte, c) in text.bytes().enumerate() {
        match c {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Err(broken(byte, "nested too deeply".into()));
        }
    }
    Ok(())
}

/// The reader's words, with their places taken out, or better ones.
fn explain(said: &str, spot: Option<Spot>, text: &str) -> Broken {
    let message = if said.contains("EOF while parsing a value") {
        "there is nothing in it".into()
    } else if said.contains("more than one document") {
        let second = text.match_indices("\n---").map(|(i, _)| i + 1).last();
        return Broken {
            spot: second.map_or(TOP, |byte| spot_of(text, byte)),
            message: "a second document begins, and only one is read".into(),
        };
    } else if said.contains("recursion limit") {
        "nested too deeply".into()
    } else if said.contains("repetition limit") {
        "aliases repeat more than a file of this size can need".into()
    } else if said.contains("unknown anchor") {
        "an alias (`*name`) of which there is no anchor (`&name`) before it".into()
    } else {
        let line = spot.and_then(|s| text.lines().nth(s.line.saturating_sub(1)));
        let begins = line.map(|l| &l[..l.len() - l.trim_start().len()]);
        match begins.is_some_and(|b| b.contains('\t')) {
            true => "a tab: YAML is indented with spaces".into(),
            false => format!("this is no YAML: {}", without_places(said)),
        }
    };
    Broken {
        spot: spot.unwrap_or(TOP),
        message,
    }
}

/// `did not find expected key at line 2 column 1, while …` → `did not find expected key, while …`
fn without_places(said: &str) -> String {
    let parts: Vec<&str> = said
        .split(", ")
        .map(|part| part.split(" at line ").next().unwrap_or(part))
        .map(|part| part.split(" at position ").next().unwrap_or(part))
        .collect();
    parts.join(", ")
}

#[derive(Default)]
struct Reader {
    next: At,
    /// Fail at this node.
    stop_at: Option<At>,
    /// Why the text was refused by us.
    refused: Option<String>,
}

impl Reader {
    fn refuse<E: serde::de::Error>(&mut self, message: &str) -> E {
        self.refused = Some(message.to_owned());
        E::custom("refused")
    }

    fn enter<E: serde::de::Error>(&mut self) -> Result<At, E> {
        let at = self.next;
        self.next += 1;
        if self.stop_at == Some(at) {
            return Err(E::custom("here"));
        }
        if at >= MAX_NODES {
            return Err(self.refuse("more values than a sweep file can hold"));
        }
        Ok(at)
    }
}

struct Build<'r>(&'r mut Reader);

impl Build<'_> {
    fn scalar<E: serde::de::Error>(self, value: Value) -> Result<Node, E> {
        Ok(node(self.0.enter()?, value))
    }
}

fn node(at: At, value: Value) -> Node {
    Node {
        at,
        value,
        from_variable: false,
        secret: false,
    }
}

impl<'de> DeserializeSeed<'de> for Build<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Node, E> {
        self.scalar(Value::Null)
    }

    // An empty document.
    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<Node, E> {
        self.scalar(Value::Bool(v))
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Node, E> {
        self.scalar(Value::Int(v.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Node, E> {
        self.scalar(Value::Int(v.into()))
    }

    fn visit_i128<E: serde::de::Error>(self, v: i128) -> Result<Node, E> {
        self.scalar(Value::Int(v))
    }

    fn visit_u128<E: serde::de::Error>(self, v: u128) -> Result<Node, E> {
        self.scalar(Value::Int(i128::try_from(v).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Node, E> {
        self.scalar(Value::Float(v))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Node, E> {
        self.scalar(Value::Text(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let at = self.0.enter()?;
        let mut list = Vec::new();
        while let Some(element) = from.next_element_seed(Build(self.0))? {
            list.push(element);
        }
        Ok(node(at, Value::List(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let at = self.0.enter()?;
        let mut map = Vec::new();
        while let Some(key) = from.next_key_seed(Build(self.0))? {
            let name = match key.value {
                Value::Text(name) => name,
                Value::Bool(b) => b.to_string(),
                Value::Int(n) => n.to_string(),
                Value::Float(x) => number(x),
                Value::Null => String::new(),
                Value::List(_) | Value::Map(_) => {
                    return Err(self.0.refuse("a key must be a word"));
                }
            };
            let value = from.next_value_seed(Build(self.0))?;
            map.push((Key { at: key.at, name }, value));
        }
        Ok(node(at, Value::Map(map)))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Node, A::Error> {
        self.0.enter::<A::Error>()?;
        Err(self.0.refuse("a tag (`!word`) means nothing here"))
    }
}

/// Sees to it that each key stands once, and resolves merge keys (`<<: *base`): what a map says
/// itself wins over what it merges.
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
