//! What was measured: three points, the devices and their state at the peak.

use super::observation::CaptureObservation;
use super::series::{DevicePeakReading, PeakSource, SampleSeries};
use super::stats::{arithmetic_mean, population_stddev, saturating_sum};
use super::timeline::epoch_seconds;
use super::unknown::{NullReasons, null_reasons};
use crate::capture::{AtNs, Capture, DeviceFacts, DeviceKind, MemorySample};
use crate::units::to_gib;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory at three points of the run. For a container's cgroup the figures include page cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurements {
    /// Before the load; before the engine too, where plimsoll saw it start. `memory_breakdown.baseline_gb` is always
    /// without the engine.
    pub baseline: Option<Point>,
    /// Whether the engine was loaded when `baseline` was read: so for one that served already. The increase is
    /// then what the load added, and no more.
    #[serde(default)]
    pub baseline_includes_engine: bool,
    /// When the measured part of the bench began.
    pub post_warmup: Option<Point>,
    /// The highest moment of the load: of the measured part of the bench, or, where the bench loads the
    /// engine itself, of the bench from its start to its end; where no bench was asked for, of the time that
    /// the container was watched. Where memory ran out before the load, of the whole run. Null when none of
    /// these began.
    pub peak: Option<Point>,
    /// Peak less baseline, GiB.
    pub memory_increase_gb: Option<f64>,
}

/// Memory of all devices at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Moment on the capture's clock, nanoseconds.
    pub at_ns: AtNs,
    /// Sum over the devices, bytes.
    pub total_bytes: u64,
    /// The same, GiB.
    pub total_gb: f64,
    /// Highest device, GiB.
    pub max_gb: f64,
    /// Mean over the devices, GiB.
    pub mean_gb: f64,
    /// Population standard deviation over the devices, GiB.
    pub stddev_gb: f64,
    /// Each device.
    pub per_gpu_details: Vec<PointDevice>,
}

impl Measurements {
    pub(super) fn note_null_reasons(&self, o: &CaptureObservation<'_>, out: &mut NullReasons) {
        null_reasons!(out, "memory_measurements", self;
            baseline => o.capture.end.unmeasured()
                .filter(|_| o.baseline_window().is_none())
                .unwrap_or_else(|| o.not_sampled());
            post_warmup => o.no_bench_or(|| o.no_load(&o.not_sampled()));
            peak => o.no_peak();
            memory_increase_gb => "needs both a baseline and a peak";
        );
        let points = [
            ("baseline", &self.baseline),
            ("post_warmup", &self.post_warmup),
            ("peak", &self.peak),
        ];
        for (key, point) in points {
            let at = format!("memory_measurements.{key}.per_gpu_details[]");
            for device in point.iter().flat_map(|p| &p.per_gpu_details) {
                null_reasons!(out, at, device;
                    total_gb => "the size of the device is not known";
                    host => o.host_or("not reported by the kernel", "the device is a GPU");
                    reserved_bytes => o.host_or(
                        "host memory has no driver's share",
                        "reported only by NVIDIA drivers R510 and later",
                    );
                );
                let Some(host) = device.host else { continue };
                null_reasons!(out, format_args!("{at}.host"), host;
                    anon_bytes, file_bytes, shmem_bytes, kernel_bytes, swap_bytes =>
                        o.host_or("not reported by the kernel", &o.not_sampled());
                );
            }
        }
    }
}

/// Memory of one device at one moment. Devices peak at their own moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointDevice {
    /// Device index.
    pub gpu_id: u32,
    /// Bytes in use.
    pub used_bytes: u64,
    /// GiB in use.
    pub used_gb: f64,
    /// GiB in all, where known.
    pub total_gb: Option<f64>,
    /// How the figure was seen.
    pub source: PeakSource,
    /// Anonymous, file, shared and kernel memory, bytes (container memory only).
    pub host: Option<crate::capture::HostSplit>,
    /// What the driver keeps for itself, bytes (NVIDIA only).
    pub reserved_bytes: Option<u64>,
}

impl Point {
    /// From one reading per device.
    pub(super) fn point_of_readings(
        readings: Vec<(u64, PeakSource, MemorySample)>,
        devices: &[DeviceFacts],
    ) -> Option<Point> {
        let at_ns = readings.iter().map(|r| r.2.at_ns).max()?;
        let used: Vec<f64> = readings.iter().map(|r| to_gib(r.0)).collect();
        let total_bytes = saturating_sum(readings.iter().map(|r| r.0));
        Some(Point {
            at_ns,
            total_bytes,
            total_gb: to_gib(total_bytes),
            max_gb: used.iter().copied().fold(0.0, f64::max),
            mean_gb: arithmetic_mean(&used)?,
            stddev_gb: population_stddev(&used)?,
            per_gpu_details: readings
                .into_iter()
                .map(|(bytes, source, sample)| PointDevice {
                    gpu_id: sample.device,
                    used_bytes: bytes,
                    used_gb: to_gib(bytes),
                    total_gb: devices
                        .iter()
                        .find(|d| d.index == sample.device)
                        .and_then(|d| d.total_bytes)
                        .map(to_gib),
                    source,
                    host: sample.host,
                    reserved_bytes: sample.reserved_bytes,
                })
                .collect(),
        })
    }

    /// From each device's sample.
    pub(super) fn of_samples(
        samples: impl IntoIterator<Item = MemorySample>,
        devices: &[DeviceFacts],
    ) -> Option<Point> {
        let readings = samples.into_iter();
        let readings = readings.map(|s| (s.used_bytes, PeakSource::Sample, s));
        Point::point_of_readings(readings.collect(), devices)
    }

    /// From each device's peak.
    pub(super) fn of_peaks(peaks: &[DevicePeakReading], devices: &[DeviceFacts]) -> Option<Point> {
        let readings = peaks.iter();
        let readings = readings.map(|p| (p.bytes, p.source, p.nearest.clone()));
        Point::point_of_readings(readings.collect(), devices)
    }
}

/// The measured devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuInfo {
    /// GPUs measured; 0 where the container's host memory was measured.
    pub num_gpus: u32,
    /// Memory of each measured device, GiB.
    pub gpu_memory_per_device: Vec<Option<f64>>,
    /// The devices.
    pub devices: Vec<DeviceFacts>,
    /// Peak sum over the GPUs less what one GPU alone would need, GiB. Unknown: it takes a second
    /// run on one GPU.
    pub multi_gpu_overhead_gb: Option<f64>,
}

impl GpuInfo {
    pub(super) fn gpu_info_of(capture: &Capture) -> GpuInfo {
        let devices = capture.devices.iter();
        let gpus = devices.clone().filter(|d| d.kind == DeviceKind::Gpu);
        GpuInfo {
            num_gpus: gpus.count() as u32,
            gpu_memory_per_device: devices.map(|d| d.total_bytes.map(to_gib)).collect(),
            devices: capture.devices.clone(),
            multi_gpu_overhead_gb: None,
        }
    }

    pub(super) fn note_null_reasons(&self, o: &CaptureObservation<'_>, out: &mut NullReasons) {
        let no_size = "the container has no limit, and the host's memory is unknown";
        let no_size = || o.host_or(no_size, "not reported by the driver");
        let sizes = &self.gpu_memory_per_device;
        out.note_if_null(
            sizes.contains(&None),
            "gpu_info.gpu_memory_per_device[]".into(),
            no_size,
        );
        for device in &self.devices {
            null_reasons!(out, "gpu_info.devices[]", device; total_bytes => no_size(););
        }
        null_reasons!(out, "gpu_info", self;
            multi_gpu_overhead_gb => if self.devices.len() < 2 {
                "only one device was measured"
            } else {
                "needs a second run of the same load on one GPU"
            };
        );
    }
}

/// State of the GPUs at the moment of the peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DetailedGpuMetrics {
    /// Backend that read it.
    pub tool: String,
    /// Seconds since the Unix epoch.
    pub timestamp: f64,
    /// The GPUs.
    pub gpus: Vec<GpuMetrics>,
}

/// State of one GPU. `_mb` is MiB (2^20), as in the tools that these keys come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuMetrics {
    /// Device index.
    pub gpu_id: u32,
    /// In use, what the driver keeps for itself included, MiB.
    pub vram_used_mb: f64,
    /// Free, MiB.
    pub vram_free_mb: Option<f64>,
    /// In all, MiB.
    pub vram_total_mb: Option<f64>,
    /// In use, percent of all.
    pub vram_percent: Option<f64>,
    /// Power draw, watts.
    pub power_watts: Option<f64>,
    /// Temperature of the hottest spot, °C; the GPU's temperature where that is its only sensor.
    pub hotspot_temp_c: Option<f64>,
    /// Memory temperature, °C.
    pub memory_temp_c: Option<f64>,
    /// GPU busy, percent.
    pub gfx_utilization_pct: Option<f64>,
    /// Memory interface busy, percent: traffic, not how full the memory is.
    pub mem_utilization_pct: Option<f64>,
    /// Clock of the cores, MHz.
    pub clock_gfx_mhz: Option<f64>,
    /// Clock of the memory, MHz.
    pub clock_mem_mhz: Option<f64>,
    /// Processes.
    pub processes: Vec<GpuProcess>,
    /// In use at that list's time and accounted to no process of it, MiB; null where the driver
    /// lists none.
    pub unattributed_mb: Option<f64>,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuProcess {
    /// `name (PID: n)`.
    pub process_info: String,
    /// Whether it runs in the profiled container; null when that is unknown.
    pub in_container: Option<bool>,
    /// Id of its container; null when it runs in none or that is unknown.
    pub container_id: Option<String>,
    /// Name of its container; null for others than the profiled one.
    pub container_name: Option<String>,
    /// Its memory; null where the driver does not say.
    pub memory_usage: Option<MemoryUsage>,
    /// Most it ever held; null unless the driver's accounting is on, which plimsoll never does.
    pub peak_memory_usage: Option<MemoryUsage>,
}

/// A figure with its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUsage {
    /// Figure.
    pub value: f64,
    /// `MB` (2^20 bytes).
    pub unit: String,
}

fn usage_in_mib(bytes: u64) -> MemoryUsage {
    MemoryUsage {
        value: bytes as f64 / 1024.0 / 1024.0,
        unit: "MB".into(),
    }
}

/// What a sample's processes do not account for; `None` where it carries no list. A series counts
/// what the driver keeps for itself as in use, which belongs to no process.
fn unattributed(sample: &MemorySample) -> Option<u64> {
    let known = sample
        .processes
        .as_ref()?
        .iter()
        .filter_map(|p| p.used_bytes);
    let reserved = sample.reserved_bytes.unwrap_or(0);
    sample
        .used_bytes
        .checked_sub(reserved)?
        .checked_sub(known.fold(0, u64::saturating_add))
}

impl DetailedGpuMetrics {
    /// At the peak; `None` where no GPU was measured.
    pub(super) fn metrics_at_peak(
        capture: &Capture,
        series: &SampleSeries,
        peaks: &[DevicePeakReading],
    ) -> Option<DetailedGpuMetrics> {
        const MIB: f64 = 1024.0 * 1024.0;
        let gpus: Vec<GpuMetrics> = peaks
            .iter()
            .filter_map(|peak| {
                let s = &peak.nearest;
                let facts = capture.device(s.device)?;
                if facts.kind != DeviceKind::Gpu {
                    return None;
                }
                // Process lists, power and the like are read less often than memory: the latest
                // reading up to the peak.
                let upto = series.rows_in_window(s.device as usize, AtNs::MIN, s.at_ns);
                let gauges = upto.latest_gauges();
                let latest = |pick: fn(&MemorySample) -> Option<u32>| pick(&gauges).map(f64::from);
                let total = facts.total_bytes.map(|b| b as f64 / MIB);
                let used = s.used_bytes as f64 / MIB;
                Some(GpuMetrics {
                    gpu_id: s.device,
                    vram_used_mb: used,
                    vram_free_mb: total.map(|t| t - used),
                    vram_total_mb: total,
                    vram_percent: total.filter(|t| *t > 0.0).map(|t| used / t * 100.0),
                    power_watts: latest(|s| s.power_mw).map(|mw| mw / 1e3),
                    hotspot_temp_c: latest(|s| s.hotspot_temp_c)
                        .or_else(|| latest(|s| s.temperature_c)),
                    memory_temp_c: latest(|s| s.memory_temp_c),
                    gfx_utilization_pct: latest(|s| s.utilization_pct),
                    mem_utilization_pct: latest(|s| s.mem_utilization_pct),
                    clock_gfx_mhz: latest(|s| s.clock_gfx_mhz),
                    clock_mem_mhz: latest(|s| s.clock_mem_mhz),
                    unattributed_mb: upto
                        .samples_with_lists()
                        .rev()
                        .find_map(|s| unattributed(&s))
                        .map(|b| b as f64 / MIB),
                    processes: upto
                        .process_lists()
                        .next_back()
                        .into_iter()
                        .flatten()
                        .map(|p| GpuProcess {
                            process_info: format!(
                                "{} (PID: {})",
                                p.name.as_deref().unwrap_or("?"),
                                p.pid
                            ),
                            in_container: p.ours,
                            container_id: p.container_id.clone(),
                            container_name: (p.ours == Some(true))
                                .then(|| capture.container.name.clone()),
                            memory_usage: p.used_bytes.map(usage_in_mib),
                            peak_memory_usage: p.peak_bytes.map(usage_in_mib),
                        })
                        .collect(),
                })
            })
            .collect();
        let at = peaks.iter().map(|p| p.nearest.at_ns).max()?;
        (!gpus.is_empty()).then(|| DetailedGpuMetrics {
            tool: capture.backend.name.clone(),
            timestamp: epoch_seconds(capture, at),
            gpus,
        })
    }
}

/// Why state of the GPUs is null, or the section is.
pub(super) fn gpu_reasons(
    section: Option<&DetailedGpuMetrics>,
    o: &CaptureObservation<'_>,
    out: &mut NullReasons,
) {
    let at = "detailed_gpu_metrics";
    out.note_if_null(section.is_none(), at.into(), || {
        if o.capture.devices.is_empty() {
            "no device was measured".into()
        } else if o.is_host(0) {
            "no GPU was measured: the backend reads the container's host memory".into()
        } else {
            o.no_peak()
        }
    });
    for gpu in section.iter().flat_map(|s| &s.gpus) {
        null_reasons!(out, "detailed_gpu_metrics.gpus[]", gpu;
            memory_temp_c, mem_utilization_pct, clock_gfx_mhz, clock_mem_mhz =>
                "not read: the GPU has no such sensor, or its driver does not report it";
            vram_free_mb, vram_total_mb, vram_percent, power_watts, hotspot_temp_c, gfx_utilization_pct,
            unattributed_mb => "not reported by the driver";
        );
        for process in &gpu.processes {
            null_reasons!(out, "detailed_gpu_metrics.gpus[].processes[]", process;
                in_container => "the owner of the process is unknown";
                container_id => "it runs in no container, or the container is unknown";
                container_name => "it does not run in the profiled container";
                memory_usage => "not reported by the driver";
                peak_memory_usage =>
                    "the driver's accounting is off, or has no figure; plimsoll never switches it on";
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_metrics_are_the_latest_up_to_the_peak() {
        let sample = |at_ns, used_bytes| MemorySample {
            at_ns,
            used_bytes,
            ..MemorySample::default()
        };
        let series = SampleSeries::new([
            MemorySample {
                temperature_c: Some(55),
                hotspot_temp_c: Some(71),
                memory_temp_c: Some(58),
                mem_utilization_pct: Some(41),
                clock_gfx_mhz: Some(2100),
                clock_mem_mhz: Some(1300),
                ..sample(10, 5)
            },
            sample(20, 9),
            MemorySample {
                clock_gfx_mhz: Some(9),
                ..sample(30, 1)
            },
        ]);
        let capture = Capture {
            devices: vec![DeviceFacts {
                kind: DeviceKind::Gpu,
                ..DeviceFacts::default()
            }],
            ..Capture::default()
        };
        let of = |series: &SampleSeries| {
            let peak = series.peak_in_window(0, 0, 100).unwrap();
            let metrics = DetailedGpuMetrics::metrics_at_peak(&capture, series, &[peak]).unwrap();
            metrics.gpus[0].clone()
        };
        let gpu = of(&series);
        assert_eq!(
            (gpu.hotspot_temp_c, gpu.memory_temp_c),
            (Some(71.0), Some(58.0))
        );
        assert_eq!(gpu.mem_utilization_pct, Some(41.0));
        assert_eq!(
            (gpu.clock_gfx_mhz, gpu.clock_mem_mhz),
            (Some(2100.0), Some(1300.0))
        );
        let one_sensor = SampleSeries::new([MemorySample {
            temperature_c: Some(55),
            ..sample(10, 5)
        }]);
        let gpu = of(&one_sensor);
        assert_eq!((gpu.hotspot_temp_c, gpu.memory_temp_c), (Some(55.0), None));
    }
}
