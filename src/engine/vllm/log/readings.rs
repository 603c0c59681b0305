//! Figures as they were read, one per line that printed them.

use super::origin::Origin;
use crate::capture::AtNs;
use crate::engine::log::text::quote;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Readings of one key at most: more ranks than one node can hold.
const MOST_READINGS: usize = 256;

/// One line, as the readers of messages see it.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// The text without colour.
    pub text: &'a str,
    /// Whose line it is.
    pub origin: Origin,
    /// When it was written.
    pub at: Option<AtNs>,
    /// Its number in the log, from 1.
    pub no: u64,
}

impl Line<'_> {
    /// The line as a fact quotes it; the part around `needle` stays visible.
    pub fn quote(&self, needle: &str) -> String {
        quote(self.text, self.text.find(needle).unwrap_or(0))
    }
}

impl<'a> From<&Line<'a>> for crate::engine::log::Line<'a> {
    fn from(line: &Line<'a>) -> crate::engine::log::Line<'a> {
        crate::engine::log::Line {
            text: line.text,
            at: line.at,
        }
    }
}

/// A figure from one line.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The figure.
    pub value: f64,
    /// Whether it is a count.
    pub whole: bool,
    /// Whose line.
    pub origin: Origin,
    /// The line.
    pub quote: String,
    /// When.
    pub at: Option<AtNs>,
    /// For how many processes the line stands: Ray folds equal lines of several into one.
    pub stands_for: u32,
}

/// All figures of one start of the engine.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    by_key: BTreeMap<&'static str, Vec<Reading>>,
    forwarded: HashSet<u64>,
}

impl Readings {
    /// Adds a figure in GiB (or percent, or whatever its key says). A process that repeats itself
    /// corrects itself.
    pub fn figure(&mut self, key: &'static str, value: Option<f64>, line: &Line<'_>, needle: &str) {
        if let Some(value) = value {
            self.add(key, value, false, line, needle, true);
        }
    }

    /// Adds a count.
    pub fn count(&mut self, key: &'static str, value: Option<f64>, line: &Line<'_>, needle: &str) {
        if let Some(value) = value {
            self.add(key, value, true, line, needle, true);
        }
    }

    /// Adds a figure that one process prints once per worker.
    pub fn repeated(
        &mut self,
        key: &'static str,
        value: f64,
        whole: bool,
        line: &Line<'_>,
        needle: &str,
    ) {
        self.add(key, value, whole, line, needle, false);
    }

    fn add(
        &mut self,
        key: &'static str,
        value: f64,
        whole: bool,
        line: &Line<'_>,
        needle: &str,
        once: bool,
    ) {
        if !value.is_finite() {
            return;
        }
        let readings = self.by_key.entry(key).or_default();
        let full = readings.len() >= MOST_READINGS;
        let place = readings
            .iter_mut()
            .find(|r| once && line.origin.identified() && r.origin == line.origin);
        if place.is_none() && full {
            return;
        }
        let reading = Reading {
            value,
            whole,
            origin: line.origin,
            quote: line.quote(needle),
            at: line.at,
            stands_for: folded(line.text),
        };
        match place {
            Some(old) => *old = reading,
            None => readings.push(reading),
        }
    }

    /// Whether this line came before: Ray prints a worker's line itself, and the engine core
    /// forwards it once more.
    pub fn forwarded_before(&mut self, line: &Line<'_>) -> bool {
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

    /// The readings of `key`, in rank order where every one's rank is known, else as they came.
    pub fn of(&self, key: &str) -> Vec<&Reading> {
        let mut readings: Vec<&Reading> = self
            .by_key
            .get(key)
            .map(|r| r.iter().collect())
            .unwrap_or_default();
        if readings.iter().all(|r| r.origin.tp.is_some()) {
            readings.sort_by_key(|r| (r.origin.dp, r.origin.pp, r.origin.tp));
        } else if readings.iter().all(|r| r.origin.dp.is_some()) {
            readings.sort_by_key(|r| r.origin.dp);
        }
        readings
    }

    /// Forgets `key`: a later line replaced it.
    pub fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    /// Whether anything was read.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The keys that have readings.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.by_key.keys().copied()
    }
}

/// `[repeated 6x across cluster]` stands for six processes.
fn folded(text: &str) -> u32 {
    crate::engine::log::figures::number_after(text, "[repeated ")
        .map_or(1, |n| n.value.clamp(1.0, 1e6) as u32)
}
