//! `plimsoll loadline`: how much load a running engine holds, predicted and measured.

mod rounds;

use super::load::{attach_container, latency_limits, publish_document, run_until_stopped};
use crate::capture::RunEnd;
use crate::cli::LoadlineArgs;
use crate::collect::StopSignal;
use crate::console::Console;
use crate::engine::LoadKind;
use crate::error::{ExitCode, Failure};
use crate::estimate::Model;
use crate::estimate::model::from_config;
use crate::loadline::{
    ConcurrencySearch, Loadline, LoadlineRound, Objectives, Prediction, Resource, RoundFailure,
    Stride, TokenLengths, check_round, predict_concurrency,
};
use crate::profile::Profile;
use crate::report::chapters::document_report;
use crate::store;
use crate::store::{claim_folder, file_word, free_path, private};
use rounds::RoundRunner;
use std::path::{Path, PathBuf};

/// First concurrency without a prediction and without --start.
const FIRST: u32 = 8;

pub fn run_loadline(console: &Console, args: LoadlineArgs) -> anyhow::Result<ExitCode> {
    // Whatever can be refused without a look is refused without one.
    let objectives = latency_limits(&args.slo, args.slo_percentile)?;
    if let Some(start) = args.start.filter(|n| *n > args.max_concurrency) {
        return Err(Failure::usage(format!(
            "--start {start} is above --max-concurrency {}: the first round would be more than is allowed",
            args.max_concurrency
        ))
        .hint("give a smaller --start, or a larger --max-concurrency")
        .into());
    }
    let words = "stopping: finished rounds are kept (press again to exit at once)";
    run_until_stopped(console, Some(words), async |stop| {
        loadline(console, args, objectives, stop).await
    })
}

async fn loadline(
    console: &Console,
    args: LoadlineArgs,
    objectives: Objectives,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let attached = attach_container(console, &args.container, args.engine.as_ref(), stop).await?;
    let name = attached.name().to_owned();
    if !attached.is_serving() {
        return Err(Failure::usage(format!(
            "no engine serves in container `{name}`: there is nothing to send requests to"
        ))
        .hint("start the server in it; `plimsoll estimate --solve` calculates what would fit")
        .into());
    }
    let _lock = attached.take_lock()?;
    let folder = new_folder(&args.results.dir, &name)?;
    let mut runner = RoundRunner::new(console, attached, &args, stop, folder.clone())?;

    let (look, at) = match runner.look_at_engine().await {
        Ok(found) => found,
        Err(failure) => {
            // What the engine printed before it failed is named in the hints, and stays.
            if failure.code != ExitCode::RunFailed {
                discard(&folder);
            }
            return Err(match stop.stop_reason() {
                Some(RunEnd::Interrupted) => {
                    let words = "interrupted before the first round: nothing is kept";
                    Failure::new(ExitCode::Interrupted, words).into()
                }
                _ => failure.into(),
            });
        }
    };
    let model = model_of(&look, &at);
    let lengths = TokenLengths {
        input: args.input_len.into(),
        output: args.output_len.into(),
    };
    let mut line = Loadline::begin_document(&look, jiff::Timestamp::now().to_string(), lengths);
    line.waves = args.waves;
    line.tolerance_percent = args.tolerance * 100.0;
    line.max_rounds = args.max_rounds;
    line.max_concurrency = args.max_concurrency;
    line.objectives = objectives;
    line.prediction = predict_concurrency(&look, model.as_ref(), lengths);
    if let Some(limit) = line.prediction.limit_for(Resource::Length) {
        discard(&folder);
        return Err(Failure::usage(format!(
            "no request of these lengths fits: {}",
            limit.formula
        ))
        .hint("shorter requests: --input-len, --output-len; or a longer --max-model-len of the engine")
        .into());
    }
    note_prediction(console, &line.prediction);

    let mut search = search(&args, &line);
    let mut failure = None;
    if !args.predict_only {
        let rounds = Rounds {
            console,
            runner: &mut runner,
            look: &look,
            model: model.as_ref(),
            args: &args,
        };
        failure = rounds
            .run_loadline(&mut line, &mut search, stop)
            .await
            .err();
    }
    line.outcome = match (stop.stop_reason(), &failure) {
        (Some(reason), _) => reason,
        (None, Some(failure)) => RunEnd::Failed(failure.message.clone()),
        (None, None) => RunEnd::Completed,
    };
    line.conclude_search(&look, search.search_outcome());
    console.finish_drawing();
    let path = free_path(&folder, "loadline", ".json");
    publish_document(console, &line, ("load line", &path), args.json, || {
        Ok(document_report("load_line", &line)?)
    })?;
    match failure {
        Some(failure) => Err(failure.into()),
        None if stop.stop_reason().is_some() => Err(stop.stop_failure().into()),
        None if sustains_nothing(&line) => Err(Failure::run(
            "no load that was tried keeps the limits on latency",
        )
        .hint(if line.rounds.iter().any(|round| round.concurrency == 1) {
            "one request alone misses it: ease that limit"
        } else {
            "ease that limit, or try fewer requests: --start 1, more --max-rounds"
        })
        .into()),
        None => Ok(ExitCode::Done),
    }
}

/// Whether limits were asked for, and every round missed them.
fn sustains_nothing(line: &Loadline) -> bool {
    let held = line.measured.as_ref().map(|m| m.concurrency.unwrap_or(0));
    held == Some(0) && !line.objectives.0.is_empty()
}

/// The folder of this run, new.
fn new_folder(results: &Path, container: &str) -> Result<PathBuf, Failure> {
    let all = results.join("loadline");
    let unwritable = |e: std::io::Error| {
        Failure::environment(format!("cannot write results to `{}`", all.display()))
            .hint("choose another place with --results-dir")
            .caused_by(e)
    };
    private::create_folders(&all).map_err(unwritable)?;
    let time = jiff::Zoned::now().strftime("%Y%m%d_%H%M%S");
    let stem = format!("{}-{time}", file_word(container));
    claim_folder(&all, &stem).map_err(unwritable)
}

/// Removes the folder of a run that ends before it has results: it was made a moment ago, and
/// without its document it has no meaning.
fn discard(folder: &Path) {
    if let Err(e) = std::fs::remove_dir_all(folder) {
        log::warn!("cannot remove `{}`: {e}", folder.display());
    }
}

/// The model by its config.json in the capture; `None` where that is not enough.
fn model_of(look: &Profile, profile: &Path) -> Option<Model> {
    let config = store::model_config(profile)?;
    let name = look.model_info.name.as_deref().unwrap_or("model");
    from_config(name, &config, "config.json of the run").ok()
}

/// Begins at the prediction. Latency is not predicted, and its line may be far below.
fn search(args: &LoadlineArgs, line: &Loadline) -> ConcurrencySearch {
    let predicted = line.prediction.concurrency.filter(|n| *n > 0);
    let predicted = predicted.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let near = args.start.is_none() && predicted.is_some() && line.objectives.0.is_empty();
    let stride = if near { Stride::Near } else { Stride::Doubling };
    let start = args.start.or(predicted).unwrap_or(FIRST);
    ConcurrencySearch::new(
        start,
        args.max_concurrency,
        stride,
        args.tolerance,
        args.max_rounds,
    )
}

fn note_prediction(console: &Console, prediction: &Prediction) {
    match (prediction.concurrency, prediction.resource) {
        (Some(n), Some(resource)) => console.print_note(&format!(
            "predicted: {n} concurrent requests, limited by {resource}"
        )),
        _ => console.print_note("no prediction: the engine reports none of its limits"),
    }
}

/// The rounds of one search.
struct Rounds<'a, 'b> {
    console: &'a Console,
    runner: &'a mut RoundRunner<'b>,
    look: &'a Profile,
    model: Option<&'a Model>,
    args: &'a LoadlineArgs,
}

impl Rounds<'_, '_> {
    async fn run_loadline(
        self,
        line: &mut Loadline,
        search: &mut ConcurrencySearch,
        stop: &StopSignal,
    ) -> Result<(), Failure> {
        let mut number = 0;
        while let Some(ahead) = search.next_round() {
            if stop.stop_reason().is_some() {
                return Ok(());
            }
            number += 1;
            let requests = ahead.concurrency.saturating_mul(self.args.waves);
            let again = if ahead.again { ", again" } else { "" };
            self.console.print_note(&format!(
                "round {number} of at most {}: {requests} requests, {} concurrent, input {}, output {} tokens{again}",
                self.args.max_rounds, ahead.concurrency, self.args.input_len, self.args.output_len
            ));
            let made = self
                .runner
                .run_round(number, ahead.concurrency, requests)
                .await?;
            let mut faults = check_round(ahead.concurrency.into(), &made.round, &line.objectives);
            if let (Some(RoundFailure::Errors { first, .. }), Some(failure)) =
                (faults.first_mut(), &made.failure)
            {
                first.get_or_insert_with(|| failure.message.clone());
            }
            if let (true, Some(failure)) = (faults.is_empty(), &made.failure) {
                faults.push(RoundFailure::Errors {
                    failed: 0,
                    first: Some(failure.message.clone()),
                });
            }
            if stop.stop_reason().is_some() {
                // What was interrupted was not measured; its capture stays.
                return Ok(());
            }
            let held = faults.is_empty() && made.failure.is_none();
            let words: Vec<String> = faults.iter().map(RoundFailure::describe_fault).collect();
            self.console.print_note(&format!(
                "round {number}: {} concurrent: {}",
                ahead.concurrency,
                if held {
                    "sustained".to_owned()
                } else {
                    format!("failed: {}", words.join(", "))
                }
            ));
            // A round ended by a lost engine or by a timeout does not measure this load.
            if !made.over {
                search.record_round(ahead.concurrency, held);
            }
            let counted = made.round.input_tokens;
            let silent = made.round.completed == 0;
            line.add_round(LoadlineRound {
                number,
                concurrency: ahead.concurrency,
                requests,
                again: ahead.again,
                held,
                faults,
                ran_out: None,
                seen: made.round,
                profile: made.profile,
            });
            // Where nothing at all was answered, a smaller load would not be either.
            if let Some(failure) = made.failure.filter(|_| made.over || silent) {
                return Err(failure);
            }
            if number == 1 {
                self.correct(line, search, counted);
            }
        }
        Ok(())
    }

    /// Some servers count other tokens than were asked for. What fits follows from theirs.
    fn correct(&self, line: &mut Loadline, search: &mut ConcurrencySearch, counted: Option<f64>) {
        let Some(input) = counted.map(|n| n.round() as u64) else {
            return;
        };
        let asked = line.lengths.input;
        if input.abs_diff(asked) as f64 <= asked as f64 * 0.02 {
            return;
        }
        let lengths = TokenLengths {
            input,
            ..line.lengths
        };
        line.prediction = predict_concurrency(self.look, self.model, lengths);
        self.console.print_note(&format!(
            "the server counts {input} tokens in a prompt of {asked}"
        ));
        note_prediction(self.console, &line.prediction);
        let near = self.args.start.is_none() && line.objectives.0.is_empty();
        if let Some(n) = line.prediction.concurrency.filter(|n| *n > 0 && near) {
            search.start_at(u32::try_from(n).unwrap_or(u32::MAX));
        }
    }
}

/// What the load of a round is.
const KIND: LoadKind = LoadKind::Builtin;
