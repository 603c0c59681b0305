//! One response as it arrives: events and their times in, the figures of a row out. No I/O, no
//! clock.

use super::protocol::{self, EventContent};
use crate::capture::{AtNs, ErrorKind, RequestError, RequestRow, TokenSource};
use crate::engine::Dialect;

/// Limit on events with content, as a multiple of the requested tokens, against endless streams:
/// some servers stream half tokens.
const EVENTS_PER_TOKEN: u64 = 4;
/// The same for short outputs.
const EVENTS_AT_LEAST: u64 = 1024;

/// Maximum length of a finish reason, characters.
const LONGEST_REASON: usize = 64;

/// An answer in the making.
#[derive(Debug)]
pub struct ResponseRecord {
    row: RequestRow,
    done: bool,
    /// Whether any event of the protocol arrived.
    pub anything: bool,
    fault: Option<(ErrorKind, String)>,
}

impl ResponseRecord {
    /// For the response to the request in `row`.
    pub fn to_request(row: RequestRow) -> ResponseRecord {
        ResponseRecord {
            row,
            done: false,
            anything: false,
            fault: None,
        }
    }

    /// It was sent.
    pub fn note_sent(&mut self, at: AtNs) {
        self.row.sent_at_ns = Some(at);
    }

    /// A status came.
    pub fn note_status(&mut self, status: u16) {
        self.row.status = Some(status);
    }

    /// An event came.
    pub fn note_event(&mut self, dialect: Dialect, at: AtNs, data: &str) {
        if self.done || self.fault.is_some() || data.is_empty() {
            return;
        }
        match protocol::read_event(dialect, data) {
            Ok(piece) => self.piece(at, piece),
            Err(()) => {
                // The caller redacts it before shortening it.
                self.fault = Some((ErrorKind::Garbage, format!("no event of this API: {data}")));
            }
        }
    }

    fn piece(&mut self, at: AtNs, piece: EventContent) {
        let row = &mut self.row;
        self.anything = true;
        if let Some(error) = piece.error {
            self.fault = Some((ErrorKind::Server, error));
            return;
        }
        if piece.content {
            row.events += 1;
            match row.last_at_ns.replace(at) {
                None => row.first_at_ns = Some(at),
                Some(last) => row
                    .gaps_us
                    .push(u64::try_from((at - last) / 1000).unwrap_or(0)),
            }
            let most = u64::from(row.output_asked) * EVENTS_PER_TOKEN;
            if row.events > most.max(EVENTS_AT_LEAST) {
                let words = format!(
                    "{} events for {} tokens asked, and no end",
                    row.events, row.output_asked
                );
                self.fault = Some((ErrorKind::TooLong, words));
                return;
            }
        }
        row.input_tokens = piece.input_tokens.or(row.input_tokens);
        row.output_tokens = piece.output_tokens.or(row.output_tokens);
        if let Some(reason) = piece.finish_reason {
            row.finish_reason = Some(reason.chars().take(LONGEST_REASON).collect());
        }
        self.done |= piece.done;
    }

    /// The first error in the stream, if any.
    pub fn first_fault(&self) -> Option<(ErrorKind, &str)> {
        self.fault
            .as_ref()
            .map(|(kind, words)| (*kind, words.as_str()))
    }

    /// Whether the server marked the end of the stream.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the answer is whole.
    pub fn is_complete(&self) -> bool {
        self.done || self.row.finish_reason.is_some()
    }

    /// It is over.
    pub fn note_end(&mut self, at: AtNs, error: Option<RequestError>) {
        self.row.ended_at_ns = at;
        self.row.error = error;
    }

    /// The row; tokens are counted by events if the server does not report them.
    pub fn into_row(self) -> RequestRow {
        let mut row = self.row;
        row.output_source = match (row.output_tokens, row.events) {
            (Some(_), _) => Some(TokenSource::Usage),
            (None, 0) => None,
            (None, events) => {
                row.output_tokens = Some(events);
                Some(TokenSource::Events)
            }
        };
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(events: &[(AtNs, &str)]) -> ResponseRecord {
        let mut answer = ResponseRecord::to_request(RequestRow {
            output_asked: 4,
            ..RequestRow::default()
        });
        answer.note_sent(0);
        for (at, data) in events {
            answer.note_event(Dialect::Completions, *at, data);
        }
        answer
    }

    const TOKEN: &str = r#"{"choices":[{"text":"x"}]}"#;
    const EMPTY: &str = r#"{"choices":[{"text":""}]}"#;
    const LAST: &str = r#"{"choices":[{"text":"x","finish_reason":"length"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8}}"#;

    #[test]
    fn moments_of_an_answer() {
        let mut a = answer(&[
            (1_000_000, EMPTY),
            (5_000_000, TOKEN),
            (7_000_000, TOKEN),
            (8_000_000, LAST),
            (9_000_000, USAGE),
            (9_500_000, "[DONE]"),
        ]);
        assert!(a.is_complete());
        a.note_end(9_600_000, None);
        let row = a.into_row();
        // An event without content is no token that anybody sees.
        assert_eq!((row.ttft_ms(), row.e2e_ms()), (Some(5.0), 8.0));
        assert_eq!((row.events, row.gaps_us.as_slice()), (3, &[2000, 1000][..]));
        // Eight tokens in three events: the usage counts.
        assert_eq!(
            (row.output_tokens, row.output_source),
            (Some(8), Some(TokenSource::Usage))
        );
        assert_eq!(row.tpot_ms(), Some(3.0 / 7.0));
        assert_eq!(
            (row.input_tokens, row.finish_reason.as_deref()),
            (Some(9), Some("length"))
        );
    }

    #[test]
    fn without_a_usage_events_are_counted_and_that_is_noted() {
        let row = answer(&[(1, TOKEN), (2, LAST)]).into_row();
        assert_eq!(
            (row.output_tokens, row.output_source),
            (Some(2), Some(TokenSource::Events))
        );
        let row = answer(&[]).into_row();
        assert_eq!(
            (row.output_tokens, row.output_source, row.tpot_ms()),
            (None, None, None)
        );
    }

    #[test]
    fn a_stream_without_an_end_is_given_up() {
        let events: Vec<(AtNs, &str)> = (0..5000).map(|i| (i, TOKEN)).collect();
        let a = answer(&events);
        assert_eq!(a.first_fault().unwrap().0, ErrorKind::TooLong);
        assert!(a.into_row().events <= EVENTS_AT_LEAST + 1);
    }

    #[test]
    fn what_is_no_event_ends_it() {
        assert_eq!(
            answer(&[(1, TOKEN), (2, "<html>")])
                .first_fault()
                .unwrap()
                .0,
            ErrorKind::Garbage
        );
        let a = answer(&[(1, r#"{"error":{"message":"no room"}}"#)]);
        assert_eq!(a.first_fault(), Some((ErrorKind::Server, "no room")));
        assert!(!answer(&[(1, TOKEN)]).is_complete());
    }
}
