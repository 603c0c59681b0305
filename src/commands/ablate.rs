//! `plimsoll ablate`: two settings of one engine in an idle container, run in turn.

use super::load::{
    bench_kind, check_results, obey_signals, open_backend, open_results, request, tokio,
};
use crate::capture::{Mode, RunEnd};
use crate::cli::{AblateArgs, LoadArgs};
use crate::clock::Clock;
use crate::collect::{
    self, Concluded, Deadline, Instruments, Plan, Setup, Stop, derive_and_store, find_running,
    found_with, lock, meet, program_state, run_id, unless_stopped,
};
use crate::compare::ablation::{Ablation, ArmRuns, Run};
use crate::compare::graphs::{GraphReading, Thresholds};
use crate::console::Console;
use crate::container::Runtime;
use crate::container::inspect::Found;
use crate::engine::Engine;
use crate::error::{ExitCode, Failure};
use crate::progress::{Progress, Stage};
use crate::report;
use crate::store::{file_word, free_name, private, write_atomically};
use crate::telemetry::Target;
use std::path::PathBuf;

/// One setting to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArmPlan {
    /// Its name in page and document.
    pub name: String,
    /// Its own engine arguments.
    pub args: Vec<String>,
}

/// A container that was met, and what is in it.
pub(super) struct Met {
    pub runtime: Runtime,
    pub found: Found,
    pub engine: &'static dyn Engine,
    pub evidence: String,
    pub serving: bool,
}

pub fn run(console: &Console, args: AblateArgs) -> anyhow::Result<ExitCode> {
    let arm = |name: &str, text: &str| {
        let args = shlex::split(text)
            .ok_or_else(|| Failure::usage(format!("`{text}` has an open quote")))?;
        Ok::<_, Failure>(ArmPlan {
            name: name.into(),
            args,
        })
    };
    let arms = [arm(&args.a_name, &args.a)?, arm(&args.b_name, &args.b)?];
    if arms[0].args == arms[1].args {
        return Err(
            Failure::usage("the arms do not differ: nothing would be compared")
                .hint("give engine arguments with --a and --b, as in --a '--enforce-eager' --b ''")
                .into(),
        );
    }
    if arms[0].name == arms[1].name {
        return Err(Failure::usage("both arms have the same name")
            .hint("choose others with --a-name and --b-name")
            .into());
    }
    let stop = Stop::new();
    tokio()?.block_on(async {
        obey_signals(&stop, console)?;
        (console.sink())(Progress::Stage(Stage::Inspect));
        let runtime = unless_stopped(&stop, Runtime::connect()).await?;
        let found = unless_stopped(&stop, find_running(&runtime, &args.container)).await?;
        let (engine, evidence, serving) =
            meet(&runtime, &found, args.load.engine.as_ref(), &stop).await?;
        let met = Met {
            runtime,
            found,
            engine,
            evidence,
            serving,
        };
        ablate(console, met, &args.load, arms, None, &stop).await
    })
}

/// Runs the arms in turn and compares them. `thresholds`: the second arm has CUDA graphs and the
/// first has not, and what they cost is to be read against these.
pub(super) async fn ablate(
    console: &Console,
    met: Met,
    load: &LoadArgs,
    arms: [ArmPlan; 2],
    thresholds: Option<Thresholds>,
    stop: &Stop,
) -> anyhow::Result<ExitCode> {
    let made_of = program_state(&met.runtime, &met.found.facts).await;
    let name = &met.found.facts.name;
    if met.serving {
        return Err(Failure::usage(format!(
            "the engine in container `{name}` serves already: its settings cannot be changed while it runs"
        ))
        .hint("start an idle container of the same image, as in `docker run -d --entrypoint sleep IMAGE infinity`, and name that")
        .into());
    }
    let kind = bench_kind(load.bench, met.engine, Mode::Idle, name)?;
    if kind.is_none() {
        return Err(Failure::usage("without a load nothing is compared")
            .hint("--bench latency or --bench throughput")
            .into());
    }
    let started = jiff::Timestamp::now();
    let plan = |arm: &ArmPlan| -> Result<Plan, Failure> {
        let mut request = request(load, kind)?;
        request.extra_engine_args.extend(arm.args.iter().cloned());
        Ok(Plan {
            run_id: run_id(),
            found: found_with(met.found.clone(), &request),
            engine: met.engine,
            engine_evidence: met.evidence.clone(),
            mode: Mode::Idle,
            request,
            kind,
            repeats: 1,
            baseline: load.baseline,
            watch: None,
            health: None,
            cooldown: collect::COOLDOWN,
            shared: collect::Shared::default(),
            workdir: None,
            kept: None,
            followed: false,
            made_of: made_of.clone(),
        })
    };
    let mut lane = Lane {
        console,
        met: &met,
        load: LoadArgs {
            // It names the comparison; the profiles get names of their own.
            output: None,
            ..load.clone()
        },
        stop,
        setup: None,
    };
    let first = plan(&arms[0])?;
    if load.dry_run {
        let clock = Clock::start();
        let setup = collect::inspect(&met.runtime, &first, &clock, stop, &console.sink()).await?;
        let mut text = String::new();
        for (arm, plan) in arms.iter().zip([&first, &plan(&arms[1])?]) {
            let described = collect::describe(plan, &setup.again(plan))?;
            text.push_str(&format!(
                "arm {}, {} time(s) in turn with the other:\n{described}",
                arm.name, load.repeats
            ));
        }
        console.data(text.as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let _lock = lock(&met.found.facts)?;
    check_results(load)?;

    let redactor = found_with(first.found.clone(), &plan(&arms[1])?.request)
        .secrets
        .redactor();
    let mut results = arms.clone().map(|arm| ArmRuns {
        engine_args: redactor.argv(&arm.args),
        name: arm.name,
        runs: Vec::new(),
        profiles: Vec::new(),
    });
    let mut failure = None;
    let mut order = 0;
    'rounds: for _ in 0..load.repeats {
        for (arm, result) in arms.iter().zip(&mut results) {
            if stop.reason().is_some() {
                break 'rounds;
            }
            // An arm that failed would fail again; the other still has its figures.
            if result.runs.iter().any(|r| r.outcome != RunEnd::Completed) {
                continue;
            }
            order += 1;
            console.note(&format!(
                "run {order} of {}: {}",
                load.repeats * 2,
                words(&arm.name, &result.engine_args)
            ));
            let (paths, ended) = lane.run(plan(arm)?).await?;
            ended.captured.and(ended.stored)?;
            result.runs.push(Run {
                order,
                profile: paths
                    .file_name()
                    .map(|n| n.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                outcome: ended.profile.metadata.outcome.clone(),
            });
            result.profiles.push(ended.profile);
            if let Some(why) = ended.failure {
                console.warning(&format!("arm {}: {why}", arm.name));
                failure.get_or_insert(why);
            }
        }
    }
    console.finish();
    let [a, b] = results;
    let model = load.model.clone();
    let Some(mut ablation) = Ablation::of(a, b, model, started.to_string()) else {
        return Err(failure.unwrap_or_else(|| stop.failure()).into());
    };
    ablation.graphs = thresholds.map(|t| GraphReading::of(&ablation.comparison, t));
    store(console, load, &ablation)?;
    match failure {
        Some(failure) => Err(failure.into()),
        None if stop.reason().is_some() => Err(stop.failure().into()),
        None => Ok(ExitCode::Done),
    }
}

/// `eager (--enforce-eager)`.
fn words(name: &str, args: &[String]) -> String {
    match args.is_empty() {
        true => format!("{name} (no arguments of its own)"),
        false => format!("{name} ({})", args.join(" ")),
    }
}

/// Writes the comparison and shows it.
fn store(console: &Console, load: &LoadArgs, ablation: &Ablation) -> anyhow::Result<()> {
    let mut document = serde_json::to_vec_pretty(ablation)?;
    document.push(b'\n');
    let path = match &load.output {
        Some(file) => file.clone(),
        None => {
            let folder = load.results_dir.join("ablations");
            private::create_folders(&folder).map_err(|e| {
                Failure::environment(format!("cannot write results to `{}`", folder.display()))
                    .caused_by(e)
            })?;
            let model = ablation.model.as_deref().unwrap_or(&ablation.container);
            let time = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S");
            free_name(&folder, &format!("{}-ablation_{time}", file_word(model)))
        }
    };
    let stored = write_atomically(&path, &document);
    if load.json {
        console.data(&document)?;
    } else {
        console.data(report::ablation::render(ablation, console.text_options()).as_bytes())?;
    }
    stored?;
    console.note(&format!("comparison: {}", path.display()));
    Ok(())
}

/// One run after the other in the same container.
struct Lane<'a> {
    console: &'a Console,
    met: &'a Met,
    load: LoadArgs,
    stop: &'a Stop,
    /// What the first run found out, for the others.
    setup: Option<Setup>,
}

impl Lane<'_> {
    /// One run, and the file of its profile.
    async fn run(&mut self, plan: Plan) -> anyhow::Result<(PathBuf, Concluded)> {
        let stop = self.stop.part();
        let clock = Clock::start();
        let _deadline = Deadline::start(self.load.timeout.as_secs_f64(), &stop);
        let runtime = &self.met.runtime;
        let setup = match &self.setup {
            Some(known) => known.again(&plan),
            None => {
                let setup =
                    collect::inspect(runtime, &plan, &clock, &stop, &self.console.sink()).await?;
                self.setup = Some(setup.again(&plan));
                setup
            }
        };
        let memory = open_backend(&self.load, &clock, &Target::of(&plan.found.facts))?;
        let name = &plan.found.facts.name;
        let (paths, writer) = open_results(&self.load, setup.model.as_deref().unwrap_or(name))?;
        let news = self.console.sink();
        let tools = Instruments::start(&clock, memory, &plan, writer, &stop, news)?;
        let collected = collect::collect(runtime, &plan, Some(setup), tools).await;
        let ended = derive_and_store(&self.console.sink(), &paths, collected)?;
        Ok((paths.profile, ended))
    }
}
