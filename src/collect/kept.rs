//! Keeps a bench's program running in the container, so that its imports, which take longer than
//! most loads, happen once for many runs.

use super::{AttachedEngine, CapturePlan};
use crate::capture::{ExecEnd, Stream};
use crate::container::Runtime;
use crate::container::exec::{ExecRequest, ExecResult, Input};
use crate::error::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The script that runs in the container.
const SCRIPT: &str = include_str!("../../scripts/probes/kept_bench.py");
const SCRIPT_NAME: &str = "kept_bench.py";
/// Minimum time from its order to its first request: it reads its words and the tokenizer, and
/// makes its prompts.
pub(super) const PREPARING: Duration = Duration::from_millis(100);
/// Timeout of the start; Python needs a tenth of this.
const STARTING: Duration = Duration::from_secs(30);
/// Time between closing its input and killing it.
const LEAVING: Duration = Duration::from_secs(2);
/// Maximum duration of a run without its own deadline.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// One order, in the script's format.
#[derive(Serialize)]
struct Order<'a> {
    argv: &'a [String],
    env: &'a BTreeMap<String, String>,
    result: Option<&'a str>,
}

/// A finished run.
pub struct KeptRun {
    /// How it ended.
    pub ended: ExecResult,
    /// Content of its result file, if it came with the output.
    pub written: Option<String>,
}

/// A program that runs repeatedly in one process. Clones share it, one run at a time.
#[derive(Clone)]
pub struct KeptBench {
    program: &'static str,
    pids: watch::Receiver<Vec<u32>>,
    process: Arc<Mutex<KeptProcess>>,
}

struct KeptProcess {
    mark: String,
    orders: Option<mpsc::Sender<Vec<u8>>>,
    output: mpsc::UnboundedReceiver<(Stream, String)>,
    cancel: CancellationToken,
    task: Option<JoinHandle<Result<ExecResult, Failure>>>,
    written: WrittenResult,
}

/// The result file of a run, received in pieces.
#[derive(Default)]
struct WrittenResult {
    pieces: Vec<String>,
    /// A piece was invalid, so the whole is.
    broken: bool,
}

impl WrittenResult {
    fn take_piece(&mut self, piece: &str) {
        match serde_json::from_str(piece) {
            Ok(piece) => self.pieces.push(piece),
            Err(_) => self.broken = true,
        }
    }

    /// The whole text; `None` if there is none, or some of it is invalid.
    fn into_text(self) -> Option<String> {
        (!self.broken && !self.pieces.is_empty()).then(|| self.pieces.concat())
    }
}

impl KeptBench {
    /// Starts it in `folder` of the container. `Err`: why it cannot be kept running, a sentence;
    /// then each run gets its own process. The run's mark distinguishes it from others in the
    /// container.
    pub async fn start_process(
        runtime: &Runtime,
        container: &str,
        folder: &str,
        program: &'static str,
        run_id: &str,
    ) -> Result<KeptBench, String> {
        let path = format!("{folder}/{SCRIPT_NAME}");
        let written = runtime.write_file(container, &path, SCRIPT.as_bytes(), false);
        written.await.map_err(|f| f.to_string())?;
        let mark = format!("plimsoll-kept-{run_id}");
        let (orders, orders_in) = mpsc::channel(1);
        let (say, output) = mpsc::unbounded_channel();
        let (pids_in, pids) = watch::channel(Vec::new());
        let cancel = CancellationToken::new();
        let request = ExecRequest {
            argv: vec!["python3".into(), path, program.into(), mark.clone()],
            env: BTreeMap::from([("PYTHONUNBUFFERED".to_owned(), "1".to_owned())]),
            run_id: run_id.to_owned(),
            stdin: Some(Input::Orders(orders_in)),
            pids: Some(pids_in),
            ..ExecRequest::default()
        };
        let task = tokio::spawn({
            let (runtime, container, cancel) =
                (runtime.clone(), container.to_owned(), cancel.clone());
            async move {
                let sink = |stream, text| {
                    // The channel is closed once the process was abandoned.
                    let _ = say.send((stream, text));
                };
                runtime.run_exec(&container, request, &cancel, sink).await
            }
        });
        let mut process = KeptProcess {
            mark,
            orders: Some(orders),
            output,
            cancel,
            task: Some(task),
            written: WrittenResult::default(),
        };
        let mut last_words = None;
        let patience = CancellationToken::new();
        let sink = |_, text: String| {
            last_words = Some(text)
                .filter(|t| !t.trim().is_empty())
                .or(last_words.take());
        };
        let ready = process.until_marked(&patience, STARTING, sink).await;
        match ready {
            OrderEnd::Marked(_) => Ok(KeptBench {
                program,
                pids,
                process: Arc::new(Mutex::new(process)),
            }),
            OrderEnd::Over(result) => Err(match (last_words, result) {
                (Some(words), _) => words.trim().to_owned(),
                (None, Ok(result)) => format!("{:?}", result.end),
                (None, Err(failure)) => failure.to_string(),
            }),
        }
    }

    /// Its host pid, if the host shows the container.
    pub fn pid(&self) -> Option<u32> {
        self.pids.borrow().first().copied()
    }

    /// Runs the program once more, with the command, environment and deadline of `request`. At the
    /// deadline and on cancellation the process ends with the run; a run in an ended process has no
    /// known end ([`ExecEnd::Unknown`]). The content of the file `result` of a successful run, up
    /// to 1 MiB of UTF-8, comes with its output.
    pub async fn run_order(
        &self,
        request: &ExecRequest,
        result: Option<&str>,
        cancel: &CancellationToken,
        mut sink: impl FnMut(Stream, String) + Send,
    ) -> Result<KeptRun, Failure> {
        let mut process = self.process.lock().await;
        let began = Instant::now();
        let order = Order {
            argv: &request.argv,
            env: &request.env,
            result,
        };
        let mut line = serde_json::to_vec(&order).map_err(|e| {
            Failure::bug("the next request to the bench's process cannot be written as JSON")
                .caused_by(e)
        })?;
        line.push(b'\n');
        if let Some(orders) = &process.orders {
            // A dead process shows in its output.
            let _ = orders.send(line).await;
        }
        let deadline = request.deadline.unwrap_or(LONGEST);
        let ended = process.until_marked(cancel, deadline, &mut sink).await;
        let written = std::mem::take(&mut process.written).into_text();
        match ended {
            OrderEnd::Over(result) => result.map(|ended| KeptRun {
                ended,
                written: None,
            }),
            OrderEnd::Marked(word) => {
                let code = word.parse().ok();
                let ended = ExecResult {
                    end: code.map_or(ExecEnd::Unknown, ExecEnd::Exited),
                    exit_code: code,
                    took: began.elapsed(),
                    ..ExecResult::default()
                };
                Ok(KeptRun { ended, written })
            }
        }
    }

    /// Lets it end by itself, and kills it otherwise.
    pub async fn end_process(self) {
        let mut process = self.process.lock().await;
        process.orders = None;
        let uncancelled = CancellationToken::new();
        // Its result is no longer needed.
        let _ = process.until_marked(&uncancelled, LEAVING, |_, _| ()).await;
    }
}

/// Result of waiting for the script's mark.
enum OrderEnd {
    /// The mark arrived, with this word.
    Marked(String),
    /// The process has ended.
    Over(Result<ExecResult, Failure>),
}

impl KeptProcess {
    /// Forwards its output until its mark has arrived on both streams.
    async fn until_marked(
        &mut self,
        cancel: &CancellationToken,
        deadline: Duration,
        mut sink: impl FnMut(Stream, String),
    ) -> OrderEnd {
        let mut marks = 0;
        let mut stopped = None;
        let overdue = tokio::time::sleep(deadline);
        tokio::pin!(overdue);
        loop {
            let line = tokio::select! {
                line = self.output.recv() => line,
                () = cancel.cancelled(), if stopped.is_none() => {
                    stopped = Some(ExecEnd::Cancelled);
                    self.cancel.cancel();
                    continue;
                }
                () = &mut overdue, if stopped.is_none() => {
                    stopped = Some(ExecEnd::Deadline);
                    self.cancel.cancel();
                    continue;
                }
            };
            let Some((stream, text)) = line else {
                return OrderEnd::Over(self.over(stopped).await);
            };
            let Some(word) = text.strip_prefix(&self.mark) else {
                sink(stream, text);
                continue;
            };
            if let Some(piece) = word.strip_prefix(" text ") {
                self.written.take_piece(piece);
                continue;
            }
            marks += 1;
            if marks == 2 && stopped.is_none() {
                return OrderEnd::Marked(word.trim().to_owned());
            }
        }
    }

    /// Collects the result of the ended process.
    async fn over(&mut self, stopped: Option<ExecEnd>) -> Result<ExecResult, Failure> {
        self.orders = None;
        let ended = match self.task.take() {
            Some(task) => task.await,
            None => return Ok(ExecResult::default()),
        };
        let ended = ended.unwrap_or_else(|e| {
            Err(Failure::environment(
                "plimsoll lost the connection to the bench that runs in the container",
            )
            .hint("did the container end? try again")
            .caused_by(e))
        })?;
        Ok(ExecResult {
            end: stopped.unwrap_or(ended.end),
            ..ended
        })
    }
}

impl CapturePlan {
    /// Runs a command in the plan's container: in the process kept for its program, if there is
    /// one, which reports what it wrote to `result`. See [`Runtime::exec`].
    pub(super) async fn run_exec(
        &self,
        request: ExecRequest,
        result: Option<&str>,
        cancel: &CancellationToken,
        sink: impl FnMut(Stream, String) + Send,
    ) -> Result<KeptRun, Failure> {
        match self.kept_for(&request.argv) {
            Some(kept) => kept.run_order(&request, result, cancel, sink).await,
            None => {
                let AttachedEngine { runtime, found, .. } = &self.attached;
                let ended = runtime
                    .run_exec(&found.facts.id, request, cancel, sink)
                    .await?;
                Ok(KeptRun {
                    ended,
                    written: None,
                })
            }
        }
    }

    /// The process kept for a command.
    pub(super) fn kept_for(&self, argv: &[String]) -> Option<&KeptBench> {
        let program = argv.first()?;
        self.kept.as_ref().filter(|kept| kept.program == program)
    }
}
