//! Limits on the container's host memory, and which level of its cgroup path sets them.

use super::ContainerEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a limit on the container's memory is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitLevel {
    /// The container's own cgroup (`docker run --memory`).
    Container,
    /// A cgroup above it, by its path: a systemd slice, a Slurm job, a Kubernetes pod.
    Cgroup(String),
    /// No cgroup: the host's physical memory.
    #[default]
    Host,
}

/// A limit on the container's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Where it is set.
    pub level: LimitLevel,
}

impl MemoryLimit {
    /// As attributes of an `oom` event.
    pub fn to_attributes(&self) -> [(String, String); 2] {
        let level = match &self.level {
            LimitLevel::Container => "container",
            LimitLevel::Cgroup(path) => path,
            LimitLevel::Host => "host",
        };
        [
            ("level".into(), level.into()),
            ("limit_bytes".into(), self.bytes.to_string()),
        ]
    }

    /// The limit that an `oom` event names; `None` for Docker's own events, which name none.
    pub fn from_event(event: &ContainerEvent) -> Option<MemoryLimit> {
        let level = match event.attributes.get("level")?.as_str() {
            "container" => LimitLevel::Container,
            "host" => LimitLevel::Host,
            path => LimitLevel::Cgroup(path.to_owned()),
        };
        let bytes = event.attributes.get("limit_bytes")?.parse().ok()?;
        Some(MemoryLimit { bytes, level })
    }
}
