//! llama.cpp's log: one of a real server, and lines written after its own format strings.

use crate::engine::EngineId;
use crate::engine::facts::{EngineStep, FactValue, LogReport};
use crate::engine::log::Messages;
use crate::engine::log::laws_tests::{assert_values, hold, report_of, shown};

fn report(log: &str) -> LogReport {
    report_of(EngineId::LlamaCpp, log.as_bytes())
}

fn number(r: &LogReport, key: &str, label: &str) -> f64 {
    match &r.facts[key].value {
        FactValue::Record(entries) => entries[label].number().unwrap() * 1024.0,
        other => panic!("{key} is {other:?}"),
    }
}

#[test]
fn a_real_server() {
    let r = report(include_str!(
        "../../../../tests/fixtures/llama_cpp/server-cpu-verbose.log"
    ));
    for (key, mib) in [
        ("weights_gib", 5.01),
        ("kv_cache_gib", 4.0),
        ("activation_peak_gib", 6.52),
        ("output_gib", 0.0),
    ] {
        assert!((number(&r, key, "CPU") - mib).abs() < 1e-9, "{key}");
    }
    assert_values(
        &r,
        &[
            ("n_ctx", "2048"),
            ("n_slots", "2"),
            ("n_ctx_slot", "1024"),
            ("kv_cache_tokens", "2048"),
            ("kv_cache_dtype", "f16"),
            ("architecture", "llama"),
            ("model", "tiny.gguf"),
            ("file_type", "F16"),
            ("oom", "false"),
        ],
    );
    // The table at its end is what there was, the one of the fitting is a projection.
    let memory = &r.facts["memory_breakdown"].value.to_string();
    assert!(memory.starts_with("Host "), "{memory}");
    assert!(r.facts["projection"].value.to_string().contains("host_gib"));
    let steps: Vec<EngineStep> = r.steps.iter().map(|m| m.step).collect();
    assert_eq!(
        steps,
        [
            EngineStep::Started,
            EngineStep::LoadingWeights,
            EngineStep::WeightsLoaded,
            EngineStep::KvCacheAllocated,
            EngineStep::Ready,
            EngineStep::Stopping
        ]
    );
    // At its default verbosity it reports no buffer.
    let r = report(include_str!(
        "../../../../tests/fixtures/llama_cpp/server-cpu-default.log"
    ));
    assert_eq!(shown(&r, "weights_gib"), None);
    assert_values(&r, &[("kv_cache_tokens", "2048"), ("oom", "false")]);
}

const TWO_GPUS: &str = "\
build: 6001 (0abcdef) with cc (Debian 12) 12.2 for x86_64-linux-gnu
ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA X 1000, compute capability 8.9, VMM: yes
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA X 1000) (0000:01:00.0) - 23552 MiB free
llama_model_loader: loaded meta data with 30 key-value pairs and 300 tensors from /m/x.gguf (version GGUF V3 (latest))
print_info: file type   = Q4_K - Medium
print_info: file size   = 4.50 GiB (4.89 BPW)
load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors: offloading 32 repeating layers to GPU
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   256.00 MiB
load_tensors:   CPU_Mapped model buffer size =   128.00 MiB
load_tensors:        CUDA0 model buffer size =  2048.00 MiB
load_tensors:        CUDA1 model buffer size =  1024.00 MiB
load_tensors: CUDA0_Split model buffer size =   512.00 MiB
llama_context: constructing llama_context
llama_context: n_seq_max     = 2
llama_context: n_ctx         = 8192
llama_context: n_ctx_per_seq = 4096
llama_context: flash_attn    = auto
llama_context:  CUDA_Host  output buffer size =     2.00 MiB
llama_kv_cache_unified_iswa: creating non-SWA KV cache, size = 4096 cells
llama_kv_cache_unified:      CUDA0 KV buffer size =   512.00 MiB
llama_kv_cache_unified:      CUDA1 KV buffer size =   256.00 MiB
llama_kv_cache_unified: size =  768.00 MiB (  4096 cells,  16 layers,  2/2 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB
llama_kv_cache_unified_iswa: creating     SWA KV cache, size = 1024 cells
llama_kv_cache_unified:      CUDA0 KV buffer size =   128.00 MiB
llama_kv_cache_unified:      CUDA1 KV buffer size =    64.00 MiB
llama_kv_cache_unified: size =  192.00 MiB (  1024 cells,  16 layers,  2/2 seqs), K (f16):   96.00 MiB, V (f16):   96.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =    32.00 MiB
llama_memory_recurrent: size =   32.00 MiB (     2 cells,  16 layers,  2 seqs), R (f32):    8.00 MiB, S (f32):   24.00 MiB
llama_context:      CUDA0 compute buffer size =   640.00 MiB
llama_context:      CUDA0 compute buffer size =   320.00 MiB
llama_context:  CUDA_Host compute buffer size =    16.00 MiB
llama_context: graph nodes  = 1000
main: server is listening on http://0.0.0.0:8080 - starting the main loop
";

#[test]
fn buffers_add_up_or_replace_each_other() {
    let r = report(TWO_GPUS);
    for (key, label, mib) in [
        ("weights_gib", "CPU", 384.0),
        ("weights_gib", "CUDA0", 2048.0),
        ("weights_gib", "CUDA0_Split", 512.0),
        ("kv_cache_gib", "CUDA0", 640.0),
        ("kv_cache_gib", "CUDA1", 320.0),
        ("activation_peak_gib", "CUDA0", 320.0),
        ("pinned_activation_peak_gib", "CUDA_Host", 16.0),
        ("recurrent_state_gib", "CUDA0", 32.0),
        ("recurrent_state", "s_gib", 24.0),
        ("avail_before_load_gib", "CUDA0", 23552.0),
    ] {
        assert_eq!(number(&r, key, label), mib, "{key} {label}");
    }
    assert_values(
        &r,
        &[
            ("kv_total_gib", "0.9375"),
            ("kv_k_gib", "0.46875"),
            ("kv_cache_tokens", "8192"),
            ("full_tokens", "8192"),
            ("swa_tokens", "2048"),
            ("layers_offloaded", "33/33"),
            ("n_ctx", "8192"),
            ("flash_attn", "auto"),
            ("checkpoint_size_gib", "4.5"),
            ("gpu_names", "CUDA0 NVIDIA X 1000"),
            ("oom", "false"),
        ],
    );
    assert_eq!(r.engine_version.as_deref(), Some("b6001"));
    assert_eq!(
        r.facts["kv_pools"]
            .value
            .to_string()
            .matches("tokens")
            .count(),
        2
    );
}

#[test]
fn laws() {
    hold(EngineId::LlamaCpp, TWO_GPUS);
}

#[test]
fn a_draft_model_and_another_load() {
    let draft = "srv    load_model: loading draft model '/m/d.gguf'\nload_tensors:        CUDA0 model buffer size =   100.00 MiB\nllama_context: n_ctx         = 512\nllama_kv_cache:      CUDA0 KV buffer size =    10.00 MiB\nllama_context:      CUDA0 compute buffer size =    5.00 MiB";
    let r = report(&format!("{TWO_GPUS}{draft}"));
    assert_eq!(number(&r, "weights_gib", "CUDA0"), 2048.0);
    assert_eq!(number(&r, "draft_weights_gib", "CUDA0"), 100.0);
    assert_eq!(number(&r, "draft_kv_cache_gib", "CUDA0"), 10.0);
    assert_eq!(number(&r, "activation_peak_gib", "CUDA0"), 320.0);
    assert_values(
        &r,
        &[
            ("n_ctx", "8192"),
            ("draft_n_ctx", "512"),
            ("kv_cache_tokens", "8192"),
        ],
    );
    let again = report(&format!("{TWO_GPUS}{}", TWO_GPUS.replace("8192", "1024")));
    assert_eq!(number(&again, "weights_gib", "CPU"), 384.0);
    assert_values(&again, &[("n_ctx", "1024")]);
    assert!(again.findings.iter().any(|f| f.code == "engine_restarted"));
}

#[test]
fn old_spellings_and_the_fork() {
    let r = report(
        "llm_load_tensors:      CUDA0 buffer size =  1024.00 MiB\nllama_new_context_with_model: n_ctx      = 512\nllama_kv_cache_init:  CUDA0 KV buffer size = 64.00 MiB\n\
         llama_new_context_with_model: KV self size  =   64.00 MiB, c^KV (q8_0):   64.00 MiB, kv^T (f16):    0.00 MiB",
    );
    assert_eq!(number(&r, "weights_gib", "CUDA0"), 1024.0);
    assert_values(
        &r,
        &[
            ("kv_cache_dtype", "q8_0"),
            ("kv_total_gib", "0.0625"),
            ("kv_cache_tokens", "512"),
        ],
    );
    // Without lines by device, the sum.
    let r = report(
        "llama_kv_cache: size =  512.00 MiB (  2048 cells,   4 layers,  1/1 seqs), K (q8_0):  256.00 MiB, V (f16):  256.00 MiB",
    );
    assert_values(
        &r,
        &[
            ("kv_cache_gib", "0.5"),
            ("kv_cache_tokens", "2048"),
            ("kv_cache_dtype", "K q8_0, V f16"),
        ],
    );
}

#[test]
fn lacks_of_memory_and_the_one_that_was_survived() {
    let lack = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 2147483648\n";
    assert_values(
        &report(lack),
        &[("oom", "true"), ("oom_requested_gib", "2")],
    );
    let retry = format!(
        "{lack}sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
    );
    assert_eq!(shown(&report(&retry), "oom"), None);
    let survived = format!(
        "{retry}srv    load_model: initializing, n_slots = 1, n_ctx_slot = 100, kv_unified = 'false'"
    );
    assert_values(
        &report(&survived),
        &[
            ("oom", "false"),
            ("oom_recovered", "true"),
            ("oom_requested_gib", "2"),
        ],
    );
    let buffer = format!("{retry}sched_reserve:      CUDA0 compute buffer size =   640.00 MiB");
    for log in [survived, buffer] {
        let r = report(&log);
        assert_values(&r, &[("oom", "false"), ("oom_recovered", "true")]);
        let codes: Vec<&str> = r.findings.iter().map(|f| f.code.as_str()).collect();
        assert_eq!(codes, ["out_of_memory_recovered"]);
    }
    let again = format!("{retry}{}", lack.replace("2048.00", "1024.00"));
    assert_values(
        &report(&again),
        &[("oom", "true"), ("oom_requested_gib", "1")],
    );
    // Memory that can be had elsewhere.
    let pinned =
        "ggml_cuda_host_malloc: failed to allocate 9.00 MiB of pinned memory: out of memory";
    assert_eq!(shown(&report(pinned), "oom"), None);
    let later = format!(
        "{TWO_GPUS}CUDA error: out of memory\n  current device: 0, in function alloc at x.cu:1"
    );
    assert_values(
        &report(&later),
        &[("oom", "true"), ("oom_phase", "serving")],
    );
}

#[test]
fn lacks_in_the_words_of_every_backend() {
    for (line, requested) in [
        (
            "ggml_aligned_malloc: insufficient memory (attempted to allocate 1024.00 MB)",
            Some("1"),
        ),
        (
            "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 536870912 Bytes of memory on device",
            Some("0.5"),
        ),
        (
            "ggml_metal_buffer_init: error: failed to allocate buffer, size = 1024.00 MiB",
            Some("1"),
        ),
        (
            "llama_model_load: error loading model: mmap failed: Cannot allocate memory",
            None,
        ),
    ] {
        let r = report(line);
        assert_values(&r, &[("oom", "true")]);
        assert_eq!(
            shown(&r, "oom_requested_gib").as_deref(),
            requested,
            "{line}"
        );
    }
    // It goes on without the lock.
    let locked = "warning: failed to mlock 4096-byte buffer: Cannot allocate memory";
    assert_eq!(shown(&report(locked), "oom"), None);
    assert!(super::LlamaCpp::words().vectorised());
}

#[test]
fn where_memory_lacked() {
    let weights = "load_tensors:        CUDA0 model buffer size =  1024.00 MiB\n";
    let cells = "llama_kv_cache: size =  512.00 MiB (  2048 cells,   4 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB\n";
    let tensors =
        "alloc_tensor_range: failed to allocate CUDA1 buffer of size 1073741824".to_owned();
    for (log, phase) in [
        (
            format!("{weights}CUDA error: out of memory"),
            "loading_weights",
        ),
        (tensors, "loading_weights"),
        ("CUDA error: out of memory".to_owned(), "start"),
        (
            format!(
                "{weights}llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB\nCUDA error: out of memory"
            ),
            "kv_cache_allocation",
        ),
        (
            format!(
                "{cells}ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 1073741824"
            ),
            "compute_buffers",
        ),
    ] {
        let r = report(&log);
        assert_values(&r, &[("oom", "true"), ("oom_phase", phase)]);
        let message = &r.findings[0].message;
        assert_eq!(
            phase == "start",
            message.contains("when it started"),
            "{message}"
        );
    }
}

#[test]
fn a_projection_is_no_allocation() {
    let row = |unaccounted: &str| {
        format!(
            "llama_memory_breakdown_print: | memory breakdown [MiB] | total free self model context compute unaccounted |\n\
             llama_memory_breakdown_print: |   - CUDA0 (X 1000) | 8192 = 2048 + (4096 = 2048 + 1024 + 1024) + {unaccounted} |\n"
        )
    };
    let dry = report(&row("-4096"));
    assert!(dry.facts.contains_key("projection") && !dry.facts.contains_key("memory_breakdown"));
    let fit = format!(
        "common_init_result: fitting params to device memory ...\n{}load_tensors: CUDA0 model buffer size = 2048.00 MiB\ncommon_params_fit_impl: projected to use 4096 MiB of device memory vs. 5000 MiB of free device memory\n",
        row("2048")
    );
    let dry = report(&fit);
    assert_eq!(number(&dry, "projection", "total_gib"), 4096.0);
    assert!(!dry.facts.contains_key("weights_gib") && !dry.facts.contains_key("memory_breakdown"));
    let end = report(&format!("{TWO_GPUS}{}", row("2048")));
    assert!(end.facts.contains_key("memory_breakdown") && !end.facts.contains_key("projection"));
}

#[test]
fn the_table_at_exit_gives_the_parts_of_each_device() {
    let table = "llama_memory_breakdown_print: | memory breakdown [MiB] | total free self model context compute unaccounted |\n\
         llama_memory_breakdown_print: |   - CUDA0 (X 1000)   | 32768 =  1024 + (28672 = 25600 +    2048 +    1024) +        3072 |\n";
    let r = report(table);
    for (key, mib) in [
        ("weights_gib", 25600.0),
        ("kv_cache_gib", 2048.0),
        ("activation_peak_gib", 1024.0),
    ] {
        assert_eq!(number(&r, key, "CUDA0"), mib, "{key}");
        assert!(r.facts[key].quote[0].contains("X 1000"));
    }
    // A table of more than there was free is a projection.
    let r = report(&table.replace("3072 |", "-3072 |"));
    assert!(!r.facts.contains_key("weights_gib"));
}

#[test]
fn the_cells_of_the_cache_are_its_tokens_where_nothing_else_names_them() {
    let r =
        report("llama_kv_cache_init: kv_size = 4096, offload = 1, type_k = 'f16', n_layer = 32");
    assert_values(&r, &[("kv_cache_tokens", "4096")]);
}

/// What the server holds on the host for prompts that may come again is a figure of its own, the last that it printed.
#[test]
fn the_prompt_cache_grows_while_it_serves() {
    let r = report(
        "srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n\
         srv        update:  - cache state: 2 prompts, 512.000 MiB (limits: 8192.000 MiB, 8192 tokens, 24046 est)\n\
         srv        update:  - cache state: 9 prompts, 2048.000 MiB (limits: 8192.000 MiB, 8192 tokens, 24046 est)\n",
    );
    assert_values(
        &r,
        &[("prompt_cache_gib", "2"), ("prompt_cache_limit_gib", "8")],
    );
}
