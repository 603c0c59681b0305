//! A view of config.json: the language model's own fields, under whichever name they have.

use crate::estimate::Unknown;
use serde_json::{Map, Value};

/// Where a multimodal configuration keeps that of its language model.
const NESTED: &[&str] = &[
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
];

/// Largest width, head count or list that is believed. Larger is an error or an attack.
pub(super) const LARGEST: u64 = 1 << 20;
/// Largest vocabulary that is believed, entries.
const LARGEST_VOCABULARY: u64 = 1 << 26;
/// Longest context that is believed, tokens.
const LONGEST: u64 = 1 << 32;
/// Most layers that are believed.
pub(super) const MOST_LAYERS: u64 = 4096;

/// config.json, with the language model's fields first.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// The whole file.
    pub outer: &'a Map<String, Value>,
    /// The language model's part: the whole file, where it has no parts.
    pub text: &'a Map<String, Value>,
}

impl<'a> View<'a> {
    /// A view of `config`.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn of(config: &'a Value) -> Result<Self, Unknown> {
        let outer = config
            .as_object()
            .ok_or_else(|| Unknown::new("the model's configuration is not a JSON object"))?;
        let mut text = outer;
        // Omni models nest twice: thinker_config, and text_config in it.
        for _ in 0..2 {
            let inner = NESTED
                .iter()
                .find_map(|name| text.get(*name).and_then(Value::as_object));
            match inner {
                Some(inner) => text = inner,
                None => break,
            }
        }
        Ok(View { outer, text })
    }

    /// `model_type`, lower case: the language model's, else the whole model's.
    pub fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = [self.text, self.outer]
            .iter()
            .filter_map(|m| m.get("model_type").and_then(Value::as_str))
            .map(str::to_lowercase)
            .collect();
        kinds.dedup();
        kinds
    }

    /// The first of `names` that is set and not null.
    pub fn value(&self, names: &[&str]) -> Option<&'a Value> {
        names
            .iter()
            .find_map(|name| self.text.get(*name).filter(|v| !v.is_null()))
    }

    /// The same, and then in the whole file: for what either part may say.
    pub fn anywhere(&self, names: &[&str]) -> Option<&'a Value> {
        let outer = |name: &&str| self.outer.get(*name).filter(|v| !v.is_null());
        self.value(names).or_else(|| names.iter().find_map(outer))
    }

    /// A count: a width, a number of heads; `None` where no name is there.
    ///
    /// # Errors
    /// When it is not a whole number, is negative, or is too large to be believed.
    pub fn count(&self, names: &[&str]) -> Result<Option<u64>, Unknown> {
        self.bounded(names, LARGEST)
    }

    /// A count that is set and more than zero.
    ///
    /// # Errors
    /// As [`View::count`]; and when it is missing or zero.
    pub fn needed(&self, names: &[&str]) -> Result<u64, Unknown> {
        let name = names.first().copied().unwrap_or("a field");
        match self.count(names)? {
            Some(0) => Err(Unknown::new(format!("`{name}` is 0"))),
            Some(n) => Ok(n),
            None => Err(missing(name)),
        }
    }

    /// Entries of the vocabulary.
    pub fn vocabulary(&self, names: &[&str]) -> Result<Option<u64>, Unknown> {
        self.bounded(names, LARGEST_VOCABULARY)
    }

    /// Tokens of a context.
    pub fn tokens(&self, names: &[&str]) -> Result<Option<u64>, Unknown> {
        self.bounded(names, LONGEST)
    }

    fn bounded(&self, names: &[&str], most: u64) -> Result<Option<u64>, Unknown> {
        for name in names {
            if let Some(value) = self.text.get(*name).filter(|v| !v.is_null()) {
                return whole(uniform_number(value), name, most).map(Some);
            }
        }
        Ok(None)
    }

    /// A flag; `None` where it is missing or not a boolean.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.value(&[name]).and_then(Value::as_bool)
    }

    /// Whether a flag is set and true.
    pub fn is(&self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    /// A list; `None` where it is missing or not a list.
    pub fn list(&self, name: &str) -> Option<&'a [Value]> {
        self.value(&[name])
            .and_then(Value::as_array)
            .map(Vec::as_slice)
    }

    /// Whether a list has this number.
    pub fn lists(&self, name: &str, number: u64) -> bool {
        let mut all = self.list(name).unwrap_or_default().iter();
        all.any(|n| n.as_u64() == Some(number))
    }

    /// A whole number, whatever its size; `None` where it is missing or none.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.value(&[name]).and_then(Value::as_u64)
    }

    /// The same of any number.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.value(&[name]).and_then(Value::as_f64)
    }

    /// A list of one entry for each layer, where the field is there.
    ///
    /// # Errors
    /// When it has fewer entries than the model has layers.
    pub fn per_layer(&self, name: &str, layers: u64) -> Result<Option<&'a [Value]>, Unknown> {
        let Some(list) = self.list(name) else {
            return Ok(None);
        };
        let head = list.get(..usize::try_from(layers).unwrap_or(usize::MAX));
        let few = || format!("`{name}` names {} of {layers} layers", list.len());
        head.map(Some).ok_or_else(|| Unknown::new(few()))
    }

    /// A part that is an object of its own.
    pub fn part(&self, name: &str) -> Option<View<'a>> {
        let text = self.value(&[name])?.as_object()?;
        Some(View {
            outer: self.outer,
            text,
        })
    }

    /// Words; `None` where there are none.
    pub fn words(&self, names: &[&str]) -> Option<&'a str> {
        self.value(names).and_then(Value::as_str)
    }

    /// A share between 0 and 1; `None` where it is not there or makes no sense.
    pub fn share(&self, names: &[&str]) -> Option<f64> {
        self.value(names)
            .and_then(Value::as_f64)
            .filter(|f| (0.0..=1.0).contains(f) && *f > 0.0)
    }
}

/// The number of a list that has the same one for each layer (Hunyuan); any other value as it is.
fn uniform_number(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([first, rest @ ..]) if first.is_u64() && rest.iter().all(|n| n == first) => first,
        _ => value,
    }
}

/// A whole number of at most `most`.
pub(super) fn whole(value: &Value, name: &str, most: u64) -> Result<u64, Unknown> {
    // 4096.0 is written by some exporters.
    let is_count = |f: &f64| *f >= 0.0 && f.fract() == 0.0 && *f <= most as f64;
    let float = || value.as_f64().filter(is_count).map(|f| f as u64);
    match value.as_u64().or_else(float) {
        Some(n) if n <= most => Ok(n),
        Some(n) => Err(Unknown::new(format!(
            "`{name}` is {n}: more than any model has"
        ))),
        None => {
            let mut value = value.to_string();
            if value.len() > 40 {
                value = "a list or an object".into();
            }
            Err(Unknown::new(format!("`{name}` is {value}: not a count")))
        }
    }
}

/// A field that the model's kind cannot do without.
pub(super) fn missing(name: &str) -> Unknown {
    Unknown::new(format!("the model's configuration has no `{name}`"))
        .hint("give the whole config.json with --config FILE")
}
