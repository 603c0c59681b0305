//! Reads the sensors of several GPUs on a separate thread. On some old GPUs such a reading never
//! returns; sampling then continues without it, and a new thread reads the other GPUs.
//!
//! The sensors of one GPU: power, temperatures, clocks and utilisation. Reading them can wake a
//! sleeping GPU and takes its firmware milliseconds, so they are read apart from the memory, and
//! only while the GPU is awake.

use crate::capture::MemorySample;
use crate::host::text_in;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A reading that takes longer counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(2);

/// The sensors of some GPUs.
pub struct Sensors {
    /// Directory of each GPU; `None` once reading it hung.
    devices: Vec<Option<PathBuf>>,
    worker: Option<Worker>,
    /// How long a full reading may wait for the sensors.
    patience: Duration,
    asked_at: Option<Instant>,
}

struct Worker {
    ask: Sender<()>,
    results: Receiver<Message>,
    /// The GPU that is being read.
    at: Arc<AtomicUsize>,
}

/// A GPU's position with its gauges (`None` while it sleeps); `None` after all GPUs.
type Message = Option<(usize, Option<MemorySample>)>;

impl Sensors {
    /// For the GPUs with these directories. A full reading waits at most `patience`; later results
    /// go into the next one.
    pub fn new(devices: Vec<PathBuf>, patience: Duration) -> Sensors {
        let devices: Vec<Option<PathBuf>> = devices.into_iter().map(Some).collect();
        let worker = Worker::start(&devices);
        Sensors {
            devices,
            worker,
            patience,
            asked_at: None,
        }
    }

    /// Requests a reading, unless one is in progress. Does not wait.
    pub fn request_reading(&mut self) {
        if self.asked_at.is_none() {
            if let Some(worker) = &self.worker {
                if worker.ask.send(()).is_ok() {
                    self.asked_at = Some(Instant::now());
                }
            }
        }
    }

    /// The readings since the last call; `None` for a GPU without a new one, or asleep.
    pub fn take_readings(&mut self) -> Vec<Option<MemorySample>> {
        let mut read = vec![None; self.devices.len()];
        let until = Instant::now() + self.patience;
        while let (Some(worker), Some(_)) = (&self.worker, self.asked_at) {
            let left = until.saturating_duration_since(Instant::now());
            match worker.results.recv_timeout(left) {
                Ok(Some((gpu, gauges))) => read[gpu] = gauges,
                Ok(None) => self.asked_at = None,
                Err(_) => break,
            }
        }
        if self
            .asked_at
            .is_some_and(|at| at.elapsed() >= HANGS_AFTER.max(self.patience))
        {
            self.give_up();
        }
        read
    }

    /// Abandons the hanging thread and the GPU it hangs at.
    fn give_up(&mut self) {
        if let Some(worker) = self.worker.take() {
            let at = worker.at.load(Ordering::Acquire);
            if let Some(device) = self.devices.get_mut(at) {
                *device = None;
            }
        }
        self.asked_at = None;
        self.worker = Worker::start(&self.devices);
    }

    /// Positions of the GPUs with hanging sensors.
    pub fn hanging_gpus(&self) -> Vec<usize> {
        (0..self.devices.len())
            .filter(|gpu| self.devices[*gpu].is_none())
            .collect()
    }
}

impl Worker {
    /// `None` if there is nothing to read or no thread can be started.
    fn start(devices: &[Option<PathBuf>]) -> Option<Worker> {
        if devices.iter().all(Option::is_none) {
            return None;
        }
        let devices = devices.to_vec();
        let (ask, asked) = channel();
        let (sender, results) = channel::<Message>();
        let at = Arc::new(AtomicUsize::new(usize::MAX));
        let now_at = Arc::clone(&at);
        std::thread::Builder::new()
            .name("amd-sensors".into())
            .spawn(move || {
                let files: Vec<Option<SensorFiles>> = devices
                    .iter()
                    .enumerate()
                    .map(|(gpu, device)| {
                        now_at.store(gpu, Ordering::Release);
                        device.as_deref().map(SensorFiles::open)
                    })
                    .collect();
                while asked.recv().is_ok() {
                    for (gpu, files) in files.iter().enumerate() {
                        now_at.store(gpu, Ordering::Release);
                        if let Some(files) = files {
                            if sender.send(Some((gpu, files.read_gauges()))).is_err() {
                                return;
                            }
                        }
                    }
                    if sender.send(None).is_err() {
                        return;
                    }
                }
            })
            .ok()?;
        Some(Worker { ask, results, at })
    }
}

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
    use std::path::Path;

    fn gpu(busy: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("gpu_busy_percent"), busy).unwrap();
        dir
    }

    /// A file whose reading never returns: opening a pipe without a writer.
    fn pipe(at: &Path) {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
    }

    #[test]
    fn each_gpu_is_read() {
        let (a, b) = (gpu("7\n"), gpu("9\n"));
        let mut sensors = Sensors::new(
            vec![a.path().into(), b.path().into()],
            Duration::from_secs(30),
        );
        assert_eq!(sensors.take_readings(), [None, None], "nobody asked");
        for _ in 0..2 {
            sensors.request_reading();
            let busy: Vec<Option<u32>> = sensors
                .take_readings()
                .iter()
                .map(|g| g.as_ref().and_then(|g| g.utilization_pct))
                .collect();
            assert_eq!(busy, [Some(7), Some(9)]);
        }
    }

    #[test]
    fn one_that_hangs_does_not_take_the_others_with_it() {
        let (a, b) = (gpu("7\n"), gpu("9\n"));
        pipe(&b.path().join("mem_busy_percent"));
        let mut sensors = Sensors::new(
            vec![a.path().into(), b.path().into()],
            Duration::from_millis(20),
        );
        sensors.request_reading();
        let start = Instant::now();
        while sensors.hanging_gpus().is_empty() {
            assert_eq!(sensors.take_readings(), [None, None]);
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(sensors.hanging_gpus(), [1]);
        let read = (0..3000).find_map(|_| {
            sensors.request_reading();
            sensors.take_readings().swap_remove(0)
        });
        assert_eq!(read.and_then(|g| g.utilization_pct), Some(7));
    }
}

#[cfg(test)]
mod hwmon_tests {
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
