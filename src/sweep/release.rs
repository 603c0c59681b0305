//! The end of a group's engine: what is ours of it goes, and its memory must be given back.

use super::context::SweepContext;
use super::engine::{OwnedPart, RunningEngine};
use super::trouble::CellTrouble;
use crate::clean::memory::MemoryGate;
use crate::collect;
use crate::error::{ExitCode, Failure};
use crate::matrix::{RowCause, RowPhase};
use crate::progress::{Progress, Sink, Stage};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time for an engine to finish its work when it is asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// Ends what is ours of it and waits until its memory is freed. Problems are reported, and returned
/// as the reason why the next start on the same devices would fail.
pub async fn end_engine(
    context: &SweepContext<'_>,
    mut running: RunningEngine,
    progress: &Sink,
) -> Option<UnsettledMemory> {
    if let Some(kept) = running.kept.take().flatten() {
        kept.end_process().await;
    }
    let RunningEngine {
        attached,
        own,
        gate,
        lock,
        workdirs,
        ..
    } = running;
    let facts = attached.found.facts;
    progress(Progress::Stage(Stage::Cleanup));
    // What we put into a user's container is removed; our own container goes as a whole.
    if let (Some(folder), false) = (
        workdirs.made_place(),
        matches!(own, OwnedPart::Container { .. }),
    ) {
        if !context.runtime.remove_dir(&facts.id, folder).await {
            context.watcher.note(&format!(
                "`{folder}` stays in container `{}`: its image has no `rm`",
                facts.name
            ));
        }
    }
    let mut own_engine = true;
    match own {
        OwnedPart::Nothing => own_engine = false,
        OwnedPart::Container { name } => {
            let id = &facts.id;
            match collect::end_container(context.runtime, id, STOP_GRACE).await {
                Ok(()) => context.stop.note_settled(&name),
                Err(failure) => context.watcher.warning(&format!(
                    "container `{name}` could not be removed: {failure}. `plimsoll clean --apply` tries again"
                )),
            }
        }
        OwnedPart::Server { cancel, task } => {
            cancel.cancel();
            // It ends with its processes; that it panicked would leave nothing to be done here.
            let _ = task.await;
        }
    }
    drop(lock);
    let mut gate = gate.filter(|_| own_engine)?;
    // After Ctrl-C the memory is not waited for.
    let patience = context.options.settle_timeout;
    let waited = gate.wait_until_back(patience, context.stop.token());
    let held = waited.await.err()?;
    let failure = Failure::new(
        ExitCode::Environment,
        format!(
            "the last engine ended, but its memory was not freed: {}. `plimsoll clean` shows what holds it",
            gate.describe_held(&held, patience)
        ),
    );
    context.watcher.warning(&failure.message);
    Some(UnsettledMemory {
        trouble: CellTrouble::new(RowCause::MemoryHeld, RowPhase::Start, &failure),
        gate,
    })
}

/// Memory that was not given back: the next engine on these devices must not start on it.
pub struct UnsettledMemory {
    /// What its cells fail by.
    pub trouble: CellTrouble,
    gate: MemoryGate,
}

impl UnsettledMemory {
    /// Looks again. `None`: it was given back meanwhile.
    async fn look_again(mut self, cancel: &CancellationToken) -> Option<UnsettledMemory> {
        match self.gate.wait_until_back(Duration::ZERO, cancel).await {
            Ok(()) => None,
            Err(_) => Some(self),
        }
    }
}

/// All that engines have not given back, each with the devices and the container that its group had
/// taken. Another group that takes some of these does not make them its own.
#[derive(Default)]
pub struct MemoryDebts(Vec<(BTreeSet<String>, UnsettledMemory)>);

impl MemoryDebts {
    /// A group has ended, and given this not back.
    pub fn add_debt(&mut self, taken: BTreeSet<String>, held: Option<UnsettledMemory>) {
        // Without devices it blocks no other group.
        self.0
            .extend(held.filter(|_| !taken.is_empty()).map(|held| (taken, held)));
    }

    /// Looks at all of it again, and forgets what was given back meanwhile. Gives what a group on
    /// these fails by.
    pub async fn trouble_on(
        &mut self,
        taken: &BTreeSet<String>,
        cancel: &CancellationToken,
    ) -> Option<CellTrouble> {
        let mut found = None;
        for (devices, held) in std::mem::take(&mut self.0) {
            let Some(held) = held.look_again(cancel).await else {
                continue;
            };
            if found.is_none() && !devices.is_disjoint(taken) {
                found = Some(held.trouble.clone());
            }
            self.0.push((devices, held));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::memory::tests::Readings;

    const GIB: u64 = 1 << 30;

    /// Held on the first device of two, for as many looks.
    fn held(message: &str, looks: usize) -> UnsettledMemory {
        let (free, full) = ([Some(0); 2], [Some(9 * GIB), Some(0)]);
        let mut readings = vec![free];
        // One reading shows it, another one its holder.
        readings.extend(vec![full; 2 * looks]);
        readings.push(free);
        UnsettledMemory {
            trouble: CellTrouble {
                cause: RowCause::MemoryHeld,
                phase: RowPhase::Start,
                message: message.to_owned(),
                start: None,
            },
            gate: MemoryGate::with_backend(Box::new(Readings(readings)), "c"),
        }
    }

    #[tokio::test]
    async fn held_memory_is_counted_on_its_own_devices_alone() {
        let cancel = CancellationToken::new();
        let ids = |ids: &[&str]| ids.iter().map(|i| (*i).to_owned()).collect::<BTreeSet<_>>();
        let mut debts = MemoryDebts::default();
        debts.add_debt(ids(&["GPU-0"]), Some(held("first", 4)));
        debts.add_debt(ids(&["GPU-1"]), Some(held("second", 3)));
        let mut asked = Vec::new();
        for taken in [&["GPU-0", "GPU-1"][..], &["GPU-0"], &["GPU-1"], &["GPU-1"]] {
            let trouble = debts.trouble_on(&ids(taken), &cancel).await;
            asked.push(trouble.map(|t| t.message));
        }
        let asked: Vec<Option<&str>> = asked.iter().map(Option::as_deref).collect();
        let expected = [Some("first"), Some("first"), Some("second"), None];
        assert_eq!(asked, expected, "the second one came back at last");
    }
}
