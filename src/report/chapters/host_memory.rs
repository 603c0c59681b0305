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
    let bytes = |b: u64| Bytes(b).to_string();
    let limit = found.limit_bytes.map(|b| match &found.limit_level {
        Some(LimitLevel::Cgroup(path)) => format!("{}, set by {}", bytes(b), describe_cgroup(path)),
        Some(LimitLevel::Container) => format!("{}, the container's own", bytes(b)),
        _ => format!(
            "{}, the host's memory: the container has no limit",
            bytes(b)
        ),
    });
    let peak = found.peak.as_ref();
    let kinds = peak.map(|p| p.kinds).unwrap_or_default();
    let host = found.tightest_host;
    let all = [
        ("limit", limit),
        (
            "before the load",
            found.baseline.as_ref().map(describe_point),
        ),
        ("peak", peak.map(describe_point)),
        ("anonymous (heaps)", kinds.anon_bytes.map(bytes)),
        (
            "shared (/dev/shm, offloaded caches)",
            kinds.shmem_bytes.map(bytes),
        ),
        (
            "page cache (given back under pressure)",
            kinds.file_bytes.map(bytes),
        ),
        ("kernel", kinds.kernel_bytes.map(bytes)),
        (
            "locked by mlock, within these",
            kinds.locked_bytes.map(bytes),
        ),
        ("swapped out", kinds.swap_bytes.map(bytes)),
        (
            "kernel's own peak, page cache included",
            found.kernel_peak_bytes.map(bytes),
        ),
        (
            "whole host at its tightest",
            host.map(|h| {
                format!(
                    "{} available of {}",
                    bytes(h.available_bytes),
                    bytes(h.total_bytes)
                )
            }),
        ),
        (
            "swap of the whole host then",
            host.and_then(|h| h.swap_used_bytes).map(bytes),
        ),
        (
            "tasks stalled for memory then",
            host.and_then(|h| h.stalled_pct)
                .map(|pct| format!("{pct:.1} % of 10 s")),
        ),
    ];
    all.into_iter()
        .filter_map(|(label, text)| Some((label, text?)))
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
