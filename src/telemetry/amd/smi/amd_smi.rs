//! Parses `amd-smi` output, from ROCm 5.7 to tool 10.x. One reader serves every release, because
//! they differ in where a figure is, not in its meaning.

use super::shapes::{
    Bare, available_text, parse_bytes, parse_celsius, parse_megahertz, parse_milliwatts,
    parse_percent, parse_whole,
};
use super::{GpuReport, ToolProcess, combine_reports, documents};
use serde_json::{Map, Value};

/// The GPUs in the output, in the tool's order. Where it repeats a GPU (watch mode), the last
/// values count.
pub fn parse_output(output: &str) -> Vec<GpuReport> {
    let mut all = Vec::new();
    for document in documents::find_documents(output) {
        combine_reports(&mut all, one_reading(plain_keys(document.value)));
    }
    all
}

/// Keys in one spelling: some releases write them in capitals, some with spaces.
fn plain_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| {
                    (
                        key.to_lowercase().replace([' ', '-'], "_"),
                        plain_keys(value),
                    )
                })
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(plain_keys).collect()),
        other => other,
    }
}

/// The GPUs of one document: a list, a list in `gpu_data`, or a single GPU.
fn one_reading(document: Value) -> Vec<GpuReport> {
    let entries = match document {
        Value::Array(list) => list,
        Value::Object(mut map) => match map.remove("gpu_data") {
            Some(Value::Array(list)) => list,
            Some(Value::Object(inner)) => vec![Value::Object(inner)],
            _ => vec![Value::Object(map)],
        },
        _ => Vec::new(),
    };
    let mut gpus: Vec<GpuReport> = Vec::new();
    for entry in entries {
        let Value::Object(entry) = entry else {
            continue;
        };
        for (report, part) in reports(&entry) {
            match gpus.iter_mut().find(|g| g.gpu == report.gpu) {
                // Sorted by pid, each entry holds one process.
                Some(known) if entry.contains_key("pid") => {
                    let more = report.processes.unwrap_or_default();
                    known.processes.get_or_insert_default().extend(more);
                }
                // Further partitions of a GPU only fill what its first one left out.
                Some(known) if part => known.fill_from(report),
                Some(known) => known.update_from(report),
                None => gpus.push(report),
            }
        }
    }
    gpus
}

/// The reports in one entry, with whether each is a further partition of its GPU.
fn reports(entry: &Map<String, Value>) -> Vec<(GpuReport, bool)> {
    let index = |entry: &Map<String, Value>| {
        entry
            .get("gpu")
            .and_then(parse_whole)
            .and_then(|n| u32::try_from(n).ok())
    };
    if let Some(gpu) = index(entry) {
        let part = entry
            .get("xcp")
            .and_then(parse_whole)
            .is_some_and(|n| n > 0);
        return vec![(gpu_report(gpu, entry), part)];
    }
    // Sorted by pid, the GPUs are nested below the processes.
    let info = entry.get("process_info").and_then(Value::as_object);
    let process = info.unwrap_or(entry);
    let gpus = process.get("gpus").or_else(|| entry.get("gpus"));
    let list = gpus
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    list.iter()
        .filter_map(Value::as_object)
        .filter_map(|on| {
            let mut of = self::parse_process(process)?;
            of.vram_bytes = process_memory(on).or(of.vram_bytes);
            let report = GpuReport {
                gpu: index(on)?,
                processes: Some(vec![of]),
                ..GpuReport::default()
            };
            Some((report, false))
        })
        .collect()
}

/// The value at the first of these places (paths of keys) that `read` understands.
fn first<T>(
    entry: &Map<String, Value>,
    places: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Option<T> {
    places.split_ascii_whitespace().find_map(|place| {
        let mut keys = place.split('.');
        let mut value = entry.get(keys.next()?)?;
        for key in keys {
            value = value.as_object()?.get(key)?;
        }
        read(value)
    })
}

fn gpu_report(gpu: u32, entry: &Map<String, Value>) -> GpuReport {
    // ROCm 5.7 nests everything below one more key.
    let inner = entry.get("values").and_then(Value::as_object);
    let entry = inner.unwrap_or(entry);
    let memory = |places: &str| first(entry, places, |v| parse_bytes(v, Bare::Mebibytes));
    let degrees = |places: &str| first(entry, places, parse_celsius);
    let share = |places: &str| first(entry, places, parse_percent);
    let text = |places: &str| first(entry, places, available_text);
    GpuReport {
        gpu,
        bdf: text("bdf gpu_bdf bus.bdf").map(|b| b.to_lowercase()),
        uuid: text("uuid gpu_uuid"),
        name: text("asic.market_name market_name board.product_name"),
        vram_total_bytes: memory(
            "mem_usage.total_vram fb_usage.total_vram vram_usage.total_vram vram.vram_total \
            vram.size vram_total total_vram",
        ),
        vram_used_bytes: memory(
            "mem_usage.used_vram fb_usage.used_vram vram_usage.used_vram vram_used used_vram",
        ),
        power_mw: first(
            entry,
            "power.socket_power power.current_socket_power power.average_socket_power \
            power_usage socket_power current_socket_power average_socket_power power",
            parse_milliwatts,
        ),
        edge_c: degrees("temperature.edge edge_temperature"),
        hotspot_c: degrees("temperature.hotspot temperature.junction hotspot_temperature"),
        memory_c: degrees("temperature.mem temperature.memory memory_temperature"),
        busy_pct: share("usage.gfx_activity usage.gfx_usage gfx"),
        memory_busy_pct: share("usage.umc_activity usage.mem_activity usage.mem_usage mem"),
        gfx_mhz: clock(entry, "gfx", "gfx_clk gfx_clock"),
        memory_mhz: clock(entry, "mem", "mem_clk mem_clock"),
        processes: listed_processes(entry),
    }
}

/// The clock of one domain. A GPU of several dies has one each; the first running one counts.
fn clock(entry: &Map<String, Value>, domain: &str, plain: &str) -> Option<u32> {
    let running = |clock: &Value| -> Option<u32> {
        first(
            clock.as_object()?,
            "clk cur_clk current_clk current_clock cur_clock",
            parse_megahertz,
        )
    };
    let clocks = entry.get("clock").and_then(Value::as_object);
    let dies = (0..8).map(|die| format!("{domain}_{die}"));
    let of_die = || {
        dies.clone()
            .chain([domain.to_owned()])
            .find_map(|key| running(clocks?.get(&key)?))
    };
    of_die().or_else(|| first(entry, plain, parse_megahertz))
}

/// The processes of an entry; `None` if it has no process list.
fn listed_processes(entry: &Map<String, Value>) -> Option<Vec<ToolProcess>> {
    let list = entry
        .get("process_list")
        .or_else(|| entry.get("process_info"))?;
    let one = std::slice::from_ref(list);
    let items = list.as_array().map_or(one, Vec::as_slice);
    let found = items.iter().filter_map(|item| {
        let map = item.as_object()?;
        // Without processes this is a sentence.
        match map.get("process_info") {
            Some(info) => parse_process(info.as_object()?),
            None => parse_process(map),
        }
    });
    Some(found.collect())
}

fn parse_process(map: &Map<String, Value>) -> Option<ToolProcess> {
    let pid = u32::try_from(parse_whole(map.get("pid")?)?).ok()?;
    (pid > 0).then(|| ToolProcess {
        pid,
        vram_bytes: process_memory(map),
    })
}

/// Its memory on the GPU where reported separately. `mem_usage` includes host memory in some
/// releases and is always 0 in others.
fn process_memory(map: &Map<String, Value>) -> Option<u64> {
    let places = "memory_usage.vram_mem vram_mem mem_usage";
    first(map, places, |v| parse_bytes(v, Bare::Bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const MIB: u64 = 1 << 20;

    fn one(document: &Value) -> GpuReport {
        let mut all = parse_output(&document.to_string());
        assert_eq!(all.len(), 1, "{document}");
        all.remove(0)
    }

    #[test]
    fn the_same_figures_in_every_release() {
        let expected = GpuReport {
            gpu: 3,
            vram_total_bytes: Some(16_000 * MIB),
            vram_used_bytes: Some(900 * MIB),
            power_mw: Some(120_000),
            hotspot_c: Some(70),
            memory_c: Some(60),
            busy_pct: Some(55),
            memory_busy_pct: Some(20),
            gfx_mhz: Some(1700),
            memory_mhz: Some(1200),
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
        let monitor = json!([{"gpu": 3, "xcp": 0, "power_usage": of(120, "W"), "hotspot_temperature": of(70, "C"),
            "memory_temperature": of(60, "C"), "gfx_clk": of(1700, "MHz"), "gfx": of(55, "%"), "mem": of(20, "%"),
            "mem_clock": of(1200, "MHz"), "vram_used": of(900, "MB"), "vram_total": of(16_000, "MB")}]);
        for document in [
            json!([metric]),
            json!({"gpu_data": [metric]}),
            json!({"gpu_data": metric}),
            metric.clone(),
            bare,
            monitor,
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
            assert_eq!(parse_output(text), [], "{text}");
        }
    }

    #[test]
    fn a_watching_tool_is_taken_at_its_last_word() {
        let text = "'CTRL' + 'C' to stop watching output:\n[{\"gpu\":0,\"vram_used\":{\"value\":1,\"unit\":\"MB\"},\"power_usage\":{\"value\":5,\"unit\":\"W\"}}]\n[{\"gpu\":0,\"vram_used\":{\"value\":2,\"unit\":\"MB\"},\"power_usage\":\"N/A\"}]";
        let all = parse_output(text);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].vram_used_bytes, Some(2 * MIB));
        assert_eq!(all[0].power_mw, Some(5000));
    }

    #[test]
    fn partitions_do_not_overwrite_their_gpu() {
        let rows = json!([{"gpu": 0, "xcp": 0, "vram_used": 700, "gfx": 10}, {"gpu": 0, "xcp": 1, "vram_used": 90, "gfx": "N/A"}]);
        assert_eq!(one(&rows).vram_used_bytes, Some(700 * MIB));
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
            json!([{"pid": 42, "name": "engine", "gpus": [{"gpu": 0, "memory_usage": {"vram_mem": {"value": 5000, "unit": "B"}}}]}]),
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
    fn processes_sorted_by_pid_are_on_each_of_their_gpus() {
        let by_pid = json!([{"pid": 42, "name": "e", "container_name": "vllm-1", "gpus": [{"gpu": 0, "vram_mem": 1}, {"gpu": 1, "vram_mem": 2}]}]);
        let all = parse_output(&by_pid.to_string());
        assert_eq!(all.len(), 2);
        let second = all[1].processes.as_ref().unwrap();
        assert_eq!((second[0].pid, second[0].vram_bytes), (42, Some(2)));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "\\PC*") {
            let _ = parse_output(&text);
        }

        #[test]
        fn other_values_parse_the_same(used in 0u64..1_000_000, power in 0u32..2000, pid in 1u32..4_000_000) {
            let list = json!([{"gpu": 0, "mem_usage": {"used_vram": {"value": used, "unit": "MB"}}, "power": {"socket_power": power},
                "process_list": [{"process_info": {"pid": pid, "name": "N/A", "mem_usage": "N/A"}}]}]);
            for document in [list.clone(), json!({"gpu_data": list})] {
                let report = one(&document);
                prop_assert_eq!(report.vram_used_bytes, Some(used * MIB));
                prop_assert_eq!(report.power_mw, Some(power * 1000));
                let processes = report.processes.unwrap();
                prop_assert_eq!((processes[0].pid, processes[0].vram_bytes), (pid, None));
            }
        }
    }
}
