//! What a tensor of a checkpoint is, by its name: its role, its layer, and how it is split.

use super::super::Split;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// The values.
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
    /// In layers for speculative decoding that no engine loads unless it is told to.
    Draft,
    /// In no engine's model: buffers that are computed anew.
    Buffer,
}

/// What stands before the number of a layer.
const LAYERS: &[&str] = &["layers", "h", "blocks", "blk", "block", "layer"];
/// Modules of towers for images and sound.
const TOWERS: &[&str] = &[
    "visual",
    "vision_tower",
    "vision_model",
    "vision_encoder",
    "vision_embed_tokens",
    "vit",
    "image_newline",
    "multi_modal_projector",
    "mm_projector",
    "mlp1",
    "patch_merger",
    "audio_tower",
    "sound_encoder",
    "embed_vision",
    "embed_audio",
    "v",
    "mm",
];

/// Endings of what is not the values, and what it is.
const PIECES: &[(&str, Piece)] = &[
    ("weight_scale_inv", Piece::Scales),
    ("weight_scale_2", Piece::Other),
    ("weight_scale", Piece::Scales),
    ("weight_global_scale", Piece::Other),
    ("input_global_scale", Piece::Other),
    ("input_scale", Piece::Other),
    ("weight_zero_point", Piece::Other),
    ("weight_shape", Piece::Other),
    ("scales", Piece::Scales),
    ("scale", Piece::Scales),
    ("_scales", Piece::Scales),
    ("qzeros", Piece::Other),
    ("g_idx", Piece::Other),
    ("absmax", Piece::Scales),
    ("quant_map", Piece::Other),
    ("bitsandbytes__nf4", Piece::Other),
    ("bitsandbytes__fp4", Piece::Other),
    ("SCB", Piece::Scales),
    ("_bias", Piece::Bias),
    ("bias", Piece::Bias),
];

/// What the tensor of this name is, in a model of so many layers.
pub fn find(name: &str, layers: u64) -> Found {
    let parts: Vec<&str> = name.split('.').collect();
    let draft = [
        "mtp",
        "mtp_layers",
        "nextn",
        "eh_proj",
        "shared_head",
        "enorm",
        "hnorm",
    ];
    if parts.iter().any(|p| draft.contains(p)) {
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
    let tower = |p: &&str| TOWERS.contains(p);
    // A language model's layers may be under `model.`; a tower is named before any layer.
    let first_layer = parts.iter().position(|p| LAYERS.contains(p));
    let before = &parts[..first_layer.unwrap_or(parts.len())];
    if before.iter().any(tower) {
        return here("vision", None, Split::Replicated, Piece::Values);
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
    let ends = |end: &str| module.ends_with(end);
    let piece = PIECES
        .iter()
        .find(|(end, _)| ends(end))
        .map_or(Piece::Values, |(_, piece)| *piece);
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

fn here(role: &'static str, layer: Option<u64>, split: Split, piece: Piece) -> Found {
    Found::Here(Place {
        role,
        layer,
        split,
        piece,
        expert: false,
    })
}

fn outside(module: &str) -> (&'static str, Split) {
    let has = |part: &str| module.split('.').any(|p| p == part);
    if has("lm_head") || has("output") || has("embed_out") {
        ("lm_head", Split::Vocabulary)
    } else if has("wpe") || has("embed_positions") || has("position_embd") {
        ("pos_embed", Split::Replicated)
    } else if [
        "embed_tokens",
        "wte",
        "tok_embeddings",
        "token_embd",
        "word_embeddings",
        "embedding",
        "embeddings",
        "embed_in",
    ]
    .iter()
    .any(|name| has(name))
    {
        ("embed", Split::Vocabulary)
    } else {
        ("final_norm", Split::Replicated)
    }
}

/// Parts of a module's name, its role, its split. The first that is met counts.
const RULES: &[(&[&str], &str, Split)] = &[
    (
        &["shared_expert_gate", "ffn_gate_inp_shexp"],
        "sh_gate",
        Split::Replicated,
    ),
    (
        &[
            "shared_expert.down",
            "shared_experts.down",
            "shared_expert.w2",
            "ffn_down_shexp",
            "shared_mlp.output",
        ],
        "sh_down",
        Split::Rows,
    ),
    (
        &["shared_expert", "_shexp", "shared_mlp"],
        "sh_gate_up",
        Split::Columns,
    ),
    (
        &[
            "ffn_gate_inp",
            "mlp.gate.",
            "mlp.router",
            "feed_forward.router",
            "block_sparse_moe.gate",
            "mixer.gate.",
            "router.",
            "exp_probs_b",
        ],
        "router",
        Split::Replicated,
    ),
    (&["fc1_latent", "fc2_latent"], "latent", Split::Replicated),
    (&["indexer", "indexers_proj"], "indexer", Split::Replicated),
    (
        &[
            "q_a_proj",
            "attn_q_a.",
            "kv_a_proj",
            "attn_kv_a_mqa",
            "q_a_layernorm",
            "kv_a_layernorm",
            "attn_q_a_norm",
            "attn_kv_a_norm",
        ],
        "q_a",
        Split::Replicated,
    ),
    (&["q_b_proj", "attn_q_b"], "q_b", Split::Columns),
    (
        &["kv_b_proj", "attn_kv_b", "attn_k_b", "attn_v_b"],
        "kv_b",
        Split::Columns,
    ),
    (
        &["q_norm", "k_norm", "q_layernorm", "k_layernorm"],
        "norm",
        Split::Replicated,
    ),
    (
        &[
            "linear_attn.conv1d",
            "mixer.conv1d",
            "mamba.conv1d",
            "ssm_conv1d",
            "conv1d",
        ],
        "conv",
        Split::Columns,
    ),
    (
        &[
            "A_log",
            "dt_bias",
            "ssm_a",
            "ssm_d",
            "ssm_dt.bias",
            "mixer.D",
            "mamba.D",
        ],
        "state",
        Split::Columns,
    ),
    (
        &["in_proj_ba", "in_proj_a.", "in_proj_b.", "ssm_ba"],
        "in_ba",
        Split::Columns,
    ),
    (&["in_proj", "ssm_in"], "in_proj", Split::Columns),
    (&["x_proj", "ssm_x"], "x_proj", Split::Rows),
    (&["dt_proj", "ssm_dt"], "dt_proj", Split::Columns),
    (
        &[
            "mixer.out_proj",
            "mamba.out_proj",
            "linear_attn.out_proj",
            "ssm_out",
        ],
        "out_proj",
        Split::Rows,
    ),
    (
        &[
            "query_key_value",
            "qkv_proj",
            "c_attn",
            "Wqkv",
            "attn_qkv",
            "W_pack",
            "wqkv",
        ],
        "fused_qkv",
        Split::Columns,
    ),
    (&["q_proj", "attn_q.", "wq."], "qkv", Split::Columns),
    (
        &["k_proj", "v_proj", "attn_k.", "attn_v.", "wk.", "wv."],
        "qkv",
        Split::KvHeads,
    ),
    (&["sinks"], "sinks", Split::Columns),
    (
        &[
            "o_proj",
            "attention.dense",
            "attn.c_proj",
            "attn_output.",
            "self_attn.out_proj",
            "attn.out_proj",
            "wo.",
            "self_attn.dense",
        ],
        "o",
        Split::Rows,
    ),
    (
        &[
            "down_proj",
            "ffn_down",
            "fc2",
            "fc_out",
            "dense_4h_to_h",
            "mlp.c_proj",
            "feed_forward.w2",
            "mlp.w2",
        ],
        "down",
        Split::Rows,
    ),
    (
        &[
            "gate_up_proj",
            "gate_proj",
            "up_proj",
            "ffn_gate",
            "ffn_up",
            "fc1",
            "c_fc",
            "fc_in",
            "dense_h_to_4h",
            "w1",
            "w3",
        ],
        "gate_up",
        Split::Columns,
    ),
];

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
    if module.contains("e_score_correction_bias") {
        return ("router", Split::Replicated);
    }
    // A norm inside of Mamba is as wide as what it splits.
    if module.contains("mixer.norm") && !module.contains("mixer.norm_f") {
        return ("norm", Split::Columns);
    }
    let found = RULES
        .iter()
        .find(|(parts, ..)| parts.iter().any(|part| module.contains(part)));
    found.map_or(("norm", Split::Replicated), |(_, role, split)| {
        (role, *split)
    })
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
