//! Commands of the documentation that need containers, and what it quotes of their failures.

use crate::common::docs::markdown::root;
use crate::common::docs::shell::Class;
use crate::common::docs::stage::Stage;
use crate::common::docs::{commands, no_faults, run_all};
use crate::common::e2e::{Engine, REFERENCE_IMAGE};
use crate::common::{docker, unique};

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
    run_all(with_containers);
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
    let created = Engine::create("docs-faq-created", &[], REFERENCE_IMAGE, &["idle"]);
    let limit = ["--memory=64m", "--memory-swap=64m"];
    let tight = Engine::run("docs-faq-tight", &limit, REFERENCE_IMAGE, &["idle"]);
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
