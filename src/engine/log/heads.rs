//! Where in a line an engine's message begins: behind whatever prefix, and never inside a quoted
//! text, so that a prompt that a request log repeats says nothing.

use super::words::Words;

/// Bytes that may stand before a message: date, ranks, a collector's fields, a progress bar.
const LONGEST_PREFIX: usize = 512;

/// The beginnings of messages, each with what it is.
pub struct Heads<K: 'static> {
    words: Words,
    table: &'static [(&'static str, K)],
}

/// A message that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a, K> {
    /// What it is.
    pub kind: K,
    /// What stands before it.
    pub prefix: &'a str,
    /// Its beginning, as in the table.
    pub head: &'static str,
    /// What follows its beginning.
    pub rest: &'a str,
}

impl<K: Copy> Heads<K> {
    /// A search for the beginnings in `table`, of which an earlier one wins where two begin at one
    /// place. Four bytes and up, at most 64 of them, as [`Words`] has it.
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
