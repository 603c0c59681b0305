//! Has a server that was just started fetch a model that it does not have, where it does not do so itself.

use super::{CapturePlan, StopSignal};
use crate::capture::ExecEnd;
use crate::container::exec::ExecRequest;
use crate::error::Failure;
use crate::progress::{Progress, Sink};

/// Fetches the model that is asked for.
///
/// # Errors
/// It cannot be fetched, or the run is stopped.
pub(super) async fn pull_model(
    plan: &CapturePlan,
    stop: &StopSignal,
    progress: &Sink,
) -> Result<(), Failure> {
    let commands = plan.attached.engine.pull_commands;
    let (Some([show, pull]), Some(model)) = (commands, plan.request.model.as_deref()) else {
        return Ok(());
    };
    let mut last = String::new();
    for (argv, fetches) in [(show, false), (pull, true)] {
        if fetches {
            progress(Progress::Note(format!("pulling the model {model}")));
        }
        let words = argv.iter().chain([&model]).map(|word| (*word).to_owned());
        let request = ExecRequest {
            run_id: plan.run_id.clone(),
            ..ExecRequest::for_command(words.collect())
        };
        let sink = |_, line: String| {
            if !line.trim().is_empty() {
                last = line;
            }
        };
        let ran = plan.run_exec(request, None, stop.token(), sink).await?;
        match ran.ended.end {
            ExecEnd::Exited(0) => return Ok(()),
            ExecEnd::Cancelled => return Err(stop.stop_failure()),
            _ => {}
        }
    }
    let redactor = plan.attached.found.secrets.redactor();
    let why = redactor.redact_text(last.trim()).into_owned();
    Err(
        Failure::run(format!("the model `{model}` cannot be pulled: {why}"))
            .hint("is its name right, and does the container reach the network?"),
    )
}
