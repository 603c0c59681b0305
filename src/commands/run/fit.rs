//! Whether what `run` is about to start fits on the GPUs as they are now.

use crate::cli::EstimateArgs;
use crate::commands::estimate::{Asked, answer_for};
use crate::console::Console;
use crate::container::launch::LaunchSpec;
use crate::error::{ExitCode, Failure};
use crate::estimate::question::{Answer, Verdict};
use crate::preset::GpuRequest;

/// Asks the estimator, and says what it answers. What does not fit is refused, unless it is to be started `anyway`; what
/// is not known is said and started.
///
/// # Errors
/// It does not fit.
pub fn check_fit(console: &Console, spec: &LaunchSpec, anyway: bool) -> Result<(), Failure> {
    if spec.gpus == GpuRequest::None && !spec.amd {
        return Ok(());
    }
    let asked = match asked_of(console, spec) {
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
fn asked_of(console: &Console, spec: &LaunchSpec) -> Result<Asked, Failure> {
    let mut spec = spec.clone();
    // With its program, the command is known also of an image that is not.
    if !spec.whole_cmd.is_empty() {
        spec.entrypoint = Some(Vec::new());
        spec.cmd.clone_from(&spec.whole_cmd);
    }
    let args = EstimateArgs::of_line(spec.docker_line().trim());
    let args = args.ok_or_else(|| Failure::usage("its line cannot be read"))?;
    Asked::of(console, &args)
}
