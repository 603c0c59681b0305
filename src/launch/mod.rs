//! What people start, as one type: lines of `docker run`, services of Compose, pods of Kubernetes, running containers.

pub mod compose;
mod docker;
pub mod kubernetes;
pub mod recipe;
pub mod shown;

pub use docker::read_line;

use crate::capture::ContainerFacts;
use crate::engine::EngineId;
use crate::engine::command::is_unresolved;
use crate::engine::settings::looks_secret;
use crate::preset::{GpuRequest, Preset};
use crate::units::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;

/// A container, or a program of the host, as it is to be started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Launch {
    /// Service of Compose, container of a pod.
    pub service: Option<String>,
    /// Services that it depends on.
    pub after: Vec<String>,
    /// Image; `None` for a program of the host.
    pub image: Option<String>,
    /// Instead of the image's own.
    pub entrypoint: Option<LaunchEntrypoint>,
    /// The words after the image.
    pub argv: Vec<String>,
    /// Variables; of secrets only the names are kept.
    pub env: BTreeMap<String, String>,
    /// GPUs that are asked for.
    pub gpus: Option<GpuRequest>,
    /// `/dev/kfd` is passed through.
    pub amd: bool,
    /// Size of /dev/shm, bytes.
    pub shm_bytes: Option<u64>,
    /// IPC namespace.
    pub ipc: Option<String>,
    /// Docker's runtime.
    pub runtime: Option<String>,
    /// As written, `HOST:CONTAINER`.
    pub mounts: Vec<String>,
    /// As written, `HOST:CONTAINER`.
    pub ports: Vec<String>,
    /// Names of secrets in it.
    pub secrets: Vec<String>,
    /// What the line leaves open, each with its place.
    pub unresolved: Vec<String>,
    /// Files of variables that are still to be read.
    pub env_files: Vec<String>,
    /// Linux capabilities.
    pub cap_add: Vec<String>,
    /// As docker's `--security-opt`.
    pub security_opt: Vec<String>,
    /// Limits of its processes by name.
    pub ulimits: BTreeMap<String, i64>,
    /// Memory limit, as written.
    pub memory: Option<String>,
    /// Flags of the container that `plimsoll run` does not take over, with their values.
    pub left_out: Vec<String>,
    /// Flags that are not known.
    pub unknown_flags: Vec<String>,
    /// Sentences.
    pub warnings: Vec<String>,
}

/// An entrypoint as it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchEntrypoint {
    /// One word; none clears the image's.
    Word(String),
    /// Words.
    Words(Vec<String>),
}

impl LaunchEntrypoint {
    /// Its words.
    pub fn words(&self) -> Vec<String> {
        match self {
            LaunchEntrypoint::Word(word) if word.is_empty() => Vec::new(),
            LaunchEntrypoint::Word(word) => vec![word.clone()],
            LaunchEntrypoint::Words(words) => words.clone(),
        }
    }
}

/// The variable by which NVIDIA's runtime gives devices.
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

impl Launch {
    fn set_env(&mut self, name: &str, value: &str) {
        if looks_secret(name) {
            self.add_secret(name);
        } else if is_unresolved(value) {
            self.unresolved
                .push(format!("{value} (the variable {name})"));
        } else {
            self.env.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Takes the variables of its files, as `open` reads them; what the line sets itself wins.
    pub fn read_env_files(&mut self, open: &dyn Fn(&str) -> Option<String>) {
        let own = self.env.clone();
        for file in std::mem::take(&mut self.env_files) {
            match open(&file) {
                Some(text) => {
                    compose::read_variables(&text).for_each(|(n, v)| self.set_env(&n, &v));
                }
                None => self.unresolved.push(format!("--env-file {file}")),
            }
        }
        self.env.extend(own);
    }

    /// Takes the flags of the YAML file that `--config` names, as `open` reads it: vLLM's `FlexibleArgumentParser` and
    /// SGLang's `ConfigArgumentMerger`. What the line sets itself comes later, and wins.
    pub fn read_flag_file(&mut self, open: &dyn Fn(&str) -> Option<String>) {
        let engine = self.server().and_then(|server| server.reader);
        if !matches!(engine, Some(EngineId::Vllm | EngineId::Sglang)) {
            return;
        }
        let is_named = |w: &String| w == "--config" || w.starts_with("--config=");
        let Some(at) = self.argv.iter().position(is_named) else {
            return;
        };
        let (name, end) = match self.argv[at].split_once('=') {
            Some((_, name)) => (Some(name), at + 1),
            None => (self.argv.get(at + 1).map(String::as_str), at + 2),
        };
        let host = name.and_then(|name| match self.image {
            Some(_) => self.host_path(name),
            None => Some(name.to_owned()),
        });
        let text = host.and_then(|host| open(&host));
        let Some(flags) = text.and_then(|text| flags_of_file(&text)) else {
            return;
        };
        self.argv.drain(at..end);
        let is_server =
            |w: &String| w == "serve" || w.ends_with("api_server") || w.ends_with("launch_server");
        let after = self.argv.iter().rposition(is_server).map_or(0, |i| i + 1);
        let words = &self.argv[after..];
        let own = words.iter().position(|w| w.starts_with('-'));
        let first = after + own.unwrap_or(words.len());
        self.argv.splice(first..first, flags);
    }

    /// A container as Docker describes it, running or not.
    pub fn of_facts(facts: ContainerFacts) -> Launch {
        let mut launch = Launch {
            image: Some(facts.image),
            entrypoint: Some(LaunchEntrypoint::Words(Vec::new())),
            argv: facts.argv,
            shm_bytes: facts.shm_size_bytes,
            // Docker's own arrow would not be split.
            mounts: facts.mounts.iter().map(|m| m.replace(" → ", ":")).collect(),
            gpus: Some(GpuRequest::from_stored(&facts.gpu_request))
                .filter(|g| *g != GpuRequest::None),
            ..Launch::default()
        };
        for (name, value) in &facts.env {
            launch.set_env(name, value);
        }
        for device in &facts.devices {
            launch.add_device(device);
        }
        launch
    }

    /// How to start the same container, the command apart.
    pub fn preset(&self) -> Preset {
        let size = |bytes: u64| Bytes(bytes).0.to_string();
        Preset {
            image: self.image.clone(),
            gpus: (self.gpus.clone().or_else(|| self.gpus_of_runtime()))
                .map(|request| request.to_string()),
            amd: self.amd,
            shm_size: self.shm_bytes.map(size),
            memory: self.memory.clone(),
            ipc_host: self.ipc.as_deref() == Some("host"),
            env: self.env.clone(),
            volumes: self.mounts.iter().map(|m| short_mount(m)).collect(),
            cap_add: self.cap_add.clone(),
            security_opt: self.security_opt.clone(),
            ulimits: self.ulimits.clone(),
            ..Preset::default()
        }
    }

    /// The GPUs that Docker's runtime `nvidia` gives without a request: those of its variable, else all.
    fn gpus_of_runtime(&self) -> Option<GpuRequest> {
        if self.runtime.as_deref() != Some("nvidia") {
            return None;
        }
        match self.env.get(NVIDIA_DEVICES).map(String::as_str) {
            Some("" | "none" | "void") => None,
            _ => Some(
                self.listed_devices(NVIDIA_DEVICES)
                    .map_or(GpuRequest::All, GpuRequest::Ids),
            ),
        }
    }

    /// The devices that a variable lists; `None` where it lists none, or all.
    fn listed_devices(&self, variable: &str) -> Option<Vec<String>> {
        let text = self.env.get(variable).filter(|t| !is_unresolved(t))?;
        let is_list = !matches!(text.as_str(), "" | "all" | "void" | "none");
        let words = text.split(',').map(|w| w.trim().to_owned());
        is_list.then(|| words.collect())
    }

    /// TCP ports that it publishes: the container's → the host's, 0 for any that is free.
    pub fn published_ports(&self) -> BTreeMap<u16, u16> {
        let read = |text: &String| {
            let text = text.strip_suffix("/tcp").unwrap_or(text);
            let mut parts = text.rsplit(':');
            let inside = parts.next()?.parse().ok()?;
            let host = parts.next().filter(|h| !h.is_empty());
            Some((inside, host.map_or(Some(0), |h| h.parse().ok())?))
        };
        self.ports.iter().filter_map(read).collect()
    }

    /// The model's place on the host, where it is a path within a mount whose source is known.
    pub fn host_model(&self, model: Option<String>) -> Option<String> {
        let model = model?;
        Some(self.host_path(&model).unwrap_or(model))
    }

    /// Where a path of the container lies on the host, within a mount whose source is known.
    fn host_path(&self, inner: &str) -> Option<String> {
        self.mounts.iter().find_map(|mount| {
            let mount = short_mount(mount);
            let mut parts = mount.split(':');
            let (source, target) = (parts.next()?, parts.next()?);
            let rest = inner.strip_prefix(target.trim_end_matches('/'))?;
            let inside = rest.is_empty() || rest.starts_with('/');
            let path = source.starts_with(['/', '.']) && !is_unresolved(source);
            (inside && path).then(|| format!("{}{rest}", source.trim_end_matches('/')))
        })
    }

    /// The GPUs that a server on `count` of them takes, by number or id: the first that it sees.
    pub fn devices(&self, count: u64) -> Vec<String> {
        let given = match &self.gpus {
            Some(GpuRequest::Ids(ids)) => {
                let id = |id: &String| id.rsplit('=').next().unwrap_or(id).to_owned();
                Some(ids.iter().map(id).collect())
            }
            Some(GpuRequest::All | GpuRequest::Count(_)) => None,
            None | Some(GpuRequest::None) => self.listed_devices(NVIDIA_DEVICES),
        };
        let visible = recipe::RECIPES.visible_env.iter();
        let visible = visible.filter(|name| *name != NVIDIA_DEVICES);
        let chosen = visible.filter_map(|name| self.listed_devices(name)).next();
        let nth = |n: &String| match (&given, n.parse::<usize>()) {
            // Numbers of the container's own count.
            (Some(given), Ok(at)) => given.get(at).cloned().unwrap_or_else(|| n.clone()),
            _ => n.clone(),
        };
        let devices: Vec<String> = match (&given, &chosen) {
            (_, Some(chosen)) => chosen.iter().map(nth).collect(),
            (Some(given), None) => given.clone(),
            (None, None) => (0..count).map(|n| n.to_string()).collect(),
        };
        devices.into_iter().take(count as usize).collect()
    }

    /// How many GPUs a variable leaves visible; `None` where none lists them.
    pub fn visible_gpus(&self) -> Option<u64> {
        let lists = recipe::RECIPES.visible_env.iter();
        let lists = lists.filter_map(|name| self.listed_devices(name));
        lists.map(|list| list.len() as u64).min()
    }

    /// A variable with a value from the shell.
    fn pass_env(&mut self, name: &str) {
        if looks_secret(name) {
            self.add_secret(name);
        } else if !name.is_empty() {
            self.unresolved.push(format!("{name} (from the shell)"));
        }
    }

    fn add_secret(&mut self, name: &str) {
        if !self.secrets.iter().any(|s| s == name) {
            self.secrets.push(name.to_owned());
        }
    }

    /// A device of the host, or one of CDI.
    fn add_device(&mut self, device: &str) {
        if device.starts_with("/dev/kfd") {
            self.amd = true;
        } else if let Some((kind, id)) = device.split_once('=') {
            if kind.ends_with("/gpu") {
                let all = matches!(id, "all");
                match &mut self.gpus {
                    Some(GpuRequest::Ids(ids)) if !all => ids.push(id.to_owned()),
                    request if all => *request = Some(GpuRequest::All),
                    request => *request = Some(GpuRequest::Ids(vec![id.to_owned()])),
                }
            }
        }
    }
}

/// The flags of a YAML file: `true` is the flag alone, a list several words, an object JSON; `None` for no object.
fn flags_of_file(text: &str) -> Option<Vec<String>> {
    let all: serde_json::Map<String, Value> = serde_yaml::from_str(text).ok()?;
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let flags = all.iter().flat_map(|(key, value)| {
        let flag = format!("--{}", key.replace('_', "-"));
        match value {
            Value::Null | Value::Bool(false) => Vec::new(),
            Value::Bool(true) => vec![flag],
            Value::Array(items) => [flag].into_iter().chain(items.iter().map(word)).collect(),
            other => vec![flag, word(other)],
        }
    });
    Some(flags.collect())
}

/// A mount as `-v` writes it; `--mount` names its parts.
fn short_mount(mount: &str) -> String {
    let part = |names: &[&str]| {
        let mut parts = mount.split(',').filter_map(|p| p.split_once('='));
        parts.find_map(|(name, value)| names.contains(&name).then(|| value.to_owned()))
    };
    match (
        part(&["source", "src"]),
        part(&["target", "dst", "destination"]),
    ) {
        (Some(source), Some(target)) => {
            let read_only = mount.split(',').any(|p| matches!(p, "readonly" | "ro"));
            format!("{source}:{target}{}", if read_only { ":ro" } else { "" })
        }
        _ => mount.to_owned(),
    }
}
