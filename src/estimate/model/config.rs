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
        self.value(names).or_else(|| {
            names
                .iter()
                .find_map(|name| self.outer.get(*name).filter(|v| !v.is_null()))
        })
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
                return whole(value, name, most).map(Some);
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

    /// A list of one entry for each layer, where the field is there.
    ///
    /// # Errors
    /// When it has fewer entries than the model has layers.
    pub fn per_layer(&self, name: &str, layers: u64) -> Result<Option<&'a [Value]>, Unknown> {
        match self.list(name) {
            None => Ok(None),
            Some(list) => match list.get(..usize::try_from(layers).unwrap_or(usize::MAX)) {
                Some(head) => Ok(Some(head)),
                None => Err(Unknown::new(format!(
                    "`{name}` names {} of {layers} layers",
                    list.len()
                ))),
            },
        }
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

/// A whole number of at most `most`.
pub(super) fn whole(value: &Value, name: &str, most: u64) -> Result<u64, Unknown> {
    let n = match (value.as_u64(), value.as_f64()) {
        (Some(n), _) => Some(n),
        // 4096.0 is written by some exporters.
        (None, Some(f)) if f >= 0.0 && f.fract() == 0.0 && f <= most as f64 => Some(f as u64),
        _ => None,
    };
    match n {
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
