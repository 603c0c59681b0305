//! Memory of AMD GPUs through AMD's tools alone, for a plimsoll in a container without the host's
//! `/sys`. It reads only every few seconds.

use super::reports::{parse_amd_smi, parse_rocm_smi, without_colours};
use super::{GpuReport, ToolOutcome, ToolProcess, Tools, combine_reports};
use crate::capture::{BackendFacts, DeviceFacts, DeviceKind, MemorySample, ProcessMemory};
use crate::clock::{Clock, to_nanos};
use crate::telemetry::attribution::{self, Raw};
use crate::telemetry::{MemoryBackend, Reading, ReadingError, Wanted};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Shortest time between two calls of a tool, end to start.
const EVERY: Duration = Duration::from_secs(5);
/// Calling takes at most one fifth of the time.
const COST_FACTOR: u32 = 4;
/// A tool that takes longer is abandoned, not killed.
const PATIENCE: Duration = Duration::from_secs(30);

const ROCM_ARGUMENTS: &str = "--showmeminfo vram --showpower --showtemp --showuse --showmemuse --showclocks --showbus \
    --showproductname --showpids --json";

/// Reads GPUs through `amd-smi`, else `rocm-smi`.
pub struct ToolBackend {
    devices: Vec<DeviceFacts>,
    /// The tool's index of each device.
    numbers: Vec<u32>,
    readings: Receiver<ToolReading>,
    first: Option<ToolReading>,
    /// Dropping it ends the thread.
    _end: Sender<()>,
    proc: PathBuf,
    container_id: String,
    facts: BackendFacts,
}

struct ToolReading {
    at: Instant,
    gpus: Result<Vec<GpuReport>, String>,
}

#[derive(Clone)]
struct Tool {
    tools: Tools,
    name: &'static str,
    path: PathBuf,
}

/// Whether one of AMD's tools is installed.
pub fn is_installed(tools: &Tools) -> bool {
    Tool::installed(tools).is_some()
}

impl ToolBackend {
    /// Calls the tool once, then periodically on a thread. The error is a sentence.
    pub fn open(tools: &Tools, proc: &Path, container_id: &str) -> Result<ToolBackend, String> {
        let tool =
            Tool::installed(tools).ok_or("neither amd-smi nor rocm-smi is installed here")?;
        let first = tool.read_gpus();
        let gpus: Vec<&GpuReport> = match &first.gpus {
            Ok(gpus) => gpus
                .iter()
                .filter(|g| g.vram_used_bytes.is_some())
                .collect(),
            Err(why) => return Err(why.clone()),
        };
        if gpus.is_empty() {
            return Err(format!("{} reports the memory of no GPU", tool.name));
        }
        let facts = tool.static_facts();
        let devices = gpus
            .iter()
            .enumerate()
            .map(|(index, gpu)| {
                let mut known = (*gpu).clone();
                if let Some(more) = facts.iter().find(|f| f.gpu == gpu.gpu) {
                    known.fill_from(more.clone());
                }
                DeviceFacts {
                    index: index as u32,
                    kind: DeviceKind::Gpu,
                    id: known
                        .uuid
                        .or(known.bdf)
                        .unwrap_or_else(|| format!("GPU {}", gpu.gpu)),
                    name: known.name.unwrap_or_else(|| "AMD GPU".into()),
                    total_bytes: known.vram_total_bytes,
                    ..DeviceFacts::default()
                }
            })
            .collect();
        let numbers = gpus.iter().map(|g| g.gpu).collect();
        let (sender, readings) = channel();
        let (_end, ended) = channel::<()>();
        let name = tool.name;
        std::thread::Builder::new()
            .name("amd-tool".into())
            .spawn(move || {
                let mut wait = EVERY;
                while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    let start = Instant::now();
                    let reading = tool.read_gpus();
                    wait = EVERY.max(start.elapsed() * COST_FACTOR);
                    if sender.send(reading).is_err() {
                        return;
                    }
                }
            })
            .map_err(|e| format!("no thread for {name}: {e}"))?;
        Ok(ToolBackend {
            devices,
            numbers,
            readings,
            first: Some(first),
            _end,
            proc: proc.to_owned(),
            container_id: container_id.to_owned(),
            facts: BackendFacts {
                name: "amd".into(),
                version: Some(name.into()),
                simulated: false,
                reason: format!(
                    "the driver's files are not visible here, so {name} is asked every few seconds; which of the host's GPUs are the container's is unknown"
                ),
            },
        })
    }

    fn samples(&self, gpus: &[GpuReport], at_ns: i64, into: &mut Vec<MemorySample>) {
        for (device, number) in self.devices.iter().zip(&self.numbers) {
            let Some(gpu) = gpus.iter().find(|g| g.gpu == *number) else {
                continue;
            };
            let Some(used_bytes) = gpu.vram_used_bytes else {
                continue;
            };
            into.push(MemorySample {
                at_ns,
                device: device.index,
                used_bytes,
                processes: self.gpu_processes(gpu, device.total_bytes),
                ..gpu.gauges.clone()
            });
        }
    }

    fn gpu_processes(&self, gpu: &GpuReport, total: Option<u64>) -> Option<Vec<ProcessMemory>> {
        let listed = gpu.processes.as_ref()?;
        let raw: Vec<Raw> = listed.iter().map(|p| (p.pid, p.vram_bytes)).collect();
        let merged = attribution::merge_lists(&[raw], total.unwrap_or(u64::MAX))?;
        Some(attribution::identify_in(
            &self.proc,
            merged,
            &self.container_id,
        ))
    }
}

impl Tool {
    fn installed(tools: &Tools) -> Option<Tool> {
        ["amd-smi", "rocm-smi"].into_iter().find_map(|name| {
            Some(Tool {
                tools: tools.clone(),
                name,
                path: tools.find_tool(name)?,
            })
        })
    }

    fn read_gpus(&self) -> ToolReading {
        let gpus = if self.name == "amd-smi" {
            self.amd()
        } else {
            self.rocm()
        };
        ToolReading {
            at: Instant::now(),
            gpus,
        }
    }

    /// Standard output, first line of standard error, and the tool's own pid.
    fn run_tool(&self, arguments: &str) -> Result<(String, Option<String>, u32), String> {
        match self.tools.run_tool(&self.path, arguments, PATIENCE) {
            ToolOutcome::Text { text, error, pid } => Ok((text, error, pid)),
            ToolOutcome::Failed(why) | ToolOutcome::StillRunning(why) => Err(why),
        }
    }

    fn amd(&self) -> Result<Vec<GpuReport>, String> {
        let (text, error, _) = self.run_tool("metric --json")?;
        let mut gpus = parse_amd_smi(&text);
        if gpus.is_empty() {
            return Err(nothing(self.name, error, &text));
        }
        // Without a process list the memory is still valid.
        if let Ok((text, _, pid)) = self.run_tool("process --json") {
            combine_reports(&mut gpus, parse_amd_smi(&text));
            for gpu in &mut gpus {
                without(gpu.processes.as_mut(), pid);
            }
        }
        Ok(gpus)
    }

    fn rocm(&self) -> Result<Vec<GpuReport>, String> {
        let (text, error, pid) = self.run_tool(ROCM_ARGUMENTS)?;
        let mut reply = parse_rocm_smi(&text);
        // `rocm-smi` does not report the GPU of a process; with one GPU it is known.
        if let [only] = reply.gpus.as_mut_slice() {
            without(reply.processes.as_mut(), pid);
            only.processes = reply.processes;
        }
        if reply.gpus.is_empty() {
            return Err(nothing(self.name, error, &text));
        }
        Ok(reply.gpus)
    }

    /// Static facts: names and UUIDs.
    fn static_facts(&self) -> Vec<GpuReport> {
        let mut facts = Vec::new();
        if self.name == "amd-smi" {
            for arguments in ["list --json", "static --asic --bus --vram --json"] {
                if let Ok((text, ..)) = self.run_tool(arguments) {
                    combine_reports(&mut facts, parse_amd_smi(&text));
                }
            }
        }
        facts
    }
}

/// Removes the tool itself: older releases list their own process.
fn without(processes: Option<&mut Vec<ToolProcess>>, pid: u32) {
    if let Some(processes) = processes {
        processes.retain(|p| p.pid != pid);
    }
}

/// Why a tool's output contains no GPU, in its own words. Some print an error on standard output,
/// in colour.
fn nothing(name: &str, error: Option<String>, text: &str) -> String {
    let text = without_colours(text);
    let reply = error.or_else(|| {
        text.lines()
            .map(str::trim)
            .find(|l| !l.is_empty())
            .map(str::to_owned)
    });
    match reply {
        Some(reply) => format!("{name} gives no JSON with a GPU; its output: {reply}"),
        None => format!("{name} prints nothing"),
    }
}

impl MemoryBackend for ToolBackend {
    fn facts(&self) -> BackendFacts {
        self.facts.clone()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.devices.clone()
    }

    fn sample(&mut self, clock: &Clock, _wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        // Most ticks have no new reading, and repeating the last one would not be a measurement.
        let Some(reading) = self
            .first
            .take()
            .or_else(|| self.readings.try_iter().last())
        else {
            return Ok(());
        };
        match reading.gpus {
            Ok(gpus) => {
                let at_ns = clock.now() - to_nanos(reading.at.elapsed());
                self.samples(&gpus, at_ns, into);
                Ok(())
            }
            Err(why) => Err(ReadingError::Failed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn installed(name: &str, script: &str) -> (tempfile::TempDir, Tools) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let tools = Tools::in_directories(vec![dir.path().to_owned()]);
        (dir, tools)
    }

    fn open(tools: &Tools) -> Result<ToolBackend, String> {
        ToolBackend::open(tools, Path::new("/proc"), "")
    }

    #[test]
    fn amd_smi_alone_gives_memory_names_and_processes() {
        let me = std::process::id();
        let script = format!(
            r#"case "$1" in
metric) echo '{{"gpu_data":[{{"gpu":0,"mem_usage":{{"total_vram":{{"value":1000,"unit":"MB"}},"used_vram":{{"value":40,"unit":"MB"}}}},"power":{{"socket_power":{{"value":99,"unit":"W"}}}}}},{{"gpu":1,"mem_usage":"N/A"}}]}}';;
process) echo '[{{"gpu":0,"process_list":[{{"process_info":{{"name":"N/A","pid":{me},"mem_usage":{{"value":4096,"unit":"B"}}}}}},{{"process_info":{{"name":"amd-smi","pid":'$$',"mem_usage":{{"value":1,"unit":"B"}}}}}}]}}]';;
list) echo '[{{"gpu":0,"bdf":"0000:05:00.0","uuid":"00ff-1"}}]';;
static) echo '{{"gpu_data":[{{"gpu":0,"asic":{{"market_name":"AMD Instinct MI300X"}}}}]}}';;
esac"#
        );
        let (_dir, tools) = installed("amd-smi", &script);
        let mut backend = open(&tools).unwrap();
        let devices = backend.devices();
        assert_eq!(devices.len(), 1, "the other tells no memory");
        assert_eq!(
            (
                devices[0].id.as_str(),
                devices[0].name.as_str(),
                devices[0].total_bytes
            ),
            ("00ff-1", "AMD Instinct MI300X", Some(1000 << 20))
        );
        let clock = Clock::start();
        let mut samples = Vec::new();
        backend
            .sample(&clock, Wanted::default(), &mut samples)
            .unwrap();
        assert_eq!(samples.len(), 1);
        assert_eq!(
            (samples[0].used_bytes, samples[0].power_mw),
            (40 << 20, Some(99_000))
        );
        let processes = samples[0].processes.clone().unwrap();
        assert_eq!(
            processes.len(),
            1,
            "the tool itself is left out: {processes:?}"
        );
        assert_eq!(
            (processes[0].pid, processes[0].used_bytes, processes[0].ours),
            (me, Some(4096), None)
        );
        backend
            .sample(&clock, Wanted::default(), &mut samples)
            .unwrap();
        assert_eq!(samples.len(), 1, "nothing new");
    }

    #[test]
    fn rocm_smi_serves_where_it_is_alone() {
        let (_dir, tools) = installed(
            "rocm-smi",
            r#"echo '{"card0":{"VRAM Total Memory (B)":"1000","VRAM Total Used Memory (B)":"200","Card Series":"X"}}'"#,
        );
        let backend = open(&tools).unwrap();
        assert_eq!(backend.devices()[0].name, "X");
        assert_eq!(backend.facts().version.as_deref(), Some("rocm-smi"));
    }

    #[test]
    fn a_tool_that_cannot_is_quoted() {
        let none = Tools::in_directories(Vec::new());
        assert!(open(&none).err().unwrap().contains("neither"));
        for (script, reply) in [
            (
                "echo 'ERROR:root:Drivers not loaded' >&2; exit 255",
                "Drivers not loaded",
            ),
            (
                "printf '\\033[33mUnable to load the library.\\033[0m\\n'",
                "output: Unable to load",
            ),
            (
                "echo 'GPU: 0'; echo '    MEM_USAGE:'",
                "amd-smi gives no JSON with a GPU; its output: GPU: 0",
            ),
            ("true", "prints nothing"),
        ] {
            let (_dir, tools) = installed("amd-smi", script);
            let why = open(&tools).err().unwrap();
            assert!(why.contains(reply), "{why}");
        }
    }
}
