//! Ending a process that outlived its container.

use super::{Done, Outcome, Work, identity};
use crate::capture::ContainerFacts;
use crate::clean::verdict::{Rule, Verdict};
use crate::clean::verify::Members;
use crate::container::processes::ProcessId;
use crate::container::stray::{self, Stray, StrayEnd};
use crate::container::teardown::{May, Seen};
use std::collections::BTreeSet;

impl Work<'_> {
    pub(super) async fn process(
        &self,
        verdict: &Verdict,
        pid: u32,
        started: Option<u64>,
    ) -> Outcome {
        let Some(started) = started else {
            return Outcome::kept(verdict, "when it started is not known");
        };
        let id = ProcessId { pid, started };
        let mut strays = self.survey.strays.iter();
        let Some(look) = strays.find(|p| identity(p) == Some(id)) else {
            return Outcome::kept(verdict, "it was not looked at");
        };
        // What was written down when its container was started is what makes it ours.
        let record = look.record.as_ref();
        let Some(container) = look
            .container
            .as_deref()
            .filter(|c| record.is_some_and(|r| r.container == *c))
        else {
            return Outcome::kept(verdict, "it is in no container that plimsoll started");
        };
        if verdict.rule != Rule::Orphan || look.kernel || look.ancestor {
            return Outcome::kept(verdict, "it is no process of plimsoll's");
        }
        // Never once Docker knows the container again: then it is that which is to be ended.
        let mut may = |_: &ContainerFacts| May::Act;
        let patience = self.options.patience();
        let seen = self
            .runtime
            .look_before(container, patience, &mut may, self.cancel)
            .await;
        match seen {
            // Of that daemon alone does it mean anything that it does not know the container.
            Ok(Seen::Gone) => {
                let daemon = self.runtime.daemon_identity().await;
                if daemon.is_none() || daemon.as_deref() != record.map(|r| r.daemon.as_str()) {
                    let why = "whether this Docker daemon started its container is not known";
                    return Outcome::kept(verdict, why);
                }
            }
            Ok(_) => return Outcome::kept(verdict, "Docker knows its container"),
            Err(why) => return Outcome::not_done(verdict, why),
        }
        let stray = Stray {
            id,
            name: &look.name,
            container,
        };
        match stray::end(stray, self.options.kill_wait).await {
            StrayEnd::Gone => Outcome::new(verdict, Done::AlreadyGone),
            StrayEnd::Changed(why) => Outcome::kept(verdict, why),
            StrayEnd::Ended { killed, after } => {
                let mut outcome = Outcome::new(verdict, Done::Cleaned);
                let how = if killed { "killed after" } else { "ended in" };
                outcome
                    .steps
                    .push(format!("{how} {:.1} s", after.as_secs_f64()));
                outcome
            }
            StrayEnd::Survived(why) => Outcome {
                holders: Members::of(BTreeSet::from([id])).names(self.survey, None),
                ..Outcome::not_done(verdict, why)
            },
        }
    }
}
