//! Every sign that a parser looks for reaches it: a line with it, as the engine writes it, goes
//! through the carrier, the filter and the parser, and the report is another one.

use crate::engine::{EngineId, parser_of};

/// The facts of a log, in one text.
fn summary(engine: EngineId, lines: &[&str]) -> String {
    let mut parser = parser_of(engine);
    lines.iter().for_each(|l| parser.line(l.as_bytes(), None));
    let (cause, ready) = (parser.root_cause(), parser.ready());
    format!("{:?} {cause:?} {ready}", parser.report())
}

/// Checks that every sign but those `unseen` is in a line without which its log has other facts.
fn all_reach(engine: EngineId, unseen: &[&str], logs: &[&[&str]]) {
    let mut wrong = Vec::new();
    let mut effective = Vec::new();
    for log in logs.concat() {
        let lines: Vec<&str> = log.split('\n').collect();
        let all = summary(engine, &lines);
        let before = effective.len();
        for (i, line) in lines.iter().enumerate() {
            let without = [&lines[..i], &lines[i + 1..]].concat();
            if summary(engine, &without) != all {
                effective.push(*line);
            }
        }
        if effective.len() == before {
            wrong.push(format!("changes nothing: {log}"));
        }
    }
    for sign in (engine.log_signs)() {
        if !unseen.contains(&sign) && !effective.iter().any(|line| line.contains(sign)) {
            wrong.push(format!("reaches nothing: {sign}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_sign_of_vllm() {
    all_reach(EngineId::Vllm, &[], &[VLLM, TORCH]);
}

/// A logged request is read so that its text yields no fact.
#[test]
fn every_sign_of_sglang() {
    all_reach(
        EngineId::Sglang,
        &["Receive: ", "Finish: "],
        &[SGLANG, TORCH],
    );
}

#[test]
fn every_sign_of_llama_cpp() {
    all_reach(EngineId::LlamaCpp, &[], &[LLAMA_CPP, LLAMA_CPP_TROUBLE]);
}

#[test]
fn every_sign_of_tgi() {
    all_reach(EngineId::Tgi, &[], &[TGI, TORCH]);
}

#[test]
fn every_sign_of_tensorrt_llm() {
    all_reach(EngineId::TensorRtLlm, &[], &[TENSORRT_LLM, TORCH]);
}

/// Ollama reports by its own lines when a runner starts, and which build it is of.
#[test]
fn every_sign_of_ollama() {
    let builds = |log: &&&str| !log.contains("build");
    let runner: Vec<&str> = LLAMA_CPP.iter().filter(builds).copied().collect();
    all_reach(
        EngineId::Ollama,
        &["build_info: ", "build: ", "build = "],
        &[OLLAMA, LLAMA_CPP_TROUBLE, &runner],
    );
}

#[test]
fn every_sign_of_transformers() {
    all_reach(EngineId::Transformers, &[], &[TRANSFORMERS, TORCH]);
}

/// Lacks of memory in the words of PyTorch and the libraries below it.
const TORCH: &[&str] = &[
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.",
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: HIP error: out of memory",
    "RuntimeError: Allocation on device 0 would exceed allowed memory. (out of memory)",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes.",
    "  what():  std::bad_alloc",
    "OSError: [Errno 12] Cannot allocate memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
];

const VLLM: &[&str] = &[
    "INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.30.0",
    "INFO 01-02 03:04:05 [api_server.py:1] non-default args: {'model': 'org/m'}",
    "INFO 01-02 03:04:05 api_server.py:1] args: Namespace(model='org/m', block_size=16)",
    "INFO 01-02 03:04:05 [core.py:1] Initializing a V1 LLM engine (v0.30.0) with config: model='org/m'",
    "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Starting to load model org/m...",
    "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Loading model from scratch...",
    "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Model loading took 1.25 GiB and 2.5 seconds",
    "INFO 01-02 03:04:05 model_runner.py:1] Loading model weights took 1.25 GB",
    "INFO 01-02 03:04:05 hpu_model_runner.py:1] Loading model weights took in total 1.25 GiB of device memory (1.25 GiB/94.62 GiB used)",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB",
    "model weights take 1.25GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 0.50GiB; the rest of the memory reserved for KV Cache is 4.00GiB.",
    "INFO 01-02 03:04:05 worker.py:1] the current vLLM instance can use total_gpu_memory (23.50GiB) x gpu_memory_utilization (0.90) = 21.15GiB",
    "INFO 01-02 03:04:05 worker.py:1] Memory profiling results: total_gpu_memory=23.50GiB initial_memory_usage=1.00GiB peak_torch_memory=3.00GiB memory_usage_post_profile=1.25GiB non_torch_memory=0.25GiB kv_cache_size=17.00GiB gpu_memory_utilization=0.90",
    "INFO 01-02 03:04:05 xpu_worker.py:1] After memory profiling run, peak memory usage is 4096.00 MB,torch mem is 3584.00 MB, non-torch mem is 512.00 MB, free gpu memory is 8192.00 MB",
    "INFO 01-02 03:04:05 hpu_worker.py:1] Model profiling run took 6.50 GiB of device memory (16.00 GiB/94.62 GiB used)",
    "INFO 01-02 03:04:05 [cpu_worker.py:1] Auto set (2.00/16.00) GiB for KV cache on node 0, with 8.00 GiB requested",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Initial free memory 20.00 GiB, reserved 4.00 GiB memory for KV Cache as specified by kv_cache_memory_bytes config",
    "INFO 01-02 03:04:05 [kv_cache_utils.py:1] GPU KV cache size: 20,000 tokens",
    "INFO 01-02 03:04:05 executor_base.py:1] # cuda blocks: 3333, # CPU blocks: 512",
    "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Graph capturing finished in 4 secs, took 0.50 GiB",
    // What follows the pool's allocation counts below a profile.
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB\nINFO 01-02 03:04:06 [cuda_graph.py:1] Capturing CUDA graph shapes: [1, 2]",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB\nINFO 01-02 03:04:06 [model_runner.py:1] Capturing cudagraphs for decoding. This may lead to unexpected consequences",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB\nINFO 01-02 03:04:06 [core.py:1] init engine (profile, create kv cache, warmup model) took 8.0 seconds",
    "DEBUG 01-02 03:04:05 [gpu_worker.py:1] Memory profiling takes 1.0 seconds. Total non KV cache memory: 1.5GiB; torch peak memory increase: 0.2GiB; non-torch forward increase memory: 0.1GiB; weights memory: 1.2GiB.",
    "DEBUG 01-02 03:04:05 [gpu_worker.py:1] total consumed (from mem_get_info): 1.5 GiB",
    "DEBUG 01-02 03:04:05 [gpu_worker.py:1] Initial free memory: 22.00 GiB; Requested memory: 0.90 (util), 21.15 GiB; Free memory after profiling: 20.00 GiB",
    "DEBUG 01-02 03:04:05 [gpu_worker.py:1] requested GPU memory: 21.15 GiB",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Peak GPU memory after loading weights: 1.50 GiB",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Free memory on device (22.00/23.50 GiB) on startup. Desired GPU memory utilization is (0.9, 21.15 GiB). Actual usage is 1.25 GiB for weight, 0.50 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.10 GiB for CUDAGraph memory.",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Free memory on device (22.00/23.50 GiB) on startup. Actual usage is 1.75 GiB for consumed memory.",
    "ValueError: Free memory on device cuda:0 (3.00/23.50 GiB) on startup is less than desired GPU memory utilization (0.9, 21.15 GiB).",
    "ValueError: Available memory on node 0 (3.00/16.00 GiB) on startup is less than desired CPU memory utilization (0.9, 14.40 GiB).",
    "ValueError: Available memory on node 0 (3.00/16.00 GiB) on kv cache allocation is less than requested memory for kv (8.00 GiB).",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] The current --gpu-memory-utilization=0.90 is too high",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] To keep the pool, increase --gpu-memory-utilization from 0.90 to 0.95",
    "INFO 01-02 03:04:05 [worker.py:1] 21.15 GiB usable (gpu_memory_utilization=0.90)",
    "INFO 01-02 03:04:05 [hpu_worker.py:1] Free device memory: 80.00 GiB, 72.00 GiB gpu_memory_utilization=0.90, 70.00 GiB reserved for KV cache",
    "INFO 01-02 03:04:05 [config.py:1] Setting kv cache block size to 64 for this backend.",
    "INFO 01-02 03:04:05 [cuda.py:1] Forcing kv cache block size to 64",
    "INFO 01-02 03:04:05 [hpu.py:1] Block size is set to 128",
    "INFO 01-02 03:04:05 [tpu.py:1] The optimal block size is 128",
    "WARNING 01-02 03:04:05 [cuda.py:1] use --block-size 64 with this backend",
    "ERROR 01-02 03:04:05 [core.py:1] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    "ValueError: The model's max seq len (32000) is larger than the maximum number of tokens that can be stored in KV cache (9000).",
    "ValueError: To serve at least one request with the model's max seq len (32000), (1.10 GiB KV cache is needed, which is larger than the available KV cache memory (0.50 GiB).",
    "ValueError: The worker already uses 6.00 GiB (model weights and runtime), more than the 4.00 GiB of CPU memory reserved for it.",
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
    "RuntimeError: memory allocation failed with OOM on device 0",
    "ValueError: Out of memory! No free blocks are available.",
    "AssertionError: Error in memory profiling. Initial free memory 20.00 GiB, current free memory 21.00 GiB.",
    "RuntimeError: Cannot find any safetensors model weights with `org/m`",
    "RuntimeError: Cannot find any model weights with `org/m`",
    "ValueError: User-specified max_model_len (9000) is greater than the derived max_model_len",
    "LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision",
    "OSError: org/m is not a local folder and is not a valid model identifier",
    "vllm: error: unrecognized arguments: --no-such",
    "INFO 01-02 03:04:05 api_server.py:1] vLLM server version 0.6.0, serving model org/m",
    "INFO:     Started server process [7]\nINFO 01-02 03:04:05 [core.py:1] init engine (profile, create kv cache, warmup model) took 8.0 seconds",
    "       █  model   org/m",
    "INFO 01-02 03:04:05 [config.py:1] Resolved model: org/m",
    "INFO 01-02 03:04:05 [__init__.py:1] Automatically detected platform cuda.",
    "INFO 01-02 03:04:05 [engine.py:1] Initializing a V0 LLM engine (v0.8.5) with config: model='org/m'",
    "INFO 01-02 03:04:05 [engine.py:1] Initializing an LLM engine (v0.6.0) with config: model='org/m'",
    "INFO 01-02 03:04:05 metrics.py:1] Avg prompt throughput: 0.0 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 1.5%, CPU KV cache usage: 0.0%.",
    "INFO 01-02 03:04:05 [loggers.py:1] Engine 000: Running: 1 reqs, GPU KV cache usage: 1.5%, Preemptions: 3",
    "INFO 01-02 03:04:05 [flash_attn.py:1] Using FlashAttention version 3",
    "INFO 01-02 03:04:05 [parallel_state.py:1] rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 1, EP rank 1",
    "INFO 01-02 03:04:05 [nvfp4.py:1] x",
    "INFO 01-02 03:04:05 [a.py:1] Selected SomeKernel for Fp8OnlineLinearMethod",
    "INFO 01-02 03:04:05 [cache.py:1] Using fp8 data type to store kv cache. It reduces the memory footprint",
    "INFO 01-02 03:04:05 [mla.py:1] Using DeepSeek's fp8_ds_mla KV cache format.",
    "[2031-01-02 03:04:05] vllm serve org/m --tensor-parallel-size 2",
    "INFO 01-02 03:04:05 [default_loader.py:1] Loading weights took 3.5 seconds",
    "INFO:     Application startup complete.",
    "INFO:     Shutting down",
    "INFO 01-02 03:04:05 [launcher.py:1] [shutdown] hut",
    "INFO 01-02 03:04:05 [core.py:1] SIGTERM received",
    "INFO 01-02 03:04:05 [weight_utils.py:1] Checkpoint size: 2.50 GiB",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Sleep mode freed 2.00 GiB memory, 1.00 GiB memory is still in use.",
    "INFO 01-02 03:04:05 [cumem.py:1] CuMemAllocator: sleep freed 20.00 GiB memory in total, of which 15.25 GiB is backed up in CPU and the rest 4.75 GiB is discarded directly.",
    "INFO 01-02 03:04:05 [utils.py:1] Weights are held outside this process: of the 21.15 GiB utilization budget, 15.25 GiB is externally held and 5.90 GiB remains for the engine's own allocations.",
    "INFO 01-02 03:04:05 [daemon.py:1] Weight cache target daemon rank 0 loaded model (15.25 GiB allocated, 15.50 GiB reserved)",
    "INFO 01-02 03:04:05 [worker.py:1] SimpleCPUOffloadWorker [CPU]: 32 tensors, 4096 CPU blocks (8.00 GB)",
    "INFO 01-02 03:04:05 [shared_offload_region.py:1] Created mmap file /dev/shm/vllm_offload_1.mmap (8.59 GB)",
    "[2031-01-02 03:04:05,000] LMCache INFO: LMCache Configuration: {'chunk_size': 256, 'local_cpu': True, 'max_local_cpu_size': '5.0 GB', 'max_local_disk_size': '0.0 GB'} (config.py:1:lmcache.v1.config)",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Free memory on device (22.00/23.50 GiB) on startup. Replace the config with `--kv-cache-memory=1000` to fit into requested memory, or `--kv-cache-memory=2000` to fully utilize gpu memory. Current kv cache memory in use is 900 bytes.",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Applying persisted startup plan: kv_cache_memory_bytes=1073741824 (1.00 GiB)",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] KV cache memory reduced to 1.50 GiB",
    "INFO 01-02 03:04:05 [cpu_worker.py:1] Auto set (2.00/16.00) GiB for KV cache on node 0, with 8.00 GiB requested memory, 6.00 GiB memory was consumed by non-kv usages",
    "WARNING 01-02 03:04:05 [cpu.py:1] Environment variable VLLM_CPU_KVCACHE_SPACE (GiB) for CPU backend is not set, using 4 by default.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB",
    "INFO 01-02 03:04:05 xpu_worker.py:1] Before memory profiling run, total GPU memory: 16384.00 MB, model load takes 2048.00 MB, free gpu memory is 8192.00 MB",
    "INFO 01-02 03:04:05 [kv_cache_utils.py:1] Maximum concurrency for 4,096 tokens per request: 4.88x",
    "INFO 01-02 03:04:05 [utils.py:1] Engine 0: after num_gpu_blocks is: 3333",
    "INFO 01-02 03:04:05 [kv_cache_utils.py:1] Overriding num_gpu_blocks=3333 with num_gpu_blocks_override=512",
    "WARNING 01-02 03:04:05 [kv_cache_utils.py:1] Add 2 padding layers, may waste at most 6.67% KV cache memory",
    "INFO 01-02 03:04:05 [config.py:1] Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
    "INFO 01-02 03:04:05 [config.py:1] Padding mamba page size by 1.49% to ensure that the sizes are equal.",
    "INFO 01-02 03:04:05 [kv_cache_utils.py:1] Multiplying the GPU KV cache size by the dcp_world_size 2.",
    "ValueError: To serve at least one request with the models's max seq len (32000), (1.10 GB KV cache is needed, which is larger than the available KV cache memory (0.50 GB). Based on the available memory, the estimated maximum model length is 9000.",
    "INFO 01-02 03:04:05 [kv_cache_utils.py:1] Auto-fit max_model_len: reduced from 32000 to 9000",
    "INFO 01-02 03:04:05 [model.py:1] Using max model len 4096",
    "INFO 01-02 03:04:05 [scheduler.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] Estimated CUDA graph memory: 0.25 GiB total",
    "INFO 01-02 03:04:05 [gpu_worker.py:1] CUDA graph pool memory: 0.20 GiB (actual), 0.25 GiB (estimated), difference: 0.05 GiB",
    "WARNING 01-02 03:04:05 scheduler.py:1] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption=1",
    "0, 8192 MiB",
    "WARNING 01-02 03:04:05 [fp8.py:1] Using KV cache scaling factor 1.0 for fp8_e4m3.",
    "WARNING 01-02 03:04:05 [decorators.py:1] Compiling model again due to a load failure from /c, reason: x",
    // What is missing behind it is the draft model's.
    "INFO 01-02 03:04:05 [a.py:1] non-default args: {'model': 'org/m', 'speculative_config': {'method': 'eagle'}}\nLoading safetensors checkpoint shards: 100% Completed | 1/1 [00:01<00:00]\nRuntimeError: Cannot find any model weights with `org/d`",
    "INFO 01-02 03:04:05 [a.py:1] non-default args: {'model': 'org/m', 'speculative_config': {'method': 'eagle'}}\nINFO 01-02 03:04:06 [b.py:1] Loading drafter model...\nRuntimeError: Cannot find any model weights with `org/d`",
    // A library that cannot be loaded explains what its use ends with.
    "WARNING 01-02 03:04:05 [a.py:1] Failed to import from vllm._C with ImportError(\"/lib/libc.so.6: version `GLIBC_2.38' not found (required by /vllm/_C.abi3.so)\")\nAttributeError: '_C' has no attribute 'silu_and_mul'",
    "WARNING 01-02 03:04:05 [a.py:1] Failed to import from vllm._C with ImportError('libcudart.so.13: cannot open shared object file: No such file or directory')\nAttributeError: '_C' has no attribute 'silu_and_mul'",
    "WARNING 01-02 03:04:05 [a.py:1] Failed to import from vllm._C with ImportError('/vllm/_C.abi3.so: undefined symbol: _ZN3c10')\nAttributeError: '_C' has no attribute 'silu_and_mul'",
];

const SGLANG: &[&str] = &[
    "[x] server_args=ServerArgs(model_path='org/m', tp_size=2)",
    "[x TP0] Init torch distributed ends. elapsed=1.00 s, mem usage=0.25 GB",
    "[x TP0] Memory baseline taken. mem usage=0.25 GB",
    "[x TP0] Load weight begin. avail mem=40.00 GB",
    "[x TP0] Load weight end. elapsed=3.00 s, type=X, dtype=torch.bfloat16, quant=fp8, avail mem=35.25 GB, mem usage=4.75 GB.",
    "[x TP0] Using KV cache dtype: torch.bfloat16",
    "[x TP0] KV Cache is allocated. #tokens: 70000, K size: 10.25 GB, V size: 10.50 GB",
    "[x TP0] KV Cache skipped (no-op pool). #tokens: 70000, KV size: 0.00 GB",
    "[x TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 4000, KV size: 12.00 GB, avail mem=6.00 GB",
    "[x TP0] SWAKVPool mem usage: 4.50 GB, swa size: 700, full size: 900",
    "[x TP0] Use sliding window memory pool. full_layer_tokens=900, swa_layer_tokens=700",
    "[x TP0] Mamba Cache is allocated. max_mamba_cache_size: 33, conv_state size: 0.25GB, ssm_state size: 1.50GB intermediate_ssm_state_cache size: 0.75GB intermediate_conv_window_cache size: 0.05GB \n[x TP0] GDN ReplaySSM ring buffers allocated (record_len=8, fold=True): d=0.250GB, k=0.125GB, g=0.010GB ",
    "[x TP0] max_total_tokens=9000 is larger than the profiled value 8000. Use the profiled value instead.",
    "[x TP0] DSV4 memory calculation: bytes_per_full_token=100.5, available_bytes=9.00 GB",
    "[x TP0] DSV4 pool sizes: full=100, swa=50",
    "[x TP0] Memory pool end. avail mem=14.25 GB",
    "[x TP0] max_total_num_tokens=70000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=32768, available_gpu_mem=9.50 GB",
    "[x TP0] max_total_num_tokens=70000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=32768, available_cpu_mem=9.50 GB",
    "[x TP0] Capture cuda graph begin. avail mem=14.00 GB",
    "[x TP0] Capture cuda graph begin. avail mem=14.00 GB\n[x TP0] Capture cuda graph bs [1, 2]\nCapturing batches (bs=1 avail_mem=13.50 GB): 100%|##########| 2/2 [00:02<00:00]\r[x TP0] Capture cuda graph end. Time elapsed: 2.00 s. mem usage=0.50 GB. avail mem=13.50 GB.",
    "[x] Allocating 2.00 GB host memory for hierarchical KV cache.",
    "[x] Allocating MHA hierarchical KV host pool: 720000 tokens, 106.17 GB host memory.",
    "[x] Allocating 0.54 GB host memory for DSA indexer (layout=layer_first).",
    "[x] Attention backend not specified. Use fa3 backend by default.",
    "[x] Attention backend forced to triton.",
    "[x] The server is fired up and ready to roll!",
    "[x TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.5",
    "[x TP0] Decode batch. #running-req: 1, #token: 700, token usage: 0.01, gen throughput (token/s): 9.00",
    "[x TP0] Prefill batch. #new-seq: 1, #new-token: 700, token usage: 0.02, #running-req: 0",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5.",
    "[x TP0] Prefill out of memory. Try to lower your batch size.",
    "[x TP0] Decode out of memory. Try to lower your batch size.",
    "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
    "[x] Gracefully exiting... Remaining number of requests 0.",
    "[x] SIGTERM received. signum=None",
    "[x] Received sigquit from a child process. It usually means the child failed.",
];

const LLAMA_CPP: &[&str] = &[
    "build_info: b6123-0abcdef",
    "build: 6001 (0abcdef) with cc for x86_64-linux-gnu",
    "main: build = 3001 (0abcdef)",
    "load_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "llama_new_context_with_model: KV self size  =  512.00 MiB, K (f16):  256.00 MiB, V (f16):  256.00 MiB",
    "llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB",
    "llama_kv_cache_init: kv_size = 4096, offload = 1, type_k = 'f16', n_layer = 32",
    "llama_context: n_ctx         = 4096",
    "llama_context: n_batch       = 2048",
    "llama_context: n_ubatch      = 512",
    "llama_context: n_seq_max     = 2",
    "llama_context: flash_attn    = auto",
    "llama_context: kv_unified    = true",
    "llama_context: constructing llama_context",
    "srv    load_model: prompt cache is enabled, size limit: 8192 MiB",
    "srv        update:  - cache state: 2 prompts, 413.352 MiB (limits: 8192.000 MiB, 8192 tokens, 24046 est)",
    "llama_model_loader: loaded meta data with 30 key-value pairs and 300 tensors from /m/x.gguf (version GGUF V3 (latest))",
    "load_tensors: loading model tensors, this can take a while... (mmap = true)",
    "llm_load_tensors: ggml ctx size =    0.25 MiB",
    "load_tensors: offloaded 33/33 layers to GPU",
    "  Device 0: NVIDIA X 1000, compute capability 8.9, VMM: yes",
    "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA X 1000) (0000:01:00.0) - 23552 MiB free",
    "print_info: file size   = 4.50 GiB (4.89 BPW)",
    "llm_load_print_meta: model size       = 4.50 GiB (4.89 BPW)",
    "llama_context: graph nodes  = 1000",
    "llama_context: graph splits = 2",
    "common_memory_breakdown_print: | memory breakdown [MiB] | total free self model context compute unaccounted |\ncommon_memory_breakdown_print: |   - CUDA0 (X 1000) | 8192 = 2048 + (4096 = 2048 + 1024 + 1024) + 2048 |",
    "common_params_fit_impl: projected to use 4096 MiB of device memory vs. 5000 MiB of free device memory",
    "srv  load_model: loading model '/m/x.gguf'",
    "srv  load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'false'",
    "main: model loaded",
    "main: server is listening on http://127.0.0.1:8080",
    "main: HTTP server listening on http://127.0.0.1:8080",
    "srv  update_slots: all slots are idle",
    "srv    operator(): cleaning up before exit...",
    "load_hparams: model size:         512.00 MiB",
    "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: NVIDIA X 1000, compute capability 8.9, VMM: yes",
    "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells\nllama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB",
    "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\nllama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB",
    "common_init_result: fitting params to device memory ...\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "common_init_result: fitting params to device memory ...\nllama_params_fit: successfully fit params to free device memory\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "common_init_result: fitting params to device memory ...\nllama_params_fit: failed to fit params to free device memory\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "common_init_result: fitting params to device memory ...\nllama_params_fit: fitting params to free memory took 1.50 seconds\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "srv  load_model: loading draft model '/m/d.gguf'\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "srv  load_model: creating MTP draft context against the target model\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: out of memory",
    "CUDA error: out of memory",
    "ROCm error: out of memory",
    "HIP error: out of memory",
    "MUSA error: out of memory",
    "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfHostMemory",
    "level zero: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "level zero: UR_RESULT_ERROR_OUT_OF_HOST_MEMORY",
    "ggml_metal: error: status: kIOGPUCommandBufferCallbackErrorOutOfMemory",
    "ggml_metal_graph_compute: error: Insufficient Memory (00000008)",
    "llama_context: failed to allocate compute buffers",
    "alloc_tensor_range: failed to allocate buffer of size 1073741824",
    "llama_model_load: failed to allocate backend buffer",
    "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
    "ggml_cann: insufficient memory (attempted to allocate 1024.00 MB)",
    "ggml_sycl: can't allocate 1073741824 Bytes of memory on device",
    "llama_mmap: mmap failed: Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
];

const LLAMA_CPP_TROUBLE: &[&str] = &[
    "llama_model_load: error loading model: unknown model architecture: 'x'",
    "llama_init_from_model: failed to create context with model '/m/x.gguf'",
    "common_init_from_params: failed to load model '/m/x.gguf'",
    "CUDA error: an illegal memory access was encountered",
    "/src/ggml.c:100: GGML_ASSERT(x) failed",
    "/src/ggml.c:100: GGML_ABORT",
    "terminate called after throwing an instance of 'std::runtime_error'",
    "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 1073741824\nsched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
    "ggml_gallocr_reserve_n: unable to allocate CUDA0 buffer",
    "decode: failed to find free space in the KV cache, retrying with smaller batch size",
    "update_slots: the KV cache is full",
];

const TGI: &[&str] = &[
    "2031-01-02T03:04:05Z  INFO text_generation_launcher: Args { model_id: \"org/m\", revision: Some(\"main\"), sharded: Some(true), num_shard: Some(2), quantize: Some(Fp8), speculate: Some(2), dtype: Some(BFloat16), kv_cache_dtype: Some(Fp8e5m2), trust_remote_code: false, max_concurrent_requests: 128, max_input_tokens: Some(100), max_input_length: Some(100), max_total_tokens: Some(200), max_batch_prefill_tokens: Some(300), max_batch_total_tokens: Some(400), max_batch_size: Some(5), cuda_graphs: Some([1, 2]), cuda_memory_fraction: 0.9, rope_scaling: Some(Linear), rope_factor: Some(2.0), disable_custom_kernels: false, enable_cuda_graphs: true, port: 80, prometheus_port: 9000 }",
    "Args {\n    model_id: \"org/m\",\n    num_shard: Some(\n        2,\n    ),\n}",
    r#"{"model_id":"org/m","model_dtype":"bfloat16","max_best_of":2,"version":"3.3.0"}"#,
    "INFO text_generation_router_v3: backends/v3/src/lib.rs:1: Warming up model",
    "INFO text_generation_launcher: Warming up TunableOp with batch 1",
    "INFO text_generation_launcher: PyTorch TunableOp is enabled. The warm-up takes a while",
    "INFO text_generation_router_v3: backends/v3/src/lib.rs:1: Setting max batch total tokens to 7000",
    "INFO text_generation_router: router/src/main.rs:1: Inferred max batch total tokens: 7000",
    "WARN text_generation_router: router/src/main.rs:1: Model does not support automatic max batch total tokens",
    "INFO text_generation_launcher: KV-cache blocks: 7000, size: 1",
    "INFO text_generation_launcher: Cuda Graphs are enabled for sizes [4, 2, 1]",
    "INFO text_generation_launcher: Cuda Graphs are disabled (CUDA_GRAPHS=[]).",
    "INFO text_generation_launcher: Using default cuda graphs [1, 2, 4]",
    "INFO text_generation_launcher: Using cuda graphs [1, 2]",
    "ERROR text_generation_launcher: Decode cuda graph warmup failed",
    "INFO text_generation_launcher: Free RAM before cuda graph 4 3.00GB\nINFO text_generation_launcher: Free RAM after cuda graphs 2.00GB",
    "INFO text_generation_launcher: Free memory 21.50GB , (real: 23.10GB",
    "INFO text_generation_launcher: Free memory on device hpu:0: 40.5 GiB used_for_graph: 2.5 GiB ratio:0.1",
    "INFO text_generation_launcher: Using Attention = flashinfer",
    "INFO text_generation_launcher: Using attention paged - Prefix caching true",
    "INFO text_generation_launcher: Using prefix caching = True",
    "INFO text_generation_launcher: Disabling prefix caching because of VLM model",
    "INFO text_generation_launcher: Using prefill chunking = True",
    "INFO text_generation_launcher: Using experimental prefill chunking = False",
    "INFO text_generation_router_v3: backends/v3/src/lib.rs:1: Using scheduler V3",
    "INFO text_generation_router: router/src/main.rs:1: Using backend V3",
    "INFO text_generation_router: router/src/server.rs:1: Using config Some(Llama)",
    "INFO text_generation_launcher: Default `max_batch_prefill_tokens` to 300",
    "INFO text_generation_launcher: Default `max_input_tokens` to 100",
    "INFO text_generation_launcher: Default `max_input_length` to 100",
    "INFO text_generation_launcher: Default `max_total_tokens` to 200",
    "INFO text_generation_router_v3: backends/v3/src/lib.rs:1: Maximum input tokens defaulted to 100",
    "INFO text_generation_router_v3: backends/v3/src/lib.rs:1: Maximum total tokens defaulted to 200",
    // One of these behind the capacity shows that the router went on.
    "INFO x: Setting max batch total tokens to 7000\nINFO text_generation_router: a.rs:1: Connected",
    "INFO x: Setting max batch total tokens to 7000\nINFO text_generation_router: a.rs:1: Model supports prefill chunking. Overwriting waiting_served_ratio",
    "INFO x: Setting max batch total tokens to 7000\nWARN text_generation_router: a.rs:1: Invalid hostname, defaulting to 0.0.0.0",
    "INFO text_generation_launcher: Sharding model on 2 processes",
    "INFO shard-manager: text_generation_launcher: Starting shard rank=0\nINFO text_generation_launcher: Using prefix caching = False",
    "INFO shard-manager: text_generation_launcher: Starting shard rank=0\nINFO text_generation_launcher: Detected system cuda",
    "INFO shard-manager: text_generation_launcher: Starting shard rank=0\nINFO text_generation_launcher: ROCm: using Flash Attention 2 Triton implementation.",
    "INFO text_generation_launcher: ROCm: using Flash Attention 2 Composable Kernel implementation.",
    "INFO shard-manager: text_generation_launcher: Shard ready in 3.5s rank=1\nINFO text_generation_launcher: Starting Webserver",
    "INFO text_generation_launcher: Server started at unix:///tmp/text-generation-server-0",
    "INFO text_generation_router: router/src/server.rs:1: Docker label: sha-0abc",
    "WARN text_generation_router: router/src/main.rs:1: no pipeline tag found for model org/m",
    "WARN text_generation_launcher: Unkown compute for card some-card",
    "WARN text_generation_launcher: Unknown compute for card some-card",
    "INFO warmup{max_input_length=Some(10) max_prefill_tokens=20 max_total_tokens=Some(30) max_batch_size=Some(4)}: text_generation_launcher: x",
    "INFO warmup{max_input_tokens=10 max_prefill_tokens=20}: text_generation_launcher: x",
    "ERROR text_generation_router_v3: x.rs:1: Server error: Not enough memory to handle 20 prefill tokens.",
    "ERROR text_generation_router_v3: x.rs:1: Server error: Not enough memory to handle `max_total_tokens=4096`",
    "Error: Backend(NotEnoughMemory(4096))",
    "Error: Backend(Warmup(Generation(\"x\")))",
    "thread 'main' panicked at 'Unable to warmup model: Generation(\"x\")', x.rs:1",
    "ERROR text_generation_router: x.rs:1: Unable to warmup model",
    "ERROR text_generation_launcher: Method Warmup encountered an error.",
    "ERROR text_generation_launcher: Method Prefill encountered an error.",
    "ERROR text_generation_launcher: Method Decode encountered an error.",
    "ERROR text_generation_launcher: Error when initializing model",
    "ERROR text_generation_router: x.rs:1: Server error: CANCELLED",
    "ERROR text_generation_launcher: Webserver Crashed",
    "ERROR shard-manager: text_generation_launcher: Shard complete standard error output:",
    "ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=0",
    "Error: WebserverFailed",
    "Error: ShardCannotStart",
    "Error: ShardFailed",
    "Error: DownloadError",
    "Error: WebServer(Axum(Os))",
    "Error: ArgumentValidation(\"x\")",
    "error: invalid value 'x' for '--dtype <DTYPE>'",
    "error: unexpected argument '--no-such' found",
    "error: the following required arguments were not provided:",
    "ValueError: unsupported model type",
    "text_generation_server.x.SomeException: y",
    "INFO text_generation_launcher: Shutting down shards",
    "INFO text_generation_router: x.rs:1: signal received, starting graceful shutdown",
];

const TENSORRT_LLM: &[&str] = &[
    "[TensorRT-LLM] TensorRT-LLM version: 1.2.0",
    "[TensorRT-LLM][INFO] TensorRT-LLM Version: 1.2.0",
    "[TensorRT-LLM][INFO] Engine version 0.17.0 found in the config file, assuming engine(s) built by new builder API.",
    "[TRT-LLM] [I] Using LLM with PyTorch backend",
    "[TRT-LLM] [I] TP Size: 2",
    "[TRT-LLM] [I] PP Size: 2",
    "[TensorRT-LLM][INFO] MPI size: 2, MPI local size: 2, rank: 0",
    "[TensorRT-LLM][INFO] Rank 1 is using GPU 1",
    "[TRT-LLM] [I] max_seq_len=4096, max_num_requests=64, max_num_tokens=8192, max_batch_size=64",
    "[TensorRT-LLM][WARNING] maxSequenceLen (8192) is larger than what the pool holds and is reduced to 4096",
    "[TensorRT-LLM][INFO] TRTGptModel maxNumSequences: 64",
    "[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 64",
    "[TensorRT-LLM][INFO] TRTGptModel maxSequenceLen: 4096",
    "[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 8192",
    "[TensorRT-LLM][INFO] TRTGptModel maxBeamWidth: 1",
    "[TRT-LLM] [I] PyTorchConfig(attn_backend='TRTLLM', use_cuda_graph=True, cuda_graph_batch_sizes=[1, 2], kv_cache_dtype='fp8')",
    "[TRT-LLM] [I] LLM Args: attn_backend='TRTLLM', use_cuda_graph=False",
    r#"[{"gpuMemUsage": 1073741824, "cpuMemUsage": 1073741824, "pinnedMemUsage": 1073741824, "kvCacheStats": {"maxNumBlocks": 100, "tokensPerBlock": 32, "freeNumBlocks": 90, "usedNumBlocks": 10}}]"#,
    "[TRT-LLM] [I] Loading weights concurrently: 10%",
    "Loading weights: 10%|#         | 30/300",
    "[TRT-LLM] [I] Loading safetensors weights in parallel: 0%",
    "[TensorRT-LLM][INFO] Loaded engine size: 2048 MiB",
    "[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in engine deserialization: CPU +0, GPU +2048, now: CPU 0, GPU 2048 (MiB)",
    "[TensorRT-LLM][INFO] [MemUsageChange] TensorRT-managed allocation in IExecutionContext creation: CPU +0, GPU +10, now: CPU 0, GPU 2058 (MiB)",
    "[TensorRT-LLM][INFO] [MemUsageChange] Init CUDA: CPU +1, GPU +0, now: CPU 10, GPU 500 (MiB)",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 512.00 MiB for execution context memory.",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 40.00 MB GPU memory for runtime buffers.",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 30.00 MB GPU memory for decoder.",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 2.00 GiB for max tokens in paged KV cache (20000).",
    "[TRT] [I] Total Activation Memory: 1073741824 bytes",
    "[TRT] [I] Total Weights Memory: 1073741824 bytes",
    "[TRT] [I] Total Scratch Memory: 1073741824 bytes",
    "[TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 2.00 GiB",
    "[TRT-LLM] [I] Memory used after loading model weights (outside torch) in memory usage profiling: 1.00 GiB",
    "[TRT-LLM] [I] Memory dynamically allocated during inference (inside torch) in memory usage profiling: 0.50 GiB",
    "[TRT-LLM] [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 0.75 GiB",
    "[TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 4.00 GiB, available KV cache memory when calculating max tokens: 8.00 GiB, fraction is set 0.9, kv size is 65536. device total memory 16.00 GiB, , tmp kv_mem 0.25 GiB",
    "[TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 4.00 GiB, kv size per token is 65536, temporary kv cache memory during profiling 0.25 GiB",
    "[TRT-LLM] [I] Estimated max memory in KV cache : 8.00 GiB",
    "[TRT-LLM] [I] Estimated max memory in KV cache: 8.00 GiB",
    "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 16.00 GiB, available: 8.00 GiB",
    "[TRT-LLM] [W] Both free_gpu_memory_fraction and max_tokens are set (to 0.9 and 5000 with free memory 8.00 of total memory 16.00, respectively). The smaller memory will be used.",
    "[TRT-LLM] [I] Setting PyTorch memory fraction to 0.5 (8.00 GiB)",
    "[TRT-LLM] [I] Use 4.50 GB for model weights.",
    "[TRT-LLM] [I] Rank 1 uses 4.50 GB for model weights.",
    "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 128 [window size=4096], tokens per block=32, primary blocks=625, secondary blocks=10, max sequence length=4096",
    "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 625",
    "[TensorRT-LLM][INFO] Number of blocks in KV cache secondary pool: 10, onboard blocks to primary memory before reuse: true",
    "[TensorRT-LLM][INFO] Number of tokens per block: 32.",
    "[TensorRT-LLM][INFO] Allocate 2147483648 bytes for k/v cache. ",
    "[TensorRT-LLM][INFO] Using 20000 tokens in paged KV cache.",
    "[TensorRT-LLM][INFO] Using 20000 total tokens in paged KV cache, and 64 blocks per sequence",
    "[TRT-LLM] [I] Draft KV cache is made\n[TRT-LLM] [I] Primary/secondary blocks for window sizes set to {4096: (100, 0)} for estimation dry run",
    "[TRT-LLM] [I] Creating CUDA graph instances for 2 batch sizes.",
    "[TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=2",
    "[TRT-LLM] [I] Run generation only CUDA graph warmup for batch size=2",
    "[TRT-LLM] [I] Run piecewise CUDA graph warmup for num tokens=64",
    "[TRT-LLM] [I] Run piecewise CUDA graph warmup for batch size=64",
    "[TRT-LLM] [I] Skipping CUDA graph warmup for batch size=32, draft_len=4: not enough KV cache space.",
    "[TRT-LLM] [I] Dynamic draft length enabled for one-model path. Capturing 12 graphs",
    // Of speculation that ends at a number of requests graphs without a draft are missed.
    "[TRT-LLM] [I] speculative_config: max_concurrency=4\n[TRT-LLM] [I] Creating CUDA graph instances for 1 batch sizes.\n[TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=2, draft_len=4",
    "[TRT-LLM] [I] {'max_concurrency': 4}\n[TRT-LLM] [I] Creating CUDA graph instances for 1 batch sizes.\n[TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=2, draft_len=4",
    "[TRT-LLM] [I] max_concurrency: 4\n[TRT-LLM] [I] Creating CUDA graph instances for 1 batch sizes.\n[TRT-LLM] [I] Run generation-only CUDA graph warmup for batch size=2, draft_len=4",
    "INFO:     Application startup complete.",
    "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)",
    "I0102 03:04:05.000000 1 model_lifecycle.cc:849] \"successfully loaded 'tensorrt_llm'\"",
    "INFO:     Shutting down",
    "[TRT-LLM] [E] Executor creation failed due to insufficient GPU memory.\nThe following component could not be created: KV cache\nTotal GPU memory (GiB): 16.00\nFree GPU memory before component creation attempt (GiB): 2.00\nPreviously created components and free GPU memory before/after creation (GiB):\nModel: 15.00 / 2.00",
    "[TensorRT-LLM][ERROR] [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mMemPool->getPool(), mCudaStream->get()): out of memory",
    "[TRT] [E] 1: Error Code 1: Cuda Runtime (out of memory)",
    "[TRT] [E] Requested amount of GPU memory (1073741824 bytes) could not be allocated.",
    "[TRT-LLM] [E] Executor creation failed with NCCL error",
    "[TensorRT-LLM][ERROR] Assertion failed",
    "[TRT-LLM] [E] Executor worker initialization error: Traceback",
    "[TRT-LLM] [E] Failed to initialize executor on rank 0: x",
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
    "RuntimeError: Executor worker died during initialization",
    "ValueError: x",
    "tensorrt_llm.x.SomeException: y",
];

const OLLAMA: &[&str] = &[
    "[GIN] 2031/01/02 - 03:04:05 | 200 | 1.5ms | 192.0.2.7 | POST \"/api/chat\"\nload_tensors:        CUDA0 model buffer size =  1000.00 MiB\n[GIN] 2031/01/02 - 03:04:05 | 200 | 1.5ms | 192.0.2.7 | POST \"/api/chat\"",
    r#"time=2031-01-02T03:04:05Z level=INFO source=routes.go:1 msg="Listening on [::]:11434 (version 0.33.0)""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=types.go:1 msg="inference compute" id=GPU-1 library=cuda compute=8.9 name=CUDA0 description="X 1000" total="16.0 GiB" available="15.0 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=routes.go:1 msg="vram-based default context" total_vram="16.0 GiB" default_num_ctx=4096"#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=server.go:1 msg="system memory" total="64.0 GiB" free="60.0 GiB" free_swap="1.0 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=server.go:1 msg=offload library=cuda layers.requested=-1 layers.model=33 layers.offload=33 memory.available="[15.0 GiB]" memory.required.full="6.0 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=server.go:1 msg="offload to cuda" layers.model=33 layers.offload=33"#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=server.go:1 msg="starting llama server" cmd="/bin/ollama runner --model /m/blob --ctx-size 4096 --batch-size 512 --n-gpu-layers 33 --parallel 1""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=server.go:1 msg="starting runner" cmd="/bin/ollama runner --port 4000""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=device.go:1 msg="model weights" device=CUDA0 size="4.0 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=device.go:1 msg="kv cache" device=CUDA0 size="1.0 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=device.go:1 msg="compute graph" device=CUDA0 size="0.5 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=device.go:1 msg="total memory" size="5.5 GiB""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=runner.go:1 msg=load request="{Operation:commit Parallel:1 BatchSize:512 KvSize:4096 KvCacheType:q8_0}""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=ggml.go:1 msg="offloaded 33/33 layers to GPU""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=server.go:1 msg="llama runner started in 1.50 seconds""#,
    r#"time=2031-01-02T03:04:05Z level=WARN source=server.go:1 msg="no per-device buffer sizes were parsed""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=sched.go:1 msg="Load failed" model=/m/blob error="model requires more system memory (5.6 GiB) than is available (3.2 GiB)""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=sched.go:1 msg="Load failed" model=/m/blob error="llama runner process has terminated: cudaMalloc failed: out of memory""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=sched.go:1 msg="Load failed" model=/m/blob error="unable to allocate CUDA0 buffer""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=sched.go:1 msg="Load failed" model=/m/blob error="failed to allocate memory""#,
    r#"time=2031-01-02T03:04:05Z level=INFO source=sched.go:1 msg="Load failed" model=/m/blob error="unknown model architecture""#,
    r#"time=2031-01-02T03:04:05Z level=ERROR source=server.go:1 msg="llama runner terminated" error="exit status 2""#,
    "Error: model requires more system memory (5.6 GiB) than is available (3.2 GiB)",
];

const TRANSFORMERS: &[&str] = &[
    "plimsoll-probe phase=start python=3.12",
    "plimsoll-probe phase=load transformers=5.1.0",
    "plimsoll-probe phase=loaded dtype=bfloat16",
    "plimsoll-probe phase=warmup",
    "plimsoll-probe phase=done",
    "plimsoll-probe error kind=oom OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "plimsoll-probe error kind=model `/m` cannot be loaded: x",
    "INFO:     Application startup complete.",
    "INFO: Memory available for cache allocation: 2048 MB",
    "INFO: Paged cache initialized: self.max_batch_tokens = 512, self.num_blocks = 100",
    "MemoryError: Memory footprint 2.00 GB is more than available memory 1.00 GB",
    "AssertionError",
    "transformers.x.SomeException: y",
];
