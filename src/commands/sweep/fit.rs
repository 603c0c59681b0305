//! Whether the engine of each group fits on the GPUs that it would be given: what is known of its
//! model, and of the GPUs, for the estimate.

use crate::capture::{DeviceFacts, DeviceKind};
use crate::collect::{self, AttachedEngine, StopSignal};
use crate::commands::estimate::model::{self, Loaded};
use crate::container::Runtime;
use crate::engine::EngineId;
use crate::estimate::model::{Flags, from_flags};
use crate::estimate::question::{Answer, Verdict};
use crate::estimate::{Gpu, weights, with_weights};
use crate::matrix::{self, CellGroup, EnginePlace, GroupId, ServerConfig, SweepPlan};
use crate::preset::{GpuRequest, Preset};
use crate::telemetry::{self, BackendChoice, MeasuredContainer, MemoryBackend};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

/// Why it is not known, a sentence.
type Unclear = String;

/// A place as it was looked at: its engine, its GPUs, the largest first, and how many `gpus` gives it, where it says so.
type Looked = Result<(EngineId, Vec<Gpu>, Option<u64>), Unclear>;

/// Asks the estimate for every group. `runtime`: the daemon, where it answers. Never fails: an
/// unknown answer has its reason in its place.
pub async fn ask_estimates(
    plan: &SweepPlan,
    runtime: Option<&Runtime>,
    choice: BackendChoice,
    stop: &StopSignal,
) -> BTreeMap<GroupId, Verdict> {
    let mut places: Vec<(&EnginePlace, Option<&String>, Looked)> = Vec::new();
    let mut models: HashMap<String, Rc<Result<Loaded, Unclear>>> = HashMap::new();
    let mut verdicts = BTreeMap::new();
    for group in &plan.groups {
        if stop.stop_reason().is_some() {
            break;
        }
        let server = &*group.server;
        let named = server.engine.as_ref();
        let known = places
            .iter()
            .rposition(|(p, n, _)| **p == server.place && *n == named);
        let at = match known {
            Some(at) => at,
            None => {
                let looked = look_at_place(group, runtime, choice, stop).await;
                places.push((&server.place, named, looked));
                places.len() - 1
            }
        };
        let looked = &places[at].2;
        let verdict = match looked {
            Ok((engine, gpus, given)) => of_group(server, *engine, (gpus, *given), &mut models),
            Err(why) => Err(why.clone()),
        };
        let verdict = verdict.unwrap_or_else(Verdict::unknown);
        verdicts.insert(group.id.clone(), verdict);
    }
    verdicts
}

fn of_group(
    server: &ServerConfig,
    engine: EngineId,
    (gpus, given): (&[Gpu], Option<u64>),
    models: &mut HashMap<String, Rc<Result<Loaded, Unclear>>>,
) -> Result<Verdict, Unclear> {
    let (mut deployment, settled) = matrix::deployment(server, engine).map_err(|why| why.what)?;
    let count = deployment.gpus();
    if let Some(given) = given.filter(|given| *given < count) {
        return Ok(Verdict {
            answer: Answer::DoesNotFit,
            why: format!("it takes {count} GPUs, and `gpus` gives it {given}"),
        });
    }
    // An engine is as small as the smallest GPU of its own; these are the best that it can get.
    let gpu = usize::try_from(count.max(1) - 1)
        .ok()
        .and_then(|last| gpus.get(last))
        .ok_or_else(|| format!("it takes {count} GPUs, and {} are there", gpus.len()))?;
    deployment.gpu = Some(gpu.clone());
    let (path, ours) = on_this_host(server);
    let key = format!("{path:?} {:?}", server.architecture);
    let found = models
        .entry(key)
        .or_insert_with(|| Rc::new(model_of(server, path.as_deref())))
        .clone();
    let loaded = found.as_ref().as_ref().map_err(Clone::clone)?;
    let weights = weights::best(&loaded.model, loaded.headers.as_ref(), &deployment);
    let estimate = with_weights(&loaded.model, &deployment, weights);
    // Figures leave open what the values are stored as.
    let exact = ours && loaded.model.source != FIGURES;
    Ok(Verdict::of(&deployment, &estimate, settled && exact))
}

/// The source of a model of which only figures are known.
const FIGURES: &str = "the sweep file";

/// What is known of a group's model: its files or what ships, else the figures of the sweep file.
fn model_of(server: &ServerConfig, path: Option<&str>) -> Result<Loaded, Unclear> {
    let name = &server.model;
    let found = match path {
        Some(path) => model::find(path, false).map_err(|e| e.message),
        None => Err(format!("the files of model `{name}` are not on this host")),
    };
    found.or_else(|why| {
        let flags = Flags::of_figures(&server.architecture);
        if flags.is_empty() {
            return Err(why);
        }
        let mut model =
            from_flags(name, &flags).map_err(|lacks| format!("{why}; {}", lacks.what))?;
        model.source = FIGURES.to_owned();
        Ok(Loaded::without_files(model))
    })
}

/// The model's name, or its path as this host has it; `None` for a path that only the container has.
/// And whether it is surely the same model.
fn on_this_host(server: &ServerConfig) -> (Option<String>, bool) {
    let name = server.model.as_str();
    if !name.starts_with('/') {
        // An id; a folder of that name here need not be the container's.
        return (Some(name.to_owned()), !Path::new(name).exists());
    }
    let EnginePlace::Image(preset) = &server.place else {
        return (None, false);
    };
    (under_volume(preset, name), true)
}

/// A path of the container, as the host has it.
fn under_volume(preset: &Preset, path: &str) -> Option<String> {
    preset.volumes.iter().find_map(|volume| {
        let mut parts = volume.split(':');
        let (host, inside) = (parts.next()?, parts.next()?);
        let below = Path::new(path).strip_prefix(inside).ok()?;
        let plain = |c| matches!(c, std::path::Component::Normal(_));
        if !host.starts_with('/') || !below.components().all(plain) {
            return None;
        }
        Some(Path::new(host).join(below).display().to_string())
    })
}

async fn look_at_place(
    group: &CellGroup,
    runtime: Option<&Runtime>,
    choice: BackendChoice,
    stop: &StopSignal,
) -> Looked {
    let server = &group.server;
    let wrong = |failure: crate::error::Failure| failure.message;
    match &server.place {
        EnginePlace::Image(preset) => {
            let named = server.engine.as_ref().or(preset.engine.as_ref());
            let engine =
                collect::engine_of_image(named, server.place.place_name()).map_err(wrong)?;
            let all = preset.amd || wants_gpus(preset)?;
            if !all {
                return Err("no GPU is assigned to it".into());
            }
            let backend = telemetry::open_host_as(choice).map_err(wrong)?;
            let request = collect::gpu_request(preset).map_err(wrong)?;
            let given = match &request {
                GpuRequest::Count(count) => Some(u64::from(*count)),
                GpuRequest::Ids(ids) => Some(ids.len() as u64),
                GpuRequest::None | GpuRequest::All => None,
            };
            Ok((engine, gpus_of(&*backend, &request)?, given))
        }
        EnginePlace::Container(name) => {
            let runtime = runtime.ok_or("containers cannot be looked at without Docker")?;
            let found = runtime.find_container(name).await.map_err(wrong)?;
            let named = server.engine.as_ref();
            let attached = AttachedEngine::detect(runtime, found, named, stop)
                .await
                .map_err(wrong)?;
            if attached.is_serving() {
                return Err(format!("container `{name}` serves already"));
            }
            let backend = telemetry::open_backend(
                choice,
                &MeasuredContainer::of_container(&attached.found.facts),
            )
            .map_err(wrong)?;
            let gpus = gpus_of(&*backend, &GpuRequest::All)?;
            Ok((attached.engine, gpus, None))
        }
    }
}

fn wants_gpus(preset: &Preset) -> Result<bool, Unclear> {
    let request = collect::gpu_request(preset).map_err(|failure| failure.message)?;
    let visible = preset.env.get("NVIDIA_VISIBLE_DEVICES");
    let visible = visible.is_some_and(|v| !matches!(v.as_str(), "" | "none" | "void"));
    Ok(visible || !request.stored_words().is_empty())
}

/// The GPUs that are asked for with their whole memory, the largest first: what is in use now may not be so then.
fn gpus_of(backend: &dyn MemoryBackend, request: &GpuRequest) -> Result<Vec<Gpu>, Unclear> {
    let is_named = |device: &DeviceFacts| match request {
        GpuRequest::Ids(ids) => ids.iter().any(|id| {
            let id = id.rsplit('=').next().unwrap_or(id);
            id.parse() == Ok(device.index) || device.id == id
        }),
        GpuRequest::None | GpuRequest::All | GpuRequest::Count(_) => true,
    };
    let devices = backend.devices().into_iter();
    let devices = devices.filter(|d| d.kind == DeviceKind::Gpu && is_named(d));
    let gpus: Option<Vec<Gpu>> = devices
        .map(|d| {
            Some(Gpu {
                name: d.name,
                total: d.total_bytes?,
                in_use: 0,
            })
        })
        .collect();
    let mut gpus = gpus.ok_or("the memory of a GPU is not known")?;
    if gpus.is_empty() {
        return Err("no GPU is assigned to it".into());
    }
    gpus.sort_by_key(|gpu| std::cmp::Reverse(gpu.total));
    if let GpuRequest::Count(count) = request {
        gpus.truncate(*count as usize);
    }
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_container_is_found_on_the_host() {
        let preset = Preset {
            volumes: vec!["cache:/root".into(), "/data/models:/models:ro".into()],
            ..Preset::default()
        };
        let found = |path| under_volume(&preset, path);
        assert_eq!(found("/models/a/b").as_deref(), Some("/data/models/a/b"));
        assert_eq!(found("/models-2/a"), None);
        assert_eq!(found("/models/../etc"), None);
        assert_eq!(found("/root/a"), None, "a named volume is Docker's own");
    }
}
