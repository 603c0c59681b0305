//! A scan as text: a table of GPUs with their owners, and one of containers.

use super::{ContainerScan, GpuLook, MemoryScan};
use crate::units::Bytes;

/// The scan as ASCII lines.
pub fn render_text(look: &MemoryScan) -> String {
    let mut out = String::new();
    if !look.gpus.is_empty() {
        let simulated = look.backend.as_ref().is_some_and(|b| b.simulated);
        if simulated {
            out.push_str("SIMULATED GPUs: these figures say nothing about hardware\n");
        }
        let rows: Vec<[String; 7]> = look.gpus.iter().flat_map(gpu_rows).collect();
        let head = [
            "GPU",
            "NAME / CONTAINER",
            "USED",
            "OF",
            "POWER",
            "BUSY",
            "TEMP",
        ];
        write_table(&mut out, head, &rows);
    }
    if !look.containers.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        let rows: Vec<[String; 7]> = look.containers.iter().map(container_row).collect();
        let head = [
            "CONTAINER",
            "ENGINE",
            "HOST MEM",
            "KV POOL",
            "KV USED",
            "RUNNING",
            "WAITING",
        ];
        write_table(&mut out, head, &rows);
    }
    if look.gpus.is_empty() && look.containers.is_empty() {
        out.push_str("no GPU, and no container with a known engine\n");
    }
    for note in &look.notes {
        out.push_str(&format!("note: {}\n", plain_text(note)));
    }
    out
}

fn gpu_rows(gpu: &GpuLook) -> Vec<[String; 7]> {
    let mut rows = vec![[
        gpu.index.to_string(),
        plain_text(&gpu.name),
        format_bytes(gpu.used_bytes),
        format_bytes(gpu.total_bytes),
        gpu.power_w.map_or(UNKNOWN.into(), |w| format!("{w:.0} W")),
        gpu.utilization_pct
            .map_or(UNKNOWN.into(), |p| format!("{p} %")),
        gpu.temperature_c
            .map_or(UNKNOWN.into(), |c| format!("{c} C")),
    ]];
    let mut part = |name: String, held: u64| {
        let empty = String::new;
        rows.push([
            empty(),
            format!("  {}", plain_text(&name)),
            format_bytes(Some(held)),
            empty(),
            empty(),
            empty(),
            empty(),
        ]);
    };
    for tenant in &gpu.tenants {
        let name = match (&tenant.container_name, &tenant.container_id) {
            (Some(name), _) => name.clone(),
            (None, Some(id)) => format!("container {}", id.get(..12).unwrap_or(id)),
            (None, None) => "other processes".into(),
        };
        part(name, tenant.used_bytes);
    }
    if let Some(held) = gpu.unattributed_bytes.filter(|b| *b > 0) {
        part("unattributed".into(), held);
    }
    if let Some(held) = gpu.reserved_bytes.filter(|b| *b > 0) {
        part("(kept by the driver, beside it)".into(), held);
    }
    rows
}

fn container_row(c: &ContainerScan) -> [String; 7] {
    let count = |n: Option<u64>| n.map_or(UNKNOWN.into(), |n| n.to_string());
    let engine = match (&c.engine, c.simulated) {
        (Some(engine), true) => format!("{engine} (simulated)"),
        (Some(engine), false) => engine.clone(),
        (None, _) => UNKNOWN.into(),
    };
    let used = match (c.kv_used_bytes, c.kv_usage) {
        (Some(b), Some(share)) => format!("{} ({:.0} %)", Bytes(b), share * 100.0),
        (None, Some(share)) => format!("{:.0} %", share * 100.0),
        _ => UNKNOWN.into(),
    };
    [
        plain_text(&c.name),
        engine,
        format_bytes(c.host_bytes),
        format_bytes(c.kv_pool_bytes),
        used,
        count(c.requests_running),
        count(c.requests_waiting),
    ]
}

/// Shown for an unknown figure.
const UNKNOWN: &str = "-";

fn format_bytes(b: Option<u64>) -> String {
    b.map_or(UNKNOWN.into(), |b| Bytes(b).to_string())
}

/// Removes characters that control a terminal.
fn plain_text(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Writes a table with columns as wide as needed; all but the first two are right-aligned figures.
fn write_table(out: &mut String, head: [&str; 7], rows: &[[String; 7]]) {
    let width: Vec<usize> = (0..7)
        .map(|i| {
            let cells = rows.iter().map(|r| r[i].chars().count());
            cells.chain([head[i].len()]).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: [&str; 7]| {
        let mut text = String::new();
        for (i, cell) in cells.into_iter().enumerate() {
            let w = width[i];
            let padded = if i < 2 {
                format!("{cell:<w$}  ")
            } else {
                format!("{cell:>w$}  ")
            };
            text.push_str(&padded);
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(head);
    for row in rows {
        line(row.each_ref().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::super::TenantLook;
    use super::*;

    pub fn look() -> MemoryScan {
        let gib = 1u64 << 30;
        MemoryScan {
            gpus: vec![GpuLook {
                uuid: "GPU-1".into(),
                name: "NVIDIA H100".into(),
                total_bytes: Some(80 * gib),
                used_bytes: Some(70 * gib),
                reserved_bytes: Some(gib / 2),
                tenants: vec![
                    TenantLook {
                        container_id: Some("a".repeat(64)),
                        container_name: Some("llm\x1b[2J".into()),
                        used_bytes: 60 * gib,
                    },
                    TenantLook {
                        used_bytes: gib,
                        ..TenantLook::default()
                    },
                ],
                unattributed_bytes: Some(9 * gib),
                power_w: Some(690.4),
                ..GpuLook::default()
            }],
            containers: vec![ContainerScan {
                name: "llm".into(),
                engine: Some("vllm".into()),
                kv_pool_bytes: Some(40 * gib),
                kv_used_bytes: Some(10 * gib),
                kv_usage: Some(0.25),
                ..ContainerScan::default()
            }],
            ..MemoryScan::default()
        }
    }

    #[test]
    fn a_look_is_two_tables() {
        let text = render_text(&look());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("GPU  NAME / CONTAINER"), "{text}");
        assert!(
            lines[1].contains("70.00 GiB  80.00 GiB  690 W     -     -"),
            "{text}"
        );
        assert!(
            lines[2].contains("  llm [2J") && lines[2].contains("60.00 GiB"),
            "{text}"
        );
        assert!(
            lines[3].contains("other processes") && lines[4].contains("unattributed"),
            "{text}"
        );
        assert!(lines[5].contains("kept by the driver"), "{text}");
        assert!(text.contains("10.00 GiB (25 %)"), "{text}");
        assert!(!text.contains('\x1b'), "names cannot move the cursor");
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        assert!(render_text(&MemoryScan::default()).contains("no GPU, and no container"));
    }
}
