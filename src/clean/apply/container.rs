//! Ending a container: stopped, killed if it must be, removed if plimsoll created it.

use super::{ActOutcome, ActResult, ApplyWork, HeldLock, is_user_choice, process_identity, spared};
use crate::capture::ContainerFacts;
use crate::clean::facts::ContainerLook;
use crate::clean::verdict::{CleanAct, CleanRule, CleanVerdict};
use crate::clean::verify::Members;
use crate::container::freezer;
use crate::container::leftovers::{Owner, owner_named, owner_of};
use crate::container::namespace::Namespaces;
use crate::container::processes::HostView;
use crate::container::stray;
use crate::container::teardown::{self, May, Torn};
use crate::container::{OWNER_LABEL, is_protected};
use crate::store::started;

/// What was done to a container that was frozen.
const THAWED: &str = "thawed";

impl ApplyWork<'_> {
    pub(super) async fn end_container(&self, verdict: &CleanVerdict, id: &str) -> ActOutcome {
        let Some(look) = self.container_look(id) else {
            return ActOutcome::not_done(verdict, "it was not looked at");
        };
        let judged = self.survey.at.parse::<jiff::Timestamp>();
        let judged_ns = judged
            .ok()
            .and_then(|t| i64::try_from(t.as_nanosecond()).ok());
        let thawed = thaw(verdict, look);
        let mut locked = HeldLock::default();
        let known = look.processes.iter().flatten().filter_map(process_identity);
        let mut members = Members::with_ids(known.collect());
        let mut began = false;
        let mut may = |facts: &ContainerFacts| {
            let why = spared(facts)
                .or_else(|| changed(verdict, look, facts, judged_ns, began))
                // Once it was asked to stop Docker itself kills it, whoever joined since.
                .or_else(|| (!began).then(|| self.joined(verdict, facts))?);
            if let Some(why) = why {
                return May::Not(why);
            }
            let may = locked.take_lock(facts);
            if may == May::Act {
                began = true;
                members.add_members(facts);
            }
            may
        };
        let done = self
            .runtime
            .tear_down(id, look.ours, self.options.patience, &mut may, self.cancel)
            .await;
        let mut outcome = match done.torn {
            Torn::Over { by_us: true } => ActOutcome::new(verdict, ActResult::Cleaned),
            // Docker was at it, and could not go on before.
            Torn::Over { .. } if thawed.as_deref() == Some(THAWED) => {
                ActOutcome::new(verdict, ActResult::Cleaned)
            }
            Torn::Over { by_us: false } => ActOutcome::new(verdict, ActResult::AlreadyGone),
            Torn::Left(why) => ActOutcome::kept_because(verdict, why),
            Torn::Failed(why) => ActOutcome::not_done(verdict, why),
        };
        outcome.steps = thawed.into_iter().chain(done.steps).collect();
        match outcome.done {
            ActResult::Cleaned | ActResult::AlreadyGone => {
                members
                    .wait_until_gone(self.options.settle, self.cancel)
                    .await;
                let left = members.still_there();
                if !left.is_empty() {
                    outcome.done = ActResult::NotDone;
                    outcome.problem = Some(format!(
                        "it has ended, and {} of its processes are still there",
                        left.len()
                    ));
                    outcome.holders = members.describe_left(self.survey, Some(look));
                } else if look.ours {
                    // Nothing of it is left that could be known by what was written down.
                    started::forget_started(id);
                }
            }
            ActResult::NotDone => outcome.holders = members.describe_left(self.survey, Some(look)),
            ActResult::Kept => {}
        }
        outcome
    }
}

/// Thaws a container of ours on which Docker hangs; what was done. Docker cannot be asked about it,
/// and its labels are for good: by them it is looked at once more.
fn thaw(verdict: &CleanVerdict, look: &ContainerLook) -> Option<String> {
    let owner = look.labels.get(OWNER_LABEL).map(|label| owner_named(label));
    let ours = look.ours && owner == Some(Owner::Dead) && !is_protected(&look.labels);
    if verdict.rule != CleanRule::OwnerDead || !ours {
        return None;
    }
    let state = freezer::frozen_state_file(&look.id)?;
    let still = look.freezer.as_deref() == state.to_str();
    if !still {
        return None;
    }
    Some(match freezer::thaw_cgroup(&state) {
        Ok(()) => THAWED.into(),
        Err(e) => format!(
            "not thawed ({e}): `echo THAWED | sudo tee {}`",
            state.display()
        ),
    })
}

impl ApplyWork<'_> {
    /// Who is in its pid namespace at this moment and is not ours, where the user did not name it: it
    /// would end with it.
    fn joined(&self, verdict: &CleanVerdict, facts: &ContainerFacts) -> Option<String> {
        let runs = teardown::is_running(facts) && !self.runtime.is_remote();
        let init = facts.state.pid.filter(|_| runs)?;
        if verdict.rule == CleanRule::Named || HostView::open(init, &facts.id).is_none() {
            return None;
        }
        let Some(others) = Namespaces::read().sharers_of_first(init, &facts.id) else {
            return Some("who else is in its pid namespace cannot be seen from here".into());
        };
        let ours = |pid: &u32| {
            let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
            let cgroups = cgroups.unwrap_or_default();
            let mut containers = self.survey.containers.iter().filter(|c| c.ours);
            containers.any(|c| !c.id.is_empty() && cgroups.contains(&c.id))
        };
        let others: Vec<u32> = others.into_iter().filter(|pid| !ours(pid)).collect();
        stray::others_why(&others)
    }
}

/// Why it is not what was judged any more. `began`: something was done to it already.
fn changed(
    verdict: &CleanVerdict,
    look: &ContainerLook,
    facts: &ContainerFacts,
    judged_ns: Option<i64>,
    began: bool,
) -> Option<String> {
    let ours = teardown::is_ours(facts);
    if !(is_user_choice(verdict.rule) || look.ours && ours) {
        return Some("not created by plimsoll, and not selected".into());
    }
    if verdict.rule == CleanRule::OwnerDead && owner_of(facts) != Owner::Dead {
        return Some("whether the plimsoll that created it has ended is not known".into());
    }
    let runs = teardown::is_running(facts);
    if verdict.act == CleanAct::Remove && runs && !began {
        return Some("it was started again".into());
    }
    // Whoever named it means it, however often it was started since.
    if verdict.rule == CleanRule::Named {
        return None;
    }
    match (judged_ns, facts.state.started_ns) {
        (Some(judged), Some(started)) if started <= judged => None,
        // It never ran.
        (Some(_), None) => None,
        (Some(_), Some(_)) => Some("it was started again since it was judged".into()),
        (None, _) => Some("when it was judged is not known".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ContainerState;
    use crate::clean::verdict::VerdictSubject;
    use crate::container::{OWNER_LABEL, RUN_LABEL};

    fn verdict(act: CleanAct, rule: CleanRule) -> CleanVerdict {
        CleanVerdict {
            of: VerdictSubject::Container("c".into()),
            name: "c".into(),
            act,
            rule,
            why: String::new(),
            advice: None,
        }
    }

    fn facts(ours: bool, status: &str, started_ns: i64) -> ContainerFacts {
        // Of this boot, and of no process.
        let owner = crate::container::launch::owner_label();
        let owner = owner.replace(&format!(":{}:", std::process::id()), ":4194305:");
        let labels = [(RUN_LABEL, "r"), (OWNER_LABEL, owner.as_str())];
        ContainerFacts {
            labels: labels
                .iter()
                .filter(|_| ours)
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
            state: ContainerState {
                status: status.into(),
                started_ns: Some(started_ns),
                ..ContainerState::default()
            },
            ..ContainerFacts::default()
        }
    }

    fn look(ours: bool) -> ContainerLook {
        ContainerLook {
            ours,
            ..ContainerLook::default()
        }
    }

    #[test]
    fn what_was_started_again_is_kept_unless_it_was_named() {
        let at = Some(100);
        let kept = |act, rule, ours, facts: &ContainerFacts| {
            changed(&verdict(act, rule), &look(ours), facts, at, false).is_some()
        };
        let (before, since) = (facts(true, "running", 90), facts(true, "running", 110));
        assert!(!kept(CleanAct::Stop, CleanRule::OwnerDead, true, &before));
        assert!(kept(CleanAct::Stop, CleanRule::OwnerDead, true, &since));
        let theirs = facts(false, "running", 110);
        assert!(kept(CleanAct::Stop, CleanRule::Idle, false, &theirs));
        assert!(kept(CleanAct::Stop, CleanRule::Selected, false, &theirs));
        assert!(!kept(CleanAct::Stop, CleanRule::Named, false, &theirs));
        assert!(
            kept(CleanAct::Remove, CleanRule::Ended, true, &before),
            "it runs"
        );
        assert!(!kept(
            CleanAct::Remove,
            CleanRule::Ended,
            true,
            &facts(true, "exited", 90)
        ));
        let unknown = changed(
            &verdict(CleanAct::Stop, CleanRule::OwnerDead),
            &look(true),
            &before,
            None,
            false,
        );
        assert!(unknown.is_some());
    }

    #[test]
    fn a_foreign_container_needs_a_choice_of_the_user() {
        let theirs = facts(false, "running", 90);
        for rule in [
            CleanRule::OwnerDead,
            CleanRule::Unhealthy,
            CleanRule::PastDeadline,
            CleanRule::Ended,
            CleanRule::Foreign,
            CleanRule::Leftover,
        ] {
            for claimed in [true, false] {
                let why = changed(
                    &verdict(CleanAct::Stop, rule),
                    &look(claimed),
                    &theirs,
                    Some(100),
                    false,
                );
                assert!(why.is_some(), "{rule:?}");
            }
        }
    }
}
