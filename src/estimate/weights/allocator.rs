//! What PyTorch's caching allocator makes of a row of allocations: engines print what it counts, not what tensors hold.
//!
//! Source: PyTorch 2.6, c10/cuda/CUDACachingAllocator.cpp: sizes go up to 512 bytes; blocks of 1 MiB and less come
//! from segments of 2 MiB; larger ones below 10 MiB from segments of 20 MiB; others from a segment of their own, up
//! to 2 MiB. What is left of a large block is split off only where it is more than 1 MiB.

const MIB: u64 = 1 << 20;
const SMALL: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
const OWN_SEGMENT: u64 = 10 * MIB;

/// Memory as the allocator has it.
#[derive(Debug, Clone, Default)]
pub struct Allocator {
    /// Free blocks of large segments, by size.
    free: Vec<u64>,
    small_used: u64,
    used: u64,
    reserved: u64,
}

impl Allocator {
    /// Takes memory, and returns the bytes that are counted for it.
    pub fn take(&mut self, bytes: u64) -> u64 {
        let want = bytes.max(1).checked_next_multiple_of(512).unwrap_or(bytes);
        if want <= SMALL {
            self.small_used = self.small_used.saturating_add(want);
            self.used = self.used.saturating_add(want);
            return want;
        }
        let at = self.free.partition_point(|block| *block < want);
        let block = if at < self.free.len() {
            self.free.remove(at)
        } else {
            let segment = if want < OWN_SEGMENT {
                LARGE_SEGMENT
            } else {
                want.checked_next_multiple_of(SMALL_SEGMENT).unwrap_or(want)
            };
            self.reserved = self.reserved.saturating_add(segment);
            segment
        };
        let rest = block - want;
        let counted = if rest > SMALL {
            self.give(rest);
            want
        } else {
            block
        };
        self.used = self.used.saturating_add(counted);
        counted
    }

    /// Releases what was counted for a large block.
    pub fn release(&mut self, counted: u64) {
        self.used = self.used.saturating_sub(counted);
        if counted > SMALL {
            self.give(counted);
        } else {
            self.small_used = self.small_used.saturating_sub(counted);
        }
    }

    fn give(&mut self, block: u64) {
        let at = self.free.partition_point(|b| *b < block);
        self.free.insert(at, block);
    }

    /// Bytes in use, as `torch.cuda.memory_allocated` has them.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes taken from the driver, as free memory shows them.
    pub fn reserved(&self) -> u64 {
        let small = self.small_used.div_ceil(SMALL_SEGMENT);
        self.reserved
            .saturating_add(small.saturating_mul(SMALL_SEGMENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_block_is_counted_until_it_is_a_mebibyte() {
        let mut memory = Allocator::default();
        // 95 MiB in a segment of 96: the rest is not split off.
        assert_eq!(memory.take(95 * MIB), 96 * MIB);
        // 94.5 MiB in a segment of 96: it is.
        assert_eq!(memory.take(94 * MIB + MIB / 2), 94 * MIB + MIB / 2);
        assert_eq!(memory.take(MIB + MIB / 4), MIB + MIB / 2);
        assert_eq!(memory.reserved(), 192 * MIB);
    }

    #[test]
    fn middling_blocks_share_segments_of_20_mib() {
        let mut memory = Allocator::default();
        assert_eq!(memory.take(8 * MIB), 8 * MIB);
        assert_eq!(memory.take(8 * MIB), 8 * MIB);
        assert_eq!(memory.take(3 * MIB + MIB / 2), 4 * MIB);
        assert_eq!(memory.reserved(), 20 * MIB);
        memory.release(8 * MIB);
        assert_eq!(memory.used(), 12 * MIB);
        // A mebibyte less: it is not split off.
        assert_eq!(memory.take(7 * MIB), 8 * MIB);
    }

    #[test]
    fn small_ones_are_rounded_to_512_bytes() {
        let mut memory = Allocator::default();
        assert_eq!(memory.take(1), 512);
        assert_eq!(memory.take(1024), 1024);
        assert_eq!(memory.reserved(), 2 * MIB);
    }
}
