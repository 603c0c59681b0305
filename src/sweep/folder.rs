//! The folder of a sweep: where everything lies in it, and who may work on it.

use super::journal::{JOURNAL_FILE, SweepHistory};
use crate::error::Failure;
use crate::matrix::{Cell, GroupId, Shard};
use crate::store::{
    FileLock, LockRefusal, RunPaths, bounded, claim_folder, claim_numbered, file_word, private,
    write_atomically,
};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// What each cell was.
pub(super) const CELLS_FILE: &str = "cells.json";
/// Profiles and captures.
pub(super) const CELLS_FOLDER: &str = "cells";
/// The configuration that was run, resolved and without secrets.
pub const CONFIG_FILE: &str = "config.resolved.yaml";
/// What the sweep ran on.
pub const ENV_FILE: &str = "env.json";
/// What ran out of memory, beside the folders of a sweep's runs.
pub(super) const OOM_FILE: &str = "oom.jsonl";
/// What to look for.
pub const JOURNAL_FILE_HINT: &str = "a run's folder has a file `journal.jsonl`";
/// Profiles and captures of starts.
pub(super) const STARTS_FOLDER: &str = "starts";
/// Where the run lies, when it is another machine that runs it.
pub const REMOTE_FILE: &str = "remote.json";
/// What names the folder.
pub const ID_FILE: &str = "id";
pub(super) const LOCK_FILE: &str = "lock";
/// Longest id, bytes.
const LONGEST_ID: u64 = 200;
const REPORT: &str = "batch-bench-report-";

/// The folder of a sweep. While this lives no other process works on it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    stamp: String,
    id: String,
    _lock: FileLock,
}

impl Folder {
    /// A new folder `<results>/<name>/<YYYYMMDD_HHMMSS>`; a second one of the same second gets a
    /// number.
    pub fn create_new(results: &Path, name: &str, now: &jiff::Zoned) -> Result<Folder, Failure> {
        let place = of_name(results, name);
        private::create_folders(&place).map_err(|e| cannot_write(&place, e))?;
        let stamp = time_stamp(now);
        let path = claim_folder(&place, &stamp).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Failure::environment(format!(
                "`{}` holds a thousand runs that began in this second",
                place.display()
            ))
            .hint("try again"),
            _ => cannot_write(&place, e),
        })?;
        let lock = lock_folder(&path)?;
        Folder::with_lock(path, stamp, lock)
    }

    /// A new run in a folder that the user names: it must be new, or empty.
    pub fn create_at(path: &Path, now: &jiff::Zoned) -> Result<Folder, Failure> {
        private::create_folders(path).map_err(|e| cannot_write(path, e))?;
        let shown = path.display();
        let lock = lock_folder(path)?;
        if is_run(path) {
            return Err(Failure::usage(format!("`{shown}` holds a run already"))
                .hint(format!("`--resume={shown}` resumes it"))
                .hint("or name another folder: a run is never written over"));
        }
        let mut others = fs::read_dir(path).map_err(|e| cannot_write(path, e))?;
        if others.any(|entry| entry.is_ok_and(|e| !is_of_a_beginning(&e))) {
            // It holds nothing of ours but the lock.
            let _ = fs::remove_file(path.join(LOCK_FILE));
            return Err(Failure::usage(format!("`{shown}` is not empty"))
                .hint("name a new folder: a run does not mix with other files"));
        }
        Folder::with_lock(path.to_owned(), time_stamp(now), lock)
    }

    /// The folder of an earlier run, to go on with it.
    pub fn open_earlier(path: &Path, now: &jiff::Zoned) -> Result<Folder, Failure> {
        if !is_run(path) {
            return Err(Failure::usage(format!(
                "there is no run to resume in `{}`",
                path.display()
            ))
            .hint(JOURNAL_FILE_HINT));
        }
        let stamp = stamp_of(path).unwrap_or_else(|| time_stamp(now));
        Folder::with_lock(path.to_owned(), stamp, lock_folder(path)?)
    }

    /// Gives up a run of which nothing came: its folder goes, unless there is more in it than a
    /// beginning.
    pub fn discard_run(self) {
        let _ = fs::remove_dir(self.path.join(CELLS_FOLDER));
        for name in [REMOTE_FILE, ID_FILE, LOCK_FILE] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }

    fn with_lock(path: PathBuf, stamp: String, lock: FileLock) -> Result<Folder, Failure> {
        let cells = path.join(CELLS_FOLDER);
        private::create_folders(&cells).map_err(|e| cannot_write(&path, e))?;
        let id = id_of(&path)?;
        Ok(Folder {
            path,
            stamp,
            id,
            _lock: lock,
        })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Places for the profile and the capture of a cell's attempt, claimed: no other attempt's are
    /// written over.
    pub fn cell_paths(&self, cell: &Cell, attempt: u32) -> Result<RunPaths, Failure> {
        let stem = format!("{}-{}", cell.id, slug(cell));
        claim_numbered(&self.path.join(CELLS_FOLDER), &stem, attempt)
    }

    /// The same for a start of a group's engine.
    pub fn start_paths(&self, group: &GroupId) -> Result<RunPaths, Failure> {
        let starts = self.path.join(STARTS_FOLDER);
        private::create_folders(&starts).map_err(|e| cannot_write(&starts, e))?;
        claim_numbered(&starts, &format!("{group}-start"), 1)
    }

    /// What names this folder among all of the host, wherever it is moved to.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A path of this folder for a row: relative, so that the folder can be moved.
    pub fn relative_path(&self, path: &Path) -> String {
        let inner = path.strip_prefix(&self.path).unwrap_or(path);
        inner.to_string_lossy().into_owned()
    }

    /// Every file that holds the results, all cells together.
    pub fn result_paths(&self) -> ResultPaths {
        ResultPaths::in_folder(&self.path, &self.stamp)
    }
}

/// Whether a run was begun in a folder, here or on another machine.
fn is_run(folder: &Path) -> bool {
    has_journal(folder) || folder.join(REMOTE_FILE).is_file()
}

/// Whether a folder has the journal of a run.
pub fn has_journal(folder: &Path) -> bool {
    folder.join(JOURNAL_FILE).is_file()
}

/// Whether a run that was killed before its first line has left this: its lock, and its folder for
/// cells with nothing in it.
fn is_of_a_beginning(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let empty = || fs::read_dir(entry.path()).is_ok_and(|mut inner| inner.next().is_none());
    name == LOCK_FILE || name == ID_FILE || name == CELLS_FOLDER && empty()
}

/// The id of a folder that this process has locked: as it was given, else a new one.
fn id_of(folder: &Path) -> Result<String, Failure> {
    let file = folder.join(ID_FILE);
    let plain = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_graphic());
    let read = bounded::read_beginning(&file, LONGEST_ID).ok();
    match read.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(id) if plain(id.trim()) => Ok(id.trim().to_owned()),
        _ => {
            // The host's boot id distinguishes two machines that share a file system.
            let boot = crate::host::boot_id().unwrap_or_default();
            let boot: String = boot.chars().take(8).collect();
            let id = format!("{}-{boot}", crate::collect::run_id());
            write_atomically(&file, format!("{id}\n").as_bytes())?;
            Ok(id)
        }
    }
}

/// The files that hold the results of all cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultPaths {
    /// The table.
    pub csv: PathBuf,
    /// The document.
    pub json: PathBuf,
    /// The page for people.
    pub report: PathBuf,
    /// The table once more, under the name that earlier tools gave it.
    pub batch_csv: PathBuf,
}

impl ResultPaths {
    pub(super) fn in_folder(folder: &Path, stamp: &str) -> ResultPaths {
        ResultPaths {
            csv: folder.join("results.csv"),
            json: folder.join("results.json"),
            report: folder.join(format!("{REPORT}{stamp}.txt")),
            batch_csv: folder.join(format!("batch-bench-results-{stamp}.csv")),
        }
    }
}

/// The folder of all runs of a sweep.
pub fn of_name(results: &Path, name: &str) -> PathBuf {
    results.join(file_word(name))
}

/// The runs of a sweep that have a journal, the newest first.
pub fn list_runs(results: &Path, name: &str) -> Vec<PathBuf> {
    let mut runs = folders(results, name);
    runs.retain(|path| has_journal(path));
    runs
}

/// The folders that bear the name of a run of a sweep, the newest first.
fn folders(results: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(of_name(results, name)) else {
        return Vec::new();
    };
    let mut runs: Vec<((String, u32), PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let key = run_key(path.file_name()?.to_str()?)?;
            Some((key, path))
        })
        .collect();
    runs.sort();
    runs.into_iter().rev().map(|(_, path)| path).collect()
}

/// The newest folder of a sweep's runs that is one of these.
pub fn latest_run(
    results: &Path,
    name: &str,
    one_of_these: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let mut runs = folders(results, name).into_iter();
    runs.find(|path| one_of_these(path))
}

/// Whether a run of this part was begun in a folder, on this machine. Where its journal does not
/// even have its first line, there is nothing to lose.
pub fn begun_here(folder: &Path, part: Option<Shard>) -> bool {
    let of_part =
        || SweepHistory::first_session(folder).is_none_or(|session| session.shard == part);
    has_journal(folder) && !folder.join(REMOTE_FILE).exists() && of_part()
}

/// The parts of a run that its scheduler has begun, each with a journal of its own.
pub fn list_shards(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run).into_iter().flatten();
    let shard = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("shard-")?.parse::<u32>().ok()?;
        Some(entry.path()).filter(|path| has_journal(path))
    };
    entries.filter_map(|e| shard(e.ok()?)).collect()
}

/// `20261121_130152-2` → its moment and its number.
fn run_key(name: &str) -> Option<(String, u32)> {
    let (stamp, number) = match name.split_once('-') {
        Some((stamp, number)) => (stamp, number.parse().ok()?),
        None => (name, 1),
    };
    is_stamp(stamp).then(|| (stamp.to_owned(), number))
}

fn is_stamp(text: &str) -> bool {
    text.len() == 15
        && text.char_indices().all(|(i, c)| match i {
            8 => c == '_',
            _ => c.is_ascii_digit(),
        })
}

pub(super) fn time_stamp(now: &jiff::Zoned) -> String {
    now.strftime("%Y%m%d_%H%M%S").to_string()
}

/// When a run began, by the name of its folder or of the report in it.
fn stamp_of(path: &Path) -> Option<String> {
    let named = path.file_name().and_then(|n| n.to_str()).and_then(run_key);
    if let Some((stamp, _)) = named {
        return Some(stamp);
    }
    let mut stamps: Vec<String> = fs::read_dir(path)
        .ok()?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let stamp = name.strip_prefix(REPORT)?.strip_suffix(".txt")?;
            is_stamp(stamp).then(|| stamp.to_owned())
        })
        .collect();
    stamps.sort();
    stamps.into_iter().next()
}

/// The model and the load as part of a file's name.
fn slug(cell: &Cell) -> String {
    let load = &cell.load;
    let model: String = file_word(&cell.server.model).chars().take(40).collect();
    let short = load
        .short_prompts
        .map(|short| format!("{}or", short.input_len));
    let short = short.unwrap_or_default();
    let mut slug = format!("{model}-in{short}{}-out{}", load.input_len, load.output_len);
    if let Some(batch) = load.batch_size {
        slug.push_str(&format!("-b{batch}"));
    }
    if let Some(rate) = load.request_rate {
        slug.push_str(&format!("-r{rate}"));
    }
    slug
}

/// Locks a folder. The file names the last holder, for those who share it over a network and see no
/// other host's processes.
fn lock_folder(folder: &Path) -> Result<FileLock, Failure> {
    let path = folder.join(LOCK_FILE);
    let open = || -> io::Result<(File, File)> {
        // Over NFS only a file that is open for writing can be locked.
        let file = private::open_to_lock(&path, true)?;
        let writer = file.try_clone()?;
        Ok((file, writer))
    };
    let (file, mut writer) = open().map_err(|e| cannot_write(folder, e))?;
    match FileLock::take_lock(file) {
        Ok(lock) => {
            let me = format!(
                "pid {} on {}\n",
                std::process::id(),
                crate::host::read_facts().hostname
            );
            // Only for people to read: the lock holds without.
            let _ = writer
                .set_len(0)
                .and_then(|()| writer.rewind())
                .and_then(|()| writer.write_all(me.as_bytes()));
            Ok(lock)
        }
        Err(LockRefusal::Held(pid)) => Err(Failure::environment(format!(
            "the sweep in `{}` is being run: it is held by {}",
            folder.display(),
            who(pid, &mut writer)
        ))
        .hint("wait for its end, or end it; then use `--resume`")),
        Err(LockRefusal::Cannot(e)) => Err(Failure::environment(format!(
            "cannot lock `{}`; the lock keeps a second plimsoll from running the same sweep",
            folder.display()
        ))
        .hint(
            "put the results on a local disk with --results-dir: many network disks have no locks",
        )
        .caused_by(e)),
    }
}

/// Who works on a folder right now, if anybody does: `pid 12`. Nothing is changed or created.
pub(super) fn worked_on_by(folder: &Path) -> Option<String> {
    let path = folder.join(LOCK_FILE);
    let there = private::open_there(&path).or_else(|_| bounded::open_regular(&path));
    let mut file = there.ok()?;
    match FileLock::take_lock(file.try_clone().ok()?) {
        Err(LockRefusal::Held(pid)) => Some(who(pid, &mut file)),
        _ => None,
    }
}

fn who(pid: Option<u32>, file: &mut File) -> String {
    if let Some(pid) = pid {
        return format!("pid {pid}");
    }
    let mut text = String::new();
    let _ = file.take(200).read_to_string(&mut text);
    match text.trim() {
        "" => "another process".into(),
        text => text.to_owned(),
    }
}

pub(super) fn cannot_write(folder: &Path, e: io::Error) -> Failure {
    Failure::environment(format!("cannot write results to `{}`", folder.display()))
        .hint("choose another place with --results-dir or --output-dir")
        .caused_by(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::samples::cell;

    fn now() -> jiff::Zoned {
        "2026-01-02T03:04:05[UTC]".parse().unwrap()
    }

    fn begin(folder: &Folder) {
        fs::write(folder.path().join(JOURNAL_FILE), "").unwrap();
    }

    #[test]
    fn the_latest_run_is_the_newest_with_a_journal() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(latest_run(dir.path(), "a", |_| true), None);
        for n in 1..=10 {
            let folder = Folder::create_new(dir.path(), "../my sweep", &now()).unwrap();
            if n < 10 {
                begin(&folder);
            }
        }
        let place = of_name(dir.path(), "../my sweep");
        assert_eq!(place, dir.path().join("my-sweep"));
        fs::create_dir(place.join("merged-20270101_000000")).unwrap();
        fs::write(place.join("merged-20270101_000000").join(JOURNAL_FILE), "").unwrap();
        let newest = latest_run(dir.path(), "../my sweep", |run| begun_here(run, None)).unwrap();
        assert_eq!(list_runs(dir.path(), "../my sweep").first(), Some(&newest));
        assert_eq!(newest, place.join("20260102_030405-9"));
        let folder = Folder::open_earlier(&newest, &jiff::Zoned::now()).unwrap();
        let report = newest.join("batch-bench-report-20260102_030405.txt");
        assert_eq!(folder.result_paths().report, report);
    }

    #[test]
    fn the_latest_run_of_a_part_is_one_of_that_part() {
        use crate::sweep::{Journal, SweepSession};
        let dir = tempfile::tempdir().unwrap();
        let part = |index| Some(Shard { index, of: 2 });
        let begin = |shard| {
            let folder = Folder::create_new(dir.path(), "s", &now()).unwrap();
            let (mut journal, _) = Journal::open_folder(folder.path()).unwrap();
            let session = SweepSession::new("s", "now".into(), false, shard);
            journal.write_session(&session).unwrap();
            folder.path().to_owned()
        };
        let [first, second] = [part(1), part(2)].map(begin);
        let latest = |part| latest_run(dir.path(), "s", |run| begun_here(run, part));
        assert_eq!(latest(part(1)), Some(first));
        assert_eq!(latest(part(2)), Some(second.clone()));
        assert_eq!(latest(None), None);
        // What another machine runs does not go on here.
        fs::write(second.join(REMOTE_FILE), "{}").unwrap();
        assert_eq!(latest(part(2)), None);
    }

    #[test]
    fn a_second_sweep_in_the_same_folder_is_refused_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::create_new(dir.path(), "s", &now()).unwrap();
        begin(&first);
        let path = first.path().to_owned();
        let e = Folder::open_earlier(&path, &now()).unwrap_err();
        let pid = format!("held by pid {}", std::process::id());
        assert!(e.message.contains(&pid), "{e}");
        assert_eq!(
            worked_on_by(&path),
            Some(format!("pid {}", std::process::id()))
        );
        drop(first);
        assert_eq!(worked_on_by(&path), None);
        Folder::open_earlier(&path, &now()).unwrap();
    }

    #[test]
    fn a_named_folder_must_be_new_or_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/run");
        // One that was killed before its first line had nothing to lose.
        drop(Folder::create_at(&path, &now()).unwrap());
        let folder = Folder::create_at(&path, &now()).unwrap();
        begin(&folder);
        drop(folder);
        let e = Folder::create_at(&path, &now()).unwrap_err();
        assert!(e.hints[0].contains("--resume="), "{e:?}");
        let diary = dir.path().join("diary");
        fs::create_dir(&diary).unwrap();
        fs::write(diary.join("monday"), "dear diary").unwrap();
        let e = Folder::create_at(&diary, &now()).unwrap_err();
        assert!(e.message.contains("not empty"), "{e}");
        assert_eq!(fs::read_dir(&diary).unwrap().count(), 1, "nothing is added");
        assert!(Folder::open_earlier(&diary, &now()).is_err());
    }

    #[test]
    fn no_attempt_writes_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create_new(dir.path(), "s", &now()).unwrap();
        let cell = cell("org/Tiny-1B", 256, 128, 8);
        let paths = |attempt| folder.cell_paths(&cell, attempt).unwrap();
        let (first, again, second) = (paths(1), paths(1), paths(2));
        let stem = format!("cells/{}-Tiny-1B-in256-out128-b8", cell.id);
        assert_eq!(folder.relative_path(&first.profile), format!("{stem}.json"));
        assert_eq!(
            folder.relative_path(&again.capture),
            format!("{stem}-2.capture")
        );
        assert_eq!(
            folder.relative_path(&second.capture),
            format!("{stem}-3.capture")
        );
    }
}
