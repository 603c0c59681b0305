//! A sweep from end to end: its file, what its folder tells, and that nothing of it is left.
#![allow(dead_code, missing_docs)]

use crate::common::e2e::{Ended, Live, plimsoll, read};
use crate::common::{docker, whole_seconds};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place for sweeps of one test. What a test leaves running when it fails is ended with it.
pub struct Desk(tempfile::TempDir);

impl Desk {
    pub fn new() -> Desk {
        Desk(tempfile::tempdir().unwrap())
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    pub fn results(&self) -> PathBuf {
        self.dir().join("results")
    }

    /// Writes a sweep file.
    pub fn file(&self, text: &str) -> String {
        let path = self.dir().join("sweep.yaml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// `plimsoll sweep`, with results of the test's own.
    pub fn command(&self, args: &[&str]) -> Command {
        let results = format!("--results-dir={}", self.results().display());
        let mut all = vec!["sweep", results.as_str()];
        all.extend(args);
        plimsoll(&all)
    }

    /// Runs it to its end, with this exit code; nothing of it is left then.
    #[track_caller]
    pub fn sweep(&self, args: &[&str], code: i32) -> Swept {
        Swept::of(Live::start(self.command(args)).end().expect(code))
    }

    /// Containers of any sweep of this test.
    pub fn containers(&self) -> Vec<String> {
        let ours = ids(self.dir());
        let format = "{{.ID}} {{.Label \"plimsoll.sweep\"}}";
        let list = [
            "ps",
            "-a",
            "--filter",
            "label=plimsoll.sweep",
            "--format",
            format,
        ];
        let list = docker(&list).unwrap_or_default();
        list.lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, sweep)| ours.iter().any(|id| id == sweep))
            .map(|(id, _)| id.to_owned())
            .collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for id in self.containers() {
            let _ = docker(&["rm", "-f", "-v", &id]);
        }
    }
}

/// The ids of all sweeps in a folder, however deep.
fn ids(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match (entry.path().is_dir(), entry.file_name() == "id") {
            (true, _) => found.extend(ids(&entry.path())),
            (false, true) => found.extend(std::fs::read_to_string(entry.path()).ok()),
            (false, false) => {}
        }
    }
    found.iter_mut().for_each(|id| *id = id.trim().to_owned());
    found
}

/// A sweep that has ended.
pub struct Swept {
    pub ended: Ended,
    pub folder: PathBuf,
    pub results: Value,
    pub journal: Vec<Value>,
}

impl Swept {
    #[track_caller]
    pub fn of(ended: Ended) -> Swept {
        let folder = ended
            .stderr
            .lines()
            .find_map(|l| l.strip_prefix("results: "));
        let folder = folder.unwrap_or_else(|| panic!("no results:\n{}", ended.stderr));
        let folder = PathBuf::from(folder);
        let swept = Swept {
            results: read(&folder.join("results.json")),
            journal: journal(&folder),
            folder,
            ended,
        };
        swept.table_says_the_same();
        swept.nothing_is_left();
        swept
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        // Joined results were run by nobody.
        let Ok(id) = std::fs::read_to_string(self.folder.join("id")) else {
            return;
        };
        let label = format!("label=plimsoll.sweep={}", id.trim());
        assert_eq!(docker(&["ps", "-aq", "--filter", &label]).unwrap(), "");
    }

    /// The table has the rows of the document.
    #[track_caller]
    fn table_says_the_same(&self) {
        let mut table = csv::Reader::from_path(self.folder.join("results.csv")).unwrap();
        let rows: Vec<BTreeMap<String, String>> = table.deserialize().map(Result::unwrap).collect();
        let from_table: Vec<String> = rows
            .iter()
            .map(|r| {
                let words = [&r["cell"], &r["status"], &r["cause"], &r["phase"]];
                words.map(String::as_str).join(" ")
            })
            .collect();
        let from_document: Vec<String> = self
            .cells()
            .map(|c| {
                let row = |key: &str| c["row"][key].as_str().unwrap_or_default().to_owned();
                let status = c["status"].as_str().unwrap();
                let words = [id(c), status.to_owned(), row("cause"), row("phase")];
                words.join(" ")
            })
            .collect();
        assert_eq!(from_table, from_document);
    }

    /// Every cell, with or without a row.
    pub fn cells(&self) -> impl Iterator<Item = &Value> {
        self.results["cells"].as_array().unwrap().iter()
    }

    /// The cells of a model.
    pub fn of_model(&self, model: &str) -> Vec<&Value> {
        self.cells().filter(|c| c["model"] == model).collect()
    }

    /// What became of a model's cells: `done`, `failed oom start`.
    #[track_caller]
    pub fn ends(&self, model: &str) -> Vec<String> {
        let cells = self.of_model(model);
        assert!(!cells.is_empty(), "no cells of {model}");
        cells.into_iter().map(end).collect()
    }

    /// The journal's records of one kind.
    pub fn records(&self, kind: &str) -> Vec<&Value> {
        records(&self.journal, kind)
    }

    /// Ids of the cells that were begun by the latest process, in order.
    pub fn begun(&self) -> Vec<String> {
        let mut since: Vec<&Value> = self.journal.iter().rev().collect();
        since.truncate(since.iter().position(|r| !r["sweep"].is_null()).unwrap());
        let begun = since.iter().rev().filter_map(|r| r.get("begin"));
        begun.map(id).collect()
    }

    /// The profile of a cell.
    #[track_caller]
    pub fn profile(&self, cell: &Value) -> Value {
        let path = cell["row"]["profile"].as_str();
        read(
            &self
                .folder
                .join(path.unwrap_or_else(|| panic!("no profile: {cell:#}"))),
        )
    }

    /// From the first cell that was begun in a group to the last row of it.
    #[track_caller]
    pub fn span(&self, cells: &[&Value]) -> (Timestamp, Timestamp) {
        let ids: Vec<String> = cells.iter().map(|c| id(c)).collect();
        let begun = self.records("begin").into_iter();
        let begun = begun
            .filter(|b| ids.contains(&id(b)))
            .map(|b| time(&b["at"]));
        let ended = self.records("end").into_iter().map(|e| &e["row"]);
        let ended = ended
            .filter(|r| ids.contains(&id(r)))
            .map(|r| time(&r["ended"]));
        (begun.min().unwrap(), ended.max().unwrap())
    }
}

/// A folder's journal.
pub fn journal(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap_or_default();
    let lines = text.lines();
    lines.filter_map(|l| serde_json::from_str(l).ok()).collect()
}

pub fn records<'a>(journal: &'a [Value], kind: &str) -> Vec<&'a Value> {
    journal.iter().filter_map(|r| r.get(kind)).collect()
}

/// Its cell's id.
pub fn id(of: &Value) -> String {
    of["cell"].as_str().unwrap().to_owned()
}

/// `done`, `failed oom start`.
pub fn end(cell: &Value) -> String {
    let row = &cell["row"];
    let words = [&cell["status"], &row["cause"], &row["phase"]];
    let words: Vec<&str> = words.into_iter().filter_map(Value::as_str).collect();
    words.join(" ")
}

pub fn time(text: &Value) -> Timestamp {
    text.as_str().unwrap().parse().unwrap()
}

/// Figures of a cell's row are what the engine was told to take, within 4 MiB.
#[track_caller]
pub fn parts_are(cell: &Value, mib: [(&str, f64); 3]) {
    let figures = &cell["row"]["figures"];
    for (part, truth) in mib {
        if part != "activations_bytes" && whole_seconds() {
            assert!(figures["peak_bytes"].is_u64(), "{cell:#}");
            continue;
        }
        let measured = figures[part].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 20);
        assert!(
            (measured - truth).abs() <= 4.0,
            "{part}: {measured} MiB measured, {truth} MiB true: {cell:#}"
        );
    }
}
