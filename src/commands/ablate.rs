//! `plimsoll ablate`: two settings of one engine in an idle container, run in turn.

use super::load::{
    attach_container, bench_kind, check_results, load_request, open_results, publish_document,
    run_stoppable,
};
use crate::capture::RunEnd;
use crate::cli::{AblateArgs, LoadArgs};
use crate::collect::{
    AttachedEngine, CapturePlan, CaptureSession, Concluded, Setup, StopSignal, describe_setup,
};
use crate::compare::ablation::{Ablation, Arm, Run};
use crate::compare::graphs::{GraphReading, Thresholds};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::report::ablation::ablation_report;
use crate::store::{file_word, free_path, private};
use std::path::PathBuf;

/// One setting to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArmPlan {
    /// Its name in page and document.
    pub name: String,
    /// Its own engine arguments.
    pub args: Vec<String>,
}

pub fn run_ablate(console: &Console, args: AblateArgs) -> anyhow::Result<ExitCode> {
    let arm = |name: &str, text: &str| {
        let args = shlex::split(text).ok_or_else(|| {
            Failure::usage(format!("a quote in `{text}` is not closed"))
                .hint("close it, or put a backslash before it")
        })?;
        Ok::<_, Failure>(ArmPlan {
            name: name.into(),
            args,
        })
    };
    let arms = [arm(&args.a_name, &args.a)?, arm(&args.b_name, &args.b)?];
    if arms[0].args == arms[1].args {
        return Err(
            Failure::usage("the arms do not differ: nothing would be compared")
                .hint("give engine arguments with --a and --b, as in --a '--enforce-eager' --b ''")
                .into(),
        );
    }
    if arms[0].name == arms[1].name {
        return Err(Failure::usage("both arms have the same name")
            .hint("choose others with --a-name and --b-name")
            .into());
    }
    run_stoppable(console, async |stop| {
        let (container, engine) = (&args.container, args.load.engine.as_ref());
        let attached = attach_container(console, container, engine, stop).await?;
        compare_arms(console, attached, &args.load, arms, None, stop).await
    })
}

/// Runs the arms in turn and compares them. `thresholds`: the second arm has CUDA graphs and the
/// first has not, and what they cost is to be read against these.
pub(super) async fn compare_arms(
    console: &Console,
    attached: AttachedEngine,
    load: &LoadArgs,
    arms: [ArmPlan; 2],
    thresholds: Option<Thresholds>,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let attached = attached.with_program_state().await;
    let name = attached.name();
    if attached.is_serving() {
        return Err(Failure::usage(format!(
            "the engine in container `{name}` serves already: its settings cannot be changed while it runs"
        ))
        .hint("start an idle container of the same image, as in `docker run -d --entrypoint sleep IMAGE infinity`, and name that")
        .into());
    }
    let kind = bench_kind(load.bench, attached.engine, attached.mode, name)?;
    if kind.is_none() {
        return Err(Failure::usage("nothing can be compared without a load")
            .hint("--bench latency or --bench throughput")
            .into());
    }
    let started = jiff::Timestamp::now();
    let plan = |arm: &ArmPlan| -> Result<CapturePlan, Failure> {
        let mut request = load_request(load, kind)?;
        request.extra_engine_args.extend(arm.args.iter().cloned());
        Ok(CapturePlan {
            baseline: load.baseline,
            ..attached.plan_capture(kind, request)
        })
    };
    let [first, second] = [plan(&arms[0])?, plan(&arms[1])?];
    if load.dry_run {
        let session = CaptureSession::begin_session(stop, console.sink(), None);
        let setup = session.inspect_engine(&first).await?;
        let mut text = String::new();
        for (arm, plan) in arms.iter().zip([&first, &second]) {
            let described = describe_setup(plan, &setup.repeat_for(plan))?;
            text.push_str(&format!(
                "arm {}, {} time(s) in turn with the other:\n{described}",
                arm.name, load.repeats
            ));
        }
        console.write_data(text.as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let _lock = attached.take_lock()?;
    check_results(load)?;

    let mut known = None;
    // Of the secrets of both.
    let redactor = first
        .attached
        .plan_capture(kind, second.request)
        .attached
        .found
        .secrets
        .redactor();
    let mut results = arms.clone().map(|arm| {
        let result = Arm {
            engine_args: redactor.redact_argv(&arm.args),
            name: arm.name,
            ..Arm::default()
        };
        (result, Vec::new())
    });
    let mut failure = None;
    let mut order = 0;
    'rounds: for _ in 0..load.repeats {
        for (arm, (result, profiles)) in arms.iter().zip(&mut results) {
            if stop.stop_reason().is_some() {
                break 'rounds;
            }
            // An arm that failed would fail again; the other still has its figures.
            if result.runs.iter().any(|r| r.outcome != RunEnd::Completed) {
                continue;
            }
            order += 1;
            console.print_note(&format!(
                "run {order} of {}: {}",
                load.repeats * 2,
                describe_arm(&arm.name, &result.engine_args)
            ));
            let (profile, ended) = run_arm(console, load, plan(arm)?, &mut known, stop).await?;
            ended.captured.and(ended.stored)?;
            result.runs.push(Run {
                order,
                profile: profile
                    .file_name()
                    .map(|n| n.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                outcome: ended.profile.metadata.outcome.clone(),
            });
            profiles.push(ended.profile);
            if let Some(why) = ended.failure {
                console.print_warning(&format!("arm {}: {why}", arm.name));
                failure.get_or_insert(why);
            }
        }
    }
    console.finish_drawing();
    let [a, b] = results;
    let model = load.model.clone();
    let Some(mut ablation) = Ablation::compare_arms(a, b, model, started.to_string()) else {
        return Err(failure.unwrap_or_else(|| stop.stop_failure()).into());
    };
    ablation.graphs =
        thresholds.map(|t| GraphReading::reading_of_comparison(&ablation.comparison, t));
    store(console, load, &ablation)?;
    match failure {
        Some(failure) => Err(failure.into()),
        None if stop.stop_reason().is_some() => Err(stop.stop_failure().into()),
        None => Ok(ExitCode::Done),
    }
}

/// `eager (--enforce-eager)`.
fn describe_arm(name: &str, args: &[String]) -> String {
    if args.is_empty() {
        format!("{name} (no arguments of its own)")
    } else {
        format!("{name} ({})", args.join(" "))
    }
}

/// Writes the comparison and shows it.
fn store(console: &Console, load: &LoadArgs, ablation: &Ablation) -> anyhow::Result<()> {
    let path = match &load.output {
        Some(file) => file.clone(),
        None => {
            let folder = load.results.dir.join("ablations");
            private::create_folders(&folder).map_err(|e| {
                Failure::environment(format!("cannot write results to `{}`", folder.display()))
                    .caused_by(e)
            })?;
            let model = ablation.model.as_deref().unwrap_or(&ablation.container);
            let time = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S");
            free_path(
                &folder,
                &format!("{}-ablation_{time}", file_word(model)),
                ".json",
            )
        }
    };
    publish_document(console, ablation, ("comparison", &path), load.json, || {
        Ok(ablation_report(ablation))
    })
}

/// One run of an arm, and the file of its profile. `known`: what the first run found out.
async fn run_arm(
    console: &Console,
    load: &LoadArgs,
    plan: CapturePlan,
    known: &mut Option<Setup>,
    stop: &StopSignal,
) -> Result<(PathBuf, Concluded), Failure> {
    let session =
        CaptureSession::begin_session(&stop.child_stop(), console.sink(), Some(load.timeout));
    let setup = session.inspect_once(&plan, known).await?;
    let memory = session.open_memory(&plan, &load.memory_backend).await?;
    let model = setup.model.as_deref().unwrap_or(plan.attached.name());
    // `--output` names the comparison; the profiles get names of their own.
    let load = LoadArgs {
        output: None,
        ..load.clone()
    };
    let (paths, writer) = open_results(&load, model)?;
    let capture = session.start_recording(plan, memory, writer)?;
    let ended = capture.conclude_capture(Some(setup), &paths).await?;
    Ok((paths.profile, ended))
}
