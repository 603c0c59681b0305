//! Bytes of weights from the headers of a model's files: exact, whatever was left out of a quantisation.

use super::super::format::{Bytes, Scheme};
use super::super::headers::names::{self, Found, Piece, Place};
use super::super::headers::{Headers, Stored, safetensors};
use super::super::{Deployment, EngineId, Model, Split, Unknown, speculation};
use super::plan::{Allocation, Context, is_last};
use super::shard::{self, Shards};
use super::{Trust, Weights, largest, value_bytes, with_host_experts};
use crate::estimate::arithmetic::{product, sum};
use crate::estimate::engines::llama_cpp;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of weights, from the headers of the model's files.
///
/// # Errors
///
/// As `of`; and files that lack the tensors of some layers.
pub fn from_headers(
    model: &Model,
    headers: &Headers,
    deployment: &Deployment,
) -> Result<Weights, Unknown> {
    shard::check(model, deployment)?;
    if headers.tensors.is_empty() {
        return Err(Unknown::new("the files hold no tensors"));
    }
    let plain_files = headers.tensors.iter().all(|t| t.float_bits().is_some());
    // Quantised while it is loaded: the files have only the shapes, which the configuration has too.
    if plain_files && !headers.gguf && deployment.quantization.is_some() {
        let scheme = Scheme::of(model, deployment)?;
        if !scheme.is_plain() {
            let mut weights = super::of(model, deployment)?;
            let note = "the files are not quantised: the bytes are those after loading, from the configuration";
            weights.warnings.push(note.to_owned());
            return Ok(weights);
        }
    }
    // The files have what the names leave open; a quantisation that is not known does no harm here.
    let scheme = Scheme::of(model, deployment)
        .unwrap_or_else(|_| Scheme::all(super::super::format::Format::Plain));
    let context = Context {
        model,
        deployment,
        scheme: &scheme,
        shards: Shards::of(model, deployment),
        value_bytes: value_bytes(model, deployment)?,
    };
    let mut reading = Reading::of(&context, headers);
    reading.whole()?;
    let mut weights = largest(&context, |layers, first, last| {
        reading.stage(layers, first, last)
    });
    weights.from_files = true;
    weights.band = Trust::FILES.band(weights.bytes);
    weights.open_head(&context);
    weights.warnings.append(&mut reading.warnings);
    let weigh = |all: &Deployment| from_headers(model, headers, all);
    Ok(with_host_experts(weights, deployment, &weigh))
}

/// Whether it is a matrix of a vision tower's attention or MLPs, which are split as those of the language model.
fn in_tower(stored: &Stored) -> bool {
    let layer = [".layers.", ".blocks.", ".resblocks."];
    let matrix = ["attn", "attention", "mlp", "feed_forward"];
    let named = |words: &[&str]| words.iter().any(|word| stored.name.contains(word));
    stored.shape.len() == 2 && named(&layer) && named(&matrix)
}

/// A tensor and what it is.
struct Known<'a> {
    stored: &'a Stored,
    place: Place,
}

struct Reading<'a> {
    context: &'a Context<'a>,
    outside: Vec<Known<'a>>,
    layers: BTreeMap<u64, Vec<Known<'a>>>,
    gguf: bool,
    warnings: Vec<String>,
}

impl<'a> Reading<'a> {
    fn of(context: &'a Context<'a>, headers: &'a Headers) -> Reading<'a> {
        let model = context.model;
        let count = model.mixers.len() as u64;
        let mut made = Reading {
            context,
            outside: Vec::new(),
            layers: BTreeMap::new(),
            gguf: headers.gguf,
            warnings: Vec::new(),
        };
        let mut drafts = 0u64;
        let mut seen = std::collections::HashSet::new();
        for stored in &headers.tensors {
            if !seen.insert(stored.name.as_str()) {
                continue;
            }
            match names::find(&stored.name, count) {
                Found::Buffer => {}
                Found::Draft => drafts = drafts.saturating_add(stored.bytes),
                // The engine uses the embedding.
                Found::Here(place) if place.role == "lm_head" && model.tied && !headers.gguf => {}
                Found::Here(place) if context.drops(place.role) => {}
                Found::Here(place) => {
                    let known = Known { stored, place };
                    match place.layer {
                        Some(layer) => made.layers.entry(layer).or_default().push(known),
                        None => made.outside.push(known),
                    }
                }
            }
        }
        if drafts > 0 && !speculation::loads_predictor(context.deployment) {
            made.warnings.push(format!(
                "{:.2} GiB of layers for speculative decoding are not counted: engines load them only on request",
                crate::units::to_gib(drafts)
            ));
        }
        let odd = headers
            .tensors
            .iter()
            .find(|t| !headers.gguf && safetensors::bits(&t.dtype).is_none());
        if let Some(odd) = odd {
            made.warnings.push(format!(
                "the files have tensors of the type `{}`, which is not known: their bytes are counted as they are stored",
                odd.dtype.escape_debug()
            ));
        }
        made
    }

    /// Whether each layer that should have tensors has some.
    fn whole(&self) -> Result<(), Unknown> {
        let model = self.context.model;
        let mut expected = model.tensors.iter().filter_map(|t| t.layer).map(u64::from);
        if expected.all(|layer| self.layers.contains_key(&layer)) {
            return Ok(());
        }
        Err(Unknown::new(format!(
            "the files hold tensors of {} of the model's {} layers",
            self.layers.len(),
            model.mixers.len()
        ))
        .hint("give the folder with all of the model's files"))
    }

    fn stage(&self, layers: &Range<u64>, first: bool, last: bool) -> Vec<Allocation> {
        let mut made = Vec::new();
        let tied = self.context.model.tied;
        let head = self.outside.iter().filter(|k| {
            let tail = is_last(k.place.role);
            let blind = self.context.deployment.language_only && k.place.role == "vision";
            let here = !self.context.on_host(k.place.role) && !blind;
            (first && !tail && here) || (last && tail) || (last && tied && k.place.role == "embed")
        });
        let (tail, head): (Vec<&Known>, Vec<&Known>) = head.partition(|k| is_last(k.place.role));
        self.add(&mut made, head.into_iter());
        // The kernels' padding is not in the files: those of experts come from the configuration.
        let padded = self.context.scheme.padding != super::super::format::Padding::None;
        let own = padded.then(|| self.context.stage(layers, false, false));
        for (at, (layer, tensors)) in self.layers.range(layers.clone()).enumerate() {
            let deployment = self.context.deployment;
            let expert = |k: &&Known| k.place.expert;
            let moved = |k: &&Known| expert(k) && llama_cpp::leaves_out(deployment, "exp_", *layer);
            let here = tensors.iter().filter(|k| !moved(k));
            self.add(&mut made, here.filter(|k| !(padded && expert(k))));
            if at == 0 {
                made.extend(self.context.rope());
            }
        }
        made.extend(
            own.into_iter()
                .flatten()
                .filter(|a| a.role.starts_with("exp_")),
        );
        let quantised = self.quantised_kv_b(layers);
        made.extend(quantised.map(|bytes| Allocation::plain("absorbed", bytes)));
        self.add(&mut made, tail.into_iter());
        if last {
            made.extend(self.context.predictor());
        }
        made
    }

    /// Allocations of some tensors: those that an engine fuses are one.
    fn add<'b>(&self, made: &mut Vec<Allocation>, tensors: impl Iterator<Item = &'b Known<'b>>)
    where
        'a: 'b,
    {
        let mut groups: Vec<((&'static str, Piece), u64)> = Vec::new();
        for known in tensors {
            let bytes = self.bytes(known);
            let place = known.place;
            let key = (place.role, place.piece);
            // Norms and what else is alone stays alone.
            let fused = matches!(
                place.role,
                "qkv" | "gate_up" | "sh_gate_up" | "in_proj" | "in_ba"
            ) || place.expert;
            let group = groups.iter_mut().find(|(k, _)| *k == key && fused);
            match group {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => groups.push((key, bytes)),
            }
        }
        let one = |((role, _), values): ((&'static str, Piece), u64)| {
            Allocation::of(role, Bytes { values, scales: 0 })
        };
        made.extend(groups.into_iter().map(one));
    }

    /// Bytes of a tensor on one GPU, in the type that the engine keeps it in.
    fn bytes(&self, known: &Known) -> u64 {
        let Known { stored, place } = known;
        let shards = &self.context.shards;
        let whole = self.loaded(stored, *place);
        let part = |n: u64| whole.div_ceil(n.max(1));
        // One value for all, or one for each output of what is split by inputs.
        let single = stored.shape.last().is_none_or(|d| *d == 1) && place.piece != Piece::Values;
        let index = stored.name.ends_with("g_idx");
        if place.role == "vision" && self.context.splits_towers() && in_tower(stored) {
            return part(shards.tp);
        }
        match place.split {
            Split::Replicated => whole,
            Split::Columns if index => whole,
            Split::Rows if single => whole,
            Split::Columns if place.role == "fused_qkv" => {
                let model = self.context.model;
                let kv = model.kv_heads.saturating_mul(2);
                let heads = model.heads.saturating_add(kv).max(1);
                let of_kv = (u128::from(whole) * u128::from(kv) / u128::from(heads)) as u64;
                let rest = whole.saturating_sub(of_kv);
                sum([rest.div_ceil(shards.tp), of_kv.div_ceil(shards.kv_heads)])
            }
            Split::Columns | Split::Rows => part(shards.tp),
            Split::KvHeads => part(shards.kv_heads),
            Split::Vocabulary => {
                let rows = stored.shape.first().copied().unwrap_or(1).max(1);
                let padded = rows
                    .checked_next_multiple_of(shards.vocabulary)
                    .unwrap_or(rows);
                let padded = u128::from(whole) * u128::from(padded) / u128::from(rows);
                u64::try_from(padded)
                    .unwrap_or(u64::MAX)
                    .div_ceil(shards.tp)
            }
            Split::ExpertColumns | Split::ExpertRows => {
                part(shards.experts.saturating_mul(shards.width))
            }
            Split::ExpertReplicated => part(shards.experts),
        }
    }

    /// Bytes once it is loaded: plain numbers take the model's type, scales and states keep their own.
    fn loaded(&self, stored: &Stored, place: Place) -> u64 {
        let kept = self.gguf
            || matches!(place.piece, Piece::Scales | Piece::Other)
            || ["A_log", "e_score_correction_bias"]
                .iter()
                .any(|name| stored.name.contains(name));
        match stored.float_bits() {
            Some(_) if !kept => stored.values().saturating_mul(self.context.value_bytes),
            _ => stored.bytes,
        }
    }

    /// Copies that latent attention makes of a quantised `kv_b`, bytes of each layer.
    fn quantised_kv_b(&self, layers: &Range<u64>) -> impl Iterator<Item = u64> + use<'_, 'a> {
        let context = self.context;
        let engine = matches!(context.deployment.engine, EngineId::Vllm | EngineId::Sglang);
        self.layers
            .range(layers.clone())
            .flat_map(|(_, tensors)| tensors)
            .filter(move |k| {
                let values = k.place.role == "kv_b" && k.place.piece == Piece::Values;
                engine && values && k.stored.float_bits().is_none()
            })
            .filter_map(move |k| {
                let role = |t: &&super::super::Tensor| {
                    t.role == "kv_b" && t.layer.map(u64::from) == k.place.layer
                };
                let tensor = context.model.tensors.iter().find(role)?;
                let shape = context.shards.shape(tensor);
                Some(product([shape.rows, shape.columns, context.value_bytes]))
            })
    }
}
