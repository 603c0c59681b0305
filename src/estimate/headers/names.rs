//! What a tensor of a checkpoint is, by its name: its role, its layer, and how it is split.

use super::super::Split;
use crate::tables::read_table;
use serde::Deserialize;
use std::sync::LazyLock;

/// What a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// As `Tensor::role` has it, by what engines allocate as one: `qkv` for queries, keys and values.
    pub role: &'static str,
    /// Its layer.
    pub layer: Option<u64>,
    /// How it is split.
    pub split: Split,
    /// Which of a layer's allocations for that role: values, scales, and what else comes apart.
    pub piece: Piece,
    /// It is of one expert, or of a shared expert's half.
    pub expert: bool,
}

/// What of a linear layer a tensor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// The weights themselves.
    Values,
    /// One scale for the matrix, or a few.
    Scales,
    /// The bias.
    Bias,
    /// Zero points, indices and what else a quantisation keeps.
    Other,
}

/// Where a tensor belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In the model.
    Here(Place),
    /// In layers for speculative decoding that no engine loads by default.
    Draft,
    /// In no engine's model: buffers that are computed anew.
    Buffer,
}

/// The table that ships.
const TABLE: &str = include_str!("../../../configs/tensor-names.yaml");

/// The table as it is written; the file describes each field.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    layers: Vec<String>,
    towers: Vec<String>,
    drafts: Vec<String>,
    pieces: Vec<Ending>,
    outside: Vec<Rule>,
    inside: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ending {
    end: String,
    piece: Piece,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    role: String,
    split: Split,
    parts: Vec<String>,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static NAMES: LazyLock<Names> = LazyLock::new(|| read_table(TABLE));

fn lists(words: &[String], part: &str) -> bool {
    words.iter().any(|word| word == part)
}

/// The role and the split of the first rule with a part that `matches`.
fn first_rule(
    rules: &'static [Rule],
    matches: impl Fn(&str) -> bool,
) -> Option<(&'static str, Split)> {
    let rule = rules
        .iter()
        .find(|rule| rule.parts.iter().any(|part| matches(part)))?;
    Some((&rule.role, rule.split))
}

/// What the tensor of this name is, in a model of `layers` layers.
pub fn find(name: &str, layers: u64) -> Found {
    let parts: Vec<&str> = name.split('.').collect();
    if parts.iter().any(|p| lists(&NAMES.drafts, p)) {
        return Found::Draft;
    }
    let last = parts.last().copied().unwrap_or("");
    if matches!(
        last,
        "inv_freq" | "masked_bias" | "rotary_emb" | "rope_freqs"
    ) || parts.contains(&"rotary_emb")
        || name.ends_with("attn.bias") && !name.contains("qkv")
    {
        return Found::Buffer;
    }
    // A language model's layers may be under `model.`; a tower is named before any layer.
    let first_layer = parts.iter().position(|p| lists(&NAMES.layers, p));
    let before = &parts[..first_layer.unwrap_or(parts.len())];
    if before.iter().any(|p| lists(&NAMES.towers, p)) {
        return Found::Here(Place {
            role: "vision",
            layer: None,
            split: Split::Replicated,
            piece: Piece::Values,
            expert: false,
        });
    }
    let layer = first_layer
        .and_then(|at| parts.get(at + 1))
        .and_then(|n| n.parse::<u64>().ok());
    if layer.is_some_and(|l| l >= layers) {
        return Found::Draft;
    }
    let module = match (first_layer, layer) {
        (Some(at), Some(_)) => parts.get(at + 2..).unwrap_or_default().join("."),
        _ => name.to_owned(),
    };
    let ending = NAMES.pieces.iter().find(|e| module.ends_with(&e.end));
    let piece = ending.map_or(Piece::Values, |e| e.piece);
    let (role, split) = if layer.is_some() {
        in_layer(&module)
    } else {
        outside(&module)
    };
    // What is added to outputs that are not split is not split either.
    let split = match (piece, split) {
        (Piece::Bias, Split::Rows) => Split::Replicated,
        (Piece::Bias, Split::ExpertRows) => Split::ExpertReplicated,
        _ => split,
    };
    let expert = matches!(
        split,
        Split::ExpertColumns | Split::ExpertRows | Split::ExpertReplicated
    );
    Found::Here(Place {
        role,
        layer,
        split,
        piece,
        expert,
    })
}

fn outside(module: &str) -> (&'static str, Split) {
    let has = |part: &str| module.split('.').any(|p| p == part);
    first_rule(&NAMES.outside, has).unwrap_or(("final_norm", Split::Replicated))
}

fn in_layer(module: &str) -> (&'static str, Split) {
    let routed = module.contains("experts.") && !module.contains("shared_expert")
        || module.contains("block_sparse_moe.") && module.contains("put_linear")
        || module.contains("_exps");
    if routed {
        let down = ["down", ".w2", "linear_fc2", "output_linear"]
            .iter()
            .any(|d| module.contains(d));
        return if down {
            ("exp_w2", Split::ExpertRows)
        } else {
            ("exp_w13", Split::ExpertColumns)
        };
    }
    let has = |part: &str| module.contains(part);
    first_rule(&NAMES.inside, has).unwrap_or(("norm", Split::Replicated))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        match find(name, 32) {
            Found::Here(place) => place,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn is(name: &str, role: &str, split: Split) {
        let place = place(name);
        assert_eq!((place.role, place.split), (role, split), "{name}");
    }

    #[test]
    fn every_rule_is_read_and_names_something() {
        let names: Names = serde_yaml::from_str(TABLE).unwrap();
        let rules = names.outside.iter().chain(&names.inside);
        assert!(rules.clone().count() > 20);
        assert!(
            rules
                .clone()
                .all(|r| r.parts.iter().all(|part| !part.is_empty()))
        );
        let mut parts: Vec<&String> = rules.flat_map(|r| &r.parts).collect();
        let all = parts.len();
        parts.sort();
        parts.dedup();
        assert_eq!(
            parts.len(),
            all,
            "a part is in two rules: the second never counts"
        );
    }

    #[test]
    fn names_of_many_models_are_understood() {
        is("model.embed_tokens.weight", "embed", Split::Vocabulary);
        is("lm_head.weight", "lm_head", Split::Vocabulary);
        is("model.norm.weight", "final_norm", Split::Replicated);
        is(
            "model.layers.3.self_attn.q_proj.weight",
            "qkv",
            Split::Columns,
        );
        is(
            "model.layers.3.self_attn.v_proj.bias",
            "qkv",
            Split::KvHeads,
        );
        is(
            "model.layers.3.self_attn.q_norm.weight",
            "norm",
            Split::Replicated,
        );
        is("model.layers.3.self_attn.o_proj.weight", "o", Split::Rows);
        is("model.layers.3.mlp.down_proj.weight", "down", Split::Rows);
        is(
            "model.layers.3.mlp.gate_proj.weight",
            "gate_up",
            Split::Columns,
        );
        is(
            "model.layers.3.mlp.gate.weight",
            "router",
            Split::Replicated,
        );
        is(
            "model.layers.3.mlp.experts.17.down_proj.weight",
            "exp_w2",
            Split::ExpertRows,
        );
        is(
            "model.layers.3.mlp.experts.gate_up_proj_blocks",
            "exp_w13",
            Split::ExpertColumns,
        );
        is(
            "model.layers.3.mlp.experts.down_proj_bias",
            "exp_w2",
            Split::ExpertReplicated,
        );
        is(
            "model.layers.3.block_sparse_moe.experts.1.w2.weight",
            "exp_w2",
            Split::ExpertRows,
        );
        is(
            "model.layers.3.mlp.shared_experts.down_proj.weight",
            "sh_down",
            Split::Rows,
        );
        is(
            "model.layers.3.mlp.shared_expert_gate.weight",
            "sh_gate",
            Split::Replicated,
        );
        is(
            "model.layers.3.self_attn.kv_a_proj_with_mqa.weight",
            "q_a",
            Split::Replicated,
        );
        is(
            "model.layers.3.self_attn.kv_b_proj.weight",
            "kv_b",
            Split::Columns,
        );
        is(
            "model.layers.3.input_layernorm.weight",
            "norm",
            Split::Replicated,
        );
        is("h.0.attn.c_attn.weight", "fused_qkv", Split::Columns);
        is(
            "visual.blocks.0.attn.qkv.weight",
            "vision",
            Split::Replicated,
        );
        is("blk.7.attn_k.weight", "qkv", Split::KvHeads);
        is("blk.7.ffn_down_exps.weight", "exp_w2", Split::ExpertRows);
        is("blk.7.ffn_gate_inp.weight", "router", Split::Replicated);
        is(
            "backbone.layers.1.mixer.in_proj.weight",
            "in_proj",
            Split::Columns,
        );
    }

    #[test]
    fn scales_and_zero_points_are_pieces_of_their_layer() {
        let scale = place("model.layers.0.mlp.down_proj.weight_scale_inv");
        assert_eq!((scale.role, scale.piece), ("down", Piece::Scales));
        let zeros = place("model.layers.0.mlp.down_proj.qzeros");
        assert_eq!(zeros.piece, Piece::Other);
        let values = place("model.layers.0.mlp.down_proj.qweight");
        assert_eq!(values.piece, Piece::Values);
        let bias = place("model.layers.0.self_attn.o_proj.bias");
        assert_eq!((bias.piece, bias.split), (Piece::Bias, Split::Replicated));
    }

    #[test]
    fn layers_for_speculation_and_buffers_are_left_out() {
        assert_eq!(find("mtp.layers.0.mlp.gate.weight", 32), Found::Draft);
        assert_eq!(
            find("model.layers.32.self_attn.q_proj.weight", 32),
            Found::Draft
        );
        assert_eq!(
            find("model.layers.0.self_attn.rotary_emb.inv_freq", 32),
            Found::Buffer
        );
    }
}
