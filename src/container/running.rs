//! A command from its start to the end of its output and its processes.

use super::Runtime;
use super::bound::CommandBound;
use super::ending::Ending;
use super::exec::ExecRequest;
use super::exec::ExecResult;
use super::exec::Input;
use super::exec_state::Code;
use super::exec_state::StartedExec;
use super::frames::OutputHead;
use super::frames::{Frames, frame_parts, hand_on, next_frame, next_frame_or_end};
use super::processes::Tracker;
use crate::capture::{ContainerFacts, ExecEnd, Stream};
use futures::StreamExt;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Between two looks at the command's processes.
const LOOK: Duration = Duration::from_secs(1);

/// The stream may outlive the command's first process this long, when a child holds it.
const HELD_STREAM: Duration = Duration::from_secs(5);

/// Output counts as lost if the command runs longer than this after its end.
const OUTLIVES: Duration = Duration::from_secs(1);

/// How long a command may take to appear when its start was overtaken by its end.
const STARTING: Duration = Duration::from_secs(10);

/// How long to wait for the last output.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Head start of `timeout` inside the container before the deadline is enforced from here.
const INSIDE_FIRST: Duration = Duration::from_secs(8);

/// What is known of a command before it is started.
pub(super) struct BoundCommand {
    pub container: ContainerFacts,
    pub exec_id: String,
    pub mark: String,
    pub request: ExecRequest,
    pub bound: CommandBound,
    /// `None` where this host does not show the container's processes.
    pub tracker: Option<Tracker>,
}

/// A command on its way. Its phases are called in turn: [`start`](Self::start),
/// [`listen`](Self::listen), [`finish`](Self::finish).
pub(super) struct RunningExec<'a, S> {
    runtime: &'a Runtime,
    cancel: &'a CancellationToken,
    sink: S,
    command: BoundCommand,
    viewed: bool,
    began: Instant,
    /// When it is ended from here.
    limit: Option<Instant>,
    tick: Interval,
    head: OutputHead,
    stop: Option<StopCause>,
    /// Whether the connection broke before the command ended.
    cut: bool,
    output: Option<Frames>,
    /// The output of a command after its first process has ended, while a child holds it open.
    held: Option<Frames>,
}

/// Why we stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    Cancelled,
    Deadline,
    /// The caller has seen enough.
    Enough,
}

/// Resolves when the command is to be ended.
async fn to_be_ended(cancel: &CancellationToken, limit: Option<Instant>) -> StopCause {
    let overdue = async {
        match limit {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = cancel.cancelled() => StopCause::Cancelled,
        () = overdue => StopCause::Deadline,
    }
}

impl<'a, S> RunningExec<'a, S>
where
    S: FnMut(Stream, &[u8]) -> ControlFlow<()> + Send,
{
    pub(super) fn new(
        runtime: &'a Runtime,
        cancel: &'a CancellationToken,
        command: BoundCommand,
        sink: S,
    ) -> Self {
        let began = Instant::now();
        let patience = match command.bound {
            CommandBound::Inside => INSIDE_FIRST,
            _ => Duration::ZERO,
        };
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            runtime,
            cancel,
            sink,
            viewed: command.tracker.is_some(),
            limit: command.request.deadline.map(|d| began + d + patience),
            command,
            began,
            tick,
            head: OutputHead::default(),
            stop: None,
            cut: false,
            output: None,
            held: None,
        }
    }

    /// Starts it; `None` where it was to be ended before the daemon had answered.
    pub(super) async fn start_exec(&mut self) -> Option<StartedExec> {
        let start = self.runtime.start_exec(&self.command.exec_id);
        tokio::pin!(start);
        tokio::select! {
            started = &mut start => Some(started),
            why = to_be_ended(self.cancel, self.limit) => {
                self.stop = Some(why);
                // What is on its way cannot be called back: let it arrive, then end it.
                timeout(STARTING, start).await.ok()
            }
        }
    }

    /// Whether its output has no reader.
    pub(super) fn is_unheard(&mut self) {
        self.cut = true;
    }

    /// Hears its output to the end, and gives it what it is to read.
    pub(super) async fn listen_output(
        &mut self,
        output: Frames,
        input: Pin<Box<dyn AsyncWrite + Send>>,
    ) {
        self.output = Some(output);
        let stdin: Option<Input> = self.command.request.stdin.take();
        let feed = async {
            if let Some(stdin) = stdin {
                stdin.write_input(input).await;
            }
        };
        let BoundCommand {
            exec_id,
            request,
            tracker,
            ..
        } = &mut self.command;
        let root = self.runtime.host_pid(exec_id);
        tokio::pin!(feed, root);
        let (mut fed, mut rooted) = (false, tracker.is_none());
        let mut root_gone: Option<Instant> = None;
        while let Some(stream) = self.output.as_mut().filter(|_| self.stop.is_none()) {
            tokio::select! {
                frame = stream.next() => match frame {
                    Some(Ok(frame)) => {
                        self.head.keep_bytes(frame.as_ref());
                        match frame_parts(&frame) {
                            Some((kind, bytes)) if (self.sink)(kind, bytes).is_break() => {
                                self.stop = Some(StopCause::Enough);
                            }
                            Some(_) => {}
                            None => (self.cut, self.output) = (true, None),
                        }
                    }
                    Some(Err(_)) => (self.cut, self.output) = (true, None),
                    None => self.output = None,
                },
                () = &mut feed, if !fed => fed = true,
                pid = &mut root, if !rooted => {
                    rooted = true;
                    if let (Some(tracker), Some(pid)) = (tracker.as_mut(), pid) {
                        tracker.set_root(pid);
                        publish(request, tracker);
                    }
                }
                _ = self.tick.tick() => if let Some(tracker) = tracker.as_mut() {
                    publish(request, tracker);
                    if tracker.root_alive() == Some(false) {
                        let since = *root_gone.get_or_insert_with(Instant::now);
                        if since.elapsed() > HELD_STREAM {
                            self.held = self.output.take();
                        }
                    }
                },
                why = to_be_ended(self.cancel, self.limit) => self.stop = Some(why),
            }
        }
    }

    /// Waits for its end and that of its processes, and returns the result.
    pub(super) async fn finish_exec(mut self) -> ExecResult {
        let code = self.exit_code().await;
        let (killed, survivors) = self.end_processes().await;
        self.hear_held().await;
        let code = match code {
            Some(code) => code,
            None => {
                let answer = self.runtime.exit_code(&self.command.exec_id);
                let answer = timeout(Duration::from_secs(1), answer).await;
                answer.unwrap_or(Code::Unreported)
            }
        };
        if let Some(pids) = &self.command.request.pids {
            pids.send_replace(Vec::new());
        }
        let took = self.began.elapsed();
        ExecResult {
            end: self.exec_end(code, took).await,
            exit_code: code.exit_number(),
            took,
            killed,
            survivors,
            cut: self.cut,
            bound: self.command.bound,
        }
    }

    /// The output has ended by itself: so has the command, or it does at any moment. `None` where
    /// it is to be ended instead.
    async fn exit_code(&mut self) -> Option<Code> {
        let mut code = None;
        let ended = Instant::now();
        let BoundCommand {
            exec_id,
            request,
            tracker,
            ..
        } = &mut self.command;
        let answer = self.runtime.exit_code(exec_id);
        tokio::pin!(answer);
        while self.stop.is_none() && code.is_none() {
            tokio::select! {
                found = &mut answer => code = Some(found),
                why = to_be_ended(self.cancel, self.limit) => self.stop = Some(why),
                _ = self.tick.tick() => if ended.elapsed() >= OUTLIVES {
                    self.cut |= self.held.is_none() && outlived(request, tracker.as_mut());
                },
            }
        }
        // A daemon that lost its listener reports 126, though the command runs on.
        if code == Some(Code::Exited(126)) && self.head.missing_program().is_none() {
            while self.stop.is_none() && outlived(request, tracker.as_mut()) {
                self.cut = true;
                tokio::select! {
                    _ = self.tick.tick() => {}
                    why = to_be_ended(self.cancel, self.limit) => self.stop = Some(why),
                }
            }
            code = code.filter(|_| !self.cut).or(Some(Code::Unreported));
        }
        // Without a view of the processes only the daemon knows, and it is slower than the end of
        // an output.
        self.cut |= tracker.is_none() && self.held.is_none() && ended.elapsed() > 3 * OUTLIVES;
        code
    }

    /// Ends what is to be ended, and what was left behind: how many had to be, and how many are
    /// there all the same.
    async fn end_processes(&mut self) -> (u32, u32) {
        let BoundCommand {
            container,
            exec_id,
            mark,
            tracker,
            ..
        } = &mut self.command;
        let mut ending = Ending {
            runtime: self.runtime,
            container: &container.id,
            exec_id,
            mark,
            tracker: tracker.take(),
        };
        if self.stop.is_none() {
            return ending.end_leftovers().await;
        }
        let end = ending.end_everything();
        tokio::pin!(end);
        let counts = loop {
            tokio::select! {
                counts = &mut end => break counts,
                frame = next_frame(&mut self.output) => hand_on(frame.as_ref(), &mut self.sink),
            }
        };
        // The last output is on its way.
        while let Ok(Some(frame)) = timeout(LAST_WORDS, next_frame_or_end(&mut self.output)).await {
            hand_on(Some(&frame), &mut self.sink);
        }
        counts
    }

    /// Whoever held the output has ended now; a connection that is silent for another reason stays
    /// so.
    async fn hear_held(&mut self) {
        if self.held.is_none() {
            return;
        }
        let rest = async {
            while let Some(frame) = next_frame_or_end(&mut self.held).await {
                hand_on(Some(&frame), &mut self.sink);
            }
        };
        self.cut |= timeout(LAST_WORDS, rest).await.is_err();
    }

    /// How it ended, from what stopped it and the daemon's exit code.
    async fn exec_end(&mut self, code: Code, took: Duration) -> ExecEnd {
        let inside_deadline = self.command.bound == CommandBound::Inside
            && self.command.request.deadline.is_some_and(|d| took >= d)
            && matches!(code, Code::Exited(124 | 137 | 143));
        let container = &self.command.container;
        match (self.stop, code) {
            (Some(StopCause::Cancelled), _) => ExecEnd::Cancelled,
            (Some(StopCause::Deadline), _) => ExecEnd::Deadline,
            (Some(StopCause::Enough), _) => match self.head.missing_program() {
                Some(message) if matches!(code, Code::Exited(126 | 127)) => {
                    ExecEnd::NotFound(message)
                }
                _ => ExecEnd::Exited(0),
            },
            (None, _) if inside_deadline => ExecEnd::Deadline,
            // A daemon that was restarted knows nothing of earlier commands, though their container
            // may live.
            (None, Code::Gone) => match self.runtime.died_under(container, self.viewed).await {
                Some(false) => ExecEnd::Unknown,
                _ => ExecEnd::ContainerGone,
            },
            (None, Code::Exited(137))
                if self.runtime.died_under(container, self.viewed).await == Some(true) =>
            {
                ExecEnd::ContainerGone
            }
            (None, Code::Exited(n @ (126 | 127))) => match self.head.missing_program() {
                Some(message) => ExecEnd::NotFound(message),
                None => ExecEnd::Exited(n),
            },
            (None, Code::Exited(n)) => ExecEnd::Exited(n),
            (None, Code::Unreported) => ExecEnd::Unknown,
        }
    }
}

fn publish(request: &ExecRequest, tracker: &mut Tracker) {
    let pids: Vec<u32> = tracker.observe_processes().iter().map(|p| p.pid).collect();
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
        alive.unwrap_or_else(|| !tracker.observe_processes().is_empty())
    })
}
