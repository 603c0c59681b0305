//! A bench's program kept running for the cells of a group.

use super::context::Context;
use super::engine::Running;
use crate::collect::KeptBench;
use crate::engine::LoadKind;
use crate::error::Failure;

impl Running {
    /// The bench's program that is kept running for the cells, where that can be had.
    pub async fn kept_bench(
        &mut self,
        context: &Context<'_>,
        kind: LoadKind,
        run_id: &str,
    ) -> Result<Option<KeptBench>, Failure> {
        let program = kind
            .of_engine()
            .and_then(|k| self.attached.engine.kept_program(k));
        let wanted = program.filter(|_| !context.options.fresh_client);
        let Some(program) = wanted else {
            return Ok(None);
        };
        if let Some(known) = &self.kept {
            return Ok(known.clone());
        }
        let id = &self.attached.found.facts.id;
        let folder = self.workdirs.next(context.runtime, id).await?;
        let started = KeptBench::start(context.runtime, id, &folder, program, run_id).await;
        let kept = started.map_err(|why| {
            let note = format!("the bench's client is started anew for each cell: {why}");
            context.watcher.note(&note);
        });
        Ok(self.kept.insert(kept.ok()).clone())
    }

    /// Ends it.
    pub(super) async fn end_kept_bench(&mut self) {
        if let Some(kept) = self.kept.take().flatten() {
            kept.end().await;
        }
    }
}
