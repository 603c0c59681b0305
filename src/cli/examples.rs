//! The end of each page of help: notes, examples that work as written, and exit codes.

use crate::error::ExitCode;

/// Of `plimsoll` itself.
pub fn main() -> String {
    let codes = ExitCode::ALL.iter();
    let codes: Vec<String> = codes
        .map(|(code, words)| format!("{} {words}", *code as u8))
        .collect();
    format!("{MAIN}\n\nExit codes: {}", codes.join(", "))
}

const MAIN: &str = "\
Examples:
  plimsoll doctor                              what this machine has and lacks
  plimsoll profile my-vllm                     a running container, by name
  plimsoll estimate Qwen/Qwen3-8B --gpu H100   before a start";

pub const PROFILE: &str = "\
If an engine serves in the container, its own bench sends the load. In an idle container the bench loads the engine; --model names the model.

Examples:
  plimsoll profile my-vllm
  plimsoll profile my-vllm --num-prompts 64 --max-concurrency 8 --repeats 3
  plimsoll profile my-vllm --bench none --duration 20s
  plimsoll profile --pid 4242 --log /var/log/vllm.log   without Docker
  plimsoll profile idle --model /models/tiny-llama --batch-size 4";

pub const RUN: &str = "\
The container is always stopped and removed at the end, except with --keep.

Examples:
  plimsoll run --preset vllm-cuda --model Qwen/Qwen3-8B --gpus device=0
  plimsoll run --image vllm/vllm-openai:latest --model Qwen/Qwen3-8B --gpus all
  plimsoll run --preset reference --dry-run
  plimsoll run -- docker run --gpus all vllm/vllm-openai:latest --model org/m";

pub const SWEEP: &str = "\
Examples:
  plimsoll config init sweep.yaml
  plimsoll sweep sweep.yaml --dry-run
  plimsoll sweep sweep.yaml --resume
  plimsoll sweep --container idle --model /models/tiny-llama --batch-size 1 4";

pub const EXPERIMENT: &str = "\
All levels run on one engine: in a running container (CONTAINER), or in one that is started (--image, --preset). \
Requests, tables, a document and plots go to one folder.

Examples:
  plimsoll experiment concurrency my-vllm --levels 1 2 4 8
  plimsoll experiment seqlen my-vllm --seqlens 64 128 256
  plimsoll experiment mixed my-vllm --short 64 --long 256";

pub const TUNE: &str = "\
Each combination of settings is one start of the engine: short loads, and long ones where these show that it may win. \
What was measured in an earlier run is not measured again. No optimum is claimed: the answer lists what was not tried.

Examples:
  plimsoll tune settings.yaml --slo ttft=500ms,itl=50ms
  plimsoll tune settings.yaml --slo ttft=500ms,itl=50ms --budget 40m --resume
  plimsoll tune idle --model /models/tiny-llama --set max-num-seqs=16,64
  plimsoll tune --preset vllm-cuda --model org/m --set max-num-seqs=64,256

Exit codes: 0 answered, 2 usage, 3 environment, 4 nothing that was tried keeps the limits, 130 interrupted";

pub const ABLATE: &str = "\
The arms run in turn (A, B, A, B, …), --repeats times each; each run loads the engine again. \
--timeout applies to each run, --output names the comparison. Differences are B minus A.

Examples:
  plimsoll ablate idle --model /models/tiny-llama --a --enforce-eager --b ''
  plimsoll ablate idle -m m --a '--max-num-seqs 8' --b '--max-num-seqs 64'
  plimsoll ablate idle -m m --a --enforce-eager --b '' --repeats 3";

pub const CUDA_GRAPHS: &str = "\
TensorRT-LLM: two engines are loaded, without and with max_concurrency; no request is \
sent, and the flags of load and engine have no effect. vLLM: `ablate` of --enforce-eager.

Examples:
  plimsoll cuda-graphs idle --model-path /models/tiny-llama --max-model-len 2048
  plimsoll cuda-graphs trt --model-path /models/Llama-3.1-8B
  plimsoll cuda-graphs trt --model-path /models/Llama-3.1-8B --max-batch-size 32";

pub const LOADLINE: &str = "\
In each round plimsoll's own client keeps a fixed number of requests in progress; no prompt is repeated. \
Latency limits: ttft, itl, tpot, e2e, each with a unit (us, ms, s) and an optional statistic.

Examples:
  plimsoll loadline my-vllm --input-len 128 --output-len 256
  plimsoll loadline my-vllm --slo ttft=500ms,itl.p99=50ms
  plimsoll loadline my-vllm --predict-only";

pub const ESTIMATE: &str = "\
Examples:
  plimsoll estimate Qwen/Qwen3-8B --gpu H100
  plimsoll estimate ./model --gpu detected --max-model-len 8192 --explain
  plimsoll estimate Qwen/Qwen3-32B --gpu A100-80GB --tp 2 --check-oom
  plimsoll estimate Qwen/Qwen3-32B --gpu H100 --solve max-model-len
  plimsoll estimate Qwen/Qwen3-32B --recommend-gpu --max-model-len 8192
  plimsoll estimate --gpu H100 -- vllm serve Qwen/Qwen3-8B -tp 2
  plimsoll estimate --batch cases.jsonl --json

Exit codes: 0 estimated, 2 a wrong flag, file or model, 3 not enough information (with --check-oom and --risk also where the verdict is unknown), 6 with --check-oom: it does not fit";

pub const COMPARE: &str = "\
Every difference is the second minus the first. With --calc-*: profiles against calculated figures.

Examples:
  plimsoll compare before.json after.json
  plimsoll compare before.json after.json --fail-on 5%
  plimsoll compare after.json --against results/memory-profiles
  plimsoll compare before.json --calc-weights 14.96 --calc-kv 3.5";

pub const VALIDATE: &str = "\
Examples:
  plimsoll validate results/
  plimsoll validate results/ --fail-on tolerance
  plimsoll validate results/ --json";

pub const CALIBRATE: &str = "\
Without --output the database is in the user's state folder, where `estimate` reads it. Each run counts once.

Examples:
  plimsoll calibrate results/
  plimsoll calibrate results/ --correlations
  plimsoll calibrate results/ --output overheads.json";

pub const REPORT: &str = "\
A folder is searched for profiles and for documents of sweeps, experiments and load lines. The report is written to the folder as report.html, or \
beside a profile as <profile>-report.html. Earlier reports are overwritten, other files only with --force. If $GITHUB_STEP_SUMMARY is set, Markdown is written there, too.

Examples:
  plimsoll report results/
  plimsoll report results/ --format md,csv
  plimsoll report --compare before.json after.json -o change.md";

pub const REPLAY: &str = "\
Shows a recording and measures nothing. To profile with a recording instead of a device: `plimsoll profile --memory-backend replay:FILE`.

Examples:
  plimsoll replay profile.json
  plimsoll replay profile.json --from 2 --to 4
  plimsoll replay session.jsonl --speed 10";

pub const DERIVE: &str = "\
Examples:
  plimsoll derive profile.json
  plimsoll derive profile.json --json
  plimsoll derive profile.json --output new.json";

pub const DEMO: &str = "\
Shows derive, report, why and estimate. The run is of a simulated engine, the log of a real vLLM on a CPU. \
The files stay in the folder `demo` of the results directory.

Examples:
  plimsoll demo
  plimsoll demo --results-dir /tmp/plimsoll
  plimsoll demo --color never";

pub const PARSE: &str = "\
Examples:
  plimsoll parse engine.log
  plimsoll parse engine.log --json
  docker logs my-vllm 2>&1 | plimsoll parse -";

pub const WHY: &str = "\
Examples:
  plimsoll why my-vllm
  plimsoll why my-vllm --watch              wait for the next death
  docker logs my-vllm 2>&1 | plimsoll why -
  plimsoll why my-vllm --bundle why.tar     for a bug report
  plimsoll why why.tar                      read a bundle again
  plimsoll why --pid 4242 --log vllm.log    without Docker

Exit codes: 0 a cause was found, 2 usage, 3 nothing could be read, 9 no cause was found";

pub const TOP: &str = "\
Examples:
  plimsoll top
  plimsoll top --once --json
  plimsoll top --replay session.jsonl";

pub const WATCH: &str = "\
It reads, and changes nothing. docs/WATCH.md lists the metrics, alerts and a dashboard.

Examples:
  plimsoll watch
  plimsoll watch --listen 9400
  plimsoll watch --json --profiles profiles";

pub const CLEAN: &str = "\
Without --apply nothing is changed. Containers of plimsoll are found by their labels; others only if they are \
named or selected. A container with the label plimsoll.protect is never stopped.

Examples:
  plimsoll clean
  plimsoll clean --apply
  plimsoll clean my-vllm --apply
  plimsoll clean --all-gpu-containers --idle 30m

Exit codes: 0 nothing stuck, all cleaned, or a dry run; 2 usage; 3 no Docker; 8 not all could be cleaned";

pub const GPUS: &str = "\
Examples:
  plimsoll gpus
  plimsoll gpus --json
  plimsoll gpus --nvml-lib /usr/lib/wsl/lib/libnvidia-ml.so.1";

pub const MODELS: &str = "\
Examples:
  plimsoll models
  plimsoll models --search qwen3 moe
  plimsoll models --json";

pub const RECORD: &str = "\
Examples:
  plimsoll record -o session.jsonl
  plimsoll record -o session.jsonl --container my-vllm --duration 10s
  plimsoll record -o session.jsonl --pid 4242";

pub const DOCTOR: &str = "\
Examples:
  plimsoll doctor
  plimsoll doctor --verbose
  plimsoll doctor --json

Exit codes: 0 Docker answers, 3 it does not answer";

pub const CONFIG: &str = "\
Examples:
  plimsoll config init sweep.yaml
  plimsoll config check sweep.yaml
  plimsoll config schema";

pub const SCHEMA: &str = "\
Examples:
  plimsoll schema > schema.json
  plimsoll schema check results/memory-profiles/*.json
  plimsoll schema check profile.json

Exit codes of `check`: 0 all are valid, 2 one is invalid";

pub const COMPLETIONS: &str = "\
Where each shell reads it: docs/INSTALL.md.

Examples:
  plimsoll completions bash > plimsoll.bash
  plimsoll completions zsh > _plimsoll
  plimsoll completions fish > plimsoll.fish";

pub const MAN: &str = "\
Examples:
  plimsoll man | man -l -
  plimsoll man > plimsoll.1
  plimsoll man man1";
