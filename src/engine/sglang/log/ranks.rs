//! Which rank wrote a line, and the shape in which figures by rank are reported.

use crate::engine::facts::{Fact, FactKey, FactValue};
use crate::engine::log::sheet::{Sheet, latest};
use std::collections::BTreeMap;

/// Who wrote a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankId {
    /// No tag: a server on one GPU, or a line of the main process.
    Bare,
    /// `[gpu_id=1]` (0.2), `Rank 1:` (0.1).
    Device(u32),
    /// `TP0`, `DP1 TP1 EP1`, `PP0 TP3`: the tag as printed.
    Named(String),
}

impl RankId {
    /// The rank that the text before a message names.
    pub fn of(prefix: &str) -> RankId {
        for sign in ["[gpu_id=", "Rank "] {
            if let Some(at) = prefix.rfind(sign) {
                let digits = &prefix[at + sign.len()..];
                let end = digits
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(digits.len());
                if let Ok(n) = digits[..end].parse() {
                    return RankId::Device(n);
                }
            }
        }
        let words = prefix.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let tags: Vec<&str> = words.filter(|w| is_tag(w)).collect();
        if tags.is_empty() || tags.len() > 8 {
            RankId::Bare
        } else {
            RankId::Named(tags.join(" "))
        }
    }

    /// Whether nothing in it is beyond the first.
    pub fn is_first(&self) -> bool {
        match self {
            RankId::Bare => true,
            RankId::Device(n) => *n == 0,
            RankId::Named(tag) => tag.split(' ').all(|part| part.ends_with("P0")),
        }
    }
}

/// `TP0`, `EP12`, `ATTN_CP0`: a kind of parallelism and a number.
fn is_tag(word: &str) -> bool {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
    name.len() < word.len()
        && word.len() < 20
        && name.ends_with('P')
        && name.len() > 1
        && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// One figure of each rank.
pub type ByRank = BTreeMap<RankId, Fact>;

/// Shape of figures by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One rank: the figure itself.
    One,
    /// Ranks known by number only: a list in their order.
    List,
    /// A record by tag.
    Record,
}

impl Shape {
    /// The shape for the ranks seen; `world` is their number according to the log, if known.
    pub fn of<'a>(ranks: impl Iterator<Item = &'a RankId>, world: Option<u64>) -> Shape {
        let ranks: Vec<&RankId> = ranks.filter(|r| **r != RankId::Bare).collect();
        let many = ranks.len() > 1 || world.is_some_and(|n| n > 1) && !ranks.is_empty();
        match ranks.first() {
            Some(RankId::Device(_)) => Shape::List,
            Some(rank) if many || !rank.is_first() => Shape::Record,
            _ => Shape::One,
        }
    }

    /// Puts `figures` on the sheet. `listed`: free memory at a moment is a list even of one rank.
    pub fn write_figures(self, sheet: &mut Sheet, key: FactKey, figures: &ByRank, listed: bool) {
        let shown: Vec<(&RankId, &Fact)> = figures
            .iter()
            // Among tagged ranks, a line without a tag cannot be attributed.
            .filter(|(rank, _)| self == Shape::One || **rank != RankId::Bare)
            .collect();
        let numbers = || shown.iter().filter_map(|(_, f)| f.value.number()).collect();
        let value = match (self, shown.as_slice()) {
            (_, []) => return,
            (Shape::One, [.., (_, fact)]) => match fact.value.number() {
                Some(v) if listed => FactValue::List(vec![v]),
                _ => fact.value.clone(),
            },
            (Shape::List, _) => FactValue::List(numbers()),
            (Shape::Record, _) => FactValue::Record(
                shown
                    .iter()
                    .map(|(rank, f)| (label(rank), f.value.clone()))
                    .collect(),
            ),
        };
        if matches!(&value, FactValue::List(list) if list.is_empty()) {
            return;
        }
        let facts: Vec<&Fact> = shown.iter().map(|(_, f)| *f).collect();
        let quotes = match self {
            Shape::One => facts.last().map(|f| f.quote.clone()).unwrap_or_default(),
            _ => facts
                .iter()
                .flat_map(|f| f.quote.iter().cloned())
                .take(64)
                .collect(),
        };
        let at_ns = latest(&facts);
        sheet.conclude(key, Fact::new(value, quotes, at_ns));
    }
}

fn label(rank: &RankId) -> String {
    match rank {
        RankId::Bare => String::new(),
        RankId::Device(n) => n.to_string(),
        RankId::Named(tag) => tag.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_every_dress() {
        let named = |tag: &str| RankId::Named(tag.to_owned());
        for (prefix, rank) in [
            ("[2031-01-02 03:04:05] ", RankId::Bare),
            ("[2031-01-02 03:04:05 TP11] ", named("TP11")),
            (
                "[2031-01-02 03:04:05.123 DP1 TP1 EP1] ",
                named("DP1 TP1 EP1"),
            ),
            ("[2031-01-02 03:04:05 ATTN_CP0 TP2] ", named("ATTN_CP0 TP2")),
            ("[gpu_id=3] ", RankId::Device(3)),
            ("Rank 2: ", RankId::Device(2)),
            ("eng-1  | [2031-01-02 03:04:05 PP0 TP3] ", named("PP0 TP3")),
            ("", RankId::Bare),
        ] {
            assert_eq!(RankId::of(prefix), rank, "{prefix}");
        }
    }
}
