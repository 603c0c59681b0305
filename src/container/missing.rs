//! Distinguishes a program missing from the image from one that failed.

/// The beginning of a command's output, where a runtime reports a missing program.
#[derive(Default)]
pub struct OutputHead(Vec<u8>);

impl OutputHead {
    /// Adds output, up to the length of the head.
    pub fn keep_bytes(&mut self, bytes: &[u8]) {
        let room = 2048_usize.saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend_from_slice(&bytes[..room]);
    }

    /// The runtime's message, if it reports a missing program.
    pub fn missing_program(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.0);
        text.lines()
            .map(str::trim)
            .find(|l| is_missing_program(l))
            .map(str::to_owned)
    }
}

/// Whether this is the runtime (or `timeout`) reporting that it cannot run the program. A shell
/// reports a missing command in other words; that is the command's own failure.
pub fn is_missing_program(text: &str) -> bool {
    text.contains("OCI runtime exec failed")
        || text.contains("OCI runtime attempted to invoke a command that was not found")
        || text.contains("executable file not found")
        || (text.contains("timeout: ")
            && (text.contains("failed to run command") || text.contains("can't execute")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_distinguished_from_a_failing_one() {
        for text in [
            r#"OCI runtime exec failed: exec failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown"#,
            "timeout: failed to run command \u{2018}vllm\u{2019}: No such file or directory",
            "timeout: can't execute 'vllm': No such file or directory",
        ] {
            let mut head = OutputHead::default();
            head.keep_bytes(text.as_bytes());
            assert_eq!(head.missing_program().as_deref(), Some(text));
        }
        for text in [
            "sh: 1: nope: not found",
            "Traceback: FileNotFoundError",
            "request timeout: 3",
        ] {
            assert!(!is_missing_program(text), "{text}");
        }
    }
}
