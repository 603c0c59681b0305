//! The NVML backend against a stand-in library that plays a scenario (`tests/fake_nvml`).
//!
//! A library stays in a process once it is loaded, and its scenario is named by the environment:
//! so every test runs its body in a process of its own, which is this binary called again.

use crate::common::stage;
use plimsoll::capture::{DeviceKind, MemorySample};
use plimsoll::telemetry::{
    BackendChoice, LIBRARY_VARIABLE, MeasuredContainer, MemorySampler, ReadingError,
    SamplerOptions, open_backend,
};
use stage::{nvml, own_id, refused, staged, staged_with, target};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const H100: &str = "GPU-00000000-aaaa-0000-0000-000000000000";
const RTX: &str = "GPU-11111111-bbbb-1111-1111-111111111111";

const TWO_GPUS: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090
at 0 gpu 0 used=70000 power=690000 temp=66 util=100
at 0 gpu 1 used=12 power=22000 temp=40 util=0
";

#[test]
fn two_gpus_are_read_whole() {
    let processes = "at 0 proc 0 self 69990 both\nat 0 proc 0 parent na\nat 0 proc 1 parent 12 graphics\nat 0 proc 1 2000000 7\n";
    staged(test_name!(), &format!("{TWO_GPUS}{processes}"), |stage| {
        let mut backend = nvml(&target(&["all"]));
        let facts = backend.facts();
        assert_eq!(
            (facts.name.as_str(), facts.version.as_deref()),
            ("nvml", Some("fake-570.133.20"))
        );
        assert!(facts.simulated);
        assert_eq!(
            facts.reason,
            "the container has 2 GPUs according to its GPU request"
        );
        let devices = backend.devices();
        assert_eq!(
            devices
                .iter()
                .map(|d| (d.index, d.id.as_str()))
                .collect::<Vec<_>>(),
            [(0, H100), (1, RTX)]
        );
        assert!(devices.iter().all(|d| d.kind == DeviceKind::Gpu));
        assert_eq!(
            (devices[0].name.as_str(), devices[0].total_bytes),
            ("NVIDIA H100 80GB HBM3", Some(81559 * MIB))
        );

        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert_eq!(result, Ok(()));
        let [h100, rtx] = &samples[..] else {
            panic!("{samples:?}")
        };
        assert_eq!(
            (h100.used_bytes, h100.reserved_bytes),
            (70000 * MIB, Some(551 * MIB)),
            "used without reserved"
        );
        assert_eq!(
            (h100.power_mw, h100.temperature_c, h100.utilization_pct),
            (Some(690_000), Some(66), Some(100))
        );
        assert_eq!(
            (rtx.device, rtx.utilization_pct),
            (1, Some(0)),
            "idle is 0 and not unknown"
        );
        assert!(h100.host.is_none() && h100.bench_client_bytes.is_none());

        let me = std::process::id();
        let parent = std::os::unix::process::parent_id();
        let of = |s: &MemorySample, pid: u32| {
            s.processes
                .as_ref()
                .unwrap()
                .iter()
                .find(|p| p.pid == pid)
                .cloned()
        };
        let mine = of(h100, me).unwrap();
        assert_eq!(
            mine.used_bytes,
            Some(69990 * MIB),
            "in both lists, counted once"
        );
        assert_eq!(mine.ours, own_id().map(|_| true));
        assert!(mine.name.is_some());
        assert_eq!(
            of(h100, parent).unwrap().used_bytes,
            None,
            "what the driver does not tell is unknown"
        );
        assert_eq!(of(rtx, parent).unwrap().used_bytes, Some(12 * MIB));
        assert_eq!(of(rtx, 2_000_000), None, "no such process");

        // Right afterwards the slow-moving and the dear are left out.
        let (samples, _) = stage.sample(backend.as_mut(), false);
        assert_eq!(samples[0].used_bytes, 70000 * MIB);
        assert_eq!((samples[0].power_mw, &samples[0].processes), (None, &None));
        let mut probed = Vec::new();
        assert_eq!(backend.probe(&mut probed), Ok(()));
        assert_eq!(probed, [70000 * MIB, 12 * MIB]);
    });
}

#[test]
fn only_the_containers_gpus_are_read() {
    staged(test_name!(), TWO_GPUS, |stage| {
        for (request, uuid) in [
            (RTX, RTX),
            ("1", RTX),
            ("count=1", H100),
            ("GPU-00000000", H100),
        ] {
            let mut backend = nvml(&target(&[request]));
            let devices = backend.devices();
            assert_eq!(
                devices
                    .iter()
                    .map(|d| (d.index, d.id.as_str()))
                    .collect::<Vec<_>>(),
                [(0, uuid)],
                "{request}"
            );
            let (samples, _) = stage.sample(backend.as_mut(), false);
            assert_eq!(samples.len(), 1);
            assert_eq!(samples[0].device, 0);
        }
        let by_environment = MeasuredContainer {
            visible_devices: Some("1".into()),
            ..target(&[])
        };
        let backend = nvml(&by_environment);
        assert_eq!(backend.devices()[0].id, RTX);
        assert!(
            backend.facts().reason.contains("NVIDIA_VISIBLE_DEVICES"),
            "{}",
            backend.facts().reason
        );

        let absent = refused(BackendChoice::Nvml, &target(&["7"]));
        assert!(absent.message.contains("no GPU 7"), "{absent}");
        let slice = refused(BackendChoice::Nvml, &target(&["MIG-5f2f"]));
        assert!(slice.message.contains("has the MIG slice"), "{slice}");
        let partly = nvml(&target(&["0", "7"]));
        assert!(
            partly.facts().reason.contains("no GPU 7"),
            "{}",
            partly.facts().reason
        );
    });
}

#[test]
fn an_old_driver_is_read_through_the_old_call() {
    let scenario = format!(
        "{TWO_GPUS}driver 470.256.02\nat 0 fail nvmlDeviceGetMemoryInfo_v2 13\nat 0 fail nvmlDeviceGetComputeRunningProcesses_v3 13\nat 0 proc 0 self 90\n"
    );
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["0"]));
        let reason = backend.facts().reason;
        assert!(
            reason.contains("includes what the driver reserves"),
            "{reason}"
        );
        assert!(!reason.contains("lists no processes"), "{reason}");
        let (samples, result) = stage.sample(backend.as_mut(), true);
        assert_eq!(result, Ok(()));
        assert_eq!(
            (samples[0].used_bytes, samples[0].reserved_bytes),
            (70551 * MIB, None)
        );
        let processes = samples[0].processes.as_ref().unwrap();
        assert_eq!(processes[0].used_bytes, Some(90 * MIB), "by the old lists");

        stage.play(&format!(
            "{scenario}at 0 fail nvmlDeviceGetComputeRunningProcesses_v2 13\n"
        ));
        let mut backend = nvml(&target(&["0"]));
        let reason = backend.facts().reason;
        assert!(reason.contains("lists no processes"), "{reason}");
        let (samples, _) = stage.sample(backend.as_mut(), true);
        assert_eq!(samples[0].processes, None, "unknown is not none");
    });
}

#[test]
fn broken_process_lists_are_never_asked_for() {
    let scenario = format!(
        "{TWO_GPUS}driver 535.54.03\nstride32\nat 0 proc 0 self 100\nat 0 proc 0 parent 200\n"
    );
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["all"]));
        assert!(
            backend
                .facts()
                .reason
                .contains("of this driver version are broken"),
            "{}",
            backend.facts().reason
        );
        let (samples, result) = stage.sample(backend.as_mut(), true);
        assert_eq!((samples.len(), result), (2, Ok(())));
        assert!(samples.iter().all(|s| s.processes.is_none()), "{samples:?}");
    });
}

#[test]
fn nonsense_in_a_process_list_is_noticed() {
    let scenario = format!("{TWO_GPUS}stride32\nat 0 proc 0 self 100\nat 0 proc 0 parent 200\n");
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, result) = stage.sample(backend.as_mut(), true);
        assert_eq!(
            (samples[0].used_bytes, &samples[0].processes, result),
            (70000 * MIB, &None, Ok(()))
        );
        assert!(
            backend.facts().reason.contains("turned out to be nonsense"),
            "{}",
            backend.facts().reason
        );
    });
}

#[test]
fn a_lost_gpu_is_told_once_and_the_other_goes_on() {
    staged(test_name!(), TWO_GPUS, |stage| {
        let mut backend = nvml(&target(&["all"]));
        stage.play(&format!(
            "{TWO_GPUS}at 0 fail nvmlDeviceGetMemoryInfo_v2 15 0\n"
        ));
        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert_eq!(samples.iter().map(|s| s.device).collect::<Vec<_>>(), [1]);
        let Err(ReadingError::Failed(why)) = result else {
            panic!("{result:?}")
        };
        assert!(
            why.contains("NVIDIA H100") && why.contains("fell off the bus"),
            "{why}"
        );
        // It is not asked again, also when it would answer.
        stage.play(TWO_GPUS);
        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert_eq!((samples.len(), result), (1, Ok(())));
        let mut probed = Vec::new();
        assert_eq!(backend.probe(&mut probed), Ok(()));
        assert_eq!(probed, [0, 12 * MIB]);

        stage.play(&format!(
            "{TWO_GPUS}at 0 fail nvmlDeviceGetMemoryInfo_v2 15\n"
        ));
        assert!(
            matches!(stage.sample(backend.as_mut(), false), (s, Err(ReadingError::Failed(_))) if s.is_empty())
        );
        assert!(matches!(
            stage.sample(backend.as_mut(), false).1,
            Err(ReadingError::Gone(_))
        ));
    });
}

#[test]
fn a_stumble_of_the_driver_passes() {
    staged(test_name!(), TWO_GPUS, |stage| {
        let mut backend = nvml(&target(&["0"]));
        stage.play(&format!(
            "{TWO_GPUS}at 0 fail nvmlDeviceGetMemoryInfo_v2 999\n"
        ));
        assert!(matches!(
            stage.sample(backend.as_mut(), false).1,
            Err(ReadingError::Failed(_))
        ));
        stage.play(&format!("{TWO_GPUS}at 0 fail nvmlDeviceGetPowerUsage 3\nat 0 fail nvmlDeviceGetUtilizationRates 3\n"));
        let (samples, result) = stage.sample(backend.as_mut(), false);
        assert_eq!(result, Ok(()));
        assert_eq!(
            (
                samples[0].power_mw,
                samples[0].temperature_c,
                samples[0].utilization_pct
            ),
            (None, Some(66), None)
        );
    });
}

#[test]
fn a_driver_that_is_not_loaded_is_told_in_its_own_words() {
    staged(test_name!(), "at 0 fail nvmlInit_v2 9\n", |_| {
        let failure = refused(BackendChoice::Nvml, &target(&["all"]));
        assert!(
            failure.message.contains("NVIDIA driver is not loaded"),
            "{failure}"
        );
        // Left to itself plimsoll measures what it can, and says why.
        match open_backend(BackendChoice::Auto, &target(&["all"])) {
            Ok(backend) => {
                let facts = backend.facts();
                assert_eq!(facts.name, "host");
                assert!(
                    facts.reason.contains("asks for a GPU") && facts.reason.contains("not loaded"),
                    "{}",
                    facts.reason
                );
            }
            Err(e) => eprintln!("SKIPPED: {e}"),
        }
    });
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let test = test_name!();
    staged_with(test, "", Path::new("/nowhere/libnvidia-ml.so.1"), |_| {
        let failure = refused(BackendChoice::Nvml, &target(&["all"]));
        assert!(
            failure.message.contains("/nowhere/libnvidia-ml.so.1"),
            "{failure}"
        );
        assert!(
            failure.hints[0].contains(LIBRARY_VARIABLE),
            "{:?}",
            failure.hints
        );
    });
}

#[test]
fn hosts_without_a_usable_gpu_are_told_apart() {
    staged(test_name!(), "", |stage| {
        assert!(
            refused(BackendChoice::Nvml, &target(&["all"]))
                .message
                .contains("no GPU on this host")
        );
        stage.play(&format!("{TWO_GPUS}at 0 fail nvmlDeviceGetUUID 15 0\n"));
        let rest = nvml(&target(&["all"]));
        assert_eq!(rest.devices().len(), 1);
        assert!(
            rest.facts()
                .reason
                .contains("GPU 0: device fell off the bus"),
            "{}",
            rest.facts().reason
        );
    });
}

#[test]
fn a_container_without_a_gpu_is_measured_on_the_host() {
    staged(test_name!(), TWO_GPUS, |stage| {
        let failure = refused(BackendChoice::Nvml, &target(&[]));
        assert!(failure.message.contains("asks for no GPU"), "{failure}");
        let auto = |target: &MeasuredContainer| {
            open_backend(BackendChoice::Auto, target).map(|b| (b.facts(), b.devices()))
        };
        let Ok((facts, _)) = auto(&target(&[])) else {
            return eprintln!("SKIPPED: no memory cgroup is visible here");
        };
        assert_eq!(
            (facts.name.as_str(), facts.reason.as_str()),
            ("host", "the container uses no GPU")
        );
        // What nothing here can read is named, and no number of another maker is taken for it.
        let gaudi = MeasuredContainer {
            gpu_request: vec!["habana.ai/gaudi=0".into()],
            ..target(&[])
        };
        let ascend = MeasuredContainer {
            devices: vec!["/dev/davinci0".into()],
            ..target(&[])
        };
        for (given, maker) in [(gaudi, "(Intel Gaudi)"), (ascend, "(Huawei Ascend)")] {
            let (facts, _) = auto(&given).unwrap();
            assert_eq!(facts.name, "host");
            let reason = facts.reason;
            assert!(
                reason.contains(maker) && reason.contains("cannot read"),
                "{reason}"
            );
        }
        if Path::new("/dev/nvidiactl").exists() {
            eprintln!(
                "SKIPPED: leftovers of an image cannot be told apart, this machine has a GPU"
            );
        } else {
            let leftover = MeasuredContainer {
                visible_devices: Some("all".into()),
                ..target(&[])
            };
            assert_eq!(
                auto(&leftover).unwrap().0.name,
                "host",
                "the image says `all`, but there is no GPU inside"
            );
        }
        // With a process on a GPU it does use one, whatever it asked for.
        if own_id().is_none() {
            return eprintln!("SKIPPED: this process is in the root cgroup, as everything else");
        }
        stage.play(&format!("{TWO_GPUS}at 0 proc 1 self 10\n"));
        let (facts, devices) = auto(&target(&[])).unwrap();
        assert_eq!(
            (facts.name.as_str(), devices.len(), devices[0].id.as_str()),
            ("nvml", 1, RTX)
        );
        assert_eq!(facts.reason, "a process of the container is on 1 GPU");
    });
}

#[test]
fn a_slow_process_list_is_asked_for_less_often() {
    let scenario = format!(
        "{TWO_GPUS}at 0 proc 0 self 10\nat 0 slow nvmlDeviceGetComputeRunningProcesses_v3 30\n"
    );
    staged(test_name!(), &scenario, |stage| {
        let mut backend = nvml(&target(&["0"]));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        assert!(samples[0].processes.is_some());
        // Twice 30 ms, so not again within 3 s, while 0.2 s is the rule for a request.
        std::thread::sleep(Duration::from_millis(300));
        let (samples, _) = stage.sample(backend.as_mut(), true);
        assert_eq!(samples[0].processes, None);
    });
}

#[test]
fn the_sampler_follows_a_gpu_over_time() {
    let scenario = format!("{TWO_GPUS}at 200 gpu 0 used=75000\nat 250 gpu 0 used=71000\n");
    staged(test_name!(), &scenario, |stage| {
        let backend = nvml(&target(&["0"]));
        let options = SamplerOptions {
            interval: Duration::from_millis(40),
            ..SamplerOptions::default()
        };
        let (sampler, samples) =
            MemorySampler::start_thread(backend, &stage.clock, options).unwrap();
        let give_up = Instant::now() + Duration::from_secs(30);
        let (mut highest, mut ended) = (0, false);
        while !ended {
            for sample in samples.recv_timeout(give_up - Instant::now()).unwrap() {
                highest = highest
                    .max(sample.used_bytes)
                    .max(sample.high_bytes.unwrap_or(0));
                ended |= sample.used_bytes == 71000 * MIB;
            }
        }
        let stopped = sampler.stop_thread();
        // On a machine that stands still for 50 ms the spike may be missed, and then it must say so.
        let gap = stopped.sampling.longest_gap_ns;
        assert!(
            highest == 75000 * MIB || gap > 50_000_000,
            "{highest} {:?}",
            stopped.sampling
        );
        assert!(stopped.backend.simulated);
    });
}
