//! Numbers that look random and are the same for the same seed (splitmix64).
#![allow(dead_code, missing_docs)]

pub struct Random(pub u64);

/// Of `PLIMSOLL_FAULT_SEED`, or of the time: what failed names it, to be looked into.
pub fn seed() -> u64 {
    let set = std::env::var("PLIMSOLL_FAULT_SEED").ok();
    let now = || jiff::Timestamp::now().as_microsecond().unsigned_abs();
    set.and_then(|n| n.parse().ok()).unwrap_or_else(now)
}

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0, less than that.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// As likely in each octave.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let octaves = (high as f64 / low as f64).log2();
        (low as f64 * (octaves * self.part()).exp2()).round() as u64
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let other = usize::try_from(self.below(i as u64 + 1)).unwrap_or_default();
            items.swap(i, other);
        }
    }
}
