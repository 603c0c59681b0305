//! Profiles as files: one read with care, or all that lie in a folder.

use super::recording::begins_recording;
use super::{StoredCapture, bounded};
use crate::error::Failure;
use crate::profile::{Profile, SCHEMA_VERSION};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Folders in folders are looked into so deep.
const DEEPEST: usize = 16;
/// Files in all.
const MOST_FILES: usize = 100_000;

/// A document of a run.
#[derive(Debug)]
pub enum ProfileFile {
    /// A profile as this plimsoll writes it.
    Profile(Box<Profile>),
    /// A document of a schema before 4.0, or of the tools before us: it has a `memory_breakdown`.
    Older(Box<Value>),
}

/// Reads a profile.
///
///
/// # Errors
///
/// The file is not a profile; the message contains the reason.
pub fn read_profile(path: &Path) -> Result<ProfileFile, Failure> {
    let shown = path.display();
    let unreadable = |e| bounded::unreadable_input(path, e);
    let found = std::fs::metadata(path).map_err(unreadable)?;
    if found.is_dir() {
        return Err(Failure::usage(format!("`{shown}` is a folder"))
            .hint("name a profile in it: `<model>-profile_YYYYMMDD_HHMMSS.json`"));
    }
    if !found.is_file() {
        return Err(no_profile(path, "not a regular file"));
    }
    let bytes = bounded::read_document(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => no_profile(path, &e.to_string()),
        _ => unreadable(e),
    })?;
    parse_profile(path, &bytes)
}

fn no_profile(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("`{}` is not a profile: {why}", path.display()))
        .hint("profiles are the JSON files that `plimsoll profile` and `run` write")
}

/// As [`read_profile`], of bytes that were read from `path`.
///
/// # Errors
///
/// They are no profile; the message contains the reason.
pub fn parse_profile(path: &Path, bytes: &[u8]) -> Result<ProfileFile, Failure> {
    if begins_recording(bytes) {
        return Err(no_profile(path, "it is a recording").hint("`plimsoll replay` shows it"));
    }
    let document: Value = bounded::parse_json(bytes).map_err(|e| {
        let why = if e.is_data() {
            "it is too large"
        } else {
            "not JSON"
        };
        no_profile(path, why).caused_by(e)
    })?;
    if !document.is_object() {
        return Err(no_profile(
            path,
            "it is JSON, but not a document of plimsoll",
        ));
    }
    if let Some(kind) = document.get("document").and_then(Value::as_str) {
        let kind: String = kind.chars().take(40).filter(|c| !c.is_control()).collect();
        return Err(no_profile(
            path,
            &format!("it is a document of the kind `{kind}`"),
        ));
    }
    if document.get("capture_version").is_some() {
        return Err(
            no_profile(path, "it is a capture").hint("`plimsoll derive` makes a profile of it")
        );
    }
    let has_parts = document
        .get("memory_breakdown")
        .is_some_and(Value::is_object);
    if !has_parts {
        return Err(no_profile(path, "it has no `memory_breakdown`"));
    }
    let major = |version: &str| version.split('.').next()?.parse::<u32>().ok();
    let version = document
        .get("schema_version")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let ours = major(SCHEMA_VERSION);
    match version.as_deref().map(major) {
        Some(theirs) if theirs == ours => {
            // One of the two in memory at a time.
            drop(document);
            bounded::parse_json(bytes)
                .map(|profile| ProfileFile::Profile(Box::new(profile)))
                .map_err(|e| {
                    no_profile(path, "a part of it is missing or of another kind").caused_by(e)
                })
        }
        Some(Some(theirs)) if Some(theirs) > ours => Err(bounded::newer_document(path)),
        _ if crate::compare::subject::is_older(&document) => {
            Ok(ProfileFile::Older(Box::new(document)))
        }
        _ => Err(no_profile(path, "its `memory_breakdown` has no figure")),
    }
}

/// Any plimsoll document and its kind, from its `document` field; `None` for other files.
pub fn read_document(path: &Path) -> Option<(String, Value)> {
    parse_document(&bounded::read_document(path).ok()?)
}

/// As [`read_document`], of its bytes.
pub fn parse_document(bytes: &[u8]) -> Option<(String, Value)> {
    let document: Value = bounded::parse_json(bytes).ok()?;
    let kind = document.get("document")?.as_str()?.to_owned();
    Some((kind, document))
}

/// What lies in some folders.
#[derive(Debug, Default)]
pub struct FoundProfiles {
    /// Files that may be profiles, sorted, each once.
    pub files: Vec<PathBuf>,
    /// Files named by the user: an invalid one is an error.
    pub named: Vec<PathBuf>,
    /// Files that were named twice.
    pub twice: u64,
}

/// The files that were named, and all `.json` in the folders that were named. Captures are left
/// out, and so are hidden folders and links to folders.
///
/// # Errors
/// A path that leads nowhere.
pub fn find_profiles(paths: &[PathBuf]) -> Result<FoundProfiles, Failure> {
    let mut found = FoundProfiles::default();
    for path in paths {
        let kind = std::fs::metadata(path).map_err(|e| bounded::unreadable_input(path, e))?;
        if kind.is_dir() {
            walk(path, DEEPEST, &mut found.files)?;
        } else {
            found.named.push(path.clone());
            found.files.push(path.clone());
        }
    }
    found.files.sort();
    let mut seen = std::collections::HashSet::new();
    let all = found.files.len();
    found
        .files
        .retain(|file| seen.insert(std::fs::canonicalize(file).unwrap_or_else(|_| file.clone())));
    found.twice = (all - found.files.len()) as u64;
    Ok(found)
}

fn walk(folder: &Path, deep: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder).map_err(|e| {
        Failure::usage(format!("cannot read the folder `{}`", folder.display())).caused_by(e)
    })?;
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if deep > 0 && !name.starts_with('.') && !name.ends_with(".capture") {
                walk(&path, deep - 1, files)?;
            }
        } else if name.ends_with(".json") && !name.starts_with('.') {
            if files.len() >= MOST_FILES {
                return Err(Failure::usage(format!(
                    "`{}` holds more than {MOST_FILES} documents",
                    folder.display()
                ))
                .hint("name folders in it"));
            }
            files.push(path);
        }
    }
    Ok(())
}

/// The model's `config.json`, as the capture beside a profile keeps it.
pub fn model_config(profile: &Path) -> Option<Value> {
    let stored = StoredCapture::open(profile).ok()?;
    bounded::parse_json(stored.capture.model_files.get("config.json")?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_profile_is_reported_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.json");
        for (text, why) in [
            ("", "not JSON"),
            ("dear diary", "not JSON"),
            ("[1]", "not a document"),
            ("{}", "no `memory_breakdown`"),
            (r#"{"document": "ablation"}"#, "`ablation`"),
            (r#"{"capture_version": 1}"#, "a capture"),
            (
                r#"{"schema_version": "4.0", "memory_breakdown": {}}"#,
                "missing",
            ),
            (
                r#"{"schema_version": "9.1", "memory_breakdown": {}}"#,
                "newer plimsoll",
            ),
            (r#"{"memory_breakdown": {"total_gb": "much"}}"#, "no figure"),
        ] {
            std::fs::write(&file, text).unwrap();
            let failure = read_profile(&file).unwrap_err();
            assert!(failure.message.contains(why), "{text}: {failure}");
        }
        std::fs::write(&file, "[".repeat(100_000)).unwrap();
        assert!(
            read_profile(&file)
                .unwrap_err()
                .message
                .contains("not JSON")
        );
        assert!(
            read_profile(dir.path())
                .unwrap_err()
                .message
                .contains("is a folder")
        );
        assert!(
            read_profile(Path::new("/dev/null"))
                .unwrap_err()
                .message
                .contains("not a regular file")
        );
        std::fs::write(&file, r#"{"memory_breakdown": {"total_gb": 15.17}}"#).unwrap();
        assert!(matches!(read_profile(&file), Ok(ProfileFile::Older(_))));
    }

    #[test]
    fn folders_are_looked_into_and_captures_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        };
        for path in [
            "b.json",
            "a/c.json",
            "a.capture/capture.json",
            ".h/d.json",
            "e.txt",
        ] {
            put(path);
        }
        std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
        let b = dir.path().join("b.json");
        let found = find_profiles(&[dir.path().to_owned(), b.clone()]).unwrap();
        let names: Vec<_> = found
            .files
            .iter()
            .map(|f| f.strip_prefix(dir.path()).unwrap())
            .collect();
        assert_eq!(names, [Path::new("a/c.json"), Path::new("b.json")]);
        assert_eq!((found.named, found.twice), (vec![b], 1));
        assert!(find_profiles(&[dir.path().join("no")]).is_err());
    }
}
