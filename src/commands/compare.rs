//! `plimsoll compare`: two profiles side by side, or profiles against given figures.

use crate::cli::CompareArgs;
use crate::compare::given::{ExternalFigures, GivenReport};
use crate::compare::profiles::{FEWEST_REPEATS, Limit, Pair, find_median};
use crate::compare::subject::Subject;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::report;
use crate::report::compare::pair_report;
use crate::report::content::Report;
use crate::report::given::given_report;
use crate::store::{ProfileFile, find_profiles, read_profile, write_atomically};
use crate::wording::count_noun;
use serde::Serialize;
use std::path::Path;

pub fn run_compare(console: &Console, args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let given = ExternalFigures {
        weights: args.calc_weights,
        kv: args.calc_kv,
        activations: args.calc_activations,
        overhead: args.calc_overhead,
        basis: args.kv_basis,
    };
    if !args.against.is_empty() {
        judge_by_baseline(console, args)
    } else if given.has_any_figure() {
        against(console, args, &given)
    } else {
        two(console, args)
    }
}

fn read_subject(path: &Path) -> Result<Subject, Failure> {
    let shown = path.display().to_string();
    Ok(match read_profile(path)? {
        ProfileFile::Profile(profile) => Subject::subject_of_profile(&profile, &shown),
        ProfileFile::Older(document) => Subject::of_older(&document, &shown),
    })
}

fn two(console: &Console, args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let [a, b] = args.profiles.as_slice() else {
        let named = match args.profiles.len() {
            1 => "only one was named".to_owned(),
            n => format!("{n} were named"),
        };
        return Err(
            Failure::usage(format!("compare needs two profiles, and {named}"))
                .hint("to compare profiles with your own figures instead, add --calc-weights, --calc-kv, --calc-activations or --calc-overhead")
                .into(),
        );
    };
    let mut pair = Pair::compare_subjects(&read_subject(a)?, &read_subject(b)?);
    if let Some(percent) = args.limits.fail_on {
        check_comparable(args, &pair)?;
        pair.judge_components(percent, args.limits.ignore_below);
    }
    show_pair(console, args, &pair)
}

/// One profile against repeats of a baseline, which say by how much each component moves by itself.
fn judge_by_baseline(console: &Console, args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let [new] = args.profiles.as_slice() else {
        let count = args.profiles.len();
        return Err(Failure::usage(format!(
            "--against judges one profile, and {count} were named"
        ))
        .hint("name the new profile, and the baseline's with --against")
        .into());
    };
    let new = read_subject(new)?;
    let found = find_profiles(&args.against)?;
    let (mut repeats, mut same_run) = (Vec::new(), 0);
    for file in &found.files {
        match read_subject(file) {
            // The new one may lie beside its baseline.
            Ok(subject) if subject.who.run_id == new.who.run_id && new.who.run_id.is_some() => {
                same_run += 1;
            }
            Ok(subject) => repeats.push(subject),
            Err(failure) if found.named.contains(file) => return Err(failure.into()),
            Err(_) => {}
        }
    }
    let median = find_median(&repeats).filter(|_| repeats.len() >= FEWEST_REPEATS);
    let median = median.ok_or_else(|| {
        let text = format!(
            "--against has {} to learn tolerances from, and needs {FEWEST_REPEATS}",
            count_noun(repeats.len(), "profile")
        );
        let failure = Failure::usage(text)
            .hint("profile the baseline a few times, or compare two profiles with --fail-on");
        match same_run {
            0 => failure,
            n => failure.hint(format!(
                "{} left out: the run that is judged",
                count_noun(n, "profile")
            )),
        }
    })?;
    let mut pair = Pair::compare_subjects(median, &new);
    check_comparable(args, &pair)?;
    for repeat in &repeats {
        let incomparable = Pair::compare_subjects(median, repeat).incomparable;
        if !args.force && !incomparable.is_empty() {
            return Err(Failure::usage(format!(
                "`{}` is not a repeat of `{}`: {}",
                repeat.who.file,
                median.who.file,
                incomparable.join("; ")
            ))
            .hint("name profiles of one load and one configuration; --force compares them anyway")
            .into());
        }
    }
    pair.judge_by_repeats(&repeats, args.limits.ignore_below);
    show_pair(console, args, &pair)
}

/// A verdict on figures that do not answer the same question is none.
fn check_comparable(args: &CompareArgs, pair: &Pair) -> Result<(), Failure> {
    if !args.force && !pair.incomparable.is_empty() {
        let text = format!("the two cannot be judged: {}", pair.incomparable.join("; "));
        return Err(Failure::usage(text).hint(
            "--force judges them all the same; `plimsoll compare A B` shows them side by side",
        ));
    }
    if pair.diff_gb.is_none() {
        return Err(Failure::usage(
            "the two cannot be judged: the peak memory of one of them is unknown",
        )
        .hint("profile that engine again; `plimsoll report FILE` says why its peak is unknown"));
    }
    Ok(())
}

fn show_pair(console: &Console, args: &CompareArgs, pair: &Pair) -> anyhow::Result<ExitCode> {
    show(
        console,
        args,
        pair,
        || pair_report(pair),
        || report::compare::pair_csv(pair),
    )?;
    Ok(exit_code(pair.limit.as_ref()))
}

fn against(
    console: &Console,
    args: &CompareArgs,
    given: &ExternalFigures,
) -> anyhow::Result<ExitCode> {
    let subjects = args
        .profiles
        .iter()
        .map(|p| read_subject(p))
        .collect::<Result<Vec<_>, _>>()?;
    let mut found = GivenReport::compare_with_given(&subjects, given);
    if let Some(percent) = args.limits.fail_on {
        found.judge_errors(percent, args.limits.ignore_below);
    }
    show(
        console,
        args,
        &found,
        || given_report(&found),
        || report::given::given_csv(&found),
    )?;
    let judged = found
        .profiles
        .iter()
        .flat_map(|p| &p.rows)
        .any(|r| r.measured_gb.is_some());
    if args.limits.fail_on.is_some() && !judged {
        return Err(
            Failure::usage("--fail-on has nothing to compare: the --calc-... values are of parts that no profile measured")
                .hint("give the part that the profiles measured: the table above has its figures in the column `measured`")
                .into(),
        );
    }
    Ok(exit_code(found.limit.as_ref()))
}

fn show(
    console: &Console,
    args: &CompareArgs,
    document: &impl Serialize,
    report: impl FnOnce() -> Report,
    csv: impl FnOnce() -> Vec<u8>,
) -> anyhow::Result<()> {
    console.show_document(args.json, document, || Ok(report()))?;
    if let Some(file) = &args.csv {
        write_atomically(file, &csv())?;
        console.print_note(&format!("table: {}", file.display()));
    }
    Ok(())
}

fn exit_code(limit: Option<&Limit>) -> ExitCode {
    match limit {
        Some(limit) if !limit.exceeded.is_empty() => ExitCode::Exceeded,
        _ => ExitCode::Done,
    }
}
