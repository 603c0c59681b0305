//! Whether what `run` or `profile` is about to start fits on the GPUs as they are now.

use crate::capture::Request;
use crate::cli::EstimateArgs;
use crate::collect::AttachedEngine;
use crate::commands::estimate::{Asked, GpuGroup, answer_for};
use crate::console::Console;
use crate::container::launch::LaunchSpec;
use crate::engine::ServeJob;
use crate::error::{ExitCode, Failure};
use crate::estimate::question::{Answer, Verdict};
use crate::launch::{self, Launch};
use crate::preset::GpuRequest;
use crate::report::content::Action;
use crate::report::estimate::{SharedTenant, answer_of_estimate};
use crate::telemetry::{MeasuredContainer, uses_gpus};

/// Asks the estimator of containers that are to be started, beside what else is to be on their GPUs. Answers with their
/// places in the order in which they must start.
///
/// # Errors
/// They do not fit.
pub fn check_specs(
    console: &Console,
    specs: &[(&LaunchSpec, &Launch)],
    beside: &[String],
    anyway: bool,
) -> Result<Vec<usize>, Failure> {
    let written: Vec<usize> = (0..specs.len()).collect();
    let uses_gpu = |spec: &LaunchSpec| spec.gpus != GpuRequest::None || spec.amd;
    let on_gpus = specs.iter().filter(|(spec, _)| uses_gpu(spec));
    let launches: Vec<Launch> = on_gpus
        .map(|(spec, own)| launch_of_spec(spec, own))
        .collect();
    let flags: Vec<String> = beside.iter().map(|b| format!("--beside={b}")).collect();
    let args = EstimateArgs::on_detected(&flags);
    let launches: Vec<&Launch> = launches.iter().collect();
    if let [one] = launches.as_slice() {
        let asked = args.and_then(|args| Asked::of_launch(console, &args, Some(one)));
        check_fit(console, asked, anyway)?;
        return Ok(written);
    }
    if launches.is_empty() {
        return Ok(written);
    }
    let group = args.and_then(|args| GpuGroup::of_services(console, &args, &launches));
    let page = match group.and_then(|group| group.answer()) {
        Ok(answer) => answer.page,
        Err(failure) => {
            note_unknown(console, &failure);
            return Ok(written);
        }
    };
    let answer = answer_of_estimate(&page);
    let actions = answer.actions.iter().map(Action::action_text).collect();
    let shared = page.shared.unwrap_or_default();
    let fits = shared.fits_as_asked != Some(false);
    report_fit(console, answer.verdict, actions, fits, anyway)?;
    let place = |(_, launch): &(&LaunchSpec, &Launch)| {
        let own = |t: &SharedTenant| Some(&t.name) == launch.service.as_ref();
        shared.tenants.iter().position(own)
    };
    let mut order = written;
    order.sort_by_key(|n| place(&specs[*n]));
    Ok(order)
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
        port: attached.engine.default_port,
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
            note_unknown(console, &failure);
            return Ok(());
        }
    };
    let Ok(estimate) = asked.estimate(&asked.deployment) else {
        return Ok(());
    };
    let (sentence, actions) = answer_for(&asked, &estimate);
    let settled = estimate.unmodelled.is_empty();
    let sure = Verdict::of(&asked.deployment, &estimate, settled).answer;
    let fits = sure != Answer::DoesNotFit;
    report_fit(console, sentence, actions, fits, anyway)
}

fn note_unknown(console: &Console, failure: &Failure) {
    console.print_note(&format!("whether it fits is not known: {failure}"));
}

fn report_fit(
    console: &Console,
    sentence: String,
    actions: Vec<String>,
    fits: bool,
    anyway: bool,
) -> Result<(), Failure> {
    if fits {
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

/// What a container starts, as `plimsoll estimate -- docker run …` reads it; `own`: the service that it is.
fn launch_of_spec(spec: &LaunchSpec, own: &Launch) -> Launch {
    let mut spec = spec.clone();
    // With its program, the command is known also of an image that is not.
    if !spec.whole_cmd.is_empty() {
        spec.entrypoint = Some(Vec::new());
        spec.cmd.clone_from(&spec.whole_cmd);
    }
    Launch {
        service: own.service.clone(),
        after: own.after.clone(),
        ..launch::read_line(&[spec.docker_line().trim().to_owned()])
    }
}
