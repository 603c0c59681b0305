//! Runs one command inside a container, and ensures that it ends.
//!
//! Docker cannot end an exec, and dropping its stream ends nothing. At the deadline or on
//! cancellation the command's processes are ended from the host ([`processes`](super::processes)).
//! If the host does not show the container, `timeout` inside the container enforces the deadline.
//!
//! The request to run a command inside a container, its standard input, and the mark of its
//! processes.

pub use super::bound::CommandBound;
use super::exec_state::{StartedExec, is_gone};
use super::frames::is_missing_program;
use super::inspect::InspectedContainer;
use super::lines::ExecLines;
use super::processes::Tracker;
use super::running::{BoundCommand, RunningExec};
use super::{EXEC_VARIABLE, OWNER_VARIABLE, RUN_VARIABLE, Runtime, daemon_answer, daemon_failure};
use crate::capture::{ExecEnd, Stream};
use crate::error::Failure;
use bollard::exec::CreateExecOptions;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Result of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// How it ended.
    pub end: ExecEnd,
    /// Exit code, whatever the end, if the daemon reported one.
    pub exit_code: Option<i64>,
    /// Time from the start until the output and all processes had ended.
    pub took: Duration,
    /// Processes that were killed: at the deadline, on cancellation, or as leftovers of the
    /// command.
    pub killed: u32,
    /// Processes that survived this.
    pub survivors: u32,
    /// Whether the connection broke before the command ended: its later output is lost.
    pub cut: bool,
    /// How the deadline was enforced.
    pub bound: CommandBound,
}

/// Output of a small command.
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
    /// Whether the connection broke, so that output may be missing.
    pub cut: bool,
}

impl Runtime {
    /// Runs a command; `sink` receives its output in whole lines (and the repaints of progress
    /// bars) as they arrive. `Err` only if the daemon refuses; the command's own end is in the
    /// result.
    ///
    /// Dropping the future leaves the command running: cancel `cancel` and await instead.
    pub async fn run_exec(
        &self,
        container: &str,
        request: ExecRequest,
        cancel: &CancellationToken,
        mut sink: impl FnMut(Stream, String) + Send,
    ) -> Result<ExecResult, Failure> {
        let mut lines = ExecLines::default();
        let result = self
            .run_command(container, request, cancel, |stream, bytes| {
                lines.feed_frame(stream, bytes, &mut sink);
                ControlFlow::Continue(())
            })
            .await;
        // The beginning of a truncated line may be misread as another line.
        if !result.as_ref().is_ok_and(|r| r.cut) {
            lines.finish_lines(&mut sink);
        }
        result
    }

    /// Runs a small command and keeps its output, `limit` bytes at most. It is ended when it prints
    /// more, or after `deadline`.
    pub async fn command_output(
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
            .run_command(
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
                    if stream != Stream::Stderr && room < bytes.len() {
                        output.over_limit = true;
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                },
            )
            .await?;
        output.end = result.end;
        output.cut = result.cut;
        // Half a secret is not recognised, so a truncated word is dropped.
        if stderr_cut {
            let end = stderr.iter().rposition(u8::is_ascii_whitespace);
            stderr.truncate(end.unwrap_or(0));
        }
        output.stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(output)
    }

    pub(super) async fn run_command(
        &self,
        container: &str,
        mut request: ExecRequest,
        cancel: &CancellationToken,
        sink: impl FnMut(Stream, &[u8]) -> ControlFlow<()> + Send,
    ) -> Result<ExecResult, Failure> {
        let Some(InspectedContainer { facts, .. }) = self.inspect_container(container).await?
        else {
            return Ok(gone());
        };
        let view = self.host_view(&facts);
        let bound = self
            .wrap_command(&facts.id, &mut request, view.is_some())
            .await?;

        let mark = run_mark(&request.run_id);
        // Taken last before the start: processes that appear from now on may be ours.
        let tracker =
            view.map(|view| Tracker::before_exec(view, &format!("{EXEC_VARIABLE}={mark}")));
        let name = facts.name.clone();
        let exec_id = match self
            .create_exec(&facts.id, exec_options(&request, &mark))
            .await
        {
            Ok(id) => id,
            Err(e) if is_gone(&e) => return Ok(gone()),
            Err(e) if self.notes_refusal(&e) && self.has_daemon() => {
                return Err(Failure::environment(format!(
                    "the daemon's socket refuses to run a command in container `{name}`: it only answers questions"
                ))
                .hint("--bench builtin sends requests from here; --bench none only watches"));
            }
            Err(e) => {
                let what = format!("cannot run a command in container `{name}`");
                return Err(daemon_failure(what, e));
            }
        };
        if cancel.is_cancelled() {
            return Ok(ExecResult {
                end: ExecEnd::Cancelled,
                bound,
                ..Default::default()
            });
        }
        let command = BoundCommand {
            container: facts,
            exec_id,
            mark,
            request,
            bound,
            tracker,
        };
        let mut running = RunningExec::new(self, cancel, command, sink);
        match running.start_exec().await {
            Some(StartedExec::Attached(output, input)) => {
                running.listen_output(output, input).await
            }
            Some(StartedExec::Unheard) => running.is_unheard(),
            None => {}
            Some(StartedExec::Refused(e)) if is_gone(&e) => return Ok(gone()),
            // Newer daemons report a missing program here instead of in the output.
            Some(StartedExec::Refused(e)) => {
                return match daemon_answer(&e).filter(|(_, message)| is_missing_program(message)) {
                    Some((_, message)) => Ok(ExecResult {
                        end: ExecEnd::NotFound(message.trim().to_owned()),
                        bound,
                        ..gone()
                    }),
                    None => {
                        let what = format!("cannot start a command in container `{name}`");
                        Err(daemon_failure(what, e))
                    }
                };
            }
        }
        Ok(running.finish_exec().await)
    }
}

fn gone() -> ExecResult {
    ExecResult {
        end: ExecEnd::ContainerGone,
        ..Default::default()
    }
}

/// A command to run inside a container.
#[derive(Debug, Default)]
pub struct ExecRequest {
    /// Program and arguments; never a shell line made of parts.
    pub argv: Vec<String>,
    /// Environment besides the container's own. Tokens travel here.
    pub env: BTreeMap<String, String>,
    /// Id of the run: the value of [`RUN_VARIABLE`] in the command's environment.
    pub run_id: String,
    /// Longest time that the command may take.
    pub deadline: Option<Duration>,
    /// What the command reads from its standard input; without it there is none.
    pub stdin: Option<Input>,
    /// Receives the host pids of the command's live processes, soon after the start and then about
    /// once a second. Stays empty where the host does not show the container.
    pub pids: Option<watch::Sender<Vec<u32>>>,
}

/// The words of a command.
pub(super) fn argv_of<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

impl ExecRequest {
    /// Runs this command with all other settings at their defaults.
    pub fn for_command(argv: Vec<String>) -> ExecRequest {
        ExecRequest {
            argv,
            ..ExecRequest::default()
        }
    }
}

/// A value that no other exec carries. It may stand in a `grep` pattern, and its last word keeps it
/// from being the beginning of another.
pub(super) fn run_mark(run_id: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let run: String = run_id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    format!(
        "{run}-{}-{}-exec",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// The same in Docker's words, marked.
pub(super) fn exec_options(request: &ExecRequest, mark: &str) -> CreateExecOptions<String> {
    let mut env: Vec<String> = request
        .env
        .iter()
        .map(|(n, v)| format!("{n}={v}"))
        .collect();
    env.push(format!("{RUN_VARIABLE}={}", request.run_id));
    env.push(format!("{EXEC_VARIABLE}={mark}"));
    env.push(format!("{OWNER_VARIABLE}={}", super::launch::owner_label()));
    CreateExecOptions {
        attach_stdin: Some(request.stdin.is_some()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        env: Some(env),
        cmd: Some(request.argv.clone()),
        ..Default::default()
    }
}

/// What the command reads; then comes the end of its input.
#[derive(Debug)]
pub enum Input {
    /// This.
    Bytes(Vec<u8>),
    /// What is sent, until the sender is dropped.
    Orders(mpsc::Receiver<Vec<u8>>),
}

impl Input {
    /// Writes everything. A command that does not read to the end is not an error.
    pub(super) async fn write_input(self, mut into: impl AsyncWrite + Unpin) {
        match self {
            Input::Bytes(bytes) => {
                let _ = into.write_all(&bytes).await;
            }
            Input::Orders(mut orders) => {
                while let Some(order) = orders.recv().await {
                    if into.write_all(&order).await.is_err() || into.flush().await.is_err() {
                        break;
                    }
                }
            }
        }
        let _ = into.shutdown().await;
    }
}
