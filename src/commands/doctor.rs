//! `plimsoll doctor`: is everything here that profiling needs?

mod mends;

use super::load::async_runtime;
use crate::capture::ContainerFacts;
use crate::cli::DoctorArgs;
use crate::console::Console;
use crate::container::connect::DaemonFeatures;
use crate::container::connect::is_installed;
use crate::container::{LOST_WITHOUT_COMMANDS, Runtime};
use crate::error::{ExitCode, Failure};
use crate::report::doctor::{CheckState, DoctorCheck, DoctorDocument, doctor_report};
use crate::sweep::preflight::free_space;
use crate::telemetry::{BackendChoice, MeasuredContainer};
use crate::units::Bytes;
use crate::{engine, host, telemetry};
use mends::DoctorTable;
use telemetry::toolkit::{HostPart, survey_toolkits};

/// Most containers to try for their memory: some may end while they are looked at.
const CONTAINERS_TRIED: usize = 4;

pub fn run_doctor(console: &Console, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let table = DoctorTable::shipped();
    let mut checks = vec![platform()];
    let docker_ok = async_runtime()?.block_on(docker(&table, &mut checks));
    checks.extend(results_disk());
    checks.extend(toolkits(&table));
    checks.extend(telemetry::survey_backends());
    let document = DoctorDocument::of_checks(checks);
    console.show_document(args.json, &document, || Ok(doctor_report(&document)))?;
    Ok(if docker_ok {
        ExitCode::Done
    } else {
        ExitCode::Environment
    })
}

/// Below this much free space a longer run may not be stored.
const FREE_FOR_RESULTS: u64 = 1 << 30;

/// The disk of the results; nothing where its free space cannot be read.
fn results_disk() -> Option<DoctorCheck> {
    let folder = std::env::var_os("PLIMSOLL_RESULTS_DIR").unwrap_or_else(|| "results".into());
    let folder = std::path::Path::new(&folder);
    let free = free_space(folder)?;
    let found = format!("{} free for `{}`", Bytes(free), folder.display());
    Some(if free >= FREE_FOR_RESULTS {
        DoctorCheck::good_check("disk", found)
    } else {
        DoctorCheck {
            hint: Some("name another disk with --results-dir or PLIMSOLL_RESULTS_DIR".into()),
            ..DoctorCheck::lacking_check("disk", found)
        }
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
    DoctorCheck::good_check("platform", found)
}

/// Whether Docker answers; the engines in its running containers.
async fn docker(table: &DoctorTable, checks: &mut Vec<DoctorCheck>) -> bool {
    let runtime = match Runtime::connect().await {
        Ok(runtime) => runtime,
        Err(failure) => {
            checks.push(DoctorCheck {
                mend: docker_lack(&failure).and_then(|lack| table.mend(lack)),
                ..failed_check("docker", &failure)
            });
            return false;
        }
    };
    let v = runtime.version();
    let features = runtime.daemon_features().await.unwrap_or_default();
    let found = format!(
        "{} (API {}){}",
        v.server,
        v.api,
        describe_features(&features)
    );
    checks.push(DoctorCheck::good_check("docker", found));
    if !runtime.may_run_commands().await {
        let found = "only answers questions: commands in containers are refused";
        checks.push(DoctorCheck {
            hint: Some(format!("what is lost: {LOST_WITHOUT_COMMANDS}")),
            ..DoctorCheck::lacking_check("docker socket", found.into())
        });
    }
    checks.extend(nvidia_runtime(table, &features));
    match runtime.list_running().await {
        Ok(running) => {
            let running: Vec<String> = running.into_iter().map(|c| c.id).collect();
            checks.push(engines(&runtime, table, &running).await);
            checks.extend(check_memory(&runtime, &running).await);
        }
        Err(failure) => checks.push(failed_check("engines", &failure)),
    }
    true
}

async fn engines(runtime: &Runtime, table: &DoctorTable, running: &[String]) -> DoctorCheck {
    let mut described = Vec::new();
    for id in running {
        if let Ok(Some(found)) = runtime.inspect_container(id).await {
            if let Some((engine, recognition)) = engine::recognise(&found.facts) {
                let simulated = if engine.simulated { ", simulated" } else { "" };
                let state = match found.facts.state.status.as_str() {
                    "running" if recognition.serving => "serving",
                    "running" => "idle",
                    other => other,
                };
                described.push(format!(
                    "{} ({}, {state}{simulated}){}",
                    found.facts.name,
                    engine.shown(),
                    describe_packages(runtime, table, &found.facts)
                ));
            }
        }
    }
    if !described.is_empty() {
        return DoctorCheck::good_check("engines", described.join("\n"));
    }
    let found = format!("none in {} running containers", running.len());
    let hint = "start one and `plimsoll profile NAME` it, or let `plimsoll run` start it";
    DoctorCheck {
        hint: Some(hint.into()),
        ..DoctorCheck::good_check("engines", found)
    }
}

/// The versions in a container, to be put behind its name.
fn describe_packages(runtime: &Runtime, table: &DoctorTable, facts: &ContainerFacts) -> String {
    let (wanted, folders) = (&table.packages, &table.package_folders);
    let Some(found) = runtime.python_packages(facts, wanted, folders) else {
        let root = rustix::process::geteuid().is_root();
        return match (facts.state.pid, facts.state.status.as_str()) {
            (_, "restarting") => format!(": `plimsoll why {}`", facts.name),
            (Some(_), _) if !root => ": versions are seen by root alone".to_owned(),
            _ => String::new(),
        };
    };
    // In the order of the table: the engine first.
    let named = wanted
        .iter()
        .filter_map(|name| Some(format!("{name} {}", found.get(name)?)));
    let named: Vec<String> = named.collect();
    if named.is_empty() {
        // Of an engine without a Python package the tag of its image is often the version.
        return format!(": image {}", facts.image);
    }
    format!(": {}", named.join(", "))
}

fn describe_features(features: &DaemonFeatures) -> String {
    let mut words = Vec::new();
    if !features.default_runtime.is_empty() {
        words.push(format!("runtime {}", features.default_runtime));
    }
    if !features.cgroup_version.is_empty() {
        words.push(format!("cgroup v{}", features.cgroup_version));
    }
    if features.has_cdi {
        words.push("CDI".to_owned());
    }
    words.iter().map(|word| format!(", {word}")).collect()
}

/// Why Docker does not answer, as the table of commands has it.
fn docker_lack(failure: &Failure) -> Option<&'static str> {
    match failure.message.as_str() {
        message if message.contains("no permission") => Some("docker_denied"),
        // Another daemon was asked for than the one that a command here starts.
        message if message.contains(" names") => None,
        _ if is_installed() => Some("docker_silent"),
        _ => Some("docker_absent"),
    }
}

/// Whether the daemon can give NVIDIA's GPUs to containers, where this host has any.
fn nvidia_runtime(table: &DoctorTable, features: &DaemonFeatures) -> Option<DoctorCheck> {
    const NAME: &str = "NVIDIA runtime of Docker";
    let mut parts = survey_toolkits().into_iter();
    let toolkit = parts.find(|part| part.name == "NVIDIA container toolkit")?;
    let found = format!("runtimes: {}", features.runtimes.join(", "));
    let is_known = features.runtimes.iter().any(|runtime| runtime == "nvidia");
    if is_known || features.has_cdi {
        return Some(DoctorCheck::good_check(NAME, found));
    }
    // Where the toolkit is missing, that comes first.
    let mend = table.mend("nvidia_runtime");
    Some(DoctorCheck {
        mend: mend.filter(|_| toolkit.lack.is_none()),
        ..DoctorCheck::lacking_check(NAME, format!("none; {found}"))
    })
}

/// Drivers and toolkits of the GPUs that are on this host.
fn toolkits(table: &DoctorTable) -> Vec<DoctorCheck> {
    let check = |part: HostPart| match part.lack {
        None if part.found == "none" => DoctorCheck::lacking_check(&part.name, part.found),
        None => DoctorCheck::good_check(&part.name, part.found),
        Some(lack) => DoctorCheck {
            mend: table.mend(lack),
            ..DoctorCheck::lacking_check(&part.name, part.found)
        },
    };
    survey_toolkits().into_iter().map(check).collect()
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
                return Some(DoctorCheck::good_check(NAME, found));
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
    DoctorCheck {
        name: name.into(),
        found: failure.describe_with_cause(),
        ok: false,
        state: CheckState::Broken,
        hint: failure.hints.first().cloned(),
        mend: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::format::text::{PageDetail, render_page};
    use crate::report::page::{TextOptions, assert_fits};

    #[test]
    fn the_page_fits_every_terminal() {
        let failure = Failure::environment("cannot reach Docker at `/run/user/1000/a/long/path/to/a/socket/of/somebody/docker.sock`")
            .caused_by("permission denied while connecting to the socket of the daemon")
            .hint("add yourself to the group `docker`, or set DOCKER_HOST");
        let document = DoctorDocument::of_checks(vec![
            DoctorCheck::good_check(
                "engines",
                "one (vllm, idle)\ntwo (reference, serving, simulated)".into(),
            ),
            failed_check("container memory", &failure),
            DoctorCheck {
                state: CheckState::Missing,
                ..failed_check("backend amd (AMD)", &failure)
            },
        ]);
        let render =
            |options| render_page(&doctor_report(&document), options, PageDetail::Essential);
        assert_fits(render);
        let page = render(TextOptions {
            width: usize::MAX,
            ..TextOptions::default()
        });
        for words in [
            "  ok       engines ",
            "  broken   container memory ",
            "  missing  backend amd (AMD) ",
            "  error    container memory: add yourself to the group `docker`",
            "\nNot ready: 1 check failed: container memory.\n",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(
            page.lines()
                .any(|l| l.ends_with("  two (reference, serving, simulated)")),
            "{page}"
        );
    }
}
