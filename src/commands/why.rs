//! `plimsoll why`: why a container died, loops or hangs, and what to change.

use super::load::run_until_stopped;
use crate::cli::WhyArgs;
use crate::collect::HISTORY_BYTES;
use crate::console::Console;
use crate::container::Runtime;
use crate::container::inspect::InspectedContainer;
use crate::engine::diagnosis::{CaseFacts, CauseFinder, Diagnosis, EvidenceSource};
use crate::engine::lines::for_each_line;
use crate::engine::recognise;
use crate::error::{ExitCode, Failure};
use crate::profile::OomVerdict;
use crate::redact::Redactor;
use crate::report::why::report_of_diagnosis;
use crate::store::{StoredCapture, bounded};
use crate::units::Bytes;
use serde_json::Value;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time before the end of the last life that is read of a log that is too long, or of a container
/// that was restarted.
const LAST_STRETCH_NS: i64 = 600_000_000_000;
/// Time in which the daemon answers with past events.
const EVENTS_WITHIN: Duration = Duration::from_millis(300);
/// Largest file of facts.
const MOST_FACTS: u64 = 1 << 20;

/// What was diagnosed, and what could not be read.
type Answered = (Diagnosis, Vec<String>);

pub fn run_why(console: &Console, args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let path = Path::new(&args.target);
    let is_container = args.target != "-" && args.facts.is_none() && !path.exists();
    let (mut found, unread) = if is_container {
        run_until_stopped(console, None, async |_| {
            diagnose_container(&args.target).await
        })?
    } else if let Ok(stored) = StoredCapture::open(path) {
        diagnose_capture(&stored)?
    } else {
        diagnose_log(args)?
    };
    let redactor = Redactor::default();
    for line in &mut found.evidence {
        line.quote = redactor.redact_text(&line.quote).into_owned();
    }
    if args.json {
        console.print_json(&found)?;
    } else {
        console.print_report(&report_of_diagnosis(&args.target, &found, &unread))?;
    }
    Ok(if found.names_failure() {
        ExitCode::Done
    } else {
        ExitCode::NoCause
    })
}

fn diagnose_log(args: &WhyArgs) -> anyhow::Result<Answered> {
    let unreadable = |what: &str| Failure::environment(format!("cannot read `{what}`"));
    let facts = match &args.facts {
        None => CaseFacts::default(),
        Some(file) => {
            let name = file.display().to_string();
            let mut text = String::new();
            (bounded::open_named(file).and_then(|f| f.take(MOST_FACTS).read_to_string(&mut text)))
                .map_err(|e| unreadable(&name).caused_by(e))?;
            let document: Value = serde_json::from_str(&text)
                .map_err(|e| Failure::usage(format!("`{name}` is not JSON")).caused_by(e))?;
            CaseFacts::from_document(&document)
        }
    };
    let mut finder = CauseFinder::new(facts);
    let reader: Box<dyn Read> = if args.target == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let opened = bounded::open_named(Path::new(&args.target));
        Box::new(opened.map_err(|e| unreadable(&args.target).caused_by(e))?)
    };
    for_each_line(BufReader::new(reader), |line| finder.line(line))
        .map_err(|e| unreadable(&args.target).caused_by(e))?;
    Ok((finder.conclude(), Vec::new()))
}

fn diagnose_capture(stored: &StoredCapture) -> anyhow::Result<Answered> {
    let capture = &stored.capture;
    let end = capture
        .container_end
        .as_ref()
        .unwrap_or(&capture.container.state);
    let mut facts = facts_of(&capture.container);
    facts.push(format!("status={}", end.status));
    facts.extend(end.exit_code.map(|code| format!("exit_code={code}")));
    let engine = recognise(&capture.container).map(|(engine, _)| engine);
    let mut finder = CauseFinder::new(CaseFacts { engine, facts });
    for line in stored.read_lines()? {
        finder.line(line.text.as_bytes());
    }
    if let Some(why) = capture.end.failure() {
        finder.take(EvidenceSource::Docker, why.as_bytes());
    }
    Ok((finder.conclude(), Vec::new()))
}

async fn diagnose_container(wanted: &str) -> anyhow::Result<Answered> {
    let runtime = Runtime::connect().await?;
    let container = runtime.find_any(wanted).await?;
    let (facts, state) = (&container.facts, &container.facts.state);
    let mut known = facts_of(facts);
    known.push(format!("status={}", state.status));
    let code = state.exit_code.or(container.last_exit_code);
    known.extend(code.map(|code| format!("exit_code={code}")));
    if state.oom_killed {
        known.push("oom_killed=true".to_owned());
    } else if code == Some(137) {
        known.push("oom_killed=false".to_owned());
    }
    if state.restart_count > 0 {
        known.push(format!("restart_count={}", state.restart_count));
    }
    let (by, unread_events) = stopped_by(&runtime, &container).await;
    known.extend(by.map(|by| format!("stopped_by={by}")));
    let engine = recognise(facts).map(|(engine, _)| engine);
    let mut unread: Vec<String> = unread_events.into_iter().collect();
    let from = (state.restart_count > 0)
        .then(|| last_stretch(&container))
        .flatten();
    let (mut finder, complete) =
        read_log(&runtime, &container, engine, &known, from, &mut unread).await;
    if !complete {
        if let Some(from) = last_stretch(&container) {
            unread.clear();
            (finder, _) = read_log(
                &runtime,
                &container,
                engine,
                &known,
                Some(from),
                &mut unread,
            )
            .await;
            unread.push("the log before the last 10 minutes: it is too long".to_owned());
        }
    }
    if let Some(error) = &container.start_error {
        finder.take(EvidenceSource::Docker, error.as_bytes());
    }
    if let OomVerdict::Killed(kill) = OomVerdict::judge_kill(facts, state.oom_killed, &[], None) {
        finder.take(EvidenceSource::Docker, kill.describe_kill().as_bytes());
    }
    let mut found = finder.conclude();
    if found.cause.as_deref() == Some("no_failure") {
        let idle = match state.status.as_str() {
            "created" => Some("it was created and never started: `docker start` starts it"),
            "paused" => Some("it is paused: `docker unpause` lets it go on"),
            _ => None,
        };
        found.means = idle.map(str::to_owned).or(found.means);
    }
    unread.push("the host's kernel log, and who else is on the GPU".to_owned());
    Ok((found, unread))
}

/// Facts of a container that its inspection shows, as `name=value`.
fn facts_of(container: &crate::capture::ContainerFacts) -> Vec<String> {
    let mut facts = vec![
        format!("image={}", container.image),
        format!("flags={}", container.argv.join(" ")),
    ];
    let size = |name: &str, bytes: u64| format!("{name}={}", Bytes(bytes));
    facts.extend(
        container
            .memory_limit_bytes
            .map(|bytes| size("memory_limit", bytes)),
    );
    facts.extend(
        container
            .shm_size_bytes
            .map(|bytes| size("shm_size", bytes)),
    );
    facts
}

/// Where the last minutes of the last life that has ended begin.
fn last_stretch(container: &InspectedContainer) -> Option<i64> {
    let state = &container.facts.state;
    let end = state.finished_ns.or(state.started_ns)?;
    Some(end.saturating_sub(LAST_STRETCH_NS).max(0))
}

async fn read_log(
    runtime: &Runtime,
    container: &InspectedContainer,
    engine: Option<crate::engine::EngineId>,
    known: &[String],
    from: Option<i64>,
    unread: &mut Vec<String>,
) -> (CauseFinder, bool) {
    let mut finder = CauseFinder::new(CaseFacts {
        engine,
        facts: known.to_vec(),
    });
    if container.facts.state.status == "created" {
        return (finder, true);
    }
    let redactor = container.secrets.redactor();
    let take = |_, _, text: String| {
        finder.line(redactor.redact_text(&text).as_bytes());
        ControlFlow::Continue(())
    };
    let cancel = CancellationToken::new();
    let history = runtime
        .log_history(&container.facts, from, HISTORY_BYTES, &cancel, take)
        .await;
    unread.extend(history.facts.error.map(|error| format!("the log: {error}")));
    (finder, history.complete)
}

/// What ended a container from outside, as the daemon remembers it.
async fn stopped_by(
    runtime: &Runtime,
    container: &InspectedContainer,
) -> (Option<String>, Option<String>) {
    let state = &container.facts.state;
    let Some(finished) = state.finished_ns.filter(|_| state.pid.is_none()) else {
        return (None, None);
    };
    let mut events = Vec::new();
    let cancel = CancellationToken::new();
    let from = finished.saturating_sub(60_000_000_000);
    let watch = runtime.watch_events(&container.facts.id, Some(from), &cancel, |event| {
        events.push(event);
    });
    let refused = tokio::time::timeout(EVENTS_WITHIN, watch)
        .await
        .ok()
        .flatten();
    let unread = refused.map(|error| format!("the daemon's events: {error}"));
    // A stop is reported after the end that it brought about.
    let mut killed = None;
    for event in &events {
        let signal = event.attributes.get("signal").map(String::as_str);
        match event.action.as_str() {
            "kill" if matches!(signal, None | Some("2" | "3" | "9" | "15")) => {
                killed = Some(format!("`docker kill` (signal {})", signal.unwrap_or("9")));
            }
            "stop" => killed = Some("`docker stop`".to_owned()),
            "restart" => killed = Some("`docker restart`".to_owned()),
            "start" => killed = None,
            _ => {}
        }
    }
    (killed, unread)
}
