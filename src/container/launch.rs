//! Containers of our own, created and started; and pulling their images. Their end: `teardown`.

use super::inspect::Found;
use super::{CREATED_LABEL, OWNER_LABEL, RUN_LABEL, Runtime, answer, checked_name, failed};
use crate::error::Failure;
use bollard::models::{
    ContainerCreateBody, CreateImageInfo, DeviceMapping, DeviceRequest, HostConfig, PortBinding,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, StartContainerOptions,
};
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Which GPUs a new container gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GpuRequest {
    /// None.
    #[default]
    None,
    /// All of them.
    All,
    /// So many, chosen by the runtime.
    Count(u32),
    /// These: indices or UUIDs.
    Ids(Vec<String>),
}

/// A container to create.
#[derive(Debug, Clone, Default)]
pub struct LaunchSpec {
    /// Name.
    pub name: String,
    /// Image; must be here already (see [`Runtime::pull`]).
    pub image: String,
    /// Id of the run: becomes a label.
    pub run_id: String,
    /// Command; empty: the image's.
    pub cmd: Vec<String>,
    /// Entrypoint instead of the image's.
    pub entrypoint: Option<Vec<String>>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// NVIDIA GPUs.
    pub gpus: GpuRequest,
    /// AMD GPUs: `/dev/kfd`, `/dev/dri` and the groups that may use them.
    pub amd: bool,
    /// Size of `/dev/shm`, bytes.
    pub shm_size_bytes: Option<u64>,
    /// Use the host's IPC namespace (and its `/dev/shm`).
    pub ipc_host: bool,
    /// Bind mounts, `host:container[:ro]`.
    pub mounts: Vec<String>,
    /// Published TCP ports: container port → host port on 127.0.0.1, 0 for any that is free.
    pub ports: BTreeMap<u16, u16>,
    /// Memory limit, bytes.
    pub memory_bytes: Option<u64>,
    /// Network mode (`host`, the name of a network).
    pub network: Option<String>,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Run an init as process 1, so that orphans are reaped.
    pub init: bool,
}

impl Runtime {
    /// Creates and starts a container. What was created is removed again when it cannot start.
    pub async fn launch(&self, spec: &LaunchSpec) -> Result<Found, Failure> {
        let name = checked_name(&spec.name)?;
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let id = match self
            .docker
            .create_container(Some(options), body(spec))
            .await
        {
            Ok(created) => created.id,
            Err(e) => return Err(not_created(spec, e)),
        };
        if let Err(e) = self
            .docker
            .start_container(&id, None::<StartContainerOptions>)
            .await
        {
            let failure = not_started(spec, e);
            return Err(match self.end_ours(&id, Duration::ZERO).await {
                Ok(()) => failure,
                Err(_) => failure.hint(format!(
                    "the container could not be removed again: `docker rm -f {name}`"
                )),
            });
        }
        self.inspect(&id).await?.ok_or_else(|| {
            Failure::run(format!(
                "container `{name}` was removed just after its start"
            ))
        })
    }

    /// Pulls an image; `progress` gets what the daemon says, a short line each time. Only to be
    /// called when the user asked for it.
    pub async fn pull(
        &self,
        image: &str,
        mut progress: impl FnMut(String) + Send,
    ) -> Result<(), Failure> {
        let options = CreateImageOptionsBuilder::default()
            .from_image(&with_tag(image))
            .build();
        let mut stream = self.docker.create_image(Some(options), None, None);
        let mut error = None;
        while let Some(info) = stream.next().await {
            match info {
                Ok(info) => match info.error_detail.as_ref().and_then(|d| d.message.clone()) {
                    Some(message) => {
                        error = Some(Failure::environment(format!(
                            "cannot pull `{image}`: {message}"
                        )))
                    }
                    None => progress(said(&info)),
                },
                // The stream can end with an error though all went well: the image decides.
                Err(e) => error = Some(failed(format!("cannot pull `{image}`"), e)),
            }
        }
        match (self.image_id(image).await?, error) {
            (Some(_), _) => Ok(()),
            (None, Some(e)) => Err(e),
            (None, None) => Err(Failure::environment(format!(
                "cannot pull `{image}`: the daemon says it did, but the image is not here"
            ))),
        }
    }
}

/// Without a tag Docker would pull every one there is.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.contains(':') || last.contains('@') {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

fn said(info: &CreateImageInfo) -> String {
    let status = info.status.clone().unwrap_or_default();
    let id = info
        .id
        .as_deref()
        .map(|id| format!("{id}: "))
        .unwrap_or_default();
    match info
        .progress_detail
        .as_ref()
        .and_then(|d| Some((d.current?, d.total?)))
    {
        Some((current, total)) if total > 0 => {
            format!("{id}{status} {}%", current.saturating_mul(100) / total)
        }
        _ => format!("{id}{status}"),
    }
}

fn body(spec: &LaunchSpec) -> ContainerCreateBody {
    let mut labels: HashMap<String, String> = spec.labels.clone().into_iter().collect();
    labels.insert(RUN_LABEL.to_owned(), spec.run_id.clone());
    labels.insert(OWNER_LABEL.to_owned(), owner());
    labels.insert(CREATED_LABEL.to_owned(), jiff::Timestamp::now().to_string());
    let devices = ["/dev/kfd", "/dev/dri"].map(|d| DeviceMapping {
        path_on_host: Some(d.to_owned()),
        path_in_container: Some(d.to_owned()),
        cgroup_permissions: Some("rwm".to_owned()),
    });
    let bindings = spec.ports.iter().map(|(port, host)| {
        let binding = PortBinding {
            host_ip: Some("127.0.0.1".to_owned()),
            host_port: Some(host.to_string()),
        };
        (format!("{port}/tcp"), Some(vec![binding]))
    });
    let host_config = HostConfig {
        device_requests: gpus(&spec.gpus).map(|r| vec![r]),
        devices: spec.amd.then(|| devices.to_vec()),
        group_add: spec
            .amd
            .then(|| vec!["video".to_owned(), "render".to_owned()]),
        shm_size: spec.shm_size_bytes.and_then(|b| i64::try_from(b).ok()),
        ipc_mode: spec.ipc_host.then(|| "host".to_owned()),
        binds: (!spec.mounts.is_empty()).then(|| spec.mounts.clone()),
        port_bindings: (!spec.ports.is_empty()).then(|| bindings.collect()),
        memory: spec.memory_bytes.and_then(|b| i64::try_from(b).ok()),
        network_mode: spec.network.clone(),
        init: spec.init.then_some(true),
        ..Default::default()
    };
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        cmd: (!spec.cmd.is_empty()).then(|| spec.cmd.clone()),
        entrypoint: spec.entrypoint.clone(),
        env: Some(spec.env.iter().map(|(n, v)| format!("{n}={v}")).collect()),
        exposed_ports: (!spec.ports.is_empty())
            .then(|| spec.ports.keys().map(|p| format!("{p}/tcp")).collect()),
        labels: Some(labels),
        host_config: Some(host_config),
        ..Default::default()
    }
}

fn gpus(request: &GpuRequest) -> Option<DeviceRequest> {
    let (count, ids) = match request {
        GpuRequest::None => return None,
        GpuRequest::All => (Some(-1), None),
        GpuRequest::Count(n) => (Some(i64::from(*n)), None),
        GpuRequest::Ids(ids) => (None, Some(ids.clone())),
    };
    // No driver named: Docker picks the one that can, also by CDI.
    Some(DeviceRequest {
        count,
        device_ids: ids,
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..Default::default()
    })
}

/// Who owns a container that we create: `<boot id>:<pid>:<start time>`, so that another plimsoll
/// can tell whether its owner still lives. In a pid namespace of our own the number means nothing
/// to others, and `:<namespace>` is added. At the end `@<machine>` says which host's boot that is,
/// where the host has a machine id.
pub fn owner() -> String {
    let pid = std::process::id();
    let started = super::processes::start_time(pid)
        .map(|t| t.to_string())
        .unwrap_or_default();
    let boot = super::leftovers::boot_id();
    let mut owner = format!("{boot}:{pid}:{started}");
    for (sign, value) in [
        (':', super::leftovers::own_namespace()),
        ('@', super::leftovers::machine()),
    ] {
        if let Some(value) = value {
            owner.push(sign);
            owner.push_str(&value);
        }
    }
    owner
}

fn not_created(spec: &LaunchSpec, e: bollard::errors::Error) -> Failure {
    let (name, image) = (&spec.name, &spec.image);
    match answer(&e) {
        Some((404, message)) if message.to_ascii_lowercase().contains("image") => {
            Failure::environment(format!("image `{image}` is not on this machine"))
                .hint(format!("get it: `docker pull {image}`"))
        }
        Some((409, _)) => {
            Failure::environment(format!("a container named `{name}` exists already")).hint(
                format!("remove it (`docker rm -f {name}`) or choose another name"),
            )
        }
        _ => failed(
            format!("cannot create container `{name}` from `{image}`"),
            e,
        ),
    }
}

fn not_started(spec: &LaunchSpec, e: bollard::errors::Error) -> Failure {
    let name = &spec.name;
    let message = answer(&e).map(|(_, m)| m.to_owned()).unwrap_or_default();
    let failure = failed(format!("cannot start container `{name}`"), e);
    if message.contains("could not select device driver")
        || message.contains("nvidia-container-cli")
    {
        return failure
            .hint("Docker cannot give NVIDIA GPUs to containers here: install the NVIDIA Container Toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker` and restart Docker")
            .hint("to go without a GPU, ask for none");
    }
    if message.contains("port is already allocated") || message.contains("address already in use") {
        let ports: Vec<String> = spec
            .ports
            .values()
            .filter(|p| **p > 0)
            .map(u16::to_string)
            .collect();
        return failure
            .hint(format!("another program listens on a port that was asked for ({}): choose another, or 0 for a free one", ports.join(", ")));
    }
    if message.contains("executable file not found")
        || message.contains("no such file or directory")
    {
        return failure.hint("the image has no such program: check the command and the entrypoint");
    }
    if spec.amd && (message.contains("/dev/kfd") || message.contains("unable to find group")) {
        return failure.hint("AMD GPUs need the amdgpu driver (`/dev/kfd`) on the host, and the groups `video` and `render` in the image");
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_added_where_none_is() {
        assert_eq!(with_tag("busybox"), "busybox:latest");
        assert_eq!(with_tag("localhost:5000/a/b"), "localhost:5000/a/b:latest");
        assert_eq!(with_tag("a/b:1"), "a/b:1");
        assert_eq!(with_tag("a@sha256:00"), "a@sha256:00");
    }

    #[test]
    fn a_spec_becomes_what_docker_wants() {
        let spec = LaunchSpec {
            name: "n".into(),
            image: "i".into(),
            run_id: "r".into(),
            gpus: GpuRequest::Ids(vec!["0".into()]),
            ports: BTreeMap::from([(8000, 0)]),
            memory_bytes: Some(1 << 30),
            ..Default::default()
        };
        let b = body(&spec);
        let host = b.host_config.expect("host config");
        let request = &host.device_requests.expect("gpus")[0];
        assert_eq!(
            (request.count, request.device_ids.as_deref()),
            (None, Some(&["0".to_owned()][..])),
            "count and ids exclude each other"
        );
        assert_eq!(host.memory, Some(1 << 30));
        assert!(
            b.cmd.is_none(),
            "an empty command would replace the image's"
        );
        let labels = b.labels.expect("labels");
        assert_eq!(labels[RUN_LABEL], "r");
        assert_eq!(labels[OWNER_LABEL].split(':').count(), 3);
        assert!(labels.contains_key(CREATED_LABEL));
    }
}
