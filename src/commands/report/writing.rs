//! Where a report goes: beside its input, to a folder, to a file, to standard output; and for
//! Markdown to the summary of a step in GitHub's Actions.

use crate::cli::ReportArgs;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::report::content::Report;
use crate::report::format::{File, Format};
use crate::store::write_atomically;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Where GitHub's Actions take Markdown from.
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// So much of the beginning and the end of a file is looked at for who wrote it, bytes.
const LOOKED_AT: u64 = 4096;

/// Where the files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Standard output: one file.
    Stdout,
    /// This file: one.
    File(PathBuf),
    /// A folder; the report itself is called `stem`.
    Folder { folder: PathBuf, stem: String },
}

impl Place {
    /// As it was asked for.
    pub(super) fn of(args: &ReportArgs, formats: usize) -> Result<Place, Failure> {
        let Some(output) = &args.output else {
            return Ok(beside(&args.paths));
        };
        let one = |place: Place| match formats {
            1 => Ok(place),
            n => Err(
                Failure::usage(format!("{n} formats do not go to `{}`", output.display()))
                    .hint("name a folder with --output, or one format"),
            ),
        };
        let text = output.as_os_str().to_string_lossy();
        if text == "-" {
            return one(Place::Stdout);
        }
        let folder = output.is_dir() || text.ends_with('/') || output.extension().is_none();
        match folder {
            true => Ok(Place::Folder {
                folder: output.clone(),
                stem: "report".into(),
            }),
            false => one(Place::File(output.clone())),
        }
    }
}

/// In the folder that was named, or beside the file.
fn beside(paths: &[PathBuf]) -> Place {
    let first = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let capture = first.extension().is_some_and(|e| e == "capture");
    if first.is_dir() && !capture {
        return Place::Folder {
            folder: first.to_owned(),
            stem: "report".into(),
        };
    }
    let parent = first.parent().filter(|p| !p.as_os_str().is_empty());
    let name = first.file_stem().map(|s| s.to_string_lossy().into_owned());
    Place::Folder {
        folder: parent.unwrap_or(Path::new(".")).to_owned(),
        stem: match name.filter(|_| paths.len() == 1) {
            Some(name) => format!("{name}-report"),
            None => "report".into(),
        },
    }
}

/// Writes the report in each format, and tells the files.
pub(super) fn write(
    console: &Console,
    report: &Report,
    formats: &[&'static dyn Format],
    place: &Place,
    force: bool,
) -> anyhow::Result<()> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for format in formats {
        let files = format
            .files(report)
            .map_err(|e| Failure::new(ExitCode::Internal, e.to_string()).caused_by(e))?;
        if files.is_empty() {
            console.warning(&format!("nothing here can be shown as {}", format.name()));
        }
        if format.name() == "md" {
            step_summary(console, &files)?;
        }
        match place {
            Place::Stdout => {
                let [file] = files.as_slice() else {
                    return Err(several(format.name(), files.len()).into());
                };
                console.data(&file.bytes)?;
            }
            Place::File(path) => {
                let [file] = files.as_slice() else {
                    return Err(several(format.name(), files.len()).into());
                };
                all.push((path.clone(), file.bytes.clone()));
            }
            Place::Folder { folder, stem } => all.extend(files.into_iter().map(|file| {
                let name = match file.stem.as_str() {
                    "report" => stem.clone(),
                    other => file_word(other),
                };
                (folder.join(format!("{name}.{}", format.name())), file.bytes)
            })),
        }
    }
    if let Place::Folder { folder, .. } = place
        && !all.is_empty()
    {
        std::fs::create_dir_all(folder).map_err(|e| {
            Failure::environment(format!("cannot write a report to `{}`", folder.display()))
                .hint("choose another place with --output")
                .caused_by(e)
        })?;
    }
    // All are looked at before the first is written.
    if !force {
        for (path, _) in &all {
            check(path)?;
        }
    }
    for (path, bytes) in &all {
        write_atomically(path, bytes)
            .map_err(|failure| failure.hint("choose another place with --output"))?;
    }
    let paths: String = (all.iter())
        .map(|(path, _)| format!("{}\n", path.display()))
        .collect();
    console.data(paths.as_bytes())?;
    Ok(())
}

fn several(format: &str, files: usize) -> Failure {
    Failure::usage(format!("as {format} the report is {files} files"))
        .hint("name a folder with --output")
}

/// A name of a file, whatever stands in it.
fn file_word(name: &str) -> String {
    crate::store::file_word(name)
}

/// A file of that name which no report is stays.
fn check(path: &Path) -> Result<(), Failure> {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let ours = stem.is_some_and(|s| s == "report" || s.ends_with("-report"));
    if ours || !path.exists() || is_report(path) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "`{}` is there already and is no report of plimsoll's",
        path.display()
    ))
    .hint("name another place with --output, or write over it with --force"))
}

/// Whether its beginning or its end names who wrote it.
fn is_report(path: &Path) -> bool {
    let look = || -> std::io::Result<bool> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::new();
        (&file).take(LOOKED_AT).read_to_end(&mut bytes)?;
        if length > LOOKED_AT {
            let back = LOOKED_AT.min(length - LOOKED_AT);
            file.seek(SeekFrom::End(-(back as i64)))?;
            file.take(LOOKED_AT).read_to_end(&mut bytes)?;
        }
        let named = bytes
            .windows(8)
            .any(|w| w.eq_ignore_ascii_case(b"plimsoll"));
        Ok(length == 0 || named)
    };
    look().unwrap_or(false)
}

/// Markdown is appended to the summary of the step, where there is one.
fn step_summary(console: &Console, files: &[File]) -> Result<(), Failure> {
    let Some(path) = std::env::var_os(STEP_SUMMARY).filter(|p| !p.is_empty()) else {
        return Ok(());
    };
    let path = PathBuf::from(path);
    let append = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)?;
        for written in files {
            file.write_all(&written.bytes)?;
            file.write_all(b"\n")?;
        }
        Ok(())
    };
    append().map_err(|e| {
        Failure::environment(format!("cannot append to `{}`", path.display()))
            .hint(format!(
                "it is what ${STEP_SUMMARY} names; unset it to leave it out"
            ))
            .caused_by(e)
    })?;
    console.note(&format!(
        "appended to the step's summary: {}",
        path.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lies_beside_what_it_is_of() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |folder: &Path, stem: &str| Place::Folder {
            folder: folder.to_owned(),
            stem: stem.into(),
        };
        let file = dir.path().join("a.json");
        std::fs::write(&file, "{}").unwrap();
        let capture = dir.path().join("a.capture");
        std::fs::create_dir(&capture).unwrap();
        let of =
            |paths: &[&Path]| beside(&paths.iter().map(|p| p.to_path_buf()).collect::<Vec<_>>());
        assert_eq!(of(&[dir.path()]), folder(dir.path(), "report"));
        assert_eq!(of(&[&file]), folder(dir.path(), "a-report"));
        assert_eq!(of(&[&capture]), folder(dir.path(), "a-report"));
        assert_eq!(of(&[&file, &file]), folder(dir.path(), "report"));
        assert_eq!(
            of(&[Path::new("b.json")]),
            folder(Path::new("."), "b-report")
        );
    }

    #[test]
    fn only_reports_are_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            check(&path).is_ok()
        };
        assert!(at("report.html", "whatever") && at("x-report.md", "whatever"));
        assert!(at("mine.html", "<meta content=\"plimsoll 0.1.0\">"));
        assert!(at("end.svg", &format!("{}Plimsoll", "-".repeat(9000))));
        assert!(at("empty.html", ""));
        assert!(!at("mine.html", "dear diary"));
        assert!(!at("mine.html", &"-".repeat(9000)));
        assert!(check(&dir.path().join("new.html")).is_ok());
    }
}
