//! Acting on verdicts: each is looked at again, carried out, and proven by what is gone afterwards.
//!
//! Everything here may be done twice, and by two cleaners at once: what is gone counts as done. An
//! act that was cut off leaves nothing that the next run does not finish.

mod container;
mod process;

use super::facts::{ContainerLook, ProcessLook, Survey};
use super::verdict::{CleanAct, CleanRule, CleanVerdict, VerdictSubject};
use super::verify;
use crate::capture::ContainerFacts;
use crate::container::Runtime;
use crate::container::leftovers::{Owner, owner_of};
use crate::container::teardown::{May, Patience};
use crate::container::{PROTECT_LABEL, is_protected};
use crate::host::processes::ProcessId;
use crate::progress::{Progress, Sink, Stage};
use crate::store::{ContainerLock, LockRefusal};
use crate::telemetry::{MeasuredContainer, cgroup_directory};
use futures::StreamExt;
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long each part of an act may take, and how many go on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyOptions {
    /// How long a container or process may take to end. For a single process `kill_wait` is also the time between
    /// SIGTERM and SIGKILL.
    pub patience: Patience,
    /// How long memory and cgroup may take to be given back.
    pub settle: Duration,
    /// Acts at a time.
    pub side_by_side: usize,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        ApplyOptions {
            patience: Patience::for_grace(Duration::from_secs(60)),
            settle: Duration::from_secs(60),
            side_by_side: 8,
        }
    }
}

/// What became of a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActOutcome {
    /// The verdict.
    pub verdict: CleanVerdict,
    /// How it came out.
    pub done: ActResult,
    /// What was done, in order: `stopped in 2.1 s`, `killed after 60 s`, `removed`.
    pub steps: Vec<String>,
    /// GPU memory that is free again, bytes. `None`: how much it was is not known, or it was not
    /// verified.
    pub freed_bytes: Option<u64>,
    /// Why it was kept, or what is not as it should be: a sentence.
    pub problem: Option<String>,
    /// Who is still there or still holds its memory: container, user, pid, bytes, command line.
    pub holders: Vec<String>,
}

/// How an act came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActResult {
    /// Ended here, and what it held is given back.
    Cleaned,
    /// It had ended before anything was done here, and what it held is given back.
    AlreadyGone,
    /// Left alone: it changed since it was judged, or another process works on it.
    Kept,
    /// Not ended, or what it held is not given back.
    NotDone,
}

impl ActOutcome {
    pub(super) fn new(verdict: &CleanVerdict, done: ActResult) -> ActOutcome {
        ActOutcome {
            verdict: verdict.clone(),
            done,
            steps: Vec::new(),
            freed_bytes: None,
            problem: None,
            holders: Vec::new(),
        }
    }

    fn kept_because(verdict: &CleanVerdict, why: impl Into<String>) -> ActOutcome {
        ActOutcome {
            problem: Some(why.into()),
            ..ActOutcome::new(verdict, ActResult::Kept)
        }
    }

    fn not_done(verdict: &CleanVerdict, why: impl Into<String>) -> ActOutcome {
        ActOutcome {
            problem: Some(why.into()),
            ..ActOutcome::new(verdict, ActResult::NotDone)
        }
    }
}

/// What all acts share.
struct ApplyWork<'a> {
    runtime: &'a Runtime,
    survey: &'a Survey,
    options: &'a ApplyOptions,
    cancel: &'a CancellationToken,
}

/// Carries out the verdicts that ask for something to be done, and waits until the memory is given
/// back. One outcome for each of these, in their order. After `cancel` nothing new is begun; what
/// was begun is brought to its end, and its memory is not waited for.
pub async fn apply_verdicts(
    runtime: &Runtime,
    survey: &Survey,
    verdicts: &[CleanVerdict],
    options: &ApplyOptions,
    cancel: &CancellationToken,
    progress: &Sink,
) -> Vec<ActOutcome> {
    let todo: Vec<&CleanVerdict> = verdicts
        .iter()
        .filter(|v| !matches!(v.act, CleanAct::Keep | CleanAct::Report))
        .collect();
    if todo.is_empty() {
        return Vec::new();
    }
    progress(Progress::Stage(Stage::Cleanup));
    let work = ApplyWork {
        runtime,
        survey,
        options,
        cancel,
    };
    let of = todo.len() as u64;
    let acts = todo.into_iter().enumerate().map(|(place, verdict)| {
        let work = &work;
        async move { (place, work.apply_one(verdict).await) }
    });
    let mut running = futures::stream::iter(acts).buffer_unordered(options.side_by_side.max(1));
    let mut outcomes = Vec::new();
    while let Some(outcome) = running.next().await {
        outcomes.push(outcome);
        let done = outcomes.len() as u64;
        progress(Progress::Step { done, of });
    }
    outcomes.sort_by_key(|(place, _)| *place);
    let mut outcomes: Vec<ActOutcome> = outcomes.into_iter().map(|(_, o)| o).collect();
    verify::verify_memory(survey, &mut outcomes, options.settle, cancel).await;
    outcomes
}

impl ApplyWork<'_> {
    async fn apply_one(&self, verdict: &CleanVerdict) -> ActOutcome {
        if self.cancel.is_cancelled() {
            return ActOutcome::not_done(verdict, "not begun: interrupted");
        }
        if self.runtime.is_remote() && by_owner(verdict.rule) {
            return ActOutcome::kept_because(verdict, "the daemon is another machine's");
        }
        match (verdict.act, &verdict.of) {
            (CleanAct::Stop | CleanAct::Remove, VerdictSubject::Container(id)) => {
                self.end_container(verdict, id).await
            }
            (CleanAct::EndMarked, VerdictSubject::Container(id)) => self.marked(verdict, id).await,
            (CleanAct::EndProcess, VerdictSubject::Process(pid, started)) => {
                self.end_process(verdict, *pid, *started).await
            }
            _ => ActOutcome::not_done(verdict, "this action is not possible for it"),
        }
    }

    fn container_look(&self, id: &str) -> Option<&ContainerLook> {
        self.survey.containers.iter().find(|c| c.id == id)
    }
}

/// Whether the user chose the container: then it need not be ours.
fn is_user_choice(rule: CleanRule) -> bool {
    matches!(
        rule,
        CleanRule::Named | CleanRule::Selected | CleanRule::Idle
    )
}

/// Whether the rule rests on the end of a plimsoll. For processes of another machine this host
/// cannot know that.
fn by_owner(rule: CleanRule) -> bool {
    matches!(
        rule,
        CleanRule::OwnerDead | CleanRule::Leftover | CleanRule::Orphan
    )
}

/// A process of the survey by pid and start time, which no other process shares.
pub(super) fn process_identity(look: &ProcessLook) -> Option<ProcessId> {
    let started = look.started?;
    Some(ProcessId {
        pid: look.pid,
        started,
    })
}

/// What keeps any container from any act, whatever it was when it was judged.
fn spared(facts: &ContainerFacts) -> Option<String> {
    if is_protected(&facts.labels) {
        return Some(format!("it has the label `{PROTECT_LABEL}`"));
    }
    (owner_of(facts) == Owner::Alive).then(|| "the plimsoll that created it lives".into())
}

/// The lock of a container while it is acted on: taken when it is first found running.
#[derive(Default)]
struct HeldLock {
    lock: Option<(u32, ContainerLock)>,
}

impl HeldLock {
    /// Takes the lock, or names its holder. A container that does not run needs no lock: no
    /// plimsoll can work on it, and Docker itself serialises removals.
    fn take_lock(&mut self, facts: &ContainerFacts) -> May {
        let Some(pid) = facts.state.pid else {
            return May::Act;
        };
        if self.lock.as_ref().is_some_and(|(of, _)| *of == pid) {
            return May::Act;
        }
        let cgroup = cgroup_directory(&MeasuredContainer::of_container(facts));
        match ContainerLock::try_lock(&facts.id, cgroup.as_deref()) {
            Ok(lock) => {
                self.lock = Some((pid, lock));
                May::Act
            }
            Err(LockRefusal::Held(holder)) => {
                let who = holder.map_or(String::new(), |pid| format!(" (pid {pid})"));
                May::Wait(format!("another plimsoll works on it{who}"))
            }
            // Between the look and the lock it ended.
            Err(LockRefusal::Cannot(e)) => May::Wait(format!("it cannot be locked: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_another_machine_nothing_is_done_because_an_owner_ended() {
        for rule in [CleanRule::OwnerDead, CleanRule::Leftover, CleanRule::Orphan] {
            assert!(by_owner(rule), "{rule:?}");
        }
        for rule in [
            CleanRule::Named,
            CleanRule::Selected,
            CleanRule::PastDeadline,
        ] {
            assert!(!by_owner(rule), "{rule:?}");
        }
    }
}
