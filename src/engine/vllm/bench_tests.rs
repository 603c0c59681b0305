//! Bench command lines against real and hand-made help texts.

use super::*;
use crate::capture::RequestedSettings;

const LATENCY: &str = include_str!("../../../tests/fixtures/vllm/help/help-bench-latency-all.txt");
const THROUGHPUT: &str =
    include_str!("../../../tests/fixtures/vllm/help/help-bench-throughput-all.txt");
const SERVE: &str = include_str!("../../../tests/fixtures/vllm/help/help-bench-serve-all.txt");

/// `vllm bench serve` as 0.8 to 0.10 had it, cut to the flags that matter.
const OLD_SERVE: &str = "usage: vllm bench serve [options]\n\noptions:\n  -h, --help            show this help message and exit\n  \
    --endpoint-type {tgi,vllm,openai,openai-chat}\n  --base-url BASE_URL\n  --endpoint ENDPOINT\n  \
    --dataset-name {sharegpt,burstgpt,sonnet,random,hf}\n  --max-concurrency MAX_CONCURRENCY\n  --model MODEL\n  \
    --tokenizer TOKENIZER\n  --num-prompts NUM_PROMPTS\n  --request-rate REQUEST_RATE\n  --seed SEED\n  --save-result\n  \
    --result-dir RESULT_DIR\n  --result-filename RESULT_FILENAME\n  --random-input-len RANDOM_INPUT_LEN\n  \
    --random-output-len RANDOM_OUTPUT_LEN\n  --random-range-ratio RANDOM_RANGE_RATIO\n";

/// `vllm bench throughput` of that time: no random-input-len, no dataset called random.
const OLD_THROUGHPUT: &str = "usage: vllm bench throughput [options]\n\noptions:\n  --dataset-name {sharegpt,sonnet,burstgpt,hf}\n  \
    --input-len INPUT_LEN   Input prompt length for each request\n  --output-len OUTPUT_LEN\n  --num-prompts NUM_PROMPTS\n  \
    --output-json OUTPUT_JSON\n  --model MODEL\n  --max-model-len MAX_MODEL_LEN\n";

struct Asked {
    kind: BenchKind,
    load: Workload,
    settings: RequestedSettings,
    extra: Vec<String>,
    served: Option<&'static str>,
}

impl Asked {
    fn new(kind: BenchKind) -> Asked {
        let load = Workload {
            input_len: 64,
            output_len: 32,
            ..Workload::default()
        };
        Asked {
            kind,
            load,
            settings: RequestedSettings::default(),
            extra: Vec::new(),
            served: None,
        }
    }

    fn plan(&self, help: Option<&str>) -> Result<BenchPlan, PlanError> {
        let job = BenchJob {
            kind: self.kind,
            model: "/models/m",
            served_model_name: self.served,
            port: 8000,
            workload: &self.load,
            settings: &self.settings,
            extra_engine_args: &self.extra,
            workdir: "/tmp/run/",
            repeat: 2,
        };
        plan(&job, help)
    }

    fn line(&self, help: Option<&str>) -> String {
        self.plan(help).unwrap().argv.join(" ")
    }
}

#[test]
fn latency_of_the_newest_release() {
    let mut asked = Asked::new(BenchKind::Latency);
    assert_eq!(
        asked.line(Some(LATENCY)),
        "vllm bench latency --model /models/m --input-len 64 --output-len 32 --num-iters 10 --num-iters-warmup 3 \
         --output-json /tmp/run/latency-2.json"
    );
    asked.load = Workload {
        batch_size: Some(4),
        num_iters: Some(5),
        num_iters_warmup: Some(0),
        seed: Some(1),
        num_prompts: Some(9),
        ..asked.load
    };
    asked.settings = RequestedSettings {
        dtype: Some("bfloat16".into()),
        quantization: Some("fp8".into()),
        kv_cache_dtype: Some("fp8".into()),
        tensor_parallel_size: Some(2),
        enforce_eager: true,
        gpu_memory_utilization: Some(0.85),
        max_model_len: Some(2048),
    };
    asked.extra = vec!["--kv-cache-memory-bytes".into(), "268435456".into()];
    let plan = asked.plan(Some(LATENCY)).unwrap();
    assert_eq!(
        plan.argv.join(" "),
        "vllm bench latency --model /models/m --input-len 64 --output-len 32 --batch-size 4 --num-iters 5 \
         --num-iters-warmup 0 --seed 1 --dtype bfloat16 --quantization fp8 --kv-cache-dtype fp8 \
         --tensor-parallel-size 2 --gpu-memory-utilization 0.85 --max-model-len 2048 --enforce-eager \
         --output-json /tmp/run/latency-2.json --kv-cache-memory-bytes 268435456"
    );
    assert_eq!(
        plan.notes,
        ["the latency bench has no number of prompts; it was ignored"]
    );
    assert_eq!(plan.result_path, "/tmp/run/latency-2.json");
    let env: Vec<String> = plan.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["VLLM_LOGGING_LEVEL=DEBUG", "TMPDIR=/tmp/run"]);
}

#[test]
fn throughput_new_and_old() {
    let mut asked = Asked::new(BenchKind::Throughput);
    assert_eq!(
        asked.line(Some(THROUGHPUT)),
        "vllm bench throughput --model /models/m --dataset-name random --random-input-len 64 --random-output-len 32 \
         --num-prompts 32 --output-json /tmp/run/throughput-2.json"
    );
    asked.load.num_iters_warmup = Some(4);
    assert!(asked.line(Some(THROUGHPUT)).contains(" --num-warmups 4 "));
    let old = asked.plan(Some(OLD_THROUGHPUT)).unwrap();
    assert_eq!(
        old.argv.join(" "),
        "vllm bench throughput --model /models/m --input-len 64 --output-len 32 --num-prompts 32 \
         --output-json /tmp/run/throughput-2.json"
    );
    assert_eq!(
        old.notes,
        ["the throughput bench has no warm-up; it was ignored"]
    );
    asked.settings.dtype = Some("half".into());
    asked.load.seed = Some(1);
    assert_eq!(
        asked.plan(Some(OLD_THROUGHPUT)),
        Err(PlanError::UnknownFlags {
            bench: "vllm bench throughput".into(),
            flags: "--seed, --dtype".into()
        })
    );
}

#[test]
fn serve_of_the_newest_release() {
    let mut asked = Asked::new(BenchKind::Serve);
    asked.served = Some("m");
    asked.load.max_concurrency = Some(8);
    asked.load.request_rate = Some(2.5);
    asked.load.seed = Some(7);
    let plan = asked.plan(Some(SERVE)).unwrap();
    assert_eq!(
        plan.argv.join(" "),
        "vllm bench serve --backend openai --base-url http://127.0.0.1:8000 --endpoint /v1/completions \
         --model /models/m --served-model-name m --dataset-name random --random-input-len 64 --random-output-len 32 \
         --num-prompts 32 --max-concurrency 8 --request-rate 2.5 --num-warmups 3 --ignore-eos --seed 7 \
         --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99 \
         --save-result --result-dir /tmp/run --result-filename serve-2.json"
    );
    assert_eq!(
        (plan.result_path.as_str(), plan.notes.len()),
        ("/tmp/run/serve-2.json", 0)
    );
    // Progress is read from the bars.
    assert!(!plan.argv.iter().any(|a| a == "--disable-tqdm"));
}

#[test]
fn serve_of_old_releases() {
    let mut asked = Asked::new(BenchKind::Serve);
    asked.served = Some("name");
    let plan = asked.plan(Some(OLD_SERVE)).unwrap();
    assert_eq!(
        plan.argv.join(" "),
        "vllm bench serve --endpoint-type openai --base-url http://127.0.0.1:8000 --endpoint /v1/completions \
         --model name --tokenizer /models/m --dataset-name random --random-input-len 64 --random-output-len 32 \
         --num-prompts 32 --save-result --result-dir /tmp/run --result-filename serve-2.json"
    );
    assert_eq!(
        plan.notes,
        ["this release has no warm-up requests but its one test request"]
    );
    let oldest = OLD_SERVE.replace(
        "--endpoint-type {tgi,vllm,openai,openai-chat}",
        "--backend {vllm,openai-chat}",
    );
    assert!(asked.line(Some(&oldest)).contains("serve --backend vllm "));
    asked.load.num_iters_warmup = Some(2);
    assert_eq!(
        asked.plan(Some(OLD_SERVE)).unwrap_err().to_string(),
        "`vllm bench serve` of this engine's version has no --num-warmups; leave that out, or use --bench builtin"
    );
}

#[test]
fn engine_settings_cannot_reach_a_running_server() {
    let mut asked = Asked::new(BenchKind::Serve);
    asked.settings.dtype = Some("half".into());
    asked.settings.enforce_eager = true;
    asked.extra = vec![
        "--trust-remote-code".into(),
        "--swap-space".into(),
        "4".into(),
    ];
    let plan = asked.plan(Some(SERVE)).unwrap();
    assert!(
        !plan
            .argv
            .iter()
            .any(|a| a == "--dtype" || a == "--swap-space")
    );
    assert!(plan.argv.iter().any(|a| a == "--trust-remote-code"));
    assert_eq!(
        plan.notes,
        ["the server is already running; --dtype, --enforce-eager, --swap-space have no effect"]
    );
}

#[test]
fn without_help_the_newest_form() {
    for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
        let asked = Asked::new(kind);
        let listed = match kind {
            BenchKind::Latency => LATENCY,
            BenchKind::Throughput => THROUGHPUT,
            BenchKind::Serve => SERVE,
            BenchKind::Probe => continue,
        };
        let plan = asked.plan(None).unwrap();
        assert_eq!(plan.argv.join(" "), asked.line(Some(listed)));
        assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
        assert_eq!(
            asked.plan(Some("Traceback: no help today")).unwrap().argv,
            plan.argv
        );
    }
}

#[test]
fn requests_that_cannot_be() {
    let with = |change: fn(&mut Asked)| {
        let mut asked = Asked::new(BenchKind::Latency);
        change(&mut asked);
        matches!(asked.plan(Some(LATENCY)), Err(PlanError::Invalid(_)))
    };
    assert!(with(|a| a.load.output_len = 0));
    assert!(with(|a| a.load.num_iters = Some(0)));
    assert!(with(|a| a.settings.max_model_len = Some(95)));
    assert!(!with(|a| a.settings.max_model_len = Some(96)));
    let refused = Asked::new(BenchKind::Latency).plan(Some(
        "vllm: error: invalid choice: 'bench' (choose from 'serve')",
    ));
    assert!(refused.unwrap_err().to_string().contains("0.8.5"));
}
