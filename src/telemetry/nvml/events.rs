//! Critical events of the GPUs (Xid and uncorrectable memory errors), waited for in a thread of
//! their own: NVML has no way to look without waiting.

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

/// How long one wait takes at most: so long the thread may outlive its backend.
const PATIENCE_MS: u32 = 500;
/// After each event: a storm of them shall keep neither a core busy nor the driver.
const BREATH: Duration = Duration::from_millis(10);
/// Events kept for somebody who does not fetch them. A GPU in trouble repeats itself.
const MOST_WAITING: usize = 64;

/// A critical event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it was told.
    pub at: Instant,
    /// UUID of the GPU; `None` where it could not be asked any more.
    pub uuid: Option<String>,
    /// Machine-readable word.
    pub code: &'static str,
    /// What happened; to be read after the GPU's name.
    pub message: String,
}

/// Waits for events until it is dropped.
pub struct Watch {
    events: Receiver<Event>,
    end: Arc<AtomicBool>,
}

impl Watch {
    /// Starts to watch; `None` where no GPU tells of such events.
    pub fn start(nvml: &'static Nvml, devices: Vec<Device<'static>>) -> Option<Watch> {
        let set = register(nvml, devices)?;
        let (sender, events) = sync_channel(MOST_WAITING);
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        std::thread::Builder::new()
            .name("gpu-events".into())
            .spawn(move || wait(&set, &sender, &ended))
            .ok()?;
        Some(Watch { events, end })
    }

    /// What has happened since the last call.
    pub fn take(&self) -> impl Iterator<Item = Event> + '_ {
        self.events.try_iter()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// A set with every device that can tell of critical events. A refused registration takes the
/// whole set with it, so the set is made anew without the one that refused.
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

fn wait(set: &EventSet<'static>, sender: &SyncSender<Event>, end: &AtomicBool) {
    let mut troubles = 0;
    while !end.load(Ordering::Relaxed) {
        match set.wait(PATIENCE_MS) {
            Ok(data) => {
                // A full queue means that nobody listens, or that the GPU only repeats itself.
                let _ = sender.try_send(told(&data));
                std::thread::sleep(BREATH);
            }
            Err(NvmlError::Timeout) => troubles = 0,
            // A driver that keeps saying no (a GPU off the bus) is not asked for ever.
            Err(_) if troubles >= 10 => return,
            Err(_) => {
                troubles += 1;
                std::thread::sleep(Duration::from_millis(u64::from(PATIENCE_MS)));
            }
        }
    }
}

fn told(data: &EventData<'_>) -> Event {
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
    Event {
        at: Instant::now(),
        uuid: data.device.uuid().ok(),
        code,
        message,
    }
}

/// What the common Xid numbers stand for, as NVIDIA's list has them.
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
