//! The answer of a tuning as a report: the verdict, the line to paste, what each setting was worth, what was tried.

use super::chart::front::{describe_front, pareto_front};
use super::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use super::content::{
    Answer, AnswerState, Chapter, ContentBlock, Grid, KeyFigure, Report, listing_block, note_block,
};
use super::figures::{cell_by, count_cell, figure_cell, gib_cell, percent_cell};
use super::layout::{
    capitalize_first, counted_noun, format_duration, format_figure, format_moment,
};
use super::tables::{TableBuilder, format_in_unit};
use crate::engine::facts::Severity;
use crate::engine::shown_name;
use crate::headroom::Headroom;
use crate::loadline::Objective;
use crate::tune::{
    BestSettings, LoadFigures, Trial, TrialState, Tuning, describe_settings, objective_key,
    refused_flag,
};
use crate::units::to_gib;

/// Settings that a page lists as not tried; the document has all.
const MOST_UNTRIED: usize = 50;

/// The report.
pub fn tune_report(tuning: &Tuning) -> Report {
    let mut blocks = vec![ContentBlock::Text(describe_search(tuning))];
    blocks.extend(tuning.outcome.describe().map(|end| {
        let text = format!("{end}: only what was measured before it counts");
        note_block(Severity::Warning, "not_whole", text)
    }));
    let notes = tuning.notes.iter().cloned();
    blocks.extend(notes.map(|note| note_block(Severity::Info, "tune_note", note)));
    if let Some(best) = &tuning.best {
        blocks.push(ContentBlock::Text(describe_stability(best)));
        let command = best.command.iter();
        blocks.extend(command.map(|text| listing_block("To start it", text, false)));
    }
    blocks.extend(worth_table(tuning).map(ContentBlock::Table));
    let charts = throughput_charts(tuning).into_iter();
    blocks.extend(charts.map(ContentBlock::Chart));
    blocks.push(ContentBlock::Table(trials_table(tuning)));
    let mut details = Vec::new();
    if let Some(best) = &tuning.best {
        let compose = best.compose.iter();
        details.extend(compose.map(|text| listing_block("As a Compose file", text, true)));
        details.extend(estimate_table(best).map(ContentBlock::Table));
    }
    details.extend(untried_table(tuning).map(ContentBlock::Table));
    let model = tuning.model.as_deref().unwrap_or("several models");
    let title = format!("{model}: settings for {}", tuning.goal.as_str());
    let chapters = Chapter::of_parts("tune", "The settings", blocks, details);
    Report::of_chapters(title, answer_of_tuning(tuning), chapters).mark_simulated(tuning.simulated)
}

/// What came nearest to the limits, as a clause.
pub fn describe_nearest(tuning: &Tuning) -> String {
    let Some(nearest) = &tuning.nearest else {
        let reason = tuning.trials.iter().find_map(|trial| trial.reason.as_ref());
        return match (reason, reason.and_then(|why| refused_flag(why))) {
            (_, Some(flag)) => format!("nothing was measured: the engine refuses `{flag}`"),
            (Some(why), None) => format!("nothing was measured to its end: {why}"),
            (None, None) => "no start was measured to its end".to_owned(),
        };
    };
    let missed = nearest.missed.iter().map(|missed| match missed.measured {
        Some(measured)
            if missed.excess < 1000.0 && missed.limit > 0.0 && measured > missed.limit =>
        {
            format!("{missed}, {:.1} times as much", missed.excess)
        }
        _ => missed.to_string(),
    });
    format!(
        "no settings that were tried keep all limits; the nearest, {} at {} concurrent: {}",
        describe_settings(&nearest.settings),
        nearest.concurrency,
        missed.collect::<Vec<_>>().join("; ")
    )
}

fn answer_of_tuning(tuning: &Tuning) -> Answer {
    let Some(best) = &tuning.best else {
        let mut verdict = describe_nearest(tuning);
        verdict.push('.');
        return Answer::of_verdict(AnswerState::Failed, capitalize_first(&verdict));
    };
    let gauge = best.load.fullest_device.clone();
    let state = match gauge.as_ref().map(|gauge| gauge.headroom_level()) {
        Some(Headroom::Safe) => AnswerState::Safe,
        Some(Headroom::Tight) => AnswerState::Tight,
        Some(Headroom::Critical) => AnswerState::Critical,
        None => AnswerState::Unknown,
    };
    let unit = tuning.goal.score_unit();
    let figure = |label: &str, value: f64, unit: &str| {
        KeyFigure::new_figure(label, figure_cell(Some(value), ""), unit)
    };
    let load = count_cell(best.load.concurrency.into());
    let mut figures = vec![
        figure("Score", best.score, unit),
        KeyFigure::new_figure("Load", load, "concurrent requests"),
    ];
    figures.extend(best.free_percent.map(|free| figure("Headroom", free, "%")));
    let spread = best.spread_percent;
    figures.extend(spread.map(|spread| figure("Spread of repeats", spread, "%")));
    let equal = tuning.equal_to_best().into_iter();
    let equal: Vec<String> = equal.map(|t| describe_settings(&t.settings)).collect();
    let equal = match equal.join("; ") {
        none if none.is_empty() => none,
        equal => format!(" Equal within the noise of its repeats: {equal}."),
    };
    let answer = Answer {
        state,
        verdict: format!(
            "Best of what was tried: {}, {} {unit} at {} concurrent.{equal}",
            describe_settings(&best.settings),
            format_figure(best.score),
            best.load.concurrency
        ),
        figures,
        ..Answer::default()
    };
    answer.with_gauge(gauge)
}

fn describe_search(tuning: &Tuning) -> String {
    let engine = [
        tuning.engine.as_deref().map(shown_name),
        tuning.engine_version.as_deref(),
    ];
    let engine: Vec<&str> = engine.into_iter().flatten().collect();
    let engine = match engine.as_slice() {
        [] => "An engine that did not start".to_owned(),
        words => words.join(" "),
    };
    let place = tuning.place.iter().map(|place| format!(", {place}"));
    let place: String = place.collect();
    let limits = tuning.objectives.0.iter().map(Objective::to_string);
    let limits: Vec<String> = limits
        .chain([format!("{} % of memory free", tuning.headroom_percent)])
        .collect();
    let began = match tuning.timestamp.as_str() {
        "" => String::new(),
        began => format!(", begun {}", format_moment(began)),
    };
    format!(
        "{engine}{place}: {} of {} in {}, {}{began}. Requests of {} prompt and {} generated tokens. Limits: {}. Seed {}.",
        counted_noun(tuning.trials.len(), "trial"),
        counted_noun(tuning.candidates as usize, "combination"),
        counted_noun(tuning.starts as usize, "start"),
        format_duration(tuning.took_s),
        tuning.lengths.input,
        tuning.lengths.output,
        limits.join(", "),
        tuning.seed,
    )
}

/// The repeats of the winner, and how far what was expected was off.
fn describe_stability(best: &BestSettings) -> String {
    let speeds = best.load.repeats.iter().filter_map(|r| r.tokens_per_second);
    let speeds: Vec<String> = speeds.map(format_figure).collect();
    let mut text = format!("Generated tokens/s in each repeat: {}", speeds.join(", "));
    if let Some(spread) = best.spread_percent {
        text.push_str(&format!(", {spread:.1} % apart"));
    }
    text.push_str(match best.prediction_error_percent {
        None => ". It was started without a prediction.",
        Some(_) => ".",
    });
    if let Some((score, error)) = best.predicted_score.zip(best.prediction_error_percent) {
        let side = if error < 0.0 { "below" } else { "above" };
        text.push_str(&format!(
            " Predicted before its start: {}, {:.1} % {side} what was measured.",
            format_figure(score),
            error.abs()
        ));
    }
    text
}

fn worth_table(tuning: &Tuning) -> Option<Grid> {
    TableBuilder::of_items(&tuning.worth)
        .words("setting", "setting", |w| &w.setting)
        .words("best", "best_value", |w| &w.best_value)
        .words("instead", "value", |w| &w.value)
        .figures("score, %", "change_percent", |w| {
            let why = w.remark.as_deref().unwrap_or("it has no figures");
            percent_cell(w.change_percent, why)
        })
        .words("from", "from", |w| match w.change_percent {
            _ if w.measured => "measured",
            Some(_) => "predicted",
            None => "not known",
        })
        .known_words("remark", "remark", |w| {
            w.change_percent.and(w.remark.as_deref())
        })
        .grid_of_rows(
            "tune_worth",
            "What one setting changes, the others as in the best",
        )
}

fn trials_table(tuning: &Tuning) -> Grid {
    let load = |trial: &Trial| -> Option<LoadFigures> {
        let last = trial.long_loads.last().or(trial.short_loads.last());
        last.cloned()
    };
    // Short loads count where no long one was measured, as in the score.
    let highest = |loads: &[LoadFigures]| {
        let speeds = loads.iter().filter_map(|l| l.tokens_per_second);
        speeds.reduce(f64::max)
    };
    let speed = |trial: &Trial| highest(&trial.long_loads).or_else(|| highest(&trial.short_loads));
    let mut table = TableBuilder::of_items(&tuning.trials)
        .words("settings", "settings", |t| describe_settings(&t.settings))
        .words("ended", "state", |t| match t.state {
            TrialState::Measured => "measured",
            TrialState::Stopped => "stopped early",
            TrialState::Failed => "failed",
        })
        .figures("tokens/s, highest", "tokens_per_second", |t| {
            figure_cell(speed(t), "not measured")
        })
        .figures("concurrent", "concurrency", |t| {
            cell_by(load(t).map(|l| l.concurrency.into()), "not measured", |n| {
                format_in_unit(n, "")
            })
        });
    for objective in &tuning.objectives.0 {
        let key = objective_key(objective);
        table = table.figures(&format!("{key}, ms"), &key.replace(' ', "_"), |t| {
            let ms = load(t).and_then(|l| l.latency_ms.get(&key).copied());
            figure_cell(ms, "not measured")
        });
    }
    table
        .figures("peak, GiB", "peak_gib", |t| {
            let peak = load(t).and_then(|l| l.peak_bytes).map(to_gib);
            gib_cell(peak, "not measured")
        })
        .figures("predicted score", "predicted_score", |t| {
            figure_cell(t.predicted_score, "nothing was measured before")
        })
        .known_words("why", "reason", |t| t.reason.as_deref())
        .grid("tune_trials", "Every start, in its order")
}

fn untried_table(tuning: &Tuning) -> Option<Grid> {
    let left = tuning.not_tried.len().saturating_sub(MOST_UNTRIED);
    let caption = match left {
        0 => "Not tried".to_owned(),
        left => format!("Not tried; {left} more are in the document"),
    };
    TableBuilder::of_items(tuning.not_tried.iter().take(MOST_UNTRIED))
        .words("settings", "settings", |u| describe_settings(&u.settings))
        .figures("predicted score", "predicted_score", |u| {
            figure_cell(u.predicted_score, "nothing was measured")
        })
        .words("why", "reason", |u| &u.reason)
        .grid_of_rows("tune_not_tried", caption)
}

/// The memory estimate against the winner's measurement.
fn estimate_table(best: &BestSettings) -> Option<Grid> {
    TableBuilder::of_items(&best.estimate)
        .words("estimate of", "item", |row| row.item.display_label())
        .figures("calculated", "calculated", |row| {
            figure_cell(row.calculated.map(|n| n as f64), "unknown")
        })
        .figures("measured", "measured", |row| {
            figure_cell(row.measured, "unknown")
        })
        .figures("error, %", "error_percent", |row| {
            percent_cell(row.error_pct, "unknown")
        })
        .grid_of_rows("tune_estimate", "How far the memory estimate was off")
}

/// Throughput against each latency, and against memory.
fn throughput_charts(tuning: &Tuning) -> Vec<Chart> {
    let mut charts = Vec::new();
    for objective in &tuning.objectives.0 {
        let (key, ms) = (objective_key(objective), objective.limit_ms);
        let limit = Some((ms, format!("limit of {key}: {ms} ms")));
        let axis = ChartAxis::new_axis(key.clone(), "ms", Scale::FromZero);
        let of_load = |load: &LoadFigures| load.latency_ms.get(&key).copied();
        let id = key.replace(' ', "_");
        charts.extend(throughput_chart(tuning, &id, axis, limit, of_load));
    }
    let axis = ChartAxis::new_axis("peak memory", "GiB", Scale::FromZero);
    charts.extend(throughput_chart(tuning, "memory", axis, None, |load| {
        load.peak_bytes.map(to_gib)
    }));
    charts
}

fn throughput_chart(
    tuning: &Tuning,
    id: &str,
    up: ChartAxis,
    limit: Option<(f64, String)>,
    height: impl Fn(&LoadFigures) -> Option<f64>,
) -> Option<Chart> {
    let dots = |is_long: bool| -> Vec<Dot> {
        let each = tuning.trials.iter().flat_map(|trial| {
            let loads = if is_long {
                &trial.long_loads
            } else {
                &trial.short_loads
            };
            loads.iter().map(move |load| (trial, load))
        });
        each.filter_map(|(trial, load)| {
            let settings = describe_settings(&trial.settings);
            let label = format!("{settings}, {} concurrent", load.concurrency);
            let (across, up) = (load.tokens_per_second?, height(load)?);
            Some(Dot::new_dot(across, up, Some(label)))
        })
        .collect()
    };
    let curves: Vec<Curve> = [("long loads", true), ("short loads", false)]
        .into_iter()
        .map(|(label, is_long)| Curve::new_curve(label, dots(is_long), false))
        .filter(|curve| !curve.points.is_empty())
        .collect();
    if curves.iter().map(|curve| curve.points.len()).sum::<usize>() < 2 {
        return None;
    }
    let title = format!("Throughput against {}", up.title);
    let front = pareto_front(&curves);
    let note = describe_front(&curves, &front);
    let plot = Curves {
        x: ChartAxis::new_axis("throughput", "generated tokens/s", Scale::FromZero),
        y: up,
        levels: limit.into_iter().collect(),
        front,
        curves,
        ..Curves::default()
    };
    let (id, plot) = (format!("tune_pareto_{id}"), Plot::Curves(plot));
    Some(Chart::new_chart(id, title, note, tuning.simulated, plot))
}
