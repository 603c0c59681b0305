//! What `profile` and `run` share: from flags to a request, and from a capture to its profile.

use crate::capture::{Capture, ContainerFacts, Mode, Request, RequestedSettings, RunEnd, Workload};
use crate::cli::{BackendArg, BackendWord, BenchChoice, LoadArgs};
use crate::clock::Clock;
use crate::collect::{Collected, Stop};
use crate::console::Console;
use crate::container::inspect::Found;
use crate::engine::{self, Engine, LoadKind};
use crate::error::{ExitCode, Failure};
use crate::progress::{Progress, Stage};
use crate::redact::Secrets;
use crate::report::Renderer;
use crate::store::{
    self, CaptureWriter, ContainerLock, Recording, RunPaths, StoredCapture, write_atomically,
};
use crate::telemetry::{self, BackendChoice, MemoryBackend, Replay, Target};
use crate::units::Bytes;
use crate::{profile, report};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The engine that was named, or an error with the known names.
pub fn engine_named(name: &str) -> Result<&'static dyn Engine, Failure> {
    engine::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = engine::ALL.iter().map(|e| e.name()).collect();
        Failure::usage(format!("no engine `{name}`"))
            .hint(format!("known engines: {}", names.join(", ")))
    })
}

/// An id for a run: short, and different from every other on this host.
pub fn run_id() -> String {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    format!("{:x}-{:x}", nanos / 1_000_000, std::process::id())
}

/// Which bench the flags and the mode ask for; `None` watches without a load.
pub fn bench_kind(
    choice: BenchChoice,
    engine: &dyn Engine,
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
pub fn request(args: &LoadArgs, kind: Option<LoadKind>) -> Result<Request, Failure> {
    let ours = kind == Some(LoadKind::Probe);
    for (flag, given) in [
        ("--prompt", args.prompt.is_some()),
        ("--per-layer", args.per_layer),
    ] {
        if given && !ours {
            return Err(Failure::usage(format!(
                "{flag} is for the transformers probe: other benches make prompts of their own and cannot look into the engine"
            ))
            .hint("--engine transformers in a container that has torch and transformers; --input-len for the others"));
        }
    }
    let mut extra_engine_args = Vec::new();
    for text in &args.extra_engine_args {
        let words = shlex::split(text).ok_or_else(|| {
            Failure::usage(format!("`--extra-engine-args {text}` has an open quote"))
        })?;
        extra_engine_args.extend(words);
    }
    Ok(Request {
        model: args.model.clone(),
        bench: kind.map_or("none", LoadKind::as_str).into(),
        workload: Workload {
            // A given prompt is as long as it is: the flag's default says nothing of it.
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
        },
        settings: RequestedSettings {
            dtype: args.dtype.clone(),
            quantization: args.quantization.clone(),
            kv_cache_dtype: args.kv_cache_dtype.clone(),
            tensor_parallel_size: args.tensor_parallel_size,
            enforce_eager: args.enforce_eager,
            gpu_memory_utilization: args.gpu_memory_utilization,
            max_model_len: args.max_model_len,
        },
        extra_engine_args,
        sample_interval_ns: u64::try_from(args.sample_interval.as_nanos()).unwrap_or(u64::MAX),
        timeout_s: args.timeout.as_secs_f64(),
    })
}

/// The memory backend that was asked for, for a container. A recorded session plays on `clock`.
pub fn open_backend(
    args: &LoadArgs,
    clock: &Clock,
    target: &Target,
) -> Result<Box<dyn MemoryBackend>, Failure> {
    match &args.memory_backend {
        BackendArg::Live(word) => telemetry::open(choice(*word), target),
        BackendArg::Replay(path) => replay(path, clock),
    }
}

/// The backend that a word names.
pub fn choice(word: BackendWord) -> BackendChoice {
    match word {
        BackendWord::Auto => BackendChoice::Auto,
        BackendWord::Nvml => BackendChoice::Nvml,
        BackendWord::Amd => BackendChoice::Amd,
        BackendWord::Host => BackendChoice::Host,
    }
}

/// A recording, or the samples of a stored capture, played from now on.
fn replay(path: &Path, clock: &Clock) -> Result<Box<dyn MemoryBackend>, Failure> {
    let name = path.display().to_string();
    let (backend, devices, samples) = if path.is_dir() {
        let stored = StoredCapture::open(path)?;
        let samples = stored.samples()?.collect();
        (stored.capture.backend, stored.capture.devices, samples)
    } else {
        let recording = Recording::read(path)?;
        let header = recording.header;
        (header.backend, header.devices, recording.samples)
    };
    if samples.is_empty() {
        return Err(Failure::usage(format!("there is no sample in `{name}`")));
    }
    let replay = Replay::of_session(clock, &backend, devices, samples, &name);
    Ok(Box::new(replay))
}

/// Adds the secrets that stand in the request's own words to those of the container.
pub fn found_with(mut found: Found, request: &Request) -> Found {
    let ours = Secrets::gather([], &request.extra_engine_args);
    found.secrets.extend(&ours);
    found
}

/// Takes the container for this run alone.
pub fn lock(facts: &ContainerFacts) -> Result<ContainerLock, Failure> {
    let cgroup = telemetry::cgroup_directory(&Target::of(facts));
    ContainerLock::take(&facts.id, &facts.name, cgroup.as_deref())
}

/// Whether results can be written at all: told before anything takes its time.
pub fn check_results(args: &LoadArgs) -> Result<(), Failure> {
    store::check(&args.results_dir, args.output.as_deref())
}

/// Claims the place for the results and opens the capture.
pub fn open_results(args: &LoadArgs, model: &str) -> Result<(RunPaths, CaptureWriter), Failure> {
    let log_cap: Bytes = args
        .max_log
        .parse()
        .map_err(|e: crate::units::ParseBytesError| Failure::usage(format!("--max-log: {e}")))?;
    let paths = store::claim(
        &args.results_dir,
        args.output.as_deref(),
        model,
        &jiff::Zoned::now(),
    )?;
    let writer = CaptureWriter::create(&paths.capture, log_cap.0)?;
    Ok((paths, writer))
}

/// A runtime for the async part of a command.
pub fn tokio() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Failure::environment("cannot start the runtime's threads").caused_by(e))
}

/// The first Ctrl-C (or SIGTERM, or the terminal's end) ends the run in order; the second leaves
/// at once.
pub fn obey_signals(stop: &Stop, console: &Console) -> Result<(), Failure> {
    end_by_signals(
        stop,
        console,
        Some("stopping: what was captured so far is kept (once more leaves at once)"),
    )
}

/// The same with other words, or none where Ctrl-C is the way to end.
pub fn end_by_signals(
    stop: &Stop,
    console: &Console,
    words: Option<&'static str>,
) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |e: std::io::Error| Failure::environment("cannot listen to signals").caused_by(e);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    // `nohup` has it ignored, and means it.
    let mut hangup = match hangup_is_ignored() {
        true => None,
        false => Some(signal(SignalKind::hangup()).map_err(cannot)?),
    };
    let (stop, console) = (stop.clone(), console.clone());
    tokio::spawn(async move {
        let mut told = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = async { hangup.as_mut()?.recv().await }, if hangup.is_some() => {}
            }
            if told {
                if let Some(name) = stop.left_over() {
                    console.warning(&format!(
                        "container `{name}` keeps running: docker rm -f {name}"
                    ));
                }
                leave_at_once();
            }
            told = true;
            if let Some(words) = words {
                console.warning(words);
            }
            stop.because(RunEnd::Interrupted);
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

/// A run's profile, and how the run ended.
pub struct Concluded {
    /// The profile.
    pub profile: profile::Profile,
    /// The same as it lies on the disk.
    pub document: Vec<u8>,
    /// Whether the capture could be written down.
    pub captured: Result<(), Failure>,
    /// Whether the profile could.
    pub stored: Result<(), Failure>,
    /// What went wrong, when the run came to no good end.
    pub failure: Option<Failure>,
}

/// From what was collected to the profile on disk.
pub fn derive_and_store(
    console: &Console,
    paths: &RunPaths,
    collected: Collected,
) -> anyhow::Result<Concluded> {
    (console.sink())(Progress::Stage(Stage::Derive));
    let Collected {
        capture,
        written,
        failure,
    } = collected;
    let profile = match StoredCapture::open(&paths.capture) {
        Ok(stored) => profile::derive(&capture, stored.samples()?, stored.lines()?),
        // A disk that is full to the last byte: the figures without their streams.
        Err(_) => profile::derive(&capture, [], []),
    };
    let document = report::json::Json.render(&profile)?;
    // A capture that is not whole still has a profile: the space held back for it is free now.
    let stored = write_atomically(&paths.profile, &document);
    let failure = failure.or_else(|| failure_of(&capture, &profile));
    let failure = failure.map(|failure| {
        // What the engine and the bench printed says more than any sentence of ours.
        let log = paths.log();
        match failure.code == ExitCode::RunFailed && log.is_file() {
            true => failure.hint(format!("all that was printed is in `{}`", log.display())),
            false => failure,
        }
    });
    Ok(Concluded {
        profile,
        document,
        captured: written,
        stored,
        failure,
    })
}

/// From what was collected to the profile on disk and the summary on the terminal, or the error.
pub fn conclude(
    console: &Console,
    args: &LoadArgs,
    paths: &RunPaths,
    collected: Collected,
) -> anyhow::Result<ExitCode> {
    let ended = derive_and_store(console, paths, collected)?;
    console.finish();
    if args.json {
        console.data(&ended.document)?;
    } else {
        console.data(report::text::render(&ended.profile, console.text_options()).as_bytes())?;
    }
    if ended.stored.is_ok() {
        console.note(&format!("profile: {}", paths.profile.display()));
    }
    ended.captured.and(ended.stored)?;
    match ended.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(ExitCode::Done),
    }
}

/// How the run's end is told, when it was no good end.
fn failure_of(capture: &Capture, profile: &profile::Profile) -> Option<Failure> {
    let failure = match &capture.end {
        RunEnd::Completed => return None,
        RunEnd::Interrupted => {
            return Some(Failure::new(
                ExitCode::Interrupted,
                "interrupted; the profile covers what was seen until then",
            ));
        }
        RunEnd::Deadline => {
            return Some(
                Failure::run(format!(
                    "the run did not end within {} s and was stopped",
                    capture.request.timeout_s
                ))
                .hint("give it longer with --timeout"),
            );
        }
        RunEnd::ContainerLost(why) | RunEnd::BenchFailed(why) => Failure::run(why.clone()),
        RunEnd::Failed(why) => Failure::environment(why.clone()),
    };
    Some(
        advice(&failure.message, &profile.raw_logs)
            .into_iter()
            .fold(failure, Failure::hint),
    )
}

/// Advice for failures that everybody meets.
fn advice(message: &str, logs: &profile::RawLogs) -> Option<String> {
    let said = |words: &[&str]| {
        words
            .iter()
            .any(|w| message.contains(w) || logs.bench.contains(w) || logs.engine.contains(w))
    };
    let hint = if said(&[
        "exit 137",
        "out of memory",
        "OutOfMemory",
        "No available memory for the cache blocks",
    ]) {
        "use less: --batch-size, --input-len, --max-model-len or --gpu-memory-utilization; or give the container more memory"
    } else if said(&["gated repo", "401 Client Error", "GatedRepoError"]) {
        "the model is gated: accept its terms and give the container HF_TOKEN"
    } else if said(&[
        "is not a local folder and is not a valid model identifier",
        "HFValidationError",
        "Repo id must be in the form",
        "OfflineModeIsEnabled",
        "couldn't connect to 'https://",
        "LocalEntryNotFoundError",
        "RepositoryNotFoundError",
        "Repository Not Found",
    ]) {
        "the container does not have this model: mount it, or let it download with HF_TOKEN and without HF_HUB_OFFLINE"
    } else {
        return None;
    };
    Some(hint.into())
}

/// Runs `work` unless the run stops first. Only for work that leaves nothing behind when dropped.
pub async fn unless_stopped<T>(
    stop: &Stop,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        () = stop.token().cancelled() => Err(stop.failure()),
    }
}
