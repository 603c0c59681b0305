//! Tests of TGI's log. Every line is written for them, in the engine's form and with own values.

use super::*;
use crate::engine::LogParser;
use crate::engine::facts::LogReport;
use crate::engine::facts::key;
use crate::engine::lines::parse_reader;
use crate::engine::log::unwrap::Unwrapped;
use proptest::prelude::*;

fn parser(log: &[u8]) -> Unwrapped {
    let mut parser = Unwrapped::new(Box::<TgiLogParser>::default());
    parse_reader(&mut parser, log).unwrap();
    parser
}

fn report(log: &str) -> LogReport {
    parser(log.as_bytes()).report()
}

/// `key=value` of every fact, sorted.
fn facts(log: &str) -> Vec<String> {
    let report = report(log);
    let shown = report.facts.iter().map(|(k, f)| format!("{k}={}", f.value));
    shown.collect()
}

fn fact(log: &str, key: &str) -> Option<String> {
    Some(report(log).facts.get(key)?.value.to_string())
}

const START: &str = "\
2026-01-01T00:00:00.000001Z  INFO text_generation_launcher: Args {
    model_id: \"org/model\",
    sharded: None,
    num_shard: Some(
        2,
    ),
    quantize: Some(
        BitsandbytesNf4,
    ),
    dtype: None,
    kv_cache_dtype: Some(
        Fp8e4m3fn,
    ),
    max_total_tokens: Some(
        3000,
    ),
    cuda_memory_fraction: 0.8,
    api_key: Some(
        \"sk-secret-value\",
    ),
    port: 80,
}
2026-01-01T00:00:01.000000Z  INFO text_generation_launcher: Sharding model on 2 processes
2026-01-01T00:00:03.000000Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0
2026-01-01T00:00:03.000000Z  INFO shard-manager: text_generation_launcher: Starting shard rank=1
2026-01-01T00:00:04.000000Z  INFO text_generation_launcher: Using prefix caching = True
2026-01-01T00:00:04.100000Z  INFO text_generation_launcher: Using Attention = flashdecoding
2026-01-01T00:00:09.900000Z  INFO text_generation_launcher: Using prefill chunking = False
2026-01-01T00:00:10.000000Z  INFO shard-manager: text_generation_launcher: Shard ready in 9.5s rank=1
2026-01-01T00:00:10.000000Z  INFO shard-manager: text_generation_launcher: Shard ready in 9.6s rank=0
2026-01-01T00:00:11.000000Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model
2026-01-01T00:00:12.000000Z  INFO text_generation_launcher: KV-cache blocks: 4100, size: 256
2026-01-01T00:00:12.100000Z  INFO text_generation_launcher: Cuda Graphs are enabled for sizes [8, 2, 1]
2026-01-01T00:00:13.000000Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:137: Setting max batch total tokens to 1049000
2026-01-01T00:00:13.100000Z  INFO text_generation_router::server: router/src/server.rs:2298: Connected
";

#[test]
fn a_start_of_two_shards() {
    assert_eq!(
        facts(START),
        [
            "attention_backend=flashdecoding",
            "block_size=256",
            "cuda_graph_sizes=8, 2, 1",
            "cuda_graphs=3",
            "cuda_memory_fraction=0.8",
            "kv_cache_dtype=fp8_e4m3fn",
            "kv_cache_tokens=1049000",
            "kv_cache_tokens_rank0=1049600",
            "max_batch_total_tokens=1049000",
            "max_batch_total_tokens_inferred=true",
            "max_total_tokens=3000",
            "model=org/model",
            "num_gpu_blocks=4100",
            "oom=false",
            "port=80",
            "prefill_chunking=false",
            "prefix_caching=true",
            "quantization=bitsandbytes-nf4",
            "tensor_parallel_size=2",
        ]
    );
    let parser = parser(START.as_bytes());
    assert!(parser.ready() && parser.root_cause().is_none());
    let report = parser.report();
    let steps: Vec<EngineStep> = report.steps.iter().map(|s| s.step).collect();
    assert_eq!(
        steps,
        [
            EngineStep::Started,
            EngineStep::LoadingWeights,
            EngineStep::WeightsLoaded,
            EngineStep::Profiled,
            EngineStep::KvCacheAllocated,
            EngineStep::GraphsCaptured,
            EngineStep::Ready,
        ]
    );
    assert!(!format!("{report:?}").contains("sk-secret"));
}

#[test]
fn arguments_on_one_line_whole_and_cut_off() {
    let line = "│ 2026-01-01T00:00:00Z  INFO text_generation_launcher: Args { model_id: \"org/m\", num_shard: Some(4), quantize: Some(Awq), cuda_graphs: Some([1, 2]), rope_scaling: None, max_batch_total_tokens: Some(9000), api_key: Some(\"sk-secret, }\"), trust_remote_code: true, port: 8";
    let cut = [
        "cuda_graph_sizes_configured=1, 2",
        "max_batch_total_tokens_requested=9000",
        "model=org/m",
        "quantization=awq",
        "tensor_parallel_size=4",
        "trust_remote_code=true",
    ];
    // Who knows whether the port is 8.
    assert_eq!(facts(&format!("{line} │\n")), cut);
    let whole = facts(&format!("{line}080 }}\n"));
    assert!(whole.contains(&"port=8080".to_owned()), "{whole:?}");
}

#[test]
fn every_shape_of_each_message() {
    for (line, key, value) in [
        (
            "Using attention paged - Prefix caching true",
            "attention_backend",
            "paged",
        ),
        (
            "Using attention flashinfer - Prefix caching 1",
            "prefix_caching",
            "true",
        ),
        (
            "Disabling prefix caching because of VLM model",
            "prefix_caching",
            "false",
        ),
        (
            "Using experimental prefill chunking = True",
            "prefill_chunking",
            "true",
        ),
        ("Using scheduler V2", "scheduler", "V2"),
        ("Using backend V3", "scheduler", "V3"),
        (
            "Using config Some(LlavaNext(LlavaNext { x: 1 }))",
            "model_family",
            "LlavaNext",
        ),
        (
            "Cuda Graphs are disabled (CUDA_GRAPHS=[]).",
            "cuda_graphs",
            "0",
        ),
        (
            "Using default cuda graphs [1, 2, 4]",
            "cuda_graph_sizes_configured",
            "1, 2, 4",
        ),
        ("Default `max_input_tokens` to 77", "max_input_tokens", "77"),
        (
            "Default `max_batch_prefill_tokens` to 78",
            "max_batch_prefill_tokens",
            "78",
        ),
        (
            "Maximum total tokens defaulted to 79",
            "max_total_tokens",
            "79",
        ),
        (
            "ROCm: using Flash Attention 2 Triton implementation.",
            "rocm_flash_attention",
            "triton",
        ),
        (
            "PyTorch TunableOp (https://x) is enabled. The warm-up",
            "tunable_op",
            "true",
        ),
        (
            "Free memory 10.737418240GB , (real: 21.47483648GB",
            "free_memory_gib",
            "10",
        ),
        (
            "Free memory 10.737418240GB , (real: 21.47483648GB",
            "free_memory_real_gib",
            "20",
        ),
        (
            "Free memory on device hpu:0: 40.5 GiB used_for_graph: 2.5 GiB ratio:0.1",
            "free_memory_gib",
            "40.5",
        ),
        (
            "Free memory on device hpu:0: 40.5 GiB used_for_graph: 2.5 GiB ratio:0.1",
            "hpu_graph_reserved_gib",
            "2.5",
        ),
        (
            "Inferred max batch total tokens: 500",
            "max_batch_total_tokens_inferred",
            "true",
        ),
        ("Docker label: sha-abc", "docker_label", "sha-abc"),
        ("Unkown compute for card some-card", "gpu_card", "some-card"),
        ("Sharding model on 8 processes", "tensor_parallel_size", "8"),
    ] {
        for log in [
            format!("{line}\n"),
            format!("tgi-1  | 2026-01-01T00:00:00.1Z  INFO text_generation_launcher: {line}\n"),
            format!(
                "#033[2m2026-01-01T00:00:00.1Z#033[0m #033[32m INFO#033[0m text_generation_router: router/src/main.rs:9: {line}\n"
            ),
            format!(
                "{}\n",
                serde_json::json!({"level": "INFO", "fields": {"message": line, "rank": 0}, "target": "text_generation_launcher"})
            ),
            format!(
                "{}\n",
                serde_json::json!({"level": "INFO", "message": line, "target": "text_generation_router"})
            ),
        ] {
            assert_eq!(fact(&log, key).as_deref(), Some(value), "{log}");
        }
    }
}

#[test]
fn a_capacity_that_is_a_default() {
    let log = "Model does not support automatic max batch total tokens\nSetting max batch total tokens to 16000\nConnected\n";
    assert_eq!(
        facts(log),
        [
            "max_batch_total_tokens=16000",
            "max_batch_total_tokens_inferred=false",
            "oom=false"
        ]
    );
    assert_eq!(report(log).findings[0].code, "capacity_is_a_default");
    // A sentence that stands alone proves no end of the warm-up.
    assert_eq!(
        fact("Setting max batch total tokens to 16000\n", "oom"),
        None
    );
}

#[test]
fn graphs_with_speculation_and_graphs_that_fail() {
    let args =
        "Args { speculate: Some(3), port: 80 }\nCuda Graphs are enabled for sizes [32, 4, 2, 1]\n";
    assert_eq!(fact(args, "cuda_graphs").as_deref(), Some("2"));
    let failed =
        format!("{args}Decode cuda graph warmup failed\nSetting max batch total tokens to 50\n");
    assert_eq!(fact(&failed, "cuda_graphs"), None);
    assert_eq!(
        fact(&failed, "cuda_graph_sizes").as_deref(),
        Some("32, 4, 2, 1")
    );
    let measured = "Free RAM before cuda graph 4 3.221225472GB\nFree RAM before cuda graph 2 3.0GB\nFree RAM after cuda graphs 2.147483648GB\n";
    assert_eq!(fact(measured, "cuda_graph_gib").as_deref(), Some("1"));
    let nothing_left = "Free RAM before cuda graph 4 3.22GB\nFree RAM after cuda graphs 0.00GB\n";
    assert_eq!(fact(nothing_left, "cuda_graph_gib"), None);
}

#[test]
fn every_lack_of_memory() {
    for (log, cause) in [
        (
            "ERROR warmup{max_input_length=Some(10) max_prefill_tokens=20 max_total_tokens=Some(30) max_batch_size=None}:warmup: text_generation_router_v3::client: x.rs:1: Server error: Not enough memory to handle 20 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\nError: WebserverFailed\n",
            "Not enough memory to handle 20",
        ),
        ("Error: Backend(NotEnoughMemory(4096))\n", "NotEnoughMemory"),
        (
            "Not enough memory to handle `max_total_tokens=4096`\n",
            "max_total_tokens=4096",
        ),
        (
            "ERROR text_generation_launcher: Method Warmup encountered an error.\nTraceback (most recent call last):\nRuntimeError: CUDA error: out of memory\nServer error: CANCELLED\n",
            "CUDA error: out of memory",
        ),
        (
            "thread 'main' panicked at 'Unable to warmup model: Generation(\"Allocation on device 0 would exceed allowed memory. (out of memory)\\nRequested               : 2.00 GiB\")', x.rs:1\n",
            "would exceed allowed memory",
        ),
    ] {
        assert_eq!(fact(log, "oom").as_deref(), Some("true"), "{log}");
        let found = parser(log.as_bytes()).root_cause().unwrap();
        assert!(found.contains(cause), "{found}");
    }
    let refused = "warmup{max_input_length=Some(10) max_prefill_tokens=20 max_total_tokens=Some(30) max_batch_size=None}:warmup: x: Server error: Not enough memory to handle 20 prefill tokens.\n";
    assert_eq!(
        facts(refused),
        [
            "max_batch_prefill_tokens=20",
            "max_input_tokens=10",
            "max_total_tokens=30",
            "oom=true",
            "oom_phase=profiling"
        ]
    );
}

#[test]
fn a_failure_without_lack_of_memory() {
    let log = "ERROR text_generation_launcher: Error when initializing model\nTraceback (most recent call last):\nValueError: unsupported model type\nError: ShardCannotStart\n";
    let parser = parser(log.as_bytes());
    assert!(
        parser
            .root_cause()
            .unwrap()
            .contains("Error when initializing model")
    );
    assert_eq!(fact(log, "oom"), None);
}

#[test]
fn the_text_of_requests_is_no_fact() {
    let before = facts(START);
    let requests = "\
2026-01-01T00:01:00Z DEBUG generate{parameters=GenerateParameters { stop: [\"x\"] }}: text_generation_router::server: router/src/server.rs:300: Input: Setting max batch total tokens to 5
2026-01-01T00:01:00Z DEBUG generate{}: text_generation_router::server: router/src/server.rs:300: Input: CUDA out of memory. Tried to allocate 3.00 GiB
KV-cache blocks: 7, size: 1
2026-01-01T00:01:00Z DEBUG generate{}: text_generation_router::server: router/src/server.rs:300: Output: Not enough memory to handle 5 prefill tokens
2026-01-01T00:01:00Z  INFO generate{total_time=\"1s\"}: text_generation_router::server: router/src/server.rs:301: Success
";
    assert_eq!(facts(&format!("{START}{requests}")), before);
    // And before it serves.
    let quoted =
        "router: Input: KV-cache blocks: 7, size: 1\n{prompt: \"Sharding model on 9 processes\"}\n";
    assert!(facts(quoted).is_empty(), "{:?}", facts(quoted));
    // A request that fails for lack of memory is a fact.
    let failed = format!(
        "{START}ERROR generate{{parameters=GenerateParameters {{ stop: [\"x\"] }}}}: text_generation_router: x.rs:1: Request failed during generation: Server error: CUDA out of memory. Tried to allocate 42.00 MiB.\n"
    );
    assert_eq!(fact(&failed, "oom").as_deref(), Some("true"));
    assert_eq!(fact(&failed, "oom_phase").as_deref(), Some("serving"));
}

#[test]
fn what_info_answers() {
    let old = r#"{"model_id":"org/m","model_dtype":"torch.float16","model_device_type":"cuda","max_best_of":2,"max_input_length":1000,"max_total_tokens":2000,"waiting_served_ratio":1.2,"max_batch_total_tokens":70000,"version":"1.4.2"}"#;
    let shown = facts(&format!("{old}\n"));
    for expected in [
        "device=cuda",
        "dtype=torch.float16",
        "max_batch_total_tokens=70000",
        "max_input_tokens=1000",
        "waiting_served_ratio=1.2",
    ] {
        assert!(
            shown.contains(&expected.to_owned()),
            "{expected} of {shown:?}"
        );
    }
    assert_eq!(report(old).engine_version.as_deref(), Some("1.4.2"));
    assert!(facts("{\"model_id\":\"m\",\"x\":1}\n").is_empty());
}

#[test]
fn the_last_of_several_starts_is_reported() {
    let log = format!(
        "{START}INFO text_generation_launcher: Args {{ model_id: \"org/second\", port: 81 }}\n"
    );
    let report = report(&log);
    assert_eq!(report.text(key::model), Some("org/second"));
    assert!(!report.facts.contains_key("kv_cache_tokens"));
    assert!(report.findings.iter().any(|f| f.code == "engine_restarted"));
    assert!(!parser(log.as_bytes()).ready());
}

/// A message of the launcher in each form.
fn launcher(message: &str, fields: serde_json::Value) -> [String; 2] {
    let mut record = fields.as_object().cloned().unwrap_or_default();
    let shown: String = record.iter().map(|(k, v)| format!(" {k}={v}")).collect();
    record.insert("message".to_owned(), message.into());
    let json = serde_json::json!({"level": "INFO", "fields": record, "target": "text_generation_launcher", "span": {"name": "shard-manager"}});
    [
        format!("2026-01-01T00:00:00.1Z  INFO text_generation_launcher: {message}{shown}\n"),
        format!("{json}\n"),
    ]
}

/// A message of the router in each form.
fn router(message: &str) -> [String; 2] {
    let json = serde_json::json!({"level": "INFO", "message": message, "target": "text_generation_router_v3"});
    [
        format!(
            "2026-01-01T00:00:00.1Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:137: {message}\n"
        ),
        format!("{json}\n"),
    ]
}

#[test]
fn the_router_may_be_heard_before_the_shard() {
    let blocks = launcher("KV-cache blocks: 52719, size: 1", serde_json::json!({}));
    let used = router("Setting max batch total tokens to 52125");
    for form in 0..2 {
        let orders = [[&blocks[form], &used[form]], [&used[form], &blocks[form]]];
        let shown = orders.map(|[a, b]| facts(&format!("{a}{b}")));
        assert_eq!(shown[0], shown[1]);
        assert!(shown[1].contains(&"kv_cache_tokens=52125".to_owned()));
        assert!(shown[1].contains(&"max_batch_total_tokens_inferred=true".to_owned()));
    }
}

#[test]
fn shards_are_counted_by_what_comes_when_all_are_ready() {
    let ready = |rank: u64| launcher("Shard ready in 3s", serde_json::json!({ "rank": rank }));
    let blocks = launcher("KV-cache blocks: 9, size: 1", serde_json::json!({}));
    let used = router("Setting max batch total tokens to 9");
    for form in 0..2 {
        let ready = |rank| ready(rank)[form].clone();
        let shards = [ready(1), ready(3), ready(0), ready(2)].concat();
        for next in [&blocks[form], &used[form]] {
            let log = format!("{shards}{next}");
            assert_eq!(
                fact(&log, "tensor_parallel_size").as_deref(),
                Some("4"),
                "{log}"
            );
        }
    }
}

#[test]
fn a_million_lines_in_bounded_memory() {
    let mut parser = TgiLogParser::default();
    for n in 0..1_000_000_u32 {
        match n % 300 {
            0 => parser.line(format!("Shard ready in {n}s rank={n}").as_bytes(), None),
            1 => parser.line(
                format!("RuntimeError: CUDA error: out of memory {n}").as_bytes(),
                None,
            ),
            _ => parser.line(
                b"INFO generate{}: text_generation_router::server: Success",
                None,
            ),
        }
    }
    let report = parser.report();
    assert!(serde_json::to_vec(&report).unwrap().len() < 100_000);
}

const NOISE: &[&str] = &[
    "",
    "2026-01-01T00:00:05Z  INFO text_generation_launcher: Waiting for shard to be ready... rank=0",
    "2026-01-01T00:00:05Z  INFO text_generation_launcher: Using optimized Triton indexing kernels.",
    "2026-01-01T00:00:05Z  WARN text_generation_router::server: router/src/server.rs:1: Tokenizer error",
    "Downloading shards:  40%|████      | 2/5 [00:01<00:02]",
    "    value: 7",
];

proptest! {
    #[test]
    fn noise_changes_nothing(places in proptest::collection::vec((0usize..60, 0usize..NOISE.len()), 0..30)) {
        let mut lines: Vec<&str> = START.lines().collect();
        for (at, which) in places {
            let at = at.min(lines.len());
            lines.insert(at, NOISE[which]);
        }
        prop_assert_eq!(facts(&format!("{}\n", lines.join("\n"))), facts(START));
    }

    #[test]
    fn a_log_cut_off_anywhere_yields_no_other_fact(cut in 0..START.len()) {
        let whole = report(START).facts;
        let part = parser(&START.as_bytes()[..cut]).report().facts;
        for (key, fact) in part {
            prop_assert_eq!(Some(&fact.value), whole.get(&key).map(|f| &f.value), "{}", key);
        }
    }

    #[test]
    fn shards_in_any_order_are_as_many(order in Just((0..6u32).collect::<Vec<_>>()).prop_shuffle()) {
        let log: String = order.iter().map(|r| format!("shard-manager: text_generation_launcher: Shard ready in 1.5s rank={r}\n")).collect();
        prop_assert_eq!(fact(&format!("{log}Starting Webserver\n"), "tensor_parallel_size"), Some("6".to_owned()));
        prop_assert_eq!(fact(&log, "tensor_parallel_size"), None);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120), word in 0..signs().len(), tail in "\\PC{0,60}") {
            let word = signs()[word];
        let mut parser = TgiLogParser::default();
        for _ in 0..2 {
            parser.line(b"Args {", None);
            parser.line(&[word.as_bytes(), &bytes].concat(), None);
            parser.line(format!("{tail}: {}{tail}", word).as_bytes(), Some(1));
            parser.line(&bytes, None);
        }
        parser.report();
    }
}
