//! Parses server-sent events from bytes in any chunks, with limits on every size.

use memchr::memchr2;

/// Maximum length of a line and of an event's data, bytes. A token needs some hundred.
pub const LONGEST_EVENT: usize = 256 * 1024;

/// A line or an event is longer than [`LONGEST_EVENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Parses a stream of events (the format of the HTML standard). Only `data` is used: engines use no
/// other fields.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return, which a line feed may follow.
    after_return: bool,
    begun: bool,
}

impl SseReader {
    /// Adds bytes; `event` receives the data of each completed event.
    pub fn push_bytes(
        &mut self,
        mut bytes: &[u8],
        mut event: impl FnMut(&str),
    ) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                return self.keep_bytes(bytes);
            };
            self.keep_bytes(&bytes[..end])?;
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.line_ends(&mut event)?;
        }
        Ok(())
    }

    /// The stream is over: by the standard, text without a closing empty line is not an event, but
    /// some servers omit the last empty line.
    pub fn end_stream(&mut self, mut event: impl FnMut(&str)) -> Result<(), TooLong> {
        if !self.line.is_empty() {
            self.line_ends(&mut event)?;
        }
        self.dispatch(&mut event);
        Ok(())
    }

    fn keep_bytes(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > LONGEST_EVENT {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ends(&mut self, event: &mut impl FnMut(&str)) -> Result<(), TooLong> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            self.dispatch(event);
        } else if let Some(value) = line.strip_prefix(b"data") {
            let value = match value {
                [] => Some(value),
                [b':', b' ', rest @ ..] | [b':', rest @ ..] => Some(rest),
                // Another field with the same prefix.
                _ => None,
            };
            if let Some(value) = value {
                if self.data.len() + value.len() > LONGEST_EVENT {
                    return Err(TooLong);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
        }
        // Keeps the allocation.
        line.clear();
        self.line = line;
        Ok(())
    }

    fn dispatch(&mut self, event: &mut impl FnMut(&str)) {
        if std::mem::take(&mut self.has_data) {
            event(&String::from_utf8_lossy(&self.data));
            self.data.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(chunks: &[&[u8]]) -> Result<Vec<String>, TooLong> {
        let mut reader = SseReader::default();
        let mut all = Vec::new();
        for chunk in chunks {
            reader.push_bytes(chunk, |e| all.push(e.to_owned()))?;
        }
        reader.end_stream(|e| all.push(e.to_owned()))?;
        Ok(all)
    }

    #[test]
    fn events_of_the_servers_that_there_are() {
        assert_eq!(
            events(&[b"data: {\"a\":1}\n\ndata: [DONE]\n\n"]).unwrap(),
            ["{\"a\":1}", "[DONE]"]
        );
        // TGI leaves the space out; others send comments, names and ids; some end without a line.
        assert_eq!(
            events(&[
                b"data:{}\n\n: ping\n\nevent: x\r\nid: 3\r\ndata: a\r\ndata: b\r\n\r\ndata: end"
            ])
            .unwrap(),
            ["{}", "a\nb", "end"]
        );
        assert_eq!(
            events(&[b"\xef\xbb\xbfdata: x\r\rdatum: y\n\n"]).unwrap(),
            ["x"]
        );
        assert_eq!(events(&[b"", b"\n\n\n"]).unwrap(), [""; 0]);
    }

    #[test]
    fn an_endless_line_and_an_endless_event_are_refused() {
        let block = vec![b'x'; 4096];
        let mut reader = SseReader::default();
        let refused = (0..1000).position(|_| reader.push_bytes(&block, |_| ()).is_err());
        assert_eq!(refused, Some(LONGEST_EVENT / 4096));
        let mut reader = SseReader::default();
        let line = [b"data: ", block.as_slice(), b"\n"].concat();
        assert!((0..1000).any(|_| reader.push_bytes(&line, |_| ()).is_err()));
        assert!(reader.data.len() <= LONGEST_EVENT);
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(
            text in proptest::collection::vec(
                proptest::sample::select(vec!["data: ", "data:", "é", "x", "\n", "\r", "\r\n", ": c", "\n\n", "id"]),
                0..60,
            ),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        ) {
            let bytes = text.concat().into_bytes();
            let whole = events(&[&bytes]);
            let mut at: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for to in at {
                chunks.push(&bytes[from..to]);
                from = to;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(events(&chunks), whole);
        }
    }
}
