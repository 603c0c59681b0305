//! A container of our own for an engine: what Docker is to be asked for.

use crate::capture::{ContainerFacts, RequestedSettings};
use crate::container::inspect::Found;
use crate::container::launch::{GpuRequest, LaunchSpec, owner};
use crate::container::leftovers::boot_id;
use crate::container::processes::{is_empty, start_time};
use crate::container::{DEADLINE_LABEL, KEEP_LABEL, Runtime};
use crate::engine::{self, EngineId, ServeJob, ServePlan};
use crate::error::Failure;
use crate::preset::Preset;
use crate::store::started::{self, Started};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Tokens that are passed on from this shell, so that gated models load.
const TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// An engine's container, as it is wanted.
pub struct Launch<'a> {
    /// Name of the container.
    pub name: String,
    /// Image.
    pub image: &'a str,
    /// Id of the run.
    pub run_id: &'a str,
    /// Everything else that Docker is asked for.
    pub preset: &'a Preset,
    /// Engine to serve with.
    pub engine: EngineId,
    /// Model to serve.
    pub model: &'a str,
    /// Settings of the engine.
    pub settings: &'a RequestedSettings,
    /// Further arguments of the engine.
    pub engine_args: &'a [String],
    /// It is not wanted for longer than this, where that is known.
    pub longest: Option<Duration>,
}

/// The container to create, and the path that answers 200 once the engine serves. Tokens of this
/// shell go along as environment.
pub fn launch_spec(launch: Launch<'_>) -> Result<(LaunchSpec, &'static str), Failure> {
    let Launch { preset, engine, .. } = launch;
    let default_port = engine.default_port();
    let serve = engine.serve(&ServeJob {
        model: launch.model,
        port: default_port,
        settings: launch.settings,
        extra_engine_args: launch.engine_args,
    });
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
        cmd: serve.cmd,
        env,
        gpus: gpu_request(preset)?,
        amd: preset.amd,
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

/// The label with the time until which a container is needed.
fn deadline(now: jiff::Timestamp, longest: Duration) -> (String, String) {
    let seconds = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
    let at = now.as_second().saturating_add(seconds);
    (DEADLINE_LABEL.to_owned(), at.to_string())
}

/// Creates and starts a container, and writes down that it is ours, so that its processes are known
/// when it is gone and they are not.
pub async fn launch(runtime: &Runtime, spec: &LaunchSpec) -> Result<Found, Failure> {
    // What is kept is the user's own from now on.
    let noted = !runtime.is_remote() && !spec.labels.contains_key(KEEP_LABEL);
    // Before it starts: its first moments are to be seen.
    let daemon = if noted {
        runtime.daemon_identity().await
    } else {
        None
    };
    let found = runtime.launch(spec).await?;
    let facts = &found.facts;
    if let (Some(daemon), Some(started)) = (daemon, facts.state.pid.and_then(start_time)) {
        let noted = started::note(&Started {
            container: facts.id.clone(),
            name: facts.name.clone(),
            daemon,
            owner: owner(),
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

/// Ends and removes a container of ours. When nothing of it is left it is struck out of what was
/// started.
pub async fn end(runtime: &Runtime, id: &str, grace: Duration) -> Result<(), Failure> {
    runtime.end_ours(id, grace).await?;
    let gone = runtime.inspect(id).await.is_ok_and(|found| found.is_none());
    let container = id.to_owned();
    let empty = tokio::task::spawn_blocking(move || is_empty(&container)).await;
    if gone && empty.unwrap_or(false) {
        started::forget(id);
    }
    Ok(())
}

/// The port that the command asks for, when the extra arguments name another.
fn configured_port(engine: EngineId, serve: &ServePlan) -> Option<u16> {
    // The words that the image's entrypoint supplies, without which a reader does not see its server.
    let program = match engine.program() {
        [] => vec![engine.name().to_owned(), "serve".to_owned()],
        words => words.iter().map(|w| (*w).to_owned()).collect(),
    };
    let facts = ContainerFacts {
        argv: program
            .into_iter()
            .chain(serve.cmd.iter().cloned())
            .collect(),
        env: serve.env.iter().cloned().collect(),
        ..Default::default()
    };
    engine.settings(&facts).port
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

/// The GPUs that a preset asks for.
pub fn gpu_request(preset: &Preset) -> Result<GpuRequest, Failure> {
    let request = preset.gpus.as_deref().map(str::parse).transpose();
    let request = request.map_err(|why: String| Failure::usage(format!("GPUs: {why}")))?;
    Ok(request.unwrap_or_default())
}

/// A request as Docker keeps it, and as it is read back from a container.
pub fn gpu_words(request: &GpuRequest) -> Vec<String> {
    match request {
        GpuRequest::None => Vec::new(),
        GpuRequest::All => vec!["all".to_owned()],
        GpuRequest::Count(n) => vec![format!("count={n}")],
        GpuRequest::Ids(ids) => ids.clone(),
    }
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
    fn another_port_among_the_arguments_is_seen_for_every_engine() {
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
