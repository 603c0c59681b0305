//! A bounded reader of lines: any log, of any length, in constant memory.

use super::LogParser;
use super::facts::LogReport;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes of one line that are kept; the rest of a longer line is skipped. The longest line that
/// carries facts is an engine's configuration, some 10 kB.
pub const LONGEST_LINE: usize = 64 * 1024;

/// Bytes of UTF-16 that are decoded at once.
const UTF16_BYTES: u64 = 64 * 1024;

/// Feeds every line of `reader` to `parser` and returns its report.
///
/// Streams: holds at most [`LONGEST_LINE`] bytes of a line. A reader with a large buffer (256 KiB)
/// avoids copies. Lines end in `\n` or `\r\n`; the last one may lack its end.
pub fn parse_reader<R: BufRead>(parser: &mut dyn LogParser, reader: R) -> io::Result<LogReport> {
    each_line(reader, |line, ended| {
        let line = if ended { line } else { without_cut_word(line) };
        parser.line(line, None);
    })?;
    Ok(parser.report())
}

/// A last line without an end may have lost the rest of its last word, and half a number is a
/// wrong number: that word is left out. A closing bracket or quote shows that a word is whole.
fn without_cut_word(line: &[u8]) -> &[u8] {
    let whole = |b: &u8| matches!(b, b'}' | b']' | b')' | b'"' | b'\'' | b'>');
    if line.last().is_none_or(whole) {
        return line;
    }
    let last = line.iter().rposition(u8::is_ascii_whitespace);
    &line[..last.map_or(0, |at| at + 1)]
}

/// Calls `take` with every line of `reader`, without its end, cut to [`LONGEST_LINE`] bytes.
pub fn for_each_line<R: BufRead>(reader: R, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    each_line(reader, |line, _| take(line))
}

/// The same, with whether the line's end was seen. UTF-16 with its mark is read as well: `>` of
/// Windows PowerShell writes it.
fn each_line<R: BufRead>(mut reader: R, take: impl FnMut(&[u8], bool)) -> io::Result<()> {
    let mut mark = Vec::new();
    reader.by_ref().take(2).read_to_end(&mut mark)?;
    let unit = match mark.as_slice() {
        [0xff, 0xfe] => u16::from_le_bytes,
        [0xfe, 0xff] => u16::from_be_bytes,
        _ => return split_lines(mark.as_slice().chain(reader), take),
    };
    let decoded = Utf16 {
        reader,
        unit,
        half: None,
        text: VecDeque::new(),
    };
    split_lines(BufReader::new(decoded), take)
}

/// UTF-16, read as UTF-8.
struct Utf16<R> {
    reader: R,
    /// By the order of its bytes.
    unit: fn([u8; 2]) -> u16,
    /// The first half of a character whose second is not read yet.
    half: Option<u16>,
    text: VecDeque<u8>,
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.text.is_empty() {
            let mut bytes = Vec::new();
            (self.reader.by_ref().take(UTF16_BYTES)).read_to_end(&mut bytes)?;
            let read = bytes.chunks_exact(2).map(|b| (self.unit)([b[0], b[1]]));
            let mut units: Vec<u16> = self.half.take().into_iter().chain(read).collect();
            self.half = units.pop_if(|unit| matches!(unit, 0xd800..=0xdbff));
            self.text = String::from_utf16_lossy(&units).into_bytes().into();
        }
        self.text.read(buffer)
    }
}

fn split_lines<R: BufRead>(mut reader: R, mut take: impl FnMut(&[u8], bool)) -> io::Result<()> {
    // Holds a line that spans two fillings of the reader's buffer; whole lines are not copied.
    let mut partial: Vec<u8> = Vec::new();
    let mut in_line = false;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if buffer.is_empty() {
            if in_line {
                take(without_cr(&partial), false);
            }
            return Ok(());
        }
        let mut rest = buffer;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if in_line {
                keep(&mut partial, line);
                take(without_cr(&partial), true);
                partial.clear();
                in_line = false;
            } else {
                take(without_cr(&line[..line.len().min(LONGEST_LINE)]), true);
            }
            rest = after;
        }
        if !rest.is_empty() {
            keep(&mut partial, rest);
            in_line = true;
        }
        let used = buffer.len();
        reader.consume(used);
    }
}

fn keep(partial: &mut Vec<u8>, more: &[u8]) {
    let room = LONGEST_LINE.saturating_sub(partial.len());
    partial.extend_from_slice(&more[..more.len().min(room)]);
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn lines(text: &[u8], buffer: usize) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for_each_line(BufReader::with_capacity(buffer, text), |l| {
            lines.push(l.to_vec())
        })
        .unwrap();
        lines
    }

    #[test]
    fn lines_are_the_same_whatever_the_buffer() {
        let text = b"one\r\ntwo\n\nlast without end";
        for buffer in 1..30 {
            assert_eq!(
                lines(text, buffer),
                [b"one".as_slice(), b"two", b"", b"last without end"],
                "buffer of {buffer}"
            );
        }
    }

    #[test]
    fn utf_16_is_read_in_either_order() {
        // The pair of the last character lies across what is decoded at once.
        let line = "x".repeat(UTF16_BYTES as usize / 2 - 5) + "\r\nGiB \u{1f600}";
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            let units = "\u{feff}".encode_utf16().chain(line.encode_utf16());
            let text: Vec<u8> = units.flat_map(order).collect();
            for buffer in [1, 4096] {
                let lines = lines(&text, buffer);
                assert_eq!(lines[1], "GiB \u{1f600}".as_bytes());
                assert_eq!((lines.len(), lines[0].last()), (2, Some(&b'x')));
            }
        }
    }

    #[test]
    fn of_a_line_without_end_the_last_word_may_be_half() {
        assert_eq!(without_cut_word(b"blocks to 106"), b"blocks to ");
        assert_eq!(without_cut_word(b"106"), b"");
        assert_eq!(without_cut_word(b"{\"blocks\":106}"), b"{\"blocks\":106}");
        assert_eq!(without_cut_word(b"sizes [2, 1]"), b"sizes [2, 1]");
        assert_eq!(without_cut_word(b""), b"");
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        let mut text = vec![b'x'; 3 * LONGEST_LINE];
        text.extend_from_slice(b"\nnext\n");
        for buffer in [64, 4096, 4 * LONGEST_LINE] {
            let lines = lines(&text, buffer);
            assert_eq!(lines.len(), 2);
            assert_eq!(lines[0].len(), LONGEST_LINE);
            assert_eq!(lines[1], b"next");
        }
    }
}
