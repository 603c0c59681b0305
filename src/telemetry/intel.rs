//! Intel's discrete GPUs (drivers xe and i915): what the processes that have one open hold on it, by the kernel's `fdinfo`. No
//! file has what a whole GPU has in use.

use super::amd::Roots;
use super::amd::choose::given_cards;
use super::amd::sysfs::{Card, list_cards};
use super::attribution::{self, Raw};
use super::fdinfo::{open_devices, read_processes};
use super::pace::Spacing;
use super::{MeasuredContainer, MemoryBackend, Reading, Wanted};
use crate::capture::{BackendFacts, DeviceFacts, DeviceKind, MemorySample};
use crate::clock::Clock;
use crate::error::Failure;
use crate::host::text_in;
use crate::wording::count_noun;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Intel's PCI vendor id.
const VENDOR: &str = "0x8086";
/// How its devices are called in CDI.
pub const CDI_KIND: &str = "intel.com/gpu=";
/// Processes are looked for as often as that at most, nanoseconds, and for a twentieth of the time.
const LOOK_EVERY_NS: i64 = 500_000_000;
const LOOK_ON_REQUEST_NS: i64 = 100_000_000;
const LOOK_COST_FACTOR: i64 = 20;

/// Reads the Intel GPUs that a container can see.
pub struct IntelBackend {
    gpus: Vec<(Card, DeviceFacts)>,
    proc: PathBuf,
    container_id: String,
    /// The processes with an open device, as last looked for.
    entries: Vec<(u32, PathBuf)>,
    look: Spacing,
    facts: BackendFacts,
}

/// Whether this host has a card of Intel's, integrated or not.
pub fn is_here(roots: &Roots) -> bool {
    !list_cards(&roots.sys, VENDOR).is_empty()
}

/// Discrete GPUs of Intel: an integrated one is on bus 0 and has no memory of its own.
fn list_discrete(roots: &Roots) -> Vec<Card> {
    let mut cards = list_cards(&roots.sys, VENDOR);
    cards.retain(|card| card.bdf.split(':').nth(1) != Some("00"));
    cards
}

/// By PCI address.
fn processes_of(entries: &[(u32, PathBuf)]) -> BTreeMap<String, Vec<Raw>> {
    read_processes(entries, |driver| matches!(driver, "xe" | "i915"), &[])
}

/// Memory of a card, bytes: xe has a file for each of its tiles, Intel's own i915 one for the card, the kernel's controller
/// of device memory (Linux 6.14) a line for each region. The kernel's own i915 reports nothing.
fn total_bytes(card: &Card, roots: &Roots) -> Option<u64> {
    let number = |path: PathBuf| text_in(&path)?.parse::<u64>().ok().filter(|n| *n > 0);
    let tile = |n: u32| {
        number(
            card.device
                .join(format!("tile{n}/physical_vram_size_bytes")),
        )
    };
    let tiles = (0..).map_while(tile).reduce(u64::saturating_add);
    let whole = || {
        let drm = card.device.join(format!("drm/card{}", card.number));
        number(drm.join("lmem_total_bytes"))
    };
    // `drm/0000:03:00.0/vram0 12884901888`
    let regions = || {
        let text = text_in(&roots.sys.join("fs/cgroup/dmem.capacity"))?;
        let prefix = format!("drm/{}/vram", card.bdf);
        let sizes = text.lines().filter(|line| line.starts_with(&prefix));
        let sizes = sizes.filter_map(|line| line.split_once(' ')?.1.trim().parse().ok());
        sizes.reduce(u64::saturating_add)
    };
    tiles.or_else(whole).or_else(regions)
}

impl IntelBackend {
    /// Opens the GPUs that the container was given, or has a process on.
    pub fn open_backend(
        target: &MeasuredContainer,
        roots: &Roots,
    ) -> Result<IntelBackend, Failure> {
        let cards = list_discrete(roots);
        if cards.is_empty() {
            return Err(if is_here(roots) {
                Failure::environment(
                    "Intel's GPU here is integrated: it works in the host's memory",
                )
                .hint("nothing is missing: that is measured as the container's host memory")
            } else {
                Failure::environment(
                    "there is no Intel GPU on this host, or its driver is not loaded",
                )
            });
        }
        let entries = open_devices(&roots.proc);
        let identify =
            |raw: Vec<Raw>| attribution::identify_in(&roots.proc, raw, &target.container_id);
        let (chosen, found) = match given_cards(target, CDI_KIND, &cards) {
            Some((chosen, found_in)) => (chosen, format!("according to {found_in}")),
            None => {
                let mut held = processes_of(&entries);
                let mut is_ours = |card: &Card| {
                    let raw = held.remove(&card.bdf).unwrap_or_default();
                    identify(raw).iter().any(|p| p.ours == Some(true))
                };
                let places = (0..cards.len()).filter(|place| is_ours(&cards[*place]));
                (places.collect(), "on which it has a process".to_owned())
            }
        };
        if chosen.is_empty() {
            return Err(Failure::environment(
                "the container was given no Intel GPU of this host, and none of its processes is on one",
            )
            .hint("give the container the GPU: `docker run --device /dev/dri`"));
        }
        let drm = cards
            .first()
            .and_then(|c| std::fs::read_link(c.device.join("driver")).ok());
        let gpus = chosen.iter().enumerate().map(|(index, place)| {
            let card = cards[*place].clone();
            let facts = DeviceFacts {
                index: index as u32,
                kind: DeviceKind::Gpu,
                id: card.bdf.clone(),
                name: match card.device_id {
                    Some(device) => format!("Intel GPU {device:04x}"),
                    None => "Intel GPU".to_owned(),
                },
                total_bytes: total_bytes(&card, roots),
                ..DeviceFacts::default()
            };
            (card, facts)
        });
        let gpus: Vec<(Card, DeviceFacts)> = gpus.collect();
        let mut reason = format!(
            "the container has {} {found}; in use is what processes with an open device hold, without what the driver keeps",
            count_noun(gpus.len(), "Intel GPU")
        );
        if gpus.iter().any(|(_, facts)| facts.total_bytes.is_none()) {
            reason += "; this driver does not report the GPU's memory";
        }
        if !rustix::process::geteuid().is_root() && !roots.is_emulated() {
            reason += "; processes of other users are not seen without root";
        }
        Ok(IntelBackend {
            gpus,
            proc: roots.proc.clone(),
            container_id: target.container_id.clone(),
            entries,
            look: Spacing::new(LOOK_EVERY_NS, LOOK_ON_REQUEST_NS, LOOK_COST_FACTOR),
            facts: BackendFacts {
                name: "intel".into(),
                version: drm.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
                simulated: roots.is_emulated(),
                reason,
            },
        })
    }
}

/// GPUs of this host, on one line.
pub fn survey_gpus(roots: &Roots) -> Result<String, Failure> {
    let all = MeasuredContainer {
        devices: vec!["/dev/dri".into()],
        ..MeasuredContainer::default()
    };
    let backend = IntelBackend::open_backend(&all, roots)?;
    let names = backend
        .gpus
        .iter()
        .map(|(card, facts)| format!("GPU {} {} (card{})", facts.index, facts.name, card.number));
    let names: Vec<String> = names.collect();
    Ok(format!(
        "{}: {}",
        count_noun(names.len(), "Intel GPU"),
        names.join(", ")
    ))
}

impl MemoryBackend for IntelBackend {
    fn facts(&self) -> BackendFacts {
        self.facts.clone()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.gpus.iter().map(|(_, facts)| facts.clone()).collect()
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        let start = clock.now();
        let is_due = self.look.is_due(start, wanted.detail);
        if is_due {
            self.entries = open_devices(&self.proc);
            self.look.note_reading(start, clock.now());
        }
        let mut held = processes_of(&self.entries);
        let at_ns = clock.now();
        for (card, facts) in &self.gpus {
            let raw = held.remove(&card.bdf).unwrap_or_default();
            let bytes = raw.iter().filter_map(|(_, bytes)| *bytes);
            into.push(MemorySample {
                at_ns,
                device: facts.index,
                used_bytes: bytes.fold(0, u64::saturating_add),
                processes: is_due
                    .then(|| attribution::identify_in(&self.proc, raw, &self.container_id)),
                ..MemorySample::default()
            });
        }
        Ok(())
    }
}
