//! Starts our own container for an engine.

use crate::capture::{ContainerFacts, RequestedSettings};
use crate::container::inspect::InspectedContainer;
use crate::container::launch::{GpuRequest, LaunchSpec, owner_label};
use crate::container::leftovers::boot_id;
use crate::container::processes::{is_empty, start_time};
use crate::container::{DEADLINE_LABEL, KEEP_LABEL, Runtime};
use crate::engine::argv::basename;
use crate::engine::{self, EngineId, ServeJob, ServePlan};
use crate::error::Failure;
use crate::launch::recipe::find_image;
use crate::preset::Preset;
use crate::store::started::{self, StartedContainer};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Tokens passed on from this shell, so that gated models load.
const TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// The container to start for an engine.
pub struct Launch<'a> {
    /// Name of the container.
    pub name: String,
    /// Image.
    pub image: &'a str,
    /// Id of the run.
    pub run_id: &'a str,
    /// All other settings of the container.
    pub preset: &'a Preset,
    /// Engine to serve with.
    pub engine: EngineId,
    /// Model to serve.
    pub model: &'a str,
    /// Settings of the engine.
    pub settings: &'a RequestedSettings,
    /// Further arguments of the engine.
    pub engine_args: &'a [String],
    /// Maximum time for which it is needed, if known.
    pub longest: Option<Duration>,
}

/// The container to create, and the path that answers 200 once the engine serves. The shell's
/// tokens are passed as environment variables.
pub fn launch_spec(launch: Launch<'_>) -> Result<(LaunchSpec, &'static str), Failure> {
    let Launch { preset, engine, .. } = launch;
    let default_port = engine.default_port;
    let job = ServeJob {
        model: launch.model,
        port: default_port,
        settings: launch.settings,
        extra_engine_args: launch.engine_args,
    };
    let serve = engine.serve(&job);
    let whole_cmd = engine.serve_argv(&job);
    let port = configured_port(engine, &serve).unwrap_or(default_port);
    let size = |what: &str, text: &Option<String>| -> Result<Option<u64>, Failure> {
        let parse = |t: &String| t.parse::<Bytes>().map(|b| b.0);
        let parsed = text.as_ref().map(parse).transpose();
        parsed.map_err(|e| Failure::usage(format!("{what}: {e}")))
    };
    let mut env: BTreeMap<String, String> = serve.env.iter().cloned().collect();
    for name in TOKENS {
        if let Ok(token) = std::env::var(name) {
            env.insert(name.into(), token);
        }
    }
    env.extend(preset.env.clone());
    let deadline = launch
        .longest
        .map(|longest| deadline(jiff::Timestamp::now(), longest));
    let spec = LaunchSpec {
        labels: deadline.into_iter().collect(),
        name: launch.name,
        image: launch.image.into(),
        run_id: launch.run_id.into(),
        // By the table of images; the image's own configuration decides once it is here.
        cmd: match find_image(launch.image) {
            Some((_, image)) if image.words => whole_cmd.clone(),
            _ => serve.cmd,
        },
        whole_cmd,
        env,
        gpus: gpu_request(preset)?,
        amd: preset.amd,
        groups: if preset.amd {
            device_groups()
        } else {
            Vec::new()
        },
        cap_add: preset.cap_add.clone(),
        security_opt: preset.security_opt.clone(),
        ulimits: preset.ulimits.clone(),
        shm_size_bytes: size("size of /dev/shm", &preset.shm_size)?,
        ipc_host: preset.ipc_host,
        mounts: preset.volumes.clone(),
        ports: BTreeMap::from([(port, 0)]),
        memory_bytes: size("memory limit", &preset.memory)?,
        init: true,
        ..Default::default()
    };
    Ok((spec, serve.health_path))
}

/// The groups that may open the AMD GPUs of this host: by number, as not every image has a group `render`.
fn device_groups() -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let devices = ["/dev/kfd", "/dev/dri/renderD128"].iter();
    let mut groups: Vec<u32> = devices
        .filter_map(|d| Some(std::fs::metadata(d).ok()?.gid()))
        .filter(|group| *group != 0)
        .collect();
    groups.dedup();
    let numbers = groups.iter().map(u32::to_string);
    ["video".to_owned()].into_iter().chain(numbers).collect()
}

/// Puts the server's program before the command where the image's own entrypoint is none, or a shell that would
/// take the program for a script.
fn fit_command(spec: &mut LaunchSpec, entrypoint: &[String]) {
    let shell = match entrypoint {
        [] => false,
        [only] if matches!(basename(only), "sh" | "bash" | "dash" | "ash") => true,
        _ => return,
    };
    if spec.entrypoint.is_some() || spec.whole_cmd.is_empty() {
        return;
    }
    spec.cmd.clone_from(&spec.whole_cmd);
    if shell {
        spec.entrypoint = Some(vec![spec.cmd.remove(0)]);
    }
}

/// The label with the time until which a container is needed.
fn deadline(now: jiff::Timestamp, longest: Duration) -> (String, String) {
    let seconds = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
    let at = now.as_second().saturating_add(seconds);
    (DEADLINE_LABEL.to_owned(), at.to_string())
}

/// Creates and starts a container, and records that it is ours, so that its processes are
/// recognised if it disappears before them.
pub async fn launch_container(
    runtime: &Runtime,
    spec: &LaunchSpec,
) -> Result<InspectedContainer, Failure> {
    // A kept container belongs to the user from now on.
    let noted = !runtime.is_remote() && !spec.labels.contains_key(KEEP_LABEL);
    // Before the start, so that its first moments are observed.
    let daemon = if noted {
        runtime.daemon_identity().await
    } else {
        None
    };
    let mut spec = spec.clone();
    if let Some(entrypoint) = runtime.image_entrypoint(&spec.image).await {
        fit_command(&mut spec, &entrypoint);
    }
    let found = runtime.launch_container(&spec).await?;
    let facts = &found.facts;
    if let (Some(daemon), Some(started)) = (daemon, facts.state.pid.and_then(start_time)) {
        let noted = started::note_started(&StartedContainer {
            container: facts.id.clone(),
            name: facts.name.clone(),
            daemon,
            owner: owner_label(),
            started,
            boot: boot_id(),
        });
        // It runs, and its labels name the owner for as long as it exists.
        if let Err(failure) = noted {
            log::warn!("{failure}");
        }
    }
    Ok(found)
}

/// Ends and removes a container of ours, and its record once nothing of it is left.
pub async fn end_container(runtime: &Runtime, id: &str, grace: Duration) -> Result<(), Failure> {
    runtime.end_ours(id, grace).await?;
    let gone = runtime
        .inspect_container(id)
        .await
        .is_ok_and(|found| found.is_none());
    let container = id.to_owned();
    let empty = tokio::task::spawn_blocking(move || is_empty(&container)).await;
    if gone && empty.unwrap_or(false) {
        started::forget_started(id);
    }
    Ok(())
}

/// The port in the command, if the extra arguments set another one.
fn configured_port(engine: EngineId, serve: &ServePlan) -> Option<u16> {
    // The image's entrypoint supplies the program; without it the server is not recognised.
    let facts = ContainerFacts {
        argv: engine
            .server_program()
            .into_iter()
            .chain(serve.cmd.iter().cloned())
            .collect(),
        env: serve.env.iter().cloned().collect(),
        ..Default::default()
    };
    (engine.settings)(&facts).port
}

/// The engine in an image: as named by the user, else detected from the image's name.
pub fn engine_of_image(named: Option<&String>, image: &str) -> Result<EngineId, Failure> {
    if let Some(name) = named {
        return Ok(EngineId::from_name(name)?);
    }
    let facts = ContainerFacts {
        image: image.into(),
        ..Default::default()
    };
    engine::recognise(&facts)
        .map(|(engine, _)| engine)
        .ok_or_else(|| {
            Failure::usage(format!("which engine is in image `{image}`?"))
                .hint(format!("name it with --engine: {}", EngineId::all_names()))
        })
}

/// The GPUs of a preset.
pub fn gpu_request(preset: &Preset) -> Result<GpuRequest, Failure> {
    let request = preset.gpus.as_deref().map(str::parse).transpose();
    let request = request.map_err(|why: String| Failure::usage(format!("GPUs: {why}")))?;
    Ok(request.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_written_in_seconds_since_the_epoch() {
        let now = jiff::Timestamp::from_second(1000).unwrap();
        let (label, text) = deadline(now, Duration::from_millis(60_900));
        assert_eq!(
            (label.as_str(), text.as_str()),
            ("plimsoll.deadline", "1060")
        );
        assert_eq!(deadline(now, Duration::MAX).1, i64::MAX.to_string());
    }

    #[test]
    fn a_command_fits_an_image_with_and_without_an_entrypoint() {
        let words =
            |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).to_owned()).collect() };
        let fitted = |entrypoint: &[&str]| {
            let mut spec = LaunchSpec {
                cmd: words(&["--model", "m"]),
                whole_cmd: words(&["vllm", "serve", "m"]),
                ..LaunchSpec::default()
            };
            fit_command(&mut spec, &words(entrypoint));
            (spec.entrypoint, spec.cmd.join(" "))
        };
        assert_eq!(fitted(&["vllm", "serve"]), (None, "--model m".into()));
        assert_eq!(fitted(&[]), (None, "vllm serve m".into()));
        let shell = (Some(words(&["vllm"])), "serve m".into());
        assert_eq!(fitted(&["/bin/bash"]), shell);
        assert_eq!(
            fitted(&["/opt/nvidia/nvidia_entrypoint.sh"]),
            (None, "--model m".into())
        );
    }

    #[test]
    fn another_port_among_the_arguments_is_read_for_every_engine() {
        for name in [
            "vllm",
            "sglang",
            "tgi",
            "tensorrt-llm",
            "llama-cpp",
            "reference",
        ] {
            let engine = EngineId::from_name(name).unwrap();
            let port = |extra: &[&str]| {
                let extra: Vec<String> = extra.iter().map(|w| (*w).to_owned()).collect();
                let serve = engine.serve(&engine::ServeJob {
                    model: "acme/m",
                    port: 8123,
                    settings: &Default::default(),
                    extra_engine_args: &extra,
                });
                configured_port(engine, &serve)
            };
            assert_eq!(port(&[]), Some(8123), "{name}");
            assert_eq!(port(&["--port", "9001"]), Some(9001), "{name}");
        }
    }
}
