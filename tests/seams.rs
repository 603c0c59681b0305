//! Who may use whom, checked in the source (the table stands in src/lib.rs). A seam that leaks is
//! cheap to mend on the day it leaks.

use std::path::{Path, PathBuf};

struct Source {
    /// Path below `src`, with slashes.
    path: String,
    text: String,
}

impl Source {
    /// The module that a rule speaks of: the first part of the path.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or(&self.path);
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Lines of code, numbered from 1: comments and the unit tests at the end left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
            .map(|(i, line)| (i + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs")
    }
}

/// Every file of Rust below a folder.
fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // What cargo built there is none of ours.
            if !path.ends_with("target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect(&src, &mut paths);
    paths.sort();
    assert!(paths.len() > 20, "the source is not where it was");
    paths
        .into_iter()
        .map(|path| Source {
            path: path
                .strip_prefix(&src)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/"),
            text: std::fs::read_to_string(&path).unwrap(),
        })
        .collect()
}

/// Lines of non-test code that hold one of the words, as `path:line: text`.
fn uses(mine: impl Fn(&Source) -> bool, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| !s.is_test() && mine(s)) {
        for (number, line) in source.code() {
            if words.iter().any(|w| names(line, w)) {
                found.push(format!("src/{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

/// Whether the line names the word and not a longer one.
fn names(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let longer = before.is_some_and(part) || word.ends_with(part) && after.is_some_and(part);
        !longer
    })
}

fn nowhere(found: Vec<String>, advice: &str) {
    assert!(found.is_empty(), "{advice}\n{}", found.join("\n"));
}

/// Modules from the top down. Each may use those on the lines below its own.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["commands"],
    &["cli", "console"],
    &["sweep"],
    &["collect", "live", "clean"],
    &["container", "telemetry", "load", "store", "models"],
    &["report"],
    &["tune"],
    &["matrix", "loadline"],
    &["compare", "experiment"],
    &["profile"],
    &["breakdown"],
    &["launch"],
    &["estimate"],
    &["engine"],
    &[
        "bounded", "catalog", "clock", "error", "headroom", "host", "preset", "progress", "redact",
        "sync", "tables", "units", "wording",
    ],
    &["capture"],
];

#[test]
fn modules_use_only_what_stands_below_them() {
    let layer = |module: &str| LAYERS.iter().position(|l| l.contains(&module));
    let modules: Vec<&str> = LAYERS.iter().flat_map(|l| l.iter().copied()).collect();
    let mut found = Vec::new();
    for source in sources()
        .iter()
        .filter(|s| !s.is_test() && s.path != "lib.rs")
    {
        let own = source.module();
        let Some(mine) = layer(own) else {
            panic!(
                "module `{own}` (src/{}) has no place in LAYERS: give it one here and in the table of src/lib.rs",
                source.path
            );
        };
        for (number, line) in source.code() {
            for other in modules.iter().filter(|m| **m != own) {
                let reached = ["crate::", "plimsoll::"]
                    .iter()
                    .any(|root| names(line, &format!("{root}{other}")));
                let below = layer(other).is_some_and(|theirs| theirs > mine);
                // Facts and words at the bottom may know each other.
                let ground = mine == LAYERS.len() - 2 && layer(other) == Some(mine);
                if reached && !below && !ground {
                    found.push(format!("src/{}:{number}: {}", source.path, line.trim()));
                }
            }
        }
    }
    nowhere(
        found,
        "a module uses one that stands above or beside it: move the shared word down, or pass it as an argument",
    );
}

#[test]
fn capture_knows_nobody() {
    // Its own files may know each other.
    let words = ["crate::", "super::super"];
    nowhere(
        uses(|s| s.module() == "capture", &words),
        "capture.rs is the shared vocabulary: it imports nothing of ours",
    );
}

#[test]
fn engines_are_text_in_values_out() {
    let words = [
        "std::fs",
        "std::net",
        "std::process",
        "tokio",
        "bollard",
        "hyper",
        "std::time::SystemTime",
        "Instant::now",
    ];
    nowhere(
        uses(|s| s.module() == "engine", &words),
        "engine/ has no I/O and no clock: let collect fetch it and hand it in as text",
    );
}

#[test]
fn deriving_and_rendering_are_pure() {
    let words = [
        "std::fs",
        "std::env::var",
        "std::net",
        "std::process",
        "tokio",
        "bollard",
        "SystemTime",
        "Instant::now",
        "Timestamp::now",
        "Zoned::now",
        "io::stdout",
        "io::stderr",
    ];
    let pure = |s: &Source| {
        matches!(
            s.module(),
            "compare"
                | "experiment"
                | "loadline"
                | "matrix"
                | "profile"
                | "tune"
                | "breakdown"
                | "estimate"
                | "report"
        )
    };
    nowhere(
        uses(pure, &words),
        "compare/, experiment/, matrix/, profile/, breakdown and report/ give the same bytes for the same capture: take what they need as an argument",
    );
}

#[test]
fn each_library_has_one_door() {
    for (library, door, may) in [
        ("bollard", "container/", &["container"][..]),
        ("nvml_wrapper", "telemetry/nvml.rs", &["telemetry/nvml"][..]),
        ("indicatif", "console.rs", &["console"][..]),
        ("hyper_rustls", "models/hub/http.rs", &["models/hub"][..]),
        ("clap", "cli.rs", &["cli", "main"][..]),
        (
            "ratatui",
            "console/screen.rs",
            &["console/screen", "live/screen"][..],
        ),
        (
            "prometheus_client",
            "live/metrics.rs",
            &["live/metrics"][..],
        ),
        ("clap_complete", "cli/shell.rs", &["cli/shell"][..]),
        ("clap_mangen", "cli/shell.rs", &["cli/shell"][..]),
        (
            "serde_yaml",
            "tables.rs",
            &[
                "tables",
                "preset",
                "catalog",
                "matrix",
                "estimate/unmodelled",
                "launch",
            ][..],
        ),
        (
            "saphyr_parser",
            "matrix/file/tree.rs",
            &["matrix/file/tree"][..],
        ),
    ] {
        let outside = |s: &Source| {
            !may.iter().any(|m| {
                s.path == format!("{m}.rs")
                    || s.path.starts_with(&format!("{m}/"))
                    || s.path.starts_with(&format!("{m}_"))
            })
        };
        nowhere(
            uses(
                outside,
                &[&format!("{library}::"), &format!("use {library}")],
            ),
            &format!("{library} is used in {door} only: give that a function for what you need"),
        );
    }
}

#[test]
fn only_the_console_talks() {
    let words = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];
    nowhere(
        uses(|s| s.module() != "console", &words),
        "what people see goes through console.rs (off a terminal other ways lose it): send Progress, or use Console",
    );
}

#[test]
fn only_main_exits() {
    let known = |s: &Source| s.path != "main.rs" && s.path != "commands/load.rs";
    nowhere(
        uses(known, &["process::exit"]),
        "return an error with its exit code instead: an exit in the middle leaves containers behind",
    );
}

#[test]
fn every_file_says_what_it_is() {
    for source in sources() {
        assert!(
            source.text.starts_with("//! "),
            "src/{} must begin with one `//!` sentence that says what it is",
            source.path
        );
    }
}

/// What makes a file or a folder, or says who may read it.
const MAKES: &[&str] = &[
    "File::create",
    "File::create_new",
    "File::options",
    "OpenOptions",
    "OFlags::CREATE",
    "OFlags::TMPFILE",
    "fs::write",
    "fs::copy",
    "create_dir",
    "create_dir_all",
    "DirBuilder",
    "set_permissions",
    "tempfile::",
    "mkdirat",
    "mknodat",
    "fs::symlink",
];

#[test]
fn one_place_creates_files_and_folders() {
    nowhere(
        // The kernel's freezer is written to, and makes no file.
        uses(
            |s| !["store/private.rs", "container/freezer.rs"].contains(&s.path.as_str()),
            MAKES,
        ),
        "files and folders of ours are made by store::private, so that each is its owner's alone",
    );
}

/// Where files are opened that are not found in results: those of the kernel, and the user's own.
const OPENS: &[&str] = &[
    // The opener itself.
    "bounded.rs",
    // Folders, to be synced or locked, and the kernel's list of locks.
    "store/private.rs",
    "store/jsonl.rs",
    "store/lock.rs",
    // What the kernel tells: /proc and /sys.
    "telemetry/",
    "container/",
    "clean/",
    "host.rs",
    "host/",
    "commands/load.rs",
    // Each looks first whether it is a regular file, and bounds it; the store is not below them.
    "models/",
    "preset.rs",
];

#[test]
fn what_lies_in_results_is_opened_in_one_place() {
    nowhere(
        uses(
            |s| !OPENS.iter().any(|place| s.path.starts_with(place)),
            &["File::open", "fs::read(", "fs::read_to_string"],
        ),
        "a pipe would hang us, and a device fill the memory: store::bounded opens what others may have written",
    );
}

/// Files with `unsafe` in them, and how many blocks and functions of it each has.
const UNSAFE: &[(&str, usize)] = &[
    // What the driver knows and nvml-wrapper has no safe call for.
    ("telemetry/nvml/calls.rs", 1),
    ("telemetry/nvml/lists.rs", 4),
];

#[test]
fn every_unsafe_is_listed_and_argued() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("unsafe_code = \"deny\""));
    let mut found = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        let mut count = 0;
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // A word in a string is none.
            if !names(code, "unsafe")
                || code.contains("\"unsafe\"")
                || code.contains("unsafe extern")
            {
                continue;
            }
            count += 1;
            let above = lines[..i].iter().rev().map(|l| l.trim());
            let argued = above
                .take_while(|l| l.starts_with("//") || l.starts_with("#[") || l.starts_with("let "))
                .any(|l| l.starts_with("// SAFETY: ") || l == "/// # Safety");
            assert!(
                argued || line.contains("// SAFETY: "),
                "src/{}:{}: why is it sound?",
                source.path,
                i + 1
            );
        }
        if count > 0 {
            found.push((source.path.clone(), count));
        }
    }
    let listed: Vec<(String, usize)> = UNSAFE
        .iter()
        .map(|(path, n)| ((*path).to_owned(), *n))
        .collect();
    assert_eq!(
        found, listed,
        "`unsafe` is listed here, with its reason, or done without"
    );
}

/// Where a shell gets a program: each is a constant, and what varies are its arguments.
const SHELLS: &[(&str, usize)] = &[
    // Written through a shell in the container, where the archive endpoint does not see a tmpfs.
    ("container/copy.rs", 1),
    // Signals from inside, where the host does not show the container's processes.
    ("container/ending.rs", 1),
    // llama.cpp's bench writes its result to stdout only.
    ("engine/llama_cpp/bench.rs", 2),
    // ssh hands one line to a shell over there; it is joined by shlex.
    ("sweep/remote/host.rs", 1),
];

#[test]
fn shells_get_constant_programs_only() {
    let mut found: Vec<(String, usize)> = Vec::new();
    for source in sources().iter().filter(|s| !s.is_test()) {
        let code: Vec<&str> = source.code().map(|(_, line)| line.trim()).collect();
        let text = code.join(" ");
        let count =
            text.matches("\"sh\", \"-c\"").count() + text.matches("\"bash\", \"-c\"").count();
        let line = text.matches("\"sh -c").count() + text.matches("\"bash -c").count();
        assert_eq!(line, 0, "src/{}: a shell line in one string", source.path);
        if count > 0 {
            found.push((source.path.clone(), count));
        }
    }
    let listed: Vec<(String, usize)> = SHELLS
        .iter()
        .map(|(path, n)| ((*path).to_owned(), *n))
        .collect();
    assert_eq!(
        found, listed,
        "commands are argv; a shell is listed here with its reason"
    );
}

#[test]
fn programs_of_this_host_are_started_in_few_places() {
    let known = [
        "telemetry/amd/smi/run.rs",
        "sweep/slurm/submit.rs",
        "sweep/remote/host.rs",
    ];
    nowhere(
        uses(
            |s| !known.contains(&s.path.as_str()),
            &["Command::new", "process::Command"],
        ),
        "a program is started by its argv, with its time and output bounded: say here which",
    );
}
