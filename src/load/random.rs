//! Random numbers from a seed: the same on every machine and in every release.

/// SplitMix64 (Steele, Lea, Flood 2014), which accepts any seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// An independent stream for each `(seed, stream)`.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut mixer = Random(seed);
        let mixed = mixer.next_bits();
        Random(mixed ^ Random(stream).next_bits().rotate_left(32))
    }

    /// The next 64 bits.
    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without 1.
    pub fn next_share(&mut self) -> f64 {
        (self.next_bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn next_exponential(&mut self) -> f64 {
        -(1.0 - self.next_share()).ln()
    }
}
