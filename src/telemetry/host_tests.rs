//! Tests of the host backend: on this machine's own cgroup, and on files laid out as one.

use super::cgroup::{CgroupVersion, read_at_start};
use super::*;
use crate::capture::{HostSplit, LimitLevel};
use crate::host::memory_bytes;
use std::path::PathBuf;

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn own() -> Option<HostBackend> {
    let target = MeasuredContainer {
        init_pid: Some(std::process::id()),
        ..MeasuredContainer::default()
    };
    match HostBackend::open(&target, "a test".into()) {
        Ok(backend) => Some(backend),
        Err(e) => {
            eprintln!("SKIPPED: {e}");
            None
        }
    }
}

#[test]
fn touched_memory_is_measured() {
    const SIZE: usize = 64 << 20;
    let Some(mut backend) = own() else { return };
    let clock = Clock::start();
    let mut samples = Vec::new();
    let mut probed = Vec::new();
    backend
        .sample(&clock, Wanted::default(), &mut samples)
        .unwrap();
    let block = std::hint::black_box(vec![1u8; SIZE]);
    backend
        .sample(&clock, Wanted::default(), &mut samples)
        .unwrap();
    backend.probe(&mut probed).unwrap();
    drop(block);
    let [before, after] = &samples[..] else {
        panic!("{samples:?}")
    };
    assert!(before.at_ns <= after.at_ns);
    // Other processes of this cgroup may free memory meanwhile: half is proof enough.
    assert!(
        after.used_bytes > before.used_bytes + SIZE as u64 / 2,
        "{before:?} {after:?}"
    );
    assert!(
        probed[0] > before.used_bytes + SIZE as u64 / 2,
        "{probed:?}"
    );
    let anon = |s: &MemorySample| s.host.unwrap().anon_bytes.unwrap();
    assert!(
        anon(after) > anon(before) + SIZE as u64 / 2,
        "{before:?} {after:?}"
    );
    assert!(
        after
            .kernel_peak_bytes
            .is_none_or(|peak| peak + (4 << 20) >= after.used_bytes),
        "{after:?}"
    );
    assert_eq!(after.bench_client_bytes, None);
}

#[test]
fn the_bench_client_is_read_while_it_is_named() {
    let Some(mut backend) = own() else { return };
    let clock = Clock::start();
    let wanted = Wanted {
        bench_client: Some(std::process::id()),
        ..Wanted::default()
    };
    let mut samples = Vec::new();
    backend.sample(&clock, wanted, &mut samples).unwrap();
    backend
        .sample(&clock, Wanted::default(), &mut samples)
        .unwrap();
    assert!(
        samples[0].bench_client_bytes.is_some_and(|b| b > 0),
        "{samples:?}"
    );
    assert_eq!(samples[1].bench_client_bytes, None);
}

#[test]
fn the_device_and_the_backend_say_what_they_are() {
    let Some(backend) = own() else { return };
    let [device] = &backend.devices()[..] else {
        panic!()
    };
    assert_eq!((device.index, device.kind), (0, DeviceKind::HostCgroup));
    assert!(
        device.name.starts_with("container memory (cgroup v"),
        "{device:?}"
    );
    assert!(
        device
            .total_bytes
            .is_some_and(|b| b > 0 && Some(b) <= memory_bytes()),
        "{device:?}"
    );
    assert_eq!(backend.facts().name, "host");
    assert!(!backend.facts().simulated);
}

#[test]
fn what_cannot_be_measured_is_reported_with_a_way_out() {
    let open = |target: &MeasuredContainer| {
        HostBackend::open(target, String::new())
            .map(|_| ())
            .unwrap_err()
    };
    let stopped = open(&MeasuredContainer::default());
    assert!(stopped.message.contains("not running"), "{stopped}");
    let invisible = open(&MeasuredContainer {
        init_pid: Some(u32::MAX),
        ..MeasuredContainer::default()
    });
    assert!(invisible.message.contains("not visible"), "{invisible}");
    assert!(invisible.hints.iter().any(|h| h.contains("remote daemon")));
    let id = "f".repeat(64);
    let foreign = open(&MeasuredContainer {
        init_pid: Some(std::process::id()),
        container_id: id,
        ..MeasuredContainer::default()
    });
    assert!(foreign.message.contains("not the container's"), "{foreign}");
    for failure in [stopped, invisible, foreign] {
        assert_eq!(failure.code, crate::error::ExitCode::Environment);
        assert!(!failure.hints.is_empty());
    }
}

#[test]
fn a_file_longer_than_the_buffer_is_read_whole() {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all("x".repeat(10_000).as_bytes()).unwrap();
    let mut buffer = Vec::new();
    assert_eq!(read_at_start(&file, &mut buffer).unwrap().len(), 10_000);
    assert_eq!(read_at_start(&file, &mut buffer).unwrap().len(), 10_000);
}

/// A directory with these files in the place of a cgroup.
fn laid_out(version: CgroupVersion, files: &[(&str, &str)]) -> (tempfile::TempDir, HostBackend) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let path = "/docker/x".to_owned();
    let cgroup = Cgroup {
        version,
        path,
        dir: dir.path().to_owned(),
        mount: dir.path().to_owned(),
    };
    let backend = HostBackend::open_cgroup(cgroup, "a test".into()).unwrap();
    (dir, backend)
}

#[test]
fn a_cgroup_of_v2_is_read_with_all_it_has() {
    let (_dir, mut backend) = laid_out(
        CgroupVersion::V2,
        &[
            ("memory.current", "9000\n"),
            ("memory.peak", "12000\n"),
            ("memory.max", "1048576\n"),
            ("memory.swap.current", "0\n"),
            (
                "memory.stat",
                "anon 5000\nfile 3000\nkernel 1000\nshmem 500\n",
            ),
        ],
    );
    let mut samples = Vec::new();
    backend
        .sample(&Clock::start(), Wanted::default(), &mut samples)
        .unwrap();
    assert_eq!(
        (samples[0].used_bytes, samples[0].kernel_peak_bytes),
        (9000, Some(12000))
    );
    let split = HostSplit {
        anon_bytes: Some(5000),
        file_bytes: Some(2500),
        shmem_bytes: Some(500),
        kernel_bytes: Some(1000),
        swap_bytes: Some(0),
        locked_bytes: None,
    };
    assert_eq!(samples[0].host, Some(split));
    let device = &backend.devices()[0];
    assert_eq!(
        (device.id.as_str(), device.total_bytes),
        ("/docker/x", Some(1 << 20))
    );
    assert_eq!(device.name, "container memory (cgroup v2)");
    assert_eq!(device.limit_level, Some(LimitLevel::Container));
}

fn sample_of(files: &[(&str, &str)], version: CgroupVersion) -> MemorySample {
    let (_dir, mut backend) = laid_out(version, files);
    let (clock, mut samples) = (Clock::start(), Vec::new());
    for _ in 0..2 {
        let wanted = Wanted::default();
        backend.sample(&clock, wanted, &mut samples).unwrap();
    }
    let mut probed = Vec::new();
    backend.probe(&mut probed).unwrap();
    assert_eq!(probed, [samples[1].used_bytes], "a probe counts the same");
    samples.remove(1)
}

#[test]
fn swapped_memory_is_in_use_in_both_versions() {
    let v1 = sample_of(
        &[
            ("memory.usage_in_bytes", "400\n"),
            ("memory.max_usage_in_bytes", "400\n"),
            ("memory.memsw.usage_in_bytes", "590\n"),
            ("memory.memsw.max_usage_in_bytes", "600\n"),
            (
                "memory.stat",
                "total_rss 390\ntotal_cache 5\ntotal_shmem 0\ntotal_swap 190\n",
            ),
        ],
        CgroupVersion::V1,
    );
    assert_eq!((v1.used_bytes, v1.kernel_peak_bytes), (590, Some(600)));
    assert_eq!(v1.host.unwrap().swap_bytes, Some(190));
    // What is in the swap cache is in memory and in swap: it counts once.
    let v2 = [
        ("memory.current", "400\n"),
        ("memory.peak", "400\n"),
        ("memory.swap.current", "200\n"),
        ("memory.swap.peak", "210\n"),
        ("memory.stat", "anon 390\nfile 5\nshmem 0\nswapcached 10\n"),
    ];
    let swapped = sample_of(&v2, CgroupVersion::V2);
    assert_eq!(swapped.used_bytes, 590);
    assert_eq!(swapped.host.unwrap().swap_bytes, Some(190));
    assert_eq!(
        swapped.kernel_peak_bytes, None,
        "the kernel's peak is that of memory alone"
    );
    let back = [&v2[..2], &[("memory.swap.current", "0\n"), v2[3], v2[4]]].concat();
    let back = sample_of(&back, CgroupVersion::V2);
    assert_eq!((back.used_bytes, back.kernel_peak_bytes), (400, None));
    let never = [
        &v2[..2],
        &[("memory.swap.current", "0\n"), ("memory.swap.peak", "0\n")],
    ]
    .concat();
    let never = sample_of(&never, CgroupVersion::V2);
    assert_eq!(
        (never.used_bytes, never.kernel_peak_bytes),
        (400, Some(400))
    );
}

#[test]
fn what_an_old_kernel_lacks_is_unknown() {
    let (_dir, mut backend) = laid_out(
        CgroupVersion::V2,
        &[("memory.current", "9000\n"), ("memory.max", "max\n")],
    );
    let mut samples = Vec::new();
    backend
        .sample(&Clock::start(), Wanted::default(), &mut samples)
        .unwrap();
    assert_eq!(
        (samples[0].kernel_peak_bytes, samples[0].host),
        (None, None)
    );
    assert_eq!(
        backend.devices()[0].total_bytes,
        memory_bytes(),
        "no limit: all the host has"
    );
}

#[test]
fn a_file_that_holds_no_number_is_an_error_and_not_zero() {
    let (_dir, mut backend) = laid_out(CgroupVersion::V1, &[("memory.usage_in_bytes", "\n")]);
    let read = backend.sample(&Clock::start(), Wanted::default(), &mut Vec::new());
    assert!(matches!(read, Err(ReadingError::Failed(_))), "{read:?}");
}

/// A cgroup below this process' own, removed at the end.
struct Below(PathBuf);

impl Drop for Below {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn a_cgroup_that_is_removed_is_gone_until_it_is_there_again() {
    let Ok(own) = cgroup::find_cgroup(std::process::id(), "") else {
        return eprintln!("SKIPPED: no memory cgroup is visible here");
    };
    let below = Below(
        own.dir
            .join(format!("plimsoll-test-{}", std::process::id())),
    );
    let cgroup = Cgroup {
        dir: below.0.clone(),
        ..own
    };
    if std::fs::create_dir(&below.0).is_err() || !below.0.join("memory.stat").exists() {
        return eprintln!("SKIPPED: this user may not make a memory cgroup here");
    }
    let mut backend = HostBackend::open_cgroup(cgroup, "a test".into()).unwrap();
    let clock = Clock::start();
    let mut sample = || {
        let mut samples = Vec::new();
        backend
            .sample(&clock, Wanted::default(), &mut samples)
            .map(|()| samples.len())
    };
    assert_eq!(sample(), Ok(1));
    std::fs::remove_dir(&below.0).unwrap();
    for _ in 0..2 {
        assert!(matches!(sample(), Err(ReadingError::Gone(_))));
    }
    std::fs::create_dir(&below.0).unwrap();
    assert_eq!(sample(), Ok(1));
}
