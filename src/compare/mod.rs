//! Profiles side by side: two groups of them, figure by figure, with the spread of their repeats.
//!
//! Pure: profiles in, differences out. A figure that one group lacks stays unknown with its
//! reason; it is never taken for 0.

pub mod ablation;
pub mod calculated;
pub mod calibrate;
pub mod correlate;
pub mod deployment;
mod figures;
pub mod given;
pub mod graph_report;
pub mod graphs;
pub mod measured;
pub mod profiles;
pub mod settings;
pub mod subject;
pub mod validate;

use crate::capture::RunEnd;
use crate::profile::Profile;
use crate::profile::stats::{Spread, quantile_of_sorted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use figures::{Unit, reason_path};

/// Two groups of profiles, figure by figure. Every difference is B less A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The peak, bytes.
    pub total: Row,
    /// The parts of the peak that both groups know, and those that one of them knows, bytes.
    pub components: Vec<Row>,
    /// The peak less the parts that both know: what nothing explains, and the parts that only one
    /// of them knows. The differences of the parts that both know and of this one sum to that of
    /// the total.
    pub remainder: Row,
    /// Keys of the components that only one group knows: they are in the remainder.
    pub one_sided: Vec<String>,
    /// Figures outside the peak: pool, latency, throughput.
    pub others: Vec<Row>,
}

/// One figure of both groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its key: a component of the breakdown, or the name of another figure.
    pub key: String,
    /// As people read it.
    pub label: String,
    /// Unit of all figures of the row.
    pub unit: Unit,
    /// The first group.
    pub a: Side,
    /// The second group.
    pub b: Side,
    /// Median of B less median of A; null where one is unknown.
    pub difference: Option<f64>,
    /// The same in percent of A; null where one is unknown or A is 0.
    pub difference_percent: Option<f64>,
    /// Whether the difference exceeds the spread of the repeats; null where one is unknown.
    pub judgement: Option<Judgement>,
}

/// One figure of one group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// Median over the runs that know it.
    pub median: Option<f64>,
    /// Spread over them.
    pub spread: Option<Spread>,
    /// Why it is unknown; null where it is known.
    pub unknown: Option<String>,
}

/// How a difference compares with the spread of the repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Nothing differs.
    Equal,
    /// No larger than the distances between lowest and highest repeat, of both groups together.
    WithinNoise,
    /// Larger than that: then no repeat of one group reaches into the other.
    BeyondNoise,
    /// One group has one run only: its spread is not known.
    SpreadUnknown,
}

impl Side {
    /// Of the figures of a group's runs; `why` is the reason of an empty list.
    fn side_of_figures(mut figures: Vec<f64>, why: impl FnOnce() -> String) -> Side {
        figures.sort_by(f64::total_cmp);
        let median = quantile_of_sorted(&figures, 0.5);
        Side {
            median,
            spread: Spread::spread_of(&figures),
            unknown: median.is_none().then(why),
        }
    }

    /// Highest less lowest; `None` for fewer than two runs.
    fn spread_range(&self) -> Option<f64> {
        self.spread.filter(|s| s.n > 1).map(|s| s.max - s.min)
    }
}

impl Row {
    fn new(key: &str, label: &str, unit: Unit, a: Side, b: Side) -> Row {
        let both = a.median.zip(b.median);
        let difference = both.map(|(a, b)| b - a);
        Row {
            key: key.into(),
            label: label.into(),
            unit,
            difference,
            difference_percent: both.and_then(|(a, b)| difference_percent(a, b)),
            judgement: difference.map(|d| judge(d, a.spread_range(), b.spread_range())),
            a,
            b,
        }
    }
}

/// The difference in percent of the first; `None` of 0.
pub fn difference_percent(a: f64, b: f64) -> Option<f64> {
    (a != 0.0).then(|| (b - a) / a.abs() * 100.0)
}

/// A difference against the ranges of both groups.
fn judge(difference: f64, a: Option<f64>, b: Option<f64>) -> Judgement {
    match a.zip(b) {
        _ if difference == 0.0 => Judgement::Equal,
        None => Judgement::SpreadUnknown,
        Some((a, b)) if difference.abs() <= a + b => Judgement::WithinNoise,
        Some(_) => Judgement::BeyondNoise,
    }
}

/// The runs of a group that count: those that came to their end.
pub fn completed_runs(profiles: &[Profile]) -> Vec<&Profile> {
    let is_whole = |p: &&Profile| p.metadata.outcome == RunEnd::Completed;
    profiles.iter().filter(is_whole).collect()
}

/// Compares two groups. Runs that did not come to their end lend no figure, only the reason why
/// there is none.
pub fn compare_groups(a: &[Profile], b: &[Profile]) -> Comparison {
    let (a, b) = (RunGroup::of(a), RunGroup::of(b));
    let row = |key: &str, label: &str, unit, pick: &dyn Fn(&Profile) -> Option<f64>, path: &str| {
        Row::new(key, label, unit, a.side(pick, path), b.side(pick, path))
    };
    let total = row(
        "total",
        "Total at the peak",
        Unit::Bytes,
        &figures::peak_bytes,
        "memory_breakdown.total_measured_bytes",
    );
    let mut components = Vec::new();
    for component in figures::known_components(a.whole.iter().chain(&b.whole).copied()) {
        components.push(row(
            &figures::component_key(component),
            component.display_label(),
            Unit::Bytes,
            &|p| figures::component_bytes(p, component),
            figures::reason_path(component),
        ));
    }
    // Where one group has no figures at all, the other is shown as it is.
    let alone = total.difference.is_none();
    let one_sided = components
        .iter()
        .filter(|r| r.difference.is_none() && !alone);
    let one_sided: Vec<String> = one_sided.map(|r| r.key.clone()).collect();
    let label = if one_sided.is_empty() {
        "Unexplained"
    } else {
        "Unexplained, or known on one side only"
    };
    let remainder = Row::new(
        "remainder",
        label,
        Unit::Bytes,
        a.remainder(&total.a, &components, &one_sided, |r| &r.a),
        b.remainder(&total.b, &components, &one_sided, |r| &r.b),
    );
    let others = figures::OTHERS
        .iter()
        .map(|f| row(f.key, f.label, f.unit, &f.pick, f.path))
        .filter(|r| r.a.median.is_some() || r.b.median.is_some())
        .collect();
    Comparison {
        total,
        components,
        remainder,
        one_sided,
        others,
    }
}

/// One group's runs.
struct RunGroup<'a> {
    whole: Vec<&'a Profile>,
    all: &'a [Profile],
}

impl<'a> RunGroup<'a> {
    fn of(all: &'a [Profile]) -> RunGroup<'a> {
        RunGroup {
            whole: completed_runs(all),
            all,
        }
    }

    fn side(&self, pick: &dyn Fn(&Profile) -> Option<f64>, path: &str) -> Side {
        let figures = self.whole.iter().filter_map(|p| pick(p)).collect();
        Side::side_of_figures(figures, || self.reason_for_path(path))
    }

    /// Why no run knows the figure at `path`.
    fn reason_for_path(&self, path: &str) -> String {
        if let Some(run) = self.whole.first() {
            let reason = run.unknown.get(path).cloned();
            return reason.unwrap_or_else(|| subject::SILENT.into());
        }
        let ended = self.all.last().and_then(|p| p.metadata.outcome.describe());
        ended.unwrap_or_else(|| "no run was made".into())
    }

    /// The total less the parts that both groups know. Its median is what the other medians leave,
    /// so that the column sums; its spread is over the runs.
    fn remainder(
        &self,
        total: &Side,
        components: &[Row],
        one_sided: &[String],
        side: fn(&Row) -> &Side,
    ) -> Side {
        let known = || components.iter().filter(|r| !one_sided.contains(&r.key));
        let Some(total) = total.median else {
            return Side {
                unknown: total.unknown.clone(),
                ..Side::default()
            };
        };
        let left: f64 = total - known().filter_map(|r| side(r).median).sum::<f64>();
        let of_run = |run: &&Profile| {
            let parts = known()
                .filter_map(|r| figures::component_bytes(run, figures::component_of_key(&r.key)?));
            Some(figures::peak_bytes(run)? - parts.sum::<f64>())
        };
        let runs: Vec<f64> = self.whole.iter().filter_map(of_run).collect();
        Side {
            median: Some(left),
            spread: Spread::spread_of(&runs),
            unknown: None,
        }
    }
}
