//! Ollama's log, in lines written after its own format strings.

use crate::engine::EngineId;
use crate::engine::facts::{EngineStep, LogReport};
use crate::engine::log::laws_tests::{assert_values, hold, report_of, shown};

fn report(log: &str) -> LogReport {
    report_of(EngineId::Ollama, log.as_bytes())
}

const START: &str = r#"time=2031-01-02T03:04:05Z level=INFO source=routes.go:1 msg="Listening on [::]:11434 (version 0.13.5)"
time=2031-01-02T03:04:05Z level=INFO source=types.go:1 msg="inference compute" id=GPU-1 library=CUDA compute=8.9 name=CUDA0 total="24.0 GiB" available="22.5 GiB"
time=2031-01-02T03:04:05Z level=INFO source=routes.go:1 msg="vram-based default context" total_vram="24.0 GiB" default_num_ctx=32768
"#;

const NEW_ENGINE: &str = r#"time=2031-01-02T03:05:00Z level=INFO source=server.go:1 msg="starting runner" cmd="/bin/ollama runner --ollama-engine --model /root/.ollama/models/blobs/sha256-00 --port 1"
time=2031-01-02T03:05:01Z level=INFO source=runner.go:1 msg=load request="{Operation:commit Parallel:1 BatchSize:512 FlashAttention:true KvSize:8192 KvCacheType:q8_0 NumThreads:8}"
time=2031-01-02T03:05:02Z level=INFO source=ggml.go:1 msg="offloaded 29/29 layers to GPU"
time=2031-01-02T03:05:02Z level=INFO source=device.go:1 msg="model weights" device=CUDA0 size="4.5 GiB"
time=2031-01-02T03:05:02Z level=INFO source=device.go:1 msg="model weights" device=CPU size="512.0 MiB"
time=2031-01-02T03:05:02Z level=INFO source=device.go:1 msg="kv cache" device=CUDA0 size="1.5 GiB"
time=2031-01-02T03:05:02Z level=INFO source=device.go:1 msg="compute graph" device=CUDA0 size="256.0 MiB"
time=2031-01-02T03:05:02Z level=INFO source=device.go:1 msg="total memory" size="6.8 GiB"
time=2031-01-02T03:05:04Z level=INFO source=server.go:1 msg="llama runner started in 3.25 seconds"
"#;

#[test]
fn the_new_engine() {
    let r = report(&format!("{START}{NEW_ENGINE}"));
    assert_values(
        &r,
        &[
            ("weights_gib", "CPU 0.5, CUDA0 4.5"),
            ("kv_cache_gib", "CUDA0 1.5"),
            ("activation_peak_gib", "CUDA0 0.25"),
            ("total_memory_gib", "6.8"),
            ("layers_offloaded", "29/29"),
            ("n_ctx", "8192"),
            ("kv_cache_tokens", "8192"),
            ("kv_cache_dtype", "q8_0"),
            ("load_seconds", "3.25"),
            ("default_num_ctx", "32768"),
            ("oom", "false"),
            (
                "devices",
                "available_gib 22.5, compute 8.9, id GPU-1, library CUDA, name CUDA0, total_gib 24",
            ),
        ],
    );
    assert_eq!(r.engine_version.as_deref(), Some("0.13.5"));
    let steps: Vec<EngineStep> = r.steps.iter().map(|m| m.step).collect();
    assert_eq!(
        steps,
        [
            EngineStep::Started,
            EngineStep::LoadingWeights,
            EngineStep::KvCacheAllocated,
            EngineStep::Ready
        ]
    );
}

#[test]
fn laws() {
    hold(
        EngineId::Ollama,
        &format!("{START}{NEW_ENGINE}{OLD_RUNNER}"),
    );
}

const OLD_RUNNER: &str = r#"time=2031-01-02T03:06:00Z level=INFO source=memory.go:1 msg="offload to cuda" layers.requested=-1 layers.model=33 layers.offload=20 layers.split=10,10 memory.available="[8.0 GiB 7.5 GiB]" memory.required.full="20.0 GiB" memory.required.partial="15.0 GiB" memory.required.kv="512.0 MiB" memory.required.allocations="[7.5 GiB 7.5 GiB]" memory.weights.total="12.0 GiB" memory.graph.full="1.0 GiB" memory.graph.partial="2.0 GiB"
time=2031-01-02T03:06:01Z level=INFO source=server.go:1 msg="starting llama server" cmd="/bin/runner --model /x --ctx-size 2048 --batch-size 512 --n-gpu-layers 20 --parallel 1"
llm_load_tensors: offloaded 20/33 layers to GPU
llm_load_tensors:        CPU buffer size =  4096.00 MiB
llm_load_tensors:      CUDA0 buffer size =  2048.00 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =   256.00 MiB
llama_new_context_with_model: KV self size  =  256.00 MiB, K (f16):  128.00 MiB, V (f16):  128.00 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =   512.00 MiB
time=2031-01-02T03:06:09Z level=INFO source=server.go:1 msg="llama runner started in 8.00 seconds"
"#;

#[test]
fn each_load_replaces_the_one_before() {
    let r = report(&format!("{START}{NEW_ENGINE}{OLD_RUNNER}"));
    assert_values(
        &r,
        &[
            ("weights_gib", "CPU 4, CUDA0 2"),
            ("kv_cache_gib", "CUDA0 0.25"),
            ("activation_peak_gib", "CUDA0 0.5"),
            ("layers_offloaded", "20/33"),
            ("n_ctx", "2048"),
            ("n_gpu_layers", "20"),
            ("model_loads", "2"),
            ("default_num_ctx", "32768"),
        ],
    );
    // Of the load before.
    assert_eq!(shown(&r, "total_memory_gib"), None);
    let estimate = shown(&r, "estimate").unwrap();
    for part in [
        "allocations_gib 7.5, 7.5",
        "kv_gib 0.5",
        "layers_model 33",
        "layers_offload 20",
        "layers_split 10,10",
        "required_partial_gib 15",
        "weights_gib 12",
    ] {
        assert!(estimate.contains(part), "{part}: {estimate}");
    }
    // An estimate is no allocation.
    let r = report(OLD_RUNNER.lines().next().unwrap());
    assert_eq!(
        r.facts.keys().map(|k| k.name()).collect::<Vec<_>>(),
        ["estimate"]
    );
}

#[test]
fn a_load_counts_without_the_line_that_starts_it() {
    let headless = |log: &str| {
        let lines = log.lines().filter(|l| !l.contains("msg=\"starting "));
        lines.map(|l| format!("{l}\n")).collect::<String>()
    };
    let (one, two) = (headless(NEW_ENGINE), headless(OLD_RUNNER));
    for log in [
        format!("{one}{OLD_RUNNER}"),
        format!("{NEW_ENGINE}{two}"),
        format!("{one}{two}"),
        format!("{two}{two}"),
        format!("{two}{NEW_ENGINE}"),
    ] {
        assert_values(&report(&log), &[("model_loads", "2")]);
    }
    // Of the second nothing but its weights: nothing of the first is left.
    let weights: Vec<&str> = two.lines().skip(1).take(3).collect();
    let r = report(&format!("{START}{NEW_ENGINE}{}", weights.join("\n")));
    assert_values(
        &r,
        &[("model_loads", "2"), ("weights_gib", "CPU 4, CUDA0 2")],
    );
    for key in ["load_seconds", "oom", "total_memory_gib"] {
        assert_eq!(shown(&r, key), None, "{key}");
    }
    // A model that is closed begins no load.
    let close = r#"time=x level=INFO source=runner.go:1 msg=load request="{Operation:close Parallel:0 BatchSize:0 KvSize:0 KvCacheType: NumThreads:0}""#;
    let r = report(&format!("{NEW_ENGINE}{close}"));
    assert_values(&r, &[("model_loads", "1"), ("load_seconds", "3.25")]);
}

#[test]
fn a_load_that_lacked_memory_and_one_that_did_not() {
    let failed = format!(
        "{}\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory\n",
        OLD_RUNNER.lines().nth(1).unwrap()
    );
    assert_values(&report(&failed), &[("oom", "true")]);
    let codes =
        |r: &LogReport| -> Vec<String> { r.findings.iter().map(|f| f.code.clone()).collect() };
    let r = report(&format!("{failed}{OLD_RUNNER}"));
    assert_values(&r, &[("oom", "false"), ("oom_recovered", "true")]);
    assert_eq!(codes(&r), ["out_of_memory_recovered"]);
    // A third load is none that recovers.
    let r = report(&format!("{failed}{OLD_RUNNER}{NEW_ENGINE}"));
    assert_values(&r, &[("oom", "false")]);
    assert_eq!(shown(&r, "oom_recovered"), None);
    assert_eq!(codes(&report(&format!("{failed}{failed}"))), ["oom"]);
}

#[test]
fn failures() {
    let r = report(
        r#"time=x level=WARN source=server.go:1 msg="model requires more system memory (5.5 GiB) than is available (3.0 GiB)""#,
    );
    assert_values(
        &r,
        &[
            ("oom", "true"),
            ("oom_requested_gib", "5.5"),
            ("host_available_gib", "3"),
        ],
    );
    let r = report(&format!("{OLD_RUNNER}CUDA error: out of memory"));
    assert_values(&r, &[("oom", "true")]);
    let r = report(
        r#"time=x level=INFO source=sched.go:1 msg="Load failed" model=/x error="llama runner process has terminated: cudaMalloc failed: out of memory""#,
    );
    assert_values(&r, &[("oom", "true")]);
    let weights = "load_tensors:        CUDA0 model buffer size =  1024.00 MiB\n";
    let answered = |status: u32| {
        format!(
            "{weights}[GIN] 2031/01/02 - 03:04:05 | {status} | 1ms | 192.0.2.1 | GET \"/api/ps\""
        )
    };
    assert_values(&report(&answered(200)), &[("oom", "false")]);
    assert_eq!(shown(&report(&answered(500)), "oom"), None);
    assert_eq!(shown(&report(weights), "oom"), None);
}

#[test]
fn a_prompt_yields_no_fact() {
    let r = report(
        r#"time=x level=DEBUG source=server.go:1 msg="completion request" prompt="load_tensors:        CUDA0 model buffer size =  1024.00 MiB msg=offload cudaMalloc failed: out of memory""#,
    );
    assert!(r.facts.is_empty(), "{r:?}");
}
