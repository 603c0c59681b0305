//! How well a line explains a failure.

/// How well a line explains a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A warning about the probable cause.
    Hint,
    /// Follows from the failure of another process.
    Consequence,
    /// A process died for an unknown reason.
    Death,
    /// An error of the process itself.
    Cause,
    /// An error that names the memory that was missing.
    Memory,
}

/// A line that explains a failure.
#[derive(Debug, Clone)]
pub struct Cause {
    /// How well.
    pub weight: Weight,
    /// The line.
    pub quote: String,
}

/// Whether `message` is the last line of a Python traceback: `module.SomeError: text` or
/// `SomeError`.
pub fn is_exception(message: &str) -> bool {
    let class = message.split(':').next().unwrap_or_default();
    let name = class.rsplit('.').next().unwrap_or_default();
    class.len() < 120
        && !class.contains(' ')
        && class
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_'))
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && ["Error", "Exception", "Interrupt", "Terminated", "Exit"]
            .iter()
            .any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_told_from_prose() {
        for message in [
            "ValueError: x",
            "torch.OutOfMemoryError: CUDA out of memory.",
            "AssertionError",
            "OSError: y",
        ] {
            assert!(is_exception(message), "{message}");
        }
        for message in [
            "raise ValueError(",
            "x.py:138: FutureWarning: y",
            "Error in memory",
            "Exception: Call to f failed, see: ValueError: x"
                .split_at(11)
                .1,
            "UserWarning: Both",
        ] {
            assert!(!is_exception(message), "{message}");
        }
    }
}
