//! The engine of a group: attached where it serves, started in a container of ours, or started in an
//! idle container of the user's; and its end.

use super::context::{SWEEP_LABEL, SweepContext};
use super::journal::EngineStart;
use super::preflight;
use super::release;
use super::request::{request_to_serve, serves_what_is_asked};
use super::trouble::{CellTrouble, FailedStart};
use super::workdirs::Workdirs;
use crate::capture::{ExecEnd, Mode, Phase, Request};
use crate::clean::memory::MemoryGate;
use crate::collect::{
    self, AttachedEngine, CapturePlan, CaptureSession, HealthCheck, KeptBench, Launch,
    MemorySource, ServerLog, Setup, SharedRun, Startup, StopSignal,
};
use crate::container::compile_cache::CACHE_FOLDER;
use crate::container::exec::ExecRequest;
use crate::container::inspect::InspectedContainer;
use crate::container::launch::LaunchSpec;
use crate::engine::{LoadKind, ServeJob};
use crate::error::Failure;
use crate::launch::recipe::recipe_of;
use crate::matrix::{CellGroup, EnginePlace, RowCause, RowPhase};
use crate::preset::Preset;
use crate::progress::{Progress, Sink, Stage};
use crate::store::{CaptureWriter, ContainerLock, StoredCapture};
use crate::sync::lock_data;
use crate::telemetry::MeasuredContainer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Time of sampling after it serves: what it holds at rest.
const REST: Duration = Duration::from_millis(300);

/// A cleaner holds a container's lock for some seconds: time limit for waiting.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// Between two attempts.
const LOCK_LOOK: Duration = Duration::from_millis(250);

/// Who loads the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineNeed {
    /// A server that the cells share.
    Server,
    /// The bench does, in a process of its own: the container is to be idle.
    Idle,
}

/// A container with the engine in it, ready for cells.
pub struct RunningEngine {
    /// The engine, as a cell finds it.
    pub attached: AttachedEngine,
    /// What the cells share.
    pub shared: SharedRun,
    /// What was found out for a kind of load, for the next cell.
    pub setups: BTreeMap<LoadKind, Option<Setup>>,
    /// Folders in the container for the files of cells to come.
    pub workdirs: Workdirs,
    /// The bench's program, kept running for the cells: not tried yet, or not available.
    pub(super) kept: Option<Option<KeptBench>>,
    /// For what it is here.
    pub need: EngineNeed,
    pub(super) own: OwnedPart,
    pub(super) gate: Option<MemoryGate>,
    pub(super) lock: Option<ContainerLock>,
}

/// What of it is ours, and goes at the end.
pub(super) enum OwnedPart {
    Nothing,
    Container {
        name: String,
    },
    Server {
        cancel: CancellationToken,
        task: JoinHandle<()>,
    },
}

impl RunningEngine {
    fn with_own(
        context: &SweepContext<'_>,
        attached: AttachedEngine,
        need: EngineNeed,
        own: OwnedPart,
        gate: Option<MemoryGate>,
        lock: Option<ContainerLock>,
    ) -> RunningEngine {
        RunningEngine {
            attached,
            shared: SharedRun::default(),
            setups: BTreeMap::new(),
            workdirs: Workdirs::for_folder(context.folder),
            kept: None,
            need,
            own,
            gate,
            lock,
        }
    }
}

/// Makes the group's engine ready. `preset`: the group's own, with the GPUs that were chosen for
/// it.
pub async fn start_engine(
    context: &SweepContext<'_>,
    group: &CellGroup,
    preset: Option<&Preset>,
    need: EngineNeed,
    run_id: &str,
    progress: &Sink,
) -> Result<RunningEngine, CellTrouble> {
    progress(Progress::Stage(Stage::Inspect));
    match &group.server.place {
        EnginePlace::Container(name) => {
            in_container(context, group, name, need, run_id, progress).await
        }
        EnginePlace::Image(own) => {
            let preset = preset.unwrap_or(own);
            launched(context, group, preset, need, run_id, progress).await
        }
    }
}

async fn in_container(
    context: &SweepContext<'_>,
    group: &CellGroup,
    name: &str,
    need: EngineNeed,
    run_id: &str,
    progress: &Sink,
) -> Result<RunningEngine, CellTrouble> {
    let (runtime, stop) = (context.runtime, context.stop);
    let found = collect::unless_stopped(stop, collect::find_running(runtime, name)).await;
    let found = found.map_err(|f| CellTrouble::while_preparing(&f))?;
    let lock = when_free(LOCK_PATIENCE, stop, || {
        collect::lock_container(&found.facts)
    })
    .await?;
    // No plimsoll with the same lock works in it now.
    let (there, _) = runtime.end_orphans(&found.facts).await;
    runtime.remove_dead_folders(&found.facts).await;
    if there > 0 {
        context.watcher.note(&format!(
            "{there} processes that a dead plimsoll left in container `{name}` are ended"
        ));
    }
    let named = group.server.engine.as_ref();
    let attached = AttachedEngine::find(runtime, name, named, stop).await;
    let attached = attached.map_err(|f| CellTrouble::while_preparing(&f))?;
    let serves = attached.is_serving();
    let mut running = RunningEngine::with_own(
        context,
        attached,
        need,
        OwnedPart::Nothing,
        None,
        Some(lock),
    );
    match (need, serves) {
        (EngineNeed::Server, true) => {
            let AttachedEngine { engine, found, .. } = &running.attached;
            serves_what_is_asked(&group.server, *engine, &found.facts)
                .map_err(|failure| CellTrouble::while_preparing(&failure))?;
            Ok(running)
        }
        (EngineNeed::Idle, true) => Err(CellTrouble::while_preparing(
            &Failure::usage(format!(
                "container `{name}` serves already: a bench that loads the engine itself would load it a second time"
            ))
            .hint("name an idle container or an image, or leave out --fresh and use bench: serve or builtin"),
        )),
        (EngineNeed::Idle, false) => {
            running.gate = gate(context, &running.attached.found);
            Ok(running)
        }
        (EngineNeed::Server, false) => {
            running.gate = gate(context, &running.attached.found);
            served_by_exec(context, group, running, run_id, progress).await
        }
    }
}

/// What another plimsoll holds, once it lets go of it.
async fn when_free<T>(
    patience: Duration,
    stop: &StopSignal,
    mut take: impl FnMut() -> Result<T, Failure>,
) -> Result<T, CellTrouble> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        let refused = match take() {
            Ok(taken) => return Ok(taken),
            Err(refused) => refused,
        };
        if tokio::time::Instant::now() >= until {
            return Err(CellTrouble::new(
                RowCause::Busy,
                RowPhase::Prepare,
                &refused,
            ));
        }
        let wait = async {
            tokio::time::sleep(LOCK_LOOK).await;
            Ok(())
        };
        let waited = collect::unless_stopped(stop, wait).await;
        waited.map_err(|f| CellTrouble::while_preparing(&f))?;
    }
}

fn gate(context: &SweepContext<'_>, found: &InspectedContainer) -> Option<MemoryGate> {
    let name = &found.facts.name;
    MemoryGate::before_start(
        context.options.memory,
        &MeasuredContainer::of_container(&found.facts),
        name,
    )
    .ok()
}

/// Deadline of a group's engine, beyond its last cell: for the case that no process is left to end
/// it.
fn longest(context: &SweepContext<'_>, group: &CellGroup) -> Duration {
    let cells = group.cells.len() as u32 + 1;
    context.options.timeout.saturating_mul(cells) + context.options.health_timeout
}

/// Starts the server in an idle container.
async fn served_by_exec(
    context: &SweepContext<'_>,
    group: &CellGroup,
    mut running: RunningEngine,
    run_id: &str,
    progress: &Sink,
) -> Result<RunningEngine, CellTrouble> {
    let attached = &mut running.attached;
    let engine = attached.engine;
    let port = engine.default_port;
    let job = ServeJob {
        model: &group.server.model,
        port,
        settings: &group.server.settings,
        extra_engine_args: &group.server.engine_args,
    };
    let plan = engine.serve(&job);
    let argv = engine.serve_argv(&job);
    let facts = &mut attached.found.facts;
    let id = facts.id.clone();
    let idle = facts.argv.join(" ");
    facts.argv.clone_from(&argv);
    facts.env.extend(plan.env.iter().cloned());
    attached.evidence = format!(
        "{}; started by plimsoll in the idle container (process 1: `{idle}`)",
        attached.evidence
    );
    attached.mode = Mode::Started;
    let log = ServerLog::new(engine);
    running.shared.server = Some(log.clone());
    let cancel = CancellationToken::new();
    let request = ExecRequest {
        argv,
        env: plan.env.into_iter().collect(),
        run_id: run_id.to_owned(),
        deadline: Some(longest(context, group)),
        ..ExecRequest::default()
    };
    let begin = {
        let (runtime, cancel, log) = (context.runtime.clone(), cancel.clone(), log.clone());
        move || {
            tokio::spawn(async move {
                let server_log = log.clone();
                let sink = |stream, text| server_log.add_line(stream, text);
                let ended = runtime.run_exec(&id, request, &cancel, sink).await;
                log.note_end(match ended {
                    Ok(result) => ending(&result.end),
                    Err(failure) => failure.to_string(),
                });
            })
        }
    };
    let startup = StartJob {
        run_id,
        health: plan.health_path,
        begin: Some(Box::new(begin)),
    };
    match observed(context, group, &mut running, startup, progress).await {
        Ok(task) => {
            running.own = match task {
                Some(task) => OwnedPart::Server { cancel, task },
                None => OwnedPart::Nothing,
            };
            Ok(running)
        }
        Err((trouble, task)) => {
            if let Some(task) = task {
                running.own = OwnedPart::Server { cancel, task };
            }
            release::end_engine(context, running, progress).await;
            Err(trouble)
        }
    }
}

/// How a server ended by itself; a sentence.
fn ending(end: &ExecEnd) -> String {
    match end {
        ExecEnd::Exited(137) => "the engine was killed (exit 137)".into(),
        ExecEnd::Exited(code) => format!("the engine ended (exit {code})"),
        ExecEnd::NotFound(why) => format!("the engine's server is not in the image: {why}"),
        ExecEnd::ContainerGone => "the container ended".into(),
        ExecEnd::Deadline => "the engine was ended: its time was up".into(),
        ExecEnd::Cancelled => "the engine was ended by plimsoll".into(),
        ExecEnd::Unknown => "the engine ended; the daemon did not report its exit code".into(),
    }
}

/// Starts a container of our own.
async fn launched(
    context: &SweepContext<'_>,
    group: &CellGroup,
    preset: &Preset,
    need: EngineNeed,
    run_id: &str,
    progress: &Sink,
) -> Result<RunningEngine, CellTrouble> {
    let (runtime, server) = (context.runtime, &group.server);
    let image = group.server.place.place_name();
    let named = server.engine.as_ref().or(preset.engine.as_ref());
    let prepared = async {
        let engine = preflight::engine_in_image(runtime, named, image, context.stop).await?;
        let (mut spec, health) = collect::launch_spec(Launch {
            name: format!("plimsoll-{run_id}"),
            image,
            run_id,
            preset,
            engine,
            model: &server.model,
            settings: &server.settings,
            engine_args: &server.engine_args,
            longest: Some(longest(context, group)),
        })?;
        if need == EngineNeed::Idle {
            let (entrypoint, word) = engine.idle;
            spec.entrypoint = entrypoint.map(|program| vec![program.to_owned()]);
            spec.cmd = vec![word.to_owned()];
            spec.ports.clear();
        }
        let label = (SWEEP_LABEL.to_owned(), context.folder.id().to_owned());
        spec.labels.extend([label]);
        if context.options.compile_cache {
            give_compile_cache(context, engine.name, &mut spec).await?;
        }
        Ok::<_, Failure>((engine, health, spec))
    };
    let (engine, health, spec) = prepared
        .await
        .map_err(|f| CellTrouble::while_preparing(&f))?;
    progress(Progress::Stage(Stage::Start));
    // GPUs hold the memory of whoever is on them; a container's own memory begins with it.
    let wanted = MeasuredContainer {
        gpu_request: spec.gpus.stored_words(),
        visible_devices: spec.env.get("NVIDIA_VISIBLE_DEVICES").cloned(),
        ..MeasuredContainer::default()
    };
    let on_gpu = !wanted.gpu_request.is_empty() || wanted.visible_devices.is_some();
    let gate = on_gpu
        .then(|| MemoryGate::before_start(context.options.memory, &wanted, &spec.name).ok())
        .flatten();
    context.stop.note_started(&spec.name);
    let found = match collect::launch_container(runtime, &spec).await {
        Ok(found) => found,
        Err(failure) => {
            context.stop.note_settled(&spec.name);
            // The image is here: Docker refuses a setting of the container.
            return Err(CellTrouble::new(
                RowCause::Refused,
                RowPhase::Start,
                &failure,
            ));
        }
    };
    let facts = &found.facts;
    // It was just made: nothing has changed since.
    let program_state = Some(format!("{} {:?} []", facts.image_id, facts.mounts));
    let mut attached = AttachedEngine {
        program_state,
        ..AttachedEngine::started(runtime, found, engine)
    };
    if need == EngineNeed::Idle {
        attached.mode = Mode::Idle;
    }
    let own = OwnedPart::Container { name: spec.name };
    let mut running = RunningEngine::with_own(context, attached, need, own, gate, None);
    match running.attached.take_lock() {
        Ok(lock) => running.lock = Some(lock),
        // It ended at once: the reason is in its log, which is read below.
        Err(_) if need == EngineNeed::Server => {}
        Err(failure) => {
            release::end_engine(context, running, progress).await;
            return Err(CellTrouble::while_preparing(&failure));
        }
    }
    if need == EngineNeed::Idle {
        return Ok(running);
    }
    let startup = StartJob {
        run_id,
        health,
        begin: None,
    };
    match observed(context, group, &mut running, startup, progress).await {
        Ok(_) => Ok(running),
        Err((trouble, _)) => {
            release::end_engine(context, running, progress).await;
            Err(trouble)
        }
    }
}

/// Gives a container the volume with what earlier ones of its image compiled. What the user set wins.
async fn give_compile_cache(
    context: &SweepContext<'_>,
    engine: &str,
    spec: &mut LaunchSpec,
) -> Result<(), Failure> {
    let folders = recipe_of(engine).map(|recipe| &recipe.compile_cache);
    let Some(folders) = folders.filter(|folders| !folders.is_empty()) else {
        return Ok(());
    };
    let opened = context.runtime.open_compile_cache(&spec.image);
    let Some(volume) = collect::unless_stopped(context.stop, opened).await? else {
        return Ok(());
    };
    spec.mounts.push(format!("{volume}:{CACHE_FOLDER}"));
    for (variable, folder) in folders {
        let folder = || format!("{CACHE_FOLDER}/{folder}");
        spec.env.entry(variable.clone()).or_insert_with(folder);
    }
    Ok(())
}

/// A start to be observed.
struct StartJob<'a> {
    run_id: &'a str,
    health: &'static str,
    /// Starts the server, where that is not the container's own process.
    begin: Option<Box<dyn FnOnce() -> JoinHandle<()> + Send>>,
}

type Task = Option<JoinHandle<()>>;

/// Captures the engine's start until it serves, for all cells that come after it.
async fn observed(
    context: &SweepContext<'_>,
    group: &CellGroup,
    running: &mut RunningEngine,
    job: StartJob<'_>,
    progress: &Sink,
) -> Result<Task, (CellTrouble, Task)> {
    let began = Instant::now();
    let options = context.options;
    let session = CaptureSession::begin_session(&context.stop.child_stop(), progress.clone(), None);
    let mut task = None;
    let captured = async {
        let timeout = options.health_timeout + REST;
        let request = request_to_serve(&group.server, options.sample_interval, timeout);
        let health = HealthCheck {
            path: job.health,
            timeout: options.health_timeout,
        };
        let plan = CapturePlan {
            health: Some(health),
            ..plan_run(running, job.run_id, request, None)
        };
        let memory = session
            .open_memory(&plan, &MemorySource::Live(options.memory))
            .await;
        let memory = memory.map_err(CellTrouble::while_starting)?;
        let opened = context.folder.start_paths(&group.id).and_then(|paths| {
            let writer = CaptureWriter::create_folder(&paths.capture, options.max_log)?;
            Ok((paths, writer))
        });
        let (paths, writer) = opened.map_err(CellTrouble::while_storing)?;
        let capture = session
            .start_recording(plan, memory, writer)
            .map_err(CellTrouble::while_starting)?;
        task = job.begin.map(|begin| begin());
        let collected = capture.collect_capture(None).await;
        let started = collected
            .capture
            .marks
            .iter()
            .find(|m| m.phase == Phase::Start);
        let began_ns = started.map_or(0, |m| m.at_ns);
        let sink = progress.clone();
        let capture_path = paths.capture.clone();
        let profile_path = context.folder.relative_path(&paths.profile);
        let concluded = run_blocking(move || collect::derive_and_store(&sink, &paths, collected))
            .await
            .and_then(|concluded| concluded)
            .map_err(CellTrouble::while_starting)?;
        // A start that is not kept whole does not describe the engine, and is not part of its
        // cells' profiles.
        concluded
            .captured
            .and(concluded.stored)
            .map_err(CellTrouble::while_storing)?;
        match concluded.failure {
            None => Ok((capture_path, began_ns)),
            Some(f) => {
                let start = FailedStart::of_profile(&concluded.profile, profile_path);
                Err(CellTrouble {
                    start: Some(Box::new(start)),
                    ..CellTrouble::of_run(&concluded.profile, &f, RowPhase::Start)
                })
            }
        }
    };
    let outcome = match captured.await {
        Err(trouble) => Err(trouble),
        Ok((capture, began_ns)) => {
            let samples = StoredCapture::open(&capture)
                .and_then(|stored| Ok(stored.read_samples()?.collect()))
                .unwrap_or_default();
            let startup = Startup {
                clock: session.clock.clone(),
                run_id: job.run_id.to_owned(),
                samples,
                began_ns,
                served_ns: session.clock.now(),
            };
            running.shared.startup = Some(Arc::new(startup));
            Ok(())
        }
    };
    let failed = outcome.as_ref().err().map(|t| t.message.clone());
    let facts = &running.attached.found.facts;
    let took = began.elapsed();
    if failed.is_none() {
        lock_data(&context.starts).push((group.id.clone(), took.as_secs_f64()));
    }
    let noted = context.journal().write_start(EngineStart {
        group: group.id.clone(),
        run_id: job.run_id.to_owned(),
        container: Some(facts.id.clone()),
        took_s: took.as_secs_f64(),
        at: now_rfc3339(),
        failed,
    });
    if let Err(failure) = noted {
        context.watcher.warning(&failure.to_string());
    }
    match outcome {
        Ok(()) => Ok(task),
        Err(trouble) => Err((trouble, task)),
    }
}

/// The plan of a run on this engine: memory at rest, unless the caller asks for more.
pub fn plan_run(
    running: &RunningEngine,
    run_id: &str,
    request: Request,
    kind: Option<LoadKind>,
) -> CapturePlan {
    CapturePlan {
        run_id: run_id.to_owned(),
        baseline: REST,
        watch: Some(Duration::ZERO),
        cooldown: Duration::from_millis(100),
        shared: running.shared.clone(),
        ..running.attached.plan_capture(kind, request)
    }
}

/// Runs work that computes or writes, so that groups beside it go on.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Failure::bug("a task of plimsoll panicked").caused_by(e))
}

/// This moment, RFC 3339, UTC.
pub fn now_rfc3339() -> String {
    jiff::Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::RunEnd;

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_held_for_a_moment_is_waited_for() {
        let mut times = 0;
        let twice_refused = || {
            times += 1;
            if times < 3 {
                Err(Failure::environment("held"))
            } else {
                Ok(7)
            }
        };
        let taken = when_free(LOCK_PATIENCE, &StopSignal::new(), twice_refused).await;
        assert!(matches!(taken, Ok(7)), "{taken:?}");

        let began = tokio::time::Instant::now();
        let refused: Result<(), CellTrouble> =
            when_free(LOCK_PATIENCE, &StopSignal::new(), held_by_another).await;
        assert!(matches!(refused, Err(t) if t.cause == RowCause::Busy));
        assert!(began.elapsed() >= LOCK_PATIENCE);

        let stop = StopSignal::new();
        stop.stop_because(RunEnd::Interrupted);
        let began = tokio::time::Instant::now();
        let stopped: Result<(), CellTrouble> =
            when_free(LOCK_PATIENCE, &stop, held_by_another).await;
        assert!(matches!(stopped, Err(t) if t.cause != RowCause::Busy));
        assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits for it then");
    }

    fn held_by_another() -> Result<(), Failure> {
        Err(Failure::environment("held"))
    }
}
