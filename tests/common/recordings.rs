//! Where recorded outputs of GPUs' tools lie, and which test reads which of them.
#![allow(dead_code, missing_docs)]

use std::path::{Path, PathBuf};

/// The folder of recordings: other people's, so they lie outside the project.
/// `PLIMSOLL_GPU_FIXTURES` names another place.
pub fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/gpu/fixtures");
    let named = std::env::var_os("PLIMSOLL_GPU_FIXTURES").map_or(beside, PathBuf::from);
    named.is_dir().then_some(named)
}

/// Played through the stand-in NVML by `tests/nvidia_recordings.rs`.
pub const NVIDIA: [&str; 7] = [
    "nvidia-smi-535.54.03-a100.xml",
    "nvidia-smi-590.48.01-h100-mig.txt",
    "nvidia-smi-590.48.01-h100.txt",
    "nvidia-smi-590.48.01-h200-mig.txt",
    "nvidia-smi-595.58.03-rtx3080.xml",
    "nvidia-smi-595.80-l40s.txt",
    "nvidia-smi-595.84-rtx4000ada.xml",
];
/// Recorded `/proc/PID/cgroup` files with the containers in them.
pub const CGROUPS: &str = "cgroup-cases.jsonl";
/// Says where each recording is from, and is none.
pub const SOURCES: &str = "SOURCES.md";
