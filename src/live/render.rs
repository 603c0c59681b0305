//! A scan as a page: the devices with their owners, then the containers.

use super::ledger::memory_in_use;
use super::{ContainerScan, GpuLook, MemoryScan, UNKNOWN, or_unknown};
use crate::capture::HostState;
use crate::headroom::Headroom;
use crate::report::layout::Align;
use crate::report::page::TextOptions;
use crate::report::page::{ColumnFit, StyledCell, TextPage, TextTable};
use crate::units::Bytes;
use anstyle::{AnsiColor, Style};
use std::cmp::Reverse;

/// Cells of a bar.
const BAR: usize = 10;

/// The scan as a page.
pub fn render_text(look: &MemoryScan, options: TextOptions) -> String {
    let mut page = TextPage::new(options);
    if look.backend.as_ref().is_some_and(|b| b.simulated) {
        page.write_line("SIMULATED GPUs: these figures say nothing about hardware");
    }
    page.write_table(0, &device_table(look, options));
    let mut containers: Vec<&ContainerScan> = look.containers.iter().collect();
    containers.sort_by_key(|c| Reverse(memory_in_use(look, c)));
    if !containers.is_empty() {
        page.write_line("");
        page.write_table(0, &container_table(&containers, options));
        if containers.iter().any(|c| c.simulated) {
            page.write_line("* simulated engine: its figures say nothing about hardware");
        }
    }
    if look.gpus.is_empty() && look.containers.is_empty() {
        page.write_line("no GPU, and no container with a known engine");
    }
    for note in &look.notes {
        page.write_under("note: ", note);
    }
    page.into_text()
}

/// The GPUs with the owners of their memory, and this host.
fn device_table(look: &MemoryScan, options: TextOptions) -> TextTable {
    let mut table = TextTable::new([
        ("GPU", Align::Right, ColumnFit::Drop(0)),
        ("NAME / CONTAINER", Align::Left, ColumnFit::Cut),
        ("USED", Align::Right, ColumnFit::Whole),
        ("TOTAL", Align::Right, ColumnFit::Whole),
        ("USED %", Align::Right, ColumnFit::Whole),
        ("", Align::Left, ColumnFit::Drop(1)),
        ("UTIL", Align::Right, ColumnFit::Drop(0)),
        ("POWER", Align::Right, ColumnFit::Drop(2)),
        ("TEMP", Align::Right, ColumnFit::Drop(3)),
    ]);
    for gpu in &look.gpus {
        table.add_row(gpu_row(gpu, options));
        for (name, bytes) in owners_of(gpu) {
            table.add_row(owner_row(&name, bytes, gpu.total_bytes));
        }
    }
    if let Some(host) = &look.host {
        table.add_row(host_row(host, options));
    }
    table
}

fn gpu_row(gpu: &GpuLook, options: TextOptions) -> Vec<StyledCell> {
    let [percent, bar] = gauge_cells(gpu.used_bytes, gpu.free_bytes(), gpu.total_bytes, options);
    vec![
        gpu.index.to_string().into(),
        StyledCell::new(&gpu.name, Style::new().bold()),
        bytes_cell(gpu.used_bytes),
        bytes_cell(gpu.total_bytes),
        percent,
        bar,
        or_unknown(gpu.utilization_pct, |p| format!("{p} %")).into(),
        or_unknown(gpu.power_w, |w| format!("{w:.0} W")).into(),
        or_unknown(gpu.temperature_c, |c| format!("{c} C")).into(),
    ]
}

/// The owners of a GPU's memory by size; then what belongs to none.
fn owners_of(gpu: &GpuLook) -> Vec<(String, u64)> {
    let mut owners: Vec<(String, u64)> = (gpu.tenants.iter())
        .map(|tenant| {
            let name = match (&tenant.container_name, &tenant.container_id) {
                (Some(name), _) => name.clone(),
                (None, Some(id)) => format!("container {}", id.get(..12).unwrap_or(id)),
                (None, None) => "other processes".into(),
            };
            (name, tenant.used_bytes)
        })
        .collect();
    owners.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let unattributed = if gpu.shares_host {
        "operating system and processes off the GPU"
    } else {
        "unattributed"
    };
    let parts = [
        (unattributed, gpu.unattributed_bytes),
        ("driver reserved", gpu.reserved_bytes),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(name, b)| Some((name, b.filter(|b| *b > 0)?)));
    owners.extend(parts.map(|(name, bytes)| (name.to_owned(), bytes)));
    owners
}

fn owner_row(name: &str, bytes: u64, total: Option<u64>) -> Vec<StyledCell> {
    let share = total.map_or(String::new(), |total| percent_text(bytes, total));
    let cells = [
        String::new(),
        format!("  {name}"),
        Bytes(bytes).to_string(),
        String::new(),
        share,
    ];
    cells.map(StyledCell::from).into()
}

fn host_row(host: &HostState, options: TextOptions) -> Vec<StyledCell> {
    let used = host.total_bytes.saturating_sub(host.available_bytes);
    let total = Some(host.total_bytes);
    let [percent, bar] = gauge_cells(Some(used), Some(host.available_bytes), total, options);
    vec![
        StyledCell::default(),
        StyledCell::new("host memory", Style::new().bold()),
        bytes_cell(Some(used)),
        bytes_cell(total),
        percent,
        bar,
    ]
}

fn container_table(containers: &[&ContainerScan], options: TextOptions) -> TextTable {
    let mut table = TextTable::new([
        ("CONTAINER", Align::Left, ColumnFit::Cut),
        ("ENGINE", Align::Left, ColumnFit::Cut),
        ("HOST MEM", Align::Right, ColumnFit::Whole),
        ("LIMIT", Align::Right, ColumnFit::Drop(3)),
        ("USED %", Align::Right, ColumnFit::Drop(1)),
        ("", Align::Left, ColumnFit::Drop(2)),
        ("SHMEM", Align::Right, ColumnFit::Drop(6)),
        ("CACHE", Align::Right, ColumnFit::Drop(5)),
        ("KV POOL", Align::Right, ColumnFit::Drop(0)),
        ("KV USED", Align::Right, ColumnFit::Drop(4)),
        ("KV %", Align::Right, ColumnFit::Whole),
        ("RUN", Align::Right, ColumnFit::Whole),
        ("WAIT", Align::Right, ColumnFit::Whole),
    ]);
    for container in containers {
        table.add_row(container_row(container, options));
    }
    table
}

fn container_row(c: &ContainerScan, options: TextOptions) -> Vec<StyledCell> {
    let [percent, bar] = match c.host_limit_bytes {
        Some(_) => gauge_cells(
            c.held_bytes(),
            c.headroom_bytes(),
            c.host_limit_bytes,
            options,
        ),
        None => Default::default(),
    };
    vec![
        (&c.name).into(),
        c.engine_words().into(),
        bytes_cell(c.host_bytes),
        c.host_limit_bytes
            .map_or_else(StyledCell::default, |b| bytes_cell(Some(b))),
        percent,
        bar,
        bytes_cell(c.host.and_then(|h| h.shmem_bytes)),
        bytes_cell(c.host.and_then(|h| h.file_bytes)),
        bytes_cell(c.kv_pool_bytes),
        bytes_cell(c.kv_used_bytes),
        c.kv_percent().into(),
        or_unknown(c.requests_running, |n| n.to_string()).into(),
        or_unknown(c.requests_waiting, |n| n.to_string()).into(),
    ]
}

fn bytes_cell(bytes: Option<u64>) -> StyledCell {
    or_unknown(bytes, |b| Bytes(b).to_string()).into()
}

/// The share in percent and as a bar, in the colour of the headroom.
fn gauge_cells(
    used: Option<u64>,
    free: Option<u64>,
    total: Option<u64>,
    options: TextOptions,
) -> [StyledCell; 2] {
    let (Some(used), Some(total)) = (used, total.filter(|t| *t > 0)) else {
        return [UNKNOWN.into(), StyledCell::default()];
    };
    let level = free.and_then(|free| Headroom::of_share(free, total));
    let style = match level {
        Some(Headroom::Safe) => AnsiColor::Green.on_default(),
        Some(Headroom::Tight) => AnsiColor::Yellow.on_default(),
        Some(Headroom::Critical) => AnsiColor::Red.on_default().bold(),
        None => Style::new(),
    };
    let cells = u128::from(used.min(total)) * BAR as u128 / u128::from(total);
    // At most `BAR`.
    let filled = cells as usize;
    let (full, empty) = if options.unicode {
        ("█", "░")
    } else {
        ("#", ".")
    };
    let bar = full.repeat(filled) + &empty.repeat(BAR - filled);
    [
        StyledCell::new(percent_text(used, total), style),
        StyledCell::new(bar, style),
    ]
}

/// `88 %`. A share that is not whole is neither 0 % nor 100 %.
fn percent_text(part: u64, total: u64) -> String {
    if total == 0 {
        return UNKNOWN.into();
    }
    let (part, total) = (u128::from(part), u128::from(total));
    match (part * 100 + total / 2) / total {
        0 if part > 0 => "<1 %".into(),
        100 if part < total => "99 %".into(),
        percent => format!("{percent} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::TenantLook;
    use super::*;
    use crate::report::layout::text_width;

    const GIB: u64 = 1 << 30;

    fn options(width: usize) -> TextOptions {
        TextOptions {
            width,
            color: false,
            unicode: true,
        }
    }

    fn everything(look: &MemoryScan) -> String {
        render_text(look, options(usize::MAX))
    }

    fn look() -> MemoryScan {
        MemoryScan {
            gpus: vec![GpuLook {
                uuid: "GPU-1".into(),
                name: "NVIDIA H100 80GB HBM3".into(),
                total_bytes: Some(80 * GIB),
                used_bytes: Some(70 * GIB),
                reserved_bytes: Some(GIB / 2),
                tenants: vec![
                    TenantLook {
                        used_bytes: GIB,
                        ..TenantLook::default()
                    },
                    TenantLook {
                        container_id: Some("a".repeat(64)),
                        container_name: Some("llm\x1b[2J".into()),
                        used_bytes: 60 * GIB,
                    },
                ],
                unattributed_bytes: Some(9 * GIB),
                power_w: Some(690.4),
                ..GpuLook::default()
            }],
            host: Some(HostState {
                total_bytes: 100 * GIB,
                available_bytes: 3 * GIB,
                ..HostState::default()
            }),
            containers: vec![ContainerScan {
                id: "a".repeat(64),
                name: "llm".into(),
                engine: Some("vllm".into()),
                host_bytes: Some(4 * GIB),
                host_limit_bytes: Some(4 * GIB),
                kv_pool_bytes: Some(40 * GIB),
                kv_used_bytes: Some(10 * GIB),
                kv_usage: Some(0.25),
                requests_running: Some(3),
                ..ContainerScan::default()
            }],
            notes: vec![
                "the owners of the memory are unknown: the driver lists no processes".into(),
            ],
            ..MemoryScan::default()
        }
    }

    /// A host with many GPUs, owners and containers.
    fn crowd() -> MemoryScan {
        let one = look();
        let gpu = GpuLook {
            tenants: (0..6)
                .map(|i| TenantLook {
                    container_id: Some(format!("{i:064}")),
                    container_name: Some(format!("a-container-with-a-long-name-{i}")),
                    used_bytes: (10 + i) * GIB,
                })
                .collect(),
            utilization_pct: Some(100),
            temperature_c: Some(66),
            ..one.gpus[0].clone()
        };
        let container = |i: u64| ContainerScan {
            id: format!("{i:064}"),
            name: format!("a-container-with-a-long-name-{i}"),
            host_bytes: Some((i + 1) * GIB),
            engine: Some("tensorrt_llm".into()),
            simulated: i == 0,
            ..one.containers[0].clone()
        };
        MemoryScan {
            gpus: vec![gpu; 4],
            containers: (0..40).map(container).collect(),
            ..one
        }
    }

    #[test]
    fn a_file_holds_everything_the_devices_first() {
        insta::assert_snapshot!(everything(&look()));
    }

    #[test]
    fn no_page_is_wider_than_its_terminal() {
        for look in [look(), crowd()] {
            for width in [60, 80, 120, 200] {
                let text = render_text(&look, options(width));
                assert!(
                    text.lines().map(text_width).max() <= Some(width),
                    "{width}: {text}"
                );
            }
        }
    }

    #[test]
    fn a_wide_terminal_cuts_nothing() {
        for look in [look(), crowd()] {
            assert_eq!(render_text(&look, options(200)), everything(&look));
        }
        assert!(!everything(&crowd()).contains('…'));
    }

    #[test]
    fn the_colour_is_that_of_the_headroom() {
        let colour = TextOptions {
            color: true,
            ..options(200)
        };
        let text = render_text(&look(), colour);
        let line = |word: &str| text.lines().find(|l| l.contains(word)).unwrap();
        assert!(
            line("H100").contains("\x1b[32m88 %"),
            "9.5 of 80 GiB free: {text:?}"
        );
        assert!(line("host memory").contains("\x1b[33m97 %"), "{text:?}");
        assert!(line("vllm").contains("\x1b[31m100 %"), "{text:?}");
        assert!(
            !everything(&look()).contains('\x1b'),
            "no colour, and names cannot move the cursor"
        );
    }

    #[test]
    fn an_empty_host_is_reported_as_empty() {
        assert_eq!(
            everything(&MemoryScan::default()),
            "no GPU, and no container with a known engine\n"
        );
    }
}
