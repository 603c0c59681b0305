//! `plimsoll doctor`: is everything here that profiling needs?

use super::load::tokio;
use crate::cli::DoctorArgs;
use crate::console::Console;
use crate::container::Runtime;
use crate::error::{ExitCode, Failure};
use crate::telemetry::{BackendChoice, Target};
use crate::units::Bytes;
use crate::{engine, host, telemetry};
use serde::Serialize;

/// Most containers to try for their memory: some may end while they are looked at.
const CONTAINERS_TRIED: usize = 4;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    /// What.
    name: String,
    /// What was found; `none` is a finding too.
    found: String,
    /// Whether profiling can do with it.
    ok: bool,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Check {
    /// Something that is as it should be.
    fn good(name: &str, found: String) -> Check {
        Check {
            name: name.into(),
            found,
            ok: true,
            hint: None,
        }
    }
}

pub fn run(console: &Console, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut checks = vec![platform()];
    let docker_ok = tokio()?.block_on(docker(&mut checks));
    checks.extend(telemetry::survey().into_iter().map(|s| Check {
        name: s.name,
        found: s.found,
        ok: s.usable,
        hint: s.hint,
    }));
    if args.json {
        console.print_json(&checks)?;
    } else {
        let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
        for check in &checks {
            let mark = if check.ok { "ok" } else { "--" };
            let found = check.found.replace('\n', &format!("\n    {:width$}  ", ""));
            console.data(format!("{mark}  {:width$}  {found}\n", check.name).as_bytes())?;
            if let Some(hint) = &check.hint {
                console.data(format!("    {:width$}  hint: {hint}\n", "").as_bytes())?;
            }
        }
    }
    Ok(if docker_ok {
        ExitCode::Done
    } else {
        ExitCode::Environment
    })
}

fn platform() -> Check {
    let h = host::facts();
    let memory = h
        .memory_bytes
        .map_or("memory unknown".into(), |b| Bytes(b).to_string());
    let found = format!(
        "Linux {} on {}, {} processors, {memory}; plimsoll {}",
        h.kernel,
        h.arch,
        h.cpus,
        env!("CARGO_PKG_VERSION")
    );
    Check::good("platform", found)
}

/// Whether Docker answers; the engines in its running containers.
async fn docker(checks: &mut Vec<Check>) -> bool {
    let runtime = match Runtime::connect().await {
        Ok(runtime) => runtime,
        Err(failure) => {
            checks.push(failed("docker", &failure));
            return false;
        }
    };
    let v = runtime.version();
    let found = format!("{} (API {})", v.server, v.api);
    checks.push(Check::good("docker", found));
    match runtime.list_running().await {
        Ok(running) => {
            let running: Vec<String> = running.into_iter().map(|c| c.id).collect();
            checks.push(engines(&runtime, &running).await);
            checks.extend(memory(&runtime, &running).await);
        }
        Err(failure) => checks.push(failed("engines", &failure)),
    }
    true
}

async fn engines(runtime: &Runtime, running: &[String]) -> Check {
    let mut seen = Vec::new();
    for id in running {
        if let Ok(Some(found)) = runtime.inspect(id).await {
            if let Some((engine, recognition)) = engine::recognise(&found.facts) {
                let simulated = if engine.simulated() {
                    ", simulated"
                } else {
                    ""
                };
                let state = if recognition.serving {
                    "serving"
                } else {
                    "idle"
                };
                seen.push(format!(
                    "{} ({}, {state}{simulated})",
                    found.facts.name,
                    engine.name()
                ));
            }
        }
    }
    if !seen.is_empty() {
        return Check::good("engines", seen.join("\n"));
    }
    let found = format!("none in {} running containers", running.len());
    let hint = "start one and `plimsoll profile NAME` it, or let `plimsoll run` start it";
    Check {
        hint: Some(hint.into()),
        ..Check::good("engines", found)
    }
}

/// Whether the memory of a running container can be read from here: not from a container that does
/// not share the host's processes, nor where the daemon is on another machine. `None`: nothing runs.
async fn memory(runtime: &Runtime, running: &[String]) -> Option<Check> {
    const NAME: &str = "container memory";
    let mut lack = None;
    for id in running.iter().take(CONTAINERS_TRIED) {
        // A container that ended meanwhile proves nothing.
        let Ok(Some(found)) = runtime.inspect(id).await else {
            continue;
        };
        let target = Target::of(&found.facts);
        match telemetry::open(BackendChoice::Host, &target) {
            Ok(_) => {
                let found = format!("readable, as that of {}", found.facts.name);
                return Some(Check::good(NAME, found));
            }
            Err(failure) => lack = Some(failure),
        }
    }
    lack.map(|failure| Check {
        // The last hint is about a plimsoll in a container, which is what it mostly is.
        hint: failure.hints.last().cloned(),
        ..failed(NAME, &failure)
    })
}

fn failed(name: &str, failure: &Failure) -> Check {
    let cause = failure
        .source
        .as_ref()
        .map(|s| format!(": {s}"))
        .unwrap_or_default();
    Check {
        name: name.into(),
        found: format!("{failure}{cause}"),
        ok: false,
        hint: failure.hints.first().cloned(),
    }
}
