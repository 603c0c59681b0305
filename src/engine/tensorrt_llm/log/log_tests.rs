//! Tests of TensorRT-LLM's log. Every line is written for them, in the engine's form and with own
//! values.

use super::*;
use crate::engine::LogParser;
use crate::engine::facts::LogReport;
use crate::engine::facts::key;
use crate::engine::lines::parse_reader;
use proptest::prelude::*;

fn parser(log: &[u8]) -> TrtLlmLogParser {
    let mut parser = TrtLlmLogParser::default();
    parse_reader(&mut parser, log).unwrap();
    parser
}

fn report(log: &str) -> LogReport {
    parser(log.as_bytes()).report()
}

fn facts(log: &str) -> Vec<String> {
    let report = report(log);
    let shown = report.facts.iter().map(|(k, f)| format!("{k}={}", f.value));
    shown.collect()
}

fn fact(log: &str, key: &str) -> Option<String> {
    Some(report(log).facts.get(key)?.value.to_string())
}

/// A pool as its manager prints it, of one window.
fn pool(blocks: u64, gib: &str) -> String {
    format!(
        "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 128 [window size=4096], tokens per block=32, primary blocks={blocks}, secondary blocks=0, max sequence length=4096\n\
         [TensorRT-LLM][INFO] Number of tokens per block: 32.\n\
         [TensorRT-LLM][INFO] [MemUsageChange] Allocated {gib} GiB for max tokens in paged KV cache ({}).\n",
        blocks * 32
    )
}

/// A series of graphs.
fn series(sizes: &[u64], drafts: &[u64]) -> String {
    let mut text = format!(
        "[T] [TRT-LLM] [I] Creating CUDA graph instances for {} batch sizes.\n",
        sizes.len()
    );
    for size in sizes {
        for draft in drafts {
            text.push_str(&format!(
                "[T] [TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size={size}, draft_len={draft}\n"
            ));
        }
    }
    text
}

const PROFILE: &str = "\
[T] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 8.75 GiB
[T] [TRT-LLM] [I] Memory used after loading model weights (outside torch) in memory usage profiling: 1.25 GiB
[T] [TRT-LLM] [I] Memory dynamically allocated during inference (inside torch) in memory usage profiling: 0.75 GiB
[T] [TRT-LLM] [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 2.50 GiB
[T] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 12.00 GiB, available KV cache memory when calculating max tokens: 20.00 GiB, fraction is set 0.9, kv size is 131072. device total memory 32.00 GiB, , tmp kv_mem 1.20 GiB
[T] [TRT-LLM] [I] Estimated max memory in KV cache : 20.00 GiB
";

/// A start of the PyTorch backend: the pool and the graphs to profile with, then those that stay.
fn pytorch() -> String {
    [
        "[TensorRT-LLM] TensorRT-LLM version: 1.1.0\n[T] [TRT-LLM] [I] Using LLM with PyTorch backend\n".to_owned(),
        pool(300, "1.20"),
        series(&[4, 2, 1], &[3, 0]),
        PROFILE.to_owned(),
        pool(5120, "20.00"),
        series(&[2, 1], &[3, 0]),
        "INFO:     Application startup complete.\n".to_owned(),
    ]
    .concat()
}

#[test]
fn a_start_of_the_pytorch_backend() {
    let log = pytorch();
    let shown = facts(&log);
    assert_eq!(
        shown,
        [
            "activation_peak_gib=0.75",
            "backend=pytorch",
            "block_size=32",
            "cuda_graph_batch_sizes=1, 2",
            "cuda_graph_batch_sizes_configured=2",
            "cuda_graph_draft_lens=0, 3",
            "cuda_graphs=4",
            "device_total_gib=32",
            "estimation_pool=kv_cache_gib 1.2, kv_cache_tokens 9600, num_gpu_blocks 300",
            "free_gpu_memory_fraction=0.9",
            "kv_available_gib=20",
            "kv_bytes_per_token=131072",
            "kv_cache_gib=20",
            "kv_cache_tokens=163840",
            "kv_estimated_gib=20",
            "non_torch_gib=2.5",
            "num_cpu_blocks=0",
            "num_gpu_blocks=5120",
            "oom=false",
            "profiled_peak_gib=12",
            "temporary_kv_gib=1.2",
            "weights_gib=8.75",
            "weights_outside_torch_gib=1.25",
        ]
    );
    let parser = parser(log.as_bytes());
    assert!(parser.ready());
    assert_eq!(parser.report().engine_version.as_deref(), Some("1.1.0"));
    let steps: Vec<EngineStep> = parser.report().steps.iter().map(|s| s.step).collect();
    assert_eq!(
        steps,
        [
            EngineStep::Started,
            EngineStep::WeightsLoaded,
            EngineStep::Profiled,
            EngineStep::KvCacheAllocated,
            EngineStep::Ready,
        ]
    );
}

#[test]
fn later_wordings_and_prefixes() {
    for (line, key, value) in [
        (
            "Peak memory during memory usage profiling (torch + non-torch): 3.00 GiB, available KV cache memory when calculating max tokens: 4.00 GiB, fraction is set 0.5, kv size per token is 64. device total memory 8.00 GiB, temporary kv cache memory during profiling 0.25 GiB",
            "kv_bytes_per_token",
            "64",
        ),
        (
            "Peak memory during memory usage profiling (torch + non-torch): 3.00 GiB, available KV cache memory when calculating max tokens: 4.00 GiB, temporary kv cache memory during profiling 0.25 GiB",
            "temporary_kv_gib",
            "0.25",
        ),
        (
            "Both free_gpu_memory_fraction and max_tokens are set (to 0.8 and 640, respectively). The smaller value will be used.",
            "max_tokens_requested",
            "640",
        ),
        (
            "Both free_gpu_memory_fraction and max_tokens are set (to 0.8 and 640 with free memory 3.5 of total memory 6.25, respectively).",
            "device_free_gib",
            "3.5",
        ),
        (
            "Setting PyTorch memory fraction to 0.75 (6.00 GiB)",
            "torch_memory_limit_gib",
            "6",
        ),
        (
            "max_seq_len=100, max_num_requests=7, max_num_tokens=90",
            "max_num_requests",
            "7",
        ),
        (
            "PyTorchConfig(extra=1, use_cuda_graph=True, cuda_graph_batch_sizes=[1, 2, 4], attn_backend='TRTLLM', kv_cache_dtype='auto')",
            "attention_backend",
            "TRTLLM",
        ),
        (
            "PyTorchConfig(use_cuda_graph=True, cuda_graph_batch_sizes=[1, 2, 4], x)",
            "cuda_graph_sizes_configured",
            "1, 2, 4",
        ),
        (
            "Use 63.25 GB for model weights.",
            "weights_hint_gb",
            "63.25",
        ),
        (
            "Rank 1 uses 8.50 GB for model weights.",
            "weights_hint_gb",
            "rank1 8.5",
        ),
        (
            "[MemUsageChange] Init cuBLAS/cuBLASLt: CPU +0, GPU +8, now: CPU 500, GPU 2048 (MiB)",
            "device_used_gib",
            "2",
        ),
        (
            "[MemUsageChange] Allocated 512.00 KB GPU memory for decoder.",
            "decoder_gib",
            "0.00048828125",
        ),
        (
            "[MemUsageChange] Allocated 256.00 MB GPU memory for runtime buffers.",
            "runtime_buffers_gib",
            "0.25",
        ),
        (
            "Allocated 512.00 MiB for execution context memory.",
            "execution_context_gib",
            "0.5",
        ),
        (
            "Total Activation Memory: 1073741824",
            "build_activation_gib",
            "1",
        ),
        (
            "Total Weights Memory: 2147483648 bytes",
            "build_weights_gib",
            "2",
        ),
        ("TRTGptModel maxBatchSize: 64", "max_batch_size", "64"),
        (
            "Dynamic draft length enabled for one-model path. Capturing 6 graphs: [(1, 3)]",
            "cuda_graphs_planned",
            "6",
        ),
        (
            "Run piecewise CUDA graph warmup for num tokens=512",
            "cuda_graphs_piecewise",
            "1",
        ),
        (
            "Skipping CUDA graph warmup (greedy) for batch size=4, draft_len=0: not enough KV cache space.",
            "cuda_graphs_skipped",
            "1",
        ),
        (
            "Run generation only CUDA graph warmup for batch size=8",
            "cuda_graphs",
            "1",
        ),
        (
            "Engine version 0.12.0 found in the config file, assuming engine(s) built by new builder API.",
            "engine_build_version",
            "0.12.0",
        ),
    ] {
        for prefix in [
            "",
            "[TensorRT-LLM][INFO] ",
            "[01/01/2026-00:00:00] [TRT-LLM] [I] ",
            "[01/01/2026-00:00:00] [TRT-LLM] [RANK 0] [I] ",
            "[TRT-LLM] [I] [batchmgr][RANK 0] ",
            "Loading:  47%|████▋     | 6/14 [00:03<00:05, 139.82it/s][01/01/2026-00:00:00] [TRT-LLM] [I] [_torch] ",
        ] {
            assert_eq!(
                fact(&format!("{prefix}{line}\n"), key).as_deref(),
                Some(value),
                "{prefix}{line}"
            );
        }
    }
}

#[test]
fn a_start_of_the_engine_backend() {
    let old = "[TensorRT-LLM][INFO] Loaded engine size: 512 MiB\n[TensorRT-LLM][INFO] Allocate 3221225472 bytes for k/v cache. \n[TensorRT-LLM][INFO] Using 5000 total tokens in paged KV cache, and 8 blocks per sequence\n";
    assert_eq!(
        facts(old),
        [
            "engine_size_gib=0.5",
            "kv_cache_gib=3",
            "kv_cache_tokens=5000",
            "oom=false"
        ]
    );
    let new = "\
[TensorRT-LLM][INFO] MPI size: 1, MPI local size: 1, rank: 0
[TensorRT-LLM][INFO] Loaded engine size: 1024 MiB
[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in engine deserialization: CPU +0, GPU +1000, now: CPU 0, GPU 1000 (MiB)
[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in IExecutionContext creation: CPU +0, GPU +24, now: CPU 0, GPU 1024 (MiB)
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 8.00 GiB, available: 6.00 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 100
[TensorRT-LLM][INFO] Number of blocks in KV cache secondary pool: 20, onboard blocks to primary memory before reuse: true
[TensorRT-LLM][INFO] Number of tokens per block: 64.
";
    let shown = facts(new);
    for expected in [
        "num_gpu_blocks=100",
        "num_cpu_blocks=20",
        "tensorrt_managed_gib=1",
        "kv_available_gib=6",
    ] {
        assert!(
            shown.contains(&expected.to_owned()),
            "{expected} of {shown:?}"
        );
    }
    assert_eq!(fact(new, "oom"), None);
    let taken = format!(
        "{new}[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.40 GiB for max tokens in paged KV cache (6400).\n"
    );
    assert_eq!(fact(&taken, "oom").as_deref(), Some("false"));
}

#[test]
fn pools_of_ranks_print_through_each_other() {
    let line = |text: &str| format!("[TensorRT-LLM][INFO] {text}\n");
    let blocks = |n: u64, window: u64| {
        line(&format!(
            "Max KV cache blocks per sequence: 9 [window size={window}], tokens per block=32, primary blocks={n}, secondary blocks=0, max sequence length=4096"
        ))
    };
    let took = |n: u64| {
        line(&format!(
            "[MemUsageChange] Allocated 2.00 GiB for max tokens in paged KV cache ({n})."
        ))
    };
    let size = line("Number of tokens per block: 32.");
    let log = [
        line("MPI size: 2, rank: 0"),
        line("MPI size: 2, rank: 1"),
        blocks(10, 512),
        blocks(10, 512),
        blocks(40, 4096),
        blocks(40, 4096),
        size.clone(),
        size.clone(),
        took(1600),
        took(1600),
    ]
    .concat();
    let report = report(&log);
    assert_eq!(report.facts["kv_cache_gib"].value.numbers(), [2.0, 2.0]);
    assert_eq!(
        report.facts["kv_cache_tokens"].value.numbers(),
        [1600.0, 1600.0]
    );
    assert_eq!(report.facts["num_gpu_blocks"].value.numbers(), [50.0, 50.0]);
    // One rank, several windows: they are one pool. A short window announces that more follow.
    let one = [blocks(10, 512), blocks(40, 4096), size, took(1600)].concat();
    assert_eq!(fact(&one, "num_gpu_blocks").as_deref(), Some("50"));
    assert_eq!(fact(&blocks(10, 512), "num_gpu_blocks"), None);
    // Pools that name their rank.
    let tagged: String = [1, 0]
        .map(|r| {
            pool(100, "1.00").replace(
                "[TensorRT-LLM][INFO]",
                &format!("[TRT-LLM] [I] [batchmgr][RANK {r}]"),
            )
        })
        .concat();
    let numbers = |log: &str| {
        super::tests::report(log).facts["kv_cache_gib"]
            .value
            .numbers()
    };
    assert_eq!(numbers(&tagged), [1.0, 1.0]);
}

#[test]
fn a_draft_model_has_a_pool_of_its_own() {
    let draft = "[T] [TRT-LLM] [I] [_torch] Draft KV cache sizing: gpu_free_mem=9.15GiB, target_blocks=5120, min_draft_blocks=5632\n";
    let dry = "[T] [TRT-LLM] [I] [_torch] [kv cache manager] Primary/secondary blocks for window sizes set to {512: (12, 0), 4096: (30, 0)} for estimation dry run\n";
    let shown = facts(&[&pool(300, "1.20"), draft, dry].concat());
    assert!(
        shown.contains(&"draft_kv_blocks_estimation=42".to_owned()),
        "{shown:?}"
    );
    assert!(
        !shown.iter().any(|f| f.starts_with("kv_cache_gib")),
        "{shown:?}"
    );
    let marked = facts(&[PROFILE, &pool(5120, "20.00"), draft, &pool(5632, "1.00")].concat());
    assert!(marked.contains(&"kv_cache_gib=20".to_owned()), "{marked:?}");
    assert!(
        marked.contains(&"draft_kv_cache_gib=1".to_owned()),
        "{marked:?}"
    );
    assert!(
        marked.contains(&"draft_num_gpu_blocks=5632".to_owned()),
        "{marked:?}"
    );
    // Without the mark: fewer bytes a token are another model's.
    let unmarked = facts(&[PROFILE, &pool(5120, "20.00"), &pool(5120, "1.00")].concat());
    assert!(
        unmarked.contains(&"kv_cache_gib=20".to_owned()),
        "{unmarked:?}"
    );
    assert!(
        unmarked.contains(&"draft_kv_cache_gib=1".to_owned()),
        "{unmarked:?}"
    );
}

#[test]
fn graphs_count_once_each_in_the_last_series() {
    let counted = |log: &str| fact(log, "cuda_graphs");
    let twice = series(&[4, 2, 1], &[3, 0]) + &series(&[2, 1], &[3, 0]);
    assert_eq!(counted(&twice).as_deref(), Some("4"));
    let repeated = series(&[2, 1], &[0]) + series(&[2, 1], &[0]).split_once('\n').unwrap().1;
    assert_eq!(counted(&repeated).as_deref(), Some("2"));
    let labelled = "Run generation-only CUDA graph warmup (greedy) for batch size=1, draft_len=0, max_seq_len=64\nRun generation-only CUDA graph warmup (advanced sampling) for batch size=1, draft_len=0, max_seq_len=64\nRun generation-only CUDA graph warmup (greedy) for batch size=1, draft_len=0, max_seq_len=4096\n";
    assert_eq!(counted(labelled).as_deref(), Some("3"));
    let engines = [PROFILE, &series(&[2, 1], &[3, 0]), &series(&[2, 1], &[0])].concat();
    assert_eq!(counted(&engines).as_deref(), Some("4"));
    assert_eq!(fact(&engines, "draft_cuda_graphs").as_deref(), Some("2"));
    // The message comes before the capture.
    let failed = series(&[2, 1], &[0]) + "RuntimeError: CUDA error: out of memory\n";
    assert_eq!(counted(&failed).as_deref(), Some("1"));
}

#[test]
fn speculation_that_can_be_switched_off_needs_graphs_without_it() {
    let args =
        "[T] [TRT-LLM] [I] LLM Args: speculative_config=X(max_draft_len=3, max_concurrency=4)\n";
    let found = |log: &str| {
        report(log)
            .findings
            .iter()
            .any(|f| f.code == "no_graphs_without_speculation")
    };
    assert!(found(&(args.to_owned() + &series(&[2, 1], &[3]))));
    assert!(!found(&(args.to_owned() + &series(&[2, 1], &[3, 0]))));
    assert!(!found(&series(&[2, 1], &[3])));
    let none = args.replace("max_concurrency=4", "max_concurrency=None");
    assert!(!found(&(none + &series(&[2, 1], &[3]))));
}

#[test]
fn every_lack_of_memory() {
    for line in [
        "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, s): out of memory (x.h:1)",
        "[01/01/2026-00:00:00] [TRT-LLM] [RANK 1] [E] Error executing load_single_module with args ('model.x', Linear()): CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 20.00 GiB of which 8.00 MiB is free.",
        "torch.AcceleratorError: CUDA error: out of memory",
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)",
        "[TRT] [W] Requested amount of GPU memory (2147483648 bytes) could not be allocated.",
        "RuntimeError: Executor creation failed due to insufficient GPU memory.",
    ] {
        assert_eq!(
            fact(&format!("{line}\n"), "oom").as_deref(),
            Some("true"),
            "{line}"
        );
    }
    let bytes =
        "[TRT] [W] Requested amount of GPU memory (2147483648 bytes) could not be allocated.\n";
    assert_eq!(fact(bytes, "oom_requested_gib").as_deref(), Some("2"));
    let shown = format!(
        "{}{}",
        pytorch(),
        "DEBUG request: prompt: CUDA out of memory. Tried to allocate 9.00 GiB\n"
    );
    assert_eq!(fact(&shown, "oom").as_deref(), Some("false"));
    let nccl = "[E] Executor creation failed with NCCL error: x\nRuntimeError: y\n";
    assert!(
        parser(nccl.as_bytes())
            .root_cause()
            .unwrap()
            .contains("NCCL")
    );
    assert_eq!(fact(nccl, "oom"), None);
}

const REFUSAL: &str = "\
RuntimeError: Executor creation failed due to insufficient GPU memory.

The following component could not be created: Draft thing
Total GPU memory (GiB): 20.00
Free GPU memory before component creation attempt (GiB): 2.50

Previously created components and free GPU memory before/after creation (GiB):
Model: 19.00 / 4.00
Initial KV cache (temporary for KV cache size estimation): 4.00 / 2.50
";

#[test]
fn a_refusal_lists_what_each_part_took() {
    assert_eq!(
        facts(REFUSAL),
        [
            "components_free_gib=Initial KV cache (temporary for KV cache size estimation) 4, 2.5, Model 19, 4",
            "device_total_gib=20",
            "free_before_failed_component_gib=2.5",
            "oom=true",
            "oom_component=Draft thing",
            "oom_phase=start",
        ]
    );
}

#[test]
fn what_metrics_answers() {
    let body = r#"[{"gpuMemUsage":1},{"gpuMemUsage":3221225472,"maxBatchSizeRuntime":8,"kvCacheStats":{"maxNumBlocks":70,"usedNumBlocks":2,"tokensPerBlock":64}}]"#;
    assert_eq!(
        facts(&format!("{body}\n")),
        [
            "block_size=64",
            "gpu_mem_usage_gib=3",
            "max_batch_size=8",
            "num_gpu_blocks=70",
            "used_num_blocks=2"
        ]
    );
    assert!(facts("[]\n[{\"kvCacheStats\":\n").is_empty());
}

#[test]
fn a_second_start_in_the_same_log() {
    let log = pytorch() + "[TensorRT-LLM] TensorRT-LLM version: 1.1.0\n";
    let report = report(&log);
    assert!(report.facts.is_empty(), "{:?}", report.facts);
    assert!(report.findings.iter().any(|f| f.code == "engine_restarted"));
}

#[test]
fn a_million_lines_in_bounded_memory() {
    let mut parser = TrtLlmLogParser::default();
    for n in 0..1_000_000_u64 {
        match n % 500 {
            0 => parser.line(pool(n, "1.00").lines().next().unwrap().as_bytes(), None),
            1 => parser.line(
                b"[MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (7).",
                None,
            ),
            2 => {
                let text = format!(
                    "Run generation-only CUDA graph warmup for batch size={n}, draft_len=0"
                );
                parser.line(text.as_bytes(), None);
            }
            3 => parser.line(format!("Loaded engine size: {n} MiB").as_bytes(), None),
            _ => parser.line(b"nothing of interest", None),
        }
    }
    let report = parser.report();
    assert!(serde_json::to_vec(&report).unwrap().len() < 400_000);
}

const NOISE: &[&str] = &[
    "",
    "[TensorRT-LLM][INFO] The logger passed into createInferRuntime differs.",
    "[T] [TRT-LLM] [I] PyExecutor is ready",
    "INFO:     127.0.0.1:55 - \"GET /health HTTP/1.1\" 200 OK",
    "Loading:  40%|████      | 2/5 [00:01<00:02]",
    "I0101 00:00:00.000001 1 server.cc:1] \"Started\"",
];

proptest! {
    #[test]
    fn noise_changes_nothing(places in proptest::collection::vec((0usize..60, 0usize..NOISE.len()), 0..30), refused in any::<bool>()) {
        let log = if refused { REFUSAL.to_owned() } else { pytorch() };
        let mut lines: Vec<&str> = log.lines().collect();
        for (at, which) in places {
            let at = at.min(lines.len());
            lines.insert(at, NOISE[which]);
        }
        prop_assert_eq!(facts(&format!("{}\n", lines.join("\n"))), facts(&log));
    }

    #[test]
    fn a_log_cut_off_anywhere_yields_no_other_fact(cut in 0usize..4000) {
        // Graphs are counted as they are captured: their number grows.
        let log = [PROFILE, &pool(5120, "20.00"), REFUSAL].concat();
        let cut = cut.min(log.len());
        let whole = report(&log).facts;
        let part = parser(&log.as_bytes()[..cut]).report().facts;
        for (key, fact) in part {
            // What failed later had not failed yet, and its list had fewer entries.
            if [key::oom, key::components_free_gib, key::device_total_gib].contains(&key) {
                continue;
            }
            prop_assert_eq!(Some(&fact.value), whole.get(&key).map(|f| &f.value), "{}", key);
        }
    }

    #[test]
    fn ranks_in_any_order_give_the_same(order in Just((0..16usize).map(|i| i % 4).collect::<Vec<_>>()).prop_shuffle()) {
        let lines = [
            "[TRT-LLM] [I] [batchmgr][RANK r] Max KV cache blocks per sequence: 9 [window size=64], tokens per block=32, primary blocks=50, secondary blocks=0",
            "[TRT-LLM] [I] [batchmgr][RANK r] Number of tokens per block: 32.",
            "[TRT-LLM] [I] [batchmgr][RANK r] [MemUsageChange] Allocated 2.00 GiB for max tokens in paged KV cache (1600).",
            "[TRT-LLM] [I] [RANK r] Run generation-only CUDA graph warmup for batch size=1, draft_len=0",
        ];
        let mut at = [0; 4];
        let mut log = String::new();
        for rank in order {
            log.push_str(&lines[at[rank]].replace("RANK r", &format!("RANK {rank}")));
            log.push('\n');
            at[rank] += 1;
        }
        let report = report(&log);
        prop_assert_eq!(report.facts["kv_cache_gib"].value.numbers(), vec![2.0; 4]);
        prop_assert_eq!(report.facts["num_gpu_blocks"].value.numbers(), vec![50.0; 4]);
        prop_assert_eq!(report.number(key::cuda_graphs), Some(1.0));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120), word in 0..WORDS.len(), tail in "\\PC{0,60}") {
        let mut parser = TrtLlmLogParser::default();
        for _ in 0..2 {
            parser.line(b"RuntimeError: Executor creation failed due to insufficient GPU memory.", None);
            parser.line(&[WORDS[word].as_bytes(), &bytes].concat(), None);
            parser.line(format!("{tail}: {}{tail}", WORDS[word]).as_bytes(), Some(1));
            parser.line(format!("[{}{tail}]", WORDS[word]).as_bytes(), Some(1));
            parser.line(&bytes, None);
        }
        parser.report();
    }
}
