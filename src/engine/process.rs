//! What can be seen of a container without knowing its engine: the words of its image's name, and
//! whether process 1 only waits.

use super::Recognition;
use super::argv::basename;
use super::command::{Command, commands};
use crate::capture::ContainerFacts;

/// Programs that may have a server's command among their arguments without running it.
const TALKERS: &[&str] = &[
    "echo", "printf", "grep", "pgrep", "pkill", "cat", "ls", "which", "curl", "wget", "docker",
    "kubectl", "ssh",
];

/// Words in an image's name that mark it as related to an engine, but not the engine.
const ABOUT: &[&str] = &[
    "router",
    "exporter",
    "client",
    "bench",
    "benchmark",
    "gateway",
    "proxy",
    "dashboard",
    "operator",
    "docs",
    "monitor",
    "controller",
    "ui",
    "webui",
    "frontend",
    "guidellm",
];

/// Whether a command only mentions other commands.
fn only_mentions_commands(argv: &[String]) -> bool {
    argv.first().is_some_and(|w| TALKERS.contains(&basename(w)))
}

/// Whether the words of an image's name mark it as something other than an engine.
pub fn is_about(words: &[&str]) -> bool {
    words.iter().any(|w| ABOUT.contains(w))
}

/// The last part of an image's name, without tag and digest: `org/a-b:1.0` → `a-b`.
pub fn image_name(image: &str) -> &str {
    let repository = image.split('@').next().unwrap_or_default();
    basename(repository).split(':').next().unwrap_or_default()
}

/// A server's command within process 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The simple command it is part of.
    pub command: Command,
    /// Index of the first word after the server's name.
    pub flags_at: usize,
}

impl ServerCommand {
    /// The first of process 1's commands that runs the server: `flags_at` finds where its flags
    /// begin.
    pub fn find(
        facts: &ContainerFacts,
        flags_at: impl Fn(&[String]) -> Option<usize>,
    ) -> Option<ServerCommand> {
        let all = commands(&facts.argv, &facts.env).into_iter();
        let mut run = all.filter(|command| !only_mentions_commands(&command.argv));
        run.find_map(|command| {
            let flags_at = flags_at(&command.argv)?;
            Some(ServerCommand { command, flags_at })
        })
    }

    /// A process 1 that is flags only, with `dash` in front of the first: some runtimes report an
    /// image's entrypoint apart.
    pub fn of_flags(argv: &[String], dash: &str) -> Option<ServerCommand> {
        argv.first()?.starts_with(dash).then(|| ServerCommand {
            command: Command {
                argv: argv.to_vec(),
                ..Command::default()
            },
            flags_at: 0,
        })
    }

    /// The words after the server's name.
    pub fn flags(&self) -> &[String] {
        &self.command.argv[self.flags_at..]
    }

    /// The word before its flags: the end of the server's name. `None` where process 1 is flags
    /// only.
    pub fn last_word(&self) -> Option<&str> {
        let at = self.flags_at.checked_sub(1)?;
        self.command.argv.get(at).map(String::as_str)
    }

    /// How it was recognised, as a sentence.
    pub fn evidence(&self, facts: &ContainerFacts) -> String {
        match self.last_word() {
            Some(word) => format!("process 1 runs `{}`", basename(word)),
            None => format!("image `{}` was given a server's flags", facts.image),
        }
    }
}

/// Whether an image is named after an engine: the words of its name include one of `names` and none
/// that marks it as something else. A name with a dot in it (`llama.cpp`) is one word.
pub fn image_is(image: &str, names: &[&str]) -> bool {
    let name = image_name(image);
    let words: Vec<&str> = name.split(['-', '_']).collect();
    let parts: Vec<&str> = name.split(['-', '_', '.']).collect();
    let named = |n: &&str| words.contains(n) || parts.contains(n) || name.eq(*n);
    names.iter().any(named) && !is_about(&parts)
}

/// An image named after an engine, `named`, where process 1 is not its server; `process` is a clause on that.
pub fn of_image(
    facts: &ContainerFacts,
    named: bool,
    shown: &str,
    process: fn(&[String]) -> String,
) -> Option<Recognition> {
    let evidence = format!("image `{}` is named after {shown}", facts.image);
    named.then(|| Recognition::present(&evidence, &process(&facts.argv)))
}

/// A container with a variable of an engine, beside a process 1 that only waits: a variable alone is weak, and must not
/// outweigh a process 1 that is something else.
pub fn of_variable(
    facts: &ContainerFacts,
    own: &[&str],
    shown: &str,
    process: fn(&[String]) -> String,
) -> Option<Recognition> {
    let mut own = own.iter().filter(|name| facts.env.contains_key(**name));
    let evidence = format!("variable `{}` is {shown}'s own", own.next()?);
    is_idle(&facts.argv).then(|| Recognition::present(&evidence, &process(&facts.argv)))
}

/// A process 1 that only keeps the container alive.
pub fn is_idle(argv: &[String]) -> bool {
    let idle = |command: &Command| {
        let words: Vec<&str> = command.argv.iter().map(|w| basename(w)).collect();
        let waits = |w: &&str| matches!(*w, "sleep" | "tail" | "pause" | "cat" | "idle");
        match words.as_slice() {
            [.., last] if matches!(*last, "bash" | "sh" | "zsh" | "ash" | "dash") => true,
            [shell, flags @ ..] if matches!(*shell, "bash" | "sh") => {
                flags.iter().all(|f| f.starts_with('-'))
            }
            words => words.iter().any(waits),
        }
    };
    commands(argv, &Default::default()).iter().any(idle)
}

/// A clause on a process 1 that does not serve.
pub fn of_process(argv: &[String]) -> String {
    match argv.first() {
        Some(program) if is_idle(argv) => format!("process 1 (`{}`) is idle", basename(program)),
        _ => not_by_name(argv),
    }
}

/// The same by its name alone, without a statement on whether it idles.
pub fn not_by_name(argv: &[String]) -> String {
    match argv.first() {
        None => "process 1 is unknown".to_owned(),
        // It could still start a server; only the port shows that.
        Some(program) => format!(
            "process 1 (`{}`) is not its server by name",
            basename(program)
        ),
    }
}

/// A container of that image and process 1.
#[cfg(test)]
pub fn container(image: &str, argv: &[&str]) -> ContainerFacts {
    ContainerFacts {
        image: image.to_owned(),
        argv: argv.iter().map(|w| (*w).to_owned()).collect(),
        ..ContainerFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn names_of_images() {
        for (image, name) in [
            ("a", "a"),
            ("host:5000/org/a-b:1.0", "a-b"),
            ("org/a@sha256:00", "a"),
            ("", ""),
        ] {
            assert_eq!(image_name(image), name, "{image}");
        }
        assert!(image_is(
            "ghcr.io/ggml-org/llama.cpp:server",
            &["llama.cpp"]
        ));
        assert!(!image_is("org/vllm-router", &["vllm"]));
    }

    #[test]
    fn an_entrypoint_that_is_reported_apart() {
        let given = words(&["--model", "m"]);
        let of_flags = ServerCommand::of_flags;
        let server = of_flags(&given, "--").unwrap();
        assert_eq!((server.flags(), server.last_word()), (&given[..], None));
        assert_eq!(of_flags(&words(&["-m", "x"]), "--"), None);
        assert!(of_flags(&words(&["-m", "x"]), "-").is_some());
        assert_eq!(of_flags(&[], "-"), None);
    }

    #[test]
    fn clauses() {
        for (argv, clause) in [
            (&[][..], "process 1 is unknown"),
            (&["/bin/sleep", "9"], "process 1 (`sleep`) is idle"),
            (&["/x/run"], "process 1 (`run`) is not its server by name"),
        ] {
            assert_eq!(of_process(&words(argv)), clause);
        }
    }
}
