//! The request bodies and the meaning of response events: JSON in, values out, no I/O.

mod openai;
mod tgi;
mod tokenize;

pub use tokenize::Tokenizer;

use crate::engine::Dialect;
use serde_json::Value;

/// What one request asks for.
#[derive(Debug, Clone, Copy)]
pub struct RequestInput<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// Prompt.
    pub prompt: &'a str,
    /// Tokens of output.
    pub output: u32,
}

/// Optional fields that a server accepts. Fields that it refuses are dropped, from the first of
/// these levels to the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extras {
    /// `ignore_eos`, `min_tokens` and usage at the end: outputs have exactly the requested length.
    #[default]
    All,
    /// `ignore_eos` and usage.
    IgnoreEos,
    /// Usage at the end of the stream.
    Usage,
    /// Nothing beyond.
    None,
}

impl Extras {
    /// The next lower level; `None` after the last.
    pub fn with_fewer(self) -> Option<Extras> {
        match self {
            Extras::All => Some(Extras::IgnoreEos),
            Extras::IgnoreEos => Some(Extras::Usage),
            Extras::Usage => Some(Extras::None),
            Extras::None => None,
        }
    }
}

/// Path of the requests.
pub fn request_path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Completions => "/v1/completions",
        Dialect::Chat => "/v1/chat/completions",
        Dialect::Tgi => "/generate_stream",
    }
}

/// Whether there are optional fields.
pub fn has_extras(dialect: Dialect) -> bool {
    dialect != Dialect::Tgi
}

/// Body of a request.
pub fn request_body(dialect: Dialect, asked: &RequestInput<'_>, extras: Extras) -> Value {
    match dialect {
        Dialect::Completions => openai::completion_body(asked, extras),
        Dialect::Chat => openai::chat_body(asked, extras),
        Dialect::Tgi => tgi::request_body(asked),
    }
}

/// Content of one event of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventContent {
    /// Whether it contains content visible to a user.
    pub content: bool,
    /// Tokens of the prompt.
    pub input_tokens: Option<u64>,
    /// Tokens of output so far.
    pub output_tokens: Option<u64>,
    /// Why it ended.
    pub finish_reason: Option<String>,
    /// Nothing follows.
    pub done: bool,
    /// The server's error.
    pub error: Option<String>,
}

/// Parses the data of one event; `Err` if it is not part of the protocol.
pub fn read_event(dialect: Dialect, data: &str) -> Result<EventContent, ()> {
    if data.trim() == "[DONE]" {
        return Ok(EventContent {
            done: true,
            ..EventContent::default()
        });
    }
    let event: Value = serde_json::from_str(data).map_err(|_| ())?;
    if !event.is_object() {
        return Err(());
    }
    if let Some(error) = error(&event) {
        return Ok(EventContent {
            error: Some(error),
            ..EventContent::default()
        });
    }
    match dialect {
        Dialect::Completions | Dialect::Chat => openai::read_event(&event),
        Dialect::Tgi => tgi::read_event(&event),
    }
    .ok_or(())
}

/// The message of an error event.
fn error(event: &Value) -> Option<String> {
    let error = match event.get("error")? {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        object => object
            .get("message")
            .and_then(Value::as_str)
            .map_or_else(|| object.to_string(), str::to_owned),
    };
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_within_a_stream_are_read_in_every_shape() {
        for (dialect, data, message) in [
            (
                Dialect::Completions,
                r#"{"error":{"message":"no room","code":500}}"#,
                "no room",
            ),
            (
                Dialect::Tgi,
                r#"{"error":"Request failed during generation","error_type":"generation"}"#,
                "Request failed",
            ),
            (Dialect::Chat, r#"{"error":{"code":7}}"#, "7"),
        ] {
            let piece = read_event(dialect, data).unwrap();
            assert!(piece.error.unwrap().contains(message), "{data}");
        }
        for data in ["", "hello", "[1]", "3", "{\"a\":", "{}"] {
            assert!(read_event(Dialect::Completions, data).is_err(), "{data}");
        }
        assert!(read_event(Dialect::Chat, " [DONE]").unwrap().done);
    }

    #[test]
    fn a_server_is_asked_for_less_and_less() {
        let steps: Vec<Extras> =
            std::iter::successors(Some(Extras::All), |extras| extras.with_fewer()).collect();
        assert_eq!(steps.len(), 4);
        let asked = RequestInput {
            model: "m",
            prompt: "p",
            output: 8,
        };
        let keys = steps.iter().map(|e| {
            let body = request_body(Dialect::Completions, &asked, *e);
            body.as_object().unwrap().len()
        });
        let keys: Vec<usize> = keys.collect();
        assert!(keys.windows(2).all(|w| w[0] > w[1]), "{keys:?}");
    }
}
