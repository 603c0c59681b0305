//! Single values of the file, each of the type that its key wants.

use super::fault::Fault;
use super::tree::{Node, Value, number};
use crate::wording::did_you_mean;
use std::ops::RangeInclusive;

/// A value that is not what its key wants.
pub fn wrong(key: &str, wanted: &str, node: &Node) -> Fault {
    Fault::new(
        node.at,
        format!("`{key}` must be {wanted}, not {}", node.shown()),
    )
}

/// The longest name or argument, bytes.
const LONGEST: usize = 4 << 10;
/// The most entries of a map of arguments or variables.
const MOST_ENTRIES: usize = 1000;

/// A name or an argument that is not longer than any can be.
pub fn short(key: &str, node: &Node, text: String) -> Result<String, Fault> {
    if text.len() > LONGEST {
        Err(Fault::new(
            node.at,
            format!("a text in `{key}` is longer than {} KiB", LONGEST >> 10),
        ))
    } else {
        Ok(text)
    }
}

/// A text that is not empty. Numbers and the like are refused: `7.10` would have become `7.1`.
pub fn text(key: &str, node: &Node) -> Result<String, Fault> {
    match &node.value {
        Value::Text(t) if !t.trim().is_empty() => short(key, node, t.trim().to_owned()),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
            Err(wrong(key, "text", node).hint("write it in quotes"))
        }
        _ => Err(wrong(key, "text", node)),
    }
}

/// A text, or a number as it is written.
pub fn word(key: &str, node: &Node) -> Result<String, Fault> {
    match &node.value {
        Value::Text(t) => Ok(t.clone()),
        Value::Int(n) => Ok(n.to_string()),
        Value::Float(x) if x.is_finite() => Ok(number(*x)),
        _ => Err(wrong(key, "text or a number", node)),
    }
}

/// A number; `6.7e9` and `"6.7e9"` alike.
fn real(node: &Node) -> Option<f64> {
    match &node.value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Text(t) => t.trim().parse().ok(),
        _ => None,
    }
    .filter(|x: &f64| x.is_finite())
}

/// A whole number of the range.
pub fn whole(key: &str, node: &Node, range: RangeInclusive<u64>) -> Result<u64, Fault> {
    let exact = match &node.value {
        Value::Int(n) => u64::try_from(*n).ok(),
        Value::Text(t) => t.trim().parse().ok(),
        _ => None,
    };
    // Beyond 2^53 not every whole number is one of these.
    let counted = || {
        real(node)
            .filter(|x| x.fract() == 0.0 && (0.0..=9e15).contains(x))
            .map(|x| x as u64)
    };
    exact
        .or_else(counted)
        .filter(|n| range.contains(n))
        .ok_or_else(|| {
            let wanted = match *range.end() {
                u64::MAX => format!("a whole number, {} or more", range.start()),
                end => format!("a whole number from {} to {end}", range.start()),
            };
            wrong(key, &wanted, node)
        })
}

/// A number above 0.
pub fn positive(key: &str, node: &Node) -> Result<f64, Fault> {
    real(node)
        .filter(|x| *x > 0.0)
        .ok_or_else(|| wrong(key, "a number above 0", node))
}

/// A number above 0 and at most 1.
pub fn share(key: &str, node: &Node) -> Result<f64, Fault> {
    real(node)
        .filter(|x| *x > 0.0 && *x <= 1.0)
        .ok_or_else(|| wrong(key, "a number above 0 and at most 1", node))
}

/// `true` or `false`.
pub fn flag(key: &str, node: &Node) -> Result<bool, Fault> {
    match &node.value {
        Value::Bool(b) => Ok(*b),
        Value::Text(t) if node.from_variable && t == "true" => Ok(true),
        Value::Text(t) if node.from_variable && t == "false" => Ok(false),
        _ => Err(wrong(key, "true or false", node)),
    }
}

/// A size, kept as it was written.
pub fn size(key: &str, node: &Node) -> Result<String, Fault> {
    let text = word(key, node)?;
    match text.parse::<crate::units::Bytes>() {
        Ok(_) => Ok(text),
        Err(_) => Err(wrong(key, "a size such as 16GiB", node)),
    }
}

/// One of a few words.
pub fn choice<T: Copy>(key: &str, node: &Node, known: &[(&str, T)]) -> Result<T, Fault> {
    let text = text(key, node)?;
    let names: Vec<&str> = known.iter().map(|(n, _)| *n).collect();
    known
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let wanted = format!("one of {}", names.join(", "));
            let near = did_you_mean(&text, names.iter().copied(), 1).filter(|_| !node.secret);
            wrong(key, &wanted, node).maybe(near)
        })
}

/// Null, and a variable that is empty or `null`: as if the key were absent.
pub fn is_unset(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Text(t) => node.from_variable && matches!(t.trim(), "" | "null"),
        _ => false,
    }
}

/// The elements of a list; a scalar is a list of one, and a text with commas one of several.
pub fn elements(key: &str, node: &Node) -> Result<Vec<Node>, Fault> {
    match &node.value {
        Value::List(list) if list.is_empty() => {
            Err(Fault::new(node.at, format!("`{key}` is an empty list"))
                .hint("leave the key out, or write null, where nothing is meant"))
        }
        Value::List(list) => Ok(list.clone()),
        Value::Map(_) => Err(wrong(key, "a value or a list of values", node)),
        Value::Text(t) if t.contains(',') => Ok(t
            .split(',')
            .map(|part| Node {
                value: Value::Text(part.trim().to_owned()),
                ..node.clone()
            })
            .collect()),
        _ => Ok(vec![node.clone()]),
    }
}

/// The entries of a map, by name.
pub fn entries<'n>(key: &str, node: &'n Node) -> Result<&'n [(super::tree::Key, Node)], Fault> {
    match &node.value {
        Value::Map(map) if map.len() > MOST_ENTRIES => Err(Fault::new(
            node.at,
            format!("`{key}` has more than {MOST_ENTRIES} entries"),
        )),
        Value::Map(map) => Ok(map),
        _ => Err(wrong(key, "a map", node)),
    }
}

/// The elements of a list of maps.
pub fn elements_of_maps<'n>(key: &str, node: &'n Node) -> Result<&'n [Node], Fault> {
    match &node.value {
        Value::List(list) if list.is_empty() => {
            Err(Fault::new(node.at, format!("`{key}` is an empty list")))
        }
        Value::List(list) => Ok(list),
        _ => Err(wrong(key, "a list of maps", node)),
    }
}
