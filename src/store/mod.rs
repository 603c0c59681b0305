//! The results directory: names, the atomic write, the capture on disk, the lock on a container.

mod jsonl;
mod lock;
pub mod private;
mod profiles;
mod reader;
mod recording;
pub mod started;
mod state;
mod writer;

pub use crate::bounded;
pub use jsonl::{FoundLines, JsonLines, append_shared, json_line, line_document, read_lines};
pub use lock::{ContainerLock, FileLock, LockRefusal, is_locked};
pub use profiles::{
    FoundProfiles, ProfileFile, find_profiles, model_config, parse_document, parse_profile,
    read_document, read_profile,
};
pub use reader::StoredCapture;
pub use recording::{Recording, RecordingHeader, RecordingWriter, begins_recording};
pub use state::{SharedFile, read_cached, write_cached};
pub use writer::CaptureWriter;

use crate::error::{ExitCode, Failure};
use crate::redact;
use std::path::{Path, PathBuf};

/// The capture without its streams.
const CAPTURE_FILE: &str = "capture.json";
/// One sample a line, JSON.
const SAMPLES_FILE: &str = "samples.jsonl";
/// One request of plimsoll's own load client a line, JSON. Only where it ran.
const REQUESTS_FILE: &str = "requests.jsonl";
/// One line of output a line: moment, source, stream, text.
const LOG_FILE: &str = "log.txt";

/// Where the results of one run go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    /// The profile document.
    pub profile: PathBuf,
    /// The folder of the capture, beside it.
    pub capture: PathBuf,
}

impl RunPaths {
    /// The lines of output in the capture.
    pub fn log_file(&self) -> PathBuf {
        self.capture.join(LOG_FILE)
    }
}

/// Whether results can be written where they shall go, before it is known what they are called.
pub fn check_output(results: &Path, output: Option<&Path>) -> Result<(), Failure> {
    let (folder, _) = output_place(results, output, "model")?;
    private::create_folders(&folder).map_err(|e| unwritable(&folder, e))?;
    private::unnamed_file(&folder).map_err(|e| unwritable(&folder, e))?;
    Ok(())
}

/// Makes a folder that the user named, and those above it that are missing.
pub fn make_folders(folder: &Path) -> Result<(), Failure> {
    private::create_folders(folder).map_err(|e| {
        Failure::environment(format!("cannot make the folder `{}`", folder.display())).caused_by(e)
    })
}

/// The folder of the results, and the name of a run's in it without its ending.
fn output_place(
    results: &Path,
    output: Option<&Path>,
    stem: &str,
) -> Result<(PathBuf, String), Failure> {
    let Some(file) = output else {
        return Ok((results.join("memory-profiles"), stem.to_owned()));
    };
    let shown = file.display();
    if file.is_dir() || file.as_os_str().to_string_lossy().ends_with('/') {
        return Err(Failure::usage(format!("--output `{shown}` is a folder"))
            .hint("name a file in it, or give the folder by --results-dir"));
    }
    check_overwrite(file)?;
    let stem = file.file_stem().and_then(|s| s.to_str());
    let stem = stem.ok_or_else(|| {
        Failure::usage(format!("`{shown}` is not a file name"))
            .hint("--output takes a file, as in --output profile.json")
    })?;
    Ok((folder_of(file).to_owned(), stem.to_owned()))
}

/// Refuses to write over what plimsoll did not write: a document of its own has a version.
pub fn check_overwrite(file: &Path) -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    struct DocumentHead {
        #[serde(rename = "schema_version")]
        _version: serde::de::IgnoredAny,
    }
    if !file.is_file() {
        // It does not exist, or is a device or pipe; whether it can be written shows when writing.
        return Ok(());
    }
    match bounded::read_document(file) {
        Ok(bytes) if bytes.is_empty() => return Ok(()),
        Ok(bytes) if bounded::parse_json::<DocumentHead>(&bytes).is_ok() => return Ok(()),
        Ok(_) => {}
        // Longer than any of ours.
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {}
        Err(_) => return Ok(()),
    }
    Err(Failure::usage(format!(
        "`{}` exists and is not a plimsoll document",
        file.display()
    ))
    .hint("name another file with --output, or remove that one"))
}

/// The folder that a file lies in.
fn folder_of(file: &Path) -> &Path {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Chooses the paths of a run and claims them, so that a bad path fails before anything runs.
///
/// Without `output` the profile is `<results>/memory-profiles/<model>-profile_YYYYMMDD_HHMMSS.json`
/// (local time); with it, just that file. The capture lies beside it as `<stem>.capture/`.
pub fn claim_paths(
    results: &Path,
    output: Option<&Path>,
    model: &str,
    now: &jiff::Zoned,
) -> Result<RunPaths, Failure> {
    let time = now.strftime("%Y%m%d_%H%M%S");
    let (folder, stem) = output_place(
        results,
        output,
        &format!("{}-profile_{time}", file_word(model)),
    )?;
    private::create_folders(&folder).map_err(|e| unwritable(&folder, e))?;
    claim_in(&folder, &stem, 1, output)
}

/// Reserves `<stem>.json` and `<stem>.capture/` in an existing folder; if these names are taken,
/// `<stem>-2` and so on. A capture is never overwritten. `number` is the first to try.
pub fn claim_numbered(folder: &Path, stem: &str, number: u32) -> Result<RunPaths, Failure> {
    claim_in(folder, stem, number.max(1), None)
}

fn claim_in(
    folder: &Path,
    stem: &str,
    number: u32,
    output: Option<&Path>,
) -> Result<RunPaths, Failure> {
    // A second run in the same second, or an `--output` used again, gets a number.
    for n in number..number.saturating_add(999) {
        let name = numbered_name(stem, n);
        let capture = folder.join(format!("{name}.capture"));
        let profile = match output {
            Some(file) => file.to_owned(),
            None => folder.join(format!("{name}.json")),
        };
        if output.is_none() && profile.exists() {
            continue;
        }
        match private::create_folder(&capture) {
            Ok(()) => return Ok(RunPaths { profile, capture }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(unwritable(folder, e)),
        }
    }
    Err(Failure::environment(format!(
        "`{}` holds a thousand captures of that name already",
        folder.display()
    ))
    .hint("choose another place with --results-dir or --output"))
}

fn unwritable(folder: &Path, e: std::io::Error) -> Failure {
    Failure::environment(format!("cannot write results to `{}`", folder.display()))
        .hint("choose another place with --results-dir or --output")
        .caused_by(e)
}

/// A model's name as part of a file name: the last path element, what is unusual replaced, without
/// what looks like a secret.
pub fn file_word(model: &str) -> String {
    let last = model
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(model);
    // A name is in every listing, and in documents that lead to the file.
    let word: String = redact::redact_distinct(last)
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(80)
        .collect();
    let word = word.trim_matches(['.', '-']).to_owned();
    if word.is_empty() {
        "model".into()
    } else {
        word
    }
}

/// Writes a file whole or not at all: it is written and synced before it has this name. It is its
/// owner's alone. A link in its place is replaced and not followed; a device or a pipe is written to.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_redacted(path, &redact::redact_bytes(bytes))
}

/// The same of bytes that are redacted already, where another redaction would harm their form (an
/// archive).
pub fn write_redacted(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written =
        private::write_to_device(path, bytes).unwrap_or_else(|| private::write_whole(path, bytes));
    written.map_err(|e| write_failure(path, e))
}

/// Error for a file of a later format; `made`: "written".
pub fn newer_plimsoll(path: &Path, made: &str) -> Failure {
    let shown = path.display();
    Failure::usage(format!("`{shown}` was {made} by a newer plimsoll")).hint("update plimsoll")
}

/// Error for a failed write, with a hint.
fn write_failure(path: &Path, e: std::io::Error) -> Failure {
    let full = matches!(
        e.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    );
    let failure = Failure::new(
        ExitCode::Environment,
        format!("cannot write `{}`", path.display()),
    )
    .caused_by(e);
    let missing = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty() && !p.exists());
    if let Some(folder) = missing {
        failure.hint(format!(
            "the folder `{}` does not exist: create it first",
            folder.display()
        ))
    } else if full {
        failure
            .hint("the disk is full: free some space, or choose another place with --results-dir")
    } else {
        failure
    }
}

/// The name of the `n`th of one second: `stem`, `stem-2`, ….
pub fn numbered_name(stem: &str, n: u32) -> String {
    match n {
        1 => stem.to_owned(),
        n => format!("{stem}-{n}"),
    }
}

/// The first path in `folder` that nothing has yet: `<stem><ending>`, `<stem>-2<ending>`, ….
pub fn free_path(folder: &Path, stem: &str, ending: &str) -> PathBuf {
    let named = |n: u32| folder.join(numbered_name(stem, n) + ending);
    // A folder with this many documents of one second is not in normal use; then the last is
    // overwritten.
    (1..1000)
        .map(named)
        .find(|path| !path.exists())
        .unwrap_or_else(|| named(1000))
}

/// Makes a new folder in `parent`: `<stem>`, or `<stem>-2` and so on where that is there.
pub fn claim_folder(parent: &Path, stem: &str) -> std::io::Result<PathBuf> {
    let mut n = 1;
    loop {
        let path = parent.join(numbered_name(stem, n));
        match private::create_folder(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_plimsoll_wrote_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out.json");
        let check = || check_output(dir.path(), Some(&file));
        assert!(check().is_ok(), "it is not there");
        for (text, free) in [
            ("", true),
            (r#"{"schema_version": "4.0", "x": [1]}"#, true),
            ("dear diary", false),
            (r#"{"version": 1}"#, false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(check().is_ok(), free, "{text}");
        }
    }

    fn now() -> jiff::Zoned {
        "2026-01-02T03:04:05[UTC]".parse().unwrap()
    }

    #[test]
    fn two_runs_in_one_second_do_not_share_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let a = claim_paths(dir.path(), None, "meta-llama/Llama-3.1-8B", &now()).unwrap();
        let b = claim_paths(dir.path(), None, "meta-llama/Llama-3.1-8B", &now()).unwrap();
        assert!(
            a.profile
                .ends_with("memory-profiles/Llama-3.1-8B-profile_20260102_030405.json")
        );
        assert!(
            b.profile
                .ends_with("memory-profiles/Llama-3.1-8B-profile_20260102_030405-2.json")
        );
        assert_ne!(a.capture, b.capture);
    }

    #[test]
    fn an_unwritable_place_is_reported_before_anything_runs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let e = claim_paths(&file, None, "m", &now()).unwrap_err();
        assert_eq!(e.code, ExitCode::Environment);
        assert!(e.hints[0].contains("--results-dir"), "{e:?}");
    }

    #[test]
    fn a_folder_is_no_output_file() {
        let dir = tempfile::tempdir().unwrap();
        for output in [dir.path().to_owned(), dir.path().join("new/")] {
            let e = check_output(dir.path(), Some(&output)).unwrap_err();
            assert!(e.message.contains("is a folder"), "{e}");
        }
        check_output(dir.path(), Some(&dir.path().join("new/a.json"))).unwrap();
    }

    #[test]
    fn model_names_make_plain_file_names() {
        for (model, word) in [
            ("/models/tiny llama/", "tiny-llama"),
            ("a/b:c", "b-c"),
            ("..", "model"),
            ("", "model"),
            ("../../etc", "etc"),
            (format!("a/hf_{}", "x1".repeat(17)).as_str(), "redacted"),
        ] {
            assert_eq!(file_word(model), word, "{model}");
        }
    }

    #[test]
    fn a_write_replaces_the_whole_file_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomically(&path, b"long old content").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}

#[cfg(test)]
mod document_tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let first = free_path(dir.path(), "a", ".json");
        assert!(first.ends_with("a.json"));
        std::fs::write(first, "x").unwrap();
        assert!(free_path(dir.path(), "a", ".json").ends_with("a-2.json"));
    }
}
