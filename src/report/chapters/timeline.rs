//! Memory timeline: the samples as they came, phases and events, and what the range means.

use super::Sources;
use super::figures::{Figures, numbers, words as column};
use crate::profile::{Shape, UnderLoad};
use crate::report::chart::Timeline;
use crate::report::content::{Block, Cell, Chapter, Grid};
use crate::report::layout::{count, duration, figure};
use crate::report::material::{Material, Run};

pub(super) fn write(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let many = material.runs.len() > 1;
    let mut blocks = Vec::new();
    for (i, run) in material.runs.iter().enumerate() {
        if run.timeline.lanes.is_empty() {
            continue;
        }
        blocks.push(Block::Timeline(Timeline {
            id: super::numbered("timeline", i, many),
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
            blocks.push(Block::Text(text));
        }
    }
    if blocks.is_empty() {
        return Vec::new();
    }
    blocks.push(Block::Table(statistics(material, sources)));
    vec![Chapter {
        id: "timeline".into(),
        title: "Over time".into(),
        blocks,
    }]
}

/// How memory moved while the load ran.
fn under_load(u: &UnderLoad) -> String {
    let range = format!(
        "Under load memory moved by {} GiB, {:.1} % of its peak",
        figure(u.peak_gb - u.min_gb),
        u.range_percent
    );
    match u.shape {
        None => format!("{range}; the load was too short to say more."),
        Some(Shape::Stable) => format!("{range}: stable, no spikes."),
        Some(Shape::Spiky) => format!(
            "{range}: spiky, the peak stands {} GiB above 95 % of the samples.",
            figure(u.peak_gb - u.p95_gb)
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
        let mut row = vec![Cell::text(&run.name)];
        let mut f = Figures { sources, run, many };
        row.extend(
            [
                ("lowest sample, GiB", t.min_gb, "memory_timeline.min_gb"),
                ("mean, GiB", t.mean_gb, "memory_timeline.mean_gb"),
                ("median, GiB", t.median_gb, "memory_timeline.median_gb"),
                ("95th percentile, GiB", t.p95_gb, "memory_timeline.p95_gb"),
                ("highest sample, GiB", t.max_gb, "memory_timeline.max_gb"),
            ]
            .map(|(title, value, path)| f.told(title, kind, (value, path))),
        );
        row.push(Cell::text(sampling(run)));
        row
    });
    Grid {
        id: "samples".into(),
        caption: "All samples of the run, summed over the devices".into(),
        columns: vec![
            column("run", "run"),
            numbers("lowest, GiB", "min_gib"),
            numbers("mean, GiB", "mean_gib"),
            numbers("median, GiB", "median_gib"),
            numbers("p95, GiB", "p95_gib"),
            numbers("highest, GiB", "max_gib"),
            column("samples", "samples"),
        ],
        rows: rows.collect(),
    }
}

/// How many samples, how far apart, how many were missed.
fn sampling(run: &Run) -> String {
    let t = &run.profile.memory_timeline;
    let facts = &run.profile.metadata.sampling;
    let mut text = count(t.num_samples);
    if t.sample_interval_s > 0.0 {
        let ms = t.sample_interval_s * 1e3;
        let ms = if ms >= 1.0 && (ms - ms.round()).abs() < 1e-6 {
            count(ms.round() as u64)
        } else {
            figure(ms)
        };
        text.push_str(&format!(" every {ms} ms"));
    }
    if facts.missed_ticks > 0 {
        text.push_str(&format!(", {} missed", count(facts.missed_ticks)));
    }
    if facts.longest_gap_ns > facts.interval_ns.saturating_mul(2) {
        let gap = duration(facts.longest_gap_ns as f64 / 1e9);
        text.push_str(&format!(", longest gap {gap}"));
    }
    text
}
