//! Many runs of the same model under the same settings, by version or by time: what moved.

mod alike;
#[cfg(test)]
mod tests;
mod version;

use super::sweep::read::CellFigure;
use super::{Sources, numbered_id};
use crate::compare::difference_percent;
use crate::matrix::RowFigures;
use crate::profile::stats::quantile_of_sorted;
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::content::{Chapter, ContentBlock, Grid};
use crate::report::figures::cell_by;
use crate::report::layout::{
    counted_noun, counted_words, distinct_items, group_items, grouped_count, join_first,
};
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
        blocks.push(format!("{more} more groups of runs are left out.").into());
    }
    let not_whole = material.runs.len() - whole.len();
    blocks.extend(left_out(&groups, &trends, not_whole));
    Chapter::of_parts("trend", "Over versions and time", blocks, Vec::new())
}

/// The runs of one version, of one image, or one run.
struct Step<'a> {
    label: String,
    runs: Vec<&'a ReportRun>,
    figures: Vec<RowFigures>,
}

impl<'a> Step<'a> {
    fn new((label, runs): (String, Vec<&'a ReportRun>)) -> Step<'a> {
        let figures = runs.iter().map(|r| RowFigures::of_profile(&r.profile));
        Step {
            label,
            figures: figures.collect(),
            runs,
        }
    }

    /// The figures of its runs, sorted.
    fn sorted(&self, watched: &CellFigure) -> Vec<f64> {
        let all = self.figures.iter().filter_map(|f| watched.value_of(f));
        let mut all: Vec<f64> = all.collect();
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
    /// What they are put in order by.
    by: &'static str,
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
            let runs = alike.runs.iter().copied();
            let labelled = runs.filter(|run| label(run).is_some());
            group_items(labelled, |run| label(run).unwrap_or_default())
        };
        let mut by_version = steps(&version);
        let by_image = steps(&image);
        let (by, found) = if by_version.len() > 1 {
            by_version.sort_by_cached_key(|s| version::version_order(&s.0));
            ("engine version", by_version)
        } else if by_image.len() > 1 {
            ("image", by_image)
        } else {
            // To the second: `2026-11-21 13:49:58`.
            let moment = |r: &ReportRun| {
                let timestamp = r.profile.metadata.timestamp.replacen('T', " ", 1);
                timestamp.chars().take(19).collect::<String>()
            };
            let each = alike.runs.iter().map(|r| (moment(r), vec![*r]));
            ("time", each.collect())
        };
        let known_runs: usize = found.iter().map(|s| s.1.len()).sum();
        let earlier = found.len().saturating_sub(STEPS);
        let steps: Vec<Step> = found.into_iter().skip(earlier).map(Step::new).collect();
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
        let all = self.steps.iter().flat_map(|s| &s.runs);
        let hosts = distinct_items(all.map(|r| &r.profile.metadata.host.hostname));
        let (by, counted) = (self.by, counted_noun(runs, "run"));
        let mut text = format!("{counted} of {}, by {by}", self.alike.title);
        if hosts.len() > 1 {
            text += &format!(", on {} hosts", hosts.len());
        }
        text.push('.');
        if runs > self.steps.len() {
            text += " Of several runs the median is shown.";
        }
        if self.earlier > 0 {
            let n = self.earlier;
            let are = if n == 1 { "is" } else { "are" };
            text += &format!(" Shown are the latest {STEPS}; {n} before them {are} left out.");
        }
        let mut blocks: Vec<ContentBlock> = vec![text.into()];
        let moved = self.moved();
        if moved.is_empty() {
            let text = format!("No figure moved by more than {MOVED} % between neighbours.");
            blocks.push(text.into());
        }
        blocks.extend(moved.into_iter().map(ContentBlock::Text));
        if self.unknown > 0 {
            let runs = counted_words(self.unknown, "run is", "runs are");
            blocks.push(format!("{runs} left out: the {by} is not known.").into());
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
        let by = self.by;
        let mut table = TableBuilder::of_items(&self.steps)
            .words(by, "step", |step| &step.label)
            .counts("runs", "runs", |step| step.runs.len());
        for watched in &WATCHED {
            table = table.column(watched.table_column(), |step| {
                let known = step.sorted(watched).len();
                cell_by(step.median(watched), "no run of it knows", |value| {
                    let of = (known < step.runs.len()).then(|| format!(" (of {known})"));
                    format_figure(watched, value) + &of.unwrap_or_default()
                })
            });
        }
        let caption = format!("{}, by {by}", self.alike.title);
        table.grid(format!("{prefix}_figures"), caption)
    }

    fn charts(&self, prefix: &str) -> Vec<Chart> {
        let of_memory = ["peak_gib", "weights_gib", "kv_pool_gib", "overhead_gib"];
        let pictures: [(&str, &str, &[&str]); 3] = [
            ("memory", "Memory", &of_memory),
            ("kv_pool", "KV pool", &["kv_pool_tokens"]),
            ("throughput", "Throughput", &["tokens_per_second"]),
        ];
        let places: Vec<(f64, String)> = (self.steps.iter().enumerate())
            .map(|(i, s)| ((i + 1) as f64, s.label.clone()))
            .collect();
        let by = self.by;
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
    let decimals = usize::from(percent < 10.0);
    format!("{percent:.decimals$}")
        .trim_end_matches(".0")
        .to_owned()
}

/// What moved from one step to the next.
fn moved(a: &Step<'_>, b: &Step<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut titles: Vec<&str> = Vec::new();
    let (from, to) = (&a.label, &b.label);
    for watched in &WATCHED {
        // Tokens and bytes of the pool move together: one sentence.
        if titles.contains(&watched.title) {
            continue;
        }
        let Some((before, after)) = a.median(watched).zip(b.median(watched)) else {
            continue;
        };
        titles.push(watched.title);
        let Some(percent) = difference_percent(before, after).filter(|p| p.abs() > MOVED) else {
            continue;
        };
        let verb = if percent < 0.0 { "shrank" } else { "grew" };
        let (title, unit, by) = (watched.title, watched.unit, format_share(percent.abs()));
        let (before, after) = (
            format_figure(watched, before),
            format_figure(watched, after),
        );
        let mut sentence = format!("{title} {verb} {by} % from {from} to {to}");
        sentence += &format!(" ({before} to {after} {unit}");
        let (n, m) = (a.sorted(watched).len(), b.sorted(watched).len());
        if n > 1 || m > 1 {
            sentence += &format!("; medians of {n} and {m} runs");
        }
        sentence.push(')');
        let overlap = a.figure_range(watched).zip(b.figure_range(watched));
        if overlap.is_some_and(|(a, b)| (n > 1 || m > 1) && a.0 <= b.1 && b.0 <= a.1) {
            sentence += ", within the spread of the runs";
        }
        sentences.push(sentence + ".");
    }
    if sentences.is_empty() {
        return sentences;
    }
    let changed = changed_settings(&a.runs, &b.runs);
    if !changed.is_empty() {
        let more = |n| format!(" and {n} more");
        let named = join_first(&changed, NAMED, ", ", String::clone, more);
        sentences.push(format!(
            "In force changed between {from} and {to}: {named}."
        ));
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
    let has_trend = |g: &Alike| trends.iter().any(|t| std::ptr::eq(t.alike, g));
    let alone: Vec<&Alike> = groups.iter().filter(|g| !has_trend(g)).collect();
    let runs: usize = alone.iter().map(|g| g.runs.len()).sum();
    let counted = |runs: usize| counted_words(runs, "run is", "runs are");
    if runs > 0 {
        let near = trends[0].alike;
        let why = |g: &&Alike| format!("{} ({})", g.group_name(), g.differs_from(near));
        let why = join_first(&alone, 5, "; ", why, |_| "; …".into());
        let runs = counted(runs);
        let text = format!("{runs} not compared, because other settings differ: {why}.");
        blocks.push(text.into());
    }
    if not_whole > 0 {
        let runs = counted(not_whole);
        blocks.push(format!("{runs} not compared for not coming to an end.").into());
    }
    blocks
}
