//! CUDA graphs: their memory by rank and kind, and how many were captured.

use super::ranks::{ByRank, RankId, Shape};
use crate::engine::facts::{EngineStep, Fact, FactValue, key};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, gib_after};
use crate::engine::log::sheet::Sheet;
use std::collections::BTreeMap;

/// Model and phase of the graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The model's decode (or verify) graphs.
    Target,
    /// The model's prefill graphs, piecewise.
    Prefill,
    /// The draft model's, of speculative decoding.
    Draft,
}

/// The captured graphs so far.
#[derive(Debug, Clone, Default)]
pub struct Graphs {
    /// Memory by kind, phase as printed, and rank.
    used: BTreeMap<(Kind, String), ByRank>,
    before: ByRank,
    after: ByRank,
    configured: BTreeMap<Kind, Fact>,
    captured: BTreeMap<Kind, Fact>,
    /// The graphs that rank 0 captures now; only its progress bar is drawn.
    now: Option<Kind>,
    /// A progress bar at its end.
    bar: Option<Fact>,
}

/// Number of items in `[1, 2, 4]`; `None` where the list is cut off.
fn items(list: &str) -> Option<i64> {
    let inside = list.trim_start().strip_prefix('[')?.split_once(']')?.0;
    let items = inside.split(',').filter(|i| !i.trim().is_empty());
    i64::try_from(items.count()).ok().filter(|n| *n > 0)
}

impl Graphs {
    /// Reads what follows `Capture `.
    pub fn message(&mut self, rest: &str, rank: &RankId, line: &Line<'_>, sheet: &mut Sheet) {
        let Some(at) = rest.find(" graph ").filter(|at| *at < 40) else {
            return;
        };
        let phase = rest[..at].to_ascii_lowercase();
        let kind = match phase.as_str() {
            p if p.contains("draft") => Kind::Draft,
            p if p.contains("piecewise") || p.contains("prefill") => Kind::Prefill,
            _ => Kind::Target,
        };
        let tail = &rest[at + " graph ".len()..];
        let listed = || after(tail, "bs=").or_else(|| after(tail, "num_tokens="));
        if tail.starts_with("begin") {
            if rank.is_first() {
                (self.now, self.bar) = (Some(kind), None);
            }
            if let (Kind::Target, Some(v)) = (kind, gib_after(tail, "avail mem=")) {
                let fact = line.fact(FactValue::Float(v), "avail mem=");
                self.before.entry(rank.clone()).or_insert(fact);
            }
            self.configure(kind, listed(), line);
        } else if tail.starts_with("end") {
            self.configure(kind, listed(), line);
            self.end(kind, phase, tail, rank, line);
            sheet.step(EngineStep::GraphsCaptured, line, "Capture ");
        } else if let Some(list) = tail.strip_prefix("bs ") {
            self.configure(self.now.unwrap_or(kind), Some(list), line);
        } else if let Some(list) = tail.strip_prefix("num tokens ") {
            self.configure(Kind::Prefill, Some(list), line);
        }
    }

    fn configure(&mut self, kind: Kind, list: Option<&str>, line: &Line<'_>) {
        if let Some(n) = list.and_then(items) {
            let fact = line.fact(FactValue::Int(n), "[");
            self.configured.entry(kind).or_insert(fact);
        }
    }

    fn end(&mut self, kind: Kind, phase: String, tail: &str, rank: &RankId, line: &Line<'_>) {
        if let Some(v) = gib_after(tail, "mem usage=") {
            if self.used.len() < 16 || self.used.contains_key(&(kind, phase.clone())) {
                let by_rank = self.used.entry((kind, phase)).or_default();
                by_rank.insert(rank.clone(), line.fact(FactValue::Float(v), "mem usage="));
            }
        }
        if let (Kind::Target, Some(v)) = (kind, gib_after(tail, "avail mem=")) {
            let fact = line.fact(FactValue::Float(v), "avail mem=");
            self.after.insert(rank.clone(), fact);
        }
        // A completed progress bar counts the captured graphs; without one, the list does.
        let ours = self.now.is_none_or(|now| now == kind);
        let bar = self.bar.take_if(|_| ours);
        if let Some(count) = bar.or_else(|| self.configured.get(&kind).cloned()) {
            self.captured.entry(kind).or_insert(count);
        }
        if rank.is_first() {
            self.now = None;
        }
    }

    /// Reads what follows `Capturing batches`: `… 100%|██████████| 36/36 [00:11<00:00]`.
    pub fn bar(&mut self, rest: &str, line: &Line<'_>) {
        let counts = rest.split('|').nth(2).unwrap_or_default();
        let Some((done, of)) = counts.trim_start().split_once('/') else {
            return;
        };
        let of = of.split(' ').next().unwrap_or_default();
        let done: Option<i64> = done.trim().parse().ok();
        if let Some(n) = done.filter(|n| Ok(*n) == of.parse()) {
            self.bar = Some(line.fact(FactValue::Int(n), "Capturing batches"));
        }
    }

    /// Every rank that captured.
    pub fn ranks(&self) -> impl Iterator<Item = &RankId> {
        let used = self.used.values().flat_map(BTreeMap::keys);
        used.chain(self.before.keys()).chain(self.after.keys())
    }

    /// Writes the facts.
    pub fn conclude(&self, shape: Shape, sheet: &mut Sheet) {
        shape.write_figures(sheet, key::avail_before_graph_gib, &self.before, true);
        shape.write_figures(sheet, key::avail_after_graph_gib, &self.after, true);
        for (kind, key) in [
            (Kind::Target, key::cuda_graph_gib),
            (Kind::Prefill, key::cuda_graph_prefill_gib),
            (Kind::Draft, key::draft_cuda_graph_gib),
        ] {
            let mut sum = ByRank::new();
            for by_rank in self.used.iter().filter(|((k, _), _)| *k == kind) {
                for (rank, more) in by_rank.1 {
                    add(&mut sum, rank, more);
                }
            }
            shape.write_figures(sheet, key, &sum, false);
        }
        for (counts, target, prefill) in [
            (
                &self.configured,
                key::cuda_graph_batch_sizes_configured,
                key::cuda_graph_prefill_sizes_configured,
            ),
            (&self.captured, key::cuda_graphs, key::cuda_graphs_prefill),
        ] {
            for (kind, key) in [(Kind::Target, target), (Kind::Prefill, prefill)] {
                if let Some(fact) = counts.get(&kind) {
                    sheet.conclude(key, fact.clone());
                }
            }
        }
    }
}

/// Adds to a rank's figure.
pub fn add(sum: &mut ByRank, rank: &RankId, more: &Fact) {
    match sum.get_mut(rank) {
        Some(fact) => {
            let total = fact.value.number().zip(more.value.number());
            if let Some((a, b)) = total {
                fact.value = FactValue::Float(a + b);
                fact.quote.extend(more.quote.iter().take(4).cloned());
            }
        }
        None => {
            sum.insert(rank.clone(), more.clone());
        }
    }
}
