//! What the measuring commands share: from flags to a request, results, signals, the end of a run.

use super::report::reading::report_of_profile;
use crate::capture::{Mode, Request, RequestedSettings, RunEnd, Workload};
use crate::cli::{BenchChoice, EngineFlags, LoadArgs};
use crate::collect::{
    AttachedEngine, Collected, EngineTarget, MemorySource, StopSignal, derive_and_store,
};
use crate::console::Console;
use crate::engine::{EngineId, LoadKind};
use crate::error::{ExitCode, Failure};
use crate::loadline::Objectives;
use crate::report::content::Report;
use crate::report::json::json_bytes;
use crate::store::{self, CaptureWriter, RunPaths, write_atomically};
use crate::telemetry::BackendChoice;
use crate::units::Bytes;
use std::path::Path;

/// Which bench the flags and the mode ask for; `None` watches without a load.
pub fn bench_kind(
    choice: BenchChoice,
    engine: EngineId,
    mode: Mode,
    container: &str,
) -> Result<Option<LoadKind>, Failure> {
    let kind = match choice {
        BenchChoice::None => return Ok(None),
        BenchChoice::Auto => engine.default_bench(mode != Mode::Idle),
        BenchChoice::Latency => LoadKind::Latency,
        BenchChoice::Throughput => LoadKind::Throughput,
        BenchChoice::Serve => LoadKind::Serve,
        BenchChoice::Builtin => LoadKind::Builtin,
    };
    if kind.needs_server() && mode == Mode::Idle {
        return Err(Failure::usage(format!(
            "no engine serves in container `{container}`: there is nothing to send requests to"
        ))
        .hint("start the server in it, or use --bench latency or throughput"));
    }
    Ok(Some(kind))
}

/// The request that the flags make.
pub fn load_request(args: &LoadArgs, kind: Option<LoadKind>) -> Result<Request, Failure> {
    let probe = kind == Some(LoadKind::Probe);
    if args.per_layer && !probe {
        return Err(Failure::usage(
            "--per-layer is for the transformers probe: other benches cannot look into the engine",
        )
        .hint("--engine transformers in a container that has torch and transformers"));
    }
    if args.prompt.is_some() && !probe && kind != Some(LoadKind::Builtin) {
        return Err(Failure::usage(
            "--prompt is for the built-in client and the transformers probe: an engine's bench makes prompts of its own",
        )
        .hint("--bench builtin sends it to a server; --input-len is for the others"));
    }
    if args.duration.is_some() && kind.is_some() {
        return Err(Failure::usage(
            "--duration is for --bench none: a bench takes as long as its load does",
        )
        .hint("--bench none --duration TIME only watches; --num-prompts, --num-iters and --repeats say how much load there is"));
    }
    let (settings, extra_engine_args) = engine_settings(&args.settings)?;
    Ok(Request {
        model: args.model.clone(),
        bench: String::new(),
        workload: Workload {
            // The length of a given prompt is its own: the flag's default does not apply.
            input_len: args.prompt.as_ref().map_or(args.input_len, |_| 0),
            output_len: args.output_len,
            batch_size: args.batch_size,
            num_iters: args.num_iters,
            num_iters_warmup: args.num_iters_warmup,
            num_prompts: args.num_prompts,
            max_concurrency: args.max_concurrency,
            request_rate: args.request_rate.filter(|r| r.is_finite()),
            seed: args.seed,
            prompt: args.prompt.clone(),
            per_layer: args.per_layer,
            short_prompts: None,
        },
        settings,
        extra_engine_args,
        beside: Vec::new(),
        architecture: args.figures.by_name(),
        sample_interval_ns: u64::try_from(args.sample_interval.as_nanos()).unwrap_or(u64::MAX),
        timeout_s: args.timeout.as_secs_f64(),
    })
}

/// The engine's settings that the flags name, and the further arguments for it.
pub fn engine_settings(flags: &EngineFlags) -> Result<(RequestedSettings, Vec<String>), Failure> {
    let mut extra_engine_args = Vec::new();
    for text in &flags.extra_engine_args {
        let words = shlex::split(text).ok_or_else(|| {
            Failure::usage(format!(
                "a quote in `--extra-engine-args {text}` is not closed"
            ))
            .hint("close it, or put a backslash before it")
        })?;
        extra_engine_args.extend(words);
    }
    let settings = RequestedSettings {
        dtype: flags.dtype.clone(),
        quantization: flags.quantization.clone(),
        kv_cache_dtype: flags.kv_cache_dtype.clone(),
        tensor_parallel_size: flags.tensor_parallel_size,
        enforce_eager: flags.enforce_eager,
        gpu_memory_utilization: flags.gpu_memory_utilization,
        max_model_len: flags.max_model_len,
    };
    Ok((settings, extra_engine_args))
}

/// `--slo`, with the percentile of limits that name no statistic.
pub fn latency_limits(slo: &[String], percentile: u32) -> Result<Objectives, Failure> {
    Objectives::parse_objectives(slo, percentile).map_err(|why| {
        Failure::usage(format!("--slo: {why}")).hint("as in --slo ttft=500ms,itl.p99=50ms")
    })
}

/// The engine in a container of this name.
pub async fn attach_container(
    console: &Console,
    container: &str,
    engine: Option<&String>,
    stop: &StopSignal,
) -> Result<AttachedEngine, Failure> {
    let target = EngineTarget::of_container(container);
    AttachedEngine::attach(&target, engine, stop, &console.sink()).await
}

/// A path as a word for the shell.
pub fn quote_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
}

/// What reads the memory for a command that cannot play a recording back. `what`: its name in the message.
pub fn live_backend(flag: &MemorySource, what: &str) -> Result<BackendChoice, Failure> {
    match flag {
        MemorySource::Live(choice) => Ok(*choice),
        MemorySource::Recorded(_) => Err(Failure::usage(format!(
            "{what} measures live: it cannot play a recording back"
        ))
        .hint("leave out `replay:`; `plimsoll replay FILE` plays one")),
    }
}

/// `--max-log` in bytes.
pub fn max_log_bytes(text: &str) -> Result<u64, Failure> {
    let parsed = text.parse::<Bytes>().map(|bytes| bytes.0);
    parsed.map_err(|e| Failure::usage(format!("--max-log: {e}")))
}

/// Whether results can be written at all, checked before anything takes its time.
pub fn check_results(args: &LoadArgs) -> Result<(), Failure> {
    store::check_output(&args.results.dir, args.output.as_deref())
}

/// Claims the place for the results and opens the capture.
pub fn open_results(args: &LoadArgs, model: &str) -> Result<(RunPaths, CaptureWriter), Failure> {
    let max_log = max_log_bytes(&args.max_log)?;
    let paths = store::claim_paths(
        &args.results.dir,
        args.output.as_deref(),
        model,
        &jiff::Zoned::now(),
    )?;
    match CaptureWriter::create_folder(&paths.capture, max_log) {
        Ok(writer) => Ok((paths, writer)),
        Err(failure) => {
            // Nothing was observed, so nothing is kept.
            let _ = std::fs::remove_dir_all(&paths.capture);
            Err(failure)
        }
    }
}

/// Docker, a container's log, its events, the bench, the memory's files and the results are open at
/// one time; with a few less than that a run would fail in its middle.
const FEWEST_OPEN_FILES: u64 = 32;

/// A runtime for the async part of a command.
pub fn async_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let most = crate::host::most_open_files();
    if let Some(most) = most.filter(|most| *most < FEWEST_OPEN_FILES) {
        return Err(Failure::environment(format!(
            "this process may have {most} files open at a time, and needs {FEWEST_OPEN_FILES}"
        ))
        .hint("raise the limit where plimsoll is started: `ulimit -n 1024`"));
    }
    let failure = || {
        Failure::environment("cannot start the threads that plimsoll needs")
            .hint("raise the limits where plimsoll is started: `ulimit -v` (memory), `ulimit -u` (processes)")
    };
    // tokio panics where a limit refuses its threads, so it is tried first.
    try_threads(THREADS_TRIED).map_err(|e| failure().caused_by(e))?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| failure().caused_by(e))
}

/// Threads of a run that exist at one time: two of the runtime, the sampler, the writer of samples.
const THREADS_TRIED: usize = 4;

/// Starts `count` threads that exist at one time, and ends them.
fn try_threads(count: usize) -> std::io::Result<()> {
    let gate = std::sync::RwLock::new(());
    std::thread::scope(|scope| {
        let closed = gate.write();
        let started = (0..count).try_for_each(|_| {
            let wait = || drop(gate.read());
            std::thread::Builder::new()
                .spawn_scoped(scope, wait)
                .map(drop)
        });
        drop(closed);
        started
    })
}

/// Runs the async part of a command that captures: the first Ctrl-C (or SIGTERM, or the terminal's
/// end) ends it in order, the second one at once.
pub fn run_stoppable<T>(
    console: &Console,
    work: impl AsyncFnOnce(&StopSignal) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let words = "stopping: the capture so far is kept (press again to exit at once)";
    run_until_stopped(console, Some(words), work)
}

/// Runs the async part of any command. `words`: the warning at the first Ctrl-C; `None` where that
/// is the normal way to end.
pub fn run_until_stopped<T>(
    console: &Console,
    words: Option<&'static str>,
    work: impl AsyncFnOnce(&StopSignal) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let stop = StopSignal::new();
    async_runtime()?.block_on(async {
        end_by_signals(&stop, console, words)?;
        work(&stop).await
    })
}

fn end_by_signals(
    stop: &StopSignal,
    console: &Console,
    words: Option<&'static str>,
) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |e: std::io::Error| {
        Failure::environment("plimsoll cannot catch Ctrl-C and SIGTERM, so it did not begin")
            .caused_by(e)
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    // `nohup` has it ignored, and means it.
    let mut hangup = if hangup_is_ignored() {
        None
    } else {
        Some(signal(SignalKind::hangup()).map_err(cannot)?)
    };
    let (stop, console) = (stop.clone(), console.clone());
    tokio::spawn(async move {
        let mut asked_before = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = async { hangup.as_mut()?.recv().await }, if hangup.is_some() => {}
            }
            if asked_before {
                for name in stop.left_over() {
                    console.print_warning(&format!(
                        "container `{name}` keeps running: docker rm -f {name}"
                    ));
                }
                leave_at_once();
            }
            asked_before = true;
            if let Some(words) = words {
                console.print_warning(words);
            }
            stop.stop_because(RunEnd::Interrupted);
        }
    });
    Ok(())
}

/// Whether this process was started with SIGHUP ignored.
fn hangup_is_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
        .is_some_and(|mask| mask & 1 != 0)
}

/// What we started carries our labels, so that it can be found and removed later.
#[expect(
    clippy::exit,
    reason = "the user asked twice; nothing is left to unwind in order"
)]
fn leave_at_once() -> ! {
    std::process::exit(ExitCode::Interrupted as i32)
}

/// From what was collected to the profile on disk and the summary on the terminal, or the error.
pub fn conclude_run(
    console: &Console,
    args: &LoadArgs,
    paths: &RunPaths,
    collected: Collected,
) -> anyhow::Result<ExitCode> {
    let ended = derive_and_store(&console.sink(), paths, collected)?;
    console.finish_drawing();
    if args.json {
        console.write_data(&ended.document)?;
    } else {
        console.print_report(&report_of_profile(&ended.profile, &paths.profile))?;
    }
    if ended.stored.is_ok() {
        console.print_note(&format!("profile: {}", paths.profile.display()));
    }
    ended.captured.and(ended.stored)?;
    match ended.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(ExitCode::Done),
    }
}

/// Writes a document, then shows it: as JSON, or as the page of its report. `what` names the file in the note.
pub fn publish_document(
    console: &Console,
    document: &impl serde::Serialize,
    (what, path): (&str, &Path),
    json: bool,
    report: impl FnOnce() -> anyhow::Result<Report>,
) -> anyhow::Result<()> {
    let stored = write_atomically(path, &json_bytes(document)?);
    console.show_document(json, document, report)?;
    stored?;
    console.print_note(&format!("{what}: {}", path.display()));
    Ok(())
}

/// The exit code of a run of several parts, of which `done` have figures and `failed` have none.
pub fn exit_code_of(done: usize, failed: usize) -> ExitCode {
    match (done, failed) {
        (_, 0) => ExitCode::Done,
        (0, _) => ExitCode::RunFailed,
        _ => ExitCode::Partial,
    }
}
