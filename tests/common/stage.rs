//! A stage for tests of the NVML backend: the stand-in library and a scenario for it.
//!
//! A library stays in a process once it is loaded, and its scenario is named by the environment:
//! so every test runs its body in a process of its own, which is this binary called again.
#![allow(dead_code, missing_docs, clippy::print_stderr)]

use crate::common::skip;
use plimsoll::capture::MemorySample;
use plimsoll::clock::Clock;
use plimsoll::error::{ExitCode, Failure};
use plimsoll::telemetry::{
    BackendChoice, LIBRARY_VARIABLE, MeasuredContainer, MemoryBackend, ReadingError, Wanted,
    open_backend,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub const SCENARIO_VARIABLE: &str = "PLIMSOLL_FAKE_NVML";
const CHILD_VARIABLE: &str = "PLIMSOLL_NVML_TEST_CHILD";

/// The stand-in library, built if nothing else has.
pub fn library() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let library = profile.join("examples/libfake_nvml.so");
        // `cargo test --test nvml` alone builds no examples.
        if !is_fresh(&library) {
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .args(["build", "--example", "fake_nvml", "--target-dir"])
                .arg(profile.parent().unwrap());
            if profile.ends_with("release") {
                cargo.arg("--release");
            }
            assert!(
                cargo
                    .current_dir(env!("CARGO_MANIFEST_DIR"))
                    .status()
                    .unwrap()
                    .success()
            );
        }
        library
    });
    path.clone()
}

/// Whether the library is newer than its source.
fn is_fresh(library: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml");
    let newest = std::fs::read_dir(sources)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| changed(&e.path()))
        .max();
    changed(library).is_some_and(|built| newest.is_none_or(|n| n <= built))
}

/// A test's scenario, which it may change as it goes.
pub struct Stage {
    pub clock: Clock,
}

impl Stage {
    pub fn play(&self, scenario: &str) {
        let path = PathBuf::from(std::env::var_os(SCENARIO_VARIABLE).unwrap());
        let next = path.with_extension("next");
        std::fs::write(&next, scenario).unwrap();
        std::fs::rename(next, path).unwrap();
    }

    pub fn sample(
        &self,
        backend: &mut dyn MemoryBackend,
        detail: bool,
    ) -> (Vec<MemorySample>, Result<(), ReadingError>) {
        let mut samples = Vec::new();
        let result = backend.sample(
            &self.clock,
            Wanted {
                detail,
                bench_client: None,
            },
            &mut samples,
        );
        (samples, result)
    }
}

pub fn staged(test: &str, scenario: &str, body: impl FnOnce(&Stage)) {
    staged_with(test, scenario, &library(), body);
}

pub fn staged_with(test: &str, scenario: &str, library: &Path, body: impl FnOnce(&Stage)) {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        return body(&Stage {
            clock: Clock::start(),
        });
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario");
    std::fs::write(&file, scenario).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD_VARIABLE, "1")
        .env(SCENARIO_VARIABLE, &file)
        .env(LIBRARY_VARIABLE, library)
        .env("XDG_STATE_HOME", directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "no test is named {test}: {text}");
    for reason in text.lines().filter_map(|l| l.strip_prefix("SKIPPED: ")) {
        skip::skip(test, reason);
    }
}

/// This process as if it were process 1 of a container.
pub fn target(gpu_request: &[&str]) -> MeasuredContainer {
    MeasuredContainer {
        init_pid: Some(std::process::id()),
        container_id: own_id().unwrap_or_default(),
        gpu_request: gpu_request.iter().map(|r| (*r).to_owned()).collect(),
        ..MeasuredContainer::default()
    }
}

/// The name of this process' own cgroup stands for the container's id; `None` in the root cgroup.
pub fn own_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let names = text
        .lines()
        .filter_map(|l| l.rsplit(['/', ':']).next())
        .map(|n| n.trim_end_matches(".scope"));
    names.map(str::to_owned).find(|name| !name.is_empty())
}

pub fn nvml(target: &MeasuredContainer) -> Box<dyn MemoryBackend> {
    open_backend(BackendChoice::Nvml, target).unwrap()
}

pub fn refused(choice: BackendChoice, target: &MeasuredContainer) -> Failure {
    let failure = open_backend(choice, target)
        .err()
        .expect("it is not usable");
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(!failure.hints.is_empty(), "{failure}");
    failure
}
