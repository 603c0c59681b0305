//! `plimsoll doctor`: is everything here that profiling needs?

use super::load::async_runtime;
use crate::cli::DoctorArgs;
use crate::console::Console;
use crate::container::Runtime;
use crate::error::{ExitCode, Failure};
use crate::telemetry::{BackendChoice, MeasuredContainer};
use crate::units::Bytes;
use crate::{engine, host, telemetry};
use serde::Serialize;

/// Most containers to try for their memory: some may end while they are looked at.
const CONTAINERS_TRIED: usize = 4;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct DoctorCheck {
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

impl DoctorCheck {
    /// Something that is as it should be.
    fn good(name: &str, found: String) -> DoctorCheck {
        DoctorCheck {
            name: name.into(),
            found,
            ok: true,
            hint: None,
        }
    }
}

pub fn run_doctor(console: &Console, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut checks = vec![platform()];
    let docker_ok = async_runtime()?.block_on(docker(&mut checks));
    checks.extend(
        telemetry::survey_backends()
            .into_iter()
            .map(|s| DoctorCheck {
                name: s.name,
                found: s.found,
                ok: s.usable,
                hint: s.hint,
            }),
    );
    if args.json {
        console.print_json(&checks)?;
    } else {
        let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
        for check in &checks {
            let mark = if check.ok { "ok" } else { "--" };
            let found = check.found.replace('\n', &format!("\n    {:width$}  ", ""));
            console.write_data(format!("{mark}  {:width$}  {found}\n", check.name).as_bytes())?;
            if let Some(hint) = &check.hint {
                console.write_data(format!("    {:width$}  hint: {hint}\n", "").as_bytes())?;
            }
        }
    }
    Ok(if docker_ok {
        ExitCode::Done
    } else {
        ExitCode::Environment
    })
}

fn platform() -> DoctorCheck {
    let h = host::read_facts();
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
    DoctorCheck::good("platform", found)
}

/// Whether Docker answers; the engines in its running containers.
async fn docker(checks: &mut Vec<DoctorCheck>) -> bool {
    let runtime = match Runtime::connect().await {
        Ok(runtime) => runtime,
        Err(failure) => {
            checks.push(failed_check("docker", &failure));
            return false;
        }
    };
    let v = runtime.version();
    let found = format!("{} (API {})", v.server, v.api);
    checks.push(DoctorCheck::good("docker", found));
    match runtime.list_running().await {
        Ok(running) => {
            let running: Vec<String> = running.into_iter().map(|c| c.id).collect();
            checks.push(engines(&runtime, &running).await);
            checks.extend(check_memory(&runtime, &running).await);
        }
        Err(failure) => checks.push(failed_check("engines", &failure)),
    }
    true
}

async fn engines(runtime: &Runtime, running: &[String]) -> DoctorCheck {
    let mut seen = Vec::new();
    for id in running {
        if let Ok(Some(found)) = runtime.inspect_container(id).await {
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
        return DoctorCheck::good("engines", seen.join("\n"));
    }
    let found = format!("none in {} running containers", running.len());
    let hint = "start one and `plimsoll profile NAME` it, or let `plimsoll run` start it";
    DoctorCheck {
        hint: Some(hint.into()),
        ..DoctorCheck::good("engines", found)
    }
}

/// Whether the memory of a running container can be read from here: not from a container that does
/// not share the host's processes, nor where the daemon is on another machine. `None`: nothing runs.
async fn check_memory(runtime: &Runtime, running: &[String]) -> Option<DoctorCheck> {
    const NAME: &str = "container memory";
    let mut lack = None;
    for id in running.iter().take(CONTAINERS_TRIED) {
        // A container that ended meanwhile proves nothing.
        let Ok(Some(found)) = runtime.inspect_container(id).await else {
            continue;
        };
        let target = MeasuredContainer::of_container(&found.facts);
        match telemetry::open_backend(BackendChoice::Host, &target) {
            Ok(_) => {
                let found = format!("readable, as that of {}", found.facts.name);
                return Some(DoctorCheck::good(NAME, found));
            }
            Err(failure) => lack = Some(failure),
        }
    }
    lack.map(|failure| DoctorCheck {
        // The last hint is about a plimsoll in a container, which is what it mostly is.
        hint: failure.hints.last().cloned(),
        ..failed_check(NAME, &failure)
    })
}

fn failed_check(name: &str, failure: &Failure) -> DoctorCheck {
    let cause = failure
        .source
        .as_ref()
        .map(|s| format!(": {s}"))
        .unwrap_or_default();
    DoctorCheck {
        name: name.into(),
        found: format!("{failure}{cause}"),
        ok: false,
        hint: failure.hints.first().cloned(),
    }
}
