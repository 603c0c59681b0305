//! Deriving and rendering survive whatever a capture holds: figures from engines, model files and
//! drivers are not ours.

use crate::common::captures;
use crate::common::pages::profile_page;
use captures::*;
use plimsoll::capture::*;
use plimsoll::report::page::TextOptions;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Bytes, counts and moments, with the edges of their types.
fn figure() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 1 << 50, u64::MAX, i64::MAX as u64, 1 << 63];
    prop_oneof![
        proptest::sample::select(edges.to_vec()),
        0..1u64 << 40,
        any::<u64>()
    ]
}

fn moment() -> impl Strategy<Value = i64> {
    prop_oneof![0..30_000 * MS, Just(i64::MIN), Just(i64::MAX), any::<i64>()]
}

fn sample() -> impl Strategy<Value = MemorySample> {
    let device = prop_oneof![4 => 0..3u32, 1 => any::<u32>()];
    let host = (option::of(figure()), option::of(figure())).prop_map(|(file, anon)| HostSplit {
        file_bytes: file,
        anon_bytes: anon,
        ..Default::default()
    });
    let process = (option::of(figure()), option::of(any::<bool>()));
    let processes = vec(
        process.prop_map(|(used_bytes, ours)| ProcessMemory {
            used_bytes,
            ours,
            ..Default::default()
        }),
        0..4,
    );
    let more = (
        option::of(host),
        option::of(processes),
        option::of(figure()),
    );
    let marks = vec(option::of(figure()), 4);
    (moment(), device, figure(), marks, more).prop_map(
        |(at_ns, device, used_bytes, marks, (host, processes, client))| MemorySample {
            at_ns,
            device,
            used_bytes,
            low_bytes: marks[0],
            high_bytes: marks[1],
            kernel_peak_bytes: marks[2],
            reserved_bytes: marks[3],
            host,
            processes,
            bench_client_bytes: client,
            ..Default::default()
        },
    )
}

/// A reply of `/metrics`.
fn metrics() -> impl Strategy<Value = String> {
    let told = (figure(), figure(), figure()).prop_map(|(blocks, size, bytes)| {
        format!("vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{blocks}\",kv_cache_memory_bytes=\"{bytes}\",cache_dtype=\"auto\"}} 1\n")
    });
    prop_oneof![told, "\\PC{0,60}"]
}

/// The model's `config.json` and weight index.
fn files() -> impl Strategy<Value = [String; 2]> {
    let config = vec(figure(), 4).prop_map(|f| {
        format!(
            r#"{{"num_hidden_layers": {}, "num_key_value_heads": {}, "num_attention_heads": 8, "hidden_size": {}, "head_dim": {}, "torch_dtype": "bfloat16"}}"#,
            f[0], f[1], f[2], f[3]
        )
    });
    let index = figure().prop_map(|size| format!(r#"{{"metadata": {{"total_size": {size}}}}}"#));
    let any = "\\PC{0,40}|[{}\\[\\]\":, a-z0-9]{0,40}";
    (prop_oneof![config, any], prop_oneof![index, any]).prop_map(|(c, i)| [c, i])
}

/// A line that names figures of memory.
fn line_text() -> impl Strategy<Value = String> {
    (figure(), -9i32..99, 0..5usize).prop_map(|(n, e, form)| {
        let worker = "(Worker_TP0 pid=200) INFO 11-21 10:00:03 [gpu_worker.py:1]";
        match form {
            0 => format!("{worker} Model loading took {n}e{e} GiB and 5.1 seconds"),
            1 => format!("{worker} Model loading took {n}.0 GiB and 5.1 seconds"),
            2 => format!("{worker} Available KV cache memory: -{n}.5 GiB"),
            3 => format!("{worker} Graph capturing finished in 2 secs, took {n}.0 GiB"),
            _ => format!("(EngineCore_DP0 pid=100) INFO 11-21 10:00:03 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m', dtype=torch.bfloat16, tensor_parallel_size={n}, pipeline_parallel_size={n}, data_parallel_size={n}"),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn no_capture_makes_deriving_panic(
        base in 0..3usize,
        mode in 0..3usize,
        samples in vec(sample(), 0..40),
        metrics in metrics(),
        files in files(),
        lines in vec((moment(), line_text()), 0..6),
        figures in vec(figure(), 4),
        moments in vec(moment(), 4),
    ) {
        let mut built = [idle_reference, serving_host, two_gpus][base]();
        let mut at = 0;
        built.samples.retain(|_| { at += 1; at % 40 == 0 });
        built.samples.extend(samples);
        let c = &mut built.capture;
        c.engine = "vllm".into();
        c.mode = [Mode::Idle, Mode::Serving, Mode::Started][mode];
        c.probes.push(Probe {
            path: "/metrics".into(),
            status: Some(200),
            body: metrics,
            ..Default::default()
        });
        let [config, index] = files;
        c.model_files.insert("config.json".into(), config);
        c.model_files.insert("model.safetensors.index.json".into(), index);
        c.model_file_sizes = [("a".to_owned(), figures[0]), ("b".to_owned(), figures[1])].into();
        c.sampling.interval_ns = figures[2];
        c.sampling.longest_gap_ns = figures[3];
        c.sampling.failed_readings = figures[0];
        c.wall_drift_ns = moments[0];
        c.wall_start_ns = moments[1];
        c.ended_at_ns = moments[2];
        c.marks.push(PhaseMark { at_ns: moments[3], phase: Phase::Bench, repeat: Some(1) });
        let bench = |(at_ns, text): (i64, String)| {
            let source = if mode == 0 { LineSource::Exec(0) } else { LineSource::Container };
            LogLine { at_ns, source, text, ..Default::default() }
        };
        built.lines.extend(lines.into_iter().map(bench));

        let profile = built.derive();
        for device in &profile.memory_breakdown.per_gpu {
            let parts = device.parts.iter().map(|p| i128::from(p.bytes));
            prop_assert_eq!(parts.sum::<i128>(), i128::from(device.peak_bytes));
        }
        profile_page(&profile, TextOptions::default());
        serde_json::to_string(&profile).unwrap();
    }
}
