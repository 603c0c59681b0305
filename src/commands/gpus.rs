//! `plimsoll gpus`: the GPUs that are here, and facts about GPUs for planning.

use crate::capture::{BackendFacts, DeviceFacts, MemorySample};
use crate::catalog::{self, GpuModel};
use crate::cli::GpusArgs;
use crate::clock::Clock;
use crate::console::Console;
use crate::error::ExitCode;
use crate::report::layout::Align;
use crate::report::page::TextOptions;
use crate::report::page::{ColumnFit, StyledCell, TextPage, TextTable};
use crate::telemetry::{self, MemoryBackend, Wanted};
use crate::units::Bytes;
use anstyle::{AnsiColor, Style};
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
    catalog: &'static [GpuModel],
}

/// A GPU of this host.
#[derive(Serialize)]
struct HostGpu {
    #[serde(flatten)]
    device: DeviceFacts,
    /// Its memory just now; null when it could not be read.
    now: Option<MemorySample>,
    /// Its model, where the name leads to one; null for a slice, which is a part of it.
    model: Option<&'static GpuModel>,
    /// What it is split into (MIG), in the driver's order.
    slices: Vec<HostGpu>,
}

pub fn run_gpus(console: &Console, args: &GpusArgs) -> anyhow::Result<ExitCode> {
    let gpus = look_at_host();
    console.show_page(args.json, &gpus, |_| {
        render_text(&gpus, console.page_options())
    })?;
    Ok(ExitCode::Done)
}

fn look_at_host() -> Gpus {
    let catalog = catalog::shipped_gpus();
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
    let (mut here, mut problem) = read_devices(backend.as_mut());
    for gpu in &mut here {
        gpu.model = catalog::model_of(&gpu.device.name);
    }
    if let Some(mut slices) = telemetry::open_slices() {
        let (slices, unread) = read_devices(slices.as_mut());
        problem = problem.or(unread);
        for slice in slices {
            let address = &slice.device.pci_address;
            if let Some(gpu) = here.iter_mut().find(|g| g.device.pci_address == *address) {
                gpu.slices.push(slice);
            }
        }
    }
    Gpus {
        here,
        backend: Some(backend.facts()),
        problem,
        catalog,
    }
}

/// The devices of a backend as they are now, and why one could not be read.
fn read_devices(backend: &mut dyn MemoryBackend) -> (Vec<HostGpu>, Option<String>) {
    let mut samples = Vec::new();
    let wanted = Wanted {
        detail: true,
        bench_client: None,
    };
    let read = backend.sample(&Clock::start(), wanted, &mut samples);
    let devices = backend.devices().into_iter().map(|device| HostGpu {
        now: samples.iter().find(|s| s.device == device.index).cloned(),
        model: None,
        slices: Vec::new(),
        device,
    });
    (devices.collect(), read.err().map(|e| e.to_string()))
}

fn render_text(gpus: &Gpus, options: TextOptions) -> String {
    let (title, bad) = (Style::new().bold(), AnsiColor::Yellow.on_default());
    let mut page = TextPage::new(options);
    page.write_styled(title, "this host:");
    if gpus.here.is_empty() {
        let why = gpus.problem.as_deref().unwrap_or("no GPU");
        page.write_styled(bad, &format!("  none: {why}"));
    }
    let with_slices = (gpus.here.iter()).flat_map(|gpu| std::iter::once(gpu).chain(&gpu.slices));
    for gpu in with_slices {
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
        // A slice is listed below its GPU; containers do not use its number.
        let number = match gpu.device.id.starts_with("MIG-") {
            true => "  ".to_owned(),
            false => gpu.device.index.to_string(),
        };
        page.write_line(&format!(
            "  {number}  {} ({}): {total}, {used}{bandwidth}",
            gpu.device.name, gpu.device.id
        ));
    }
    if let Some(backend) = &gpus.backend {
        let simulated = if backend.simulated { ", SIMULATED" } else { "" };
        let style = if backend.simulated { bad } else { Style::new() };
        page.write_styled(
            style,
            &format!(
                "  read by {} ({}{simulated}); {}",
                backend.name,
                backend.version.as_deref().unwrap_or("version unknown"),
                backend.reason
            ),
        );
    }
    page.write_line("");
    page.write_styled(title, "GPU catalogue (vendor specs):");
    let mut table = TextTable::new([
        ("", Align::Left, ColumnFit::Whole),
        ("", Align::Left, ColumnFit::Wrap),
        ("", Align::Right, ColumnFit::Whole),
        ("", Align::Right, ColumnFit::Whole),
    ]);
    for m in gpus.catalog {
        table.add_row(vec![
            StyledCell::new(m.vendor.to_string(), Style::new().dimmed()),
            (&m.name).into(),
            format!("{} GiB", m.memory_gib).into(),
            format!("{} GB/s", m.bandwidth_gb_s).into(),
        ]);
    }
    page.write_table(2, &table);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::assert_fits;

    #[test]
    fn the_page_fits_every_terminal() {
        let gpus = Gpus {
            here: Vec::new(),
            backend: None,
            problem: Some("no GPU can be read: a libloading error occurred: /nowhere/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1: cannot open shared object file: No such file or directory".into()),
            catalog: catalog::shipped_gpus(),
        };
        assert_fits(|options| render_text(&gpus, options));
    }
}
