//! Attaches to an engine: its container, its kind, whether it serves, and the lock against other
//! runs.
//!
//! What the user names as the engine: a container of a daemon, or processes of this host.

use super::ending::find_running;
use super::setup::{engine_answers, program_state};
use super::stop::{StopSignal, unless_stopped};
use crate::capture::{ContainerFacts, ContainerState, Mode};
use crate::container::Runtime;
use crate::container::inspect::InspectedContainer;
use crate::container::process_log::LogSource;
use crate::container::process_target::{ProcessPlace, ProcessTarget};
use crate::container::sockets::Listener;
use crate::engine::{self, EngineId, Recognition};
use crate::error::Failure;
use crate::launch::Launch;
use crate::progress::{Progress, Sink, Stage};
use crate::store::ContainerLock;
use crate::telemetry::attribution::innermost_container;
use crate::telemetry::{self, MeasuredContainer};
use crate::wording::count_noun;

/// An engine in a container, ready for captures.
#[derive(Clone)]
pub struct AttachedEngine {
    /// The daemon that runs the container.
    pub runtime: Runtime,
    /// The container. If plimsoll started the server by an exec, its command is that server's.
    pub found: InspectedContainer,
    /// The engine in it.
    pub engine: EngineId,
    /// How the engine was recognised.
    pub evidence: String,
    /// Whether it serves, is idle, or was started by plimsoll.
    pub mode: Mode,
    /// Cache key for the flags of the container's programs; `None` if it is unknown and nothing is
    /// cached.
    pub program_state: Option<String>,
}

impl AttachedEngine {
    /// Connects to what knows the engine, and attaches to it.
    pub async fn attach(
        target: &EngineTarget,
        engine: Option<&String>,
        stop: &StopSignal,
        progress: &Sink,
    ) -> Result<AttachedEngine, Failure> {
        progress(Progress::Stage(Stage::Inspect));
        let runtime = target.open_runtime(stop).await?;
        AttachedEngine::find(&runtime, &target.wanted(), engine, stop).await
    }

    /// Attaches to the engine in the running container that `wanted` names.
    pub async fn find(
        runtime: &Runtime,
        wanted: &str,
        engine: Option<&String>,
        stop: &StopSignal,
    ) -> Result<AttachedEngine, Failure> {
        let found = unless_stopped(stop, find_running(runtime, wanted)).await?;
        AttachedEngine::detect(runtime, found, engine, stop).await
    }

    /// Detects the engine in a container, and whether it serves. `named`: the engine named by the
    /// user.
    pub async fn detect(
        runtime: &Runtime,
        found: InspectedContainer,
        named: Option<&String>,
        stop: &StopSignal,
    ) -> Result<AttachedEngine, Failure> {
        let (engine, recognition) = match (named, engine::recognise(&found.facts)) {
            (Some(wanted), recognised) => {
                let engine = EngineId::from_name(wanted)?;
                let same = recognised.filter(|(e, _)| *e == engine);
                let recognition = Recognition {
                    evidence: format!("named by --engine {wanted}"),
                    serving: same.is_some_and(|(_, r)| r.serving),
                };
                (engine, recognition)
            }
            (None, Some((engine, recognition))) if recognition.serving => (engine, recognition),
            // A start script can hide the server, and an image of one engine can run another.
            (None, recognised) => {
                let behind = unless_stopped(stop, async {
                    Ok(behind_its_command(runtime, &found).await)
                });
                // Of an engine's image another program may run, which is no server of it: `vllm preload`.
                let other = Launch::of_facts(found.facts.clone()).server();
                let other = other.filter(|s| s.missing.is_some()).map(|s| s.engine);
                let detected = behind.await?.or(recognised.filter(|_| other.is_none()));
                detected.ok_or_else(|| no_engine(&found.facts, other))?
            }
        };
        // A start script can hide the server: if its endpoint answers, it serves.
        let serving = recognition.serving
            || unless_stopped(stop, async {
                Ok(engine_answers(runtime, engine, &found).await)
            })
            .await?;
        Ok(AttachedEngine {
            runtime: runtime.clone(),
            found,
            engine,
            evidence: recognition.evidence,
            mode: if serving { Mode::Serving } else { Mode::Idle },
            program_state: None,
        })
    }

    /// The engine in a container that plimsoll started.
    pub fn started(
        runtime: &Runtime,
        found: InspectedContainer,
        engine: EngineId,
    ) -> AttachedEngine {
        AttachedEngine {
            runtime: runtime.clone(),
            found,
            engine,
            evidence: format!("started by plimsoll as {}", engine.shown()),
            mode: Mode::Started,
            program_state: None,
        }
    }

    /// Name of the container.
    pub fn name(&self) -> &str {
        &self.found.facts.name
    }

    /// Whether the engine served already before this run.
    pub fn is_serving(&self) -> bool {
        self.mode == Mode::Serving
    }

    /// Reads what was changed in the container, so that the flags of its programs can be cached.
    pub async fn with_program_state(mut self) -> AttachedEngine {
        self.program_state = program_state(&self.runtime, &self.found.facts).await;
        self
    }

    /// The container's state now; `None` if it no longer exists.
    pub async fn container_state(&self) -> Result<Option<ContainerState>, Failure> {
        self.runtime.container_state(&self.found.facts.id).await
    }

    /// Locks the container for this run.
    pub fn take_lock(&self) -> Result<ContainerLock, Failure> {
        lock_container(&self.found.facts)
    }
}

/// Locks a container for one run.
pub fn lock_container(facts: &ContainerFacts) -> Result<ContainerLock, Failure> {
    let cgroup = telemetry::cgroup_directory(&MeasuredContainer::of_container(facts));
    // A process tree has no id, and its name has its pid.
    let id = match facts.id.as_str() {
        "" => facts.name.replace(' ', "-"),
        id => id.to_owned(),
    };
    let taken = ContainerLock::take_lock(&id, &facts.name, cgroup.as_deref());
    match cgroup {
        // The cgroup disappeared with its container.
        Some(gone) if taken.is_err() && !gone.exists() => {
            ContainerLock::take_lock(&id, &facts.name, None)
        }
        _ => taken,
    }
}

/// No known engine was found in the container; `other`: a program that is known, and cannot be profiled.
fn no_engine(facts: &ContainerFacts, other: Option<String>) -> Failure {
    let (name, command) = (&facts.name, facts.argv.join(" "));
    if let Some(other) = other {
        return Failure::environment(format!(
            "container `{name}` runs {other}, which plimsoll cannot profile"
        ))
        .hint(format!(
            "`plimsoll record --container {name} --output FILE` samples its memory"
        ));
    }
    let failure = match facts.image.as_str() {
        "" => format!("no known engine in `{name}` (command `{command}`)"),
        image => {
            format!("no known engine in container `{name}` (image `{image}`, command `{command}`)")
        }
    };
    let names = format!("name it with --engine: {}", EngineId::all_names());
    let failure = Failure::environment(failure).hint(names);
    match facts.state.restart_count {
        0 => failure,
        n => failure.hint(format!(
            "it was restarted {}: `plimsoll why {name}` finds why",
            count_noun(n, "time")
        )),
    }
}

/// The engine that serves in a container with a start command that does not name it, and the
/// evidence. Runs nothing in the container.
async fn behind_its_command(
    runtime: &Runtime,
    found: &InspectedContainer,
) -> Option<(EngineId, Recognition)> {
    let commands = runtime.process_commands(&found.facts.id).await;
    if let Some(detected) = among_processes(&found.facts, &commands) {
        return Some(detected);
    }
    for engine in EngineId::ALL.iter().copied() {
        for (path, sign) in engine.identity {
            let port = engine.default_port;
            // On a shared network another container may answer.
            if runtime.port_listener(&found.facts, port) != Listener::Container {
                continue;
            }
            let reply = runtime.get_outside(&found.facts, port, path).await;
            if reply.status == Some(200) && reply.body.contains(sign) {
                let evidence =
                    format!("`{path}` on port {port} answers as {} does", engine.shown());
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
) -> Option<(EngineId, Recognition)> {
    commands.iter().find_map(|argv| {
        let process = ContainerFacts {
            argv: argv.clone(),
            // Only the command counts: the image was checked before.
            ..ContainerFacts::default()
        };
        let (engine, recognition) = engine::recognise(&process).filter(|(_, r)| r.serving)?;
        let evidence = format!(
            "{}, behind process 1 (`{}`)",
            recognition.evidence.replace("process 1", "a process"),
            facts.argv.first().map_or("unknown", String::as_str)
        );
        let serving = true;
        Some((engine, Recognition { evidence, serving }))
    })
}

/// The engine that the user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineTarget {
    /// A container of the daemon, by name, id or label.
    Container(String),
    /// Processes of this host, and where their log is. No daemon is asked.
    Process(ProcessPlace, LogSource),
}

impl EngineTarget {
    /// A container by name, id or label.
    pub fn of_container(wanted: &str) -> EngineTarget {
        EngineTarget::Container(wanted.to_owned())
    }

    /// What the user named, as a container is looked for.
    pub fn wanted(&self) -> String {
        match self {
            EngineTarget::Process(ProcessPlace::Pid(pid), _) => format!("pid {pid}"),
            EngineTarget::Container(name)
            | EngineTarget::Process(ProcessPlace::Cgroup(name) | ProcessPlace::Pod(name), _) => {
                name.clone()
            }
        }
    }

    /// Connects to what knows the engine.
    ///
    /// # Errors
    /// No daemon answers, or no such process runs.
    pub async fn open_runtime(&self, stop: &StopSignal) -> Result<Runtime, Failure> {
        match self {
            EngineTarget::Container(_) => unless_stopped(stop, Runtime::connect()).await,
            EngineTarget::Process(place, log) => {
                let target = ProcessTarget::find(place, log.clone(), innermost_container)?;
                Ok(Runtime::of_process(target))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_behind_a_script_is_detected() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let facts = ContainerFacts {
            argv: words("/start.sh"),
            ..ContainerFacts::default()
        };
        let commands = [
            words("/bin/bash /start.sh"),
            words("python3 -m sglang.launch_server --model-path m --port 30000"),
        ];
        let (engine, recognition) = among_processes(&facts, &commands).expect("a server");
        assert_eq!(engine.name, "sglang");
        assert!(
            recognition.serving && recognition.evidence.contains("/start.sh"),
            "{recognition:?}"
        );
        assert!(among_processes(&facts, &commands[..1]).is_none());
    }
}
