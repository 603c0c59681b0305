//! Runs the CUDA graph probe of TensorRT-LLM in a container: one engine in one process, with the
//! container's memory sampled meanwhile.

use super::StopSignal;
use crate::capture::{DeviceKind, ExecEnd, MemorySample, RunEnd, Stream};
use crate::clock::Clock;
use crate::compare::graph_report::{ArmOutcome, HostMemory, ProbeError, ProbeResult};
use crate::container::Runtime;
use crate::container::exec::ExecRequest;
use crate::container::inspect::InspectedContainer;
use crate::container::leftovers::run_folder;
use crate::engine::cuda_graphs::GraphCounter;
use crate::error::Failure;
use crate::redact::KeyBlock;
use crate::telemetry::{MemoryBackend, MemorySampler, SamplerOptions};
use std::collections::BTreeMap;
use std::time::Duration;

/// The script that runs in the container.
const SCRIPT: &str = include_str!("../../scripts/probes/trtllm_cuda_graphs.py");
const SCRIPT_NAME: &str = "trtllm_cuda_graphs.py";
/// Maximum size of its result: counts, figures, and up to 512 keys.
const RESULT_LIMIT: usize = 4 << 20;
/// Maximum size of the output that is kept, bytes.
const OUTPUT_LIMIT: usize = 8 << 20;
/// Marks the lines in which the probe reports its phase to the host.
const MARK: &str = "plimsoll-probe: ";
/// The probe waits half a second after a mark; memory is read within this time.
const LEVEL_NS: i64 = 400_000_000;

/// One arm to run.
#[derive(Debug, Clone)]
pub struct ProbeJob {
    /// Id of the run.
    pub run_id: String,
    /// Path or id of the model.
    pub model_path: String,
    /// Largest batch size with captured graphs.
    pub max_batch_size: u32,
    /// Longest draft, in tokens.
    pub max_draft_len: u32,
    /// Longest sequence, in tokens.
    pub max_seq_len: u32,
    /// The arm's setting.
    pub max_concurrency: Option<u32>,
    /// Maximum duration.
    pub deadline: Duration,
    /// Sampling interval.
    pub interval: Duration,
}

impl ProbeJob {
    fn argv(&self, folder: &str) -> Vec<String> {
        let mut argv: Vec<String> = vec![
            "python3".into(),
            format!("{folder}/{SCRIPT_NAME}"),
            format!("--model-path={}", self.model_path),
            format!("--max-batch-size={}", self.max_batch_size),
            format!("--max-draft-len={}", self.max_draft_len),
            format!("--max-seq-len={}", self.max_seq_len),
            format!("--output={folder}/result.json"),
        ];
        argv.extend(
            self.max_concurrency
                .map(|n| format!("--max-concurrency={n}")),
        );
        argv
    }
}

/// Result of an arm, and its redacted output.
pub struct Probed {
    /// Its figures, or the reason there are none.
    pub outcome: ArmOutcome,
    /// Its output, 8 MiB at most.
    pub output: String,
}

/// Runs one arm. `Err` if there is no result at all: no Python, no container, interrupted. Errors
/// of the engine itself are in the outcome.
pub async fn probe_graphs(
    runtime: &Runtime,
    found: &InspectedContainer,
    job: &ProbeJob,
    memory: Option<Box<dyn MemoryBackend>>,
    clock: &Clock,
    stop: &StopSignal,
) -> Result<Probed, Failure> {
    let id = &found.facts.id;
    let folder = run_folder(&job.run_id);
    runtime.make_dir(id, &folder).await?;
    let run = async {
        let script = format!("{folder}/{SCRIPT_NAME}");
        runtime
            .write_file(id, &script, SCRIPT.as_bytes(), false)
            .await?;
        let redactor = found.secrets.redactor();
        let host = memory
            .map(|backend| MemoryWatch::start(backend, clock, job.interval))
            .transpose()?;
        let request = ExecRequest {
            argv: job.argv(&folder),
            env: BTreeMap::from([
                // The lines about graphs have this level.
                ("TLLM_LOG_LEVEL".to_owned(), "info".to_owned()),
                // Keeps the engine in the probe's own process, where its structures can be read.
                ("TLLM_WORKER_USE_SINGLE_PROCESS".to_owned(), "1".to_owned()),
                ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
                ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
            ]),
            run_id: job.run_id.clone(),
            deadline: Some(job.deadline),
            ..Default::default()
        };
        let mut graphs = GraphCounter::default();
        let mut output = String::new();
        let mut last_words = None;
        let mut key = KeyBlock::default();
        let mut marks: BTreeMap<String, i64> = BTreeMap::new();
        let sink = |stream, line: String| {
            if let Some(mark) = line.trim().strip_prefix(MARK) {
                marks.insert(mark.to_owned(), clock.now());
                if let Some(watch) = &host {
                    watch.sampler.handle().mark_edge();
                }
            }
            graphs.line(&line);
            let line = key.filter_line(&line, redactor.redact_text(&line));
            if stream == Stream::Stderr && !line.trim().is_empty() {
                last_words = Some(line.trim().chars().take(500).collect::<String>());
            }
            if output.len() + line.len() < OUTPUT_LIMIT {
                output.push_str(&line);
                output.push('\n');
            }
        };
        let result = runtime
            .run_exec(&found.facts.id, request, stop.token(), sink)
            .await;
        let host = host.and_then(|watch| watch.end(&marks));
        let end = result?.end;
        if end == ExecEnd::Deadline {
            stop.stop_because(RunEnd::Deadline);
            return Err(Failure::run(format!(
                "TensorRT-LLM did not come up within {} s",
                job.deadline.as_secs()
            ))
            .hint("give it longer with --timeout"));
        }
        if end == ExecEnd::Cancelled {
            return Err(stop.stop_failure());
        }
        if let ExecEnd::NotFound(message) = &end {
            return Err(Failure::environment(format!(
                "there is no `python3` in the image `{}`: {message}",
                found.facts.image
            ))
            .hint("name a container of a TensorRT-LLM image"));
        }
        let path = format!("{folder}/result.json");
        let written = match end {
            ExecEnd::ContainerGone => None,
            _ => {
                runtime
                    .read_file(&found.facts.id, &path, RESULT_LIMIT)
                    .await?
            }
        };
        let mut probe = written
            .and_then(|bytes| {
                let text = redactor
                    .redact_text(&String::from_utf8_lossy(&bytes))
                    .into_owned();
                serde_json::from_str::<ProbeResult>(&text).ok()
            })
            .unwrap_or_default();
        if probe.memory_after.is_none() && probe.error.is_none() {
            probe.error = Some(unwritten(&end, last_words));
        }
        Ok(Probed {
            outcome: ArmOutcome {
                max_concurrency: job.max_concurrency,
                probe,
                log: graphs.finish(u64::from(job.max_draft_len)),
                host,
            },
            output,
        })
    };
    let probed = run.await;
    runtime.remove_dir(id, &folder).await;
    probed
}

/// Why the probe wrote no result.
fn unwritten(end: &ExecEnd, last_words: Option<String>) -> ProbeError {
    let output = last_words.map(|w| format!(": {w}")).unwrap_or_default();
    let (kind, message) = match end {
        ExecEnd::Exited(137) => (
            "out_of_memory",
            format!(
                "the probe {}: out of memory is the usual reason",
                super::ending::KILLED
            ),
        ),
        ExecEnd::ContainerGone => ("failed", "the container ended while the probe ran".into()),
        ExecEnd::Exited(code) => ("failed", format!("the probe ended with {code}{output}")),
        _ => (
            "failed",
            format!("the probe's exit status is unknown{output}"),
        ),
    };
    ProbeError {
        kind: kind.into(),
        message,
    }
}

/// The container's memory while the probe runs.
struct MemoryWatch {
    sampler: MemorySampler,
    samples: std::thread::JoinHandle<Vec<MemorySample>>,
    gpu: bool,
}

impl MemoryWatch {
    fn start(
        backend: Box<dyn MemoryBackend>,
        clock: &Clock,
        interval: Duration,
    ) -> Result<MemoryWatch, Failure> {
        let devices = backend.devices();
        let gpus = devices.iter().filter(|d| d.kind == DeviceKind::Gpu).count();
        // Host memory is not part of the sum of GPUs.
        let counted = if gpus > 0 { gpus } else { devices.len() };
        let options = SamplerOptions {
            interval,
            ..SamplerOptions::default()
        };
        let (sampler, samples) = MemorySampler::start_thread(backend, clock, options)?;
        let samples = std::thread::Builder::new()
            .name("samples".into())
            .spawn(move || {
                let samples = samples.iter().flatten();
                let counted = samples.filter(|s| (s.device as usize) < counted);
                counted.map(thin).collect()
            })
            .map_err(|e| Failure::environment("cannot start a thread").caused_by(e))?;
        Ok(MemoryWatch {
            sampler,
            samples,
            gpu: gpus > 0,
        })
    }

    fn end(self, marks: &BTreeMap<String, i64>) -> Option<HostMemory> {
        let backend = self.sampler.stop_thread().backend.name;
        let samples = self.samples.join().ok()?;
        let (before, after) = (*marks.get("before")?, *marks.get("after")?);
        Some(HostMemory {
            backend,
            gpu: self.gpu,
            before_bytes: level(&samples, before)?,
            after_bytes: level(&samples, after)?,
            peak_bytes: peak(&samples, before, after + LEVEL_NS)?,
        })
    }
}

/// Drops a sample's process list, to save memory in a long run.
fn thin(mut sample: MemorySample) -> MemorySample {
    sample.processes = None;
    sample
}

/// Sum over the devices of their usage shortly after a mark.
fn level(samples: &[MemorySample], mark: i64) -> Option<u64> {
    let mut devices: BTreeMap<u32, u64> = BTreeMap::new();
    for s in samples.iter().filter(|s| s.at_ns <= mark + LEVEL_NS) {
        devices.insert(s.device, s.used_bytes);
    }
    devices.into_values().reduce(u64::saturating_add)
}

/// Sum over the devices of their peaks.
fn peak(samples: &[MemorySample], from: i64, to: i64) -> Option<u64> {
    let mut devices: BTreeMap<u32, u64> = BTreeMap::new();
    for s in samples.iter().filter(|s| (from..=to).contains(&s.at_ns)) {
        let highest = devices.entry(s.device).or_insert(0);
        *highest = (*highest).max(s.used_bytes);
    }
    devices.into_values().reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_that_were_read_at_the_marks() {
        let sample = |ms: i64, device, used_bytes| MemorySample {
            at_ns: ms * 1_000_000,
            device,
            used_bytes,
            ..MemorySample::default()
        };
        let samples = [
            sample(0, 0, 10),
            sample(0, 1, 1),
            sample(1_000, 0, 20),
            sample(5_000, 0, 90),
            sample(9_000, 0, 50),
            sample(9_000, 1, 2),
            sample(20_000, 0, 5),
        ];
        let mark = |ms: i64| ms * 1_000_000;
        assert_eq!(level(&samples, mark(900)), Some(21));
        assert_eq!(level(&samples, mark(8_900)), Some(52));
        assert_eq!(peak(&samples, mark(900), mark(9_300)), Some(92));
        assert_eq!(level(&[], 0), None);
    }

    #[test]
    fn the_first_arm_has_no_concurrency() {
        let mut job = ProbeJob {
            run_id: "r".into(),
            model_path: "/m".into(),
            max_batch_size: 32,
            max_draft_len: 4,
            max_seq_len: 2048,
            max_concurrency: None,
            deadline: Duration::from_secs(1),
            interval: Duration::from_millis(100),
        };
        let words = |job: &ProbeJob| job.argv("/tmp/r").join(" ");
        assert!(!words(&job).contains("concurrency"));
        job.max_concurrency = Some(16);
        assert!(words(&job).ends_with("--max-concurrency=16"));
        assert!(words(&job).starts_with("python3 /tmp/r/trtllm_cuda_graphs.py --model-path=/m "));
    }
}
