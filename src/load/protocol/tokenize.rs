//! The servers' `/tokenize` endpoint: one path, three request formats.

use crate::engine::Dialect;
use serde_json::{Value, json};

/// A format for counting a text's tokens, including special tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokenizer {
    /// vLLM's and SGLang's, with the chat template's tokens: `{"model", "messages"}`.
    OpenAiChat,
    /// vLLM's and SGLang's: `{"model", "prompt"}`.
    OpenAi,
    /// TGI's: `{"inputs"}`.
    Tgi,
    /// llama.cpp's: `{"content"}`.
    LlamaCpp,
}

impl Tokenizer {
    /// Path of all of them.
    pub const PATH: &'static str = "/tokenize";

    /// The formats to try, in order. A server answers a wrong format with an error or without
    /// tokens.
    pub fn candidates_for(dialect: Dialect) -> &'static [Tokenizer] {
        match dialect {
            Dialect::Completions => &[Tokenizer::OpenAi, Tokenizer::Tgi, Tokenizer::LlamaCpp],
            Dialect::Chat => &[
                Tokenizer::OpenAiChat,
                Tokenizer::OpenAi,
                Tokenizer::Tgi,
                Tokenizer::LlamaCpp,
            ],
            Dialect::Tgi => &[Tokenizer::Tgi],
        }
    }

    /// Body of the question.
    pub fn request_body(self, model: &str, text: &str) -> Value {
        match self {
            Tokenizer::OpenAiChat => {
                json!({"model": model, "messages": [{"role": "user", "content": text}]})
            }
            Tokenizer::OpenAi => json!({"model": model, "prompt": text}),
            Tokenizer::Tgi => json!({"inputs": text, "add_special_tokens": true}),
            Tokenizer::LlamaCpp => json!({"content": text, "add_special": true}),
        }
    }

    /// The count in a response; `None` if it is missing or 0.
    pub fn read_count(self, answer: &str) -> Option<u64> {
        let answer: Value = serde_json::from_str(answer).ok()?;
        let length = |value: &Value| value.as_array().map(|list| list.len() as u64);
        let count = match self {
            Tokenizer::Tgi => length(&answer),
            Tokenizer::LlamaCpp => length(answer.get("tokens")?),
            Tokenizer::OpenAi | Tokenizer::OpenAiChat => answer
                .get("count")
                .and_then(Value::as_u64)
                .or_else(|| length(answer.get("tokens")?)),
        };
        count.filter(|n| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_distinguished() {
        let vllm = r#"{"count":3,"max_model_len":2048,"tokens":[1,2,3],"token_strs":null}"#;
        let tgi = r#"[{"id":1,"text":"the","start":0,"stop":3},{"id":2,"text":" sea","start":3,"stop":7}]"#;
        let llama_cpp = r#"{"tokens":[5,6]}"#;
        assert_eq!(Tokenizer::OpenAi.read_count(vllm), Some(3));
        assert_eq!(Tokenizer::Tgi.read_count(tgi), Some(2));
        assert_eq!(Tokenizer::LlamaCpp.read_count(llama_cpp), Some(2));
        // llama.cpp answers vLLM's question so, and must be asked in its own way.
        assert_eq!(Tokenizer::OpenAi.read_count(r#"{"tokens":[]}"#), None);
        for garbage in ["", "null", "{}", "[]", "{\"count\":-1}", "\"x\""] {
            for tokenizer in Tokenizer::candidates_for(Dialect::Chat) {
                assert_eq!(tokenizer.read_count(garbage), None, "{garbage}");
            }
        }
    }
}
