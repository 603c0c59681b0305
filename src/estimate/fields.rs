//! The fields of a case, as people and their tables write them: a value is read, is unset, or is wrong, and never
//! passed over.

use super::settings::LEAST_CACHE;
use super::{EngineId, Unknown};
use crate::engine::settings::{Setting, ValueKind};
use serde_json::Value;

/// Largest size that is one: beyond it a float no longer counts.
const LARGEST: f64 = 1e15;

/// A JSON object's fields.
pub struct Fields<'a>(pub &'a Value);

impl<'a> Fields<'a> {
    /// The first of these keys that is set. Null, an empty text, and what Python writes for nothing are not.
    pub fn set<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        keys.iter()
            .filter_map(|key| Some((*key, self.0.get(*key)?)))
            .find(|(_, value)| match value {
                Value::Null => false,
                Value::String(s) => !["", "None", "null", "nan", "NaN", "<NA>"].contains(&s.trim()),
                _ => true,
            })
    }

    /// A text.
    ///
    /// # Errors
    /// Anything else.
    pub fn text(&self, keys: &[&'static str]) -> Result<Option<&'a str>, Unknown> {
        match self.set(keys) {
            None => Ok(None),
            Some((_, Value::String(s))) => Ok(Some(s.trim())),
            Some((key, value)) => Err(wrong(key, value, "a text")),
        }
    }

    /// A text, or a number taken for one: tables turn `0.19` into a number.
    ///
    /// # Errors
    /// Anything else.
    pub fn version(&self, keys: &[&'static str]) -> Result<Option<String>, Unknown> {
        match self.set(keys) {
            None => Ok(None),
            Some((_, Value::String(s))) => Ok(Some(s.trim().to_owned())),
            Some((_, Value::Number(n))) => Ok(Some(n.to_string())),
            Some((key, value)) => Err(wrong(key, value, "a version")),
        }
    }

    /// A setting of the engine, by its name, its aliases or the engine's own names, as the engine's command line would
    /// have it.
    ///
    /// # Errors
    /// A value that is none of the setting's.
    pub fn setting(&self, setting: &Setting, engine: EngineId) -> Result<Option<String>, Unknown> {
        let mut keys = vec![setting.name.as_str()];
        keys.extend(setting.aliases.iter().map(String::as_str));
        keys.extend(setting.names(engine));
        let Some((key, value)) = self.set(&keys) else {
            return Ok(None);
        };
        // Tables turn counts into floats.
        let whole = |least: f64| {
            let n = number(value).filter(|n| n.fract() == 0.0 && (least..=LARGEST).contains(n));
            n.map(|n| n.to_string())
        };
        let (text, expected) = match setting.kind {
            ValueKind::Text => (value.as_str().map(|s| s.trim().to_owned()), "a text"),
            // -1 is the engines' own `auto`.
            _ if number(value) == Some(-1.0) && setting.kind == ValueKind::Tokens => {
                return Ok(Some("-1".into()));
            }
            ValueKind::Count | ValueKind::Tokens => (whole(1.0), "a whole number, 1 or more"),
            ValueKind::Bytes => (whole(LEAST_CACHE as f64), "bytes, 1 MiB or more"),
            ValueKind::Share => {
                let share = number(value).filter(|n| *n > 0.0 && *n <= 1.0);
                (share.map(|n| n.to_string()), "a share above 0 and up to 1")
            }
            ValueKind::Switch => (switch(value).map(|b| b.to_string()), "true or false"),
        };
        match text {
            Some(text) => Ok(Some(text)),
            None => Err(wrong(key, value, expected)),
        }
    }

    /// GiB of a GPU, `least` or more.
    ///
    /// # Errors
    /// Anything else.
    pub fn gib(&self, keys: &[&'static str], least: f64) -> Result<Option<f64>, Unknown> {
        let Some((key, value)) = self.set(keys) else {
            return Ok(None);
        };
        match number(value).filter(|n| (least..1e6).contains(n)) {
            Some(n) => Ok(Some(n)),
            None => Err(wrong(key, value, "GiB of a GPU")),
        }
    }
}

/// A number, or a text that is one.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

/// A boolean, its word, or 0 and 1.
fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => return Some(*b),
        Value::String(s) if s.trim().eq_ignore_ascii_case("true") => return Some(true),
        Value::String(s) if s.trim().eq_ignore_ascii_case("false") => return Some(false),
        _ => {}
    }
    match number(value)? {
        0.0 => Some(false),
        1.0 => Some(true),
        _ => None,
    }
}

/// The key and the value, cut short where it is long.
fn wrong(key: &str, value: &Value, what: &str) -> Unknown {
    let mut shown = value.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).collect();
        shown.push('…');
    }
    Unknown::new(format!("`{key}` is {shown}, not {what}"))
}
