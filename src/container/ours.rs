//! Ends containers that plimsoll created.

use super::teardown::{May, Patience, Torn, is_ours};
use super::{CREATED_LABEL, OWNER_LABEL, RUN_LABEL, Runtime};
use crate::capture::ContainerFacts;
use crate::error::Failure;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum difference between the label `plimsoll.created` and Docker's creation time, nanoseconds:
/// Docker may be busy, and its clock slightly off.
const CREATION: u64 = 600_000_000_000;

/// Whether our labels on a container are its own. They can come from an image that was made of a
/// container of ours, or from a tool that recreates a container with all its labels: then they
/// belong to the other container, and this one to a user.
pub fn labels_are_its_own(facts: &ContainerFacts, image: &BTreeMap<String, String>) -> bool {
    let own = |label| facts.labels.get(label) != image.get(label);
    let label = facts.labels.get(CREATED_LABEL);
    let stated = label.and_then(|label| label.parse::<jiff::Timestamp>().ok());
    let stated_ns = stated.and_then(|at| i64::try_from(at.as_nanosecond()).ok());
    let apart = stated_ns.zip(facts.created_ns).map(|(a, b)| a.abs_diff(b));
    let copied = apart.is_some_and(|ns| ns > CREATION);
    own(OWNER_LABEL) && own(RUN_LABEL) && !copied
}

impl Runtime {
    /// Whether a container's labels are ours and its own; false if its image is no longer on this
    /// machine.
    pub async fn is_of_us(&self, facts: &ContainerFacts) -> Result<bool, Failure> {
        let image = self.image_labels(&facts.image_id).await?;
        Ok(is_ours(facts) && image.is_some_and(|image| labels_are_its_own(facts, &image)))
    }

    /// Ends and removes the container of that name or id at once, if this run created it. Another
    /// run's container is left alone without an error. `Err`: its state is unknown, or it still
    /// exists.
    pub(super) async fn end_of_run(&self, id: &str, run_id: &str) -> Result<(), Failure> {
        let mut may = |facts: &ContainerFacts| {
            let of_run = facts.labels.get(RUN_LABEL).is_some_and(|run| run == run_id);
            if is_ours(facts) && of_run {
                May::Act
            } else {
                May::Not("another run's".into())
            }
        };
        let never = CancellationToken::new();
        let patience = Patience::for_grace(Duration::ZERO);
        let done = self.tear_down(id, true, patience, &mut may, &never).await;
        match done.torn {
            Torn::Over { .. } | Torn::Left(_) => Ok(()),
            Torn::Failed(why) => Err(Failure::environment(why)),
        }
    }

    /// Ends and removes a container of ours. If it is gone already this succeeds; one that plimsoll
    /// did not create is left alone, with an error.
    pub async fn end_ours(&self, id: &str, grace: Duration) -> Result<(), Failure> {
        let mut may = |facts: &ContainerFacts| {
            if is_ours(facts) {
                May::Act
            } else {
                May::Not(format!(
                    "container `{}` was not created by plimsoll: it is left alone",
                    facts.name
                ))
            }
        };
        let never = CancellationToken::new();
        let patience = Patience::for_grace(grace);
        let done = self.tear_down(id, true, patience, &mut may, &never).await;
        match done.torn {
            Torn::Over { .. } => Ok(()),
            Torn::Left(why) | Torn::Failed(why) => Err(Failure::environment(why)),
        }
    }
}
