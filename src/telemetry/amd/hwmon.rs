//! The sensors of one GPU: power, temperatures, clocks and utilisation. Reading them can wake a
//! sleeping GPU and takes its firmware milliseconds, so they are read apart from the memory, and
//! only while the GPU is awake.

use crate::capture::MemorySample;
use crate::host::text_in;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The sensor files of one GPU, kept open. Opening them does not wake it.
#[derive(Debug, Default)]
pub struct SensorFiles {
    /// `None` where the kernel has no power management for the GPU: it never sleeps then.
    runtime_status: Option<File>,
    power: Option<File>,
    edge: Option<File>,
    hotspot: Option<File>,
    memory: Option<File>,
    gfx_clock: Option<File>,
    memory_clock: Option<File>,
    busy: Option<File>,
    memory_busy: Option<File>,
}

impl SensorFiles {
    /// Opens the sensors of the GPU with this directory (`…/device`).
    pub fn open(device: &Path) -> SensorFiles {
        let hwmon = hwmon_directory(device);
        let sensor = |name: &str| File::open(hwmon.as_ref()?.join(name)).ok();
        let temperature = |label: &str, usual: u32| {
            let hwmon = hwmon.as_ref()?;
            sensor(&format!(
                "temp{}_input",
                temperature_of(hwmon, label, usual)?
            ))
        };
        SensorFiles {
            runtime_status: File::open(device.join("power/runtime_status")).ok(),
            // Most GPUs have only one of the two.
            power: sensor("power1_average").or_else(|| sensor("power1_input")),
            edge: temperature("edge", 1),
            hotspot: temperature("junction", 2),
            memory: temperature("mem", 3),
            gfx_clock: sensor("freq1_input"),
            memory_clock: sensor("freq2_input"),
            busy: File::open(device.join("gpu_busy_percent")).ok(),
            memory_busy: File::open(device.join("mem_busy_percent")).ok(),
        }
    }

    /// Whether the GPU is awake now. Asking does not wake it.
    pub fn is_awake(&self) -> bool {
        let Some(file) = &self.runtime_status else {
            return true;
        };
        let mut buffer = [0; 32];
        let read = file.read_at(&mut buffer, 0).unwrap_or(0);
        is_awake(&String::from_utf8_lossy(&buffer[..read]))
    }

    /// Reads all sensors into the gauges of a sample; `None` when the GPU sleeps.
    pub fn read_gauges(&self) -> Option<MemorySample> {
        if !self.is_awake() {
            return None;
        }
        let scaled = |file: &Option<File>, divisor: i64, most: i64| {
            let figure = (number_in(file.as_ref()?)? + divisor / 2).div_euclid(divisor);
            (0..=most)
                .contains(&figure)
                .then(|| u32::try_from(figure).ok())
                .flatten()
        };
        let degrees = |file| scaled(file, 1000, 1000);
        Some(MemorySample {
            power_mw: scaled(&self.power, 1000, 100_000_000),
            temperature_c: degrees(&self.edge),
            hotspot_temp_c: degrees(&self.hotspot),
            memory_temp_c: degrees(&self.memory),
            clock_gfx_mhz: scaled(&self.gfx_clock, 1_000_000, 100_000),
            clock_mem_mhz: scaled(&self.memory_clock, 1_000_000, 100_000),
            utilization_pct: scaled(&self.busy, 1, 100),
            mem_utilization_pct: scaled(&self.memory_busy, 1, 100),
            ..MemorySample::default()
        })
    }
}

/// Whether a GPU with this `runtime_status` may be read. A GPU that is suspending or resuming is
/// left alone, as is one without a status; `unsupported` means that it never sleeps.
fn is_awake(status: &str) -> bool {
    matches!(status.trim(), "active" | "unsupported")
}

/// The GPU's `hwmon` directory.
pub fn hwmon_directory(device: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(device.join("hwmon"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("hwmon"))
        })
        .collect();
    found.sort();
    let named = |path: &&PathBuf| text_in(&path.join("name")).as_deref() == Some("amdgpu");
    found.iter().find(named).or(found.first()).cloned()
}

/// The index of the temperature with that label. Kernels without labels use a fixed order.
fn temperature_of(hwmon: &Path, label: &str, usual: u32) -> Option<u32> {
    let labels: Vec<(u32, Option<String>)> = (1..=3)
        .map(|n| (n, text_in(&hwmon.join(format!("temp{n}_label")))))
        .collect();
    if labels.iter().all(|(_, l)| l.is_none()) {
        return Some(usual);
    }
    labels
        .iter()
        .find(|(_, l)| l.as_deref() == Some(label))
        .map(|(n, _)| *n)
}

/// The number in a kernel file, which is generated anew by each read at offset 0.
pub fn number_in(file: &File) -> Option<i64> {
    let mut buffer = [0; 32];
    let length = loop {
        match file.read_at(&mut buffer, 0) {
            Ok(length) => break length,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    };
    std::str::from_utf8(&buffer[..length])
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn labels_identify_each_temperature() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            &[
                ("hwmon/hwmon4/name", "nvme\n"),
                ("hwmon/hwmon5/name", "amdgpu\n"),
                ("hwmon/hwmon5/temp1_label", "junction\n"),
                ("hwmon/hwmon5/temp1_input", "71499\n"),
                ("hwmon/hwmon5/temp2_label", "mem\n"),
                ("hwmon/hwmon5/temp2_input", "58000\n"),
                ("hwmon/hwmon5/power1_input", "33123456\n"),
                ("hwmon/hwmon5/freq1_input", "2100000000\n"),
                ("gpu_busy_percent", "255\n"),
                ("mem_busy_percent", "41\n"),
            ],
        );
        let gauges = SensorFiles::open(dir.path()).read_gauges().unwrap();
        assert_eq!(
            gauges,
            MemorySample {
                power_mw: Some(33_123),
                temperature_c: None,
                hotspot_temp_c: Some(71),
                memory_temp_c: Some(58),
                clock_gfx_mhz: Some(2100),
                clock_mem_mhz: None,
                utilization_pct: None,
                mem_utilization_pct: Some(41),
                ..MemorySample::default()
            }
        );
    }

    #[test]
    fn without_labels_the_usual_order_holds_and_the_average_power_wins() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            &[
                ("hwmon/hwmon0/temp1_input", "31000\n"),
                ("hwmon/hwmon0/temp2_input", "-5000\n"),
                ("hwmon/hwmon0/temp3_input", "junk\n"),
                ("hwmon/hwmon0/power1_average", "39000000\n"),
                ("hwmon/hwmon0/power1_input", "50000000\n"),
            ],
        );
        let gauges = SensorFiles::open(dir.path()).read_gauges().unwrap();
        assert_eq!(
            (
                gauges.temperature_c,
                gauges.hotspot_temp_c,
                gauges.memory_temp_c
            ),
            (Some(31), None, None)
        );
        assert_eq!(gauges.power_mw, Some(39_000));
    }

    #[test]
    fn only_one_that_is_awake_is_asked() {
        for (status, awake) in [
            ("active\n", true),
            ("unsupported\n", true),
            ("suspended\n", false),
            ("suspending\n", false),
            ("resuming\n", false),
            ("error\n", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            write(
                dir.path(),
                &[("power/runtime_status", status), ("gpu_busy_percent", "5")],
            );
            let read = SensorFiles::open(dir.path()).read_gauges();
            assert_eq!(read.is_some(), awake, "{status}");
        }
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(
            SensorFiles::open(nothing.path()).read_gauges(),
            Some(MemorySample::default())
        );
    }
}
