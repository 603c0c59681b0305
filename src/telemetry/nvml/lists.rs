//! The driver's process lists, read into a buffer of our own size, because the driver's count can
//! be wrong or huge.

use crate::telemetry::attribution::{self, Raw};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use std::ffi::c_uint;

/// Initial room, in processes; few GPUs have more.
const FIRST_ROOM: usize = 64;
/// More than any GPU runs; a larger count is a driver error.
const MOST: usize = 16_384;
/// Processes may start during the call: room for this many more than counted.
const HEADROOM: usize = 16;
/// Lists that a device may have.
const KINDS: [ListKind; 3] = [ListKind::Compute, ListKind::Graphics, ListKind::Mps];

/// Why a process list was not read.
pub enum ListTrouble {
    /// It cannot be correct.
    Nonsense,
    /// The driver returned none.
    Driver(NvmlError),
}

/// Which version of the list calls a driver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListCall {
    /// Since 510.
    V3,
    /// Before.
    V2,
}

/// Kinds of processes; each has a separate list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Compute,
    Graphics,
    /// Clients of NVIDIA's multi-process service: the other lists contain only their server.
    Mps,
}

/// `nvmlProcessInfo_v2_t`, the record of both versions.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessRecord {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Room for one process. Some drivers write records of 32 bytes instead of 24. They are not called
/// knowingly, but a version can be wrong or missing, and then nothing may be overwritten.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Slot([u64; 4]);

/// Reads the lists of one device.
pub struct ProcessLists {
    call: ListCall,
    /// Lists that the device supports.
    kinds: Vec<ListKind>,
    room: Vec<Slot>,
}

impl ProcessLists {
    /// The lists of a device; `None` when the driver has none for it.
    pub fn for_device(nvml: &Nvml, device: &Device) -> Option<ProcessLists> {
        let absent = |e: &NvmlError| {
            matches!(
                e,
                NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound
            )
        };
        let mut lists = ProcessLists {
            call: ListCall::V3,
            kinds: KINDS.to_vec(),
            room: vec![Slot::default(); FIRST_ROOM],
        };
        match lists.read_list(nvml, device, ListKind::Compute) {
            Err(ListTrouble::Driver(e)) if absent(&e) => {
                lists.call = ListCall::V2;
                match lists.read_list(nvml, device, ListKind::Compute) {
                    Err(ListTrouble::Driver(e)) if absent(&e) => None,
                    Err(ListTrouble::Driver(NvmlError::NotSupported)) => None,
                    _ => Some(lists),
                }
            }
            Err(ListTrouble::Driver(NvmlError::NotSupported)) => None,
            _ => Some(lists),
        }
    }

    /// The processes on the device, each once. `total_bytes` is its memory.
    pub fn read_lists(
        &mut self,
        nvml: &Nvml,
        device: &Device,
        total_bytes: u64,
    ) -> Result<Vec<Raw>, ListTrouble> {
        let mut lists = Vec::with_capacity(self.kinds.len());
        for kind in self.kinds.clone() {
            match self.read_list(nvml, device, kind) {
                Ok(list) => lists.push(list),
                Err(ListTrouble::Nonsense) => return Err(ListTrouble::Nonsense),
                Err(trouble) if kind == ListKind::Compute => return Err(trouble),
                // Many boards have no graphics, and the service is rarely running.
                Err(ListTrouble::Driver(
                    NvmlError::NotSupported
                    | NvmlError::FunctionNotFound
                    | NvmlError::FailedToLoadSymbol(_),
                )) => self.kinds.retain(|k| *k != kind),
                Err(ListTrouble::Driver(_)) => {}
            }
        }
        attribution::merge_lists(&lists, total_bytes).ok_or(ListTrouble::Nonsense)
    }

    /// One list, in a single call if the room suffices, which halves the driver's cost.
    fn read_list(
        &mut self,
        nvml: &Nvml,
        device: &Device,
        kind: ListKind,
    ) -> Result<Vec<Raw>, ListTrouble> {
        for _ in 0..4 {
            match self.fill(nvml, device, kind) {
                (Ok(()), count) if count <= self.room.len() => return Ok(self.records(count)),
                (Err(NvmlError::InsufficientSize(_)), count) if count <= MOST => {
                    // A driver that needs more room than it reported gets twice as much.
                    let wanted = (count + HEADROOM).max(self.room.len() * 2);
                    self.room
                        .resize(wanted.min(MOST + HEADROOM), Slot::default());
                }
                (Ok(()) | Err(NvmlError::InsufficientSize(_)), _) => {
                    return Err(ListTrouble::Nonsense);
                }
                (Err(e), _) => return Err(ListTrouble::Driver(e)),
            }
        }
        Err(ListTrouble::Driver(NvmlError::InsufficientSize(None)))
    }

    /// Lets the driver fill the room; returns the driver's count.
    #[expect(
        unsafe_code,
        reason = "nvml-wrapper trusts the driver's count, and asks twice for each list"
    )]
    fn fill(
        &mut self,
        nvml: &Nvml,
        device: &Device,
        kind: ListKind,
    ) -> (Result<(), NvmlError>, usize) {
        /// Calls a function with types that nvml-wrapper does not export.
        ///
        /// # Safety
        /// `call` fills records of type `T` into an array and knows how many fit by the count;
        /// `handle` is a live device of the same library.
        unsafe fn call<H, T>(
            call: Result<&unsafe extern "C" fn(H, *mut c_uint, *mut T) -> c_uint, NvmlError>,
            handle: H,
            room: &mut [Slot],
        ) -> (Result<(), NvmlError>, usize) {
            const { assert!(size_of::<T>() == size_of::<ProcessRecord>()) };
            const { assert!(align_of::<Slot>() >= align_of::<T>()) };
            let call = match call {
                Ok(call) => call,
                Err(e) => return (Err(e), 0),
            };
            let mut count = room.len() as c_uint;
            // SAFETY: the caller's promise; the room holds `count` records, and any bytes in it
            // are valid, being integers.
            let code = unsafe { call(handle, &raw mut count, room.as_mut_ptr().cast()) };
            (nvml_try(code), count as usize)
        }
        let lib = nvml.lib();
        // SAFETY: each function was found under the name that its type in nvml-wrapper-sys is
        // written for, and all of them are of the kind that `call` wants; the handle is used
        // within the life of its device.
        unsafe {
            let (handle, room) = (device.handle(), &mut self.room[..]);
            macro_rules! call {
                ($function:ident) => {
                    call(nvml_sym(lib.$function.as_ref()), handle, room)
                };
            }
            match (self.call, kind) {
                (ListCall::V3, ListKind::Compute) => call!(nvmlDeviceGetComputeRunningProcesses_v3),
                (ListCall::V3, ListKind::Graphics) => {
                    call!(nvmlDeviceGetGraphicsRunningProcesses_v3)
                }
                (ListCall::V3, ListKind::Mps) => call!(nvmlDeviceGetMPSComputeRunningProcesses_v3),
                (ListCall::V2, ListKind::Compute) => call!(nvmlDeviceGetComputeRunningProcesses_v2),
                (ListCall::V2, ListKind::Graphics) => {
                    call!(nvmlDeviceGetGraphicsRunningProcesses_v2)
                }
                (ListCall::V2, ListKind::Mps) => call!(nvmlDeviceGetMPSComputeRunningProcesses_v2),
            }
        }
    }

    /// The first records in the room: they are adjacent, without the slots' padding.
    #[expect(
        unsafe_code,
        reason = "the slots are read as what was written into them"
    )]
    fn records(&self, count: usize) -> Vec<Raw> {
        let count = count.min(self.room.len());
        // SAFETY: `count` records take no more bytes than `count` slots; slots are aligned as
        // records are, and any bytes are a record, being integers and unread padding.
        let records: &[ProcessRecord] =
            unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast(), count) };
        let known = |used: u64| (used != u64::MAX).then_some(used);
        records.iter().map(|r| (r.pid, known(r.used))).collect()
    }
}
