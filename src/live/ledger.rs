//! What `watch` knows of this host's engines beyond one scan: starts, deaths with their causes, the
//! parts of their memory, its highest use and its growth. Kept on disk over restarts.

use super::{ContainerScan, MemoryScan};
use crate::breakdown::Component;
use crate::capture::DeviceKind;
use crate::profile::{GrowthKind, GrowthSeries, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the file in the state folder.
pub const LEDGER_FILE: &str = "watch.json";
/// Containers that are remembered. Beyond it the one that was not seen for the longest time is forgotten,
/// so that page and file stay bounded where names are made anew for each start.
pub const MOST_CONTAINERS: usize = 256;
/// Memory that differs by more than this share from what the parts were read at is read again.
const READ_AGAIN_SHARE: f64 = 0.05;
/// And by more than this, bytes.
const READ_AGAIN_BYTES: u64 = 64 << 20;
/// Between two readings of one container, seconds.
const READ_AGAIN_S: f64 = 60.0;
/// Between two calculations of how fast memory grows, seconds: each compares all pairs of readings.
const GROWTH_EVERY_S: f64 = 300.0;
/// Device of the host's memory, where those of GPUs are their UUIDs.
pub const HOST_DEVICE: &str = "";

/// Everything that is remembered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchLedger {
    /// When the latest event of the daemon that was handled happened, nanoseconds since the Unix epoch.
    pub events_until_ns: i64,
    /// Containers with an engine by name: a container that is made anew keeps its record.
    pub containers: BTreeMap<String, ContainerRecord>,
}

/// A container with an engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerRecord {
    /// Id of the latest one of this name.
    pub id: String,
    /// The engine.
    pub engine: Option<String>,
    /// Whether the engine is simulated.
    pub simulated: bool,
    /// When it was last seen running, seconds since the Unix epoch.
    pub seen_at: f64,
    /// Starts that were seen.
    pub starts: u64,
    /// When the latest of them was, nanoseconds since the Unix epoch.
    pub started_ns: i64,
    /// Deaths by cause; `unknown` where the evidence names none.
    pub deaths: BTreeMap<String, u64>,
    /// The latest death.
    pub last_death: Option<DeathRecord>,
    /// This life.
    pub life: ContainerLife,
}

/// A container from one start to its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerLife {
    /// The model, as the engine names it.
    pub model: Option<String>,
    /// The engine's version.
    pub engine_version: Option<String>,
    /// The parts of its memory by device, as a profile without load has them.
    pub parts: Vec<DevicePart>,
    /// Memory in use when the parts were read, bytes; null where they were not.
    pub read_at_bytes: Option<u64>,
    /// When reading the parts was last begun, seconds since the Unix epoch.
    pub read_at: f64,
    /// Why there are no parts; null where there are.
    pub unread: Option<String>,
    /// Highest use by device, bytes.
    pub peak_bytes: BTreeMap<String, u64>,
    /// Use over time by device.
    pub growth: BTreeMap<String, GrowthSeries>,
    /// By how many bytes a second the use of a device grows: 0 where it does not. A device is missing
    /// where it is too early to know.
    pub growth_per_s: BTreeMap<String, f64>,
    /// When that was calculated, seconds since the Unix epoch.
    pub growth_at: f64,
}

/// A part of the memory of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DevicePart {
    /// UUID of the GPU, or [`HOST_DEVICE`].
    pub device: String,
    /// Which part.
    pub component: Component,
    /// Bytes.
    pub bytes: i64,
}

/// A death.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeathRecord {
    /// When, nanoseconds since the Unix epoch.
    pub at_ns: i64,
    /// Exit code, where the daemon reports it.
    pub exit_code: Option<i64>,
    /// Name of the cause; null where the evidence does not decide.
    pub cause: Option<String>,
    /// The cause in words.
    pub means: Option<String>,
    /// The best advice.
    pub advice: Option<String>,
}

impl WatchLedger {
    /// Takes a scan: who runs, how much is in use.
    pub fn record_scan(&mut self, scan: &MemoryScan) {
        for container in scan.containers.iter().filter(|c| c.engine.is_some()) {
            let record = self.record_of(&container.name);
            if record.id != container.id {
                record.begin_life(&container.id);
            }
            record.engine.clone_from(&container.engine);
            record.simulated = container.simulated;
            record.seen_at = scan.timestamp;
            for (device, bytes) in devices_of(scan, container) {
                let life = &mut record.life;
                let peak = life.peak_bytes.entry(device.clone()).or_default();
                *peak = bytes.max(*peak);
                let growth = life.growth.entry(device).or_default();
                growth.add_reading(scan.timestamp, bytes);
            }
            record.life.update_growth(scan.timestamp);
        }
        self.forget_oldest();
    }

    /// Notes that a container started: its memory begins anew. A start that an earlier watch recorded is counted once.
    pub fn record_start(&mut self, name: &str, id: &str, at_ns: i64) {
        let record = self.record_of(name);
        if at_ns > 0 && at_ns <= record.started_ns {
            return;
        }
        record.started_ns = at_ns;
        record.seen_at = record.seen_at.max(at_ns as f64 / 1e9);
        record.starts += 1;
        record.begin_life(id);
        self.forget_oldest();
    }

    /// Notes deaths of one cause; `count` of them, the latest as given. What an earlier watch recorded is counted once.
    pub fn record_death(&mut self, name: &str, count: u64, death: DeathRecord) {
        let record = self.record_of(name);
        let last_ns = record.last_death.as_ref().map_or(0, |last| last.at_ns);
        if death.at_ns > 0 && death.at_ns <= last_ns {
            return;
        }
        let cause = death.cause.clone().unwrap_or_else(|| "unknown".to_owned());
        *record.deaths.entry(cause).or_default() += count;
        record.seen_at = record.seen_at.max(death.at_ns as f64 / 1e9);
        record.last_death = Some(death);
        self.forget_oldest();
    }

    /// Notes that all events until then are recorded, wall nanoseconds since the Unix epoch.
    pub fn record_until(&mut self, until_ns: i64) {
        self.events_until_ns = self.events_until_ns.max(until_ns);
    }

    /// Takes the parts of a container's memory from its profile.
    pub fn record_parts(&mut self, container: &ContainerScan, in_use: u64, profile: &Profile) {
        let record = self.record_of(&container.name);
        if record.id != container.id {
            return;
        }
        let devices = &profile.gpu_info.devices;
        let name_of = |index: u32| {
            let device = devices.iter().find(|d| d.index == index)?;
            let gpu = device.kind == DeviceKind::Gpu;
            Some(if gpu {
                device.id.clone()
            } else {
                HOST_DEVICE.to_owned()
            })
        };
        let parts = profile.memory_breakdown.per_gpu.iter().flat_map(|device| {
            let name = name_of(device.gpu_id).unwrap_or_default();
            device.parts.iter().map(move |part| DevicePart {
                device: name.clone(),
                component: part.component,
                bytes: part.bytes,
            })
        });
        let life = &mut record.life;
        life.parts = parts.collect();
        life.read_at_bytes = Some(in_use);
        life.model.clone_from(&profile.model_info.name);
        life.engine_version
            .clone_from(&profile.engine_metadata.engine_version);
        life.unread = life
            .parts
            .is_empty()
            .then(|| "nothing was measured".to_owned());
    }

    /// Notes why the parts of a container's memory could not be read; whether the reason is new.
    pub fn record_unread(&mut self, container: &ContainerScan, why: &str) -> bool {
        let record = self.record_of(&container.name);
        let unread = &mut record.life.unread;
        let is_new = record.id == container.id && unread.as_deref() != Some(why);
        if is_new {
            *unread = Some(why.to_owned());
        }
        is_new
    }

    /// Whether the parts of a container's memory are to be read now; if so, the time is noted. `is_kept`: what an earlier
    /// reading found is still where it is wanted.
    pub fn take_due_reading(
        &mut self,
        scan: &MemoryScan,
        container: &ContainerScan,
        is_kept: bool,
    ) -> bool {
        let in_use = memory_in_use(scan, container);
        let Some(record) = self.containers.get_mut(&container.name) else {
            return false;
        };
        let life = &mut record.life;
        let changed = !is_kept
            || life.read_at_bytes.is_none_or(|then| {
                let apart = then.abs_diff(in_use);
                apart > READ_AGAIN_BYTES && apart as f64 > then as f64 * READ_AGAIN_SHARE
            });
        let due = scan.timestamp - life.read_at >= READ_AGAIN_S;
        let begins = container.serving && changed && due;
        if begins {
            life.read_at = scan.timestamp;
        }
        begins
    }

    fn record_of(&mut self, name: &str) -> &mut ContainerRecord {
        self.containers.entry(name.to_owned()).or_default()
    }

    fn forget_oldest(&mut self) {
        while self.containers.len() > MOST_CONTAINERS {
            let oldest = self.containers.iter();
            let oldest = oldest.min_by(|a, b| a.1.seen_at.total_cmp(&b.1.seen_at));
            let Some(name) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            self.containers.remove(&name);
        }
    }
}

impl ContainerRecord {
    fn begin_life(&mut self, id: &str) {
        id.clone_into(&mut self.id);
        self.life = ContainerLife::default();
    }
}

impl ContainerLife {
    fn update_growth(&mut self, now: f64) {
        if now - self.growth_at < GROWTH_EVERY_S {
            return;
        }
        self.growth_at = now;
        let rates = self.growth.iter().filter_map(|(device, series)| {
            let growth = series.find_growth()?;
            let rate = match growth.growth_kind() {
                GrowthKind::Drift => growth.per_hour / 3600.0,
                GrowthKind::Flat | GrowthKind::Step => 0.0,
            };
            Some((device.clone(), rate))
        });
        self.growth_per_s = rates.collect();
    }
}

/// What a container holds on each device: GPUs by UUID, and its host memory without page cache.
pub fn devices_of(scan: &MemoryScan, container: &ContainerScan) -> Vec<(String, u64)> {
    let on_gpus = scan.gpus.iter().filter_map(|gpu| {
        let own = (gpu.tenants.iter()).find(|t| t.container_id.as_ref() == Some(&container.id))?;
        Some((gpu.uuid.clone(), own.used_bytes))
    });
    let host = container
        .held_bytes()
        .map(|bytes| (HOST_DEVICE.to_owned(), bytes));
    on_gpus.chain(host).collect()
}

/// The same over all devices.
pub fn memory_in_use(scan: &MemoryScan, container: &ContainerScan) -> u64 {
    let devices = devices_of(scan, container);
    devices
        .iter()
        .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::HostSplit;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn scan(at: f64, containers: &[(&str, u64)]) -> MemoryScan {
        let containers = containers.iter().map(|(name, bytes)| ContainerScan {
            id: format!("id-{name}"),
            name: (*name).to_owned(),
            engine: Some("vllm".to_owned()),
            serving: true,
            host_bytes: Some(*bytes),
            host: Some(HostSplit::default()),
            ..ContainerScan::default()
        });
        MemoryScan {
            timestamp: at,
            containers: containers.collect(),
            ..MemoryScan::default()
        }
    }

    fn size(ledger: &WatchLedger) -> usize {
        serde_json::to_vec(ledger).unwrap().len()
    }

    #[test]
    fn a_day_of_scans_takes_no_more_room_than_half_of_it_and_names_what_grows() {
        let mut ledger = WatchLedger::default();
        let names: Vec<String> = (0..8).map(|n| format!("llm-{n}")).collect();
        let mut half = 0;
        for step in 0..17_280_u64 {
            let at = 1.8e9 + step as f64 * 5.0;
            let held = |n: usize| {
                1000 * MIB
                    + if n == 7 {
                        step * MIB / 60
                    } else {
                        step % 3 * MIB
                    }
            };
            let all: Vec<(&str, u64)> = names
                .iter()
                .enumerate()
                .map(|(n, name)| (name.as_str(), held(n)))
                .collect();
            ledger.record_scan(&scan(at, &all));
            if step == 8_640 {
                half = size(&ledger);
            }
        }
        let day = size(&ledger);
        assert!(day < half * 11 / 10, "{half} bytes, then {day}");
        assert!(day < 300 << 10, "{day}");
        let rate = |name: &str| ledger.containers[name].life.growth_per_s[HOST_DEVICE];
        // 1 MiB in 60 steps of 5 s.
        let grows = rate("llm-7") / (MIB as f64 / 300.0);
        assert!((0.99..1.01).contains(&grows), "{grows}");
        assert_eq!(rate("llm-3"), 0.0);
        assert_eq!(
            ledger.containers["llm-7"].life.peak_bytes[HOST_DEVICE],
            1000 * MIB + 17_279 * MIB / 60
        );
    }

    #[test]
    fn counts_outlive_a_life_and_a_restart_and_figures_of_a_life_do_not() {
        let mut ledger = WatchLedger::default();
        ledger.record_start("llm", "id-llm", 1);
        ledger.record_scan(&scan(10.0, &[("llm", 500 * MIB)]));
        let death = DeathRecord {
            at_ns: 20,
            cause: Some("bad_flag".into()),
            ..DeathRecord::default()
        };
        ledger.record_death("llm", 2, death.clone());
        ledger.record_start("llm", "id-llm", 30);
        ledger.record_death(
            "llm",
            1,
            DeathRecord {
                cause: None,
                at_ns: 40,
                ..death
            },
        );
        ledger.record_until(40);
        ledger.record_until(30);
        // A watch that was killed before the next event was recorded hears these again.
        let before = ledger.clone();
        ledger.record_start("llm", "id-llm", 30);
        ledger.record_death(
            "llm",
            1,
            before.containers["llm"].last_death.clone().unwrap(),
        );
        assert_eq!(ledger, before);
        let text = serde_json::to_vec(&ledger).unwrap();
        let again: WatchLedger = serde_json::from_slice(&text).unwrap();
        assert_eq!(again, ledger);
        let record = &again.containers["llm"];
        assert_eq!(
            (
                record.starts,
                record.deaths["bad_flag"],
                record.deaths["unknown"]
            ),
            (2, 2, 1)
        );
        assert_eq!(again.events_until_ns, 40);
        assert!(record.life.peak_bytes.is_empty(), "{record:?}");
    }

    #[test]
    fn parts_are_read_once_and_again_where_memory_changed() {
        let mut ledger = WatchLedger::default();
        let mut read = |at: f64, bytes: u64| {
            let now = scan(at, &[("llm", bytes)]);
            ledger.record_scan(&now);
            let begins = ledger.take_due_reading(&now, &now.containers[0], true);
            if begins {
                let life = &mut ledger.containers.get_mut("llm").unwrap().life;
                life.read_at_bytes = Some(bytes);
            }
            begins
        };
        assert!(read(100.0, 1000 * MIB));
        assert!(!read(105.0, 2000 * MIB), "too early");
        assert!(read(170.0, 2000 * MIB));
        assert!(!read(300.0, 2050 * MIB), "too little");
    }

    proptest! {
        #[test]
        fn names_without_end_are_forgotten_from_the_oldest(names in prop::collection::vec("[a-z]{1,3}", 1..600)) {
            let mut ledger = WatchLedger::default();
            for (at, name) in names.iter().enumerate() {
                ledger.record_scan(&scan(at as f64 + 1.0, &[(name, MIB)]));
            }
            prop_assert!(ledger.containers.len() <= MOST_CONTAINERS);
            prop_assert!(ledger.containers.contains_key(names.last().unwrap()));
        }
    }
}
