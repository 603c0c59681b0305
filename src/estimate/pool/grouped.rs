//! vLLM's groups of layers: kinds of attention and of recurrent state that share one pool of equal blocks.
//!
//! Source: vLLM 0.19 and 0.23, v1/core/kv_cache_utils.py, `_get_kv_cache_groups_uniform_page_size`.

use super::{Bound, Layout, Need, Printed};
use crate::estimate::{Deployment, Unknown, Version, kv::Cache, model::Window, speculation};

/// The groups of a model.
pub(super) struct Grouped {
    /// Bytes of a block of one layer.
    page: u64,
    /// Layers of a group.
    size: u64,
    /// Tokens of the smallest block.
    block: u64,
    needs: Vec<Need>,
}

/// Which states of a sequence are kept at once.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// Blocks keep prefixes for other requests: the state before and the state after.
    pub prefixes: bool,
    /// One for each token that is verified ahead.
    pub ahead: u64,
}

impl Kept {
    /// Of a deployment. Prefixes are kept for models with states where it is asked for, and by default from 0.23
    /// (vLLM, ModelConfig.is_prefix_caching_supported).
    pub(super) fn of(deployment: &Deployment, version: Version) -> Kept {
        let default = version >= Version::new(0, 23, 0);
        Kept {
            prefixes: deployment.prefix_caching.unwrap_or(default),
            ahead: speculation::tokens(deployment),
        }
    }
}

/// Layers of one kind.
struct Kind {
    layers: u64,
    bytes: u64,
    bound: Bound,
}

impl Grouped {
    /// The groups; `None` where all layers are of one kind, however wide each is: they share one block table.
    pub(super) fn of(
        cache: &Cache,
        block: u64,
        version: Version,
        kept: Kept,
    ) -> Result<Option<Grouped>, Unknown> {
        let mut kinds: Vec<Kind> = Vec::new();
        for layer in &cache.layers {
            let bound = match layer.window {
                None => Bound::Length,
                Some(Window::Sliding(w)) => Bound::Sliding(w),
                Some(Window::Chunked(w)) => Bound::Chunked(w),
            };
            add(&mut kinds, layer.bytes, bound);
        }
        let bounded = kinds.iter().any(|k| k.bound != Bound::Length);
        let endless = kinds.iter().any(|k| k.bound == Bound::Length);
        // Windows alone are a kind of their own: nothing is grouped, but only the window is kept.
        if cache.states.is_empty() && (!bounded || (!endless && kinds.len() == 1)) {
            return Ok(match kinds.as_slice() {
                [only] if bounded => Some(Grouped {
                    page: only.bytes.saturating_mul(block),
                    size: only.layers,
                    block,
                    needs: vec![Need {
                        groups: 1,
                        block,
                        bound: only.bound,
                    }],
                }),
                _ => None,
            });
        }
        let widest = kinds.iter().map(|k| k.bytes).max().unwrap_or(0);
        if widest == 0 {
            return Err(Unknown::new(
                "the model keeps a fixed state per sequence and no cache per token",
            )
            .hint("its concurrency is bounded by the sequences that the engine allows"));
        }
        let mut block = block;
        if let Some(largest) = cache.states.iter().map(|s| s.bytes).max() {
            // A block of attention is made as large as a state (vLLM, HybridAttentionMambaModelConfig): to a
            // multiple of 16 tokens.
            let tokens = largest.div_ceil(widest).div_ceil(16).saturating_mul(16);
            block = block.max(tokens);
            let blocks = kept.ahead.saturating_add(if kept.prefixes { 2 } else { 1 });
            for state in &cache.states {
                add(&mut kinds, state.bytes, Bound::Blocks(blocks));
            }
        }
        let fewest = kinds.iter().map(|k| k.layers).min().unwrap_or(1).max(1);
        let most = kinds.iter().map(|k| k.layers).max().unwrap_or(1);
        let size = if groups_to_most(fewest, most, version) {
            most
        } else {
            fewest
        };
        let needs = kinds
            .iter()
            .map(|k| Need {
                groups: k.layers.div_ceil(size),
                // Narrower layers get blocks of more tokens, so that all blocks are of equal bytes.
                block: match k.bound {
                    Bound::Blocks(_) => block,
                    _ => block.saturating_mul((widest / k.bytes.max(1)).max(1)),
                },
                bound: k.bound,
            })
            .collect();
        Ok(Some(Grouped {
            page: widest.saturating_mul(block),
            size,
            block,
            needs,
        }))
    }

    /// As a layout.
    pub(super) fn layout(self, batched: u64) -> Layout {
        Layout {
            block_tokens: self.block,
            block_bytes: self.page.saturating_mul(self.size),
            groups: self.needs.iter().map(|n| n.groups).sum::<u64>().max(1),
            needs: self.needs,
            dcp: 1,
            printed: Printed::Blocks,
            batched,
        }
    }
}

/// A group takes as many layers as the largest kind has, where the kinds are nearly as many; else as the smallest.
fn groups_to_most(fewest: u64, most: u64, version: Version) -> bool {
    if version >= Version::new(0, 17, 0) {
        most.saturating_mul(2) < fewest.saturating_mul(3)
    } else {
        version >= Version::new(0, 12, 0) && most.saturating_mul(4) < fewest.saturating_mul(5)
    }
}

/// Counts a layer with its kind.
fn add(kinds: &mut Vec<Kind>, bytes: u64, bound: Bound) {
    match kinds
        .iter_mut()
        .find(|k| k.bytes == bytes && k.bound == bound)
    {
        Some(kind) => kind.layers += 1,
        None => kinds.push(Kind {
            layers: 1,
            bytes,
            bound,
        }),
    }
}
