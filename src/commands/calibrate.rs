//! `plimsoll calibrate`: learns from profiles what the engines' overheads are.

use super::validate::profiles;
use crate::catalog;
use crate::cli::CalibrateArgs;
use crate::compare::calibrate::learn_from_run;
use crate::compare::correlate::Correlations;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::estimate::calibration::Calibration;
use crate::models;
use crate::profile::Profile;
use crate::report::calibration::calibration_report;
use crate::report::chapters::correlations_report;
use crate::report::json::json_bytes;
use crate::store::{SharedFile, bounded, check_overwrite, model_config, write_atomically};
use std::path::{Path, PathBuf};

/// The database's name in the state folder.
const CALIBRATION_FILE: &str = "calibration.json";
/// Longest file that can be a database, bytes.
const LONGEST: u64 = 64 << 20;

pub fn run_calibrate(console: &Console, args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    if let Some(output) = &args.output {
        check_overwrite(output)?;
    }
    let paths: Vec<PathBuf> = match args.paths.is_empty() {
        true if !args.results.dir.is_dir() => {
            return Err(Failure::usage(format!(
                "there is no results directory `{}`",
                args.results.dir.display()
            ))
            .hint("name a folder with profiles in it")
            .into());
        }
        true => vec![args.results.dir.clone()],
        false => args.paths.clone(),
    };
    let (profiles, _) = profiles(console, &paths)?;
    if args.correlations {
        let all: Vec<&Profile> = profiles.iter().map(|(_, p)| p).collect();
        let found = Correlations::correlate_profiles(&all);
        console.show_document(args.json, &found, || Ok(correlations_report(&found)))?;
        return Ok(ExitCode::Done);
    }

    let name = |gpu: &str| {
        let known = catalog::model_of(gpu);
        known.map_or_else(|| gpu.to_owned(), |m| m.name.clone())
    };
    let mut learned = Vec::new();
    let mut skipped: Vec<(String, u64)> = Vec::new();
    for (file, profile) in &profiles {
        let config = model_config(file).or_else(|| {
            let found = models::find(profile.model_info.name.as_deref()?);
            Some(found.ok()?.config)
        });
        match learn_from_run(profile, config.as_ref(), name) {
            Ok(run) => learned.push(run),
            Err(why) => match skipped.iter_mut().find(|s| s.0 == why) {
                Some(s) => s.1 += 1,
                None => skipped.push((why, 1)),
            },
        }
    }
    // Held while it is changed.
    let shared = match &args.output {
        Some(_) => None,
        None => Some(SharedFile::open_locked(CALIBRATION_FILE).ok_or_else(|| {
            Failure::environment(
                "the state folder cannot be written to, or another plimsoll holds it",
            )
            .hint("name a file with --output, or set XDG_STATE_HOME to a folder of your own")
        })?),
    };
    let in_state = || shared.as_ref().map(SharedFile::file_path);
    let path = args
        .output
        .as_deref()
        .or_else(in_state)
        .unwrap_or(Path::new(CALIBRATION_FILE));
    let known = if args.fresh {
        Calibration::default()
    } else {
        let bytes = match &shared {
            Some(shared) => shared.read_bytes(),
            None => bounded::read_bytes(path, LONGEST).ok(),
        };
        known_calibration(path, bytes)?
    };
    let calibration = known.with(learned);
    write_atomically(path, &json_bytes(&calibration)?)?;
    console.show_document(args.json, &calibration, || {
        Ok(calibration_report(&calibration, &skipped))
    })?;
    console.print_note(&format!("database: {}", path.display()));
    Ok(ExitCode::Done)
}

/// The calibration learned so far, for an estimate before loading: from a file, else from the state
/// folder.
///
/// # Errors
/// The named file is not a database.
pub(super) fn read_calibration(
    console: &Console,
    file: Option<&Path>,
) -> Result<Option<Calibration>, Failure> {
    let no_database = |file: &Path| {
        Failure::usage(format!(
            "`{}` is not a calibration that `plimsoll calibrate` wrote",
            file.display()
        ))
        .hint("`plimsoll calibrate DIR --output FILE` writes one")
    };
    let bytes = match file {
        Some(file) => {
            Some(bounded::named_bytes(file, LONGEST).map_err(|e| no_database(file).caused_by(e))?)
        }
        None => SharedFile::read_unlocked(CALIBRATION_FILE),
    };
    let bytes = bytes.filter(|b| file.is_some() || !b.is_empty());
    let there = bytes.is_some();
    let read = bytes.and_then(|bytes| bounded::parse_json::<Calibration>(&bytes).ok());
    let known = read.filter(|known| known.document == "calibration");
    match (file, known) {
        (Some(file), None) => Err(no_database(file)),
        (None, None) if there => {
            console.print_warning(
                "the database of your own runs cannot be read, and nothing of it is used; `plimsoll calibrate --fresh` begins a new one",
            );
            Ok(None)
        }
        (_, known) => Ok(known),
    }
}

/// What is known already. What cannot be read is not written over.
fn known_calibration(path: &Path, bytes: Option<Vec<u8>>) -> Result<Calibration, Failure> {
    let Some(bytes) = bytes.filter(|b| !b.is_empty()) else {
        return Ok(Calibration::default());
    };
    match bounded::parse_json::<Calibration>(&bytes) {
        Ok(known) if known.document == "calibration" => Ok(known),
        _ => Err(Failure::usage(format!(
            "`{}` is not a calibration that `plimsoll calibrate` wrote",
            path.display()
        ))
        .hint("--output names another file; --fresh replaces this one")),
    }
}
