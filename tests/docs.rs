//! The pages of the documentation are true as far as a machine can tell: every command in them is run, or read by what
//! would run it; links lead somewhere; what transcripts show is printed. Commands that need a container are run in
//! docs_containers.

use crate::common::docs::markdown::{Page, pages, root};
use crate::common::docs::shell::Class;
use crate::common::docs::stage::{Ended, Stage};
use crate::common::docs::{commands, no_faults, run_all};
use clap::{CommandFactory, Parser};
use plimsoll::cli::Cli;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[test]
fn the_readme_is_short() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README");
    let lines = readme.lines().count();
    assert!(lines <= 120, "{lines} lines: what is long goes to docs/");
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let mut faults = Vec::new();
    for page in &pages {
        for (line, target) in page.links() {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let at = format!("{}:{line}: {target}", page.name());
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file.is_empty() {
                true => root().join(&page.path),
                false => root()
                    .join(&page.path)
                    .parent()
                    .expect("a folder")
                    .join(file),
            };
            if !path.exists() {
                faults.push(format!("{at}: there is no such file"));
                continue;
            }
            if anchor.is_empty() {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a page");
            let there = Page { path, text }.anchors();
            if !there.iter().any(|a| a == anchor) {
                faults.push(format!("{at}: it has no such heading, but {there:?}"));
            }
        }
    }
    no_faults(&faults);
}

#[test]
fn files_that_are_named_exist() {
    const FOLDERS: &[&str] = &[
        "docs/",
        "src/",
        "tests/",
        "scripts/",
        "configs/",
        "containers/",
        "examples/",
        "fuzz/",
        "benches/",
        ".ci/",
    ];
    let mut faults = Vec::new();
    for page in pages() {
        for (line, span) in page.spans() {
            let path = span.split_whitespace().next().unwrap_or_default();
            let pattern = path.contains(['<', '*', '…', '{', '$']) || path.contains("NAME");
            if FOLDERS.iter().any(|f| path.starts_with(f))
                && !pattern
                && !root().join(path).exists()
            {
                faults.push(format!("{}:{line}: there is no `{path}`", page.name()));
            }
        }
    }
    no_faults(&faults);
}

/// `plimsoll VERB --flag` in a sentence or a table: verb and flags are there.
#[test]
fn verbs_and_flags_in_sentences_exist() {
    let cli = Cli::command();
    let mut faults = Vec::new();
    for page in pages() {
        for (line, span) in page.spans() {
            let at = format!("{}:{line}: `{span}`", page.name());
            let Some(rest) = span.strip_prefix("plimsoll ") else {
                continue;
            };
            let mut words = rest.split_whitespace().peekable();
            let mut command = &cli;
            while let Some(sub) = words.peek().and_then(|w| command.find_subcommand(w)) {
                command = sub;
                words.next();
            }
            if command.get_name() == "plimsoll" && !rest.starts_with("--") {
                faults.push(format!("{at}: there is no such verb"));
                continue;
            }
            for flag in words
                .take_while(|w| *w != "--")
                .filter_map(|w| w.strip_prefix("--"))
            {
                let name = flag.split(['=', '[', ',', '…']).next().unwrap_or(flag);
                let known = |c: &clap::Command| {
                    c.get_arguments().any(|a| {
                        a.get_long() == Some(name)
                            || a.get_all_aliases().is_some_and(|all| all.contains(&name))
                    })
                };
                if !(known(command) || known(&cli) || name == "help" || name == "version") {
                    faults.push(format!("{at}: there is no --{name}"));
                }
            }
        }
    }
    no_faults(&faults);
}

/// Every command is read by the definition of the command line. What comes of the count is for those who ask how far
/// the documentation is tested: target/tmp/docs-commands.json.
#[test]
#[expect(
    clippy::print_stdout,
    reason = "the count is for who runs it with --nocapture"
)]
fn commands_are_read() {
    let mut faults = Vec::new();
    let mut count: BTreeMap<&str, u32> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    for line in commands() {
        *count.entry("commands").or_default() += 1;
        let word = match line.class() {
            Class::Local(_) => "run",
            Class::Containers(_) => "run_with_containers",
            Class::Docker => "read_by_docker",
            Class::Script => "read_by_script",
            Class::Parsed(why) => {
                *reasons.entry(why).or_default() += 1;
                "parsed_only"
            }
        };
        *count.entry(word).or_default() += 1;
        let Some(all) = line.commands() else {
            faults.push(format!("{}: {}: a quote is open", line.at, line.text));
            continue;
        };
        for words in all
            .iter()
            .filter(|w| w.first().is_some_and(|f| f == "plimsoll"))
        {
            if let Err(e) = Cli::try_parse_from(words) {
                use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
                if !matches!(e.kind(), DisplayHelp | DisplayVersion) {
                    faults.push(format!("{}: {}\n{e}", line.at, line.text));
                }
            }
        }
    }
    no_faults(&faults);
    let told = serde_json::json!({"count": count, "parsed_only_because": reasons});
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("docs-commands.json");
    std::fs::write(path, told.to_string()).expect("count");
    println!("{told}");
    let share = count.get("parsed_only").copied().unwrap_or(0) * 3;
    assert!(
        share < count["commands"],
        "a third is not tried at all: {told}"
    );
}

#[test]
fn commands_that_need_no_container_run() {
    needs!(Jq);
    let local = commands()
        .into_iter()
        .filter_map(|line| match line.class() {
            Class::Local(more) => {
                // What follows `--` is not plimsoll's own.
                let text = match line.text.split_once(" -- docker ") {
                    Some((own, other)) => format!("{own}{more} -- docker {other}"),
                    None => format!("{}{more}", line.text),
                };
                Some((line, text))
            }
            _ => None,
        });
    run_all(local);
}

#[test]
fn scripts_are_here_and_know_their_flags() {
    let mut faults = Vec::new();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let stage = Stage::new();
    for line in commands().iter().filter(|l| l.class() == Class::Script) {
        for words in line
            .commands()
            .expect("read")
            .iter()
            .filter(|w| w[0].starts_with("scripts/"))
        {
            let script = root().join(&words[0]);
            if !script.is_file() {
                faults.push(format!("{}: there is no {}", line.at, words[0]));
                continue;
            }
            let help = helps.entry(words[0].clone()).or_insert_with(|| {
                let told = stage.shell(&format!("'{}' --help", script.display()));
                if told.code != 0 {
                    faults.push(format!(
                        "{}: {} --help ends with {}",
                        line.at, words[0], told.code
                    ));
                }
                told.stdout
            });
            for flag in words.iter().filter(|w| w.starts_with("--")) {
                let name = flag.split('=').next().unwrap_or(flag);
                if !help.contains(name) {
                    faults.push(format!("{}: {} has no {name}", line.at, words[0]));
                }
            }
        }
    }
    no_faults(&faults);
}

/// The lines that are the same whenever and wherever it is run.
fn lasting(said: &str) -> Vec<String> {
    let stage = |l: &str| l.starts_with('[') && l.contains(" s] ");
    let mut lines: Vec<String> = said
        .lines()
        .filter(|l| !stage(l))
        .map(|l| l.trim_end().to_owned())
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[test]
fn transcripts_show_what_is_printed() {
    let mut faults = Vec::new();
    let mut compared = 0;
    for line in commands() {
        let (Some(output), Class::Local("")) = (&line.output, line.class()) else {
            continue;
        };
        compared += 1;
        let Ended { stdout, stderr, .. } = Stage::new().shell(&line.text);
        let shown = lasting(&output.join("\n"));
        let printed = lasting(&format!("{stdout}{stderr}"));
        if shown != printed {
            faults.push(format!(
                "{}: $ {}\n--- the page shows\n{}\n--- printed is\n{}",
                line.at,
                line.text,
                shown.join("\n"),
                printed.join("\n")
            ));
        }
    }
    no_faults(&faults);
    assert!(compared >= 3, "only {compared} transcripts were found");
}
