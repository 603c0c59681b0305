//! The tree of the compute driver (KFD): which of its GPUs is which card, and the memory of each
//! process on each GPU. Reading it is cheap and wakes no GPU.

use super::sensors::number_in;
use crate::capture::{AtNs, ProcessMemory};
use crate::clock::Clock;
use crate::host::processes::numbers_in;
use crate::telemetry::attribution::{self, Raw};
use crate::telemetry::pace::Spacing;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A GPU as the compute driver knows it. A partitioned GPU is several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KfdNode {
    /// The driver's GPU id, as in `vram_<id>`.
    pub gpu_id: u64,
    /// N of `/dev/dri/renderDN`; `None` where the driver does not report it.
    pub render_minor: Option<u32>,
    /// PCI address, as in `0000:83:00.0`.
    pub bdf: String,
    /// `90402` is gfx942.
    pub gfx_version: Option<u32>,
    /// Its own memory, bytes: of a partition its part.
    pub vram_bytes: Option<u64>,
}

impl KfdNode {
    /// Parses the two files of a node; `None` for a node without a GPU.
    pub fn parse_node(gpu_id: &str, properties: &str) -> Option<KfdNode> {
        let gpu_id = gpu_id.trim().parse().ok().filter(|id| *id > 0)?;
        let property = |name: &str| -> Option<u64> {
            properties
                .lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.trim().parse().ok())
        };
        // CPU nodes have no SIMD units.
        property("simd_count").filter(|n| *n > 0)?;
        let location = property("location_id")?;
        Some(KfdNode {
            gpu_id,
            render_minor: property("drm_render_minor")
                .filter(|n| *n > 0)
                .and_then(|n| u32::try_from(n).ok()),
            bdf: format_bdf(property("domain").unwrap_or(0), location),
            gfx_version: property("gfx_target_version")
                .filter(|n| *n > 0)
                .and_then(|n| u32::try_from(n).ok()),
            vram_bytes: None,
        })
    }

    /// `gfx942`, `gfx90a`.
    pub fn gfx_architecture(&self) -> Option<String> {
        let version = self.gfx_version?;
        let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
        Some(format!("gfx{major}{minor:x}{stepping:x}"))
    }
}

/// Formats a PCI address; bus, device and function are packed in the location.
pub fn format_bdf(domain: u64, location: u64) -> String {
    format!(
        "{domain:04x}:{:02x}:{:02x}.{:x}",
        location >> 8 & 0xff,
        location >> 3 & 0x1f,
        location & 7
    )
}

/// GPU nodes of the topology below `sys`, ordered by node number.
pub fn read_topology(sys: &Path) -> Vec<KfdNode> {
    let nodes = sys.join("class/kfd/kfd/topology/nodes");
    let mut numbers: Vec<u32> = numbers_in(&nodes).collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .filter_map(|n| {
            let node = nodes.join(n.to_string());
            let gpu_id = std::fs::read_to_string(node.join("gpu_id")).ok()?;
            let properties = std::fs::read_to_string(node.join("properties")).ok()?;
            let vram_bytes = read_banks(&node.join("mem_banks"));
            KfdNode::parse_node(&gpu_id, &properties).map(|n| KfdNode { vram_bytes, ..n })
        })
        .collect()
}

/// Sum of a node's banks of local memory: heaps 1 (visible to the host) and 2 (not) of the driver's `kfd_topology.c`.
fn read_banks(banks: &Path) -> Option<u64> {
    let sizes = numbers_in(banks).filter_map(|n| {
        let text = std::fs::read_to_string(banks.join(format!("{n}/properties"))).ok()?;
        let figure = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|l| l.strip_prefix(name));
            line?.trim().parse().ok()
        };
        figure("size_in_bytes ").filter(|_| matches!(figure("heap_type "), Some(1 | 2)))
    });
    sizes.reduce(u64::saturating_add)
}

/// The nodes of the card at this address, the node with the same address first; partitions of a
/// card are further functions of its PCI slot.
pub fn nodes_of<'a>(
    nodes: &'a [KfdNode],
    bdf: &str,
    render_minor: Option<u32>,
    other_cards: &[&str],
) -> Vec<&'a KfdNode> {
    let slot = |address: &str| address.split('.').next().map(str::to_owned);
    let mut found: Vec<&KfdNode> = nodes
        .iter()
        .filter(|n| {
            let same = n.bdf.eq_ignore_ascii_case(bdf)
                || (n.render_minor.is_some() && n.render_minor == render_minor);
            let partition = slot(&n.bdf) == slot(&bdf.to_lowercase())
                && !other_cards.iter().any(|o| n.bdf.eq_ignore_ascii_case(o));
            same || partition
        })
        .collect();
    found.sort_by_key(|n| !n.bdf.eq_ignore_ascii_case(bdf));
    found.dedup_by_key(|n| n.gpu_id);
    found
}

/// Maximum age of the process list, nanoseconds.
const LIST_AGE_NS: i64 = 1_000_000_000;
const LIST_AGE_ON_REQUEST_NS: i64 = 200_000_000;
/// Listing and reading take at most one fiftieth of the time each.
const COST_FACTOR: i64 = 50;

/// The processes on some GPUs. Their files stay open: the files of an ended process read as an
/// error, even when its pid is in use again.
pub struct Processes {
    directory: PathBuf,
    proc: PathBuf,
    container_id: String,
    offered: bool,
    /// KFD ids of each GPU.
    gpu_ids: Vec<Vec<u64>>,
    watched: Vec<WatchedProcess>,
    listing: Spacing,
    reading: Spacing,
    /// Last reported list of each GPU, and when.
    reported: Vec<Option<(AtNs, Vec<ProcessMemory>)>>,
}

struct WatchedProcess {
    who: ProcessMemory,
    /// GPU position and an open file with its bytes: one for each context and partition.
    files: Vec<(usize, File)>,
}

impl Processes {
    /// For GPUs with these KFD ids.
    pub fn new(sys: &Path, proc: &Path, container_id: &str, gpu_ids: Vec<Vec<u64>>) -> Processes {
        let reported = gpu_ids.iter().map(|_| None).collect();
        let directory = sys.join("class/kfd/kfd/proc");
        Processes {
            offered: directory.is_dir(),
            directory,
            proc: proc.to_owned(),
            container_id: container_id.to_owned(),
            gpu_ids,
            watched: Vec::new(),
            listing: Spacing::new(LIST_AGE_NS, LIST_AGE_ON_REQUEST_NS, COST_FACTOR),
            reading: Spacing::new(0, 0, COST_FACTOR),
            reported,
        }
    }

    /// Whether the driver lists processes on this host.
    pub fn is_offered(&self) -> bool {
        self.offered
    }

    /// What all processes have on a GPU, by the files as they were last listed: a partition has no other figure.
    pub fn sum_on(&self, gpu: usize) -> u64 {
        let files = self.watched.iter().flat_map(|watched| &watched.files);
        files
            .filter(|(place, _)| *place == gpu)
            .filter_map(|(_, file)| number_in(file).and_then(|n| u64::try_from(n).ok()))
            .fold(0, u64::saturating_add)
    }

    /// The processes of each GPU when they changed, and once a second when they did not. `beside`
    /// returns processes known from another source.
    pub fn read_processes(
        &mut self,
        clock: &Clock,
        on_request: bool,
        beside: &dyn Fn(usize) -> Vec<Raw>,
    ) -> Vec<Option<Vec<ProcessMemory>>> {
        let start = clock.now();
        if self.listing.is_due(start, on_request) {
            self.list_processes();
            self.listing.note_reading(start, clock.now());
        }
        if !on_request && !self.reading.is_due(start, false) {
            return self.reported.iter().map(|_| None).collect();
        }
        let read_start = clock.now();
        let used = self.used_per_gpu();
        self.reading.note_reading(read_start, clock.now());
        let mut result = Vec::with_capacity(used.len());
        for (gpu, listed) in used.into_iter().enumerate() {
            let listed = self.merge_lists(listed, beside(gpu));
            let last_report = &mut self.reported[gpu];
            let is_new = last_report.as_ref().is_none_or(|(at, before)| {
                on_request || start - at >= LIST_AGE_NS || *before != listed
            });
            if is_new {
                *last_report = Some((start, listed.clone()));
            }
            // If the driver lists no processes at all, an empty list does not mean that there are
            // none.
            let known = self.offered || !listed.is_empty();
            result.push((is_new && known).then_some(listed));
        }
        result
    }

    /// Merges the driver's list with another source's. Both count all memory of a process, so the
    /// larger figure is taken, not the sum.
    fn merge_lists(&self, mut listed: Vec<ProcessMemory>, beside: Vec<Raw>) -> Vec<ProcessMemory> {
        let mut unknown = Vec::new();
        for (pid, bytes) in beside {
            match listed.iter_mut().find(|p| p.pid == pid) {
                Some(known) => known.used_bytes = known.used_bytes.max(bytes),
                None => unknown.push((pid, bytes)),
            }
        }
        if !unknown.is_empty() {
            listed.extend(attribution::identify_in(
                &self.proc,
                unknown,
                &self.container_id,
            ));
            listed.sort_by_key(|p| p.pid);
        }
        listed
    }

    fn used_per_gpu(&mut self) -> Vec<Vec<ProcessMemory>> {
        let mut per_gpu: Vec<Vec<ProcessMemory>> = vec![Vec::new(); self.gpu_ids.len()];
        self.watched.retain(|watched| {
            let mut sums: Vec<(usize, u64)> = Vec::new();
            let mut alive = false;
            for (gpu, file) in &watched.files {
                if let Some(bytes) = number_in(file).and_then(|n| u64::try_from(n).ok()) {
                    alive = true;
                    match sums.iter_mut().find(|(g, _)| g == gpu) {
                        Some((_, sum)) => *sum = sum.saturating_add(bytes),
                        None => sums.push((*gpu, bytes)),
                    }
                }
            }
            // Every process of the compute driver has a file for every GPU; most of them are 0.
            for (gpu, bytes) in sums.into_iter().filter(|(_, bytes)| *bytes > 0) {
                per_gpu[gpu].push(ProcessMemory {
                    used_bytes: Some(bytes),
                    ..watched.who.clone()
                });
            }
            alive
        });
        per_gpu
    }

    fn list_processes(&mut self) {
        let mut pids: Vec<u32> = numbers_in(&self.directory).collect();
        pids.sort_unstable();
        // The driver keeps the directories of some ended processes; these are dropped here.
        let raw = pids.into_iter().map(|pid| (pid, None)).collect();
        let known = attribution::identify_in(&self.proc, raw, &self.container_id);
        self.watched = known
            .into_iter()
            .map(|who| {
                let files = self.files_of(who.pid);
                WatchedProcess { who, files }
            })
            .collect();
    }

    /// The memory files of a process: of its first context and of each further one.
    fn files_of(&self, pid: u32) -> Vec<(usize, File)> {
        let first = self.directory.join(pid.to_string());
        let further = std::fs::read_dir(&first)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name();
                name.to_str()?.starts_with("context_").then(|| entry.path())
            });
        let mut files = Vec::new();
        for context in std::iter::once(first.clone()).chain(further) {
            for (gpu, ids) in self.gpu_ids.iter().enumerate() {
                files.extend(
                    ids.iter()
                        .filter_map(|id| File::open(context.join(format!("vram_{id}"))).ok())
                        .map(|file| (gpu, file)),
                );
            }
        }
        files
    }

    /// Positions of the GPUs used by a process of the container at this moment.
    pub fn in_use(&mut self) -> Vec<usize> {
        self.list_processes();
        let used = self.used_per_gpu();
        (0..used.len())
            .filter(|gpu| used[*gpu].iter().any(|p| p.ours == Some(true)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROPERTIES: &str = "cpu_cores_count 0\nsimd_count 416\nvendor_id 4098\nlocation_id 33536\ndomain 1\ndrm_render_minor 185\ngfx_target_version 90010\n";

    #[test]
    fn a_node_is_read() {
        let node = KfdNode::parse_node("43855\n", PROPERTIES).unwrap();
        assert_eq!(
            node,
            KfdNode {
                gpu_id: 43855,
                render_minor: Some(185),
                bdf: "0001:83:00.0".into(),
                gfx_version: Some(90010),
                vram_bytes: None
            }
        );
        assert_eq!(node.gfx_architecture().as_deref(), Some("gfx90a"));
        assert_eq!(KfdNode::parse_node("0", PROPERTIES), None, "a processor");
        assert_eq!(
            KfdNode::parse_node("7", "simd_count 0\nlocation_id 1\n"),
            None
        );
        let old = KfdNode::parse_node("7", "simd_count 4\nlocation_id 9987\n").unwrap();
        assert_eq!((old.bdf.as_str(), old.render_minor), ("0000:27:00.3", None));
    }

    #[test]
    fn partitions_belong_to_the_card_in_their_slot() {
        let node = |gpu_id, bdf: &str, minor| KfdNode {
            gpu_id,
            bdf: bdf.into(),
            render_minor: Some(minor),
            gfx_version: None,
            vram_bytes: None,
        };
        let nodes = [
            node(3, "0000:27:00.1", 130),
            node(1, "0000:27:00.0", 129),
            node(9, "0000:38:00.0", 137),
            node(5, "0000:03:00.1", 140),
        ];
        let ids = |bdf: &str, minor, others: &[&str]| -> Vec<u64> {
            nodes_of(&nodes, bdf, minor, others)
                .iter()
                .map(|n| n.gpu_id)
                .collect()
        };
        assert_eq!(ids("0000:27:00.0", Some(129), &["0000:38:00.0"]), [1, 3]);
        assert_eq!(ids("0000:27:00.0", None, &["0000:27:00.1"]), [1]);
        assert_eq!(ids("0000:38:00.0", None, &[]), [9]);
        assert_eq!(
            ids("0000:99:00.0", Some(140), &[]),
            [5],
            "by its render minor"
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(id in "\\PC*", text in "(\\PC|\\n|simd_count 4\n|location_id )*") {
            let _ = KfdNode::parse_node(&id, &text).map(|n| n.gfx_architecture());
        }

        #[test]
        fn addresses_keep_their_parts(bus in 0u64..256, device in 0u64..32, function in 0u64..8) {
            let location = bus << 8 | device << 3 | function;
            prop_assert_eq!(format_bdf(0, location), format!("0000:{bus:02x}:{device:02x}.{function:x}"));
        }
    }
}
