//! Which lines may carry something: one pass over the bytes, before anything is parsed.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};

/// A search for any of some words.
pub struct Words {
    search: Search,
}

enum Search {
    Packed(packed::Searcher),
    // On processors without the vector instructions that `packed` needs.
    Automaton(AhoCorasick),
    // The words were not searchable: then every line counts, which is slow and right.
    Everything,
}

impl Words {
    /// A search for `words`; of two that begin at one place the earlier in the list wins.
    ///
    /// Words of at least four bytes, at most 64 of them: then the search is vectorised.
    pub fn new(words: &[&str]) -> Words {
        let packed = packed::Config::new()
            .match_kind(packed::MatchKind::LeftmostFirst)
            .builder()
            .extend(words)
            .build();
        let automaton = || {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .build(words)
                .map_or(Search::Everything, Search::Automaton)
        };
        Words {
            search: packed.map_or_else(automaton, Search::Packed),
        }
    }

    /// A search for any number of words, of which [`each`](Words::each) finds all, including those
    /// inside others.
    pub fn overlapping(words: &[&str]) -> Words {
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(words);
        Words {
            search: automaton.map_or(Search::Everything, Search::Automaton),
        }
    }

    /// Whether `text` contains one of them.
    pub fn hold(&self, text: &[u8]) -> bool {
        match &self.search {
            Search::Packed(_) => self.find(text).is_some(),
            Search::Automaton(search) => search.is_match(text),
            Search::Everything => true,
        }
    }

    /// Calls `take` with every place of every word of an [`overlapping`](Words::overlapping)
    /// search: which word, and where it ends.
    pub fn each(&self, text: &[u8], mut take: impl FnMut(usize, usize)) {
        if let Search::Automaton(search) = &self.search {
            for found in search.find_overlapping_iter(text) {
                take(found.pattern().as_usize(), found.end());
            }
        }
    }

    /// The first of them: which, and where it ends.
    pub fn find(&self, text: &[u8]) -> Option<(usize, usize)> {
        match &self.search {
            Search::Packed(s) => s.find(text).map(|m| (m.pattern().as_usize(), m.end())),
            Search::Automaton(s) => s.find(text).map(|m| (m.pattern().as_usize(), m.end())),
            Search::Everything => Some((usize::MAX, text.len())),
        }
    }

    /// Whether the search is the fast one.
    #[cfg(test)]
    pub fn vectorised(&self) -> bool {
        matches!(self.search, Search::Packed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_their_order() {
        let words = Words::new(&["cache usage", "cache us", "weights"]);
        assert_eq!(words.find(b"GPU cache usage: 1"), Some((0, 15)));
        assert_eq!(words.find(b"the weights"), Some((2, 11)));
        assert!(!words.hold(b"nothing"));
        assert!(!words.hold(b""));
    }
}
