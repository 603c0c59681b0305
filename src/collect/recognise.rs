//! Which engine is in a container whose command does not say: by the processes in it, then by what
//! answers on the port that an engine would listen on.

use super::setup::answers;
use super::stop::{Stop, unless_stopped};
use crate::capture::ContainerFacts;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::container::sockets::Listener;
use crate::engine::{self, Engine, Recognition};
use crate::error::Failure;

/// The engine that was named, or an error with the known names.
pub fn engine_named(name: &str) -> Result<&'static dyn Engine, Failure> {
    engine::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = engine::ALL.iter().map(|e| e.name()).collect();
        Failure::usage(format!("no engine `{name}`"))
            .hint(format!("known engines: {}", names.join(", ")))
    })
}

/// Which engine is in a container, how that was seen, and whether it serves.
pub async fn meet(
    runtime: &Runtime,
    found: &Found,
    named: Option<&String>,
    stop: &Stop,
) -> Result<(&'static dyn Engine, String, bool), Failure> {
    let (engine, evidence, serving) = match (named, engine::recognise(&found.facts)) {
        (Some(wanted), seen) => {
            let engine = engine_named(wanted)?;
            let serving = seen
                .filter(|(e, _)| e.name() == engine.name())
                .is_some_and(|(_, r)| r.serving);
            (engine, format!("named by --engine {wanted}"), serving)
        }
        (None, Some((engine, seen))) if seen.serving => (engine, seen.evidence, true),
        // A start script can hide the server, and an image of one engine can run another.
        (None, seen) => {
            let behind =
                unless_stopped(stop, async { Ok(behind_its_command(runtime, found).await) });
            let (engine, seen) = behind
                .await?
                .or(seen)
                .ok_or_else(|| no_engine(&found.facts))?;
            (engine, seen.evidence, seen.serving)
        }
    };
    // A start script can hide the server: what answers is one.
    let serving = serving
        || unless_stopped(stop, async { Ok(answers(runtime, engine, found).await) }).await?;
    Ok((engine, evidence, serving))
}

/// Nothing in the container is known.
fn no_engine(facts: &ContainerFacts) -> Failure {
    let names: Vec<&str> = engine::ALL.iter().map(|e| e.name()).collect();
    Failure::environment(format!(
        "no known engine in container `{}` (image `{}`, command `{}`)",
        facts.name,
        facts.image,
        facts.argv.join(" ")
    ))
    .hint(format!("name it with --engine: {}", names.join(", ")))
}

/// The engine that serves in a container behind a start command that does not name it, and how
/// that was seen. Nothing is run in the container.
async fn behind_its_command(
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
