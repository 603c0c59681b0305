//! Weights of models that are written here, against figures that engines printed.

use super::*;
use crate::estimate::model::from_config;
use crate::estimate::{Lora, Version};
use serde_json::{Value, json};

fn llama(config: Value) -> Model {
    let mut whole = json!({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"});
    for (key, value) in config.as_object().unwrap() {
        whole[key] = value.clone();
    }
    from_config("test", &whole, "test").unwrap()
}

fn gib(weights: &Weights) -> f64 {
    crate::units::to_gib(weights.bytes)
}

#[test]
fn an_8b_model_takes_what_vllm_prints_of_it() {
    // vLLM 0.8 on one L40S: 14.9889 GiB.
    let weights = of(
        &llama(json!({})),
        &Deployment::with_defaults(EngineId::Vllm),
    )
    .unwrap();
    assert!(
        (gib(&weights) - 14.9889).abs() < 0.0005,
        "{}",
        gib(&weights)
    );
    assert!(weights.band.low < weights.bytes && weights.bytes < weights.band.high);
    let parts: u64 = weights.parts.iter().map(|p| p.bytes).sum();
    assert_eq!(parts, weights.bytes);
}

#[test]
fn the_allocators_rounding_is_counted() {
    // vLLM 0.3 with opt-125m printed 244.61 MiB, of which the tensors are 238.9.
    let opt = json!({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "ffn_dim": 3072, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768,
        "torch_dtype": "float16", "do_layer_norm_before": true});
    let opt = from_config("opt", &opt, "test").unwrap();
    let weights = of(&opt, &Deployment::with_defaults(EngineId::Vllm)).unwrap();
    let mib = weights.bytes as f64 / f64::from(1 << 20);
    assert!((mib - 244.61).abs() < 0.3, "{mib}");
    let plain = of(&opt, &Deployment::with_defaults(EngineId::LlamaCpp)).unwrap();
    assert!(plain.bytes < weights.bytes);
    assert!(!plain.parts.iter().any(|p| p.role == "rounding"));
}

#[test]
fn a_quantisation_that_cannot_be_read_is_not_taken_for_none() {
    let deployment = Deployment::with_defaults(EngineId::Vllm);
    for broken in [json!("fp8"), json!(8), json!(["fp8"]), json!(true)] {
        let model = llama(json!({ "quantization_config": broken }));
        let why = of(&model, &deployment).unwrap_err();
        assert!(why.what.contains("not a JSON object"), "{broken}: {why}");
    }
    let plain = llama(json!({"quantization_config": null}));
    assert!(of(&plain, &deployment).is_ok());
    let odd = llama(json!({"torch_dtype": "float17"}));
    assert!(odd.warnings[0].contains("float17"), "{:?}", odd.warnings);
    assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
}

#[test]
fn key_heads_are_repeated_where_there_are_more_gpus() {
    let model = llama(json!({}));
    let kv = |tp: u64| {
        let mut deployment = Deployment::with_defaults(EngineId::Transformers);
        deployment.tp = tp;
        let tensor = model.tensors.iter().find(|t| t.role == "kv").unwrap();
        Shards::of(&model, &deployment).shape(tensor).rows
    };
    assert_eq!((kv(1), kv(8), kv(16)), (2048, 256, 256));
}

#[test]
fn heads_that_do_not_divide_are_refused_as_vllm_does() {
    let mut deployment = Deployment::with_defaults(EngineId::Vllm);
    deployment.tp = 3;
    let unknown = of(&llama(json!({})), &deployment).unwrap_err();
    let why = "Total number of attention heads (32) must be divisible by tensor parallel size (3)";
    assert!(unknown.what.contains(why), "{unknown}");
    deployment.tp = 1;
    deployment.pp = 33;
    assert!(
        of(&llama(json!({})), &deployment)
            .unwrap_err()
            .what
            .contains("33 pipeline stages")
    );
}

#[test]
fn two_gpus_take_half_each_and_stages_carry_what_is_theirs() {
    let model = llama(json!({}));
    let with = |tp, pp| {
        let mut deployment = Deployment::with_defaults(EngineId::Vllm);
        (deployment.tp, deployment.pp) = (tp, pp);
        of(&model, &deployment).unwrap()
    };
    let half = gib(&with(2, 1));
    // 14.957 GiB of tensors halved, norms and the table of positions whole.
    assert!((half - 7.51).abs() < 0.01, "{half}");
    let staged = with(1, 2);
    assert!((gib(&staged) - 7.51).abs() < 0.02, "{}", gib(&staged));
    let embed = staged
        .parts
        .iter()
        .filter(|p| p.role == "embed" || p.role == "lm_head");
    assert_eq!(embed.count(), 1, "embedding or output layer, not both");
}

#[test]
fn lora_slots_are_beside_the_weights_until_0_8() {
    let model = llama(json!({}));
    let with = |version| {
        let mut deployment = Deployment::with_defaults(EngineId::Vllm);
        deployment.version = Some(version);
        deployment.lora = Some(Lora { rank: 32, slots: 1 });
        of(&model, &deployment).unwrap()
    };
    let (old, new) = (with(Version::new(0, 7, 3)), with(Version::new(0, 8, 5)));
    assert!(old.beside > 150 << 20 && new.beside == 0);
    assert!(new.bytes > old.bytes + (150 << 20));
}

#[test]
fn a_quantisation_that_is_not_known_is_unknown() {
    let model = llama(json!({"quantization_config": {"quant_method": "exl3"}}));
    let unknown = of(&model, &Deployment::with_defaults(EngineId::Vllm)).unwrap_err();
    assert!(unknown.what.contains("exl3"), "{unknown}");
    let mut deployment = Deployment::with_defaults(EngineId::Vllm);
    deployment.dtype = Some("float12".to_owned());
    assert!(of(&llama(json!({})), &deployment).is_err());
}

#[test]
fn a_gguf_file_type_leads_to_the_size_of_the_file() {
    let bytes = |name: &str| {
        let mut deployment = Deployment::with_defaults(EngineId::LlamaCpp);
        deployment.quantization = Some(name.to_owned());
        of(&llama(json!({})), &deployment).unwrap().bytes as f64
    };
    // llama.cpp with Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf: `CUDA0 buffer size = 4403.49 MiB`, the embedding
    // on the host.
    let mib = bytes("Q4_K_M") / f64::from(1 << 20);
    assert!((mib / 4403.49 - 1.0).abs() < 0.005, "{mib}");
    // Files of the same model; less the embedding, in blocks by their bits of a value.
    for (name, file, bits) in [
        ("Q8_0", 8.54e9, 8.5),
        ("Q6_K", 6.60e9, 6.5625),
        ("Q5_K_M", 5.73e9, 5.5),
    ] {
        let expected = file - 128_256.0 * 4096.0 * bits / 8.0;
        let got = bytes(name);
        assert!((got / expected - 1.0).abs() < 0.01, "{name}: {got}");
    }
}

#[test]
fn headers_agree_with_the_configuration_of_a_plain_model() {
    use crate::estimate::headers::{Headers, Stored};
    let model = llama(json!({"num_hidden_layers": 2, "vocab_size": 1000}));
    let mut headers = Headers::default();
    let mut add = |name: String, shape: &[u64]| {
        let values: u64 = shape.iter().product();
        headers.tensors.push(Stored {
            name,
            dtype: "BF16".to_owned(),
            shape: shape.to_vec(),
            bytes: values * 2,
        });
    };
    add("model.embed_tokens.weight".to_owned(), &[1000, 4096]);
    // A layer more than the model has is for speculation.
    for layer in 0..3 {
        for (name, shape) in [
            ("self_attn.q_proj", [4096, 4096]),
            ("self_attn.k_proj", [1024, 4096]),
            ("self_attn.v_proj", [1024, 4096]),
            ("self_attn.o_proj", [4096, 4096]),
            ("mlp.gate_proj", [14336, 4096]),
            ("mlp.up_proj", [14336, 4096]),
            ("mlp.down_proj", [4096, 14336]),
        ] {
            add(format!("model.layers.{layer}.{name}.weight"), &shape);
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            add(format!("model.layers.{layer}.{name}.weight"), &[4096]);
        }
    }
    add("model.norm.weight".to_owned(), &[4096]);
    add("lm_head.weight".to_owned(), &[1000, 4096]);
    for (engine, tp, pp) in [
        (EngineId::Vllm, 1, 1),
        (EngineId::Vllm, 4, 1),
        (EngineId::Vllm, 16, 1),
        (EngineId::Vllm, 1, 2),
        (EngineId::Transformers, 1, 1),
    ] {
        let mut deployment = Deployment::with_defaults(engine);
        (deployment.tp, deployment.pp) = (tp, pp);
        let config = of(&model, &deployment).unwrap();
        let files = from_headers(&model, &headers, &deployment).unwrap();
        let off = config.bytes.abs_diff(files.bytes);
        assert!(
            off < 64 << 10,
            "{engine:?} {tp} {pp}: {} and {}",
            config.bytes,
            files.bytes
        );
        assert!(
            files.warnings.iter().any(|w| w.contains("speculative")),
            "{:?}",
            files.warnings
        );
    }
    // A download that was broken off: the configuration has the rest.
    let mut part = headers.clone();
    part.tensors.retain(|t| !t.name.contains("layers.1."));
    let deployment = Deployment::with_defaults(EngineId::Vllm);
    let why = from_headers(&model, &part, &deployment).unwrap_err();
    assert!(why.what.contains("1 of the model's 2 layers"), "{why}");
    let rest = best(&model, Some(&part), &deployment).unwrap();
    assert_eq!(rest.bytes, of(&model, &deployment).unwrap().bytes);
    assert!(rest.warnings.iter().any(|w| w.contains("configuration")));
    part.gguf = true;
    assert!(best(&model, Some(&part), &deployment).is_err());
    // A type that is newer than this has a warning.
    let mut newer = headers.clone();
    newer.tensors[1].dtype = "F5_E9".to_owned();
    let newer = from_headers(&model, &newer, &deployment).unwrap();
    assert!(newer.warnings.iter().any(|w| w.contains("F5_E9")));
    // 32 bits on the disk are 16 in the engine, by default.
    for tensor in &mut headers.tensors {
        tensor.dtype = "F32".to_owned();
        tensor.bytes *= 2;
    }
    let mut deployment = Deployment::with_defaults(EngineId::Vllm);
    let half = from_headers(&model, &headers, &deployment).unwrap().bytes;
    deployment.dtype = Some("float32".to_owned());
    let full = from_headers(&model, &headers, &deployment).unwrap().bytes;
    assert!(full > half * 19 / 10, "{half} {full}");
}

#[test]
fn numbers_of_any_size_are_no_panic() {
    let model = llama(json!({}));
    for n in [0, 1, 32, u64::MAX] {
        let mut deployment = Deployment::with_defaults(EngineId::Vllm);
        (deployment.ep, deployment.dp) = (n, n);
        deployment.lora = Some(Lora { rank: n, slots: n });
        let _ = of(&model, &deployment);
        deployment.tp = n;
        let _ = of(&model, &deployment);
        deployment.pp = n;
        let _ = of(&model, &deployment);
    }
}

/// A larger model of Gemma 3: width, layers, heads, key heads, head's width, MLP's; `rope`: its field of positions.
fn gemma3(shape: [u64; 6], rope: Value) -> Model {
    let [hidden, layers, heads, kv, head, inner] = shape;
    let mut text = json!({"model_type": "gemma3_text", "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": head, "intermediate_size": inner,
        "vocab_size": 262_208, "max_position_embeddings": 131_072, "sliding_window": 1024});
    for (key, value) in rope.as_object().unwrap() {
        text[key] = value.clone();
    }
    let whole = json!({"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": text,
        "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
            "num_attention_heads": 16, "patch_size": 14, "image_size": 896}});
    from_config("gemma3", &whole, "test").unwrap()
}

#[test]
fn gemma_3_scales_one_of_its_two_tables_of_positions() {
    let linear = json!({"factor": 8.0, "rope_type": "linear"});
    let deployment = Deployment::with_defaults(EngineId::Vllm);
    // vLLM 0.19 on one H100 printed these.
    for (shape, printed) in [
        ([2560, 34, 8, 4, 256, 10_240], 8.58),
        ([3840, 48, 16, 8, 256, 15_360], 23.31),
        ([5376, 62, 32, 16, 128, 21_504], 51.45),
    ] {
        let weight_gib = |rope| gib(&of(&gemma3(shape, rope), &deployment).unwrap());
        let scaled = weight_gib(json!({"rope_scaling": linear}));
        assert!((scaled - printed).abs() < 0.02, "{scaled} {printed}");
        // As newer transformers write it, and where an abridged configuration leaves it out.
        let by_layer = json!({"rope_parameters": {"full_attention": linear, "sliding_attention": {"rope_type": "default"}}});
        assert_eq!(weight_gib(by_layer), scaled);
        assert_eq!(weight_gib(json!({})), scaled);
        assert!(weight_gib(json!({"rope_scaling": null})) < scaled - 0.2);
    }
}

#[test]
fn the_layers_of_a_vision_tower_are_split_by_figures_and_by_files() {
    let model = gemma3([5376, 62, 32, 16, 128, 21_504], json!({}));
    let mut deployment = Deployment::with_defaults(EngineId::Vllm);
    deployment.tp = 4;
    // vLLM 0.8.2 on four GPUs: 13.1665 GiB.
    let weights = gib(&of(&model, &deployment).unwrap());
    assert!((weights - 13.1665).abs() < 0.02, "{weights}");
    let mut vision = |tp: u64| {
        let stored = |name: &str, shape: &[u64]| crate::estimate::headers::Stored {
            name: name.into(),
            dtype: "BF16".into(),
            shape: shape.to_vec(),
            bytes: 2 * shape.iter().product::<u64>(),
        };
        let mut tensors = vec![
            stored(
                "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
                &[1152, 1152],
            ),
            stored(
                "vision_tower.vision_model.encoder.layers.0.mlp.fc2.weight",
                &[1152, 4304],
            ),
            stored(
                "vision_tower.vision_model.encoder.layers.0.layer_norm1.weight",
                &[1152],
            ),
            stored(
                "vision_tower.vision_model.embeddings.position_embedding.weight",
                &[4096, 1152],
            ),
        ];
        let layers =
            (0..62).map(|n| format!("language_model.model.layers.{n}.input_layernorm.weight"));
        tensors.extend(layers.map(|name| stored(&name, &[5376])));
        let headers = Headers {
            tensors,
            ..Headers::default()
        };
        deployment.tp = tp;
        let weights = from_headers(&model, &headers, &deployment).unwrap();
        weights
            .parts
            .iter()
            .find(|p| p.role == "vision")
            .unwrap()
            .bytes
    };
    let (mut split, whole) = (2 * (1152 * 1152 + 1152 * 4304), 2 * (1152 + 4096 * 1152));
    assert_eq!(vision(1), split + whole);
    split /= 4;
    assert_eq!(vision(4), split + whole);
    // 16 heads are not divided by 32.
    assert_eq!(vision(32), 4 * split + whole);
}

#[test]
fn llama_cpp_puts_the_output_layer_and_then_the_last_layers_on_the_gpu() {
    let model = llama(json!({}));
    let with = |gpu_layers| {
        let deployment = Deployment {
            gpu_layers,
            ..Deployment::with_defaults(EngineId::LlamaCpp)
        };
        let cache = crate::estimate::kv::of(&model, &deployment).unwrap();
        (of(&model, &deployment).unwrap().bytes, cache.layers.len())
    };
    let output = 2 * 4096 * 128_256;
    let (all, layers) = with(None);
    assert_eq!(layers, 32);
    assert_eq!(with(Some(33)), (all, 32));
    assert_eq!(with(Some(99)), (all, 32));
    assert_eq!(with(Some(0)), (0, 0));
    let (alone, none) = with(Some(1));
    assert_eq!((alone / 1_000_000, none), (output / 1_000_000, 0));
    let (half, sixteen) = with(Some(17));
    assert_eq!(sixteen, 16);
    assert!((half - alone).abs_diff((all - alone) / 2) < 1 << 20);
}
