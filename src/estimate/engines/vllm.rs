//! vLLM: its defaults and its sizing rule, by version.

use super::{Settings, gpu_model};
use crate::catalog::GpuModel;
use crate::engine::vllm::default_utilization;
use crate::estimate::kv::text_value;
use crate::estimate::{
    Deployment, EngineId, Mixer, Model, Version, arithmetic::product, encoder, model::Window,
    pool::compressed, pooling, speculation,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The newest version with known rules.
pub const NEWEST: Version = Version::new(0, 33, 0);

const GIB: u64 = 1 << 30;

/// How a version computes what is left for the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// V0 to 0.6.3: what a profile run took from the free memory, the allocator's slack included.
    FreeMemory,
    /// V0 from 0.6.4: weights, the peak's and the rest's increase.
    Increase,
    /// V1 0.8.0 to 0.9.1: the peak and all that torch does not hold, the context and others' memory included.
    Absolute,
    /// V1 from 0.9.2: differences of snapshots, taken once the driver's context and NCCL are there.
    Snapshot,
    /// From 0.21: as `Snapshot`, less the forecast of the CUDA graphs.
    SnapshotAndGraphs,
}

/// The version that decides.
pub fn version(deployment: &Deployment) -> Version {
    match (deployment.version, deployment.engine) {
        (Some(v), EngineId::Vllm) => v,
        _ => NEWEST,
    }
}

/// The engine is vLLM, of this release or a later one.
pub fn is_from(deployment: &Deployment, release: Version) -> bool {
    deployment.engine == EngineId::Vllm && version(deployment) >= release
}

/// The V0 engine runs: always before 0.8, never from 0.11, and in between where it was asked for.
///
/// vLLM 0.8 made V1 the default but fell back to V0 on GPUs before compute capability 8, and for LoRA in 0.8
/// (engine/arg_utils.py, `_is_v1_supported_oracle`: supported, off by default).
pub fn is_v0(deployment: &Deployment) -> bool {
    let v = version(deployment);
    if v >= Version::new(0, 11, 0) {
        return false;
    }
    if let Some(v0) = deployment.vllm_v0 {
        return v0;
    }
    if v < Version::new(0, 8, 0) {
        return true;
    }
    if deployment.lora.is_some() && v < Version::new(0, 9, 0) {
        return true;
    }
    super::generation_of(deployment) == Some(super::Generation::Turing)
}

/// The sizing rule of a deployment.
pub fn rule(deployment: &Deployment) -> Rule {
    let v = version(deployment);
    if is_v0(deployment) {
        if v < Version::new(0, 6, 4) {
            Rule::FreeMemory
        } else {
            Rule::Increase
        }
    } else if v < Version::new(0, 9, 2) {
        Rule::Absolute
    } else {
        // The switch came with 0.18, off (v1/worker/gpu_worker.py); 0.21 turned it on.
        let on = v >= Version::new(0, 21, 0);
        let asked = (deployment.graph_forecast).filter(|_| v >= Version::new(0, 18, 0));
        if asked.unwrap_or(on) {
            Rule::SnapshotAndGraphs
        } else {
            Rule::Snapshot
        }
    }
}

/// Whether vLLM takes its second model runner (`VllmConfig.use_v2_model_runner`): first for a few architectures, until
/// 0.23 with unquantized weights alone, from 0.25 for what has no experts, from 0.29 always. Proposers are left out, as it
/// does not take all, and bitsandbytes: a start of it held gigabytes more than any of these rules gives.
pub fn runs_second_runner(model: &Model, deployment: &Deployment) -> bool {
    let v = version(deployment);
    let early: &[&str] = match v {
        v if v >= Version::new(0, 23, 0) => &["llama", "mistral", "qwen3"],
        v if v >= Version::new(0, 22, 1) => &["qwen3"],
        _ => &[],
    };
    let quantized = deployment.quantization.is_some() || model.quant_method().is_some();
    let plain = model.experts_per_token.is_none() && !model.is_recurrent();
    let by_default = v >= Version::new(0, 29, 0)
        || v >= Version::new(0, 25, 0) && plain
        || early.contains(&model.kind.as_str()) && (v >= Version::new(0, 24, 0) || !quantized);
    let unsure = crate::estimate::graphs::quantised_by_bnb(model, deployment)
        || speculation::tokens(deployment) > 0;
    deployment.second_runner.unwrap_or(by_default) && !unsure && !deployment.on_cpu
}

/// Steps that are under way at once: a sliding window keeps their tokens besides its own. From 0.26
/// `max_in_flight_tokens` = `max_concurrent_batches` x `max_num_batched_tokens` (vllm/config, v1/kv_cache_interface.py).
pub fn steps_at_once(model: &Model, deployment: &Deployment) -> u64 {
    let stages = deployment.pp.max(1);
    match (deployment.async_scheduling.unwrap_or(true), stages) {
        _ if version(deployment) < Version::new(0, 26, 0) => 1,
        (true, stages) if runs_second_runner(model, deployment) => stages.saturating_add(1),
        (true, 1) => 2,
        (_, stages) => stages,
    }
}

/// Layers of different windows are grouped and only what their windows reach is kept: the hybrid manager.
pub fn hybrid(model: &Model, deployment: &Deployment) -> bool {
    let v = version(deployment);
    if is_v0(deployment) || v < Version::new(0, 10, 0) {
        return false;
    }
    let chunked = (model.mixers.iter()).any(|m| matches!(m.window(), Some(Window::Chunked(_))));
    // Chunked attention stayed out of it until its switch was turned on (vllm/envs.py,
    // VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE: off in 0.11, on in 0.19).
    !chunked || v >= Version::new(0, 17, 0)
}

/// The longest length where none is asked for: the model's positions; of LongRoPE those before its scaling, from 0.11.1 on
/// (config/model.py, `get_and_verify_max_len`).
fn default_length(model: &Model, version: Version) -> Option<u64> {
    let scaling = ["rope_scaling", "rope_parameters"].map(|name| text_value(&model.config, name));
    let kind = scaling.into_iter().flatten().find_map(|s| {
        let kind = s.get("rope_type").or_else(|| s.get("type"))?;
        kind.as_str()
    });
    let before = text_value(&model.config, "original_max_position_embeddings")
        .and_then(Value::as_u64)
        .filter(|_| kind == Some("longrope") && version >= Version::new(0, 11, 1));
    before.or(model.max_positions)
}

/// The settings of a deployment.
///
/// Source: `EngineArgs.get_batch_defaults` and `_set_default_max_num_seqs_and_batched_tokens_args` of vLLM 0.19 and
/// 0.23; `SchedulerConfig` of 0.6.
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let v = version(deployment);
    let v0 = is_v0(deployment);
    let max_model_len = deployment.max_model_len.or(default_length(model, v));
    let gpu = gpu_model(deployment);
    let total = deployment.gpu.as_ref().map_or(0, |g| g.total);
    let large = has_large_defaults(gpu, total, v);
    let (tokens, sequences) = if v0 {
        (v0_tokens(v, max_model_len), 256)
    } else if v >= Version::new(0, 30, 0) && total >= 160 * GIB {
        (16_384, 1024)
    } else if large {
        (8192, 1024)
    } else if v < Version::new(0, 8, 4) {
        // `_set_default_args_v1` of 0.8.1 and 0.8.3: 1,024 sequences on every GPU, 256 from 0.8.4 on.
        (2048, 1024)
    } else {
        (2048, 256)
    };
    let mut sequences = deployment.max_seqs.unwrap_or(sequences).max(1);
    let batched_tokens = deployment.max_batched_tokens.unwrap_or_else(|| {
        let ceiling = max_model_len.map_or(u64::MAX, |len| len.saturating_mul(sequences));
        // What is read whole is not split into chunks: a step has room for the longest.
        let is_whole = deployment.whole_prompts || pooling::keeps_nothing(model, deployment);
        let tokens = match max_model_len.filter(|_| is_whole) {
            Some(longest) if v < Version::new(0, 12, 0) => longest,
            Some(longest) => tokens.max(longest),
            None => tokens.max(encoder::least_step(model, deployment)),
        };
        if v0 { tokens } else { tokens.min(ceiling) }
    });
    sequences = sequences.min(batched_tokens.max(1));
    Settings {
        fraction: deployment
            .memory_fraction
            .unwrap_or(default_utilization(v.major, v.minor)),
        batched_tokens: batched_tokens.max(1),
        sequences,
        block: deployment
            .block_size
            .filter(|b| *b > 0)
            .unwrap_or(match model.mixers.first() {
                Some(Mixer::Compressed { .. }) => compressed::BLOCK,
                _ if model.is_latent() && !v0 => 64,
                _ => 16,
            }),
        max_model_len,
        eager: deployment.eager.unwrap_or(false),
        batch_known: deployment.max_batched_tokens.is_some() && deployment.max_seqs.is_some(),
    }
}

/// A GPU that V1 takes more tokens and sequences of a step for.
///
/// By its name until 0.8.4, by its memory from 0.8.5, the A100 left out from 0.9 (pull request 17885)
/// (engine/arg_utils.py, `_set_default_args_v1`).
fn has_large_defaults(gpu: Option<&GpuModel>, total: u64, v: Version) -> bool {
    let named = |names: &[&str]| gpu.is_some_and(|g| names.iter().any(|n| g.name.contains(n)));
    if v < Version::new(0, 8, 5) {
        return named(&["H100", "H200"]);
    }
    // GB10 has the memory of a large GPU and is taken for a small one since 0.30 (`is_gb10`).
    let small = v >= Version::new(0, 9, 0) && named(&["A100"])
        || v >= Version::new(0, 30, 0) && named(&["GB10"]);
    total >= 70 * GIB && !small
}

/// Tokens of V0's profile run: a whole sequence, or a chunk where chunks are used, which they are above 32,768.
fn v0_tokens(v: Version, max_model_len: Option<u64>) -> u64 {
    let len = max_model_len.unwrap_or(2048);
    if len > 32_768 && v >= Version::new(0, 5, 0) {
        if v < Version::new(0, 6, 4) { 512 } else { 2048 }
    } else {
        len.max(2048)
    }
}

/// Which CUDA graphs are asked for; none of them: as vLLM chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphsAsked {
    /// `cudagraph_mode`, in small letters.
    pub mode: Option<String>,
    /// Tokens of each.
    pub sizes: Option<Vec<u64>>,
    /// Tokens of the largest.
    pub largest: Option<u64>,
}

impl GraphsAsked {
    /// By a server's flags, with `--compilation-config` in its parts. `-O1` is in pieces alone (vLLM 0.20 and 0.33,
    /// config/vllm.py, OPTIMIZATION_LEVEL_01).
    pub fn read(values: &BTreeMap<String, String>) -> GraphsAsked {
        let value = |name: &str| values.get(name).map(|v| v.trim().to_ascii_lowercase());
        let either =
            |name: &str| value(&format!("compilation_config.{name}")).or_else(|| value(name));
        let first =
            (value("optimization_level").as_deref() == Some("1")).then(|| "piecewise".into());
        let listed = either("cudagraph_capture_sizes");
        GraphsAsked {
            mode: value("compilation_config.cudagraph_mode").or(first),
            sizes: listed.and_then(|text| numbers(&text)),
            largest: either("max_cudagraph_capture_size").and_then(|text| text.parse().ok()),
        }
    }

    /// Whether any is.
    pub fn is_any(&self) -> bool {
        *self != GraphsAsked::default()
    }
}

/// The numbers of a list, `1 2 4` or `[1, 2, 4]`.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let words = text.split(|c: char| c.is_whitespace() || "[],".contains(c));
    let listed = words.filter(|word| !word.is_empty());
    let all: Option<Vec<u64>> = listed.map(|word| word.parse().ok()).collect();
    all.filter(|all| !all.is_empty())
}

/// Sizes of CUDA graphs: how many are captured piece by piece, how many whole, and the largest in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Captures {
    /// Piece by piece, attention left out.
    pub piecewise: u64,
    /// Whole.
    pub full: u64,
    /// Tokens of the largest.
    pub largest: u64,
}

/// The graphs that a start captures (vLLM 0.19, `VllmConfig._set_cudagraph_sizes`).
pub fn captures(model: &Model, deployment: &Deployment, settings: &Settings) -> Captures {
    let v = version(deployment);
    if is_v0(deployment) {
        // One whole graph for each of 1, 2, 4 and steps of 8 up to the sequences, 256 at most.
        let largest = settings.sequences.min(256);
        return Captures {
            piecewise: 0,
            full: sizes(largest),
            largest,
        };
    }
    if v < Version::new(0, 11, 0) {
        // 1, 2, 4 and steps of 8 to 512, in pieces only.
        return Captures {
            piecewise: 67,
            full: 0,
            largest: 512,
        };
    }
    let asked = &deployment.graphs;
    // A sequence of a decoding step has its own token and those that are verified with it.
    let decoding = product([settings.sequences, 1 + speculation::tokens(deployment)]);
    let widest = if model.kind == "gpt_oss" {
        1024
    } else {
        decoding.saturating_mul(2).min(512)
    };
    let listed = asked.sizes.as_ref().and_then(|sizes| sizes.iter().max());
    let widest = listed.copied().or(asked.largest).unwrap_or(widest);
    let largest = widest.min(settings.batched_tokens);
    let count = |most: u64| match &asked.sizes {
        Some(listed) => listed.iter().filter(|size| **size <= most).count() as u64,
        None => sizes(most),
    };
    let (all, decode) = (count(largest), count(largest.min(decoding)));
    let (piecewise, full) = match asked.mode.as_deref() {
        // Attention stays out of the graphs of what pools.
        _ if pooling::is_computed(model, deployment) => (all, 0),
        Some("piecewise" | "1") => (all, 0),
        Some("full" | "2") => (0, all),
        Some("full_decode_only") => (0, decode),
        _ => (all, decode),
    };
    Captures {
        piecewise,
        full,
        largest,
    }
}

/// How many of 1, 2, 4, steps of 8 below 256 and steps of 16 from there are not above `largest`.
fn sizes(largest: u64) -> u64 {
    let small = [1, 2, 4].iter().filter(|s| **s <= largest).count() as u64;
    let eights = largest.min(255) / 8;
    let sixteens = if largest >= 256 {
        (largest - 256) / 16 + 1
    } else {
        0
    };
    small + eights + sixteens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_graphs_as_vllm_counts() {
        // `51 (largest=512)` and `83 (largest=1024)` are what vLLM 0.19 logs.
        assert_eq!(sizes(512), 51);
        assert_eq!(sizes(1024), 83);
        assert_eq!(sizes(256), 35);
        assert_eq!(sizes(1), 1);
        assert_eq!(sizes(0), 0);
    }

    #[test]
    fn graphs_are_those_that_are_asked_for() {
        let config = serde_json::json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 8192,
        });
        let model = crate::estimate::model::from_config("llama", &config, "test").unwrap();
        let of = |flags: &[(&str, &str)]| {
            let flags = flags
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let mut d = Deployment::with_defaults(EngineId::Vllm);
            (d.max_seqs, d.max_batched_tokens) = (Some(128), Some(8192));
            d.graphs =
                GraphsAsked::read(&crate::estimate::unmodelled::with_parts(&flags.collect()));
            let c = captures(&model, &d, &settings(&model, &d));
            (c.piecewise, c.full, c.largest)
        };
        assert_eq!(of(&[]), (35, 19, 256));
        assert_eq!(
            of(&[("compilation_config", r#"{"cudagraph_mode": "PIECEWISE"}"#)]),
            (35, 0, 256)
        );
        assert_eq!(of(&[("optimization_level", "1")]), (35, 0, 256));
        assert_eq!(
            of(&[("compilation_config.cudagraph_mode", "FULL_DECODE_ONLY")]),
            (0, 19, 256)
        );
        assert_eq!(
            of(&[("compilation_config.cudagraph_mode", "full")]),
            (0, 35, 256)
        );
        assert_eq!(
            of(&[(
                "compilation_config",
                r#"{"cudagraph_capture_sizes": [1, 8, 64, 200]}"#
            )]),
            (4, 3, 200)
        );
        assert_eq!(
            of(&[("cudagraph_capture_sizes", "1 8 64 200")]),
            (4, 3, 200)
        );
        assert_eq!(of(&[("max_cudagraph_capture_size", "16")]), (5, 5, 16));
    }
}
