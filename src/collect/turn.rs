//! Runs side by side: their engines start one after the other, then each is loaded while the others serve.

use super::StopSignal;
use std::sync::Arc;
use tokio::sync::watch;

/// A run's place among those beside it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Starts and loads that are over.
    over: Arc<watch::Sender<usize>>,
    place: usize,
    of: usize,
}

impl Turn {
    /// A turn for each of so many runs, in the order in which they start.
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
