//! The cache, its layout and whole estimates, against figures that engines printed.

use super::model::Window;
use super::*;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// A model of nothing but layers.
fn layers(mixers: Vec<Mixer>) -> Model {
    Model {
        name: "layers".into(),
        kind: "layers".into(),
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        vocab: 128_256,
        max_positions: Some(131_072),
        lends_positions: false,
        tied: false,
        rope: None,
        mixers,
        tensors: Vec::new(),
        predictor: Default::default(),
        experts_per_token: None,
        value_bytes: 2,
        quantization: None,
        config: Value::Null,
        source: "test".into(),
        unmodelled: Vec::new(),
        warnings: Vec::new(),
    }
}

fn attention(kv_heads: u64, dim: u64, window: Option<u64>) -> Mixer {
    Mixer::Attention {
        kv_heads,
        key_dim: dim,
        value_dim: dim,
        window: window.map(Window::Sliding),
        shares: false,
    }
}

/// `n` layers, each by its number.
fn pattern(n: usize, layer: impl Fn(usize) -> Mixer) -> Model {
    layers((0..n).map(layer).collect())
}

/// vLLM of a version on one GPU with `gib` GiB.
fn vllm(minor: u32, gpu: &str, gib: f64) -> Deployment {
    let mut d = Deployment::with_defaults(EngineId::Vllm);
    d.version = Some(Version::new(0, minor, 0));
    d.gpu = Some(Gpu {
        name: gpu.into(),
        total: (gib * GIB as f64) as u64,
        in_use: 0,
    });
    d
}

fn laid_out(model: &Model, d: &Deployment) -> pool::Layout {
    let settings = engines::settings(model, d);
    pool::of(model, d, &settings).unwrap().1
}

#[test]
fn an_old_seed_estimated_65_gb_for_half_a_gib() {
    // seeds/003: two requests of 2,048 tokens on Llama-3.1-8B, and one on a 70B.
    let d = Deployment::with_defaults(EngineId::Vllm);
    let small = laid_out(&pattern(32, |_| attention(8, 128, None)), &d);
    assert_eq!(2 * small.bytes_of(2048), GIB / 2);
    let large = laid_out(&pattern(80, |_| attention(8, 128, None)), &d);
    assert_eq!(large.bytes_of(2048), GIB * 5 / 8);
}

#[test]
fn windows_bound_the_cells_of_llama_cpp_where_it_has_them() {
    let windowed = |kind: &str| {
        let mut model = pattern(4, |layer| attention(8, 128, (layer > 0).then_some(1024)));
        model.kind = kind.into();
        let d = Deployment {
            max_model_len: Some(32_768),
            ..Deployment::with_defaults(EngineId::LlamaCpp)
        };
        let found = estimate(&model, &d);
        let request = found.request(32_768);
        assert_eq!(found.bytes(Component::KvCache), request);
        request
    };
    let row = 2 * 8 * 128 * 2;
    // The windows of its four slots, and a step of 512: 4,608 cells, as it logs of such a model.
    assert_eq!(windowed("gemma3_text"), Some(row * (32_768 + 3 * 4608)));
    assert_eq!(windowed("mistral"), Some(row * 4 * 32_768));
}

#[test]
fn slots_have_their_own_cells_and_states_where_their_number_is_given() {
    let mut model = pattern(4, |layer| attention(8, 128, (layer > 0).then_some(128)));
    model.kind = "gpt_oss".into();
    let d = Deployment {
        max_model_len: Some(262_144),
        max_batched_tokens: Some(1024),
        max_seqs: Some(2),
        ..Deployment::with_defaults(EngineId::LlamaCpp)
    };
    let row = 2 * 8 * 128 * 2;
    let cells = |d: &Deployment| {
        estimate(&model, d)
            .bytes(Component::KvCache)
            .map(|b| b / row)
    };
    // Ollama 0.30 with -np 2 -ub 1024 logged 1280 cells of each of two streams.
    assert_eq!(cells(&d), Some(262_144 + 3 * 2 * 1280));
    let mut shared = d.clone();
    shared.llama.unified = Some(true);
    assert_eq!(cells(&shared), Some(262_144 + 3 * 1280));
    shared.llama.full_windows = true;
    assert_eq!(cells(&shared), Some(4 * 262_144));
    // Ollama gives each request a context of its own; its engine before 0.30 keeps 4096 cells of a window.
    let ollama = |version| Deployment {
        version: Version::leading(version),
        max_batched_tokens: None,
        max_model_len: Some(8192),
        ..Deployment {
            named: Some(EngineId::Ollama),
            ..d.clone()
        }
    };
    assert_eq!(cells(&ollama("0.32.0")), Some(2 * (8192 + 3 * 768)));
    assert_eq!(cells(&ollama("0.12.6")), Some(2 * (8192 + 3 * 4608)));
    // A state for each slot, and one for each token that the model's own layers propose.
    let hybrid = pattern(2, |layer| match layer {
        0 => attention(8, 128, None),
        _ => Mixer::Lightning {
            heads: 1,
            head_dim: 128,
        },
    });
    let states = |seqs: u64, speculation| {
        let d = Deployment {
            max_model_len: Some(3072),
            max_seqs: Some(seqs),
            speculation,
            ..Deployment::with_defaults(EngineId::LlamaCpp)
        };
        let layout = laid_out(&hybrid, &d);
        (layout.bytes_of(3072) - 3072 * row) / (128 * 128 * 4)
    };
    let mtp = speculation::Speculation {
        names_model: false,
        method: "draft-mtp".into(),
        proposer: Proposer::Predictor,
        tokens: 4,
    };
    assert_eq!((states(1, None), states(3, None)), (1, 3));
    assert_eq!(states(1, Some(mtp)), 5);
}

#[test]
fn ollama_leaves_a_cache_type_out_where_it_has_no_flash_attention() {
    let mut model = pattern(4, |_| attention(8, 128, None));
    let cache = |model: &Model, version: &str, asked| {
        let mut d = Deployment {
            kv_dtype: Some("q8_0".into()),
            version: Version::leading(version),
            max_model_len: Some(1024),
            ..Deployment::of_engine(EngineId::Ollama).unwrap()
        };
        d.llama.flash_attention = asked;
        let found = estimate(model, &d);
        let warned = found.warnings.iter().any(|w| w.contains("leaves its type"));
        (found.kv_bytes_per_token.unwrap() / 4, warned)
    };
    let (whole, half) = ((2 * 8 * 128 * 2, true), (2 * 8 * 4 * 34, false));
    assert_eq!(cache(&model, "0.5.7", None), whole);
    assert_eq!(cache(&model, "0.5.7", Some(true)), half);
    assert_eq!(cache(&model, "0.31.0", None), half);
    model.kind = "gpt_oss".into();
    assert_eq!(cache(&model, "0.11.2", Some(true)), whole);
    model.kind = "qwen3".into();
    assert_eq!(cache(&model, "0.12.3", None), whole);
    assert_eq!(cache(&model, "0.12.6", None), half);
}

#[test]
fn heads_are_split_and_then_repeated_and_latent_rows_always_are() {
    let mut d = Deployment::with_defaults(EngineId::Vllm);
    let grouped = pattern(32, |_| attention(4, 128, None));
    let one = kv::of(&grouped, &d).unwrap().bytes_per_token();
    for (tp, part) in [(2, 2), (4, 4), (8, 4), (16, 4)] {
        d.tp = tp;
        assert_eq!(kv::of(&grouped, &d).unwrap().bytes_per_token(), one / part);
    }
    let latent = pattern(61, |_| Mixer::Latent {
        rank: 512,
        rope: 64,
        index: None,
    });
    assert_eq!(kv::of(&latent, &d).unwrap().bytes_per_token(), 61 * 576 * 2);
}

#[test]
fn formats_of_the_cache() {
    let mut d = vllm(19, "H100", 79.19);
    // GLM-5.1 printed 61,468 bytes a token at fp8: 656 of a row and 132 of the indexer.
    let sparse = pattern(78, |_| Mixer::Latent {
        rank: 512,
        rope: 64,
        index: Some(128),
    });
    for name in ["fp8_ds_mla", "fp8"] {
        d.kv_dtype = Some(name.into());
        assert_eq!(kv::of(&sparse, &d).unwrap().bytes_per_token(), 61_464);
    }
    let plain = pattern(1, |_| attention(8, 128, None));
    for (name, bytes) in [
        ("auto", 4096),
        ("fp8", 2048),
        ("q8_0", 2176),
        ("nvfp4", 1152),
    ] {
        d.kv_dtype = Some(name.into());
        assert_eq!(
            kv::of(&plain, &d).unwrap().bytes_per_token(),
            bytes,
            "{name}"
        );
    }
    d.kv_dtype = Some("int3".into());
    assert!(kv::of(&plain, &d).is_err());
}

#[test]
fn what_shares_keeps_nothing() {
    let mut shared = attention(8, 128, None);
    if let Mixer::Attention { shares, .. } = &mut shared {
        *shares = true;
    }
    let model = layers(vec![attention(8, 128, None), shared, Mixer::None]);
    let d = Deployment::with_defaults(EngineId::Vllm);
    assert_eq!(kv::of(&model, &d).unwrap().bytes_per_token(), 4096);
}

#[test]
fn gemma_3_27b_as_vllm_0_19_prints_it() {
    // 10 full layers and 52 of a window of 1,024: 7 groups of 10.
    let model = pattern(62, |i| {
        attention(16, 128, ((i + 1) % 6 != 0).then_some(1024))
    });
    let mut d = vllm(19, "H100", 79.19);
    d.max_model_len = Some(8192);
    d.max_batched_tokens = Some(8192);
    let layout = laid_out(&model, &d);
    assert_eq!(layout.groups, 7);
    let pool = layout.pool(15_997 * layout.block_bytes, Some(8192));
    assert_eq!(pool.blocks, 15_997);
    assert_eq!(pool.tokens, 36_560);
    let concurrency = layout.concurrency(&pool, 8192);
    assert!((concurrency - 4.46).abs() < 0.005, "{concurrency}");
    // Before 0.10 every layer kept everything.
    d.version = Some(Version::new(0, 9, 2));
    assert_eq!(laid_out(&model, &d).groups, 1);
}

#[test]
fn a_hybrid_as_vllm_0_24_prints_it() {
    // Qwen3.6-35B at 131,072 tokens and fp8: 30 delta nets and 10 layers of attention; 299 blocks.
    let mut model = pattern(40, |i| {
        if (i + 1) % 4 == 0 {
            attention(2, 256, None)
        } else {
            Mixer::DeltaNet {
                key_heads: 16,
                value_heads: 32,
                key_dim: 128,
                value_dim: 128,
                conv: 4,
            }
        }
    });
    model.kind = "qwen3_5_moe".into();
    let mut d = vllm(24, "RTX 5090", 31.36);
    d.kv_dtype = Some("fp8".into());
    d.max_model_len = Some(131_072);
    let layout = laid_out(&model, &d);
    assert_eq!(layout.block_tokens, 2096);
    let pool = layout.pool(299 * layout.block_bytes, Some(131_072));
    assert_eq!(pool.tokens, 567_978);
}

#[test]
fn states_are_of_the_types_that_are_asked_for() {
    let model = layers(vec![Mixer::DeltaNet {
        key_heads: 16,
        value_heads: 32,
        key_dim: 128,
        value_dim: 128,
        conv: 4,
    }]);
    let bytes = |conv: Option<&str>, state: Option<&str>| {
        let mut d = vllm(33, "H100", 79.0);
        (d.conv_dtype, d.state_dtype) = (conv.map(str::to_owned), state.map(str::to_owned));
        kv::of(&model, &d).unwrap().bytes_per_sequence()
    };
    let (inputs, values) = ((2 * 16 + 32) * 128 * 3, 32 * 128 * 128);
    assert_eq!(bytes(None, None), 2 * inputs + 2 * values);
    assert_eq!(bytes(None, Some("float32")), 2 * inputs + 4 * values);
    assert_eq!(bytes(Some("float32"), None), 4 * (inputs + values));
    assert_eq!(
        bytes(Some("float32"), Some("bfloat16")),
        4 * inputs + 2 * values
    );
}

#[test]
fn context_parallelism_keeps_more_tokens_in_the_same_bytes() {
    let model = pattern(61, |_| Mixer::Latent {
        rank: 512,
        rope: 64,
        index: None,
    });
    let mut d = vllm(11, "H200", 139.8);
    d.tp = 8;
    let bytes = 46 * GIB;
    let one = laid_out(&model, &d).pool(bytes, None).tokens;
    d.dcp = 8;
    assert_eq!(laid_out(&model, &d).pool(bytes, None).tokens, 8 * one);
}

#[test]
fn the_sampler_is_the_peak_of_a_default_start() {
    // Llama-3.1-8B on H100, defaults of a server: 4.76 GiB in vLLM 0.14, 1.89 GiB in 0.19.
    let model = pattern(32, |_| attention(8, 128, None));
    for (minor, measured) in [(14, 4.76), (19, 1.89)] {
        let d = vllm(minor, "H100", 79.19);
        let settings = engines::settings(&model, &d);
        assert_eq!((settings.batched_tokens, settings.sequences), (8192, 1024));
        let peak = activation::of(&model, &d, &settings).peak() as f64 / GIB as f64;
        assert!((peak - measured).abs() < 0.02, "{minor}: {peak}");
    }
}

#[test]
fn what_cannot_be_served_is_reported() {
    let model = pattern(32, |_| attention(8, 128, None));
    let mut d = vllm(19, "H100", 79.19);
    d.tp = 3;
    let e = estimate(&model, &d);
    assert_eq!(e.fits, None);
    assert!(e.reason.contains("does not divide"), "{}", e.reason);
    let document = document::of("x", &e);
    assert_eq!(document["per_gpu"]["total_gib"], json!(null));
    d.tp = 1;
    d.pp = 64;
    assert!(check(&model, &d).is_err());
}

#[test]
fn a_share_that_holds_no_request_does_not_fit() {
    let model = pattern(32, |_| attention(8, 128, None));
    let mut d = vllm(19, "H100", 79.19);
    d.max_model_len = Some(131_072);
    assert_eq!(estimate(&model, &d).fits, Some(true));
    d.memory_fraction = Some(0.1);
    let tight = estimate(&model, &d);
    assert_eq!(tight.fits, Some(false), "{}", tight.reason);
    d.memory_fraction = Some(0.01);
    let none = estimate(&model, &d);
    assert_eq!(none.fits, Some(false));
    assert!(none.reason.contains("missing"), "{}", none.reason);
    // Without a GPU there is no verdict.
    d.gpu = None;
    let nowhere = estimate(&model, &d);
    assert_eq!(nowhere.fits, None);
    assert!(nowhere.pool.is_err());
    assert_eq!(nowhere.kv_bytes_per_token, Ok(131_072));
}

#[test]
fn no_input_breaks_it() {
    let big = u64::MAX;
    let model = {
        let mut m = layers(vec![
            attention(big, big, Some(big)),
            Mixer::Latent {
                rank: big,
                rope: big,
                index: Some(big),
            },
            Mixer::Mamba2 {
                heads: big,
                head_dim: big,
                groups: big,
                state: big,
                conv: 0,
            },
            attention(0, 0, Some(0)),
        ]);
        (m.hidden, m.vocab, m.heads) = (big, big, 0);
        m
    };
    for engine in [
        EngineId::Vllm,
        EngineId::Sglang,
        EngineId::Tgi,
        EngineId::TensorRtLlm,
        EngineId::LlamaCpp,
        EngineId::Transformers,
    ] {
        let mut d = vllm(24, "H100", 79.19);
        d.engine = engine;
        (d.tp, d.max_seqs, d.max_batched_tokens) = (big, Some(big), Some(big));
        (d.max_model_len, d.block_size) = (Some(big / 64), Some(big));
        let _ = document::of("", &estimate(&model, &d));
    }
}

#[test]
fn bytes_that_are_asked_for_the_cache_are_not_more_than_the_gpu_has() {
    let model = pattern(32, |_| attention(8, 128, None));
    let with = |gib: u64| {
        let deployment = Deployment {
            kv_cache_memory: Some(gib * GIB),
            max_model_len: Some(8192),
            ..vllm(19, "H100", 79.18)
        };
        let estimate = estimate(&model, &deployment);
        let reading = question::Reading::of(&model, &deployment, &estimate).unwrap();
        (estimate.fits, reading.risk(1))
    };
    assert_eq!(with(40), (Some(true), Some(question::Risk::Low)));
    assert_eq!(with(100), (Some(false), Some(question::Risk::DoesNotFit)));
}

#[test]
fn the_cache_is_never_more_than_the_share_leaves() {
    let model = pattern(32, |_| attention(8, 128, None));
    let plain = vllm(19, "H100", 79.18);
    let gpu = plain.gpu.as_ref().unwrap().total;
    for memory_fraction in [None, Some(0.9)] {
        let deployment = Deployment {
            memory_fraction,
            ..plain.clone()
        };
        let estimate = estimate(&model, &deployment);
        let term = |c| estimate.terms.iter().find(|t| t.component == c).unwrap();
        let cache = term(Component::KvCache).band.clone().unwrap();
        let weights = term(Component::Weights).band.clone().unwrap();
        // A share that was not given may be all of the GPU.
        let most = memory_fraction.map_or(gpu, |_| estimate.budget.unwrap());
        assert!(cache.high <= most - weights.low, "{cache:?}");
        assert_eq!(cache.source, "built-in: defaults that you did not give");
    }
}

#[test]
fn what_is_not_known_makes_no_low_risk_and_no_other_verdict() {
    let model = pattern(32, |_| attention(8, 128, None));
    for engine in [EngineId::Sglang, EngineId::Tgi, EngineId::TensorRtLlm] {
        let deployment = Deployment {
            engine,
            version: None,
            max_model_len: Some(8192),
            ..vllm(19, "H100", 79.18)
        };
        let estimated = estimate(&model, &deployment);
        assert!(estimated.bytes(Component::CudaGraphs).is_none() && estimated.total.is_err());
        let reading = question::Reading::of(&model, &deployment, &estimated).unwrap();
        let risk = reading.risk(1).unwrap();
        assert_eq!(
            estimated.fits,
            Some(risk != question::Risk::DoesNotFit),
            "{engine:?}"
        );
        assert_eq!(risk, question::Risk::Medium, "{engine:?}");
        assert!(
            reading
                .meaning(risk, "a request", false)
                .contains("CUDA graphs")
        );
    }
}

#[test]
fn the_compute_buffer_of_llama_cpp_holds_the_logits_of_a_whole_step() {
    let model = pattern(32, |_| attention(8, 128, None));
    let of = |step, longest| {
        let deployment = Deployment {
            version: Some(Version::new(0, 9124, 0)),
            max_batched_tokens: step,
            max_model_len: Some(longest),
            ..Deployment::with_defaults(EngineId::LlamaCpp)
        };
        let estimated = estimate(&model, &deployment);
        estimated.bytes(Component::Activation).unwrap() as f64 / (1 << 20) as f64
    };
    // What llama.cpp prints of Llama 3 8B, flash attention on: `CUDA0 compute buffer size = 258.50 MiB`.
    assert_eq!(of(None, 8192), 258.5);
    assert_eq!(of(Some(2048), 8192), 4.0 * 258.5);
    // A step is no longer than the context.
    assert_eq!(of(None, 256), 258.5 / 2.0);
}

#[test]
fn the_compute_buffer_is_as_llama_cpp_printed_it() {
    let mib = |found: &Estimate| {
        let term = found.term(Component::Activation).unwrap();
        let band = term.band.as_ref().unwrap();
        [band.low, *term.bytes.as_ref().unwrap(), band.high].map(|b| b >> 20)
    };
    let of = |width: u64, heads: u64, context: u64, build: Option<u32>, flash: Option<bool>| {
        let mut model = pattern(1, |_| attention(8, 128, None));
        (model.hidden, model.heads) = (width, heads);
        let mut d = Deployment {
            version: build.map(|b| Version::new(0, b, 0)),
            max_model_len: Some(context),
            ..Deployment::with_defaults(EngineId::LlamaCpp)
        };
        d.llama.flash_attention = flash;
        mib(&estimate(&model, &d))
    };
    // Qwen2.5-72B and -32B under Ollama of 2024 and 2025, and Llama 2 7B, without flash attention.
    assert_eq!(of(8192, 64, 16_384, Some(4000), None)[1], 2144);
    assert_eq!(of(5120, 40, 8192, Some(9800), Some(false))[1], 696);
    assert_eq!(of(4096, 32, 4096, Some(3600), None)[1], 296);
    // Logits of one token for each of four slots; without a build the interval holds the older rule too.
    assert!(of(4096, 32, 8192, Some(9849), None)[2] < 100);
    let [low, middle, high] = of(4096, 32, 8192, None, None);
    assert!(
        low < 70 && middle < 100 && high > 258,
        "{low} {middle} {high}"
    );
}

#[test]
fn what_llama_cpp_refuses_does_not_fit() {
    let model = pattern(32, |_| attention(8, 128, None));
    let mut d = Deployment {
        engine: EngineId::LlamaCpp,
        version: None,
        kv_dtype: Some("q8_0".into()),
        max_model_len: Some(8192),
        moves_layers: true,
        ..vllm(19, "H100", 79.18)
    };
    let risk = |d: &Deployment| {
        let found = estimate(&model, d);
        question::Reading::of(&model, d, &found).unwrap().risk(1)
    };
    assert_eq!(risk(&d), Some(question::Risk::Medium));
    d.llama.flash_attention = Some(false);
    assert_eq!(risk(&d), Some(question::Risk::DoesNotFit));
}

#[test]
fn experts_on_the_processor_are_not_on_the_gpu() {
    let config = json!({
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151_936,
        "num_experts": 16, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
    });
    let model = model::from_config("moe", &config, "test").unwrap();
    let bytes = |layers| {
        let mut d = Deployment::with_defaults(EngineId::LlamaCpp);
        (d.max_model_len, d.llama.host_experts) = (Some(4096), layers);
        let found = estimate(&model, &d);
        let [weights, cache] = [Component::Weights, Component::KvCache].map(|c| found.bytes(c));
        (weights.unwrap(), cache.unwrap())
    };
    let experts = 16 * 3 * 768 * 2048 * model.value_bytes;
    let (whole, cache) = bytes(0);
    assert_eq!(bytes(1), (whole - experts, cache));
    assert_eq!(bytes(u64::MAX), (whole - 4 * experts, cache));
}

#[test]
fn a_risk_without_measurements_is_not_low() {
    let model = pattern(32, |_| attention(8, 128, None));
    let deployment = Deployment {
        max_model_len: Some(8192),
        ..Deployment {
            engine: EngineId::LlamaCpp,
            version: None,
            ..vllm(19, "H100", 79.18)
        }
    };
    let estimated = estimate(&model, &deployment);
    let reading = question::Reading::of(&model, &deployment, &estimated).unwrap();
    let risk = reading.risk(1).unwrap();
    assert_eq!(risk, question::Risk::Medium);
    let meaning = reading.meaning(risk, "a request", false);
    assert!(meaning.contains("no measurements"), "{meaning}");
}

#[test]
fn ollama_chooses_its_context_by_the_memory_of_all_gpus() {
    let model = pattern(32, |_| attention(8, 128, None));
    let on = |gib: f64, tp: u64, asked: Option<u64>| Deployment {
        gpu: vllm(19, "H100", gib).gpu,
        tp,
        max_model_len: asked,
        ..Deployment::of_engine(EngineId::Ollama).unwrap()
    };
    // (GiB of each, GPUs, asked for, context): the lowest lines are what Ollama logged of an RTX 4090 and of one of 8 GiB.
    for (gib, gpus, asked, context) in [
        (79.18, 1, None, 131_072),
        (23.5, 2, None, 131_072),
        (44.99, 1, None, 32_768),
        (23.5, 1, None, 32_768),
        (8.0, 1, None, 4096),
        (8.0, 1, Some(16_384), 16_384),
    ] {
        let deployment = on(gib, gpus, asked);
        let estimated = estimate(&model, &deployment);
        assert_eq!(
            estimated.settings.max_model_len,
            Some(context),
            "{gib} x {gpus}"
        );
        assert_eq!(question::longest(&model, &deployment), Ok(context));
        let named = (estimated.warnings.iter()).any(|w| w.contains("Ollama chooses a context"));
        assert_eq!(named, asked.is_none(), "{:?}", estimated.warnings);
    }
    let llama_cpp = Deployment {
        named: None,
        ..on(8.0, 1, None)
    };
    assert_eq!(question::longest(&model, &llama_cpp), Ok(131_072));
}

#[test]
fn parallelism_that_cannot_be_is_refused() {
    let phi = Model {
        heads: 40,
        ..pattern(4, |_| attention(10, 128, None))
    };
    let of = |tp, dcp, ep| Deployment {
        tp,
        dcp,
        ep,
        ..vllm(19, "H100", 79.18)
    };
    for right in [
        of(1, 1, 1),
        of(20, 2, 1),
        of(5, 1, 5),
        of(10, 1, 10),
        of(20, 1, 1),
    ] {
        assert_eq!(check(&phi, &right), Ok(()));
    }
    for (wrong, word) in [
        (of(4, 1, 1), "key and value heads"),
        (of(2, 3, 1), "decode context"),
        (of(2, 2, 1), "decode context"),
        (of(20, 4, 1), "decode context"),
        (of(1, 2, 1), "decode context"),
        (of(2, 1, 4), "expert parallelism"),
        (of(3, 1, 1), "attention heads"),
    ] {
        let why = check(&phi, &wrong).unwrap_err();
        assert!(why.what.contains(word), "{why}");
    }
}

#[test]
fn what_was_measured_on_other_makers_gpus_makes_no_band() {
    let model = pattern(32, |_| attention(8, 128, None));
    let bands = |gpu: &str| {
        let estimated = estimate(&model, &vllm(19, gpu, 79.18));
        let with = |c| estimated.term(c).unwrap().band.is_some();
        (with(Component::NonTorch), with(Component::CudaGraphs))
    };
    assert_eq!(bands("H100"), (true, true));
    assert_eq!(bands("MI300X"), (false, false));
}

/// A language model in a configuration of this kind, with an encoder of images or without.
fn seeing(kind: &str, vision: Option<Value>) -> Model {
    let mut config = json!({
        "model_type": kind, "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
            "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
            "max_position_embeddings": 40_960,
        },
    });
    if let Some(vision) = vision {
        config["vision_config"] = vision;
    }
    let mut model = model::from_config(kind, &config["text_config"], "test").unwrap();
    model.config = config;
    model
}

#[test]
fn a_file_that_leaves_its_encoder_out_makes_no_pool() {
    let with = |vision| estimate(&seeing("qwen3_vl", vision), &vllm(19, "H100", 79.19));
    let vision = json!({"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "deepstack_visual_indexes": [8, 16, 24]});
    let (whole, cut) = (with(Some(vision)), with(None));
    assert_eq!(whole.fits, Some(true));
    assert!(whole.bytes(Component::KvCache).is_some());
    assert_eq!((cut.fits, cut.bytes(Component::KvCache)), (None, None));
    assert!(cut.reason.contains("`qwen3_vl`"), "{}", cut.reason);
    // Three layers take the encoder's results besides the first: a step's rows for each lie beside the weights.
    let weights = |e: &Estimate| e.bytes(Component::Weights).unwrap();
    assert_eq!(weights(&whole) - weights(&cut), 3 * 8192 * 4096 * 2);
    // Where there is no room anyway, that much is sure.
    let small = estimate(&seeing("qwen3_vl", None), &vllm(19, "T4", 14.74));
    assert_eq!(small.fits, Some(false), "{}", small.reason);
}

#[test]
fn before_0_2_6_nccl_kept_every_all_reduced_tensor() {
    let model = pattern(80, |_| attention(8, 128, None));
    let forward = |patch, tp| {
        let mut d = vllm(2, "A100-80GB", 79.15);
        d.version = Some(Version::new(0, 2, patch));
        d.max_model_len = Some(4096);
        d.tp = tp;
        let settings = engines::settings(&model, &d);
        activation::of(&model, &d, &settings).forward
    };
    let step = 4096 * model.hidden * 2;
    assert_eq!(forward(4, 4) - forward(6, 4), 160 * step);
    assert_eq!(forward(4, 1), forward(6, 1));
}

#[test]
fn what_ranks_keep_beside_torch_depends_on_link_release_and_stages() {
    let counted = |minor, gpu, gib, tp, pp| {
        let mut d = vllm(minor, gpu, gib);
        (d.tp, d.pp) = (tp, pp);
        non_torch::of(&d).counted as f64 / GIB as f64
    };
    let is_near = |found: f64, gib: f64| assert!((found - gib).abs() < 0.01, "{found}, {gib}");
    // Joined by PCIe, before 0.11: as much of sixteen as of two.
    for tp in [2, 8, 16] {
        is_near(counted(10, "L40S", 44.5, tp, 1), 0.25);
    }
    is_near(counted(10, "A100-80GB", 79.15, 2, 1), 1.55);
    // Norms are fused with all-reduces, which stages of a pipeline do not have.
    is_near(counted(19, "H100", 79.18, 2, 1), 2.07);
    is_near(counted(19, "H100", 79.18, 1, 4), 0.07);
    is_near(counted(26, "GB200", 184.3, 4, 1), 1.3);
}

#[test]
fn which_gpus_take_large_steps_changed_with_the_version() {
    let model = pattern(32, |_| attention(8, 128, None));
    let batch = |gpu: &str, gib, version| {
        let mut d = vllm(8, gpu, gib);
        d.version = Some(version);
        let settings = engines::settings(&model, &d);
        (settings.batched_tokens, settings.sequences)
    };
    let (large, small) = ((8192, 1024), (2048, 256));
    let (by_name, by_memory) = (Version::new(0, 8, 4), Version::new(0, 8, 5));
    assert_eq!(batch("H100", 79.18, by_name), large);
    assert_eq!(batch("A100-80GB", 79.15, by_name), small);
    assert_eq!(batch("A100-80GB", 79.15, by_memory), large);
    assert_eq!(batch("A100-80GB", 79.15, Version::new(0, 9, 2)), small);
    assert_eq!(batch("L40S", 44.5, by_memory), small);
}

#[test]
fn only_the_table_of_layers_without_a_window_is_scaled() {
    let config = |scaling| {
        json!({
            "model_type": "gemma3_text", "hidden_size": 3840, "num_hidden_layers": 48, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 15360, "vocab_size": 262_144,
            "max_position_embeddings": 131_072, "sliding_window": 1024, "rope_scaling": scaling,
        })
    };
    let positions = |scaling| {
        let model = model::from_config("gemma", &config(scaling), "test").unwrap();
        let rope = model.rope.unwrap();
        rope.positions * rope.tables
    };
    assert_eq!(positions(json!(null)), 2 * 131_072);
    let scaled = json!({"rope_type": "linear", "factor": 8.0});
    assert_eq!(positions(scaled), 9 * 131_072);
}

/// SGLang of a release on an H100.
fn sglang(release: &str) -> Deployment {
    Deployment {
        version: Version::leading(release),
        gpu: Some(Gpu {
            name: "H100".into(),
            total: 79 * GIB,
            in_use: 0,
        }),
        memory_fraction: Some(0.8),
        ..Deployment::with_defaults(EngineId::Sglang)
    }
}

#[test]
fn a_checkpoint_that_names_8_bits_for_its_cache_is_followed() {
    let mut model = pattern(32, |_| attention(8, 128, None));
    let bytes = |model: &Model, release: &str| {
        let cache = kv::of(model, &sglang(release)).unwrap();
        cache.bytes_per_token()
    };
    for (algorithm, first, before) in [("FP8", "0.5.5", "0.5.4"), ("NVFP4", "0.5.3", "0.5.2")] {
        model.quantization = Some(json!({
            "quant_method": "modelopt", "quant_algo": algorithm, "kv_cache_quant_algo": "FP8",
        }));
        assert_eq!(bytes(&model, first), 65_536, "{algorithm}");
        assert_eq!(bytes(&model, before), 131_072, "{algorithm}");
    }
}

#[test]
fn a_pool_of_tokens_is_no_larger_than_asked_for() {
    let model = pattern(32, |_| attention(8, 128, None));
    let of = |tokens| {
        let asked = Deployment {
            pool_tokens: tokens,
            ..sglang("0.5.9")
        };
        estimate(&model, &asked)
    };
    let all = of(None).pool.unwrap().tokens;
    let found = of(Some(32_768));
    assert_eq!(found.pool.unwrap().tokens, 32_768);
    assert_eq!(found.settings.max_model_len, Some(32_768));
    assert_eq!(found.fits, Some(true), "{}", found.reason);
    assert_eq!(of(Some(all + 1)).pool.unwrap().tokens, all);
}
