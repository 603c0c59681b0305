//! Whose memory a GPU holds, end to end: containers of the reference engine, a process of the
//! host, and the stand-in NVML that says where they are.

use crate::common;
use crate::common::stage;
use common::docker;
use common::e2e::{Engine, Live, plimsoll, run};
use plimsoll::capture::{DeviceFacts, DeviceKind};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

const GPUS: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090
at 0 gpu 0 used=70000 power=690000 temp=66 util=100
at 0 gpu 1 used=12 power=22000 temp=40 util=0
";

/// A process of the host, ended when dropped.
struct Neighbour(Child);

impl Neighbour {
    fn start() -> Neighbour {
        let mut sleep = Command::new("sleep");
        Neighbour(sleep.arg("300").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serving(what: &str) -> Engine {
    let sizes = [
        "--weights",
        "64MiB",
        "--kv-pool",
        "32MiB",
        "--activation",
        "8MiB",
    ];
    Engine::serving(what, &[], &sizes)
}

fn pid_of(engine: &Engine) -> String {
    docker(&["inspect", "-f", "{{.State.Pid}}", &engine.id]).unwrap()
}

fn command(args: &[&str], scenario: &Path) -> Command {
    let mut command = plimsoll(args);
    command
        .arg("--nvml-lib")
        .arg(stage::library())
        .env(stage::SCENARIO_VARIABLE, scenario);
    command
}

fn written(dir: &tempfile::TempDir, scenario: &str) -> PathBuf {
    let path = dir.path().join("scenario");
    std::fs::write(&path, scenario).unwrap();
    path
}

#[test]
fn two_containers_and_a_process_of_the_host_are_told_apart() {
    needs!(Docker, ReferenceEngine);
    let (one, two, neighbour) = (
        serving("tenant-one"),
        serving("tenant-two"),
        Neighbour::start(),
    );
    let dir = tempfile::tempdir().unwrap();
    let scenario = written(
        &dir,
        &format!(
            "{GPUS}at 0 proc 0 {} 40000 both\nat 0 proc 0 {} 20000\nat 0 proc 0 {} 500\nat 0 proc 1 {} 7\n",
            pid_of(&one),
            pid_of(&two),
            neighbour.0.id(),
            pid_of(&two),
        ),
    );
    let ended = Live::start(command(&["top", "--once", "--json"], &scenario))
        .end()
        .expect(0);
    let look: Value = serde_json::from_str(&ended.stdout).unwrap();
    let held = |gpu: usize, id: Option<&str>| {
        let tenants = look["gpus"][gpu]["tenants"].as_array().unwrap();
        let of = tenants.iter().find(|t| t["container_id"].as_str() == id);
        of.map(|t| {
            (
                t["used_bytes"].as_u64().unwrap() / MIB,
                t["container_name"].clone(),
            )
        })
    };
    assert_eq!(
        held(0, Some(&one.id)),
        Some((40000, one.name.clone().into()))
    );
    assert_eq!(
        held(0, Some(&two.id)),
        Some((20000, two.name.clone().into()))
    );
    assert_eq!(held(0, None), Some((500, Value::Null)), "the host's own");
    assert_eq!(look["gpus"][0]["unattributed_bytes"], (70000 - 60500) * MIB);
    assert_eq!(held(1, Some(&one.id)), None);
    assert_eq!(held(1, Some(&two.id)), Some((7, two.name.clone().into())));
    let known = look["containers"].as_array().unwrap();
    for engine in [&one, &two] {
        let seen = known
            .iter()
            .find(|c| c["id"] == engine.id.as_str())
            .unwrap();
        assert_eq!(
            (&seen["engine"], &seen["simulated"]),
            (&"reference".into(), &true.into())
        );
        assert!(seen["host_bytes"].as_u64().unwrap() > 90 * MIB, "{seen}");
        assert_eq!(seen["requests_running"], 0);
    }
}

/// Profiles a serving engine for two seconds and returns the document.
fn profile(engine: &Engine, scenario: &Path, extra: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    profile_into(dir.path(), engine, scenario, extra)
}

fn profile_into(results: &Path, engine: &Engine, scenario: &Path, extra: &[&str]) -> Value {
    let results = results.to_str().unwrap();
    let mut args = vec![
        "profile",
        &engine.name,
        "--bench",
        "none",
        "--duration",
        "2s",
    ];
    args.extend(["--baseline", "1s", "--json", "--results-dir", results]);
    args.extend(extra);
    let ended = Live::start(command(&args, scenario)).end().expect(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_profile_on_a_gpu_names_its_container() {
    needs!(Docker, ReferenceEngine);
    let (ours, other, neighbour) = (
        serving("gpu-ours"),
        serving("gpu-other"),
        Neighbour::start(),
    );
    let dir = tempfile::tempdir().unwrap();
    let scenario = written(
        &dir,
        &format!(
            "{GPUS}at 0 proc 0 {} 40000\nat 0 proc 0 {} 20000\nat 0 proc 0 {} 500\nat 1500 xid 0 31\n",
            pid_of(&ours),
            pid_of(&other),
            neighbour.0.id(),
        ),
    );
    let document = profile(&ours, &scenario, &[]);
    let backend = &document["metadata"]["memory_backend"];
    assert_eq!(
        (&backend["name"], &backend["simulated"]),
        (&"nvml".into(), &true.into())
    );
    let gpu = &document["detailed_gpu_metrics"]["gpus"][0];
    let processes = gpu["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3, "{gpu}");
    let of = |in_container: bool| {
        let of = |p: &&Value| p["in_container"] == in_container;
        processes.iter().filter(of).cloned().collect::<Vec<Value>>()
    };
    let mine = of(true);
    assert_eq!(mine.len(), 1, "{gpu}");
    assert_eq!(mine[0]["container_id"], ours.id.as_str());
    assert_eq!(mine[0]["container_name"], ours.name.as_str());
    assert_eq!(mine[0]["memory_usage"]["value"], 40000.0);
    let mut theirs: Vec<_> = of(false)
        .iter()
        .map(|p| p["container_id"].clone())
        .collect();
    theirs.sort_by_key(Value::is_null);
    assert_eq!(theirs, [Value::from(other.id.as_str()), Value::Null]);
    assert_eq!(gpu["unattributed_mb"], 9500.0);
    assert_eq!(gpu["power_watts"], 690.0);
    // What happened to the GPU meanwhile is a finding.
    let findings = document["findings"].as_array().unwrap();
    let xid = findings.iter().find(|f| f["code"] == "gpu_xid").unwrap();
    assert!(xid["message"].as_str().unwrap().contains("Xid 31"), "{xid}");
    let power = &document["memory_timeline"]["extended"]["power"]["mean_w"];
    assert!((685.0..695.0).contains(&power.as_f64().unwrap()), "{power}");
}

#[test]
fn a_profile_can_be_taken_on_a_recorded_session() {
    needs!(Docker, ReferenceEngine);
    let engine = serving("gpu-replay");
    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("session.jsonl");
    let device = DeviceFacts {
        kind: DeviceKind::Gpu,
        id: "GPU-1".into(),
        name: "NVIDIA H100".into(),
        total_bytes: Some(80 << 30),
        ..DeviceFacts::default()
    };
    let mut text = serde_json::json!({
        "plimsoll_recording": 1, "plimsoll_version": "0.1.0", "wall_start_ns": 0, "interval_ns": 100_000_000,
        "backend": {"name": "nvml", "version": "570.1", "simulated": false, "reason": "the host has 1 GPU"},
        "devices": [device],
    })
    .to_string();
    for tick in 0..600u64 {
        let used = if (10..12).contains(&(tick % 20)) {
            70
        } else {
            50
        };
        let at = tick * 100_000_000;
        text += &format!(
            "\n{{\"at_ns\":{at},\"device\":0,\"used_bytes\":{}}}",
            used * (1u64 << 30)
        );
    }
    std::fs::write(&session, text).unwrap();
    let choice = format!("replay:{}", session.display());
    let document = profile(&engine, &session, &["--memory-backend", &choice]);
    let backend = &document["metadata"]["memory_backend"];
    assert_eq!(
        (&backend["name"], &backend["simulated"]),
        (&"replay".into(), &false.into())
    );
    assert_eq!(backend["version"], "nvml 570.1");
    assert_eq!(document["memory_breakdown"]["total_measured_gb"], 70.0);
    assert_eq!(document["gpu_info"]["num_gpus"], 1);
}

/// A container whose vLLM refuses to start for want of a pool; no engine runs in it.
const NO_POOL: &str = "vllm serve Qwen/Qwen3-8B --max-model-len 16384 --gpu-memory-utilization 0.5; \
    echo 'ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.'; exit 1";

#[test]
fn what_to_change_is_estimated_on_the_gpus_as_they_are() {
    needs!(Docker, ReferenceEngine);
    let dead = common::TestContainer::run("why-gpu", &["--env=NVIDIA_VISIBLE_DEVICES=1"], NO_POOL);
    docker(&["wait", &dead.name]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let why = |scenario: &str| {
        let scenario = written(&dir, scenario);
        let ended = Live::start(command(&["why", &dead.name, "--json"], &scenario)).end();
        let stdout = ended.expect(0).stdout;
        serde_json::from_str::<Value>(&stdout).unwrap()
    };
    // One GPU of 24 GiB, which nobody else uses: half of it is too little.
    let alone = "gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090\nat 0 gpu 0 used=12 power=22000 temp=40 util=0\n";
    let found = why(alone);
    assert_eq!(found["cause"], "kv_pool_empty", "{found:#}");
    let advice = &found["advice"][0];
    assert_eq!(advice["setting"], "gpu_memory_utilization", "{found:#}");
    let share = advice["value"].as_f64().unwrap_or_default();
    assert!((0.8..=0.95).contains(&share), "{found:#}");
    let text = advice["text"].as_str().unwrap();
    assert!(text.contains("by the estimate it holds"), "{text}");
    // A neighbour holds most of it: who it is, and how much.
    let neighbour = serving("tenant-beside");
    let beside = format!("{alone}at 0 proc 0 {} 15000\n", pid_of(&neighbour))
        .replace("used=12", "used=15000");
    let found = why(&beside);
    assert_eq!(found["cause"], "gpu_memory_in_use_by_others", "{found:#}");
    let all = found.to_string();
    assert!(
        all.contains(&format!("container `{}` holds 14.65 GiB", neighbour.name)),
        "{found:#}"
    );
}

#[test]
fn the_host_memory_of_a_gpu_container_is_a_second_budget() {
    needs!(Docker, ReferenceEngine);
    let sizes = [
        "--weights",
        "64MiB",
        "--kv-pool",
        "32MiB",
        "--activation",
        "8MiB",
    ];
    let engine = Engine::serving("gpu-host-memory", &["--memory=512m"], &sizes);
    let dir = tempfile::tempdir().unwrap();
    let scenario = written(
        &dir,
        &format!("{GPUS}at 0 proc 0 {} 40000\n", pid_of(&engine)),
    );
    let results = dir.path().join("results");
    let document = profile_into(&results, &engine, &scenario, &[]);
    let host = &document["host_memory"];
    assert_eq!(host["limit_bytes"], 512 * MIB, "{host:#}");
    assert_eq!(host["limit_level"], "container", "{host:#}");
    let held = host["peak"]["held_bytes"].as_u64().unwrap();
    assert!((96 * MIB..512 * MIB).contains(&held), "{host:#}");
    assert!(
        host["peak"]["kinds"]["anon_bytes"].as_u64() >= Some(64 * MIB),
        "{host:#}"
    );
    let tightest = &host["tightest_host"];
    assert!(tightest["available_bytes"].as_u64() > Some(0), "{host:#}");
    // The GPU's own figures are those of the GPU.
    assert_eq!(document["gpu_info"]["num_gpus"], 1);
    assert_eq!(document["gpu_info"]["devices"].as_array().unwrap().len(), 1);
    let peak = &document["memory_breakdown"]["total_measured_bytes"];
    assert_eq!(*peak, (70000 + 551) * MIB);
    // Its page has both gauges, and the lane of the host memory.
    let page = run(&[
        "report",
        results.to_str().unwrap(),
        "--format=txt",
        "--output=-",
    ]);
    let page = page.expect(0).stdout;
    assert!(page.contains("Host memory of the container"), "{page}");
    assert!(page.contains("Container's host memory"), "{page}");
}

#[test]
fn a_gpu_that_shares_its_hosts_memory_has_all_of_it_as_its_budget() {
    needs!(Docker, ReferenceEngine);
    let engine = serving("gpu-unified");
    let dir = tempfile::tempdir().unwrap();
    let scenario = written(
        &dir,
        &format!(
            "gpu GPU-00000000-cccc-0000-0000-000000000000 0 0 NVIDIA GB10\nat 0 proc 0 {} 300\n",
            pid_of(&engine)
        ),
    );
    let total = plimsoll::host::memory_bytes().unwrap();
    let document = profile(&engine, &scenario, &[]);
    let device = &document["gpu_info"]["devices"][0];
    assert_eq!(
        (&device["shares_host"], &device["total_bytes"]),
        (&true.into(), &total.into())
    );
    let text = |args: &[&str]| Live::start(command(args, &scenario)).end().stdout;
    let look: Value = serde_json::from_str(&text(&["top", "--once", "--json"])).unwrap();
    let gpu = &look["gpus"][0];
    assert_eq!(gpu["total_bytes"], total);
    // Host and GPU are one memory, read at two moments.
    let used = gpu["used_bytes"].as_u64().unwrap();
    let host = total - look["host"]["available_bytes"].as_u64().unwrap();
    assert!(used.abs_diff(host) < total / 10, "{look:#}");
    let page = text(&["top", "--once"]);
    assert!(page.contains("operating system"), "{page}");
    // What the operating system holds is no leftover of a GPU.
    let clean = text(&["clean", "--json"]);
    assert!(!clean.contains("unlisted_memory"), "{clean}");
}
