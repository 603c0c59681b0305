//! Creates and starts our own containers, and pulls images. Their end is in `teardown`.

use super::again::is_transient;
use super::inspect::InspectedContainer;
use super::{
    CREATED_LABEL, OWNER_LABEL, RUN_LABEL, Runtime, checked_name, daemon_answer, daemon_failure,
};
use crate::error::Failure;
pub use crate::preset::GpuRequest;
use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, CreateImageInfo, DeviceMapping, DeviceRequest, HostConfig, PortBinding,
    ResourcesUlimits,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, StartContainerOptions,
};
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Timeout of creating and starting, which are slow on a busy machine; afterwards the answer counts
/// as lost.
const CREATE: Duration = Duration::from_secs(60);

/// Attempts to create, and to start.
const ATTEMPTS: u32 = 4;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// A container to create.
#[derive(Debug, Clone, Default)]
pub struct LaunchSpec {
    /// Name.
    pub name: String,
    /// Image; must be here already (see [`Runtime::pull_image`]).
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
    /// Groups that may open the devices, beside its own.
    pub groups: Vec<String>,
    /// Linux capabilities beside Docker's own.
    pub cap_add: Vec<String>,
    /// As docker's `--security-opt`.
    pub security_opt: Vec<String>,
    /// Limits of its processes by name.
    pub ulimits: BTreeMap<String, i64>,
    /// The command with the server's program in front, for an image whose entrypoint has none.
    pub whole_cmd: Vec<String>,
}

/// Why there is no container.
enum NotCreated {
    /// The daemon answered at once: the name existed before.
    Refused(Failure),
    /// An answer was lost: the container may exist.
    Unsure(Failure),
}

impl Runtime {
    /// Creates and starts a container. If it cannot start, it is removed again.
    pub async fn launch_container(&self, spec: &LaunchSpec) -> Result<InspectedContainer, Failure> {
        let name = checked_name(&spec.name)?;
        if self.version().podman && spec.gpus != GpuRequest::None {
            // Podman would silently start the engine without a GPU.
            return Err(Failure::environment(
                "podman does not take a request for GPUs over Docker's API",
            )
            .hint("start it yourself (`podman run --device nvidia.com/gpu=all …`), then `plimsoll profile` it"));
        }
        let id = match self.created(spec, name).await {
            Ok(id) => id,
            Err(NotCreated::Refused(failure)) => return Err(failure),
            Err(NotCreated::Unsure(failure)) => {
                return Err(self.undone(spec, name, failure).await);
            }
        };
        if let Err(e) = self.start_container(&id).await {
            return Err(self.undone(spec, &id, not_started(spec, e)).await);
        }
        match self.inspect_container(&id).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => {
                let gone = format!("container `{name}` was removed just after its start");
                Err(self.undone(spec, &id, Failure::run(gone)).await)
            }
            Err(failure) => Err(self.undone(spec, &id, failure).await),
        }
    }

    /// Creates a container and returns its id. After a lost answer, an existing container of that
    /// name and run is the one: there is never a second.
    async fn created(&self, spec: &LaunchSpec, name: &str) -> Result<String, NotCreated> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let create = || async {
            let docker = self.daemon()?;
            docker
                .create_container(Some(options.clone()), body(spec))
                .await
        };
        let mut attempt = 1;
        loop {
            let asked = timeout(CREATE, create()).await;
            let error = match asked.unwrap_or(Err(Error::RequestTimeoutError)) {
                Ok(created) => return Ok(created.id),
                Err(e) => e,
            };
            let passing = is_transient(&error);
            // The name is taken; podman answers 500 for that.
            let taken = daemon_answer(&error).is_some_and(|(_, m)| m.contains("already in use"));
            if (!passing || taken) && attempt == 1 {
                return Err(NotCreated::Refused(not_created(spec, error)));
            }
            let there = self
                .inspect_container(name)
                .await
                .map_err(NotCreated::Unsure)?;
            if let Some(found) = there {
                let run = found.facts.labels.get(RUN_LABEL);
                return if run == Some(&spec.run_id) {
                    Ok(found.facts.id)
                } else {
                    Err(NotCreated::Refused(not_created(spec, error)))
                };
            }
            if !passing || attempt == ATTEMPTS {
                return Err(NotCreated::Unsure(not_created(spec, error)));
            }
            attempt += 1;
            sleep(PAUSE).await;
        }
    }

    /// Starts a container. Repeating is safe, because a running one is not started again.
    async fn start_container(&self, id: &str) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let start = self
                .daemon()?
                .start_container(id, None::<StartContainerOptions>);
            let asked = timeout(CREATE, start).await;
            let error = match asked.unwrap_or(Err(Error::RequestTimeoutError)) {
                Ok(()) => return Ok(()),
                Err(e) => e,
            };
            // The daemon answers 500 for a failed start; only a lost answer is retried.
            if daemon_answer(&error).is_some() || attempt == ATTEMPTS {
                return Err(error);
            }
            // It may have run and ended: then its log is more useful than a second start.
            if let Ok(Some(found)) = self.inspect_container(id).await {
                if found.facts.state.status != "created" {
                    return Ok(());
                }
            }
            attempt += 1;
            sleep(PAUSE).await;
        }
    }

    /// Removes what a failed launch left (a container of this run, by its name or id), and returns
    /// the failure.
    async fn undone(&self, spec: &LaunchSpec, id: &str, failure: Failure) -> Failure {
        let name = &spec.name;
        match self.end_of_run(id, &spec.run_id).await {
            Ok(()) => failure,
            Err(_) => failure.hint(format!(
                "whether container `{name}` still exists could not be determined: `plimsoll clean --apply` removes it once Docker answers again, or `docker rm -f {name}`"
            )),
        }
    }

    /// Pulls an image; `progress` receives the daemon's messages, one short line each. Only to be
    /// called when the user asked for it.
    pub async fn pull_image(
        &self,
        image: &str,
        mut progress: impl FnMut(String) + Send,
    ) -> Result<(), Failure> {
        let options = CreateImageOptionsBuilder::default()
            .from_image(&with_tag(image))
            .build();
        let docker = self
            .daemon()
            .map_err(|e| daemon_failure("cannot pull an image", e))?;
        let mut stream = docker.create_image(Some(options), None, None);
        let mut error = None;
        while let Some(info) = stream.next().await {
            match info {
                Ok(info) => match info.error_detail.as_ref().and_then(|d| d.message.clone()) {
                    Some(message) => {
                        error = Some(
                            Failure::environment(format!("cannot pull `{image}`: {message}"))
                                .hint("check the name; a private image needs `docker login`"),
                        )
                    }
                    None => progress(pull_message(&info)),
                },
                // The stream can end with an error although the pull succeeded: the image decides.
                Err(e) => error = Some(daemon_failure(format!("cannot pull `{image}`"), e)),
            }
        }
        match (self.image_id(image).await?, error) {
            (Some(_), _) => Ok(()),
            (None, Some(e)) => Err(e),
            (None, None) => Err(Failure::environment(format!(
                "cannot pull `{image}`: the daemon reported success, but the image is missing"
            ))
            .hint(format!("`docker pull {image}` shows what it does"))),
        }
    }
}

/// Without a tag Docker would pull all tags.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

fn pull_message(info: &CreateImageInfo) -> String {
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
    labels.insert(OWNER_LABEL.to_owned(), owner_label());
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
    let some = |words: &Vec<String>| (!words.is_empty()).then(|| words.clone());
    let ulimits = spec.ulimits.iter().map(|(name, limit)| ResourcesUlimits {
        name: Some(name.clone()),
        soft: Some(*limit),
        hard: Some(*limit),
    });
    let host_config = HostConfig {
        device_requests: gpu_device_request(&spec.gpus).map(|r| vec![r]),
        devices: spec.amd.then(|| devices.to_vec()),
        group_add: some(&spec.groups),
        cap_add: some(&spec.cap_add),
        security_opt: some(&spec.security_opt),
        ulimits: (!spec.ulimits.is_empty()).then(|| ulimits.collect()),
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

fn gpu_device_request(request: &GpuRequest) -> Option<DeviceRequest> {
    let (count, ids) = match request {
        GpuRequest::None => return None,
        GpuRequest::All => (Some(-1), None),
        GpuRequest::Count(n) => (Some(i64::from(*n)), None),
        GpuRequest::Ids(ids) => (None, Some(ids.clone())),
    };
    let is_cdi = |ids: &Vec<String>| ids.iter().any(|id| id.contains('='));
    if ids.as_ref().is_some_and(is_cdi) {
        // Docker refuses a count or capabilities together with CDI device names.
        return Some(DeviceRequest {
            driver: Some("cdi".to_owned()),
            device_ids: ids,
            ..Default::default()
        });
    }
    // Without a driver name Docker chooses a suitable one, also CDI.
    Some(DeviceRequest {
        count,
        device_ids: ids,
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..Default::default()
    })
}

/// Owner label of a container that we create: `<boot id>:<pid>:<start time>`, so that another
/// plimsoll can check whether the owner still lives. In a private pid namespace the pid is
/// meaningless to others, and `:<namespace>` is added. `@<machine>` at the end names the host of
/// that boot, if it has a machine id.
pub fn owner_label() -> String {
    let pid = std::process::id();
    let started = super::processes::start_time(pid)
        .map(|t| t.to_string())
        .unwrap_or_default();
    let boot = super::leftovers::boot_id();
    let mut owner = format!("{boot}:{pid}:{started}");
    for (sign, value) in [
        (':', super::leftovers::own_namespace()),
        ('@', super::leftovers::machine_id()),
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
    match daemon_answer(&e) {
        Some((404, message)) if message.to_ascii_lowercase().contains("image") => {
            Failure::environment(format!("image `{image}` is not on this machine"))
                .hint(format!("get it: `docker pull {image}`"))
        }
        // Podman answers 500 to that.
        Some((code, message)) if code == 409 || message.contains("name is already in use") => {
            Failure::environment(format!("a container named `{name}` exists already")).hint(
                format!("remove it (`docker rm -f {name}`) or choose another name"),
            )
        }
        refusal => {
            let no_init = refusal.is_some_and(|(_, m)| m.contains("container-init binary"));
            let failure = daemon_failure(
                format!("cannot create container `{name}` from `{image}`"),
                e,
            );
            if no_init {
                failure.hint("podman takes the program `catatonit` for a container's first process: install its package")
            } else {
                failure
            }
        }
    }
}

fn not_started(spec: &LaunchSpec, e: bollard::errors::Error) -> Failure {
    let name = &spec.name;
    let message = daemon_answer(&e)
        .map(|(_, m)| m.to_owned())
        .unwrap_or_default();
    let failure = daemon_failure(format!("cannot start container `{name}`"), e);
    if message.contains("could not select device driver")
        || message.contains("nvidia-container-cli")
    {
        return failure
            .hint("Docker cannot give NVIDIA GPUs to containers here: install the NVIDIA Container Toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker` and restart Docker")
            .hint("to run without a GPU, request none");
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
    let signs = |signs: &[&str]| signs.iter().any(|sign| message.contains(sign));
    // The order matters: each message names a missing file.
    if spec.amd && signs(&["/dev/kfd", "/dev/dri", "unable to find group"]) {
        return failure.hint("AMD GPUs need the amdgpu driver (`/dev/kfd`) on the host, and the groups `video` and `render` in the image");
    }
    if signs(&["docker-init"]) {
        return failure.hint("Docker's program `docker-init` is missing on its host: install its package (Debian: tini or docker.io)");
    }
    if signs(&["executable file not found", "no such file or directory"]) {
        return failure.hint("the image has no such program: check the command and the entrypoint");
    }
    if signs(&["OOM-killed", "memory limit too low"]) {
        return failure.hint("the memory limit is too small to start any process: raise --memory");
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
    fn gpus_become_the_device_request_that_dockers_own_client_sends() {
        for (text, driver, count, ids) in [
            ("all", None, Some(-1), None),
            ("2", None, Some(2), None),
            ("device=0", None, None, Some(vec!["0"])),
            ("\"device=0,1\"", None, None, Some(vec!["0", "1"])),
            (
                "nvidia.com/gpu=0",
                Some("cdi"),
                None,
                Some(vec!["nvidia.com/gpu=0"]),
            ),
        ] {
            let spec = LaunchSpec {
                gpus: text.parse().expect("a request"),
                ..Default::default()
            };
            let host = body(&spec).host_config.expect("host config");
            let request = &host.device_requests.expect("gpus")[0];
            let ids = ids.map(|ids| ids.into_iter().map(str::to_owned).collect());
            assert_eq!(
                (
                    request.driver.as_deref(),
                    request.count,
                    &request.device_ids
                ),
                (driver, count, &ids),
                "{text}"
            );
            let capabilities = request.capabilities.as_ref();
            assert_eq!(capabilities.is_none(), driver == Some("cdi"), "{text}");
        }
        let none = body(&LaunchSpec::default())
            .host_config
            .expect("host config");
        assert_eq!(none.device_requests, None);
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
