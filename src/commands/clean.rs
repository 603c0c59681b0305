//! `plimsoll clean`: finds what holds GPU memory and should not, and with --apply gets it back.

mod service;

use super::load::run_until_stopped;
use crate::clean::activity::ActivityMemory;
use crate::clean::apply::{ActOutcome, ActResult, ApplyOptions, apply_verdicts};
use crate::clean::document::CleanDocument;
use crate::clean::facts::Survey;
use crate::clean::scope;
use crate::clean::survey::{SurveyOptions, Surveyor};
use crate::clean::verdict::{CleanRequest, CleanVerdict, bind_names, judge_survey, why_unmatched};
use crate::cli::CleanArgs;
use crate::collect::{MemorySource, StopSignal, unless_stopped};
use crate::console::Console;
use crate::container::Runtime;
use crate::container::teardown::Patience;
use crate::error::{ExitCode, Failure};
use crate::progress::{Progress, Stage};
use crate::report::cleaning::{CleanFindings, OUTCOMES, clean_report};
use crate::report::content::Report;
use crate::report::format::text::{PageDetail, render_page};
use crate::wording::did_you_mean;

/// The warning when it is stopped during an act.
const STOPPING: &str = "stopping after the current action (press again to exit at once)";

pub fn run_clean(console: &Console, args: &CleanArgs) -> anyhow::Result<ExitCode> {
    let ask = clean_request(args);
    refuse(args, console.can_ask())?;
    run_until_stopped(console, args.apply.then_some(STOPPING), async |stop| {
        if args.compile_caches {
            return clean_compile_caches(console, args, stop).await;
        }
        if args.watch {
            service::run_service(console, args, &ask, stop).await
        } else {
            clean_once(console, args, &ask, stop).await
        }
    })
}

fn clean_request(args: &CleanArgs) -> CleanRequest {
    CleanRequest {
        names: args.containers.clone(),
        labels: args.label.clone(),
        images: args.image.clone(),
        all_gpu: args.all_gpu_containers,
        idle: args.idle,
    }
}

/// Whether containers are chosen that were not named.
fn chooses_unnamed(args: &CleanArgs) -> bool {
    args.all_gpu_containers || !args.label.is_empty() || !args.image.is_empty()
}

/// What can be refused before anything is looked at.
fn refuse(args: &CleanArgs, can_ask: bool) -> Result<(), Failure> {
    if let MemorySource::Recorded(_) = args.memory_backend {
        return Err(replayed());
    }
    if args.idle.is_some() && args.containers.is_empty() && !chooses_unnamed(args) {
        return Err(Failure::usage("--idle does not say which containers").hint(
            "name them, or choose them: --label KEY=VALUE, --image PATTERN or --all-gpu-containers",
        ));
    }
    if !args.apply || args.yes || !chooses_unnamed(args) {
        return Ok(());
    }
    if args.watch {
        return Err(Failure::usage(
            "--watch cleans unattended, so nobody can confirm what it will stop and remove",
        )
        .hint("run it once without --apply to see the plan; then add --yes"));
    }
    if !can_ask {
        return Err(Failure::usage("containers that a selector matches need a confirmation, and there is no terminal to ask on")
            .hint("without --apply the list is shown; if that is right, add --yes"));
    }
    Ok(())
}

/// Refuses a name that means no container, or more than one.
fn check_names(survey: &Survey, ask: &CleanRequest) -> Result<(), Failure> {
    for name in &ask.names {
        let Some(problem) = why_unmatched(survey, name) else {
            continue;
        };
        let names = survey.containers.iter().map(|c| c.name.as_str());
        let suggestion = did_you_mean(name, names, 3);
        let hint = suggestion.unwrap_or_else(|| "`docker ps --all` lists the containers".into());
        return Err(Failure::environment(problem).hint(hint));
    }
    Ok(())
}

/// Looks at the host, and completes what was found by what is remembered.
struct HostObserver {
    runtime: Runtime,
    surveyor: Surveyor,
    /// Only where it matters since when a container does nothing.
    memory: Option<ActivityMemory>,
}

impl HostObserver {
    async fn open_surveyor(args: &CleanArgs) -> Result<HostObserver, Failure> {
        let memory = match &args.memory_backend {
            MemorySource::Live(choice) => *choice,
            MemorySource::Recorded(_) => return Err(replayed()),
        };
        let options = SurveyOptions {
            memory,
            activity: args.idle.is_some(),
            ..SurveyOptions::default()
        };
        let runtime = Runtime::connect().await?;
        Ok(HostObserver {
            surveyor: Surveyor::open_devices(runtime.clone(), options).await,
            runtime,
            memory: args.idle.map(|_| ActivityMemory::default()),
        })
    }

    async fn look_once(&mut self) -> Result<Survey, Failure> {
        let mut look = self.surveyor.look_at_host().await?;
        if let Some(memory) = &mut self.memory {
            tokio::task::block_in_place(|| memory.complete_look(&mut look));
        }
        Ok(look.survey)
    }
}

fn replayed() -> Failure {
    Failure::usage("`clean` needs the current state of the host, and --replay gives a recording")
        .hint("leave --replay out")
}

fn apply_options(args: &CleanArgs) -> ApplyOptions {
    ApplyOptions {
        patience: Patience::for_grace(args.grace),
        settle: args.settle_timeout,
        ..ApplyOptions::default()
    }
}

async fn clean_once(
    console: &Console,
    args: &CleanArgs,
    ask: &CleanRequest,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let progress = console.sink();
    progress(Progress::Stage(Stage::Inspect));
    let mut eyes = unless_stopped(stop, HostObserver::open_surveyor(args)).await?;
    let mut survey = unless_stopped(stop, eyes.look_once()).await?;
    check_names(&survey, ask)?;
    let ask = &bind_names(&survey, ask);
    scope::narrow_notes(&mut survey, ask);
    let mut verdicts = scope::narrow_verdicts(&survey, ask, judge_survey(&survey, ask));
    console.finish_drawing();
    if !args.apply {
        show(console, args, ask, &survey, &verdicts)?;
        return Ok(ExitCode::Done);
    }
    if !args.yes && scope::unnamed_choice(&survey, ask, &verdicts) {
        confirm(console, ask, &survey, &verdicts, stop).await?;
        // The answer may have been long in coming: what has changed meanwhile is left alone.
        survey = unless_stopped(stop, eyes.look_once()).await?;
        scope::narrow_notes(&mut survey, ask);
        let now = scope::narrow_verdicts(&survey, ask, judge_survey(&survey, ask));
        verdicts = scope::still_confirmed(&verdicts, now);
    } else if !args.json {
        show(console, args, ask, &survey, &verdicts)?;
    }
    let options = apply_options(args);
    let outcomes = apply_verdicts(
        &eyes.runtime,
        &survey,
        &verdicts,
        &options,
        stop.token(),
        &progress,
    )
    .await;
    console.finish_drawing();
    let document = CleanDocument::new(&survey, ask, &verdicts, Some(&outcomes));
    if args.json {
        console.print_json(&document)?;
    } else {
        let mut report = report_of_document(console, &document)?;
        // The rest was shown before.
        report.chapters.retain(|chapter| chapter.id == OUTCOMES);
        print_page(console, &report)?;
    }
    let left = scope::count_left(&survey, ask, &verdicts, &outcomes);
    if left > 0 && !stop.token().is_cancelled() {
        let what = match left {
            1 => "one that is stuck or was named could not be cleaned".to_owned(),
            n => format!("{n} that are stuck or were named could not be cleaned"),
        };
        let done = |o: &ActOutcome| matches!(o.done, ActResult::Cleaned | ActResult::AlreadyGone);
        let hint = if outcomes.iter().all(done) {
            "the list says what keeps each of them"
        } else {
            "run it again: what was cut off is finished by the next run, and what is done stays done"
        };
        return Err(Failure::new(ExitCode::CleanIncomplete, what)
            .hint(hint)
            .into());
    }
    if stop.token().is_cancelled() {
        return Err(stop.stop_failure().into());
    }
    if !survey.unseen.is_empty() && ask.names.is_empty() {
        let names = survey.unseen.join("`, `");
        let what = format!("Docker did not report enough about `{names}` to judge it");
        return Err(Failure::environment(what)
            .hint("run it again: what could not be looked at was left alone")
            .into());
    }
    Ok(ExitCode::Done)
}

/// Lists the volumes with compile caches; with `--apply`, removes those that no container has.
async fn clean_compile_caches(
    console: &Console,
    args: &CleanArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let runtime = unless_stopped(stop, Runtime::connect()).await?;
    let caches = unless_stopped(stop, runtime.list_compile_caches()).await?;
    let mut removed = Vec::new();
    for cache in &caches {
        if args.apply && cache.used_by.is_empty() {
            unless_stopped(stop, runtime.remove_compile_cache(cache)).await?;
            removed.push(&cache.name);
        }
    }
    if args.json {
        console.print_json(&serde_json::json!({
            "document": "compile_caches", "volumes": &caches, "removed": removed,
        }))?;
        return Ok(ExitCode::Done);
    }
    let mut text = String::new();
    for cache in &caches {
        let state = match cache.used_by.join("`, `") {
            names if !names.is_empty() => format!("kept: in use by container `{names}`"),
            _ if args.apply => "removed".into(),
            _ => "no container has it; --apply removes it".into(),
        };
        text.push_str(&format!(
            "volume {}: compile cache of image {}: {state}\n",
            cache.name, cache.image
        ));
    }
    if caches.is_empty() {
        text.push_str("there is no volume with a compile cache of plimsoll's\n");
    }
    console.write_data(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// The page of a document; with `-v` a terminal shows all of it.
fn report_of_document(console: &Console, document: &CleanDocument<'_>) -> anyhow::Result<Report> {
    let found: CleanFindings = serde_json::from_value(serde_json::to_value(document)?)?;
    let report = clean_report(&found);
    Ok(if console.is_verbose() {
        report.show_details()
    } else {
        report
    })
}

/// What was found and what follows, to stdout.
fn show(
    console: &Console,
    args: &CleanArgs,
    ask: &CleanRequest,
    survey: &Survey,
    verdicts: &[CleanVerdict],
) -> anyhow::Result<()> {
    let mut document = CleanDocument::new(survey, ask, verdicts, None);
    if chooses_unnamed(args) && !console.can_ask() {
        document.apply_command.push_str(" --yes");
    }
    if args.json {
        return console.print_json(&document);
    }
    let mut report = report_of_document(console, &document)?;
    if args.apply {
        // What becomes of it follows.
        report.answer = None;
        if report.chapters.is_empty() {
            return Ok(());
        }
    }
    print_page(console, &report)
}

/// Off a terminal as wide as it is: no command in it is broken.
fn print_page(console: &Console, report: &Report) -> anyhow::Result<()> {
    let page = render_page(report, console.page_options(), PageDetail::Essential);
    Ok(console.write_data(page.as_bytes())?)
}

/// Continues only where the user has seen the list and answered yes.
async fn confirm(
    console: &Console,
    ask: &CleanRequest,
    survey: &Survey,
    verdicts: &[CleanVerdict],
    stop: &StopSignal,
) -> anyhow::Result<()> {
    let document = CleanDocument::new(survey, ask, verdicts, None);
    let report = Report {
        answer: None,
        ..report_of_document(console, &document)?
    };
    let page = render_page(&report, console.page_options(), PageDetail::Essential);
    let answer = unless_stopped(stop, async { Ok(console.ask_user(&page, "Do it?").await) });
    if answer.await? {
        return Ok(());
    }
    Err(Failure::new(
        ExitCode::Interrupted,
        "you did not confirm: nothing was stopped or removed",
    )
    .into())
}
