//! SGLang: its defaults and its sizing rule. Nothing is profiled: what `mem_fraction_static` leaves free is for the rest.

use super::Settings;
use crate::estimate::{Deployment, Model, Version};

const GIB: u64 = 1 << 30;

/// The settings of a deployment (SGLang 0.4.6 and 0.5.5, srt/server_args.py).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let total = deployment.gpu.as_ref().map_or(0, |g| g.total);
    let chunk = deployment.max_batched_tokens.unwrap_or(chunk(total));
    Settings {
        fraction: deployment
            .memory_fraction
            .unwrap_or_else(|| fraction(deployment, total, chunk)),
        ..Settings::with_defaults(model, deployment, chunk, graph_batch(deployment, total), 1)
    }
}

/// Tokens of a chunk of a prefill.
fn chunk(total: u64) -> u64 {
    match total / GIB {
        0..25 => 2048,
        25..40 => 4096,
        40..160 => 8192,
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
        60..90 if deployment.tp < 4 => 256,
        _ => 512,
    }
}

/// The default of `mem_fraction_static`.
fn fraction(deployment: &Deployment, total: u64, chunk: u64) -> f64 {
    let gib = total as f64 / GIB as f64;
    let tp = deployment.tp.max(1);
    if deployment
        .version
        .is_some_and(|v| v < Version::new(0, 5, 0))
    {
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
    // Held back, in MiB: metadata, activations of a chunk, graphs, and buffers by parallelism.
    let parallel = tp.saturating_mul(deployment.pp.max(1)) as f64;
    let mut held = 512.0
        + 1.5 * chunk.max(2048) as f64
        + 2.0 * graph_batch(deployment, total) as f64
        + 1024.0 * parallel / 8.0;
    if gib > 60.0 {
        held = held.max(10.0 * 1024.0);
    }
    if gib <= 0.0 {
        return 0.88;
    }
    ((gib * 1024.0 - held) / (gib * 1024.0)).clamp(0.1, 0.99)
}

/// Bytes for the cache, or nothing where weights take all: the free memory before the weights times the fraction,
/// less the weights.
pub fn for_cache(deployment: &Deployment, settings: &Settings, weights: u64, before: u64) -> i128 {
    let Some(gpu) = &deployment.gpu else { return 0 };
    let free = gpu.total.saturating_sub(before).saturating_sub(gpu.in_use);
    (free as f64 * settings.fraction) as i128 - i128::from(weights)
}
