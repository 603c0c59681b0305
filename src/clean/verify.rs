//! What is left after an end: processes and GPU memory, and their owners.

use super::apply::{ActOutcome, ActResult, process_identity};
use super::facts::{ContainerLook, ProcessLook, Survey, add_held};
use super::memory::{DeviceLevel, HeldDevice, MemoryGate, TOLERANCE};
use super::verdict::{CleanAct, VerdictSubject};
use crate::capture::{ContainerFacts, ProcessMemory};
use crate::container::leftovers::Owner;
use crate::container::process::HostProcess;
use crate::container::processes::HostView;
use crate::host::processes::ProcessId;
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Most holders that are named.
const MOST: usize = 8;

/// So much of a command line is shown, characters.
const COMMAND: usize = 120;

/// The processes that an end is to leave none of.
pub(super) struct Members {
    ids: BTreeSet<ProcessId>,
    view: Option<HostView>,
}

impl Members {
    pub(super) fn with_ids(ids: BTreeSet<ProcessId>) -> Members {
        Members { ids, view: None }
    }

    /// Adds what runs in a container now, and its cgroup.
    pub(super) fn add_members(&mut self, facts: &ContainerFacts) {
        let view = (facts.state.pid).and_then(|pid| HostView::open(pid, &facts.id));
        if let Some(view) = view {
            self.ids.extend(view.distinct_processes());
            self.view = Some(view);
        }
    }

    /// Those that are still there: the same processes, wherever they are by now, and whatever is in
    /// the container's cgroup.
    pub(super) fn still_there(&self) -> Vec<ProcessId> {
        let mut left: BTreeSet<ProcessId> = self
            .ids
            .iter()
            .copied()
            .filter(|id| id.is_alive())
            .collect();
        left.extend(self.view.iter().flat_map(HostView::distinct_processes));
        left.into_iter().collect()
    }

    /// Waits until there are none, or time is up.
    pub(super) async fn wait_until_gone(&self, settle: Duration, cancel: &CancellationToken) {
        let until = Instant::now() + settle;
        while !self.still_there().is_empty() && Instant::now() < until && !cancel.is_cancelled() {
            sleep(LOOK).await;
        }
    }

    /// Those that are still there, for people.
    pub(super) fn describe_left(&self, survey: &Survey, of: Option<&ContainerLook>) -> Vec<String> {
        let container = of.map(|c| c.id.as_str());
        let left = self.still_there();
        let named = left.iter().take(MOST);
        named
            .map(|id| holder(survey, id.pid, container, None))
            .collect()
    }
}

/// What an outcome's verdict was about, on the devices.
#[derive(Clone)]
struct VerifyTarget {
    /// Where the whole container was to end.
    container: Option<String>,
    ids: BTreeSet<ProcessId>,
    /// Held at the look, by device, bytes; `None`: the driver did not report it.
    gpu_bytes: Option<BTreeMap<String, u64>>,
}

impl VerifyTarget {
    fn with_ids(survey: &Survey, outcome: &ActOutcome) -> Option<VerifyTarget> {
        let verdict = &outcome.verdict;
        let look_of = |id: &str| survey.containers.iter().find(|c| c.id == id);
        let (container, ids, gpu_bytes) = match (&verdict.of, verdict.act) {
            (VerdictSubject::Container(id), CleanAct::EndMarked) => {
                let processes = look_of(id)?.processes.iter().flatten();
                let dead = |p: &&ProcessLook| {
                    let mark = p.mark.as_ref();
                    mark.is_some_and(|m| m.owner == Owner::Dead)
                };
                let mut bytes = BTreeMap::new();
                let mut ids = BTreeSet::new();
                for process in processes.filter(dead) {
                    ids.extend(process_identity(process));
                    add_held(&mut bytes, &process.gpu_bytes);
                }
                (None, ids, Some(bytes))
            }
            (VerdictSubject::Container(id), _) => {
                let look = look_of(id)?;
                let processes = look.processes.iter().flatten();
                let ids = processes.filter_map(process_identity).collect();
                (Some(id.clone()), ids, look.gpu_bytes.clone())
            }
            (VerdictSubject::Process(pid, started), _) => {
                let id = ProcessId {
                    pid: *pid,
                    started: (*started)?,
                };
                let look = survey
                    .strays
                    .iter()
                    .find(|p| process_identity(p) == Some(id))?;
                (None, BTreeSet::from([id]), Some(look.gpu_bytes.clone()))
            }
            (VerdictSubject::Device(_), _) => return None,
        };
        Some(VerifyTarget {
            container,
            ids,
            gpu_bytes,
        })
    }

    fn holds_memory(&self, process: &ProcessMemory) -> bool {
        let inside = self.container.is_some() && process.container_id == self.container;
        let same = |id: &&ProcessId| id.pid == process.pid;
        inside || self.ids.iter().find(same).is_some_and(|id| id.is_alive())
    }

    fn touches(&self, device: &str) -> bool {
        let held = self.gpu_bytes.as_ref().and_then(|b| b.get(device));
        held.is_some_and(|bytes| *bytes > 0)
    }
}

/// Waits until the memory of what has ended is given back, and changes the outcomes where it is not.
pub(super) async fn verify_memory(
    survey: &Survey,
    outcomes: &mut [ActOutcome],
    settle: Duration,
    cancel: &CancellationToken,
) {
    let mut ended: Vec<(&mut ActOutcome, VerifyTarget)> = outcomes
        .iter_mut()
        .filter(|o| matches!(o.done, ActResult::Cleaned | ActResult::AlreadyGone))
        .filter_map(|o| VerifyTarget::with_ids(survey, o).map(|target| (o, target)))
        .collect();
    if survey.devices.is_empty() {
        return;
    }
    for (outcome, target) in &mut ended {
        if target.gpu_bytes.is_none() {
            let words = "how much GPU memory it held is not known, so whether it came back is not";
            outcome.steps.push(words.into());
        }
    }
    let (levels, unread) = expected_levels(survey, ended.iter().map(|(_, t)| t));
    for (outcome, _) in ended
        .iter_mut()
        .filter(|(_, t)| unread.iter().any(|id| t.touches(id)))
    {
        let words = "whether its GPU memory came back is not known: the device could not be read";
        outcome.steps.push(words.into());
    }
    let held = if levels.is_empty() {
        Ok(())
    } else {
        wait_until_gone(&levels, &ended, settle, cancel).await
    };
    if cancel.is_cancelled() {
        let words = "whether its GPU memory came back was not waited for";
        for (outcome, _) in ended
            .iter_mut()
            .filter(|(_, t)| levels.keys().any(|id| t.touches(id)))
        {
            outcome.steps.push(words.into());
        }
        return;
    }
    if let Err(held) = held {
        for device in &held {
            blame(survey, &mut ended, device, settle);
        }
    }
    for (outcome, target) in ended {
        let read = !unread.iter().any(|id| target.touches(id));
        if outcome.done == ActResult::Cleaned && read {
            let bytes = target.gpu_bytes.as_ref();
            outcome.freed_bytes = bytes.map(|b| b.values().sum());
        }
    }
}

async fn wait_until_gone(
    levels: &BTreeMap<String, DeviceLevel>,
    ended: &[(&mut ActOutcome, VerifyTarget)],
    settle: Duration,
    cancel: &CancellationToken,
) -> Result<(), Vec<HeldDevice>> {
    let targets: Vec<VerifyTarget> = ended.iter().map(|(_, t)| t.clone()).collect();
    let is_own = Box::new(move |p: &ProcessMemory| targets.iter().any(|t| t.holds_memory(p)));
    match MemoryGate::after_end(levels, is_own) {
        Ok(mut gate) => gate.wait_until_back(settle, cancel).await,
        Err(_) => Err(levels.keys().cloned().map(HeldDevice::unread).collect()),
    }
}

/// What is expected of each device that something held memory on, and those of which nothing can be
/// expected because they could not be read.
fn expected_levels<'a>(
    survey: &Survey,
    ended: impl Iterator<Item = &'a VerifyTarget> + Clone,
) -> (BTreeMap<String, DeviceLevel>, BTreeSet<String>) {
    let mut levels = BTreeMap::new();
    let mut unread = BTreeSet::new();
    for device in &survey.devices {
        let touching = ended.clone().filter(|t| t.touches(&device.id));
        let bytes_of = |t: &VerifyTarget| t.gpu_bytes.as_ref()?.get(&device.id).copied();
        let held: u64 = touching.filter_map(bytes_of).sum();
        if held == 0 {
            continue;
        }
        let Some(used) = device.used_bytes else {
            unread.insert(device.id.clone());
            continue;
        };
        let on_it = |bytes: &BTreeMap<String, u64>| bytes.get(&device.id).copied().unwrap_or(0);
        let in_containers: Option<u64> = survey
            .containers
            .iter()
            .map(|c| c.gpu_bytes.as_ref().map(on_it))
            .sum();
        let strays: u64 = survey.strays.iter().map(|p| on_it(&p.gpu_bytes)).sum();
        let level = DeviceLevel {
            used_bytes: used.saturating_sub(held),
            others_bytes: in_containers.map(|all| (all + strays).saturating_sub(held)),
        };
        levels.insert(device.id.clone(), level);
    }
    (levels, unread)
}

/// Marks the outcomes of those that touched a device which is not at its level: only those with
/// processes of their own still on it, where that explains it.
fn blame(
    survey: &Survey,
    ended: &mut [(&mut ActOutcome, VerifyTarget)],
    device: &HeldDevice,
    settle: Duration,
) {
    let own = |target: &VerifyTarget| -> Vec<ProcessMemory> {
        let on_it = device.processes.iter().filter(|p| target.holds_memory(p));
        on_it.cloned().collect()
    };
    let explained: u64 = ended
        .iter()
        .flat_map(|(_, t)| own(t))
        .filter_map(|p| p.used_bytes)
        .sum();
    let all_explained = device
        .more_bytes
        .is_some_and(|more| more.saturating_sub(explained) <= TOLERANCE);
    let problem = match device.more_bytes {
        None => format!("{} cannot be read any more", device.id),
        Some(more) => format!(
            "{} more than expected in use on {}, {} s after its end",
            Bytes(more),
            device.id,
            settle.as_secs()
        ),
    };
    for (outcome, target) in ended.iter_mut().filter(|(_, t)| t.touches(&device.id)) {
        let own = own(target);
        if own.is_empty() && all_explained {
            continue;
        }
        outcome.done = ActResult::NotDone;
        outcome.problem = Some(match outcome.problem.take() {
            Some(before) => format!("{before}; {problem}"),
            None => problem.clone(),
        });
        // Where it is not its own, anybody on the device may be the holder.
        let mut named = if own.is_empty() {
            device.processes.clone()
        } else {
            own
        };
        named.sort_by_key(|p| std::cmp::Reverse(p.used_bytes));
        let words = named
            .iter()
            .take(MOST)
            .map(|p| holder(survey, p.pid, p.container_id.as_deref(), p.used_bytes));
        outcome.holders.extend(words);
        if named.is_empty() && device.more_bytes.is_some() {
            let words = format!("no process is listed with memory on {}", device.id);
            outcome.holders.push(words);
        }
    }
}

/// Who a process is: container, user, pid, bytes, command line.
fn holder(survey: &Survey, pid: u32, container: Option<&str>, bytes: Option<u64>) -> String {
    let inside = survey
        .containers
        .iter()
        .flat_map(|c| c.processes.iter().flatten());
    let looked_at = inside
        .chain(&survey.strays)
        .find(|p| p.pid == pid && process_identity(p).is_some_and(ProcessId::is_alive));
    let container = container.or(looked_at.and_then(|p| p.container.as_deref()));
    let mut words = Vec::new();
    if let Some(id) = container {
        let name = survey.containers.iter().find(|c| c.id == id);
        let short = || crate::container::find::short_id(id).to_owned();
        words.push(format!(
            "container `{}`",
            name.map_or_else(short, |c| c.name.clone())
        ));
    }
    let now = HostProcess::read(pid);
    let uid = now.as_ref().and_then(|p| p.uid);
    if let Some(uid) = uid.or(looked_at.and_then(|p| p.uid)) {
        words.push(user(uid));
    }
    words.push(format!("pid {pid}"));
    if now.as_ref().is_some_and(|p| p.state == 'D') {
        words.push("waits in the kernel (state D)".into());
    }
    let at_the_look = || Some(looked_at?.gpu_bytes.values().sum()).filter(|b| *b > 0);
    words.extend(bytes.or_else(at_the_look).map(|b| Bytes(b).to_string()));
    let command = match (looked_at.filter(|p| !p.command.is_empty()), now) {
        (Some(look), _) => look.command.clone(),
        (None, Some(now)) if now.command.is_empty() => now.name,
        (None, now) => now.map(|p| p.command).unwrap_or_default(),
    };
    let short: String = command.chars().take(COMMAND).collect();
    if short.is_empty() {
        words.join(", ")
    } else {
        format!("{}: `{short}`", words.join(", "))
    }
}

fn user(uid: u32) -> String {
    let table = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(uid)).then(|| fields[0].to_owned())
    });
    name.map_or(format!("user {uid}"), |name| format!("user {name}"))
}
