//! One command inside a container: its output as it comes, and an end that holds.
//!
//! Docker has no way to end an exec, and dropping its stream ends nothing. At the deadline or on
//! cancellation the command's processes are ended from the host ([`processes`](super::processes)).
//! Where the host does not show the container, `timeout` inside the container holds the deadline.

pub use super::bound::Bound;
use super::ending::Ending;
use super::frames::{Frames, hand_on, next_frame, next_frame_or_end, parts};
pub use super::input::Input;
use super::inspect::Found;
use super::lines::ExecLines;
use super::missing::{Head, is_missing_program};
use super::processes::{HostView, Tracker};
pub use super::request::ExecRequest;
use super::request::{mark, options};
use super::starting::Started;
use super::{EXEC_VARIABLE, Runtime, answer, failed, is_not_found};
use crate::capture::{ExecEnd, Stream};
use crate::error::Failure;
use bollard::errors::Error;
use futures::StreamExt;
use std::ops::ControlFlow;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Between two looks at the exec's processes.
const LOOK: Duration = Duration::from_secs(1);

/// The stream may outlive the command's first process this long, when a child holds it.
const HELD_STREAM: Duration = Duration::from_secs(5);

/// A command that runs on so long after its output has ended has lost its output.
const OUTLIVES: Duration = Duration::from_secs(1);

/// For one answer to whether a command runs.
const TELL: Duration = Duration::from_secs(5);

/// The daemon tells nothing of a command for so long: it will not.
const UNTOLD: Duration = Duration::from_secs(15);

/// A command that has neither run nor ended when this has passed never began.
const UNBEGUN: Duration = Duration::from_secs(3);

/// A command whose start was overtaken by its end is given this long to appear.
const STARTING: Duration = Duration::from_secs(10);

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// How it ended.
    pub end: ExecEnd,
    /// Exit code, whatever the end, when the daemon told one.
    pub exit_code: Option<i64>,
    /// From the start to the end of the output and of the processes.
    pub took: Duration,
    /// Processes that had to be ended: at the deadline, on cancellation, or because the command
    /// left them behind.
    pub killed: u32,
    /// Processes of it that were still there after that.
    pub survivors: u32,
    /// Whether the connection broke before the command ended: what it said then is not known.
    pub cut: bool,
    /// What would have held, or held, the deadline.
    pub bound: Bound,
}

/// What a small command said.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// How it ended.
    pub end: ExecEnd,
    /// Standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// Standard error, up to 4 KiB.
    pub stderr: String,
    /// Whether there was more standard output than the limit.
    pub over_limit: bool,
    /// Whether the connection broke, so that there may have been more.
    pub cut: bool,
}

impl Output {
    /// Standard output of a command that ended with 0 within its limit.
    pub fn success(self) -> Option<Vec<u8>> {
        let whole = !self.over_limit && !self.cut;
        (self.end == ExecEnd::Exited(0) && whole).then_some(self.stdout)
    }
}

impl Runtime {
    /// Runs a command; `sink` gets its output in whole lines (and the repaints of progress bars)
    /// as they come. `Err` only when the daemon refuses; how the command fared is in the result.
    ///
    /// Dropping the future leaves the command running: cancel `cancel` and await instead.
    pub async fn exec(
        &self,
        container: &str,
        request: ExecRequest,
        cancel: &CancellationToken,
        mut sink: impl FnMut(Stream, String) + Send,
    ) -> Result<ExecResult, Failure> {
        let mut lines = ExecLines::default();
        let result = self
            .run(container, request, cancel, |stream, bytes| {
                lines.feed(stream, bytes, &mut sink);
                ControlFlow::Continue(())
            })
            .await;
        // The beginning of a line that was cut may read as another one.
        if !result.as_ref().is_ok_and(|r| r.cut) {
            lines.finish(&mut sink);
        }
        result
    }

    /// Runs a small command and keeps what it says, `limit` bytes at most. It is ended when it says
    /// more, or after `deadline`.
    pub async fn output(
        &self,
        container: &str,
        mut request: ExecRequest,
        limit: usize,
        deadline: Duration,
    ) -> Result<Output, Failure> {
        request.deadline = Some(deadline);
        let mut output = Output::default();
        let mut stderr = Vec::new();
        let mut stderr_cut = false;
        let result = self
            .run(
                container,
                request,
                &CancellationToken::new(),
                |stream, bytes| {
                    let (into, limit) = match stream {
                        Stream::Stderr => (&mut stderr, 4096),
                        _ => (&mut output.stdout, limit),
                    };
                    let room = limit.saturating_sub(into.len()).min(bytes.len());
                    into.extend_from_slice(&bytes[..room]);
                    stderr_cut |= stream == Stream::Stderr && room < bytes.len();
                    match stream != Stream::Stderr && room < bytes.len() {
                        true => {
                            output.over_limit = true;
                            ControlFlow::Break(())
                        }
                        false => ControlFlow::Continue(()),
                    }
                },
            )
            .await?;
        output.end = result.end;
        output.cut = result.cut;
        // Half a secret is not known as one: a word that was cut goes.
        if stderr_cut {
            let end = stderr.iter().rposition(u8::is_ascii_whitespace);
            stderr.truncate(end.unwrap_or(0));
        }
        output.stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(output)
    }

    pub(super) async fn run(
        &self,
        container: &str,
        mut request: ExecRequest,
        cancel: &CancellationToken,
        mut sink: impl FnMut(Stream, &[u8]) -> ControlFlow<()> + Send,
    ) -> Result<ExecResult, Failure> {
        let Some(Found { facts, .. }) = self.inspect(container).await? else {
            return Ok(gone());
        };
        let view = facts
            .state
            .pid
            .filter(|_| self.shared.remote_host.is_none())
            .and_then(|pid| HostView::open(pid, &facts.id));
        let viewed = view.is_some();
        let bound = self.wrap(&facts.id, &mut request, viewed).await?;

        let mark = mark(&request.run_id);
        // Taken last before the start: what appears from now on may be ours.
        let mut tracker =
            view.map(|view| Tracker::before_exec(view, &format!("{EXEC_VARIABLE}={mark}")));
        let exec_id = match self.create(&facts.id, options(&request, &mark)).await {
            Ok(id) => id,
            Err(e) if is_gone(&e) => return Ok(gone()),
            Err(e) => {
                return Err(failed(
                    format!("cannot run a command in container `{}`", facts.name),
                    e,
                ));
            }
        };

        let began = Instant::now();
        // Inside-bound commands are given time to be ended by `timeout` first.
        let patience = if bound == Bound::Inside {
            Duration::from_secs(8)
        } else {
            Duration::ZERO
        };
        let limit = request.deadline.map(|d| began + d + patience);
        let overdue = async || match limit {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        };

        let mut head = Head::default();
        let mut stop: Option<Stop> = None;
        if cancel.is_cancelled() {
            return Ok(ExecResult {
                end: ExecEnd::Cancelled,
                bound,
                ..Default::default()
            });
        }
        let started = {
            let start = self.start(&exec_id);
            tokio::pin!(start);
            tokio::select! {
                started = &mut start => Some(started),
                () = cancel.cancelled() => {
                    stop = Some(Stop::Cancelled);
                    // What is on its way cannot be called back: let it arrive, then end it.
                    timeout(STARTING, start).await.ok()
                }
                () = overdue() => {
                    stop = Some(Stop::Deadline);
                    timeout(STARTING, start).await.ok()
                }
            }
        };
        let mut cut = matches!(started, Some(Started::Unheard));
        let (mut output, input) = match started {
            Some(Started::Attached(output, input)) => (Some(output), Some(input)),
            Some(Started::Unheard) | None => (None, None),
            Some(Started::Refused(e)) if is_gone(&e) => return Ok(gone()),
            // Newer daemons refuse a missing program here instead of writing to the output.
            Some(Started::Refused(e)) => {
                match answer(&e).filter(|(_, message)| is_missing_program(message)) {
                    Some((_, message)) => {
                        return Ok(ExecResult {
                            end: ExecEnd::NotFound(message.trim().to_owned()),
                            bound,
                            ..gone()
                        });
                    }
                    None => {
                        return Err(failed(
                            format!("cannot start a command in container `{}`", facts.name),
                            e,
                        ));
                    }
                }
            }
        };

        let stdin = request.stdin.take();
        let feed = async {
            if let (Some(into), Some(stdin)) = (input, stdin) {
                stdin.feed(into).await;
            }
        };
        let root = self.host_pid(&exec_id);
        tokio::pin!(feed, root);
        let (mut fed, mut rooted) = (false, tracker.is_none());
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut root_gone: Option<Instant> = None;
        let mut held: Option<Frames> = None;
        while let Some(stream) = output.as_mut().filter(|_| stop.is_none()) {
            tokio::select! {
                frame = stream.next() => match frame {
                    Some(Ok(frame)) => {
                        head.keep(frame.as_ref());
                        match parts(&frame) {
                            Some((kind, bytes)) if sink(kind, bytes).is_break() => {
                                stop = Some(Stop::Enough);
                            }
                            Some(_) => {}
                            None => (cut, output) = (true, None),
                        }
                    }
                    Some(Err(_)) => (cut, output) = (true, None),
                    None => output = None,
                },
                () = &mut feed, if !fed => fed = true,
                pid = &mut root, if !rooted => {
                    rooted = true;
                    if let (Some(tracker), Some(pid)) = (&mut tracker, pid) {
                        tracker.set_root(pid);
                        publish(&request, tracker);
                    }
                }
                _ = tick.tick() => if let Some(tracker) = &mut tracker {
                    publish(&request, tracker);
                    if tracker.root_alive() == Some(false) {
                        let since = *root_gone.get_or_insert_with(Instant::now);
                        if since.elapsed() > HELD_STREAM {
                            held = output.take();
                        }
                    }
                },
                () = cancel.cancelled() => stop = Some(Stop::Cancelled),
                () = overdue() => stop = Some(Stop::Deadline),
            }
        }

        // The output has ended by itself: so has the command, or it does at any moment.
        let mut code = None;
        let ended = Instant::now();
        let told = self.exit_code(&exec_id);
        tokio::pin!(told);
        while stop.is_none() && code.is_none() {
            tokio::select! {
                found = &mut told => code = Some(found),
                () = cancel.cancelled() => stop = Some(Stop::Cancelled),
                () = overdue() => stop = Some(Stop::Deadline),
                _ = tick.tick() => if ended.elapsed() >= OUTLIVES {
                    cut |= held.is_none() && outlived(&request, tracker.as_mut());
                },
            }
        }
        // A daemon that lost its listener says 126, though the command runs on.
        if code == Some(Code::Exited(126)) && head.missing_program().is_none() {
            while stop.is_none() && outlived(&request, tracker.as_mut()) {
                cut = true;
                tokio::select! {
                    _ = tick.tick() => {}
                    () = cancel.cancelled() => stop = Some(Stop::Cancelled),
                    () = overdue() => stop = Some(Stop::Deadline),
                }
            }
            code = code.filter(|_| !cut).or(Some(Code::Untold));
        }
        // Where only the daemon tells: it is slower than the end of an output.
        cut |= tracker.is_none() && held.is_none() && ended.elapsed() > 3 * OUTLIVES;
        let mut ending = Ending::new(self, &facts.id, &exec_id, &mark, tracker);
        let (killed, survivors) = match stop {
            None => ending.leftovers().await,
            Some(_) => {
                let end = ending.everything();
                tokio::pin!(end);
                let counts = loop {
                    tokio::select! {
                        counts = &mut end => break counts,
                        frame = next_frame(&mut output) => hand_on(frame.as_ref(), &mut sink),
                    }
                };
                // What it said last is on its way.
                while let Ok(Some(frame)) =
                    timeout(Duration::from_secs(2), next_frame_or_end(&mut output)).await
                {
                    hand_on(Some(&frame), &mut sink);
                }
                counts
            }
        };
        // Whoever held it has ended now; a connection that is silent for another reason stays so.
        if held.is_some() {
            let rest = async {
                while let Some(frame) = next_frame_or_end(&mut held).await {
                    hand_on(Some(&frame), &mut sink);
                }
            };
            cut |= timeout(Duration::from_secs(2), rest).await.is_err();
        }
        let code = match code {
            Some(code) => code,
            None => timeout(Duration::from_secs(1), self.exit_code(&exec_id))
                .await
                .unwrap_or(Code::Untold),
        };
        if let Some(pids) = &request.pids {
            pids.send_replace(Vec::new());
        }
        let took = began.elapsed();
        let exit_code = match code {
            Code::Exited(code) => Some(code),
            _ => None,
        };
        let inside_deadline = bound == Bound::Inside
            && request.deadline.is_some_and(|d| took >= d)
            && matches!(exit_code, Some(124 | 137 | 143));
        let end = match (stop, code) {
            (Some(Stop::Cancelled), _) => ExecEnd::Cancelled,
            (Some(Stop::Deadline), _) => ExecEnd::Deadline,
            (Some(Stop::Enough), _) => match head.missing_program() {
                Some(message) if matches!(exit_code, Some(126 | 127)) => ExecEnd::NotFound(message),
                _ => ExecEnd::Exited(0),
            },
            (None, _) if inside_deadline => ExecEnd::Deadline,
            // A daemon that was restarted knows nothing of earlier commands, though their container
            // may live.
            (None, Code::Gone) => match self.died_under(&facts, viewed).await {
                Some(false) => ExecEnd::Unknown,
                _ => ExecEnd::ContainerGone,
            },
            (None, Code::Exited(137)) if self.died_under(&facts, viewed).await == Some(true) => {
                ExecEnd::ContainerGone
            }
            (None, Code::Exited(n @ (126 | 127))) => match head.missing_program() {
                Some(message) => ExecEnd::NotFound(message),
                None => ExecEnd::Exited(n),
            },
            (None, Code::Exited(n)) => ExecEnd::Exited(n),
            (None, Code::Untold) => ExecEnd::Unknown,
        };
        Ok(ExecResult {
            end,
            exit_code,
            took,
            killed,
            survivors,
            cut,
            bound,
        })
    }

    /// The exec's host pid, as soon as the daemon tells it.
    async fn host_pid(&self, exec_id: &str) -> Option<u32> {
        for _ in 0..40 {
            match self.again(|| self.docker.inspect_exec(exec_id)).await {
                Ok(i) => match i.pid.and_then(|p| u32::try_from(p).ok()).filter(|p| *p > 1) {
                    Some(pid) => return Some(pid),
                    None if i.running == Some(false) && i.exit_code.is_some() => return None,
                    None => {}
                },
                Err(_) => return None,
            }
            sleep(Duration::from_millis(50)).await;
        }
        None
    }

    /// The exit code, once the daemon says that the command does not run any more. Docker's
    /// competitors need a moment for that after the output has ended.
    pub(super) async fn exit_code(&self, exec_id: &str) -> Code {
        let mut told = Instant::now();
        let (mut unbegun, mut gone): (Option<Instant>, u32) = (None, 0);
        let mut pause = Duration::from_millis(10);
        loop {
            match timeout(TELL, self.docker.inspect_exec(exec_id)).await {
                Ok(Ok(i)) => {
                    told = Instant::now();
                    match (i.running, i.exit_code) {
                        (Some(false), Some(code)) => return Code::Exited(code),
                        (Some(false), None) => {
                            let since = *unbegun.get_or_insert(told);
                            if since.elapsed() > UNBEGUN {
                                return Code::Untold;
                            }
                        }
                        _ => unbegun = None,
                    }
                }
                // A daemon that was just started may not know it yet.
                Ok(Err(e)) if is_gone(&e) && gone > 0 => return Code::Gone,
                Ok(Err(e)) if is_gone(&e) => gone += 1,
                Ok(Err(_)) | Err(_) => {}
            }
            if told.elapsed() > UNTOLD {
                return Code::Untold;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Whether the container's life that the command began in is over; `None` where the daemon does
    /// not say. `viewed`: this host showed the container then. A process that is killed with its container ends a moment before the daemon knows of
    /// the container's end.
    async fn died_under(
        &self,
        before: &crate::capture::ContainerFacts,
        viewed: bool,
    ) -> Option<bool> {
        let mut told = false;
        for _ in 0..5 {
            match self.state(&before.id).await {
                Ok(Some(now))
                    if now.status == "running" && now.started_ns == before.state.started_ns =>
                {
                    told = true;
                }
                Ok(_) => return Some(true),
                // Podman has trouble with what is just being removed.
                Err(_) => {}
            }
            sleep(Duration::from_millis(200)).await;
        }
        // Podman takes longer to know where the host is busy; `/proc` shows it at once.
        let gone = |pid| HostView::open(pid, &before.id).is_none();
        match viewed && before.state.pid.is_some_and(gone) {
            true => Some(true),
            false => told.then_some(false),
        }
    }
}

/// Why we stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Cancelled,
    Deadline,
    /// The caller has seen enough.
    Enough,
}

/// What the daemon says of the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Exited(i64),
    Gone,
    Untold,
}

fn gone() -> ExecResult {
    ExecResult {
        end: ExecEnd::ContainerGone,
        ..Default::default()
    }
}

fn is_gone(e: &Error) -> bool {
    is_not_found(e)
        || answer(e).is_some_and(|(code, message)| {
            // Podman's word for a container that does not run is its own.
            (code == 409 && message.contains("not running"))
                || message.contains("container state improper")
        })
}

fn publish(request: &ExecRequest, tracker: &mut Tracker) {
    let pids: Vec<u32> = tracker.observe().iter().map(|p| p.pid).collect();
    if let Some(sender) = &request.pids {
        sender.send_if_modified(|known| {
            let changed = *known != pids;
            *known = pids;
            changed
        });
    }
}

/// Whether a command still runs though its output has ended.
fn outlived(request: &ExecRequest, tracker: Option<&mut Tracker>) -> bool {
    tracker.is_some_and(|tracker| {
        publish(request, tracker);
        let alive = tracker.root_alive();
        alive.unwrap_or_else(|| !tracker.observe().is_empty())
    })
}
