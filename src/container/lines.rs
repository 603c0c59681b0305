//! Splits frames into whole lines: Docker splits output anywhere, and parsers need lines.

use crate::capture::Stream;

/// Maximum length of a line, bytes; the excess is counted and dropped.
pub const LONGEST_LINE: usize = 64 * 1024;

/// A truncated line also loses its last word, if that is at most this long, bytes.
const LONGEST_WORD: usize = 1024;

/// Docker's log drivers split lines at this length, bytes; each piece but the last has no newline
/// and repeats the line's timestamp.
pub const LOG_CUT: usize = 16 * 1024;

/// Splits a byte stream into lines at `\n`, `\r\n` and lone `\r`.
///
/// Repaints of a progress bar (`\r`-terminated) are separate lines; empty repaints are dropped. The
/// lines do not depend on the chunks of bytes.
#[derive(Debug, Default)]
pub struct LineCutter {
    kept: Vec<u8>,
    cut: usize,
    after: After,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum After {
    #[default]
    Text,
    /// After a `\r`: the `\n` of `\r\n` may follow, which is not a second line.
    Piece,
    /// After a `\r` that may have split a secret: if a word continues after it, the line continues
    /// too, so that the redactor sees both parts.
    Torn,
    /// After a `\r` on an empty line: with `\n` it is an empty line, alone it is nothing.
    Nothing,
}

impl LineCutter {
    /// Adds bytes; `emit` receives each completed line.
    pub fn feed_bytes(&mut self, mut bytes: &[u8], mut emit: impl FnMut(String)) {
        while let Some(next) = bytes.first() {
            if self.after == After::Torn {
                self.after = After::Piece;
                if is_of_a_word(next) {
                    self.keep_bytes(b"\r")
                } else {
                    emit(self.take_line())
                }
            }
            let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) else {
                break;
            };
            self.keep_bytes(&bytes[..at]);
            let empty = self.kept.is_empty() && self.cut == 0;
            if bytes[at] == b'\n' {
                if !(empty && self.after == After::Piece) {
                    emit(self.take_line());
                }
                self.after = After::Text;
            } else if empty {
                self.after = if self.after == After::Piece {
                    After::Piece
                } else {
                    After::Nothing
                };
            } else if self.ends_like_a_token() {
                self.after = After::Torn;
            } else {
                emit(self.take_line());
                self.after = After::Piece;
            }
            bytes = &bytes[at + 1..];
        }
        self.keep_bytes(bytes);
    }

    /// Whether the kept bytes end in a possible part of a secret: letters with a digit or a hyphen.
    fn ends_like_a_token(&self) -> bool {
        let end = self.kept.iter().rev().take_while(|b| is_of_a_word(b));
        let (letters, others): (Vec<u8>, Vec<u8>) = end.copied().partition(u8::is_ascii_alphabetic);
        !letters.is_empty() && !others.is_empty() && letters.len() + others.len() >= 4
    }

    /// Ends the stream: `emit` receives the text without a newline.
    pub fn finish_line(&mut self, emit: impl FnOnce(String)) {
        if !self.kept.is_empty() || self.cut > 0 {
            emit(self.take_line());
        }
        self.after = After::Text;
    }

    fn keep_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.after = After::Text;
        let room = LONGEST_LINE
            .saturating_sub(self.kept.len())
            .min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.cut += bytes.len() - room;
    }

    fn take_line(&mut self) -> String {
        if self.cut > 0 {
            // The last word may be the beginning of a secret, which is recognised only when
            // complete.
            let end = self.kept.len().saturating_sub(LONGEST_WORD);
            let blank = |b: &u8| b.is_ascii_whitespace() || b"\"'".contains(b);
            let kept = self.kept[end..]
                .iter()
                .rposition(blank)
                .map_or(end, |at| end + at);
            self.cut += self.kept.len() - kept;
            self.kept.truncate(kept);
        }
        let mut line = String::from_utf8_lossy(&self.kept).into_owned();
        if self.cut > 0 {
            line.push_str(&format!(" [{} more bytes cut]", self.cut));
        }
        self.kept.clear();
        self.cut = 0;
        line
    }
}

fn is_of_a_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(byte)
}

/// A line cutter for each stream of one exec.
#[derive(Debug, Default)]
pub struct ExecLines {
    out: LineCutter,
    err: LineCutter,
    console: LineCutter,
}

impl ExecLines {
    /// Adds a frame; `emit` receives each completed line.
    pub fn feed_frame(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        mut emit: impl FnMut(Stream, String),
    ) {
        self.cutter_for(stream)
            .feed_bytes(bytes, |line| emit(stream, line));
    }

    /// Ends the output.
    pub fn finish_lines(&mut self, mut emit: impl FnMut(Stream, String)) {
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Console] {
            self.cutter_for(stream)
                .finish_line(|line| emit(stream, line));
        }
    }

    fn cutter_for(&mut self, stream: Stream) -> &mut LineCutter {
        match stream {
            Stream::Stdout => &mut self.out,
            Stream::Stderr => &mut self.err,
            Stream::Console => &mut self.console,
        }
    }
}

/// A line of a container's log as the driver stored it, with any `\r`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Wall time, nanoseconds since the Unix epoch.
    pub wall_ns: i64,
    /// Its stream.
    pub stream: Stream,
    /// Text without timestamp and newline.
    pub text: Vec<u8>,
    /// Bytes dropped because the line was too long.
    pub cut: usize,
}

impl LogEntry {
    /// Its lines: one, or the repaints of a progress bar.
    pub fn each_line(&self, mut emit: impl FnMut(String)) {
        if self.text.is_empty() && self.cut == 0 {
            return emit(String::new());
        }
        let mut cutter = LineCutter::default();
        let mut lines = 0_usize;
        cutter.feed_bytes(&self.text, |line| {
            lines += 1;
            emit(line);
        });
        cutter.cut += self.cut;
        cutter.finish_line(|line| {
            lines += 1;
            emit(line);
        });
        // Only carriage returns: still a line of the log.
        if lines == 0 {
            emit(String::new());
        }
    }
}

/// Assembles log lines from frames with timestamps.
#[derive(Debug, Default)]
pub struct LogAssembler {
    tty: bool,
    /// Podman splits lines anywhere, and the pieces have different timestamps.
    loose: bool,
    open: [Option<Open>; 3],
    /// Raw bytes of a terminal's log up to the next newline.
    raw: Vec<u8>,
    /// Timestamp of the previous entry, for a line without one.
    last_ns: i64,
}

#[derive(Debug)]
struct Open {
    entry: LogEntry,
    stamp: Vec<u8>,
    last_piece: usize,
}

impl LogAssembler {
    /// For a container with or without a terminal; `loose` for podman.
    pub fn new(tty: bool, loose: bool) -> Self {
        LogAssembler {
            tty,
            loose,
            ..LogAssembler::default()
        }
    }

    /// Adds a frame; `emit` receives each completed entry.
    pub fn feed_frame(&mut self, stream: Stream, frame: &[u8], mut emit: impl FnMut(LogEntry)) {
        if self.tty || stream == Stream::Console {
            return self.feed_raw(frame, emit);
        }
        // Docker sends one line (or piece) per frame; several are accepted.
        for piece in frame.split_inclusive(|b| *b == b'\n') {
            self.piece(stream, piece, &mut emit);
        }
    }

    /// Ends the log: `emit` receives the open entries.
    pub fn finish_entries(&mut self, mut emit: impl FnMut(LogEntry)) {
        for slot in &mut self.open {
            if let Some(open) = slot.take() {
                emit(open.entry);
            }
        }
        if !self.raw.is_empty() {
            let raw = std::mem::take(&mut self.raw);
            self.raw_line(&raw, emit);
        }
    }

    /// Drops the open entries: the follow starts again and repeats them.
    pub fn reset_streams(&mut self) {
        self.open = Default::default();
        self.raw.clear();
    }

    fn piece(&mut self, stream: Stream, piece: &[u8], emit: &mut impl FnMut(LogEntry)) {
        let ended = piece.ends_with(b"\n");
        let piece = &piece[..piece.len() - usize::from(ended)];
        let (stamp, text) = split_stamp(piece);
        let loose = self.loose;
        let slot = &mut self.open[stream as usize];
        // A last line without newline is open too; output after a restart of the container must not
        // be appended to it.
        let continues = slot.as_ref().is_some_and(|open| {
            loose
                || stamp.is_none()
                || open.last_piece >= LOG_CUT
                || stamp.is_some_and(|s| s.0 == open.stamp)
        });
        if !continues {
            if let Some(open) = slot.take() {
                emit(open.entry);
            }
        }
        if let Some((_, ns)) = stamp {
            self.last_ns = ns;
        }
        let open = slot.get_or_insert_with(|| Open {
            entry: LogEntry {
                wall_ns: self.last_ns,
                stream,
                text: Vec::new(),
                cut: 0,
            },
            stamp: stamp.map(|s| s.0.to_vec()).unwrap_or_default(),
            last_piece: 0,
        });
        let room = LONGEST_LINE
            .saturating_sub(open.entry.text.len())
            .min(text.len());
        open.entry.text.extend_from_slice(&text[..room]);
        open.entry.cut += text.len() - room;
        open.last_piece = text.len();
        // A short piece without newline is the last before a restart: Docker splits at LOG_CUT
        // only.
        let complete = ended || (!loose && text.len() < LOG_CUT);
        if complete {
            if let Some(open) = slot.take() {
                emit(open.entry);
            }
        }
    }

    fn feed_raw(&mut self, mut bytes: &[u8], mut emit: impl FnMut(LogEntry)) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let line = if self.raw.is_empty() {
                bytes[..at].to_vec()
            } else {
                self.raw.extend_from_slice(&bytes[..at]);
                std::mem::take(&mut self.raw)
            };
            self.raw_line(&line, &mut emit);
            bytes = &bytes[at + 1..];
        }
        // Limits memory for a terminal that never sends a newline.
        let room = (16 * LONGEST_LINE)
            .saturating_sub(self.raw.len())
            .min(bytes.len());
        self.raw.extend_from_slice(&bytes[..room]);
    }

    fn raw_line(&mut self, line: &[u8], mut emit: impl FnMut(LogEntry)) {
        let (stamp, text) = split_stamp(line);
        let mut text = text.to_vec();
        if let Some((stamp, ns)) = stamp {
            self.last_ns = ns;
            // The pieces of a long line are separated only by timestamps.
            let mut at = LOG_CUT;
            while text
                .get(at..)
                .is_some_and(|t| t.starts_with(stamp) && t.get(stamp.len()) == Some(&b' '))
            {
                text.drain(at..=at + stamp.len());
                at += LOG_CUT;
            }
        }
        if text.ends_with(b"\r") {
            text.pop();
        }
        let cut = text.len().saturating_sub(LONGEST_LINE);
        text.truncate(LONGEST_LINE);
        emit(LogEntry {
            wall_ns: self.last_ns,
            stream: Stream::Console,
            text,
            cut,
        });
    }
}

/// Splits `2026-11-21T10:00:00.123456789Z text`; `None` when it does not begin with a timestamp.
fn split_stamp(line: &[u8]) -> (Option<(&[u8], i64)>, &[u8]) {
    // An empty line may lack the space.
    let end = memchr::memchr(b' ', &line[..line.len().min(64)]).unwrap_or(line.len());
    match parse_stamp(&line[..end]) {
        Some(ns) => (
            Some((&line[..end], ns)),
            line.get(end + 1..).unwrap_or_default(),
        ),
        None => (None, line),
    }
}

/// An RFC 3339 timestamp as nanoseconds since the Unix epoch.
pub fn parse_stamp(stamp: &[u8]) -> Option<i64> {
    if stamp.len() < 20 || stamp[4] != b'-' || stamp[10] != b'T' {
        return None;
    }
    let at: jiff::Timestamp = std::str::from_utf8(stamp).ok()?.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut cutter = LineCutter::default();
        for chunk in chunks {
            cutter.feed_bytes(chunk, |l| lines.push(l));
        }
        cutter.finish_line(|l| lines.push(l));
        lines
    }

    #[test]
    fn lines_and_repaints_are_cut() {
        assert_eq!(cut(&[b"a\nb\r\n\r\nc\n\nd"]), ["a", "b", "", "c", "", "d"]);
        assert_eq!(
            cut(&[b"is hf_abcd\r", b"efgh\nx"]),
            ["is hf_abcd\refgh", "x"]
        );
        assert_eq!(
            cut(&[b"at 5s\rnext hf_ab\r\nlast hf_ab\r"]),
            ["at 5s", "next hf_ab", "last hf_ab"]
        );
        assert_eq!(
            cut(&[b"\r 10%", b"\r 20%\r", b"\n", b"done\n"]),
            [" 10%", " 20%", "done"]
        );
        assert_eq!(cut(&[b"tty\r\r\nnext\r\r\n"]), ["tty", "next"]);
    }

    #[test]
    fn a_line_is_bounded_and_marked_as_cut() {
        let long = vec![b'x'; LONGEST_LINE + 100];
        let lines = cut(&[&long, b"\nshort\n"]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with(" [1124 more bytes cut]") && lines[0].len() < LONGEST_LINE + 40);
        assert_eq!(lines[1], "short");
        let mut secret = vec![b'x'; LONGEST_LINE - 30];
        secret.extend(b" HF_TOKEN=hf_0123456789012345678901234567890123456789");
        let lines = cut(&[&secret]);
        assert!(
            lines[0].ends_with("xxx [53 more bytes cut]"),
            "{}",
            &lines[0][65_400..]
        );
    }

    fn entries(a: &mut LogAssembler, frames: &[(Stream, Vec<u8>)]) -> Vec<(i64, String)> {
        let mut got = Vec::new();
        for (s, f) in frames {
            a.feed_frame(*s, f, |e| e.each_line(|l| got.push((e.wall_ns, l))));
        }
        a.finish_entries(|e| e.each_line(|l| got.push((e.wall_ns, l))));
        got
    }

    const T1: &str = "2026-11-21T10:00:00.000000001Z";
    const T2: &str = "2026-11-21T10:00:00.000000002Z";

    #[test]
    fn a_long_log_line_is_put_together_across_frames() {
        let x = "x".repeat(LOG_CUT);
        let frames = [
            (Stream::Stdout, format!("{T1} {x}").into_bytes()),
            (Stream::Stderr, format!("{T1} between\n").into_bytes()),
            (Stream::Stdout, format!("{T1} {x}").into_bytes()),
            (Stream::Stdout, format!("{T1} end\n").into_bytes()),
        ];
        let got = entries(&mut LogAssembler::new(false, false), &frames);
        assert_eq!(got.len(), 2);
        assert_eq!(got[0].1, "between");
        assert_eq!(got[1].1, format!("{x}{x}end"));
        assert_eq!(got[1].0 % 1_000_000_000, 1);
    }

    #[test]
    fn a_tail_without_newline_is_not_glued_to_the_next_life() {
        let frames = [
            (Stream::Stdout, format!("{T1} tail").into_bytes()),
            (Stream::Stdout, format!("{T2} boot\n").into_bytes()),
        ];
        let got = entries(&mut LogAssembler::new(false, false), &frames);
        assert_eq!(
            got.iter().map(|g| g.1.as_str()).collect::<Vec<_>>(),
            ["tail", "boot"]
        );
        // Podman cuts anywhere, so there it is one line.
        let got = entries(&mut LogAssembler::new(false, true), &frames);
        assert_eq!(
            got.iter().map(|g| g.1.as_str()).collect::<Vec<_>>(),
            ["tailboot"]
        );
    }

    #[test]
    fn a_terminal_log_is_raw_text() {
        let x = "x".repeat(LOG_CUT);
        let text = format!("{T1} hello\r\n{T2} {x}{T2} rest\r\n{T2} \r\n");
        for size in [1, 7, 1000, 100_000] {
            let frames: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|c| (Stream::Console, c.to_vec()))
                .collect();
            let got = entries(&mut LogAssembler::new(true, false), &frames);
            let texts: Vec<_> = got.iter().map(|g| g.1.as_str()).collect();
            assert_eq!(texts, ["hello", format!("{x}rest").as_str(), ""]);
        }
    }

    #[test]
    fn stamps_are_read_with_and_without_offset() {
        assert_eq!(parse_stamp(b"1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
        assert_eq!(
            parse_stamp(b"1970-01-01T01:00:01.000000007+01:00"),
            Some(1_000_000_007)
        );
        assert_eq!(parse_stamp(b"hello"), None);
        assert_eq!(
            parse_stamp(b"0001-01-01T00:00:00Z"),
            None,
            "Docker's zero time does not fit nanoseconds"
        );
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(text in "([a-zé]{0,5}|\r|\n|\r\n){0,30}", cuts in proptest::collection::vec(0usize..80, 0..10)) {
            let bytes = text.as_bytes();
            let whole = cut(&[bytes]);
            let mut at: Vec<usize> = cuts.into_iter().filter(|c| *c <= bytes.len()).chain([0, bytes.len()]).collect();
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(cut(&chunks), whole);
        }

        #[test]
        fn text_survives_cutting(lines in proptest::collection::vec("[a-z ]{0,10}", 0..10)) {
            let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
            prop_assert_eq!(cut(&[text.as_bytes()]), lines);
        }
    }
}
