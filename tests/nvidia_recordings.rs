//! What `nvidia-smi` recorded of seven GPUs, played through the stand-in NVML: plimsoll says the
//! same. The recordings are other people's and lie outside the project; without them the test
//! says so and passes.

use crate::common::recordings;
use crate::common::skip;
use crate::common::stage;
use plimsoll::capture::MemorySample;
use plimsoll::telemetry::MemoryBackend;
use recordings::{NVIDIA, folder};
use stage::{Stage, nvml, staged, target};
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// What a recording says, read by hand.
struct Said {
    name: &'static str,
    /// MiB: in all, reserved, in use.
    memory: [u64; 3],
    milliwatts: u32,
    /// °C: the GPU, its memory.
    temperature: (u32, Option<u32>),
    /// Percent: the GPU, its memory's interface.
    busy: Option<(u32, u32)>,
    /// MHz: cores, memory.
    clocks: (u32, u32),
    /// MiB in all and in use of each slice.
    slices: &'static [(u64, u64)],
    /// MiB of each process, in order of their pids; `None` where none may be asked for.
    processes: Option<&'static [u64]>,
}

fn said(file: &str) -> Said {
    let plain = Said {
        name: "",
        memory: [0; 3],
        milliwatts: 0,
        temperature: (0, None),
        busy: None,
        clocks: (0, 0),
        slices: &[],
        processes: Some(&[]),
    };
    match file {
        "nvidia-smi-535.54.03-a100.xml" => Said {
            name: "NVIDIA A100-SXM4-80GB",
            memory: [81_920, 869, 50],
            milliwatts: 67_030,
            temperature: (27, Some(44)),
            clocks: (1275, 1593),
            slices: &[(19_968, 12), (19_968, 12), (19_968, 12), (19_968, 12)],
            // One of the drivers whose lists are laid out otherwise.
            processes: None,
            ..plain
        },
        "nvidia-smi-590.48.01-h100-mig.txt" => Said {
            name: "NVIDIA H100 80GB HBM3",
            memory: [81_559, 479, 11_125],
            milliwatts: 433_780,
            temperature: (53, Some(59)),
            clocks: (1980, 2619),
            slices: &[(40_448, 11_091), (20_096, 17), (9984, 9), (9984, 9)],
            processes: Some(&[2296, 1272, 7484]),
            ..plain
        },
        "nvidia-smi-590.48.01-h100.txt" => Said {
            name: "NVIDIA H100 80GB HBM3",
            memory: [81_559, 479, 19_818],
            milliwatts: 631_950,
            temperature: (59, Some(54)),
            busy: Some((100, 11)),
            clocks: (1980, 2619),
            processes: Some(&[2566, 1542, 15_690]),
            ..plain
        },
        "nvidia-smi-590.48.01-h200-mig.txt" => Said {
            name: "NVIDIA H200",
            memory: [143_771, 614, 16_959],
            milliwatts: 295_010,
            temperature: (36, Some(39)),
            clocks: (1980, 3201),
            // The first two share one memory.
            slices: &[
                (71_424, 16_925),
                (71_424, 16_925),
                (33_280, 17),
                (16_384, 9),
                (16_384, 9),
            ],
            processes: Some(&[2194, 1170, 13_526]),
            ..plain
        },
        "nvidia-smi-595.58.03-rtx3080.xml" => Said {
            name: "NVIDIA GeForce RTX 3080",
            memory: [10_240, 397, 9184],
            milliwatts: 139_620,
            temperature: (27, None),
            busy: Some((65, 9)),
            clocks: (1950, 9251),
            ..plain
        },
        "nvidia-smi-595.80-l40s.txt" => Said {
            name: "NVIDIA L40S",
            memory: [46_068, 609, 1235],
            milliwatts: 110_230,
            temperature: (54, None),
            busy: Some((9, 2)),
            clocks: (2520, 9001),
            processes: Some(&[538, 681]),
            ..plain
        },
        "nvidia-smi-595.84-rtx4000ada.xml" => Said {
            name: "NVIDIA RTX 4000 SFF Ada Generation",
            memory: [20_475, 460, 3534],
            milliwatts: 8810,
            temperature: (38, None),
            busy: Some((0, 37)),
            clocks: (210, 405),
            processes: Some(&[410, 451, 160, 183]),
            ..plain
        },
        other => panic!("nobody has read {other}"),
    }
}

/// Stand for the recorded processes; ended when dropped.
#[derive(Default)]
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn pid(&mut self) -> u32 {
        let mut sleep = Command::new("sleep");
        let child = sleep.arg("300").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        self.0.push(child);
        pid
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

/// A figure without its unit; `None` for `N/A` and its like.
fn number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The text of the first element of this name after `from`.
fn element<'a>(xml: &'a str, from: &str, name: &str) -> Option<&'a str> {
    let rest = &xml[xml.find(from)?..];
    let start = rest.find(&format!("<{name}>"))? + name.len() + 2;
    let end = rest[start..].find(&format!("</{name}>"))?;
    Some(rest[start..start + end].trim())
}

/// Figures by the names that `--query-gpu` has for them.
fn figures(text: &str) -> BTreeMap<String, String> {
    if text.starts_with("<?xml") {
        let end = text.rfind("</mig_device>").unwrap_or(0);
        let whole = &text[end..];
        let of = |name: &str, from: &str, element_name: &str| {
            let found =
                element(whole, from, element_name).or_else(|| element(text, from, element_name));
            (name.to_owned(), found.unwrap_or("N/A").to_owned())
        };
        let power = if whole.contains("<average_power_draw>") {
            "average_power_draw"
        } else {
            "power_draw"
        };
        return BTreeMap::from([
            of("driver_version", "<nvidia_smi_log>", "driver_version"),
            of("name", "<nvidia_smi_log>", "product_name"),
            of("memory.total", "<fb_memory_usage>", "total"),
            of("memory.reserved", "<fb_memory_usage>", "reserved"),
            of("memory.used", "<fb_memory_usage>", "used"),
            of("temperature.gpu", "<temperature>", "gpu_temp"),
            of("temperature.memory", "<temperature>", "memory_temp"),
            of("power.draw", "<gpu_power_readings>", power),
            of("utilization.gpu", "<utilization>", "gpu_util"),
            of("utilization.memory", "<utilization>", "memory_util"),
            of("clocks.current.sm", "<clocks>", "sm_clock"),
            of("clocks.current.memory", "<clocks>", "mem_clock"),
        ]);
    }
    let mut lines = text.lines();
    let head = lines
        .by_ref()
        .find(|l| l.starts_with("timestamp, driver_version"))
        .unwrap();
    let row = lines.next().unwrap();
    // Without the units in the names.
    let name = |n: &str| n.split(" [").next().unwrap_or(n).trim().to_owned();
    head.split(',')
        .map(name)
        .zip(row.split(',').map(|v| v.trim().to_owned()))
        .collect()
}

/// MiB in all and in use of each slice.
fn slices(text: &str) -> Vec<(u64, u64)> {
    if text.starts_with("<?xml") {
        let figure = |device: &str, name| {
            element(device, "<fb_memory_usage>", name)
                .and_then(number)
                .unwrap() as u64
        };
        return text
            .split("<mig_device>")
            .skip(1)
            .map(|d| (figure(d, "total"), figure(d, "used")))
            .collect();
    }
    // |  0    2   0   0  |           11091MiB / 40448MiB    | 60      0 |
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim);
        let ids = cells.nth(1)?.split_whitespace().count();
        let (used, total) = cells.next()?.split_once('/')?;
        let mib = |t: &str| t.trim().strip_suffix("MiB")?.parse().ok();
        Some((mib(total)?, mib(used)?)).filter(|_| ids == 4)
    };
    text.lines().filter_map(row).collect()
}

/// MiB of each process and the list it is in.
fn processes(text: &str) -> Vec<(u64, &'static str)> {
    if text.starts_with("<?xml") {
        return text
            .split("<process_info>")
            .skip(1)
            .map(|p| {
                let kind = match element(p, "<type>", "type") {
                    Some("G") => "graphics",
                    Some("C+G") => "both",
                    _ => "compute",
                };
                (
                    element(p, "<used_memory>", "used_memory")
                        .and_then(number)
                        .unwrap() as u64,
                    kind,
                )
            })
            .collect();
    }
    text.lines()
        .skip_while(|l| !l.starts_with("timestamp, gpu_name"))
        .skip(1)
        .map_while(|l| l.rsplit_once(", "))
        .filter_map(|(_, used)| Some((number(used)? as u64, "compute")))
        .collect()
}

/// The recording as a scenario for the stand-in.
fn scenario(text: &str, sleepers: &mut Sleepers) -> String {
    let figures = figures(text);
    let figure = |name: &str| number(&figures[name]);
    let mib = |name: &str| figure(name).unwrap() as u64;
    let mut lines = vec![
        format!("driver {}", figures["driver_version"]),
        format!(
            "gpu GPU-00000000-0000-0000-0000-000000000000 {} {} {}",
            mib("memory.total"),
            mib("memory.reserved"),
            figures["name"]
        ),
        format!("at 0 gpu 0 used={}", mib("memory.used")),
        format!(
            "at 0 gpu 0 power={}",
            (figure("power.draw").unwrap() * 1e3).round()
        ),
    ];
    for (name, value, function) in [
        ("temp", "temperature.gpu", "nvmlDeviceGetTemperature"),
        ("memtemp", "temperature.memory", "nvmlDeviceGetFieldValues"),
        ("util", "utilization.gpu", "nvmlDeviceGetUtilizationRates"),
        (
            "memutil",
            "utilization.memory",
            "nvmlDeviceGetUtilizationRates",
        ),
        ("sm", "clocks.current.sm", "nvmlDeviceGetClockInfo"),
        ("mem", "clocks.current.memory", "nvmlDeviceGetClockInfo"),
    ] {
        lines.push(match figure(value) {
            Some(value) => format!("at 0 gpu 0 {name}={value}"),
            // Not supported.
            None => format!("at 0 fail {function} 3"),
        });
    }
    for (place, (total, used)) in slices(text).into_iter().enumerate() {
        lines.push(format!("mig 0 {place} MIG-{place}{place}-aa {total}"));
        lines.push(format!("at 0 slice 0 {place} used={used}"));
    }
    for (used, kind) in processes(text) {
        lines.push(format!("at 0 proc 0 {} {used} {kind}", sleepers.pid()));
    }
    lines.join("\n") + "\n"
}

fn one(stage: &Stage, backend: &mut dyn MemoryBackend) -> MemorySample {
    let (mut samples, result) = stage.sample(backend, true);
    assert_eq!((samples.len(), result), (1, Ok(())));
    samples.remove(0)
}

#[test]
fn what_nvidia_smi_said_plimsoll_says() {
    let test = test_name!();
    let Some(folder) = folder() else {
        return skip::skip(test, "no GPU recordings beside the project");
    };
    staged(test, "", |stage| {
        for file in NVIDIA {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let said = said(file);
            let mut sleepers = Sleepers::default();
            stage.play(&scenario(&text, &mut sleepers));
            let mut backend = nvml(&target(&["all"]));
            let [device] = &backend.devices()[..] else {
                panic!("{file}: {:?}", backend.devices())
            };
            assert_eq!(device.name, said.name, "{file}");
            assert_eq!(device.total_bytes, Some(said.memory[0] * MIB), "{file}");
            let sample = one(stage, backend.as_mut());
            assert_eq!(sample.reserved_bytes, Some(said.memory[1] * MIB), "{file}");
            assert_eq!(sample.used_bytes, said.memory[2] * MIB, "{file}");
            assert_eq!(sample.power_mw, Some(said.milliwatts), "{file}");
            let temperatures = (sample.temperature_c.unwrap(), sample.memory_temp_c);
            assert_eq!(temperatures, said.temperature, "{file}");
            let busy = sample.utilization_pct.zip(sample.mem_utilization_pct);
            assert_eq!(busy, said.busy, "{file}");
            let clocks = sample.clock_gfx_mhz.zip(sample.clock_mem_mhz);
            assert_eq!(clocks, Some(said.clocks), "{file}");
            let reason = backend.facts().reason;
            assert_eq!(
                reason.contains("MIG slices"),
                !said.slices.is_empty(),
                "{reason}"
            );
            // Pids rise with the order in which the sleepers were started, but for a turn of the counter.
            let mut held: Option<Vec<u64>> = sample
                .processes
                .map(|list| list.iter().map(|p| p.used_bytes.unwrap() / MIB).collect());
            let mut expected = said.processes.map(<[u64]>::to_vec);
            held.iter_mut()
                .chain(&mut expected)
                .for_each(|l| l.sort_unstable());
            assert_eq!(held, expected, "{file}");

            for (place, (total, used)) in said.slices.iter().enumerate() {
                let mut slice = nvml(&target(&[&format!("0:{place}")]));
                assert_eq!(slice.devices()[0].total_bytes, Some(total * MIB), "{file}");
                let sample = one(stage, slice.as_mut());
                assert_eq!(sample.used_bytes, used * MIB, "{file} {place}");
                assert_eq!(sample.power_mw, None, "that of the whole GPU");
            }
        }
    });
}
