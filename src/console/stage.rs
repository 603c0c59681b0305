//! The stage of a single run: drawn while it runs, one line when it ended.

use super::Console;
use super::look::ResultMark;
use crate::progress::Stage;
use crate::report::layout::format_duration;
use crate::sync::lock_data;
use crate::units::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

pub(super) struct RunningStage {
    stage: Stage,
    since: Instant,
    bar: Option<ProgressBar>,
    /// Most memory in use so far, bytes.
    peak: Option<u64>,
}

/// A stage that was shorter than this, in seconds, had nothing to do: `0.0 s`.
const NOTHING_DONE: f64 = 0.05;

impl Console {
    pub(super) fn begin_stage(&self, stage: Stage) {
        if self.0.quiet
            || lock_data(&self.0.running)
                .as_ref()
                .is_some_and(|r| r.stage == stage)
        {
            return;
        }
        self.end_stage(ResultMark::Done);
        let bar = self.0.drawing.as_ref().map(|drawing| {
            let bar = drawing.bars.add(ProgressBar::new_spinner());
            bar.set_prefix(stage.label());
            drawing.start_bar(&bar, self.spinner());
            bar
        });
        if bar.is_none() {
            // Printed at its start: the last line of a run that hangs names its stage.
            self.print_plain(&stage.label());
        }
        *lock_data(&self.0.running) = Some(RunningStage {
            stage,
            since: Instant::now(),
            bar,
            peak: None,
        });
    }

    /// Ends the running stage; false when there was none.
    pub(super) fn end_stage(&self, ended: ResultMark) -> bool {
        let Some(running) = lock_data(&self.0.running).take() else {
            return false;
        };
        let label = running.stage.label();
        let (Some(bar), Some(drawing)) = (running.bar, &self.0.drawing) else {
            // The next stage's line marks the end of this one.
            if ended == ResultMark::Failed {
                self.print_plain(&format!("{label}: failed"));
            }
            return true;
        };
        drawing.erase(&bar);
        let seconds = running.since.elapsed().as_secs_f64();
        if ended == ResultMark::Done && seconds < NOTHING_DONE {
            return true;
        }
        let mark = self.0.look.mark_sign(ended);
        let detail = format!("{}  {}", format_duration(seconds), peak_text(running.peak));
        let detail = self.0.look.dim_text(detail.trim_end());
        self.print_line(&format!("{mark} {label:<18}  {detail}"));
        true
    }

    pub(super) fn set_step(&self, done: u64, of: u64) {
        let mut running = lock_data(&self.0.running);
        if let Some(RunningStage {
            bar: Some(bar),
            peak,
            ..
        }) = running.as_mut()
        {
            if of > 0 {
                if bar.length() != Some(of) {
                    bar.set_style(self.bar());
                    bar.set_length(of);
                }
                bar.set_position(done.min(of));
                bar.set_message(peak_text(*peak));
            }
        }
    }

    pub(super) fn set_memory(&self, bytes: u64) {
        let mut running = lock_data(&self.0.running);
        let during_load = |running: &&mut RunningStage| {
            !matches!(
                running.stage,
                Stage::Inspect | Stage::Cleanup | Stage::Derive
            )
        };
        if let Some(running) = running.as_mut().filter(during_load) {
            running.peak = running.peak.max(Some(bytes));
            if let Some(bar) = &running.bar {
                bar.set_message(peak_text(running.peak));
            }
        }
    }

    fn spinner(&self) -> ProgressStyle {
        self.style_from_template("{spinner} {prefix:18}  {elapsed}  {msg}")
    }

    fn bar(&self) -> ProgressStyle {
        self.style_from_template("{spinner} {prefix:18}  {elapsed}  {bar:24}  {pos}/{len}  {msg}")
            .progress_chars(self.0.look.bar_characters())
    }

    pub(super) fn style_from_template(&self, template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_spinner())
            .tick_chars(self.0.look.spinner_ticks())
    }
}

fn peak_text(peak: Option<u64>) -> String {
    peak.map_or_else(String::new, |b| format!("peak {}", Bytes(b)))
}
