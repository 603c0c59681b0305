//! The graphics driver's tree: which cards are a maker's, what they are, and the memory of AMD's. Reading the
//! memory files wakes no GPU: the kernel answers from its own counters.
//!
//! Product names of the GPUs: from the board, else from libdrm's table, else from `amd-smi` once.

use super::Roots;
use super::sensors::{hwmon_directory, number_in};
use super::smi::ToolOutcome;
use super::smi::reports::parse_amd_smi;
use crate::host::text_in;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// AMD's PCI vendor id.
pub const AMD_VENDOR: &str = "0x1002";

/// A graphics card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// N of `cardN`, in no particular order.
    pub number: u32,
    /// PCI address, as in `0000:83:00.0`.
    pub bdf: String,
    /// The directory of the PCI device.
    pub device: PathBuf,
    /// N of `/dev/dri/renderDN`.
    pub render_minor: Option<u32>,
    /// The same of each of its parts, the card's own included, where it is partitioned; empty otherwise.
    pub partition_minors: Vec<u32>,
    /// PCI device id, as in `74a1`.
    pub device_id: Option<u32>,
    /// PCI revision.
    pub revision: Option<u32>,
    /// The chip's serial number, sixteen digits; consumer cards have none.
    pub unique_id: Option<String>,
    /// Name of the board; few boards report one.
    pub product_name: Option<String>,
}

impl Card {
    /// The id used by AMD's runtime: `GPU-<unique id>`; without a unique id, the PCI address.
    pub fn runtime_id(&self) -> String {
        match &self.unique_id {
            Some(unique) => format!("GPU-{unique}"),
            None => self.bdf.clone(),
        }
    }

    fn read_card(number: u32, device: &Path, vendor: &str) -> Option<Card> {
        let file = |name: &str| text_in(&device.join(name));
        if file("vendor")? != vendor {
            return None;
        }
        let hexadecimal = |name: &str| {
            let text = file(name)?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let address = file("uevent").and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("PCI_SLOT_NAME="));
            line.map(str::to_lowercase)
        });
        let by_path = || {
            let path = std::fs::canonicalize(device).ok()?;
            let name = path.file_name()?.to_str()?.to_lowercase();
            (name.matches(':').count() == 2).then_some(name)
        };
        Some(Card {
            number,
            bdf: address.or_else(by_path)?,
            device: device.to_owned(),
            render_minor: numbered_entries(&device.join("drm"), "renderD").next(),
            partition_minors: Vec::new(),
            device_id: hexadecimal("device"),
            revision: hexadecimal("revision"),
            unique_id: file("unique_id")
                .map(|id| id.trim_start_matches("0x").to_lowercase())
                .filter(|id| id.chars().any(|c| c != '0')),
            product_name: file("product_name"),
        })
    }
}

/// A maker's cards below `sys`, ordered by PCI address, as AMD's tools order them.
pub fn list_cards(sys: &Path, vendor: &str) -> Vec<Card> {
    let drm = sys.join("class/drm");
    // `card0-DP-1` is a connector, not a card.
    let mut cards: Vec<Card> = numbered_entries(&drm, "card")
        .filter_map(|n| Card::read_card(n, &drm.join(format!("card{n}/device")), vendor))
        .collect();
    cards.sort_by(|a, b| (&a.bdf, a.number).cmp(&(&b.bdf, b.number)));
    cards.dedup_by(|a, b| a.bdf == b.bdf);
    cards
}

/// The numbers N of a directory's entries named `<prefix>N`.
fn numbered_entries(directory: &Path, prefix: &str) -> impl Iterator<Item = u32> {
    std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(move |entry| {
            let name = entry.ok()?.file_name();
            let digits = name.to_str()?.strip_prefix(prefix)?;
            digits
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| digits.parse().ok())
                .flatten()
        })
}

/// Whether the GPU uses host memory as its own; `None` if no file settles it. The size of the GTT
/// does not: it is half of the host's memory, even with a large discrete GPU. The driver reports a
/// north bridge voltage for integrated GPUs only; a power cap, a memory clock, a fan and a memory
/// load for others only.
fn is_integrated(device: &Path, vram_total: Option<u64>) -> Option<bool> {
    let sensors = hwmon_directory(device);
    let sensor = |name: &str| sensors.as_ref().map(|h| h.join(name));
    let label = |name: &str| sensor(name).and_then(|path| text_in(&path));
    let has = |name: &str| sensor(name).is_some_and(|path| path.exists());
    let north_bridge = (0..3).any(|n| label(&format!("in{n}_label")).as_deref() == Some("vddnb"));
    let discrete = device.join("mem_busy_percent").exists()
        || label("freq2_label").as_deref() == Some("mclk")
        || ["power1_cap", "fan1_input"].into_iter().any(has);
    match (vram_total, north_bridge, discrete) {
        (None, _, _) | (_, true, _) => Some(true),
        (_, _, true) => Some(false),
        _ => None,
    }
}

/// The memory files of one card, kept open.
#[derive(Debug)]
pub struct CardMemoryFiles {
    device: PathBuf,
    vram_used: Option<File>,
    /// Only for a GPU that uses host memory.
    gtt_used: Option<File>,
    /// Total memory, bytes; for a GPU that uses host memory, including the part it may take of
    /// that.
    pub total_bytes: u64,
    /// Whether it uses host memory; `None` if the driver does not report it: then only its own
    /// memory is counted.
    pub integrated: Option<bool>,
}

impl CardMemoryFiles {
    /// Opens the files of the card with this directory. The error is a sentence.
    pub fn open(device: &Path) -> Result<CardMemoryFiles, String> {
        let total = |name: &str| -> Option<u64> { text_in(&device.join(name))?.parse().ok() };
        let vram_total = total("mem_info_vram_total").filter(|n| *n > 0);
        let gtt_total = total("mem_info_gtt_total").filter(|n| *n > 0);
        let integrated = is_integrated(device, vram_total);
        let counted = gtt_total.filter(|_| integrated == Some(true));
        let total_bytes = vram_total.unwrap_or(0) + counted.unwrap_or(0);
        if total_bytes == 0 {
            let driver = std::fs::read_link(device.join("driver")).ok();
            let driver = driver.as_deref().and_then(Path::file_name);
            return Err(match driver {
                Some(name) if name == "amdgpu" => {
                    "its driver does not report its memory".to_owned()
                }
                Some(name) => format!(
                    "its driver is `{}`, and only amdgpu reports its memory",
                    name.to_string_lossy()
                ),
                None => "it has no driver that reports its memory (amdgpu)".to_owned(),
            });
        }
        let mut files = CardMemoryFiles {
            device: device.to_owned(),
            vram_used: None,
            gtt_used: None,
            total_bytes,
            integrated,
        };
        files
            .reopen(vram_total.is_some(), counted.is_some())
            .map_err(|e| format!("its memory cannot be read: {e}"))?;
        files
            .used_bytes()
            .map_err(|e| format!("its memory cannot be read: {e}"))?;
        Ok(files)
    }

    fn reopen(&mut self, vram: bool, gtt: bool) -> io::Result<()> {
        let open = |wanted: bool, name: &str| {
            wanted
                .then(|| File::open(self.device.join(name)))
                .transpose()
        };
        let (vram_used, gtt_used) = (
            open(vram, "mem_info_vram_used")?,
            open(gtt, "mem_info_gtt_used")?,
        );
        self.vram_used = vram_used;
        self.gtt_used = gtt_used;
        Ok(())
    }

    /// Bytes in use. After an error the files are reopened once, because a GPU that was reset has
    /// new ones.
    pub fn read_used(&mut self) -> io::Result<u64> {
        let first = self.used_bytes();
        if first.is_ok() {
            return first;
        }
        self.reopen(self.vram_used.is_some(), self.gtt_used.is_some())?;
        self.used_bytes()
    }

    /// Bytes in use, without a second attempt.
    pub fn used_bytes(&self) -> io::Result<u64> {
        let files = [&self.vram_used, &self.gtt_used];
        files.into_iter().flatten().try_fold(0u64, |sum, file| {
            let bytes = match number_in(file).and_then(|n| u64::try_from(n).ok()) {
                Some(bytes) => bytes,
                // Reads again to get the error.
                None => {
                    file.read_at(&mut [0; 32], 0)?;
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "its content is not a number",
                    ));
                }
            };
            Ok(sum.saturating_add(bytes))
        })
    }
}

/// The product's name in a table of libdrm (`amdgpu.ids`): lines `device,\trevision,\tname`.
pub fn product_name(table: &str, device_id: u32, revision: u32) -> Option<String> {
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut fields = line.splitn(3, ',').map(str::trim);
            let mut number = || u32::from_str_radix(fields.next()?, 16).ok();
            let same = number()? == device_id && number()? == revision;
            fields.next().filter(|name| same && !name.is_empty())
        })
        .map(str::to_owned)
}

/// How long the start may wait for `amd-smi` when only it knows a name.
const PATIENCE: Duration = Duration::from_secs(10);

/// A name for each card. `architecture` is that of each card, as in `gfx942`, where known.
pub fn card_names(cards: &[&Card], architecture: &[Option<String>], roots: &Roots) -> Vec<String> {
    let tables: Vec<String> = roots
        .names
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    let in_tables = |card: &Card| {
        let (device, revision) = (card.device_id?, card.revision?);
        tables
            .iter()
            .find_map(|table| product_name(table, device, revision))
    };
    let mut names: Vec<Option<String>> = cards
        .iter()
        .map(|card| card.product_name.clone().or_else(|| in_tables(card)))
        .collect();
    if names.iter().any(Option::is_none) {
        let tool_names = by_tool(roots);
        for (name, card) in names.iter_mut().zip(cards) {
            let same = |(bdf, _): &&(String, String)| *bdf == card.bdf;
            *name = name
                .take()
                .or_else(|| tool_names.iter().find(same).map(|(_, name)| name.clone()));
        }
    }
    let anonymous = |place: usize| match architecture.get(place) {
        Some(Some(gfx)) => format!("AMD GPU {gfx}"),
        _ => match cards[place].device_id {
            Some(device) => format!("AMD GPU {device:04x}"),
            None => "AMD GPU".to_owned(),
        },
    };
    names
        .into_iter()
        .enumerate()
        .map(|(place, name)| name.unwrap_or_else(|| anonymous(place)))
        .collect()
}

/// PCI addresses and names reported by `amd-smi`; empty if the tool is missing or too slow.
fn by_tool(roots: &Roots) -> Vec<(String, String)> {
    let Some(tool) = roots.tools.find_tool("amd-smi") else {
        return Vec::new();
    };
    match (roots.tools).run_tool(&tool, "static --asic --bus --json", PATIENCE) {
        ToolOutcome::Text { text, .. } => parse_amd_smi(&text)
            .into_iter()
            .filter_map(|gpu| Some((gpu.bdf?, gpu.name?)))
            .collect(),
        ToolOutcome::Failed(_) | ToolOutcome::StillRunning(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn cards_are_found_and_connectors_are_not() {
        let sys = tempfile::tempdir().unwrap();
        let drm = sys.path().join("class/drm");
        let card = |name: &str, files: &[(&str, &str)]| {
            for (file, text) in files {
                write(&drm.join(name).join("device").join(file), text);
            }
        };
        card(
            "card57",
            &[
                ("vendor", "0x1002\n"),
                ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:83:00.0\n"),
                ("device", "0x74a1\n"),
                ("revision", "0x00\n"),
                ("unique_id", "a1b2c3d4e5f60718\n"),
                ("product_name", "AMD Instinct MI300X OAM\n"),
                ("drm/renderD185/dev", "226:185\n"),
            ],
        );
        card(
            "card49",
            &[
                ("vendor", "0x1002\n"),
                ("uevent", "PCI_SLOT_NAME=0000:8B:00.0\n"),
                ("unique_id", "0000000000000000\n"),
            ],
        );
        card(
            "card0",
            &[
                ("vendor", "0x10de\n"),
                ("uevent", "PCI_SLOT_NAME=0000:01:00.0\n"),
            ],
        );
        card(
            "card57-DP-1",
            &[
                ("vendor", "0x1002\n"),
                ("uevent", "PCI_SLOT_NAME=0000:00:00.0\n"),
            ],
        );
        card("card7", &[("vendor", "0x1002\n")]);
        let found = list_cards(sys.path(), AMD_VENDOR);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].number, found[0].render_minor), (57, Some(185)));
        assert_eq!(found[0].runtime_id(), "GPU-a1b2c3d4e5f60718");
        assert_eq!(
            (found[0].device_id, found[0].revision),
            (Some(0x74a1), Some(0))
        );
        assert_eq!(
            (found[1].number, found[1].runtime_id().as_str()),
            (49, "0000:8b:00.0")
        );
    }

    #[test]
    fn memory_of_every_kind_of_gpu() {
        let open = |files: &[(&str, &str)]| {
            let device = tempfile::tempdir().unwrap();
            for (name, text) in files {
                write(&device.path().join(name), text);
            }
            CardMemoryFiles::open(device.path())
                .map(|mut m| (m.total_bytes, m.read_used().unwrap(), m.integrated))
        };
        let own = [
            ("mem_info_vram_total", "1000\n"),
            ("mem_info_vram_used", "300\n"),
            ("mem_info_gtt_total", "5000\n"),
            ("mem_info_gtt_used", "70\n"),
            ("mem_busy_percent", "0\n"),
        ];
        assert_eq!(open(&own), Ok((1000, 300, Some(false))));
        assert_eq!(
            open(&own[..4]),
            Ok((1000, 300, None)),
            "a large GTT is that of a large host"
        );
        for sign in [
            ("hwmon/hwmon0/freq2_label", "mclk\n"),
            ("hwmon/hwmon0/power1_cap", "750000000\n"),
            ("hwmon/hwmon0/fan1_input", "0\n"),
        ] {
            let discrete = [&own[..4], &[sign]].concat();
            assert_eq!(open(&discrete), Ok((1000, 300, Some(false))), "{sign:?}");
        }
        assert_eq!(
            open(&own[2..4]),
            Ok((5000, 70, Some(true))),
            "none of its own"
        );
        assert_eq!(
            open(&[&own[..], &[("hwmon/hwmon0/in1_label", "vddnb\n")]].concat()),
            Ok((6000, 370, Some(true)))
        );
        assert_eq!(open(&own[..2]), Ok((1000, 300, None)));
        assert!(open(&[]).unwrap_err().contains("amdgpu"));
        let junk = [
            ("mem_info_vram_total", "9\n"),
            ("mem_info_vram_used", "x\n"),
        ];
        assert!(open(&junk).unwrap_err().contains("not a number"));
    }

    #[test]
    fn the_table_of_names_is_read() {
        let table = "# List\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n";
        assert_eq!(
            product_name(table, 0x744c, 0xcc).as_deref(),
            Some("AMD Radeon RX 7900 XT")
        );
        assert_eq!(product_name(table, 0x744c, 0x01), None);
    }
}
