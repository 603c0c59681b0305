//! Where every byte of the peak goes: bars for each device, and the parts with what they rest on.

use super::figures::{
    OVERHEAD, SourcedFigures, TOTAL, gib_cell, gib_text, of_device, percent_cell, reason_at_path,
    why_part,
};
use super::words::{self, confidence_level, is_low_confidence};
use super::{ShownRun, Sources};
use crate::breakdown::{Component, Part};
use crate::capture::{DeviceFacts, DeviceKind};
use crate::compare::subject::source_of_part;
use crate::engine::facts::Severity;
use crate::report::chart::{Bar, BarPart, Bars, Chart, ChartAxis, Plot, Scale, Segment};
use crate::report::content::{
    Chapter, ContentBlock, Grid, SourceId, TableCell, facts_grid, note_block, number_column,
    share_column, text_column as column,
};
use crate::report::layout::{counted_noun, grouped_count, join_sentences};
use crate::report::material::{Material, ReportRun};
use crate::report::tables::TableBuilder;
use crate::units::to_gib;
use std::collections::BTreeSet;

/// More bars than this are no picture any more.
const MOST_BARS: usize = 40;
/// Devices that get a column of their own in the table.
const MOST_COLUMNS: usize = 8;
/// A limit beyond this many times the peak would make the bar a dot before its line.
const FAR_LIMIT: u64 = 3;

pub(super) fn write_breakdown_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let runs = &material.runs;
    if runs.is_empty() {
        return Vec::new();
    }
    let (mut blocks, mut details) = (Vec::new(), Vec::new());
    blocks.extend(breakdown_bars(material, sources).map(ContentBlock::Chart));
    for at in material.shown_runs() {
        let mut figures = at.figures(sources);
        if let Some(known) = known_before_failure(at) {
            blocks.push(known);
        } else {
            blocks.push(ContentBlock::Table(parts_table(&mut figures, at)));
            blocks.push(overhead_text(at).into());
        }
        blocks.push(ContentBlock::Table(pool_table(&mut figures, at)));
    }
    blocks.extend(runs.iter().filter_map(torn));
    let measured = |r: &ReportRun| r.profile.memory_breakdown.total_measured_bytes.is_some();
    if runs.iter().any(measured) && runs.iter().all(|r| torn(r).is_none()) {
        let text = "Each device counts at its own highest moment. The parts sum to the peak, exactly and in bytes; what no source accounts for is unexplained, and negative where the sources report more than was measured.";
        details.push(text.into());
    }
    Chapter::of_parts("breakdown", "Memory breakdown", blocks, details)
}

/// Of a run that failed before its peak was measured: what is known until then, in place of rows without a figure.
fn known_before_failure(at: ShownRun<'_>) -> Option<ContentBlock> {
    let run = at.run;
    let p = &run.profile;
    p.metadata.outcome.failure()?;
    let was_measured = p.memory_breakdown.total_measured_bytes.is_some();
    let phases = run.timeline.phases.iter().map(|phase| {
        let text = format!("seconds {:.1} to {:.1}", phase.from_s, phase.to_s);
        (format!("phase {}", phase.label), text)
    });
    let mut facts: Vec<(String, String)> = phases.collect();
    for lane in run.timeline.lanes.iter().filter(|lane| lane.memory) {
        let mut samples = lane.stretches.iter().map(|s| s.high);
        let highest = samples.clone().reduce(f64::max).map(gib_text);
        if let Some((highest, last)) = highest.zip(samples.next_back().map(gib_text)) {
            let text = format!("highest sample {highest} GiB, last {last} GiB");
            facts.push((lane.label.clone(), text));
        }
    }
    let reported = &p.vllm_internal_metrics;
    for (component, gib) in [
        (Component::ModelWeights, reported.model_weights_gb),
        (Component::KvCache, reported.total_gpu_kv_cache_gb),
        (Component::Activations, reported.activations_gb),
        (Component::CudaGraphs, reported.cuda_graphs_gb),
    ] {
        let text = gib.map(|gib| format!("{} GiB, reported by the engine", gib_text(gib)));
        facts.extend(text.map(|text| (component.display_label().to_owned(), text)));
    }
    let name = at.many.then(|| format!("_{}", run.name));
    let id = "known_before_failure".to_owned() + &name.unwrap_or_default();
    let grid = facts_grid(id, at.title("Known before the failure"), facts);
    (!was_measured && !grid.rows.is_empty()).then_some(ContentBlock::Table(grid))
}

/// A document that was changed by hand.
fn torn(run: &ReportRun) -> Option<ContentBlock> {
    let message = run.find_contradiction()?;
    Some(note_block(Severity::Error, "parts_do_not_sum", message))
}

/// A bar for each device of each run; of many runs one for each run.
fn breakdown_bars(material: &Material, sources: &mut Sources) -> Option<Chart> {
    let runs = &material.runs;
    let many = runs.len() > 1;
    let has_peak = |r: &&ReportRun| !r.profile.memory_breakdown.per_gpu.is_empty();
    let known: Vec<&ReportRun> = runs.iter().filter(has_peak).collect();
    if known.is_empty() {
        return None;
    }
    let peaks = || known.iter().map(|r| &r.profile.memory_breakdown);
    let devices: usize = peaks().map(|b| b.per_gpu.len()).sum();
    let by_device = devices <= MOST_BARS / 2 || !many;
    let kinds = peaks().flat_map(|b| &b.components).map(|p| p.component);
    let kinds: Vec<Component> = kinds.collect::<BTreeSet<_>>().into_iter().collect();
    let (mut all, mut far) = (Vec::new(), None);
    for run in &known {
        let p = &run.profile;
        let mut figures = SourcedFigures { sources, run, many };
        if !by_device {
            let parts = &p.memory_breakdown.components;
            all.push(bar(&mut figures, run.name.clone(), None, parts, &kinds));
            continue;
        }
        for d in &p.memory_breakdown.per_gpu {
            let facts = p.gpu_info.devices.iter().find(|f| f.index == d.gpu_id);
            let of = of_device(p, d.gpu_id);
            let prefix = many.then(|| format!("{}, ", run.name));
            let label = prefix.unwrap_or_default() + &of;
            let mut bar = bar(&mut figures, label, Some(d.gpu_id), &d.parts, &kinds);
            if let Some(total) = facts.and_then(|f| f.total_bytes) {
                let words = format!("limit {} GiB", gib_text(to_gib(total)));
                if total <= d.peak_bytes.saturating_mul(FAR_LIMIT) {
                    bar.limit = Some((to_gib(total), words));
                } else {
                    far = Some(words);
                }
            }
            all.push(bar);
        }
    }
    let left_out = (runs.len() - known.len()) + all.len().saturating_sub(MOST_BARS);
    all.truncate(MOST_BARS);
    let mut notes = Vec::new();
    if left_out > 0 {
        notes.push(format!("{} left out: of too many runs the first are drawn, and runs without a peak have no bar.", counted_noun(left_out, "run")));
    }
    notes.extend(far.map(|limit| format!("The {limit} is off the scale.")));
    let parts = kinds.iter().map(|c| BarPart::part_of_component(*c));
    let plot = Plot::Bars(Bars {
        axis: ChartAxis::new_axis("memory at the peak", "GiB", Scale::FromZero),
        parts: parts.collect(),
        bars: all,
    });
    let (id, title) = ("breakdown", "Memory at the peak");
    let simulated = words::simulated_parts(material).is_some();
    let note = join_sentences(notes);
    Some(Chart::new_chart(id, title, note, simulated, plot))
}

fn bar(
    figures: &mut SourcedFigures<'_>,
    label: String,
    gpu: Option<u32>,
    parts: &[Part],
    kinds: &[Component],
) -> Bar {
    let segments = parts.iter().filter_map(|part| {
        Some(Segment {
            part: kinds.iter().position(|c| *c == part.component)?,
            value: part.gb,
            confidence: Some(confidence_level(&part.confidence.0).to_owned()),
            unsure: is_low_confidence(&part.confidence.0),
            source: Some(figures.of_part(gpu, part)),
        })
    });
    Bar {
        label,
        segments: segments.collect(),
        ..Bar::default()
    }
}

/// The parts of one run, each with what it rests on; the devices in columns where there are several.
fn parts_table(figures: &mut SourcedFigures<'_>, at: ShownRun<'_>) -> Grid {
    let run = at.run;
    let b = &run.profile.memory_breakdown;
    let devices = match b.per_gpu.len() {
        2..=MOST_COLUMNS => b.per_gpu.as_slice(),
        _ => &[],
    };
    let mut columns = vec![
        column("part", "part"),
        number_column("GiB", "gib"),
        share_column("% of the peak", "percent"),
    ];
    columns.extend(devices.iter().map(|d| {
        let title = format!("{}, GiB", of_device(&run.profile, d.gpu_id));
        number_column(title, &format!("device_{}_gib", d.gpu_id))
    }));
    columns.extend([
        column("how sure", "confidence"),
        column("rests on", "rests_on"),
        number_column("bytes", "bytes"),
    ]);
    /// Bytes and percent with their source, or why they are unknown.
    type PartFigures = Result<(i64, f64, SourceId), String>;
    let row =
        |name: TableCell, figures: PartFigures, on_devices: Vec<TableCell>, rests: [&str; 2]| {
            let cells = match figures {
                Ok((bytes, percent, id)) => {
                    let exactly = TableCell::number_cell(bytes as f64, bytes.to_string());
                    [gib_cell(bytes), percent_cell(percent), exactly].map(|cell| cell.from(id))
                }
                Err(why) => [(); 3].map(|()| TableCell::missing_cell(&why)),
            };
            let [gib, percent, bytes] = cells;
            let [sure, rests_on] = rests.map(TableCell::text_cell);
            let first = [name, gib, percent].into_iter().chain(on_devices);
            first.chain([sure, rests_on, bytes]).collect()
        };
    let (total, sure) = match b.total_measured_bytes {
        Some(bytes) => (Ok((bytes as i64, 100.0, figures.of_peak(None))), "measured"),
        None => (Err(reason_at_path(&run.profile, TOTAL)), "unknown"),
    };
    let on_devices = devices.iter().map(|d| {
        let id = figures.of_peak(Some(d.gpu_id));
        gib_cell(d.peak_bytes as i64).from(id)
    });
    let on_devices = on_devices.collect();
    let rests = [sure, "readings of the devices"];
    let mut rows = vec![row("Total at the peak".into(), total, on_devices, rests)];
    let mut kinds: BTreeSet<Component> = b.components.iter().map(|p| p.component).collect();
    // Those that every engine has are shown even where they are unknown.
    kinds.extend([
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::Activations,
    ]);
    for c in kinds {
        let name = TableCell {
            swatch: Some(c),
            ..TableCell::text_cell(c.display_label())
        };
        let Some(known) = b.find_part(c) else {
            let why = why_part(&run.profile, c);
            let on_devices = vec![TableCell::missing_cell(&why); devices.len()];
            rows.push(row(name, Err(why), on_devices, ["unknown", ""]));
            continue;
        };
        let id = figures.of_part(None, known);
        let on_devices = devices
            .iter()
            .map(|d| match d.parts.iter().find(|p| p.component == c) {
                Some(part) => gib_cell(part.bytes).from(figures.of_part(Some(d.gpu_id), part)),
                None => TableCell::missing_cell("no witness has it on this device"),
            });
        let on_devices = on_devices.collect();
        let source = source_of_part(&run.profile, c);
        let rests = [confidence_level(&known.confidence.0), source.as_ref()];
        let known = (known.bytes, known.percent, id);
        rows.push(row(name, Ok(known), on_devices, rests));
    }
    Grid {
        id: at.id("parts"),
        caption: at.title("The peak in parts"),
        columns,
        rows,
    }
}

/// The sum of what is neither baseline nor weights, KV cache or activations.
fn overhead_text(at: ShownRun<'_>) -> String {
    let run = at.run;
    let b = &run.profile.memory_breakdown;
    let parts = b.components.iter();
    let parts = parts.filter(|p| p.component.is_overhead() && p.bytes != 0);
    let parts: Vec<&str> = parts.map(|p| p.component.display_label()).collect();
    let known = [b.model_weights_gb, b.kv_cache_gb, b.activations_gb];
    // The remainder holds whatever has no name.
    let what = at.title(if known.iter().all(Option::is_some) {
        "Framework overhead"
    } else {
        "Overhead and unknown parts"
    });
    match b.framework_overhead_gb.zip(b.overhead_percentage) {
        Some((gib, percent)) => {
            let (gib, parts) = (gib_text(gib), parts.join(", "));
            format!("{what}: {gib} GiB, {percent:.1} % of the peak: {parts}.")
        }
        None => {
            let why = reason_at_path(&run.profile, OVERHEAD);
            format!("{what}: unknown: {why}.")
        }
    }
}

/// The KV pool: what is reserved and what the load used of it are two figures.
fn pool_table(figures: &mut SourcedFigures<'_>, at: ShownRun<'_>) -> Grid {
    let p = &at.run.profile;
    let m = &p.vllm_internal_metrics;
    let engine = "the engine's own word";
    let path = |key: &str| format!("vllm_internal_metrics.{key}");
    let mut rows: Vec<(&str, TableCell, String)> = Vec::new();
    let mut row = |label, cell, unit| rows.push((label, cell, unit));
    let mut cell = |title: &str, value: Option<f64>, key: &str| {
        figures.reported_cell(title, engine, (value, &path(key)))
    };
    let count = |n: Option<u64>| n.map(|n| n as f64);
    let reserved = m.total_gpu_kv_cache_gb;
    if reserved.is_some() {
        let known = cell("KV pool, GiB", reserved, "total_gpu_kv_cache_gb");
        row("Reserved", known, "GiB".into());
    }
    let blocks = m.num_gpu_blocks.zip(m.block_size);
    let tokens = m.total_gpu_kv_cache_tokens;
    let (tokens, key, unit) = match blocks.filter(|_| tokens.is_none()) {
        Some((n, size)) => {
            let unit = "tokens: blocks times their size";
            (n.checked_mul(size), "num_gpu_blocks", unit)
        }
        None => (tokens, "total_gpu_kv_cache_tokens", "tokens"),
    };
    let tokens = cell("KV pool, tokens", count(tokens), key);
    row("Reserved", tokens, unit.into());
    if let Some((n, size)) = blocks {
        let blocks = cell("KV pool, blocks", Some(n as f64), "num_gpu_blocks");
        row("Reserved", blocks, format!("blocks of {size} tokens"));
    }
    // Host memory is committed at first touch: then less than the pool is in the peak.
    let touched = p.memory_breakdown.kv_cache_gb;
    let is_host = |d: &DeviceFacts| d.kind == DeviceKind::HostCgroup;
    let touched = touched.filter(|_| p.gpu_info.devices.iter().any(is_host));
    if let Some((pool, gib)) = reserved.zip(touched) {
        if gib < pool * 0.95 {
            let known = TableCell::number_cell(gib, gib_text(gib));
            let unit = "GiB: the rest was never written to";
            row("Touched", known, unit.into());
        }
    }
    let used = cell("KV in use, GiB", m.kv_cache_used_gb, "kv_cache_used_gb");
    row("In use at most", used, "GiB".into());
    if let Some(share) = m.kv_cache_usage_peak {
        let share = cell("KV in use, %", Some(share * 100.0), "kv_cache_usage_peak");
        row("In use at most", share, "% of the pool".into());
    }
    if let (Some(n), Some(longest)) = (m.max_concurrency, m.max_model_len) {
        let holds = cell("Requests that the pool holds", Some(n), "max_concurrency");
        let unit = format!("requests of {} tokens", grouped_count(longest));
        row("Holds", holds, unit);
    }
    if m.preemptions.is_some() {
        let n = cell("Preemptions", count(m.preemptions), "preemptions");
        row("Preemptions", n, String::new());
    }
    TableBuilder::of_items(&rows)
        .words("figure", "figure", |(label, ..)| *label)
        .figures("value", "value", |(_, cell, _)| cell.clone())
        .words("unit", "unit", |(.., unit)| unit)
        .grid(at.id("kv_pool"), at.title("KV cache pool"))
}
