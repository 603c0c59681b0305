//! The request to run a command inside a container, its standard input, and the mark of its
//! processes.

use super::{EXEC_VARIABLE, OWNER_VARIABLE, RUN_VARIABLE};
use bollard::exec::CreateExecOptions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::sync::watch;

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
