//! Ending processes by themselves: those that outlived their container, and, by their mark, those that
//! a dead plimsoll left running in a container of another owner.

use super::{ActOutcome, ActResult, ApplyWork, HeldLock, process_identity, spared};
use crate::capture::ContainerFacts;
use crate::clean::verdict::{CleanRule, CleanVerdict};
use crate::clean::verify::Members;
use crate::container::leftovers::{Owner, own_runs};
use crate::container::processes::HostView;
use crate::container::stray::{self, Stray, StrayEnd};
use crate::container::teardown::{ContainerStatus, May, is_running};
use crate::host::processes::ProcessId;
use crate::wording::count_noun;
use std::collections::BTreeSet;

impl ApplyWork<'_> {
    pub(super) async fn end_process(
        &self,
        verdict: &CleanVerdict,
        pid: u32,
        started: Option<u64>,
    ) -> ActOutcome {
        let Some(started) = started else {
            return ActOutcome::kept_because(verdict, "when it started is not known");
        };
        let id = ProcessId { pid, started };
        let mut strays = self.survey.strays.iter();
        let Some(look) = strays.find(|p| process_identity(p) == Some(id)) else {
            return ActOutcome::kept_because(verdict, "it was not looked at");
        };
        // What was written down when its container was started is what makes it ours.
        let record = look.record.as_ref();
        let Some(container) = look
            .container
            .as_deref()
            .filter(|c| record.is_some_and(|r| r.container == *c))
        else {
            return ActOutcome::kept_because(
                verdict,
                "it is in no container that plimsoll started",
            );
        };
        if verdict.rule != CleanRule::Orphan || look.kernel || look.ancestor {
            return ActOutcome::kept_because(verdict, "not a process of plimsoll");
        }
        // Never once Docker knows the container again: then it is that which is to be ended.
        let mut may = |_: &ContainerFacts| May::Act;
        let patience = self.options.patience;
        let status = self
            .runtime
            .look_before(container, patience, &mut may, self.cancel)
            .await;
        match status {
            // Of that daemon alone does it mean anything that it does not know the container.
            Ok(ContainerStatus::Gone) => {
                let daemon = self.runtime.daemon_identity().await;
                if daemon.is_none() || daemon.as_deref() != record.map(|r| r.daemon.as_str()) {
                    let why = "whether this Docker daemon started its container is not known";
                    return ActOutcome::kept_because(verdict, why);
                }
            }
            Ok(_) => return ActOutcome::kept_because(verdict, "Docker knows its container"),
            Err(why) => return ActOutcome::not_done(verdict, why),
        }
        let stray = Stray {
            id,
            name: &look.name,
            container,
        };
        match stray::end_stray(stray, self.options.patience.kill_wait).await {
            StrayEnd::Gone => ActOutcome::new(verdict, ActResult::AlreadyGone),
            StrayEnd::Changed(why) => ActOutcome::kept_because(verdict, why),
            StrayEnd::Ended { killed, after } => {
                let mut outcome = ActOutcome::new(verdict, ActResult::Cleaned);
                let how = if killed { "killed after" } else { "ended in" };
                outcome
                    .steps
                    .push(format!("{how} {:.1} s", after.as_secs_f64()));
                outcome
            }
            StrayEnd::Survived(why) => ActOutcome {
                holders: Members::with_ids(BTreeSet::from([id])).describe_left(self.survey, None),
                ..ActOutcome::not_done(verdict, why)
            },
        }
    }

    pub(super) async fn marked(&self, verdict: &CleanVerdict, id: &str) -> ActOutcome {
        let Some(look) = self.container_look(id) else {
            return ActOutcome::not_done(verdict, "it was not looked at");
        };
        if verdict.rule != CleanRule::Leftover {
            return ActOutcome::kept_because(
                verdict,
                "no dead plimsoll's commands were seen in it",
            );
        }
        let dead: Vec<_> = look
            .processes
            .iter()
            .flatten()
            .filter_map(|p| Some((p, p.mark.as_ref()?)))
            .filter(|(_, mark)| mark.owner == Owner::Dead)
            .collect();

        // While the lock is held no plimsoll that lives works in it.
        let mut locked = HeldLock::default();
        let mut may = |facts: &ContainerFacts| match spared(facts) {
            Some(why) => May::Not(why),
            None => locked.take_lock(facts),
        };
        let patience = self.options.patience;
        let status = self
            .runtime
            .look_before(id, patience, &mut may, self.cancel)
            .await;
        let facts = match status {
            Ok(ContainerStatus::Here(facts)) if is_running(&facts) => facts,
            Ok(ContainerStatus::Here(_) | ContainerStatus::Gone) => {
                return ActOutcome::new(verdict, ActResult::AlreadyGone);
            }
            Ok(ContainerStatus::Left(why)) => return ActOutcome::kept_because(verdict, why),
            Err(why) => return ActOutcome::not_done(verdict, why),
        };
        let visible_here = (facts.state.pid).is_some_and(|pid| HostView::open(pid, id).is_some());
        if !visible_here {
            return ActOutcome::not_done(verdict, "this host does not show its processes");
        }
        let own = own_runs(&facts);
        let ours = || dead.iter().filter(|(_, mark)| !own.contains(&mark.run_id));
        let of_dead: BTreeSet<&str> = ours().map(|(_, m)| m.run_id.as_str()).collect();
        if of_dead.is_empty() {
            return ActOutcome::kept_because(verdict, "the mark in it is the container's own");
        }
        let known = ours().filter_map(|(p, _)| process_identity(p)).collect();
        let (mut there, mut left) = (0, 0);
        for run_id in of_dead {
            let counted = self.runtime.end_marked(&facts, run_id).await;
            there += counted.0;
            left += counted.1;
            self.runtime.remove_run_folder(id, run_id).await;
        }
        self.runtime.remove_dead_folders(&facts).await;
        let members = Members::with_ids(known);
        if left == 0 {
            members
                .wait_until_gone(self.options.settle, self.cancel)
                .await;
        }
        let left = left.max(members.still_there().len());
        let mut outcome = ActOutcome::new(verdict, ActResult::Cleaned);
        if there == 0 {
            outcome.done = ActResult::AlreadyGone;
        } else {
            outcome
                .steps
                .push(format!("ended {}", count_noun(there, "process")));
        }
        if left > 0 {
            outcome.done = ActResult::NotDone;
            outcome.problem = Some(format!(
                "{left} processes are still there after SIGKILL: `docker top {}` shows them",
                look.name
            ));
            outcome.holders = members.describe_left(self.survey, Some(look));
        }
        outcome
    }
}
