//! The device that came nearest to its limit, and how full it was.

use super::Profile;
use crate::breakdown::{Component, DeviceBreakdown, Part};
use crate::capture::{DeviceFacts, DeviceKind};
use crate::headroom::Headroom;
use crate::units::{Bytes, GIB};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How full a device or a limit is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryGauge {
    /// Which: `GPU 1`.
    pub label: String,
    /// Bytes in use at the peak.
    pub used_bytes: u64,
    /// Bytes that it has.
    pub total_bytes: u64,
    /// Bytes in use by component, together no more than `used_bytes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<Component, u64>,
}

impl MemoryGauge {
    /// Bytes that are free at the peak.
    pub fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.used_bytes)
    }

    /// Percent of the total in use; more than 100 where more is needed than there is.
    pub fn used_percent(&self) -> f64 {
        self.used_bytes as f64 / self.total_bytes.max(1) as f64 * 100.0
    }

    /// How near that is to the limit.
    pub fn headroom_level(&self) -> Headroom {
        Headroom::of_share(self.free_bytes(), self.total_bytes).unwrap_or(Headroom::Critical)
    }

    /// What is left: `1.72 GiB free`, `over by 5.00 GiB`.
    pub fn describe_rest(&self) -> String {
        match self.used_bytes.checked_sub(self.total_bytes) {
            Some(over) if over > 0 => format!("over by {}", Bytes(over)),
            _ => format!("{} free", Bytes(self.free_bytes())),
        }
    }

    /// Of several the one of which the largest share was in use.
    pub fn fullest_of(gauges: impl IntoIterator<Item = MemoryGauge>) -> Option<MemoryGauge> {
        let known = gauges.into_iter().filter(|gauge| gauge.total_bytes > 0);
        known.max_by(|a, b| a.used_percent().total_cmp(&b.used_percent()))
    }
}

/// The device that came nearest to its limit.
#[derive(Debug, Clone, PartialEq)]
pub struct FullestDevice {
    /// Its index.
    pub index: u32,
    /// How full it was.
    pub gauge: MemoryGauge,
    /// Page cache at its peak, bytes: the kernel takes it back under pressure.
    pub page_cache: u64,
    /// Its limit, bytes, where the host had less left than that limit leaves: then `gauge` ends where the host's memory
    /// does.
    pub unreachable_limit: Option<u64>,
}

impl FullestDevice {
    /// With as much free as the host had left for all processes.
    fn within_host(mut self, least_available: Option<u64>) -> FullestDevice {
        if let Some(least) = least_available.filter(|least| *least < self.gauge.free_bytes()) {
            self.unreachable_limit = Some(self.gauge.total_bytes);
            self.gauge.total_bytes = self.gauge.used_bytes + least;
        }
        self
    }
}

/// A device in words: `GPU 0`.
pub fn device_label(facts: &DeviceFacts) -> String {
    match facts.kind {
        DeviceKind::Gpu => format!("GPU {}", facts.index),
        DeviceKind::HostCgroup => "Container".into(),
    }
}

impl Profile {
    /// The device of which the largest share was in use; of a run without parts its only device at the highest sample.
    pub fn fullest_device(&self) -> Option<FullestDevice> {
        let devices = self.memory_breakdown.per_gpu.iter();
        let known = devices.filter_map(|d| self.device_gauge(d));
        let share = |f: &FullestDevice| f.gauge.used_percent();
        let fullest = known.max_by(|a, b| share(a).total_cmp(&share(b)));
        let fullest = fullest.or_else(|| match self.gpu_info.devices.as_slice() {
            [only] => Some(FullestDevice {
                index: only.index,
                gauge: MemoryGauge {
                    label: device_label(only),
                    used_bytes: (self.memory_timeline.max_gb? * GIB) as u64,
                    total_bytes: only.total_bytes.filter(|t| *t > 0)?,
                    parts: BTreeMap::new(),
                },
                page_cache: 0,
                unreachable_limit: None,
            }),
            _ => None,
        });
        Some(fullest?.within_host(self.memory_timeline.least_available_bytes))
    }

    /// What a device had in use at its peak, without what does not count against its limit.
    fn device_gauge(&self, d: &DeviceBreakdown) -> Option<FullestDevice> {
        let facts = (self.gpu_info.devices.iter()).find(|facts| facts.index == d.gpu_id)?;
        // Swapped-out memory is in the peak, and does not count against the limit of memory.
        let is_held = |c: Component| c != Component::PageCache && c != Component::Swap;
        let (held, beside): (Vec<&Part>, Vec<&Part>) =
            d.parts.iter().partition(|part| is_held(part.component));
        let bytes = |part: &Part| part.bytes.max(0) as u64;
        let cache = |part: &&&Part| part.component == Component::PageCache;
        let gauge = MemoryGauge {
            label: device_label(facts),
            used_bytes: d
                .peak_bytes
                .saturating_sub(beside.iter().copied().map(bytes).sum()),
            total_bytes: facts.total_bytes.filter(|t| *t > 0)?,
            parts: (held.iter().filter(|part| part.bytes > 0))
                .map(|part| (part.component, bytes(part)))
                .collect(),
        };
        Some(FullestDevice {
            index: d.gpu_id,
            gauge,
            page_cache: beside.iter().filter(cache).copied().map(bytes).sum(),
            unreachable_limit: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_never_free_where_more_is_needed_than_there_is() {
        let gauge = |used_bytes: u64| MemoryGauge {
            used_bytes,
            total_bytes: 4 << 30,
            ..MemoryGauge::default()
        };
        assert_eq!(gauge(1 << 30).describe_rest(), "3.00 GiB free");
        assert_eq!(gauge(4 << 30).describe_rest(), "0 B free");
        assert_eq!(gauge(9 << 30).describe_rest(), "over by 5.00 GiB");
        let all = [1 << 30, 3 << 30, 2 << 30].map(gauge);
        let fullest = MemoryGauge::fullest_of(all).unwrap();
        assert_eq!(fullest.used_bytes, 3 << 30);
    }

    #[test]
    fn memory_that_others_on_the_host_use_is_not_free() {
        let within = |least| {
            let device = FullestDevice {
                index: 0,
                gauge: MemoryGauge {
                    used_bytes: 1 << 30,
                    total_bytes: 8 << 30,
                    ..MemoryGauge::default()
                },
                page_cache: 0,
                unreachable_limit: None,
            };
            let device = device.within_host(least);
            (device.gauge.free_bytes() >> 30, device.unreachable_limit)
        };
        assert_eq!(within(None), (7, None));
        // The limit is the nearer end.
        assert_eq!(within(Some(20 << 30)), (7, None));
        assert_eq!(within(Some(3 << 30)), (3, Some(8 << 30)));
    }
}
