//! Why a value is null. Each section writes the reasons of its own nulls, beside the code that makes the values; a test
//! checks that none is missing.

use super::observation::{CaptureObservation, observes_only};
use crate::capture::Mode;
use std::collections::BTreeMap;

/// Path of each null → reason. Array elements are written `[]`.
#[derive(Debug, Default)]
pub struct NullReasons(pub(super) BTreeMap<String, String>);

impl NullReasons {
    /// Keeps the reason of a value that is null.
    pub fn note_if_null(&mut self, null: bool, path: String, reason: impl FnOnce() -> String) {
        if null {
            self.0.entry(path).or_insert_with(reason);
        }
    }
}

/// Notes a reason for each of these fields of `$value`, a section or an element at the path `$at`, that is null. The
/// fields are named as in the document.
macro_rules! null_reasons {
    ($reasons:expr, $at:expr, $value:expr; $($($($field:ident).+),+ => $reason:expr;)+) => {$($(
        $reasons.note_if_null(
            $value.$($field).+.is_none(),
            format!(concat!("{}", $(".", stringify!($field)),+), $at),
            || $reason.into(),
        );
    )+)+};
}
pub(super) use null_reasons;

/// Reasons that several sections share.
impl CaptureObservation<'_> {
    /// The engine does not report it.
    pub(super) fn not_reported(&self) -> String {
        match self.engine {
            // No endpoints are asked where the engine runs inside the bench.
            Some(engine) if self.capture.mode == Mode::Idle => {
                format!("{} did not say it in its log", engine.shown())
            }
            Some(engine) => format!(
                "{} did not report it, in its log or by its endpoints",
                engine.shown()
            ),
            None if self.capture.engine.is_empty() => "no engine was recognised".into(),
            None => format!("this plimsoll cannot read engine `{}`", self.capture.engine),
        }
    }

    /// No sample shows it.
    pub(super) fn not_sampled(&self) -> String {
        match &self.capture.sampling.last_error {
            Some(e) if self.capture.sampling.ticks == 0 => {
                format!("memory could not be read: {e}")
            }
            _ => "no sample covers it".into(),
        }
    }

    /// The measured part of the bench shows nothing; `otherwise` where that part was seen.
    pub(super) fn no_load(&self, otherwise: &str) -> String {
        self.capture.end.unmeasured().unwrap_or_else(|| {
            match self.top_repeat().map(|t| t.bench_at) {
                None => self.no_peak(),
                Some(None) => "the bench did not report the start of its measured part".into(),
                Some(Some(_)) => otherwise.to_owned(),
            }
        })
    }

    /// There is no peak.
    pub(super) fn no_peak(&self) -> String {
        if self.series.device_count() == 0 || !self.repeats.is_empty() {
            return self.not_sampled();
        }
        self.capture
            .end
            .unmeasured()
            .unwrap_or_else(|| "no load ran".into())
    }

    /// No bench was asked for, or `otherwise`.
    pub(super) fn no_bench_or(&self, otherwise: impl FnOnce() -> String) -> String {
        if observes_only(self.capture) {
            return "no bench was asked for".into();
        }
        otherwise()
    }

    /// The kernel does not report it of host memory, or `otherwise` of a GPU's.
    pub(super) fn host_or(&self, host: &str, otherwise: &str) -> String {
        let reason = if self.is_host(0) { host } else { otherwise };
        reason.into()
    }
}
