//! How late this host woke the client: on a busy host every measured latency includes the client's
//! own wait for a processor, and only the client can measure that.

use crate::sync::lock_data;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(5);

/// Number of measurements kept, some 40 minutes; later ones count only for the maximum.
const KEPT: usize = 500_000;

/// Usual delay of a timer on a quiet host, milliseconds; only longer delays are noted.
const USUAL_MS: f64 = 5.0;

/// How late the client was woken, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lateness {
    /// Of a hundred wakings the 99th.
    pub p99_ms: f64,
    /// The worst.
    pub max_ms: f64,
}

impl Lateness {
    /// A note for the report, if the delay matters.
    pub fn lateness_note(self) -> Option<String> {
        (self.p99_ms > USUAL_MS).then(|| {
            format!(
                "this host is busy: it woke the client up to {:.0} ms late (99th percentile {:.0} ms), and latencies include that",
                self.max_ms, self.p99_ms
            )
        })
    }
}

/// Measures the delay while a load runs.
pub struct LatenessWatch {
    late_us: Arc<Mutex<(Vec<u32>, u32)>>,
    task: JoinHandle<()>,
}

impl LatenessWatch {
    /// Starts looking.
    pub fn start() -> LatenessWatch {
        let late_us = Arc::new(Mutex::new((Vec::new(), 0)));
        let shared = Arc::clone(&late_us);
        let task = tokio::spawn(async move {
            let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let due = ticks.tick().await;
                let late = u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX);
                let mut lateness = lock_data(&shared);
                lateness.1 = lateness.1.max(late);
                if lateness.0.len() < KEPT {
                    lateness.0.push(late);
                }
            }
        });
        LatenessWatch { late_us, task }
    }

    /// Ends the measurement; `None` if the load ended before the first one.
    pub fn end(self) -> Option<Lateness> {
        let mut lateness = lock_data(&self.late_us);
        let (all, max) = &mut *lateness;
        all.sort_unstable();
        let p99 = all.get(all.len().saturating_sub(1) * 99 / 100)?;
        Some(Lateness {
            p99_ms: f64::from(*p99) / 1e3,
            max_ms: f64::from(*max) / 1e3,
        })
    }
}

impl Drop for LatenessWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_kept_from_running_knows_it() {
        let watch = LatenessWatch::start();
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Nothing runs meanwhile, as when other processes have every processor.
        for _ in 0..10 {
            tokio::time::advance(Duration::from_millis(80)).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let late = watch.end().unwrap();
        assert!(late.max_ms >= 70.0 && late.p99_ms >= 70.0, "{late:?}");
        let note = late.lateness_note().unwrap();
        assert!(note.contains("this host is busy"), "{note}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_host_needs_no_note() {
        let watch = LatenessWatch::start();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let late = watch.end().unwrap();
        assert_eq!((late.p99_ms, late.lateness_note()), (0.0, None));
        assert_eq!(LatenessWatch::start().end(), None);
    }
}
