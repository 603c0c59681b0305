//! Stops a run before its end: the first reason counts, and all tasks see it.
//!
//! Runs side by side: their engines start one after the other, then each is loaded while the others serve.

use crate::capture::RunEnd;
use crate::error::{ExitCode, Failure};
use crate::sync::lock_data;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Shared by all tasks of a run.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    token: CancellationToken,
    reason: Arc<Mutex<Option<RunEnd>>>,
    /// Containers that would remain if plimsoll exited now.
    started: Arc<Mutex<BTreeSet<String>>>,
    /// The stop of the whole, if this run is one of several: it stops this run too.
    whole: Option<Arc<StopSignal>>,
}

impl StopSignal {
    /// A stop that has not fired.
    pub fn new() -> StopSignal {
        StopSignal::default()
    }

    /// A stop for one of several runs: fires with this one, and can fire alone.
    pub fn child_stop(&self) -> StopSignal {
        StopSignal {
            token: self.token.child_token(),
            reason: Arc::default(),
            started: Arc::clone(&self.started),
            whole: Some(Arc::new(self.clone())),
        }
    }

    /// Stops the run; the first reason counts.
    pub fn stop_because(&self, reason: RunEnd) {
        lock_data(&self.reason).get_or_insert(reason);
        self.token.cancel();
    }

    /// Records a container that is started and not removed yet.
    pub fn note_started(&self, name: &str) {
        self.lock_started().insert(name.to_owned());
    }

    /// Records that it was removed, or is to be kept.
    pub fn note_settled(&self, name: &str) {
        self.lock_started().remove(name);
    }

    /// Containers that would remain if plimsoll exited now.
    pub fn left_over(&self) -> Vec<String> {
        self.lock_started().iter().cloned().collect()
    }

    fn lock_started(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock_data(&self.started)
    }

    /// Fires when the run stops.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The failure of work that was abandoned because the run stops.
    pub fn stop_failure(&self) -> Failure {
        match self.stop_reason() {
            Some(RunEnd::Deadline) => {
                Failure::run("the time limit passed before the first request was sent")
                    .hint("give it longer with --timeout")
            }
            Some(RunEnd::Failed(why)) => Failure::run(why),
            _ => Failure::new(ExitCode::Interrupted, "interrupted"),
        }
    }

    /// Why it stopped; `None` if it has not.
    pub fn stop_reason(&self) -> Option<RunEnd> {
        // The reason of the whole run counts; failures of its parts are consequences.
        let whole = self.whole.as_ref().and_then(|w| w.stop_reason());
        whole.or_else(|| lock_data(&self.reason).clone())
    }
}

/// Runs `work` unless the run stops first. Only for work that can be dropped safely.
pub async fn unless_stopped<T>(
    stop: &StopSignal,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        () = stop.token().cancelled() => Err(stop.stop_failure()),
    }
}

/// A run's place among those beside it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Starts and loads that are over.
    over: Arc<watch::Sender<usize>>,
    place: usize,
    of: usize,
}

impl Turn {
    /// One turn per run, in the order in which they start.
    pub fn of_runs(of: usize) -> Vec<Turn> {
        let over = Arc::new(watch::channel(0).0);
        let turn = |place| Turn {
            over: Arc::clone(&over),
            place,
            of,
        };
        (0..of).map(turn).collect()
    }

    /// Waits until all serve that start before this one.
    pub async fn start(&self, stop: &StopSignal) {
        self.wait_for(self.place, stop).await;
    }

    /// This one serves: waits until all do, and with a load of its own until those before it had theirs.
    pub(super) async fn serve(&self, has_load: bool, stop: &StopSignal) {
        let before = if has_load { self.place } else { 0 };
        self.end_step();
        self.wait_for(self.of + before, stop).await;
    }

    /// Its load is over, or failed: it serves on until all loads are. One that never served holds those back that start
    /// after it.
    pub(super) async fn stay(&self, stop: &StopSignal) {
        let has_served = *self.over.borrow() > self.place;
        if has_served {
            self.end_step();
            self.wait_for(2 * self.of, stop).await;
        }
    }

    fn end_step(&self) {
        self.over.send_modify(|over| *over += 1);
    }

    async fn wait_for(&self, steps: usize, stop: &StopSignal) {
        let mut over = self.over.subscribe();
        tokio::select! {
            _ = over.wait_for(|over| *over >= steps) => {}
            () = stop.token().cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stops_alone_and_with_the_whole() {
        let whole = StopSignal::new();
        let (first, second) = (whole.child_stop(), whole.child_stop());
        first.stop_because(RunEnd::Deadline);
        assert!(first.token().is_cancelled());
        assert!(!whole.token().is_cancelled() && second.stop_reason().is_none());
        whole.stop_because(RunEnd::Interrupted);
        assert!(second.token().is_cancelled());
        assert_eq!(second.stop_reason(), Some(RunEnd::Interrupted));
        second.stop_because(RunEnd::BenchFailed("its bench was ended".into()));
        assert_eq!(second.stop_reason(), Some(RunEnd::Interrupted));
    }
}
