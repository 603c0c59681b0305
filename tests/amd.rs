//! A machine with AMD GPUs, emulated by a directory tree: what the backend says of it.

use assert_cmd::Command;
use plimsoll::capture::{MemorySample, ProcessMemory};
use plimsoll::clock::Clock;
use plimsoll::telemetry::amd::smi::Tools;
use plimsoll::telemetry::amd::{self, AmdBackend, Roots, SYSFS_VARIABLE};
use plimsoll::telemetry::{
    MeasuredContainer, MemoryBackend, MemorySampler, ReadingError, SamplerOptions, Wanted,
};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Long enough for a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);
const OURS: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";
const THEIRS: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";
const ALL: [&str; 2] = ["/dev/kfd", "/dev/dri"];

/// Two data-centre GPUs, the second asleep, an integrated one, a connector, and another maker's
/// card. Two containers and the host use the first, and the container of ours the integrated one.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            dir: tempfile::tempdir().unwrap(),
        };
        machine.cards();
        machine.compute_driver();
        machine.processes();
        machine
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_dir_all(self.dir.path().join(path)).unwrap();
    }

    /// A card as the kernel has it: links into the tree of devices.
    fn card(&self, number: u32, bdf: &str, render: u32, files: &[(&str, &str)]) {
        let device = format!("sys/devices/pci0000:80/{bdf}");
        self.write(&format!("{device}/drm/card{number}/dev"), "226:0\n");
        self.write(&format!("{device}/drm/renderD{render}/dev"), "226:0\n");
        for (name, text) in files {
            self.write(&format!("{device}/{name}"), format!("{text}\n"));
        }
        let device = self.dir.path().join(device);
        symlink(&device, device.join(format!("drm/card{number}/device"))).unwrap();
        let class = self.dir.path().join("sys/class/drm");
        std::fs::create_dir_all(&class).unwrap();
        symlink(
            device.join(format!("drm/card{number}")),
            class.join(format!("card{number}")),
        )
        .unwrap();
    }

    fn cards(&self) {
        let big = [
            ("vendor", "0x1002"),
            ("device", "0x74a1"),
            ("revision", "0x00"),
            ("mem_info_vram_total", "206158430208"),
            ("mem_info_gtt_total", "540000000000"),
            ("mem_info_gtt_used", "77777777"),
            ("gpu_busy_percent", "87"),
            ("mem_busy_percent", "41"),
            ("hwmon/hwmon3/name", "amdgpu"),
            ("hwmon/hwmon3/power1_input", "542000000"),
            ("hwmon/hwmon3/temp1_label", "edge"),
            ("hwmon/hwmon3/temp1_input", "55000"),
            ("hwmon/hwmon3/temp2_label", "junction"),
            ("hwmon/hwmon3/temp2_input", "71000"),
            ("hwmon/hwmon3/temp3_label", "mem"),
            ("hwmon/hwmon3/temp3_input", "58000"),
            ("hwmon/hwmon3/freq1_input", "2100000000"),
            ("hwmon/hwmon3/freq2_input", "1300000000"),
        ];
        let first = [
            ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:83:00.0"),
            ("unique_id", "a1b2c3d4e5f60718"),
            ("product_name", "AMD Instinct MI300X OAM"),
            ("mem_info_vram_used", "34359738368"),
            ("power/runtime_status", "active"),
        ];
        let second = [
            ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:8b:00.0"),
            ("unique_id", "a1b2c3d4e5f60719"),
            ("mem_info_vram_used", "297795584"),
            ("power/runtime_status", "suspended"),
        ];
        let integrated = [
            ("vendor", "0x1002"),
            ("device", "0x150e"),
            ("revision", "0xc1"),
            ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c4:00.0"),
            ("mem_info_vram_total", "536870912"),
            ("mem_info_vram_used", "104857600"),
            ("mem_info_gtt_total", "17179869184"),
            ("mem_info_gtt_used", "2147483648"),
            ("gpu_busy_percent", "12"),
            ("power/runtime_status", "active"),
            ("hwmon/hwmon1/name", "amdgpu"),
            ("hwmon/hwmon1/in1_label", "vddnb"),
            ("hwmon/hwmon1/power1_average", "15000000"),
            ("hwmon/hwmon1/temp1_label", "edge"),
            ("hwmon/hwmon1/temp1_input", "47000"),
            ("hwmon/hwmon1/freq1_input", "800000000"),
        ];
        self.card(57, "0000:83:00.0", 185, &[&big[..], &first[..]].concat());
        self.card(49, "0000:8b:00.0", 177, &[&big[..], &second[..]].concat());
        self.card(1, "0000:c4:00.0", 128, &integrated);
        self.card(0, "0000:01:00.0", 129, &[("vendor", "0x10de")]);
        self.write("sys/class/drm/card57-DP-1/status", "connected\n");
        self.write("sys/class/drm/card57-DP-1/device/vendor", "0x1002\n");
        self.write("names", "74A1,\t00,\tAMD Instinct MI300X\n");
    }

    fn compute_driver(&self) {
        let node = |number: u32, gpu_id: u32, properties: &str| {
            let node = format!("sys/class/kfd/kfd/topology/nodes/{number}");
            self.write(&format!("{node}/gpu_id"), format!("{gpu_id}\n"));
            self.write(&format!("{node}/properties"), properties);
        };
        let gpu = |location: u32, render: u32, gfx: u32| {
            format!(
                "cpu_cores_count 0\nsimd_count 1216\nvendor_id 4098\nlocation_id {location}\ndomain 0\ndrm_render_minor {render}\ngfx_target_version {gfx}\n"
            )
        };
        node(0, 0, "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\n");
        node(9, 43855, &gpu(0x8300, 185, 90402));
        node(8, 27976, &gpu(0x8b00, 177, 90402));
        node(10, 5151, &gpu(0xc400, 128, 110_500));
    }

    fn processes(&self) {
        self.process(
            4242,
            "VLLM::EngineCor",
            &format!("0::/system.slice/docker-{OURS}.scope\n"),
        );
        self.process(
            4243,
            "python3",
            &format!("9:memory:/docker/{THEIRS}\n0::/\n"),
        );
        self.process(4300, "rocm (tool) x", "0::/user.slice\n");
        self.process(
            4400,
            "idle",
            &format!("0::/system.slice/docker-{OURS}.scope\n"),
        );
        let vram = |path: &str, gpu: u32, bytes: u64| {
            self.write(
                &format!("sys/class/kfd/kfd/proc/{path}/vram_{gpu}"),
                format!("{bytes}\n"),
            );
        };
        for (pid, first, integrated) in [
            (4242, 20 * GIB, GIB),
            (4243, 3 * GIB, 0),
            (4300, 40 * MIB, 0),
            (4400, 0, 0),
            // The driver did not clean up after this one.
            (9999, 5 * GIB, 0),
        ] {
            vram(&pid.to_string(), 43855, first);
            vram(&pid.to_string(), 27976, 0);
            vram(&pid.to_string(), 5151, integrated);
        }
        // A second context of the same process.
        vram("4242/context_0", 43855, 2 * GIB);
        vram("4242/context_0", 27976, 0);
    }

    fn process(&self, pid: u32, name: &str, cgroup: &str) {
        self.write(
            &format!("proc/{pid}/stat"),
            format!("{pid} ({name}) S 1 1 1 0\n"),
        );
        self.write(&format!("proc/{pid}/cgroup"), cgroup);
    }

    fn roots(&self) -> Roots {
        Roots {
            sys: self.path("sys"),
            proc: self.path("proc"),
            names: vec![self.path("names")],
            tools: Tools::in_directories(vec![self.path("bin")]),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn tool(&self, name: &str, script: &str) {
        let path = format!("bin/{name}");
        self.write(&path, format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(self.path(&path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn open(&self, devices: &[&str]) -> AmdBackend {
        AmdBackend::open_backend(&target(devices), &self.roots(), PATIENCE).unwrap()
    }
}

fn target(devices: &[&str]) -> MeasuredContainer {
    MeasuredContainer {
        init_pid: Some(4242),
        container_id: OURS.into(),
        devices: devices.iter().map(|d| (*d).to_owned()).collect(),
        ..MeasuredContainer::default()
    }
}

fn read(backend: &mut dyn MemoryBackend, detail: bool) -> Vec<MemorySample> {
    let mut samples = Vec::new();
    let wanted = Wanted {
        detail,
        ..Wanted::default()
    };
    backend
        .sample(&Clock::start(), wanted, &mut samples)
        .unwrap();
    samples
}

fn process(pid: u32, bytes: u64, ours: bool, name: &str) -> ProcessMemory {
    ProcessMemory {
        pid,
        used_bytes: Some(bytes),
        ours: Some(ours),
        name: Some(name.into()),
        container_id: match pid {
            4242 => Some(OURS.into()),
            4243 => Some("ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100".into()),
            _ => None,
        },
        ..ProcessMemory::default()
    }
}

#[test]
fn the_gpus_are_in_the_order_of_their_addresses() {
    let machine = Machine::new();
    let backend = machine.open(&ALL);
    let devices = backend.devices();
    let told: Vec<(&str, &str, Option<u64>)> = devices
        .iter()
        .map(|d| (d.id.as_str(), d.name.as_str(), d.total_bytes))
        .collect();
    assert_eq!(
        told,
        [
            (
                "GPU-a1b2c3d4e5f60718",
                "AMD Instinct MI300X OAM",
                Some(192 * GIB)
            ),
            (
                "GPU-a1b2c3d4e5f60719",
                "AMD Instinct MI300X",
                Some(192 * GIB)
            ),
            ("0000:c4:00.0", "AMD GPU gfx1150", Some(GIB / 2 + 16 * GIB)),
        ]
    );
    let facts = backend.facts();
    assert_eq!((facts.name.as_str(), facts.simulated), ("amd", true));
    assert!(
        facts
            .reason
            .starts_with("the container has 3 AMD GPUs according to its device files")
    );
    assert!(
        facts
            .reason
            .contains("0000:c4:00.0 works in the host's memory"),
        "{}",
        facts.reason
    );
}

#[test]
fn a_reading_holds_memory_and_sensors_and_wakes_nobody() {
    let machine = Machine::new();
    let mut backend = machine.open(&ALL);
    let samples = read(&mut backend, false);
    let [first, second, integrated] = samples.as_slice() else {
        panic!("{samples:?}");
    };
    assert_eq!(
        [second.at_ns, integrated.at_ns],
        [first.at_ns; 2],
        "one tick, one moment"
    );
    assert_eq!(
        MemorySample {
            at_ns: 0,
            processes: None,
            ..first.clone()
        },
        MemorySample {
            device: 0,
            used_bytes: 32 * GIB,
            power_mw: Some(542_000),
            temperature_c: Some(55),
            hotspot_temp_c: Some(71),
            memory_temp_c: Some(58),
            utilization_pct: Some(87),
            mem_utilization_pct: Some(41),
            clock_gfx_mhz: Some(2100),
            clock_mem_mhz: Some(1300),
            ..MemorySample::default()
        }
    );
    assert_eq!(
        MemorySample {
            at_ns: 0,
            processes: None,
            ..second.clone()
        },
        MemorySample {
            device: 1,
            used_bytes: 284 * MIB,
            ..MemorySample::default()
        },
        "asleep: the kernel's books are read, the sensors are not"
    );
    assert_eq!(integrated.used_bytes, 100 * MIB + 2 * GIB);
    assert_eq!(
        (integrated.power_mw, integrated.temperature_c),
        (Some(15_000), Some(47))
    );
    assert_eq!(
        (integrated.mem_utilization_pct, integrated.clock_mem_mhz),
        (None, None)
    );
    let mut probed = Vec::new();
    backend.probe(&mut probed).unwrap();
    assert_eq!(probed, [32 * GIB, 284 * MIB, 100 * MIB + 2 * GIB]);

    machine.write(
        "sys/devices/pci0000:80/0000:8b:00.0/power/runtime_status",
        "active\n",
    );
    machine.write(
        "sys/devices/pci0000:80/0000:83:00.0/power/runtime_status",
        "suspended\n",
    );
    let later = read(&mut backend, false);
    assert_eq!(
        (later[0].power_mw, later[1].power_mw),
        (None, Some(542_000))
    );
}

#[test]
fn processes_are_told_apart_by_container() {
    let machine = Machine::new();
    let mut backend = machine.open(&ALL);
    let samples = read(&mut backend, false);
    let all = [
        process(4242, 22 * GIB, true, "VLLM::EngineCor"),
        process(4243, 3 * GIB, false, "python3"),
        process(4300, 40 * MIB, false, "rocm (tool) x"),
    ];
    assert_eq!(samples[0].processes.as_deref(), Some(&all[..]));
    assert_eq!(
        samples[1].processes.as_deref(),
        Some(&[][..]),
        "nobody is on it"
    );
    assert_eq!(
        samples[2].processes.as_deref(),
        Some(&[process(4242, GIB, true, "VLLM::EngineCor")][..])
    );

    // Asked for, everything is read again: one process ended, another has grown.
    machine.remove("sys/class/kfd/kfd/proc/4243");
    machine.write(
        "sys/class/kfd/kfd/proc/4242/vram_43855",
        (30 * GIB).to_string(),
    );
    let mut samples = Vec::new();
    let clock = Clock::manual(0);
    clock.advance_to(10_000_000_000);
    let wanted = Wanted {
        detail: true,
        ..Wanted::default()
    };
    backend.sample(&clock, wanted, &mut samples).unwrap();
    assert_eq!(
        samples[0].processes.as_deref(),
        Some(
            &[
                process(4242, 32 * GIB, true, "VLLM::EngineCor"),
                all[2].clone()
            ][..]
        )
    );
}

#[test]
fn what_did_not_change_is_told_once_a_second() {
    let machine = Machine::new();
    let mut backend = machine.open(&["/dev/kfd", "/dev/dri/renderD185"]);
    let clock = Clock::manual(0);
    let told = |at_ms: i64, backend: &mut AmdBackend| {
        clock.advance_to(at_ms * 1_000_000);
        let mut samples = Vec::new();
        backend
            .sample(&clock, Wanted::default(), &mut samples)
            .unwrap();
        samples[0].processes.is_some()
    };
    let ticks: Vec<bool> = [0, 100, 900]
        .iter()
        .map(|at| told(*at, &mut backend))
        .collect();
    assert_eq!(ticks, [true, false, false]);
    machine.write("sys/class/kfd/kfd/proc/4242/vram_43855", GIB.to_string());
    assert!(told(950, &mut backend), "it changed");
    assert!(!told(1000, &mut backend));
    assert!(told(2000, &mut backend));
}

#[test]
fn the_container_decides_which_are_read() {
    let machine = Machine::new();
    let ids = |devices: &[&str]| -> Vec<String> {
        machine
            .open(devices)
            .devices()
            .into_iter()
            .map(|d| d.id)
            .collect()
    };
    assert_eq!(
        ids(&["/dev/kfd", "/dev/dri/renderD177"]),
        ["GPU-a1b2c3d4e5f60719"]
    );
    assert_eq!(ids(&["/dev/dri/card57"]), ["GPU-a1b2c3d4e5f60718"]);
    // Given nothing, its processes tell; on the second GPU it has none.
    let by_process = machine.open(&[]);
    assert_eq!(by_process.devices().len(), 2);
    assert!(
        by_process
            .facts()
            .reason
            .contains("a process of the container is on 2 AMD GPUs")
    );
    // Privileged, the device files inside tell.
    machine.write("proc/4242/root/dev/kfd", "");
    machine.write("proc/4242/root/dev/dri/renderD177", "");
    assert_eq!(ids(&["/dev"]), ["GPU-a1b2c3d4e5f60719"]);

    let refused = |target: &MeasuredContainer| {
        AmdBackend::open_backend(target, &machine.roots(), PATIENCE)
            .err()
            .unwrap()
            .message
    };
    assert!(refused(&target(&["/dev/dri/renderD129"])).contains("no"));
    let stranger = MeasuredContainer {
        init_pid: Some(4300),
        container_id: "e".repeat(64),
        ..MeasuredContainer::default()
    };
    assert!(refused(&stranger).contains("none of its processes"));
}

#[test]
fn a_gpu_that_fails_does_not_take_the_others_with_it() {
    let machine = Machine::new();
    let mut backend = machine.open(&ALL);
    let used = "sys/devices/pci0000:80/0000:8b:00.0/mem_info_vram_used";
    machine.write(used, "");
    let mut samples = Vec::new();
    let failed = backend.sample(&Clock::start(), Wanted::default(), &mut samples);
    assert!(
        matches!(&failed, Err(ReadingError::Failed(why)) if why.contains("GPU 1")),
        "{failed:?}"
    );
    let read_now: Vec<u32> = samples.iter().map(|s| s.device).collect();
    assert_eq!(read_now, [0, 2]);
    assert_eq!(
        samples[1].power_mw,
        Some(15_000),
        "each has its own sensors"
    );
    machine.write(used, "5\n");
    assert_eq!(read(&mut backend, false).len(), 3);
}

#[test]
fn gpus_that_left_the_driver_are_gone_until_they_return() {
    let machine = Machine::new();
    let mut backend = machine.open(&["/dev/dri/card57"]);
    let device = machine.path("sys/devices/pci0000:80/0000:83:00.0");
    let away = device.with_extension("away");
    std::fs::write(device.join("mem_info_vram_used"), "").unwrap();
    std::fs::rename(&device, &away).unwrap();
    let mut samples = Vec::new();
    let result = backend.sample(&Clock::start(), Wanted::default(), &mut samples);
    assert!(matches!(&result, Err(ReadingError::Gone(_))), "{result:?}");
    assert!(samples.is_empty());
    std::fs::rename(&away, &device).unwrap();
    std::fs::write(device.join("mem_info_vram_used"), "12\n").unwrap();
    assert_eq!(read(&mut backend, false)[0].used_bytes, 12);
}

#[test]
fn partitions_add_up_to_their_gpu() {
    let machine = Machine::new();
    let node = "sys/class/kfd/kfd/topology/nodes/20";
    machine.write(&format!("{node}/gpu_id"), "60001\n");
    machine.write(
        &format!("{node}/properties"),
        "simd_count 152\nlocation_id 33537\ndomain 0\ndrm_render_minor 190\n",
    );
    machine.write("sys/class/kfd/kfd/proc/4242/vram_60001", GIB.to_string());
    let mut backend = machine.open(&["/dev/dri/card57"]);
    let samples = read(&mut backend, false);
    let processes = samples[0].processes.as_ref().unwrap();
    assert_eq!(processes[0].used_bytes, Some(23 * GIB));
}

/// Eight engines on the partitions of one GPU: each is measured by its own, and a container with the whole folder by all.
#[test]
fn a_partition_is_measured_as_the_containers_part() {
    let machine = Machine::new();
    let node = "sys/class/kfd/kfd/topology/nodes/20";
    machine.write(&format!("{node}/gpu_id"), "60001\n");
    machine.write(
        &format!("{node}/properties"),
        "simd_count 152\nlocation_id 33537\ndomain 0\ndrm_render_minor 190\n",
    );
    machine.write(
        &format!("{node}/mem_banks/0/properties"),
        format!("heap_type 1\nsize_in_bytes {}\nflags 0\n", 24 * GIB),
    );
    let vram = |pid: u32, bytes: u64| {
        machine.write(
            &format!("sys/class/kfd/kfd/proc/{pid}/vram_60001"),
            bytes.to_string(),
        );
    };
    vram(4242, GIB);
    vram(4243, 5 * GIB);
    let mut part = machine.open(&["/dev/kfd", "/dev/dri/renderD190"]);
    let [device] = &part.devices()[..] else {
        panic!("{:?}", part.devices())
    };
    assert_eq!(
        (device.id.as_str(), device.name.as_str(), device.total_bytes),
        (
            "GPU-a1b2c3d4e5f60718/renderD190",
            "AMD Instinct MI300X OAM (partition 2 of 2)",
            Some(24 * GIB)
        )
    );
    let sample = &read(&mut part, true)[0];
    assert_eq!(sample.used_bytes, 6 * GIB, "not the card's 32");
    assert_eq!(sample.power_mw, None, "that is the whole GPU's");
    let ours = sample.processes.as_ref().unwrap().iter();
    let ours: Vec<u64> = (ours.filter(|p| p.ours == Some(true)))
        .filter_map(|p| p.used_bytes)
        .collect();
    assert_eq!(ours, [GIB]);
    vram(4242, 2 * GIB);
    let mut probed = Vec::new();
    part.probe(&mut probed).unwrap();
    assert_eq!(probed, [7 * GIB]);
    assert!(
        part.facts()
            .reason
            .contains("of a partition the memory of its processes")
    );

    // The first one has the card's own file, and is a part too.
    let mut first = machine.open(&["/dev/kfd", "/dev/dri/renderD185"]);
    assert!(first.devices()[0].name.ends_with("(partition 1 of 2)"));
    let used = read(&mut first, true)[0].used_bytes;
    assert_eq!(used, 25 * GIB + 40 * MIB);
    let mut whole = machine.open(&["/dev/kfd", "/dev/dri"]);
    assert_eq!(read(&mut whole, true)[0].used_bytes, 32 * GIB);

    let by_number = MeasuredContainer {
        gpu_request: vec!["amd.com/gpu=1".into()],
        ..target(&[])
    };
    let refused = AmdBackend::open_backend(&by_number, &machine.roots(), PATIENCE);
    let why = refused.err().unwrap();
    assert!(why.message.contains("is partitioned"), "{}", why.message);
    machine.remove("sys/class/kfd/kfd/proc");
    let blind = AmdBackend::open_backend(
        &target(&["/dev/dri/renderD190"]),
        &machine.roots(),
        PATIENCE,
    );
    assert!(blind.err().unwrap().message.contains("lists none here"));
}

#[test]
fn without_the_compute_driver_open_devices_tell_the_processes() {
    let machine = Machine::new();
    machine.remove("sys/class/kfd");
    let mut backend = machine.open(&["/dev/dri"]);
    assert!(backend.facts().reason.contains("lists no processes"));
    assert_eq!(
        read(&mut backend, false)[0].processes,
        None,
        "unknown, not none"
    );

    std::fs::create_dir_all(machine.path("proc/4242/fd")).unwrap();
    symlink("/dev/dri/renderD185", machine.path("proc/4242/fd/7")).unwrap();
    machine.write(
        "proc/4242/fdinfo/7",
        "drm-driver:\tamdgpu\ndrm-pdev:\t0000:83:00.0\ndrm-client-id:\t9\ndrm-resident-vram:\t1024 KiB\n",
    );
    let mut backend = machine.open(&["/dev/dri"]);
    assert_eq!(
        read(&mut backend, false)[0].processes.as_deref(),
        Some(&[process(4242, MIB, true, "VLLM::EngineCor")][..])
    );
}

#[test]
fn a_name_that_no_file_has_is_asked_of_the_tool() {
    let machine = Machine::new();
    machine.tool(
        "amd-smi",
        r#"[ "$1" = static ] && echo '{"gpu_data":[{"gpu":2,"asic":{"market_name":"AMD Radeon 890M"},"bus":{"bdf":"0000:C4:00.0"}}]}'"#,
    );
    assert_eq!(machine.open(&ALL).devices()[2].name, "AMD Radeon 890M");
}

#[test]
fn without_the_files_the_tools_serve() {
    let machine = Machine::new();
    machine.remove("sys/class/drm");
    let open = |target: &MeasuredContainer| amd::open_backend(target, &machine.roots());
    let why = open(&target(&ALL)).err().unwrap();
    assert!(
        why.message.contains("neither amd-smi nor rocm-smi"),
        "{}",
        why.message
    );
    machine.tool(
        "amd-smi",
        r#"[ "$1" = metric ] && echo '[{"gpu":0,"mem_usage":{"used_vram":{"value":7,"unit":"MB"},"total_vram":{"value":9,"unit":"MB"}}}]'"#,
    );
    let mut backend = open(&target(&ALL)).unwrap();
    assert_eq!(read(backend.as_mut(), false)[0].used_bytes, 7 * MIB);
    assert!(
        backend
            .facts()
            .reason
            .contains("are the container's is unknown")
    );
    let survey = amd::survey_gpus(&machine.roots()).unwrap();
    assert_eq!(survey, "1 AMD GPU, by amd-smi: GPU 0 AMD GPU");
    // A container that was given no GPU is not measured by all of the host's.
    assert!(open(&target(&[])).is_err());
}

#[test]
fn the_sampler_runs_on_it() {
    let machine = Machine::new();
    let backend =
        AmdBackend::open_backend(&target(&ALL), &machine.roots(), Duration::from_millis(5))
            .unwrap();
    let options = SamplerOptions {
        interval: Duration::from_millis(20),
        probe_interval: Duration::from_millis(5),
    };
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(backend), &Clock::start(), options).unwrap();
    let some: Vec<MemorySample> = samples.iter().flatten().take(30).collect();
    let stopped = sampler.stop_thread();
    assert_eq!(
        stopped.sampling.failed_readings, 0,
        "{:?}",
        stopped.sampling
    );
    assert!(
        some.iter()
            .any(|s| s.device == 0 && s.power_mw == Some(542_000))
    );
}

#[test]
fn the_doctor_sees_the_emulated_machine() {
    let machine = Machine::new();
    let doctor = |sys: &Path| {
        let output = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(["doctor", "--json"])
            .env(SYSFS_VARIABLE, sys)
            .output()
            .unwrap();
        let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = checks["checks"].as_array().unwrap().clone();
        checks
            .into_iter()
            .find(|c| c["name"] == "backend amd (AMD)")
            .unwrap()
    };
    let found = doctor(&machine.path("sys"));
    let text = found["found"].as_str().unwrap();
    assert!(
        text.contains("3 AMD GPUs: GPU 0 AMD Instinct MI300X OAM (card57), GPU 1"),
        "{text}"
    );
    assert!(text.contains("(card49, asleep)"), "{text}");
    assert_eq!(found["ok"], true);
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(doctor(nothing.path())["ok"], false);
}

#[test]
fn a_directory_named_by_flag_stands_for_the_machine() {
    let machine = Machine::new();
    let gpus = |sys: &Path| {
        let mut command = Command::cargo_bin("plimsoll").unwrap();
        // The flag is the surer word.
        command.args(["gpus", "--json", "--sysfs-root"]).arg(sys);
        command.env(SYSFS_VARIABLE, "/nowhere").output().unwrap()
    };
    let here: serde_json::Value =
        serde_json::from_slice(&gpus(&machine.path("sys")).stdout).unwrap();
    assert_eq!(here["here"].as_array().unwrap().len(), 3, "{here}");
    assert_eq!(
        (&here["backend"]["name"], &here["backend"]["simulated"]),
        (&"amd".into(), &true.into())
    );
    let wrong = gpus(&machine.path("no-such-tree"));
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        said.contains("not a directory") && said.contains("--sysfs-root"),
        "{said}"
    );
}

/// Where only AMD's tool can be asked, each verb names the same GPU with the same memory.
#[test]
fn a_host_with_the_tool_alone_agrees_with_itself() {
    let machine = Machine::new();
    machine.remove("sys/class/drm");
    machine.tool(
        "amd-smi",
        r#"case "$1" in
metric) echo '[{"gpu":0,"mem_usage":{"used_vram":{"value":7,"unit":"MB"},"total_vram":{"value":9,"unit":"MB"}}}]';;
static) echo '{"gpu_data":[{"gpu":0,"asic":{"market_name":"AMD Instinct MI300X"}}]}';;
esac"#,
    );
    let json = |args: &[&str]| -> serde_json::Value {
        let output = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(args)
            .env("PATH", machine.path("bin"))
            .env(SYSFS_VARIABLE, machine.path("sys"))
            .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let doctor = json(&["doctor", "--json"]);
    let checks = doctor["checks"].as_array().unwrap();
    let found = checks.iter().find(|c| c["name"] == "backend amd (AMD)");
    assert_eq!(
        found.unwrap()["found"],
        "1 AMD GPU, by amd-smi: GPU 0 AMD Instinct MI300X"
    );
    let gpus = json(&["gpus", "--json"]);
    let top = json(&["top", "--once", "--json"]);
    let opened = amd::open_backend(&target(&ALL), &machine.roots()).unwrap();
    let profiled = &opened.devices()[0];
    assert_eq!(gpus["here"].as_array().unwrap().len(), 1);
    assert_eq!(top["gpus"].as_array().unwrap().len(), 1);
    for (gpu, used) in [
        (&gpus["here"][0], &gpus["here"][0]["now"]["used_bytes"]),
        (&top["gpus"][0], &top["gpus"][0]["used_bytes"]),
    ] {
        assert_eq!(gpu["name"], profiled.name.as_str());
        assert_eq!(gpu["total_bytes"].as_u64(), profiled.total_bytes);
        assert_eq!(used.as_u64(), Some(7 * MIB));
    }
}
