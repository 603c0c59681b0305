//! Ending a container: stopped, killed if it must be, removed if plimsoll created it.

use super::{Done, Locked, Outcome, Work, chosen, identity, spared};
use crate::capture::ContainerFacts;
use crate::clean::facts::ContainerLook;
use crate::clean::verdict::{Act, Rule, Verdict};
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

impl Work<'_> {
    pub(super) async fn container(&self, verdict: &Verdict, id: &str) -> Outcome {
        let Some(look) = self.look(id) else {
            return Outcome::not_done(verdict, "it was not looked at");
        };
        let judged = self.survey.at.parse::<jiff::Timestamp>();
        let judged_ns = judged
            .ok()
            .and_then(|t| i64::try_from(t.as_nanosecond()).ok());
        let thawed = thaw(verdict, look);
        let mut locked = Locked::default();
        let known = look.processes.iter().flatten().filter_map(identity);
        let mut members = Members::of(known.collect());
        let mut began = false;
        let mut may = |facts: &ContainerFacts| {
            let why = spared(facts)
                .or_else(|| changed(verdict, look, facts, judged_ns, began))
                // Once it was asked to stop Docker itself kills it, whoever joined since.
                .or_else(|| (!began).then(|| self.joined(verdict, facts))?);
            if let Some(why) = why {
                return May::Not(why);
            }
            let may = locked.take(facts);
            if may == May::Act {
                began = true;
                members.see(facts);
            }
            may
        };
        let done = self
            .runtime
            .tear_down(
                id,
                look.ours,
                self.options.patience(),
                &mut may,
                self.cancel,
            )
            .await;
        let mut outcome = match done.torn {
            Torn::Gone { by_us: true } | Torn::Ended { by_us: true } => {
                Outcome::new(verdict, Done::Cleaned)
            }
            // Docker was at it, and could not go on before.
            Torn::Gone { .. } if thawed.as_deref() == Some(THAWED) => {
                Outcome::new(verdict, Done::Cleaned)
            }
            Torn::Gone { by_us: false } | Torn::Ended { by_us: false } => {
                Outcome::new(verdict, Done::AlreadyGone)
            }
            Torn::Left(why) => Outcome::kept(verdict, why),
            Torn::Failed(why) => Outcome::not_done(verdict, why),
        };
        outcome.steps = thawed.into_iter().chain(done.steps).collect();
        match outcome.done {
            Done::Cleaned | Done::AlreadyGone => {
                members.wait(self.options.settle, self.cancel).await;
                let left = members.left();
                if !left.is_empty() {
                    outcome.done = Done::NotDone;
                    outcome.problem = Some(format!(
                        "it has ended, and {} of its processes are still there",
                        left.len()
                    ));
                    outcome.holders = members.names(self.survey, Some(look));
                } else if look.ours {
                    // Nothing of it is left that could be known by what was written down.
                    started::forget(id);
                }
            }
            Done::NotDone => outcome.holders = members.names(self.survey, Some(look)),
            Done::Kept => {}
        }
        outcome
    }
}

/// Thaws a container of ours on which Docker hangs; what was done. Docker cannot be asked about it,
/// and its labels are for good: by them it is looked at once more.
fn thaw(verdict: &Verdict, look: &ContainerLook) -> Option<String> {
    let owner = look.labels.get(OWNER_LABEL).map(|label| owner_named(label));
    let ours = look.ours && owner == Some(Owner::Dead) && !is_protected(&look.labels);
    if verdict.rule != Rule::OwnerDead || !ours {
        return None;
    }
    let state = freezer::frozen(&look.id)?;
    let still = look.freezer.as_deref() == state.to_str();
    if !still {
        return None;
    }
    Some(match freezer::thaw(&state) {
        Ok(()) => THAWED.into(),
        Err(e) => format!(
            "not thawed ({e}): `echo THAWED | sudo tee {}`",
            state.display()
        ),
    })
}

impl Work<'_> {
    /// Who is in its pid namespace at this moment and is not ours, where the user did not name it: it
    /// would end with it.
    fn joined(&self, verdict: &Verdict, facts: &ContainerFacts) -> Option<String> {
        let runs = teardown::runs(facts) && !self.runtime.is_remote();
        let init = facts.state.pid.filter(|_| runs)?;
        if verdict.rule == Rule::Named || HostView::open(init, &facts.id).is_none() {
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
    verdict: &Verdict,
    look: &ContainerLook,
    facts: &ContainerFacts,
    judged_ns: Option<i64>,
    began: bool,
) -> Option<String> {
    let ours = teardown::is_ours(facts);
    if !(chosen(verdict.rule) || look.ours && ours) {
        return Some("it was not created by plimsoll, and nobody chose it".into());
    }
    if verdict.rule == Rule::OwnerDead && owner_of(facts) != Owner::Dead {
        return Some("whether the plimsoll that created it has ended is not known".into());
    }
    let runs = teardown::runs(facts);
    if verdict.act == Act::Remove && runs && !began {
        return Some("it was started again".into());
    }
    // Whoever named it means it, however often it was started since.
    if verdict.rule == Rule::Named {
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
    use crate::clean::verdict::Of;
    use crate::container::{OWNER_LABEL, RUN_LABEL};

    fn verdict(act: Act, rule: Rule) -> Verdict {
        Verdict {
            of: Of::Container("c".into()),
            name: "c".into(),
            act,
            rule,
            why: String::new(),
            advice: None,
        }
    }

    fn facts(ours: bool, status: &str, started_ns: i64) -> ContainerFacts {
        // Of this boot, and of no process.
        let owner = crate::container::launch::owner();
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
        assert!(!kept(Act::Stop, Rule::OwnerDead, true, &before));
        assert!(kept(Act::Stop, Rule::OwnerDead, true, &since));
        let theirs = facts(false, "running", 110);
        assert!(kept(Act::Stop, Rule::Idle, false, &theirs));
        assert!(kept(Act::Stop, Rule::Selected, false, &theirs));
        assert!(!kept(Act::Stop, Rule::Named, false, &theirs));
        assert!(kept(Act::Remove, Rule::Ended, true, &before), "it runs");
        assert!(!kept(
            Act::Remove,
            Rule::Ended,
            true,
            &facts(true, "exited", 90)
        ));
        let unknown = changed(
            &verdict(Act::Stop, Rule::OwnerDead),
            &look(true),
            &before,
            None,
            false,
        );
        assert!(unknown.is_some());
    }

    #[test]
    fn what_is_not_ours_needs_somebody_who_chose_it() {
        let theirs = facts(false, "running", 90);
        for rule in [
            Rule::OwnerDead,
            Rule::Unhealthy,
            Rule::PastDeadline,
            Rule::Ended,
            Rule::Foreign,
            Rule::Leftover,
        ] {
            for claimed in [true, false] {
                let why = changed(
                    &verdict(Act::Stop, rule),
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
