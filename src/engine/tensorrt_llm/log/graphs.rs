//! CUDA graphs: which were captured, by batch size, draft length, label and sequence length. Their
//! bytes are printed nowhere.

use super::whole;
use crate::engine::cuda_graphs::Graph;
use crate::engine::facts::{Fact, FactKey, FactValue, Severity, key};
use crate::engine::log::Line;
use crate::engine::log::figures::after;
use crate::engine::log::sheet::Sheet;
use std::collections::BTreeSet;

/// Series and graphs of one series kept.
const MOST: usize = 4096;

/// Signs of the largest number of requests with speculation, in every spelling.
pub const MAX_CONCURRENCY: &[&str] = &[
    "max_concurrency=",
    "max_concurrency': ",
    "max_concurrency: ",
];

/// What one engine captured in one go.
#[derive(Default)]
struct Series {
    rank: Option<u64>,
    configured: Option<u64>,
    graphs: BTreeSet<Graph>,
    first: Option<(String, Option<i64>)>,
    last: Option<Graph>,
    quotes: Vec<String>,
}

/// The series of a start.
#[derive(Default)]
pub struct Graphs {
    series: Vec<Series>,
    /// Whether the profile has ended, so that its executor's series are separate from the final
    /// one's.
    estimated: bool,
    /// The line that shows that speculation can be switched off at run time, if seen.
    max_concurrency: Option<String>,
    piecewise: BTreeSet<u64>,
}

impl Graphs {
    /// The profile has ended, on the first rank or on `rank`: the executor that captured graphs for
    /// it is freed.
    pub fn estimated(&mut self, first: bool, rank: Option<u64>) {
        // Keeps what other ranks captured after the first one's end.
        self.series
            .retain(|s| !first && (rank.is_none() || s.rank != rank));
        if first {
            self.piecewise.clear();
        }
        self.estimated = true;
    }

    /// Out of memory. A graph is announced before its capture, so whether the last one succeeded is
    /// unknown.
    pub fn interrupted(&mut self) {
        if let Some(series) = self.series.last_mut() {
            if let Some(last) = series.last.take() {
                series.graphs.remove(&last);
            }
        }
    }

    /// A series begins.
    pub fn begin(&mut self, rest: &str, rank: Option<u64>) {
        if let Some(n) = whole(rest) {
            if self.series.len() >= MOST {
                self.series.remove(0);
            }
            self.series.push(Series {
                rank,
                configured: Some(n),
                ..Series::default()
            });
        }
    }

    /// A graph of the prefill.
    pub fn piecewise(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        let size = after(rest, "num tokens=").or(after(rest, "batch size="));
        if let Some(n) = size.and_then(whole) {
            if self.piecewise.len() < MOST && self.piecewise.insert(n) {
                let count = self.piecewise.len() as u64;
                sheet.count(key::cuda_graphs_piecewise, count, line, "Run piecewise");
            }
        }
    }

    /// A graph is not captured.
    pub fn skipped(&mut self, line: &Line<'_>, sheet: &mut Sheet) {
        let (key, sign) = (key::cuda_graphs_skipped, "Skipping CUDA graph");
        let before = sheet.number(key).unwrap_or(0.0);
        sheet.count(key, before as u64 + 1, line, sign);
        let message = "some CUDA graphs were not captured; such batches run without";
        sheet.finding(key.name(), Severity::Warning, message, line, sign);
    }

    /// Notes a line that shows that speculation can be switched off.
    pub fn max_concurrency(&mut self, line: &Line<'_>) {
        let limit = MAX_CONCURRENCY
            .iter()
            .find_map(|name| after(line.text, name));
        if limit.and_then(whole).is_some() {
            self.max_concurrency = Some(line.quote("max_concurrency"));
        }
    }

    /// A graph is captured.
    pub fn captured(&mut self, rest: &str, rank: Option<u64>, line: &Line<'_>) {
        let Some(graph) = Graph::read(rest) else {
            return;
        };
        if self.series.is_empty() {
            self.series.push(Series {
                rank,
                ..Series::default()
            });
        }
        // The series of this rank, else of lines without a rank.
        let own = self.series.iter().rposition(|s| s.rank == rank);
        let last = self.series.len() - 1;
        let series = &mut self.series[own.unwrap_or(last)];
        if series.graphs.len() < MOST && series.graphs.insert(graph.clone()) {
            if series.quotes.len() < 64 {
                series.quotes.push(line.quote("Run generation"));
            }
            series
                .first
                .get_or_insert((line.quote("Run generation"), line.at));
            series.last = Some(graph);
        }
    }

    /// The final series: of the lowest rank and the final executor, each once.
    fn standing(&self) -> Vec<&Series> {
        let filled = || self.series.iter().filter(|s| !s.graphs.is_empty());
        let Some(rank) = filled().map(|s| s.rank).min() else {
            return Vec::new();
        };
        let mut standing: Vec<&Series> = Vec::new();
        for series in filled().filter(|s| s.rank == rank) {
            if !standing.iter().any(|s| s.graphs == series.graphs) {
                standing.push(series);
            }
        }
        // Without the end of the profile its series cannot be distinguished: the last one counts.
        if !self.estimated {
            standing.drain(..standing.len().saturating_sub(1));
        }
        standing
    }

    /// Writes the facts.
    pub fn conclude(&self, sheet: &mut Sheet) {
        let standing = self.standing();
        for (series, key) in standing
            .iter()
            .zip([key::cuda_graphs, key::draft_cuda_graphs])
        {
            put(
                key,
                FactValue::Int(series.graphs.len() as i64),
                series,
                sheet,
            );
        }
        let Some(target) = standing.first() else {
            return;
        };
        let distinct =
            |values: BTreeSet<u64>| FactValue::List(values.into_iter().map(|v| v as f64).collect());
        let sizes: BTreeSet<u64> = target.graphs.iter().map(|g| g.batch_size).collect();
        let drafts: BTreeSet<u64> = target.graphs.iter().filter_map(|g| g.draft_len).collect();
        // Batch sizes beyond the largest batch are configured and not captured.
        let whole_series =
            target.configured.is_some_and(|n| sizes.len() as u64 >= n) || sheet.ready();
        put(key::cuda_graph_batch_sizes, distinct(sizes), target, sheet);
        if drafts.is_empty() {
            return;
        }
        if let Some(quote) = self
            .max_concurrency
            .as_ref()
            .filter(|_| whole_series && !drafts.contains(&0))
        {
            let line = Line {
                text: quote,
                ..Line::default()
            };
            sheet.finding(
                "no_graphs_without_speculation",
                Severity::Warning,
                "speculation is switched off above max_concurrency, and no CUDA graph of draft length 0 was captured: such batches run without graphs (a fault of releases of late 2025)",
                &line,
                "max_concurrency",
            );
        }
        put(key::cuda_graph_draft_lens, distinct(drafts), target, sheet);
    }
}

fn put(key: FactKey, value: FactValue, series: &Series, sheet: &mut Sheet) {
    let at_ns = series.first.as_ref().and_then(|(_, at)| *at);
    let quote = series.quotes.clone();
    sheet.conclude(key, Fact::new(value, quote, at_ns));
}
