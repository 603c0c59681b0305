//! The weight itself: anonymous pages, each of them touched, none of them huge.

use crate::phases::{Phase, Phases};
use crate::truth::Truth;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub fn page_bytes() -> usize {
    // SAFETY: no preconditions; this name is always known.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// One heap for all threads: glibc's default is a heap per thread, and the engine's own memory is to stay tiny.
pub fn keep_own_heap_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: called while there is one thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// An anonymous mapping. It costs nothing until touched, and is given back when dropped.
pub struct Region {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the Region alone, is not tied to a thread, and is written through `&mut` only.
unsafe impl Send for Region {}
unsafe impl Sync for Region {}

impl Region {
    pub fn reserve(bytes: usize) -> io::Result<Region> {
        if bytes == 0 {
            return Ok(Region { start: std::ptr::null_mut(), bytes });
        }
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // With huge pages the kernel could charge more than was touched. A kernel that refuses has none.
        // SAFETY: advice about the mapping just made.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Region { start: start.cast(), bytes })
    }

    /// Writes to each page that begins in `from..to`.
    pub fn touch(&mut self, from: usize, to: usize) {
        for offset in (from..to.min(self.bytes)).step_by(page_bytes()) {
            // SAFETY: `offset` is inside the mapping, which is writable and not shared with any reference.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: exactly the mapping that `reserve` made; nothing refers to it any more.
            unsafe { libc::munmap(self.start.cast(), self.bytes) };
        }
    }
}

/// Weights and KV pool in place; activations come and go.
pub struct Engine {
    _weights: Region,
    _kv_pool: Region,
    activation_bytes: usize,
    activation_time: Duration,
    /// One spike at a time: concurrent requests must not stack it, or its height would depend on the load.
    computing: Mutex<()>,
}

impl Engine {
    /// A plateau, weights, a plateau, the KV pool, a plateau: a sampler is to see each step on its own.
    pub fn load(truth: &Truth, phases: &Phases) -> io::Result<Engine> {
        thread::sleep(Duration::from_millis(truth.start_ms));
        phases.enter(Phase::LoadingWeights, "");
        let mut weights = Region::reserve(truth.weights_bytes)?;
        touch_over(&mut weights, Duration::from_millis(truth.load_ms));
        phases.enter(Phase::WeightsLoaded, "");
        thread::sleep(Duration::from_millis(truth.settle_ms));

        let mut kv_pool = Region::reserve(truth.kv_pool_bytes)?;
        kv_pool.touch(0, truth.kv_pool_bytes);
        phases.enter(Phase::KvCacheAllocated, "");
        thread::sleep(Duration::from_millis(truth.settle_ms));
        Ok(Engine {
            _weights: weights,
            _kv_pool: kv_pool,
            activation_bytes: truth.activation_bytes,
            activation_time: Duration::from_millis(truth.activation_ms),
            computing: Mutex::new(()),
        })
    }

    /// One activation spike. Its length counts from the moment that it stands at full height.
    pub fn spike(&self) -> io::Result<()> {
        let _one_at_a_time = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut activation = Region::reserve(self.activation_bytes)?;
        activation.touch(0, self.activation_bytes);
        thread::sleep(self.activation_time);
        Ok(())
    }
}

/// Touches the region in steps spread evenly over a time, as a loader does.
fn touch_over(region: &mut Region, time: Duration) {
    const STEPS: usize = 20;
    let begin = Instant::now();
    let pages = region.bytes / page_bytes();
    for step in 0..STEPS {
        let edge = |step: usize| pages * step / STEPS * page_bytes();
        region.touch(edge(step), edge(step + 1));
        let due = begin + time * (step as u32 + 1) / STEPS as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident bytes of this mapping alone, as the kernel counts them.
    fn resident(region: &Region) -> usize {
        let mut pages = vec![0u8; region.bytes / page_bytes()];
        // SAFETY: the mapping is ours and the vector has a byte per page.
        let ok = unsafe { libc::mincore(region.start.cast(), region.bytes, pages.as_mut_ptr()) };
        assert_eq!(ok, 0);
        pages.iter().filter(|&page| page & 1 == 1).count() * page_bytes()
    }

    #[test]
    fn exactly_the_touched_pages_are_resident() {
        let mut region = Region::reserve(64 << 20).unwrap();
        assert_eq!(resident(&region), 0);
        region.touch(0, 16 << 20);
        assert_eq!(resident(&region), 16 << 20);
        touch_over(&mut region, Duration::ZERO);
        assert_eq!(resident(&region), 64 << 20);
    }

    #[test]
    fn nothing_is_a_region_too() {
        Region::reserve(0).unwrap().touch(0, 4096);
    }
}
