//! What AMD's tools print with `--json`. One list of places serves both tools and all their releases, because they
//! differ in where a figure is, not in its meaning.

use super::shapes::{
    Bare, available_text, parse_bytes, parse_celsius, parse_megahertz, parse_milliwatts,
    parse_percent, parse_whole,
};
use super::{GpuReport, ToolProcess};
use crate::capture::MemorySample;
use serde_json::{Map, Value};

/// Brackets that a banner or a warning may hold before the document begins.
const MOST_STARTS: usize = 16;

/// The GPUs in the output of `amd-smi metric`, `process`, `list` or `static` (ROCm 5.7 to tool 10.x), in its order.
pub fn parse_amd_smi(output: &str) -> Vec<GpuReport> {
    let entries = match find_document(output).map(plain_keys) {
        Some(Value::Array(list)) => list,
        Some(Value::Object(mut map)) => match map.remove("gpu_data") {
            Some(Value::Array(list)) => list,
            Some(only) => vec![only],
            None => vec![Value::Object(map)],
        },
        _ => Vec::new(),
    };
    let maps = entries.iter().filter_map(Value::as_object);
    let reports = maps.filter_map(|entry| {
        let gpu = u32::try_from(parse_whole(entry.get("gpu")?)?).ok()?;
        // ROCm 5.7 nests everything below one more key.
        let inner = entry.get("values").and_then(Value::as_object);
        let entry = inner.unwrap_or(entry);
        let values = |paths: &str, _: &str| -> Vec<&Value> {
            let paths = paths.split_ascii_whitespace();
            paths.filter_map(|path| value_at(entry, path)).collect()
        };
        Some(GpuReport {
            processes: listed_processes(entry),
            ..gpu_report(gpu, Bare::Mebibytes, &values)
        })
    });
    reports.collect()
}

/// Content of the output of `rocm-smi`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RocmReport {
    /// The GPUs, by the tool's own number.
    pub gpus: Vec<GpuReport>,
    /// The processes with their memory on all GPUs together: this tool does not report on which. `None` where it
    /// lists none.
    pub processes: Option<Vec<ToolProcess>>,
}

/// Reads the output of `rocm-smi` (1.4 to 6.x): flat keys that drift from release to release, every value a text.
pub fn parse_rocm_smi(output: &str) -> RocmReport {
    let mut found = RocmReport::default();
    let document = find_document(output);
    for (key, value) in document.iter().filter_map(Value::as_object).flatten() {
        let Some(inner) = value.as_object() else {
            continue;
        };
        if let Some(gpu) = key.strip_prefix("card").and_then(|n| n.parse().ok()) {
            let values = |_: &str, keys: &str| -> Vec<&Value> {
                keys.split('|')
                    .flat_map(|wanted| inner.iter().filter(move |(key, _)| is_key(key, wanted)))
                    .map(|(_, value)| value)
                    .collect()
            };
            found.gpus.push(gpu_report(gpu, Bare::Bytes, &values));
        } else if key == "system" {
            let listed = inner.iter().filter_map(|(k, v)| rocm_process(k, v));
            found.processes = Some(listed.collect()).filter(|all: &Vec<_>| !all.is_empty());
        }
    }
    found.gpus.sort_by_key(|report| report.gpu);
    found
}

/// A report from the values at the places of each figure: first the paths of `amd-smi`, separated by blanks, then the
/// keys of `rocm-smi`, separated by `|`. The first value that can be read counts. `bare`: the unit of memory without one.
fn gpu_report<'v>(
    gpu: u32,
    bare: Bare,
    values: &dyn Fn(&str, &str) -> Vec<&'v Value>,
) -> GpuReport {
    fn first<T>(values: Vec<&Value>, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        values.into_iter().find_map(read)
    }
    let text = |amd: &str, rocm: &str| first(values(amd, rocm), available_text);
    let memory = |amd: &str, rocm: &str| first(values(amd, rocm), |v| parse_bytes(v, bare));
    let degrees = |amd: &str, rocm: &str| first(values(amd, rocm), parse_celsius);
    let share = |amd: &str, rocm: &str| first(values(amd, rocm), parse_percent);
    let clock =
        |domain: &str, rocm: &str| first(values(&clock_paths(domain), rocm), parse_megahertz);
    GpuReport {
        gpu,
        bdf: text("bdf gpu_bdf bus.bdf", "PCI Bus").map(|b| b.to_lowercase()),
        uuid: text("uuid gpu_uuid", "Unique ID"),
        name: first(
            values(
                "asic.market_name market_name board.product_name",
                "Card series|Device Name|Card model",
            ),
            |name| available_text(name).filter(|name| !name.starts_with("0x")),
        ),
        vram_total_bytes: memory(
            "mem_usage.total_vram fb_usage.total_vram vram_usage.total_vram vram.vram_total vram.size",
            "VRAM Total Memory (B)",
        ),
        vram_used_bytes: memory(
            "mem_usage.used_vram fb_usage.used_vram vram_usage.used_vram",
            "VRAM Total Used Memory (B)",
        ),
        gauges: MemorySample {
            power_mw: first(
                values(
                    "power.socket_power power.current_socket_power power.average_socket_power",
                    // `Average Graphics`, `Current Socket Graphics` and others, but not the limit.
                    "*Package Power (W)",
                ),
                parse_milliwatts,
            ),
            temperature_c: degrees("temperature.edge", "Temperature (Sensor edge) (C)"),
            hotspot_temp_c: degrees(
                "temperature.hotspot temperature.junction",
                "Temperature (Sensor junction) (C)",
            ),
            memory_temp_c: degrees(
                "temperature.mem temperature.memory",
                "Temperature (Sensor memory) (C)",
            ),
            utilization_pct: share("usage.gfx_activity usage.gfx_usage", "GPU use (%)"),
            mem_utilization_pct: share(
                "usage.umc_activity usage.mem_activity usage.mem_usage",
                // `memory use` is traffic; how full the memory is, is `Memory Allocated`.
                "GPU Memory Read/Write Activity (%)|GPU memory use (%)",
            ),
            clock_gfx_mhz: clock("gfx", "sclk clock speed:|sclk clock speed"),
            clock_mem_mhz: clock("mem", "mclk clock speed:|mclk clock speed"),
            ..MemorySample::default()
        },
        processes: None,
    }
}

/// Paths of a clock of `amd-smi`. A GPU of several dies has one each; the first running one counts.
fn clock_paths(domain: &str) -> String {
    let dies = (0..8).map(|die| format!("{domain}_{die}"));
    let names = [
        "clk",
        "cur_clk",
        "current_clk",
        "current_clock",
        "cur_clock",
    ];
    let clocks = dies.chain([domain.to_owned()]);
    clocks
        .flat_map(|clock| names.map(|name| format!("clock.{clock}.{name}")))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a key of `rocm-smi` is the wanted one: its spelling changed in capitals, and with `*` in what it begins with.
fn is_key(key: &str, wanted: &str) -> bool {
    match wanted.strip_prefix('*') {
        Some(end) => key.ends_with(end) && !key.starts_with("Max"),
        None => key.eq_ignore_ascii_case(wanted),
    }
}

/// The first document of JSON in an output. Banners and warnings may stand before it, with brackets of their own.
fn find_document(output: &str) -> Option<Value> {
    let text = without_colours(output);
    let begins_line = |at: &usize| {
        let line = text[..*at].rsplit('\n').next();
        line.is_some_and(|before| before.trim().is_empty())
    };
    let starts = text.match_indices(['[', '{']).map(|(at, _)| at);
    let mut starts = starts.filter(begins_line).take(MOST_STARTS);
    starts.find_map(|at| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        // A list of bare numbers is prose in brackets.
        values.next()?.ok().filter(|value| match value {
            Value::Array(list) => list.iter().any(Value::is_object),
            value => value.is_object(),
        })
    })
}

/// The text without terminal control sequences: they hold brackets.
pub fn without_colours(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            clean.push(c);
            continue;
        }
        if chars.next_if_eq(&'[').is_some() {
            // Parameters, then one letter.
            while chars
                .next_if(|c| matches!(c, '0'..='9' | ';' | '?' | ':'))
                .is_some()
            {}
            let _ = chars.next_if(char::is_ascii_alphabetic);
        }
    }
    clean
}

/// Keys in one spelling: some releases write them in capitals, some with spaces.
fn plain_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let plain = |key: String| key.to_lowercase().replace([' ', '-'], "_");
            let entries = map.into_iter().map(|(k, v)| (plain(k), plain_keys(v)));
            Value::Object(entries.collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(plain_keys).collect()),
        other => other,
    }
}

/// The value at a path of keys.
fn value_at<'v>(entry: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let value = entry.get(first)?;
    if rest.is_empty() {
        return Some(value);
    }
    value_at(value.as_object()?, rest)
}

/// The processes of an entry of `amd-smi`; `None` if it has no process list.
fn listed_processes(entry: &Map<String, Value>) -> Option<Vec<ToolProcess>> {
    let list = entry
        .get("process_list")
        .or_else(|| entry.get("process_info"))?;
    let one = std::slice::from_ref(list);
    let items = list.as_array().map_or(one, Vec::as_slice);
    // Without processes an item, or its `process_info`, is a sentence.
    let found = items.iter().filter_map(|item| {
        let info = item.get("process_info").unwrap_or(item).as_object()?;
        let pid = u32::try_from(parse_whole(info.get("pid")?)?).ok()?;
        // `mem_usage` includes host memory in some releases and is always 0 in others.
        let places = ["memory_usage.vram_mem", "vram_mem", "mem_usage"];
        let mut memory = places.iter().filter_map(|path| value_at(info, path));
        (pid > 0).then(|| ToolProcess {
            pid,
            vram_bytes: memory.find_map(|v| parse_bytes(v, Bare::Bytes)),
        })
    });
    Some(found.collect())
}

/// `"PID123": "name, gpus, vram, sdma, cu"`. The name may hold commas, so it is read from the right.
fn rocm_process(key: &str, value: &Value) -> Option<ToolProcess> {
    let pid = key.strip_prefix("PID")?.parse().ok()?;
    let [_cu, _sdma, vram, _gpus, _name] = value
        .as_str()?
        .rsplitn(5, ',')
        .collect::<Vec<_>>()
        .try_into()
        .ok()?;
    (pid > 0).then(|| ToolProcess {
        pid,
        vram_bytes: vram.trim().parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const MIB: u64 = 1 << 20;

    fn one(document: &Value) -> GpuReport {
        let mut all = parse_amd_smi(&document.to_string());
        assert_eq!(all.len(), 1, "{document}");
        all.remove(0)
    }

    #[test]
    fn the_same_figures_in_every_release() {
        let expected = GpuReport {
            gpu: 3,
            vram_total_bytes: Some(16_000 * MIB),
            vram_used_bytes: Some(900 * MIB),
            gauges: MemorySample {
                power_mw: Some(120_000),
                hotspot_temp_c: Some(70),
                memory_temp_c: Some(60),
                utilization_pct: Some(55),
                mem_utilization_pct: Some(20),
                clock_gfx_mhz: Some(1700),
                clock_mem_mhz: Some(1200),
                ..MemorySample::default()
            },
            ..GpuReport::default()
        };
        let of = |n: u32, unit: &str| json!({"value": n, "unit": unit});
        let metric = json!({"gpu": 3,
            "usage": {"gfx_activity": of(55, "%"), "umc_activity": of(20, "%")},
            "power": {"socket_power": of(120, "W"), "gfx_voltage": "N/A"},
            "clock": {"gfx_0": {"clk": "N/A"}, "gfx_1": {"clk": of(1700, "MHz")}, "mem_0": {"clk": of(1200, "MHz")}},
            "temperature": {"edge": "N/A", "hotspot": of(70, "C"), "mem": of(60, "C")},
            "mem_usage": {"total_vram": of(16_000, "MB"), "used_vram": of(900, "MB")}});
        let bare = json!([{"gpu": 3, "values": {
            "usage": {"gfx_usage": 55, "umc_activity": 20},
            "power": {"average_socket_power": 120, "socket_power": "AMDSMI_STATUS_NOT_SUPPORTED"},
            "clock": {"gfx": {"cur_clk": 1700}, "mem": {"cur_clk": 1200}},
            "temperature": {"edge": "N/A", "junction": 70, "mem": 60},
            "fb_usage": {"total_vram": 16_000, "used_vram": 900}}}]);
        for document in [
            json!([metric]),
            json!({"gpu_data": [metric]}),
            json!({"gpu_data": metric}),
            metric.clone(),
            bare,
        ] {
            assert_eq!(one(&document), expected, "{document}");
        }
    }

    #[test]
    fn forms_for_people_and_spreadsheets_are_not_read() {
        for text in [
            "gpu,socket_power,total_vram,used_vram\n3,120,16000,900\n",
            "GPU: 3\n    MEM_USAGE:\n        USED_VRAM: 900 MB\n",
            "GPU  POWER  VRAM_USED  VRAM_TOTAL\n  3  120 W     900 MB    16000 MB\n",
        ] {
            assert_eq!(parse_amd_smi(text), [], "{text}");
        }
    }

    #[test]
    fn processes_in_every_release() {
        let expected = vec![ToolProcess {
            pid: 42,
            vram_bytes: Some(5000),
        }];
        for document in [
            json!([{"gpu": 0, "process_list": [{"process_info": {"name": "engine", "pid": 42, "mem_usage": {"value": 5000, "unit": "B"}}}]}]),
            json!([{"gpu": 0, "process_info": {"name": "engine", "pid": 42, "memory_usage": {"vram_mem": {"value": 5000, "unit": "B"}}, "mem_usage": {"value": 9, "unit": "B"}}}]),
            json!({"gpu_data": [{"gpu": 0, "process_list": [{"name": "engine", "pid": "42", "mem_usage": 5000}]}]}),
        ] {
            assert_eq!(
                one(&document).processes,
                Some(expected.clone()),
                "{document}"
            );
        }
        let none = json!([{"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]}]);
        assert_eq!(one(&none).processes, Some(vec![]), "none are running");
        assert_eq!(one(&json!([{"gpu": 1}])).processes, None, "no list");
    }

    #[test]
    fn a_document_is_found_behind_banners() {
        let found = |text: &str| find_document(text);
        let gpu = json!([{"gpu": 0}]);
        assert_eq!(found("WARNING: groups\n[\n {\"gpu\": 0}\n]\n"), Some(gpu));
        let warned = "/x.py:3: SyntaxWarning: 'return' in [finally]\n  return d\n{\"gpu_data\": [{\"gpu\": 0}]}";
        assert_eq!(found(warned), Some(json!({"gpu_data": [{"gpu": 0}]})));
        for prose in [
            "",
            "'CTRL' + 'C' to stop watching output:\n",
            "\u{1b}[33mPlease see the guide.\u{1b}[0m\n",
            "[root@host ~]# rocm-smi --json\nWARNING: No JSON data to report\n",
            "[rc=0]\n[stdout]\n[stderr]\n",
            "[1, 2]x\n",
        ] {
            assert_eq!(found(prose), None, "{prose}");
        }
    }

    #[test]
    fn keys_that_drifted_read_the_same() {
        let old = json!({"card2": {"Card series": "X", "GPU memory use (%)": "7", "Average Graphics Package Power (W)": "39.0", "Max Graphics Package Power (W)": "290.0", "PCI Bus": "0000:1E:00.0", "mclk clock speed:": "(1200Mhz)"}});
        let new = json!({"card2": {"Card Series": "X", "Card Model": "0x73df", "GPU Memory Read/Write Activity (%)": "7", "GPU Memory Allocated (VRAM%)": "12", "Current Socket Graphics Package Power (W)": "39.0", "PCI Bus": "0000:1E:00.0", "mclk clock speed:": "(1200Mhz)"}});
        let expected = GpuReport {
            gpu: 2,
            bdf: Some("0000:1e:00.0".into()),
            name: Some("X".into()),
            gauges: MemorySample {
                power_mw: Some(39_000),
                mem_utilization_pct: Some(7),
                clock_mem_mhz: Some(1200),
                ..MemorySample::default()
            },
            ..GpuReport::default()
        };
        for document in [old, new] {
            let read = parse_rocm_smi(&document.to_string());
            assert_eq!(read.gpus, std::slice::from_ref(&expected), "{document}");
        }
    }

    #[test]
    fn a_process_name_may_hold_commas() {
        let all = parse_rocm_smi(
            "{\"system\": {\"PID7\": \"a, b, c, 2, 4096, 0, 0\", \"PID8\": \"UNKNOWN, 1, N/A, 0, unknown\", \"PIDx\": \"\", \"Driver version\": \"6\"}}",
        );
        let listed = all.processes.unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!((listed[0].pid, listed[0].vram_bytes), (7, Some(4096)));
        assert_eq!((listed[1].pid, listed[1].vram_bytes), (8, None));
        assert_eq!(
            parse_rocm_smi("{\"system\": {\"Driver version\": \"6\"}}"),
            RocmReport::default()
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(\\PC|[\\[\\]{}\",:\\n\\x1b0-9 .])*") {
            let _ = parse_amd_smi(&text);
            let _ = parse_rocm_smi(&text);
            let _ = rocm_process(&text, &Value::from(text.as_str()));
        }

        #[test]
        fn other_values_parse_the_same(used in 0u64..1_000_000, power in 0u32..2000, pid in 1u32..4_000_000) {
            let list = json!([{"gpu": 0, "mem_usage": {"used_vram": {"value": used, "unit": "MB"}}, "power": {"socket_power": power},
                "process_list": [{"process_info": {"pid": pid, "name": "N/A", "mem_usage": "N/A"}}]}]);
            for document in [list.clone(), json!({"gpu_data": list})] {
                let report = one(&document);
                prop_assert_eq!(report.vram_used_bytes, Some(used * MIB));
                prop_assert_eq!(report.gauges.power_mw, Some(power * 1000));
                let processes = report.processes.unwrap();
                prop_assert_eq!((processes[0].pid, processes[0].vram_bytes), (pid, None));
            }
            let document = json!({"card0": {"VRAM Total Used Memory (B)": used.to_string()}, "system": {format!("PID{pid}"): format!("n, 1, {used}, 0, 0")}});
            let all = parse_rocm_smi(&document.to_string());
            prop_assert_eq!(all.gpus[0].vram_used_bytes, Some(used));
            let listed = all.processes.unwrap();
            prop_assert_eq!((listed[0].pid, listed[0].vram_bytes), (pid, Some(used)));
        }
    }
}
