//! Host memory of a container beside its GPUs: by kind, against its limit, and how tight the host was.

use super::Sources;
use crate::capture::LimitLevel;
use crate::profile::{HostMemoryUse, HostPoint, describe_cgroup};
use crate::report::content::{Chapter, ContentBlock, facts_grid};
use crate::report::material::Material;
use crate::units::Bytes;

pub(super) fn write_host_memory_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let mut blocks = Vec::new();
    for at in material.shown_runs() {
        let Some(found) = &at.run.profile.host_memory else {
            continue;
        };
        let title = at.title("The container's host memory at its peak");
        let grid = facts_grid(at.id("host_memory"), title, host_facts(found));
        blocks.push(ContentBlock::Table(grid));
    }
    Chapter::of_parts("host_memory", "Host memory", blocks, Vec::new())
}

/// What is known of it, a line each.
fn host_facts(found: &HostMemoryUse) -> Vec<(&'static str, String)> {
    let limit = found.limit_bytes.map(|limit| {
        let limit = Bytes(limit);
        match &found.limit_level {
            Some(LimitLevel::Cgroup(path)) => format!("{limit}, set by {}", describe_cgroup(path)),
            Some(LimitLevel::Container) => format!("{limit}, the container's own"),
            _ => format!("{limit}, the host's memory: the container has no limit"),
        }
    });
    let peak = found.peak.as_ref();
    let kinds = peak.map(|p| p.kinds).unwrap_or_default();
    let sizes = [
        ("anonymous (heaps)", kinds.anon_bytes),
        ("shared (/dev/shm, offloaded caches)", kinds.shmem_bytes),
        ("page cache (given back under pressure)", kinds.file_bytes),
        ("kernel", kinds.kernel_bytes),
        ("locked by mlock, within these", kinds.locked_bytes),
        ("swapped out", kinds.swap_bytes),
        (
            "kernel's own peak, page cache included",
            found.kernel_peak_bytes,
        ),
    ];
    let sizes = sizes.map(|(label, size)| (label, size.map(|b| Bytes(b).to_string())));
    let before = found.baseline.as_ref().map(describe_point);
    let host = found.tightest_host;
    let free = host.map(|h| {
        let (free, all) = (Bytes(h.available_bytes), Bytes(h.total_bytes));
        format!("{free} available of {all}")
    });
    let swap = host.and_then(|h| h.swap_used_bytes);
    let stalled = host.and_then(|h| h.stalled_pct);
    let first = [
        ("limit", limit),
        ("before the load", before),
        ("peak", peak.map(describe_point)),
    ];
    let of_host = [
        ("whole host at its tightest", free),
        (
            "swap of the whole host then",
            swap.map(|b| Bytes(b).to_string()),
        ),
        (
            "tasks stalled for memory then",
            stalled.map(|pct| format!("{pct:.1} % of 10 s")),
        ),
    ];
    let all = first.into_iter().chain(sizes).chain(of_host);
    all.filter_map(|(label, text)| Some((label, text?)))
        .collect()
}

/// `1.20 GiB held, 3.40 GiB with page cache and swap`.
fn describe_point(point: &HostPoint) -> String {
    format!(
        "{} held, {} with page cache and swap",
        Bytes(point.held_bytes),
        Bytes(point.used_bytes)
    )
}
