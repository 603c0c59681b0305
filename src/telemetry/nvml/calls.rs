//! NVML calls that need care: listing GPUs and their slices, memory.

use crate::error::Failure;
use crate::telemetry::gpus::Listed;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};

/// `NVML_DEVICE_MIG_ENABLE`.
const MIG_ENABLED: u32 = 1;

/// Memory of a device, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceMemory {
    /// Total.
    pub total: u64,
    /// In use.
    pub used: u64,
    /// Reserved by the driver; `None` when it is part of `used`.
    pub reserved: Option<u64>,
}

/// Memory by the newer call.
pub fn memory_v2(device: &Device) -> Result<DeviceMemory, NvmlError> {
    let info = device.memory_info()?;
    Ok(DeviceMemory {
        total: info.total,
        used: info.used,
        reserved: Some(info.reserved),
    })
}

/// Memory by the call of drivers before 510, which nvml-wrapper lacks.
#[expect(unsafe_code, reason = "nvml-wrapper has only the newer memory call")]
pub fn memory_v1(nvml: &Nvml, device: &Device) -> Result<DeviceMemory, NvmlError> {
    let read = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = std::mem::MaybeUninit::zeroed();
    // SAFETY: the function was found under the name that its type in nvml-wrapper-sys is written
    // for; the handle is a live device of the same library; `info` is of the type that the
    // function fills, and being three integers it is valid zeroed already.
    let info = unsafe {
        nvml_try(read(device.handle(), info.as_mut_ptr()))?;
        info.assume_init()
    };
    Ok(DeviceMemory {
        total: info.total,
        used: info.used,
        reserved: None,
    })
}

/// A device of the driver's, and how it is listed.
pub type ListedDevice = (Device<'static>, Listed);

/// Every GPU that can be identified, followed by their slices, and a sentence for each that cannot.
pub fn list_devices(nvml: &'static Nvml) -> Result<(Vec<ListedDevice>, Vec<String>), Failure> {
    let count = nvml
        .device_count()
        .map_err(|e| Failure::environment(format!("NVML lists no GPUs: {e}")))?;
    let mut found = Vec::new();
    let mut slices = Vec::new();
    let mut notes = Vec::new();
    for index in 0..count {
        let device = nvml.device_by_index(index).and_then(|d| Ok((d.uuid()?, d)));
        match device {
            Ok((uuid, device)) => {
                slices.extend(slices_of(index, &device));
                let minor = device.minor_number().ok();
                let listed = Listed {
                    index,
                    minor,
                    uuid,
                    slice: None,
                };
                found.push((device, listed));
            }
            Err(e) => notes.push(format!("GPU {index}: {e}")),
        }
    }
    if found.is_empty() {
        let why = if notes.is_empty() {
            String::new()
        } else {
            format!(" ({})", notes.join("; "))
        };
        return Err(Failure::environment(format!(
            "NVML finds no GPU on this host{why}"
        )));
    }
    // Numbered after the GPUs: a slice has no index in the driver's list.
    for (place, (device, mut listed)) in slices.into_iter().enumerate() {
        listed.index = count.saturating_add(place as u32);
        found.push((device, listed));
    }
    Ok((found, notes))
}

/// Whether a GPU is split into MIG slices; false where it cannot be.
pub fn is_sliced(device: &Device) -> bool {
    device
        .mig_mode()
        .is_ok_and(|mode| mode.current == MIG_ENABLED)
}

/// The slices of a GPU.
fn slices_of(parent: u32, device: &Device<'static>) -> Vec<ListedDevice> {
    if !is_sliced(device) {
        return Vec::new();
    }
    let most = device.mig_device_count().unwrap_or(0);
    (0..most)
        .filter_map(|place| {
            // Indexes have gaps where no slice was made.
            let slice = device.mig_device_by_index(place).ok()?;
            let uuid = slice.uuid().ok()?;
            let listed = Listed {
                index: 0,
                minor: None,
                uuid,
                slice: Some((parent, place)),
            };
            Some((slice, listed))
        })
        .collect()
}
