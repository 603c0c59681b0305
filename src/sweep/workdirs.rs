//! Folders for the files of benches, in the container where they run: all in one place of the
//! sweep's own, so that whoever goes on after a kill finds them.

use super::folder::Folder;
use crate::collect;
use crate::container::Runtime;
use crate::error::Failure;
use sha2::{Digest, Sha256};

/// Folders for results that are made at once.
const FOLDERS: usize = 50;

/// Where a sweep's folders lie in any container: no other sweep's are there.
pub fn place(folder: &Folder) -> String {
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
    pub fn of(folder: &Folder) -> Workdirs {
        Workdirs {
            place: place(folder),
            parent: None,
            ready: Vec::new(),
            numbered: 0,
        }
    }

    /// A folder that no other run has had. Many are made at once: each making runs a program in
    /// the container, beside what is measured.
    pub async fn next(&mut self, runtime: &Runtime, id: &str) -> Result<String, Failure> {
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
    pub fn made(&self) -> Option<&str> {
        self.parent.as_ref().map(|_| self.place.as_str())
    }
}
