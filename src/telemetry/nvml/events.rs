//! Critical GPU events (Xid and uncorrectable memory errors), received on a separate thread: NVML
//! can only wait for them.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::struct_wrappers::event::EventData;
use nvml_wrapper::{Device, Nvml};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Longest single wait; the thread may outlive its backend by this long.
const PATIENCE_MS: u32 = 500;
/// Pause after each event: a storm of events must not occupy a core or the driver.
const BREATH: Duration = Duration::from_millis(10);
/// Capacity of the queue of unread events. A failing GPU repeats itself.
const MOST_WAITING: usize = 64;

/// A critical event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuEvent {
    /// When it was received.
    pub at: Instant,
    /// UUID of the GPU; `None` if it could not be read any more.
    pub uuid: Option<String>,
    /// Machine-readable code.
    pub code: &'static str,
    /// Description, to be read after the GPU's name.
    pub message: String,
}

/// Waits for events until it is dropped.
pub struct EventWatch {
    events: Receiver<GpuEvent>,
    end: Arc<AtomicBool>,
}

impl EventWatch {
    /// Starts watching; `None` if no GPU supports such events.
    pub fn start_watching(
        nvml: &'static Nvml,
        devices: Vec<Device<'static>>,
    ) -> Option<EventWatch> {
        let set = register(nvml, devices)?;
        let (sender, events) = sync_channel(MOST_WAITING);
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        std::thread::Builder::new()
            .name("gpu-events".into())
            .spawn(move || wait_for_events(&set, &sender, &ended))
            .ok()?;
        Some(EventWatch { events, end })
    }

    /// Events since the last call.
    pub fn take_events(&self) -> impl Iterator<Item = GpuEvent> + '_ {
        self.events.try_iter()
    }
}

impl Drop for EventWatch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// An event set with every device that supports critical events. A refused registration destroys
/// the whole set, so it is rebuilt without the device that refused.
fn register(nvml: &'static Nvml, devices: Vec<Device<'static>>) -> Option<EventSet<'static>> {
    let wanted = EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
    let mut able: Vec<(Device<'static>, EventTypes)> = devices
        .into_iter()
        .filter_map(|d| Some((d.supported_event_types().ok()? & wanted, d)))
        .filter(|(types, _)| !types.is_empty())
        .map(|(types, d)| (d, types))
        .collect();
    while !able.is_empty() {
        let mut set = nvml.create_event_set().ok()?;
        let mut refused = None;
        for (place, (device, types)) in able.iter().enumerate() {
            match device.register_events(*types, set) {
                Ok(back) => set = back,
                Err(_) => {
                    refused = Some(place);
                    break;
                }
            }
            if place + 1 == able.len() {
                return Some(set);
            }
        }
        able.remove(refused?);
    }
    None
}

fn wait_for_events(set: &EventSet<'static>, sender: &SyncSender<GpuEvent>, end: &AtomicBool) {
    let mut troubles = 0;
    while !end.load(Ordering::Relaxed) {
        match set.wait(PATIENCE_MS) {
            Ok(data) => {
                // A full queue means that nothing reads it, or that the GPU repeats itself.
                let _ = sender.try_send(received_event(&data));
                std::thread::sleep(BREATH);
            }
            Err(NvmlError::Timeout) => troubles = 0,
            // A driver that keeps failing (a GPU off the bus) is abandoned.
            Err(_) if troubles >= 10 => return,
            Err(_) => {
                troubles += 1;
                std::thread::sleep(Duration::from_millis(u64::from(PATIENCE_MS)));
            }
        }
    }
}

fn received_event(data: &EventData<'_>) -> GpuEvent {
    let (code, message) = match data.event_data {
        Some(XidError::Value(xid)) => (
            "gpu_xid",
            format!("the driver reports Xid {xid}{}", meaning(xid)),
        ),
        Some(XidError::Unknown) => (
            "gpu_xid",
            "the driver reports an Xid without a number".into(),
        ),
        None => (
            "gpu_ecc_double_bit",
            "a memory error that could not be corrected (double-bit ECC)".into(),
        ),
    };
    GpuEvent {
        at: Instant::now(),
        uuid: data.device.uuid().ok(),
        code,
        message,
    }
}

/// Meaning of the common Xid numbers, from NVIDIA's list.
fn meaning(xid: u64) -> &'static str {
    match xid {
        13 => " (graphics engine exception, usually a fault of the program)",
        31 => " (GPU memory page fault, usually a fault of the program)",
        43 => " (the GPU stopped processing, usually a fault of the program)",
        45 => " (a program's channels were torn down, often because it was ended)",
        48 => " (double-bit ECC error)",
        63 => " (a memory row or page was retired or remapped)",
        64 => " (retiring or remapping a memory row failed)",
        74 => " (NVLink error)",
        79 => " (the GPU has fallen off the bus)",
        92 => " (high rate of single-bit ECC errors)",
        94 => " (contained memory error)",
        95 => " (uncontained memory error: the GPU must be reset)",
        119 | 120 => " (the GPU's own processor does not answer)",
        _ => "",
    }
}
