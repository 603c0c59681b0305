//! Whether what `run` or `profile` is about to start fits on the GPUs as they are now.

use crate::capture::Request;
use crate::cli::EstimateArgs;
use crate::collect::AttachedEngine;
use crate::commands::estimate::{Asked, answer_for};
use crate::console::Console;
use crate::container::launch::LaunchSpec;
use crate::engine::ServeJob;
use crate::error::{ExitCode, Failure};
use crate::estimate::question::{Answer, Verdict};
use crate::launch::Launch;
use crate::preset::GpuRequest;
use crate::telemetry::{MeasuredContainer, uses_gpus};

/// Asks the estimator of a container that is to be started, beside what else is to be on its GPUs.
///
/// # Errors
/// It does not fit.
pub fn check_spec(
    console: &Console,
    spec: &LaunchSpec,
    beside: &[String],
    anyway: bool,
) -> Result<(), Failure> {
    if spec.gpus == GpuRequest::None && !spec.amd {
        return Ok(());
    }
    check_fit(console, asked_of_spec(console, spec, beside), anyway)
}

/// The same of a bench that loads an engine of its own in a container that idles.
///
/// # Errors
/// It does not fit.
pub fn check_idle(
    console: &Console,
    attached: &AttachedEngine,
    request: &Request,
    model: Option<&str>,
    anyway: bool,
) -> Result<(), Failure> {
    let facts = &attached.found.facts;
    let Some(model) = model.filter(|_| uses_gpus(&MeasuredContainer::of_container(facts))) else {
        return Ok(());
    };
    let job = ServeJob {
        model,
        port: attached.engine.default_port(),
        settings: &request.settings,
        extra_engine_args: &request.extra_engine_args,
    };
    let mut launch = Launch::of_facts(facts.clone());
    launch.argv = attached.engine.serve_argv(&job);
    let args = EstimateArgs::of_container(&facts.name)?;
    check_fit(
        console,
        Asked::of_launch(console, &args, Some(&launch)),
        anyway,
    )
}

/// Prints the estimate. What does not fit is refused, unless it is to be started `anyway`; an unknown verdict is a note.
fn check_fit(
    console: &Console,
    asked: Result<Asked, Failure>,
    anyway: bool,
) -> Result<(), Failure> {
    let asked = match asked {
        Ok(asked) => asked,
        Err(failure) => {
            console.print_note(&format!("whether it fits is not known: {failure}"));
            return Ok(());
        }
    };
    let Ok(estimate) = asked.estimate(&asked.deployment) else {
        return Ok(());
    };
    let (sentence, actions) = answer_for(&asked, &estimate);
    let settled = estimate.unmodelled.is_empty();
    let sure = Verdict::of(&asked.deployment, &estimate, settled).answer;
    if sure != Answer::DoesNotFit {
        console.print_note(&sentence);
        actions.iter().for_each(|a| console.print_note(a));
        return Ok(());
    }
    if anyway {
        console.print_warning(&sentence);
        return Ok(());
    }
    let mut failure = Failure::usage(sentence);
    failure.code = ExitCode::DoesNotFit;
    let failure = actions.into_iter().fold(failure, Failure::hint);
    Err(failure.hint("or start it all the same: --run-anyway"))
}

/// The question of `plimsoll estimate --gpu detected -- docker run …`.
fn asked_of_spec(
    console: &Console,
    spec: &LaunchSpec,
    beside: &[String],
) -> Result<Asked, Failure> {
    let mut spec = spec.clone();
    // With its program, the command is known also of an image that is not.
    if !spec.whole_cmd.is_empty() {
        spec.entrypoint = Some(Vec::new());
        spec.cmd.clone_from(&spec.whole_cmd);
    }
    let args = EstimateArgs::of_line(spec.docker_line().trim());
    let mut args = args.ok_or_else(|| {
        Failure::usage("the line that starts the container cannot be read by the estimator")
    })?;
    args.beside = beside.to_vec();
    Asked::of(console, &args)
}
