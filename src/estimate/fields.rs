//! The fields of a case, as people and their tables write them: a value is read, is unset, or is wrong, and never
//! passed over.

use super::Unknown;
use serde_json::Value;

/// Largest size that is one: beyond it a float no longer counts.
const LARGEST: f64 = 1e15;

/// A JSON object's fields.
pub struct Fields<'a>(pub &'a Value);

impl<'a> Fields<'a> {
    /// The first of these keys that is set. Null, an empty text, and what Python writes for nothing are not.
    pub fn set(&self, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
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

    /// A number, or a text that is one, within `range`; `what` names what it would be.
    fn number(
        &self,
        keys: &[&'static str],
        what: &str,
        range: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, Unknown> {
        let Some((key, value)) = self.set(keys) else {
            return Ok(None);
        };
        let number = match value {
            Value::Number(n) => n.as_f64(),
            Value::String(s) => s.trim().parse().ok(),
            _ => None,
        };
        match number.filter(|n| range(*n)) {
            Some(n) => Ok(Some(n)),
            None => Err(wrong(key, value, what)),
        }
    }

    /// A count above 0; `8.0` is one, as tables turn counts into floats.
    ///
    /// # Errors
    /// Anything else.
    pub fn size(&self, keys: &[&'static str]) -> Result<Option<u64>, Unknown> {
        let whole = |n: f64| n.fract() == 0.0 && (1.0..=LARGEST).contains(&n);
        let n = self.number(keys, "a whole number, 1 or more", whole)?;
        Ok(n.map(|n| n as u64))
    }

    /// A share above 0 and up to 1.
    ///
    /// # Errors
    /// Anything else.
    pub fn share(&self, keys: &[&'static str]) -> Result<Option<f64>, Unknown> {
        self.number(keys, "a share above 0 and up to 1", |n| n > 0.0 && n <= 1.0)
    }

    /// GiB of a GPU, `least` or more.
    ///
    /// # Errors
    /// Anything else.
    pub fn gib(&self, keys: &[&'static str], least: f64) -> Result<Option<f64>, Unknown> {
        self.number(keys, "GiB of a GPU", |n| (least..1e6).contains(&n))
    }

    /// A boolean, its word, or 0 and 1.
    ///
    /// # Errors
    /// Anything else.
    pub fn switch(&self, keys: &[&'static str]) -> Result<Option<bool>, Unknown> {
        let Some((key, value)) = self.set(keys) else {
            return Ok(None);
        };
        let said = match value {
            Value::Bool(b) => Some(*b),
            Value::Number(n) => bit(n.as_f64()),
            Value::String(s) => match s.trim().to_ascii_lowercase().as_str() {
                "true" => Some(true),
                "false" => Some(false),
                digits => bit(digits.parse().ok()),
            },
            _ => None,
        };
        match said {
            Some(b) => Ok(Some(b)),
            None => Err(wrong(key, value, "true or false")),
        }
    }
}

fn bit(n: Option<f64>) -> Option<bool> {
    match n? {
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
