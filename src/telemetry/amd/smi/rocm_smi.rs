//! What `rocm-smi` prints: flat keys that drift from release to release, every value a text.

use super::shapes::{
    Bare, available_text, parse_bytes, parse_celsius, parse_megahertz, parse_milliwatts,
    parse_percent,
};
use super::{GpuReport, ToolProcess, documents};
use serde_json::{Map, Value};

/// Content of the output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RocmReport {
    /// The GPUs, by the tool's own number.
    pub gpus: Vec<GpuReport>,
    /// The processes with their memory on all GPUs together: this tool does not say on which.
    /// `None` where it was not asked or did not say.
    pub processes: Option<Vec<ToolProcess>>,
}

/// Reads the output of `--json`.
pub fn parse_output(output: &str) -> RocmReport {
    let mut found = RocmReport::default();
    for document in documents::find_documents(output) {
        if let Value::Object(map) = &document.value {
            found.read_document(map);
        }
    }
    found
}

impl RocmReport {
    fn read_document(&mut self, map: &Map<String, Value>) {
        for (key, value) in map {
            let Some(inner) = value.as_object() else {
                continue;
            };
            if let Some(gpu) = key.strip_prefix("card").and_then(|n| n.parse().ok()) {
                super::combine_reports(&mut self.gpus, vec![gpu_report(gpu, inner)]);
            } else if key == "system" {
                let listed = inner.iter().filter_map(|(k, v)| parse_process(k, v));
                let listed: Vec<ToolProcess> = listed.collect();
                if !listed.is_empty() {
                    self.processes = Some(listed);
                }
            }
        }
    }
}

fn gpu_report(gpu: u32, map: &Map<String, Value>) -> GpuReport {
    // The spelling of keys changed in capitals only, or in a word at their beginning.
    let find = |wanted: &[&str]| {
        wanted.iter().find_map(|w| {
            map.iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(w))
                .map(|(_, value)| value)
        })
    };
    let memory = |key: &str| find(&[key]).and_then(|v| parse_bytes(v, Bare::Bytes));
    let sensor =
        |name: &str| find(&[&format!("Temperature (Sensor {name}) (C)")]).and_then(parse_celsius);
    // `Average`, `Current Socket` and plain ones, but not the limit.
    let power = map
        .iter()
        .filter(|(key, _)| key.ends_with("Package Power (W)") && !key.starts_with("Max"))
        .find_map(|(_, value)| parse_milliwatts(value));
    GpuReport {
        gpu,
        bdf: find(&["PCI Bus"])
            .and_then(available_text)
            .map(|b| b.to_lowercase()),
        uuid: find(&["Unique ID"]).and_then(available_text),
        name: find(&["Card series", "Device Name", "Card model"])
            .and_then(available_text)
            .filter(|name| !name.starts_with("0x")),
        vram_total_bytes: memory("VRAM Total Memory (B)"),
        vram_used_bytes: memory("VRAM Total Used Memory (B)"),
        power_mw: power,
        edge_c: sensor("edge"),
        hotspot_c: sensor("junction"),
        memory_c: sensor("memory"),
        busy_pct: find(&["GPU use (%)"]).and_then(parse_percent),
        // `memory use` is traffic; how full the memory is, is `Memory Allocated`.
        memory_busy_pct: find(&["GPU Memory Read/Write Activity (%)", "GPU memory use (%)"])
            .and_then(parse_percent),
        gfx_mhz: find(&["sclk clock speed:", "sclk clock speed"]).and_then(parse_megahertz),
        memory_mhz: find(&["mclk clock speed:", "mclk clock speed"]).and_then(parse_megahertz),
        ..GpuReport::default()
    }
}

/// `"PID123": "name, gpus, vram, sdma, cu"`. The name may hold commas, so it is read from the right.
fn parse_process(key: &str, value: &Value) -> Option<ToolProcess> {
    let pid = key.strip_prefix("PID")?.parse().ok()?;
    let mut fields = value.as_str()?.rsplitn(5, ',');
    let _compute_units = fields.next()?;
    let _copy_engines = fields.next()?;
    let vram = fields.next()?.trim();
    let _gpus = fields.next()?;
    let _name = fields.next()?;
    (pid > 0).then(|| ToolProcess {
        pid,
        vram_bytes: vram.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn keys_that_drifted_read_the_same() {
        let old = json!({"card2": {"Card series": "X", "GPU memory use (%)": "7", "Average Graphics Package Power (W)": "39.0", "Max Graphics Package Power (W)": "290.0", "PCI Bus": "0000:1E:00.0", "mclk clock speed:": "(1200Mhz)"}});
        let new = json!({"card2": {"Card Series": "X", "Card Model": "0x73df", "GPU Memory Read/Write Activity (%)": "7", "GPU Memory Allocated (VRAM%)": "12", "Current Socket Graphics Package Power (W)": "39.0", "PCI Bus": "0000:1E:00.0", "mclk clock speed:": "(1200Mhz)"}});
        let expected = GpuReport {
            gpu: 2,
            bdf: Some("0000:1e:00.0".into()),
            name: Some("X".into()),
            power_mw: Some(39_000),
            memory_busy_pct: Some(7),
            memory_mhz: Some(1200),
            ..GpuReport::default()
        };
        for document in [old, new] {
            let read = parse_output(&document.to_string());
            assert_eq!(read.gpus, std::slice::from_ref(&expected), "{document}");
        }
    }

    #[test]
    fn a_process_name_may_hold_commas() {
        let all = parse_output(
            "{\"system\": {\"PID7\": \"a, b, c, 2, 4096, 0, 0\", \"PID8\": \"UNKNOWN, 1, N/A, 0, unknown\", \"PIDx\": \"\", \"Driver version\": \"6\"}}",
        );
        let listed = all.processes.unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!((listed[0].pid, listed[0].vram_bytes), (7, Some(4096)));
        assert_eq!((listed[1].pid, listed[1].vram_bytes), (8, None));
        assert_eq!(
            parse_output("{\"system\": {\"Driver version\": \"6\"}}"),
            RocmReport::default()
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "\\PC*") {
            let _ = parse_output(&text);
            let _ = parse_process(&text, &Value::from(text.as_str()));
        }

        #[test]
        fn other_values_parse_the_same(used in 0u64..1u64 << 50, pid in 1u32..9_999_999) {
            let document = json!({"card0": {"VRAM Total Used Memory (B)": used.to_string()}, "system": {format!("PID{pid}"): format!("n, 1, {used}, 0, 0")}});
            let all = parse_output(&document.to_string());
            prop_assert_eq!(all.gpus[0].vram_used_bytes, Some(used));
            let listed = all.processes.unwrap();
            prop_assert_eq!((listed[0].pid, listed[0].vram_bytes), (pid, Some(used)));
        }
    }
}
