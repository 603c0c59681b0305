//! Synthetic captures with a known truth: what a run would have observed if these bytes had been
//! taken at these moments.

#![allow(dead_code)]

use plimsoll::capture::*;
use plimsoll::profile::{Profile, derive_profile};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
/// Nanoseconds of a millisecond.
pub const MS: i64 = 1_000_000;

/// A capture with its samples and lines.
#[derive(Debug, Clone, Default)]
pub struct Built {
    pub capture: Capture,
    pub samples: Vec<MemorySample>,
    pub lines: Vec<LogLine>,
}

impl Built {
    pub fn derive(&self) -> Profile {
        derive_profile(&self.capture, self.samples.clone(), self.lines.clone())
    }

    /// As it comes back from disk.
    pub fn through_json(&self) -> Built {
        let there_and_back =
            |s: &MemorySample| serde_json::from_str(&serde_json::to_string(s).unwrap()).unwrap();
        Built {
            capture: serde_json::from_str(&serde_json::to_string(&self.capture).unwrap()).unwrap(),
            samples: self.samples.iter().map(there_and_back).collect(),
            lines: self.lines.clone(),
        }
    }
}

/// The level of one kind of memory over time: it moves in straight lines between keys.
#[derive(Debug, Clone, Default)]
pub struct Track {
    keys: Vec<(i64, u64)>,
    spikes: Vec<(i64, i64, u64)>,
}

impl Track {
    /// Starts at `bytes`.
    pub fn from(bytes: u64) -> Track {
        Track {
            keys: vec![(i64::MIN, bytes)],
            spikes: Vec::new(),
        }
    }

    fn last(&self) -> u64 {
        self.keys.last().map_or(0, |k| k.1)
    }

    /// Stands at `bytes` from this millisecond on.
    pub fn step(mut self, at_ms: i64, bytes: u64) -> Track {
        let before = self.last();
        self.keys.push((at_ms - 1, before));
        self.keys.push((at_ms, bytes));
        self
    }

    /// Moves to `bytes` between the two.
    pub fn ramp(mut self, from_ms: i64, to_ms: i64, bytes: u64) -> Track {
        let before = self.last();
        self.keys.push((from_ms, before));
        self.keys.push((to_ms, bytes));
        self
    }

    /// So much more for a while, whether a sample sees it or not.
    pub fn spike(mut self, at_ms: i64, for_ms: i64, more: u64) -> Track {
        self.spikes.push((at_ms, at_ms + for_ms, more));
        self
    }

    pub fn at(&self, ms: i64) -> u64 {
        let next = self.keys.partition_point(|k| k.0 <= ms);
        let (t0, b0) = self.keys[next - 1];
        let level = match self.keys.get(next) {
            Some((t1, b1)) if *b1 != b0 => {
                let share = (ms - t0) as f64 / (t1 - t0) as f64;
                (b0 as f64 + (*b1 as f64 - b0 as f64) * share) as u64
            }
            _ => b0,
        };
        let spikes = self
            .spikes
            .iter()
            .filter(|s| s.0 <= ms && ms < s.1)
            .map(|s| s.2);
        level + spikes.sum::<u64>()
    }
}

/// Samples of a cgroup every `every_ms` over `ms`: anonymous memory, page cache, bench client.
/// The kernel's mark sees every millisecond.
pub fn cgroup(
    ms: i64,
    every_ms: i64,
    anon: &Track,
    file: &Track,
    client: Option<&Track>,
) -> Vec<MemorySample> {
    let mut samples = Vec::new();
    let mut kernel_peak = 0;
    for now in 0..=ms {
        let client = client.map(|c| c.at(now));
        let all_anon = anon.at(now) + client.unwrap_or(0);
        let used = all_anon + file.at(now);
        kernel_peak = kernel_peak.max(used);
        if now % every_ms == 0 {
            samples.push(MemorySample {
                at_ns: now * MS,
                used_bytes: used,
                kernel_peak_bytes: Some(kernel_peak),
                host: Some(HostSplit {
                    anon_bytes: Some(all_anon),
                    file_bytes: Some(file.at(now)),
                    shmem_bytes: Some(0),
                    kernel_bytes: Some(0),
                    swap_bytes: None,
                    locked_bytes: None,
                }),
                bench_client_bytes: client.filter(|c| *c > 0),
                ..Default::default()
            });
        }
    }
    samples
}

pub fn line(ms: i64, source: LineSource, text: &str) -> LogLine {
    LogLine {
        at_ns: ms * MS,
        source,
        stream: Stream::Stdout,
        text: text.into(),
    }
}

pub fn mark(ms: i64, phase: Phase, repeat: Option<u32>) -> PhaseMark {
    PhaseMark {
        at_ns: ms * MS,
        phase,
        repeat,
    }
}

/// What every capture has.
fn base(name: &str, engine: &str, mode: Mode, ms: i64, samples: u64) -> Capture {
    let container = ContainerFacts {
        id: "f0c3a1b2d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f".into(),
        name: name.into(),
        image: "example/engine:1".into(),
        image_id: "sha256:0123".into(),
        state: ContainerState {
            status: "running".into(),
            pid: Some(4242),
            started_ns: Some(1_795_000_000_000_000_000),
            ..Default::default()
        },
        network_mode: "bridge".into(),
        created_ns: Some(1_795_000_000_000_000_000),
        ..Default::default()
    };
    Capture {
        capture_version: CAPTURE_VERSION,
        plimsoll_version: "0.1.0".into(),
        run_id: "20261121T100000Z-1a2b3c4d".into(),
        wall_start_ns: 1_795_255_200_000_000_000,
        ended_at_ns: ms * MS,
        host: HostFacts {
            hostname: "testhost".into(),
            kernel: "6.1.0".into(),
            arch: "x86_64".into(),
            cpus: 16,
            memory_bytes: Some(64 * GIB),
            docker_version: Some("20.10.24".into()),
            docker_api_version: Some("1.41".into()),
            boot_id: Some("00000000-1111-2222-3333-444444444444".into()),
        },
        container_end: Some(container.state.clone()),
        container,
        engine: engine.into(),
        engine_evidence: "the test says so".into(),
        mode,
        request: Request {
            sample_interval_ns: (100 * MS) as u64,
            timeout_s: 600.0,
            ..Default::default()
        },
        sampling: SamplingFacts {
            interval_ns: (100 * MS) as u64,
            ticks: samples,
            longest_gap_ns: (100 * MS) as u64,
            jitter_p99_ns: Some(200_000),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn cgroup_device(total: u64) -> DeviceFacts {
    DeviceFacts {
        index: 0,
        kind: DeviceKind::HostCgroup,
        id: "/docker/f0c3a1b2".into(),
        name: "container memory (cgroup v2)".into(),
        total_bytes: Some(total),
        ..Default::default()
    }
}

fn host_backend() -> BackendFacts {
    BackendFacts {
        name: "host".into(),
        version: Some("cgroup v2".into()),
        simulated: false,
        reason: "no GPU is given to the container".into(),
    }
}

/// What was really taken in [`idle_reference`].
pub struct IdleTruth {
    pub baseline: u64,
    pub runtime: u64,
    pub weights: u64,
    pub kv_pool: u64,
    pub activations: u64,
    pub spike: u64,
}

pub const IDLE: IdleTruth = IdleTruth {
    baseline: 3 * MIB,
    runtime: 8 * MIB,
    weights: 512 * MIB,
    kv_pool: 256 * MIB,
    activations: 64 * MIB,
    spike: 160 * MIB,
};

/// The reference engine in an idle container: the latency bench loads it, computes on and off,
/// and once for 30 ms takes more than any sample sees.
pub fn idle_reference() -> Built {
    let t = &IDLE;
    let loaded = t.baseline + t.runtime + t.weights + t.kv_pool;
    let mut anon = Track::from(t.baseline)
        .step(2_100, t.baseline + t.runtime)
        .ramp(2_500, 3_450, t.baseline + t.runtime + t.weights)
        .ramp(3_550, 3_850, loaded);
    for i in 0..30 {
        let at = 4_450 + i * 200;
        anon = anon.step(at, loaded + t.activations).step(at + 100, loaded);
    }
    // Between the samples at 7000 and 7100, while an iteration computes.
    anon = anon.step(10_700, t.baseline).spike(7_055, 30, t.spike);
    let ms = 12_000;
    let samples = cgroup(ms, 100, &anon, &Track::from(0), None);
    let mut capture = base(
        "ref-idle",
        "reference",
        Mode::Idle,
        ms,
        samples.len() as u64,
    );
    capture.request.model = Some("toy".into());
    capture.request.bench = "latency".into();
    capture.request.workload = Workload {
        input_len: 256,
        output_len: 128,
        batch_size: Some(8),
        num_iters: Some(25),
        num_iters_warmup: Some(5),
        ..Default::default()
    };
    capture.devices = vec![cgroup_device(64 * GIB)];
    capture.backend = host_backend();
    capture.marks = vec![
        mark(0, Phase::Baseline, None),
        mark(4_400, Phase::Warmup, Some(1)),
        mark(5_400, Phase::Bench, Some(1)),
        mark(11_000, Phase::Cooldown, None),
    ];
    capture.execs = vec![ExecOutcome {
        role: ExecRole::Bench,
        repeat: Some(1),
        argv: vec!["/reference-engine".into(), "bench".into(), "latency".into()],
        started_at_ns: 2_000 * MS,
        ended_at_ns: 10_900 * MS,
        end: ExecEnd::Exited(0),
        result: Some(
            r#"{"avg_latency": 0.2, "latencies": [0.19, 0.2, 0.21], "percentiles": {"50": 0.2, "90": 0.208, "99": 0.2098}}"#.into(),
        ),
        ..Default::default()
    }];
    let said = |ms, text: &str| line(ms, LineSource::Exec(0), text);
    let lines = vec![
        said(
            2_050,
            "reference-engine 0.1.0 (simulated engine) model=toy pid=7",
        ),
        said(2_060, "reference-engine phase=start"),
        said(2_480, "reference-engine phase=loading_weights"),
        said(3_460, "reference-engine phase=weights_loaded"),
        said(3_860, "reference-engine phase=kv_cache_allocated"),
        said(4_200, "reference-engine phase=ready"),
        said(4_390, "reference-engine phase=warmup_start"),
        said(5_390, "reference-engine phase=bench_start of=25"),
        said(10_650, "reference-engine phase=stopping"),
    ];
    capture.log.lines = lines.len() as u64;
    Built {
        capture,
        samples,
        lines,
    }
}

/// What was really taken in [`serving_host`].
pub struct ServingTruth {
    pub engine: u64,
    pub activations: u64,
    pub warmup_growth: u64,
    pub page_cache: u64,
    pub client: u64,
    pub kv_usage: f64,
}

pub const SERVING: ServingTruth = ServingTruth {
    engine: 1_500 * MIB,
    activations: 96 * MIB,
    warmup_growth: 48 * MIB,
    page_cache: 200 * MIB,
    client: 120 * MIB,
    kv_usage: 0.21,
};

/// A reference engine that was serving before we came, on host memory, with our bench client in
/// its container.
pub fn serving_host() -> Built {
    let t = &SERVING;
    let mut anon = Track::from(t.engine).step(3_250, t.engine + t.warmup_growth);
    for i in 0..12 {
        let at = 3_450 + i * 400;
        anon = anon
            .step(at, t.engine + t.warmup_growth + t.activations)
            .step(at + 200, t.engine + t.warmup_growth);
    }
    let file = Track::from(t.page_cache / 2).step(2_500, t.page_cache);
    let client = Track::from(0).ramp(2_100, 2_900, t.client).step(8_600, 0);
    let ms = 10_000;
    let samples = cgroup(ms, 100, &anon, &file, Some(&client));
    let mut capture = base(
        "ref-serving",
        "reference",
        Mode::Serving,
        ms,
        samples.len() as u64,
    );
    capture.container.argv = [
        "/reference-engine",
        "serve",
        "--model",
        "toy",
        "--kv-pool",
        "512MiB",
    ]
    .map(str::to_owned)
    .to_vec();
    capture.container.memory_limit_bytes = Some(8 * GIB);
    capture.request.bench = "serve".into();
    capture.request.workload = Workload {
        input_len: 64,
        output_len: 32,
        num_prompts: Some(40),
        max_concurrency: Some(8),
        ..Default::default()
    };
    capture.devices = vec![cgroup_device(8 * GIB)];
    capture.backend = host_backend();
    let probe = |path: &str, body: &str| Probe {
        at_ns: 500 * MS,
        path: path.into(),
        route: "published port".into(),
        status: Some(200),
        body: body.into(),
        error: None,
    };
    capture.probes = vec![
        probe("/version", r#"{"version":"0.1.0"}"#),
        probe(
            "/v1/models",
            r#"{"object":"list","data":[{"id":"toy","object":"model"}]}"#,
        ),
        probe(
            "/metrics",
            "reference:cache_config_info{block_size=\"16\",num_gpu_blocks=\"64\",kv_cache_memory_bytes=\"536870912\"} 1\n",
        ),
    ];
    capture.gauges = (0..20)
        .map(|i| EngineGauges {
            at_ns: (3_400 + i * 250) * MS,
            kv_cache_usage: Some(if i == 9 { t.kv_usage } else { 0.08 }),
            requests_running: Some(8),
            requests_waiting: Some(0),
            preemptions: Some(u64::from(i > 10) * 2),
        })
        .collect();
    capture.marks = vec![
        mark(0, Phase::Baseline, None),
        mark(2_000, Phase::Warmup, Some(1)),
        mark(3_400, Phase::Bench, Some(1)),
        mark(8_700, Phase::Cooldown, None),
    ];
    capture.execs = vec![ExecOutcome {
        role: ExecRole::Bench,
        repeat: Some(1),
        argv: vec!["/reference-engine".into(), "bench".into(), "serve".into()],
        started_at_ns: 2_000 * MS,
        ended_at_ns: 8_690 * MS,
        end: ExecEnd::Exited(0),
        result: Some(include_str!("../fixtures/vllm/json/bench-serve.json").into()),
        ..Default::default()
    }];
    let lines = vec![
        line(
            -60_000,
            LineSource::Container,
            "reference-engine 0.1.0 (simulated engine) model=toy pid=1",
        ),
        line(
            -59_000,
            LineSource::Container,
            "reference-engine phase=loading_weights",
        ),
        line(
            -50_000,
            LineSource::Container,
            "reference-engine phase=ready",
        ),
    ];
    capture.log.lines = lines.len() as u64;
    Built {
        capture,
        samples,
        lines,
    }
}

/// What was really taken in [`two_gpus`], per GPU.
pub struct GpuTruth {
    pub reserved: u64,
    pub tenant: u64,
    pub runtime: u64,
    pub weights: u64,
    pub kv_pool: u64,
    pub graphs: u64,
    pub activations: u64,
}

pub const GPU: GpuTruth = GpuTruth {
    reserved: 600 * MIB,
    tenant: 1536 * MIB,
    runtime: 480 * MIB,
    weights: 15 * GIB + 256 * MIB,
    kv_pool: 40 * GIB,
    graphs: 512 * MIB,
    activations: 900 * MIB,
};

/// vLLM on two GPUs, started by us; GPU 0 already holds another tenant's memory.
pub fn two_gpus() -> Built {
    let t = &GPU;
    let ms = 30_000;
    let mut samples = Vec::new();
    for gpu in 0..2u32 {
        let own = Track::from(0)
            .step(3_050, t.runtime)
            .ramp(4_000, 8_900, t.runtime + t.weights)
            .ramp(9_550, 9_900, t.runtime + t.weights + t.kv_pool)
            .ramp(10_050, 11_900, t.runtime + t.weights + t.kv_pool + t.graphs)
            .step(
                16_050,
                t.runtime + t.weights + t.kv_pool + t.graphs + t.activations,
            )
            .step(28_000, t.runtime + t.weights + t.kv_pool + t.graphs);
        for now in (0..=ms).step_by(100) {
            let tenant = if gpu == 0 { t.tenant } else { 0 };
            let processes = (now % 1_000 == 0).then(|| {
                let mut list = Vec::new();
                if gpu == 0 {
                    list.push(process(900, t.tenant, false));
                }
                if own.at(now) > 0 {
                    list.push(process(5_000 + gpu, own.at(now), true));
                }
                list
            });
            samples.push(MemorySample {
                at_ns: now * MS,
                device: gpu,
                used_bytes: tenant + own.at(now),
                reserved_bytes: Some(t.reserved),
                processes,
                power_mw: Some(250_000 + gpu * 1_000),
                temperature_c: Some(55 + gpu),
                utilization_pct: Some(90),
                ..Default::default()
            });
        }
    }
    samples.sort_by_key(|s| (s.at_ns, s.device));
    let mut capture = base(
        "vllm-two",
        "vllm",
        Mode::Started,
        ms,
        samples.len() as u64 / 2,
    );
    capture.container.argv = [
        "vllm",
        "serve",
        "org/model-30b",
        "--tensor-parallel-size",
        "2",
        "--max-model-len",
        "8192",
    ]
    .map(str::to_owned)
    .to_vec();
    capture.container.gpu_request = vec!["count=2".into()];
    capture.request.bench = "serve".into();
    capture.request.model = Some("org/model-30b".into());
    capture.request.workload = Workload {
        input_len: 1024,
        output_len: 128,
        num_prompts: Some(200),
        max_concurrency: Some(16),
        ..Default::default()
    };
    capture.devices = (0..2)
        .map(|index| DeviceFacts {
            index,
            kind: DeviceKind::Gpu,
            id: format!("GPU-0000000{index}"),
            name: "NVIDIA H100 80GB HBM3".into(),
            total_bytes: Some(81_559 * MIB),
            ..Default::default()
        })
        .collect();
    capture.backend = BackendFacts {
        name: "nvml".into(),
        version: Some("550.54.15".into()),
        simulated: false,
        reason: "two GPUs are given to the container".into(),
    };
    capture.probes = vec![Probe {
        at_ns: 13_000 * MS,
        path: "/version".into(),
        route: "published port".into(),
        status: Some(200),
        body: r#"{"version":"0.11.0"}"#.into(),
        error: None,
    }];
    capture.gauges = (0..40)
        .map(|i| EngineGauges {
            at_ns: (16_500 + i * 250) * MS,
            kv_cache_usage: Some(0.11),
            requests_running: Some(16),
            requests_waiting: Some(0),
            preemptions: Some(0),
        })
        .collect();
    capture.marks = vec![
        mark(0, Phase::Baseline, None),
        mark(2_500, Phase::Start, None),
        mark(14_000, Phase::Warmup, Some(1)),
        mark(16_000, Phase::Bench, Some(1)),
        mark(28_050, Phase::Cooldown, None),
    ];
    capture.execs = vec![ExecOutcome {
        role: ExecRole::Bench,
        repeat: Some(1),
        argv: vec!["vllm".into(), "bench".into(), "serve".into()],
        started_at_ns: 14_000 * MS,
        ended_at_ns: 28_040 * MS,
        end: ExecEnd::Exited(0),
        result: Some(include_str!("../fixtures/vllm/json/bench-serve.json").into()),
        ..Default::default()
    }];
    let said = |ms, text: String| line(ms, LineSource::Container, &text);
    let mut lines = vec![said(
        3_000,
        "(EngineCore_DP0 pid=100) INFO 11-21 10:00:03 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='org/model-30b', speculative_config=None, tokenizer='org/model-30b', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto".into(),
    )];
    for rank in 0..2 {
        let who = format!("(Worker_TP{rank} pid=20{rank}) INFO 11-21 10:00");
        lines.push(said(
            3_900,
            format!("{who}:03 [gpu_model_runner.py:2602] Starting to load model org/model-30b..."),
        ));
        lines.push(said(9_000, format!("{who}:09 [gpu_model_runner.py:2653] Model loading took 15.2500 GiB and 5.100000 seconds")));
        lines.push(said(
            9_500,
            format!("{who}:09 [gpu_worker.py:298] Available KV cache memory: 40.00 GiB"),
        ));
        lines.push(said(12_000, format!("{who}:12 [gpu_model_runner.py:3480] Graph capturing finished in 2 secs, took 0.50 GiB")));
    }
    lines.push(said(9_600, "(EngineCore_DP0 pid=100) INFO 11-21 10:00:09 [kv_cache_utils.py:1087] GPU KV cache size: 436,904 tokens".into()));
    lines.push(said(9_601, "(EngineCore_DP0 pid=100) INFO 11-21 10:00:09 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 53.33x".into()));
    lines.push(said(
        13_000,
        "(APIServer pid=1) INFO:     Application startup complete.".into(),
    ));
    lines.sort_by_key(|l| l.at_ns);
    capture.log.lines = lines.len() as u64;
    Built {
        capture,
        samples,
        lines,
    }
}

pub fn process(pid: u32, bytes: u64, ours: bool) -> ProcessMemory {
    ProcessMemory {
        pid,
        used_bytes: Some(bytes),
        ours: Some(ours),
        name: Some(if ours { "VLLM::Worker" } else { "trainer" }.into()),
        container_id: None,
        peak_bytes: None,
    }
}

/// The tiny model of [`idle_vllm`]: 2048 bytes of KV cache per token.
pub const TINY_CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512, "head_dim": 64}"#;

/// vLLM in an idle container, on host memory: [`idle_reference`]'s memory with vLLM's own lines. The log rounds the
/// pool of 134217728 bytes to 0.12 GiB.
pub fn idle_vllm() -> Built {
    let mut built = idle_reference();
    built.capture.engine = "vllm".into();
    built.capture.model_files = [("config.json".to_owned(), TINY_CONFIG.to_owned())].into();
    built.lines = [
        (2_050, "(MainProcess pid=9) INFO 11-21 01:36:15 [api_utils.py:286] non-default args: {'max_model_len': 2048, 'enforce_eager': True, 'kv_cache_memory_bytes': 134217728, 'model': '/models/tiny'}"),
        (2_060, "(EngineCore pid=10) INFO 11-21 01:36:15 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/tiny', dtype=torch.bfloat16, max_seq_len=2048, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=True, kv_cache_dtype=auto, device_config=cpu"),
        (2_480, "(Worker pid=11) INFO 11-21 01:36:15 [cpu_model_runner.py:68] Starting to load model /models/tiny..."),
        (3_460, "(Worker pid=11) INFO 11-21 01:36:16 [default_loader.py:501] Loading weights took 0.02 seconds"),
        (3_520, "(Worker pid=11) INFO 11-21 01:36:16 [cpu_worker.py:260] Explicitly set (0.12/64.0) GiB for KV cache on node 0."),
        (3_860, "(EngineCore pid=10) INFO 11-21 01:36:17 [kv_cache_utils.py:2327] CPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x"),
        (4_200, "(EngineCore pid=10) INFO 11-21 01:36:17 [core.py:402] init engine (profile, create kv cache, warmup model) took 1.03 s"),
    ]
    .map(|(ms, text)| line(ms, LineSource::Exec(0), text))
    .to_vec();
    built
}
