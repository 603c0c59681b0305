//! The result of a failed command: an exit code, a sentence, and hints.

macro_rules! exit_codes {
    ($($(#[$meaning:meta])* $id:ident = $code:literal, $words:literal;)*) => {
        /// Exit codes, as documented in docs/GUIDE.md.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ExitCode {
            $($(#[$meaning])* $id = $code,)*
        }

        impl ExitCode {
            /// Every code with its meaning in a few words, as `-h` lists them.
            pub const ALL: &[(ExitCode, &str)] = &[$((ExitCode::$id, $words),)*];
        }
    };
}

exit_codes! {
    /// Done.
    Done = 0, "done";
    /// A bug in plimsoll.
    Internal = 1, "internal";
    /// Bad arguments or configuration.
    Usage = 2, "usage";
    /// The outside world: no Docker, no such container, no GPU though one was asked for.
    Environment = 3, "environment";
    /// The measured run failed: bench non-zero, engine died, out of memory, deadline.
    RunFailed = 4, "the measured run failed";
    /// Some cells of a sweep failed.
    Partial = 5, "some cells failed";
    /// What was asked about does not fit into the memory.
    DoesNotFit = 6, "does not fit";
    /// A difference or an error is larger than `--fail-on` allows.
    Exceeded = 7, "beyond --fail-on";
    /// Not everything that is stuck could be cleaned.
    CleanIncomplete = 8, "clean incomplete";
    /// `why` found no cause.
    NoCause = 9, "no cause found";
    /// Interrupted by the user.
    Interrupted = 130, "interrupted";
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        std::process::ExitCode::from(code as u8)
    }
}

/// What to do about an error that no [`Failure`] explains.
const REPORT_BUG: &str =
    "this looks like a bug in plimsoll: please report it with the output of `plimsoll doctor`";

/// A user or environment error with hints. Anything else is a bug.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Exit code.
    pub code: ExitCode,
    /// One sentence, lower case, no full stop; the object in backticks.
    pub message: String,
    /// What to do about it; each a sentence.
    pub hints: Vec<String>,
    /// What caused it.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Failure {
    /// A failure without hints.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Failure {
            code,
            message: message.into(),
            hints: Vec::new(),
            source: None,
        }
    }

    /// Bad arguments or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    /// The outside world.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Environment, message)
    }

    /// The measured run.
    pub fn run(message: impl Into<String>) -> Self {
        Self::new(ExitCode::RunFailed, message)
    }

    /// What cannot happen unless plimsoll is wrong.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Internal, message).hint(REPORT_BUG)
    }

    /// Adds advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds the cause.
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The failure with its cause, in one sentence.
    pub fn describe_with_cause(&self) -> String {
        match &self.source {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}

/// An error and its causes in one sentence: the first message of an HTTP library alone explains little.
pub fn describe_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

/// The exit code and hints that an error carries, wherever in its chain the [`Failure`] is.
pub fn exit_verdict(error: &anyhow::Error) -> (ExitCode, Vec<String>) {
    match error.chain().find_map(|e| e.downcast_ref::<Failure>()) {
        Some(f) => (f.code, f.hints.clone()),
        None => (ExitCode::Internal, vec![REPORT_BUG.into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_every_exit_code() {
        let guide = include_str!("../docs/GUIDE.md");
        for (code, words) in ExitCode::ALL {
            let row = format!("\n| {} |", *code as u8);
            assert!(
                guide.contains(&row),
                "docs/GUIDE.md has no row for `{words}`"
            );
        }
    }
}
