//! What is not modelled is named, and never fits.

use super::*;
use crate::engine::settings::SETTINGS;
use crate::estimate::{Gpu, Lora, estimate, model::from_config};
use proptest::prelude::*;
use serde_json::json;

/// Llama of 8 billion parameters, 15 GiB, with these fields besides.
fn model(more: Value) -> Model {
    let mut config = json!({
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    from_config("m", &config, "test").unwrap()
}

fn on(engine: EngineId, gpu: &str, gib: u64) -> Deployment {
    let gpu = Gpu {
        name: gpu.into(),
        total: gib << 30,
        in_use: 0,
    };
    Deployment {
        gpu: Some(gpu),
        ..Deployment::with_defaults(engine)
    }
}

fn named(model: &Model, deployment: &Deployment) -> String {
    let all = estimate(model, deployment).unmodelled;
    let names: Vec<String> = all.into_iter().map(|u| u.name).collect();
    names.join("; ")
}

fn any_moves() -> impl Strategy<Value = Moves> {
    prop_oneof![Just(Moves::Up), Just(Moves::Down), Just(Moves::Either)]
}

fn influences() -> impl Strategy<Value = Vec<Unmodelled>> {
    let terms = proptest::sample::subsequence(ALL.to_vec(), 0..=ALL.len());
    let one = (any_moves(), terms).prop_map(|(moves, terms)| Unmodelled::new("x", moves, &terms));
    proptest::collection::vec(one, 1..4)
}

proptest! {
    #[test]
    fn what_can_add_never_fits_and_what_can_lower_never_fails(
        point in proptest::option::of(any::<bool>()), all in influences(), exceeds in any::<bool>(),
    ) {
        let fits = settle(point, &all, exceeds);
        if all.iter().any(|u| u.moves.adds()) {
            prop_assert_ne!(fits, Some(true));
        }
        if all.iter().any(|u| u.moves.lowers()) && !exceeds {
            prop_assert_ne!(fits, Some(false));
        }
        prop_assert!(!exceeds || fits == Some(false));
        prop_assert_eq!(settle(point, &[], false), point);
    }

    #[test]
    fn a_moved_term_has_no_interval_of_other_cases(all in influences(), gib in 10_u64..90) {
        let llama = model(json!({}));
        let plain = on(EngineId::Vllm, "H100", gib);
        let deployment = Deployment { unmodelled: all.clone(), ..plain.clone() };
        let (before, after) = (estimate(&llama, &plain), estimate(&llama, &deployment));
        if all.iter().any(|u| u.moves.adds()) {
            prop_assert_ne!(after.fits, Some(true));
        }
        for (old, term) in before.terms.iter().zip(&after.terms) {
            let moved: Vec<_> = all.iter().filter(|u| u.terms.contains(&term.component)).collect();
            let adds = moved.iter().any(|u| u.moves.adds());
            if adds {
                prop_assert!(term.bytes.is_err() && term.band.is_none(), "{term:?}");
            } else if !moved.is_empty() {
                prop_assert_eq!(term.band.as_ref().map_or(0, |b| b.cases), 0);
            } else if term.component != Component::KvCache {
                prop_assert_eq!(old, term);
            }
        }
        // The pool is what weights, activations and the rest leave.
        let counted = |u: &&Unmodelled| u.terms.iter().any(|t| *t != Component::Draft);
        let pool = after.term(Component::KvCache).unwrap();
        if all.iter().filter(counted).any(|u| u.moves.adds()) {
            prop_assert!(pool.bytes.is_err() && after.pool.is_err());
        }
        // A no by the least that is needed holds, whatever else is not known.
        if gib < 14 && !all.iter().any(|u| u.moves.lowers()) {
            prop_assert_eq!(after.fits, Some(false));
        }
    }
}

#[test]
fn a_lower_bound_that_exceeds_is_a_no() {
    let llama = model(json!({}));
    let fits = |gib, moves, term| {
        let deployment = Deployment {
            unmodelled: vec![Unmodelled::new("x", moves, &[term])],
            ..on(EngineId::Vllm, "H100", gib)
        };
        estimate(&llama, &deployment)
    };
    // 15 GiB of weights on 12 GiB: the activations change nothing of it; weights that may be smaller do.
    let no = fits(12, Moves::Either, Component::Activation);
    assert_eq!(no.fits, Some(false));
    assert!(no.reason.starts_with("at least "), "{}", no.reason);
    assert_eq!(fits(12, Moves::Up, Component::Weights).fits, Some(false));
    let open = fits(12, Moves::Either, Component::Weights);
    assert_eq!((open.fits, open.reason.as_str()), (None, "not modelled: x"));
    // Weights that can only be smaller still fit, and are at most so much.
    let less = fits(40, Moves::Down, Component::Weights);
    assert_eq!(less.fits, Some(true));
    let band = less.term(Component::Weights).unwrap().band.clone().unwrap();
    assert_eq!((band.low, band.cases), (0, 0));
    let more = fits(40, Moves::Up, Component::Weights);
    let weights = more.term(Component::Weights).unwrap();
    assert!(weights.at_least.unwrap() > 14 << 30 && weights.bytes.is_err());
}

#[test]
fn parts_of_models_that_are_not_modelled_are_named() {
    let h100 = on(EngineId::Vllm, "H100", 79);
    let of = |more| named(&model(more), &h100);
    assert_eq!(of(json!({})), "");
    assert_eq!(
        of(json!({"expert_dtype": "fp4"})),
        "experts of the type `fp4`"
    );
    for part in ["audio_config", "encoder_config"] {
        let hears = of(json!({part: {"hidden_size": 1024}}));
        assert_eq!(hears, "the audio tower", "{part}");
    }
    let scores = json!({"architectures": ["LlamaForSequenceClassification"]});
    assert_eq!(of(scores.clone()), "");
    let sglang = on(EngineId::Sglang, "H100", 79);
    assert!(named(&model(scores), &sglang).contains("a runner"));
    let delta = json!({
        "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "max_position_embeddings": 4096,
        "num_experts": 0, "decoder_sparse_step": 1, "full_attention_interval": 4, "torch_dtype": "bfloat16",
    });
    let hybrid = from_config("h", &delta, "test").unwrap();
    assert_eq!(named(&hybrid, &h100), "");
    let pool = named(&hybrid, &on(EngineId::Sglang, "H100", 79));
    assert_eq!(pool, "");
    let pool = named(&hybrid, &on(EngineId::TensorRtLlm, "H100", 79));
    assert_eq!(pool, "the engine's pool of recurrent states");
}

#[test]
fn machines_versions_and_settings_that_are_not_modelled_are_named() {
    let llama = model(json!({}));
    for (gpu, shared) in [
        // What it needs of the shared memory was measured.
        ("NVIDIA GB10", false),
        ("Strix Halo", true),
        ("Jetson AGX Thor", true),
        ("GB200", false),
        ("RTX 4090", false),
    ] {
        let name = named(&llama, &on(EngineId::Vllm, gpu, 120));
        assert_eq!(
            name.contains("shares with its host"),
            shared,
            "{gpu}: {name}"
        );
    }
    let at = |engine, minor, patch| {
        let version = Some(Version::new(0, minor, patch));
        named(
            &llama,
            &Deployment {
                version,
                ..on(engine, "H100", 79)
            },
        )
    };
    assert_eq!(at(EngineId::Vllm, 33, 7), "");
    assert!(at(EngineId::Vllm, 34, 0).contains("up to 0.33"));
    assert!(at(EngineId::Vllm, 1, 6).contains("0.1.6"));
    assert_eq!(at(EngineId::Sglang, 5, 5), "");
    assert!(at(EngineId::Sglang, 5, 24).contains("up to 0.5.23"));
    let with = |change: fn(&mut Deployment)| {
        let mut deployment = on(EngineId::Vllm, "H100", 79);
        change(&mut deployment);
        let found = estimate(&llama, &deployment);
        assert_eq!(found.fits, None, "{}", found.reason);
        found.reason
    };
    let staged = |d: &mut Deployment| (d.engine, d.pp) = (EngineId::Sglang, 2);
    assert!(with(staged).contains("pipeline"));
    // Of dense models on vLLM LoRA was measured.
    let lora = |engine| {
        let lora = Some(Lora { rank: 16, slots: 1 });
        named(
            &llama,
            &Deployment {
                lora,
                ..on(engine, "H100", 79)
            },
        )
    };
    assert_eq!(lora(EngineId::Vllm), "");
    assert!(lora(EngineId::Sglang).contains("LoRA"));
    // On a GPU that others use, the share and the driver's context must both be free.
    let beside = |quarters: u64| {
        let mut deployment = on(EngineId::Vllm, "RTX 4090", 24);
        deployment.memory_fraction = Some(0.8);
        deployment.gpu.as_mut().unwrap().in_use = quarters << 28;
        estimate(&llama, &deployment).fits
    };
    assert_eq!([12, 18, 24].map(beside), [Some(true), None, Some(false)]);
}

#[test]
fn sglang_starts_with_a_pool_below_one_request() {
    let long = model(json!({"max_position_embeddings": 1_000_000}));
    let found = estimate(&long, &on(EngineId::Sglang, "H100", 79));
    assert!(
        found.max_concurrency.as_ref().is_ok_and(|n| *n < 1.0),
        "{found:?}"
    );
    assert_eq!(found.fits, None, "{}", found.reason);
    assert_eq!(
        estimate(&long, &on(EngineId::Vllm, "H100", 79)).fits,
        Some(false)
    );
}

#[test]
fn the_table_of_flags_has_each_flag_once() {
    let table: Written = serde_yaml::from_str(TABLE).unwrap();
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    for (engine, flags) in &table.engines {
        let mut all: Vec<String> = words(&flags.model);
        let own = EngineId::from_name(engine).unwrap();
        let computed = SETTINGS.iter().flat_map(|s| s.names(own));
        all.extend(computed.map(str::to_owned));
        all.extend(words(&flags.no_memory));
        all.extend(words(&flags.host));
        all.extend(flags.not_modelled.iter().flat_map(|m| words(&m.flags)));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(count, all.len(), "{engine}");
        assert!(
            all.iter().all(|w| !w.contains('-')),
            "{engine}: underscores"
        );
    }
    // What vLLM's command line is read by, and this table, are of the same flags.
    let grammar = include_str!("../../engine/vllm/flags.txt");
    let mut aliases = false;
    for line in grammar.lines().filter(|l| !l.starts_with('#')) {
        if !line.starts_with(' ') {
            aliases = line.trim() == "alias";
            continue;
        }
        for flag in line.split_whitespace().filter(|_| !aliases) {
            let known = !matches!(effect(EngineId::Vllm, flag), Effect::Unknown);
            assert!(known, "--{flag} is in no list");
        }
    }
}

#[test]
fn a_flag_about_a_part_that_is_lacking_moves_nothing_and_a_bounded_one_widens() {
    let with = |flags: &[(&str, &str)]| {
        let flags = flags
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let mut d = on(EngineId::Vllm, "L4", 22);
        d.max_model_len = Some(1024);
        d.unmodelled = of_flags(EngineId::Vllm, &flags.collect());
        estimate(&model(json!({})), &d)
    };
    let lacking = with(&[("mamba_backend", "triton"), ("mm_encoder_tp_mode", "data")]);
    assert!(lacking.unmodelled.is_empty(), "{:?}", lacking.unmodelled);
    let (plain, bounded) = (with(&[]), with(&[("attention_backend", "FLASHINFER")]));
    let pool = |e: &Estimate| {
        let term = e.term(Component::KvCache).unwrap();
        (
            term.bytes.clone().unwrap(),
            term.band.clone().map(|b| b.high - b.low),
        )
    };
    assert_eq!(pool(&plain).0, pool(&bounded).0);
    assert!(pool(&plain).1 < pool(&bounded).1);
    assert_eq!(plain.fits, bounded.fits);
    // Of a kernel for experts it is not known how much; of a model without experts it is nothing.
    let experts = of_flags(
        EngineId::Vllm,
        &[("moe_backend".to_owned(), "triton".to_owned())].into(),
    );
    assert!(
        !experts[0]
            .part
            .unwrap()
            .is_in(&model(json!({})), &on(EngineId::Vllm, "L4", 22))
    );
}

#[test]
fn keys_of_a_case_that_move_memory_are_named() {
    let besides = |line: Value| of_settings(EngineId::Vllm, &flags_of_case(EngineId::Vllm, &line));
    let of = |line: Value| {
        let found = besides(line).unmodelled;
        found.into_iter().map(|u| u.name).collect::<Vec<_>>()
    };
    let case = json!({"id": "a", "config": "m", "note": "n", "tags": ["x"], "max_num_seqs": 4, "num_gpu_blocks_override": 4,
        "speculative": {"method": "mtp", "num_speculative_tokens": 2}, "language_model_only": true});
    assert_eq!(of(case.clone()), ["--num-gpu-blocks-override"]);
    let computed = besides(case).speculation.unwrap();
    assert_eq!(
        (computed.proposer, computed.tokens),
        (Proposer::Predictor, 2)
    );
    let other = json!({"speculative": {"method": "medusa"}});
    assert_eq!(of(other), ["speculative decoding (medusa)"]);
    let unset = json!({"runner": null, "speculative": null, "language_model_only": false, "nobody_knows": {"a": 1}});
    assert!(of(unset).is_empty());
}
