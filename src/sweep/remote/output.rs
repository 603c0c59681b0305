//! The output of another machine, line by line and harmless to a terminal, with bounds.

use crate::report::layout::clean_text;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A longer line is passed in pieces, bytes.
const LONGEST_LINE: usize = 1 << 20;
/// So much of an answer or a complaint is kept, bytes.
const KEPT: u64 = 256 << 10;

/// Bytes as they come, returned as lines.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    begun: Vec<u8>,
}

impl LineBuffer {
    /// The lines that are whole now, each without its end.
    pub(super) fn whole_lines(&mut self, bytes: &[u8]) -> Vec<String> {
        self.begun.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', &self.begun) {
            Some(at) => at + 1,
            None if self.begun.len() > LONGEST_LINE => self.begun.len(),
            None => 0,
        };
        let rest = self.begun.split_off(whole);
        harmless(&std::mem::replace(&mut self.begun, rest))
    }

    /// The output after the last line's end.
    pub(super) fn last_lines(&mut self) -> Vec<String> {
        harmless(&std::mem::take(&mut self.begun))
    }
}

fn harmless(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| clean_text(line, true)).collect()
}

/// The beginning of what a pipe brings; the rest is read, so that who writes it goes on, and dropped.
pub(super) async fn read_beginning(pipe: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    (&mut *pipe).take(KEPT).read_to_end(&mut beginning).await?;
    tokio::io::copy(pipe, &mut tokio::io::sink()).await?;
    Ok(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_move_no_cursor() {
        let mut lines = LineBuffer::default();
        let sent = "{\"a\": 1}\n\u{1b}]0;title\u{7}Gr\u{fc}\u{df}e\u{202e}\n  end";
        let mut received = Vec::new();
        for byte in sent.as_bytes() {
            received.extend(lines.whole_lines(&[*byte]));
        }
        received.extend(lines.last_lines());
        assert_eq!(received, ["{\"a\": 1}", "]0;titleGr\u{fc}\u{df}e", "  end"]);
        assert!(lines.last_lines().is_empty());
        for _ in 0..2000 {
            lines.whole_lines(&[b'x'; 1000]);
        }
        assert!(lines.begun.len() <= LONGEST_LINE);
    }

    #[tokio::test]
    async fn of_a_flood_the_beginning_is_kept() {
        let mut flood = tokio::io::repeat(b'x').take(64 << 20);
        let kept = read_beginning(&mut flood).await.unwrap();
        assert_eq!(kept.len() as u64, KEPT);
        assert_eq!(flood.limit(), 0, "all of it was read");
    }
}
