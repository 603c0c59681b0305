//! A timeline in the characters of a terminal: memory of each device over time, phases and events
//! under it, gauges as small lanes.

mod columns;
#[cfg(test)]
mod tests;

use super::chart::{ChartTimeline, TimelineEvent, TimelineLane, TimelinePhase};
use super::layout::{
    clean_text, format_duration, format_figure, grouped_count, pad_left_aligned, pad_right_aligned,
    text_width, truncate_text, unsigned_zero,
};
use super::page::{TextOptions, TextPage};
use crate::engine::shown_name;
use crate::profile::Profile;
use columns::{ColumnRange, Span, lane_columns};

/// What of a timeline is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimelineView {
    /// First moment, seconds; `None`: where it begins.
    pub from_s: Option<f64>,
    /// Last moment, seconds; `None`: where it ends.
    pub to_s: Option<f64>,
    /// Only what was seen until this moment is drawn, seconds: while it is played.
    pub until_s: Option<f64>,
}

/// Rows of a chart of one device, and of each of several.
const ROWS: usize = 10;
const ROWS_OF_MANY: usize = 6;
/// Cells before a chart: the figures of its scale, and its edge.
const SCALE: usize = 9;
/// Columns of a chart at least.
const NARROWEST: usize = 24;
/// Events that are listed.
const LISTED: usize = 40;
/// Below this share of the capacity the scale ends above what was seen.
const NEAR_CAPACITY: f64 = 0.4;
/// Lines of phases.
const BANDS: usize = 4;

/// The page.
pub fn render_timeline(
    timeline: &ChartTimeline,
    about: &[(String, String)],
    view: TimelineView,
    options: TextOptions,
) -> String {
    let (first, last) = timeline.range_s;
    let span = Span {
        from_s: view.from_s.unwrap_or(first).max(first).min(last),
        to_s: view.to_s.unwrap_or(last).min(last).max(first),
        columns: options.width.saturating_sub(SCALE + 1).max(NARROWEST),
    };
    let until = view.until_s.unwrap_or(f64::INFINITY);
    let now = Shown {
        span,
        until,
        options,
    };
    let mut page = TextPage::new(options);
    if timeline.simulated {
        page.write_line("SIMULATED: the engine or a device is simulated");
    }
    for (label, value) in about {
        page.write_sentence(0, &format!("{label}: {value}"));
    }
    let memory: Vec<&TimelineLane> = timeline.lanes.iter().filter(|l| l.unit == "GiB").collect();
    let gauges = timeline
        .lanes
        .iter()
        .filter(|l| matches!(l.unit.as_str(), "%" | ""));
    let rows = if memory.len() > 1 { ROWS_OF_MANY } else { ROWS };
    if memory.is_empty() {
        page.write_line("No memory was sampled.");
    }
    if timeline.lanes.is_empty() {
        return page.into_text();
    }
    let events: Vec<(usize, &TimelineEvent)> = (timeline.events.iter().enumerate())
        .filter(|(_, e)| span.column_at(e.at_s).is_some() && e.at_s <= until)
        .collect();
    for lane in &memory {
        now.chart(&mut page, lane, rows);
    }
    for lane in gauges {
        now.gauge(&mut page, lane);
    }
    now.draw_axis(&mut page);
    now.marks(&mut page, &events);
    now.bands(&mut page, &timeline.phases);
    if view.until_s.is_none() {
        write_event_list(&mut page, timeline, span, &events);
    }
    page.into_text()
}

/// What is drawn, and how.
struct Shown {
    span: Span,
    until: f64,
    options: TextOptions,
}

impl Shown {
    /// What a lane has in each column, until now.
    fn lane_columns(&self, lane: &TimelineLane) -> Vec<Option<ColumnRange>> {
        let mut columns = lane_columns(lane, self.span);
        if self.until.is_finite() {
            let begun = self.until >= self.span.from_s;
            let last = self.span.nearest_column(self.until) + 1;
            let shown = if begun { last } else { 0 };
            columns.iter_mut().skip(shown).for_each(|s| *s = None);
        }
        columns
    }

    /// A chart of memory.
    fn chart(&self, page: &mut TextPage, lane: &TimelineLane, rows: usize) {
        let columns = self.lane_columns(lane);
        let known = || columns.iter().flatten();
        let highest = known().map(|s| s.high).fold(f64::NEG_INFINITY, f64::max);
        let lowest = known().map(|s| s.low).fold(f64::INFINITY, f64::min);
        let of = lane
            .capacity
            .map_or(String::new(), |c| format!(" of {}", format_gib(c)));
        page.write_line("");
        if known().next().is_none() {
            page.write_line(&format!("{}: nothing was sampled here", lane.label));
            return;
        }
        let (label, low, high) = (&lane.label, format_gib(lowest), format_gib(highest));
        page.write_line(&format!("{label}: {low} to {high}{of} GiB"));
        // The whole range decides while it is played, or the scale would jump.
        let all = highest_of(lane, highest);
        let top = match lane.capacity {
            Some(capacity) if all >= capacity * NEAR_CAPACITY => capacity.max(all),
            _ => above(all),
        };
        for row in (0..rows).rev() {
            let label = match row {
                _ if row + 1 == rows => format_gib(top),
                0 => "0".to_owned(),
                _ if row == rows / 2 => format_gib(top * row as f64 / rows as f64),
                _ => String::new(),
            };
            let cells = columns.iter().map(|s| self.glyph_at(*s, row, rows, top));
            self.write_cells(page, &label, cells.collect());
        }
    }

    /// A line of a chart behind a figure of its scale.
    fn write_cells(&self, page: &mut TextPage, label: &str, cells: String) {
        let edge = if self.options.unicode { "┤" } else { "|" };
        let label = pad_right_aligned(label, SCALE - 1);
        page.write_line(&format!("{label}{edge}{cells}"));
    }

    /// The character at a row of a column: full up to the lowest, lightly filled up to the highest.
    fn glyph_at(&self, range: Option<ColumnRange>, row: usize, rows: usize, top: f64) -> char {
        let Some(range) = range else { return ' ' };
        let unicode = self.options.unicode;
        // Eighths of rows; what was seen is never drawn as nothing.
        let eighths = |value: f64| {
            let all = (rows * 8) as f64;
            (value / top * all).clamp(1.0, all).round() as usize
        };
        let (low, high) = (eighths(range.low), eighths(range.high));
        let base = row * 8;
        // In its topmost row, what is between lowest and highest is within the character.
        let (low_row, high_row) = ((low - 1) / 8, (high - 1) / 8);
        match (unicode, row) {
            (_, row) if row > high_row => ' ',
            (true, row) if row == high_row && row == low_row => {
                BLOCKS.get(high - base - 1).copied().unwrap_or('█')
            }
            (true, row) if row < low_row => '█',
            (true, row) if row == low_row => '▓',
            (true, _) => '░',
            (false, row) if row <= low_row => '#',
            (false, _) => ':',
        }
    }

    /// A gauge in one line.
    fn gauge(&self, page: &mut TextPage, lane: &TimelineLane) {
        let columns = self.lane_columns(lane);
        let highest = columns.iter().flatten().map(|s| s.high).reduce(f64::max);
        let Some(highest) = highest else { return };
        let all = highest_of(lane, highest);
        let top = match lane.unit.as_str() {
            "%" => all.max(100.0),
            _ => all.max(1.0),
        };
        let cell = |s: &Option<ColumnRange>| match s {
            None => ' ',
            // A gauge may well be zero.
            Some(s) if s.high <= 0.0 => '_',
            Some(s) => {
                let share = (s.high / top).clamp(0.0, 1.0);
                let step = |n: usize| ((share * n as f64).ceil() as usize).clamp(1, n) - 1;
                if self.options.unicode {
                    BLOCKS.get(step(8)).copied().unwrap_or('█')
                } else {
                    ['.', ':', '#'].get(step(3)).copied().unwrap_or('#')
                }
            }
        };
        let unit = match lane.unit.as_str() {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        page.write_line("");
        let (label, most) = (&lane.label, format_number(highest));
        page.write_line(&format!("{label}: at most {most}{unit}"));
        self.write_cells(
            page,
            &format_number(top),
            columns.iter().map(cell).collect(),
        );
    }

    /// The seconds under the charts.
    fn draw_axis(&self, page: &mut TextPage) {
        let (span, unicode) = (self.span, self.options.unicode);
        let step = round_step((span.to_s - span.from_s) / (span.columns as f64 / 12.0).max(1.0));
        let mut line: Vec<char> = vec![if unicode { '─' } else { '-' }; span.columns];
        let mut labels = vec![' '; span.columns];
        let mut free = 0;
        if step > 0.0 {
            let mut at = (span.from_s / step).ceil();
            // As many as there are columns at most.
            for _ in 0..span.columns {
                let moment = at * step;
                let Some(column) = span.column_at(moment) else {
                    break;
                };
                if let Some(tick) = line.get_mut(column) {
                    *tick = if unicode { '┬' } else { '+' };
                }
                let label = format!("{} s", format_seconds(moment, step));
                let fits = column + label.len() <= span.columns;
                if column >= free && fits {
                    put_text(&mut labels, column, &label);
                    free = column + label.len() + 1;
                }
                at += 1.0;
            }
        }
        let corner = if unicode { "└" } else { "+" };
        let line: String = line.into_iter().collect();
        let labels: String = labels.into_iter().collect();
        page.write_line(&format!("{}{corner}{line}", " ".repeat(SCALE - 1)));
        page.write_line(&format!("{}{labels}", " ".repeat(SCALE)));
    }

    /// The numbers of events at their moments.
    fn marks(&self, page: &mut TextPage, events: &[(usize, &TimelineEvent)]) {
        if events.is_empty() {
            return;
        }
        let mut line = vec![' '; self.span.columns];
        for (i, event) in events {
            let number = (i + 1).to_string();
            let Some(column) = self.span.column_at(event.at_s) else {
                continue;
            };
            let column = column.min(self.span.columns.saturating_sub(number.len()));
            let mut cells = line.iter().skip(column).take(number.len());
            let taken = cells.any(|c| *c != ' ');
            // Two at one place: the list below has both.
            put_text(&mut line, column, if taken { "*" } else { &number });
        }
        let line: String = line.into_iter().collect();
        page.write_line(&format!("{}{line}", pad_left_aligned("events", SCALE)));
    }

    /// Phases as bands with their names.
    fn bands(&self, page: &mut TextPage, phases: &[TimelinePhase]) {
        let unicode = self.options.unicode;
        let mut rows: Vec<Vec<char>> = Vec::new();
        let mut order: Vec<&TimelinePhase> = phases.iter().collect();
        order.sort_by(|a, b| (a.from_s.total_cmp(&b.from_s)).then(b.to_s.total_cmp(&a.to_s)));
        for phase in order {
            let outside = phase.to_s < self.span.from_s || phase.from_s > self.span.to_s;
            if outside || phase.from_s > self.until {
                continue;
            }
            let first = self.span.nearest_column(phase.from_s);
            let last = self.span.nearest_column(phase.to_s.min(self.until));
            let last = last.max(first);
            let free = |row: &Vec<char>| row.iter().take(last + 1).skip(first).all(|c| *c == ' ');
            let row = match rows.iter().position(free) {
                Some(row) => row,
                None if rows.len() < BANDS => {
                    rows.push(vec![' '; self.span.columns]);
                    rows.len() - 1
                }
                None => continue,
            };
            let Some(row) = rows.get_mut(row) else {
                continue;
            };
            let room = last - first + 1;
            let (begin, along) = if unicode { ('├', '─') } else { ('|', '-') };
            let cells = row.iter_mut().skip(first).take(room);
            for (i, cell) in cells.enumerate() {
                *cell = if i == 0 { begin } else { along };
            }
            // Characters of one cell each, so that columns stay columns.
            let name = clean_text(&phase.label, unicode);
            let name: String = name
                .chars()
                .filter(|c| text_width(&c.to_string()) == 1)
                .collect();
            let name = truncate_text(&name, room.saturating_sub(1), "");
            put_text(row, first + 1, &name);
        }
        for (i, row) in rows.into_iter().enumerate() {
            let label = if i == 0 { "phases" } else { "" };
            let row: String = row.into_iter().collect();
            page.write_line(&format!("{}{row}", pad_left_aligned(label, SCALE)));
        }
    }
}

/// What the marks and bands stand for.
fn write_event_list(
    page: &mut TextPage,
    timeline: &ChartTimeline,
    span: Span,
    events: &[(usize, &TimelineEvent)],
) {
    let inside = |p: &&TimelinePhase| p.to_s >= span.from_s && p.from_s <= span.to_s;
    let phases: Vec<&TimelinePhase> = timeline.phases.iter().filter(inside).collect();
    if !phases.is_empty() {
        page.write_title("Phases");
    }
    for phase in phases {
        let from = format_seconds(phase.from_s, 0.1);
        let length = format_duration(phase.to_s - phase.from_s);
        page.write_sentence(2, &format!("{}: {from} s, for {length}", phase.label));
    }
    if !events.is_empty() {
        page.write_title("Events");
    }
    for (i, event) in events.iter().take(LISTED) {
        let bad = if event.bad { " (bad)" } else { "" };
        let (n, at, label) = (i + 1, format_seconds(event.at_s, 0.1), &event.label);
        page.write_sentence(2, &format!("{n} {at} s {label}{bad}"));
    }
    if let Some(more) = events.len().checked_sub(LISTED).filter(|n| *n > 0) {
        let text = format!("and {more} more: --from and --to look into a part");
        page.write_sentence(2, &text);
    }
    let memory = timeline.lanes.iter().filter(|l| l.unit == "GiB");
    let samples = grouped_count(memory.map(|l| l.samples).sum());
    let length = format_duration(timeline.range_s.1);
    page.write_line("");
    let mut text = format!("{samples} samples of memory over {length}");
    if let Some(origin) = &timeline.origin {
        text.push_str(&format!(", from {origin}"));
    }
    text.push('.');
    page.write_sentence(0, &text);
    if let Some(note) = &timeline.note {
        page.write_sentence(0, note);
    }
}

/// The highest of the whole lane.
fn highest_of(lane: &TimelineLane, highest_shown: f64) -> f64 {
    let known = lane.stretches.iter().filter(|s| s.is_known());
    known.map(|s| s.high).fold(highest_shown, f64::max)
}

/// A row's character by the eighths that are filled, from one.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn put_text(line: &mut [char], at: usize, text: &str) {
    for (cell, c) in line.iter_mut().skip(at).zip(text.chars()) {
        *cell = c;
    }
}

fn format_gib(value: f64) -> String {
    unsigned_zero(format!("{value:.2}"))
}

fn format_number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        unsigned_zero(format!("{value:.0}"))
    } else {
        format_figure(value)
    }
}

/// A moment with the decimals that steps of this size need.
fn format_seconds(at: f64, step: f64) -> String {
    let decimals = match step {
        s if s >= 1.0 => 0,
        s if s >= 0.1 => 1,
        s if s >= 0.01 => 2,
        _ => 3,
    };
    unsigned_zero(format!("{at:.decimals$}"))
}

/// The next of 1, 2, 5, 10, … that is at least as large.
fn round_step(at_least: f64) -> f64 {
    if !(at_least.is_finite() && at_least > 0.0) {
        return 0.0;
    }
    let power = 10f64.powf(at_least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * power);
    steps
        .into_iter()
        .find(|s| *s >= at_least)
        .unwrap_or(power * 10.0)
}

/// A round figure above this one.
fn above(highest: f64) -> f64 {
    if highest > 0.0 && highest.is_finite() {
        // Ten steps of the scale hold it.
        (highest / round_step(highest / 10.0)).ceil() * round_step(highest / 10.0)
    } else {
        1.0
    }
}

/// Who a run is, of a profile that was read at `name`: labels and values. A recording has no engine and no load.
pub fn describe_run(name: &str, profile: &Profile) -> Vec<(String, String)> {
    let mut facts = vec![("run".to_owned(), name.to_owned())];
    let mut put = |label: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.push((label.to_owned(), value));
        }
    };
    let engine = &profile.engine_metadata;
    let version = engine.engine_version.as_deref();
    let version = version.unwrap_or("of unknown version");
    let name = Some(engine.engine_type.as_str()).filter(|name| !name.is_empty());
    put("model", profile.model_info.name.clone());
    put(
        "engine",
        name.map(|name| format!("{} {version}", shown_name(name))),
    );
    let devices = profile.gpu_info.devices.iter();
    let devices: Vec<String> = devices.map(|d| format!("{} {}", d.index, d.name)).collect();
    put("devices", Some(devices.join(", ")));
    let breakdown = &profile.memory_breakdown;
    let peak = breakdown
        .total_measured_gb
        .filter(|_| !profile.parameters.bench.is_empty());
    put("peak", peak.map(|gib| format!("{gib:.3} GiB")));
    let memory = &profile.memory_timeline;
    let known = [
        ("lowest", memory.min_gb),
        ("median", memory.median_gb),
        ("mean", memory.mean_gb),
        ("95th percentile", memory.p95_gb),
        ("highest", memory.max_gb),
    ];
    let words = (known.iter()).filter_map(|(word, gib)| Some(format!("{word} {:.3}", (*gib)?)));
    let words = words.collect::<Vec<_>>().join(", ");
    let count = grouped_count(memory.num_samples);
    let samples = format!("{count} of all devices, GiB: {words}");
    put("samples", Some(samples).filter(|_| !words.is_empty()));
    let power = memory.extended.as_ref().and_then(|e| e.power.as_ref());
    let power = power.map(|p| [p.mean_w, p.max_w].map(format_figure));
    put(
        "power",
        power.map(|[mean, most]| format!("mean {mean} W, highest {most} W")),
    );
    facts
}
