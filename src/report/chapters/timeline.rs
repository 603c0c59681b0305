//! Memory timeline: the samples as they came, phases and events, and what the range means.

use super::Sources;
use crate::breakdown::PeakSource;
use crate::profile::{Shape, UnderLoad};
use crate::report::content::{
    Chapter, ContentBlock, Grid, TableCell, number_column, text_column as column,
};
use crate::report::layout::{format_duration, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun};

pub(super) fn write_timeline_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let mut blocks = Vec::new();
    for at in material.shown_runs() {
        let run = at.run;
        if !run.timeline.lanes.is_empty() {
            let (id, title) = (at.id("timeline"), at.title("Memory timeline"));
            blocks.push(ContentBlock::Chart(run.timeline.timeline_chart(id, title)));
        }
        let moved = run.profile.memory_timeline.under_load.as_ref();
        let sentences = moved.map(under_load).into_iter();
        let sentences = sentences.chain(peak_witness(run)).chain(final_state(run));
        blocks.extend(sentences.map(|s| super::of_run_text(&s, run, at.many).into()));
    }
    if blocks.is_empty() {
        return Vec::new();
    }
    let details = vec![ContentBlock::Table(statistics(material, sources))];
    Chapter::of_parts("timeline", "Memory timeline", blocks, details)
}

/// What saw the peak: the least exact witness of all devices.
fn peak_witness(run: &ReportRun) -> Option<String> {
    let peak = run.profile.memory_measurements.peak.as_ref()?;
    let rank = |source: PeakSource| match source {
        PeakSource::Sample => 0,
        PeakSource::Probe => 1,
        PeakSource::KernelPeak => 2,
    };
    let sources = peak.per_gpu_details.iter().map(|d| d.source);
    let least = sources.min_by_key(|source| rank(*source))?;
    Some(format!("The peak is {}.", least.describe_witness()))
}

/// How memory moved while the load ran.
fn under_load(u: &UnderLoad) -> String {
    let (moved, percent) = (format_figure(u.peak_gb - u.min_gb), u.range_percent);
    let shape = match u.shape {
        None => "; the load was too short to say more",
        Some(Shape::Stable) => ": stable, no spikes",
        Some(Shape::Spiky) => {
            let above = format_figure(u.peak_gb - u.p95_gb);
            &format!(": spiky, the peak is {above} GiB above 95 % of the samples")
        }
        Some(Shape::Growing) => {
            ": it was still growing towards the end, a longer run may peak higher"
        }
        Some(Shape::Varying) => ": it comes and goes with the load",
    };
    format!("Under load memory moved by {moved} GiB, {percent:.1} % of its peak{shape}.")
}

/// Statistics over the samples, run by run.
fn statistics(material: &Material, sources: &mut Sources) -> Grid {
    let kind = "statistics over all samples";
    let rows = material.shown_runs().map(|at| {
        let run = at.run;
        let t = &run.profile.memory_timeline;
        let mut f = at.figures(sources);
        let cells = [
            ("lowest sample, GiB", t.min_gb, "memory_timeline.min_gb"),
            ("mean, GiB", t.mean_gb, "memory_timeline.mean_gb"),
            ("median, GiB", t.median_gb, "memory_timeline.median_gb"),
            ("95th percentile, GiB", t.p95_gb, "memory_timeline.p95_gb"),
            ("highest sample, GiB", t.max_gb, "memory_timeline.max_gb"),
        ]
        .map(|(title, value, path)| f.reported_cell(title, kind, (value, path)));
        let ends = [(&run.name).into(), sampling(run).into()];
        let [name, samples]: [TableCell; 2] = ends;
        [name].into_iter().chain(cells).chain([samples]).collect()
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

/// The last sample beside the first: what the load left behind.
fn final_state(run: &ReportRun) -> Option<String> {
    let points = &run.profile.memory_timeline.timeline;
    let (first, last) = (points.first()?, points.last()?);
    let change = last.memory_gb - first.memory_gb;
    let than = if change < 0.0 { "less" } else { "more" };
    let watts = last.power_w.map(|w| format!(", at {w:.0} W"));
    let heat = last.temp_c.map(|c| format!(", {c:.0} °C"));
    let beside: String = watts.into_iter().chain(heat).collect();
    let (used, change) = (format_figure(last.memory_gb), format_figure(change.abs()));
    Some(format!(
        "At the end {used} GiB is in use, {change} GiB {than} than at the first sample{beside}."
    ))
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
        text += &format!(" every {ms} ms");
    }
    if facts.missed_ticks > 0 {
        text += &format!(", {} missed", grouped_count(facts.missed_ticks));
    }
    if facts.longest_gap_ns > facts.interval_ns.saturating_mul(2) {
        let gap = format_duration(facts.longest_gap_ns as f64 / 1e9);
        text += &format!(", longest gap {gap}");
    }
    text
}
