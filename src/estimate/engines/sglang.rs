//! SGLang: its defaults and its sizing rule. Nothing is profiled: what `mem_fraction_static` leaves free is for the rest.

use super::Settings;
use crate::estimate::arithmetic::count_if;
use crate::estimate::{Deployment, Model, Version, speculation::Proposer};
use crate::tables::read_table;
use serde::Deserialize;
use serde_json::Value;
use std::sync::LazyLock;

const MIB: f64 = (1u64 << 20) as f64;
/// Of 0.4.6.post2 to 0.4.7: the part of what a share leaves that large GPUs take as well.
const LIFTED_MIB: f64 = 48.0 * 1024.0;
/// The newest release with known rules.
const NEWEST: Version = Version::new(0, 5, 23);

/// Releases that hold back what images' embeddings take.
const IMAGES_HELD: Version = Version::new(0, 5, 17);
/// Of the pool of the recurrent states to that of keys and values (`--mamba-full-memory-ratio`).
const STATES_TO_CACHE: f64 = 0.9;
/// Tokens that layers with a window keep for each that the others keep (`--swa-full-tokens-ratio`).
pub const WINDOWED_TOKENS: f64 = 0.8;
/// Families whose layers with a window have a pool of their own (srt/configs/model_config.py, `is_hybrid_swa_model`);
/// others keep all tokens.
const WINDOWED: [&str; 6] = [
    "gemma4", "gpt_oss", "llama4", "mimo_v2", "step3p5", "step3p7",
];
/// What images' embeddings take of the cache's budget: `SGLANG_VLM_CACHE_SIZE_MB`, held back since it is read in 0.5.23.
const IMAGE_CACHE: u64 = 100 << 20;

/// The table that ships; the file describes each field.
const TABLE: &str = include_str!("../../../configs/sglang-defaults.yaml");

/// The defaults of all releases.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    ranks: Vec<(u64, f64)>,
    releases: Vec<Release>,
}

/// The defaults of a release and those after it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    since: String,
    #[serde(default)]
    stages: bool,
    images: Option<f64>,
    #[serde(default)]
    always: bool,
    #[serde(default)]
    speculation: f64,
    #[serde(default)]
    lookup: bool,
    #[serde(default)]
    prefill_graphs: bool,
    #[serde(default)]
    plain: bool,
    gpus: Vec<Card>,
}

/// The defaults of a release on GPUs up to a size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    below: Option<f64>,
    chunk: u64,
    graphs: [u64; 2],
    #[serde(default)]
    by_ranks: bool,
    share: Option<f64>,
    lifted: Option<f64>,
    #[serde(default)]
    speculating: f64,
    factor: Option<f64>,
    held: Option<f64>,
    #[serde(default)]
    each: f64,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| read_table(TABLE));

/// The release's defaults, and those of its on a GPU of `total` bytes.
fn defaults(deployment: &Deployment, total: u64) -> Option<(&'static Release, &'static Card)> {
    let version = version(deployment);
    let mut releases = DEFAULTS.releases.iter();
    let release = releases
        .find(|r| Version::leading(&r.since).is_some_and(|since| version >= since))
        .or(DEFAULTS.releases.last())?;
    let mib = total as f64 / MIB;
    let mut cards = release.gpus.iter();
    let card = cards.find(|c| c.below.is_none_or(|below| mib < below))?;
    Some((release, card))
}

/// The settings of a deployment.
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let total = deployment.gpu.as_ref().map_or(0, |g| g.total);
    let found = defaults(deployment, total);
    let chunk = deployment
        .max_batched_tokens
        .unwrap_or(found.map_or(8192, |(_, card)| card.chunk));
    let graphs = found.map_or(256, |(_, card)| {
        card.graphs[usize::from(deployment.tp >= 4)]
    });
    let images = match found {
        _ if !reads_images(model) || deployment.language_only => 1.0,
        Some((release, _)) => release.images.unwrap_or_else(|| image_factor(model)),
        None => 1.0,
    };
    let always = found.is_some_and(|(release, _)| release.always);
    let computed = found.map_or(0.88, |(release, card)| {
        share(model, deployment, release, card, total, chunk)
    });
    let defaults = Settings::with_defaults(model, deployment, chunk, graphs, 1);
    // A pool of a size that was asked for takes no longer requests.
    let longest = deployment
        .pool_tokens
        .map(|pool| defaults.max_model_len.unwrap_or(pool).min(pool));
    Settings {
        fraction: match deployment.memory_fraction {
            Some(given) if always => given * images,
            Some(given) => given,
            None => computed * images,
        },
        batch_known: deployment.memory_fraction.is_some(),
        max_model_len: longest.or(defaults.max_model_len),
        ..defaults
    }
}

fn version(deployment: &Deployment) -> Version {
    deployment.version.unwrap_or(NEWEST)
}

/// The default of `mem_fraction_static`, before what images lower it by.
fn share(
    model: &Model,
    deployment: &Deployment,
    release: &Release,
    card: &Card,
    total: u64,
    chunk: u64,
) -> f64 {
    if total == 0 {
        return 0.88;
    }
    let mib = total as f64 / MIB;
    let stages = if release.stages { deployment.pp } else { 1 };
    let ranks = deployment.tp.max(1).saturating_mul(stages.max(1));
    let speculates = |lookup: bool| {
        let asked = deployment.speculation.as_ref();
        asked.is_some_and(|s| lookup || s.proposer != Proposer::Lookup)
    };
    let listed = || DEFAULTS.ranks.iter().find(|(from, _)| ranks >= *from);
    let set = match card.by_ranks {
        true => listed().map(|(_, share)| *share),
        false => card.share,
    };
    if let Some(share) = set {
        let factor = card.factor.filter(|_| speculates(true)).unwrap_or(1.0);
        let Some(lifted) = card.lifted else {
            return share * factor;
        };
        let more = if speculates(true) {
            card.speculating
        } else {
            0.0
        };
        let left = 1.0 - (lifted + more) * 1024.0 / mib;
        return (share + LIFTED_MIB * (1.0 - share) / mib).min(left);
    }
    let mut held = match card.held {
        Some(held) => (held + card.each * ranks as f64) * 1024.0,
        None => computed_reserve(model, deployment, release, card, mib, chunk, ranks),
    };
    if speculates(release.lookup) {
        held += release.speculation * 1024.0;
    }
    let share = ((mib - held) / mib).clamp(0.1, 0.99);
    (share * 1000.0).round() / 1000.0
}

/// MiB that are held back: metadata, activations of a chunk, graphs, and buffers by parallelism.
fn computed_reserve(
    model: &Model,
    deployment: &Deployment,
    release: &Release,
    card: &Card,
    mib: f64,
    chunk: u64,
    ranks: u64,
) -> f64 {
    let graphs = card.graphs[usize::from(deployment.tp >= 4)];
    let mut held =
        512.0 + 1.5 * chunk.max(2048) as f64 + 2.0 * graphs as f64 + 1024.0 * ranks as f64 / 8.0;
    let captures = release.prefill_graphs && deployment.eager != Some(true);
    if captures && (!release.plain || is_plain(model, deployment)) {
        held += if model.is_latent() {
            1536.0
        } else {
            8.0 * prefill_graphs(chunk) as f64
        };
    }
    if mib > 60.0 * 1024.0 {
        held = held.max(10.0 * 1024.0);
    }
    held
}

/// A model of text on its own, on NVIDIA's GPUs of one stage.
fn is_plain(model: &Model, deployment: &Deployment) -> bool {
    let beside = deployment.lora.is_some() || deployment.speculation.is_some();
    !super::is_foreign(deployment) && !beside && deployment.pp == 1 && !reads_images(model)
}

fn reads_images(model: &Model) -> bool {
    let vision = model.config.get("vision_config");
    vision.is_some_and(Value::is_object)
}

/// Sizes of a prefill's graphs up to a chunk.
fn prefill_graphs(chunk: u64) -> u64 {
    let steps = [
        (4, 32, 4),
        (48, 256, 16),
        (288, 512, 32),
        (576, 1024, 64),
        (1280, 4096, 256),
    ];
    let count = |(from, to, step): (u64, u64, u64)| match chunk.min(to).checked_sub(from) {
        Some(over) => over / step + 1,
        None => 0,
    };
    steps.map(count).iter().sum::<u64>() + chunk.saturating_sub(4096) / 512
}

/// What models that read images lower the default share by: the larger the encoder, the more. It is looked for under
/// two names alone, and taken for a ViT-L where it is under others; Kimi's `vt_` its configuration takes away.
fn image_factor(model: &Model) -> f64 {
    let vision = model.config.get("vision_config");
    let number = |key: &str, default: f64| {
        let of = |key: &str| vision?.get(key).and_then(Value::as_f64);
        of(key)
            .or_else(|| of(&format!("vt_{key}")))
            .unwrap_or(default)
    };
    let width = number("hidden_size", 1024.0);
    let size = number("num_hidden_layers", 24.0) * width * width / (24.0 * 1024.0 * 1024.0);
    0.95 * (1.0 - 0.1 * (size - 1.0)).clamp(0.8, 1.05)
}

/// Layers with a window have a pool of their own.
pub fn pools_windows(model: &Model, deployment: &Deployment) -> bool {
    let named = WINDOWED.iter().any(|kind| model.kind.starts_with(kind));
    named && version(deployment) >= Version::new(0, 5, 0)
}

/// Bytes of the pool of recurrent states, of `rest` bytes for it and the cache; `each`: of a sequence.
///
/// As many slots as were asked for; else, where no prefixes are kept, one for each sequence at once; else enough that
/// the pool is to the cache as its ratio. One slot more is padding (0.5.23, mem_cache/kv_cache_configurator.py,
/// `_handle_max_mamba_cache`).
pub fn states(deployment: &Deployment, each: u64, rest: i128) -> i128 {
    if each == 0 || rest <= 0 {
        return 0;
    }
    let each = i128::from(each);
    let asked = deployment
        .max_seqs
        .filter(|_| deployment.prefix_caching == Some(false));
    let slots = match deployment.state_slots.or(asked) {
        Some(slots) => i128::from(slots),
        None => {
            let budget = rest as f64 * STATES_TO_CACHE / (1.0 + STATES_TO_CACHE);
            (budget as i128 - each) / each
        }
    };
    (slots.max(0) + 1).saturating_mul(each)
}

/// Bytes of the cache's budget that images' embeddings take.
pub fn image_cache(model: &Model, deployment: &Deployment) -> u64 {
    let reads_images = model.config.get("vision_config").is_some() && !deployment.language_only;
    count_if(
        reads_images && version(deployment) >= IMAGES_HELD,
        IMAGE_CACHE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use crate::estimate::{EngineId, Gpu};
    use serde_json::json;

    #[test]
    fn the_share_of_a_release_is_as_it_printed() {
        let llama = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        });
        let mut kimi = llama.clone();
        kimi["vision_config"] = json!({"vt_hidden_size": 1152, "vt_num_hidden_layers": 27});
        let llama = from_config("llama", &llama, "test").unwrap();
        let images = from_config("kimi", &kimi, "test").unwrap();
        let share = |model: &Model, release: &str, mib: u64, tp: u64, given: Option<f64>| {
            let deployment = Deployment {
                version: Version::leading(release),
                tp,
                memory_fraction: given,
                gpu: Some(Gpu {
                    name: "any".into(),
                    total: mib << 20,
                    in_use: 0,
                }),
                ..Deployment::with_defaults(EngineId::Sglang)
            };
            (settings(model, &deployment).fraction * 1000.0).round() / 1000.0
        };
        // From public logs, by what nvidia-smi has: H200, B200, RTX 5090, A100.
        for (release, mib, tp, printed) in [
            ("0.4.6.post1", 143_771, 8, 0.907),
            ("0.4.6.post5", 143_771, 8, 0.872),
            ("0.4.9", 143_771, 8, 0.886),
            ("0.4.7", 183_359, 1, 0.79),
            ("0.4.9", 183_359, 1, 0.821),
            ("0.5.2", 183_359, 1, 0.821),
            ("0.4.8", 32_607, 1, 0.909),
            ("0.5.2", 81_920, 1, 0.875),
            ("0.4.4", 143_771, 8, 0.81),
        ] {
            assert_eq!(share(&llama, release, mib, tp, None), printed, "{release}");
        }
        // What images lower: any share, the default, and by the encoder's size.
        assert_eq!(share(&images, "0.4.4", 24_564, 1, Some(0.88)), 0.836);
        assert_eq!(share(&images, "0.4.9", 81_920, 1, Some(0.88)), 0.88);
        assert_eq!(share(&images, "0.4.9", 81_920, 1, None), 0.788);
        assert_eq!(share(&images, "0.5.8", 294_896, 8, None), 0.826);
    }

    #[test]
    fn states_are_as_many_as_asked_for_or_by_the_ratio() {
        let plain = Deployment::with_defaults(EngineId::Sglang);
        assert_eq!(states(&plain, 0, 1 << 40), 0);
        // Of 190 bytes 90 for states of 10, one slot of them padding.
        assert_eq!(states(&plain, 10, 190), 90);
        let asked = Deployment {
            state_slots: Some(4),
            ..plain.clone()
        };
        assert_eq!(states(&asked, 10, 190), 50);
        // Without prefixes a slot for each sequence at once.
        let without = Deployment {
            prefix_caching: Some(false),
            max_seqs: Some(32),
            ..plain
        };
        assert_eq!(states(&without, 10, 190), 330);
    }

    #[test]
    fn as_many_graphs_of_a_prefill_as_sglang_captures() {
        // 4 to 32 by 4, 48 to 256 by 16, 288 to 512 by 32, 576 to 1,024 by 64, 1,280 to 4,096 by 256, then by 512.
        assert_eq!(prefill_graphs(32), 8);
        assert_eq!(prefill_graphs(4096), 8 + 14 + 8 + 8 + 12);
        assert_eq!(prefill_graphs(8192), 8 + 14 + 8 + 8 + 12 + 8);
        assert_eq!(prefill_graphs(0), 0);
    }
}
