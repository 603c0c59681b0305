//! Two profiles side by side: the settings that differ first, then component by component.

use super::difference_percent;
use super::figures::{self, Unit};
use super::settings::{Role, position_of, role_of};
use super::subject::{Kind, Subject, SubjectFigure, Who};
use crate::units::GIB;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the document.
pub const PAIR_VERSION: &str = "1.0";

/// Two profiles side by side. Every difference is the second less the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// `comparison`.
    pub document: String,
    /// [`PAIR_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// The first.
    pub profile1: Who,
    /// The second.
    pub profile2: Who,
    /// Difference of the peaks, GiB; null where one is unknown.
    pub diff_gb: Option<f64>,
    /// The same in percent of the first; null where one is unknown or the first is 0.
    pub diff_pct: Option<f64>,
    /// Settings that are not the same, those that people look at first in front.
    pub settings: Vec<SettingDifference>,
    /// Why the figures do not answer the same question, sentences.
    pub incomparable: Vec<String>,
    /// What else must be known of the figures, sentences.
    pub warnings: Vec<String>,
    /// The peak and its parts.
    pub components: Vec<PairRow>,
    /// Figures outside the peak: pool, latency, throughput.
    pub others: Vec<OtherRow>,
    /// What was asked of the differences; null where nothing was.
    pub limit: Option<Limit>,
}

/// A setting that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingDifference {
    /// Its name.
    pub setting: String,
    /// Of the first; null where it is unknown.
    pub profile1: Option<String>,
    /// Of the second; null where it is unknown.
    pub profile2: Option<String>,
}

/// The peak, or a part of it, on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairRow {
    /// `model_weights`.
    pub component: String,
    /// As people read it.
    pub label: String,
    /// Where it belongs.
    pub kind: Kind,
    /// Of the first, GiB; null where it is unknown.
    pub profile1_gb: Option<f64>,
    /// Of the second, GiB; null where it is unknown.
    pub profile2_gb: Option<f64>,
    /// The second less the first, GiB.
    pub diff_gb: Option<f64>,
    /// The same in percent of the first; null where one is unknown or the first is 0.
    pub diff_pct: Option<f64>,
    /// What the first rests on.
    pub profile1_source: Option<String>,
    /// What the second rests on.
    pub profile2_source: Option<String>,
    /// Why the first is unknown.
    pub profile1_unknown: Option<String>,
    /// Why the second is unknown.
    pub profile2_unknown: Option<String>,
}

/// A figure beside the peak, on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherRow {
    /// `kv_cache_tokens`.
    pub key: String,
    /// As people read it.
    pub label: String,
    /// Unit of the row's figures.
    pub unit: Unit,
    /// Of the first.
    pub profile1: Option<f64>,
    /// Of the second.
    pub profile2: Option<f64>,
    /// The second less the first.
    pub diff: Option<f64>,
    /// The same in percent of the first.
    pub diff_pct: Option<f64>,
}

/// A component may move by this many times the distance of the farthest repeat.
const REPEAT_FACTOR: f64 = 2.0;
/// Fewer repeats say nothing about how far a component moves by itself.
pub const FEWEST_REPEATS: usize = 3;

/// How far components may move.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// A component that moves by more percent of the first is too far; null where the tolerances decide.
    pub percent: Option<f64>,
    /// Unless it moves by no more bytes than this.
    pub ignore_below_bytes: u64,
    /// By how many GiB each component may move, learnt from repeats: then no percentage counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tolerances_gb: BTreeMap<String, f64>,
    /// The repeats that the tolerances are learnt from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<String>,
    /// Components that moved too far.
    pub exceeded: Vec<String>,
    /// Components that only one side knows: whether they moved is unknown.
    pub not_judged: Vec<String>,
}

impl Limit {
    pub(super) fn new(percent: Option<f64>, ignore_below_bytes: u64) -> Limit {
        Limit {
            percent,
            ignore_below_bytes,
            ..Limit::default()
        }
    }
}

impl Pair {
    /// Holds the second against the first.
    pub fn compare_subjects(a: &Subject, b: &Subject) -> Pair {
        let components = component_rows(a, b);
        let total = components.iter().find(|r| r.kind == Kind::Total);
        let settings = setting_differences(a, b);
        let (incomparable, warnings) = verdicts(a, b, &settings, &components);
        Pair {
            document: "comparison".into(),
            schema_version: PAIR_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            profile1: a.who.clone(),
            profile2: b.who.clone(),
            diff_gb: total.and_then(|t| t.diff_gb),
            diff_pct: total.and_then(|t| t.diff_pct),
            settings,
            incomparable,
            warnings,
            others: others(a, b),
            components,
            limit: None,
        }
    }

    /// Judges every component: one that was nothing and now is something moved too far as well.
    /// What nothing explains is judged as part of the overhead only: alone it is mostly noise.
    pub fn judge_components(&mut self, percent: f64, ignore_below_bytes: u64) {
        self.judge_by(Limit::new(Some(percent), ignore_below_bytes));
    }

    /// Judges every component by the spread of `repeats`, of which the first of the pair is one: it may
    /// be twice as far from the first as the farthest repeat is. With n repeats one more of the same
    /// would lie beyond the farthest with a probability of 2 in n + 1, and beyond twice that hardly.
    /// A component that no repeat knows is not judged.
    pub fn judge_by_repeats(&mut self, repeats: &[Subject], ignore_below_bytes: u64) {
        let mut limit = Limit::new(None, ignore_below_bytes);
        limit.baseline = repeats.iter().map(|r| r.who.file.clone()).collect();
        for row in &self.components {
            let known = repeats.iter();
            let known = known.filter_map(|repeat| repeat.figure_bytes(&row.component).ok());
            let Some(first) = row.profile1_gb else {
                continue;
            };
            let apart = known.map(|v| (v / GIB - first).abs());
            let allowed = apart.reduce(f64::max).map(|most| REPEAT_FACTOR * most);
            let allowed = allowed.map(|gb| (row.component.clone(), gb));
            limit.tolerances_gb.extend(allowed);
        }
        self.judge_by(limit);
    }

    fn judge_by(&mut self, mut limit: Limit) {
        let judged = self.components.iter();
        for row in judged.filter(|r| r.component != "unexplained") {
            let name = row.component.clone();
            match (row.diff_gb, row.profile1_gb) {
                (Some(diff), Some(first)) => {
                    let large = (diff * GIB).abs() > limit.ignore_below_bytes as f64;
                    let by_percent = limit.percent.map(|percent| percent / 100.0 * first.abs());
                    let learnt = limit.tolerances_gb.get(&name).copied();
                    let allowed = by_percent.or(learnt).unwrap_or(0.0);
                    if large && diff.abs() > allowed {
                        limit.exceeded.push(name);
                    }
                }
                _ => limit.not_judged.push(name),
            }
        }
        self.limit = Some(limit);
    }
}

/// The repeat whose peak is the median; of an even number the lower one. `None` where no peak is known.
pub fn find_median(repeats: &[Subject]) -> Option<&Subject> {
    let known = repeats.iter();
    let known = known.filter_map(|s| Some((s.figure_bytes("total").ok()?, s)));
    let mut known: Vec<(f64, &Subject)> = known.collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(known.get(known.len().saturating_sub(1) / 2)?.1)
}

/// The rows that either side knows, in the order of the first, those of the second alone in place.
fn component_rows(a: &Subject, b: &Subject) -> Vec<PairRow> {
    let mut parts = figures_of_either(a, b, |kind| kind != Kind::Other);
    // Reading order, and what nothing explains at the end.
    parts.sort_by_key(|f| {
        let component = figures::component_of_key(&f.key);
        (f.kind, component.is_none(), component)
    });
    (parts.into_iter())
        .map(|f| {
            let key = &f.key;
            let source = |s: &Subject| s.find_figure(key)?.source.clone();
            let (first, second) = (a.figure_bytes(key), b.figure_bytes(key));
            let both = first.as_ref().ok().zip(second.as_ref().ok());
            PairRow {
                component: key.clone(),
                label: f.label.clone(),
                kind: f.kind,
                diff_gb: both.map(|(a, b)| (b - a) / GIB),
                diff_pct: both.and_then(|(a, b)| difference_percent(*a, *b)),
                profile1_gb: first.as_ref().ok().map(|b| b / GIB),
                profile2_gb: second.as_ref().ok().map(|b| b / GIB),
                profile1_source: source(a),
                profile2_source: source(b),
                profile1_unknown: first.err(),
                profile2_unknown: second.err(),
            }
        })
        // A row that neither knows is left out.
        .filter(|r| r.kind == Kind::Total || r.profile1_gb.is_some() || r.profile2_gb.is_some())
        .collect()
}

/// The figures of some kinds that either side has, each key once.
fn figures_of_either<'a>(
    a: &'a Subject,
    b: &'a Subject,
    counts: impl Fn(Kind) -> bool,
) -> Vec<&'a SubjectFigure> {
    let mut all: Vec<&SubjectFigure> = Vec::new();
    for figure in a.figures.iter().chain(&b.figures) {
        if counts(figure.kind) && all.iter().all(|known| known.key != figure.key) {
            all.push(figure);
        }
    }
    all
}

fn others(a: &Subject, b: &Subject) -> Vec<OtherRow> {
    let all = figures_of_either(a, b, |kind| kind == Kind::Other);
    (all.into_iter())
        .map(|f| {
            let [first, second] = [a, b].map(|s| s.figure_bytes(&f.key).ok());
            let both = first.zip(second);
            OtherRow {
                key: f.key.clone(),
                label: f.label.clone(),
                unit: f.unit,
                profile1: first,
                profile2: second,
                diff: both.map(|(a, b)| b - a),
                diff_pct: both.and_then(|(a, b)| difference_percent(a, b)),
            }
        })
        .filter(|r| r.profile1.is_some() || r.profile2.is_some())
        .collect()
}

fn setting_differences(a: &Subject, b: &Subject) -> Vec<SettingDifference> {
    let names: BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_key(|name| position_of(name));
    names
        .into_iter()
        .filter(|name| !same(a.settings.get(*name), b.settings.get(*name)))
        .map(|name| SettingDifference {
            setting: name.clone(),
            profile1: a.settings.get(name).cloned(),
            profile2: b.settings.get(name).cloned(),
        })
        .collect()
}

/// Whether two spellings mean the same: `0.90` is `0.9`.
fn same(a: Option<&String>, b: Option<&String>) -> bool {
    let number = |text: Option<&String>| text?.parse::<f64>().ok();
    a == b || number(a).zip(number(b)).is_some_and(|(a, b)| a == b)
}

/// Why the figures do not answer the same question, and what else must be known of them.
fn verdicts(
    a: &Subject,
    b: &Subject,
    settings: &[SettingDifference],
    rows: &[PairRow],
) -> (Vec<String>, Vec<String>) {
    let (mut incomparable, mut warnings, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (letter, s) in [("A", a), ("B", b)] {
        if let Some(why) = &s.who.not_whole {
            incomparable.push(format!("{letter}: {why}"));
        }
    }
    if a.who.simulated != b.who.simulated {
        incomparable.push("the engine or a device of one of them is simulated".into());
    }
    for d in settings {
        let name = d.setting.as_str();
        let role = role_of(name);
        match (&d.profile1, &d.profile2) {
            (Some(a), Some(b)) if role == Some(Role::MustAgree) => {
                incomparable.push(format!("{name} differs: {a} and {b}"));
            }
            (Some(a), Some(b)) if role == Some(Role::ShouldAgree) => {
                warnings.push(format!(
                    "{name} differs ({a} and {b}): what was in use may differ for that alone"
                ));
            }
            // No quantisation has no name.
            (one, other) if name == "quantization" => {
                let [one, other] = [one, other].map(|v| v.as_deref().unwrap_or("none or unknown"));
                incomparable.push(format!("{name} differs: {one} and {other}"));
            }
            (one, other) if role == Some(Role::MustAgree) && one.is_none() != other.is_none() => {
                let (known, unknown) = one.as_ref().map_or(("B", "A"), |_| ("A", "B"));
                warnings.push(format!(
                    "{name} is known for {known} but not for {unknown}: it may differ"
                ));
            }
            // Another model or GPU is a fair question, or a baseline that was changed by mistake.
            (Some(a), Some(b)) if matches!(name, "model" | "engine" | "gpu" | "gpus") => {
                others.push(format!("{name} ({a} and {b})"));
            }
            _ => {}
        }
    }
    if incomparable.is_empty() && !others.is_empty() {
        let others = others.join(", ");
        warnings.push(format!("these differ, and memory with them: {others}"));
    }
    if a.who.file == b.who.file {
        warnings.push("A and B are the same file".into());
    } else if a.who.run_id.is_some() && a.who.run_id == b.who.run_id {
        warnings.push("A and B are of the same run".into());
    }
    for s in [a, b] {
        let version = s.who.schema_version.as_deref().unwrap_or("none");
        if !version.starts_with("4.") {
            warnings.push(format!(
                "`{}` is of an earlier schema ({version}): only its totals are read, and its GB are taken for GiB",
                s.who.file
            ));
        }
    }
    for row in rows {
        let both = row
            .profile1_source
            .as_ref()
            .zip(row.profile2_source.as_ref());
        if let Some((one, other)) = both.filter(|(a, b)| row.diff_gb.is_some() && a != b) {
            let label = &row.label;
            warnings.push(format!(
                "{label} rests on different witnesses: {one} in A, {other} in B"
            ));
        }
    }
    (incomparable, warnings)
}
