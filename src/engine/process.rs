//! What can be seen of a container without knowing its engine: the words of its image's name, and
//! whether process 1 only waits.

use super::argv::basename;
use super::command::{Command, commands};
#[cfg(test)]
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
pub fn only_mentions_commands(argv: &[String]) -> bool {
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

/// The command of a process 1 that is flags only, with `dash` in front of the first: some runtimes
/// report an image's entrypoint apart.
pub fn flags_alone(argv: &[String], dash: &str) -> Option<Command> {
    argv.first()?.starts_with(dash).then(|| Command {
        argv: argv.to_vec(),
        ..Command::default()
    })
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
        assert_eq!(flags_alone(&given, "--").map(|c| c.argv), Some(given));
        assert_eq!(flags_alone(&words(&["-m", "x"]), "--"), None);
        assert!(flags_alone(&words(&["-m", "x"]), "-").is_some());
        assert_eq!(flags_alone(&[], "-"), None);
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
