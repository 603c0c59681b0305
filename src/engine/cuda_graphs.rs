//! Which CUDA graphs TensorRT-LLM's warm-up captured, counted from its log lines.
//!
//! The lines, by release (source: the warm-up of its PyTorch model engine, 0.18 to 1.3):
//!
//! ```text
//! Creating CUDA graph instances for 34 batch sizes.
//! Run generation only CUDA graph warmup for batch size=32                               until 0.21
//! Run generation only CUDA graph warmup for batch size=32, draft_len=4                  1.0
//! Run generation-only CUDA graph warmup for batch size=32, draft_len=4                  1.1
//! Run generation-only CUDA graph warmup for batch size=32, draft_len=4, max_seq_len=64  1.2
//! Run generation-only CUDA graph warmup (greedy) for batch size=32, draft_len=4, …      2026
//! Skipping CUDA graph warmup (greedy) for batch size=32, draft_len=4: not enough KV cache space.
//! ```
//!
//! A series is what one engine object captures. It is printed once by the executor that only
//! estimates the KV pool, again by the final one, and by a draft model's engine as well.

use super::log::figures::after;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// More series than any warm-up has; later ones are ignored.
const MAX_SERIES: usize = 64;
/// Graphs of one series beyond this are not kept.
const MAX_GRAPHS: usize = 65_536;

/// Words before a graph that is captured, in both spellings.
pub const CAPTURED: &[&str] = &[
    "Run generation-only CUDA graph warmup",
    "Run generation only CUDA graph warmup",
];

/// One graph, as its line names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Graph {
    /// Sequences per batch.
    pub batch_size: u64,
    /// Draft tokens; `None` in releases that print no draft length.
    pub draft_len: Option<u64>,
    /// `greedy`, `advanced sampling`; empty where the line has none.
    pub label: String,
    /// Longest sequence, tokens, where the line names it.
    pub max_seq_len: Option<u64>,
}

impl Graph {
    /// The graph that follows the words of [`CAPTURED`].
    pub fn read(rest: &str) -> Option<Graph> {
        let rest = rest.trim_start();
        let (label, rest) = match rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            Some((label, rest)) => (label, rest.trim_start()),
            None => ("", rest),
        };
        let (batch_size, rest) = number(rest.strip_prefix("for batch size=")?)?;
        let value = |name| after(rest, name).and_then(number).map(|(n, _)| n);
        Some(Graph {
            batch_size,
            draft_len: value("draft_len="),
            label: label.chars().take(64).collect(),
            max_seq_len: value("max_seq_len="),
        })
    }
}

/// What one engine object captured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Series {
    announced: bool,
    configured: Option<u64>,
    graphs: BTreeSet<Graph>,
    skipped: BTreeSet<Graph>,
    lines: u64,
}

/// The graphs of the target model's engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphCounts {
    /// Graphs in all.
    pub total: u64,
    /// Graphs by draft length.
    pub by_draft_len: BTreeMap<u64, u64>,
    /// Batch sizes, without doubles.
    pub batch_sizes: Vec<u64>,
}

/// CUDA graphs in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphLog {
    /// Graphs of the target model's engine in its last warm-up.
    pub target: GraphCounts,
    /// The same of draft models' engines, where there are such.
    pub drafts: Vec<GraphCounts>,
    /// Batch sizes that the target was configured for; null where no line states them.
    pub configured_batch_sizes: Option<u64>,
    /// Graphs of the target that were skipped for want of KV cache.
    pub skipped: u64,
    /// Series seen, those of the estimating executor included.
    pub series: u64,
}

/// Counts line by line. Uses bounded memory and never panics.
#[derive(Debug, Clone, Default)]
pub struct GraphCounter {
    series: Vec<Series>,
    /// Series printed before the KV pool was estimated; their graphs are freed again.
    estimating: usize,
}

impl GraphCounter {
    /// Reads one line; an unrelated line costs one search.
    pub fn line(&mut self, line: &str) {
        if of_another_rank(line) {
            return;
        }
        if line.contains("Estimated max memory in KV cache") {
            self.estimating = self.series.len();
        } else if let Some(rest) = after(line, "Creating CUDA graph instances for ") {
            self.begin(Series {
                announced: true,
                configured: number(rest).map(|(n, _)| n),
                ..Series::default()
            });
        } else if let Some((graph, captured)) = graph(line) {
            // An announced series lasts until the next announcement; without announcements, a
            // repeated graph begins a new series.
            let again = self.series.last().is_none_or(|s| {
                !s.announced && (s.graphs.contains(&graph) || s.skipped.contains(&graph))
            });
            // The estimate ended the estimating executor's series.
            if again || self.series.len() == self.estimating {
                self.begin(Series::default());
            }
            if let Some(series) = self.series.last_mut() {
                series.lines = series.lines.saturating_add(1);
                let into = if captured {
                    &mut series.graphs
                } else {
                    &mut series.skipped
                };
                if into.len() < MAX_GRAPHS {
                    into.insert(graph);
                }
            }
        }
    }

    fn begin(&mut self, series: Series) {
        if self.series.len() < MAX_SERIES {
            self.series.push(series);
        }
    }

    /// What the lines showed; `None` if none mentioned graphs. `max_draft_len` is the draft length
    /// in releases that print none.
    pub fn finish(&self, max_draft_len: u64) -> Option<GraphLog> {
        let filled: Vec<&Series> = self.series.iter().filter(|s| s.lines > 0).collect();
        let closed = self.series[..self.estimating.min(self.series.len())]
            .iter()
            .filter(|s| s.lines > 0)
            .count();
        let last = match filled.get(closed..) {
            // All series precede the estimate: there was no second warm-up.
            None | Some([]) => filled.as_slice(),
            Some(rest) => rest,
        };
        let last = second_of_two(last);
        // The target has the longest drafts; where lengths are equal, it is warmed up first.
        let longest = |s: &Series| {
            s.graphs
                .iter()
                .chain(&s.skipped)
                .filter_map(|g| g.draft_len)
                .max()
        };
        let target = (0..last.len()).rev().max_by_key(|&i| longest(last[i]))?;
        let drafts = (0..last.len()).filter(|&i| i != target);
        Some(GraphLog {
            target: counts(last[target], max_draft_len),
            drafts: drafts.map(|i| counts(last[i], 0)).collect(),
            configured_batch_sizes: last[target].configured,
            skipped: last[target]
                .skipped
                .difference(&last[target].graphs)
                .count() as u64,
            series: filled.len() as u64,
        })
    }
}

/// Drops the first half of a list if both halves are equal: the same warm-up, printed twice.
fn second_of_two<'a, 'b>(series: &'b [&'a Series]) -> &'b [&'a Series] {
    let (first, second) = series.split_at(series.len() / 2);
    let same = |(a, b): (&&Series, &&Series)| a.graphs == b.graphs;
    if first.len() == second.len() && first.iter().zip(second).all(same) {
        second
    } else {
        series
    }
}

fn counts(series: &Series, unnamed: u64) -> GraphCounts {
    let mut by_draft_len = BTreeMap::new();
    for graph in &series.graphs {
        *by_draft_len
            .entry(graph.draft_len.unwrap_or(unnamed))
            .or_insert(0) += 1;
    }
    let sizes: BTreeSet<u64> = series.graphs.iter().map(|g| g.batch_size).collect();
    GraphCounts {
        total: series.graphs.len() as u64,
        by_draft_len,
        batch_sizes: sizes.into_iter().collect(),
    }
}

/// Whether a rank other than the first printed the line, which then repeats rank 0's.
fn of_another_rank(line: &str) -> bool {
    after(line, "[RANK ")
        .and_then(number)
        .is_some_and(|(rank, rest)| rank > 0 && rest.starts_with(']'))
}

/// The graph that a line names, and whether it was captured or skipped.
fn graph(line: &str) -> Option<(Graph, bool)> {
    let of = |words: &[&str]| words.iter().find_map(|words| after(line, words));
    match of(CAPTURED) {
        Some(rest) => Some((Graph::read(rest)?, true)),
        None => Some((Graph::read(of(&["Skipping CUDA graph warmup"])?)?, false)),
    }
}

/// The number that a text begins with, and what follows it.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: &str = "[11/21/2026-15:00:00] [TRT-LLM] [I] ";

    fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<GraphLog> {
        let mut counter = GraphCounter::default();
        lines.into_iter().for_each(|l| counter.line(l));
        counter.finish(4)
    }

    fn lines(text: &str) -> Option<GraphLog> {
        read(text.lines())
    }

    /// One graph's line, in the words of an era.
    fn words(era: char, batch_size: u64, draft_len: u64) -> Vec<String> {
        let rest = match era {
            'A' => vec![format!(
                "only CUDA graph warmup for batch size={batch_size}"
            )],
            'B' => vec![format!(
                "only CUDA graph warmup for batch size={batch_size}, draft_len={draft_len}"
            )],
            'C' => vec![format!(
                "-only CUDA graph warmup for batch size={batch_size}, draft_len={draft_len}"
            )],
            'D' => vec![format!(
                "-only CUDA graph warmup for batch size={batch_size}, draft_len={draft_len}, max_seq_len=2048"
            )],
            _ => vec![format!(
                "-only CUDA graph warmup (greedy) for batch size={batch_size}, draft_len={draft_len}, max_seq_len=2048"
            )],
        };
        let join = |r: String| {
            if r.starts_with('-') {
                format!("{STAMP}Run generation{r}")
            } else {
                format!("{STAMP}Run generation {r}")
            }
        };
        rest.into_iter().map(join).collect()
    }

    fn series(era: char, draft_lens: &[u64]) -> Vec<String> {
        let mut all = vec![format!(
            "{STAMP}Creating CUDA graph instances for 34 batch sizes."
        )];
        for draft_len in draft_lens {
            for batch_size in (1..=32).rev() {
                all.extend(words(era, batch_size, *draft_len));
            }
        }
        all
    }

    #[test]
    fn every_era_counts_alike() {
        for era in ['A', 'B', 'C', 'D', 'E'] {
            let set = read(series(era, &[4, 0]).iter().map(String::as_str)).unwrap();
            let unset = read(series(era, &[4]).iter().map(String::as_str)).unwrap();
            assert_eq!(
                unset.target.by_draft_len,
                BTreeMap::from([(4, 32)]),
                "{era}"
            );
            assert_eq!(
                (unset.target.total, unset.configured_batch_sizes),
                (32, Some(34))
            );
            // The first era names no draft length, and prints a second pass in the same words.
            if era != 'A' {
                assert_eq!(
                    set.target.by_draft_len,
                    BTreeMap::from([(0, 32), (4, 32)]),
                    "{era}"
                );
                assert_eq!(set.target.total, 64);
            }
            assert_eq!(set.target.batch_sizes, (1..=32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_series_that_is_printed_twice_counts_once() {
        for between in [
            None,
            Some("[TensorRT-LLM][INFO] Estimated max memory in KV cache : 12.5 GiB"),
        ] {
            let once = series('C', &[4, 0]);
            let mut twice = once.clone();
            twice.extend(between.map(str::to_owned));
            twice.extend(once.clone());
            let log = read(twice.iter().map(String::as_str)).unwrap();
            assert_eq!((log.target.total, log.series, log.drafts.len()), (64, 2, 0));
            // Also where no line announces it.
            let bare: Vec<&str> = twice
                .iter()
                .map(String::as_str)
                .filter(|l| !l.contains("Creating"))
                .collect();
            assert_eq!(read(bare).unwrap().target.total, 64);
        }
        // The estimating executor had no room for all: what stays counts.
        let mut poor = vec![format!(
            "{STAMP}Creating CUDA graph instances for 34 batch sizes."
        )];
        poor.extend(words('C', 1, 4));
        poor.push("Estimated max memory in KV cache : 1.0 GiB".into());
        poor.extend(series('C', &[4]));
        assert_eq!(
            read(poor.iter().map(String::as_str)).unwrap().target.total,
            32
        );
        // Nothing was captured again after the estimate.
        let mut only = series('C', &[4]);
        only.push("Estimated max memory in KV cache : 1.0 GiB".into());
        assert_eq!(
            read(only.iter().map(String::as_str)).unwrap().target.total,
            32
        );
    }

    #[test]
    fn target_and_draft_engines_are_distinguished() {
        let mut both = series('C', &[4, 0]);
        both.extend(series('C', &[0]));
        let log = read(both.iter().map(String::as_str)).unwrap();
        assert_eq!(log.target.by_draft_len, BTreeMap::from([(0, 32), (4, 32)]));
        assert_eq!(log.drafts.len(), 1);
        assert_eq!(log.drafts[0].by_draft_len, BTreeMap::from([(0, 32)]));
        // Both of them twice.
        let mut twice = both.clone();
        twice.extend(both);
        let log = read(twice.iter().map(String::as_str)).unwrap();
        assert_eq!((log.target.total, log.drafts.len(), log.series), (64, 1, 4));
        // Of equal lengths the first is the target's.
        let mut equal = series('C', &[4]);
        equal.extend(
            words('C', 64, 4)
                .into_iter()
                .map(|l| format!("{STAMP}Creating CUDA graph instances for 1 batch sizes.\n{l}")),
        );
        let equal: Vec<&str> = equal.iter().flat_map(|l| l.lines()).collect();
        assert_eq!(read(equal).unwrap().target.total, 32);
    }

    #[test]
    fn labels_and_lengths_are_graphs_of_their_own_and_ranks_are_not() {
        let log = lines(
            "Creating CUDA graph instances for 2 batch sizes.\n\
             Run generation-only CUDA graph warmup (greedy) for batch size=8, draft_len=4, max_seq_len=64\n\
             Run generation-only CUDA graph warmup (greedy) for batch size=8, draft_len=4, max_seq_len=4096\n\
             [11/21/2026-15:00:00] [TRT-LLM] [RANK 1] [I] Run generation-only CUDA graph warmup (greedy) for batch size=9, draft_len=4, max_seq_len=64\n\
             100%|####| 1/1 [TRT-LLM] [I] Run generation-only CUDA graph warmup (advanced sampling) for batch size=8, draft_len=4, max_seq_len=64\n\
             Skipping CUDA graph warmup (greedy) for batch size=16, draft_len=4: not enough KV cache space.\n\
             Run piecewise CUDA graph warmup for num tokens=8192\n",
        )
        .unwrap();
        assert_eq!(log.target.by_draft_len, BTreeMap::from([(4, 3)]));
        assert_eq!((log.target.batch_sizes, log.skipped), (vec![8], 1));
        assert_eq!(
            lines("nothing\nRun piecewise CUDA graph warmup for num tokens=8\n"),
            None
        );
        assert_eq!(
            lines("Creating CUDA graph instances for 3 batch sizes."),
            None
        );
    }

    proptest! {
        #[test]
        fn never_panics_and_the_parts_sum(lines in proptest::collection::vec(
            prop_oneof![
                "(Run generation-only CUDA graph warmup|Skipping CUDA graph warmup)( \\([a-z]{0,4}\\)?)? for batch size=[0-9]{0,22}(, draft_len=[0-9]{0,2})?",
                "Creating CUDA graph instances for [0-9]{0,3}",
                "Estimated max memory in KV cache \\PC{0,9}",
                "\\PC{0,40}",
            ], 0..40)) {
            if let Some(log) = read(lines.iter().map(String::as_str)) {
                prop_assert_eq!(log.target.by_draft_len.values().sum::<u64>(), log.target.total);
            }
        }
    }
}
