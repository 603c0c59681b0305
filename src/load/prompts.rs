//! Prompts of words from a fixed list, by seed; fitted to an exact token count if the server counts
//! tokens for us.

use super::random::Random;
use std::sync::LazyLock;

/// Common words, mostly one token each. There are 256, because a prompt's number is written with
/// them as its first words.
static WORDS: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("words.txt").split_whitespace().collect());

/// Endings of a prompt with one or two tokens each, for finer steps than whole words.
const TAILS: [&str; 10] = [" a", "!", " I", "?", " 1", ",", " x", "0", ";", "z"];

/// Words that number a prompt: prompts differ within their first words, so that no prefix cache can
/// answer for them.
const NUMBER_WORDS: usize = 3;

/// Maximum number of token count requests per prompt.
const MOST_TRIES: u32 = 24;

/// An endless sequence of words for prompt `number`.
fn prompt_words(seed: u64, number: u64) -> impl Iterator<Item = &'static str> {
    // The lowest byte first, each rotated by the seed: consecutive prompts differ in their first
    // word.
    let turn = Random::new(seed, 0).next_bits().to_le_bytes();
    let first = (0..NUMBER_WORDS).map(move |k| number.to_le_bytes()[k].wrapping_add(turn[k]));
    let mut random = Random::new(seed, number);
    first
        .chain(std::iter::repeat_with(move || random.next_bits() as u8))
        .map(|n| WORDS[usize::from(n)])
}

/// Prompt `number` of `seed`, with `count` words.
pub fn of_words(seed: u64, number: u64, count: u32) -> String {
    let words: Vec<&str> = prompt_words(seed, number)
        .take(count.max(1) as usize)
        .collect();
    words.join(" ")
}

/// What to do after a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FitStep {
    /// Count this text next.
    Count(String),
    /// The prompt and its token count, which can differ from the requested count if the tokenizer
    /// offers no way to reach it.
    Done {
        /// The prompt.
        text: String,
        /// Its tokens, as counted.
        tokens: u64,
    },
}

/// Fits one prompt to a token count: text out, counts in.
#[derive(Debug)]
pub struct Fitting {
    seed: u64,
    number: u64,
    target: u64,
    words: usize,
    /// Word count known to be too large.
    too_many: usize,
    tail: Vec<&'static str>,
    /// Which tail comes next.
    turn: usize,
    tries: u32,
    nearest: Option<(u64, String)>,
}

impl Fitting {
    /// For prompt `number` of `seed` with `target` tokens, in a vocabulary with about
    /// `tokens_per_word`.
    pub fn new(seed: u64, number: u64, target: u32, tokens_per_word: f64) -> Fitting {
        let words = (f64::from(target) / tokens_per_word.max(0.1)) as usize;
        Fitting {
            seed,
            number,
            target: target.into(),
            words: words.max(1),
            too_many: usize::MAX,
            tail: Vec::new(),
            turn: 0,
            tries: 0,
            nearest: None,
        }
    }

    /// The text as it is.
    pub fn current_text(&self) -> String {
        let mut text = of_words(
            self.seed,
            self.number,
            u32::try_from(self.words).unwrap_or(u32::MAX),
        );
        text.extend(self.tail.iter().copied());
        text
    }

    /// Processes the server's count of [`text`](Self::text).
    pub fn take_count(&mut self, tokens: u64) -> FitStep {
        let off = |tokens: u64| tokens.abs_diff(self.target);
        if self
            .nearest
            .as_ref()
            .is_none_or(|(best, _)| off(tokens) < off(*best))
        {
            self.nearest = Some((tokens, self.current_text()));
        }
        self.tries += 1;
        let stuck = tokens > self.target && self.words == 1 && self.tail.is_empty();
        if tokens == self.target || stuck || self.tries >= MOST_TRIES {
            return match self.nearest.take() {
                Some((tokens, text)) => FitStep::Done { text, tokens },
                None => FitStep::Done {
                    text: self.current_text(),
                    tokens,
                },
            };
        }
        self.adjust_words(tokens);
        FitStep::Count(self.current_text())
    }

    fn adjust_words(&mut self, tokens: u64) {
        let per_word = (tokens as f64 / self.words as f64).max(0.1);
        if tokens > self.target {
            // That tail was too long; the next candidate, which is already due, may fit.
            if self.tail.pop().is_some() {
                return;
            }
            // Prefer a word too few to one too many: the difference is filled by endings.
            self.too_many = self.too_many.min(self.words);
            let over = (tokens - self.target) as f64 / per_word;
            self.words = self
                .words
                .saturating_sub((over.ceil() as usize).max(1))
                .max(1);
            return;
        }
        let missing = (self.target - tokens) as f64 / per_word;
        let room = self.too_many.saturating_sub(self.words + 1);
        if missing >= 1.5 && self.tail.is_empty() && room > 0 {
            // At most doubled: a wrong count must not make the prompt grow without limit.
            self.words += (missing as usize).min(self.words.max(64)).min(room);
        } else {
            self.tail.push(TAILS[self.turn % TAILS.len()]);
            self.turn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_are_all_different() {
        assert_eq!(WORDS.iter().collect::<BTreeSet<_>>().len(), 256);
        assert_eq!(WORDS.len(), 256);
    }

    /// What a tokenizer makes of a text: three kinds of vocabulary, and one that counts nothing.
    fn count(kind: u8, text: &str) -> u64 {
        let bytes = text.len() as u64;
        let pieces = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
        match kind {
            // Bytes, and a token at the beginning.
            0 => bytes + 1,
            // Words, signs apart.
            1 => pieces.count() as u64 + 2,
            // Long words in parts of four letters.
            2 => pieces.map(|p| (p.trim().len() as u64).div_ceil(4)).sum(),
            _ => 7,
        }
    }

    fn fit(seed: u64, number: u64, target: u32, kind: u8) -> (String, u64, u32) {
        let mut fitting = Fitting::new(seed, number, target, 1.3);
        let mut text = fitting.current_text();
        let mut asked = 0;
        loop {
            asked += 1;
            match fitting.take_count(count(kind, &text)) {
                FitStep::Count(next) => text = next,
                FitStep::Done { text, tokens } => {
                    assert_eq!(count(kind, &text), tokens);
                    return (text, tokens, asked);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn prompts_get_exactly_their_tokens(seed: u64, number in 0..1_000_000u64, target in 32..3000u32, kind in 0..3u8) {
            let (text, tokens, asked) = fit(seed, number, target, kind);
            prop_assert_eq!(tokens, u64::from(target));
            prop_assert!(asked <= 20, "{} counts", asked);
            prop_assert_eq!(fit(seed, number, target, kind).0, text);
        }

        #[test]
        fn no_prompt_begins_like_another(seed: u64, a in 0..1u64 << 24, b in 0..1u64 << 24) {
            prop_assume!(a != b);
            let begin = |number| prompt_words(seed, number).take(NUMBER_WORDS).collect::<Vec<_>>();
            prop_assert_ne!(begin(a), begin(b));
            // The next in line differs in the very first word.
            prop_assert_ne!(begin(a)[0], begin(a + 1)[0]);
        }
    }

    #[test]
    fn words_that_were_too_many_are_not_tried_again() {
        // Counted in bytes: a long word at the end is too much, and without it much is missing.
        let (_, tokens, _) = fit(3245381096050602665, 355276, 219, 0);
        assert_eq!(tokens, 219);
    }

    #[test]
    fn a_silent_tokenizer_is_not_asked_for_ever() {
        let (text, tokens, asked) = fit(0, 0, 1000, 3);
        assert_eq!((tokens, asked), (7, MOST_TRIES));
        assert!(text.len() < 100_000);
        // Shorter than one word is not to be had.
        let (text, tokens, asked) = fit(0, 0, 1, 0);
        assert_eq!((text.len() as u64 + 1, asked < MOST_TRIES), (tokens, true));
    }

    #[test]
    fn where_nothing_counts_there_are_words() {
        let text = of_words(0, 7, 100);
        assert_eq!(text.split(' ').count(), 100);
        assert_eq!(text, of_words(0, 7, 100));
        assert_ne!(text, of_words(1, 7, 100));
    }
}
