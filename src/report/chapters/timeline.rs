//! Memory timeline: the samples as they came, phases and events, and what the range means.

use super::Sources;
use super::figures::{SourcedFigures, number_column, text_column as column};
use crate::profile::{Shape, UnderLoad};
use crate::report::chart::ChartTimeline;
use crate::report::content::{Chapter, ContentBlock, Grid, TableCell};
use crate::report::layout::{format_duration, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun};

pub(super) fn write_timeline_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let many = material.runs.len() > 1;
    let mut blocks = Vec::new();
    for (i, run) in material.runs.iter().enumerate() {
        if run.timeline.lanes.is_empty() {
            continue;
        }
        blocks.push(ContentBlock::Timeline(ChartTimeline {
            id: super::numbered_id("timeline", i, many),
            title: super::of_run(&run.timeline.title, run, many),
            ..run.timeline.clone()
        }));
        if let Some(text) = run
            .profile
            .memory_timeline
            .under_load
            .as_ref()
            .map(under_load)
        {
            blocks.push(ContentBlock::Text(text));
        }
    }
    if blocks.is_empty() {
        return Vec::new();
    }
    blocks.push(ContentBlock::Table(statistics(material, sources)));
    vec![Chapter {
        id: "timeline".into(),
        title: "Memory timeline".into(),
        blocks,
    }]
}

/// How memory moved while the load ran.
fn under_load(u: &UnderLoad) -> String {
    let range = format!(
        "Under load memory moved by {} GiB, {:.1} % of its peak",
        format_figure(u.peak_gb - u.min_gb),
        u.range_percent
    );
    match u.shape {
        None => format!("{range}; the load was too short to say more."),
        Some(Shape::Stable) => format!("{range}: stable, no spikes."),
        Some(Shape::Spiky) => format!(
            "{range}: spiky, the peak stands {} GiB above 95 % of the samples.",
            format_figure(u.peak_gb - u.p95_gb)
        ),
        Some(Shape::Growing) => {
            format!("{range}: it was still growing towards the end, a longer run may peak higher.")
        }
        Some(Shape::Varying) => format!("{range}: it comes and goes with the load."),
    }
}

/// What the samples say, run by run.
fn statistics(material: &Material, sources: &mut Sources) -> Grid {
    let many = material.runs.len() > 1;
    let kind = "statistics over all samples";
    let rows = material.runs.iter().filter(|r| r.in_full).map(|run| {
        let t = &run.profile.memory_timeline;
        let mut row = vec![TableCell::text_cell(&run.name)];
        let mut f = SourcedFigures { sources, run, many };
        row.extend(
            [
                ("lowest sample, GiB", t.min_gb, "memory_timeline.min_gb"),
                ("mean, GiB", t.mean_gb, "memory_timeline.mean_gb"),
                ("median, GiB", t.median_gb, "memory_timeline.median_gb"),
                ("95th percentile, GiB", t.p95_gb, "memory_timeline.p95_gb"),
                ("highest sample, GiB", t.max_gb, "memory_timeline.max_gb"),
            ]
            .map(|(title, value, path)| f.reported_cell(title, kind, (value, path))),
        );
        row.push(TableCell::text_cell(sampling(run)));
        row
    });
    Grid {
        id: "samples".into(),
        caption: "All samples of the run, summed over the devices".into(),
        columns: vec![
            column("run", "run"),
            number_column("lowest, GiB", "min_gib"),
            number_column("mean, GiB", "mean_gib"),
            number_column("median, GiB", "median_gib"),
            number_column("p95, GiB", "p95_gib"),
            number_column("highest, GiB", "max_gib"),
            column("samples", "samples"),
        ],
        rows: rows.collect(),
    }
}

/// How many samples, how far apart, how many were missed.
fn sampling(run: &ReportRun) -> String {
    let t = &run.profile.memory_timeline;
    let facts = &run.profile.metadata.sampling;
    let mut text = grouped_count(t.num_samples);
    if t.sample_interval_s > 0.0 {
        let ms = t.sample_interval_s * 1e3;
        let ms = if ms >= 1.0 && (ms - ms.round()).abs() < 1e-6 {
            grouped_count(ms.round() as u64)
        } else {
            format_figure(ms)
        };
        text.push_str(&format!(" every {ms} ms"));
    }
    if facts.missed_ticks > 0 {
        text.push_str(&format!(", {} missed", grouped_count(facts.missed_ticks)));
    }
    if facts.longest_gap_ns > facts.interval_ns.saturating_mul(2) {
        let gap = format_duration(facts.longest_gap_ns as f64 / 1e9);
        text.push_str(&format!(", longest gap {gap}"));
    }
    text
}
