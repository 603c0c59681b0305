//! Ends what a dead plimsoll left running in a container of another owner, found by its mark.

use super::{Done, Locked, Outcome, Work, identity, spared};
use crate::capture::ContainerFacts;
use crate::clean::verdict::{Rule, Verdict};
use crate::clean::verify::Members;
use crate::container::leftovers::{Owner, own_runs};
use crate::container::processes::HostView;
use crate::container::teardown::{May, Seen, runs};
use std::collections::BTreeSet;

impl Work<'_> {
    pub(super) async fn marked(&self, verdict: &Verdict, id: &str) -> Outcome {
        let Some(look) = self.look(id) else {
            return Outcome::not_done(verdict, "it was not looked at");
        };
        if verdict.rule != Rule::Leftover {
            return Outcome::kept(verdict, "no dead plimsoll's commands were seen in it");
        }
        let dead: Vec<_> = look
            .processes
            .iter()
            .flatten()
            .filter_map(|p| Some((p, p.mark.as_ref()?)))
            .filter(|(_, mark)| mark.owner == Owner::Dead)
            .collect();

        // While the lock is held no plimsoll that lives works in it.
        let mut locked = Locked::default();
        let mut may = |facts: &ContainerFacts| match spared(facts) {
            Some(why) => May::Not(why),
            None => locked.take(facts),
        };
        let patience = self.options.patience();
        let seen = self
            .runtime
            .look_before(id, patience, &mut may, self.cancel)
            .await;
        let facts = match seen {
            Ok(Seen::Here(facts)) if runs(&facts) => facts,
            Ok(Seen::Here(_) | Seen::Gone) => return Outcome::new(verdict, Done::AlreadyGone),
            Ok(Seen::Left(why)) => return Outcome::kept(verdict, why),
            Err(why) => return Outcome::not_done(verdict, why),
        };
        let seen_here = (facts.state.pid).is_some_and(|pid| HostView::open(pid, id).is_some());
        if !seen_here {
            return Outcome::not_done(verdict, "this host does not show its processes");
        }
        let own = own_runs(&facts);
        let ours = || dead.iter().filter(|(_, mark)| !own.contains(&mark.run_id));
        let of_dead: BTreeSet<&str> = ours().map(|(_, m)| m.run_id.as_str()).collect();
        if of_dead.is_empty() {
            return Outcome::kept(verdict, "the mark in it is the container's own");
        }
        let known = ours().filter_map(|(p, _)| identity(p)).collect();
        let (mut there, mut left) = (0, 0);
        for run_id in of_dead {
            let counted = self.runtime.end_marked(&facts, run_id).await;
            there += counted.0;
            left += counted.1;
            self.runtime.remove_run_folder(id, run_id).await;
        }
        self.runtime.remove_dead_folders(&facts).await;
        let members = Members::of(known);
        if left == 0 {
            members.wait(self.options.settle, self.cancel).await;
        }
        let left = left.max(members.left().len());
        let mut outcome = Outcome::new(verdict, Done::Cleaned);
        if there == 0 {
            outcome.done = Done::AlreadyGone;
        } else {
            let processes = if there == 1 { "process" } else { "processes" };
            outcome.steps.push(format!("ended {there} {processes}"));
        }
        if left > 0 {
            outcome.done = Done::NotDone;
            outcome.problem = Some(format!(
                "{left} processes are still there after SIGKILL: `docker top {}` shows them",
                look.name
            ));
            outcome.holders = members.names(self.survey, Some(look));
        }
        outcome
    }
}
