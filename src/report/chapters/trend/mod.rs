//! Many runs of the same model under the same settings, by version or by time: what moved.

mod alike;
#[cfg(test)]
mod tests;
mod version;

use super::sweep::read::CellFigure;
use super::{Sources, change, numbered_id};
use crate::matrix::RowFigures;
use crate::profile::stats::quantile_of_sorted;
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{Chapter, ContentBlock, Grid};
use crate::report::figures::cell_by;
use crate::report::layout::{counted_words, group_items, grouped_count};
use crate::report::material::{Material, ReportRun};
use crate::report::tables::{ItemFigure, TableBuilder, format_in_unit};
use crate::units::to_gib;
use alike::{Alike, changed_settings, group_alike_runs};

/// A figure that moved by more is reported, percent.
const MOVED: f64 = 5.0;
/// Most groups of runs that have a trend each; more are counted in a note.
const MOST: usize = 8;
/// Steps of a trend that are shown, the latest.
const STEPS: usize = 50;
/// Settings that are named beside a sentence.
const NAMED: usize = 6;

/// What is followed over versions.
#[rustfmt::skip]
static WATCHED: [CellFigure; 6] = [
    ItemFigure::new("kv_pool_tokens", "KV pool", "tokens", |f| f.kv_pool_tokens.map(|n| n as f64)),
    // By the engine's word, else as the breakdown found it.
    ItemFigure::new("kv_pool_gib", "KV pool", "GiB", |f| f.kv_pool_bytes.or(f.kv_cache_bytes).map(to_gib)),
    ItemFigure::new("peak_gib", "Peak", "GiB", |f| f.peak_bytes.map(to_gib)),
    ItemFigure::new("weights_gib", "Weights", "GiB", |f| f.model_weights_bytes.map(to_gib)),
    ItemFigure::new("overhead_gib", "Identified overhead", "GiB", |f| f.overhead_bytes.map(to_gib)),
    ItemFigure::new("tokens_per_second", "Throughput", "tokens/s", |f| f.tokens_per_second),
];

/// The chapter, where runs are alike but for their version or their time.
pub(super) fn write_trend_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    // Two runs that are held against each other have a chapter of their own.
    if material.compare {
        return Vec::new();
    }
    let whole: Vec<&ReportRun> = (material.runs.iter())
        .filter(|r| r.profile.metadata.outcome == crate::capture::RunEnd::Completed)
        .collect();
    let groups = group_alike_runs(&whole);
    let trends: Vec<Trend> = groups.iter().filter_map(Trend::trend_of_runs).collect();
    if trends.is_empty() {
        return Vec::new();
    }
    let mut blocks = Vec::new();
    let several = trends.len() > 1;
    for (i, trend) in trends.iter().take(MOST).enumerate() {
        blocks.extend(trend.trend_blocks(&numbered_id("trend", i, several)));
    }
    if trends.len() > MOST {
        let more = trends.len() - MOST;
        blocks.push(ContentBlock::Text(format!(
            "{more} more groups of runs are left out."
        )));
    }
    blocks.extend(left_out(
        &groups,
        &trends,
        material.runs.len() - whole.len(),
    ));
    Chapter::of_parts("trend", "Over versions and time", blocks, Vec::new())
}

/// What the runs are put in order by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Version,
    Image,
    Time,
}

impl By {
    fn step_word(self) -> &'static str {
        match self {
            By::Version => "engine version",
            By::Image => "image",
            By::Time => "time",
        }
    }
}

/// The runs of one version, of one image, or one run.
struct Step<'a> {
    label: String,
    runs: Vec<&'a ReportRun>,
    figures: Vec<RowFigures>,
}

impl<'a> Step<'a> {
    fn new(label: String, runs: Vec<&'a ReportRun>) -> Step<'a> {
        Step {
            label,
            figures: runs
                .iter()
                .map(|r| RowFigures::of_profile(&r.profile))
                .collect(),
            runs,
        }
    }

    /// The figures of its runs, sorted.
    fn sorted(&self, watched: &CellFigure) -> Vec<f64> {
        let mut all: Vec<f64> = self
            .figures
            .iter()
            .filter_map(|f| watched.value_of(f))
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn median(&self, watched: &CellFigure) -> Option<f64> {
        quantile_of_sorted(&self.sorted(watched), 0.5)
    }

    fn figure_range(&self, watched: &CellFigure) -> Option<(f64, f64)> {
        let all = self.sorted(watched);
        all.first().copied().zip(all.last().copied())
    }
}

/// Runs that are alike, in order.
struct Trend<'a> {
    by: By,
    alike: &'a Alike<'a>,
    steps: Vec<Step<'a>>,
    /// Steps before the first that is shown.
    earlier: usize,
    /// Runs of an unknown version.
    unknown: usize,
}

impl<'a> Trend<'a> {
    fn trend_of_runs(alike: &'a Alike<'a>) -> Option<Trend<'a>> {
        let version = |run: &ReportRun| run.profile.engine_metadata.engine_version.clone();
        let image = |run: &ReportRun| {
            Some(run.profile.metadata.container.image.clone()).filter(|i| !i.is_empty())
        };
        let steps = |label: &dyn Fn(&ReportRun) -> Option<String>| {
            let labelled = alike
                .runs
                .iter()
                .copied()
                .filter(|run| label(run).is_some());
            group_items(labelled, |run| label(run).unwrap_or_default())
        };
        let mut by_version = steps(&version);
        let by_image = steps(&image);
        let (by, found) = if by_version.len() > 1 {
            by_version.sort_by_cached_key(|s| version::version_order(&s.0));
            (By::Version, by_version)
        } else if by_image.len() > 1 {
            (By::Image, by_image)
        } else {
            // To the second: `2026-11-21 13:49:58`.
            let moment = |r: &ReportRun| {
                let timestamp = r.profile.metadata.timestamp.replacen('T', " ", 1);
                timestamp.chars().take(19).collect::<String>()
            };
            let each = alike.runs.iter().map(|r| (moment(r), vec![*r]));
            (By::Time, each.collect())
        };
        let known_runs: usize = found.iter().map(|s| s.1.len()).sum();
        let earlier = found.len().saturating_sub(STEPS);
        let steps: Vec<Step> = found
            .into_iter()
            .skip(earlier)
            .map(|(label, runs)| Step::new(label, runs))
            .collect();
        (steps.len() > 1).then(|| Trend {
            earlier,
            by,
            alike,
            steps,
            unknown: alike.runs.len() - known_runs,
        })
    }

    fn trend_blocks(&self, prefix: &str) -> Vec<ContentBlock> {
        let runs: usize = self.steps.iter().map(|s| s.runs.len()).sum();
        let hosts: std::collections::BTreeSet<&str> = (self.steps.iter())
            .flat_map(|s| &s.runs)
            .map(|r| r.profile.metadata.host.hostname.as_str())
            .collect();
        let mut text = format!(
            "{} of {}, by {}",
            counted_words(runs, "run", "runs"),
            self.alike.title,
            self.by.step_word()
        );
        if hosts.len() > 1 {
            text.push_str(&format!(", on {} hosts", hosts.len()));
        }
        text.push('.');
        if runs > self.steps.len() {
            text.push_str(" Of several runs the median is shown.");
        }
        if self.earlier > 0 {
            text.push_str(&format!(
                " Shown are the latest {STEPS}; {} before them {} left out.",
                self.earlier,
                if self.earlier == 1 { "is" } else { "are" }
            ));
        }
        let mut blocks = vec![ContentBlock::Text(text)];
        let moved = self.moved();
        if moved.is_empty() {
            blocks.push(ContentBlock::Text(format!(
                "No figure moved by more than {MOVED} % between neighbours."
            )));
        }
        blocks.extend(moved.into_iter().map(ContentBlock::Text));
        if self.unknown > 0 {
            blocks.push(ContentBlock::Text(format!(
                "{} left out: the {} is not known.",
                counted_words(self.unknown, "run is", "runs are"),
                self.by.step_word()
            )));
        }
        blocks.extend(self.charts(prefix).into_iter().map(ContentBlock::Chart));
        blocks.push(ContentBlock::Table(self.steps_table(prefix)));
        blocks
    }

    /// What moved by more than [`MOVED`] between neighbours, a sentence each.
    fn moved(&self) -> Vec<String> {
        let neighbours = self.steps.iter().zip(self.steps.iter().skip(1));
        let mut sentences: Vec<String> = neighbours.flat_map(|(a, b)| moved(a, b)).collect();
        // Small moves in one direction add up, and none of them is reported by itself.
        if let [first, .., last] = &self.steps[..] {
            if self.steps.len() > 2 {
                let all = moved(first, last);
                sentences.extend(all.into_iter().map(|s| format!("From first to last: {s}")));
            }
        }
        sentences
    }

    fn steps_table(&self, prefix: &str) -> Grid {
        let by = self.by.step_word();
        let mut table = TableBuilder::of_items(&self.steps)
            .words(by, "step", |step| &step.label)
            .counts("runs", "runs", |step| step.runs.len());
        for watched in &WATCHED {
            table = table.column(watched.table_column(), |step| {
                let known = step.sorted(watched).len();
                cell_by(step.median(watched), "no run of it knows", |value| {
                    let text = format_figure(watched, value);
                    if known < step.runs.len() {
                        format!("{text} (of {known})")
                    } else {
                        text
                    }
                })
            });
        }
        let caption = format!("{}, by {by}", self.alike.title);
        table.grid(format!("{prefix}_figures"), caption)
    }

    fn charts(&self, prefix: &str) -> Vec<Chart> {
        let pictures: [(&str, &str, &[&str]); 3] = [
            (
                "memory",
                "Memory",
                &["peak_gib", "weights_gib", "kv_pool_gib", "overhead_gib"],
            ),
            ("kv_pool", "KV pool", &["kv_pool_tokens"]),
            ("throughput", "Throughput", &["tokens_per_second"]),
        ];
        let places: Vec<(f64, String)> = (self.steps.iter().enumerate())
            .map(|(i, s)| ((i + 1) as f64, s.label.clone()))
            .collect();
        let by = self.by.step_word();
        let charts = pictures.iter().filter_map(|(id, title, keys)| {
            let drawn = WATCHED.iter().filter(|w| keys.contains(&w.key));
            let unit = drawn.clone().next()?.unit;
            let curves = drawn.map(|w| self.curve(w)).filter(|c| c.points.len() > 1);
            let curves = Curves {
                x: ChartAxis::new_axis(by, "", Scale::Linear),
                y: ChartAxis::new_axis(*title, unit, Scale::FromZero),
                curves: curves.collect(),
                x_names: places.clone(),
                ..Curves::default()
            };
            let is_drawn = !curves.curves.is_empty();
            let title = format!("{title} by {by}: {}", self.alike.model);
            let (id, plot) = (format!("{prefix}_{id}"), Plot::Curves(curves));
            is_drawn.then(|| Chart::new_chart(id, title, None, self.alike.simulated, plot))
        });
        charts.collect()
    }

    fn curve(&self, watched: &CellFigure) -> Curve {
        let dots = self.steps.iter().enumerate().filter_map(|(i, step)| {
            Some(Dot {
                x: (i + 1) as f64,
                y: step.median(watched)?,
                range: step.figure_range(watched).filter(|_| step.runs.len() > 1),
                label: Some(step.label.clone()),
            })
        });
        Curve::new_curve(watched.title, dots.collect(), true)
    }
}

/// Percent, with a decimal where it is small.
fn format_share(percent: f64) -> String {
    if percent < 10.0 {
        format!("{percent:.1}").trim_end_matches(".0").to_owned()
    } else {
        format!("{percent:.0}")
    }
}

/// What moved from one step to the next.
fn moved(a: &Step<'_>, b: &Step<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut titles: Vec<&str> = Vec::new();
    for watched in &WATCHED {
        // Tokens and bytes of the pool move together: one sentence.
        if titles.contains(&watched.title) {
            continue;
        }
        let Some((before, after)) = a.median(watched).zip(b.median(watched)) else {
            continue;
        };
        titles.push(watched.title);
        let Some(percent) = change(Some(before), Some(after)).filter(|p| p.abs() > MOVED) else {
            continue;
        };
        let verb = if percent < 0.0 { "shrank" } else { "grew" };
        let mut sentence = format!(
            "{} {verb} {} % from {} to {} ({} to {} {}",
            watched.title,
            format_share(percent.abs()),
            a.label,
            b.label,
            format_figure(watched, before),
            format_figure(watched, after),
            watched.unit
        );
        let (n, m) = (a.sorted(watched).len(), b.sorted(watched).len());
        if n > 1 || m > 1 {
            sentence.push_str(&format!("; medians of {n} and {m} runs"));
        }
        sentence.push(')');
        let overlap = a.figure_range(watched).zip(b.figure_range(watched));
        if overlap.is_some_and(|(a, b)| (n > 1 || m > 1) && a.0 <= b.1 && b.0 <= a.1) {
            sentence.push_str(", within the spread of the runs");
        }
        sentence.push('.');
        sentences.push(sentence);
    }
    if !sentences.is_empty() {
        let changed = changed_settings(&a.runs, &b.runs);
        if !changed.is_empty() {
            let named: Vec<String> = changed.iter().take(NAMED).cloned().collect();
            let more = match changed.len().saturating_sub(NAMED) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            sentences.push(format!(
                "In force changed between {} and {}: {}{more}.",
                a.label,
                b.label,
                named.join(", ")
            ));
        }
    }
    sentences
}

fn format_figure(watched: &CellFigure, value: f64) -> String {
    match watched.unit {
        "tokens" => grouped_count(value.max(0.0).round() as u64),
        unit => format_in_unit(value, unit),
    }
}

/// The runs that are in no trend, and why.
fn left_out(groups: &[Alike<'_>], trends: &[Trend<'_>], not_whole: usize) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    let alone: Vec<&Alike> = groups
        .iter()
        .filter(|g| trends.iter().all(|t| !std::ptr::eq(t.alike, *g)))
        .collect();
    let runs: usize = alone.iter().map(|g| g.runs.len()).sum();
    if runs > 0 {
        let near = trends.first().map(|t| t.alike);
        let why: Vec<String> = (alone.iter().take(5))
            .filter_map(|g| Some(format!("{} ({})", g.group_name(), g.differs_from(near?))))
            .collect();
        let more = if alone.len() > why.len() { "; …" } else { "" };
        blocks.push(ContentBlock::Text(format!(
            "{} not compared, because other settings differ: {}{more}.",
            counted_words(runs, "run is", "runs are"),
            why.join("; ")
        )));
    }
    if not_whole > 0 {
        blocks.push(ContentBlock::Text(format!(
            "{} not compared for not coming to an end.",
            counted_words(not_whole, "run is", "runs are")
        )));
    }
    blocks
}
