//! What a sampler hands on: readings of all devices together, so that its reader is woken rarely,
//! taken sample by sample.

use crate::capture::MemorySample;
use std::cell::RefCell;
use std::sync::mpsc::{
    Receiver, RecvError, RecvTimeoutError, SyncSender, TryRecvError, sync_channel,
};
use std::time::Duration;

/// The samples of a running sampler, in the order they were taken.
#[derive(Debug)]
pub struct Samples {
    readings: Receiver<Vec<MemorySample>>,
    /// What is left of the reading that was taken last.
    now: RefCell<std::vec::IntoIter<MemorySample>>,
}

/// A channel with this capacity, in readings.
pub(super) fn sample_channel(readings: usize) -> (SyncSender<Vec<MemorySample>>, Samples) {
    let (sender, readings) = sync_channel(readings);
    let samples = Samples {
        readings,
        now: RefCell::default(),
    };
    (sender, samples)
}

impl Samples {
    /// The next sample, waited for. An error is the end.
    pub fn recv_sample(&self) -> Result<MemorySample, RecvError> {
        self.next(|| self.readings.recv())
    }

    /// The next sample, waiting at most `patience`.
    pub fn recv_timeout(&self, patience: Duration) -> Result<MemorySample, RecvTimeoutError> {
        self.next(|| self.readings.recv_timeout(patience))
    }

    /// All samples until the end, waited for.
    pub fn iter(&self) -> impl Iterator<Item = MemorySample> + '_ {
        std::iter::from_fn(|| self.recv_sample().ok())
    }

    /// The samples that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = MemorySample> + '_ {
        let next = || self.next(|| self.readings.try_recv());
        std::iter::from_fn(move || next().map_err(|_: TryRecvError| ()).ok())
    }

    fn next<E>(&self, more: impl Fn() -> Result<Vec<MemorySample>, E>) -> Result<MemorySample, E> {
        loop {
            if let Some(sample) = self.now.borrow_mut().next() {
                return Ok(sample);
            }
            *self.now.borrow_mut() = more()?.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: i64) -> MemorySample {
        MemorySample {
            at_ns,
            ..MemorySample::default()
        }
    }

    #[test]
    fn readings_are_taken_sample_by_sample() {
        let (sender, samples) = sample_channel(8);
        for reading in [vec![sample(1), sample(2)], vec![], vec![sample(3)]] {
            sender.send(reading).unwrap();
        }
        assert_eq!(samples.recv_sample().unwrap().at_ns, 1);
        assert_eq!(
            samples.try_iter().map(|s| s.at_ns).collect::<Vec<_>>(),
            [2, 3]
        );
        let none = samples.recv_timeout(Duration::ZERO);
        assert_eq!(none, Err(RecvTimeoutError::Timeout));
        drop(sender);
        assert_eq!(samples.iter().count(), 0);
    }
}
