//! The frames of a command's output, also after a broken connection.

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
