//! The weight itself: anonymous pages, each of them touched, none of them huge; or plain allocations of a GPU.

use crate::device::{Device, Driver};
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

/// An anonymous mapping, which costs nothing until touched, or memory of a GPU, which costs at once. Given back when dropped.
pub struct Region {
    start: *mut u8,
    bytes: usize,
    /// Whose memory it is, and its address there.
    device: Option<(&'static Driver, u64)>,
}

// SAFETY: the mapping belongs to the Region alone, is not tied to a thread, and is written through `&mut` only.
unsafe impl Send for Region {}
unsafe impl Sync for Region {}

impl Region {
    pub fn reserve(bytes: usize) -> io::Result<Region> {
        if bytes == 0 {
            return Ok(Region { start: std::ptr::null_mut(), bytes, device: None });
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
        // With huge pages memory grows in jumps, so that steps are hard to tell apart. A kernel that refuses the advice has none.
        // SAFETY: advice about the mapping just made.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Region { start: start.cast(), bytes, device: None })
    }

    /// Has the kernel write it to swap, where there is some.
    fn page_out(&self) {
        if self.device.is_none() && self.bytes > 0 {
            // SAFETY: advice about the mapping that `reserve` made.
            unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_PAGEOUT) };
        }
    }

    /// The same of a device.
    pub fn on(device: Device, bytes: usize) -> io::Result<Region> {
        if device == Device::Cpu || bytes == 0 {
            return Region::reserve(bytes);
        }
        let driver = Driver::of(device)?;
        let address = driver.take(bytes)?;
        Ok(Region { start: std::ptr::null_mut(), bytes, device: Some((driver, address)) })
    }

    /// Takes each page that begins in `from..to`.
    pub fn touch(&mut self, from: usize, to: usize) {
        if let Some((driver, address)) = self.device {
            let to = to.min(self.bytes);
            return driver.fill(address + from as u64, to.saturating_sub(from));
        }
        let (from, to) = (from.next_multiple_of(page_bytes()), to.min(self.bytes));
        // One call, since a virtual machine takes up to 0.1 ms for a page fault. Linux knows it from 5.14 on.
        // SAFETY: both ends are inside the mapping, which is writable and not shared with any reference.
        if from < to && unsafe { libc::madvise(self.start.add(from).cast(), to - from, libc::MADV_POPULATE_WRITE) } == 0
        {
            return;
        }
        for offset in (from..to).step_by(page_bytes()) {
            // SAFETY: as above.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some((driver, address)) = self.device {
            driver.give_back(address);
        } else if self.bytes > 0 {
            // SAFETY: exactly the mapping that `reserve` made; nothing refers to it any more.
            unsafe { libc::munmap(self.start.cast(), self.bytes) };
        }
    }
}

/// Weights and KV pool in place; activations come and go.
pub struct Engine {
    _weights: Region,
    _kv_pool: Region,
    device: Device,
    activation_bytes: usize,
    activation_time: Duration,
    /// One spike at a time: concurrent requests must not stack it, or its height would depend on the load.
    computing: Mutex<()>,
}

impl Engine {
    /// A plateau, weights, a plateau, the KV pool, a plateau: a sampler is to see each step on its own.
    pub fn load(truth: &Truth, phases: &Phases) -> io::Result<Engine> {
        if truth.device != Device::Cpu {
            // Its context is a part of the baseline.
            Driver::of(truth.device)?;
        }
        thread::sleep(Duration::from_millis(truth.start_ms));
        phases.enter(Phase::LoadingWeights, "");
        thread::sleep(Duration::from_millis(truth.pause_ms));
        let mut weights = Region::on(truth.device, truth.weights_bytes)?;
        touch_over(&mut weights, Duration::from_millis(truth.load_ms));
        if std::env::var_os("REFERENCE_PAGE_OUT").is_some() {
            weights.page_out();
        }
        phases.enter(Phase::WeightsLoaded, "");
        thread::sleep(Duration::from_millis(truth.settle_ms));

        let mut kv_pool = Region::on(truth.device, truth.kv_pool_bytes)?;
        kv_pool.touch(0, truth.kv_pool_bytes);
        phases.enter(Phase::KvCacheAllocated, compile(Duration::from_millis(truth.compile_ms))?);
        thread::sleep(Duration::from_millis(truth.settle_ms));
        Ok(Engine {
            _weights: weights,
            _kv_pool: kv_pool,
            device: truth.device,
            activation_bytes: truth.activation_bytes,
            activation_time: Duration::from_millis(truth.activation_ms),
            computing: Mutex::new(()),
        })
    }

    /// One activation spike. Its length counts from the moment that it stands at full height.
    pub fn spike(&self) -> io::Result<()> {
        let _one_at_a_time = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut activation = Region::on(self.device, self.activation_bytes)?;
        activation.touch(0, self.activation_bytes);
        thread::sleep(self.activation_time);
        Ok(())
    }
}

/// Compiles for this time, or takes the result from $REFERENCE_CACHE_DIR; gives the words of a phase line.
fn compile(time: Duration) -> io::Result<&'static str> {
    if time.is_zero() {
        return Ok("");
    }
    let folder = std::env::var_os("REFERENCE_CACHE_DIR").map(std::path::PathBuf::from);
    if folder.as_ref().is_some_and(|folder| folder.join("compiled").exists()) {
        return Ok(" compiled=cached");
    }
    thread::sleep(time);
    if let Some(folder) = folder {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("compiled"), "")?;
    }
    Ok(" compiled=new")
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
