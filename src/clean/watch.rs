//! Decides what a service reports and does, look after look: a line for each decision that changed,
//! and no more acts in a minute than allowed. Pure: the clock is an argument.

use super::scope::is_stuck;
use super::verdict::{CleanAct, CleanRule, CleanVerdict, VerdictSubject};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Time after which a lasting verdict is reported again, and a failed act is tried again.
pub const LASTING: Duration = Duration::from_secs(600);
/// The time that the limit of acts is counted over.
const MINUTE: Duration = Duration::from_secs(60);

/// Why a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchEvent {
    /// Something was decided.
    Decision,
    /// A reported item is gone.
    Gone,
}

/// What is done about a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It is acted on now.
    Now,
    /// It will be: enough was done in this minute.
    Later,
    /// Nothing: it is only reported.
    Nothing,
}

/// One line of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WatchLine {
    /// Why it is written.
    pub event: WatchEvent,
    /// The verdict; of what is gone the last one.
    #[serde(flatten)]
    pub verdict: CleanVerdict,
    /// What is done about it.
    pub doing: Doing,
}

/// Remembers what was reported and done.
#[derive(Debug, Default)]
pub struct WatchService {
    apply: bool,
    per_minute: usize,
    /// Time of the last report, by item and verdict.
    reported: BTreeMap<VerdictSubject, Vec<(CleanAct, CleanRule, Duration)>>,
    /// Last reported verdict, by stuck item.
    standing: BTreeMap<VerdictSubject, CleanVerdict>,
    /// When something was acted on last.
    tried: BTreeMap<VerdictSubject, Duration>,
    /// The acts of the last minute.
    acts: VecDeque<Duration>,
}

impl WatchService {
    /// A service that acts, or only reports, at most `per_minute` times a minute.
    pub fn new(apply: bool, per_minute: u32) -> WatchService {
        WatchService {
            apply,
            per_minute: usize::try_from(per_minute).unwrap_or(usize::MAX),
            ..WatchService::default()
        }
    }

    /// The lines to report, and to act on, for the verdicts of one look. `now` is any monotonic
    /// clock.
    pub fn decide_lines(&mut self, now: Duration, verdicts: &[CleanVerdict]) -> Vec<WatchLine> {
        let recent = |then: &Duration, time: Duration| now.saturating_sub(*then) < time;
        self.acts.retain(|then| recent(then, MINUTE));
        self.tried.retain(|_, then| recent(then, LASTING));
        for reports in self.reported.values_mut() {
            reports.retain(|(.., then)| recent(then, LASTING));
        }
        self.reported.retain(|_, reports| !reports.is_empty());
        let mut lines: Vec<WatchLine> = (verdicts.iter())
            .filter_map(|v| self.line_for(now, v))
            .collect();
        let subjects: BTreeSet<&VerdictSubject> = verdicts.iter().map(|v| &v.of).collect();
        let gone: Vec<VerdictSubject> = (self.standing.keys())
            .filter(|of| !subjects.contains(of))
            .cloned()
            .collect();
        lines.extend(gone.iter().filter_map(|of| {
            self.reported.remove(of);
            Some(WatchLine {
                event: WatchEvent::Gone,
                verdict: self.standing.remove(of)?,
                doing: Doing::Nothing,
            })
        }));
        lines
    }

    fn line_for(&mut self, now: Duration, v: &CleanVerdict) -> Option<WatchLine> {
        let due = self.apply && v.act.changes_anything() && !self.tried.contains_key(&v.of);
        let doing = match (due, self.acts.len() < self.per_minute) {
            (true, true) => Doing::Now,
            (true, false) => Doing::Later,
            (false, _) => Doing::Nothing,
        };
        // An act is never silent.
        if doing != Doing::Now {
            let reports = self.reported.get(&v.of);
            let known = reports.is_some_and(|t| t.iter().any(|t| (t.0, t.1) == (v.act, v.rule)));
            let quiet = !is_stuck(v) && !self.standing.contains_key(&v.of);
            if known || quiet {
                return None;
            }
        }
        if doing == Doing::Now {
            self.acts.push_back(now);
            self.tried.insert(v.of.clone(), now);
        }
        let reports = self.reported.entry(v.of.clone()).or_default();
        reports.retain(|t| (t.0, t.1) != (v.act, v.rule));
        reports.push((v.act, v.rule, now));
        if is_stuck(v) {
            self.standing.insert(v.of.clone(), v.clone())
        } else {
            self.standing.remove(&v.of)
        };
        Some(WatchLine {
            event: WatchEvent::Decision,
            verdict: v.clone(),
            doing,
        })
    }

    /// Forgets what was cleaned: if it comes back, it is reported again.
    pub fn forget_cleaned(&mut self, of: &VerdictSubject) {
        self.standing.remove(of);
        self.reported.remove(of);
        self.tried.remove(of);
    }

    /// The daemon was away and is back: what could not be done then is tried again.
    pub fn daemon_is_back(&mut self) {
        self.tried.clear();
    }
}

/// What is to be acted on.
pub fn verdicts_to_apply(lines: &[WatchLine]) -> Vec<CleanVerdict> {
    let now = lines.iter().filter(|l| l.doing == Doing::Now);
    now.map(|l| l.verdict.clone()).collect()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
