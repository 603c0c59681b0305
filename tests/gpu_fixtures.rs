//! The readers of AMD's files and tools against recorded outputs of many releases, read by hand.
//! The recordings lie outside the project (they are other people's); without them the test says
//! so and passes. `PLIMSOLL_GPU_FIXTURES` names another place.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use crate::common::recordings;
use crate::common::skip;
use plimsoll::capture::MemorySample;
use plimsoll::telemetry::amd::kfd::{KfdNode, nodes_of};
use plimsoll::telemetry::amd::sensors::SensorFiles;
use plimsoll::telemetry::amd::smi::reports::{RocmReport, parse_amd_smi, parse_rocm_smi};
use plimsoll::telemetry::amd::smi::shapes::{Bare, parse_bytes};
use plimsoll::telemetry::amd::smi::{GpuReport, ToolProcess};
use plimsoll::telemetry::attribution::containers_of;
use plimsoll::telemetry::fdinfo::Client;
use recordings::folder;

const MIB: u64 = 1 << 20;

/// What a recording is expected to say.
enum Expect {
    /// `amd-smi` says this.
    Amd(Vec<GpuReport>),
    /// `rocm-smi` says this.
    Rocm(Vec<GpuReport>, Option<Vec<ToolProcess>>),
    /// Neither reader makes anything of it.
    Nothing,
    /// Looked at by a test of its own.
    Elsewhere,
}
use Expect::{Amd, Elsewhere, Nothing, Rocm};

fn gpu(number: u32) -> GpuReport {
    GpuReport {
        gpu: number,
        ..GpuReport::default()
    }
}

fn process(pid: u32, vram_bytes: Option<u64>) -> ToolProcess {
    ToolProcess { pid, vram_bytes }
}

fn named(number: u32, name: &str) -> GpuReport {
    GpuReport {
        name: Some(name.into()),
        ..gpu(number)
    }
}

/// GPU and MiB in use and in all.
fn memory(number: u32, used: u64, total: u64) -> GpuReport {
    GpuReport {
        vram_used_bytes: Some(used * MIB),
        vram_total_bytes: Some(total * MIB),
        ..gpu(number)
    }
}

/// Watts, °C of the hottest spot and the memory, percent busy, MHz, percent of memory traffic, MHz.
fn monitor(number: u32, figures: [u32; 7]) -> GpuReport {
    let [watts, hotspot, memory, busy, gfx, traffic, memory_mhz] = figures;
    let gauges = MemorySample {
        power_mw: Some(watts * 1000),
        hotspot_temp_c: Some(hotspot),
        memory_temp_c: Some(memory),
        utilization_pct: Some(busy),
        clock_gfx_mhz: Some(gfx),
        mem_utilization_pct: Some(traffic),
        clock_mem_mhz: Some(memory_mhz),
        ..MemorySample::default()
    };
    GpuReport {
        gauges,
        ..gpu(number)
    }
}

/// The two GPUs that AMD's own code was run over.
fn shape_metric(number: u32) -> GpuReport {
    let (used, hotspot, memory_c) = if number == 0 {
        (121_344, 71, 58)
    } else {
        (284, 38, 30)
    };
    GpuReport {
        gauges: MemorySample {
            hotspot_temp_c: Some(hotspot),
            memory_temp_c: Some(memory_c),
            ..MemorySample::default()
        },
        ..memory(number, used, 196_592)
    }
}

fn running(number: u32, processes: Vec<ToolProcess>) -> GpuReport {
    GpuReport {
        processes: Some(processes),
        ..gpu(number)
    }
}

fn identity(number: u32, bdf: &str, uuid: &str) -> GpuReport {
    GpuReport {
        bdf: Some(bdf.into()),
        uuid: Some(uuid.into()),
        ..gpu(number)
    }
}

fn mi100(number: u32, bdf: &str, watts: u32, temperatures: [u32; 3]) -> GpuReport {
    let [edge, hotspot, memory] = temperatures;
    GpuReport {
        bdf: Some(bdf.into()),
        name: Some("Arcturus GL-XL [Instinct MI100]".into()),
        vram_total_bytes: Some(34_342_961_152),
        vram_used_bytes: Some(6_782_976),
        gauges: MemorySample {
            temperature_c: Some(edge),
            ..monitor(number, [watts, hotspot, memory, 0, 300, 0, 1200]).gauges
        },
        ..gpu(number)
    }
}

fn navi22(gfx_mhz: u32, used: u64) -> GpuReport {
    GpuReport {
        bdf: Some("0000:07:00.0".into()),
        name: Some("Navi 22 [Radeon RX 6700/6700 XT / 6800M]".into()),
        vram_total_bytes: Some(12_868_124_672),
        vram_used_bytes: Some(used),
        gauges: MemorySample {
            power_mw: None,
            temperature_c: Some(45),
            ..monitor(0, [0, 47, 46, 0, gfx_mhz, 0, 96]).gauges
        },
        ..gpu(0)
    }
}

#[expect(clippy::too_many_lines, reason = "one line per recording")]
fn expectation(file: &str) -> Option<Expect> {
    let uuid = |last: u32| format!("00ff74a1-0000-1000-8000-{last:012}");
    let shape_list = |n: u32| {
        if n == 0 {
            identity(0, "0000:05:00.0", &uuid(0))
        } else {
            identity(1, "0000:26:00.0", &uuid(1))
        }
    };
    let shape_processes = || vec![process(4242, Some(127_205_904_384)), process(4243, Some(0))];
    Some(match file {
        // Lists.
        "amdsmi-shape-10.1-01.json" => Amd(vec![shape_list(0), shape_list(1)]),
        "amdsmi-shape-10.1-03.json" => Amd(vec![shape_list(0), shape_list(1)]),
        // Static facts.
        "amd-smi-26.x-04.json" => Amd(vec![named(0, "AMD Radeon RX 7900 XTX")]),
        "amdsmi-shape-10.1-16.json" => Amd(vec![
            named(0, "AMD Instinct MI300X"),
            named(1, "AMD Instinct MI300X"),
        ]),
        // Documents that were cut off or shortened by whoever pasted them, and a watching tool's: not what is asked for.
        "amd-smi-26.x-05.txt"
        | "amd-smi-7.2.0-02.txt"
        | "amd-smi-6.x-02.txt"
        | "amd-smi-6.x-01.txt"
        | "amd-smi-7.2-dev-01.txt" => Nothing,
        // Cut down to one key; see below.
        "amd-smi-6.2-05.json" => Elsewhere,
        // Metrics.
        "amd-smi-6.1.0-01.json" => Amd(vec![GpuReport {
            gauges: MemorySample {
                power_mw: Some(10_000),
                ..MemorySample::default()
            },
            ..gpu(0)
        }]),
        "amd-smi-26.x-06.json" => Amd(vec![memory(0, 2531, 196_288)]),
        "amdsmi-shape-10.1-10.json" => Amd(vec![shape_metric(0), shape_metric(1)]),
        "amdsmi-shape-10.1-11.txt" => {
            Amd(vec![memory(0, 121_344, 196_592), memory(1, 284, 196_592)])
        }
        // Monitors: not asked for, but their GPUs are there.
        "amdsmi-shape-10.1-04.json" | "amdsmi-shape-10.1-08.txt" => Amd(vec![gpu(0), gpu(1)]),
        "amdsmi-shape-10.1-07.json" => Amd(vec![running(0, shape_processes()), running(1, vec![])]),
        // Processes.
        "amd-smi-6.2.0-01.json" => Amd(vec![running(
            0,
            vec![process(420_157, Some(0)), process(420_315, Some(0))],
        )]),
        // Asked twice, the second time as root.
        "amd-smi-26.x-07.json" => Amd(vec![running(0, vec![process(28_389, Some(2_353_860_608))])]),
        "amdsmi-shape-10.1-12.json" => Amd(vec![running(0, shape_processes()), running(1, vec![])]),
        "amdsmi-shape-10.1-14.json" => Amd(vec![running(0, vec![]), running(1, vec![])]),
        // Nothing was said: a banner, an error, pictures for people.
        "amd-smi-7.1.1-01.txt"
        | "amd-smi-10.1-nodriver-01.txt"
        | "amd-smi-7.0.0-01.txt"
        | "rocm-smi-6.1.2-nolib-01.txt"
        | "rocm-smi-6.x-03.txt"
        | "rocm-smi-5.7.1-03.txt"
        | "rocm-smi-7.1.1-01.txt"
        | "rocm-smi-6.4.2-01.txt" => Nothing,
        // Tables, trees and commas: the tools are asked for JSON.
        "amd-smi-26.x-02.txt"
        | "amd-smi-7.2.0-01.csv"
        | "amd-smi-6.2-04.txt"
        | "amd-smi-6.1.0-02.txt"
        | "amd-smi-6.2-02.txt"
        | "amd-smi-6.2.0-02.txt"
        | "amd-smi-6.4-01.txt"
        | "amd-smi-6.4.1-01.txt"
        | "amd-smi-6.2-01.csv"
        | "amd-smi-6.2.0-03.txt"
        | "rocm-smi-7.x-02.csv"
        | "amd-smi-26.2.0-01.txt"
        | "amdsmi-shape-10.1-02.csv"
        | "amdsmi-shape-10.1-05.csv"
        | "amdsmi-shape-10.1-13.csv" => Nothing,
        // The output of another tool.
        "amdgpu_top-docs-01.json" | "amdgpu_top-docs-02.json" => Nothing,
        "rocm-smi-1.4.1-01.json" => {
            let idle = |number| GpuReport {
                gauges: MemorySample {
                    mem_utilization_pct: Some(0),
                    ..MemorySample::default()
                },
                ..gpu(number)
            };
            Rocm(vec![idle(0), idle(1)], None)
        }
        "rocm-smi-4.0x-02.json" => Rocm(
            vec![GpuReport {
                bdf: Some("0000:63:00.0".into()),
                uuid: Some("REDACTED".into()),
                name: Some("Radeon Instinct MI50 32GB".into()),
                vram_total_bytes: Some(34_342_961_152),
                vram_used_bytes: Some(10_850_304),
                gauges: MemorySample {
                    temperature_c: Some(36),
                    ..monitor(0, [26, 38, 35, 0, 1725, 0, 1000]).gauges
                },
                ..gpu(0)
            }],
            None,
        ),
        "rocm-smi-5.7.1-01.json" => Rocm(
            vec![
                mi100(0, "0000:1e:00.0", 39, [31, 34, 30]),
                mi100(1, "0000:22:00.0", 37, [30, 33, 38]),
                mi100(2, "0000:3f:00.0", 35, [31, 34, 31]),
                mi100(3, "0000:43:00.0", 39, [33, 35, 36]),
                mi100(4, "0000:46:00.0", 39, [32, 34, 38]),
                mi100(5, "0000:49:00.0", 40, [33, 35, 38]),
            ],
            Some(vec![process(104_225, Some(0))]),
        ),
        // Its power is `N/A (Secondary die)`.
        "rocm-smi-6.0.2-02.json" => Rocm(vec![navi22(500, 1_572_757_504)], None),
        "rocm-smi-6.1.2-01.json" => Rocm(
            vec![GpuReport {
                gauges: MemorySample {
                    power_mw: Some(6000),
                    ..navi22(0, 0).gauges
                },
                ..navi22(0, 1_572_745_216)
            }],
            None,
        ),
        "rocm-smi-6.x-01.json" => Rocm(
            vec![GpuReport {
                vram_total_bytes: Some(205_822_885_888),
                vram_used_bytes: Some(2_654_650_368),
                ..gpu(0)
            }],
            None,
        ),
        "rocm-smi-6.x-02.json" => Rocm(vec![], Some(vec![process(28_389, Some(2_353_860_608))])),
        "amdgpu-fdinfo-01.txt"
        | "amdgpu-hwmon-tree-rx580-01.txt"
        | "kfd-topology-topo-mi210-xgmi-pcie.txt"
        | "kfd-topology-topo-mi300-cpx.txt"
        | "kfd-topology-topology-parsing.txt" => Elsewhere,
        _ => return None,
    })
}

#[test]
fn every_recording_of_amd_says_what_it_says() {
    let Some(folder) = folder() else {
        return skip::skip(
            "every_recording_of_amd_says_what_it_says",
            "no GPU recordings beside the project (PLIMSOLL_GPU_FIXTURES names another place)",
        );
    };
    // A recording that another test reads, or that is none.
    let elsewhere = |name: &str| {
        recordings::NVIDIA.contains(&name)
            || [recordings::CGROUPS, recordings::SOURCES].contains(&name)
    };
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|n| !elsewhere(n))
        .collect();
    names.sort();
    let (mut read, mut unknown, mut wrong) = (0, Vec::new(), Vec::new());
    for name in &names {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let Some(expected) = expectation(name) else {
            unknown.push(name);
            continue;
        };
        read += 1;
        let (amd, rocm) = (parse_amd_smi(&text), parse_rocm_smi(&text));
        let complaint = match expected {
            Amd(expected) if expected != amd => Some(format!("{amd:#?}\n expected {expected:#?}")),
            Rocm(gpus, processes) if (&gpus, &processes) != (&rocm.gpus, &rocm.processes) => {
                Some(format!("{rocm:#?}\n expected {gpus:#?} {processes:#?}"))
            }
            Nothing if !amd.is_empty() || rocm != RocmReport::default() => {
                Some(format!("nothing expected, and not {amd:#?} {rocm:#?}"))
            }
            _ => None,
        };
        if let Some(complaint) = complaint {
            wrong.push(format!("{name}: {complaint}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    println!("{read} recordings of AMD read");
    assert!(unknown.is_empty(), "no test reads: {unknown:?}");
    assert!(read > 50, "{read}");
}

#[test]
fn recorded_cgroups_lead_to_their_containers() {
    let Some(text) = recording(recordings::CGROUPS) else {
        return;
    };
    let cases: Vec<serde_json::Value> = text
        .lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    for case in &cases {
        let expected: Vec<String> =
            serde_json::from_value(case["ids_outer_to_inner"].clone()).unwrap();
        // Each has its runtime before it.
        let ids = expected.iter().filter_map(|id| Some(id.split_once(':')?.1));
        let told = containers_of(case["cgroup"].as_str().unwrap());
        assert_eq!(told, ids.collect::<Vec<_>>(), "{case}");
    }
    assert!(cases.len() >= 30, "{}", cases.len());
}

fn recording(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder()?.join(name)).ok();
    if text.is_none() {
        skip::skip(
            std::thread::current()
                .name()
                .unwrap_or("a test of recordings"),
            &format!("no recording {name}"),
        );
    }
    text
}

#[test]
fn memory_of_a_static_document_cut_to_one_key() {
    let Some(text) = recording("amd-smi-6.2-05.json") else {
        return;
    };
    assert!(parse_amd_smi(&text).is_empty(), "it names no GPU");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        parse_bytes(&document["size"], Bare::Mebibytes),
        Some(196_592 * MIB)
    );
}

#[test]
fn open_devices_of_a_process() {
    let Some(text) = recording("amdgpu-fdinfo-01.txt") else {
        return;
    };
    assert_eq!(
        Client::parse_fdinfo(&text),
        Some(Client {
            driver: "amdgpu".into(),
            bdf: "0000:08:00.0".into(),
            id: 217,
            vram_bytes: Some(2068 << 10),
            gtt_bytes: Some(8192 << 10)
        })
    );
}

/// The tree is a drawing of names; a directory of those names is made and each file holds a figure.
#[test]
fn sensors_of_an_rx580() {
    let Some(text) = recording("amdgpu-hwmon-tree-rx580-01.txt") else {
        return;
    };
    let device = tempfile::tempdir().unwrap();
    let hwmon = device.path().join("hwmon/hwmon2");
    std::fs::create_dir_all(&hwmon).unwrap();
    for line in text.lines() {
        let name = line.trim_start_matches(['│', ' ', '├', '└', '─', '\u{a0}']);
        let deep = line.starts_with("    │");
        let value = match name {
            "name" => "amdgpu",
            "power1_input" => "33100000",
            "temp1_input" => "45000",
            "temp1_label" => "edge",
            "freq1_input" => "1257000000",
            "freq2_input" => "2000000000",
            _ if name.contains("->") || name.contains('/') || deep || name.is_empty() => continue,
            _ => "1",
        };
        if name.contains('_') || name == "name" {
            std::fs::write(hwmon.join(name), value).unwrap();
        }
    }
    assert!(hwmon.join("power1_input").exists(), "the drawing was read");
    let gauges = SensorFiles::open(device.path()).read_gauges().unwrap();
    assert_eq!(gauges.power_mw, Some(33_100), "there is no power1_average");
    assert_eq!(
        (gauges.clock_gfx_mhz, gauges.clock_mem_mhz),
        (Some(1257), Some(2000))
    );
    assert_eq!((gauges.hotspot_temp_c, gauges.memory_temp_c), (None, None));
    assert_eq!(gauges.temperature_c.is_some(), text.contains("temp1_input"));
}

/// The nodes of a recorded topology. Two of the three recordings lack the `gpu_id` files; there
/// the node's number plus a thousand stands for it.
fn nodes(text: &str) -> Vec<KfdNode> {
    let mut files = std::collections::BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(path) = line
            .strip_prefix("==> ")
            .and_then(|l| l.strip_suffix(" <=="))
        {
            current = path.rsplit("/nodes/").next().unwrap_or(path).to_owned();
        } else {
            let file: &mut String = files.entry(current.clone()).or_default();
            file.push_str(line);
            file.push('\n');
        }
    }
    (0..200u64)
        .filter_map(|number| {
            let properties = files.get(&format!("{number}/properties"))?;
            let made_up = (1000 + number).to_string();
            let gpu_id = files.get(&format!("{number}/gpu_id")).unwrap_or(&made_up);
            KfdNode::parse_node(gpu_id, properties)
        })
        .collect()
}

#[test]
fn topologies_lead_to_cards() {
    if let Some(text) = recording("kfd-topology-topo-mi210-xgmi-pcie.txt") {
        let nodes = nodes(&text);
        let found: Vec<(String, Option<u32>)> = nodes
            .iter()
            .map(|n| (n.bdf.clone(), n.render_minor))
            .collect();
        let expected = ["63", "43", "03", "26", "e3", "c3", "83", "a3"]
            .into_iter()
            .zip(128..)
            .map(|(bus, minor)| (format!("0000:{bus}:00.0"), Some(minor)))
            .collect::<Vec<_>>();
        assert_eq!(found, expected);
        assert!(
            nodes
                .iter()
                .all(|n| n.gfx_architecture().as_deref() == Some("gfx90a"))
        );
        let card = nodes_of(&nodes, "0000:a3:00.0", Some(135), &[]);
        assert_eq!(card.iter().map(|n| n.gpu_id).collect::<Vec<_>>(), [1009]);
    }
    if let Some(text) = recording("kfd-topology-topo-mi300-cpx.txt") {
        let nodes = nodes(&text);
        assert_eq!(nodes.len(), 12);
        assert!(
            nodes
                .iter()
                .all(|n| n.gfx_architecture().as_deref() == Some("gfx942"))
        );
        // The eight partitions of one GPU are functions 0 to 7 of its slot.
        let parts = nodes_of(
            &nodes,
            "0000:27:00.0",
            Some(136),
            &["0000:05:00.0", "0000:47:00.0"],
        );
        assert_eq!(parts.len(), 8);
        assert_eq!(parts[7].bdf, "0000:27:00.7");
        assert_eq!(nodes_of(&nodes, "0000:05:00.0", None, &[]).len(), 1);
    }
    if let Some(text) = recording("kfd-topology-topology-parsing.txt") {
        let nodes = nodes(&text);
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (nodes[0].gpu_id, nodes[0].bdf.as_str()),
            (13261, "0000:19:00.0")
        );
        assert_eq!(
            nodes[0].gfx_architecture(),
            None,
            "an old kernel does not say"
        );
        assert_eq!(
            (nodes[0].render_minor, nodes[1].render_minor),
            (Some(128), Some(129))
        );
        // The same GPU twice counts once.
        assert_eq!(nodes_of(&nodes, "0000:19:00.0", Some(128), &[]).len(), 1);
    }
}
