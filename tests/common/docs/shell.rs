//! Command lines of the pages: where they stand, what they are made of, and how far each can be tried.

use super::markdown::{Block, Page};

/// One line of a shell, as it stands in a page.
#[derive(Debug, Clone)]
pub struct Line {
    /// `docs/GUIDE.md:17`.
    pub at: String,
    /// The line, with those that continue it, without its comment.
    pub text: String,
    /// What the page shows below it.
    pub output: Option<Vec<String>>,
}

/// How far a line can be tried on any machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Run as it stands, with these words behind it.
    Local(&'static str),
    /// The same, in the sight of containers with the names that it uses.
    Containers(&'static str),
    /// Docker's own client reads its flags; nothing is started.
    Docker,
    /// The script is here, and its help knows the flags.
    Script,
    /// Its words are read by the definition of the command line, and that is all: why.
    Parsed(&'static str),
}

/// What the commands of pages begin with.
fn is_command(word: &str) -> bool {
    matches!(word, "plimsoll" | "docker" | "jq") || word.starts_with("scripts/")
}

/// `NAME=VALUE` before a command.
fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    })
}

/// The line without what stands behind ` #`, outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if before.is_whitespace() => return line[..at].trim_end(),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        before = c;
    }
    line.trim_end()
}

/// The commands of a page, in their order.
pub fn lines(page: &Page) -> Vec<Line> {
    page.blocks().iter().flat_map(|b| of(page, b)).collect()
}

fn of(page: &Page, block: &Block) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let shows_output = block.lines.iter().any(|l| l.starts_with("$ "));
    let mut n = 0;
    while n < block.lines.len() {
        let at = format!("{}:{}", page.name(), block.line + n);
        let raw = block.lines[n].as_str();
        // `$ ` and `first$   ` are prompts.
        let prompt = raw
            .find("$ ")
            .filter(|p| raw[..*p].chars().all(char::is_alphanumeric));
        let mut text =
            without_comment(prompt.map_or(raw, |p| raw[p + 2..].trim_start())).to_owned();
        n += 1;
        let typed = prompt.is_some() || !shows_output;
        let first = text.split_whitespace().find(|w| !is_setting(w));
        if !typed || raw.starts_with(' ') || !first.is_some_and(is_command) {
            if let (Some(last), true) = (found.last_mut(), shows_output) {
                let output = last.output.get_or_insert_with(Vec::new);
                output.push(raw.to_owned());
            }
            continue;
        }
        while text.ends_with('\\') && n < block.lines.len() {
            text.truncate(text.len() - 1);
            let more = without_comment(block.lines[n].trim_start());
            text = format!("{} {more}", text.trim_end());
            n += 1;
        }
        found.push(Line {
            at,
            text,
            output: None,
        });
    }
    found
}

impl Line {
    /// Its commands, each without settings and redirections; `None` where a quote is open.
    pub fn commands(&self) -> Option<Vec<Vec<String>>> {
        let mut all = vec![Vec::new()];
        let mut skip = false;
        for word in shlex::split(&self.text)? {
            if std::mem::take(&mut skip) {
                continue;
            }
            match word.as_str() {
                "|" | "&&" | "||" | ";" => all.push(Vec::new()),
                ">" | "<" | ">>" => skip = true,
                "2>&1" => {}
                _ => {
                    let command = all.last_mut().expect("one at least");
                    if !(command.is_empty() && is_setting(&word)) {
                        command.push(word);
                    }
                }
            }
        }
        Some(all)
    }

    /// How far it can be tried. The rules stand here and in [`verb`]; none is of one line.
    pub fn class(&self) -> Class {
        let commands = self.commands().unwrap_or_default();
        let mut class = Class::Local("");
        for words in &commands {
            let here = match words.first().map(String::as_str) {
                Some("plimsoll") => verb(&words[1..], &self.text),
                Some("docker") => match words.get(1).map(String::as_str) {
                    // What is read and ends by itself, of a container that stands for the one named.
                    Some("logs") if commands.len() > 1 => Class::Containers(""),
                    _ => Class::Docker,
                },
                Some(script) if script.starts_with("scripts/") => Class::Script,
                _ => Class::Local(""),
            };
            class = match (class, here) {
                (Class::Local(""), here) => here,
                (class, Class::Local("")) => class,
                (Class::Parsed(why), _) | (_, Class::Parsed(why)) => Class::Parsed(why),
                (class, _) => class,
            };
        }
        class
    }
}

/// The class of `plimsoll` with these words.
fn verb(words: &[String], line: &str) -> Class {
    let verb = words.first().map_or("", String::as_str);
    let has = |flag: &str| {
        let begins = format!("{flag}=");
        words.iter().any(|w| w == flag || w.starts_with(&begins))
    };
    let once = |words: &'static str| if has(words.trim()) { "" } else { words };
    // Nobody answers there, which is what the page shows.
    if line.starts_with("DOCKER_HOST=unix:///nowhere") {
        return Class::Local("");
    }
    if has("--help") {
        return Class::Local("");
    }
    if ["--pid", "--cgroup", "--pod"].into_iter().any(has) {
        return Class::Parsed("asks for a process, a cgroup or a pod that is nowhere here");
    }
    match verb {
        "estimate" if has("--online") => Class::Parsed("asks a hub in the network"),
        "estimate" if words.iter().any(|w| w == "detected") => Class::Parsed("asks for a GPU"),
        "run" => Class::Local(once(" --dry-run")),
        "profile" | "ablate" | "experiment" if has("--engine") => {
            Class::Parsed("asks for an engine that no test image has")
        }
        "experiment" | "sweep" | "tune" if has("--image") || has("--preset") => {
            Class::Parsed("asks for an image that is nowhere here")
        }
        "tune" if has("--resume") => Class::Parsed("asks for an earlier run"),
        "tune" => Class::Containers(once(" --dry-run")),
        "profile" | "ablate" | "experiment" => Class::Containers(once(" --dry-run")),
        "cuda-graphs" => Class::Parsed("asks for an engine with CUDA graphs"),
        "loadline" => Class::Containers(once(" --predict-only")),
        "sweep" if has("--submit") => Class::Parsed("asks for Slurm"),
        "sweep" if has("--docker-host") => Class::Parsed("asks for another machine"),
        "sweep" if has("--resume") || words.get(1).is_some_and(|w| w == "merge") => {
            Class::Parsed("asks for an earlier run")
        }
        "sweep" if words.iter().any(|w| w.starts_with("configs/")) => {
            Class::Parsed("asks for GPUs and images of engines; `config check` reads the file")
        }
        "sweep" => Class::Containers(once(" --dry-run")),
        "record" if !has("--container") => Class::Parsed("asks for a GPU"),
        "record" => Class::Containers(""),
        "watch" => Class::Parsed("goes on until it is ended"),
        "clean" | "why" if has("--watch") => Class::Parsed("goes on until it is ended"),
        "top" => Class::Containers(once(" --once")),
        "why" if words.get(1).is_some_and(|w| w.ends_with(".tar")) => {
            Class::Parsed("reads what an earlier command wrote")
        }
        "why" if !words.iter().any(|w| w.ends_with(".log") || w == "-") => Class::Containers(""),
        "clean" if has("--apply") => Class::Parsed("ends containers of whoever runs the tests"),
        "clean" => Class::Containers(""),
        _ => Class::Local(""),
    }
}

/// The exit codes with which a command that works may end, and one that the page shows to fail.
pub fn codes(command: &Line) -> &'static [i32] {
    let line = command.text.as_str();
    let shown = command.output.as_deref().unwrap_or_default();
    match line {
        _ if shown.iter().any(|l| l.starts_with("error: ")) => &[2, 3, 4],
        _ if line.contains("--check-oom") => &[0, 6],
        // Of what only pretends nothing is judged.
        _ if line.contains("plimsoll validate") && line.contains("--fail-on") => &[2],
        _ if line.contains("--fail-on") => &[0, 7],
        // The engine that is there has not failed.
        _ if line.contains("plimsoll why") => &[0, 9],
        // Its verdict on a machine without Docker.
        _ if line.contains("plimsoll doctor") || line.contains("plimsoll env") => &[0, 3],
        _ => &[0],
    }
}
