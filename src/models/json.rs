//! JSON as exporters write it: bounded in size, and with Python's `Infinity` and `NaN`.

use crate::bounded;
use crate::error::Failure;
use regex::{Captures, Regex};
use serde_json::Value;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

/// Largest config.json that is read. The largest seen is 2.4 MB (each expert's quantisation by name).
const MAX_BYTES: u64 = 32 << 20;

/// A file's JSON; `None` where there is no such file.
///
/// # Errors
/// When it is not an ordinary file, is too large or is not JSON.
pub(super) fn read(path: &Path) -> Result<Option<Value>, Failure> {
    let failure = |what: &str| Failure::environment(format!("`{}` {what}", path.display()));
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failure("cannot be read").caused_by(e)),
    };
    // A pipe would make us wait for ever.
    if !facts.is_file() {
        return Err(failure("is not a file"));
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|e| failure("cannot be read").caused_by(e))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!(
            "`{}` is larger than any model's configuration",
            path.display()
        ))
        .hint("give the model's folder, or its config.json"));
    }
    parse(&text).map(Some).map_err(|e| {
        if e.is_data() {
            Failure::usage(format!("`{}` is too large", path.display())).caused_by(e)
        } else {
            failure("is not JSON").caused_by(e)
        }
    })
}

/// JSON, with `NaN` and `Infinity` (Nemotron's `time_step_limit`) taken for null. A mark of the byte order before it,
/// as editors on Windows write one, is passed over.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    bounded::check_weight(text.as_bytes())?;
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(e) => serde_json::from_str(&plain(text)).map_err(|_| e),
    }
}

/// The words that only Python writes, replaced outside of strings.
fn plain(text: &str) -> Cow<'_, str> {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN"#)
            .expect("a constant pattern, compiled by a test")
    });
    WORDS.replace_all(text, |found: &Captures<'_>| match &found[0] {
        string if string.starts_with('"') => string.to_owned(),
        _ => "null".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pythons_words_are_null_outside_of_strings() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "Infinity": "NaN \" NaN", "d": -1}"#;
        let value = parse(text).unwrap();
        let expected =
            json!({"a": [0.0, null], "b": null, "c": null, "Infinity": "NaN \" NaN", "d": -1});
        assert_eq!(value, expected);
    }

    #[test]
    fn a_mark_of_the_byte_order_is_passed_over() {
        assert_eq!(parse("\u{feff}{\"a\": NaN}").unwrap(), json!({"a": null}));
    }

    #[test]
    fn what_is_no_json_is_refused_each_time() {
        for text in ["", "{", "{\"a\": Infinit}", "\"", "{\"é\": Nan}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_folder_and_a_giant_are_no_configurations() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_err());
        assert!(read(&folder.path().join("none")).unwrap().is_none());
        let giant = folder.path().join("giant.json");
        File::create(&giant)
            .unwrap()
            .set_len(MAX_BYTES + 1)
            .unwrap();
        let message = read(&giant).unwrap_err().to_string();
        assert!(message.contains("larger than any"), "{message}");
    }
}
