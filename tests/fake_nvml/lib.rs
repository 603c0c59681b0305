//! A stand-in `libnvidia-ml.so.1` for machines without a GPU: what it answers stands in the
//! scenario file that `PLIMSOLL_FAKE_NVML` names. Built as an example target, so that tests have it.
//!
//! ```text
//! driver 535.54.03                                version, told with `fake-` before it
//! gpu UUID TOTAL_MIB RESERVED_MIB NAME…           one line for each GPU
//! at MS gpu I used=MIB power=MW temp=C util=PCT   from MS milliseconds after the start; also
//!   memutil=PCT memtemp=C sm=MHZ mem=MHZ throttle=BITS energy=MJ (without: power times time)
//! mig I PLACE UUID TOTAL_MIB                      a slice of GPU I, which is then in MIG mode
//! at MS slice I PLACE used=MIB
//! accounting on                                   the driver keeps account of processes
//! at MS peak I PID MIB                            a process' highest use, in that account
//! at MS xid I CODE                                a critical event, told once
//! at MS ecc I                                     likewise, an uncorrectable memory error
//! at MS proc I PID MIB|na [compute|graphics|both|mps]
//!                                                 PID may be `self`, the process that loads this, or `parent`
//! at MS lie COUNT                                 lists of computing processes claim to be so long
//! at MS exit I PID
//! at MS fail FUNCTION CODE [I]                    FUNCTION returns CODE (of one GPU); 0 ends that
//! at MS slow FUNCTION MILLISECONDS                FUNCTION takes that long
//! stride32                                        process lists as drivers 535.43 to 535.97 have them
//! at MS cap I MIB                                 no more than that is told to be in use
//! stale                                           what `libcuda` took is told as at the first look, for ever
//! ```
//!
//! It stands in for `libcuda.so.1` too: what a process takes by it is a file of its own in the folder `SCENARIO.cuda`, and is
//! in use on the first GPU while that process lives.
//!
//! The file is read again for every call: a test may change the scenario by replacing it. With
//! `PLIMSOLL_FAKE_NVML_ONCE` it is read once and stands as it is at the start, which costs next to
//! nothing per call: for measuring what others cost.
#![allow(unsafe_code, reason = "a C interface cannot be implemented without")]
#![allow(
    non_snake_case,
    missing_docs,
    reason = "the names are NVML's, and so is their documentation"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Code = c_uint;
type Device = *mut c_void;
const OK: Code = 0;
const INVALID_ARGUMENT: Code = 2;
const NOT_SUPPORTED: Code = 3;
const NOT_FOUND: Code = 6;
const INSUFFICIENT_SIZE: Code = 7;
const TIMEOUT: Code = 10;
const VERSION_MISMATCH: Code = 25;
/// Handles are these plus the GPU's index, so that no handle is null.
const FIRST_HANDLE: usize = 0x1000;
/// Of slices: these, plus 16 for each GPU, plus the place.
const FIRST_SLICE: usize = 0x2000;
/// Of event sets; there is only one.
const EVENT_SET: usize = 0x3000;
const EVENT_DOUBLE_BIT: u64 = 2;
const EVENT_XID: u64 = 8;
const FIELD_MEMORY_TEMP: c_uint = 82;
const MIB: u64 = 1 << 20;

static START: OnceLock<Instant> = OnceLock::new();
/// Events that were told.
static TOLD: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Scenario {
    driver: String,
    stride32: bool,
    /// What lists claim to hold.
    lie: Option<c_uint>,
    accounting: bool,
    gpus: Vec<Gpu>,
    /// GPU, kind, Xid.
    events: Vec<(usize, u64, u64)>,
    /// By function and GPU; `None` is every GPU.
    failures: BTreeMap<(String, Option<usize>), Code>,
    slow: BTreeMap<String, u64>,
    stale: bool,
    /// By GPU, MiB.
    caps: Vec<(usize, u64)>,
}

/// A scenario that was read now, or once.
enum Cow {
    Fresh(Scenario),
    Kept(&'static Scenario),
}

impl std::ops::Deref for Cow {
    type Target = Scenario;

    fn deref(&self) -> &Scenario {
        match self {
            Cow::Fresh(scenario) => scenario,
            Cow::Kept(scenario) => scenario,
        }
    }
}

#[derive(Default)]
struct Gpu {
    uuid: String,
    name: String,
    total: u64,
    reserved: u64,
    values: BTreeMap<String, u64>,
    processes: BTreeMap<u32, Process>,
    /// By pid, bytes.
    peaks: BTreeMap<u32, u64>,
    slices: BTreeMap<usize, Gpu>,
}

struct Process {
    bytes: Option<u64>,
    compute: bool,
    graphics: bool,
    mps: bool,
}

impl Gpu {
    fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or_default()
    }

    fn used(&self) -> u64 {
        self.value("used") * MIB
    }
}

impl Scenario {
    /// The scenario as it stands now, or stood at the start where that is wished.
    fn now() -> Cow {
        static ONCE: OnceLock<Option<Scenario>> = OnceLock::new();
        let once = ONCE.get_or_init(|| {
            let wished = std::env::var_os("PLIMSOLL_FAKE_NVML_ONCE").is_some();
            wished.then(Scenario::read)
        });
        match once {
            Some(scenario) => Cow::Kept(scenario),
            None => Cow::Fresh(Scenario::read()),
        }
    }

    fn read() -> Scenario {
        let elapsed = START.get_or_init(Instant::now).elapsed();
        let path =
            std::env::var_os("PLIMSOLL_FAKE_NVML").expect("PLIMSOLL_FAKE_NVML names a scenario");
        let text = std::fs::read_to_string(&path).expect("the scenario can be read");
        let mut scenario = Scenario {
            driver: "570.133.20".into(),
            ..Scenario::default()
        };
        for line in text.lines() {
            let mut words: Vec<&str> = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            if words.first() == Some(&"at") {
                if elapsed < Duration::from_millis(number(words[1])) {
                    continue;
                }
                words.drain(..2);
            }
            scenario.apply(&words);
        }
        static FIRST: OnceLock<Vec<(u32, u64)>> = OnceLock::new();
        let taken = cuda::taken(std::path::Path::new(&path));
        let first = FIRST.get_or_init(|| taken.clone());
        let taken = if scenario.stale { first } else { &taken };
        if let Some(gpu) = scenario.gpus.first_mut() {
            for (pid, bytes) in taken {
                *gpu.values.entry("used".to_owned()).or_default() += bytes / MIB;
                let process = Process {
                    bytes: Some(*bytes),
                    compute: true,
                    graphics: false,
                    mps: false,
                };
                gpu.processes.insert(*pid, process);
            }
        }
        for (index, mib) in std::mem::take(&mut scenario.caps) {
            let used = scenario.gpus[index]
                .values
                .entry("used".to_owned())
                .or_default();
            *used = (*used).min(mib);
        }
        scenario
    }

    fn apply(&mut self, words: &[&str]) {
        match words {
            [] => {}
            ["driver", version] => self.driver = (*version).to_owned(),
            ["stride32"] => self.stride32 = true,
            ["stale"] => self.stale = true,
            ["cap", index, mib] => self.caps.push((number(index) as usize, number(mib))),
            ["gpu", index, values @ ..] if values.iter().all(|v| v.contains('=')) => {
                let values = values.iter().filter_map(|v| v.split_once('='));
                self.gpu(index)
                    .values
                    .extend(values.map(|(name, value)| (name.to_owned(), number(value))));
            }
            ["gpu", uuid, total, reserved, name @ ..] => self.gpus.push(Gpu {
                uuid: (*uuid).to_owned(),
                name: name.join(" "),
                total: number(total) * MIB,
                reserved: number(reserved) * MIB,
                ..Gpu::default()
            }),
            ["proc", index, pid, mib, kind @ ..] => {
                let bytes = (*mib != "na").then(|| number(mib) * MIB);
                let kind = kind.first().copied().unwrap_or("compute");
                let process = Process {
                    bytes,
                    compute: matches!(kind, "compute" | "both"),
                    graphics: matches!(kind, "graphics" | "both"),
                    mps: kind == "mps",
                };
                self.gpu(index).processes.insert(process_id(pid), process);
            }
            ["mig", index, place, uuid, total] => {
                let parent = self.gpu(index);
                let slice = Gpu {
                    uuid: (*uuid).to_owned(),
                    name: format!("{} MIG 1g.10gb", parent.name),
                    total: number(total) * MIB,
                    ..Gpu::default()
                };
                parent.slices.insert(number(place) as usize, slice);
            }
            ["slice", index, place, "proc", pid, mib] => {
                let process = Process {
                    bytes: Some(number(mib) * MIB),
                    compute: true,
                    graphics: false,
                    mps: false,
                };
                let slice = self.gpu(index).slices.get_mut(&(number(place) as usize));
                let slice = slice.expect("the slice was made before");
                slice.processes.insert(process_id(pid), process);
            }
            ["slice", index, place, values @ ..] => {
                let values = values.iter().filter_map(|v| v.split_once('='));
                let slice = self.gpu(index).slices.get_mut(&(number(place) as usize));
                slice
                    .expect("the slice was made before")
                    .values
                    .extend(values.map(|(name, value)| (name.to_owned(), number(value))));
            }
            ["lie", count] => self.lie = Some(number(count) as c_uint),
            ["accounting", "on"] => self.accounting = true,
            ["peak", index, pid, mib] => {
                let bytes = number(mib) * MIB;
                self.gpu(index).peaks.insert(process_id(pid), bytes);
            }
            ["xid", index, code] => {
                self.events
                    .push((number(index) as usize, EVENT_XID, number(code)));
            }
            ["ecc", index] => {
                self.events
                    .push((number(index) as usize, EVENT_DOUBLE_BIT, 0));
            }
            ["exit", index, pid] => {
                self.gpu(index).processes.remove(&process_id(pid));
            }
            ["fail", function, code, gpu @ ..] => {
                let gpu = gpu.first().map(|i| number(i) as usize);
                self.failures
                    .insert(((*function).to_owned(), gpu), number(code) as Code);
            }
            ["slow", function, ms] => {
                self.slow.insert((*function).to_owned(), number(ms));
            }
            other => panic!("a scenario has no line {other:?}"),
        }
    }

    fn gpu(&mut self, index: &str) -> &mut Gpu {
        &mut self.gpus[number(index) as usize]
    }
}

/// The stand-in for CUDA's driver library: allocations that are only counted.
mod cuda {
    use super::{Code, MIB, OK};
    use std::collections::BTreeMap;
    use std::ffi::{c_int, c_uint, c_void};
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    const OUT_OF_MEMORY: Code = 2;
    /// What a context takes.
    const CONTEXT: u64 = 314 * MIB;
    /// Size by address; the context is at 0.
    static TAKEN: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

    fn folder(scenario: &Path) -> PathBuf {
        let mut name = scenario.as_os_str().to_owned();
        name.push(".cuda");
        name.into()
    }

    /// Pid and bytes of the living processes that took any.
    pub fn taken(scenario: &Path) -> Vec<(u32, u64)> {
        let files = std::fs::read_dir(folder(scenario))
            .into_iter()
            .flatten()
            .flatten();
        let read = |file: std::fs::DirEntry| {
            let pid: u32 = file.file_name().to_str()?.parse().ok()?;
            let bytes = std::fs::read_to_string(file.path())
                .ok()?
                .trim()
                .parse()
                .ok()?;
            Path::new(&format!("/proc/{pid}"))
                .exists()
                .then_some((pid, bytes))
        };
        files.filter_map(read).collect()
    }

    fn changed(change: impl FnOnce(&mut BTreeMap<u64, u64>)) {
        let mut all = TAKEN.lock().expect("taken");
        change(&mut all);
        let scenario = std::env::var_os("PLIMSOLL_FAKE_NVML").expect("a scenario");
        let folder = folder(Path::new(&scenario));
        std::fs::create_dir_all(&folder).expect("a folder for what was taken");
        let file = folder.join(std::process::id().to_string());
        let new = file.with_extension("new");
        std::fs::write(&new, all.values().sum::<u64>().to_string()).expect("what was taken");
        std::fs::rename(&new, &file).expect("what was taken");
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn cuInit(_flags: c_uint) -> Code {
        OK
    }

    /// # Safety
    /// `device` points to a number.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
        // SAFETY: the caller's word.
        unsafe { device.write(ordinal) };
        OK
    }

    /// # Safety
    /// `context` points to a pointer.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
        context: *mut *mut c_void,
        _device: c_int,
    ) -> Code {
        changed(|all| {
            all.insert(0, CONTEXT);
        });
        // SAFETY: the caller's word. It is a handle, and points to nothing.
        unsafe { context.write(std::ptr::without_provenance_mut(1)) };
        OK
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn cuCtxSetCurrent(_context: *mut c_void) -> Code {
        OK
    }

    /// # Safety
    /// `address` points to a number of 64 bits.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Code {
        if bytes == 0 {
            return OUT_OF_MEMORY;
        }
        let mut new = 0;
        changed(|all| {
            new = all.keys().last().copied().unwrap_or(0) + (1 << 40);
            all.insert(new, bytes as u64);
        });
        // SAFETY: the caller's word.
        unsafe { address.write(new) };
        OK
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn cuMemFree_v2(address: u64) -> Code {
        changed(|all| {
            all.remove(&address);
        });
        OK
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn cuMemsetD8_v2(_address: u64, _value: u8, _bytes: usize) -> Code {
        OK
    }
}

fn number(word: &str) -> u64 {
    word.parse()
        .unwrap_or_else(|_| panic!("`{word}` in the scenario is no number"))
}

fn process_id(word: &str) -> u32 {
    match word {
        "self" => std::process::id(),
        "parent" => std::os::unix::process::parent_id(),
        number_of_it => number(number_of_it) as u32,
    }
}

/// What every function does first: be slow or fail, as the scenario wants it.
fn enter(function: &str, gpu: Option<usize>) -> Result<Cow, Code> {
    let scenario = Scenario::now();
    if let Some(ms) = scenario.slow.get(function) {
        std::thread::sleep(Duration::from_millis(*ms));
    }
    let failure = [gpu, None]
        .iter()
        .find_map(|gpu| scenario.failures.get(&(function.to_owned(), *gpu)).copied());
    match failure {
        Some(code) if code != OK => Err(code),
        _ => Ok(scenario),
    }
}

fn on_gpu(
    function: &str,
    device: Device,
    f: impl FnOnce(&Scenario, &Gpu) -> Result<(), Code>,
) -> Code {
    let (index, place) = which(device);
    code(enter(function, Some(index)).and_then(|s| {
        let gpu = s.gpus.get(index).ok_or(INVALID_ARGUMENT)?;
        match place {
            Some(place) => f(&s, gpu.slices.get(&place).ok_or(INVALID_ARGUMENT)?),
            None => f(&s, gpu),
        }
    }))
}

/// The GPU of a handle, and the place of the slice.
fn which(device: Device) -> (usize, Option<usize>) {
    match (device as usize).checked_sub(FIRST_SLICE) {
        Some(slice) => (slice / 16, Some(slice % 16)),
        None => ((device as usize).wrapping_sub(FIRST_HANDLE), None),
    }
}

fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(OK)
}

/// Writes a text and its final nul.
///
/// # Safety
/// `out` is null or has room for `len` bytes.
unsafe fn put_text(text: &str, out: *mut c_char, len: c_uint) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= len as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and its nul are no longer than `len`, for which the caller vouches.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes one value.
///
/// # Safety
/// `out` is null or points to room for a `T`.
unsafe fn put<T>(value: T, out: *mut T) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and otherwise the caller vouches for it.
    unsafe { out.write(value) };
    Ok(())
}

#[repr(C)]
pub struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    START.get_or_init(Instant::now);
    code(enter("nvmlInit_v2", None).map(drop))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    OK
}

/// # Safety
/// As NVML's: `out` has room for `len` bytes. So below: what a pointer points to is as large as
/// NVML's header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, len: c_uint) -> Code {
    // SAFETY: the caller's promise.
    code(
        enter("nvmlSystemGetDriverVersion", None)
            .and_then(|s| unsafe { put_text(&format!("fake-{}", s.driver), out, len) }),
    )
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    code(
        enter("nvmlDeviceGetCount_v2", None)
            .and_then(|s| unsafe { put(s.gpus.len() as c_uint, out) }),
    )
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Device) -> Code {
    let index = index as usize;
    code(
        enter("nvmlDeviceGetHandleByIndex_v2", Some(index)).and_then(|s| {
            if index >= s.gpus.len() {
                return Err(INVALID_ARGUMENT);
            }
            // SAFETY: the caller's promise.
            unsafe { put((FIRST_HANDLE + index) as Device, out) }
        }),
    )
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: Device, out: *mut c_char, len: c_uint) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetName", device, |_, gpu| unsafe {
        put_text(&gpu.name, out, len)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, out: *mut c_char, len: c_uint) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetUUID", device, |_, gpu| unsafe {
        put_text(&gpu.uuid, out, len)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMinorNumber(device: Device, out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetMinorNumber", device, |_, _| unsafe {
        put((device as usize - FIRST_HANDLE) as c_uint, out)
    })
}

#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_sub_system_id: c_uint,
    bus_id: [c_char; 32],
}

/// The GPU with index N is on bus N + 1.
///
/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Device, out: *mut PciInfo) -> Code {
    on_gpu("nvmlDeviceGetPciInfo_v3", device, |_, _| {
        let (index, None) = which(device) else {
            return Err(NOT_SUPPORTED);
        };
        let bus = index as c_uint + 1;
        let mut bus_id = [0; 32];
        let text = format!("00000000:{bus:02X}:00.0");
        for (to, from) in bus_id.iter_mut().zip(text.bytes()) {
            *to = from as c_char;
        }
        let info = PciInfo {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus,
            device: 0,
            pci_device_id: 0,
            pci_sub_system_id: 0,
            bus_id,
        };
        // SAFETY: the caller's promise.
        unsafe { put(info, out) }
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, out: *mut MemoryV1) -> Code {
    on_gpu("nvmlDeviceGetMemoryInfo", device, |_, gpu| {
        let used = gpu.used() + gpu.reserved;
        // SAFETY: the caller's promise.
        unsafe {
            put(
                MemoryV1 {
                    total: gpu.total,
                    free: gpu.total.saturating_sub(used),
                    used,
                },
                out,
            )
        }
    })
}

/// # Safety
/// As NVML's; the version is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: *mut MemoryV2) -> Code {
    let version = size_of::<MemoryV2>() as c_uint | (2 << 24);
    // SAFETY: the caller's promise.
    if out.is_null() || unsafe { (*out).version } != version {
        return VERSION_MISMATCH;
    }
    on_gpu("nvmlDeviceGetMemoryInfo_v2", device, |_, gpu| {
        let (total, reserved, used) = (gpu.total, gpu.reserved, gpu.used());
        let free = total.saturating_sub(reserved + used);
        // SAFETY: the caller's promise.
        unsafe {
            put(
                MemoryV2 {
                    version,
                    total,
                    reserved,
                    free,
                    used,
                },
                out,
            )
        }
    })
}

/// Writes the processes that are wanted, or only their number when there is no room.
///
/// # Safety
/// `count` points to the number of records for which `out` has room.
unsafe fn put_processes(
    scenario: &Scenario,
    gpu: &Gpu,
    wanted: impl Fn(&Process) -> bool,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let room = unsafe { *count } as usize;
    let processes: Vec<_> = gpu.processes.iter().filter(|(_, p)| wanted(p)).collect();
    // SAFETY: as above.
    unsafe { count.write(processes.len() as c_uint) };
    if processes.is_empty() {
        return Ok(());
    }
    let stride = if scenario.stride32 {
        32
    } else {
        size_of::<ProcessInfo>()
    };
    // The drivers with the long stride wrote past the end here; a test must not.
    if out.is_null() || room * size_of::<ProcessInfo>() < processes.len() * stride {
        return Err(INSUFFICIENT_SIZE);
    }
    for (k, (pid, process)) in processes.into_iter().enumerate() {
        let record = ProcessInfo {
            pid: *pid,
            used: process.bytes.unwrap_or(c_ulonglong::MAX),
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        };
        // SAFETY: `room` records fit, which are more bytes than all strides together; both
        // strides are multiples of the record's alignment.
        unsafe {
            out.cast::<u8>()
                .add(k * stride)
                .cast::<ProcessInfo>()
                .write(record)
        };
    }
    Ok(())
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    let name = "nvmlDeviceGetComputeRunningProcesses_v3";
    // SAFETY: the caller's promise.
    on_gpu(name, device, |s, gpu| unsafe {
        let told = put_processes(s, gpu, |p| p.compute, count, out);
        if let Some(lie) = s.lie {
            count.write(lie);
        }
        told
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    let name = "nvmlDeviceGetGraphicsRunningProcesses_v3";
    // SAFETY: the caller's promise.
    on_gpu(name, device, |s, gpu| unsafe {
        put_processes(s, gpu, |p| p.graphics, count, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    let name = "nvmlDeviceGetMPSComputeRunningProcesses_v3";
    // SAFETY: the caller's promise.
    on_gpu(name, device, |s, gpu| unsafe {
        put_processes(s, gpu, |p| p.mps, count, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Device, out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetPowerUsage", device, |_, gpu| unsafe {
        put(gpu.value("power") as c_uint, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    out: *mut c_uint,
) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetTemperature", device, |_, gpu| unsafe {
        put(gpu.value("temp") as c_uint, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: Device,
    out: *mut Utilization,
) -> Code {
    let utilization = |gpu: &Gpu| Utilization {
        gpu: gpu.value("util") as c_uint,
        memory: gpu.value("memutil") as c_uint,
    };
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetUtilizationRates", device, |_, gpu| unsafe {
        put(utilization(gpu), out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    let name = "nvmlDeviceGetComputeRunningProcesses_v2";
    // SAFETY: the caller's promise.
    on_gpu(name, device, |s, gpu| unsafe {
        put_processes(s, gpu, |p| p.compute, count, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    let name = "nvmlDeviceGetGraphicsRunningProcesses_v2";
    // SAFETY: the caller's promise.
    on_gpu(name, device, |s, gpu| unsafe {
        put_processes(s, gpu, |p| p.graphics, count, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    device: Device,
    out: *mut c_ulonglong,
) -> Code {
    let elapsed_us = START.get_or_init(Instant::now).elapsed().as_micros() as u64;
    let energy = |gpu: &Gpu| {
        let by_power = gpu.value("power") * elapsed_us / 1_000_000;
        gpu.values.get("energy").copied().unwrap_or(by_power)
    };
    // SAFETY: the caller's promise.
    on_gpu(
        "nvmlDeviceGetTotalEnergyConsumption",
        device,
        |_, gpu| unsafe { put(energy(gpu), out) },
    )
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: Device,
    kind: c_uint,
    out: *mut c_uint,
) -> Code {
    let name = if kind == 2 { "mem" } else { "sm" };
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetClockInfo", device, |_, gpu| unsafe {
        put(gpu.value(name) as c_uint, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: Device,
    out: *mut c_ulonglong,
) -> Code {
    let name = "nvmlDeviceGetCurrentClocksThrottleReasons";
    // SAFETY: the caller's promise.
    on_gpu(name, device, |_, gpu| unsafe {
        put(gpu.value("throttle"), out)
    })
}

#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency: i64,
    kind: c_uint,
    code: Code,
    value: u64,
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Device,
    count: c_int,
    out: *mut FieldValue,
) -> Code {
    on_gpu("nvmlDeviceGetFieldValues", device, |_, gpu| {
        for place in 0..count as usize {
            // SAFETY: the caller's promise: `count` of them.
            let field = unsafe { &mut *out.add(place) };
            let value = gpu.values.get("memtemp").copied();
            field.kind = 1;
            field.code = match (field.field, value) {
                (FIELD_MEMORY_TEMP, Some(_)) => OK,
                _ => NOT_SUPPORTED,
            };
            field.value = value.unwrap_or(0);
        }
        Ok(())
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Code {
    on_gpu("nvmlDeviceGetMigMode", device, |_, gpu| {
        let mode = c_uint::from(!gpu.slices.is_empty());
        // SAFETY: the caller's promise.
        unsafe { put(mode, current).and_then(|()| put(mode, pending)) }
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Device, out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetMaxMigDeviceCount", device, |_, _| unsafe {
        put(16, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Device,
    place: c_uint,
    out: *mut Device,
) -> Code {
    let (index, _) = which(device);
    on_gpu("nvmlDeviceGetMigDeviceHandleByIndex", device, |_, gpu| {
        if !gpu.slices.contains_key(&(place as usize)) {
            return Err(NOT_FOUND);
        }
        let handle = FIRST_SLICE + index * 16 + place as usize;
        // SAFETY: the caller's promise.
        unsafe { put(handle as Device, out) }
    })
}

/// # Safety
/// As NVML's: `uuid` ends with a nul.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Device) -> Code {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and the caller vouches for the nul.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    code(enter("nvmlDeviceGetHandleByUUID", None).and_then(|s| {
        let place = s
            .gpus
            .iter()
            .position(|g| g.uuid == uuid)
            .ok_or(NOT_FOUND)?;
        // SAFETY: the caller's promise.
        unsafe { put((FIRST_HANDLE + place) as Device, out) }
    }))
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetAccountingMode(device: Device, out: *mut c_uint) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetAccountingMode", device, |s, _| unsafe {
        put(c_uint::from(s.accounting), out)
    })
}

#[repr(C)]
pub struct AccountingStats {
    utilization: c_uint,
    memory_utilization: c_uint,
    max_memory: c_ulonglong,
    time: c_ulonglong,
    start: c_ulonglong,
    running: c_uint,
    reserved: [c_uint; 5],
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetAccountingStats(
    device: Device,
    pid: c_uint,
    out: *mut AccountingStats,
) -> Code {
    on_gpu("nvmlDeviceGetAccountingStats", device, |s, gpu| {
        let max_memory = gpu.peaks.get(&pid).copied().filter(|_| s.accounting);
        let stats = AccountingStats {
            utilization: 0,
            memory_utilization: 0,
            max_memory: max_memory.ok_or(NOT_FOUND)?,
            time: 0,
            start: 0,
            running: 1,
            reserved: [0; 5],
        };
        // SAFETY: the caller's promise.
        unsafe { put(stats, out) }
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(
    device: Device,
    out: *mut c_ulonglong,
) -> Code {
    // SAFETY: the caller's promise.
    on_gpu("nvmlDeviceGetSupportedEventTypes", device, |_, _| unsafe {
        put(EVENT_XID | EVENT_DOUBLE_BIT, out)
    })
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(out: *mut *mut c_void) -> Code {
    // SAFETY: the caller's promise.
    code(unsafe { put(EVENT_SET as *mut c_void, out) })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: *mut c_void) -> Code {
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(
    device: Device,
    _types: c_ulonglong,
    _set: *mut c_void,
) -> Code {
    on_gpu("nvmlDeviceRegisterEvents", device, |_, _| Ok(()))
}

#[repr(C)]
pub struct EventData {
    device: Device,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// # Safety
/// As NVML's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    _set: *mut c_void,
    out: *mut EventData,
    timeout_ms: c_uint,
) -> Code {
    let end = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        let scenario = match enter("nvmlEventSetWait_v2", None) {
            Ok(scenario) => scenario,
            Err(code) => return code,
        };
        let told = TOLD.load(Ordering::SeqCst);
        if let Some(&(gpu, kind, data)) = scenario.events.get(told) {
            TOLD.store(told + 1, Ordering::SeqCst);
            let event = EventData {
                device: (FIRST_HANDLE + gpu) as Device,
                kind,
                data,
                gpu_instance: c_uint::MAX,
                compute_instance: c_uint::MAX,
            };
            // SAFETY: the caller's promise.
            return code(unsafe { put(event, out) });
        }
        if Instant::now() >= end {
            return TIMEOUT;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
