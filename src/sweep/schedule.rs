//! Which groups may run side by side: those that share no device and no container.

use crate::capture::DeviceKind;
use crate::collect;
use crate::container::Runtime;
use crate::error::Failure;
use crate::matrix::EnginePlace;
use crate::preset::Preset;
use crate::telemetry::{self, BackendChoice, MeasuredContainer};
use std::collections::BTreeSet;

/// Placeholder for the host's own memory and processors: engines without a GPU would disturb each
/// other, so one runs at a time.
pub const HOST: &str = "the host's memory";

/// What a group needs for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceClaim {
    /// These: ids of GPUs, containers, or the host.
    pub fixed: BTreeSet<String>,
    /// A number of GPUs, any free ones of these.
    pub any: Option<(usize, Vec<String>)>,
}

impl DeviceClaim {
    /// What a group would take now, with `busy` taken by others; `None`: it must wait.
    pub fn try_take(&self, busy: &BTreeSet<String>) -> Option<TakenDevices> {
        if !self.fixed.is_disjoint(busy) {
            return None;
        }
        let mut taken = self.fixed.clone();
        let mut chosen = Vec::new();
        if let Some((count, of)) = &self.any {
            let free = |gpu: &&String| !busy.contains(*gpu);
            chosen = of.iter().filter(free).take(*count).cloned().collect();
            if chosen.len() < *count {
                return None;
            }
            taken.extend(chosen.iter().cloned());
        }
        Some(TakenDevices { taken, chosen })
    }
}

/// What a group has taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenDevices {
    /// All of it.
    pub taken: BTreeSet<String>,
    /// The GPUs that were chosen for it.
    pub chosen: Vec<String>,
}

/// What groups need; a container or an image is looked at once, however many groups are on it.
pub struct DeviceClaims<'a> {
    runtime: &'a Runtime,
    choice: BackendChoice,
    known: Vec<(EnginePlace, DeviceClaim)>,
}

impl<'a> DeviceClaims<'a> {
    /// Nothing was looked at yet.
    pub fn new(runtime: &'a Runtime, choice: BackendChoice) -> DeviceClaims<'a> {
        DeviceClaims {
            runtime,
            choice,
            known: Vec::new(),
        }
    }

    /// What the groups of a place need. A failure names what is missing.
    pub async fn claim_of(&mut self, place: &EnginePlace) -> Result<DeviceClaim, Failure> {
        // The groups of a place mostly follow each other.
        if let Some((_, claim)) = self.known.iter().rev().find(|(p, _)| p == place) {
            return Ok(claim.clone());
        }
        let claim = claim(self.runtime, self.choice, place).await?;
        self.known.push((place.clone(), claim.clone()));
        Ok(claim)
    }
}

async fn claim(
    runtime: &Runtime,
    choice: BackendChoice,
    place: &EnginePlace,
) -> Result<DeviceClaim, Failure> {
    match place {
        EnginePlace::Container(name) => {
            let found = runtime.find_container(name).await?;
            let mut claim = claim_devices(choice, &MeasuredContainer::of_container(&found.facts))?;
            claim.fixed.insert(format!("container {}", found.facts.id));
            Ok(claim)
        }
        EnginePlace::Image(preset) => of_image(choice, preset),
    }
}

fn of_image(choice: BackendChoice, preset: &Preset) -> Result<DeviceClaim, Failure> {
    if preset.amd {
        // What the container is given is every AMD GPU.
        let all = MeasuredContainer {
            devices: vec!["/dev/kfd".into(), "/dev/dri".into()],
            ..MeasuredContainer::default()
        };
        return claim_devices(choice, &all);
    }
    let request = collect::gpu_request(preset)?;
    let words = request.stored_words();
    let count = words.iter().find_map(|w| w.strip_prefix("count="));
    if let Some(count) = count.and_then(|n| n.parse().ok()) {
        let all: Vec<String> = telemetry::open_host()?
            .devices()
            .into_iter()
            .map(|d| d.id)
            .collect();
        if all.len() < count {
            return Err(Failure::environment(format!(
                "a cell needs {count} GPUs, and this host has {}",
                all.len()
            ))
            .hint("lower its tensor_parallel_size or gpus"));
        }
        return Ok(DeviceClaim {
            any: Some((count, all)),
            ..DeviceClaim::default()
        });
    }
    let target = MeasuredContainer {
        gpu_request: words,
        visible_devices: preset.env.get("NVIDIA_VISIBLE_DEVICES").cloned(),
        ..MeasuredContainer::default()
    };
    if target.gpu_request.is_empty() && target.visible_devices.is_none() {
        return Ok(DeviceClaim {
            fixed: BTreeSet::from([HOST.to_owned()]),
            ..DeviceClaim::default()
        });
    }
    // Without a container there is no host memory to fall back to: GPUs or nothing.
    let choice = match choice {
        BackendChoice::Auto => BackendChoice::Nvml,
        other => other,
    };
    claim_devices(choice, &target)
}

/// The devices that a target is measured on.
fn claim_devices(
    choice: BackendChoice,
    target: &MeasuredContainer,
) -> Result<DeviceClaim, Failure> {
    let devices = telemetry::open_backend(choice, target)?.devices();
    let name = |d: crate::capture::DeviceFacts| match d.kind {
        DeviceKind::Gpu => d.id,
        DeviceKind::HostCgroup => HOST.to_owned(),
    };
    Ok(DeviceClaim {
        fixed: devices.into_iter().map(name).collect(),
        ..DeviceClaim::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn never_two_on_one_gpu() {
        let fixed = |names: &[&str]| DeviceClaim {
            fixed: set(names),
            any: None,
        };
        let any = |count| DeviceClaim {
            any: Some((count, vec!["a".into(), "b".into(), "c".into()])),
            ..DeviceClaim::default()
        };
        assert!(fixed(&["a"]).try_take(&set(&["b"])).is_some());
        assert!(fixed(&["a", "b"]).try_take(&set(&["b"])).is_none());
        assert_eq!(any(2).try_take(&set(&["a"])).unwrap().chosen, ["b", "c"]);
        assert_eq!(any(2).try_take(&set(&["a", "c"])), None);
    }

    proptest! {
        #[test]
        fn whatever_is_taken_was_free(
            busy in proptest::collection::btree_set("[a-e]", 0..4),
            fixed in proptest::collection::btree_set("[a-e]", 0..3),
            count in 0usize..4,
        ) {
            let all: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
            let claim = DeviceClaim { fixed: fixed.clone(), any: Some((count, all)) };
            if let Some(taken) = claim.try_take(&busy) {
                prop_assert!(taken.taken.is_disjoint(&busy));
                prop_assert!(fixed.is_subset(&taken.taken));
                prop_assert_eq!(taken.chosen.len(), count);
            }
        }
    }
}
