//! The GPU that is planned for: by name, by its size, or the one that is here.

use super::launched::find_container;
use crate::capture::{DeviceFacts, MemorySample};
use crate::catalog::{self, GpuModel, UnknownGpu};
use crate::cli::EstimateArgs;
use crate::clock::Clock;
use crate::error::Failure;
use crate::estimate::Gpu;
use crate::preset::GpuRequest;
use crate::telemetry::{self, Wanted};
use crate::units::{Bytes, GIB};

/// Share of the memory as sold that is planned with where what a driver reports is not known.
const PLANNED: f64 = 0.98;
/// A driver's total for all of the board is less than this many times what programs can see of it.
const BOARD: f64 = 1.03;

/// The GPU that the flags name, and notes on it.
pub fn of(
    args: &EstimateArgs,
    count: u64,
    request: &GpuRequest,
) -> Result<(Option<Gpu>, Vec<String>), Failure> {
    let mut notes = Vec::new();
    let mut gpu = match (args.gpu.as_deref(), args.gpu_memory) {
        (None, None) => None,
        (None, Some(memory)) => Some(Gpu {
            name: format!("GPU of {memory}"),
            total: memory.0,
            in_use: 0,
        }),
        (Some("detected"), memory) => {
            // What it holds itself is free again when it starts anew.
            let own = match &args.container {
                Some(name) => Some(find_container(name)?.facts.id),
                None => None,
            };
            let mut gpu = detected(count, request, own.as_deref())?;
            gpu.total = memory.map_or(gpu.total, |m| m.0);
            Some(gpu)
        }
        (Some(name), Some(memory)) => Some(Gpu {
            name: catalog::find_gpu(name)
                .map_or(name, |k| k.name.as_str())
                .to_owned(),
            total: memory.0,
            in_use: 0,
        }),
        (Some(name), None) => {
            let (known, note) =
                catalog::resolve_gpu(name).map_err(|unknown| refused(name, unknown))?;
            notes.extend(note);
            if known.reported_gib.is_none() {
                notes.push(format!(
                    "what the driver of {} reports is not known: {} % of its {} GiB are planned with",
                    known.name,
                    PLANNED * 100.0,
                    known.memory_gib
                ));
            }
            notes.extend(known.shares_host.map(|shared| match shared.idle {
                Some(idle) => format!(
                    "{} shares its memory with the host: {idle} GiB count as in use by the operating system, as measured on one",
                    known.name
                ),
                None => format!(
                    "{} shares its memory with the host: the operating system's part is unknown",
                    known.name
                ),
            }));
            Some(planned(known))
        }
    };
    let here = args.gpu.as_deref() == Some("detected");
    for other in neighbours(args)? {
        let Some(gpu) = &mut gpu else { break };
        // What runs here is counted already.
        if other.is_size || !here {
            gpu.in_use = gpu.in_use.saturating_add(other.bytes).min(gpu.total);
        }
    }
    Ok((gpu, notes))
}

/// What is on the same GPU, by `--beside`.
pub struct Neighbour {
    /// As it was named.
    pub name: String,
    /// Bytes of a GPU.
    pub bytes: u64,
    /// It was named by its size.
    pub is_size: bool,
}

/// All that `--beside` names.
///
/// # Errors
/// A container that is not there, or holds no memory of a GPU.
pub fn neighbours(args: &EstimateArgs) -> Result<Vec<Neighbour>, Failure> {
    let read = |word: &String| {
        let (bytes, is_size) = match word.parse::<Bytes>() {
            Ok(size) if size.0 < 1 << 20 => {
                let message = format!("--beside {word}: less than 1 MiB; a bare number is bytes");
                return Err(Failure::usage(message).hint(format!("--beside {word}GiB?")));
            }
            Ok(size) => (size.0, true),
            Err(_) => (held_by(word)?, false),
        };
        Ok(Neighbour {
            name: word.clone(),
            bytes,
            is_size,
        })
    };
    args.beside.iter().map(read).collect()
}

/// What a container holds of the GPU of which it holds most.
fn held_by(name: &str) -> Result<u64, Failure> {
    let id = find_container(name)?.facts.id;
    let (_, samples) = read_devices()?;
    let held = samples.iter().filter_map(|s| owned(s, &id)).max();
    held.filter(|bytes| *bytes > 0).ok_or_else(|| {
        Failure::usage(format!(
            "no GPU memory of container `{name}` can be seen from here"
        ))
        .hint("say how much it takes, as in --beside 4GiB")
    })
}

fn owned(sample: &MemorySample, container: &str) -> Option<u64> {
    let owners = sample.memory_owners()?;
    owners.containers.get(container).copied()
}

/// A model of the catalogue, with what its driver reports.
pub fn planned(known: &GpuModel) -> Gpu {
    let gib = known.reported_gib.unwrap_or(known.memory_gib * PLANNED);
    Gpu {
        name: known.name.clone(),
        total: (gib * GIB) as u64,
        in_use: (known.shares_host.and_then(|s| s.idle).unwrap_or(0.0) * GIB) as u64,
    }
}

/// The failure for a name that leads to no GPU.
fn refused(name: &str, unknown: UnknownGpu) -> Failure {
    let failure = Failure::usage(unknown.what);
    let failure = unknown.hint.into_iter().fold(failure, Failure::hint);
    if catalog::counted_name(name).is_some() {
        return failure;
    }
    failure
        .hint("`plimsoll gpus` lists those that are known")
        .hint(format!(
            "or plan with another size, what its driver reports: --gpu \"{name}\" --gpu-memory SIZE"
        ))
}

/// The GPUs of this host that are asked for: the first `count` of them, by the one that has least left.
/// What the container `own` holds is not in use.
fn detected(count: u64, request: &GpuRequest, own: Option<&str>) -> Result<Gpu, Failure> {
    let (mut devices, samples) = read_devices()?;
    if let GpuRequest::Ids(ids) = request {
        let named = |device: &DeviceFacts| {
            let index = device.index.to_string();
            let is =
                |id: &String| *id == index || id.len() > 4 && device.id.starts_with(id.as_str());
            ids.iter().any(is)
        };
        devices.retain(named);
    }
    if (devices.len() as u64) < count {
        return Err(Failure::usage(format!(
            "{count} GPUs are asked for, and {} are here",
            devices.len()
        ))
        .hint("name the GPU to plan for: --gpu H100"));
    }
    let here = devices.iter().take(count.max(1) as usize).filter_map(|d| {
        let sample = samples.iter().find(|s| s.device == d.index)?;
        let own = own.and_then(|id| owned(sample, id)).unwrap_or(0);
        let used = sample.used_bytes.saturating_sub(own);
        let total = visible(&d.name, d.total_bytes?);
        Some(Gpu {
            name: d.name.clone(),
            total,
            in_use: used.min(total),
        })
    });
    here.min_by_key(|g| g.total.saturating_sub(g.in_use))
        .ok_or_else(|| {
            Failure::environment("the memory of this host's GPU is not known")
                .hint("give --gpu-memory")
        })
}

/// The GPUs of this host as they are now, with who holds what.
fn read_devices() -> Result<(Vec<DeviceFacts>, Vec<MemorySample>), Failure> {
    let mut backend =
        telemetry::open_host().map_err(|f| f.hint("name the GPU to plan for: --gpu H100"))?;
    let mut samples = Vec::new();
    let wanted = Wanted {
        detail: true,
        bench_client: None,
    };
    backend
        .sample(&Clock::start(), wanted, &mut samples)
        .map_err(|e| Failure::environment("the GPUs of this host cannot be read").caused_by(e))?;
    Ok((backend.devices(), samples))
}

/// What programs can see of a GPU whose driver reports the whole board: a little less, where that
/// is known. A slice has a total of its own.
fn visible(name: &str, total: u64) -> u64 {
    let known = catalog::model_of(name).and_then(|m| m.reported_gib);
    let Some(known) = known.map(|gib| gib * GIB) else {
        return total;
    };
    if (known..known * BOARD).contains(&(total as f64)) {
        known as u64
    } else {
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_planned_with_what_programs_see_of_it() {
        let gib = |g: f64| (g * GIB) as u64;
        let h100 = visible("NVIDIA H100 80GB HBM3", 81_559 << 20);
        assert_eq!(h100, gib(79.18));
        // Half of it is a slice.
        assert_eq!(visible("NVIDIA H100 80GB HBM3", 40 << 30), 40 << 30);
        assert_eq!(visible("Voodoo 2", 12 << 20), 12 << 20);
    }
}
