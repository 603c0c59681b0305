//! Where the bytes are: the peak in parts, each device, the KV pool.

use super::page::ProfilePage;
use crate::breakdown::{Component, Confidence, DeviceBreakdown, Part};
use crate::capture::DeviceKind;
use crate::profile::Profile;
use crate::report::layout::counted_noun;
use crate::report::layout::{
    Align, TextTable, grouped_count, pad_left_aligned, pad_right_aligned, text_width,
    truncate_text, unsigned_zero,
};
use crate::units::gib_signed;

/// Cells of a bar.
const BAR: usize = 20;

/// A line of the tree.
struct PartRow {
    tree: String,
    label: String,
    gb: Option<f64>,
    percent: Option<f64>,
    word: String,
    total: bool,
}

/// The peak as a tree, the total first; overhead's parts below it.
pub(super) fn write_breakdown(page: &mut ProfilePage, profile: &Profile) {
    let b = &profile.memory_breakdown;
    let part = |c: Component| b.components.iter().find(|p| p.component == c);
    let row = |tree: &str, label: &str, part: Option<&Part>| PartRow {
        tree: tree.to_owned(),
        label: label.to_owned(),
        gb: part.map(|p| p.gb),
        percent: part.map(|p| p.percent),
        word: part
            .map_or("unknown", |p| confidence_word(&p.confidence))
            .to_owned(),
        total: false,
    };
    let (branch, last) = (page.glyphs.branch, page.glyphs.last);
    let mut rows = vec![PartRow {
        tree: String::new(),
        label: "Total at the peak".into(),
        gb: b.total_measured_gb,
        percent: b.total_measured_gb.map(|_| 100.0),
        word: b.total_measured_gb.map_or("unknown", |_| "measured").into(),
        total: true,
    }];
    for c in [
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::Activations,
    ] {
        rows.push(row(branch, c.display_label(), part(c)));
    }
    // The remainder holds whatever has no name, with a note.
    let all_known =
        b.model_weights_gb.is_some() && b.kv_cache_gb.is_some() && b.activations_gb.is_some();
    let overhead_label = if all_known || b.total_measured_gb.is_none() {
        "Framework overhead"
    } else {
        "Overhead and unknown parts"
    };
    rows.push(PartRow {
        tree: last.to_owned(),
        label: overhead_label.into(),
        gb: b.framework_overhead_gb,
        percent: b.overhead_percentage,
        word: confidence_word(&b.confidence_levels.overhead).to_owned(),
        total: false,
    });
    let overhead: Vec<&Part> = b
        .components
        .iter()
        .filter(|p| p.component.is_overhead())
        // Parts of nothing are in the document; here they would only be in the way.
        .filter(|p| p.bytes != 0 || p.component == Component::Unexplained)
        .collect();
    for (i, p) in overhead.iter().enumerate() {
        let tree = if i + 1 == overhead.len() {
            last
        } else {
            branch
        };
        rows.push(row(
            &format!("   {tree}"),
            p.component.display_label(),
            Some(p),
        ));
    }
    draw_rows(page, &rows);
    let why = |page: &mut ProfilePage, label: &str, known: bool, path: &str| {
        if !known {
            if let Some(why) = profile.unknown.get(path) {
                page.write_aside(&format!("{label} unknown: {why}"));
            }
        }
    };
    let total = b.total_measured_gb.is_some();
    why(page, "total", total, "memory_breakdown.total_measured_gb");
    if total {
        for (label, known, key) in [
            ("baseline", b.baseline_gb.is_some(), "baseline_gb"),
            ("weights", b.model_weights_gb.is_some(), "model_weights_gb"),
            ("KV cache", b.kv_cache_gb.is_some(), "kv_cache_gb"),
            ("activations", b.activations_gb.is_some(), "activations_gb"),
        ] {
            why(page, label, known, &format!("memory_breakdown.{key}"));
        }
    }
}

fn draw_rows(page: &mut ProfilePage, rows: &[PartRow]) {
    let cells = |pick: &dyn Fn(&PartRow) -> String, head: &str| {
        rows.iter()
            .map(|r| text_width(&pick(r)))
            .max()
            .unwrap_or(0)
            .max(text_width(head))
    };
    let name = |r: &PartRow| format!("{}{}", r.tree, r.label);
    let gb = |r: &PartRow| page.format_gib(r.gb);
    let percent = |r: &PartRow| {
        r.percent.map_or_else(
            || page.glyphs.dash.to_owned(),
            |p| unsigned_zero(format!("{p:.1}")),
        )
    };
    let (wide, gb_cells, percent_cells) = (
        cells(&name, "Memory"),
        cells(&gb, "GiB"),
        cells(&percent, "%"),
    );
    let bars = page.options.width >= wide + gb_cells + percent_cells + BAR + 16;
    let mut lines = Vec::new();
    for r in rows {
        let label = pad_left_aligned(&r.label, wide - text_width(&r.tree));
        let figures = format!(
            "{}  {}",
            pad_right_aligned(&gb(r), gb_cells),
            pad_right_aligned(&percent(r), percent_cells)
        );
        let word = page.paint_text(page.theme.faint, &r.word);
        let label = format!("{}{label}", page.paint_text(page.theme.faint, &r.tree));
        let (label, figures) = if r.total {
            (
                page.paint_text(page.theme.title, &label),
                page.paint_text(page.theme.title, &figures),
            )
        } else {
            (label, figures)
        };
        lines.push(if bars {
            let bar = pad_left_aligned(&page.draw_bar(r.percent.unwrap_or(0.0) / 100.0, BAR), BAR);
            format!("  {label}  {figures}  {bar}  {word}")
        } else {
            format!("  {label}  {figures}  {word}")
        });
    }
    let figures = format!(
        "{}  {}",
        pad_right_aligned("GiB", gb_cells),
        pad_right_aligned("%", percent_cells)
    );
    let head = format!(
        "{}  {}",
        page.paint_text(page.theme.title, &pad_left_aligned("Memory", wide + 2)),
        page.paint_text(page.theme.faint, &figures)
    );
    page.write_line("");
    page.write_line(&head);
    for line in lines {
        page.write_line(&line);
    }
}

/// How sure, in one word.
pub(super) fn confidence_word(confidence: &Confidence) -> &'static str {
    match confidence.0.as_str() {
        c if c.starts_with("high_from_") && c.ends_with("_logs") => "log",
        c if c.starts_with("high_from_") && c.ends_with("_metrics") => "metrics",
        "high_calculated" => "calculated",
        "medium_measured_delta" => "measured",
        "low_estimated" => "estimated",
        c if c.starts_with("low_") => "uncertain",
        "high_from_torch_probe" => "probe",
        "medium_from_torch_probe_rss" => "probe, RSS",
        "calculated_residual" => "residual",
        _ => "unknown",
    }
}

/// Each device, where there are several.
pub(super) fn write_devices(page: &mut ProfilePage, profile: &Profile) {
    let devices = &profile.memory_breakdown.per_gpu;
    if devices.len() < 2 {
        return;
    }
    page.write_heading("Devices, GiB");
    let mut table = TextTable::new(&[
        ("", Align::Right),
        ("name", Align::Left),
        ("holds", Align::Right),
        ("peak", Align::Right),
        ("baseline", Align::Right),
        ("weights", Align::Right),
        ("KV pool", Align::Right),
        ("activ.", Align::Right),
        ("overhead", Align::Right),
    ]);
    for d in devices {
        let facts = profile
            .gpu_info
            .devices
            .iter()
            .find(|f| f.index == d.gpu_id);
        let gb = |c: Component| {
            let part = d.parts.iter().find(|p| p.component == c);
            page.format_gib(part.map(|p| p.gb))
        };
        let overhead: i64 = d
            .parts
            .iter()
            .filter(|p| p.component.is_overhead())
            .map(|p| p.bytes)
            .fold(0, i64::saturating_add);
        let name = facts.map_or(page.glyphs.dash, |f| f.name.as_str());
        table.add_row(vec![
            d.gpu_id.to_string(),
            truncate_text(&page.clean_text(name), 22, page.glyphs.ellipsis),
            page.format_gib(
                facts
                    .and_then(|f| f.total_bytes)
                    .map(|b| gib_signed(b as i64)),
            ),
            page.format_gib(Some(gib_signed(d.peak_bytes as i64))),
            gb(Component::Baseline),
            gb(Component::ModelWeights),
            gb(Component::KvCache),
            gb(Component::Activations),
            page.format_gib(Some(gib_signed(overhead))),
        ]);
    }
    page.write_table(&table.render_lines());
    if let Some(text) = spread(page, devices) {
        page.write_pair("balance", &text);
    }
}

/// How evenly the devices are loaded.
fn spread(page: &ProfilePage, devices: &[DeviceBreakdown]) -> Option<String> {
    let peaks = || devices.iter().map(|d| d.peak_bytes as i64);
    let apart = peaks().max()?.saturating_sub(peaks().min()?);
    Some(format!(
        "{} between the fullest and the emptiest",
        page.gib_unit(Some(gib_signed(apart)))
    ))
}

/// The KV pool: reserved and used are two figures.
pub(super) fn kv_cache(page: &mut ProfilePage, profile: &Profile) {
    let m = &profile.vllm_internal_metrics;
    page.write_heading("KV cache");
    let pool = m
        .total_gpu_kv_cache_gb
        .or(profile.memory_breakdown.kv_cache_gb);
    let reserved = pool.map(|_| {
        let mut parts = vec![page.gib_unit(pool)];
        parts.extend(
            m.total_gpu_kv_cache_tokens
                .map(|t| format!("{} tokens", grouped_count(t))),
        );
        parts.extend(m.num_gpu_blocks.map(|n| match m.block_size {
            Some(size) => format!("{} of {size}", counted_noun(n as usize, "block")),
            None => counted_noun(n as usize, "block"),
        }));
        parts.join(", ")
    });
    page.pair_or_reason(
        "reserved",
        reserved,
        profile,
        "memory_breakdown.kv_cache_gb",
    );
    // Host memory is committed at first touch: then less than the pool is in the peak.
    let host = profile
        .gpu_info
        .devices
        .iter()
        .any(|d| d.kind == DeviceKind::HostCgroup);
    if let (true, Some(pool), Some(touched)) = (host, pool, profile.memory_breakdown.kv_cache_gb) {
        if touched < pool * 0.95 {
            let text = format!(
                "{} of it: the rest was never written to",
                page.gib_unit(Some(touched))
            );
            page.write_pair("touched", &text);
        }
    }
    let used = m.kv_cache_used_gb.or(m.kv_cache_usage_peak).map(|_| {
        let share = m
            .kv_cache_usage_peak
            .map_or_else(String::new, |u| format!("{:.1} % of the pool", u * 100.0));
        match m.kv_cache_used_gb {
            Some(_) if share.is_empty() => {
                format!("{} at most", page.gib_unit(m.kv_cache_used_gb))
            }
            Some(_) => format!("{} at most, {share}", page.gib_unit(m.kv_cache_used_gb)),
            None => format!("{share} at most"),
        }
    });
    page.pair_or_reason(
        "used",
        used,
        profile,
        "vllm_internal_metrics.kv_cache_used_gb",
    );
    if let (Some(n), Some(len)) = (m.max_concurrency, m.max_model_len) {
        let text = format!("{n:.1} requests of {} tokens", grouped_count(len));
        page.write_pair("holds", &text);
    }
    if let Some(n) = m.preemptions {
        page.write_pair("preemptions", &grouped_count(n));
    }
}
