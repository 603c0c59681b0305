//! The tasks that run during a capture: the container's log, its events, the deadline.

use super::CapturePlan;
use super::recorder::Recorder;
use super::stop::StopSignal;
use crate::capture::{
    AtNs, ContainerEvent, ContainerFacts, ContainerState, LineSource, LogFacts, MemoryLimit, Mode,
    RunEnd,
};
use crate::container::Runtime;
use crate::container::logs::life_began;
use crate::telemetry::OomWatch;
use crate::telemetry::kernel_log::{KernelEvidence, read_kernel_log};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum size of a log's history that is read: an engine reports its memory while it starts.
pub const HISTORY_BYTES: u64 = 64 << 20;

/// Reads the start-up from the log of a serving engine, then follows the log until cancelled.
pub async fn follow_log(
    plan: CapturePlan,
    recorder: Arc<Recorder>,
    cancel: CancellationToken,
) -> LogFacts {
    let (runtime, facts) = (&plan.attached.runtime, plan.facts());
    let clock = recorder.clock.clone();
    let take = |wall_ns, stream, text: String| {
        recorder.record_line(
            clock.from_reported(wall_ns),
            LineSource::Container,
            stream,
            &text,
            true,
        )
    };
    if let Some(server) = &plan.shared.server {
        let take = |at_ns, stream, text: &str| {
            recorder.record_line(at_ns, LineSource::Container, stream, text, true);
        };
        return server.follow_lines(&recorder.clock, &cancel, take).await;
    }
    let mode = match plan.shared.startup {
        // Its start-up is history, as for an engine started by the user.
        Some(_) => Mode::Serving,
        None => plan.attached.mode,
    };
    let mut whole_seconds = false;
    let from = match mode {
        // From its first line on: the start-up is part of the capture.
        Mode::Started if facts.state.started_ns.is_some() => life_began(facts),
        Mode::Started => clock.wall_start_ns,
        Mode::Idle => clock.wall_start_ns,
        Mode::Serving => {
            let history = runtime
                .log_history(
                    facts,
                    None,
                    HISTORY_BYTES,
                    &cancel,
                    |wall_ns, stream, text| {
                        take(wall_ns, stream, text);
                        if recorder.engine_ready() {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    },
                )
                .await;
            if history.facts.error.is_some() {
                return history.facts;
            }
            // After a completely read history no line may be missed.
            if history.complete {
                return (runtime.log_follow_after(facts, history, &cancel, take)).await;
            }
            whole_seconds = history.facts.whole_seconds;
            // The log in between is about earlier requests.
            clock.wall_start_ns
        }
    };
    let mut followed = runtime.log_follow(facts, from, &cancel, take).await;
    followed.whole_seconds |= whole_seconds;
    followed
}

/// Records the container's events until cancelled; one that ends the container ends the run.
pub async fn follow_events(
    runtime: Runtime,
    id: String,
    recorder: Arc<Recorder>,
    stop: StopSignal,
    cancel: CancellationToken,
) -> Vec<ContainerEvent> {
    let mut events: Vec<ContainerEvent> = Vec::new();
    let clock = recorder.clock.clone();
    let sink = |event: crate::container::events::ContainerNotice| {
        if let Some(why) = loss_from_event(
            &event.action,
            event.attributes.get("exitCode").map(String::as_str),
        ) {
            stop.stop_because(RunEnd::ContainerLost(why));
        }
        recorder.container_event();
        events.push(ContainerEvent {
            at_ns: clock.from_reported(event.wall_ns),
            action: event.action,
            attributes: event.attributes,
        });
    };
    if let Some(why) = runtime
        .watch_events(Some(&id), Some(clock.wall_start_ns), None, &cancel, sink)
        .await
    {
        recorder.report_progress(crate::progress::Progress::Warning(why));
    }
    events
}

/// Polling interval of the kernel's counters: a killed container is gone soon after.
const OOM_LOOK: Duration = Duration::from_millis(25);

/// OOM kills, from the kernel's counters.
#[derive(Default)]
pub struct OomCount {
    /// One event per kill.
    pub events: Vec<ContainerEvent>,
    /// Killed processes of the container; `None` if the counters could not be read.
    pub kills: Option<u64>,
    /// The limit that was reached, if the container was gone before its counters were read.
    limit: Option<MemoryLimit>,
}

impl OomCount {
    /// Adds the kills to the runtime's events. `killed`: the runtime reported one.
    pub fn add_to(
        self,
        events: &mut Vec<ContainerEvent>,
        killed: bool,
        at_ns: AtNs,
    ) -> Option<u64> {
        let mut kills = self.kills;
        events.extend(self.events);
        let first = events.iter().find(|e| e.action == "oom").map(|e| e.at_ns);
        if kills.is_none() && (killed || first.is_some()) {
            if let Some(limit) = self.limit {
                events.push(oom_event(first.unwrap_or(at_ns), Some(&limit), "cgroup"));
                kills = Some(1);
            }
        }
        events.sort_by_key(|e| e.at_ns);
        kills
    }
}

/// How far from a container's end the kernel's line of its kill may be, nanoseconds.
const LOGGED_WITHIN_NS: i64 = 2_000_000_000;

/// Adds the kill that the kernel's log has of a container that ended by SIGKILL. Docker misses some on cgroup v2, and the
/// cgroup with its counters may be gone before they are read. `None`: there is none, or the log cannot be read.
pub fn add_logged_kill(
    events: &mut Vec<ContainerEvent>,
    facts: &ContainerFacts,
    end: Option<&ContainerState>,
    at_ns: AtNs,
) -> Option<u64> {
    let finished = end
        .filter(|state| state.exit_code == Some(137))?
        .finished_ns?;
    let until = finished.saturating_add(LOGGED_WITHIN_NS);
    let from = finished.saturating_sub(LOGGED_WITHIN_NS);
    let log = read_kernel_log().ok()?;
    let limit = KernelEvidence::of_container(&log, &facts.id, (from, until), &[]).kill?;
    let died = events.iter().find(|e| e.action == "die").map(|e| e.at_ns);
    events.push(oom_event(died.unwrap_or(at_ns), Some(&limit), "kernel log"));
    events.sort_by_key(|e| e.at_ns);
    Some(1)
}

fn oom_event(at_ns: AtNs, limit: Option<&MemoryLimit>, from: &str) -> ContainerEvent {
    let source = ("from".to_owned(), from.to_owned());
    let limit = limit.into_iter().flat_map(MemoryLimit::to_attributes);
    ContainerEvent {
        at_ns,
        action: "oom".into(),
        attributes: limit.chain([source]).collect(),
    }
}

/// Watches the kernel's counters until cancelled or until the container's cgroup is gone. Docker
/// names no limit, Podman has no such event, and v1 notifies every container below the limit.
pub async fn oom_kills(
    watch: Option<OomWatch>,
    recorder: Arc<Recorder>,
    cancel: CancellationToken,
) -> OomCount {
    let mut count = OomCount::default();
    let Some(mut watch) = watch else {
        return count;
    };
    let mut kills = 0;
    loop {
        let last = tokio::select! {
            () = tokio::time::sleep(OOM_LOOK) => false,
            () = cancel.cancelled() => true,
        };
        let look = watch.look_again();
        if look.kills.is_some_and(|n| n > 0) {
            let event = oom_event(recorder.clock.now(), look.limit.as_ref(), "cgroup");
            count.events.push(event);
        }
        kills += look.kills.unwrap_or(0);
        if last || look.gone {
            count.limit = look.limit;
            count.kills = look.kills.map(|_| kills).or((kills > 0).then_some(kills));
            return count;
        }
    }
}

/// The meaning of an event that ends the run; `None` for other events.
pub(super) fn loss_from_event(action: &str, exit_code: Option<&str>) -> Option<String> {
    match action {
        "die" => Some(match exit_code {
            Some("137") => format!("the container {}", super::ending::KILLED),
            Some("0") => {
                "the container ended during the run (exit 0: as after a crash of the engine's core process)"
                    .into()
            }
            Some(code) => format!("the container ended during the run (exit {code})"),
            None => "the container ended during the run".into(),
        }),
        "restart" => Some("the container was restarted during the run".into()),
        "destroy" => Some("the container was removed during the run".into()),
        "pause" => Some("the container was paused during the run".into()),
        _ => None,
    }
}

/// Stops the run at its deadline; dropping it cancels the deadline.
pub struct Deadline(tokio::task::JoinHandle<()>);

impl Deadline {
    /// Starts the timer.
    pub fn start(time: Duration, stop: &StopSignal) -> Deadline {
        let stop = stop.clone();
        Deadline(tokio::spawn(async move {
            tokio::time::sleep(time).await;
            stop.stop_because(RunEnd::Deadline);
        }))
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_the_container_ends_the_run() {
        for action in ["die", "destroy", "restart", "pause"] {
            assert!(loss_from_event(action, None).is_some(), "{action}");
        }
        for action in [
            "start",
            "exec_create",
            "exec_start",
            "exec_die",
            "oom",
            "health_status",
            "top",
            "attach",
            "resize",
            "kill",
        ] {
            assert!(loss_from_event(action, None).is_none(), "{action}");
        }
        assert!(
            loss_from_event("die", Some("0"))
                .unwrap()
                .contains("exit 0")
        );
    }
}
