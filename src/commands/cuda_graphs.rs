//! `plimsoll cuda-graphs`: what CUDA graphs cost. TensorRT-LLM by a probe that loads two engines;
//! engines that can run without graphs by an A/B of both.

use super::ablate::{ArmPlan, compare_arms};
use super::load::{check_results, load_request, publish_document, run_stoppable};
use crate::capture::ContainerFacts;
use crate::cli::{CudaGraphsArgs, LoadArgs};
use crate::clock::Clock;
use crate::collect::{
    AttachedEngine, ProbeJob, StopSignal, find_running, lock_container, probe_graphs, run_id,
    unless_stopped,
};
use crate::compare::graph_report::{
    ArmOutcome, GraphReport, GraphSettings, ProbeError, experiment_name,
};
use crate::compare::graphs::Thresholds;
use crate::console::Console;
use crate::container::Runtime;
use crate::container::inspect::InspectedContainer;
use crate::engine::{self, EngineId};
use crate::error::{ExitCode, Failure};
use crate::progress::{Progress, Stage};
use crate::redact::Secrets;
use crate::report::graphs::graphs_report;
use crate::store::{file_word, free_path, write_atomically};
use std::path::Path;

pub fn run_cuda_graphs(console: &Console, args: CudaGraphsArgs) -> anyhow::Result<ExitCode> {
    if args.low_mib > args.strong_mib {
        return Err(
            Failure::usage("the threshold --low-mib is above --strong-mib")
                .hint("give --low-mib the smaller of the two")
                .into(),
        );
    }
    run_stoppable(console, async |stop| {
        (console.sink())(Progress::Stage(Stage::Inspect));
        let runtime = unless_stopped(stop, Runtime::connect()).await?;
        let found = unless_stopped(stop, find_running(&runtime, &args.container)).await?;
        if is_tensorrt_llm(&found.facts, args.load.engine.as_deref()) {
            return tensorrt_llm(console, &runtime, found, &args, stop).await;
        }
        with_and_without(console, &runtime, found, &args, stop).await
    })
}

/// Whether TensorRT-LLM is in the container, by name.
fn is_tensorrt_llm(facts: &ContainerFacts, named: Option<&str>) -> bool {
    let engine = EngineId::TensorRtLlm;
    match named {
        Some(name) => EngineId::from_name(name) == Ok(engine),
        // Another engine's image may hold its library too.
        None => match engine::recognise(facts) {
            Some((found, _)) => found == engine,
            None => {
                engine.is_named_in(&facts.image) || facts.argv.iter().any(|w| engine.is_named_in(w))
            }
        },
    }
}

/// An engine that has a switch for its graphs: off against on.
async fn with_and_without(
    console: &Console,
    runtime: &Runtime,
    found: InspectedContainer,
    args: &CudaGraphsArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let attached = AttachedEngine::detect(runtime, found, args.load.engine.as_ref(), stop)
        .await
        .map_err(|f| {
            f.hint("or --engine tensorrt-llm, if the image's name does not identify it")
        })?;
    let Some(eager) = attached.engine.without_graphs else {
        return Err(Failure::usage(format!(
            "plimsoll knows no way to run {} without CUDA graphs",
            attached.engine.shown()
        ))
        .hint("where it has a setting for it, compare with `plimsoll ablate`")
        .into());
    };
    let load = LoadArgs {
        model: args.model_path.clone().or(args.load.model.clone()),
        ..args.load.clone()
    };
    if load.settings.enforce_eager {
        return Err(Failure::usage(
            "--enforce-eager turns CUDA graphs off: there is nothing to compare",
        )
        .hint("leave --enforce-eager out")
        .into());
    }
    let arms = [
        ArmPlan {
            name: "eager".into(),
            args: eager.iter().map(|w| (*w).to_owned()).collect(),
        },
        ArmPlan {
            name: "graphs".into(),
            args: Vec::new(),
        },
    ];
    compare_arms(console, attached, &load, arms, Some(thresholds(args)), stop).await
}

fn thresholds(args: &CudaGraphsArgs) -> Thresholds {
    Thresholds {
        low_mib: args.low_mib,
        strong_mib: args.strong_mib,
    }
}

/// Two engines, without `max_concurrency` and with it.
async fn tensorrt_llm(
    console: &Console,
    runtime: &Runtime,
    mut found: InspectedContainer,
    args: &CudaGraphsArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let load = &args.load;
    // The flag is required where the model is not named otherwise.
    let model_path = args.model_path.clone().or(load.model.clone());
    let model_path = model_path.ok_or_else(|| {
        Failure::usage("no model is named").hint("--model-path names its folder in the container")
    })?;
    let model_name = args.model_name.clone();
    let model_name = model_name.unwrap_or_else(|| file_word(&model_path));
    let settings = GraphSettings {
        max_batch_size: args.max_batch_size,
        max_draft_len: args.max_draft_len,
        max_concurrency_test: args.max_concurrency_test,
        max_seq_len: args.max_seq_len,
    };
    let requested = Secrets::gather_from([], &load_request(load, None)?.extra_engine_args);
    found.secrets.extend(&requested);
    let name = found.facts.name.clone();
    if engine::recognise(&found.facts).is_some_and(|(_, r)| r.serving) {
        console.print_warning(&format!(
            "container `{name}` serves already: the probe loads engines beside it"
        ));
    }
    let arms = [None, Some(args.max_concurrency_test)];
    if load.dry_run {
        let text: String = arms
            .iter()
            .map(|arm| {
                format!(
                    "would load {model_path} in container {name} as {}, batches up to {}, drafts of {}\n",
                    experiment_name(*arm),
                    settings.max_batch_size,
                    settings.max_draft_len
                )
            })
            .collect();
        console.write_data(text.as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let _lock = lock_container(&found.facts)?;
    check_results(load)?;
    let now = jiff::Zoned::now();
    let stem = format!(
        "results_{}_{}",
        file_word(&model_name),
        now.strftime("%Y%m%d_%H%M%S")
    );
    let path = match &load.output {
        Some(file) => file.clone(),
        None => free_path(&load.results.dir, &stem, ".json"),
    };
    let mut outcomes = Vec::new();
    for max_concurrency in arms {
        // What failed for want of a module or a model would fail again.
        if let Some(first) = outcomes.iter().find_map(hopeless) {
            let error = ProbeError {
                message: format!("not run after the first arm: {}", first.message),
                ..first
            };
            outcomes.push(ArmOutcome {
                max_concurrency,
                probe: crate::compare::graph_report::ProbeResult {
                    error: Some(error),
                    ..Default::default()
                },
                ..Default::default()
            });
            continue;
        }
        console.print_note(&format!(
            "Running experiment: {}",
            experiment_name(max_concurrency)
        ));
        (console.sink())(Progress::Stage(Stage::Bench {
            repeat: outcomes.len() as u32 + 1,
            of: arms.len() as u32,
        }));
        let clock = Clock::start();
        let memory = match load.memory_backend.open_backend(&clock, &found.facts) {
            Ok(backend) => Some(backend),
            Err(failure) => {
                console.print_warning(&format!("memory is not read from the host: {failure}"));
                None
            }
        };
        let job = ProbeJob {
            run_id: run_id(),
            model_path: model_path.clone(),
            max_batch_size: settings.max_batch_size,
            max_draft_len: settings.max_draft_len,
            max_seq_len: settings.max_seq_len,
            max_concurrency,
            deadline: load.timeout,
            interval: load.sample_interval,
        };
        let probed = probe_graphs(runtime, &found, &job, memory, &clock, stop).await?;
        let log = path.with_extension(format!("{}.log", experiment_name(max_concurrency)));
        write_atomically(&log, probed.output.as_bytes())?;
        outcomes.push(probed.outcome);
    }
    let [a, b] =
        <[ArmOutcome; 2]>::try_from(outcomes).map_err(|_| anyhow::anyhow!("an arm is missing"))?;
    let head = GraphReport {
        timestamp: now.timestamp().to_string(),
        container: name,
        image: found.facts.image.clone(),
        model_name,
        model_path,
        settings,
        thresholds: thresholds(args),
        ..GraphReport::default()
    };
    let failed = [&a, &b].into_iter().find_map(|o| o.probe.error.clone());
    let report = GraphReport::report_of_arms(head, [a, b]);
    console.finish_drawing();
    publish_document(console, &report, ("results", &path), load.json, || {
        Ok(graphs_report(&report))
    })?;
    match failed {
        Some(error) => Err(failure_of(&error, &path).into()),
        None => Ok(ExitCode::Done),
    }
}

/// An error that the second arm would meet too.
fn hopeless(outcome: &ArmOutcome) -> Option<ProbeError> {
    let error = outcome.probe.error.clone()?;
    matches!(error.kind.as_str(), "missing_module" | "model_path").then_some(error)
}

/// What went wrong in the probe, with its way out.
fn failure_of(error: &ProbeError, path: &Path) -> Failure {
    let message = &error.message;
    let folder = path.parent().unwrap_or(Path::new("."));
    let printed = format!("the whole output is in `{}`", folder.display());
    match error.kind.as_str() {
        "missing_module" => Failure::environment(format!("a module is missing in the container: {message}"))
            .hint("name a container of a TensorRT-LLM image: the probe needs its Python package and all that it imports (xgrammar and others)"),
        "model_path" => Failure::usage(message.clone())
            .hint("--model-path is a path inside the container: mount the model there"),
        "out_of_memory" => Failure::run(message.clone())
            .hint("use a smaller --max-batch-size or --max-seq-len, or a smaller model; what else is on the GPU shows `plimsoll top --once`")
            .hint(printed),
        "unsupported" => Failure::run(message.clone())
            .hint("max_concurrency of speculative decoding came with release 1.0")
            .hint(printed),
        _ => Failure::run(message.clone()).hint(printed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensorrt_llm_is_recognised_by_its_name() {
        let facts = |image: &str, argv: &[&str]| ContainerFacts {
            image: image.into(),
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            ..ContainerFacts::default()
        };
        let recognised = |image, argv: &[&str]| is_tensorrt_llm(&facts(image, argv), None);
        assert!(recognised(
            "nvidia/tensorrt-llm/release:1.2.0",
            &["sleep", "infinity"]
        ));
        assert!(recognised("mine", &["trtllm-serve", "/m"]));
        assert!(!recognised("mine", &["sleep", "infinity"]));
        assert!(!recognised("vllm/vllm-openai", &["vllm", "serve", "m"]));
        assert!(is_tensorrt_llm(&facts("mine", &[]), Some("TensorRT-LLM")));
        assert!(!is_tensorrt_llm(&facts("tensorrt-llm", &[]), Some("vllm")));
    }

    #[test]
    fn every_kind_of_failure_has_its_way_out() {
        let failure = |kind: &str| {
            let error = ProbeError {
                kind: kind.into(),
                message: "what was said".into(),
            };
            failure_of(&error, Path::new("results/r.json"))
        };
        assert_eq!(failure("missing_module").code, ExitCode::Environment);
        assert_eq!(failure("model_path").code, ExitCode::Usage);
        for kind in ["out_of_memory", "unsupported", "failed"] {
            assert_eq!(failure(kind).code, ExitCode::RunFailed, "{kind}");
            assert!(failure(kind).message.contains("what was said"));
        }
        assert!(failure("out_of_memory").hints[0].contains("--max-batch-size"));
    }
}
