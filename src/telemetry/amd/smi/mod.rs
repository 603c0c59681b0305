//! AMD's command-line tools: their JSON output (of `amd-smi` as ROCm 5.7 to 7.x and its releases 26 and 10 write it, of `rocm-smi` 1.4 to 6.x), and how they are
//! run. Tables for people and comma-separated forms are not read: every release that is read has `--json`.
//! A call takes a second and more, so nothing here is for the fast loop.

mod backend;
pub mod reports;
mod run;
pub mod shapes;

pub use backend::{ToolBackend, is_installed};
pub use run::{ToolOutcome, Tools};

use crate::capture::MemorySample;

/// A tool's report of one GPU; `None` for what it does not report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuReport {
    /// The tool's own number of the GPU; not the number of its card.
    pub gpu: u32,
    /// PCI address, lower case.
    pub bdf: Option<String>,
    /// The tool's UUID.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Memory in all, bytes.
    pub vram_total_bytes: Option<u64>,
    /// Memory in use, bytes.
    pub vram_used_bytes: Option<u64>,
    /// Power, temperatures, clocks and utilisation.
    pub gauges: MemorySample,
    /// Processes on it; `None` where the tool reports no list, empty where it reports that there
    /// are none.
    pub processes: Option<Vec<ToolProcess>>,
}

/// A process, as a tool lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolProcess {
    /// Pid.
    pub pid: u32,
    /// Its memory on this GPU, bytes, as the tool writes it: releases without the figure write 0.
    pub vram_bytes: Option<u64>,
}

impl GpuReport {
    /// Takes over the values that are not known yet.
    pub fn fill_from(&mut self, other: GpuReport) {
        macro_rules! fill {
            ($($field:ident),*) => { $(self.$field = self.$field.take().or(other.$field);)* };
        }
        fill!(
            bdf,
            uuid,
            name,
            vram_total_bytes,
            vram_used_bytes,
            processes
        );
        self.gauges.fill_gauges(&other.gauges);
    }
}

/// Adds what another call of the tool reported to the reports of the same GPUs.
pub fn combine_reports(into: &mut Vec<GpuReport>, more: Vec<GpuReport>) {
    for report in more {
        match into.iter_mut().find(|known| known.gpu == report.gpu) {
            Some(known) => known.fill_from(report),
            None => into.push(report),
        }
    }
    into.sort_by_key(|r| r.gpu);
}
