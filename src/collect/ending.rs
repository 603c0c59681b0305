//! Why a run or a container ended, in one sentence, with advice on what to change. The sentence is
//! made once everything is in: the end is reported before its explanation.

use super::follow::{HISTORY_BYTES, loss_from_event};
use crate::capture::{ContainerEvent, ContainerState, Mode, RunEnd};
use crate::container::Runtime;
use crate::container::find::refuse_state;
use crate::container::inspect::InspectedContainer;
use crate::engine::causes::advise_on_text;
use crate::engine::log::{auto::AutoParser, unwrap::Unwrapped};
use crate::engine::{self, LogParser};
use crate::error::Failure;
use crate::profile::{KILLED_FROM_OUTSIDE, OomVerdict};
use std::ops::ControlFlow;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Phrase for an end by SIGKILL in every message.
pub const KILLED: &str = "was killed (exit 137)";

/// For a container with an empty log.
pub const EMPTY_LOG: &str = "it printed nothing";

/// Maximum length of a quote, characters.
const LONGEST_QUOTE: usize = 300;

/// Quotes the last line of a log without an explanation.
pub fn last_line_words(line: &str) -> String {
    let quote: String = line.trim().chars().take(LONGEST_QUOTE).collect();
    format!("the last line of its log is `{quote}`")
}

/// Evidence of why a run ended.
pub struct Causes<'a> {
    /// The container's events.
    pub events: &'a [ContainerEvent],
    /// Whether the kernel killed a process for lack of memory.
    pub out_of_memory: OomVerdict,
    /// The line of the engine's output that explains its failure.
    pub in_log: Option<String>,
    /// The last line of the container's log, in a sentence; used if no line explains a failure.
    pub last_line: String,
    /// How plimsoll attached to the container.
    pub mode: Mode,
    /// How the container ended, if it did during the run; a sentence.
    pub lost: Option<String>,
}

/// How the container ended during the run, from its events and its last state.
pub fn describe_loss(
    before: &ContainerState,
    after: Option<&ContainerState>,
    events: &[ContainerEvent],
) -> Option<String> {
    let reported = events.iter().find_map(|e| {
        let code = e.attributes.get("exitCode").map(String::as_str);
        (e.action == "die")
            .then(|| loss_from_event("die", code))
            .flatten()
    });
    // An unreadable state is not evidence.
    reported.or_else(|| {
        let after = after?;
        if is_running(after) {
            // Events are missing for the time when the daemon was away.
            let began = before.started_ns.zip(after.started_ns);
            let again = is_running(before) && began.is_some_and(|(before, after)| after > before);
            return again.then(|| loss_from_event("restart", None)).flatten();
        }
        let code = after.exit_code.map(|c| c.to_string());
        is_running(before)
            .then(|| loss_from_event("die", code.as_deref()))
            .flatten()
    })
}

/// Whether the container's first process is alive.
pub fn is_running(state: &ContainerState) -> bool {
    matches!(state.status.as_str(), "running" | "paused")
}

/// The end of a run with its explanation.
pub fn explain_run_end(end: RunEnd, causes: Causes<'_>) -> RunEnd {
    // A bench error about a server that is gone is only a consequence, and the container's own end has its exit code.
    let end = match (end, &causes.lost) {
        (RunEnd::BenchFailed(_) | RunEnd::Failed(_) | RunEnd::ContainerLost(_), Some(lost)) => {
            RunEnd::ContainerLost(lost.clone())
        }
        (end, _) => end,
    };
    match end {
        RunEnd::BenchFailed(what) => {
            RunEnd::BenchFailed(causes.added_to(what, causes.in_log.as_ref()))
        }
        RunEnd::ContainerLost(what) => RunEnd::ContainerLost(match causes.deed() {
            Some(deed) => format!("the container was {deed} during the run"),
            // In an idle container the engine is the bench, and its log does not explain the
            // container's end.
            None if causes.mode == Mode::Idle => causes.added_to(what, None),
            None => causes.added_to(what, causes.in_log.as_ref().or(Some(&causes.last_line))),
        }),
        other => other,
    }
}

impl Causes<'_> {
    /// What was done to the container from outside.
    fn deed(&self) -> Option<String> {
        let did = |action: &str| self.events.iter().find(|e| e.action == action);
        if did("destroy").is_some() {
            return Some("removed".into());
        }
        if did("restart").is_some() {
            return Some("restarted".into());
        }
        if did("stop").is_some() {
            return Some("stopped".into());
        }
        // Signals that end nothing, and those after the end, are no explanation.
        let die = did("die")?.at_ns;
        let kill = self.events.iter().rfind(|e| {
            let signal = e.attributes.get("signal").map(String::as_str);
            e.action == "kill"
                && e.at_ns <= die
                && matches!(signal, None | Some("2" | "3" | "9" | "15"))
        })?;
        Some(match kill.attributes.get("signal") {
            Some(signal) => format!("killed (`docker kill`, signal {signal})"),
            // Podman does not report which signal.
            None => "killed (`docker kill`)".into(),
        })
    }

    fn added_to(&self, mut what: String, in_log: Option<&String>) -> String {
        match &self.out_of_memory {
            OomVerdict::Killed(kill) => {
                what.push_str(": ");
                what.push_str(&kill.describe_kill());
            }
            OomVerdict::NotKilled if what.contains(KILLED) => what.push_str(KILLED_FROM_OUTSIDE),
            OomVerdict::Unknown if what.contains(KILLED) => {
                what.push_str(": out of memory is the usual reason");
            }
            _ => {}
        }
        match in_log.filter(|line| !what.contains(line.as_str())) {
            Some(line) => format!("{what}: {line}"),
            None => what,
        }
    }
}

/// Maximum delay between the end of a process and the daemon's report of its container's end.
const END_REPORTED_WITHIN: Duration = Duration::from_secs(2);
/// Polling interval.
const STATE_INTERVAL: Duration = Duration::from_millis(100);

/// The running container that `wanted` names. For one that has ended, the failure explains its end.
pub async fn find_running(runtime: &Runtime, wanted: &str) -> Result<InspectedContainer, Failure> {
    let found = runtime.find_any(wanted).await?;
    match refuse_state(&found.facts) {
        None => Ok(found),
        Some(failure) => Err(with_end(runtime, &found, failure).await),
    }
}

/// Replaces the failure of work on a container by the container's end, if it has ended meanwhile.
pub async fn explain_end(
    runtime: &Runtime,
    found: &InspectedContainer,
    failure: Failure,
) -> Failure {
    match ended_state(runtime, found, END_REPORTED_WITHIN).await {
        Some(ended) => match refuse_state(&ended.facts) {
            Some(refused) => with_end(runtime, &ended, refused).await,
            None => failure,
        },
        None => failure,
    }
}

/// Whether a container has ended.
pub async fn has_ended(runtime: &Runtime, found: &InspectedContainer) -> bool {
    ended_state(runtime, found, END_REPORTED_WITHIN)
        .await
        .is_some()
}

/// The container once it has ended; `None` if it still runs.
async fn ended_state(
    runtime: &Runtime,
    found: &InspectedContainer,
    wait: Duration,
) -> Option<InspectedContainer> {
    let until = tokio::time::Instant::now() + wait;
    loop {
        let now = runtime
            .inspect_container(&found.facts.id)
            .await
            .ok()
            .flatten()?;
        if !is_running(&now.facts.state) {
            return Some(now);
        }
        let process = now.facts.state.pid.map(|pid| format!("/proc/{pid}/cgroup"));
        let is_there = process.is_some_and(|file| std::fs::exists(file).unwrap_or(false));
        if is_there || tokio::time::Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(STATE_INTERVAL).await;
    }
}

/// Adds the end found in a container's log, and what to change.
async fn with_end(runtime: &Runtime, found: &InspectedContainer, failure: Failure) -> Failure {
    let facts = &found.facts;
    if !matches!(
        facts.state.status.as_str(),
        "exited" | "dead" | "restarting" | "stopped"
    ) {
        return failure;
    }
    let mut parser: Box<dyn LogParser> = match engine::recognise(facts) {
        Some((engine, _)) => engine::parser_of(engine),
        None => Box::new(Unwrapped::new(Box::new(AutoParser::default()))),
    };
    let redactor = found.secrets.redactor();
    let mut last_line = None;
    let take = |_, _, text: String| {
        parser.line(redactor.redact_text(&text).as_bytes(), None);
        if !text.trim().is_empty() {
            last_line = Some(text);
        }
        ControlFlow::Continue(())
    };
    let cancel = CancellationToken::new();
    let history = runtime
        .log_history(facts, None, HISTORY_BYTES, &cancel, take)
        .await;
    let cause = match (parser.root_cause(), last_line, history.facts.error) {
        (Some(cause), ..) => cause,
        (None, Some(line), _) => last_line_words(&redactor.redact_text(&line)),
        (None, None, Some(error)) => error,
        (None, None, None) => EMPTY_LOG.to_owned(),
    };
    let message = format!("{failure}: {cause}");
    let text = match OomVerdict::judge_kill(facts, facts.state.oom_killed, &[], None) {
        OomVerdict::Killed(kill) => kill.describe_kill(),
        _ => cause,
    };
    let advice = advise_on_text(&text, facts.memory_limit_bytes);
    Failure {
        message,
        hints: advice.into_iter().chain(failure.hints).collect(),
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{LimitLevel, MemoryLimit};
    use crate::profile::OomKill;

    fn event(at_ns: i64, action: &str, signal: Option<&str>) -> ContainerEvent {
        ContainerEvent {
            at_ns,
            action: action.into(),
            attributes: signal
                .map(|s| ("signal".to_owned(), s.to_owned()))
                .into_iter()
                .collect(),
        }
    }

    fn lost(events: &[ContainerEvent], out_of_memory: OomVerdict, in_log: Option<&str>) -> String {
        let causes = Causes {
            events,
            out_of_memory,
            in_log: in_log.map(str::to_owned),
            last_line: EMPTY_LOG.into(),
            mode: Mode::Serving,
            lost: None,
        };
        match explain_run_end(RunEnd::ContainerLost(format!("it {KILLED}")), causes) {
            RunEnd::ContainerLost(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_done_to_a_container_explains_its_end() {
        let die = event(5, "die", None);
        let kill = event(4, "kill", Some("9"));
        let after = |action| [kill.clone(), die.clone(), event(6, action, None)];
        for (action, word) in [
            ("destroy", "removed"),
            ("restart", "restarted"),
            ("stop", "stopped"),
        ] {
            assert_eq!(
                lost(&after(action), OomVerdict::Unknown, Some("ERROR")),
                format!("the container was {word} during the run")
            );
        }
        assert!(lost(&[kill.clone(), die.clone()], OomVerdict::Unknown, None).contains("signal 9"));
        let unsignalled = [event(4, "kill", None), die.clone()];
        assert!(
            lost(&unsignalled, OomVerdict::Unknown, None)
                .ends_with("killed (`docker kill`) during the run")
        );
        let reload = event(4, "kill", Some("1"));
        let late = event(6, "kill", Some("15"));
        assert_eq!(
            lost(&[reload, die, late], OomVerdict::Unknown, None),
            "it was killed (exit 137): out of memory is the usual reason: it printed nothing"
        );
    }

    #[test]
    fn otherwise_the_log_and_the_kernel_do() {
        let reached = |level| {
            OomVerdict::Killed(OomKill {
                at_ns: None,
                limit: Some(MemoryLimit {
                    bytes: 1 << 30,
                    level,
                }),
            })
        };
        let killed = |verdict| lost(&[], verdict, Some("ERROR cause"));
        assert_eq!(
            killed(reached(LimitLevel::Container)),
            "it was killed (exit 137): out of memory, the container's limit is 1.00 GiB: ERROR cause"
        );
        let slice = LimitLevel::Cgroup("/llm.slice/llm-a.slice".into());
        assert_eq!(
            killed(reached(slice)),
            "it was killed (exit 137): out of memory, the limit of slice `llm-a.slice` is 1.00 GiB: ERROR cause"
        );
        let outside = killed(OomVerdict::NotKilled);
        assert!(!outside.contains("out of memory,"), "{outside}");
        assert!(outside.contains("from outside"), "{outside}");
        assert!(explain_run_end(RunEnd::Completed, causes_of_nothing()) == RunEnd::Completed);
        let end = RunEnd::BenchFailed("it ended: ERROR cause".into());
        let causes = Causes {
            in_log: Some("ERROR cause".into()),
            ..causes_of_nothing()
        };
        assert_eq!(explain_run_end(end.clone(), causes), end, "not told twice");
    }

    fn causes_of_nothing() -> Causes<'static> {
        Causes {
            events: &[],
            out_of_memory: OomVerdict::Unknown,
            in_log: None,
            last_line: EMPTY_LOG.into(),
            mode: Mode::Idle,
            lost: None,
        }
    }

    #[test]
    fn a_bench_that_failed_for_want_of_its_container_has_lost_it() {
        let state = |status: &str, exit_code| ContainerState {
            status: status.into(),
            exit_code,
            ..ContainerState::default()
        };
        let before = state("running", None);
        let ended = state("exited", Some(137));
        let by_state = super::describe_loss(&before, Some(&ended), &[]).unwrap();
        assert!(by_state.contains(KILLED), "{by_state}");
        assert!(super::describe_loss(&before, None, &[event(5, "die", None)]).is_some());
        assert_eq!(super::describe_loss(&before, Some(&before), &[]), None);
        let life = |started_ns| ContainerState {
            started_ns: Some(started_ns),
            ..before.clone()
        };
        let restarted = super::describe_loss(&life(5), Some(&life(9)), &[]).unwrap();
        assert!(restarted.contains("restarted"), "{restarted}");
        assert_eq!(super::describe_loss(&life(5), Some(&life(5)), &[]), None);
        assert_eq!(
            super::describe_loss(&before, None, &[]),
            None,
            "not told is not ended"
        );

        let events = [event(4, "kill", Some("9")), event(5, "die", None)];
        let causes = Causes {
            events: &events,
            lost: Some(by_state),
            ..causes_of_nothing()
        };
        assert_eq!(
            explain_run_end(RunEnd::BenchFailed("connection reset".into()), causes),
            RunEnd::ContainerLost(
                "the container was killed (`docker kill`, signal 9) during the run".into()
            )
        );
    }
}
