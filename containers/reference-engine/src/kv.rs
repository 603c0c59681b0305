//! The KV pool's bookkeeping: who waits, who runs, who is preempted. The memory is reserved from the start and does
//! not move with it, as in a real engine.

use crate::truth::BLOCK_TOKENS;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default, Clone, Copy)]
pub struct Counts {
    pub used_blocks: u64,
    pub running: u64,
    pub waiting: u64,
    pub preemptions: u64,
    pub spikes: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
}

pub struct Pool {
    pub blocks: u64,
    /// Requests that may run at once.
    slots: u64,
    counts: Mutex<Counts>,
    freed: Condvar,
}

/// A request's blocks. They return to the pool when it is dropped, whatever became of the request.
pub struct Held<'a> {
    pool: &'a Pool,
    blocks: u64,
}

impl Pool {
    pub fn new(blocks: u64, slots: u64) -> Pool {
        Pool { blocks, slots, counts: Mutex::default(), freed: Condvar::new() }
    }

    pub fn needed(tokens: u64) -> u64 {
        tokens.div_ceil(BLOCK_TOKENS)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> Counts {
        *self.lock()
    }

    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.lock());
    }

    /// Waits until so many blocks are free, and a slot. The caller has made sure that the pool has so many.
    pub fn hold(&self, blocks: u64) -> Held<'_> {
        let mut counts = self.lock();
        counts.waiting += 1;
        while self.blocks - counts.used_blocks < blocks || counts.running >= self.slots {
            counts = self.freed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        counts.waiting -= 1;
        counts.running += 1;
        counts.used_blocks += blocks;
        Held { pool: self, blocks }
    }
}

impl<'a> Held<'a> {
    /// More blocks for the output. Where there are none the request is preempted: it gives all of its blocks back and
    /// waits for the lot, so that nobody waits while holding. True if that happened.
    pub fn grow(self, total: u64) -> (Held<'a>, bool) {
        let mut this = self;
        let pool = this.pool;
        {
            let mut counts = pool.lock();
            let more = total.saturating_sub(this.blocks);
            if pool.blocks - counts.used_blocks >= more {
                counts.used_blocks += more;
                this.blocks += more;
                return (this, false);
            }
            counts.preemptions += 1;
        }
        drop(this);
        (pool.hold(total), true)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut counts = self.pool.lock();
        counts.used_blocks -= self.blocks;
        counts.running -= 1;
        drop(counts);
        self.pool.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole() {
        assert_eq!([Pool::needed(0), Pool::needed(1), Pool::needed(16), Pool::needed(17)], [0, 1, 1, 2]);
    }

    #[test]
    fn one_who_finds_no_room_to_grow_gives_way() {
        let pool = Pool::new(10, 256);
        let (first, preempted) = pool.hold(4).grow(6);
        assert!(!preempted);
        assert_eq!((pool.counts().used_blocks, pool.counts().running), (6, 1));
        let second = pool.hold(4);
        std::thread::scope(|scope| {
            let grown = scope.spawn(|| second.grow(8).1);
            while pool.counts().preemptions == 0 || pool.counts().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(pool.counts().used_blocks, 6);
            drop(first);
            assert!(grown.join().unwrap());
        });
        let end = pool.counts();
        assert_eq!((end.used_blocks, end.running, end.waiting, end.preemptions), (0, 0, 0, 1));
    }

    #[test]
    fn who_finds_no_slot_waits_for_one() {
        let pool = Pool::new(10, 1);
        let first = pool.hold(1);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| pool.hold(1).blocks);
            while pool.counts().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(pool.counts().running, 1);
            drop(first);
            assert_eq!(second.join().unwrap(), 1);
        });
    }
}
