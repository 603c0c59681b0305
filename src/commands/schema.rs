//! `plimsoll schema`: the JSON Schema of the profile document, and documents checked against theirs.

use crate::bounded;
use crate::capture::Capture;
use crate::cli::{SchemaArgs, SchemaCommand};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::estimate::calibration::Calibration;
use crate::loadline::Loadline;
use crate::store::{ProfileFile, read_profile};
use crate::tune::{TUNING_DOCUMENT, Tuning};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

pub fn run_schema(console: &Console, args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => {
            console.print_json(&crate::profile::profile_schema())?;
        }
        Some(SchemaCommand::Check { files }) => check_all(console, files)?,
    }
    Ok(ExitCode::Done)
}

fn check_all(console: &Console, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut invalid = Vec::new();
    for file in files {
        match check_document(file) {
            Ok(kind) => {
                let line = format!("{}: valid, {kind}\n", file.display());
                console.write_data(line.as_bytes())?;
            }
            Err(failure) => invalid.push(anyhow::Error::from(failure)),
        }
    }
    match invalid.len() {
        0 => Ok(()),
        1 => Err(invalid.remove(0)),
        count => {
            let all = format!("{count} of {} documents are not valid", files.len());
            let each = invalid.iter().map(|error| format!("{error:#}"));
            Err(each.fold(Failure::usage(all), Failure::hint).into())
        }
    }
}

/// The fields that identify the kind of a document.
#[derive(Deserialize)]
struct DocumentHead {
    document: Option<String>,
    capture_version: Option<u32>,
}

/// Reads a document by its type.
type TypedCheck = fn(&[u8]) -> Result<(), serde_json::Error>;

/// The kinds of documents besides profiles that are read by a type of their own.
const KINDS: [(&str, TypedCheck); 4] = [
    ("capture", typed::<Capture>),
    ("loadline", typed::<Loadline>),
    ("calibration", typed::<Calibration>),
    (TUNING_DOCUMENT, typed::<Tuning>),
];

fn typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), serde_json::Error> {
    bounded::parse_json::<T>(bytes).map(drop)
}

/// What a document is, by the schema of its own version.
fn check_document(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let bytes = bounded::read_document(file).map_err(|e| bounded::unreadable_input(file, e))?;
    let head = bounded::parse_json::<DocumentHead>(&bytes).ok();
    let capture = head.as_ref().and_then(|h| h.capture_version);
    let kind = head.and_then(|h| h.document);
    let Some(kind) = kind.or(capture.map(|_| "capture".to_owned())) else {
        drop(bytes);
        return match read_profile(file)? {
            ProfileFile::Profile(profile) => {
                Ok(format!("a profile of schema {}", profile.schema_version))
            }
            ProfileFile::Older(_) => Err(Failure::usage(format!(
                "`{shown}` was written before schema 4.0: no schema describes it"
            ))
            .hint("`plimsoll compare` and `report` read its totals")),
        };
    };
    match KINDS.iter().find(|(name, _)| *name == kind) {
        Some((kind, read)) => read(&bytes)
            .map(|()| format!("a document of the kind `{kind}`"))
            .map_err(|e| {
                Failure::usage(format!("`{shown}` is not valid as a `{kind}`")).caused_by(e)
            }),
        None => {
            let kind: String = kind.chars().take(40).filter(|c| !c.is_control()).collect();
            Err(Failure::usage(format!(
                "`{shown}` cannot be checked: plimsoll has no schema for the kind `{kind}`"
            ))
            .hint(format!(
                "kinds that have one: profile, {}",
                KINDS.map(|(kind, _)| kind).join(", ")
            )))
        }
    }
}
