//! Text Generation Inference's `/generate_stream`: an event is a token.

use super::{EventContent, RequestInput};
use serde_json::{Value, json};

/// Body of a request. TGI always stops at the end-of-text token, so outputs may be shorter than
/// requested.
pub fn request_body(asked: &RequestInput<'_>) -> Value {
    json!({
        "inputs": asked.prompt,
        "parameters": {
            "max_new_tokens": asked.output,
            "do_sample": false,
            "details": true,
            "decoder_input_details": false,
        },
    })
}

/// Parses an event; `None` if it is not one of this protocol.
pub fn read_event(event: &Value) -> Option<EventContent> {
    let token = event.get("token").filter(|t| t.is_object());
    let details = event.get("details").filter(|d| d.is_object());
    if token.is_none() && details.is_none() {
        return None;
    }
    let count = |key: &str| details?.get(key)?.as_u64();
    let finish_reason = details
        .and_then(|d| d.get("finish_reason"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    // The details come with the last token; no separate end event follows.
    Some(EventContent {
        content: token.is_some(),
        input_tokens: count("input_length"),
        output_tokens: count("generated_tokens"),
        done: finish_reason.is_some(),
        finish_reason,
        error: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, read_event};
    use super::*;

    #[test]
    fn events() {
        let piece = |data: &str| read_event(Dialect::Tgi, data).unwrap();
        let token = piece(
            r#"{"index":1,"token":{"id":5,"text":" sea","logprob":-1.5,"special":false},"generated_text":null,"details":null}"#,
        );
        assert_eq!(
            (token.content, token.done, token.output_tokens),
            (true, false, None)
        );
        let last = piece(
            r#"{"index":2,"token":{"id":2,"text":"</s>","special":true},"generated_text":" sea",
                "details":{"finish_reason":"eos_token","generated_tokens":2,"seed":null,"input_length":9}}"#,
        );
        assert_eq!((last.content, last.done), (true, true));
        assert_eq!((last.output_tokens, last.input_tokens), (Some(2), Some(9)));
        assert_eq!(last.finish_reason.as_deref(), Some("eos_token"));
        assert!(read_event(Dialect::Tgi, r#"{"text":"x"}"#).is_err());
    }

    #[test]
    fn a_request_asks_for_details_without_the_prompt() {
        let body = request_body(&RequestInput {
            model: "m",
            prompt: "the sea",
            output: 8,
        });
        assert_eq!(body["inputs"], "the sea");
        assert_eq!(body["parameters"]["max_new_tokens"], 8);
        assert_eq!(body["parameters"]["decoder_input_details"], false);
    }
}
