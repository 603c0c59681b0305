//! A machine with Intel GPUs, emulated by a directory tree: what the backend says of it.

use assert_cmd::Command;
use plimsoll::clock::Clock;
use plimsoll::telemetry::MeasuredContainer;
use plimsoll::telemetry::amd::{PROCFS_VARIABLE, Roots, SYSFS_VARIABLE};
use plimsoll::telemetry::intel::IntelBackend;
use plimsoll::telemetry::{MemoryBackend, Wanted};
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const OURS: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

/// An Arc with driver xe, another with i915, and an integrated GPU.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            dir: tempfile::tempdir().unwrap(),
        };
        machine.card(0, "0000:00:02.0", 128);
        machine.card(1, "0000:03:00.0", 129);
        machine.card(2, "0000:07:00.0", 130);
        let tile = "sys/class/drm/card1/device/tile0/physical_vram_size_bytes";
        machine.write(tile, &format!("{}\n", 12_288 * MIB));
        machine.process(500, &format!("0::/system.slice/docker-{OURS}.scope\n"));
        machine.process(501, "0::/user.slice\n");
        machine.open_device(500, 3, "0000:03:00.0", "xe", "vram0", 6000);
        machine.open_device(500, 4, "0000:00:02.0", "i915", "system0", 900);
        machine.open_device(501, 5, "0000:03:00.0", "xe", "vram0", 200);
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn card(&self, number: u32, bdf: &str, render: u32) {
        let device = format!("sys/class/drm/card{number}/device");
        self.write(&format!("{device}/vendor"), "0x8086\n");
        self.write(&format!("{device}/device"), "0xe20b\n");
        self.write(
            &format!("{device}/uevent"),
            &format!("PCI_SLOT_NAME={bdf}\n"),
        );
        self.write(&format!("{device}/drm/renderD{render}/dev"), "226:0\n");
    }

    fn process(&self, pid: u32, cgroup: &str) {
        self.write(
            &format!("proc/{pid}/stat"),
            &format!("{pid} (python3) S 1 1 1 0\n"),
        );
        self.write(&format!("proc/{pid}/cgroup"), cgroup);
    }

    fn open_device(&self, pid: u32, fd: u32, bdf: &str, driver: &str, region: &str, mib: u64) {
        let text = format!(
            "drm-driver:\t{driver}\ndrm-client-id:\t{pid}{fd}\ndrm-pdev:\t{bdf}\ndrm-resident-{region}:\t{mib} MiB\n"
        );
        self.write(&format!("proc/{pid}/fdinfo/{fd}"), &text);
        std::fs::create_dir_all(self.path(&format!("proc/{pid}/fd"))).unwrap();
        let link = self.path(&format!("proc/{pid}/fd/{fd}"));
        let _ = symlink("/dev/dri/renderD129", link);
    }

    fn open(&self, target: &MeasuredContainer) -> Result<IntelBackend, String> {
        let roots = Roots {
            sys: self.path("sys"),
            proc: self.path("proc"),
            ..Roots::default()
        };
        IntelBackend::open_backend(target, &roots).map_err(|why| why.message)
    }
}

fn target(devices: &[&str]) -> MeasuredContainer {
    MeasuredContainer {
        init_pid: Some(500),
        container_id: OURS.into(),
        devices: devices.iter().map(|d| (*d).to_owned()).collect(),
        ..MeasuredContainer::default()
    }
}

#[test]
fn open_devices_tell_what_is_in_use_and_whose_it_is() {
    let machine = Machine::new();
    let mut backend = machine.open(&target(&["/dev/dri"])).unwrap();
    let devices = backend.devices();
    let told: Vec<_> = devices
        .iter()
        .map(|d| (d.id.as_str(), d.total_bytes))
        .collect();
    assert_eq!(
        told,
        [("0000:03:00.0", Some(12_288 * MIB)), ("0000:07:00.0", None)],
        "the integrated one has no memory, and i915 tells none"
    );
    assert!(backend.facts().reason.contains("does not report the GPU"));
    let wanted = Wanted {
        detail: true,
        ..Wanted::default()
    };
    let (clock, mut samples) = (Clock::start(), Vec::new());
    backend.sample(&clock, wanted, &mut samples).unwrap();
    assert_eq!(
        (samples[0].used_bytes, samples[1].used_bytes),
        (6200 * MIB, 0)
    );
    let processes = samples[0].processes.as_ref().unwrap();
    let told: Vec<_> = processes
        .iter()
        .map(|p| (p.pid, p.used_bytes, p.ours))
        .collect();
    assert_eq!(
        told,
        [
            (500, Some(6000 * MIB), Some(true)),
            (501, Some(200 * MIB), Some(false))
        ]
    );
    // What is open already is read each time.
    machine.open_device(500, 3, "0000:03:00.0", "xe", "vram0", 7000);
    backend
        .sample(&clock, Wanted::default(), &mut samples)
        .unwrap();
    assert_eq!(samples[2].used_bytes, 7200 * MIB);
}

#[test]
fn the_container_decides_which_are_read() {
    let machine = Machine::new();
    let ids = |target: &MeasuredContainer| -> Vec<String> {
        let backend = machine.open(target).unwrap();
        backend.devices().into_iter().map(|d| d.id).collect()
    };
    assert_eq!(ids(&target(&["/dev/dri/renderD130"])), ["0000:07:00.0"]);
    assert_eq!(
        ids(&target(&[])),
        ["0000:03:00.0"],
        "it has a process there"
    );
    let by_cdi = MeasuredContainer {
        gpu_request: vec!["intel.com/gpu=1".into()],
        ..target(&[])
    };
    assert_eq!(ids(&by_cdi), ["0000:07:00.0"]);
    // The kernel's controller of device memory knows a size where the driver has no file.
    machine.write(
        "sys/fs/cgroup/dmem.capacity",
        "drm/0000:03:00.0/vram0 1\ndrm/0000:07:00.0/vram0 4294967296\n",
    );
    let backend = machine.open(&target(&["/dev/dri/renderD130"])).unwrap();
    assert_eq!(backend.devices()[0].total_bytes, Some(4096 * MIB));

    let stranger = MeasuredContainer {
        container_id: "e".repeat(64),
        ..target(&[])
    };
    let why = machine.open(&stranger).err().unwrap();
    assert!(why.contains("none of its processes"), "{why}");
    for card in ["card1", "card2"] {
        std::fs::remove_dir_all(machine.path(&format!("sys/class/drm/{card}"))).unwrap();
    }
    let why = machine.open(&target(&["/dev/dri"])).err().unwrap();
    assert!(why.contains("integrated"), "{why}");
}

#[test]
fn each_verb_names_the_same_gpus() {
    let machine = Machine::new();
    let json = |args: &[&str]| -> Value {
        let output = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(args)
            .env(SYSFS_VARIABLE, machine.path("sys"))
            .env(PROCFS_VARIABLE, machine.path("proc"))
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let doctor = json(&["doctor", "--json"]);
    let checks = doctor["checks"].as_array().unwrap();
    let found = checks.iter().find(|c| c["name"] == "backend intel (Intel)");
    assert_eq!(
        found.unwrap()["found"],
        "2 Intel GPUs: GPU 0 Intel GPU e20b (card1), GPU 1 Intel GPU e20b (card2)"
    );
    let gpus = json(&["gpus", "--json"]);
    assert_eq!(gpus["backend"]["name"], "intel");
    assert_eq!(gpus["here"][0]["now"]["used_bytes"], 6200 * MIB);
    assert!(gpus["here"][1]["total_bytes"].is_null());
    let top = json(&["top", "--once", "--json"]);
    assert_eq!(top["gpus"].as_array().unwrap().len(), 2, "{top}");
    assert_eq!(top["gpus"][0]["used_bytes"], 6200 * MIB);
}
