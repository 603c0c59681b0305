//! Reading documents of plimsoll's leniently: what is missing or of another kind is unknown.

use crate::report::layout::{truncate_text, with_unit};
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
pub(super) fn read_document<T: DeserializeOwned + Default>(document: &Value) -> T {
    let mut fields = document.as_object().cloned().unwrap_or_default();
    fields.retain(|name, value| {
        let alone = Value::Object([(name.clone(), value.clone())].into_iter().collect());
        serde_json::from_value::<T>(alone).is_ok()
    });
    serde_json::from_value(Value::Object(fields)).unwrap_or_default()
}

/// A figure that a document has for each of its rows: cells, levels.
#[derive(Debug, PartialEq)]
pub(crate) struct DocumentFigure {
    /// Key in the document.
    pub key: &'static str,
    /// Key in CSV.
    pub csv: &'static str,
    /// Words.
    pub title: &'static str,
    /// Unit of the value as it is shown; empty for a count.
    pub unit: &'static str,
    /// What the document's value is divided by.
    per: f64,
}

/// A figure of a document. `csv`: its column in CSV; `per`: what the document's value is divided by for `unit`.
pub(crate) const fn new_figure(
    key: &'static str,
    csv: &'static str,
    title: &'static str,
    unit: &'static str,
    per: f64,
) -> DocumentFigure {
    DocumentFigure {
        key,
        csv,
        title,
        unit,
        per,
    }
}

impl DocumentFigure {
    /// Words with the unit: `peak, GiB`.
    pub fn column_head(&self) -> String {
        with_unit(self.title, self.unit)
    }

    /// Its value in a row, in the unit that is shown.
    pub fn value_in_row(&self, row: &Value) -> Option<f64> {
        Some(row.get(self.key)?.as_f64()? / self.per)
    }
}
