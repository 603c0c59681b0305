//! The document of `clean --json`: every verdict, with the facts that it was made of.

use super::apply::ActOutcome;
use super::facts::{ContainerLook, DeviceLook, ProcessLook, Survey, total_bytes};
use super::scope::is_of;
use super::verdict::{CleanRequest, CleanVerdict, VerdictSubject, named_ids};
use crate::container::written::quoted;
use crate::profile::MemoryGauge;
use serde::Serialize;

/// Version of the document; it grows by keys, and changes its number when one changes its meaning.
pub const VERSION: u32 = 1;

/// What a look found and what follows of it.
#[derive(Debug, Serialize)]
pub struct CleanDocument<'a> {
    /// `clean`.
    pub document: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// When was looked, RFC 3339.
    pub at: &'a str,
    /// The GPU of which the largest share is in use; null where none has a known size.
    pub fullest_device: Option<MemoryGauge>,
    /// Whether any of the devices is a simulated one: its figures say nothing about hardware.
    pub simulated: bool,
    /// True where the verdicts were to be carried out; false for a dry run.
    pub applied: bool,
    /// The command that does what is listed: the one that was given, with `--apply`.
    pub apply_command: String,
    /// Everything that was judged, kept or not.
    pub verdicts: Vec<VerdictEntry<'a>>,
    /// Result of each act; empty unless applied.
    pub outcomes: &'a [ActOutcome],
    /// What could not be looked at, a sentence each.
    pub blind: &'a [String],
}

impl<'a> CleanDocument<'a> {
    /// The document of one look.
    pub fn new(
        survey: &'a Survey,
        ask: &CleanRequest,
        verdicts: &'a [CleanVerdict],
        outcomes: Option<&'a [ActOutcome]>,
    ) -> Self {
        let named = named_ids(survey, ask);
        CleanDocument {
            document: "clean",
            version: VERSION,
            fullest_device: MemoryGauge::fullest_of(survey.devices.iter().filter_map(device_gauge)),
            at: &survey.at,
            simulated: has_simulated_device(survey),
            applied: outcomes.is_some(),
            apply_command: apply_command(ask),
            verdicts: verdicts
                .iter()
                .map(|verdict| {
                    let evidence = evidence_for(survey, &verdict.of);
                    VerdictEntry {
                        verdict,
                        named: is_of(&named, verdict),
                        gpu_bytes: evidence.and_then(Evidence::gpu_bytes),
                        evidence,
                    }
                })
                .collect(),
            outcomes: outcomes.unwrap_or_default(),
            blind: &survey.blind,
        }
    }
}

/// A verdict with its evidence.
#[derive(Debug, Serialize)]
pub struct VerdictEntry<'a> {
    /// What was decided.
    #[serde(flatten)]
    pub verdict: &'a CleanVerdict,
    /// Whether the user named it.
    pub named: bool,
    /// GPU memory it is about, bytes over all devices; null where that is not known.
    pub gpu_bytes: Option<u64>,
    /// The facts; null where what it is of was gone.
    pub evidence: Option<Evidence<'a>>,
}

/// The facts of what a verdict is of.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence<'a> {
    /// A container.
    Container(&'a ContainerLook),
    /// A process.
    Process(&'a ProcessLook),
    /// A GPU.
    Device(&'a DeviceLook),
}

impl Evidence<'_> {
    /// GPU memory that the verdict is about, bytes over all devices: what a container or a process
    /// holds, and on a device the bytes that no listed process holds.
    pub fn gpu_bytes(self) -> Option<u64> {
        match self {
            Evidence::Container(c) => c.gpu_bytes.as_ref().map(total_bytes),
            Evidence::Process(p) => (!p.gpu_bytes.is_empty()).then(|| total_bytes(&p.gpu_bytes)),
            Evidence::Device(d) => d.unlisted_bytes,
        }
    }
}

/// The facts that a survey has of something.
pub fn evidence_for<'a>(survey: &'a Survey, of: &VerdictSubject) -> Option<Evidence<'a>> {
    match of {
        VerdictSubject::Container(id) => (survey.containers.iter())
            .find(|c| c.id == *id)
            .map(Evidence::Container),
        VerdictSubject::Process(pid, started) => all_processes(survey)
            .find(|p| p.pid == *pid && p.started == *started)
            .map(Evidence::Process),
        VerdictSubject::Device(id) => (survey.devices.iter())
            .find(|d| d.id == *id)
            .map(Evidence::Device),
    }
}

fn apply_command(ask: &CleanRequest) -> String {
    // A bound name has Docker's slash.
    let names = ask.names.iter().map(|n| n.trim_start_matches('/').into());
    let labels = ask.labels.iter().map(|l| format!("--label={l}"));
    let images = ask.images.iter().map(|i| format!("--image={i}"));
    let all_gpu = ask.all_gpu.then(|| "--all-gpu-containers".into());
    let idle = (ask.idle).map(|time| format!("--idle={}s", time.as_secs_f64()));
    let words = names.chain(labels).chain(images).chain(all_gpu).chain(idle);
    let words: String = words.map(|word| quoted(&word) + " ").collect();
    format!("plimsoll clean {words}--apply")
}

/// How full a GPU is now.
fn device_gauge(device: &DeviceLook) -> Option<MemoryGauge> {
    Some(MemoryGauge {
        label: device.name.clone(),
        used_bytes: device.used_bytes?,
        total_bytes: device.total_bytes?,
        ..MemoryGauge::default()
    })
}

/// Whether any device is a simulated one.
pub fn has_simulated_device(survey: &Survey) -> bool {
    survey.devices.iter().any(|d| d.simulated)
}

fn all_processes(survey: &Survey) -> impl Iterator<Item = &ProcessLook> {
    let inside = survey
        .containers
        .iter()
        .flat_map(|c| &c.processes)
        .flatten();
    let holders = survey.devices.iter().flat_map(|d| &d.open_by);
    survey.strays.iter().chain(inside).chain(holders)
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
