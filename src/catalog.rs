//! Facts about GPUs for planning, as makers' data sheets have them (configs/gpus.yaml).

use crate::error::{ExitCode, Failure};
use crate::units::GIB;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The facts that ship.
const SHIPPED: &str = include_str!("../configs/gpus.yaml");

/// A model of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuModel {
    /// `NVIDIA` or `AMD`.
    pub vendor: String,
    /// As it is sold.
    pub name: String,
    /// Memory as it is sold, GiB. A driver reports a little less.
    pub memory_gib: f64,
    /// Memory as its driver reports it, GiB, where engines' logs have told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_gib: Option<f64>,
    /// Peak bandwidth of the memory, 10^9 bytes per second.
    pub bandwidth_gb_s: f64,
    /// Words of the name that a driver reports; all must be there.
    #[serde(rename = "match", skip_serializing)]
    words: Vec<String>,
    /// Names that mean this one of several that they fit.
    #[serde(default, skip_serializing)]
    aka: Vec<String>,
}

/// The least share of the memory as sold that any driver is known to report (a T4, with its error
/// correction on).
const LEAST_SHARE: f64 = 0.91;

impl GpuModel {
    /// Memory to plan with, bytes: what the driver reports; else what is sold, less the most that
    /// any driver is known to keep.
    pub fn planned_bytes(&self) -> u64 {
        let gib = self.driver_gib.unwrap_or(self.memory_gib * LEAST_SHARE);
        (gib * GIB) as u64
    }
}

/// Every model that ships.
pub fn gpus() -> Result<Vec<GpuModel>, Failure> {
    serde_yaml::from_str(SHIPPED).map_err(|e| {
        Failure::new(ExitCode::Internal, "the facts on GPUs cannot be read").caused_by(e)
    })
}

/// The model of a GPU with this name. Memory decides nothing: a slice has less of it.
pub fn model_of<'a>(models: &'a [GpuModel], name: &str) -> Option<&'a GpuModel> {
    let said: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .collect();
    // A GPU's variants for some markets share its name with a letter more (`4090 D`) and are
    // something else.
    let other = |m: &&GpuModel| said.iter().any(|w| w == "d") && m.name.contains("RTX");
    models
        .iter()
        .find(|m| {
            m.words
                .iter()
                .all(|w| said.contains(&w.to_ascii_lowercase()))
        })
        .filter(|m| !other(m))
}

/// Words that makers put around a name.
const AROUND: &[&str] = &[
    "nvidia", "amd", "geforce", "tesla", "instinct", "radeon", "gpu", "graphics",
];

/// The model that a person means: `H100`, `a100-80gb`, `RTX 4090`, `NVIDIA L4`, `MI300X`.
///
/// # Errors
/// No model has the name, or models of several sizes do.
pub fn named<'a>(models: &'a [GpuModel], name: &str) -> Result<&'a GpuModel, Failure> {
    let asked = words(name);
    let fits = |m: &&GpuModel| {
        let mut own = words(&m.name);
        own.extend(m.words.iter().flat_map(|w| words(w)));
        own.insert(format!("{}gb", m.memory_gib));
        !asked.is_empty() && asked.is_subset(&own)
    };
    let same = |text: &String| words(text) == asked;
    if let Some(exact) = models
        .iter()
        .find(|m| same(&m.name) || m.aka.iter().any(same))
    {
        return Ok(exact);
    }
    let found: Vec<&GpuModel> = models.iter().filter(fits).collect();
    let Some(first) = found.first() else {
        // As a driver writes it, with more words than anybody says.
        if let Some(reported) = model_of(models, name) {
            return Ok(reported);
        }
        return Err(Failure::usage(format!("no GPU is known as `{name}`"))
            .hint("`plimsoll gpus` lists those that are; or give --gpu-memory"));
    };
    if found.iter().any(|m| m.memory_gib != first.memory_gib) {
        let names: Vec<&str> = found.iter().map(|m| m.name.as_str()).collect();
        return Err(
            Failure::usage(format!("`{name}` may be one of several GPUs"))
                .hint(format!("name one of {}", names.join(", "))),
        );
    }
    Ok(first)
}

fn words(name: &str) -> BTreeSet<String> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        // Generations of one socket: SXM2, SXM4, SXM5.
        .map(|w| match w.strip_prefix("sxm") {
            Some(n) if n.parse::<u8>().is_ok() => "sxm".to_owned(),
            _ => w,
        })
        .filter(|w| !w.is_empty() && !AROUND.contains(&w.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_name_gpus_in_many_ways() {
        let models = gpus().unwrap();
        for (asked, expected) in [
            ("H100", "H100 SXM 80GB"),
            ("H100-80GB", "H100 SXM 80GB"),
            ("NVIDIA H100 80GB HBM3", "H100 SXM 80GB"),
            ("H100 PCIe", "H100 PCIe 80GB"),
            ("H100 NVL", "H100 NVL 94GB"),
            ("H200", "H200"),
            ("A100-80GB", "A100 SXM 80GB"),
            ("A100-40GB", "A100 40GB"),
            ("A100-SXM4-80GB", "A100 SXM 80GB"),
            ("T4", "Tesla T4"),
            ("l4", "L4"),
            ("L40S", "L40S"),
            ("A10G", "A10G"),
            ("A10", "A10"),
            ("RTX 4090", "GeForce RTX 4090"),
            ("4090", "GeForce RTX 4090"),
            ("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
            ("RTX 6000 Ada", "RTX 6000 Ada"),
            ("A6000", "RTX A6000"),
            ("MI300X", "Instinct MI300X"),
            ("V100", ""),
            ("A100", ""),
            ("RTX", ""),
            ("", ""),
            ("unknown", ""),
        ] {
            let found = named(&models, asked).map(|m| m.name.as_str());
            assert_eq!(found.unwrap_or_default(), expected, "{asked}");
        }
    }

    #[test]
    fn what_a_driver_reports_is_a_little_less_than_what_is_sold() {
        for m in gpus().unwrap() {
            let share = m.planned_bytes() as f64 / (m.memory_gib * GIB);
            assert!((0.9..1.0).contains(&share), "{m:?}");
        }
    }

    #[test]
    fn what_ships_is_sound() {
        let models = gpus().unwrap();
        assert!(models.len() >= 30);
        for m in &models {
            assert!(["NVIDIA", "AMD"].contains(&m.vendor.as_str()), "{m:?}");
            assert!((8.0..=512.0).contains(&m.memory_gib), "{m:?}");
            assert!((100.0..=10_000.0).contains(&m.bandwidth_gb_s), "{m:?}");
            assert!(!m.words.is_empty(), "{m:?}");
            let found = model_of(&models, &format!("{} {}", m.vendor, m.words.join(" ")));
            assert_eq!(found, Some(m), "another entry stands in its way");
        }
    }

    #[test]
    fn drivers_names_lead_to_models() {
        let models = gpus().unwrap();
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
            ("NVIDIA GB10", None),
            ("", None),
        ] {
            let found = model_of(&models, name).map(|m| m.name.as_str());
            assert_eq!(found, expected, "{name}");
        }
    }
}
