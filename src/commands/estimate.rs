//! `plimsoll estimate`: what a deployment will need, and whether it fits.

pub(super) mod asked;
mod batch;
mod gpu;
pub(super) mod launched;
pub(super) mod model;
mod page;
mod sharing;

use crate::catalog;
use crate::cli::EstimateArgs;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::estimate::question::{self, Reading, Risk, What, table};
use crate::estimate::{Deployment, Estimate, Unknown, document};
use crate::report::content::Action;
use crate::report::estimate as report;
pub(super) use asked::Asked;
pub(super) use launched::{engines_of, read_compose};
use serde_json::{Value, json};
pub(super) use sharing::GpuGroup;

pub fn run(console: &Console, args: EstimateArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.batch {
        return batch::run(console, file, args.online);
    }
    if args.show_settings {
        let shown = launched::show_settings(&args)?;
        console.show_document(args.json, &shown, || Ok(report::settings_report(&shown)))?;
        return Ok(ExitCode::Done);
    }
    let one = args.table || args.solve.is_some() || args.recommend_gpu;
    if let Some(group) = sharing::read_group(console, &args)?.filter(|_| !one) {
        return sharing::show_group(console, &args, &group);
    }
    if let Some(named) = args.engine_version.as_ref().filter(|v| v.contains(',')) {
        if one || args.check_oom || args.risk {
            return Err(Failure::usage(
                "several versions in --engine-version cannot be combined with another question",
            )
            .hint("give one, or leave the question out")
            .into());
        }
        return show_versions(console, &args, named);
    }
    let asked = Asked::of(console, &args)?;
    if args.table {
        return show_table(console, &args, &asked);
    }
    if args.concurrency.len() > 1 {
        return Err(
            Failure::usage("several values of --concurrency need --table")
                .hint("add --table, or give one")
                .into(),
        );
    }
    if args.recommend_gpu {
        return recommend(console, &args, &asked);
    }
    if let Some(what) = args.solve {
        let sizes = ["tensor_parallel_size", "pipeline_parallel_size"];
        let parallel = sizes.iter().any(|s| args.settings.0.contains_key(*s));
        if what == What::MinGpus && parallel {
            return Err(Failure::usage(
                "--solve min-gpus finds the tensor and pipeline parallel sizes itself",
            )
            .hint("leave --tensor-parallel-size and --pipeline-parallel-size out")
            .into());
        }
        return solve(console, &args, &asked, what);
    }
    show_estimate(console, &args, &asked, &asked.deployment, None)
}

/// What the page of a deployment answers: its sentence, and what to change.
pub(super) fn answer_for(asked: &Asked, estimate: &Estimate) -> (String, Vec<String>) {
    let page = page::build_page(asked, &asked.deployment, estimate, asked.concurrency, None);
    let answer = report::answer_of_estimate(&page);
    let actions = answer.actions.iter().map(Action::action_text);
    (answer.verdict, actions.collect())
}

/// The failure for a question that needs a fact which is not known.
fn unknown(why: Unknown) -> Failure {
    let failure = Failure::environment(why.what);
    why.hint.into_iter().fold(failure, Failure::hint)
}

/// Prints the page, or the document, of one deployment, after the answer of `--solve`.
fn show_estimate(
    console: &Console,
    args: &EstimateArgs,
    asked: &Asked,
    deployment: &Deployment,
    solved: Option<&question::Solution>,
) -> anyhow::Result<ExitCode> {
    let estimate = asked.estimate(deployment)?;
    let reading = asked.reading(deployment);
    let concurrency = match solved {
        Some(found) if found.what == What::MaxConcurrency || found.what == What::MaxBatch => {
            found.value.map_or(1, |v| v as u64)
        }
        _ => asked.concurrency,
    };
    let risk = reading.as_ref().ok().and_then(|r| r.risk(concurrency));
    if args.risk {
        let risk = match (risk, reading) {
            (Some(risk), _) => risk,
            (None, Ok(_)) => return Err(no_gpu().into()),
            (None, Err(why)) => return Err(unknown(why).into()),
        };
        console.write_data(format!("{}\n", risk.as_str()).as_bytes())?;
        return Ok(ended(args, Some(risk)));
    }
    let solution = solved.map(|found| report::solution_text(found, asked.concurrency));
    let page = page::build_page(asked, deployment, &estimate, concurrency, solution);
    print_page(console, args, &page, &estimate, risk, solved)?;
    if args.check_oom && risk.is_none() {
        return Err(match reading {
            Ok(_) => no_gpu(),
            Err(why) => unknown(why),
        }
        .into());
    }
    Ok(ended(args, risk))
}

/// Prints a page, or its document.
fn print_page(
    console: &Console,
    args: &EstimateArgs,
    page: &report::EstimatePage,
    estimate: &Estimate,
    risk: Option<Risk>,
    solved: Option<&question::Solution>,
) -> anyhow::Result<()> {
    if !args.json {
        console.print_report(&report::estimate_report(page, args.explain))?;
        return Ok(());
    }
    let mut shown = document::of(&page.model, estimate);
    // What is asked for may be more than the one request that a start takes.
    let is_known = estimate.fits.is_some() || estimate.unmodelled.is_empty();
    if let (Some(Risk::DoesNotFit), Some(fits)) = (risk.filter(|_| is_known), shown.get_mut("fits"))
    {
        *fits = false.into();
    }
    if let (Some(map), Value::Object(own)) = (shown.as_object_mut(), serde_json::to_value(page)?) {
        map.extend(own);
        map.insert("risk".into(), json!(risk));
        let verdict = report::answer_of_estimate(page).verdict;
        if let Some(shared) = &page.shared {
            map.insert("fits".into(), json!(shared.fits));
            map.insert("reason".into(), json!(verdict));
        }
        if let report::Known::Value(Reading { on: Some(on), .. }) = &page.reading {
            let at_once = (on.concurrency * 100.0).round() / 100.0;
            map.insert("max_concurrency".into(), json!(at_once));
        }
        map.insert("verdict".into(), json!(verdict));
        if let Some(found) = solved {
            // A share is a fraction; all else that is solved for is counted.
            let value = found.value.map(|v| match found.what {
                What::GpuMemoryUtilization => json!(v),
                _ => json!(v as u64),
            });
            map.insert(
                "solve".into(),
                json!({"what": found.what, "value": value, "bound": found.bound}),
            );
        }
    }
    console.print_json(&shown)
}

fn no_gpu() -> Failure {
    Failure::usage("whether it fits depends on the GPU, and none is named")
        .hint("give --gpu NAME, --gpu detected or --gpu-memory")
}

fn ended(args: &EstimateArgs, risk: Option<Risk>) -> ExitCode {
    match risk {
        Some(Risk::DoesNotFit) if args.check_oom => ExitCode::DoesNotFit,
        _ => ExitCode::Done,
    }
}

fn solve(
    console: &Console,
    args: &EstimateArgs,
    asked: &Asked,
    what: What,
) -> anyhow::Result<ExitCode> {
    if asked.deployment.gpu.is_none() {
        return Err(no_gpu().into());
    }
    let holds = |d: &Deployment| Ok(asked.reading(d)?.on.map_or(0.0, |on| on.concurrency));
    let found = question::solve(
        what,
        &asked.model,
        &asked.deployment,
        asked.concurrency,
        &holds,
    )
    .map_err(unknown)?;
    show_estimate(console, args, asked, &found.deployment, Some(&found))
}

fn recommend(console: &Console, args: &EstimateArgs, asked: &Asked) -> anyhow::Result<ExitCode> {
    let longest = question::longest(&asked.model, &asked.deployment).map_err(unknown)?;
    // Cards: a machine that shares its memory with its GPU cannot be added to a host.
    let cards = catalog::shipped_gpus()
        .iter()
        .filter(|card| card.sold_alone)
        .filter(|m| m.shares_host.is_none());
    let gpus: Vec<_> = cards.map(gpu::planned).collect();
    let read = |d: &Deployment| asked.reading(d);
    let found = question::recommend(
        &asked.model,
        &asked.deployment,
        &gpus,
        asked.concurrency,
        &read,
    )
    .map_err(unknown)?;
    let title = format!(
        "{}, {}, {} of {longest} tokens at once; the smallest first",
        asked.model.name,
        page::engine(&asked.deployment),
        match asked.concurrency {
            1 => "a request".to_owned(),
            n => format!("{n} requests"),
        },
    );
    let choices = report::GpuChoices {
        document: "gpu_choices".into(),
        id: asked.model.name.clone(),
        title,
        concurrency: asked.concurrency,
        max_model_len: longest,
        recommend: found,
        tried: gpus.len(),
        warnings: asked.warnings.clone(),
    };
    console.show_document(args.json, &choices, || Ok(report::choices_report(&choices)))?;
    Ok(ExitCode::Done)
}

/// What an upgrade changes: the same deployment by the rules of each release.
fn show_versions(console: &Console, args: &EstimateArgs, named: &str) -> anyhow::Result<ExitCode> {
    let mut warnings: Vec<String> = Vec::new();
    let mut versions = Vec::new();
    let mut title = (String::new(), String::new());
    for version in named.split(',').map(str::trim).filter(|v| !v.is_empty()) {
        let one = EstimateArgs {
            engine_version: Some(version.to_owned()),
            ..args.clone()
        };
        let asked = Asked::of(console, &one)?;
        let estimate = asked.estimate(&asked.deployment)?;
        let new = asked.warnings.iter().filter(|w| !warnings.contains(w));
        warnings.extend(new.cloned().collect::<Vec<_>>());
        let on = page::gpus(&asked.deployment).map_or(String::new(), |g| format!(" on {g}"));
        title = (
            asked.model.name.clone(),
            format!("{}{on} by release", asked.model.name),
        );
        versions.push(report::VersionAnswer {
            version: version.to_owned(),
            kv_pool_tokens: estimate.pool.as_ref().ok().map(|p| p.tokens),
            max_concurrency: estimate.max_concurrency.as_ref().ok().copied(),
            fits: estimate.fits,
            reason: estimate.reason,
            terms: estimate.terms,
        });
    }
    let document = report::EstimateVersions {
        document: "estimate_versions".into(),
        id: title.0,
        title: title.1,
        versions,
        warnings,
    };
    console.show_document(args.json, &document, || {
        Ok(report::versions_report(&document))
    })?;
    Ok(ExitCode::Done)
}

fn show_table(console: &Console, args: &EstimateArgs, asked: &Asked) -> anyhow::Result<ExitCode> {
    let most = (asked.deployment.max_model_len).or(asked.model.max_positions);
    let lengths = if args.lengths.is_empty() {
        table::lengths(most)
    } else {
        args.lengths.clone()
    };
    let concurrencies = if args.concurrency.is_empty() {
        table::CONCURRENCIES.to_vec()
    } else {
        args.concurrency.clone()
    };
    let read = |d: &Deployment| asked.reading(d);
    let entries =
        question::table(&asked.deployment, &concurrencies, &lengths, &read).map_err(unknown)?;
    let on = page::gpus(&asked.deployment).map_or(String::new(), |g| format!(" on {g}"));
    let table = report::EstimateTable {
        document: "estimate_table".into(),
        id: asked.model.name.clone(),
        title: format!(
            "{}, {}{on}: GiB on each GPU by tokens and requests at once",
            asked.model.name,
            page::engine(&asked.deployment),
        ),
        table: entries,
        warnings: asked.warnings.clone(),
    };
    console.show_document(args.json, &table, || Ok(report::table_report(&table)))?;
    Ok(ExitCode::Done)
}

impl Asked {
    pub(in crate::commands) fn reading(&self, deployment: &Deployment) -> Result<Reading, Unknown> {
        let estimate = self.estimated(deployment)?;
        let reading = Reading::of(&self.model, deployment, &estimate)?;
        Ok(Reading {
            is_fitted: self.fitted_length.is_some()
                && deployment.max_model_len == self.fitted_length,
            ..reading
        })
    }
}
