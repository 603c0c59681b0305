//! Which engine is in a container whose command does not say: by the processes in it, then by what
//! answers on the port that an engine would listen on.

use crate::capture::ContainerFacts;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::container::sockets::Listener;
use crate::engine::{self, Engine, Recognition};

/// The engine that serves in a container behind a start command that does not name it, and how
/// that was seen. Nothing is run in the container.
pub async fn behind_its_command(
    runtime: &Runtime,
    found: &Found,
) -> Option<(&'static dyn Engine, Recognition)> {
    let commands = runtime.commands(&found.facts.id).await;
    if let Some(seen) = among_processes(&found.facts, &commands) {
        return Some(seen);
    }
    for engine in engine::ALL.iter().copied() {
        for (path, sign) in engine.identity() {
            let port = engine.default_port();
            // On a shared network it may be a neighbour who answers.
            if runtime.listener(&found.facts, port) != Listener::Container {
                continue;
            }
            let reply = runtime.get_outside(&found.facts, port, path).await;
            if reply.status == Some(200) && reply.body.contains(sign) {
                let evidence = format!("`{path}` on port {port} answers as {} does", engine.name());
                let serving = true;
                return Some((engine, Recognition { evidence, serving }));
            }
        }
    }
    None
}

/// The first process that is an engine's server.
fn among_processes(
    facts: &ContainerFacts,
    commands: &[Vec<String>],
) -> Option<(&'static dyn Engine, Recognition)> {
    commands.iter().find_map(|argv| {
        let process = ContainerFacts {
            argv: argv.clone(),
            // Only the command speaks here: what the image is was looked at before.
            ..ContainerFacts::default()
        };
        let (engine, seen) = engine::recognise(&process).filter(|(_, seen)| seen.serving)?;
        let evidence = format!(
            "{}, behind process 1 (`{}`)",
            seen.evidence.replace("process 1", "a process"),
            facts.argv.first().map_or("unknown", String::as_str)
        );
        let serving = true;
        Some((engine, Recognition { evidence, serving }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_behind_a_script_is_seen() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let facts = ContainerFacts {
            argv: words("/start.sh"),
            ..ContainerFacts::default()
        };
        let commands = [
            words("/bin/bash /start.sh"),
            words("python3 -m sglang.launch_server --model-path m --port 30000"),
        ];
        let (engine, seen) = among_processes(&facts, &commands).expect("a server");
        assert_eq!(engine.name(), "sglang");
        assert!(
            seen.serving && seen.evidence.contains("/start.sh"),
            "{seen:?}"
        );
        assert!(among_processes(&facts, &commands[..1]).is_none());
    }
}
