//! `plimsoll report` as people use it: folders and files in, reports out, and what is refused.

use crate::common::captures;
use assert_cmd::Command;
use captures::*;
use plimsoll::profile::Profile;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

/// How a call ended: exit code, standard output, standard error in one line.
type Ended = (i32, String, String);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn profile(&self, name: &str, profile: &Profile) -> PathBuf {
        self.put(name, serde_json::to_vec(profile).unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("plimsoll").unwrap();
        command
            .arg("report")
            .args(args)
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("GITHUB_STEP_SUMMARY")
            .current_dir(self.0.path());
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        let out = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let talk = text(out.stderr);
        let talk: Vec<&str> = talk.split_whitespace().collect();
        (out.status.code().unwrap(), text(out.stdout), talk.join(" "))
    }
}

/// The example that ships, as another run.
fn example(run: &str) -> Profile {
    let text = include_str!("../results/example/tiny-profile.json");
    let mut profile: Profile = serde_json::from_str(text).unwrap();
    profile.metadata.run_id = run.into();
    profile
}

fn read(path: &Path) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_report_lies_beside_its_profile_and_its_path_is_printed() {
    let folder = Folder::new();
    folder.profile("results/a.json", &example("a"));
    let (code, out, talk) = folder.run(&["results/a.json", "--format", "html,md,txt,csv"]);
    assert_eq!(code, 0, "{talk}");
    for name in ["a-report.html", "a-report.md", "a-report.txt"] {
        assert!(out.contains(&format!("results/{name}\n")), "{out}");
        let text = read(&folder.path(&format!("results/{name}")));
        assert!(
            text.contains("tiny") && text.contains("Model weights"),
            "{name}"
        );
    }
    assert!(out.lines().any(|l| l.ends_with(".csv")), "{out}");
    // The folder's own report does not take the profile's name, and is written over.
    for _ in 0..2 {
        let (code, out, talk) = folder.run(&["results"]);
        assert_eq!((code, out.as_str()), (0, "results/report.html\n"), "{talk}");
    }
}

#[test]
fn the_same_material_makes_the_same_bytes() {
    let folder = Folder::new();
    folder.profile("a.json", &example("a"));
    let mut made = Vec::new();
    for name in ["x.html", "y.html"] {
        assert_eq!(folder.run(&["a.json", "-o", name]).0, 0);
        made.push(std::fs::read(folder.path(name)).unwrap());
    }
    assert_eq!(made[0], made[1]);
}

#[test]
fn mistakes_are_told_with_their_way_out() {
    let folder = Folder::new();
    folder.profile("a.json", &example("a"));
    folder.put("b.json", "dear diary");
    std::fs::create_dir(folder.path("empty")).unwrap();
    let cases: [(&[&str], &str); 9] = [
        (
            &["a.json", "--format", "pdf"],
            "unknown report format `pdf`",
        ),
        (&["a.json", "--format", "htm"], "formats: html"),
        (&["empty"], "there is nothing to report on in `empty`"),
        (&["nowhere"], "cannot read `nowhere`"),
        (&["b.json"], "`b.json` is not a profile"),
        (
            &["a.json", "--format", "html,md", "-o", "-"],
            "2 formats do not go to `-`",
        ),
        (&["a.json", "--compare"], "--compare takes two profiles"),
        (
            &["a.json", "--gpu-hour-price", "0"],
            "must be a number above 0",
        ),
        (&["a.json", "--currency", "USD"], "--gpu-hour-price"),
    ];
    for (args, words) in cases {
        let (code, out, talk) = folder.run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {talk}");
        assert!(talk.contains(words), "{args:?}: {talk}");
    }
    assert!(!folder.path("a-report.html").exists());
}

#[test]
fn a_file_that_is_no_report_stays_unless_forced() {
    let folder = Folder::new();
    folder.profile("a.json", &example("a"));
    let diary = folder.put("diary.html", "dear diary");
    let (code, _, talk) = folder.run(&["a.json", "-o", "diary.html"]);
    assert_eq!(code, 2, "{talk}");
    assert!(talk.contains("--force"), "{talk}");
    assert_eq!(read(&diary), "dear diary");
    let (code, _, talk) = folder.run(&["a.json", "-o", "diary.html", "--force"]);
    assert_eq!(code, 0, "{talk}");
    assert!(read(&diary).contains("Model weights"));
    // And now it is a report.
    assert_eq!(folder.run(&["a.json", "-o", "diary.html"]).0, 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_of_the_environment() {
    let folder = Folder::new();
    folder.profile("a.json", &example("a"));
    folder.put("file", "");
    let (code, out, talk) = folder.run(&["a.json", "-o", "file/below/"]);
    assert_eq!((code, out.as_str()), (3, ""), "{talk}");
    assert!(
        talk.contains("choose another place with --output"),
        "{talk}"
    );
    let closed = folder.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    // Root writes everywhere.
    if std::fs::write(closed.join("probe"), "").is_err() {
        let (code, _, talk) = folder.run(&["a.json", "-o", "closed"]);
        assert_eq!(code, 3, "{talk}");
    }
}

#[test]
fn runs_of_one_name_are_told_apart_by_their_folders() {
    let folder = Folder::new();
    folder.profile("x/a.json", &example("first"));
    folder.profile("y/a.json", &example("second"));
    // A copy is the same run.
    folder.profile("z/a.json", &example("second"));
    let (code, out, talk) = folder.run(&[".", "--format", "md", "-o", "-"]);
    assert_eq!(code, 0, "{talk}");
    assert!(out.contains("x/a") && out.contains("y/a"), "{out}");
    assert!(out.contains("2 runs") && !out.contains("z/a"), "{out}");
}

#[test]
fn a_document_whose_figures_disagree_is_reported() {
    let folder = Folder::new();
    let mut sound = example("sound");
    folder.profile("sound.json", &sound);
    let (_, out, talk) = folder.run(&["sound.json", "--format", "md", "-o", "-"]);
    assert!(
        !out.contains("parts_do_not_sum") && talk.is_empty(),
        "{talk}"
    );
    // Changed by hand: the figures in GiB, and the parts of a device.
    sound.memory_breakdown.kv_cache_gb = Some(9.0);
    folder.profile("changed.json", &sound);
    let mut device = example("device");
    device.memory_breakdown.per_gpu[0].parts[0].bytes += 4096;
    folder.profile("device.json", &device);
    for (file, part) in [("changed.json", "kv_cache_gb"), ("device.json", "device 0")] {
        let (code, out, talk) = folder.run(&[file, "--format", "md", "-o", "-"]);
        assert_eq!(code, 0, "{talk}");
        assert!(
            out.contains("parts_do_not_sum") && out.contains(part),
            "{file}: {out}"
        );
        assert!(talk.contains(part), "{file}: {talk}");
    }
}

#[test]
fn a_hostile_name_of_a_model_stays_text() {
    let folder = Folder::new();
    let mut profile = example("a");
    let name = "</script><script>alert(1)</script>\u{1b}[31m\u{202e}| a | b";
    profile.model_info.name = Some(name.into());
    profile.raw_logs.bench = format!("```\n{name}\n");
    folder.profile("a.json", &profile);
    let (code, html, talk) = folder.run(&["a.json", "-o", "-"]);
    assert_eq!(code, 0, "{talk}");
    assert!(!html.contains("<script>alert"), "a script came through");
    let (_, markdown, _) = folder.run(&["a.json", "--format", "md", "-o", "-"]);
    for text in [&html, &markdown] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new();
    let mut profile = example("a");
    // More than a pipe holds.
    profile.raw_logs.bench = "a line of the bench\n".repeat(20_000);
    folder.profile("a.json", &profile);
    let binary = assert_cmd::cargo::cargo_bin("plimsoll");
    let out = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!(
            "({} report a.json -o -; echo $? >code) | head -c 10 >/dev/null",
            binary.display()
        ))
        .current_dir(folder.0.path())
        .output()
        .unwrap();
    assert!(
        out.stderr.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(read(&folder.path("code")).trim(), "0");
}

#[test]
fn markdown_goes_to_the_summary_of_a_step() {
    let folder = Folder::new();
    folder.profile("a.json", &example("a"));
    let summary = folder.put("summary.md", "before\n");
    let mut command = folder.command(&["a.json", "--format", "md"]);
    let out = command
        .env("GITHUB_STEP_SUMMARY", &summary)
        .output()
        .unwrap();
    assert!(out.status.success());
    let text = read(&summary);
    assert!(
        text.starts_with("before\n") && text.contains("Model weights"),
        "{text}"
    );
    assert!(folder.path("a-report.md").exists());
}

#[test]
fn a_capture_lends_its_samples_and_the_lines_of_its_log() {
    let folder = Folder::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/example");
    let capture = folder.path("tiny-profile.capture");
    std::fs::create_dir(&capture).unwrap();
    for file in ["capture.json", "log.txt", "samples.jsonl"] {
        std::fs::copy(
            example.join("tiny-profile.capture").join(file),
            capture.join(file),
        )
        .unwrap();
    }
    // Without its profile one is derived.
    for args in [["tiny-profile.capture"], ["tiny-profile.json"]] {
        let mut args = args.to_vec();
        args.extend(["--format", "txt", "-o", "-"]);
        let (code, out, talk) = folder.run(&args);
        assert_eq!(code, 0, "{talk}");
        assert!(
            out.contains("weights") && !out.contains("own points"),
            "{out}"
        );
        std::fs::copy(
            example.join("tiny-profile.json"),
            folder.path("tiny-profile.json"),
        )
        .unwrap();
    }
}

#[test]
fn five_hundred_runs_are_one_page_of_five_megabytes() {
    let folder = Folder::new();
    let profile = two_gpus().derive();
    for i in 0..500 {
        let mut profile = profile.clone();
        profile.metadata.run_id = format!("run-{i}");
        folder.profile(&format!("r/p{i:03}.json"), &profile);
    }
    let (code, out, talk) = folder.run(&["r"]);
    assert_eq!((code, out.as_str()), (0, "r/report.html\n"), "{talk}");
    let page = read(&folder.path("r/report.html"));
    assert!(page.len() < 5 << 20, "{} bytes", page.len());
    assert!(page.contains("p000") && page.contains("p499"));
}

#[test]
fn a_document_of_any_command_is_a_page_from_standard_input() {
    let folder = Folder::new();
    let estimate = Command::cargo_bin("plimsoll")
        .unwrap()
        .args(["estimate", "Qwen/Qwen3-32B", "--gpu", "L4"])
        .env("XDG_STATE_HOME", folder.path("state"))
        .current_dir(folder.path("."))
        .output()
        .unwrap();
    let printed = String::from_utf8(estimate.stdout).unwrap();
    let document = Command::cargo_bin("plimsoll")
        .unwrap()
        .args(["estimate", "Qwen/Qwen3-32B", "--gpu", "L4", "--json"])
        .env("XDG_STATE_HOME", folder.path("state"))
        .current_dir(folder.path("."))
        .output()
        .unwrap()
        .stdout;
    let ablation = include_bytes!("differential/documents/ablation/ablation.json");
    for (document, verdict, figure) in [
        (document.as_slice(), "Does not fit by 43.38 GiB", "61.03"),
        (ablation.as_slice(), "than A", "MiB"),
    ] {
        for format in ["html", "md", "txt"] {
            let args = ["-", "--format", format, "-o", "-"];
            let out = folder
                .command(&args)
                .write_stdin(document)
                .output()
                .unwrap();
            let page = String::from_utf8(out.stdout).unwrap();
            assert_eq!(out.status.code(), Some(0), "{format}");
            assert!(page.contains(verdict) && page.contains(figure), "{page}");
        }
    }
    // The terminal has the same words.
    assert!(printed.contains("Does not fit by 43.38 GiB") && printed.contains("61.03"));
    let broken = r#"{"document": "estimate"}"#;
    let out = folder.command(&["-"]).write_stdin(broken).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(
        String::from_utf8(out.stderr)
            .unwrap()
            .contains("cannot be read")
    );
}

#[test]
fn a_folder_of_several_kinds_is_named_after_what_is_in_it() {
    let folder = Folder::new();
    folder.profile("results/run.json", &example("r1"));
    let documents = [
        (
            "ablation.json",
            include_bytes!("differential/documents/ablation/ablation.json").as_slice(),
        ),
        (
            "loadline.json",
            include_bytes!("differential/documents/loadline/loadline.json"),
        ),
        (
            "sweep.json",
            include_bytes!("differential/documents/sweep-first/results.json"),
        ),
    ];
    for (name, bytes) in documents {
        folder.put(&format!("results/{name}"), bytes);
    }
    let (code, page, talk) = folder.run(&["results", "--format", "md", "-o", "-"]);
    assert_eq!(code, 0, "{talk}");
    let title = "# Results: 1 sweep, 1 load line, 1 other document, 1 run\n";
    assert!(page.starts_with(title), "{page}");
    assert!(page.contains("Safe: peak"), "the run's own verdict: {page}");
    assert!(page.contains("Sustains 13 concurrent requests; fails at 14."));
    assert!(page.len() < 60_000);
}
