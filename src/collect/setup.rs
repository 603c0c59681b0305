//! The facts needed before anything runs: where the engine listens, its endpoints, and whether the
//! installed bench supports the request. Everything that can be refused is refused here.

use super::endpoints::{EngineEndpoint, probe_endpoints};
use super::model_files::find_models;
use super::{CapturePlan, Setup, StopSignal, builtin, refused_plan};
use crate::capture::{ContainerFacts, ExecEnd, ExecOutcome, ExecRole, Mode};
use crate::clock::Clock;
use crate::container::Runtime;
use crate::container::exec::ExecRequest;
use crate::container::inspect::InspectedContainer;
use crate::container::leftovers::run_folder;
use crate::container::sockets::Listener;
use crate::engine::{BenchJob, BenchKind, BenchPlan, EngineId, LoadKind};
use crate::error::Failure;
use crate::load::LoadTarget;
use crate::progress::{Progress, Sink};
use crate::store::{read_cached, write_cached};
use std::time::Duration;

/// Timeout of a bench's `--help`, which imports the whole engine; slow on a busy machine.
const HELP_DEADLINE: Duration = Duration::from_secs(300);

/// A longer command is quoted by its program alone, bytes.
const LONGEST_COMMAND: usize = 200;

/// Cache for help texts.
const HELP_CACHE: &str = "bench-help";

/// Maximum size of a help text.
const HELP_LIMIT: usize = 4 << 20;

/// The bench to run.
#[derive(Debug, Clone)]
pub struct BenchSetup {
    /// Kind of the engine's bench.
    pub kind: BenchKind,
    /// Model: path or id.
    pub model: String,
    /// Name of the model on the server.
    pub served_model_name: Option<String>,
    /// Folder inside the container for result files.
    pub workdir: String,
    /// The `--help` text of the installed bench.
    pub help: Option<String>,
    /// The server's address for plimsoll's own client; `None` for the engine's bench.
    pub target: Option<LoadTarget>,
}

/// Whether the engine's usual port answers like this engine.
pub async fn engine_answers(
    runtime: &Runtime,
    engine: EngineId,
    found: &InspectedContainer,
) -> bool {
    let port = engine_port(engine, &found.facts);
    // On a shared network another container may answer.
    if runtime.port_listener(&found.facts, port) != Listener::Container {
        return false;
    }
    let Some(path) = engine.endpoints.first() else {
        return false;
    };
    // Only from outside: an exec into an idle container is too expensive for this.
    runtime.get_outside(&found.facts, port, path).await.status == Some(200)
}

/// Gathers the facts that the run needs.
pub async fn inspect_setup(
    plan: &CapturePlan,
    clock: &Clock,
    stop: &StopSignal,
    progress: &Sink,
) -> Result<Setup, Failure> {
    let (runtime, facts) = (&plan.attached.runtime, plan.facts());
    let kind = plan.kind;
    let settings = (plan.attached.engine.settings)(facts);
    let key = plan.attached.found.secrets.api_key().map(str::to_owned);
    let door = EngineEndpoint {
        facts: facts.clone(),
        port: engine_port(plan.attached.engine, facts),
        key,
    };
    let redactor = plan.attached.found.secrets.redactor();
    let mut probes = Vec::new();
    if plan.attached.mode != Mode::Idle
        && runtime.port_listener(facts, door.port) == Listener::Other
    {
        return Err(Failure::environment(format!(
            "port {} belongs to another container, which shares the network of container `{}` and would get the load",
            door.port, facts.name
        ))
        .hint(format!("did the engine fail to start, or listen on another port? `docker logs {}` shows it", facts.name)));
    }
    if kind == Some(LoadKind::Builtin) && !runtime.has_outside_route(facts, door.port) {
        return Err(builtin::unreachable_port(
            &door,
            "it is not published, and the container has no address here",
        ));
    }
    if plan.attached.mode != Mode::Idle {
        probes = tokio::select! {
            probes = probe_endpoints(runtime, plan.attached.engine, &door, clock, &redactor) => probes,
            () = stop.token().cancelled() => return Err(stop.stop_failure()),
        };
        if kind.is_some_and(LoadKind::needs_server) && !probes.iter().any(|p| p.status.is_some()) {
            let why = probes
                .iter()
                .find_map(|p| p.error.clone())
                .map(|e| format!(": {e}"))
                .unwrap_or_default();
            return Err(Failure::environment(format!(
                "the engine in container `{}` does not answer on port {}{why}",
                facts.name, door.port
            ))
            .hint(hint_unreached(facts, door.port)));
        }
    }
    let probed = (plan.attached.engine.read_probes)(&probes);
    let asked = plan.request.model.clone();
    let model = asked.or(probed.model).or(settings.model);
    let mut execs = Vec::new();
    let bench = match kind {
        None => None,
        Some(kind) => {
            let model = match &model {
                Some(model) => model.clone(),
                None => model_inside(plan, stop, progress).await?,
            };
            let mut bench = BenchSetup {
                kind: kind.of_engine().unwrap_or(BenchKind::Serve),
                model,
                served_model_name: probed.served_model_name.or(settings.served_model_name),
                workdir: bench_workdir(plan),
                help: None,
                target: None,
            };
            if let Some(kind) = kind.of_engine() {
                bench.help = ask_flags(plan, kind, clock, stop, &mut execs, progress).await?;
                // Planned once here, so that a flag unknown to the release is refused now.
                bench.plan_repeat(plan, door.port, 1)?;
            } else {
                bench.target = Some(builtin::resolve_target(plan, &door, &bench).await?);
            }
            Some(bench)
        }
    };
    Ok(Setup {
        model: model.or_else(|| bench.as_ref().map(|bench| bench.model.clone())),
        bench,
        door,
        probes,
        execs,
        files: None,
    })
}

/// Folder inside the container for a run's files.
pub fn bench_workdir(plan: &CapturePlan) -> String {
    match &plan.workdir {
        Some(folder) => folder.clone(),
        None => run_folder(&plan.run_id),
    }
}

/// What to do about an engine that does not answer. A rootless daemon's containers have addresses that are not reached
/// from here.
pub(super) fn hint_unreached(facts: &ContainerFacts, port: u16) -> String {
    let publish = match facts.published_ports.contains_key(&port) {
        true => String::new(),
        false => format!(" else publish its port (`docker run -p {port}:{port}`);"),
    };
    format!("is it still loading? see its log;{publish} --bench none samples without a load")
}

/// The port of the engine inside its container, from its command.
pub fn engine_port(engine: EngineId, facts: &ContainerFacts) -> u16 {
    let port = (engine.settings)(facts).port;
    port.unwrap_or(engine.default_port)
}

impl BenchSetup {
    /// The command of one repeat, or why the engine's bench refuses it.
    pub fn plan_repeat(
        &self,
        plan: &CapturePlan,
        port: u16,
        repeat: u32,
    ) -> Result<BenchPlan, Failure> {
        let job = BenchJob {
            kind: self.kind,
            model: &self.model,
            served_model_name: self.served_model_name.as_deref(),
            port,
            workload: &plan.request.workload,
            settings: &plan.request.settings,
            extra_engine_args: &plan.request.extra_engine_args,
            workdir: &self.workdir,
            repeat,
        };
        let planned = (plan.attached.engine.bench)(&job, self.help.as_deref());
        planned.map_err(refused_plan)
    }
}

/// The only model in an idle container; with several or none the user must choose.
async fn model_inside(
    plan: &CapturePlan,
    stop: &StopSignal,
    progress: &Sink,
) -> Result<String, Failure> {
    let name = &plan.facts().name;
    if plan.attached.mode != Mode::Idle {
        return Err(Failure::usage(format!(
            "the engine in container `{name}` does not report its model"
        ))
        .hint("name it with --model"));
    }
    let models = find_models(plan, stop).await?;
    if let [model] = &models[..] {
        progress(Progress::Note(format!(
            "model: {model}, the only one in container `{name}`"
        )));
        return Ok(model.clone());
    }
    let failure = Failure::usage(format!(
        "no engine serves in container `{name}`, so the bench must load a model, and none is named"
    ));
    Err(if models.is_empty() {
        failure.hint("--model MODEL, an id or a path inside the container")
    } else {
        failure.hint(format!(
            "--model MODEL; in the container there are: {}",
            models.join(", ")
        ))
    })
}

/// The `--help` text of the installed bench; `None` without one.
async fn ask_flags(
    plan: &CapturePlan,
    kind: BenchKind,
    clock: &Clock,
    stop: &StopSignal,
    execs: &mut Vec<ExecOutcome>,
    progress: &Sink,
) -> Result<Option<String>, Failure> {
    let Some(argv) = (plan.attached.engine.bench_help)(kind) else {
        return Ok(None);
    };
    let key = (plan.attached.program_state.as_ref())
        .map(|made_of| format!("{made_of} {}", argv.join(" ")));
    if let Some(known) = key.as_deref().and_then(|key| read_cached(HELP_CACHE, key)) {
        return Ok(Some(known));
    }
    let often = if key.is_some() {
        "once per image"
    } else {
        "each time, since Docker's storage driver cannot list what this container changed"
    };
    progress(Progress::Note(format!(
        "asking {} in `{}` for its flags: up to a minute, {often}",
        bench_program(&argv),
        plan.facts().image
    )));
    let help = ask_flags_now(plan, kind, argv, clock, stop, execs).await?;
    if let (Some(key), Some(help)) = (&key, &help) {
        write_cached(HELP_CACHE, key, help);
    }
    Ok(help)
}

async fn ask_flags_now(
    plan: &CapturePlan,
    kind: BenchKind,
    argv: Vec<String>,
    clock: &Clock,
    stop: &StopSignal,
    execs: &mut Vec<ExecOutcome>,
) -> Result<Option<String>, Failure> {
    let program = argv.first().cloned();
    let first = ask_help(plan, argv, clock, stop, execs).await?;
    let text = first.as_ref().map_or("", |help| &help.text);
    let again = (plan.attached.engine.bench_help_again)(kind, text);
    // A program missing from the image needs no second question.
    let Some(argv) = again.filter(|argv| first.is_ok() || argv.first() != program.as_ref()) else {
        return first.map(BenchHelp::if_good);
    };
    match ask_help(plan, argv, clock, stop, execs).await? {
        Ok(second) => Ok(second.if_good()),
        Err(_) => first.map(BenchHelp::if_good),
    }
}

/// Name of the program in messages; a script of many lines is not quoted.
fn bench_program(argv: &[String]) -> String {
    match argv.first().map(String::as_str) {
        Some("sh") | None => "the bench".to_owned(),
        Some(_) => format!("`{}`", argv.join(" ")),
    }
}

/// What the output of a container's programs depends on: its image and its mounts; if packages or
/// programs were changed in it since, these and the container, because paths do not identify the
/// contents. `None` if Docker does not list the changes.
pub async fn program_state(runtime: &Runtime, facts: &ContainerFacts) -> Option<String> {
    let changed = runtime.changed_programs(&facts.id).await?;
    let image = format!("{} {:?}", facts.image_id, facts.mounts);
    Some(if changed.is_empty() {
        image
    } else {
        format!("{image} {} {changed:?}", facts.id)
    })
}

/// Error for a missing executable; it may exist under another name.
type Absent = Failure;

/// An answer to `--help`: both streams, and whether it succeeded.
struct BenchHelp {
    text: String,
    good: bool,
}

impl BenchHelp {
    fn if_good(self) -> Option<String> {
        self.good.then_some(self.text)
    }
}

async fn ask_help(
    plan: &CapturePlan,
    argv: Vec<String>,
    clock: &Clock,
    stop: &StopSignal,
    execs: &mut Vec<ExecOutcome>,
) -> Result<Result<BenchHelp, Absent>, Failure> {
    let facts = plan.facts();
    let started_at_ns = clock.now();
    let request = ExecRequest {
        argv: argv.clone(),
        run_id: plan.run_id.clone(),
        deadline: Some(HELP_DEADLINE),
        ..Default::default()
    };
    let mut text = String::new();
    let sink = |_, line: String| {
        if text.len() + line.len() < HELP_LIMIT {
            text.push_str(&line);
            text.push('\n');
        }
    };
    let result = plan
        .run_exec(request, None, stop.token(), sink)
        .await?
        .ended;
    execs.push(ExecOutcome {
        role: ExecRole::Help,
        argv: argv.clone(),
        started_at_ns,
        ended_at_ns: clock.now(),
        end: result.end.clone(),
        killed: result.killed,
        survivors: result.survivors,
        ..Default::default()
    });
    match result.end {
        ExecEnd::NotFound(message) => {
            let command = match &argv[..] {
                // The program that a shell script looks up is its first argument.
                [shell, flag, _script, _name, program, ..] if shell == "sh" && flag == "-c" => {
                    program.clone()
                }
                argv if argv.iter().map(String::len).sum::<usize>() > LONGEST_COMMAND => {
                    argv.first().cloned().unwrap_or_default()
                }
                argv => argv.join(" "),
            };
            let image = &facts.image;
            let absent = format!("`{command}` is not in the image `{image}`: {message}");
            Ok(Err(Failure::environment(absent).hint(
                "use an image with the engine in it; --bench none watches without a load",
            )))
        }
        ExecEnd::ContainerGone => Err(Failure::environment(format!(
            "container `{}` ended while plimsoll asked its bench for its flags",
            facts.name
        ))
        .hint(format!("`plimsoll why {}` finds why it ended", facts.name))),
        ExecEnd::Cancelled => Err(stop.stop_failure()),
        // A bench that cannot even print its flags will report why when it runs.
        end => Ok(Ok(BenchHelp {
            good: end == ExecEnd::Exited(0) && !result.cut,
            text,
        })),
    }
}

/// Describes what a run would do. Secrets are redacted, as in the capture.
pub fn describe_setup(plan: &CapturePlan, setup: &Setup) -> Result<String, Failure> {
    let redactor = plan.attached.found.secrets.redactor();
    let mut text = format!(
        "container: {} ({})\nengine: {} ({})\n",
        plan.facts().name,
        plan.facts().image,
        plan.attached.engine.shown(),
        plan.attached.evidence
    );
    let mut describe_bench = |command: String, notes: Vec<String>| {
        text.push_str(&format!("bench, {} time(s): {command}\n", plan.repeats));
        notes
            .iter()
            .for_each(|n| text.push_str(&format!("note: {n}\n")));
    };
    match &setup.bench {
        None => text += "bench: none, only watch\n",
        Some(BenchSetup {
            target: Some(target),
            ..
        }) => {
            let load = builtin::load_plan(&plan.request.workload, 1);
            let command = redactor
                .redact_argv(&builtin::client_words(target, &load))
                .join(" ");
            describe_bench(command, builtin::ignored_settings(plan));
        }
        Some(bench) => {
            let planned = bench.plan_repeat(plan, setup.door.port, 1)?;
            let command = command_line(&redactor.redact_argv(&planned.argv));
            let notes = planned
                .notes
                .iter()
                .map(|n| redactor.redact_text(n).into_owned());
            describe_bench(command, notes.collect());
        }
    }
    Ok(text)
}

/// A command line in shell syntax; of a script of many lines only the first.
fn command_line(argv: &[String]) -> String {
    let word = |word: &String| match word.split_once('\n') {
        Some((first, _)) => format!("'{first} …'"),
        None => shlex::try_quote(word).map_or_else(|_| word.clone(), |q| q.into_owned()),
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}
