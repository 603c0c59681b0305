//! `plimsoll validate`: measurements compared with `estimate`, over a folder of profiles.

use crate::cli::{FailOn, ValidateArgs};
use crate::compare::calculated::{Calculated, Item};
use crate::compare::deployment::{batch_of, deployment_of};
use crate::compare::validate::{RunValidation, Skipped, Validation};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::estimate::model::{Flags, from_config, from_flags};
use crate::estimate::{Model, estimate};
use crate::models;
use crate::profile::Profile;
use crate::report::format::text::file_text;
use crate::report::validation::validation_report;
use crate::report::{self, material::RunPlan};
use crate::store::{
    ProfileFile, find_profiles, model_config, numbered_name, private, read_profile,
    write_atomically,
};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub fn run(console: &Console, args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let (profiles, skipped) = profiles(console, &args.paths)?;
    let runs: Vec<RunValidation> = profiles
        .iter()
        .map(|(file, profile)| {
            let (calculated, _) = calculate(profile, file);
            RunValidation::validate_run(profile, &file.display().to_string(), &calculated)
        })
        .collect();
    let mut validation = Validation::validate_runs(runs, skipped);
    match args.fail_on {
        Some(FailOn::Percent(percent)) => validation.judge_errors(Some(percent)),
        Some(FailOn::Tolerance) => validation.judge_errors(None),
        None => {}
    }
    console.show_document(args.json, &validation, || {
        Ok(validation_report(&validation))
    })?;
    if !args.json || args.output_dir.is_some() {
        store(console, args, &validation)?;
    }
    match &validation.limit {
        Some(limit) if limit.judged == 0 => Err(Failure::usage(
            "--fail-on has nothing to judge: no figure is both measured and calculated",
        )
        .hint("name profiles of a model that `plimsoll estimate MODEL` knows")
        .into()),
        Some(limit) if !limit.exceeded.is_empty() => Ok(ExitCode::Exceeded),
        _ => Ok(ExitCode::Done),
    }
}

/// What is calculated for the deployment of a profile. What own runs have taught is left out: they
/// may be these.
pub(super) fn calculate(profile: &Profile, file: &Path) -> (Calculated, Option<RunPlan>) {
    match plan_of(profile, file) {
        Ok((plan, facts)) => (calculate_plan(profile, &plan, facts), Some(plan)),
        Err(why) => (Calculated::nothing_calculated(&why), None),
    }
}

/// The model and the deployment of a profile, and where the model's facts are from.
fn plan_of(profile: &Profile, file: &Path) -> Result<(RunPlan, String), String> {
    let deployment = deployment_of(profile).map_err(|why| why.to_string())?;
    let (model, facts) = model_of(profile, file)?;
    Ok((RunPlan { model, deployment }, facts))
}

fn calculate_plan(profile: &Profile, plan: &RunPlan, facts: String) -> Calculated {
    let estimate = estimate(&plan.model, &plan.deployment);
    let pool = estimate.pool.as_ref().map(|p| (p.bytes, p.tokens));
    let total = estimate.total.as_ref().copied();
    // What is in use on a host without a GPU is the engine's own alone.
    let outside = if plan.deployment.on_cpu {
        0
    } else {
        estimate.outside
    };
    let mut calculated = Calculated::of_terms(facts, &estimate.terms, pool, total, outside);
    if let Some((sequences, tokens)) = batch_of(profile) {
        let used = estimate
            .request(tokens)
            .map(|bytes| bytes.saturating_mul(sequences));
        let used = used.ok_or_else(|| "the cache of the model is not known".to_owned());
        calculated.set_claim(Item::KvUsed, used.into());
    }
    calculated
}

/// The model that a profile is of, and where its facts are from: the run's own config.json goes
/// before what ships.
fn model_of(profile: &Profile, file: &Path) -> Result<(Model, String), String> {
    let name = (profile.model_info.name.as_deref())
        .or(profile.parameters.model.as_deref())
        .unwrap_or("the model");
    let (config, facts) = match model_config(file) {
        Some(config) => (config, "config.json of the run".to_owned()),
        None => match models::find(name) {
            Ok(found) => (found.config, found.source),
            Err(why) => {
                let flags = Flags::of_figures(&profile.parameters.architecture);
                let given = Some(flags).filter(|f| !f.is_empty());
                let given = given.ok_or_else(|| {
                    format!(
                        "{}; the run's capture, with config.json, does not lie beside the profile",
                        why.message
                    )
                })?;
                let model = from_flags(name, &given).map_err(|why| why.to_string())?;
                return Ok((model, "the figures that the run was given".to_owned()));
            }
        },
    };
    let model = from_config(name, &config, &facts).map_err(|why| why.to_string())?;
    Ok((model, facts))
}

/// A profile and the file that it lies in.
pub(super) type FoundProfile = (PathBuf, Profile);

/// The profiles of some paths. A named file must be one; another file of a folder is skipped, with its reason where it
/// looks like one.
pub(super) fn profiles(
    console: &Console,
    paths: &[PathBuf],
) -> Result<(Vec<FoundProfile>, Vec<Skipped>), Failure> {
    let found = find_profiles(paths)?;
    if found.twice > 0 {
        console.print_warning(&format!(
            "{} files were named twice, and count once",
            found.twice
        ));
    }
    let (mut profiles, mut skipped): (Vec<FoundProfile>, Vec<Skipped>) = (Vec::new(), Vec::new());
    let mut others = 0;
    let (mut seen, mut again) = (HashSet::new(), 0);
    for file in found.files {
        let why = match read_profile(&file) {
            Ok(ProfileFile::Profile(profile)) => {
                // A copy, or the start of an engine that the first cell of its group reports as well.
                if seen.insert(profile.metadata.run_id.clone()) {
                    profiles.push((file, *profile))
                } else {
                    again += 1
                }
                continue;
            }
            Ok(ProfileFile::Older(_)) => "its earlier schema lacks the deployment".to_owned(),
            Err(failure) if found.named.contains(&file) => return Err(failure),
            // Results, reports and plans lie in the same folders.
            Err(failure) if failure.message.contains("is not a profile") => {
                others += 1;
                continue;
            }
            Err(failure) => failure.message,
        };
        skipped.push(Skipped {
            file: file.display().to_string(),
            why,
        });
    }
    if again > 0 {
        console.print_note(&format!(
            "{again} {} left out: each run counts once, and these runs were read already",
            if again == 1 {
                "profile is"
            } else {
                "profiles are"
            }
        ));
    }
    if others > 0 {
        console.print_note(&format!(
            "{others} other documents in these folders were left out: they are not profiles"
        ));
    }
    if profiles.is_empty() {
        let shown: Vec<String> = paths.iter().map(|p| format!("`{}`", p.display())).collect();
        let mut failure = Failure::usage(format!("there is no profile in {}", shown.join(", ")));
        for s in skipped.iter().take(3) {
            failure = failure.hint(format!("`{}`: {}", s.file, s.why));
        }
        return Err(failure.hint(
            "profiles are written by `plimsoll profile`, `run` and `sweep`, to results/ as a rule",
        ));
    }
    Ok((profiles, skipped))
}

/// Writes summary and table.
fn store(console: &Console, args: &ValidateArgs, validation: &Validation) -> anyhow::Result<()> {
    let folder = match &args.output_dir {
        Some(folder) => folder.clone(),
        None => args.results.dir.join("validation-reports"),
    };
    private::create_folders(&folder).map_err(|e| {
        Failure::environment(format!("cannot write reports to `{}`", folder.display()))
            .hint("choose another place with --output-dir")
            .caused_by(e)
    })?;
    let time = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S").to_string();
    let (summary, table) = free_names(&folder, &time);
    let page = file_text(&validation_report(validation));
    write_atomically(&summary, page.as_bytes())?;
    write_atomically(&table, &report::validation::validation_csv(validation))?;
    console.print_note(&format!("summary: {}", summary.display()));
    console.print_note(&format!("table: {}", table.display()));
    Ok(())
}

/// Free file names: two reports of one second do not share theirs.
fn free_names(folder: &Path, time: &str) -> (PathBuf, PathBuf) {
    let named = |n: u32| {
        let time = numbered_name(time, n);
        (
            folder.join(format!("batch-summary-{time}.txt")),
            folder.join(format!("batch-validation-{time}.csv")),
        )
    };
    (1..1000)
        .map(named)
        .find(|(a, b)| !a.exists() && !b.exists())
        .unwrap_or_else(|| named(1000))
}
