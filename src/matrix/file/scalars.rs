//! Single values of the file, each of the type that its key wants.

use super::tree::{FileFault, YamlNode, YamlValue, format_number};
use crate::units::Bytes;
use crate::wording::did_you_mean;
use std::ops::RangeInclusive;

/// A value that is not what its key wants.
pub fn wrong_value(key: &str, wanted: &str, node: &YamlNode) -> FileFault {
    FileFault::new(
        node.at,
        format!("`{key}` must be {wanted}, not {}", node.describe_value()),
    )
}

/// The longest name or argument, bytes.
const LONGEST: usize = 4 << 10;
/// The most entries of a map of arguments or variables.
const MOST_ENTRIES: usize = 1000;

/// A name or an argument that is not longer than any can be.
pub fn check_length(key: &str, node: &YamlNode, text: String) -> Result<String, FileFault> {
    if text.len() > LONGEST {
        Err(FileFault::new(
            node.at,
            format!("a text in `{key}` is longer than {} KiB", LONGEST >> 10),
        ))
    } else {
        Ok(text)
    }
}

/// A text that is not empty. Numbers and the like are refused: `7.10` would have become `7.1`.
pub fn read_text(key: &str, node: &YamlNode) -> Result<String, FileFault> {
    match &node.value {
        YamlValue::Text(t) if !t.trim().is_empty() => check_length(key, node, t.trim().to_owned()),
        YamlValue::Int(_) | YamlValue::Float(_) | YamlValue::Bool(_) => {
            Err(wrong_value(key, "text", node).with_hint("write it in quotes"))
        }
        _ => Err(wrong_value(key, "text", node)),
    }
}

/// A text, or a number as it is written.
pub fn read_word(key: &str, node: &YamlNode) -> Result<String, FileFault> {
    match &node.value {
        YamlValue::Text(t) => Ok(t.clone()),
        YamlValue::Int(n) => Ok(n.to_string()),
        YamlValue::Float(x) if x.is_finite() => Ok(format_number(*x)),
        _ => Err(wrong_value(key, "text or a number", node)),
    }
}

/// A number; `6.7e9` and `"6.7e9"` alike.
fn real(node: &YamlNode) -> Option<f64> {
    match &node.value {
        YamlValue::Int(n) => Some(*n as f64),
        YamlValue::Float(x) => Some(*x),
        YamlValue::Text(t) => t.trim().parse().ok(),
        _ => None,
    }
    .filter(|x: &f64| x.is_finite())
}

/// A whole number of the range.
pub fn read_whole(
    key: &str,
    node: &YamlNode,
    range: RangeInclusive<u64>,
) -> Result<u64, FileFault> {
    let exact = match &node.value {
        YamlValue::Int(n) => u64::try_from(*n).ok(),
        YamlValue::Text(t) => t.trim().parse().ok(),
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
            wrong_value(key, &wanted, node)
        })
}

/// A number above 0.
pub fn read_positive(key: &str, node: &YamlNode) -> Result<f64, FileFault> {
    real(node)
        .filter(|x| *x > 0.0)
        .ok_or_else(|| wrong_value(key, "a number above 0", node))
}

/// A number above 0 and at most 1.
pub fn read_share(key: &str, node: &YamlNode) -> Result<f64, FileFault> {
    real(node)
        .filter(|x| *x > 0.0 && *x <= 1.0)
        .ok_or_else(|| wrong_value(key, "a number above 0 and at most 1", node))
}

/// `true` or `false`.
pub fn read_flag(key: &str, node: &YamlNode) -> Result<bool, FileFault> {
    match &node.value {
        YamlValue::Bool(b) => Ok(*b),
        YamlValue::Text(t) if node.from_variable && t == "true" => Ok(true),
        YamlValue::Text(t) if node.from_variable && t == "false" => Ok(false),
        _ => Err(wrong_value(key, "true or false", node)),
    }
}

/// Docker refuses a container with less, and takes 0 for no limit.
const LEAST_MEMORY: u64 = 6 << 20;

/// A size, kept as it was written.
pub fn read_size(key: &str, node: &YamlNode) -> Result<String, FileFault> {
    let text = read_word(key, node)?;
    match text.parse::<Bytes>() {
        Ok(Bytes(bytes)) if key == "memory" && (1..LEAST_MEMORY).contains(&bytes) => {
            let bare = text.bytes().all(|b| b.is_ascii_digit()) && !node.secret;
            let meant = bare.then(|| format!("did you mean `{text}GiB`?"));
            Err(wrong_value(key, "at least 6MiB, as Docker asks", node).with_hint_if(meant))
        }
        Ok(_) => Ok(text),
        Err(_) => Err(wrong_value(key, "a size such as 16GiB", node)),
    }
}

/// One of a few words.
pub fn read_choice<T: Copy>(
    key: &str,
    node: &YamlNode,
    known: &[(&str, T)],
) -> Result<T, FileFault> {
    let text = read_text(key, node)?;
    let names: Vec<&str> = known.iter().map(|(n, _)| *n).collect();
    known
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let wanted = format!("one of {}", names.join(", "));
            let near = did_you_mean(&text, names.iter().copied(), 1).filter(|_| !node.secret);
            wrong_value(key, &wanted, node).with_hint_if(near)
        })
}

/// Null, and a variable that is empty or `null`: as if the key were absent.
pub fn is_unset(node: &YamlNode) -> bool {
    match &node.value {
        YamlValue::Null => true,
        YamlValue::Text(t) => node.from_variable && matches!(t.trim(), "" | "null"),
        _ => false,
    }
}

/// The elements of a list; a scalar is a list of one, and a text with commas one of several.
pub fn list_elements(key: &str, node: &YamlNode) -> Result<Vec<YamlNode>, FileFault> {
    match &node.value {
        YamlValue::List(list) if list.is_empty() => {
            Err(FileFault::new(node.at, format!("`{key}` is an empty list"))
                .with_hint("leave the key out, or write null, where nothing is meant"))
        }
        YamlValue::List(list) => Ok(list.clone()),
        YamlValue::Map(_) => Err(wrong_value(key, "a value or a list of values", node)),
        YamlValue::Text(t) if t.contains(',') => Ok(t
            .split(',')
            .map(|part| YamlNode {
                value: YamlValue::Text(part.trim().to_owned()),
                ..node.clone()
            })
            .collect()),
        _ => Ok(vec![node.clone()]),
    }
}

/// The entries of a map, by name.
pub fn map_entries<'n>(
    key: &str,
    node: &'n YamlNode,
) -> Result<&'n [(super::tree::YamlKey, YamlNode)], FileFault> {
    match &node.value {
        YamlValue::Map(map) if map.len() > MOST_ENTRIES => Err(FileFault::new(
            node.at,
            format!("`{key}` has more than {MOST_ENTRIES} entries"),
        )),
        YamlValue::Map(map) => Ok(map),
        _ => Err(wrong_value(key, "a map", node)),
    }
}

/// The elements of a list of maps.
pub fn elements_of_maps<'n>(key: &str, node: &'n YamlNode) -> Result<&'n [YamlNode], FileFault> {
    match &node.value {
        YamlValue::List(list) if list.is_empty() => {
            Err(FileFault::new(node.at, format!("`{key}` is an empty list")))
        }
        YamlValue::List(list) => Ok(list),
        _ => Err(wrong_value(key, "a list of maps", node)),
    }
}
