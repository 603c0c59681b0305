//! Prepares the measured part: which fields the server accepts, how it counts tokens, the prompts,
//! and the warm-up.

use super::answer::ResponseRecord;
use super::client::HttpClient;
use super::prompts::{self, FitStep, Fitting};
use super::protocol::{self, Extras, RequestInput, Tokenizer};
use super::{Length, LoadPlan, LoadTarget};
use crate::capture::{ErrorKind, LengthUnit, RequestError, RequestRow};
use crate::engine::Dialect;
use crate::error::Failure;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::time::Duration;
use tokio::time::Instant;

/// For one count of tokens.
const COUNT_PATIENCE: Duration = Duration::from_secs(20);

/// Concurrent token count requests.
const COUNTS_AT_ONCE: usize = 4;

/// Default tokens per word.
const TOKENS_PER_WORD: f64 = 1.2;

/// A prompt, ready to be sent.
#[derive(Debug, Clone)]
pub struct Prompt {
    text: String,
    length: Length,
    unit: LengthUnit,
    counted: Option<u64>,
}

impl Prompt {
    /// Body of its request.
    pub fn request_body(&self, target: &LoadTarget, extras: Extras) -> String {
        let asked = RequestInput {
            model: &target.model,
            prompt: &self.text,
            output: self.length.output,
        };
        protocol::request_body(target.dialect, &asked, extras).to_string()
    }

    /// Its row before it is sent.
    pub fn request_row(&self, number: u64) -> RequestRow {
        RequestRow {
            number,
            input_asked: self.length.input,
            input_unit: self.unit,
            input_counted: self.counted,
            output_asked: self.length.output,
            ..RequestRow::default()
        }
    }
}

/// What the measured part needs.
pub struct Prepared {
    /// The measured prompts.
    pub prompts: Vec<Prompt>,
    /// What the server takes.
    pub extras: Extras,
    /// Notes on deviations from the plan: sentences.
    pub notes: Vec<String>,
}

/// Makes the prompts, probes what the server accepts, and warms it up; calls `warming_up` before
/// the first request.
pub async fn prepare_prompts(
    http: &HttpClient,
    target: &LoadTarget,
    plan: &LoadPlan,
    warming_up: impl FnOnce(),
) -> Result<Prepared, Failure> {
    let counter = Counter::find_tokenizer(http, target).await;
    let per_word = match &counter {
        Some(counter) => counter.tokens_per_word(plan.seed).await,
        None => 1.0,
    };
    let make = |number: u64| {
        let number = plan.first_prompt + number;
        let length = plan.lengths.length_of(plan.seed, number);
        let counter = counter.as_ref();
        async move {
            match &plan.prompt {
                Some(text) => given_prompt(counter, text, length).await,
                None => make_prompt(counter, plan.seed, number, length, per_word).await,
            }
        }
    };
    let prompts: Vec<Prompt> = futures::stream::iter(0..plan.prompt_count())
        .map(make)
        .buffered(COUNTS_AT_ONCE)
        .try_collect()
        .await
        .map_err(|e: RequestError| {
            Failure::run(format!(
                "the server stopped counting tokens (/tokenize), so prompts cannot be made: {}",
                e.message
            ))
            .hint("did the engine end? `plimsoll why` finds out")
        })?;
    let mut measured = prompts;
    let warmups = measured.split_off(plan.requests as usize);
    if let Some(moment) = plan.not_before {
        tokio::time::sleep_until(moment).await;
    }
    warming_up();
    let extras = warm_up(http, target, plan, &warmups).await?;

    let mut notes = Vec::new();
    if plan.prompt.is_some() {
        notes.push("each request has the same prompt: a prefix cache answers for it".into());
    }
    if counter
        .as_ref()
        .is_some_and(|c| c.tokenizer != Tokenizer::OpenAiChat)
        && target.dialect == Dialect::Chat
    {
        notes.push("the tokens of the chat template come on top of the prompt lengths".into());
    }
    if extras > Extras::IgnoreEos && protocol::has_extras(target.dialect) {
        notes.push(
            "the server does not take ignore_eos: outputs may be shorter than asked for".into(),
        );
    }
    Ok(Prepared {
        prompts: measured,
        extras,
        notes,
    })
}

/// Sends the warm-up requests; the first probes which fields the server accepts.
async fn warm_up(
    http: &HttpClient,
    target: &LoadTarget,
    plan: &LoadPlan,
    prompts: &[Prompt],
) -> Result<Extras, Failure> {
    let mut extras = Extras::default();
    for (i, prompt) in prompts.iter().enumerate() {
        loop {
            let body = Bytes::from(prompt.request_body(target, extras));
            let mut answer = ResponseRecord::to_request(prompt.request_row(0));
            http.post_and_stream(
                target.dialect,
                body,
                Instant::now(),
                plan.patience,
                &mut answer,
            )
            .await;
            let row = answer.into_row();
            let Some(error) = row.error.filter(|_| i == 0) else {
                break;
            };
            let refused = matches!(row.status, Some(400 | 422));
            match extras.with_fewer() {
                Some(fewer) if refused && protocol::has_extras(target.dialect) => extras = fewer,
                _ => return Err(no_answer(target, &error, row.status)),
            }
        }
    }
    Ok(extras)
}

fn no_answer(target: &LoadTarget, error: &RequestError, status: Option<u16>) -> Failure {
    let words = match error.kind {
        ErrorKind::Status => error.message.clone(),
        kind => format!("{}: {}", kind.as_str(), error.message),
    };
    let failure = Failure::run(format!(
        "the engine did not answer the first request, a test, to {}: {words}",
        target.request_path()
    ));
    match status {
        Some(401 | 403) => {
            failure.hint("the server wants an API key, and not the one in its container's settings")
        }
        Some(404) => failure.hint("is the model's name right? --model names another"),
        Some(400 | 413 | 422) => failure
            .hint("do prompt and output fit into the model's length? --input-len, --output-len"),
        _ => failure,
    }
}

/// A prompt with a given text; its length is counted.
async fn given_prompt(
    counter: Option<&Counter<'_>>,
    text: &str,
    length: Length,
) -> Result<Prompt, RequestError> {
    let counted = match counter {
        Some(counter) => Some(counter.count_tokens(text).await?),
        None => None,
    };
    let words = text.split_whitespace().count() as u64;
    let input = u32::try_from(counted.unwrap_or(words)).unwrap_or(u32::MAX);
    Ok(Prompt {
        text: text.to_owned(),
        length: Length { input, ..length },
        unit: counted.map_or(LengthUnit::Words, |_| LengthUnit::Tokens),
        counted,
    })
}

async fn make_prompt(
    counter: Option<&Counter<'_>>,
    seed: u64,
    number: u64,
    length: Length,
    per_word: f64,
) -> Result<Prompt, RequestError> {
    // Without a server call nothing else would yield, and a stopped run could not end here.
    tokio::task::yield_now().await;
    let Some(counter) = counter else {
        return Ok(Prompt {
            text: prompts::of_words(seed, number, length.input),
            length,
            unit: LengthUnit::Words,
            counted: None,
        });
    };
    let mut fitting = Fitting::new(seed, number, length.input, per_word);
    let mut text = fitting.current_text();
    loop {
        match fitting.take_count(counter.count_tokens(&text).await?) {
            FitStep::Count(next) => text = next,
            FitStep::Done { text, tokens } => {
                return Ok(Prompt {
                    text,
                    length,
                    unit: LengthUnit::Tokens,
                    counted: Some(tokens),
                });
            }
        }
    }
}

/// A server that counts tokens.
struct Counter<'a> {
    http: &'a HttpClient,
    target: &'a LoadTarget,
    tokenizer: Tokenizer,
}

impl Counter<'_> {
    /// The first request format that the server answers with a count.
    async fn find_tokenizer<'a>(
        http: &'a HttpClient,
        target: &'a LoadTarget,
    ) -> Option<Counter<'a>> {
        for tokenizer in Tokenizer::candidates_for(target.dialect) {
            let counter = Counter {
                http,
                target,
                tokenizer: *tokenizer,
            };
            if counter.count_tokens("The sea is deep.").await.is_ok() {
                return Some(counter);
            }
        }
        None
    }

    async fn count_tokens(&self, text: &str) -> Result<u64, RequestError> {
        let body = self
            .tokenizer
            .request_body(&self.target.model, text)
            .to_string();
        let (status, answer) = self
            .http
            .post_and_read(Tokenizer::PATH, Bytes::from(body), COUNT_PATIENCE)
            .await?;
        let count = self.tokenizer.read_count(&answer).filter(|_| status == 200);
        count.ok_or_else(|| RequestError {
            kind: ErrorKind::Garbage,
            message: format!("{} answered {status} without a count", Tokenizer::PATH),
        })
    }

    /// Approximate tokens per word in this vocabulary.
    async fn tokens_per_word(&self, seed: u64) -> f64 {
        const SAMPLE: u32 = 200;
        let text = prompts::of_words(seed, u64::MAX, SAMPLE);
        match self.count_tokens(&text).await {
            Ok(tokens) => tokens as f64 / f64::from(SAMPLE),
            // Too long for a short model: the prompts are fitted one by one.
            Err(_) => TOKENS_PER_WORD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_run_can_be_stopped_between_uncounted_prompts() {
        let length = Length {
            input: 8,
            output: 1,
        };
        let made = make_prompt(None, 0, 0, length, 1.0).now_or_never();
        assert!(made.is_none(), "it gives way to who stops the run");
    }
}
