//! `plimsoll replay` as people use it: what it shows of a run, and what it says of mistakes.

use crate::common::captures;
use assert_cmd::Command;
use captures::*;
use plimsoll::capture::{DeviceFacts, SamplingFacts};
use plimsoll::store::{CaptureWriter, RecordingHeader, RecordingWriter};
use std::path::{Path, PathBuf};

/// A command in a locale whose characters are UTF-8.
fn replay(args: &[&str]) -> (String, String, i32) {
    let output = Command::cargo_bin("plimsoll")
        .unwrap()
        .env("LC_ALL", "C.UTF-8")
        .arg("replay")
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code().unwrap(),
    )
}

/// A capture and its profile, as a run leaves them.
fn stored(folder: &Path, name: &str, built: &Built) -> PathBuf {
    let capture = folder.join(format!("{name}.capture"));
    std::fs::create_dir_all(&capture).unwrap();
    let mut writer = CaptureWriter::create_folder(&capture, u64::MAX).unwrap();
    built.lines.iter().for_each(|l| writer.add_line(l));
    built.samples.iter().for_each(|s| writer.write_sample(s));
    writer.finish_capture(&built.capture).unwrap();
    let profile = folder.join(format!("{name}.json"));
    std::fs::write(&profile, serde_json::to_vec(&built.derive()).unwrap()).unwrap();
    profile
}

/// vLLM on two GPUs, by its own run.
fn named(run: &str) -> Built {
    let mut built = two_gpus();
    built.capture.run_id = run.into();
    built
}

#[test]
fn a_run_is_shown_by_its_profile_its_capture_and_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let profile = stored(dir.path(), "a", &named("one"));
    let capture = dir.path().join("a.capture");
    let highest = |index: u32| {
        let all = two_gpus().samples.into_iter().filter(|s| s.device == index);
        all.map(|s| s.high_bytes.unwrap_or(0).max(s.used_bytes) + s.reserved_bytes.unwrap_or(0))
            .max()
            .unwrap() as f64
            / GIB as f64
    };
    for path in [profile.as_path(), &capture, dir.path()] {
        let (page, said, code) = replay(&[path.to_str().unwrap()]);
        assert_eq!(code, 0, "{said}");
        for index in [0, 1] {
            let top = format!("to {:.2} of", highest(index));
            let line = page
                .lines()
                .find(|l| l.starts_with(&format!("GPU {index} memory:")))
                .unwrap();
            assert!(line.contains(&top), "{line}: {top}");
        }
        assert!(page.contains("phases") && page.contains('█'), "{page}");
        assert!(
            page.contains("highest") && page.contains("samples of memory"),
            "{page}"
        );
    }
    let (page, _, code) = replay(&[profile.to_str().unwrap(), "--device", "1"]);
    assert!(
        code == 0 && page.contains("GPU 1 memory") && !page.contains("GPU 0 memory"),
        "{page}"
    );
    // Off a terminal nothing is played.
    let (page, said, code) = replay(&[profile.to_str().unwrap(), "--speed", "100"]);
    assert!(
        code == 0 && page.contains("GPU 0 memory") && said.contains("not a terminal"),
        "{said}"
    );
}

#[test]
fn a_profile_whose_capture_is_gone_shows_its_own_points() {
    let dir = tempfile::tempdir().unwrap();
    let profile = stored(dir.path(), "a", &named("one"));
    std::fs::remove_dir_all(dir.path().join("a.capture")).unwrap();
    let (page, said, code) = replay(&[profile.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert!(
        page.contains("Memory of all devices") && page.contains("capture is not beside"),
        "{page}"
    );
    let (_, said, code) = replay(&[profile.to_str().unwrap(), "--device", "0"]);
    assert!(code == 2 && said.contains("sum over its devices"), "{said}");
}

#[test]
fn a_recording_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session.jsonl");
    let built = two_gpus();
    let header = RecordingHeader {
        devices: vec![DeviceFacts {
            index: 0,
            total_bytes: Some(80 * GIB),
            ..built.capture.devices[0].clone()
        }],
        interval_ns: 100_000_000,
        ..RecordingHeader::default()
    };
    let mut writer = RecordingWriter::create_file(&path, header).unwrap();
    for sample in built.samples.iter().filter(|s| s.device == 0) {
        writer.write_sample(sample).unwrap();
    }
    writer.finish_recording(SamplingFacts::default()).unwrap();
    let (page, said, code) = replay(&[path.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert!(
        page.contains("GPU 0 memory:") && page.contains("80.00"),
        "{page}"
    );
}

#[test]
fn mistakes_are_told_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let profile = stored(dir.path(), "a", &named("one"));
    let shown = profile.to_str().unwrap();
    let hostile = dir.path().join("\u{1b}[2J\u{202e}x");
    std::fs::create_dir(&hostile).unwrap();
    let empty = hostile.to_str().unwrap();
    let nowhere = dir.path().join("nowhere");
    let not = dir.path().join("not.json");
    std::fs::write(&not, "{\"a\": 1}").unwrap();
    for (args, says) in [
        (vec![nowhere.to_str().unwrap()], "cannot read"),
        (vec![empty], "no run in"),
        (vec![not.to_str().unwrap()], "not a profile"),
        (
            vec![shown, "--from", "5", "--to", "5"],
            "no sample from second 5",
        ),
        (
            vec![shown, "--from", "1e9"],
            "no sample from second 1000000000",
        ),
        (vec![shown, "--from", "nan"], "a number of seconds"),
        (vec![shown, "--device", "7"], "device 7 was not measured"),
        (vec![shown, "--speed", "0"], "a number above 0"),
    ] {
        let (page, said, code) = replay(&args);
        assert_eq!((code, page.as_str()), (2, ""), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(
            !said.contains('\u{1b}') && !said.contains('\u{202e}'),
            "{said:?}"
        );
    }
    // Of several runs one must be named, and all of them are.
    stored(dir.path(), "b", &named("two"));
    let (_, said, code) = replay(&[dir.path().to_str().unwrap()]);
    assert!(
        code == 2 && said.contains("a.json") && said.contains("b.json"),
        "{said}"
    );
}
