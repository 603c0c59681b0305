//! Facts about GPUs for planning, as makers' data sheets have them (configs/gpus.yaml).

use crate::error::Failure;
use serde::{Deserialize, Serialize};

/// The facts that ship.
const SHIPPED: &str = include_str!("../configs/gpus.yaml");

/// A model of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuModel {
    /// `NVIDIA`, `AMD` or `Intel`.
    pub vendor: String,
    /// As it is sold.
    pub name: String,
    /// Memory as it is sold, GiB. A driver reports a little less.
    pub memory_gib: f64,
    /// Peak bandwidth of the memory, 10^9 bytes per second.
    pub bandwidth_gb_s: f64,
    /// What the driver reports as its total, GiB, where an engine's log shows it.
    #[serde(default, skip_serializing)]
    pub reported_gib: Option<f64>,
    /// Streaming multiprocessors, or compute units.
    #[serde(skip_serializing)]
    pub sms: u64,
    /// Whether it can be bought as a GPU of its own: a slice, a part of a card or a laptop's cannot.
    #[serde(default = "is_sold_alone", skip_serializing)]
    pub sold_alone: bool,
    /// Which kernels and libraries' buffers it has.
    #[serde(skip_serializing)]
    pub generation: Generation,
    /// How the GPUs of one machine usually reach each other.
    #[serde(skip_serializing)]
    pub link: Link,
    /// Set where it has no memory of its own: `memory_gib` is the machine's.
    #[serde(default, skip_serializing)]
    pub shares_host: Option<SharedMemory>,
    /// Names that people and logs use for it.
    #[serde(skip_serializing)]
    called: Vec<String>,
    /// Words of the name that a driver reports; all must be there.
    #[serde(rename = "match", skip_serializing)]
    words: Vec<String>,
}

/// What machines of a kind need of the memory that GPU and host share, GiB, where it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMemory {
    /// In use before an engine starts.
    pub idle: Option<f64>,
    /// Taken beside an engine's share by the operating system and the engine's own processes.
    pub least: Option<f64>,
    /// Left beside the share on machines that stopped all the same.
    pub stopped: Option<f64>,
    /// How far measured pools lay from what the terms of cards leave, either way.
    pub off: Option<f64>,
}

fn is_sold_alone() -> bool {
    true
}

/// Every model that ships, read once; none where the file cannot be read, which a test rules out.
pub fn shipped_gpus() -> &'static [GpuModel] {
    static READ: std::sync::LazyLock<Vec<GpuModel>> =
        std::sync::LazyLock::new(|| load_gpus().unwrap_or_default());
    &READ
}

/// The generation of a GPU, as far as libraries' buffers depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// Compute capability 7 and before.
    Turing,
    /// 8.0 to 8.7: A100, A10, RTX 30.
    Ampere,
    /// 8.9: L4, L40S, RTX 40.
    Ada,
    /// 9.0: H100, H200, H20, GH200.
    Hopper,
    /// 10 and 11: B200, Thor.
    Blackwell,
    /// 12: RTX 50, RTX PRO Blackwell, GB10.
    GeforceBlackwell,
    /// AMD's.
    Amd,
    /// Intel's.
    Intel,
}

/// How the GPUs of one machine reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// NVLink, or AMD's Infinity Fabric.
    Nvlink,
    /// The host's bus.
    Pcie,
}

/// A name's letters and figures, small.
fn plain_name(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// The model with this name: a short name (`H100`, `RTX 4090`), the catalog's name, or a driver's
/// name.
pub fn find_gpu<'a>(models: &'a [GpuModel], name: &str) -> Option<&'a GpuModel> {
    let plain = plain_name(name);
    let short = plain
        .trim_start_matches("nvidia")
        .trim_start_matches("amd")
        .trim_start_matches("geforce");
    let is = |known: &String| {
        let known = plain_name(known);
        known == plain || known == short
    };
    models
        .iter()
        .find(|m| m.called.iter().any(is) || is(&m.name))
        .or_else(|| model_of(models, name))
}

/// Every model that ships.
pub fn load_gpus() -> Result<Vec<GpuModel>, Failure> {
    serde_yaml::from_str(SHIPPED)
        .map_err(|e| Failure::bug("plimsoll's built-in table of GPUs cannot be read").caused_by(e))
}

/// The model of a GPU with this name. Memory decides nothing: a slice has less of it.
pub fn model_of<'a>(models: &'a [GpuModel], name: &str) -> Option<&'a GpuModel> {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .collect();
    // A GPU's variants for some markets share its name with a letter more (`4090 D`) and are
    // something else.
    let other = |m: &&GpuModel| words.iter().any(|w| w == "d") && m.name.contains("RTX");
    models
        .iter()
        .find(|m| {
            m.words
                .iter()
                .all(|w| words.contains(&w.to_ascii_lowercase()))
        })
        .filter(|m| !other(m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_is_sound() {
        let models = load_gpus().unwrap();
        assert!(models.len() >= 30);
        for m in &models {
            assert!(
                ["NVIDIA", "AMD", "Intel"].contains(&m.vendor.as_str()),
                "{m:?}"
            );
            assert!((6.0..=512.0).contains(&m.memory_gib), "{m:?}");
            assert!((100.0..=10_000.0).contains(&m.bandwidth_gb_s), "{m:?}");
            assert!(!m.words.is_empty(), "{m:?}");
            let found = model_of(&models, &format!("{} {}", m.vendor, m.words.join(" ")));
            assert_eq!(found, Some(m), "another entry stands in its way");
            for short in &m.called {
                assert_eq!(find_gpu(&models, short), Some(m), "{short}");
            }
            if let Some(reported) = m.reported_gib {
                assert!((0.9..=1.0).contains(&(reported / m.memory_gib)), "{m:?}");
            }
        }
    }

    #[test]
    fn a_board_of_two_dies_is_planned_by_the_die() {
        let models = load_gpus().unwrap();
        let die = find_gpu(&models, "MI250X").unwrap();
        // Half of a board's 128 GiB and 3.2768 TB/s.
        assert!((die.memory_gib, die.bandwidth_gb_s, die.sms) == (64.0, 1638.4, 110));
        assert!(die.name.contains("die"), "{}", die.name);
    }

    #[test]
    fn drivers_names_lead_to_models() {
        let models = load_gpus().unwrap();
        for (name, expected) in [
            ("NVIDIA H100 80GB HBM3", Some("H100 SXM 80GB")),
            ("NVIDIA H100 PCIe", Some("H100 PCIe 80GB")),
            ("NVIDIA H100 NVL", Some("H100 NVL 94GB")),
            ("NVIDIA H200", Some("H200")),
            ("NVIDIA A100-SXM4-80GB", Some("A100 SXM 80GB")),
            ("NVIDIA A100 80GB PCIe", Some("A100 PCIe 80GB")),
            ("NVIDIA A100-PCIE-40GB", Some("A100 40GB")),
            ("NVIDIA L40S", Some("L40S")),
            ("NVIDIA L4", Some("L4")),
            ("Tesla T4", Some("Tesla T4")),
            ("NVIDIA GeForce RTX 4090", Some("GeForce RTX 4090")),
            ("NVIDIA GeForce RTX 4090 D", None),
            ("NVIDIA RTX 4000 Ada Generation", Some("RTX 4000 Ada")),
            ("AMD Instinct MI300X", Some("Instinct MI300X")),
            ("NVIDIA GB10", Some("GB10 (DGX Spark)")),
            ("NVIDIA Thor", Some("Jetson AGX Thor")),
            ("NVIDIA GB200", Some("GB200")),
            ("", None),
        ] {
            let found = model_of(&models, name).map(|m| m.name.as_str());
            assert_eq!(found, expected, "{name}");
        }
    }
}
