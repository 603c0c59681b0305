//! Facts about GPUs for planning, as makers' data sheets have them (configs/gpus.yaml).

use crate::tables::read_table;
use crate::wording::did_you_mean;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

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
    /// NVIDIA's compute capability, where its generation does not tell which engines run on it.
    #[serde(default, skip_serializing)]
    pub compute: Option<f64>,
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
    /// Letters and figures of its names, small.
    #[serde(skip)]
    plain_names: Vec<String>,
}

impl GpuModel {
    /// NVIDIA's compute capability, at least; `None` of others.
    pub fn compute_capability(&self) -> Option<f64> {
        self.compute.or(match self.generation {
            Generation::Turing => Some(7.5),
            Generation::Ampere => Some(8.0),
            Generation::Ada => Some(8.9),
            Generation::Hopper => Some(9.0),
            Generation::Blackwell => Some(10.0),
            Generation::GeforceBlackwell => Some(12.0),
            Generation::Amd | Generation::Intel => None,
        })
    }
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
    static READ: LazyLock<Vec<GpuModel>> = LazyLock::new(|| {
        let mut models: Vec<GpuModel> = read_table(SHIPPED);
        for model in &mut models {
            model.plain_names = model.names().map(plain_name).collect();
        }
        models
    });
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
    let kept = name.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

/// The same without the maker's names before it.
fn short_name(name: &str) -> String {
    let plain = plain_name(name);
    let short = plain
        .trim_start_matches("nvidia")
        .trim_start_matches("amd")
        .trim_start_matches("geforce");
    short.to_owned()
}

/// The model with exactly this name: a short name (`H100`, `RTX 4090`) or the catalog's name.
fn exact_gpu(name: &str) -> Option<&'static GpuModel> {
    let (plain, short) = (plain_name(name), short_name(name));
    let is = |known: &String| *known == plain || *known == short;
    shipped_gpus().iter().find(|m| m.plain_names.iter().any(is))
}

/// The model with this name: a short name (`H100`, `RTX 4090`), the catalog's name, or a driver's
/// name. Of a name that a person gives, [`resolve_gpu`] checks every word.
pub fn find_gpu(name: &str) -> Option<&'static GpuModel> {
    exact_gpu(name).or_else(|| model_of(name))
}

/// Words that a full name has besides, and that set no GPU apart from another one.
const FILLERS: &str = "amd ampere arc blackwell core data center edition geforce generation gpu graphics hbm2 hbm2e \
    hbm3 hbm3e hopper instinct intel nvidia nvlink oam pcie quadro r radeon rx server sxm sxm2 sxm3 \
    sxm4 sxm5 sxm6 tensor tesla tm vf workstation";

/// A name's words, small, a number and its unit as one (`8gb`).
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let word = word.to_ascii_lowercase();
        let unit = matches!(word.as_str(), "gb" | "gib");
        match words.last_mut() {
            Some(last) if unit && last.bytes().all(|b| b.is_ascii_digit()) => *last += "gb",
            _ if word.is_empty() => {}
            _ => words.push(word),
        }
    }
    words
}

/// The memory that a word names, GiB as sold.
fn size_of(word: &str) -> Option<f64> {
    let unit = ["gb", "gib", "g"]
        .into_iter()
        .find_map(|unit| Some((word.strip_suffix(unit)?, unit)));
    let (number, unit) = unit?;
    let size: u32 = number.parse().ok()?;
    // `3g` is the size of a slice, in sevenths of a GPU.
    (unit != "g" || size >= 8).then(|| f64::from(size))
}

/// A name without its memory: what the variants of a card share.
fn family_name(name: &str) -> String {
    let words = words_of(name);
    let kept: Vec<String> = words.into_iter().filter(|w| size_of(w).is_none()).collect();
    short_name(&kept.join(" "))
}

/// A name that leads to no GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownGpu {
    /// What is wrong.
    pub what: String,
    /// Names, or sizes, that are known.
    pub hint: Option<String>,
}

/// The model that a person names, and a note where the name holds for several sizes of memory. No word of
/// the name is passed over: a card with half the memory, or with `Ti` behind its name, is another one.
///
/// # Errors
/// The name, or its memory, is not known.
pub fn resolve_gpu(name: &str) -> Result<(&'static GpuModel, Option<String>), UnknownGpu> {
    let models = shipped_gpus();
    let words = words_of(name);
    // Of a slice it stands behind the board's: `H100 80GB HBM3 MIG 2g.20gb`.
    let size = words.iter().rev().find_map(|w| size_of(w));
    let family = family_name(name);
    let siblings = || {
        let is = |m: &&GpuModel| m.names().any(|n| family_name(n) == family);
        models.iter().filter(is)
    };
    let fits = |m: &&GpuModel| size.is_none_or(|s| s == m.memory_gib);
    let note = |found: &GpuModel| {
        let families: Vec<String> = found.names().map(family_name).collect();
        let is = |m: &&GpuModel| m.names().any(|n| families.contains(&family_name(n)));
        let mut others = models.iter().filter(is);
        let other = others.find(|m| m.memory_gib != found.memory_gib && size.is_none())?;
        Some(format!(
            "`{name}` has more than one size of memory: taken as {} with {} GiB; name `{}` for the one with {} GiB",
            found.name, found.memory_gib, other.name, other.memory_gib
        ))
    };
    if let Some(found) =
        exact_gpu(name).or_else(|| siblings().find(fits).filter(|_| size.is_some()))
    {
        return Ok((found, note(found)));
    }
    let driver = model_of(name);
    let sizes = |all: Vec<&GpuModel>| {
        let mut sizes: Vec<String> = all.iter().map(|m| format!("{} GB", m.memory_gib)).collect();
        sizes.dedup();
        UnknownGpu {
            what: format!("no GPU `{name}` with this size of memory is known"),
            hint: Some(format!("known of this name: {}", sizes.join(", "))),
        }
    };
    let Some(found) = driver.filter(|m| m.extra_words(&words).is_empty()) else {
        let all: Vec<&GpuModel> = siblings().collect();
        if size.is_some() && !all.is_empty() {
            return Err(sizes(all));
        }
        let hint = if is_apple(&words) {
            Some("Apple's GPUs share the machine's memory, and how engines divide it there is not measured: no rules are known for them".to_owned())
        } else {
            near_gpu(name)
        };
        let counted = counted_name(name).map(|(count, one)| {
            let name = &one.name;
            format!("--tp sets how many: --gpu \"{name}\" --tp {count}")
        });
        return Err(UnknownGpu {
            what: format!("the GPU `{name}` is not known"),
            hint: counted.or(hint),
        });
    };
    let mut words = found.words.iter();
    if fits(&found) || words.any(|w| size_of(&w.to_ascii_lowercase()) == size) {
        return Ok((found, note(found)));
    }
    let all: Vec<&GpuModel> = siblings().collect();
    Err(sizes(if all.is_empty() { vec![found] } else { all }))
}

/// How many GPUs a name has before or behind it, and of which: `4x4090`, `H100 x8`.
pub fn counted_name(name: &str) -> Option<(u64, &'static GpuModel)> {
    let signs = ['x', 'X', '*'];
    let before = name.split_once(signs);
    let behind = name.rsplit_once(signs).map(|(one, count)| (count, one));
    let mut both = [before, behind].into_iter().flatten();
    both.find_map(|(count, one)| Some((count.trim().parse().ok()?, find_gpu(one)?)))
}

/// `Apple M4 Max`, `M4 Max`.
fn is_apple(words: &[String]) -> bool {
    let chip = |word: &String| {
        let number = word.strip_prefix('m').unwrap_or("");
        number.len() == 1 && number.bytes().all(|b| b.is_ascii_digit())
    };
    words.first().is_some_and(|w| w == "apple" || chip(w))
}

/// ``did you mean `MI300X`?``: the names that begin as this one or of which it is the beginning, with the
/// same number; then those that are a slip away.
fn near_gpu(name: &str) -> Option<String> {
    let models = shipped_gpus();
    let wanted = family_name(name);
    let digits = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    let rank = |known: &str| {
        let edits = strsim::damerau_levenshtein(&wanted, known);
        let long = known.len() * 2 >= wanted.len() && known.len() >= 2;
        match () {
            () if edits <= 1 && digits(&wanted) == digits(known) => Some((0, edits)),
            () if long && wanted.starts_with(known) => Some((0, edits)),
            () if wanted.len() >= 3 && known.starts_with(&wanted) => Some((1, edits)),
            () if known.len() >= 4 && wanted.contains(known) => Some((2, edits)),
            () => None,
        }
    };
    let mut near: Vec<((usize, usize), &str)> = Vec::new();
    for model in models {
        let ranked = (model.names()).filter_map(|n| Some((rank(&family_name(n))?, n)));
        // People's name rather than the maker's.
        near.extend(ranked.min_by_key(|(rank, n)| (*rank, n.len())));
    }
    let least = near.iter().map(|(rank, _)| *rank).min();
    let best = near.iter().filter(|(rank, _)| Some(*rank) == least);
    let mut names: Vec<String> = best.map(|(_, n)| format!("`{n}`")).collect();
    names.truncate(2);
    if !names.is_empty() {
        return Some(format!("did you mean {}?", names.join(" or ")));
    }
    did_you_mean(name, models.iter().flat_map(GpuModel::names), 1)
}

impl GpuModel {
    /// The names that people use for it, and its own.
    fn names(&self) -> impl Iterator<Item = &str> {
        let called = self.called.iter().map(String::as_str);
        called.chain([self.name.as_str()])
    }

    /// The words of a name that are not of this model's own.
    fn extra_words<'w>(&self, words: &'w [String]) -> Vec<&'w str> {
        let mut own: Vec<String> = self.names().flat_map(words_of).collect();
        own.extend(self.words.iter().map(|w| w.to_ascii_lowercase()));
        let is_filler = |word: &str| FILLERS.split(' ').any(|filler| filler == word);
        let extra = |w: &&str| size_of(w).is_none() && !is_filler(w) && !own.iter().any(|o| o == w);
        words.iter().map(String::as_str).filter(extra).collect()
    }
}

/// The model of a GPU with this name. Memory decides nothing: a slice has less of it.
pub fn model_of(name: &str) -> Option<&'static GpuModel> {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .collect();
    // A GPU's variants for some markets share its name with a letter more (`4090 D`) and are
    // something else.
    let other = |m: &&GpuModel| words.iter().any(|w| w == "d") && m.name.contains("RTX");
    let named = |w: &String| words.contains(&w.to_ascii_lowercase());
    let found = shipped_gpus().iter().find(|m| m.words.iter().all(named));
    found.filter(|m| !other(m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_is_sound() {
        let models = shipped_gpus();
        assert!(models.len() >= 30);
        for m in models {
            assert!(
                ["NVIDIA", "AMD", "Intel"].contains(&m.vendor.as_str()),
                "{m:?}"
            );
            assert!((6.0..=512.0).contains(&m.memory_gib), "{m:?}");
            assert!((100.0..=10_000.0).contains(&m.bandwidth_gb_s), "{m:?}");
            assert!(!m.words.is_empty(), "{m:?}");
            let found = model_of(&format!("{} {}", m.vendor, m.words.join(" ")));
            assert_eq!(found, Some(m), "another entry stands in its way");
            for short in &m.called {
                assert_eq!(find_gpu(short), Some(m), "{short}");
            }
            if let Some(reported) = m.reported_gib {
                assert!((0.9..=1.0).contains(&(reported / m.memory_gib)), "{m:?}");
            }
        }
    }

    #[test]
    fn a_board_of_two_dies_is_planned_by_the_die() {
        let die = find_gpu("MI250X").unwrap();
        // Half of a board's 128 GiB and 3.2768 TB/s.
        assert!((die.memory_gib, die.bandwidth_gb_s, die.sms) == (64.0, 1638.4, 110));
        assert!(die.name.contains("die"), "{}", die.name);
    }

    #[test]
    fn a_size_or_a_suffix_of_a_name_is_never_passed_over() {
        let found = |name: &str| resolve_gpu(name).map(|(m, _)| m.memory_gib);
        for (name, gib) in [
            ("RTX 4060 Ti 8GB", 8.0),
            ("RTX 4060 Ti 16 GB", 16.0),
            ("NVIDIA GeForce RTX 4060 Ti", 16.0),
            ("RTX 3080 12GB", 12.0),
            ("RTX 3060 8GB", 8.0),
            ("A100 40GB", 40.0),
            ("A100-SXM4-80GB", 80.0),
            ("A100 80G", 80.0),
            ("B200 192GB", 180.0),
            ("NVIDIA A100-PCIE-40GB", 40.0),
            ("NVIDIA H100 80GB HBM3", 80.0),
            ("NVIDIA GH200 480GB", 96.0),
            ("L40S 48GB", 48.0),
            ("NVIDIA RTX 6000 Ada Generation", 48.0),
            ("AMD Instinct MI300X OAM", 192.0),
        ] {
            assert_eq!(found(name), Ok(gib), "{name}");
        }
        for (name, hint) in [
            ("RTX 4090 48GB", "known of this name: 24 GB"),
            ("L4 48GB", "known of this name: 24 GB"),
            ("RTX 3080 20GB", "known of this name: 12 GB, 10 GB"),
            ("RTX 5090 Ti", "did you mean `RTX 5090`?"),
            ("RTX 5070 Super", "did you mean `RTX 5070`?"),
            ("RTX 4090D", "did you mean `RTX 4090`?"),
            ("RTX 4090 D", "did you mean `RTX 4090`?"),
            ("H1000", "did you mean `H100`?"),
            ("mi300", "did you mean `MI300X` or `MI300A`?"),
        ] {
            let refused = resolve_gpu(name).unwrap_err();
            assert_eq!(refused.hint.as_deref(), Some(hint), "{name}");
        }
        let apple = resolve_gpu("Apple M4 Max").unwrap_err();
        assert!(apple.hint.unwrap().contains("share the machine's memory"));
        assert_eq!(found("NVIDIA A100-SXM4-80GB MIG 3g.40gb"), Ok(40.0));
        assert_eq!(found("NVIDIA H100 80GB HBM3 MIG 2g.20gb"), Ok(20.0));
        let ada = resolve_gpu("RTX A6000 Ada").unwrap_err().hint.unwrap();
        assert!(ada.contains("A6000") || ada.contains("6000 Ada"), "{ada}");
        for (name, other) in [
            ("A100", "`A100 40GB`"),
            ("V100", "`Tesla V100 SXM2 16GB`"),
            ("RTX 4060 Ti", "`GeForce RTX 4060 Ti 8GB`"),
        ] {
            let note = resolve_gpu(name).unwrap().1.unwrap();
            assert!(note.contains(other), "{note}");
        }
        for name in ["H100", "L4", "A100 80GB", "A100-40GB", "RTX 4060 Ti 8GB"] {
            assert_eq!(resolve_gpu(name).unwrap().1, None, "{name}");
        }
    }

    #[test]
    fn drivers_names_lead_to_models() {
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
            let found = model_of(name).map(|m| m.name.as_str());
            assert_eq!(found, expected, "{name}");
        }
    }
}
