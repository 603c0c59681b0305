//! What a container, its daemon and its host show of why it ended.

use super::evidence::{Evidence, KeptEvidence};
use crate::capture::{ContainerFacts, LimitLevel};
use crate::clock::wall_now_ns;
use crate::collect::HISTORY_BYTES;
use crate::container::Runtime;
use crate::container::events::ContainerNotice;
use crate::container::find::short_id;
use crate::container::inspect::InspectedContainer;
use crate::engine::diagnosis::{CaseFacts, Diagnosis, EvidenceSource};
use crate::engine::recognise;
use crate::live::{GpuLook, MemoryWatcher};
use crate::profile::{OomKill, OomVerdict};
use crate::telemetry::kernel_log::{KernelEvidence, read_kernel_log};
use crate::telemetry::{MeasuredContainer, uses_gpus, watch_oom_kills};
use crate::units::Bytes;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time before the end of the last life that is read of a log that is too long, or of a container
/// that was restarted.
const LAST_STRETCH_NS: i64 = 600_000_000_000;
/// Docker stamps a start after the program runs: what it did at once has an earlier time.
const BEFORE_START_NS: i64 = 2_000_000_000;
/// Around an end: what the kernel logs of it may come a little later.
const AFTER_END_NS: i64 = 5_000_000_000;
/// Longest time from a stop that is asked for to the end that it brings about.
const BEFORE_STOP_NS: i64 = 60_000_000_000;
/// Time in which Docker answers with past events.
const EVENTS_WITHIN: Duration = Duration::from_millis(300);
/// Time in which Podman has read them from the journal.
const PODMAN_EVENTS_WITHIN: Duration = Duration::from_secs(10);
/// Docker reports a restart so soon after the start that it brought about.
const RESTART_AFTER_START_NS: i64 = 1_000_000_000;
/// A daemon remembers its last 256 events: those of a removed container are looked for in a day.
const REMOVED_WITHIN_NS: i64 = 86_400_000_000_000;
/// Another tenant of a GPU counts from this size, bytes: contexts alone are smaller.
const TENANT_BYTES: u64 = 1 << 30;
/// Fact of a container on a GPU without memory of its own.
const SHARES_HOST: &str = "unified_memory=true";
/// A file system with less than this share free is full.
const FULL_BELOW: f64 = 0.02;

/// Diagnoses a container, and keeps the evidence with `keep`.
pub async fn diagnose_container(
    runtime: &Runtime,
    container: &InspectedContainer,
    keep: bool,
) -> (Diagnosis, Option<KeptEvidence>) {
    let (facts, state) = (&container.facts, &container.facts.state);
    let mut known = facts_of_state(container);
    let code = state.exit_code.or(container.last_exit_code);
    let (mut now, mut unread) = (Vec::new(), Vec::new());
    let (by, unread_events) = stopped_by(runtime, container).await;
    known.extend(by.map(|by| format!("stopped_by={by}")));
    unread.extend(unread_events);

    let mut other_gpus = Vec::new();
    if uses_gpus(&MeasuredContainer::of_container(facts)) {
        let (found, others) = gpu_tenants(facts, &mut now, &mut unread).await;
        known.extend(found);
        other_gpus = others;
    }
    let kernel = tokio::task::block_in_place(|| kernel_evidence(facts, &other_gpus));
    let kernel = kernel.unwrap_or_else(|why| {
        unread.push(why);
        KernelEvidence::default()
    });
    let by_a_limit = (kernel.kill.as_ref()).is_some_and(|limit| limit.level != LimitLevel::Host);
    // Docker 20.10 keeps what it noted of the life before: of one that runs the kernel's counters alone tell.
    let oom_killed = match state.pid {
        Some(_) => counts_kill(facts),
        None => state.oom_killed,
    };
    if oom_killed || by_a_limit {
        known.push("oom_killed=true".to_owned());
    } else if code == Some(137) {
        known.push("oom_killed=false".to_owned());
    }
    // The limit may have been changed since.
    if let Some(limit) = (kernel.kill.as_ref()).filter(|limit| limit.level == LimitLevel::Container)
    {
        if facts
            .memory_limit_bytes
            .is_some_and(|now| now != limit.bytes)
        {
            known.retain(|fact| !fact.starts_with("memory_limit="));
            known.push(format!("memory_limit={}", Bytes(limit.bytes)));
            let changed = facts.memory_limit_bytes.map(Bytes);
            now.extend(changed.map(|b| format!("its memory limit was changed since: {b}")));
        }
    }
    if kernel.complete && kernel.kill.is_none() {
        known.push("kernel_kill=none".to_owned());
    }
    known.extend(file_systems(facts, &mut now));
    if let Some(host) = crate::host::read_state() {
        let swap = host.swap_used_bytes.filter(|b| *b > 0);
        let swap = swap.map_or(String::new(), |b| format!(", {} in swap", Bytes(b)));
        let stalled = host.stalled_pct.filter(|pct| *pct >= 1.0);
        let stalled = stalled.map_or(String::new(), |pct| {
            format!(", tasks stalled for memory {pct:.0} % of the last 10 s")
        });
        now.push(format!(
            "the host has {} of {} available{swap}{stalled}",
            Bytes(host.available_bytes),
            Bytes(host.total_bytes)
        ));
    }

    let engine = recognise(facts).map(|(engine, _)| engine);
    let known = CaseFacts {
        engine,
        facts: known,
    };
    let last = last_stretch(container);
    let from = last.filter(|_| state.restart_count > 0);
    let (mut evidence, complete) = read_log(runtime, container, &known, from, keep).await;
    if let (false, Some(from)) = (complete, last) {
        (evidence, _) = read_log(runtime, container, &known, Some(from), keep).await;
        unread.push("the log before the last 10 minutes: it is too long".to_owned());
    }
    let killed = match kernel.kill {
        Some(limit) => OomVerdict::Killed(OomKill {
            at_ns: None,
            limit: Some(limit),
        }),
        None => OomVerdict::judge_kill(facts, oom_killed || counts_kill(facts), &[], None),
    };
    if let OomVerdict::Killed(kill) = killed {
        evidence.take(EvidenceSource::Docker, kill.describe_kill().as_bytes());
    }
    for line in &kernel.lines {
        evidence.take(EvidenceSource::Kernel, line.as_bytes());
    }
    for error in &container.docker_errors {
        evidence.take(EvidenceSource::Docker, error.as_bytes());
    }
    evidence.now.append(&mut now);
    evidence.unread.append(&mut unread);
    let (mut found, kept) = evidence.conclude();
    if found.cause.as_deref() == Some("no_failure") {
        let idle = match state.status.as_str() {
            "created" => Some("it was created and never started: `docker start` starts it"),
            "paused" => Some("it is paused: `docker unpause` lets it go on"),
            _ => None,
        };
        found.means = idle.map(str::to_owned).or(found.means);
    }
    (found, kept)
}

/// Diagnoses a container that is gone, by what its daemon remembers; `None` where it remembers no
/// such container.
pub async fn diagnose_removed(runtime: &Runtime, name: &str) -> Option<Diagnosis> {
    let from = wall_now_ns() - REMOVED_WITHIN_NS;
    let (events, _) = past_events(runtime, name, from).await;
    events.iter().find(|event| event.action == "destroy")?;
    let unread = "the log and the settings: the container was removed, and they went with it";
    Some(diagnose_events(&events, "removed", unread))
}

/// Diagnoses the life that ended with `died`, of a container that somebody stopped and that was started again since;
/// `None` of every other.
pub async fn diagnose_stopped_life(runtime: &Runtime, died: &ContainerNotice) -> Option<Diagnosis> {
    let from = died.wall_ns.saturating_sub(BEFORE_STOP_NS);
    let (mut events, _) = past_events(runtime, &died.id, from).await;
    let again = |event: &ContainerNotice| event.action == "start" && event.wall_ns > died.wall_ns;
    events.truncate(events.iter().position(again)?);
    ended_from_outside(&events)?;
    let unread = "the log: the container was started again since";
    Some(diagnose_events(&events, "exited", unread))
}

fn diagnose_events(events: &[ContainerNotice], status: &str, unread: &str) -> Diagnosis {
    let mut known = vec![format!("status={status}")];
    let died = events.iter().rev().find(|event| event.action == "die");
    let code = died.and_then(|event| event.attributes.get("exitCode"));
    known.extend(code.map(|code| format!("exit_code={code}")));
    if events.iter().any(|event| event.action == "oom") {
        known.push("oom_killed=true".to_owned());
    }
    known.extend(ended_from_outside(events).map(|by| format!("stopped_by={by}")));
    let known = CaseFacts {
        engine: None,
        facts: known,
    };
    let mut evidence = Evidence::new(known, false);
    evidence.unread.push(unread.to_owned());
    evidence.conclude().0
}

/// Facts of a container and of how it ended, as `name=value`.
fn facts_of_state(container: &InspectedContainer) -> Vec<String> {
    let state = &container.facts.state;
    let mut known = facts_of(&container.facts);
    known.push(format!("status={}", state.status));
    let code = state.exit_code.or(container.last_exit_code);
    known.extend(code.map(|code| format!("exit_code={code}")));
    if state.restart_count > 0 {
        known.push(format!("restart_count={}", state.restart_count));
    }
    known
}

/// What `docker inspect` of a container shows, without asking the daemon.
pub fn facts_of_inspection(container: &InspectedContainer) -> CaseFacts {
    let mut facts = facts_of_state(container);
    let oom_killed = container.facts.state.oom_killed;
    facts.push(format!("oom_killed={oom_killed}"));
    let engine = recognise(&container.facts).map(|(engine, _)| engine);
    CaseFacts { engine, facts }
}

/// Facts of a container that its inspection shows, as `name=value`.
pub fn facts_of(container: &ContainerFacts) -> Vec<String> {
    let size = |name: &str, bytes: Option<u64>| bytes.map(|b| format!("{name}={}", Bytes(b)));
    let image = Some(&container.image).filter(|image| !image.is_empty());
    let mut facts: Vec<String> = image.iter().map(|image| format!("image={image}")).collect();
    facts.push(format!("flags={}", container.argv.join(" ")));
    facts.extend(size("memory_limit", container.memory_limit_bytes));
    facts.extend(size("shm_size", container.shm_size_bytes));
    facts
}

/// Whether the counters of a container that runs have a kill for lack of memory: the kernel's log may lack it.
fn counts_kill(facts: &ContainerFacts) -> bool {
    let watch = watch_oom_kills(&MeasuredContainer::of_container(facts), true);
    watch.is_some_and(|mut watch| watch.look_again().kills.is_some_and(|kills| kills > 0))
}

/// What the kernel logged about the container's last life; `other_gpus`: addresses of GPUs that it does not have.
fn kernel_evidence(
    facts: &ContainerFacts,
    other_gpus: &[String],
) -> Result<KernelEvidence, String> {
    let state = &facts.state;
    let until = state.finished_ns.filter(|_| state.pid.is_none());
    let until = until.map_or(i64::MAX, |end| end.saturating_add(AFTER_END_NS));
    let from = (state.started_ns).map_or(i64::MAX, |at| at.saturating_sub(BEFORE_START_NS));
    // Of a container that loops the last life may have just begun.
    let from = match state.finished_ns {
        Some(end) if state.restart_count > 0 => from.min(end.saturating_sub(LAST_STRETCH_NS)),
        // Started again by somebody: what was before that end is of the life before.
        Some(end) if state.pid.is_some() => from.max(end),
        _ => from,
    };
    if state.status == "created" {
        return Ok(KernelEvidence::default());
    }
    Ok(KernelEvidence::of_container(
        &read_kernel_log()?,
        &facts.id,
        (from, until),
        other_gpus,
    ))
}

/// Who else is on the GPUs, as facts and as sentences; and the PCI addresses of the other GPUs.
async fn gpu_tenants(
    facts: &ContainerFacts,
    now: &mut Vec<String>,
    unread: &mut Vec<String>,
) -> (Vec<String>, Vec<String>) {
    let (gpus, notes) = MemoryWatcher::open().await.scan_gpus().await;
    unread.extend(notes.into_iter().map(|note| format!("the GPUs: {note}")));
    // By Docker's request alone; a container without one may be given any.
    let is_given = |gpu: &&GpuLook| {
        let named = |word: &String| *word == gpu.uuid || *word == gpu.index.to_string();
        let is_place = |word: &String| word.parse::<u32>().is_ok() || word.starts_with("GPU-");
        let request = &facts.gpu_request;
        !request.iter().any(is_place) || request.iter().any(named)
    };
    let (mut others, mut texts) = (0, Vec::new());
    let mut known = Vec::new();
    let (given, others_of_host): (Vec<&GpuLook>, Vec<&GpuLook>) = gpus.iter().partition(is_given);
    for gpu in given {
        if let (Some(used), Some(total)) = (gpu.used_bytes, gpu.total_bytes) {
            let (used, total) = (Bytes(used), Bytes(total));
            now.push(format!(
                "GPU {} ({}): {used} of {total} in use",
                gpu.index, gpu.name
            ));
        }
        if gpu.shares_host && !known.contains(&SHARES_HOST.to_owned()) {
            known.push(SHARES_HOST.to_owned());
        }
        if !known.iter().any(|fact: &String| fact.starts_with("gpu=")) {
            known.push(format!("gpu={}", gpu.name));
        }
        for tenant in gpu.tenants.iter().filter(|t| t.used_bytes >= TENANT_BYTES) {
            let holder = match (&tenant.container_id, &tenant.container_name) {
                (Some(id), _) if *id == facts.id => continue,
                (Some(_), Some(name)) => format!("container `{name}`"),
                (Some(id), None) => format!("container {}", short_id(id)),
                (None, _) => "processes outside containers".to_owned(),
            };
            others += 1;
            texts.push(format!(
                "{holder} holds {} of GPU {}",
                Bytes(tenant.used_bytes),
                gpu.index
            ));
        }
    }
    now.extend(texts.iter().cloned());
    if others > 0 {
        known.push(format!("other_containers_on_gpu={}", others.min(4)));
        known.push(format!("gpu_tenants={}", texts.join("; ")));
    }
    let addresses = others_of_host
        .iter()
        .filter_map(|gpu| gpu.pci_address.clone());
    (known, addresses.collect())
}

/// File systems of the container that are full: `/dev/shm` while it runs, and its mounts.
fn file_systems(facts: &ContainerFacts, now: &mut Vec<String>) -> Vec<String> {
    let mut known = Vec::new();
    let shm = facts
        .state
        .pid
        .map(|pid| format!("/proc/{pid}/root/dev/shm"));
    let mounts = facts.mounts.iter().filter_map(|mount| {
        let (source, inside) = mount.split_once(" → ")?;
        Some((source.to_owned(), inside.to_owned(), "disk_full"))
    });
    let shm = shm.map(|path| (path, "/dev/shm".to_owned(), "shm_full"));
    for (path, inside, fact) in shm
        .into_iter()
        .chain(mounts.filter(|(source, ..)| source.starts_with('/')))
    {
        let Ok(stat) = rustix::fs::statvfs(path.as_str()) else {
            continue;
        };
        let of_blocks = |blocks: u64| Bytes(blocks.saturating_mul(stat.f_frsize));
        if stat.f_blocks > 0 && (stat.f_bavail as f64) < FULL_BELOW * stat.f_blocks as f64 {
            let (free, total) = (of_blocks(stat.f_bavail), of_blocks(stat.f_blocks));
            now.push(format!("{inside} is full: {free} of {total} free"));
            known.push(format!("{fact}={inside}"));
        }
    }
    known
}

/// Where the last minutes of the last life that has ended begin.
fn last_stretch(container: &InspectedContainer) -> Option<i64> {
    let state = &container.facts.state;
    let end = state.finished_ns.or(state.started_ns)?;
    Some(end.saturating_sub(LAST_STRETCH_NS).max(0))
}

/// The evidence of the log, and whether that is all of it.
async fn read_log(
    runtime: &Runtime,
    container: &InspectedContainer,
    known: &CaseFacts,
    from: Option<i64>,
    keep: bool,
) -> (Evidence, bool) {
    let mut evidence = Evidence::new(known.clone(), keep);
    if container.facts.state.status == "created" {
        return (evidence, true);
    }
    let redactor = container.secrets.redactor();
    let take = |_, _, text: String| {
        evidence.take(EvidenceSource::Log, redactor.redact_text(&text).as_bytes());
        ControlFlow::Continue(())
    };
    let cancel = CancellationToken::new();
    let history = runtime
        .log_history(&container.facts, from, HISTORY_BYTES, &cancel, take)
        .await;
    let error = history.facts.error.map(|error| format!("the log: {error}"));
    // What cannot be read at all is not read better from its end.
    let complete = history.complete || error.is_some();
    evidence.unread.extend(error);
    (evidence, complete)
}

/// Events that the daemon remembers, and why it gives none.
async fn past_events(
    runtime: &Runtime,
    container: &str,
    from: i64,
) -> (Vec<ContainerNotice>, Option<String>) {
    let mut events = Vec::new();
    let cancel = CancellationToken::new();
    // Docker answers at once and goes on; Podman reads its journal, and says when that is done.
    let (until, within) = match runtime.version().podman {
        true => (Some(wall_now_ns()), PODMAN_EVENTS_WITHIN),
        false => (None, EVENTS_WITHIN),
    };
    let watch = runtime.watch_events(Some(container), Some(from), until, &cancel, |event| {
        events.push(event)
    });
    let refused = tokio::time::timeout(within, watch).await;
    let unread = refused.ok().flatten();
    (
        events,
        unread.map(|error| format!("the daemon's events: {error}")),
    )
}

/// What ended a container from outside, as the daemon remembers it.
async fn stopped_by(
    runtime: &Runtime,
    container: &InspectedContainer,
) -> (Option<String>, Option<String>) {
    let state = &container.facts.state;
    let Some(finished) = state.finished_ns.filter(|_| state.pid.is_none()) else {
        return (None, None);
    };
    let from = finished.saturating_sub(BEFORE_STOP_NS);
    let (events, unread) = past_events(runtime, &container.facts.id, from).await;
    (ended_from_outside(&events), unread)
}

fn ended_from_outside(events: &[ContainerNotice]) -> Option<String> {
    // A stop is reported after the end that it brought about; a restart by Podman before it, and by Docker after the start
    // that follows. Podman reports one also where the restart policy starts a container that has ended.
    let (mut by, mut restarts, mut started) = (None, false, None);
    for event in events {
        let signal = event.attributes.get("signal").map(String::as_str);
        match event.action.as_str() {
            "kill" if matches!(signal, None | Some("2" | "3" | "9" | "15")) => {
                by = Some(format!("`docker kill` (signal {})", signal.unwrap_or("9")));
            }
            "stop" => by = Some("`docker stop`".to_owned()),
            "restart" => {
                restarts = started.is_none_or(|at| event.wall_ns - at > RESTART_AFTER_START_NS);
            }
            "die" if restarts => by = Some("`docker restart`".to_owned()),
            "start" => (by, restarts, started) = (None, false, Some(event.wall_ns)),
            _ => {}
        }
    }
    by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_from_outside_only_where_a_life_ends_by_it() {
        let of = |words: &str| {
            let events: Vec<ContainerNotice> = words
                .split(' ')
                .map(|word| {
                    let (action, at) = word.split_once('@').expect("a time");
                    ContainerNotice {
                        action: action.into(),
                        wall_ns: at.parse::<i64>().expect("ms") * 1_000_000,
                        ..ContainerNotice::default()
                    }
                })
                .collect();
            ended_from_outside(&events)
        };
        let restarted = Some("`docker restart`".to_owned());
        assert_eq!(of("start@0 restart@9000 die@9100"), restarted, "of Podman");
        let by_policy = "start@0 die@200 restart@207 start@450 die@700 restart@707";
        assert_eq!(of(by_policy), None, "of Podman");
        let died_after = "kill@0 die@5 stop@6 start@300 restart@320 die@5000";
        assert_eq!(of(died_after), None, "of Docker");
        assert_eq!(of("kill@0 die@5 stop@6"), Some("`docker stop`".to_owned()));
    }
}
