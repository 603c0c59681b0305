//! What to do about a container, a process or a device: keep, stop, end, or only report. Pure:
//! facts in, a verdict with its rule and a sentence out. When in doubt, keep.

mod choice;
mod container;
mod device;
mod process;
mod words;

use super::facts::Survey;
pub use crate::container::PROTECT_LABEL;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// Judges everything that a look found. Each container gets a verdict; a process in none and a GPU
/// get one where there is something to report. The order is the same for the same things:
/// containers by name, processes by pid, GPUs by id.
pub fn judge_survey(survey: &Survey, ask: &CleanRequest) -> Vec<CleanVerdict> {
    let chosen = choice::choices_of(survey, ask);
    let mut containers: Vec<CleanVerdict> = (survey.containers.iter().zip(chosen))
        .map(|(look, chosen)| {
            container::judge_container(look, &survey.containers, chosen, ask.idle)
        })
        .collect();
    containers.sort_by(|a, b| (&a.name, &a.of).cmp(&(&b.name, &b.of)));
    let mut others: Vec<CleanVerdict> = (survey.strays.iter())
        .filter_map(|look| process::judge_process(look, survey))
        .chain(survey.devices.iter().filter_map(device::judge_device))
        .collect();
    others.sort_by(|a, b| a.of.cmp(&b.of));
    containers.extend(others);
    containers
}

/// Why a name chooses nothing, where no container or more than one has it: a sentence.
pub fn why_unmatched(survey: &Survey, name: &str) -> Option<String> {
    choice::why_unmatched(survey, name)
}

/// The containers that the user named, by their ids.
pub fn named_ids(survey: &Survey, ask: &CleanRequest) -> BTreeSet<String> {
    ids(survey, ask, |chosen| chosen == choice::ChosenBy::Name)
}

/// The containers that the user named or chose in any other way, by their ids.
pub fn chosen_ids(survey: &Survey, ask: &CleanRequest) -> BTreeSet<String> {
    ids(survey, ask, |_| true)
}

fn ids(
    survey: &Survey,
    ask: &CleanRequest,
    which: impl Fn(choice::ChosenBy<'_>) -> bool,
) -> BTreeSet<String> {
    let chosen = choice::choices_of(survey, ask);
    let each = survey.containers.iter().zip(chosen);
    each.filter(|(_, chosen)| chosen.is_some_and(&which))
        .map(|(look, _)| look.id.clone())
        .collect()
}

/// The request bound to what its names mean now: a later look must not match another container with
/// an id that begins alike. A container recreated under its name is meant again.
pub fn bind_names(survey: &Survey, ask: &CleanRequest) -> CleanRequest {
    let names = ask.names.iter().map(|name| choice::bind_name(survey, name));
    CleanRequest {
        names: names.collect(),
        ..ask.clone()
    }
}

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanRequest {
    /// Containers by name or by id (4 or more characters of it). Naming is permission.
    pub names: Vec<String>,
    /// Containers with this label, `KEY` or `KEY=VALUE`.
    pub labels: Vec<String>,
    /// Containers of images that match, `*` for any text.
    pub images: Vec<String>,
    /// Every container with a GPU.
    pub all_gpu: bool,
    /// Of those chosen by `labels`, `images`, `all_gpu` or `names` only those idle for this time;
    /// alone it chooses only containers of ours.
    pub idle: Option<Duration>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanAct {
    /// Nothing.
    Keep,
    /// Stop the container, with a grace period; remove it where plimsoll created it.
    Stop,
    /// Remove a container that has ended and that plimsoll created.
    Remove,
    /// End a process that outlived its container.
    EndProcess,
    /// End what a dead plimsoll left running in a container of another owner, by its mark.
    EndMarked,
    /// Plimsoll may or can do nothing about it: report it.
    Report,
}

impl CleanAct {
    /// Whether something is ended or removed.
    pub fn changes_anything(self) -> bool {
        !matches!(self, CleanAct::Keep | CleanAct::Report)
    }
}

/// What a verdict is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictSubject {
    /// A container, by its full id.
    Container(String),
    /// A process, by its host pid and start time.
    Process(u32, Option<u64>),
    /// A GPU, by UUID or PCI address.
    Device(String),
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanVerdict {
    /// Of what.
    pub of: VerdictSubject,
    /// Its name for people: the container's, `pid 7 (python3)`, the GPU's.
    pub name: String,
    /// What is to be done.
    pub act: CleanAct,
    /// The rule that decided.
    pub rule: CleanRule,
    /// Why, a sentence with the evidence.
    pub why: String,
    /// What the user can do, where plimsoll does nothing about it.
    pub advice: Option<String>,
}

/// The rules, by the names that people and programs see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanRule {
    /// Label `plimsoll.protect`: kept, also when named.
    Protected,
    /// Plimsoll runs in it.
    ThisOne,
    /// Kubernetes or Slurm rules it.
    RuledByOthers,
    /// It is, or holds, what the host itself needs: a daemon, a shim, the driver's services, a
    /// desktop, a kernel thread, a process above this one.
    NeverTouched,
    /// The plimsoll that created it, or one that works on it, lives.
    OwnerLives,
    /// Ours, and its owner is dead.
    OwnerDead,
    /// Ours, its owner is not known to live, and the engine in it does not answer.
    Unhealthy,
    /// Ours, its owner is not known to live, and past the deadline that it was given.
    PastDeadline,
    /// The user named it.
    Named,
    /// Chosen by label, image or `--all-gpu-containers`.
    Selected,
    /// Chosen, and idle for as long as asked.
    Idle,
    /// Chosen with `--idle`, but busy within that time, or how long it is idle is unknown.
    NotIdle,
    /// It has ended, and holds nothing any more.
    Ended,
    /// There is a reason to act, but its processes cannot be seen from here: one of them may be
    /// never to be touched.
    Unseen,
    /// There is a reason to stop it, but a running container of another owner shares its pid
    /// namespace and would end with it.
    Shared,
    /// A process of ours that outlived its container.
    Orphan,
    /// A process that looks like an orphan but is another one by now, or may be.
    PidReused,
    /// A dead plimsoll's commands in a container of another owner.
    Leftover,
    /// Ended processes that were not collected hold memory.
    Zombies,
    /// Threads that nothing can interrupt.
    Uninterruptible,
    /// Docker cannot finish removing it.
    RemovalStuck,
    /// GPU memory in use that no process is listed with.
    UnlistedMemory,
    /// The GPU or its driver is broken.
    DeviceBroken,
    /// Memory of clients of CUDA's MPS server.
    Mps,
    /// Not ours, not named: left to its owner.
    Foreign,
    /// Ours or chosen, and nothing is wrong with it.
    NothingWrong,
}

#[cfg(test)]
#[path = "verdict/cases_tests.rs"]
mod cases_tests;

#[cfg(test)]
#[path = "verdict/container_tests.rs"]
mod container_tests;

#[cfg(test)]
#[path = "verdict/asked_tests.rs"]
mod asked_tests;

#[cfg(test)]
#[path = "verdict/other_tests.rs"]
mod other_tests;

#[cfg(test)]
#[path = "verdict/generated_tests.rs"]
mod generated_tests;

#[cfg(test)]
#[path = "verdict/property_tests.rs"]
mod property_tests;
