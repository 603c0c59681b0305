//! Finds where an engine's message begins in a line: behind any prefix, but never inside quotes, so
//! that a logged prompt is not read as a message.

use super::words::Words;

/// Longest prefix of a message, bytes: date, ranks, a collector's fields, a progress bar.
const LONGEST_PREFIX: usize = 512;

/// The beginnings of messages, each with its kind.
pub struct Heads<K: 'static> {
    words: Words,
    table: &'static [(&'static str, K)],
}

/// A message that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a, K> {
    /// Kind, from the table.
    pub kind: K,
    /// Text before the message.
    pub prefix: &'a str,
    /// Its beginning, as in the table.
    pub head: &'static str,
    /// What follows its beginning.
    pub rest: &'a str,
}

impl<K: Copy> Heads<K> {
    /// A search for the beginnings in `table`; of two that begin at one place the earlier in the
    /// table wins. At least four bytes each and at most 64 of them, as [`Words`] requires.
    pub fn new(table: &'static [(&'static str, K)]) -> Heads<K> {
        let words: Vec<&str> = table.iter().map(|(head, _)| *head).collect();
        Heads {
            words: Words::new(&words),
            table,
        }
    }

    /// The beginnings that it searches for.
    #[cfg(test)]
    pub fn signs(&self) -> impl Iterator<Item = &'static str> {
        self.table.iter().map(|(head, _)| *head)
    }

    /// The first message of a line.
    pub fn find<'a>(&self, text: &'a str) -> Option<Message<'a, K>> {
        let (index, end) = self.words.find(text.as_bytes())?;
        let (head, kind) = self.table.get(index)?;
        let prefix = text.get(..end.checked_sub(head.len())?)?;
        let quoted = prefix.contains(['"', '\'', '`', '{']);
        (prefix.len() <= LONGEST_PREFIX && !quoted).then_some(Message {
            kind: *kind,
            prefix,
            head,
            rest: text.get(end..)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_prefix_and_not_inside_quotes() {
        let heads = Heads::new(&[("Load weight end", 1), ("Load weight", 2)]);
        let found = |text| heads.find(text).map(|m| (m.kind, m.prefix, m.rest));
        assert_eq!(
            found("[10:00 TP1] Load weight end. x"),
            Some((1, "[10:00 TP1] ", ". x"))
        );
        assert_eq!(found("Load weight begin"), Some((2, "", " begin")));
        assert_eq!(found("Receive: text='Load weight end. x'"), None);
        assert_eq!(found("{\"prompt\": Load weight"), None);
        assert_eq!(found("é Load weight é"), Some((2, "é ", " é")));
        assert_eq!(found(""), None);
        assert_eq!(found(&("x".repeat(600) + "Load weight end")), None);
    }
}
