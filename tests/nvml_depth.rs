//! What the NVML backend reads beyond memory, and how it behaves when a driver or a GPU misbehaves.

use crate::common::stage;
use plimsoll::capture::DeviceEvent;
use plimsoll::telemetry::{
    BackendChoice, MemoryBackend, MemorySampler, ReadingError, SamplerOptions, open_host,
};
use stage::{Stage, nvml, own_id, refused, staged, target};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const H100: &str = "gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3\n";
const BUSY: &str = "at 0 gpu 0 used=70000 power=690000 temp=66 util=100 memutil=87 memtemp=91 sm=1755 mem=2619 throttle=4 energy=1000\n";

#[test]
fn gauges_are_read_in_their_own_time() {
    staged(test_name!(), &format!("{H100}{BUSY}"), |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, _) = stage.sample(backend.as_mut(), false);
        let s = &samples[0];
        assert_eq!((s.clock_gfx_mhz, s.clock_mem_mhz), (Some(1755), Some(2619)));
        assert_eq!(
            (s.utilization_pct, s.mem_utilization_pct),
            (Some(100), Some(87))
        );
        assert_eq!((s.temperature_c, s.memory_temp_c), (Some(66), Some(91)));
        assert_eq!((s.throttle, s.energy_mj), (Some(4), Some(1000)));
        // The cheap at every tick, the others not before their time, the dear least of all.
        let until = Instant::now() + Duration::from_millis(650);
        let (mut memory, mut gauges, mut lists) = (1, 1, 1);
        while Instant::now() < until {
            let (samples, _) = stage.sample(backend.as_mut(), false);
            memory += 1;
            gauges += u64::from(samples[0].power_mw.is_some());
            lists += u64::from(samples[0].processes.is_some());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            (2..=4).contains(&gauges) && lists == 1 && memory > gauges,
            "{gauges} {lists}"
        );
        let costs = backend.costs();
        let calls = |name: &str| costs.iter().find(|c| c.name == name).unwrap().calls;
        assert_eq!(
            (calls("memory"), calls("gauges"), calls("processes")),
            (memory, gauges, 1)
        );
        assert!(
            costs
                .iter()
                .all(|c| c.mean_ns <= c.max_ns && c.p99_ns <= c.max_ns),
            "{costs:?}"
        );
        // At the edge of a phase the lists and the energy are wanted at once.
        std::thread::sleep(Duration::from_millis(210));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        assert!(samples[0].energy_mj.is_some() && samples[0].processes.is_some());
    });
}

#[test]
fn a_gauge_that_a_gpu_does_not_have_is_asked_for_once() {
    let scenario = format!(
        "{H100}at 0 gpu 0 used=5\nat 0 fail nvmlDeviceGetTotalEnergyConsumption 3\nat 0 fail nvmlDeviceGetClockInfo 999\n"
    );
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert_eq!(result, Ok(()));
        let s = &samples[0];
        assert_eq!(
            (s.energy_mj, s.clock_gfx_mhz, s.memory_temp_c),
            (None, None, None)
        );
        assert_eq!(
            s.throttle,
            Some(0),
            "nothing throttles it, which is not unknown"
        );
        // What is not supported stays so; what stumbled is asked again.
        stage.play(&format!("{H100}{BUSY}"));
        std::thread::sleep(Duration::from_millis(220));
        let (samples, _) = stage.sample(backend.as_mut(), false);
        assert_eq!(
            (samples[0].energy_mj, samples[0].clock_gfx_mhz),
            (None, Some(1755))
        );
    });
}

fn events_of(stage: &Stage, backend: &mut dyn MemoryBackend, wanted: usize) -> Vec<DeviceEvent> {
    let give_up = Instant::now() + Duration::from_secs(10);
    let mut events = Vec::new();
    while events.len() < wanted && Instant::now() < give_up {
        let _ = stage.sample(backend, false);
        events.extend(backend.take_events());
        std::thread::sleep(Duration::from_millis(10));
    }
    events
}

#[test]
fn critical_events_are_heard_while_sampling() {
    let other = "gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090\n";
    let scenario = format!("{H100}{other}at 100 xid 1 79\nat 150 ecc 0\n");
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["all"]));
        let events = events_of(stage, backend.as_mut(), 2);
        let [xid, ecc] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((xid.device, xid.code.as_str()), (1, "gpu_xid"));
        assert!(
            xid.message.contains("RTX 4090")
                && xid
                    .message
                    .contains("Xid 79 (the GPU has fallen off the bus)"),
            "{}",
            xid.message
        );
        assert_eq!((ecc.device, ecc.code.as_str()), (0, "gpu_ecc_double_bit"));
        assert!(xid.at_ns <= ecc.at_ns && ecc.at_ns <= stage.clock.now());
    });
}

#[test]
fn a_gpu_lost_in_the_middle_is_a_gap_and_an_event() {
    let scenario = format!("{H100}at 0 gpu 0 used=5\nat 300 fail nvmlDeviceGetMemoryInfo_v2 15\n");
    staged(test_name!(), &scenario, |stage| {
        let backend = nvml(&target(&["0"]));
        let options = SamplerOptions {
            interval: Duration::from_millis(20),
            ..SamplerOptions::default()
        };
        let (sampler, samples) =
            MemorySampler::start_thread(backend, &stage.clock, options).unwrap();
        std::thread::sleep(Duration::from_millis(900));
        let facts = sampler.stop_thread().sampling;
        assert!(samples.iter().flatten().count() >= 3);
        assert_eq!(facts.events.len(), 1, "told once: {:?}", facts.events);
        assert_eq!(facts.events[0].code, "gpu_lost");
        assert!(
            facts.events[0].message.contains("fell off the bus"),
            "{:?}",
            facts.events
        );
        assert!(
            facts.failed_readings > 1 && facts.longest_gap_ns > 200_000_000,
            "{facts:?}"
        );
        assert!(facts.last_error.unwrap().contains("lost"));
    });
}

#[test]
fn a_gpu_without_memory_of_its_own_is_measured_on_the_host() {
    let scenario = "gpu GPU-00000000-aaaa-0000-0000-000000000000 0 0 NVIDIA GB10\n";
    let unsupported = format!(
        "{H100}at 0 fail nvmlDeviceGetMemoryInfo_v2 3\nat 0 fail nvmlDeviceGetMemoryInfo 3\n"
    );
    staged(test_name!(), scenario, |stage| {
        for scenario in [scenario, &unsupported] {
            stage.play(scenario);
            let mut backend = nvml(&target(&["all"]));
            let device = backend.devices().remove(0);
            let host = plimsoll::host::read_state().expect("meminfo");
            assert_eq!(device.total_bytes, Some(host.total_bytes));
            assert!(device.shares_host, "{device:?}");
            let (samples, result) = stage.sample(backend.as_mut(), false);
            assert_eq!(result, Ok(()));
            // The operating system and every other process count as in use.
            let used = samples[0].used_bytes;
            assert!(used > 0 && used < host.total_bytes, "{used}");
            let reason = backend.facts().reason;
            assert!(reason.contains("shares the host's"), "{reason}");
        }
    });
}

#[test]
fn what_is_measured_of_mig_slices_is_said() {
    let scenario = format!(
        "{H100}{BUSY}mig 0 0 MIG-aaaa 40448\nmig 0 2 MIG-bbbb 9984\nat 0 slice 0 0 used=11091\nat 0 slice 0 2 used=9\nat 0 fail nvmlDeviceGetUtilizationRates 3\nat 0 slice 0 0 proc self 7484\n"
    );
    staged(test_name!(), &scenario, |stage| {
        let mut whole = nvml(&target(&["all"]));
        assert!(
            whole.facts().reason.contains("split into MIG slices"),
            "{}",
            whole.facts().reason
        );
        let (samples, _) = stage.sample(whole.as_mut(), false);
        assert_eq!(
            (
                samples.len(),
                samples[0].used_bytes,
                samples[0].utilization_pct
            ),
            (1, 70000 * MIB, None)
        );

        for request in ["MIG-aaaa", "0:0"] {
            let mut slice = nvml(&target(&[request]));
            let devices = slice.devices();
            assert_eq!(
                (
                    devices.len(),
                    devices[0].id.as_str(),
                    devices[0].total_bytes
                ),
                (1, "MIG-aaaa", Some(40448 * MIB))
            );
            assert!(devices[0].name.contains("MIG"), "{}", devices[0].name);
            assert!(
                slice
                    .facts()
                    .reason
                    .contains("of a MIG slice memory and processes are read")
            );
            let (samples, result) = stage.sample(slice.as_mut(), true);
            assert_eq!((samples[0].used_bytes, result), (11091 * MIB, Ok(())));
            assert_eq!(
                (samples[0].power_mw, samples[0].energy_mj),
                (None, None),
                "that is the whole GPU's"
            );
            assert_eq!(
                samples[0].processes.as_ref().unwrap()[0].used_bytes,
                Some(7484 * MIB)
            );
        }
        let absent = refused(BackendChoice::Nvml, &target(&["0:1"]));
        assert!(absent.message.contains("0:1"), "{absent}");
    });
}

#[test]
fn accounting_is_used_where_it_is_on() {
    let list =
        "at 0 gpu 0 used=500\nat 0 proc 0 self 100\nat 0 proc 0 parent 50\nat 0 peak 0 self 777\n";
    staged(test_name!(), &format!("{H100}{list}"), |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        assert!(
            samples[0]
                .processes
                .iter()
                .flatten()
                .all(|p| p.peak_bytes.is_none())
        );
        assert!(!backend.facts().reason.contains("accounting"));

        stage.play(&format!("{H100}{list}accounting on\n"));
        let mut backend = nvml(&target(&["0"]));
        assert!(
            backend.facts().reason.contains("accounting is on"),
            "{}",
            backend.facts().reason
        );
        let (samples, _) = stage.sample(backend.as_mut(), true);
        let processes = samples[0].processes.as_ref().unwrap();
        let peak = |pid: u32| processes.iter().find(|p| p.pid == pid).unwrap().peak_bytes;
        assert_eq!(peak(std::process::id()), Some(777 * MIB));
        let parent = std::os::unix::process::parent_id();
        assert_eq!(peak(parent), None, "the driver has no account of it");
    });
}

#[test]
fn the_whole_host_is_read_without_a_container() {
    let other = "gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090\n";
    let scenario =
        format!("{H100}{other}at 0 gpu 0 used=500\nat 0 gpu 1 used=20\nat 0 proc 0 self 100\n");
    staged(test_name!(), &scenario, |stage| {
        let mut backend = open_host().unwrap();
        assert_eq!(backend.devices().len(), 2);
        assert_eq!(backend.facts().reason, "the host has 2 GPUs");
        let (samples, _) = stage.sample(backend.as_mut(), true);
        let mine = &samples[0].processes.as_ref().unwrap()[0];
        assert_eq!(
            (mine.used_bytes, mine.ours),
            (Some(100 * MIB), None),
            "nobody's in particular"
        );
        let tenants = samples[0].memory_owners().unwrap();
        assert_eq!(tenants.unattributed_bytes, Some(400 * MIB));
        assert_eq!(
            tenants.others_bytes + tenants.containers.values().sum::<u64>(),
            100 * MIB
        );
        let _ = own_id();
        stage.play("driver 570.1\n");
        let failure = open_host().err().unwrap();
        assert!(failure.message.contains("no GPU"), "{failure}");
    });
    let _ = ReadingError::Over;
}

#[test]
fn a_driver_that_lies_about_its_processes_is_not_believed() {
    for (lie, mine) in [(4_000_000_000u32, ""), (u32::MAX, "at 0 proc 0 self 100\n")] {
        let scenario = format!("{H100}at 0 gpu 0 used=500\n{mine}lie {lie}\n");
        staged(test_name!(), &scenario, |stage| {
            let mut backend = nvml(&target(&["0"]));
            let (samples, result) = stage.sample(backend.as_mut(), true);
            assert_eq!(
                (samples[0].used_bytes, &samples[0].processes, result),
                (500 * MIB, &None, Ok(()))
            );
            let reason = backend.facts().reason;
            assert!(reason.contains("turned out to be nonsense"), "{reason}");
        });
    }
}

#[test]
fn figures_that_no_gpu_has_are_unknown() {
    let sane =
        "at 0 gpu 0 used=500 power=400000 temp=60 util=50 memutil=5 sm=1755 mem=2619 memtemp=70\n";
    staged(test_name!(), &format!("{H100}{sane}"), |stage| {
        let mut backend = nvml(&target(&["0"]));
        stage.play(&format!(
                "{H100}at 0 gpu 0 used=500 power=4294967295 temp=4294967200 util=255 memutil=101 sm=4294967295 mem=4000000000 memtemp=100000\n"
            ));
        let (samples, result) = stage.sample(backend.as_mut(), true);
        let s = &samples[0];
        assert_eq!((s.used_bytes, result), (500 * MIB, Ok(())));
        assert_eq!(
            (s.power_mw, s.temperature_c, s.memory_temp_c),
            (None, None, None)
        );
        assert_eq!((s.utilization_pct, s.mem_utilization_pct), (None, None));
        assert_eq!((s.clock_gfx_mhz, s.clock_mem_mhz), (None, None));
        // More in use than there is: a gap, and the next reading is good again.
        stage.play(&format!("{H100}at 0 gpu 0 used=81560\n"));
        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert!(samples.is_empty() && matches!(result, Err(ReadingError::Failed(_))));
        let mut probed = Vec::new();
        assert_eq!(backend.probe(&mut probed), Ok(()));
        assert_eq!(probed, [0], "0 is no reading");
        stage.play(&format!("{H100}{sane}"));
        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert_eq!((samples.len(), result), (1, Ok(())));
    });
}

#[test]
fn sixteen_slices_of_one_gpu_are_sixteen_devices() {
    let slices: String = (0..16)
        .map(|k| {
            format!(
                "mig 0 {k} MIG-{k:02}{k:02}-aa 4864\nat 0 slice 0 {k} used={}\n",
                100 + k
            )
        })
        .collect();
    staged(
        test_name!(),
        &format!("{H100}at 0 gpu 0 used=2000\n{slices}"),
        |stage| {
            let wanted: Vec<String> = (0..16).map(|k| format!("MIG-{k:02}{k:02}-aa")).collect();
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let mut backend = nvml(&target(&wanted));
            assert_eq!(backend.devices().len(), 16);
            let (samples, result) = stage.sample(backend.as_mut(), true);
            assert_eq!(result, Ok(()));
            let used: Vec<u64> = samples.iter().map(|s| s.used_bytes / MIB).collect();
            assert_eq!(used, (100..116).collect::<Vec<u64>>());
        },
    );
}

/// Ended when dropped.
struct Sleepers(Vec<std::process::Child>);

impl Sleepers {
    fn start(count: usize) -> Sleepers {
        let start = || {
            std::process::Command::new("sleep")
                .arg("300")
                .spawn()
                .unwrap()
        };
        Sleepers((0..count).map(|_| start()).collect())
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_list_longer_than_any_before_is_read_whole() {
    staged(test_name!(), H100, |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        assert_eq!(samples[0].processes.as_deref(), Some(&[][..]));
        let sleepers = Sleepers::start(150);
        let lines: String = sleepers
            .0
            .iter()
            .map(|c| format!("at 0 proc 0 {} 10\n", c.id()))
            .collect();
        stage.play(&format!("{H100}at 0 gpu 0 used=2000\n{lines}"));
        let mut backend = nvml(&target(&["0"]));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        let listed = samples[0].processes.as_ref().unwrap();
        assert_eq!(listed.len(), 150);
        let tenants = samples[0].memory_owners().unwrap();
        assert_eq!(tenants.unattributed_bytes, Some(500 * MIB));
    });
}

#[test]
fn clients_of_the_multi_process_service_are_tenants() {
    let scenario =
        format!("{H100}at 0 gpu 0 used=1000\nat 0 proc 0 parent 30\nat 0 proc 0 self 700 mps\n");
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        let listed = samples[0].processes.as_ref().unwrap();
        let held = |pid: u32| {
            listed
                .iter()
                .find(|p| p.pid == pid)
                .and_then(|p| p.used_bytes)
        };
        assert_eq!(held(std::process::id()), Some(700 * MIB));
        assert_eq!(held(std::os::unix::process::parent_id()), Some(30 * MIB));
    });
}
