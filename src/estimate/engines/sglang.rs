//! SGLang: its defaults and its sizing rule. Nothing is profiled: what `mem_fraction_static` leaves free is for the rest.

use super::Settings;
use crate::estimate::{Deployment, Model, Version};

const GIB: u64 = 1 << 30;
/// The newest release with known rules.
const NEWEST: Version = Version::new(0, 5, 23);

/// Releases whose graphs of prefills count in the share by default, and whose GPU tiers are those of 0.5.17.
const PREFILL_GRAPHS: Version = Version::new(0, 5, 17);
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

/// The settings of a deployment (SGLang 0.4.6, 0.5.5, 0.5.9 and 0.5.17, srt/server_args.py; 0.5.23,
/// srt/arg_groups/memory_hook.py).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let total = deployment.gpu.as_ref().map_or(0, |g| g.total);
    let chunk = deployment
        .max_batched_tokens
        .unwrap_or(chunk(deployment, total));
    Settings {
        fraction: deployment
            .memory_fraction
            .unwrap_or_else(|| fraction(model, deployment, total, chunk)),
        batch_known: deployment.memory_fraction.is_some(),
        ..Settings::with_defaults(model, deployment, chunk, graph_batch(deployment, total), 1)
    }
}

fn version(deployment: &Deployment) -> Version {
    deployment.version.unwrap_or(NEWEST)
}

/// Tokens of a chunk of a prefill.
fn chunk(deployment: &Deployment, total: u64) -> u64 {
    match (total / GIB, version(deployment) < Version::new(0, 5, 9)) {
        (0..20, _) | (0..25, true) => 2048,
        (0..40, true) | (0..60, false) => 4096,
        (0..160, _) => 8192,
        _ => 16_384,
    }
}

/// Largest batch that graphs are captured for.
fn graph_batch(deployment: &Deployment, total: u64) -> u64 {
    match total / GIB {
        0..25 => 8,
        25..40 => 24,
        40..60 if deployment.tp < 4 => 32,
        40..60 => 160,
        60..160 if deployment.tp < 4 => 256,
        _ => 512,
    }
}

/// The default of `mem_fraction_static`.
fn fraction(model: &Model, deployment: &Deployment, total: u64, chunk: u64) -> f64 {
    let gib = total as f64 / GIB as f64;
    let tp = deployment.tp.max(1);
    if version(deployment) < Version::new(0, 5, 0) {
        return if gib > 90.0 {
            ((gib - 13.0) / gib).max(0.1)
        } else {
            match tp {
                1 => 0.88,
                2 => 0.87,
                3..=4 => 0.85,
                5..=8 => 0.81,
                _ => 0.79,
            }
        };
    }
    if gib <= 0.0 {
        return 0.88;
    }
    // Held back, in MiB: metadata, activations of a chunk, graphs, and buffers by parallelism.
    let parallel = tp.saturating_mul(deployment.pp.max(1)) as f64;
    let mut held = 512.0
        + 1.5 * chunk.max(2048) as f64
        + 2.0 * graph_batch(deployment, total) as f64
        + 1024.0 * parallel / 8.0;
    let eager = deployment.eager == Some(true);
    let speculates = deployment.speculation.is_some();
    if version(deployment) >= PREFILL_GRAPHS && !eager {
        held += if model.is_latent() {
            1536.0
        } else {
            8.0 * prefill_graphs(chunk) as f64
        };
    }
    if gib > 60.0 {
        held = held.max(10.0 * 1024.0);
    }
    if version(deployment) < PREFILL_GRAPHS && speculates {
        held += 2.0 * 1024.0;
    }
    let share = ((gib * 1024.0 - held) / (gib * 1024.0)).clamp(0.1, 0.99);
    match deployment.language_only {
        true => share,
        false => share * image_factor(model),
    }
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
/// two names alone, and taken for a ViT-L where it is under others.
fn image_factor(model: &Model) -> f64 {
    let Some(vision) = model.config.get("vision_config").filter(|v| v.is_object()) else {
        return 1.0;
    };
    let number = |key: &str, default: f64| {
        vision
            .get(key)
            .and_then(serde_json::Value::as_f64)
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
    if reads_images && version(deployment) >= PREFILL_GRAPHS {
        IMAGE_CACHE
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::EngineId;

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
