//! Reading what a report is made of: profiles and documents in folders, each with its capture.

use super::capture::read_beside;
use crate::cli::ReportArgs;
use crate::commands::validate::calculate;
use crate::compare::validate::RunValidation;
use crate::error::Failure;
use crate::profile::{Profile, derive_profile};
use crate::report::chapters::build_report;
use crate::report::content::Report;
use crate::report::lanes;
use crate::report::material::{Material, ReportRun, StoredDocument};
use crate::store::{
    ProfileFile, StoredCapture, bounded, find_profiles, parse_document, parse_profile,
    read_document, read_profile,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Stretches of timelines in one report: beyond that a page is slow to open.
const MOST_STRETCHES: usize = 100_000;
/// Of several runs, those shown in full; the others have their line in tables.
const IN_FULL: usize = 6;
/// And the stretches of these together.
const STRETCHES_OF_MANY: usize = 24_000;

/// A profile and the file that it lies in.
type FoundRun = (PathBuf, Box<Profile>);

/// Bytes of a file that are enough to see what it claims to be.
const BEGINNING: u64 = 4096;

/// All that lies at the paths.
///
/// # Errors
/// A path that leads nowhere, a named file that is nothing of plimsoll's, nothing at all.
pub(super) fn read_material(args: &ReportArgs) -> Result<Material, Failure> {
    let mut material = Material {
        gpu_hour_price: args.gpu_hour_price,
        currency: args.currency.clone().unwrap_or_default(),
        compare: args.compare,
        ..Material::default()
    };
    let mut found: Vec<FoundRun> = Vec::new();
    let mut folders = Vec::new();
    for path in &args.paths {
        match path.is_dir().then(|| StoredCapture::open(path)) {
            Some(Ok(stored)) => found.push(of_capture(path, &stored)?),
            _ => folders.push(path.clone()),
        }
    }
    // In the order of the paths: of two that are compared the first is the first.
    for path in &folders {
        search(path, &mut found, &mut material)?;
    }
    found = each_once(found);
    // Two sweeps are held against each other by their own documents.
    let sweeps = args.paths.len() == 2 && material.sweeps.len() == 2;
    if args.compare && !sweeps {
        order_of_paths(args, &mut found)?;
    } else {
        found.sort_by(|a, b| {
            let key = |f: &FoundRun| (f.1.metadata.timestamp.clone(), f.0.clone());
            key(a).cmp(&key(b))
        });
    }
    material.runs = runs(found);
    let nothing = material.document_counts().is_empty() && material.older.is_empty();
    if material.runs.is_empty() && nothing {
        return Err(nothing_found(args, &material));
    }
    Ok(material)
}

/// One path: a file that was named must be something; what lies in a folder and is nothing is
/// left out.
fn search(path: &Path, found: &mut Vec<FoundRun>, material: &mut Material) -> Result<(), Failure> {
    if path == Path::new("-") {
        return read_stdin(found, material);
    }
    let files = find_profiles(std::slice::from_ref(&path.to_path_buf()))?;
    for file in files.files {
        let Some(failure) = add_profile(read_profile(&file), &file, found, material) else {
            continue;
        };
        let is_named = files.named.contains(&file);
        let Some((kind, document)) = read_document(&file) else {
            if is_named {
                return Err(failure);
            }
            // A document of another program may be skipped; an unreadable profile may not.
            let lost = failure.message.contains("missing") || claims_to_be_one(&file);
            if lost || !failure.message.contains("is not a profile") {
                material.unread.push(failure.to_string());
            }
            continue;
        };
        let name = file.display().to_string();
        let stored = StoredDocument { name, document };
        if material.add_document(&kind, stored).is_some() && is_named {
            return Err(failure);
        }
    }
    Ok(())
}

/// Adds what was read as a profile; else why it is none.
fn add_profile(
    read: Result<ProfileFile, Failure>,
    file: &Path,
    found: &mut Vec<FoundRun>,
    material: &mut Material,
) -> Option<Failure> {
    match read {
        Ok(ProfileFile::Profile(profile)) => found.push((file.to_owned(), profile)),
        Ok(ProfileFile::Older(document)) => material.older.push(StoredDocument {
            name: file.display().to_string(),
            document: *document,
        }),
        Err(failure) => return Some(failure),
    }
    None
}

/// One document on standard input, as a command with `--json` prints it.
fn read_stdin(found: &mut Vec<FoundRun>, material: &mut Material) -> Result<(), Failure> {
    let name = "standard input";
    let bytes = bounded::read_stream_document(std::io::stdin().lock())
        .map_err(|e| Failure::usage("cannot read standard input").caused_by(e))?;
    let read = parse_profile(Path::new(name), &bytes);
    let Some(failure) = add_profile(read, Path::new(name), found, material) else {
        return Ok(());
    };
    let Some((kind, document)) = parse_document(&bytes) else {
        return Err(failure);
    };
    let name = name.into();
    match material.add_document(&kind, StoredDocument { name, document }) {
        Some(_) => Err(failure.hint(format!("there is no report for the kind `{kind}`"))),
        None => Ok(()),
    }
}

/// A run that was found twice counts once; two documents of one run that differ are two.
fn each_once(found: Vec<FoundRun>) -> Vec<FoundRun> {
    let mut kept: Vec<FoundRun> = Vec::new();
    let mut known: HashMap<String, Vec<usize>> = HashMap::new();
    for (file, profile) in found {
        let same = known.entry(profile.metadata.run_id.clone()).or_default();
        if same.iter().all(|i| kept[*i].1 != profile) {
            same.push(kept.len());
            kept.push((file, profile));
        }
    }
    kept
}

/// Whether a file that cannot be read as a profile begins as one: a copy that was cut off.
fn claims_to_be_one(file: &Path) -> bool {
    let key = b"\"profiler_version\"";
    bounded::read_beginning(file, BEGINNING)
        .is_ok_and(|bytes| bytes.windows(key.len()).any(|part| part == key))
}

/// The profile of a capture that was named: the one beside it, else made of it.
fn of_capture(folder: &Path, stored: &StoredCapture) -> Result<FoundRun, Failure> {
    if let Ok(file) = stored.profile_path() {
        if let Ok(ProfileFile::Profile(profile)) = read_profile(&file) {
            return Ok((file, profile));
        }
    }
    let (samples, lines) = (stored.read_samples()?, stored.read_lines()?);
    let profile = derive_profile(&stored.capture, samples, lines);
    Ok((folder.to_owned(), Box::new(profile)))
}

/// The two runs that are compared, as they were named.
fn order_of_paths(args: &ReportArgs, found: &mut [FoundRun]) -> Result<(), Failure> {
    let place = |file: &Path| {
        let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        args.paths.iter().position(|path| {
            let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            file.starts_with(&path) || file.with_extension("capture") == path
        })
    };
    let places: Vec<Option<usize>> = found.iter().map(|(file, _)| place(file)).collect();
    let both = places.iter().flatten().collect::<HashSet<_>>().len() == 2;
    if args.paths.len() != 2 || found.len() != 2 || !both {
        return Err(Failure::usage(format!(
            "--compare takes two profiles of different runs or two sweeps; found: {} of profiles, in {} of paths",
            found.len(),
            args.paths.len()
        ))
        .hint("name the two profiles: plimsoll report --compare BEFORE.json AFTER.json"));
    }
    found.sort_by_key(|(file, _)| place(file));
    Ok(())
}

/// The report of a profile that lies, or will lie, in `file`.
pub(in crate::commands) fn report_of_profile(profile: &Profile, file: &Path) -> Report {
    let mut material = Material::of_profile(profile.clone());
    for run in &mut material.runs {
        add_calculated(run, file);
    }
    build_report(Vec::new(), &material)
}

/// Adds what is calculated for the run of a profile that lies in `file`.
fn add_calculated(run: &mut ReportRun, file: &Path) {
    let shown = file.display().to_string();
    let (calculated, plan) = calculate(&run.profile, file);
    let calculated = RunValidation::validate_run(&run.profile, &shown, &calculated);
    (run.calculated, run.plan) = (Some(calculated), plan);
}

/// Each with its capture, if it exists.
fn runs(found: Vec<FoundRun>) -> Vec<ReportRun> {
    let files: Vec<&Path> = found.iter().map(|(file, _)| file.as_path()).collect();
    let names = names(&files);
    let stretches = match found.len() {
        0 | 1 => MOST_STRETCHES,
        n => STRETCHES_OF_MANY / n.min(IN_FULL),
    };
    let all = found.into_iter().zip(names).enumerate();
    all.map(|(i, ((file, profile), name))| {
        let mut run = ReportRun::of_profile(name, profile);
        run.in_full = i < IN_FULL;
        if run.in_full {
            (run.timeline, run.places) = read_beside(&file, &run.profile, stretches)
                .unwrap_or_else(|| (lanes::of_profile(&run.profile), BTreeMap::new()));
        }
        add_calculated(&mut run, &file);
        run
    })
    .collect()
}

fn nothing_found(args: &ReportArgs, material: &Material) -> Failure {
    let shown = args.paths.iter().map(|p| format!("`{}`", p.display()));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let mut failure = Failure::usage(format!("there is nothing to report on in {shown}"));
    for sentence in material.unread.iter().take(3) {
        failure = failure.hint(sentence);
    }
    failure.hint("profiles are written by `plimsoll profile` and `run`, results by `plimsoll sweep`, to results/ as a rule")
}

/// For each file the shortest end of its path that no other has, without the ending `.json`.
fn names(files: &[&Path]) -> Vec<String> {
    let parts = files.iter().map(|file| {
        let file = file.with_extension("");
        let parts = file.components().map(|c| c.as_os_str().to_string_lossy());
        parts.map(Cow::into_owned).collect()
    });
    let parts: Vec<Vec<String>> = parts.collect();
    let end = |parts: &[String], n: usize| {
        let from = parts.len().saturating_sub(n);
        parts.get(from..).unwrap_or_default().join("/")
    };
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut names: Vec<Option<String>> = vec![None; files.len()];
    for n in 1..=longest.max(1) {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for p in &parts {
            *counts.entry(end(p, n)).or_default() += 1;
        }
        for (name, p) in names.iter_mut().zip(&parts) {
            let short = end(p, n);
            if name.is_none() && (counts.get(&short) == Some(&1) || n == longest) {
                *name = Some(short);
            }
        }
    }
    names.into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_long_as_it_must_be() {
        let files = ["r/x/a.json", "r/y/a.json", "r/y/b.json", "r/b.capture"];
        let files: Vec<&Path> = files.iter().map(Path::new).collect();
        assert_eq!(names(&files), ["x/a", "y/a", "y/b", "r/b"]);
        assert_eq!(names(&[Path::new("/deep/in/one.json")]), ["one"]);
        assert!(names(&[]).is_empty());
    }
}
