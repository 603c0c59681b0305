//! Figures as they were read, one per line that printed them.

use super::origin::Origin;
use crate::capture::AtNs;
use crate::engine::facts::{Fact, FactKey, FactValue};
use crate::engine::log::Line;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

/// Readings of one key at most: more ranks than one node can hold.
const MOST_READINGS: usize = 256;

/// Lines quoted for one list: the ranks of eight nodes.
const MOST_QUOTES: usize = 64;

/// A line with the process that printed it.
#[derive(Debug, Clone, Copy)]
pub struct RankLine<'a> {
    /// The line.
    pub line: Line<'a>,
    /// Its process.
    pub origin: Origin,
}

impl<'a> Deref for RankLine<'a> {
    type Target = Line<'a>;

    fn deref(&self) -> &Line<'a> {
        &self.line
    }
}

/// A figure from one line.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The figure.
    pub value: FactValue,
    /// The process that printed it.
    pub origin: Origin,
    /// The line.
    pub quote: String,
    /// When it was written.
    pub at: Option<AtNs>,
    /// The number of processes that printed it: Ray folds equal lines of several into one.
    pub processes: u32,
}

impl Reading {
    /// The figure as a number.
    pub fn number(&self) -> f64 {
        self.value.number().unwrap_or_default()
    }

    /// The figure as a fact.
    pub fn fact(&self, value: FactValue) -> Fact {
        Fact::new(value, vec![self.quote.clone()], self.at)
    }
}

/// All figures of one start of the engine.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    by_key: BTreeMap<FactKey, Figures>,
    forwarded: HashSet<u64>,
}

#[derive(Debug, Clone, Default)]
struct Figures {
    readings: Vec<Reading>,
    per_rank: bool,
}

impl Readings {
    /// Adds a figure. `per_rank`: several make a list, equal or not. `once`: a process that repeats
    /// itself corrects itself.
    pub fn add(
        &mut self,
        key: FactKey,
        value: impl Into<Option<FactValue>>,
        line: &RankLine<'_>,
        needle: &str,
        per_rank: bool,
        once: bool,
    ) {
        let is_figure = |value: &FactValue| value.number().is_some_and(f64::is_finite);
        let Some(value) = value.into().filter(is_figure) else {
            return;
        };
        let figures = self.by_key.entry(key).or_default();
        figures.per_rank |= per_rank;
        let readings = &mut figures.readings;
        let full = readings.len() >= MOST_READINGS;
        let place = readings
            .iter_mut()
            .find(|r| once && line.origin.identified() && r.origin == line.origin);
        if place.is_none() && full {
            return;
        }
        let reading = Reading {
            value,
            origin: line.origin,
            quote: line.quote(needle),
            at: line.at,
            processes: folded(line.text),
        };
        match place {
            Some(old) => *old = reading,
            None => readings.push(reading),
        }
    }

    /// Whether this line was seen before: Ray prints a worker's line itself, and the engine core
    /// forwards it again.
    pub fn forwarded_before(&mut self, line: &RankLine<'_>) -> bool {
        if !line.origin.ray || self.forwarded.len() > 4096 {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        line.origin.pid.hash(&mut hasher);
        // The prefixes differ between the two, the worker's own words do not.
        line.text
            .rsplit_once(") ")
            .map_or(line.text, |(_, own)| own)
            .hash(&mut hasher);
        !self.forwarded.insert(hasher.finish())
    }

    /// The readings of `key`, in rank order if every rank is known, else in log order.
    pub fn of(&self, key: FactKey) -> Vec<&Reading> {
        let figures = self.by_key.get(&key);
        let mut readings: Vec<&Reading> = figures.iter().flat_map(|f| &f.readings).collect();
        if readings.iter().all(|r| r.origin.tp.is_some()) {
            readings.sort_by_key(|r| (r.origin.dp, r.origin.pp, r.origin.tp));
        } else if readings.iter().all(|r| r.origin.dp.is_some()) {
            readings.sort_by_key(|r| r.origin.dp);
        }
        readings
    }

    /// The smallest reading of `key`, the first where several are.
    pub fn smallest(&self, key: FactKey) -> Option<&Reading> {
        (self.of(key).into_iter()).min_by(|a, b| a.number().total_cmp(&b.number()))
    }

    /// The readings of `key` as a fact: one figure, or a list where ranks differ or each counts.
    pub fn fact(&self, key: FactKey) -> Option<Fact> {
        let readings = self.of(key);
        let first = *readings.first()?;
        let each_counts = self.by_key.get(&key).is_some_and(|f| f.per_rank);
        let differ = readings.iter().any(|r| r.number() != first.number());
        if readings.len() > 1 && (each_counts || differ) {
            return listed(&readings);
        }
        Some(first.fact(first.value.clone()))
    }

    /// Forgets `key`: a later line replaced it.
    pub fn forget(&mut self, key: FactKey) {
        self.by_key.remove(&key);
    }

    /// Whether anything was read.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The keys that have readings.
    pub fn keys(&self) -> impl Iterator<Item = FactKey> + '_ {
        self.by_key.keys().copied()
    }
}

/// All of some readings, each with its line.
pub fn listed(readings: &[&Reading]) -> Option<Fact> {
    let first = readings.first()?;
    let list = FactValue::List(readings.iter().map(|r| r.number()).collect());
    let quotes = readings.iter().take(MOST_QUOTES);
    let quotes = quotes.map(|r| r.quote.clone()).collect();
    Some(Fact::new(list, quotes, first.at))
}

/// `[repeated 6x across cluster]` is the line of six processes.
fn folded(text: &str) -> u32 {
    crate::engine::log::figures::number_after(text, "[repeated ")
        .map_or(1, |n| n.value.clamp(1.0, 1e6) as u32)
}
