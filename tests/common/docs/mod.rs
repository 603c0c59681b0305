//! The commands of the documentation, and a place to run them in.
#![allow(dead_code, missing_docs)]

pub mod markdown;
pub mod shell;
pub mod stage;

use markdown::{Page, pages};
use plimsoll::cli::whole_command;
use shell::{Line, codes, lines};
use stage::{Ended, Stage};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

/// Every command of every page, and of every page of help.
pub fn commands() -> Vec<Line> {
    let mut all: Vec<Line> = pages().iter().flat_map(lines).collect();
    all.extend(examples(&whole_command(), ""));
    all
}

/// The examples under the pages of help.
fn examples(command: &clap::Command, above: &str) -> Vec<Line> {
    let name = format!("{above} {}", command.get_name());
    let help = command.get_after_help().map(ToString::to_string);
    // As a block of a page is written; what an example says of itself stands behind it.
    let block = |line: &str| match line.strip_prefix("  ") {
        Some(example) => format!("    {}", example.replacen("   ", " # ", 1)),
        None => format!("{line}\n"),
    };
    let text: Vec<String> = help.unwrap_or_default().lines().map(block).collect();
    let page = Page {
        path: PathBuf::from(format!("help of{name}")),
        text: text.join("\n"),
    };
    let mut found = lines(&page);
    found.extend(command.get_subcommands().flat_map(|c| examples(c, &name)));
    found
}

pub fn no_faults(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "{} of them:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Runs each once on a stage of its own, two at a time, and tells what went wrong.
pub fn run_all(lines: impl Iterator<Item = (Line, String)> + Send) {
    let faults = Mutex::new(Vec::new());
    let mut seen = BTreeSet::new();
    let queue = Mutex::new(lines.filter(move |(_, text)| seen.insert(text.clone())));
    let measuring = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((line, text)) = queue.lock().expect("queue").next() else {
                        return;
                    };
                    // One container is measured by one plimsoll at a time.
                    let alone = text.contains("plimsoll loadline");
                    let alone = alone.then(|| measuring.lock().expect("one at a time"));
                    let Ended {
                        code,
                        stdout,
                        stderr,
                    } = Stage::new().shell(&text);
                    drop(alone);
                    let calm = !stderr.contains("panicked") && !stderr.contains("bug in plimsoll");
                    if !(codes(&line).contains(&code) && calm) {
                        let told =
                            format!("{}: {text}\nended with {code}\n{stdout}{stderr}", line.at);
                        faults.lock().expect("faults").push(told);
                    }
                }
            });
        }
    });
    no_faults(&faults.into_inner().expect("faults"));
}
