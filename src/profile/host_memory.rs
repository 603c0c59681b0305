//! The container's host memory beside its GPUs: a second budget, with a limit of its own.

use super::fullest::MemoryGauge;
use super::observation::CaptureObservation;
use super::unknown::{NullReasons, null_reasons};
use crate::capture::{AtNs, HostSplit, HostState, LimitLevel, MemorySample};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Host memory of a container whose GPUs were measured: offloaded KV caches, prompt caches, pinned buffers, leaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostMemoryUse {
    /// The smallest limit on the path of its cgroup, or the host's memory; bytes.
    pub limit_bytes: Option<u64>,
    /// Which level sets that limit.
    pub limit_level: Option<LimitLevel>,
    /// Before the load; before the engine too, where plimsoll saw it start.
    pub baseline: Option<HostPoint>,
    /// The sample of the whole run with the most that the kernel cannot take back: page cache and swap do not count.
    pub peak: Option<HostPoint>,
    /// The kernel's own high-water mark since the container began, page cache included; bytes.
    pub kernel_peak_bytes: Option<u64>,
    /// The whole host when it had the least left.
    pub tightest_host: Option<HostState>,
}

/// Host memory of the container at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostPoint {
    /// Moment on the capture's clock, nanoseconds.
    pub at_ns: AtNs,
    /// Charged to the container, page cache and swap included; bytes.
    pub used_bytes: u64,
    /// The same without page cache and swap: what counts against the limit; bytes.
    pub held_bytes: u64,
    /// By kind.
    pub kinds: HostSplit,
}

impl HostPoint {
    fn of_sample(sample: MemorySample) -> HostPoint {
        HostPoint {
            at_ns: sample.at_ns,
            used_bytes: sample.used_bytes,
            held_bytes: sample.held_bytes(),
            kinds: sample.host.unwrap_or_default(),
        }
    }
}

impl HostMemoryUse {
    /// Of a capture that has it beside its GPUs.
    pub(super) fn use_in_capture(o: &CaptureObservation<'_>) -> Option<HostMemoryUse> {
        let facts = o.capture.host_memory.as_ref()?;
        let rows = o.host_series.rows_of_device(0);
        let window = o.baseline_window();
        let baseline = window.and_then(|w| o.host_series.median_sample(0, w.from, w.to));
        let hosts = rows.iter().filter_map(|s| s.whole_host);
        Some(HostMemoryUse {
            limit_bytes: facts.total_bytes,
            limit_level: facts.limit_level.clone(),
            baseline: baseline.map(HostPoint::of_sample),
            peak: rows
                .iter()
                .max_by_key(MemorySample::held_bytes)
                .map(HostPoint::of_sample),
            kernel_peak_bytes: rows.iter().filter_map(|s| s.kernel_peak_bytes).max(),
            tightest_host: hosts.min_by_key(|h| h.available_bytes),
        })
    }

    /// How full it was: the container's limit, or the whole host with all its processes where that is the only limit.
    pub fn gauge(&self) -> Option<MemoryGauge> {
        let limited = !matches!(self.limit_level, None | Some(LimitLevel::Host));
        let (label, used_bytes, total_bytes) = if limited {
            let held = self.peak.as_ref()?.held_bytes;
            ("Host memory of the container", held, self.limit_bytes?)
        } else {
            let host = self.tightest_host?;
            let used = host.total_bytes.saturating_sub(host.available_bytes);
            ("Memory of the host, all processes", used, host.total_bytes)
        };
        Some(MemoryGauge {
            label: label.into(),
            used_bytes,
            total_bytes,
            ..MemoryGauge::default()
        })
        .filter(|gauge| gauge.total_bytes > 0)
    }

    pub(super) fn note_null_reasons(
        found: Option<&HostMemoryUse>,
        o: &CaptureObservation<'_>,
        out: &mut NullReasons,
    ) {
        let Some(found) = found else {
            let why = o.host_or(
                "the container's host memory is the measured device",
                "the container's cgroup could not be read beside the GPUs, or the capture is of an earlier release",
            );
            out.note_if_null(true, "host_memory".into(), || why);
            return;
        };
        let at = "host_memory";
        null_reasons!(out, at, found;
            limit_bytes, limit_level => "the container has no limit, and the host's memory is unknown";
            baseline => "no sample was taken before the load";
            peak, tightest_host => o.not_sampled();
            kernel_peak_bytes => "the kernel does not report it, or memory was in swap";
        );
        for (key, point) in [("baseline", &found.baseline), ("peak", &found.peak)] {
            let Some(point) = point else { continue };
            null_reasons!(out, format_args!("{at}.{key}.kinds"), point.kinds;
                anon_bytes, file_bytes, shmem_bytes, kernel_bytes, swap_bytes =>
                    "the kernel does not report it";
            );
        }
        if let Some(host) = &found.tightest_host {
            null_reasons!(out, "host_memory.tightest_host", host;
                swap_used_bytes => "the kernel does not report it";
                stalled_pct => "the kernel does not report it: it is older than 4.20, or built without PSI";
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn used(limit: Option<LimitLevel>) -> HostMemoryUse {
        let kinds = HostSplit {
            file_bytes: Some(5 * GIB),
            swap_bytes: Some(GIB),
            ..HostSplit::default()
        };
        let peak = MemorySample {
            used_bytes: 9 * GIB,
            host: Some(kinds),
            ..MemorySample::default()
        };
        HostMemoryUse {
            limit_bytes: Some(4 * GIB),
            limit_level: limit,
            baseline: None,
            peak: Some(HostPoint::of_sample(peak)),
            kernel_peak_bytes: None,
            tightest_host: Some(HostState {
                total_bytes: 64 * GIB,
                available_bytes: GIB,
                ..HostState::default()
            }),
        }
    }

    #[test]
    fn page_cache_and_swap_do_not_fill_a_limit() {
        let gauge = used(Some(LimitLevel::Container)).gauge().unwrap();
        assert_eq!((gauge.used_bytes, gauge.total_bytes), (3 * GIB, 4 * GIB));
    }

    #[test]
    fn without_a_limit_the_whole_host_is_the_budget() {
        let gauge = used(Some(LimitLevel::Host)).gauge().unwrap();
        assert_eq!((gauge.used_bytes, gauge.total_bytes), (63 * GIB, 64 * GIB));
        assert!(gauge.label.contains("all processes"), "{gauge:?}");
    }
}
