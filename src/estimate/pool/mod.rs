//! The cache as an engine lays it out in some bytes: blocks, tokens, and how many requests of a length it holds.

pub mod compressed;
mod grouped;

use super::{
    Deployment, EngineId, Model, Unknown,
    engines::{self, Settings, sglang},
    kv::{self, Cache},
    model::Window,
    pooling, speculation,
};
use crate::estimate::arithmetic::{count_if, product, sum};
use grouped::{Grouped, Kept};

/// How the cache of a deployment is laid out, whatever its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Tokens of the smallest block.
    pub block_tokens: u64,
    /// Bytes that one block takes on one GPU, all layers that share it.
    pub block_bytes: u64,
    /// Groups of layers, each with blocks of its own.
    pub groups: u64,
    /// The kinds in it, and what one request needs of each.
    needs: Vec<Need>,
    /// Ranks of decode context parallelism: each keeps a part of the tokens.
    dcp: u64,
    /// What `GPU KV cache size` means.
    printed: Printed,
    /// Tokens of one step, which a window must hold besides its own.
    batched: u64,
}

/// What one request needs of one kind of layer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Need {
    /// Groups of the kind.
    groups: u64,
    /// Tokens of its blocks.
    block: u64,
    /// What bounds it.
    bound: Bound,
}

/// What bounds the blocks that a request needs of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    /// The request's length.
    Length,
    /// A window that slides: its tokens.
    Sliding(u64),
    /// A chunk: its tokens.
    Chunked(u64),
    /// Nothing: a number of blocks.
    Blocks(u64),
    /// llama.cpp's streams, which divide the tokens; each keeps what its windows reach, where it has any, and a step.
    Streams {
        /// How many.
        count: u64,
        /// Tokens of the windows of a stream's slots.
        reach: Option<u64>,
    },
}

/// What an engine means by the tokens of its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Printed {
    /// Blocks of each group.
    Blocks,
    /// The requests of full length that fit, times that length: vLLM from 0.20.1.
    Requests,
    /// None: nothing is kept, and a step has so many requests.
    Nothing(u64),
}

/// A cache of some size.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Bytes on one GPU.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Tokens, as the engine prints them.
    pub tokens: u64,
}

impl Layout {
    /// The layout of a deployment's cache.
    pub fn of(
        model: &Model,
        deployment: &Deployment,
        settings: &Settings,
        cache: &Cache,
    ) -> Result<Layout, Unknown> {
        if pooling::keeps_nothing(model, deployment) {
            return Ok(Self::nothing(settings));
        }
        if cache.layers.is_empty() && cache.states.is_empty() {
            return Err(Unknown::new(match deployment.gpu_layers {
                Some(0 | 1) => "no layer with a cache is on the GPU (--n-gpu-layers)",
                _ => "a runner that pools (embeddings, scores) is not modelled here",
            }));
        }
        let cells = deployment.engine.takes_what_is_asked();
        let mut layout = match deployment.engine {
            EngineId::Vllm => Self::vllm(model, deployment, settings, cache)?,
            _ if cells && cache.is_bounded() => Self::cells(deployment, settings, cache),
            _ => Self::plain(cache, settings)?,
        };
        if deployment.engine == EngineId::Sglang && sglang::pools_windows(model, deployment) {
            layout.block_bytes = windowed_bytes(cache).saturating_mul(settings.block);
        }
        layout.dcp = deployment.dcp.max(1);
        Ok(layout)
    }

    /// Of no bytes.
    fn nothing(settings: &Settings) -> Layout {
        Layout {
            block_tokens: settings.block,
            block_bytes: 0,
            groups: 0,
            needs: Vec::new(),
            dcp: 1,
            printed: Printed::Nothing(settings.sequences),
            batched: settings.batched_tokens,
        }
    }

    /// Whether no token needs any of it.
    pub fn keeps_nothing(&self) -> bool {
        matches!(self.printed, Printed::Nothing(_))
    }

    /// One group of all layers, each as if every token were kept.
    fn plain(cache: &Cache, settings: &Settings) -> Result<Layout, Unknown> {
        let per_token = cache.bytes_per_token();
        if per_token == 0 {
            return Err(Unknown::new(
                "the model keeps a fixed state per sequence and no cache per token",
            )
            .hint("its concurrency is bounded by the sequences that the engine allows"));
        }
        Ok(Layout {
            block_tokens: settings.block,
            block_bytes: per_token.saturating_mul(settings.block),
            groups: 1,
            needs: vec![Need {
                groups: 1,
                block: settings.block,
                bound: Bound::Length,
            }],
            dcp: 1,
            printed: Printed::Blocks,
            batched: settings.batched_tokens,
        })
    }

    /// Cells of each layer alone, as far as its window reaches: blocks of one byte. llama.cpp keeps the window of each slot,
    /// and a step, of slots that share a stream together (src/llama-kv-cache-iswa.cpp); a state for each slot, and for
    /// each token that its model's own layers propose.
    fn cells(deployment: &Deployment, settings: &Settings, cache: &Cache) -> Layout {
        let slots = engines::llama_cpp::slots(deployment);
        let streams = engines::llama_cpp::streams(deployment);
        let own = deployment.engine == EngineId::LlamaCpp;
        let layers = cache.layers.iter().map(|layer| {
            let window = layer.window.map(|w| match w {
                Window::Sliding(tokens) | Window::Chunked(tokens) => tokens,
            });
            Need {
                groups: layer.bytes,
                block: 1,
                bound: match window {
                    _ if own => Bound::Streams {
                        count: streams,
                        reach: engines::llama_cpp::reach(deployment, window)
                            .map(|tokens| tokens.saturating_mul(slots / streams)),
                    },
                    Some(tokens) => Bound::Chunked(tokens),
                    None => Bound::Length,
                },
            }
        });
        let proposes = speculation::loads_predictor(deployment);
        let ahead = count_if(proposes, speculation::tokens(deployment));
        let states = Need {
            groups: product([cache.bytes_per_sequence(), slots, ahead.saturating_add(1)]),
            block: 1,
            bound: Bound::Blocks(1),
        };
        Layout {
            block_tokens: 1,
            block_bytes: 1,
            groups: 1,
            needs: layers.chain([states]).collect(),
            dcp: 1,
            printed: Printed::Requests,
            batched: count_if(own, settings.batched_tokens),
        }
    }

    /// As vLLM groups layers.
    fn vllm(
        model: &Model,
        deployment: &Deployment,
        settings: &Settings,
        cache: &Cache,
    ) -> Result<Layout, Unknown> {
        let version = engines::vllm::version(deployment);
        if let Some(mut layout) = compressed::layout(model, deployment, settings) {
            layout.printed = Printed::Requests;
            return Ok(layout);
        }
        let grouped = if engines::vllm::hybrid(model, deployment) || !cache.states.is_empty() {
            Grouped::of(
                cache,
                settings.block,
                version,
                Kept::of(deployment, version),
            )?
        } else {
            None
        };
        let mut layout = match grouped {
            Some(grouped) => {
                let steps = engines::vllm::steps_at_once(model, deployment);
                grouped.layout(settings.batched_tokens.saturating_mul(steps))
            }
            None => Self::plain(cache, settings)?,
        };
        if version >= crate::estimate::Version::new(0, 20, 1) {
            layout.printed = Printed::Requests;
        }
        Ok(layout)
    }

    /// Blocks that one request of `tokens` needs, all groups together; at least 1.
    ///
    /// Source: `max_memory_usage_bytes` of each spec in vLLM 0.19, v1/kv_cache_interface.py.
    pub fn blocks_of(&self, tokens: u64) -> u64 {
        let local = tokens.div_ceil(self.dcp);
        let needed = self.needs.iter().map(|n| {
            let block = n.block.max(1);
            let reach = |window: u64| window.saturating_add(self.batched).min(tokens);
            let blocks = match n.bound {
                Bound::Length => local.div_ceil(block),
                Bound::Sliding(window) => reach(window.saturating_sub(1))
                    .div_ceil(block)
                    .saturating_add(1),
                Bound::Chunked(chunk) => reach(chunk).div_ceil(block),
                Bound::Blocks(blocks) => blocks,
                Bound::Streams { count, reach } => {
                    let each = tokens.div_ceil(count.max(1));
                    let kept = reach.map_or(each, |r| r.saturating_add(self.batched).min(each));
                    product([
                        kept.div_ceil(engines::llama_cpp::PADDING),
                        engines::llama_cpp::PADDING,
                        count,
                    ])
                }
            };
            blocks.saturating_mul(n.groups)
        });
        sum(needed).max(1)
    }

    /// Bytes that one request of `tokens` takes on one GPU, its last blocks' unused parts included.
    pub fn bytes_of(&self, tokens: u64) -> u64 {
        self.blocks_of(tokens).saturating_mul(self.block_bytes)
    }

    /// What `bytes` hold; `longest` is `max_model_len`, which vLLM's printed figure depends on from 0.20.1.
    pub fn pool(&self, bytes: u64, longest: Option<u64>) -> Pool {
        let blocks = match self.printed {
            Printed::Nothing(requests) => requests,
            _ => bytes / self.block_bytes.max(1),
        };
        let in_blocks = product([(blocks / self.groups.max(1)), self.block_tokens, self.dcp]);
        let tokens = match (self.printed, longest) {
            (Printed::Requests, Some(longest)) if longest > 0 => {
                // Multiplied before it is divided, as vLLM's whole number is of the exact quotient.
                let product = u128::from(blocks) * u128::from(longest);
                u64::try_from(product / u128::from(self.blocks_of(longest))).unwrap_or(u64::MAX)
            }
            (Printed::Nothing(_), _) => 0,
            _ => in_blocks,
        };
        Pool {
            bytes,
            blocks,
            tokens,
        }
    }

    /// Whether sequences keep states in it, each in blocks of its own.
    pub fn keeps_states(&self) -> bool {
        let of_states = |need: &Need| matches!(need.bound, Bound::Blocks(_));
        self.needs.iter().any(of_states)
    }

    /// How many requests of `tokens` a pool holds at once.
    pub fn concurrency(&self, pool: &Pool, tokens: u64) -> f64 {
        pool.blocks as f64 / self.blocks_of(tokens) as f64
    }
}

/// Bytes of a token where layers with a window have a smaller pool of their own.
fn windowed_bytes(cache: &Cache) -> u64 {
    let of = |windowed: bool| {
        let layers = cache.layers.iter();
        sum(layers
            .filter(|l| l.window.is_some() == windowed)
            .map(|l| l.bytes))
    };
    of(false).saturating_add((of(true) as f64 * sglang::WINDOWED_TOKENS) as u64)
}

/// The cache's layout and its per-token figures for a deployment.
pub fn of(
    model: &Model,
    deployment: &Deployment,
    settings: &Settings,
) -> Result<(Cache, Layout), Unknown> {
    let cache = kv::of(model, deployment)?;
    let layout = Layout::of(model, deployment, settings, &cache)?;
    Ok((cache, layout))
}
