//! The pages of the documentation are true as far as a machine can tell: every command in them is run, or read by what
//! would run it; links lead somewhere; what transcripts show is printed.

use crate::common;
mod markdown;
mod shell;
mod stage;

use clap::{CommandFactory, Parser};
use common::e2e::Engine;
use common::{docker, unique};
use markdown::{Page, pages, root};
use plimsoll::cli::Cli;
use shell::{Class, Line, codes, lines};
use stage::{Ended, Stage};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// Every command of every page, and of every page of help.
fn commands() -> Vec<Line> {
    let mut all: Vec<Line> = pages().iter().flat_map(lines).collect();
    all.extend(examples(&Cli::command(), ""));
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

fn no_faults(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "{} of them:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

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

/// Runs each on a stage of its own, two at a time, and tells what went wrong.
fn run_all(lines: Vec<(Line, String)>) {
    let faults = Mutex::new(Vec::new());
    let queue = Mutex::new(lines.into_iter());
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
    let mut seen = std::collections::BTreeSet::new();
    run_all(
        local
            .filter(|(_, text)| seen.insert(text.clone()))
            .collect(),
    );
}

/// Containers that pages name, and whether the engine in them serves.
const NAMES: &[(&str, bool)] = &[
    ("my-vllm", true),
    ("my-tgi", true),
    ("my-sglang", true),
    ("my-trtllm", true),
    ("my-llama", true),
    ("my-ollama", true),
    ("idle", false),
    ("demo", false),
];

/// The line, and the files beside it, with the name of a container that is here in place of the page's.
fn renamed(text: &str, serving: &str, idle: &str) -> String {
    let words = text.split(' ').map(|word| {
        let own = NAMES.iter().find(|(name, _)| *name == word);
        own.map_or(word, |(_, serves)| if *serves { serving } else { idle })
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn commands_that_need_containers_run() {
    needs!(Docker, ReferenceEngine);
    let serving = Engine::serving("docs", &[], &["--weights", "16MiB", "--kv-pool", "8MiB"]);
    let idle = Engine::idle("docs");
    let with_containers = commands().into_iter().filter_map(|line| match line.class() {
        Class::Containers(more) => {
            let text = renamed(&line.text, &serving.name, &idle.name);
            // How long a recording takes says nothing of whether it works.
            let text = text.replace("--duration 10s", "--duration 300ms");
            let text = text.replace("--duration 30m", "--duration 300ms");
            let text = format!("sed -i 's/container_name: idle/container_name: {}/' sweep.yaml matrix.yaml settings.yaml && {text}{more}", idle.name);
            Some((line, text))
        }
        _ => None,
    });
    let mut seen = std::collections::BTreeSet::new();
    run_all(
        with_containers
            .filter(|(_, text)| seen.insert(text.clone()))
            .collect(),
    );
}

/// What Docker's client says of a line that it cannot read.
const MISREAD: &[&str] = &[
    "unknown flag",
    "unknown shorthand",
    "invalid argument",
    "needs an argument",
    "invalid reference",
    "requires at least",
];

/// Docker's client reads the flags of `docker run` as `docker create --pull never`; a container that is made of an image
/// that is here is removed. Of other commands of Docker the flags stand in their help.
#[test]
fn docker_commands_are_read_by_docker() {
    needs!(Docker);
    let stage = Stage::new();
    let mut faults = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for line in commands().iter().filter(|l| l.class() == Class::Docker) {
        for words in line
            .commands()
            .expect("read")
            .iter()
            .filter(|w| w[0] == "docker")
        {
            let verb = words[1].as_str();
            if !seen.insert(words.clone()) {
                continue;
            }
            let at = format!("{}: {}", line.at, line.text);
            if verb != "run" {
                let help = stage.shell(&format!("docker {verb} --help"));
                let flags = words[2..].iter().take_while(|w| w.starts_with('-'));
                let known = flags
                    .filter(|f| f.starts_with("--"))
                    .all(|f| help.stdout.contains(f.split('=').next().unwrap_or(f)));
                if help.code != 0 || !known {
                    faults.push(at);
                }
                continue;
            }
            let name = unique("docs-create");
            let mut create = vec!["create".to_owned(), "--pull".into(), "never".into()];
            let mut named = false;
            for word in words[2..].iter().filter(|w| *w != "-d" && *w != "--rm") {
                let word = if std::mem::take(&mut named) {
                    &name
                } else {
                    word
                };
                named = word == "--name";
                create.push(word.clone());
            }
            let args: Vec<&str> = create.iter().map(String::as_str).collect();
            match docker(&args) {
                Ok(id) => drop(docker(&["rm", "-f", "-v", &id])),
                Err(said) if MISREAD.iter().any(|words| said.contains(words)) => {
                    faults.push(format!("{at}\n{said}"));
                }
                // No such image, no such runtime: of this machine, and not of the line.
                Err(_) => {}
            }
        }
    }
    no_faults(&faults);
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

/// Numbers are of the moment.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}

/// What goes wrong here is told in the words that the page quotes, and with its code.
#[test]
fn the_faq_quotes_what_is_said() {
    needs!(Docker, ReferenceEngine);
    let faq = std::fs::read_to_string(root().join("docs/FAQ.md")).expect("FAQ");
    let faq = without_numbers(&faq);
    let idle = Engine::idle("docs-faq");
    let created = Engine::create(
        "docs-faq-created",
        &[],
        common::e2e::REFERENCE_IMAGE,
        &["idle"],
    );
    let limit = ["--memory=64m", "--memory-swap=64m"];
    let tight = Engine::run(
        "docs-faq-tight",
        &limit,
        common::e2e::REFERENCE_IMAGE,
        &["idle"],
    );
    let small = "--weights 4MiB --kv-pool 4MiB --load-ms 0 --num-iters 2";
    let stage = Stage::new();
    let mut faults = Vec::new();
    // The command, its code, the name that the page has in place of the container's, and how many lines it quotes.
    for (line, code, name, quoted) in [
        ("plimsoll profile my-vlm".to_owned(), 3, &idle.name, 1),
        (
            format!("plimsoll profile {}", created.name),
            3,
            &created.name,
            2,
        ),
        (
            format!("plimsoll profile {} --model m --engine vllm", idle.name),
            3,
            &idle.name,
            2,
        ),
        (
            format!(
                "plimsoll profile {} -m m --extra-engine-args '{small} --fault oom@bench_start'",
                tight.name
            ),
            4,
            &tight.name,
            3,
        ),
        (
            "plimsoll run --image nothere:x --model m".to_owned(),
            2,
            &idle.name,
            2,
        ),
        (
            format!(
                "plimsoll profile {} -m m --extra-engine-args '{small} --fault bad-json'",
                idle.name
            ),
            4,
            &idle.name,
            2,
        ),
        (
            format!(
                "plimsoll profile {} -m m --timeout 3s --extra-engine-args '{small} --fault hang@bench_start'",
                idle.name
            ),
            4,
            &idle.name,
            2,
        ),
    ] {
        let ended = stage.shell(&line);
        let told = ended.stderr.replace(name.as_str(), "my-vllm");
        let words: Vec<&str> = told
            .lines()
            .filter(|l| l.starts_with("error: ") || l.starts_with("hint: "))
            .take(quoted)
            .collect();
        if ended.code != code || words.len() < quoted {
            faults.push(format!("$ {line}\nended with {}\n{told}", ended.code));
        }
        // Where a text is cut off, what the reader of it says depends on the place.
        let lasts = |word: &str| without_numbers(word.split(": EOF").next().unwrap_or(word));
        for word in words.iter().filter(|w| !faq.contains(&lasts(w))) {
            faults.push(format!("$ {line}\nFAQ.md does not say: {word}"));
        }
    }
    no_faults(&faults);
}
