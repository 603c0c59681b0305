//! Two profiles side by side: as a report, and as a table for spreadsheets.

use super::chapters::{fullest_peaks, pair_blocks, pair_sentence};
use super::content::{Answer, AnswerState, Chapter, KeyFigure, Report};
use super::figures::{gib_cell, percent_cell};
use super::json::joined;
use super::spreadsheet::write_fields;
use crate::compare::profiles::Pair;
use crate::compare::subject::Who;
use crate::compare::{Unit, difference_percent};
use crate::engine::shown_name;
use crate::profile::MemoryGauge;
use crate::units::GIB;
use serde_json::json;

/// The report: what differs in the request, then in the results, and whether a limit is kept.
pub fn pair_report(pair: &Pair) -> Report {
    let mut answer = Answer::of_verdict(AnswerState::Unknown, pair_sentence(pair));
    if let Some(limit) = &pair.limit {
        let labels = |keys: &[String]| {
            let rows = (pair.components.iter()).filter(|r| keys.contains(&r.component));
            let labels: Vec<&str> = rows.map(|r| r.label.as_str()).collect();
            labels.join(", ")
        };
        let bound = match limit.percent {
            Some(percent) => format!("{percent} %"),
            None => format!("{} repeats of the baseline allow", limit.baseline.len()),
        };
        let (state, sentence) = if limit.exceeded.is_empty() {
            let text = format!("No component moved by more than {bound}.");
            (AnswerState::Safe, text)
        } else {
            let moved = labels(&limit.exceeded);
            let text = format!("MOVED BY MORE THAN {}: {moved}.", bound.to_uppercase());
            (AnswerState::Failed, text)
        };
        (answer.state, answer.verdict) = (state, format!("{sentence} {}", answer.verdict));
        if !limit.not_judged.is_empty() {
            let unknown = labels(&limit.not_judged);
            let text = format!(" Not judged, as one side does not know them: {unknown}.");
            answer.verdict.push_str(&text);
        }
    }
    // Of the second: what is to be judged.
    let gauge = pair.profile2.fullest_device.clone();
    let gauge = gauge.map(|gauge| MemoryGauge {
        label: format!("B: {}", gauge.label),
        ..gauge
    });
    let simulated = [&pair.profile1, &pair.profile2].map(|who| who.simulated);
    let ([before, after], is_fullest) = fullest_peaks(pair);
    let unit = |who: &Who| match &who.fullest_device {
        Some(gauge) if is_fullest => format!("GiB, {}", gauge.label),
        _ => "GiB".into(),
    };
    let percent = before
        .zip(after)
        .and_then(|(a, b)| difference_percent(a, b));
    let percent = percent_cell(percent, "unknown");
    let [before, after] = [before, after].map(|gib| gib_cell(gib, "unknown"));
    let figures = [
        KeyFigure::new_figure("Peak before", before, &unit(&pair.profile1)),
        KeyFigure::new_figure("Peak after", after, &unit(&pair.profile2)),
        KeyFigure::new_figure("Change", percent, "%"),
    ];
    let known = figures.into_iter().filter(|f| f.value.number.is_some());
    answer.figures = known.collect();
    let title = format!("{} against {}", pair.profile2.file, pair.profile1.file);
    let chapter = Chapter::of_blocks("compare", "Side by side", pair_blocks(pair));
    Report {
        simulated: match simulated {
            [false, false] => None,
            [true, true] => Some("an engine or a GPU of both is simulated".into()),
            _ => Some("an engine or a GPU of one side is simulated".into()),
        },
        ..Report::of_chapters(title, answer.with_gauge(gauge), vec![chapter])
    }
}

/// `a.json: vllm 0.11.0, org/model, 2026-…  SIMULATED`.
pub(super) fn describe_profile(who: &Who) -> String {
    let engine = match (who.engine.as_deref().map(shown_name), &who.engine_version) {
        (Some(engine), Some(version)) => format!("{engine} {version}"),
        (Some(engine), None) => format!("{engine} of unknown version"),
        (None, _) => "engine unknown".into(),
    };
    let model = who.model.as_deref().unwrap_or("model unknown");
    let mut text = format!("{}: {engine}, {model}", who.file);
    if let Some(timestamp) = &who.timestamp {
        text.push_str(&format!(", {timestamp}"));
    }
    if who.simulated {
        text.push_str("  SIMULATED");
    }
    text
}

/// The table for spreadsheets.
pub fn pair_csv(pair: &Pair) -> Vec<u8> {
    let settings = pair.settings.iter().map(|d| {
        let component = format!("setting:{}", d.setting);
        joined([json!(d), json!({"component": component})])
    });
    let components = pair.components.iter().map(|r| {
        let [profile1, profile2, diff] = [r.profile1_gb, r.profile2_gb, r.diff_gb];
        let figures = json!({"profile1": profile1, "profile2": profile2, "diff": diff});
        joined([json!(r), json!({"unit": "GiB"}), figures])
    });
    let others = pair.others.iter().map(|r| {
        let (unit, scale) = match r.unit {
            Unit::Bytes => ("GiB", GIB),
            Unit::Milliseconds => ("ms", 1.0),
            Unit::PerSecond => ("1/s", 1.0),
            Unit::Count => ("count", 1.0),
        };
        let [profile1, profile2, diff] =
            [r.profile1, r.profile2, r.diff].map(|v| v.map(|v| v / scale));
        let figures = json!({"profile1": profile1, "profile2": profile2, "diff": diff});
        let named = json!({"component": r.key, "unit": unit, "diff_pct": r.diff_pct});
        joined([named, figures])
    });
    let rows = settings.chain(components).chain(others);
    let columns = "component unit profile1 profile2 diff diff_pct profile1_source profile2_source";
    write_fields(columns, rows)
}
