//! How far to trust the page: the witness of each part, settings not in force, findings.

use super::page::{ProfilePage, message_of_line};
use crate::breakdown::{Component, Confidence};
use crate::engine::facts::Severity;
use crate::profile::Profile;
use crate::report::chapters::confidence_level;
use crate::report::layout::{
    Align, TextTable, pad_left_aligned, text_width, truncate_text, wrap_text,
};

/// How sure each part is, and the words it rests on.
pub(super) fn write_confidence(page: &mut ProfilePage, profile: &Profile) {
    let levels = &profile.memory_breakdown.confidence_levels;
    page.write_heading("Confidence");
    let rests_on = |c: Component| {
        profile
            .evidence
            .iter()
            .find(|e| e.used && e.component == c)
            .map(|e| e.quote.as_str())
    };
    let rows: [(&str, &Confidence, Option<&str>, &str); 5] = [
        (
            "overall",
            &levels.overall,
            Some("the lowest of weights, KV cache and activations"),
            "",
        ),
        (
            "weights",
            &levels.weights,
            rests_on(Component::ModelWeights),
            "model_weights_gb",
        ),
        (
            "KV cache",
            &levels.kv_cache,
            rests_on(Component::KvCache),
            "kv_cache_gb",
        ),
        (
            "activations",
            &levels.activations,
            rests_on(Component::Activations),
            "activations_gb",
        ),
        (
            "overhead",
            &levels.overhead,
            profile
                .memory_breakdown
                .framework_overhead_gb
                .map(|_| "the peak less all of the above and the baseline"),
            "framework_overhead_gb",
        ),
    ];
    let word = |level: &Confidence| confidence_level(&level.0);
    let wide = rows
        .iter()
        .map(|r| text_width(word(r.1)))
        .max()
        .unwrap_or(0);
    for (label, level, words, key) in rows {
        let level = word(level);
        let why = || profile.unknown.get(&format!("memory_breakdown.{key}"));
        let words = words.or_else(|| why().map(String::as_str));
        let head = format!(
            "  {}  {}",
            pad_left_aligned(label, 12),
            pad_left_aligned(level, wide)
        );
        let room = page.room_left(&head).saturating_sub(2);
        let label = page.paint_text(page.theme.faint, &pad_left_aligned(label, 12));
        let mut line = format!("  {label}  {}", pad_left_aligned(level, wide));
        if let Some(words) = words.filter(|_| room >= 16) {
            let words = truncate_text(
                &page.clean_text(message_of_line(words)),
                room,
                page.glyphs.ellipsis,
            );
            line.push_str("  ");
            line.push_str(&page.paint_text(page.theme.faint, &words));
        }
        page.write_line(&line);
    }
}

/// Settings that are not in force as asked for.
pub(super) fn write_settings(page: &mut ProfilePage, profile: &Profile) {
    let differences = &profile.configuration.differences;
    if differences.is_empty() {
        return;
    }
    page.write_heading("Settings not as asked for");
    let mut table = TextTable::new(&[
        ("setting", Align::Left),
        ("asked for", Align::Left),
        ("in force", Align::Left),
    ]);
    for d in differences {
        let cell = |text: &str| truncate_text(&page.clean_text(text), 40, page.glyphs.ellipsis);
        table.add_row(vec![
            cell(&d.setting),
            cell(&d.requested),
            cell(&d.effective),
        ]);
    }
    page.write_table(&table.render_lines());
}

/// Findings, worst first, each with its code.
pub(super) fn write_findings(page: &mut ProfilePage, profile: &Profile) {
    page.write_heading("Findings");
    if profile.findings.is_empty() {
        page.write_line("  none");
    }
    let mut findings: Vec<_> = profile.findings.iter().collect();
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    for f in findings {
        let (label, style) = match f.severity {
            Severity::Error => ("error", page.theme.error),
            Severity::Warning => ("warning", page.theme.warning),
            Severity::Info => ("info", page.theme.faint),
        };
        let text = page.clean_text(&format!("{} [{}]", f.message, f.code));
        let room = page.options.width.saturating_sub(11).max(24);
        for (i, part) in wrap_text(&text, room).iter().enumerate() {
            let head = if i == 0 { label } else { "" };
            let head = page.paint_text(style, &pad_left_aligned(head, 7));
            page.write_line(&format!("  {head}  {part}"));
        }
        // Two witnesses are quoted one below the other.
        for quote in f.quote.iter().flat_map(|q| q.split(" | ")) {
            page.write_quote(11, quote);
        }
    }
}
