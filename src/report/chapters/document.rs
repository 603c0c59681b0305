//! Reading documents of plimsoll's leniently: what is missing or of another kind is unknown.

use crate::report::layout::truncate_text;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest text that is taken, cells.
const LONGEST: usize = 300;

/// A text at a path; none where it is empty.
pub(super) fn text_at(value: &Value, path: &str) -> Option<String> {
    let text = value.pointer(path)?.as_str()?.trim();
    (!text.is_empty()).then(|| cut_text(text))
}

/// The beginning of a text that is too long.
pub(super) fn cut_text(text: &str) -> String {
    // A text of megabytes is not measured to its end.
    let few: String = text.chars().take(4 * LONGEST).collect();
    truncate_text(&few, LONGEST, "…")
}

/// A number at a path.
pub(super) fn number_at(value: &Value, path: &str) -> Option<f64> {
    let number = value.pointer(path)?.as_f64()?;
    number.is_finite().then_some(number)
}

/// Whether there is a `true` at a path.
pub(super) fn flag_at(value: &Value, path: &str) -> bool {
    value.pointer(path) == Some(&Value::Bool(true))
}

/// A list at a path; empty where there is none. At most `most` of it.
pub(super) fn list_at<'a>(
    value: &'a Value,
    path: &str,
    most: usize,
) -> impl Iterator<Item = &'a Value> {
    let found = value.pointer(path).and_then(Value::as_array);
    found.into_iter().flatten().take(most)
}

/// The sentences of a list.
pub(super) fn sentences_at(value: &Value, path: &str) -> Vec<String> {
    list_at(value, path, 50)
        .filter_map(|s| text_at(s, ""))
        .collect()
}

/// A document as far as it can be read: a field that is missing or of another kind is as in the default.
pub(super) fn read_document<T: Serialize + DeserializeOwned + Default>(document: &Value) -> T {
    let defaults = match serde_json::to_value(T::default()) {
        Ok(Value::Object(defaults)) => defaults,
        _ => return T::default(),
    };
    let with = |given: &[(&String, &Value)]| {
        let given = given.iter();
        let mut fields = defaults.clone();
        fields.extend(given.map(|(name, value)| ((*name).clone(), (*value).clone())));
        serde_json::from_value::<T>(Value::Object(fields))
    };
    let mut given: Vec<(&String, &Value)> = document.as_object().into_iter().flatten().collect();
    with(&given).unwrap_or_else(|_| {
        given.retain(|field| with(&[*field]).is_ok());
        with(&given).unwrap_or_default()
    })
}
