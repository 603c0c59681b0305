//! Docker's facts about a container, without its secrets.
//!
//! The processes of a container, as Docker lists them.
//!
//! Which environment variables of a container are recorded with their value. A variable can contain
//! a secret under any name, so only those that explain an engine's memory are.

use super::lines::parse_stamp;
use super::{Runtime, checked_name, daemon_answer, daemon_failure, is_not_found};
use crate::capture::{ContainerFacts, ContainerState};
use crate::error::Failure;
use crate::redact::Secrets;
use bollard::errors::Error;
use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum, DeviceRequest, Health, HealthStatusEnum,
    HostConfig, ImageInspect, PortMap,
};
use bollard::query_parameters::TopOptionsBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Storage drivers that keep the changes of a container apart, and list them at once.
const DRIVERS_WITH_CHANGES: [&str; 4] = ["overlay2", "overlay", "btrfs", "zfs"];

/// Of an image up to this size, bytes, other drivers list the changes soon enough.
const LONGEST_WALK: i64 = 300 << 20;

/// Timeout for listing a container's changes: the daemon walks its files.
const CHANGES_DEADLINE: Duration = Duration::from_secs(5);

/// A container: facts that may be written, and secrets that may not.
#[derive(Debug, Clone, Default)]
pub struct InspectedContainer {
    /// Facts; secrets are redacted.
    pub facts: ContainerFacts,
    /// The redacted secrets: pass them to a [`Redactor`](crate::redact::Redactor) before writing
    /// any output of the container.
    pub secrets: Secrets,
    /// Result of Docker's health check; `None` without one.
    pub check: Option<HealthStatus>,
    /// The parent of its cgroup, if one was set (Kubernetes, Slurm).
    pub cgroup_parent: Option<String>,
    /// Id of the container that owns its pid namespace (`--pid=container:`): it ends with that
    /// container's first process.
    pub lives_in: Option<String>,
    /// Failures that Docker recorded: of its start, and of the last health check with what it
    /// printed.
    pub docker_errors: Vec<String>,
    /// Exit code of its last life, while it waits for a restart or runs again.
    pub last_exit_code: Option<i64>,
}

impl InspectedContainer {
    /// Reads what `docker inspect` of one container prints; `None` for other JSON.
    pub fn from_document(document: &Value) -> Option<InspectedContainer> {
        let one = document
            .as_array()
            .map_or(Some(document), |all| all.first())?;
        one.get("State").and(one.get("HostConfig"))?;
        let answer = ContainerInspectResponse::deserialize(one).ok()?;
        Some(parse_inspection(answer))
    }
}

/// Result of Docker's health check of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthStatus {
    /// It just started.
    Starting,
    /// The last one succeeded.
    Healthy,
    /// The last checks failed.
    Unhealthy {
        /// Failing since at least this time, nanoseconds since the Unix epoch: Docker keeps the
        /// last few checks.
        since_ns: Option<i64>,
    },
}

impl Runtime {
    /// Asks the daemon about a container, without a retry.
    pub(super) async fn inspect_once(&self, id: &str) -> Result<ContainerInspectResponse, Error> {
        known_states(self.daemon()?.inspect_container(id, None).await)
    }

    /// Inspects a container by id or exact name; `None` if it does not exist.
    pub async fn inspect_container(&self, id: &str) -> Result<Option<InspectedContainer>, Failure> {
        if let Some(process) = self.process() {
            return Ok(Some(process.inspect()));
        }
        let id = checked_name(id)?;
        match self.ask_again(|_| self.inspect_once(id)).await {
            Ok(response) => Ok(Some(parse_inspection(response))),
            Err(e) if is_not_found(&e) => Ok(None),
            Err(e) => Err(daemon_failure(
                format!("cannot inspect container `{id}`"),
                e,
            )),
        }
    }

    /// State of a container; `None` when it is gone.
    pub async fn container_state(&self, id: &str) -> Result<Option<ContainerState>, Failure> {
        Ok(self.inspect_container(id).await?.map(|f| f.facts.state))
    }

    /// The packages and programs (`…/bin/x`, `…-packages/x.dist-info`) added or changed in a
    /// container since it was created from its image, sorted. `None` if the daemon does not list
    /// them, or would list them by a walk over the whole image: the container is locked meanwhile, and
    /// cannot be inspected by anybody (36 s for an image of 2.9 GB on fuse-overlayfs).
    pub async fn changed_programs(&self, id: &str) -> Option<Vec<String>> {
        let inspected = self.inspect_once(id).await.ok()?;
        let driver = inspected.driver.unwrap_or_default();
        if !DRIVERS_WITH_CHANGES.contains(&driver.as_str()) {
            let image = self
                .daemon()
                .ok()?
                .inspect_image(&inspected.image?)
                .await
                .ok()?;
            if image.size? > LONGEST_WALK {
                return None;
            }
        }
        let asked = self
            .daemon()
            .ok()?
            .container_changes(checked_name(id).ok()?);
        let changes = tokio::time::timeout(CHANGES_DEADLINE, asked)
            .await
            .ok()?
            .ok()?;
        let is_program = |path: &String| {
            let package = path.contains("-packages/");
            let metadata = [".dist-info", ".egg-info", ".egg-link", ".pth"];
            path.contains("/bin/") || package && metadata.iter().any(|end| path.ends_with(end))
        };
        let paths = changes.unwrap_or_default().into_iter().map(|c| c.path);
        let mut programs: Vec<String> = paths.filter(is_program).collect();
        programs.sort();
        Some(programs)
    }

    /// The labels of an image; `None` if it is not on this machine.
    pub async fn image_labels(
        &self,
        image: &str,
    ) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let found = self.inspect_image(image).await?;
        let labels_of = |image: ImageInspect| image.config.and_then(|c| c.labels);
        Ok(found.map(|image| labels_of(image).unwrap_or_default().into_iter().collect()))
    }

    /// The entrypoint of an image; `None` if it is not on this machine or not known.
    pub async fn image_entrypoint(&self, image: &str) -> Option<Vec<String>> {
        let found = self.daemon().ok()?.inspect_image(image).await.ok()?;
        Some(found.config?.entrypoint.unwrap_or_default())
    }

    /// Id of an image; `None` if it is not on this machine.
    pub async fn image_id(&self, image: &str) -> Result<Option<String>, Failure> {
        let found = self.inspect_image(image).await?;
        Ok(found.map(|image| image.id.unwrap_or_default()))
    }

    async fn inspect_image(&self, image: &str) -> Result<Option<ImageInspect>, Failure> {
        let asked = self.ask_again(|docker| docker.inspect_image(image));
        match asked.await {
            Ok(found) => Ok(Some(found)),
            Err(e) if is_not_found(&e) => Ok(None),
            // Docker answers 400 for an invalid name: no such image either.
            Err(e) if daemon_answer(&e).is_some_and(|(code, _)| code == 400) => Ok(None),
            Err(e) => Err(daemon_failure(format!("cannot inspect image `{image}`"), e)),
        }
    }
}

pub(super) fn parse_inspection(c: ContainerInspectResponse) -> InspectedContainer {
    let config = c.config.unwrap_or_default();
    let host = c.host_config.unwrap_or_default();
    let raw_env: Vec<(String, String)> = config
        .env
        .unwrap_or_default()
        .into_iter()
        .map(|line| match line.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (line, String::new()),
        })
        .collect();
    let mut argv: Vec<String> = c.path.into_iter().filter(|p| !p.is_empty()).collect();
    argv.extend(c.args.unwrap_or_default());
    let mut secrets =
        Secrets::gather_from(raw_env.iter().map(|(n, v)| (n.as_str(), v.as_str())), &argv);
    let raw_labels = config.labels.unwrap_or_default();
    secrets.extend(&Secrets::gather_from(
        raw_labels.iter().map(|(n, v)| (n.as_str(), v.as_str())),
        &[],
    ));
    let redactor = secrets.redactor();

    let network = c.network_settings.unwrap_or_default();
    let mut addresses: Vec<String> = Vec::new();
    for endpoint in network.networks.unwrap_or_default().into_values() {
        addresses.extend(
            [endpoint.ip_address, endpoint.global_ipv6_address]
                .into_iter()
                .flatten()
                .filter(|a| !a.is_empty()),
        );
    }
    addresses.sort();
    addresses.dedup();

    let mut mounts: Vec<String> = c
        .mounts
        .unwrap_or_default()
        .into_iter()
        .map(|m| {
            let source = m
                .source
                .filter(|s| !s.is_empty())
                .or(m.name)
                .unwrap_or_default();
            redactor
                .redact_text(&format!("{source} → {}", m.destination.unwrap_or_default()))
                .into_owned()
        })
        .collect();
    mounts.sort();

    let mut state = c.state.unwrap_or_default();
    let health = state.health.take();
    let failed_check = health.as_ref().and_then(failed_check);
    let check = health.and_then(health_status);
    let status = status_word(state.status);
    let cgroup_parent = host.cgroup_parent.clone().filter(|p| !p.is_empty());
    let lives_in = (host.pid_mode.as_deref())
        .and_then(|mode| mode.strip_prefix("container:"))
        .map(str::to_owned);
    let positive = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let stamp = |text: Option<String>| {
        text.and_then(|t| parse_stamp(t.as_bytes()))
            .filter(|ns| *ns > 0)
    };
    let docker_errors = (state.error.clone().into_iter().chain(failed_check))
        .filter(|text| !text.trim().is_empty())
        .collect();
    let was_restarted = c.restart_count.unwrap_or_default() > 0 || status == "restarting";
    // Docker clears the code when a process starts.
    let last_exit_code = (state.exit_code).filter(|code| was_restarted && *code != 0);
    let facts = ContainerFacts {
        id: c.id.unwrap_or_default(),
        name: c
            .name
            .unwrap_or_default()
            .trim_start_matches('/')
            .to_owned(),
        image: config.image.unwrap_or_default(),
        image_id: c.image.unwrap_or_default(),
        labels: raw_labels
            .iter()
            .map(|(n, v)| (n.clone(), redactor.redact_setting(n, v)))
            .collect(),
        argv: redactor.redact_argv(&argv),
        env: raw_env
            .iter()
            .map(|(n, v)| {
                let value = if is_kept(n, &argv) {
                    redactor.redact_setting(n, v)
                } else {
                    NOT_KEPT.to_owned()
                };
                (n.clone(), value)
            })
            .collect(),
        state: ContainerState {
            exit_code: match status.as_str() {
                "running" | "paused" | "restarting" => None,
                _ if state.running.unwrap_or_default() => None,
                _ => state.exit_code,
            },
            status,
            pid: state
                .pid
                .and_then(|p| u32::try_from(p).ok())
                .filter(|p| *p > 0),
            oom_killed: state.oom_killed.unwrap_or_default(),
            started_ns: stamp(state.started_at),
            finished_ns: stamp(state.finished_at),
            restart_count: c.restart_count.unwrap_or_default(),
        },
        addresses,
        published_ports: published(network.ports.unwrap_or_default()),
        gpu_request: gpu_request(&host),
        devices: host_devices(&host),
        mounts,
        network_mode: host.network_mode.unwrap_or_default(),
        memory_limit_bytes: positive(host.memory),
        shm_size_bytes: positive(host.shm_size),
        tty: config.tty.unwrap_or_default(),
        created_ns: stamp(c.created),
    };
    InspectedContainer {
        facts,
        secrets,
        check,
        cgroup_parent,
        lives_in,
        docker_errors,
        last_exit_code,
    }
}

/// Accepts an answer about containers with states that Docker's API does not define.
pub(super) fn known_states<T: DeserializeOwned>(answer: Result<T, Error>) -> Result<T, Error> {
    let Err(Error::JsonDataError { contents, .. }) = &answer else {
        return answer;
    };
    let Ok(mut parsed) = serde_json::from_str::<Value>(contents) else {
        return answer;
    };
    let all = match &mut parsed {
        Value::Array(list) => list.iter_mut().collect(),
        one => vec![one],
    };
    for word in all.into_iter().filter_map(|container| {
        let state = container.get_mut("State")?;
        if state.is_object() {
            state.get_mut("Status")
        } else {
            Some(state)
        }
    }) {
        if let Value::String(text) = word {
            *text = docker_state(text).to_owned();
        }
    }
    serde_json::from_value(parsed).or(answer)
}

/// The state in the words of Docker's API; empty if unknown.
fn docker_state(word: &str) -> &str {
    match word {
        "stopped" => "exited",
        "configured" | "initialized" => "created",
        known if known.parse::<ContainerStateStatusEnum>().is_ok() => known,
        _ => "",
    }
}

/// Docker's word for a container's state; empty if unknown. Podman's `stopping` (signalled, but
/// still alive) is Docker's `running`.
pub(super) fn status_word(status: Option<impl ToString>) -> String {
    let word = status.map(|word| word.to_string()).unwrap_or_default();
    if word == "stopping" {
        "running".into()
    } else {
        word
    }
}

/// What the last check printed of a container that is unhealthy.
fn failed_check(health: &Health) -> Option<String> {
    let last = health.log.as_ref()?.last()?;
    let failed = health.status == Some(HealthStatusEnum::UNHEALTHY) && last.exit_code != Some(0);
    let output = last.output.as_deref().unwrap_or_default().trim();
    failed.then(|| format!("the health check failed: {output}"))
}

fn health_status(health: Health) -> Option<HealthStatus> {
    match health.status? {
        HealthStatusEnum::STARTING => Some(HealthStatus::Starting),
        HealthStatusEnum::HEALTHY => Some(HealthStatus::Healthy),
        HealthStatusEnum::UNHEALTHY => {
            let log = health.log.unwrap_or_default();
            let failing = log.iter().rev().take_while(|r| r.exit_code != Some(0));
            let first = failing.last().and_then(|r| r.start.as_ref());
            let since_ns = first.and_then(|start| parse_stamp(start.as_bytes()));
            Some(HealthStatus::Unhealthy { since_ns })
        }
        HealthStatusEnum::EMPTY | HealthStatusEnum::NONE => None,
    }
}

/// TCP ports that are published: container port → `host address:port`.
fn published(ports: PortMap) -> BTreeMap<u16, String> {
    let mut published = BTreeMap::new();
    for (port, bindings) in ports {
        let Some(port) = port
            .strip_suffix("/tcp")
            .unwrap_or(&port)
            .parse::<u16>()
            .ok()
        else {
            continue;
        };
        let mut bindings: Vec<_> = bindings
            .unwrap_or_default()
            .into_iter()
            .filter_map(|b| {
                let host_port = b.host_port.filter(|p| !p.is_empty())?;
                let ip = b
                    .host_ip
                    .filter(|i| !i.is_empty())
                    .unwrap_or_else(|| "0.0.0.0".into());
                Some((ip.contains(':'), ip, host_port))
            })
            .collect();
        // IPv4 first, because rules for `localhost` usually mean it.
        bindings.sort();
        if let Some((v6, ip, host_port)) = bindings.into_iter().next() {
            published.insert(
                port,
                if v6 {
                    format!("[{ip}]:{host_port}")
                } else {
                    format!("{ip}:{host_port}")
                },
            );
        }
    }
    published
}

/// The GPU request as Docker holds it: a device id each, or `all`, or `count=N`.
fn gpu_request(host: &HostConfig) -> Vec<String> {
    let is_gpu = |r: &DeviceRequest| {
        let capability = r
            .capabilities
            .iter()
            .flatten()
            .flatten()
            .any(|c| c == "gpu");
        let driver = r.driver.as_deref().unwrap_or_default();
        capability || matches!(driver, "nvidia" | "cdi" | "amd")
    };
    let mut request = Vec::new();
    for r in host.device_requests.iter().flatten().filter(|r| is_gpu(r)) {
        let ids = r.device_ids.clone().unwrap_or_default();
        match (ids.is_empty(), r.count.unwrap_or_default()) {
            (false, _) => request.extend(ids),
            (true, n) if n < 0 => request.push("all".to_owned()),
            (true, n) => request.push(format!("count={n}")),
        }
    }
    request
}

/// Host devices passed through; `/dev` as a whole for a privileged container.
fn host_devices(host: &HostConfig) -> Vec<String> {
    let mut devices: Vec<String> = host
        .devices
        .iter()
        .flatten()
        .filter_map(|d| d.path_on_host.clone())
        .collect();
    if host.privileged.unwrap_or_default() {
        devices.push("/dev".to_owned());
    }
    devices
}

/// For the daemon's answer, which runs a `ps`.
const PATIENCE: Duration = Duration::from_secs(5);

/// Processes that are looked at.
const MOST: usize = 4096;

impl Runtime {
    /// The command of each process of a running container, split at spaces, because Docker does not
    /// mark where an argument ends. Must not be stored: it can contain secrets. Empty if the daemon
    /// does not report it.
    pub async fn process_commands(&self, container: &str) -> Vec<Vec<String>> {
        if let Some(process) = self.process() {
            return process.commands();
        }
        let (Ok(name), Ok(docker)) = (checked_name(container), self.daemon()) else {
            return Vec::new();
        };
        // Docker runs the host's `ps`. Podman would run the container's, which is often missing;
        // with its own column names it reads the processes itself.
        let columns = if self.version().podman {
            "hpid,args"
        } else {
            "-eo pid,args"
        };
        let options = TopOptionsBuilder::default().ps_args(columns).build();
        let asked = docker.top_processes(name, Some(options));
        let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, asked).await else {
            return Vec::new();
        };
        let processes = answer.processes.unwrap_or_default();
        processes
            .into_iter()
            .take(MOST)
            .filter_map(|row| row.into_iter().nth(1))
            .map(|args| args.split_whitespace().map(str::to_owned).collect())
            .collect()
    }
}

/// Replaces values that are not recorded.
pub const NOT_KEPT: &str = "[not kept]";

/// Name prefixes of engines, their libraries and their devices.
const FAMILIES: &str = "AMD_ CUDA_ GGML_ GPU_ HF_ HIP_ HSA_ HUGGINGFACE_ KMP_ LLAMA_ MALLOC_ MKL_ NCCL_ NVIDIA_ \
    OLLAMA_ OMP_ ONEDNN_ OPENBLAS_ PLIMSOLL_ PYTHON PYTORCH_ REFERENCE_ ROCM_ ROCR_ SGLANG_ \
    SGL_ TGI_ TLLM_ TORCH TRANSFORMERS_ TRTLLM_ VLLM_";

/// Single names that decide where a model is and how a server is configured.
const NAMES: &str = "ATTENTION CUDA_GRAPHS CUDA_MEMORY_FRACTION DTYPE HOME HOSTNAME KV_CACHE_DTYPE LANG LC_ALL \
    LD_LIBRARY_PATH LD_PRELOAD MAX_BATCH_PREFILL_TOKENS MAX_BATCH_SIZE MAX_BATCH_TOTAL_TOKENS \
    MAX_CONCURRENT_REQUESTS MAX_INPUT_LENGTH MAX_INPUT_TOKENS MAX_MODEL_LEN MAX_TOTAL_TOKENS \
    MODEL MODEL_ID MODEL_NAME NUM_SHARD PATH PORT PREFILL_CHUNKING PREFIX_CACHING QUANTIZE \
    RAY_DEDUP_LOGS REVISION SHARDED SM_NUM_GPUS SPECULATE TENSOR_PARALLEL_SIZE \
    TOKENIZERS_PARALLELISM VIRTUAL_ENV ZE_AFFINITY_MASK";

/// Whether a variable's value is recorded. Variables that the command itself refers to (`$NAME`)
/// are settings of the engine.
pub fn is_kept(name: &str, argv: &[String]) -> bool {
    let mut families = FAMILIES.split_ascii_whitespace();
    families.any(|f| name.starts_with(f))
        || NAMES.split_ascii_whitespace().any(|n| n == name)
        || argv.iter().any(|word| refers_to(word, name))
}

fn refers_to(word: &str, name: &str) -> bool {
    let word_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    word.split('$').skip(1).any(|after| {
        let after = after.strip_prefix('{').unwrap_or(after);
        after.strip_prefix(name).is_some_and(word_end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> InspectedContainer {
        parse_inspection(serde_json::from_value(json).expect("inspect response"))
    }

    #[test]
    fn what_has_not_ended_has_no_exit_code() {
        // Docker calls what is paused or restarting running, Podman does not.
        for status in ["running", "paused", "restarting"] {
            let state = serde_json::json!({"Status": status, "Running": false, "ExitCode": 0});
            let found = read(serde_json::json!({"Id": "1", "State": state}));
            assert_eq!(found.facts.state.exit_code, None, "{status}");
        }
    }

    #[test]
    fn a_container_that_podman_is_stopping_runs_until_it_has_ended() {
        let state = |json: serde_json::Value| {
            read(serde_json::json!({"Id": "1", "Name": "/a", "State": json}))
                .facts
                .state
        };
        let stopping = state(
            serde_json::json!({"Status": "stopping", "Running": false, "Pid": 42, "ExitCode": 0}),
        );
        assert_eq!(
            (stopping.status.as_str(), stopping.exit_code, stopping.pid),
            ("running", None, Some(42))
        );
        let ended = state(
            serde_json::json!({"Status": "exited", "Running": false, "Pid": 0, "ExitCode": 137}),
        );
        assert_eq!(
            (ended.status.as_str(), ended.exit_code, ended.pid),
            ("exited", Some(137), None)
        );
    }

    #[test]
    fn a_container_is_understood_and_its_secrets_are_kept_apart() {
        let found = read(serde_json::json!({
            "Id": "71be", "Name": "/vllm", "Created": "2026-11-21T10:00:00.5Z", "Path": "vllm", "Args": ["serve", "m", "--api-key", "kkkkkk"], "RestartCount": 2,
            "Image": "sha256:1",
            "State": {"Status": "running", "Running": true, "Pid": 42, "ExitCode": 0, "OOMKilled": false, "StartedAt": "2026-11-21T10:00:01Z", "FinishedAt": "0001-01-01T00:00:00Z"},
            "Config": {"Image": "vllm/vllm-openai:v1", "Tty": true, "Env": ["HF_TOKEN=hf_secretsecret", "VLLM_A=b=c", "VLLM_NOTE=it is kkkkkk", "VLLM_EMPTY", "NOTE=private"], "Labels": {"a": "b"}},
            "HostConfig": {"Memory": 1024, "ShmSize": 67108864, "NetworkMode": "bridge", "Devices": [{"PathOnHost": "/dev/kfd"}],
                "DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}, {"Driver": "nvidia", "DeviceIDs": ["0", "GPU-1"], "Capabilities": [["gpu"]]},
                    // `docker run --device nvidia.com/gpu=2` of Docker 28.2 and later.
                    {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=2"], "Capabilities": null, "Options": null}]},
            "NetworkSettings": {"Ports": {"8000/tcp": [{"HostIp": "::", "HostPort": "18000"}, {"HostIp": "0.0.0.0", "HostPort": "18000"}], "9/udp": null, "7/tcp": null},
                "Networks": {"bridge": {"IPAddress": "172.17.0.2", "GlobalIPv6Address": ""}}},
            "Mounts": [{"Source": "/models", "Destination": "/m"}],
        }));
        let f = &found.facts;
        assert_eq!(
            (f.name.as_str(), f.tty, f.created_ns.is_some()),
            ("vllm", true, true)
        );
        assert_eq!(f.argv, ["vllm", "serve", "m", "--api-key", "[redacted]"]);
        assert_eq!(f.env["HF_TOKEN"], "[redacted]");
        assert_eq!(f.env["NOTE"], NOT_KEPT);
        assert_eq!(
            (
                f.env["VLLM_A"].as_str(),
                f.env["VLLM_NOTE"].as_str(),
                f.env["VLLM_EMPTY"].as_str()
            ),
            ("b=c", "it is [redacted]", "")
        );
        assert_eq!(f.state.exit_code, None, "a running container has none");
        assert_eq!(
            (f.state.pid, f.state.finished_ns, f.state.restart_count),
            (Some(42), None, 2)
        );
        assert_eq!(
            f.published_ports,
            BTreeMap::from([(8000, "0.0.0.0:18000".to_owned())])
        );
        assert_eq!(f.addresses, ["172.17.0.2"]);
        assert_eq!(f.gpu_request, ["all", "0", "GPU-1", "nvidia.com/gpu=2"]);
        assert_eq!(f.devices, ["/dev/kfd"]);
        assert_eq!(f.mounts, ["/models → /m"]);
        assert_eq!(f.memory_limit_bytes, Some(1024));
        assert_eq!(found.secrets.api_key(), Some("kkkkkk"));
        assert_eq!(found.secrets.get("HF_TOKEN"), Some("hf_secretsecret"));
        assert!(!format!("{found:?}").contains("kkkkkk"));
    }

    #[test]
    fn the_result_of_dockers_own_check_is_kept() {
        let state = |health: serde_json::Value| {
            read(serde_json::json!({"State": {"Status": "running", "Health": health}})).check
        };
        assert_eq!(state(serde_json::json!({"Status": "none"})), None);
        assert_eq!(
            state(serde_json::json!({"Status": "starting", "FailingStreak": 1})),
            Some(HealthStatus::Starting)
        );
        assert_eq!(
            state(serde_json::json!({"Status": "healthy"})),
            Some(HealthStatus::Healthy)
        );
        let failing = state(
            serde_json::json!({"Status": "unhealthy", "FailingStreak": 2, "Log": [
                {"Start": "1970-01-01T00:00:01Z", "End": "1970-01-01T00:00:02Z", "ExitCode": 0, "Output": ""},
                {"Start": "1970-01-01T00:00:03Z", "End": "1970-01-01T00:00:04Z", "ExitCode": 1, "Output": ""},
                {"Start": "1970-01-01T00:00:05Z", "End": "1970-01-01T00:00:06Z", "ExitCode": 1, "Output": ""},
            ]}),
        );
        let since_ns = Some(3_000_000_000);
        assert_eq!(failing, Some(HealthStatus::Unhealthy { since_ns }));
    }

    #[test]
    fn a_shared_pid_namespace_is_read() {
        for (mode, sharer) in [
            ("", None),
            ("host", None),
            ("private", None),
            ("container:71be", Some("71be")),
        ] {
            let found = read(serde_json::json!({"HostConfig": {"PidMode": mode}}));
            assert_eq!(found.lives_in.as_deref(), sharer, "{mode}");
        }
    }

    #[test]
    fn an_empty_answer_is_a_container_of_which_nothing_is_known() {
        let found = read(serde_json::json!({}));
        assert_eq!(found.facts, ContainerFacts::default());
    }
}

#[cfg(test)]
mod environment_tests {
    use super::*;

    #[test]
    fn only_what_explains_an_engine_is_written_down() {
        for name in [
            "VLLM_CPU_KVCACHE_SPACE",
            "CUDA_VISIBLE_DEVICES",
            "HF_HOME",
            "MODEL_ID",
            "PATH",
        ] {
            assert!(is_kept(name, &[]), "{name}");
        }
        for name in [
            "DB_PASS",
            "GITHUB_PAT",
            "SESSION_COOKIE",
            "TS_AUTHKEY",
            "MY_JWT",
            "X",
            "",
        ] {
            assert!(!is_kept(name, &[]), "{name}");
        }
    }

    #[test]
    fn what_the_command_refers_to_is_a_setting() {
        let argv = [
            "sh".to_owned(),
            "-c".to_owned(),
            "serve ${WEIGHTS} --len $LEN".to_owned(),
        ];
        assert!(is_kept("WEIGHTS", &argv) && is_kept("LEN", &argv));
        assert!(!is_kept("LE", &argv) && !is_kept("serve", &argv));
    }
}
