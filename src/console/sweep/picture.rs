//! The pictures of a board: what it and its lanes show at this moment, as text.

use crate::console::look::TerminalStyle;
use crate::progress::Stage;
use crate::report::layout::{text_width, truncate_text};
use crate::units::Bytes;
use std::time::Instant;

/// Cells that a lane's name has in the narrowest window.
const NAME: usize = 8;

/// What a board shows: of what, and what it is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoardWords {
    /// `sweep`, `experiment`.
    pub whole: &'static str,
    /// `cells`, `levels`.
    pub parts: &'static str,
}

impl BoardWords {
    /// Of a sweep.
    pub const SWEEP: BoardWords = BoardWords {
        whole: "sweep",
        parts: "cells",
    };
    /// Of an experiment.
    pub const EXPERIMENT: BoardWords = BoardWords {
        whole: "experiment",
        parts: "levels",
    };
    /// Of one start of a tuning.
    pub const TUNING: BoardWords = BoardWords {
        whole: "tune",
        parts: "loads",
    };
}

/// How far the sweep is.
#[derive(Debug, Clone, Default)]
pub(super) struct BoardCounts {
    pub(super) words: BoardWords,
    pub(super) done: u64,
    pub(super) of: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// Seconds that were left, and when that was computed.
    pub(super) forecast: Option<(f64, Instant)>,
}

/// What a lane does now.
#[derive(Debug, Clone)]
pub(super) struct LaneState {
    pub(super) label: String,
    pub(super) cell: String,
    pub(super) stage: Option<Stage>,
    /// Since when it does that.
    pub(super) since: Instant,
    /// Most memory in use in that stage, bytes.
    pub(super) peak: Option<u64>,
    pub(super) step: Option<(u64, u64)>,
}

impl LaneState {
    /// Another stage or, with none, another cell.
    pub(super) fn begin_stage(&mut self, stage: Option<Stage>) {
        self.stage = stage;
        self.since = Instant::now();
        self.peak = None;
        self.step = None;
    }
}

impl BoardCounts {
    /// `eta 3m 20s`; `eta ?` while that is not known, and after it passed. Nothing at the end.
    pub(super) fn eta_text(&self) -> Option<String> {
        let left = self
            .forecast
            .map(|(seconds, made_at)| seconds - made_at.elapsed().as_secs_f64())
            .filter(|left| *left > 0.0)
            .map_or_else(|| "?".to_owned(), |left| short_duration(left.ceil()));
        (self.done < self.of).then(|| format!("eta {left}"))
    }

    /// What did not go well, each part led in.
    pub(super) fn fault_text(&self, before: &str) -> String {
        [(self.failed, "failed"), (self.skipped, "skipped")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{before}{count} {word}"))
            .collect()
    }
}

/// `sweep  ━━━━╸      7/18  38 %  2 failed  eta 3m 20s`
pub(super) fn overall_line(counts: &BoardCounts, cells: usize, look: TerminalStyle) -> String {
    let percent = match counts.of {
        0 => 100,
        of => u128::from(counts.done) * 100 / u128::from(of),
    };
    let mut text = format!("{}/{}  {percent} %", counts.done, counts.of);
    text.push_str(&counts.fault_text("  "));
    if let Some(eta) = counts.eta_text() {
        text.push_str(&format!("  {eta}"));
    }
    let whole = counts.words.whole;
    let room = cells.saturating_sub(text_width(whole) + text_width(&text) + 4);
    let line = match room.min(24) {
        0..4 => format!("{whole}  {text}"),
        bar => format!(
            "{whole}  {}  {text}",
            look.draw_meter(counts.done, counts.of, bar)
        ),
    };
    truncate_text(&line, cells, look.ellipsis())
}

/// `llama-8b in box · input 256, output 128 tokens · bench 1/2 · 12s · peak 12.30 GiB  ━━━╸    5/10`
pub(super) fn lane_line(now: &LaneState, cells: usize, look: TerminalStyle) -> String {
    let stage = now.stage.map(Stage::label);
    let elapsed = short_duration(now.since.elapsed().as_secs_f64());
    let memory = now.peak.map(|bytes| format!("peak {}", Bytes(bytes)));
    let facts = |cell: &str, elapsed: Option<&str>| -> String {
        [Some(cell), stage.as_deref(), elapsed, memory.as_deref()]
            .into_iter()
            .flatten()
            .filter(|fact| !fact.is_empty())
            .map(|fact| format!("{}{fact}", look.fact_separator()))
            .collect()
    };
    let mut line = facts(&now.cell, Some(&elapsed));
    if text_width(&line) + NAME > cells {
        // Memory matters more than time, and than all that the cell is named by.
        let others = text_width(&facts("", None)) + text_width(look.fact_separator()) + NAME;
        let cell = truncate_text(&now.cell, cells.saturating_sub(others), look.ellipsis());
        line = facts(&cell, None);
    }
    let step = now.step.map_or(String::new(), |(done, of)| {
        let meter = look.draw_meter(done, of, 12);
        format!("  {meter}  {done}/{of}")
    });
    // The bar goes first where room is short, then the middle of the name, then the end of all.
    let label = text_width(&now.label).min(24);
    if label + text_width(&line) + text_width(&step) <= cells {
        line.push_str(&step);
    }
    let room = cells.saturating_sub(text_width(&line)).max(NAME);
    let label = look.cut_middle(&now.label, room);
    truncate_text(&format!("{label}{line}"), cells, look.ellipsis())
}

/// A length of time where room is short: `12s`, `3m 20s`, `2h 07m`.
fn short_duration(seconds: f64) -> String {
    // Not negative: it saturates.
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole % 3600 / 60),
    }
}
