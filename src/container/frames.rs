//! The frames of a command's output, also after a broken connection.
//!
//! Distinguishes a program missing from the image from one that failed.

use crate::capture::Stream;
use bollard::container::LogOutput;
use bollard::errors::Error;
use futures::StreamExt;
use std::ops::ControlFlow;
use std::pin::Pin;

/// A command's output as it arrives.
pub(super) type Frames = Pin<Box<dyn futures::Stream<Item = Result<LogOutput, Error>> + Send>>;

/// A frame's stream and bytes.
pub(super) fn stream_parts(frame: &LogOutput) -> (Stream, &[u8]) {
    let stream = match frame {
        LogOutput::StdErr { .. } => Stream::Stderr,
        LogOutput::StdOut { .. } | LogOutput::StdIn { .. } => Stream::Stdout,
        LogOutput::Console { .. } => Stream::Console,
    };
    (stream, frame.as_ref())
}

/// The same of a command's frame; `None` for a remnant of a broken connection (a console frame, as our commands have
/// no terminal).
pub(super) fn frame_parts(frame: &LogOutput) -> Option<(Stream, &[u8])> {
    Some(stream_parts(frame)).filter(|(stream, _)| *stream != Stream::Console)
}

/// Delivers output that arrives after stopping is no longer possible.
pub(super) fn hand_on(
    frame: Option<&LogOutput>,
    sink: &mut impl FnMut(Stream, &[u8]) -> ControlFlow<()>,
) {
    if let Some((kind, bytes)) = frame.and_then(frame_parts) {
        let _ = sink(kind, bytes);
    }
}

/// The next frame; never resolves after the last one.
pub(super) async fn next_frame(output: &mut Option<Frames>) -> Option<LogOutput> {
    match next_frame_or_end(output).await {
        Some(frame) => Some(frame),
        None => std::future::pending().await,
    }
}

pub(super) async fn next_frame_or_end(output: &mut Option<Frames>) -> Option<LogOutput> {
    match output.as_mut()?.next().await {
        Some(Ok(frame)) => Some(frame),
        _ => {
            *output = None;
            None
        }
    }
}

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
