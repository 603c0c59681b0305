//! What an earlier process of the same sweep left when it died: its containers, and its commands in
//! the user's containers. Only what bears this sweep's own labels and marks is touched.

use super::context::{SWEEP_LABEL, SweepContext};
use super::journal::SweepHistory;
use super::workdirs::sweep_place;
use crate::collect;
use crate::container::OWNER_LABEL;
use crate::container::launch::owner_label;
use crate::container::leftovers::{Owner, owner_of};
use crate::error::Failure;
use crate::matrix::{EnginePlace, SweepPlan};
use std::collections::BTreeSet;
use std::time::Duration;

/// An engine without an owner has nothing to finish.
const GRACE: Duration = Duration::from_secs(10);

/// Ends all of it. What cannot be ended is reported and stays.
pub async fn end_leftovers(
    context: &SweepContext<'_>,
    plan: &SweepPlan,
    history: &SweepHistory,
) -> Result<(), Failure> {
    if history.sessions.is_empty() {
        return Ok(());
    }
    let (runtime, watcher) = (context.runtime, context.watcher);
    let me = owner_label();
    for facts in runtime.list_ours().await? {
        if facts.labels.get(SWEEP_LABEL).map(String::as_str) != Some(context.folder.id()) {
            continue;
        }
        if facts.labels.get(OWNER_LABEL) == Some(&me) {
            continue;
        }
        // A container with labels from its image belongs to another owner.
        if !runtime.is_of_us(&facts).await? {
            watcher.warning(&format!(
                "container `{}` has this sweep's labels, perhaps from its image, so it is not removed. If you do not need it: `docker rm -f` with its name",
                facts.name
            ));
            continue;
        }
        match owner_of(&facts) {
            // The folder is ours alone, so its owner cannot be another sweep that lives.
            Owner::Alive | Owner::Unknown => watcher.warning(&format!(
                "container `{}` is of this sweep, but the plimsoll that started it may still run, so it is not removed. `plimsoll clean` shows both",
                facts.name
            )),
            Owner::Dead => match collect::end_container(runtime, &facts.id, GRACE).await {
                Ok(()) => watcher.note(&format!(
                    "container `{}`, which an earlier process of this sweep left, is removed",
                    facts.name
                )),
                Err(failure) => watcher.warning(&format!(
                    "container `{}` could not be removed: {failure}. `plimsoll clean --apply` tries again",
                    facts.name
                )),
            },
        }
    }
    in_containers(context, plan, history).await;
    Ok(())
}

/// Commands of ours in containers that are not.
async fn in_containers(context: &SweepContext<'_>, plan: &SweepPlan, history: &SweepHistory) {
    let names: BTreeSet<&str> = plan
        .groups
        .iter()
        .filter_map(|group| match &group.server.place {
            EnginePlace::Container(name) => Some(name.as_str()),
            EnginePlace::Image(_) => None,
        })
        .collect();
    let unfinished = history.unfinished.iter().map(|b| b.run_id.as_str());
    for name in names {
        let Ok(found) = context.runtime.find_container(name).await else {
            continue;
        };
        let id = found.facts.id.as_str();
        // A server outlives the cell that it was started for.
        let servers = (history.starts.iter())
            .filter(|s| s.container.as_deref() == Some(id))
            .map(|s| s.run_id.as_str());
        let runs: BTreeSet<&str> = servers.chain(unfinished.clone()).collect();
        for run_id in runs {
            let (there, left) = context.runtime.end_marked(&found.facts, run_id).await;
            if there > 0 {
                context.watcher.note(&format!(
                    "{there} processes that an earlier process of this sweep left in container `{name}` are ended"
                ));
            }
            if left > 0 {
                context.watcher.warning(&format!(
                    "{left} of these processes did not end: `docker top {name}` shows them"
                ));
            }
        }
        // Where the image has no `rm` it stays, as it does without a kill.
        context
            .runtime
            .remove_dir(id, &sweep_place(context.folder))
            .await;
    }
}
