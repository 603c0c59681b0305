//! `gpus`, `record` and `top` against the stand-in NVML, without containers, and what was recorded
//! played back.

use crate::common;
use crate::common::stage;
use common::e2e::{Ended, Live, plimsoll, wait_for};
use common::skip;
use plimsoll::capture::MemorySample;
use plimsoll::clock::Clock;
use plimsoll::live::metrics::{FAMILIES, PREFIX};
use plimsoll::store::Recording;
use plimsoll::telemetry::{MemorySampler, ReplayBackend, SamplerOptions};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

const GPUS: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090
at 0 gpu 0 used=70000 power=690000 temp=66 util=100 sm=1755 mem=2619
at 0 gpu 1 used=12 power=22000 temp=40 util=0
at 0 proc 0 self 100
";

/// The binary with the stand-in library, playing a scenario.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new(scenario: &str) -> Host {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("scenario"), scenario).unwrap();
        Host { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = plimsoll(args);
        command
            .arg("--nvml-lib")
            .arg(stage::library())
            .env(stage::SCENARIO_VARIABLE, self.path("scenario"))
            // No daemon: what is here does not belong into the test.
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock");
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ended {
        Live::start(self.command(args)).end()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(args).expect(0).stdout).unwrap()
    }
}

#[test]
fn gpus_are_listed_with_what_is_known_of_them() {
    let host = Host::new(GPUS);
    let gpus = host.json(&["gpus", "--json"]);
    assert_eq!(gpus["backend"]["simulated"], true);
    let first = &gpus["here"][0];
    assert_eq!(first["id"], "GPU-00000000-aaaa-0000-0000-000000000000");
    assert_eq!(first["now"]["used_bytes"], 70000 * MIB);
    assert_eq!(first["now"]["power_mw"], 690_000);
    assert_eq!(first["model"]["bandwidth_gb_s"], 3350.0);
    assert!(gpus["catalog"].as_array().unwrap().len() > 30);
    assert_eq!(first["slices"], Value::Array(vec![]));
    let text = host.run(&["gpus"]).expect(0).stdout;
    assert!(
        text.contains("NVIDIA GeForce RTX 4090") && text.contains("SIMULATED"),
        "{text}"
    );

    // Slices stand with their GPU, and are no further GPUs.
    let split = Host::new(&format!(
        "{GPUS}mig 1 0 MIG-aa 4864\nmig 1 2 MIG-bb 9984\nat 0 slice 1 2 used=8000\n"
    ));
    let gpus = split.json(&["gpus", "--json"]);
    assert_eq!(gpus["here"].as_array().unwrap().len(), 2);
    let slices = gpus["here"][1]["slices"].as_array().unwrap();
    assert_eq!(
        (slices.len(), slices[1]["id"].as_str()),
        (2, Some("MIG-bb"))
    );
    assert_eq!(slices[1]["now"]["used_bytes"], 8000 * MIB);
    assert!(slices[1]["model"].is_null(), "{gpus}");
    let text = split.run(&["gpus"]).expect(0).stdout;
    assert!(text.contains("(MIG-bb): 9.75 GiB, 7.81 GiB used"), "{text}");

    // Without a GPU the facts are there all the same.
    let bare = Host::new("");
    let gpus = bare.json(&["gpus", "--json"]);
    assert_eq!(gpus["here"], Value::Array(vec![]));
    assert!(
        gpus["problem"].as_str().unwrap().contains("no GPU"),
        "{gpus}"
    );
    assert!(gpus["backend"].is_null());
}

#[test]
fn top_looks_once() {
    let host = Host::new(GPUS);
    let look = host.json(&["top", "--once", "--json"]);
    let gpu = &look["gpus"][0];
    assert_eq!(gpu["used_bytes"], 70000 * MIB);
    assert_eq!(gpu["unattributed_bytes"], 69900 * MIB);
    assert_eq!(gpu["power_w"], 690.0);
    assert!(look["gpus"][1]["unattributed_bytes"].is_u64());
    assert_eq!(look["containers"], Value::Array(vec![]));
    assert!(
        look["notes"][0].as_str().unwrap().contains("docker.sock"),
        "{look}"
    );
    let text = host.run(&["top", "--once"]).expect(0).stdout;
    assert!(
        text.starts_with("SIMULATED GPUs") && text.contains("690 W"),
        "{text}"
    );
    // A stumble of the driver is told, and its figure is unknown rather than old.
    let host = Host::new(&format!(
        "{GPUS}at 0 fail nvmlDeviceGetMemoryInfo_v2 999 1\nat 0 fail nvmlDeviceGetMemoryInfo 999 1\n"
    ));
    let look = host.json(&["top", "--once", "--json"]);
    assert_eq!(look["gpus"].as_array().unwrap().len(), 1);

    // A driver that names nobody: that is said, with the reason.
    let host = Host::new(&format!("{GPUS}driver 535.54.03\n"));
    let look = host.json(&["top", "--once", "--json"]);
    let notes = look["notes"].to_string();
    assert!(
        notes.contains("the owners of the memory are unknown") && notes.contains("are broken"),
        "{notes}"
    );
    assert_eq!(look["gpus"][0]["tenants"], Value::Array(vec![]));
    assert_eq!(look["gpus"][0]["unattributed_bytes"], Value::Null);

    let blind = Host::new("");
    blind
        .run(&["top", "--once"])
        .expect(3)
        .says(&["no GPU", "docker.sock"], "plimsoll doctor");
}

/// The way to run a command in a pid namespace of its own, where one may be made here.
fn in_own_pids() -> Option<Vec<&'static str>> {
    let plain = vec!["unshare", "--pid", "--fork", "--mount-proc"];
    let rootless = [plain.clone(), vec!["--user", "--map-root-user"]].concat();
    [plain, rootless].into_iter().find(|way| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg("true");
        command.output().is_ok_and(|o| o.status.success())
    })
}

#[test]
fn in_a_pid_namespace_of_its_own_it_attributes_nothing_and_says_so() {
    let Some(way) = in_own_pids() else {
        return skip::skip(
            "in_a_pid_namespace_of_its_own_it_attributes_nothing_and_says_so",
            "no pid namespace may be made here",
        );
    };
    // On a GPU is pid 2, which here is another process than there.
    let host = Host::new(&format!("{GPUS}at 0 proc 0 2 500\n"));
    let plain = host.command(&["top", "--once", "--json"]);
    let mut command = Command::new(way[0]);
    command
        .args(&way[1..])
        .arg(plain.get_program())
        .args(plain.get_args());
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let look: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        look["gpus"][0]["used_bytes"],
        70000 * MIB,
        "memory is read as ever"
    );
    assert_eq!(look["gpus"][0]["tenants"], Value::Array(vec![]));
    assert_eq!(look["gpus"][0]["unattributed_bytes"], Value::Null);
    assert!(look["notes"].to_string().contains("--pid=host"), "{look}");
}

#[test]
fn top_ends_when_nobody_reads_it_any_more() {
    let host = Host::new(GPUS);
    for args in [&["top", "--json"][..], &["top"]] {
        let mut top = host.command(args);
        let mut child = top
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // One look, and the reader is gone.
        let mut first = [0; 16];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = wait_for("its end", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{args:?}");
    }
}

#[test]
fn watch_serves_prometheus_until_it_is_stopped() {
    let host = Host::new(GPUS);
    let mut command = host.command(&["watch", "--listen", "127.0.0.1:0"]);
    command.env("XDG_STATE_HOME", host.dir.path());
    let mut watch = Live::start(command);
    watch.until("serving http://");
    let said = watch.stderr();
    let address = said
        .split("http://")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let page = wait_for("a page", || {
        let mut stream = std::net::TcpStream::connect(&address).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        reply.contains("plimsoll_").then_some(reply)
    });
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let used = r#"plimsoll_gpu_memory_used_bytes{gpu="GPU-00000000-aaaa-0000-0000-000000000000",name="NVIDIA H100 80GB HBM3"} 73400320000.0"#;
    assert!(
        page.contains(used) && page.contains("plimsoll_gpu_simulated"),
        "{page}"
    );
    watch.signal(rustix::process::Signal::TERM);
    let ended = watch.end().expect(0);
    assert!(!ended.stderr.contains("captured"), "{}", ended.stderr);
}

fn used(samples: &[MemorySample], device: u32) -> Vec<u64> {
    let mut used: Vec<u64> = samples
        .iter()
        .filter(|s| s.device == device)
        .map(|s| s.used_bytes / MIB)
        .collect();
    used.dedup();
    used
}

fn play(path: &Path) -> (Vec<MemorySample>, plimsoll::capture::BackendFacts) {
    let recording = Recording::read_recording(path).unwrap();
    let clock = Clock::manual(0);
    let header = recording.header;
    let replay = ReplayBackend::of_session(
        &clock,
        &header.backend,
        header.devices,
        recording.samples,
        "x",
    );
    let options = SamplerOptions {
        interval: Duration::from_millis(20),
        ..SamplerOptions::default()
    };
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay), &clock, options).unwrap();
    let samples = samples.iter().flatten().collect();
    (samples, sampler.stop_thread().backend)
}

#[test]
fn a_recorded_session_plays_as_it_was() {
    let host = Host::new(&format!(
        "{GPUS}at 500 gpu 0 used=75000\nat 800 gpu 0 used=71000\n"
    ));
    let file = host.path("session.jsonl");
    let path = file.to_str().unwrap();
    let ended = host
        .run(&[
            "record",
            "-o",
            path,
            "--interval",
            "20ms",
            "--duration",
            "1500ms",
        ])
        .expect(0);
    assert!(ended.stderr.contains("(simulated)"), "{}", ended.stderr);
    let recording = Recording::read_recording(&file).unwrap();
    assert_eq!(
        (recording.header.interval_ns, recording.header.devices.len()),
        (20_000_000, 2)
    );
    let sampling = recording.sampling.unwrap();
    assert!(
        sampling.ticks > 30 && sampling.cpu_ns.is_some(),
        "{sampling:?}"
    );
    assert!(
        sampling
            .calls
            .iter()
            .any(|c| c.name == "memory" && c.calls > 60),
        "{sampling:?}"
    );
    assert_eq!(used(&recording.samples, 0), [70000, 75000, 71000]);

    let (played, backend) = play(&file);
    for device in 0..2 {
        assert_eq!(used(&played, device), used(&recording.samples, device));
    }
    // What is read rarely comes as it came then.
    let lists = |samples: &[MemorySample]| {
        let of_first = samples.iter().filter(|s| s.device == 0);
        of_first
            .filter_map(|s| s.processes.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(lists(&played), lists(&recording.samples));
    let energy = |samples: &[MemorySample]| samples.iter().filter_map(|s| s.energy_mj).max();
    assert_eq!(energy(&played), energy(&recording.samples));
    assert_eq!((backend.name.as_str(), backend.simulated), ("replay", true));
    assert_eq!(backend.version.as_deref(), Some("nvml fake-570.133.20"));
    assert!(
        backend.reason.contains("the host has 2 GPUs"),
        "{}",
        backend.reason
    );
}

#[test]
fn a_recording_of_real_gpus_is_not_called_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session.jsonl");
    let text = r#"{"plimsoll_recording":1,"plimsoll_version":"0.1.0","wall_start_ns":5,"interval_ns":100000000,"backend":{"name":"nvml","version":"570.133.20","simulated":false,"reason":"the host has 1 GPU"},"devices":[{"index":0,"kind":"gpu","id":"GPU-1","name":"NVIDIA H100","total_bytes":100}]}
{"at_ns":700000000,"device":0,"used_bytes":5}
{"at_ns":900000000,"device":0,"used_bytes":9}
{"at_ns":1000000000,"device":0,"us"#;
    std::fs::write(&file, text).unwrap();
    let (played, backend) = play(&file);
    assert_eq!(
        (backend.name.as_str(), backend.simulated),
        ("replay", false)
    );
    assert_eq!(used(&played, 0), [0]);
    let bytes: Vec<u64> = played.iter().map(|s| s.used_bytes).collect();
    assert_eq!((bytes.first(), bytes.last()), (Some(&5), Some(&9)));
}

#[test]
fn a_recording_is_never_written_over_and_needs_something_to_record() {
    let host = Host::new(GPUS);
    let file = host.path("session.jsonl");
    std::fs::write(&file, "precious").unwrap();
    let path = file.to_str().unwrap();
    host.run(&["record", "-o", path, "--duration", "1s"])
        .expect(2)
        .says(&["exists"], "never written over");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let bare = Host::new("");
    let other = bare.path("x");
    bare.run(&["record", "-o", other.to_str().unwrap(), "--duration", "1s"])
        .expect(3)
        .says(&["no GPU"], "--container");
    assert!(!other.exists());
}

#[test]
fn interrupting_a_recording_ends_it_in_order() {
    let host = Host::new(GPUS);
    let file = host.path("session.jsonl");
    let mut live = Live::start(host.command(&["record", "-o", file.to_str().unwrap()]));
    live.until("recording 2 devices");
    // On disk while it goes on: a crash loses less than a second.
    wait_for("samples on disk", || {
        (Recording::read_recording(&file).ok()?.samples.len() > 4).then_some(())
    });
    live.signal(rustix::process::Signal::INT);
    assert_eq!(live.end().code(), 0);
    assert!(Recording::read_recording(&file).unwrap().sampling.is_some());
}

/// The reference engine that takes a device's memory: a dynamic build, compiled where cargo is.
fn device_engine() -> &'static Path {
    static MADE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    MADE.get_or_init(|| {
        let crate_folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("containers/reference-engine");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("device-engine");
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--locked",
                "--release",
                "--manifest-path",
            ])
            .arg(crate_folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            // The image's build is static, and loads no library.
            .env("RUSTFLAGS", "-C target-feature=-crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status()
            .expect("cargo");
        assert!(built.success());
        target.join("release/reference-engine")
    })
}

/// Runs the script that compares with nvidia-smi, on the stand-in library: it proves the script. `smi`: what nvidia-smi
/// says of GPUs, and of processes.
fn accept(host: &Host, smi: (&str, &str), out: &str) -> Ended {
    Live::start(acceptance(host, smi, out)).end()
}

fn acceptance(host: &Host, smi: (&str, &str), out: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-acceptance");
    let stub = host.path("smi");
    let (gpus, processes) = smi;
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in\n'-q -x') cat <<'END'\n{SMI_SLICES}\nEND\n;;\n*compute-apps*) cat <<'END'\n{processes}\nEND\n;;\n*) cat <<'END'\n{gpus}\nEND\n;;\nesac\n"
    );
    std::fs::write(&stub, text).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&stub, executable).unwrap();
    let mut command = common::e2e::command(&script, &[]);
    command
        .arg(host.path(out))
        .env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"))
        .env("NVIDIA_SMI", &stub)
        .env("SECONDS_TO_RECORD", "1")
        .env("TRIES", "2")
        .env("REFERENCE_CUDA_LIBRARY", stage::library())
        .env("REFERENCE_ENGINE", device_engine())
        .env("PLIMSOLL_NVML_LIBRARY", stage::library())
        .env(stage::SCENARIO_VARIABLE, host.path("scenario"));
    command
}

/// What nvidia-smi says of the GPUs of the truth, and of the process of this test on the first.
const SMI: &str = "\
GPU-00000000-aaaa-0000-0000-000000000000, 0, 81559, 70000, 551, 690.00, 1755, 2619, 0x0000000000000004, NVIDIA H100 80GB HBM3, 570.1
GPU-11111111-bbbb-1111-1111-111111111111, 1, 24564, 12, 364, 22.00, 210, 405, 0x0000000000000001, NVIDIA A30, 570.1";

/// What it says of the second GPU's slices, the first two of which share a memory.
const SMI_SLICES: &str = "\
<nvidia_smi_log><gpu id='2'><uuid>GPU-11111111-bbbb-1111-1111-111111111111</uuid><mig_devices>
<mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id><fb_memory_usage><total>11950 MiB</total><used>7 MiB</used></fb_memory_usage></mig_device>
<mig_device><index>1</index><gpu_instance_id>1</gpu_instance_id><fb_memory_usage><total>11950 MiB</total><used>7 MiB</used></fb_memory_usage></mig_device>
<mig_device><index>3</index><gpu_instance_id>5</gpu_instance_id><fb_memory_usage><total>5900 MiB</total><used>5 MiB</used></fb_memory_usage></mig_device>
</mig_devices></gpu></nvidia_smi_log>";

/// The same as a driver tells it.
const TRUTH: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA A30
at 0 gpu 0 used=70000 power=690000 temp=66 util=100 sm=1755 mem=2619 throttle=4
at 0 gpu 1 used=12 power=22000 temp=40 util=0 sm=210 mem=405 throttle=1
mig 1 0 MIG-11 11950
mig 1 1 MIG-22 11950
mig 1 3 MIG-33 5900
at 0 slice 1 0 used=7
at 0 slice 1 1 used=7
at 0 slice 1 3 used=5
at 0 proc 0 PID 69000
";

#[test]
fn the_acceptance_script_judges_and_knows_where_it_cannot() {
    if Command::new("python3").arg("--version").output().is_err() {
        return common::e2e::skip(test_name!(), "no python3");
    }
    let pid = std::process::id().to_string();
    let app = format!("GPU-00000000-aaaa-0000-0000-000000000000, {pid}, 69000");
    let host = Host::new(&TRUTH.replace("PID", &pid));
    let good = accept(&host, (SMI, &app), "good").expect(0);
    assert!(
        good.stdout.contains("it agrees") && good.stdout.contains("SIMULATED"),
        "{}",
        good.stdout
    );
    assert!(
        good.stdout.contains("used MiB") && good.stdout.contains("us  p99"),
        "{}",
        good.stdout
    );
    assert!(
        Recording::read_recording(&host.path("good/session.jsonl"))
            .unwrap()
            .samples
            .len()
            > 10
    );
    let report = std::fs::read_to_string(host.path("good/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["gpus"][1]["agrees"], true);
    let load = std::fs::read_to_string(host.path("good/load-report.json")).unwrap();
    let load: Value = serde_json::from_str(&load).unwrap();
    assert_eq!(load["context_mib"], 314.0);
    assert_eq!(load["checks"][0]["measured_mib"], 768.0, "{load:#}");

    let bare = accept(&Host::new(""), ("", ""), "bare").expect(3);
    assert!(
        bare.stderr
            .contains("not run: it needs a machine with an NVIDIA GPU"),
        "{}",
        bare.stderr
    );
}

/// The page lists the metrics as they are: `UPDATE_METRICS=1` writes the list anew.
#[test]
fn the_page_lists_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("containers/grafana/METRICS.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let rows = FAMILIES.iter().map(|family| {
        let total = if family.is_counter { "_total" } else { "" };
        let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, labels, help) = (family.name, labels.join(", "), family.help);
        format!("| `{PREFIX}_{name}{total}` | {labels} | {help} |\n")
    });
    let table =
        "| metric | labels | what |\n|---|---|---|\n".to_owned() + &rows.collect::<String>();
    if std::env::var_os("UPDATE_METRICS").is_some() {
        let begin = page.find("| metric |").unwrap();
        let end = begin + page[begin..].find("\n\n").unwrap() + 1;
        let page = page[..begin].to_owned() + &table + &page[end..];
        std::fs::write(&path, page).unwrap();
        return;
    }
    assert!(
        page.contains(&table),
        "UPDATE_METRICS=1 cargo test --test offline the_page_lists"
    );
}

/// Each figure that the library tells wrongly makes the script fail, and it is the one that is named.
#[test]
fn each_lie_of_the_library_is_found_by_the_acceptance_script() {
    if Command::new("python3").arg("--version").output().is_err() {
        return common::e2e::skip(test_name!(), "no python3");
    }
    let pid = std::process::id().to_string();
    let other = std::os::unix::process::parent_id().to_string();
    let app = format!("GPU-00000000-aaaa-0000-0000-000000000000, {pid}, 69000");
    let lies: [(&str, &str, &str, &str); 12] = [
        ("total", "81559 551", "81561 551", "total MiB"),
        ("used", "used=70000", "used=70002", "used MiB"),
        ("reserved", "81559 551", "81559 554", "reserved MiB"),
        ("bytes of a process", "PID 69000", "PID 68998", "processes"),
        ("pid", "proc 0 PID", &format!("proc 0 {other}"), "processes"),
        ("power", "power=690000", "power=750000", "power W"),
        ("clock", "sm=1755", "sm=1410", "clock of the cores MHz"),
        (
            "throttle reason",
            "throttle=4",
            "throttle=8",
            "throttle reasons",
        ),
        (
            "sum of slices",
            "slice 1 3 used=5",
            "slice 1 3 used=9",
            "MIG s",
        ),
        // Of the load: what was in use when it was first looked at, and no more than stands for long.
        ("stale reading", "gpu GPU-0", "stale\ngpu GPU-0", "load: "),
        (
            "missed spike",
            "at 0 proc 0",
            "at 0 cap 0 71396\nat 0 proc 0",
            "load: a spike of 30 ms",
        ),
        // The second GPU is told as the first.
        ("order", "", "", "order"),
    ];
    for (lie, true_words, false_words, figure) in lies {
        let scenario = match lie {
            "order" => {
                let mut lines: Vec<&str> = TRUTH.lines().collect();
                lines.swap(0, 1);
                let swapped = lines
                    .join("\n")
                    .replace("gpu 0 ", "gpu X ")
                    .replace("mig 1", "mig 0")
                    .replace("slice 1", "slice 0")
                    .replace("proc 0", "proc 1");
                swapped
                    .replace("gpu 1 ", "gpu 0 ")
                    .replace("gpu X ", "gpu 1 ")
                    + "\n"
            }
            _ => TRUTH.replacen(true_words, false_words, 1),
        };
        let host = Host::new(&scenario.replace("PID", &pid));
        let mut acceptance = acceptance(&host, (SMI, &app), "lie");
        if !figure.starts_with("load: ") {
            // The load takes its time, and says nothing of this lie.
            acceptance.env("REFERENCE_ENGINE", host.path("none"));
        }
        let told = Live::start(acceptance).end().expect(1);
        let differing: Vec<&str> = (told.stdout.lines())
            .filter(|line| line.ends_with("DIFFERS"))
            .collect();
        assert!(
            !differing.is_empty()
                && differing
                    .iter()
                    .all(|line| line.trim_start().starts_with(figure)),
            "{lie}: {differing:#?}\n{}",
            told.stdout
        );
    }
}
