//! AMD GPUs from the kernel's own files; no AMD library is needed. The graphics driver reports
//! memory and sensors, the compute driver the memory of each process. AMD's command-line tools are
//! used only where those files are missing.

pub mod choose;
pub mod kfd;
pub mod sensors;
pub mod smi;
pub mod sysfs;

use super::fdinfo::Clients;
use super::{MeasuredContainer, MemoryBackend, Reading, ReadingError, Wanted, is_gone};
use crate::capture::{BackendFacts, DeviceFacts, DeviceKind, MemorySample};
use crate::clock::Clock;
use crate::error::Failure;
use crate::host::text_in;
use crate::wording::count_noun;
use kfd::{KfdNode, Processes};
use sensors::Sensors;
use smi::{ToolBackend, Tools};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use sysfs::{AMD_VENDOR, Card, CardMemoryFiles};

/// Names a directory to read instead of `/sys`.
pub const SYSFS_VARIABLE: &str = "PLIMSOLL_SYSFS_ROOT";
/// Names a directory to read instead of `/proc` for AMD GPUs.
pub const PROCFS_VARIABLE: &str = "PLIMSOLL_PROCFS_ROOT";

/// The directory named on the command line.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// Reads `path` instead of `/sys` from now on, whatever the environment contains. Only the first
/// call has an effect.
pub fn use_sysfs(path: PathBuf) {
    // A second path would mix two machines.
    let _ = NAMED.set(path);
}

/// Where the data about AMD GPUs is read.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Path of `/sys`.
    pub sys: PathBuf,
    /// Path of `/proc`.
    pub proc: PathBuf,
    /// Product name tables, in lookup order.
    pub names: Vec<PathBuf>,
    /// AMD's tools.
    pub tools: Tools,
}

impl Default for Roots {
    /// This machine's.
    fn default() -> Roots {
        Roots {
            sys: "/sys".into(),
            proc: "/proc".into(),
            names: vec![
                "/usr/share/libdrm/amdgpu.ids".into(),
                "/opt/amdgpu/share/libdrm/amdgpu.ids".into(),
            ],
            tools: Tools::find_installed(),
        }
    }
}

impl Roots {
    /// This machine's, except for what the command line ([`use_sysfs`]) and the environment name
    /// ([`SYSFS_VARIABLE`], [`PROCFS_VARIABLE`]).
    pub fn from_environment() -> Roots {
        let mut roots = Roots::default();
        let named = |variable| std::env::var_os(variable).filter(|v| !v.is_empty());
        let sys = NAMED.get().cloned();
        if let Some(sys) = sys.or_else(|| named(SYSFS_VARIABLE).map(PathBuf::from)) {
            roots.sys = sys;
        }
        if let Some(proc) = named(PROCFS_VARIABLE) {
            roots.proc = proc.into();
        }
        roots
    }

    /// Whether any path differs from the real machine's.
    pub fn is_emulated(&self) -> bool {
        self.sys != Path::new("/sys") || self.proc != Path::new("/proc")
    }
}

/// How long a full reading may wait for the sensors; they usually take less than 1 ms.
const PATIENCE: Duration = Duration::from_millis(5);
/// How AMD's devices are called in CDI.
pub const CDI_KIND: &str = "amd.com/gpu=";

fn no_gpu() -> Failure {
    Failure::environment("there is no AMD GPU on this host, or its driver is not loaded")
}

/// Reads the AMD GPUs that a container can see.
pub struct AmdBackend {
    gpus: Vec<AmdGpu>,
    sensors: Sensors,
    processes: Processes,
    clients: Option<Clients>,
    facts: BackendFacts,
}

struct AmdGpu {
    facts: DeviceFacts,
    bdf: String,
    memory: GpuMemory,
}

/// Where the memory of a GPU is read.
enum GpuMemory {
    /// A whole card's.
    Card(CardMemoryFiles),
    /// A partition's: no file has it, so it is what its processes have.
    Partition,
}

/// A GPU that can be read: a card or a part of it.
struct Opened<'a> {
    card: &'a Card,
    memory: GpuMemory,
    total_bytes: Option<u64>,
    /// Numbers of the compute driver.
    ids: Vec<u64>,
    /// Of a partition: its `/dev/dri/renderDN`, its place and how many there are.
    partition: Option<(u32, usize, usize)>,
}

/// Opens the GPUs of a container: by the kernel's files where they are visible, else by AMD's
/// tools.
pub fn open_backend(
    target: &MeasuredContainer,
    roots: &Roots,
) -> Result<Box<dyn MemoryBackend>, Failure> {
    if !sysfs::list_cards(&roots.sys, AMD_VENDOR).is_empty() {
        return Ok(Box::new(AmdBackend::open_backend(target, roots, PATIENCE)?));
    }
    if !choose::requests_gpus(target, CDI_KIND) {
        return Err(no_gpu());
    }
    Ok(Box::new(open_tools(roots, &target.container_id)?))
}

/// Opens the GPUs that AMD's tools list, where the driver's files are not visible.
fn open_tools(roots: &Roots, container_id: &str) -> Result<ToolBackend, Failure> {
    let drm = roots.sys.join("class/drm");
    // A visible driver tree without a card means that there is no card.
    if drm.is_dir() {
        return Err(no_gpu());
    }
    ToolBackend::open(&roots.tools, &roots.proc, container_id).map_err(|why| {
        Failure::environment(format!(
            "the driver's files (`{}`) are not visible, and {why}",
            drm.display()
        ))
        .hint("run plimsoll on the host, or give its container the host's `/sys` read-only")
    })
}

impl AmdBackend {
    /// Opens the GPUs that the container was given, has inside, or has a process on. A full
    /// reading waits for the sensors at most `patience`.
    pub fn open_backend(
        target: &MeasuredContainer,
        roots: &Roots,
        patience: Duration,
    ) -> Result<AmdBackend, Failure> {
        let mut cards = sysfs::list_cards(&roots.sys, AMD_VENDOR);
        if cards.is_empty() {
            return Err(no_gpu());
        }
        let nodes = kfd::read_topology(&roots.sys);
        let addresses: Vec<String> = cards.iter().map(|c| c.bdf.clone()).collect();
        let nodes_of = |card: &Card| -> Vec<&KfdNode> {
            let others: Vec<&str> = addresses
                .iter()
                .map(String::as_str)
                .filter(|a| *a != card.bdf)
                .collect();
            kfd::nodes_of(&nodes, &card.bdf, card.render_minor, &others)
        };
        for card in &mut cards {
            let nodes = nodes_of(card);
            if nodes.len() > 1 {
                card.partition_minors = nodes.iter().filter_map(|n| n.render_minor).collect();
            }
        }
        let processes =
            |ids: Vec<Vec<u64>>| Processes::new(&roots.sys, &roots.proc, &target.container_id, ids);
        let numbers =
            |card: &Card| -> Vec<u64> { nodes_of(card).iter().map(|n| n.gpu_id).collect() };
        let (chosen, found) = choose_cards(target, roots, &cards, || {
            processes(cards.iter().map(numbers).collect()).in_use()
        })?;

        let mut notes = Vec::new();
        let mut opened: Vec<Opened> = Vec::new();
        let minors = choose::given_minors(target);
        for card in chosen.iter().map(|place| &cards[*place]) {
            let nodes = nodes_of(card);
            let is_given = |n: &&KfdNode| n.render_minor.is_some_and(|m| minors.contains(&m));
            let given = nodes.iter().filter(|n| is_given(n)).count();
            if (1..nodes.len()).contains(&given) {
                for (place, node) in nodes.iter().enumerate().filter(|(_, n)| is_given(n)) {
                    opened.push(Opened {
                        card,
                        memory: GpuMemory::Partition,
                        total_bytes: node.vram_bytes,
                        ids: vec![node.gpu_id],
                        partition: node.render_minor.map(|minor| (minor, place, nodes.len())),
                    });
                }
                continue;
            }
            match CardMemoryFiles::open(&card.device) {
                Ok(memory) => opened.push(Opened {
                    card,
                    total_bytes: Some(memory.total_bytes),
                    memory: GpuMemory::Card(memory),
                    ids: numbers(card),
                    partition: None,
                }),
                Err(why) => notes.push(format!("GPU {} (card{}): {why}", card.bdf, card.number)),
            }
        }
        if opened.is_empty() {
            return Err(Failure::environment(format!(
                "no GPU of the container can be read: {}",
                notes.join("; ")
            ))
            .hint("load the kernel driver: `modprobe amdgpu`"));
        }
        let cards: Vec<&Card> = opened.iter().map(|o| o.card).collect();
        let architectures: Vec<Option<String>> = cards
            .iter()
            .map(|card| nodes_of(card).first().and_then(|n| n.gfx_architecture()))
            .collect();
        let names = sysfs::card_names(&cards, &architectures, roots);
        let processes = processes(opened.iter().map(|o| o.ids.clone()).collect());
        let has_partition = opened.iter().any(|o| o.partition.is_some());
        if has_partition && !processes.is_offered() {
            return Err(Failure::environment(
                "the container has a partition of a GPU: only the compute driver reports its memory, by process, and it lists none here",
            ));
        }
        if !processes.is_offered() {
            notes.push("the compute driver (KFD) lists no processes here".into());
        }
        if has_partition {
            notes.push("of a partition the memory of its processes is read, without what the driver keeps; power, temperature, clocks and utilisation are those of the whole GPU and are left out".into());
        }
        let sensors = Sensors::new(cards.iter().map(|c| c.device.clone()).collect(), patience);
        let gpus: Vec<AmdGpu> = opened
            .into_iter()
            .zip(names)
            .enumerate()
            .map(|(index, (opened, name))| {
                let card = opened.card;
                let note = match opened.memory.integrated() {
                    Some(true) => Some("works in the host's memory, which is counted as its own"),
                    Some(false) => None,
                    None => Some(
                        "may work in the host's memory, the driver does not say: only memory of its own is counted",
                    ),
                };
                notes.extend(note.map(|note| format!("GPU {} {note}", card.bdf)));
                let (id, name) = match opened.partition {
                    None => (card.runtime_id(), name),
                    Some((minor, place, count)) => (
                        format!("{}/renderD{minor}", card.runtime_id()),
                        format!("{name} (partition {} of {count})", place + 1),
                    ),
                };
                let facts = DeviceFacts {
                    index: index as u32,
                    kind: DeviceKind::Gpu,
                    id,
                    name,
                    total_bytes: opened.total_bytes,
                    ..DeviceFacts::default()
                };
                AmdGpu {
                    facts,
                    bdf: card.bdf.clone(),
                    memory: opened.memory,
                }
            })
            .collect();
        let integrated = gpus.iter().filter(|g| g.memory.integrated() != Some(false));
        let clients =
            Clients::start_watching(&roots.proc, integrated.map(|g| g.bdf.clone()).collect());
        notes.insert(0, found);
        Ok(AmdBackend {
            gpus,
            sensors,
            processes,
            clients,
            facts: BackendFacts {
                name: "amd".into(),
                version: driver_version(roots),
                simulated: roots.is_emulated(),
                reason: notes.join("; "),
            },
        })
    }
}

impl GpuMemory {
    /// Whether the GPU uses host memory as its own; `None` where that is unknown.
    fn integrated(&self) -> Option<bool> {
        match self {
            GpuMemory::Card(files) => files.integrated,
            GpuMemory::Partition => Some(false),
        }
    }
}

/// Positions of the container's GPUs among the cards, and how they were found.
fn choose_cards(
    target: &MeasuredContainer,
    roots: &Roots,
    cards: &[Card],
    in_use: impl FnOnce() -> Vec<usize>,
) -> Result<(Vec<usize>, String), Failure> {
    let partitioned = cards.iter().find(|c| !c.partition_minors.is_empty());
    if let Some(card) = partitioned.filter(|_| choose::asks_by_place(target, CDI_KIND)) {
        let message = format!(
            "GPU {} is partitioned, so a number does not say which part the container has",
            card.bdf
        );
        return Err(Failure::environment(message).hint(
            "give the container its part by its file: `--device /dev/kfd --device /dev/dri/renderD129`",
        ));
    }
    if let Some((given, found_in)) = choose::given_cards(target, CDI_KIND, cards) {
        if given.is_empty() {
            return Err(Failure::environment(format!(
                "none of what the container was given ({found_in}) is an AMD GPU of this host"
            )));
        }
        let found = format!(
            "the container has {} according to {found_in}",
            count_noun(given.len(), "AMD GPU")
        );
        return Ok((given, found));
    }
    let inside = target
        .init_pid
        .map(|pid| choose::cards_inside(&roots.proc, pid, cards))
        .unwrap_or_default();
    if !inside.is_empty() {
        let found = format!(
            "{} can be used inside the container",
            count_noun(inside.len(), "AMD GPU")
        );
        return Ok((inside, found));
    }
    let used = in_use();
    if used.is_empty() {
        return Err(Failure::environment(
            "it was given no AMD GPU, and none of its processes is on one",
        )
        .hint("give the container the GPUs: `docker run --device /dev/kfd --device /dev/dri`"));
    }
    let found = format!(
        "a process of the container is on {}",
        count_noun(used.len(), "AMD GPU")
    );
    Ok((used, found))
}

/// Driver version and GPUs of this host, on one line.
pub fn survey_gpus(roots: &Roots) -> Result<String, Failure> {
    let cards = sysfs::list_cards(&roots.sys, AMD_VENDOR);
    if cards.is_empty() {
        return survey_tools(roots);
    }
    let nodes = kfd::read_topology(&roots.sys);
    let lines: Vec<String> = cards
        .iter()
        .enumerate()
        .map(|(place, card)| {
            let node = kfd::nodes_of(&nodes, &card.bdf, card.render_minor, &[]);
            let architecture = node.first().and_then(|n| n.gfx_architecture());
            let mut no_tools = roots.clone();
            no_tools.tools = smi::Tools::in_directories(Vec::new());
            let name = sysfs::card_names(&[card], &[architecture], &no_tools).concat();
            let asleep = if sensors::SensorFiles::open(&card.device).is_awake() {
                ""
            } else {
                ", asleep"
            };
            format!("GPU {place} {name} (card{}{asleep})", card.number)
        })
        .collect();
    if cards
        .iter()
        .all(|c| CardMemoryFiles::open(&c.device).is_err())
    {
        return Err(Failure::environment(format!(
            "{}: no driver reports their memory",
            lines.join(", ")
        ))
        .hint("load the kernel driver: `modprobe amdgpu`"));
    }
    let version = driver_version(roots).unwrap_or_else(|| "of unknown version".into());
    Ok(format!(
        "driver {version}, {}: {}",
        count_noun(cards.len(), "AMD GPU"),
        lines.join(", ")
    ))
}

/// The GPUs that AMD's tools list, where the driver's files are not visible.
fn survey_tools(roots: &Roots) -> Result<String, Failure> {
    if !smi::is_installed(&roots.tools) {
        return Err(no_gpu());
    }
    let backend = open_tools(roots, "")?;
    let devices = backend.devices();
    let names = devices
        .iter()
        .map(|d| format!("GPU {} {}", d.index, d.name));
    Ok(format!(
        "{}, by {}: {}",
        count_noun(devices.len(), "AMD GPU"),
        backend.facts().version.unwrap_or_default(),
        names.collect::<Vec<_>>().join(", ")
    ))
}

/// The driver's version; a driver built with the kernel has the kernel's.
fn driver_version(roots: &Roots) -> Option<String> {
    let kernel = || text_in(&roots.proc.join("sys/kernel/osrelease"));
    text_in(&roots.sys.join("module/amdgpu/version")).or_else(kernel)
}

impl MemoryBackend for AmdBackend {
    fn facts(&self) -> BackendFacts {
        let hanging = self.sensors.hanging_gpus();
        let hanging: Vec<&str> = hanging
            .into_iter()
            .map(|place| self.gpus[place].bdf.as_str())
            .collect();
        let mut facts = self.facts.clone();
        if !hanging.is_empty() {
            facts.reason += &format!(
                "; reading the sensors of GPU {} hangs, and they are left out",
                hanging.join(", ")
            );
        }
        facts
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.gpus.iter().map(|g| g.facts.clone()).collect()
    }

    fn sample(&mut self, clock: &Clock, wanted: Wanted, into: &mut Vec<MemorySample>) -> Reading {
        // The sensor thread reads while the memory files are read here.
        self.sensors.request_reading();
        let clients = self.clients.as_ref();
        let gpus = &self.gpus;
        // Open devices name the card, not its part.
        let beside = |place: usize| match (clients, &gpus[place].memory) {
            (Some(clients), GpuMemory::Card(_)) => clients.on_gpu(&gpus[place].bdf),
            _ => Vec::new(),
        };
        let mut processes = self.processes.read_processes(clock, wanted.detail, &beside);
        let first = into.len();
        let mut places = Vec::with_capacity(self.gpus.len());
        let mut errors = Vec::new();
        let mut gone = 0;
        for (place, gpu) in self.gpus.iter_mut().enumerate() {
            let used = match &mut gpu.memory {
                GpuMemory::Card(files) => files.read_used(),
                GpuMemory::Partition => Ok(self.processes.sum_on(place)),
            };
            match used {
                Ok(used_bytes) => {
                    places.push(place);
                    into.push(MemorySample {
                        device: gpu.facts.index,
                        used_bytes,
                        processes: processes[place].take(),
                        ..MemorySample::default()
                    });
                }
                Err(e) => {
                    gone += usize::from(is_gone(&e));
                    errors.push(format!("GPU {} ({}): {e}", gpu.facts.index, gpu.facts.name));
                }
            }
        }
        // One timestamp for all devices, because the memory of a tick is summed by it; reading all
        // of them takes some ten microseconds.
        let at_ns = clock.now();
        let gauges = self.sensors.take_readings();
        for (sample, place) in into[first..].iter_mut().zip(places) {
            sample.at_ns = at_ns;
            let is_whole = matches!(self.gpus[place].memory, GpuMemory::Card(_));
            if let Some(read) = gauges[place].as_ref().filter(|_| is_whole) {
                sample.fill_gauges(read);
            }
        }
        if errors.is_empty() {
            Ok(())
        } else if gone == self.gpus.len() {
            // They return when the driver is bound again: the files are reopened at each reading.
            Err(ReadingError::Gone(format!(
                "every GPU of the container is gone: {}",
                errors.join("; ")
            )))
        } else {
            Err(ReadingError::Failed(errors.join("; ")))
        }
    }

    fn probe_floor(&self) -> Option<Duration> {
        // The kernel answers from a counter, without a lock that users of the GPU need.
        Some(Duration::from_millis(1))
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Reading {
        into.clear();
        let gpus = self.gpus.iter().enumerate();
        into.extend(gpus.map(|(place, gpu)| match &gpu.memory {
            GpuMemory::Card(files) => files.used_bytes().unwrap_or(0),
            GpuMemory::Partition => self.processes.sum_on(place),
        }));
        Ok(())
    }
}
