//! Reads the sensors of several GPUs on a separate thread. On some old GPUs such a reading never
//! returns; sampling then continues without it, and a new thread reads the other GPUs.

use super::hwmon::SensorFiles;
use crate::capture::MemorySample;
use std::path::PathBuf;
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
