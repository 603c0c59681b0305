//! The end of each page of help: what must be known besides the flags, and examples that work as
//! written.

/// Of `plimsoll` itself.
pub const MAIN: &str = "\
Examples:
  plimsoll doctor                              is everything here that it needs?
  plimsoll profile my-vllm                     a container that runs, by name
  plimsoll estimate Qwen/Qwen3-8B --gpu H100   before anything is started
  plimsoll clean                               what holds memory and should not

Exit codes: 0 done, 1 internal, 2 usage, 3 environment, 4 the measured run failed, 5 some cells failed, 6 does not fit, 7 beyond --fail-on, 8 clean incomplete, 130 interrupted";

/// Of `profile`.
pub const PROFILE: &str = "\
Where an engine serves in the container its own bench is run against it; in an idle one the bench loads the engine, and --model says with what.

Examples:
  plimsoll profile my-vllm
  plimsoll profile my-vllm --num-prompts 64 --max-concurrency 8 --repeats 3
  plimsoll profile my-vllm --bench none --duration 20s
  plimsoll profile --pid 4242 --log /var/log/vllm.log       without Docker
  plimsoll profile idle --model /models/tiny-llama --batch-size 4";

/// Of `run`.
pub const RUN: &str = "\
The container is stopped and removed at the end, whatever happened, unless --keep.

Examples:
  plimsoll run --preset vllm-cuda --model Qwen/Qwen3-8B --gpus device=0
  plimsoll run --image vllm/vllm-openai:latest --model Qwen/Qwen3-8B --gpus all
  plimsoll run --preset reference --dry-run
  plimsoll run -- docker run --gpus all vllm/vllm-openai:latest --model org/m";

/// Of `sweep`.
pub const SWEEP: &str = "\
Examples:
  plimsoll config init sweep.yaml
  plimsoll sweep sweep.yaml --dry-run
  plimsoll sweep sweep.yaml --resume
  plimsoll sweep --container idle --model /models/tiny-llama --batch-size 1 4";

/// Of `experiment`.
pub const EXPERIMENT: &str = "\
Each kind puts its levels on one start of one engine: in a container that is there (CONTAINER), or in one that is started for it (--image, --preset). \
Rows of all requests, a table, a document and plots go to a folder of their own.

Examples:
  plimsoll experiment concurrency my-vllm --levels 1 2 4 8
  plimsoll experiment seqlen my-vllm --seqlens 64 128 256
  plimsoll experiment mixed my-vllm --short 64 --long 256";

/// Of `tune`.
pub const TUNE: &str = "\
Each combination of settings is one start of the engine: short loads, and long ones where these show that it may win. \
What was measured in an earlier run is not measured again. No optimum is claimed: the answer lists what was not tried.

Examples:
  plimsoll tune settings.yaml --slo ttft=500ms,itl=50ms
  plimsoll tune settings.yaml --slo ttft=500ms,itl=50ms --budget 40m --resume
  plimsoll tune idle --model /models/tiny-llama --set max-num-seqs=16,64
  plimsoll tune --preset vllm-cuda --model org/m --set max-num-seqs=64,256

Exit codes: 0 answered, 2 usage, 3 environment, 4 nothing that was tried keeps the limits, 130 interrupted";

/// Of `ablate`.
pub const ABLATE: &str = "\
The arms run in turn (A, B, A, B, …), --repeats times each, every run in an engine that its bench loads. \
--timeout holds for each run, --output names the comparison. Numbers are B less A.

Examples:
  plimsoll ablate idle --model /models/tiny-llama --a --enforce-eager --b ''";

/// Of `cuda-graphs`.
pub const CUDA_GRAPHS: &str = "\
TensorRT-LLM: two engines are loaded, without max_concurrency and with it, and warm up by themselves; no request is \
sent, so the flags of load and engine have no effect. vLLM: `ablate` with --enforce-eager against nothing.

Examples:
  plimsoll cuda-graphs idle --model-path /models/tiny-llama --max-model-len 2048
  plimsoll cuda-graphs trt --model-path /models/Llama-3.1-8B --max-batch-size 32";

/// Of `loadline`.
pub const LOADLINE: &str = "\
Each round is a load of plimsoll's own client from this host, with exactly so many requests in flight and no prompt twice. \
Latency limits: ttft, itl, tpot, e2e, each with a unit (us, ms, s) and if wanted a statistic.

Examples:
  plimsoll loadline my-vllm --input-len 128 --output-len 256
  plimsoll loadline my-vllm --slo ttft=500ms,itl.p99=50ms
  plimsoll loadline my-vllm --predict-only";

/// Of `estimate`.
pub const ESTIMATE: &str = "\
Examples:
  plimsoll estimate Qwen/Qwen3-8B --gpu H100
  plimsoll estimate ./model --gpu detected --max-model-len 8192 --explain
  plimsoll estimate Qwen/Qwen3-32B --gpu A100-80GB --tp 2 --check-oom
  plimsoll estimate Qwen/Qwen3-32B --gpu H100 --solve max-model-len
  plimsoll estimate Qwen/Qwen3-32B --recommend-gpu --max-model-len 8192
  plimsoll estimate --gpu H100 -- vllm serve Qwen/Qwen3-8B -tp 2
  plimsoll estimate --batch cases.jsonl --json

Exit codes: 0 told, 3 it cannot be told (what is missing is), 6 with --check-oom: it does not fit";

/// Of `compare`.
pub const COMPARE: &str = "\
Two profiles: every difference is the second less the first. With --calc-*: one profile or more, against what was calculated.

Examples:
  plimsoll compare before.json after.json
  plimsoll compare before.json after.json --fail-on 5%
  plimsoll compare after.json --against results/memory-profiles
  plimsoll compare before.json --calc-weights 14.96 --calc-kv 3.5";

/// Of `validate`.
pub const VALIDATE: &str = "\
Examples:
  plimsoll validate results/
  plimsoll validate results/ --fail-on tolerance";

/// Of `calibrate`.
pub const CALIBRATE: &str = "\
Without --output the database lies in the user's state folder, where `estimate` looks for it; runs that it knows already count once.

Examples:
  plimsoll calibrate results/
  plimsoll calibrate results/ --correlations";

/// Of `report`.
pub const REPORT: &str = "\
A folder is searched for profiles and for documents of sweeps, experiments and load lines. The report is written beside what it is of: report.html in a folder, \
<profile>-report.html beside a profile. A report that is there is written over; another file only with --force. Where $GITHUB_STEP_SUMMARY is set, Markdown goes there, too.

Examples:
  plimsoll report results/
  plimsoll report results/ --format md,csv
  plimsoll report --compare before.json after.json -o change.md";

/// Of `replay`.
pub const REPLAY: &str = "\
Shows what was recorded, and measures nothing. To let a recording stand for a device: --memory-backend replay:FILE of `plimsoll profile`.

Examples:
  plimsoll replay profile.json
  plimsoll replay session.jsonl --speed 10";

/// Of `derive`.
pub const DERIVE: &str = "\
Examples:
  plimsoll derive profile.json
  plimsoll derive profile.json --json";

/// Of `parse`.
pub const PARSE: &str = "\
Examples:
  plimsoll parse engine.log
  docker logs my-vllm 2>&1 | plimsoll parse -";

/// Of `why`.
pub const WHY: &str = "\
Examples:
  plimsoll why my-vllm
  plimsoll why my-vllm --watch              wait for the next death
  plimsoll why my-vllm --bundle why.tar     for a bug report
  plimsoll why why.tar                      reads that again
  plimsoll why --pid 4242 --log vllm.log    without Docker
  docker logs my-vllm 2>&1 | plimsoll why -

Exit codes: 0 a cause was found, 9 none was, 3 nothing could be read.";

/// Of `top`.
pub const TOP: &str = "\
Examples:
  plimsoll top
  plimsoll top --once --json
  plimsoll top --replay session.jsonl";

/// Of `watch`.
pub const WATCH: &str = "\
It reads, and changes nothing. docs/WATCH.md lists the metrics, alerts and a dashboard.

Examples:
  plimsoll watch
  plimsoll watch --listen 9400
  plimsoll watch --json --profiles profiles";

/// Of `clean`.
pub const CLEAN: &str = "\
Without --apply nothing is touched. What plimsoll created and lost is found by its labels; anything else only if it is \
named or chosen. Label plimsoll.protect keeps a container, whatever is asked.

Examples:
  plimsoll clean
  plimsoll clean --apply
  plimsoll clean my-vllm --apply
  plimsoll clean --all-gpu-containers --idle 30m

Exit codes: 0 nothing stuck, or all of it cleaned (and a dry run), 2 usage, 3 no Docker, 8 not all could be cleaned";

/// Of `gpus`.
pub const GPUS: &str = "\
Examples:
  plimsoll gpus
  plimsoll gpus --json";

/// Of `models`.
pub const MODELS: &str = "\
Examples:
  plimsoll models
  plimsoll models --search qwen3 moe";

/// Of `record`.
pub const RECORD: &str = "\
Examples:
  plimsoll record -o session.jsonl
  plimsoll record -o session.jsonl --container my-vllm --duration 10s
  plimsoll record -o session.jsonl --pid 4242";

/// Of `doctor`.
pub const DOCTOR: &str = "\
Examples:
  plimsoll doctor
  plimsoll doctor --json

Exit codes: 0 Docker answers, 3 it does not";

/// Of `config`.
pub const CONFIG: &str = "\
Examples:
  plimsoll config init sweep.yaml
  plimsoll config check sweep.yaml
  plimsoll config schema";

/// Of `schema`.
pub const SCHEMA: &str = "\
Examples:
  plimsoll schema > schema.json
  plimsoll schema check results/memory-profiles/*.json

Exit codes of `check`: 0 all are valid, 2 one is not";

/// Of `completions`.
pub const COMPLETIONS: &str = "\
Where each shell looks for it: docs/INSTALL.md.

Examples:
  plimsoll completions bash > plimsoll.bash
  plimsoll completions zsh > _plimsoll";

/// Of `man`.
pub const MAN: &str = "\
Examples:
  plimsoll man | man -l -
  plimsoll man man1";
