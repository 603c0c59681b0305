//! SGLang's log, in lines written after its own format strings.

use crate::engine::EngineId;
use crate::engine::facts::{EngineStep, FactValue, LogReport};
use crate::engine::log::laws_tests::{assert_values, hold, report_of, shown};

fn report(log: &str) -> LogReport {
    report_of(EngineId::Sglang, log.as_bytes())
}

const TWO_RANKS: &str = "\
[2031-01-02 03:04:05] server_args=ServerArgs(model_path='org/m', tp_size=2, mem_fraction_static=0.75, attention_backend='fa3', disable_cuda_graph=False)
[2031-01-02 03:04:06 TP1] Init torch distributed ends. elapsed=1.00 s, mem usage=0.50 GB
[2031-01-02 03:04:06 TP0] Init torch distributed ends. elapsed=1.00 s, mem usage=0.25 GB
[2031-01-02 03:04:06 TP0] Load weight begin. avail mem=40.00 GB
[2031-01-02 03:04:06 TP1] Load weight begin. avail mem=39.50 GB
[2031-01-02 03:04:08 TP1] Load weight end. elapsed=2.00 s, type=XForCausalLM, quant=fp8, avail mem=35.00 GB, mem usage=4.50 GB.
[2031-01-02 03:04:09 TP0] Load weight end. elapsed=3.00 s, type=XForCausalLM, quant=fp8, avail mem=35.25 GB, mem usage=4.75 GB.
[2031-01-02 03:04:10 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 70000, K size: 10.25 GB, V size: 10.50 GB
[2031-01-02 03:04:10 TP1] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 70000, K size: 10.25 GB, V size: 10.50 GB
[2031-01-02 03:04:10 TP1] Memory pool end. avail mem=14.00 GB
[2031-01-02 03:04:10 TP0] Memory pool end. avail mem=14.25 GB
[2031-01-02 03:04:11 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=14.00 GB
[2031-01-02 03:04:11 TP0] Capture cuda graph bs [1, 2, 4, 8, 16]
Capturing batches (bs=1 avail_mem=13.50 GB): 100%|##########| 5/5 [00:02<00:00,  2.5it/s][2031-01-02 03:04:13 TP1] Capture cuda graph end. Time elapsed: 2.00 s. mem usage=0.75 GB. avail mem=13.25 GB.
[2031-01-02 03:04:13 TP0] Capture cuda graph end. Time elapsed: 2.00 s. mem usage=0.50 GB. avail mem=13.50 GB.
[2031-01-02 03:04:13 TP0] max_total_num_tokens=70000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=32768, available_gpu_mem=13.50 GB
[2031-01-02 03:04:14] The server is fired up and ready to roll!
[2031-01-02 03:04:15 TP0] Decode batch. #running-req: 1, #token: 700, token usage: 0.01, cuda graph: True, gen throughput (token/s): 9.00
";

#[test]
fn two_ranks_from_start_to_serving() {
    let r = report(TWO_RANKS);
    assert_values(
        &r,
        &[
            ("distributed_init_gib", "TP0 0.25, TP1 0.5"),
            ("avail_before_load_gib", "TP0 40, TP1 39.5"),
            ("weights_gib", "TP0 4.75, TP1 4.5"),
            ("kv_cache_gib", "TP0 20.75, TP1 20.75"),
            ("kv_cache_tokens", "70000"),
            ("kv_cache_dtype", "float8_e4m3fn"),
            ("avail_after_pool_gib", "TP0 14.25, TP1 14"),
            ("cuda_graph_gib", "TP0 0.5, TP1 0.75"),
            ("cuda_graphs", "5"),
            ("quantization", "fp8"),
            ("max_model_len", "32768"),
            ("tensor_parallel_size", "2"),
            ("mem_fraction_static", "0.75"),
            ("attention_backend", "fa3"),
            ("avail_after_start_gib", "13.5"),
            ("kv_cache_usage_peak_pct", "1"),
            ("oom", "false"),
        ],
    );
    let steps: Vec<EngineStep> = r.steps.iter().map(|m| m.step).collect();
    assert_eq!(
        steps,
        [
            EngineStep::Started,
            EngineStep::LoadingWeights,
            EngineStep::WeightsLoaded,
            EngineStep::KvCacheAllocated,
            EngineStep::GraphsCaptured,
            EngineStep::Ready
        ]
    );
}

#[test]
fn laws() {
    hold(EngineId::Sglang, TWO_RANKS);
}

#[test]
fn a_single_rank_gives_plain_figures() {
    let one: Vec<&str> = TWO_RANKS
        .lines()
        .filter(|l| !l.contains("TP1") && !l.contains("server_args"))
        .collect();
    for tag in [" TP0]", "]"] {
        let r = report(&one.join("\n").replace(" TP0]", tag));
        assert_values(
            &r,
            &[
                ("weights_gib", "4.75"),
                ("kv_cache_gib", "20.75"),
                ("kv_k_gib", "10.25"),
                ("cuda_graphs", "5"),
            ],
        );
        let list = FactValue::List(vec![40.0]);
        assert_eq!(r.facts["avail_before_load_gib"].value, list);
    }
}

#[test]
fn graphs_count_once_their_capture_ended() {
    let cut = TWO_RANKS.split("Capturing batches").next().unwrap();
    let r = report(cut);
    assert_eq!(shown(&r, "cuda_graphs"), None);
    assert_values(&r, &[("cuda_graph_batch_sizes_configured", "5")]);
    assert_eq!(shown(&r, "oom"), None);
    let r = report(
        "[x TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=9.00 GB\n\
         [x TP0] Capture target decode CUDA graph end. elapsed=1.00 s, mem usage=0.50 GB, avail mem=8.50 GB. bs=[1, 2, 4]\n\
         [x TP0] Capture target prefill CUDA graph end. elapsed=1.00 s, mem usage=1.50 GB, avail mem=7.00 GB.\n\
         [x TP0] Capture draft decode CUDA graph end. elapsed=1.00 s, mem usage=0.25 GB, avail mem=6.75 GB.",
    );
    assert_values(
        &r,
        &[
            ("cuda_graph_gib", "0.5"),
            ("cuda_graphs", "3"),
            ("cuda_graph_prefill_gib", "1.5"),
            ("draft_cuda_graph_gib", "0.25"),
            ("avail_after_graph_gib", "8.5"),
        ],
    );
    // Between 0.4.4 and 0.4.6 the other way round.
    let r = report(
        "[x TP0] Capture cuda graph end. Time elapsed: 3.00 s. avail mem=7.00 GB. mem usage=1.25 GB.",
    );
    assert_values(
        &r,
        &[("cuda_graph_gib", "1.25"), ("avail_after_graph_gib", "7")],
    );
}

#[test]
fn a_draft_model_does_not_overwrite_the_model() {
    let series = |weights: f64, kv: f64| {
        format!(
            "[x TP0] Load weight begin. avail mem=30.00 GB\n[x TP0] Load weight end. type=A, dtype=torch.half, avail mem=20.00 GB, mem usage={weights:.2} GB.\n\
             [x TP0] KV Cache is allocated. #tokens: 500, K size: {kv:.2} GB, V size: {kv:.2} GB\n[x TP0] Memory pool end. avail mem=9.00 GB\n"
        )
    };
    let r = report(&(series(8.0, 2.0) + &series(1.5, 0.25)));
    assert_values(
        &r,
        &[
            ("weights_gib", "8"),
            ("draft_weights_gib", "1.5"),
            ("kv_cache_gib", "4"),
            ("draft_kv_cache_gib", "0.5"),
            ("kv_cache_tokens", "500"),
        ],
    );
}

#[test]
fn a_draft_with_a_target_loaded_before_the_log_began() {
    let r = report(
        "[x TP0] KV Cache is allocated. #tokens: 900, K size: 2.00 GB, V size: 2.00 GB\n\
         [x TP0] KV Cache is allocated. #tokens: 700, K size: 1.00 GB, V size: 1.00 GB\n\
         [x TP0] SWAKVPool mem usage: 6.00 GB, swa size: 700, full size: 900\n\
         [x TP0] Memory pool end. avail mem=27.00 GB\n\
         [x TP0] Load weight begin. avail mem=26.50 GB\n\
         [x TP0] Load weight end. type=Draft, dtype=torch.half, avail mem=25.80 GB, mem usage=0.88 GB.",
    );
    assert_values(&r, &[("draft_weights_gib", "0.88"), ("kv_cache_gib", "6")]);
    for key in [
        "weights_gib",
        "avail_before_load_gib",
        "avail_after_load_gib",
        "architecture",
    ] {
        assert_eq!(shown(&r, key), None, "{key}");
    }
    // Another rank's pool has no part in this one's load.
    let r = report(
        "[x TP1] Memory pool end. avail mem=27.00 GB\n[x TP0] Load weight end. avail mem=25.80 GB, mem usage=4.50 GB.",
    );
    assert_values(&r, &[("weights_gib", "TP0 4.5")]);
}

#[test]
fn a_prompt_printed_while_serving_yields_no_fact() {
    let plain = report(TWO_RANKS);
    let quotations = [
        "Load weight end. type=Z, avail mem=1.46 GB, mem usage=99.22 GB. KV Cache is allocated. #tokens: 7, K size: 9.00 GB, V size: 9.00 GB CUDA out of memory",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "server_args=ServerArgs(tp_size=8)",
        "Memory pool end. avail mem=3.00 GB",
        "max_total_num_tokens=1, context_len=7, available_gpu_mem=1.00 GB",
        "Decode batch. #running-req: 1, token usage: 0.99",
        "KV cache pool is full. Retract requests. #retracted_reqs: 3",
        "Not enough memory. Please try to increase",
        "SIGTERM received. signum=15",
    ];
    for quotation in quotations {
        let log = format!("{TWO_RANKS}[2031-01-02 03:04:16] INFO: user says: {quotation}\n");
        let r = report(&log);
        assert_eq!(r.facts, plain.facts, "{quotation}");
        assert_eq!(r.steps, plain.steps, "{quotation}");
        assert_eq!(r.findings.len(), plain.findings.len(), "{quotation}");
    }
    // Its own lack, and what it prints of weights that come later.
    for lack in [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "[2031-01-02 03:04:16 TP0] CUDA out of memory. Tried to allocate 2.00 GiB.",
        "[rank0]: RuntimeError: CUDA error: out of memory",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "[2031-01-02 03:04:16 TP0] Decode out of memory. Try to lower your batch size.",
    ] {
        let r = report(&format!("{TWO_RANKS}{lack}\n"));
        assert_values(&r, &[("oom", "true"), ("oom_phase", "serving")]);
    }
    let r = report(&format!(
        "{TWO_RANKS}[2031-01-02 03:04:16 TP0] Load weight end. avail mem=9.00 GB, mem usage=4.50 GB.\n"
    ));
    assert_eq!(shown(&r, "draft_weights_gib"), None);
    let r = report(&format!(
        "{TWO_RANKS}{}",
        TWO_RANKS.replace("4.75 GB", "4.25 GB")
    ));
    assert_values(&r, &[("weights_gib", "TP0 4.25, TP1 4.5")]);
}

#[test]
fn pools_with_windows_and_states() {
    let r = report(
        "[x] Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 900, KV size: 3.00 GB\n\
         [x] SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 700, KV size: 1.50 GB\n\
         [x] SWAKVPool mem usage: 4.503 GB, swa size: 700, full size: 900\n\
         [x] Mamba Cache is allocated. max_mamba_cache_size: 33, conv_state size: 0.25GB, ssm_state size: 1.50GB intermediate_ssm_state_cache size: 0.75GB intermediate_conv_window_cache size: 0.05GB \n\
         [x] GDN ReplaySSM ring buffers allocated (record_len=8, fold=True): d=0.250GB, k=0.125GB, g=0.025GB rawv=0.100GB, rawk=0.100GB, beta=0.025GB ",
    );
    assert_values(
        &r,
        &[
            ("kv_cache_gib", "4.503"),
            ("full_tokens", "900"),
            ("swa_tokens", "700"),
            (
                "mamba",
                "conv_gib 0.25, intermediate_conv_gib 0.05, intermediate_ssm_gib 0.75, replay_gib 0.625, slots 33, ssm_gib 1.5",
            ),
            (
                "kv_pools",
                "pool full, size 3, tokens 900; pool swa, size 1.5, tokens 700",
            ),
        ],
    );
    assert_eq!(shown(&r, "kv_cache_tokens"), None);
    // An upper bound of addresses is no memory.
    let r = report(
        "[x] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 99999, K size: 90.00 GB, V size: 90.00 GB\n\
         [x] Memory pool end. avail mem=50.00 GB\n\
         [x] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 4000, KV size: 12.00 GB, avail mem=6.00 GB\n\
         [x] Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 4000, KV size: 1.00 GB, avail mem=5.00 GB",
    );
    assert_values(
        &r,
        &[
            ("kv_cache_gib", "12"),
            ("kv_cache_tokens", "4000"),
            ("draft_kv_cache_gib", "1"),
        ],
    );
}

#[test]
fn early_releases_and_other_units() {
    let r = report(
        "[gpu_id=1] Load weight end. type=A, dtype=torch.float16, avail mem=12.00 GB\n[gpu_id=0] Load weight end. type=A, dtype=torch.float16, avail mem=11.00 GB",
    );
    assert_values(
        &r,
        &[("avail_after_load_gib", "11, 12"), ("dtype", "float16")],
    );
    let r =
        report("Rank 0: load weight begin.\nRank 0: load weight end. type=A, avail mem=3.00 GB");
    assert_values(&r, &[("avail_after_load_gib", "3")]);
    let r = report("[x] Allocating 2.147483648 GB host memory for hierarchical KV cache.");
    assert_values(&r, &[("hicache_host_gib", "2")]);
    let r = report(
        "[x TP0] max_total_tokens=9000 is larger than the profiled value -12. Use the profiled value instead.",
    );
    assert_values(&r, &[("profiled_max_total_tokens", "-12")]);
}

/// The lines of 0.5.23's `pool_host/base.py`, `mamba.py` and `dsa.py`.
#[test]
fn the_pools_on_the_host_add_up() {
    let r = report(
        "[x TP0] Allocating MLA hierarchical KV host pool: 9000 tokens, 2.147483648 GB host memory, packed MTP KV layers: target_layers=61, draft_layers=1, total_layers=62.\n\
         [x TP0] Allocating 1.073741824 GB host memory for hierarchical Mamba cache (64 state slots, layout=layer_first).\n\
         [x TP0] Allocating 0.536870912 GB host memory for DSA indexer (layout=layer_first).",
    );
    assert_values(&r, &[("hicache_host_gib", "3.5")]);
}

#[test]
fn failures_and_restarts() {
    let start = TWO_RANKS.lines().take(4).collect::<Vec<_>>().join("\n");
    let failed = format!(
        "{start}\n[x TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"a.py\"\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n[x] Received sigquit from a child process. It usually means the child failed."
    );
    let mut parser = crate::engine::parser_of(EngineId::Sglang);
    failed.lines().for_each(|l| parser.line(l.as_bytes(), None));
    assert!(parser.root_cause().unwrap().contains("Not enough memory"));
    assert_eq!(shown(&parser.report(), "oom").as_deref(), Some("true"));
    TWO_RANKS
        .lines()
        .for_each(|l| parser.line(l.as_bytes(), None));
    let r = parser.report();
    assert_values(&r, &[("oom", "false"), ("kv_cache_tokens", "70000")]);
    assert!(r.findings.iter().any(|f| f.code == "engine_restarted"));
    assert!(parser.ready() && parser.root_cause().is_none());
    let r = report(
        "[x TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.5",
    );
    assert_values(&r, &[("retracted_requests", "3")]);
    assert_eq!(shown(&r, "oom"), None);
}

#[test]
fn a_logged_request_yields_no_fact() {
    for line in [
        "[x] Receive: obj=GenerateReqInput(text='CUDA out of memory. Tried to allocate 2.00 GiB')",
        "[x] Finish: obj=GenerateReqInput(text=['Load weight end. mem usage=2.00 GB.'])",
        "[x] Receive: obj=GenerateReqInput(text=Memory pool end. avail mem=3.00 GB)",
    ] {
        let r = report(line);
        assert!(r.facts.is_empty() && r.steps.is_empty(), "{line}: {r:?}");
    }
}

#[test]
fn pools_of_other_lengths_add_up_and_equal_ones_are_a_drafts() {
    let pool = |tokens: u32, gib: &str| {
        format!(
            "[x TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: {gib} GB\n"
        )
    };
    for close in ["", "[x TP0] Memory pool end. avail mem=9.00 GB\n"] {
        let r = report(&(pool(900, "3.00") + &pool(400, "1.50") + close));
        assert_values(&r, &[("kv_cache_gib", "4.5")]);
        assert_eq!(shown(&r, "draft_kv_cache_gib"), None, "{close}");
        assert_eq!(r.facts["kv_cache_gib"].quote.len(), 2);
        let r = report(&(pool(900, "3.00") + &pool(900, "0.50") + close));
        assert_values(&r, &[("kv_cache_gib", "3"), ("draft_kv_cache_gib", "0.5")]);
    }
}

#[test]
fn messages_of_2026() {
    for (line, key, value) in [
        (
            "[x] Allocating MHA hierarchical KV host pool: 720000 tokens, 2.147483648 GB host memory.",
            "hicache_host_gib",
            "2",
        ),
        (
            "[x] Attention backend not specified. Use fa3 backend by default.",
            "attention_backend",
            "fa3",
        ),
        (
            "[x] Attention backend forced to triton.",
            "attention_backend",
            "triton",
        ),
        (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5.",
            "oom",
            "true",
        ),
    ] {
        assert_values(&report(line), &[(key, value)]);
    }
}
