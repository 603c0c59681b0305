//! What can be seen of a container without knowing its engine: the words of its image's name, and
//! whether process 1 only waits.

use super::argv::basename;
use super::command::{Command, commands};

/// Programs that may well have a server's command among their words without running it.
const TALKERS: &[&str] = &[
    "echo", "printf", "grep", "pgrep", "pkill", "cat", "ls", "which", "curl", "wget", "docker",
    "kubectl", "ssh",
];

/// Words in an image's name that make it something about an engine and not the engine.
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

/// Whether a command only speaks of others.
pub fn is_talker(argv: &[String]) -> bool {
    argv.first().is_some_and(|w| TALKERS.contains(&basename(w)))
}

/// Whether the words of an image's name make it something beside an engine.
pub fn is_about(words: &[&str]) -> bool {
    words.iter().any(|w| ABOUT.contains(w))
}

/// Whether an image is named after an engine: its name's words hold one of `names`, and none that
/// makes it something beside the engine. A name with a dot in it (`llama.cpp`) is one word.
pub fn image_is(image: &str, names: &[&str]) -> bool {
    let repository = image.split('@').next().unwrap_or_default();
    let name = basename(repository).split(':').next().unwrap_or_default();
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

/// A clause about a process 1 that is no server.
pub fn of_process(argv: &[String]) -> String {
    match argv {
        [] => "process 1 is unknown".to_owned(),
        argv if is_idle(argv) => format!("process 1 (`{}`) is idle", basename(&argv[0])),
        // It could start a server all the same; only its port can tell.
        argv => format!(
            "process 1 (`{}`) is not its server by name",
            basename(&argv[0])
        ),
    }
}
