//! vLLM's cache of DeepSeek V4: compressed keys of all tokens, windows of the last ones, and states of those that are being
//! compressed, in blocks of the same bytes.
//!
//! Source: vLLM 0.20 (v1/core/kv_cache_utils.py, `_get_kv_cache_groups_uniform_groups`) and 0.33 (v1/core/kv_cache_planning.py,
//! `_get_packed_kv_cache_groups`; models/deepseek_v4/attention.py and compressor.py, v1/attention/backends/mla/sparse_swa.py).

use super::{Bound, Layout, Need, Printed};
use crate::estimate::{
    Deployment, Mixer, Model, Version,
    arithmetic::{product, sum},
    engines::{self, Settings, vllm},
    speculation,
};

/// Bytes of a key in `fp8_ds_mla`: 448 values of a byte, 64 of two, 8 scales. By default, and the only one of FlashMLA.
pub const ROW: u64 = 584;
/// Bytes of a key of the indexer: 128 values of a byte and a scale of 4.
pub const INDEX_ROW: u64 = 132;
/// Tokens of a block, which `--block-size` may change.
pub const BLOCK: u64 = 256;
/// Bytes that a page of a layer is a multiple of.
const ALIGNED: u64 = 576;
/// Tokens of a window's block.
const WINDOW_BLOCK: u64 = 64;

/// Whether the layout of a deployment's cache was read: not of drafts, pipelines and context parallelism, nor of another type.
pub fn is_known(model: &Model, deployment: &Deployment) -> bool {
    let d = deployment;
    let named = d.kv_dtype.as_deref().unwrap_or("fp8");
    let shape = |mixer: &Mixer| match *mixer {
        Mixer::Compressed {
            ratio, dim, index, ..
        } => dim == 512 && matches!(ratio, 0 | 1 | 4 | 128) && (index == Some(128)) == (ratio == 4),
        _ => false,
    };
    vllm::is_from(d, Version::new(0, 20, 0))
        && !engines::is_foreign(d)
        && (named == "auto" || named.starts_with("fp8"))
        && d.pp.max(1) == 1
        && d.dcp.max(1) == 1
        && speculation::tokens(d) == 0
        && model.mixers.iter().all(shape)
}

/// The layout; `None` where the model is another, or its layout was not read.
pub(super) fn layout(
    model: &Model,
    deployment: &Deployment,
    settings: &Settings,
) -> Option<Layout> {
    let Some(Mixer::Compressed { window, .. }) = model.mixers.first() else {
        return None;
    };
    if !is_known(model, deployment) {
        return None;
    }
    let of_ratio = |wanted: u64| {
        let has = |m: &&Mixer| matches!(m, Mixer::Compressed { ratio, .. } if *ratio == wanted);
        model.mixers.iter().filter(has).count() as u64
    };
    let (all, fine, coarse) = (model.mixers.len() as u64, of_ratio(4), of_ratio(128));
    let page = |tokens: u64, row: u64| tokens.saturating_mul(row).next_multiple_of(ALIGNED);
    let block = settings.block;
    let windows = page(WINDOW_BLOCK, ROW);
    let [keys, rare, index] = [
        page(block / 4, ROW),
        page(block / 128, ROW),
        page(block / 4, INDEX_ROW),
    ];
    // States and scores of 512 and 128 values in 32 bits, of overlapping windows twice as many: 4 and 8 tokens of a block.
    let [state, index_state] = [page(4, 2 * 2 * 512 * 4), page(4, 2 * 2 * 128 * 4)];
    let size = least_padding(&[all, fine, coarse], fine);
    let (windowed, sparse) = (all.div_ceil(size), coarse.div_ceil(size));
    let (of_windows, of_sparse) = (all.div_ceil(windowed), coarse.div_ceil(sparse.max(1)));
    let version = vllm::version(deployment);
    let block_bytes = if version >= Version::new(0, 27, 0) {
        // Each group is packed by itself (pull request 48993: 1,315,008 bytes of V4-Pro with an index in 4 bits).
        let groups = [
            sum([
                product([fine, keys]),
                product([coarse, rare]),
                product([fine, index]),
            ]),
            product([of_windows, windows]),
            product([fine, state.saturating_add(index_state)]),
            product([of_sparse, state]),
        ];
        groups.into_iter().max().unwrap_or(0)
    } else {
        // Layers of each page's size lie over each other: as many of each (0.22: 6.66 GiB for 30,000 tokens of V4-Flash), or
        // as many as there are (pull request 44454: 333,437 tokens instead of 329,601).
        let most = of_windows.max(fine).max(of_sparse);
        match version >= Version::new(0, 23, 0) {
            true => sum([
                product([most, keys.max(windows)]),
                product([fine, index]),
                product([coarse, rare]),
            ]),
            false => product([most, sum([keys.max(windows), index, rare])]),
        }
    };
    let need = |groups, block, bound| Need {
        groups,
        block,
        bound,
    };
    let steps = vllm::steps_at_once(model, deployment);
    Some(Layout {
        block_tokens: block,
        block_bytes,
        groups: 2 + windowed + sparse,
        needs: vec![
            need(1, block, Bound::Length),
            need(windowed, WINDOW_BLOCK, Bound::Sliding(*window)),
            need(1, 4, Bound::Sliding(2 * 4)),
            need(sparse, 8, Bound::Sliding(128)),
        ],
        dcp: 1,
        printed: Printed::Requests,
        batched: settings.batched_tokens.saturating_mul(steps),
    })
}

/// The size of a group, at least `least`, with which groups of these layers are filled up least; the larger of equals
/// (`_approximate_gcd`).
fn least_padding(layers: &[u64], least: u64) -> u64 {
    let most = layers.iter().copied().max().unwrap_or(1).max(1);
    let added = |size: u64| sum(layers.iter().map(|n| n.next_multiple_of(size) - n));
    let sizes = least.max(1)..=most.max(least);
    sizes
        .min_by_key(|size| (added(*size), u64::MAX - size))
        .unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{EngineId, model::from_config, pool};
    use serde_json::json;

    /// V4-Flash and V4-Pro as far as the cache goes: layers that see a window alone, then every fourth and 128th token.
    fn model(layers: u64, first: u64) -> Model {
        let ratios: Vec<u64> = (0..=layers)
            .map(|i| match i {
                0 | 1 => first,
                i if i == layers => 0,
                i if i % 2 == 0 => 4,
                _ => 128,
            })
            .collect();
        let config = json!({
            "model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": layers, "num_attention_heads": 64,
            "head_dim": 512, "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64,
            "index_head_dim": 128, "sliding_window": 128, "compress_ratios": ratios, "n_routed_experts": 256,
            "moe_intermediate_size": 2048, "num_experts_per_tok": 6, "n_shared_experts": 1, "vocab_size": 129_280,
            "max_position_embeddings": 1_048_576, "torch_dtype": "bfloat16",
        });
        from_config("v4", &config, "test").unwrap()
    }

    fn laid_out(model: &Model, version: &str, batched: u64) -> Layout {
        let deployment = Deployment {
            version: Version::leading(version),
            max_batched_tokens: Some(batched),
            ..Deployment::with_defaults(EngineId::Vllm)
        };
        let settings = vllm::settings(model, &deployment);
        pool::of(model, &deployment, &settings).unwrap().1
    }

    #[test]
    fn requests_take_what_the_engine_said() {
        // vLLM 0.22 on two GH200: 6.66 GiB for 30,000 tokens, and 5.44 GiB are enough for 13,528.
        let flash = laid_out(&model(43, 0), "0.22.0", 16_384);
        let gib = |tokens| flash.bytes_of(tokens) as f64 / f64::from(1 << 30);
        assert_eq!(
            format!("{:.2} {:.2}", gib(30_000), gib(13_528)),
            "6.66 5.44"
        );
    }

    #[test]
    fn blocks_are_as_the_engine_packs_them() {
        let bytes = |model: &Model, version| laid_out(model, version, 8192).block_bytes;
        let (flash, pro) = (model(43, 0), model(61, 128));
        // Pull request 44454 made 1.16 % more of V4-Flash's tokens; 48993 started from 1,473,408 bytes of V4-Pro.
        let more = bytes(&flash, "0.22.0") as f64 / bytes(&flash, "0.24.0") as f64;
        assert!((more - 333_437.0 / 329_601.0).abs() < 1e-4, "{more}");
        assert_eq!(bytes(&pro, "0.24.0"), 1_473_408);
        // A log of August 2026 has blocks of 978.8 KiB; an index in 4 bits has 4,608 bytes a page instead of 8,640.
        assert_eq!(bytes(&flash, "0.33.0"), 1_002_240);
        assert_eq!(bytes(&pro, "0.33.0"), 1_315_008 + 30 * (8640 - 4608));
    }
}
