//! The end of a group's engine: what is ours of it goes, and its memory must be given back.

use super::context::Context;
use super::engine::{Own, Running};
use super::trouble::Trouble;
use crate::clean::memory::Gate;
use crate::collect;
use crate::error::{ExitCode, Failure};
use crate::matrix::{Cause, RowPhase};
use crate::progress::{Progress, Sink, Stage};
use std::time::Duration;

/// An engine that is asked to stop may finish what it does for so long.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// Ends what is ours of it and waits until its memory is given back. Problems are told and give the
/// sentence that the next start on the same devices would fail by.
pub async fn end(context: &Context<'_>, mut running: Running, news: &Sink) -> Option<Unsettled> {
    running.end_kept_bench().await;
    let Running {
        found,
        own,
        gate,
        lock,
        workdirs,
        ..
    } = running;
    news(Progress::Stage(Stage::Cleanup));
    // What we put into somebody's container goes again; our own goes as a whole.
    if let (Some(folder), false) = (workdirs.made(), matches!(own, Own::Container { .. })) {
        if !context.runtime.remove_dir(&found.facts.id, folder).await {
            context.watcher.note(&format!(
                "`{folder}` stays in container `{}`: its image has no `rm`",
                found.facts.name
            ));
        }
    }
    let mut own_engine = true;
    match own {
        Own::Nothing => own_engine = false,
        Own::Container { name } => {
            let id = &found.facts.id;
            match collect::end(context.runtime, id, STOP_GRACE).await {
                Ok(()) => context.stop.settled(&name),
                Err(failure) => context.watcher.warning(&format!(
                    "container `{name}` could not be removed: {failure}"
                )),
            }
        }
        Own::Server { cancel, task } => {
            cancel.cancel();
            // It ends with its processes; that it panicked would leave nothing to be done here.
            let _ = task.await;
        }
    }
    drop(lock);
    let mut gate = gate.filter(|_| own_engine)?;
    // Nobody waits for memory who wants to leave.
    let waited = gate.wait(context.options.settle_timeout, context.stop.token());
    let held = waited.await.err()?;
    let failure = Failure::new(
        ExitCode::Environment,
        format!("memory was not given back: {}", held.words),
    );
    context.watcher.warning(&failure.message);
    Some(Unsettled {
        trouble: Trouble::new(Cause::MemoryHeld, RowPhase::Start, &failure),
        gate,
    })
}

/// Memory that was not given back: the next engine on these devices must not start on it.
pub struct Unsettled {
    /// What its cells fail by.
    pub trouble: Trouble,
    gate: Gate,
}

impl Unsettled {
    /// Looks again. `None`: it was given back meanwhile.
    pub async fn look(mut self, context: &Context<'_>) -> Option<Unsettled> {
        let waited = self.gate.wait(Duration::ZERO, context.stop.token());
        match waited.await {
            Ok(()) => None,
            Err(_) => Some(self),
        }
    }
}
