//! llama.cpp's compute buffer, in 32 bits: the largest of what its graph holds at once, which is the logits, the mask
//! with a layer, or the matrix of scores.
//!
//! Of what llama.cpp and Ollama printed (MiB): 2144, 696 and 296 without flash attention, exactly as counted here; with it
//! 224.8 of a dense model of 2026, exactly; 1982 of one with experts (counted 2004); of builds before June 2026 796.8 and
//! 4786.9, where the logits decide (796.8, 4796), 866 and 3976, where the mask does (810, 3643).

use super::activation::{Activation, Sampler, widest_layer};
use super::arithmetic::{count_if, product, sum};
use super::engines::{Settings, llama_cpp};
use super::format::Scheme;
use super::{Band, Deployment, Mixer, Model, Tensor, encoder, speculation};

/// Bytes of a value.
const VALUE: u64 = 4;
/// The buffer of an encoder of images: 257 MiB were printed of Qwen3.6-27B's. Of others little is known: with a matrix of
/// scores some have more than 1 GiB.
pub(super) const ENCODER: u64 = 256 << 20;
const ENCODER_MOST: u64 = 5 << 28;
/// Shares of the buffer that ten printed ones lay below and above what is counted.
const BELOW: f64 = 0.08;
const ABOVE: f64 = 0.12;

/// How a release computes.
#[derive(Clone, Copy)]
struct Rules {
    /// Without a matrix of scores.
    flash: bool,
    /// Logits of every token of a step are reserved, and the mask in 32 bits beside its copy in 16.
    every: bool,
}

/// The buffer of a deployment.
pub(super) fn of(model: &Model, deployment: &Deployment, settings: &Settings) -> Activation {
    let flash = llama_cpp::flash_attention(model, deployment);
    let every = llama_cpp::reserves_every_logit(deployment);
    let graph = Graph::of(model, deployment, settings);
    // What is open is counted as newer releases have it, with the interval of both.
    let likely = Rules {
        flash: flash.unwrap_or(true),
        every: every.unwrap_or(false),
    };
    let either = |known: Option<bool>| known.map_or(vec![false, true], |k| vec![k]);
    let (mut least, mut most) = (u64::MAX, 0);
    for flash in either(flash) {
        for every in either(every) {
            let [low, high] = graph.range(model, deployment, Rules { flash, every });
            (least, most) = (least.min(low), most.max(high));
        }
    }
    let encoding = encoder::of(model, deployment, settings, VALUE);
    let [forward, sampler] = [graph.forward(likely), graph.sampler(likely)];
    let kept = encoding
        .left
        .saturating_add(graph.beside(model, deployment));
    let unsure = count_if(encoding.left > 0, ENCODER_MOST);
    let share = |bytes: u64, share: f64| (bytes as f64 * share) as u64;
    let most = most.saturating_add(share(most, ABOVE));
    Activation {
        forward,
        sampler,
        kept,
        kind: if likely.every {
            Sampler::EveryToken
        } else {
            Sampler::EachSequence
        },
        warm_up: 0,
        encoding: 0,
        encoder: encoding.known,
        compiling: 0,
        range: Some([least - share(least, BELOW), most.saturating_add(unsure)]),
    }
}

/// The interval of the buffer.
pub(super) fn band([low, high]: [u64; 2]) -> Band {
    let source = "built-in: compute buffers that llama.cpp and Ollama printed";
    Band::new(low, high, 10, source)
}

/// Bytes of the parts of a step's graph.
struct Graph {
    /// The residual stream.
    stream: u64,
    /// What a layer holds beside it.
    layer: u64,
    /// Tokens of a step times cells that they look at.
    pairs: u64,
    /// Query heads.
    heads: u64,
    /// Logits of one token.
    logits: u64,
    /// Tokens of a step, and those of them that need logits.
    tokens: u64,
    needed: u64,
}

impl Graph {
    fn of(model: &Model, deployment: &Deployment, settings: &Settings) -> Graph {
        let tokens = settings.batched_tokens;
        let row = tokens.saturating_mul(VALUE);
        // Layers are split over GPUs and not their tensors.
        let whole = Deployment {
            tp: 1,
            ..deployment.clone()
        };
        // The outputs of a token's experts, weighted, and their sum.
        let chosen = model.experts_per_token.unwrap_or(0);
        let experts = product([row, chosen, model.hidden, 3]);
        let attends = |m: &Mixer| matches!(m, Mixer::Attention { .. } | Mixer::Latent { .. });
        let context = settings.max_model_len.unwrap_or(0);
        let each = context.div_ceil(llama_cpp::streams(deployment).max(1));
        let cells = count_if(model.mixers.iter().any(attends), each);
        Graph {
            stream: row.saturating_mul(model.hidden),
            layer: widest_layer(model, &whole, tokens, VALUE).max(experts),
            pairs: tokens.saturating_mul(cells),
            heads: model.heads,
            logits: model.vocab.saturating_mul(VALUE),
            tokens,
            needed: llama_cpp::verified_tokens(deployment).min(tokens),
        }
    }

    fn scores(&self) -> u64 {
        product([self.pairs, self.heads, VALUE])
    }

    fn forward(&self, rules: Rules) -> u64 {
        let (stream, pairs) = (self.stream, self.pairs);
        let of_layer = |mask: u64| sum([pairs.saturating_mul(mask), stream, stream, self.layer]);
        let of_attention = |mask: u64| sum([pairs.saturating_mul(mask), stream.saturating_mul(4)]);
        match rules {
            Rules { flash: true, every } => of_layer(2).max(count_if(every, of_attention(6))),
            _ => of_layer(4).max(of_attention(4).saturating_add(self.scores())),
        }
    }

    fn sampler(&self, rules: Rules) -> u64 {
        let tokens = if rules.every {
            self.tokens
        } else {
            self.needed
        };
        sum([product([tokens, self.logits]), self.stream])
    }

    /// The buffer of the layers that propose, which have a context of their own; and copies of inputs, as the GPUs work on
    /// several steps at once (ggml-backend.cpp, `GGML_SCHED_MAX_COPIES`).
    fn beside(&self, model: &Model, deployment: &Deployment) -> u64 {
        let proposes =
            speculation::loads_predictor(deployment) && !model.predictor.mixers.is_empty();
        let proposer = count_if(proposes, sum([self.pairs, self.pairs, self.layer]));
        let several = deployment.tp.max(deployment.pp) > 1;
        let mask = match llama_cpp::flash_attention(model, deployment) {
            Some(true) => 2,
            _ => 4,
        };
        sum([proposer, count_if(several, product([self.pairs, mask, 3]))])
    }

    fn range(&self, model: &Model, deployment: &Deployment, rules: Rules) -> [u64; 2] {
        let own = self.forward(rules).max(self.sampler(rules));
        let several = deployment.tp.max(deployment.pp) > 1;
        let inputs = count_if(several, self.stream.saturating_mul(4));
        // Sinks are put beside the scores, in a copy of them (gpt-oss).
        let copied = !rules.flash && model.kind.starts_with("gpt");
        let sinks = count_if(copied, self.scores());
        let high = [own, self.beside(model, deployment), inputs, sinks];
        [own, sum([sum(high), moved_experts(model, deployment)])]
    }
}

/// Experts of a layer on the processor, which a long prompt has copied to the GPU (`--op-offload`).
fn moved_experts(model: &Model, deployment: &Deployment) -> u64 {
    let Ok(scheme) = Scheme::of(model, deployment) else {
        return 0;
    };
    let llama = &deployment.llama;
    let moved = |t: &&Tensor| t.layer.is_some_and(|l| llama.is_on_host(t.role, l.into()));
    let layer = model.tensors.iter().find(moved).and_then(|t| t.layer);
    let here = |t: &&Tensor| layer.is_some() && t.layer == layer && t.role.starts_with("exp_");
    let bytes = model.tensors.iter().filter(here).map(|t| {
        let format = scheme.format(t);
        format.bytes(t.rows, t.columns, t.count, VALUE).total()
    });
    sum(bytes)
}
