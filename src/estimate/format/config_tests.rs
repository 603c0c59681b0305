//! Configurations as quantising tools write them.

use super::*;
use crate::estimate::{Split, Tensor};
use serde_json::json;

fn tensor(role: &'static str, layer: Option<u32>) -> Tensor {
    Tensor {
        role,
        rows: 256,
        columns: 256,
        count: 1,
        layer,
        split: Split::Columns,
        quantizable: role != "lm_head" && role != "embed",
        float32: false,
    }
}

fn formats(config: Value, roles: &[(&'static str, u32)]) -> Vec<Format> {
    let scheme = read(&config).unwrap();
    let all = roles.iter();
    all.map(|(role, layer)| scheme.format(&tensor(role, Some(*layer))))
        .collect()
}

#[test]
fn fp8_comes_per_tensor_per_channel_and_in_blocks() {
    let base = |config: Value| read(&config).unwrap().base;
    assert_eq!(base(json!({"quant_method": "fp8"})), Format::Fp8Tensor);
    let block = json!({"quant_method": "fp8", "weight_block_size": [128, 64]});
    assert_eq!(
        base(block),
        Format::Fp8Block {
            rows: 128,
            columns: 64
        }
    );
    let channel = json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}});
    assert_eq!(base(channel), Format::Fp8Channel);
}

#[test]
fn gptq_keeps_indices_and_zero_points_only_where_it_needs_them() {
    let config = json!({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true, "sym": false});
    let base = read(&config).unwrap().base;
    assert_eq!(
        base,
        Format::Gptq {
            bits: 4,
            group: 64,
            act_order: true,
            zeros: true
        }
    );
    // A group of -1 is the whole row.
    let row = json!({"quant_method": "gptq", "bits": 8, "group_size": -1});
    assert_eq!(
        read(&row).unwrap().base,
        Format::Gptq {
            bits: 8,
            group: 0,
            act_order: false,
            zeros: false
        }
    );
}

#[test]
fn modules_that_are_left_out_stay_plain() {
    let config = json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true,
        "llm_int8_skip_modules": ["lm_head", "model.layers.1.mlp"]});
    let nf4 = Format::Nf4 { double: true };
    assert_eq!(
        formats(
            config,
            &[("gate_up", 0), ("gate_up", 1), ("down", 1), ("down", 10)]
        ),
        [nf4, Format::Plain, Format::Plain, nf4]
    );
}

#[test]
fn mixed_precisions_are_read_layer_by_layer() {
    let config = json!({"quantization": {"quant_algo": "MIXED_PRECISION", "exclude_modules": ["lm_head"],
        "quantized_layers": {
            "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
            "model.layers.0.mlp.experts.0.gate_proj": {"quant_algo": "NVFP4", "group_size": 16}}}});
    assert_eq!(
        formats(config, &[("q", 0), ("exp_w13", 0), ("o", 0), ("q", 1)]),
        [
            Format::Fp8Tensor,
            Format::Nvfp4,
            Format::Plain,
            Format::Plain
        ]
    );
}

#[test]
fn groups_have_formats_of_their_own() {
    let config = json!({"quant_method": "compressed-tensors", "ignore": ["re:.*lm_head"], "config_groups": {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
        "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}}});
    let four = Format::Gptq {
        bits: 4,
        group: 32,
        act_order: false,
        zeros: false,
    };
    assert_eq!(
        formats(config, &[("q", 3), ("down", 3)]),
        [Format::Fp8Channel, four]
    );
}

#[test]
fn what_is_not_recognised_is_unknown_and_no_guess() {
    for config in [
        json!({"quant_method": "exl2"}),
        json!({"quant_method": "gptq", "bits": 37}),
        json!({"quant_algo": "MIXED_PRECISION"}),
        json!({"quant_method": "compressed-tensors", "config_groups": {}}),
        json!({}),
    ] {
        let unknown = read(&config).unwrap_err();
        assert!(unknown.hint.is_some(), "{unknown}");
    }
}

#[test]
fn values_of_wrong_types_are_as_if_they_were_not_there() {
    let odd =
        json!({"quant_method": "fp8", "weight_block_size": "128", "ignored_layers": {"a": [1]}});
    assert_eq!(read(&odd).unwrap().base, Format::Fp8Tensor);
    let odd =
        json!({"quant_method": "awq", "group_size": 1e300, "modules_to_not_convert": [null, 3]});
    assert_eq!(read(&odd).unwrap().base, Format::Awq { group: 128 });
}
