//! A mistake in the file: at which of its nodes, and what is wrong.

use super::tree::At;

/// A mistake. Its place is looked up when it is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Where.
    pub at: At,
    /// What is wrong.
    pub message: String,
    /// Another place that belongs to it.
    pub other: Option<At>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl Fault {
    pub fn new(at: At, message: impl Into<String>) -> Fault {
        Fault {
            at,
            message: message.into(),
            other: None,
            hints: Vec::new(),
        }
    }

    pub fn other(mut self, at: At) -> Fault {
        self.other = Some(at);
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hints.push(hint.into());
        self
    }

    pub fn maybe(mut self, hint: Option<String>) -> Fault {
        self.hints.extend(hint);
        self
    }
}

/// `did you mean …?`, where one of the known words is near.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let plain = word
        .trim_start_matches('-')
        .to_ascii_lowercase()
        .replace(['-', ' '], "_");
    known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(&plain, k), k))
        .filter(|(near, _)| *near > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, k)| format!("did you mean `{k}`?"))
}
