//! OpenAI's completions and chat completions, as engines stream them.

use super::{EventContent, Extras, RequestInput};
use serde_json::{Value, json};

/// Body for `/v1/completions`.
pub fn completion_body(asked: &RequestInput<'_>, extras: Extras) -> Value {
    let body = json!({
        "model": asked.model,
        "prompt": asked.prompt,
        "max_tokens": asked.output,
        "temperature": 0.0,
        "stream": true,
    });
    with_common_fields(body, asked, extras)
}

/// Body for `/v1/chat/completions`. Every engine accepts `max_tokens`, but not OpenAI's newer name
/// for it.
pub fn chat_body(asked: &RequestInput<'_>, extras: Extras) -> Value {
    let body = json!({
        "model": asked.model,
        "messages": [{"role": "user", "content": asked.prompt}],
        "max_tokens": asked.output,
        "temperature": 0.0,
        "stream": true,
    });
    with_common_fields(body, asked, extras)
}

fn with_common_fields(mut body: Value, asked: &RequestInput<'_>, extras: Extras) -> Value {
    if extras <= Extras::Usage {
        body["stream_options"] = json!({"include_usage": true});
    }
    if extras <= Extras::IgnoreEos {
        body["ignore_eos"] = true.into();
    }
    if extras == Extras::All {
        body["min_tokens"] = asked.output.into();
    }
    body
}

/// Parses an event; `None` if it is not one of this protocol.
pub fn read_event(event: &Value) -> Option<EventContent> {
    let usage = event.get("usage").filter(|u| u.is_object());
    let choices = event.get("choices").and_then(Value::as_array);
    if usage.is_none() && choices.is_none() {
        return None;
    }
    let choice = choices.and_then(|c| c.first());
    let text = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    let content = choice.is_some_and(|choice| {
        let delta = choice.get("delta");
        // Reasoning is output too; engines use two names for it.
        text(choice.get("text"))
            || ["content", "reasoning_content", "reasoning"]
                .iter()
                .any(|key| text(delta.and_then(|d| d.get(key))))
    });
    let count = |key: &str| usage?.get(key)?.as_u64();
    Some(EventContent {
        content,
        input_tokens: count("prompt_tokens"),
        output_tokens: count("completion_tokens"),
        finish_reason: choice
            .and_then(|c| c.get("finish_reason"))
            .and_then(Value::as_str)
            .map(str::to_owned),
        done: false,
        error: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, read_event, request_body};
    use super::*;

    #[test]
    fn events_of_completions() {
        let piece = |data: &str| read_event(Dialect::Completions, data).unwrap();
        let token = piece(
            r#"{"id":"c","object":"text_completion","choices":[{"index":0,"text":" sea","logprobs":null,"finish_reason":null}]}"#,
        );
        assert_eq!(
            token,
            EventContent {
                content: true,
                ..EventContent::default()
            }
        );
        let last =
            piece(r#"{"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":null}"#);
        assert_eq!(
            (last.content, last.finish_reason.as_deref()),
            (false, Some("length"))
        );
        let usage = piece(
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":16,"total_tokens":23}}"#,
        );
        assert_eq!(
            (usage.input_tokens, usage.output_tokens),
            (Some(7), Some(16))
        );
    }

    #[test]
    fn the_first_event_of_a_chat_carries_no_content() {
        let piece = |data: &str| read_event(Dialect::Chat, data).unwrap().content;
        assert!(!piece(
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#
        ));
        assert!(piece(
            r#"{"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#
        ));
        assert!(piece(
            r#"{"choices":[{"index":0,"delta":{"reasoning_content":"Hm"}}]}"#
        ));
        assert!(!piece(
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#
        ));
    }

    #[test]
    fn requests() {
        let asked = RequestInput {
            model: "m",
            prompt: "the sea",
            output: 8,
        };
        let plain = request_body(Dialect::Completions, &asked, Extras::None).to_string();
        assert_eq!(
            plain,
            r#"{"model":"m","prompt":"the sea","max_tokens":8,"temperature":0.0,"stream":true}"#
        );
        let all = request_body(Dialect::Chat, &asked, Extras::All);
        assert_eq!(all["messages"][0]["content"], "the sea");
        assert_eq!(
            (&all["min_tokens"], &all["ignore_eos"]),
            (&json!(8), &json!(true))
        );
        assert_eq!(all["stream_options"]["include_usage"], true);
    }
}
