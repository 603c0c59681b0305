//! `plimsoll gpus`: the GPUs that are here, and facts about GPUs for planning.

use crate::capture::{BackendFacts, DeviceFacts, MemorySample};
use crate::catalog::{self, GpuModel};
use crate::cli::GpusArgs;
use crate::clock::Clock;
use crate::console::Console;
use crate::error::ExitCode;
use crate::telemetry::{self, Wanted};
use crate::units::Bytes;
use serde::Serialize;

/// What is here and what is known.
#[derive(Serialize)]
struct Gpus {
    /// The GPUs of this host.
    here: Vec<HostGpu>,
    /// Which backend reads them; null when none does.
    backend: Option<BackendFacts>,
    /// Why there are none, or why one could not be read.
    problem: Option<String>,
    /// Facts from data sheets.
    catalog: Vec<GpuModel>,
}

/// A GPU of this host.
#[derive(Serialize)]
struct HostGpu {
    #[serde(flatten)]
    device: DeviceFacts,
    /// Its memory just now; null when it could not be read.
    now: Option<MemorySample>,
    /// Its model, where the name leads to one.
    model: Option<GpuModel>,
}

pub fn run_gpus(console: &Console, args: &GpusArgs) -> anyhow::Result<ExitCode> {
    let gpus = look_at_host(catalog::load_gpus()?);
    console.show_document(args.json, &gpus, |_| render_text(&gpus))?;
    Ok(ExitCode::Done)
}

fn look_at_host(catalog: Vec<GpuModel>) -> Gpus {
    let mut backend = match telemetry::open_host() {
        Ok(backend) => backend,
        Err(failure) => {
            return Gpus {
                here: Vec::new(),
                backend: None,
                problem: Some(failure.message),
                catalog,
            };
        }
    };
    let mut samples = Vec::new();
    let wanted = Wanted {
        detail: true,
        bench_client: None,
    };
    let read = backend.sample(&Clock::start(), wanted, &mut samples);
    let here = backend
        .devices()
        .into_iter()
        .map(|device| HostGpu {
            now: samples.iter().find(|s| s.device == device.index).cloned(),
            model: catalog::model_of(&catalog, &device.name).cloned(),
            device,
        })
        .collect();
    Gpus {
        here,
        backend: Some(backend.facts()),
        problem: read.err().map(|e| e.to_string()),
        catalog,
    }
}

fn render_text(gpus: &Gpus) -> String {
    let mut out = String::from("here:\n");
    if gpus.here.is_empty() {
        let why = gpus.problem.as_deref().unwrap_or("no GPU");
        out.push_str(&format!("  none: {why}\n"));
    }
    for gpu in &gpus.here {
        let total = gpu
            .device
            .total_bytes
            .map_or("-".into(), |b| Bytes(b).to_string());
        let used = gpu.now.as_ref().map_or("could not be read".into(), |s| {
            format!("{} used", Bytes(s.used_bytes))
        });
        let bandwidth = gpu
            .model
            .as_ref()
            .map_or(String::new(), |m| format!(", {} GB/s", m.bandwidth_gb_s));
        out.push_str(&format!(
            "  {}  {} ({}): {total}, {used}{bandwidth}\n",
            gpu.device.index, gpu.device.name, gpu.device.id
        ));
    }
    if let Some(backend) = &gpus.backend {
        let simulated = if backend.simulated { ", SIMULATED" } else { "" };
        out.push_str(&format!(
            "  read by {} ({}{simulated}); {}\n",
            backend.name,
            backend.version.as_deref().unwrap_or("version unknown"),
            backend.reason
        ));
    }
    out.push_str("\nfor planning, as sold:\n");
    let width = gpus.catalog.iter().map(|m| m.name.len()).max().unwrap_or(0);
    for m in &gpus.catalog {
        out.push_str(&format!(
            "  {:<6}  {:<width$}  {:>4} GiB  {:>6} GB/s\n",
            m.vendor, m.name, m.memory_gib, m.bandwidth_gb_s
        ));
    }
    out
}
