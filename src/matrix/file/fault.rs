//! A mistake in the file: at which of its nodes, and what is wrong.

use super::tree::At;

/// A mistake.
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

    /// With another place that belongs to it, unless it is the same one.
    pub fn other(mut self, at: At) -> Fault {
        self.other = Some(at).filter(|at| *at != self.at);
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
