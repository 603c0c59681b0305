//! The journal of a sweep: what was begun and its result, a line each, synced before the next step
//! is taken.

use super::folder::CELLS_FOLDER;
use crate::error::Failure;
use crate::matrix::{CellId, CellRow, GroupId, RowStatus, Shard};
use crate::store::{FoundLines, JsonLines, bounded, json_line, line_document, read_lines};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// Version of the journal. A reader refuses a newer one.
pub const JOURNAL_VERSION: u32 = 1;

/// The file in a sweep's folder.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// Longest line of a session, bytes.
const LONGEST_SESSION: u64 = 64 << 10;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalRecord {
    /// A process begins to work on the sweep.
    Sweep(SweepSession),
    /// A cell is begun.
    Begin(CellBegin),
    /// An engine was started, or was not to be started.
    Start(EngineStart),
    /// A cell ended.
    End {
        /// Its result.
        row: Box<CellRow>,
    },
}

/// One process that works on a sweep: the first, and each that goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepSession {
    /// [`JOURNAL_VERSION`].
    pub journal_version: u32,
    /// `CARGO_PKG_VERSION` of the plimsoll that runs.
    pub plimsoll_version: String,
    /// Name of the sweep.
    pub name: String,
    /// When, RFC 3339, UTC.
    pub started: String,
    /// One process for each cell.
    pub fresh: bool,
    /// The part of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Whether it was joined of several runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
}

impl SweepSession {
    /// Of this plimsoll.
    pub fn new(name: &str, started: String, fresh: bool, shard: Option<Shard>) -> SweepSession {
        SweepSession {
            journal_version: JOURNAL_VERSION,
            plimsoll_version: env!("CARGO_PKG_VERSION").into(),
            name: name.into(),
            started,
            fresh,
            shard,
            joined: false,
        }
    }
}

/// A cell is begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellBegin {
    /// The cell.
    pub cell: CellId,
    /// How often it was begun, this time included.
    pub attempt: u32,
    /// The run that measures it: what it starts bears this id.
    pub run_id: String,
    /// When, RFC 3339, UTC.
    pub at: String,
}

/// An engine was started for a group, or was not to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineStart {
    /// The group.
    pub group: GroupId,
    /// The run that started it.
    pub run_id: String,
    /// Id of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Until it served, or until it was given up, seconds.
    pub took_s: f64,
    /// When, RFC 3339, UTC.
    pub at: String,
    /// Why it did not serve; a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The contents of a journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepHistory {
    /// Each process that worked on it, in order.
    pub sessions: Vec<SweepSession>,
    /// Of every cell the latest row.
    pub rows: HashMap<CellId, CellRow>,
    /// The cells of `rows`, in the order in which their first row came.
    pub order: Vec<CellId>,
    /// How often each cell was begun.
    pub attempts: HashMap<CellId, u32>,
    /// The cells that were begun last and have no row of that attempt: the process ended meanwhile.
    pub unfinished: Vec<CellBegin>,
    /// Every start of an engine.
    pub starts: Vec<EngineStart>,
    /// Every run, in the order in which they were first named.
    pub run_ids: Vec<String>,
    /// When each process that worked on it was last seen to, RFC 3339, UTC; one for each session.
    last_seen: Vec<String>,
    /// Lines that could not be read; sentences.
    pub warnings: Vec<String>,
}

impl SweepHistory {
    /// Reads a folder's journal without touching it. A folder without one has no history.
    pub fn read_journal(folder: &Path) -> Result<SweepHistory, Failure> {
        SweepHistory::from_records(read_lines(&folder.join(JOURNAL_FILE))?, folder)
    }

    /// The process that began a folder's run. However long its journal is, no more of it is read.
    pub fn first_session(folder: &Path) -> Option<SweepSession> {
        let begin = bounded::read_beginning(&folder.join(JOURNAL_FILE), LONGEST_SESSION).ok()?;
        let line = begin.split(|byte| *byte == b'\n').next()?;
        match serde_json::from_slice(&line_document(line)?).ok()? {
            JournalRecord::Sweep(session) => Some(session),
            _ => None,
        }
    }

    /// Whether a cell of a group was measured: then its engine fits, whatever an estimate predicts.
    pub fn measured(&self, group: &GroupId) -> bool {
        let mut rows = self.rows.values();
        rows.any(|row| row.group == *group && row.status == RowStatus::Done)
    }

    /// The latest rows, in the order in which their cells first ended.
    pub fn rows_in_order(&self) -> impl Iterator<Item = &CellRow> {
        self.order.iter().filter_map(|id| self.rows.get(id))
    }

    /// Seconds that processes worked on it in all, by the journal: from each one's beginning to its
    /// last line.
    pub fn worked_s(&self) -> f64 {
        let span = |(session, last): (&SweepSession, &String)| {
            let moment = |text: &str| text.parse::<jiff::Timestamp>().ok();
            let span = moment(last)?.duration_since(moment(&session.started)?);
            Some(span.as_secs_f64().max(0.0))
        };
        let spans = self.sessions.iter().zip(&self.last_seen);
        spans.filter_map(span).sum()
    }

    /// The process that works on it now was at it at this moment.
    fn note_seen(&mut self, at: &str) {
        if let Some(last) = self.last_seen.last_mut() {
            at.clone_into(last);
        }
    }

    fn from_records(
        found: FoundLines<JournalRecord>,
        folder: &Path,
    ) -> Result<SweepHistory, Failure> {
        let mut history = SweepHistory {
            warnings: found.warnings,
            ..SweepHistory::default()
        };
        let mut open: HashMap<CellId, CellBegin> = HashMap::new();
        let mut known = std::collections::HashSet::new();
        let mut run = |runs: &mut Vec<String>, id: &str| {
            if known.insert(id.to_owned()) {
                runs.push(id.to_owned());
            }
        };
        for record in found.records {
            match record {
                JournalRecord::Sweep(session) if session.journal_version > JOURNAL_VERSION => {
                    return Err(Failure::usage(format!(
                        "the sweep in `{}` was run by plimsoll {}, which is newer than this one",
                        folder.display(),
                        session.plimsoll_version
                    ))
                    .hint("update plimsoll"));
                }
                JournalRecord::Sweep(session) => {
                    history.last_seen.push(session.started.clone());
                    history.sessions.push(session);
                }
                JournalRecord::Begin(begin) => {
                    history.note_seen(&begin.at);
                    run(&mut history.run_ids, &begin.run_id);
                    history.attempted(&begin.cell, begin.attempt);
                    open.insert(begin.cell.clone(), begin);
                }
                JournalRecord::Start(start) => {
                    history.note_seen(&start.at);
                    run(&mut history.run_ids, &start.run_id);
                    history.starts.push(start);
                }
                JournalRecord::End { row } => {
                    history.note_seen(&row.ended);
                    history.attempted(&row.cell, row.attempt);
                    open.remove(&row.cell);
                    let cell = row.cell.clone();
                    if history.rows.insert(cell.clone(), *row).is_none() {
                        history.order.push(cell);
                    }
                }
            }
        }
        history.unfinished = open.into_values().collect();
        history
            .unfinished
            .sort_by(|a, b| (&a.at, &a.cell).cmp(&(&b.at, &b.cell)));
        Ok(history)
    }

    /// Refuses a journal that lacks cells of which the folder has profiles: it was emptied, cut, or
    /// cannot be read, and they would be measured again.
    fn check_profiles(&self, folder: &Path) -> Result<(), Failure> {
        let entries = std::fs::read_dir(folder.join(CELLS_FOLDER)).into_iter();
        let names = (entries.flatten().flatten()).filter_map(|e| e.file_name().into_string().ok());
        let unknown = |name: &String| {
            let cell = name.split('-').next().unwrap_or_default();
            let is_id = cell.len() == 12 && cell.bytes().all(|b| b.is_ascii_hexdigit());
            let known = self.attempts.contains_key(&CellId(cell.to_owned()));
            is_id && name.ends_with(".json") && !known
        };
        match names.filter(unknown).count() {
            0 => Ok(()),
            profiles => Err(Failure::environment(format!(
                "the journal of the run in `{}` lacks {profiles} cells that have profiles in its `{CELLS_FOLDER}` folder: it was emptied or is damaged",
                folder.display()
            ))
            .hint(format!("restore `{JOURNAL_FILE}` from a copy"))
            .hint("to measure these cells again, move their profiles elsewhere, or begin a new run")),
        }
    }

    fn attempted(&mut self, cell: &CellId, attempt: u32) {
        let most = self.attempts.entry(cell.clone()).or_default();
        *most = attempt.max(*most);
    }
}

/// A journal, open to be added to.
#[derive(Debug)]
pub struct Journal {
    lines: JsonLines,
}

impl Journal {
    /// Opens the journal of a folder that this process has locked, and returns its contents. What
    /// was torn by a crash is cut off.
    pub fn open_folder(folder: &Path) -> Result<(Journal, SweepHistory), Failure> {
        let path = folder.join(JOURNAL_FILE);
        let found = read_lines(&path)?;
        let whole = found.whole;
        // A journal of a newer plimsoll is refused before it is touched: what looks torn may be
        // its way.
        let history = SweepHistory::from_records(found, folder)?;
        history.check_profiles(folder)?;
        let lines = JsonLines::go_on(&path, whole)?;
        Ok((Journal { lines }, history))
    }

    /// This process begins to work.
    pub fn write_session(&mut self, session: &SweepSession) -> Result<(), Failure> {
        self.lines
            .append_value(&JournalRecord::Sweep(session.clone()))
    }

    /// A cell begins.
    pub fn write_begin(&mut self, begin: CellBegin) -> Result<(), Failure> {
        self.lines.append_value(&JournalRecord::Begin(begin))
    }

    /// An engine was started, or was not to be started.
    pub fn write_start(&mut self, start: EngineStart) -> Result<(), Failure> {
        self.lines.append_value(&JournalRecord::Start(start))
    }

    /// A cell ended. When this returns, its row is never lost and the cell never run again.
    pub fn write_end(&mut self, row: &CellRow) -> Result<(), Failure> {
        self.lines.append_value(&JournalRecord::End {
            row: Box::new(row.clone()),
        })
    }
}

/// A whole journal at once, as the joined results have it.
pub(super) fn journal_bytes<'a>(
    session: SweepSession,
    starts: impl Iterator<Item = &'a EngineStart>,
    rows: impl Iterator<Item = &'a CellRow>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = json_line(&JournalRecord::Sweep(session))?;
    for start in starts {
        bytes.extend(json_line(&JournalRecord::Start(start.clone()))?);
    }
    for row in rows {
        let row = Box::new(row.clone());
        bytes.extend(json_line(&JournalRecord::End { row })?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::RowStatus;
    use crate::matrix::samples::{cell, row};
    use proptest::prelude::*;

    fn begin(cell: &CellId, attempt: u32) -> CellBegin {
        CellBegin {
            cell: cell.clone(),
            attempt,
            run_id: format!("run-{cell}-{attempt}"),
            at: "2026-11-20T10:00:00Z".into(),
        }
    }

    #[test]
    fn a_journal_that_lost_cells_with_profiles_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let cells = folder.join(CELLS_FOLDER);
        std::fs::create_dir(&cells).unwrap();
        let id = CellId("0123456789ab".into());
        std::fs::write(cells.join(format!("{id}-m-in1-out1.json")), "{}").unwrap();
        std::fs::write(cells.join("notes.json"), "{}").unwrap();
        for spoilt in ["", "no line of a journal", "{\"end\":"] {
            std::fs::write(folder.join(JOURNAL_FILE), spoilt).unwrap();
            let refused = Journal::open_folder(folder).unwrap_err();
            assert!(refused.message.contains("lacks 1 cells"), "{refused}");
            let after = std::fs::read_to_string(folder.join(JOURNAL_FILE)).unwrap();
            assert_eq!(after, spoilt);
        }
        let whole = json_line(&JournalRecord::Begin(begin(&id, 1))).unwrap();
        std::fs::write(folder.join(JOURNAL_FILE), whole).unwrap();
        Journal::open_folder(folder).unwrap();
    }

    fn engine(group: &GroupId) -> EngineStart {
        EngineStart {
            group: group.clone(),
            run_id: "run-of-the-group".into(),
            container: None,
            took_s: 42.0,
            at: "2026-11-20T10:00:00Z".into(),
            failed: None,
        }
    }

    /// A sweep of so many cells, as it is written.
    fn run(folder: &Path, cells: u32) -> Vec<CellRow> {
        let (mut journal, _) = Journal::open_folder(folder).unwrap();
        journal
            .write_session(&SweepSession::new("s", "now".into(), false, None))
            .unwrap();
        let rows: Vec<CellRow> = (0..cells)
            .map(|n| row(&cell("m", 128, 128, n + 1), RowStatus::Done))
            .collect();
        journal.write_start(engine(&rows[0].group)).unwrap();
        for row in &rows {
            journal.write_begin(begin(&row.cell, 1)).unwrap();
            journal.write_end(row).unwrap();
        }
        rows
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let rows = run(dir.path(), 3);
        let (mut journal, history) = Journal::open_folder(dir.path()).unwrap();
        assert_eq!(history.rows_in_order().cloned().collect::<Vec<_>>(), rows);
        assert_eq!(history.starts, [engine(&rows[0].group)]);
        assert_eq!(history.run_ids.len(), 4);
        assert_eq!((history.unfinished.len(), history.warnings.len()), (0, 0));

        let again = CellRow {
            attempt: 2,
            status: RowStatus::Failed,
            ..rows[1].clone()
        };
        journal.write_begin(begin(&rows[2].cell, 2)).unwrap();
        journal.write_end(&again).unwrap();
        let history = SweepHistory::read_journal(dir.path()).unwrap();
        assert_eq!(history.rows[&again.cell], again, "the latest counts");
        assert_eq!(history.order.len(), 3);
        assert_eq!(history.unfinished, [begin(&rows[2].cell, 2)]);
        assert_eq!(history.attempts[&rows[2].cell], 2);
        assert_eq!(history.attempts[&rows[0].cell], 1);
    }

    #[test]
    fn a_flipped_bit_is_named_and_never_a_result() {
        let dir = tempfile::tempdir().unwrap();
        let rows = run(dir.path(), 5);
        let path = dir.path().join(JOURNAL_FILE);
        let bytes = std::fs::read(&path).unwrap();
        let known: HashMap<CellId, CellRow> =
            rows.into_iter().map(|r| (r.cell.clone(), r)).collect();
        let mut silent = Vec::new();
        for n in 0..600 {
            let (at, bit) = (n * (bytes.len() - 1) / 599, n % 8);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            std::fs::write(&path, &flipped).unwrap();
            let line = bytes[..at].iter().filter(|b| **b == b'\n').count() + 1;
            let history = SweepHistory::read_journal(dir.path()).unwrap();
            for row in history.rows_in_order() {
                assert_eq!(known.get(&row.cell), Some(row), "byte {at}, bit {bit}");
            }
            let named = |w: &String| w.contains(&format!("line {line} "));
            if !history.warnings.iter().any(named) {
                silent.push((at, bit, history.warnings));
            }
        }
        assert!(
            silent.is_empty(),
            "{} were not named: {:?}",
            silent.len(),
            silent[0]
        );
    }

    #[test]
    fn a_journal_without_sums_is_read_with_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let rows = run(dir.path(), 2);
        let path = dir.path().join(JOURNAL_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let old: String = text
            .lines()
            .map(|line| match line.find(",\"crc32\"") {
                Some(at) => format!("{}}}\n", &line[..at]),
                None => format!("{line}\n"),
            })
            .collect();
        std::fs::write(&path, old).unwrap();
        let (mut journal, history) = Journal::open_folder(dir.path()).unwrap();
        assert!(history.rows_in_order().eq(&rows));
        assert_eq!(history.warnings.len(), 1);
        assert!(
            history.warnings[0].contains("no checksum"),
            "{:?}",
            history.warnings
        );
        // What is added has sums: from there on a line without one was damaged.
        journal.write_begin(begin(&rows[0].cell, 2)).unwrap();
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(text.clone().lines().nth(3).unwrap());
        text.push('\n');
        std::fs::write(&path, text).unwrap();
        let warnings = SweepHistory::read_journal(dir.path()).unwrap().warnings;
        assert!(
            warnings.iter().any(|w| w.contains("line 8 ")),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_journal_of_the_future_is_refused_and_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(JOURNAL_FILE);
        let newer = SweepSession {
            journal_version: JOURNAL_VERSION + 1,
            plimsoll_version: "9.0.0".into(),
            ..SweepSession::default()
        };
        let mut bytes = json_line(&JournalRecord::Sweep(newer)).unwrap();
        bytes.extend(b"{\"half");
        std::fs::write(&path, &bytes).unwrap();
        let e = Journal::open_folder(dir.path()).unwrap_err();
        assert!(e.message.contains("9.0.0"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn a_folder_without_a_journal_has_no_history() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            SweepHistory::read_journal(dir.path()).unwrap(),
            SweepHistory::default()
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn cut_at_any_byte_the_finished_cells_are_there_and_it_goes_on(
            cells in 1..5u32, at in 0.0..1.0f64
        ) {
            let dir = tempfile::tempdir().unwrap();
            let rows = run(dir.path(), cells);
            let path = dir.path().join(JOURNAL_FILE);
            let bytes = std::fs::read(&path).unwrap();
            let cut = (at * (bytes.len() + 1) as f64) as usize;
            let kept = std::str::from_utf8(&bytes[..cut]).unwrap();
            let finished = kept
                .split_inclusive('\n')
                .filter(|l| l.ends_with('\n') && l.starts_with("{\"end\""))
                .count();
            std::fs::write(&path, kept).unwrap();

            let (mut journal, history) = Journal::open_folder(dir.path()).unwrap();
            let read: Vec<CellRow> = history.rows_in_order().cloned().collect();
            prop_assert_eq!(&read[..], &rows[..finished]);
            prop_assert!(history.unfinished.len() <= 1);
            for row in &rows[finished..] {
                journal.write_end(row).unwrap();
            }
            let whole = SweepHistory::read_journal(dir.path()).unwrap();
            prop_assert!(whole.warnings.is_empty(), "{:?}", whole.warnings);
            prop_assert_eq!(whole.rows_in_order().cloned().collect::<Vec<_>>(), rows);
        }
    }

    #[test]
    fn a_long_journal_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let cells: Vec<_> = (1..=10_000).map(|n| cell("m", 128, 128, n)).collect();
        let rows: Vec<CellRow> = cells.iter().map(|c| row(c, RowStatus::Done)).collect();
        let session = SweepSession::new("s", "now".into(), false, None);
        let bytes = journal_bytes(session, std::iter::empty(), rows.iter()).unwrap();
        std::fs::write(dir.path().join(JOURNAL_FILE), &bytes).unwrap();
        let (_, history) = Journal::open_folder(dir.path()).unwrap();
        assert!(history.rows_in_order().eq(&rows));
    }
}
