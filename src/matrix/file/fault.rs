//! A mistake in the file: at which of its nodes, and what is wrong.

use super::tree::NodePlace;

/// A mistake.
#[derive(Debug, Clone, PartialEq)]
pub struct FileFault {
    /// Where.
    pub at: NodePlace,
    /// What is wrong.
    pub message: String,
    /// Another place that belongs to it.
    pub other: Option<NodePlace>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl FileFault {
    pub fn new(at: NodePlace, message: impl Into<String>) -> FileFault {
        FileFault {
            at,
            message: message.into(),
            other: None,
            hints: Vec::new(),
        }
    }

    /// With another place that belongs to it, unless it is the same one.
    pub fn with_other(mut self, at: NodePlace) -> FileFault {
        self.other = Some(at).filter(|at| *at != self.at);
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> FileFault {
        self.hints.push(hint.into());
        self
    }

    pub fn with_hint_if(mut self, hint: Option<String>) -> FileFault {
        self.hints.extend(hint);
        self
    }
}
