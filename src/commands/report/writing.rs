//! Where a report goes: beside its input, to a folder, to a file, to standard output; and for
//! Markdown to the summary of a step in GitHub's Actions.

use crate::cli::ReportArgs;
use crate::console::Console;
use crate::error::Failure;
use crate::redact::redact_bytes;
use crate::report::chart;
use crate::report::content::Report;
use crate::report::format::{self, File, ReportFormat};
use crate::store::{bounded, private, write_atomically};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Where GitHub's Actions take Markdown from.
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// So much of the beginning of a file is looked at for who wrote it, bytes.
const LOOKED_AT: u64 = 64 * 1024;

/// Where the files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportPlace {
    /// Standard output: one file.
    Stdout,
    /// This file: one.
    File(PathBuf),
    /// A folder; the report itself is called `stem`.
    Folder {
        folder: PathBuf,
        stem: String,
        /// Whether the user named it: then tables and pictures have their plain names in it.
        named: bool,
    },
}

impl ReportPlace {
    /// As it was asked for.
    pub(super) fn of_args(args: &ReportArgs, formats: usize) -> Result<ReportPlace, Failure> {
        let Some(output) = &args.output else {
            return Ok(beside(&args.paths));
        };
        let one = |place: ReportPlace| {
            if formats == 1 {
                return Ok(place);
            }
            let why = format!("{formats} formats do not go to `{}`", output.display());
            Err(Failure::usage(why).hint("name a folder with --output, or one format"))
        };
        let text = output.as_os_str().to_string_lossy();
        if text == "-" {
            return one(ReportPlace::Stdout);
        }
        let folder = output.is_dir() || text.ends_with('/') || output.extension().is_none();
        if folder {
            Ok(ReportPlace::Folder {
                folder: output.clone(),
                stem: "report".into(),
                named: true,
            })
        } else {
            one(ReportPlace::File(output.clone()))
        }
    }
}

/// In the folder that was named, or beside the file.
fn beside(paths: &[PathBuf]) -> ReportPlace {
    let first = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let capture = first.extension().is_some_and(|e| e == "capture");
    let parent = first.parent().filter(|p| !p.as_os_str().is_empty());
    let name = first.file_stem().map(|s| s.to_string_lossy().into_owned());
    let (folder, name) = if first == Path::new("-") {
        (Path::new("."), None)
    } else if first.is_dir() && !capture {
        (first, None)
    } else {
        (parent.unwrap_or(Path::new(".")), name)
    };
    ReportPlace::Folder {
        folder: folder.to_owned(),
        stem: match name.filter(|_| paths.len() == 1) {
            Some(name) => format!("{name}-report"),
            None => "report".into(),
        },
        named: false,
    }
}

/// The name of a file without its ending: the report itself is called `stem`, and beside the input,
/// where other things lie, so are its tables and pictures.
fn name_of(word: &str, stem: &str, named: bool) -> String {
    match (word, named) {
        ("report", _) => stem.to_owned(),
        (word, true) => crate::store::file_word(word),
        (word, false) => format!("{stem}-{}", crate::store::file_word(word)),
    }
}

/// Writes the report in each format, and prints the paths of the files.
pub(super) fn write_report(
    console: &Console,
    report: &Report,
    formats: &[&'static ReportFormat],
    place: &ReportPlace,
    args: &ReportArgs,
) -> anyhow::Result<()> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut markdown: Vec<File> = Vec::new();
    let brief = report.brief_report();
    for format in formats {
        let name = format.format_name();
        let is_brief = name == "md" && !args.full;
        let files = format
            .render_files(if is_brief { &brief } else { report })
            .map_err(|e| Failure::bug(e.to_string()).caused_by(e))?;
        if files.is_empty() {
            console.print_warning(&format!("nothing here can be shown as {name}"));
        }
        if name == "md" {
            markdown.extend(files.iter().cloned());
        }
        match place {
            ReportPlace::Folder {
                folder,
                stem,
                named,
            } => all.extend(files.into_iter().map(|file| {
                let file_name = name_of(&file.stem, stem, *named);
                (folder.join(format!("{file_name}.{name}")), file.bytes)
            })),
            one => {
                let [file] = files.as_slice() else {
                    let n = files.len();
                    let why = Failure::usage(format!("as {name} the report is {n} files"));
                    return Err(why.hint("name a folder with --output").into());
                };
                match one {
                    ReportPlace::File(path) => all.push((path.clone(), file.bytes.clone())),
                    _ => console.write_data(&file.bytes)?,
                }
            }
        }
    }
    if let ReportPlace::Folder { folder, .. } = place {
        if !all.is_empty() {
            private::create_folders(folder).map_err(|e| {
                Failure::environment(format!("cannot write a report to `{}`", folder.display()))
                    .hint("choose another place with --output")
                    .caused_by(e)
            })?;
        }
    }
    // All are looked at before the first is written.
    if !args.force {
        for (path, bytes) in &all {
            check_target(path, bytes)?;
        }
    }
    for (path, bytes) in &all {
        write_atomically(path, bytes)
            .map_err(|failure| failure.hint("choose another place with --output"))?;
    }
    let paths: String = (all.iter())
        .map(|(path, _)| format!("{}\n", path.display()))
        .collect();
    console.write_data(paths.as_bytes())?;
    Ok(step_summary(console, &markdown)?)
}

/// A file that is not a report stays, whatever its name.
fn check_target(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if !path.exists() || is_report(path, bytes) {
        return Ok(());
    }
    let why = format!(
        "`{}` exists and is not a report of plimsoll",
        path.display()
    );
    let hint = "name another place with --output, or write over it with --force";
    Err(Failure::usage(why).hint(hint))
}

/// Whether it carries the mark of its format, or is the same table: CSV has no place for a mark.
fn is_report(path: &Path, new: &[u8]) -> bool {
    let head = |bytes: &[u8]| bytes.split(|b| *b == b'\n').next().map(<[u8]>::to_vec);
    let look = || -> std::io::Result<bool> {
        let file = bounded::open_regular(path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::new();
        file.take(LOOKED_AT).read_to_end(&mut bytes)?;
        let ending = path.extension().and_then(|e| e.to_str());
        let mark: &[u8] = match ending.unwrap_or_default() {
            "html" => format::html::MARK.as_bytes(),
            "svg" => chart::svg::MARK.as_bytes(),
            "png" => chart::png::MARK,
            "csv" => return Ok(length == 0 || head(&bytes) == head(new)),
            // Text has no hidden place: the line under the title.
            _ => b"made by: plimsoll ",
        };
        Ok(length == 0 || bytes.windows(mark.len()).any(|part| part == mark))
    };
    look().unwrap_or(false)
}

/// What is appended passes the same last net as what is written.
fn append(path: &Path, files: &[File]) -> std::io::Result<()> {
    let mut file = private::open_named_to_append(path)?;
    for written in files {
        file.write_all(&redact_bytes(&written.bytes))?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Markdown is appended to the summary of the step, where there is one.
fn step_summary(console: &Console, files: &[File]) -> Result<(), Failure> {
    let named = std::env::var_os(STEP_SUMMARY).filter(|p| !p.is_empty());
    let Some(path) = named.filter(|_| !files.is_empty()) else {
        return Ok(());
    };
    let path = PathBuf::from(path);
    let shown = path.display();
    append(&path, files).map_err(|e| {
        let hint =
            format!("${STEP_SUMMARY} names this file; unset the variable to write no summary");
        Failure::environment(format!("cannot append to `{shown}`"))
            .hint(hint)
            .caused_by(e)
    })?;
    console.print_note(&format!("appended to the step's summary: {shown}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lies_beside_what_it_is_of() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |folder: &Path, stem: &str| ReportPlace::Folder {
            folder: folder.to_owned(),
            stem: stem.into(),
            named: false,
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
    fn a_summary_of_a_step_shows_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("summary.md");
        let token = ["hf", "_Q7xPlimsoll0TestSecret9vB2kLmN4rT"].concat();
        let file = File {
            stem: "report".into(),
            bytes: format!("# Of {token}").into_bytes(),
        };
        append(&path, &[file]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "# Of [redacted]\n");
    }

    #[test]
    fn only_reports_are_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            check_target(&path, b"a,b\n3,4").is_ok()
        };
        assert!(at("mine.html", &format!("<html>{}", format::html::MARK)));
        assert!(at("a.svg", &format!("<svg>{}", chart::svg::MARK)));
        assert!(at("a.md", "# A\n\n- made by: plimsoll 0.1.0\n"));
        assert!(at("empty.html", ""));
        assert!(!at("report.html", "my own") && !at("weekly-report.md", "my own"));
        assert!(!at("notes.md", "my notes on plimsoll"));
        assert!(!at("profile.json", r#"{"profiler_version": "plimsoll"}"#));
        assert!(at("parts.csv", "a,b\n1,2") && !at("parts.csv", "a,c\n1,2"));
        assert!(check_target(&dir.path().join("new.html"), b"").is_ok());
    }
}
