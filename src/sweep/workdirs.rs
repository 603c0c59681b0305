//! What benches keep in the container where they run: folders for their files, all in one place of
//! the sweep's own, so that whoever goes on after a kill finds them, and a program that stays for all
//! cells of a group.

use super::context::SweepContext;
use super::engine::RunningEngine;
use super::folder::Folder;
use crate::collect::{self, KeptBench};
use crate::container::Runtime;
use crate::engine::{BenchKind, LoadKind};
use crate::error::Failure;
use sha2::{Digest, Sha256};

/// Folders for results that are made at once.
const FOLDERS: usize = 50;

/// Where a sweep's folders lie in any container: no other sweep's are there.
pub fn sweep_place(folder: &Folder) -> String {
    let digest = Sha256::digest(folder.id());
    let word: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("/tmp/plimsoll-sweep-{word}")
}

/// Folders in a container, one for each run: a result must never be taken for another cell's.
#[derive(Debug)]
pub struct Workdirs {
    place: String,
    parent: Option<String>,
    ready: Vec<String>,
    numbered: usize,
}

impl Workdirs {
    /// None yet.
    pub fn for_folder(folder: &Folder) -> Workdirs {
        Workdirs {
            place: sweep_place(folder),
            parent: None,
            ready: Vec::new(),
            numbered: 0,
        }
    }

    /// A folder that no other run has had. Many are made at once: each making runs a program in
    /// the container, beside what is measured.
    pub async fn next_folder(&mut self, runtime: &Runtime, id: &str) -> Result<String, Failure> {
        if self.ready.is_empty() {
            let place = &self.place;
            // Not every image has what removes the folders of an engine before this one.
            let own = || format!("{place}/{}", collect::run_id());
            let parent = self.parent.get_or_insert_with(own);
            let numbers = (self.numbered + 1..=self.numbered + FOLDERS).rev();
            self.ready = numbers.map(|n| format!("{parent}/{n}")).collect();
            self.numbered += FOLDERS;
            let paths: Vec<&str> = self.ready.iter().map(String::as_str).collect();
            runtime.make_dirs(id, &paths).await?;
        }
        // There is one: they were just made.
        Ok(self.ready.pop().unwrap_or_default())
    }

    /// The folder to remove with the engine, if anything was made. No other run of this sweep is in
    /// the container meanwhile.
    pub fn made_place(&self) -> Option<&str> {
        self.parent.as_ref().map(|_| self.place.as_str())
    }
}

impl RunningEngine {
    /// The bench's program that is kept running for the cells, where that can be had.
    pub async fn kept_bench(
        &mut self,
        context: &SweepContext<'_>,
        kind: LoadKind,
        run_id: &str,
    ) -> Result<Option<KeptBench>, Failure> {
        let serves = kind.of_engine() == Some(BenchKind::Serve);
        let program = self.attached.engine.kept_program;
        let wanted = program.filter(|_| serves && !context.options.fresh_client);
        let Some(program) = wanted else {
            return Ok(None);
        };
        if let Some(known) = &self.kept {
            return Ok(known.clone());
        }
        let id = &self.attached.found.facts.id;
        let folder = self.workdirs.next_folder(context.runtime, id).await?;
        let started = KeptBench::start_process(context.runtime, id, &folder, program, run_id).await;
        let kept = started.map_err(|why| {
            let note = format!("the bench's client is started anew for each cell: {why}");
            context.watcher.note(&note);
        });
        Ok(self.kept.insert(kept.ok()).clone())
    }
}
