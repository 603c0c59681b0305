//! `plimsoll tune`: the settings that serve most within limits, in a fraction of the starts.

mod choice;
mod hosts;
mod measure;

use super::experiment::sweep_options;
use super::load::{latency_limits, publish_document, quote_path, run_stoppable};
use super::sweep::fit::ask_estimates;
use super::sweep::place::RunPlace;
use super::sweep::remote::{RemoteRun, run_remotely};
use super::sweep::results::{read_environment, write_environment};
use super::sweep::same_run;
use super::sweep::slurm::{ShardWork, Submission, submit_shards};
use super::validate::calculate;
use crate::capture::RunEnd;
use crate::cli::{TuneArgs, words_to_pass_on};
use crate::collect::{self, StopSignal, engine_of_image, unless_stopped};
use crate::compare::validate::RunValidation;
use crate::console::Console;
use crate::container::Runtime;
use crate::engine::{EngineId, ServeJob};
use crate::error::{ExitCode, Failure};
use crate::estimate::question::Answer;
use crate::matrix::{
    Cell, CellGroup, EnginePlace, GroupId, OomMemory, PlanOptions, ServerConfig, Shard,
    SweepDefinition, SweepPlan,
};
use crate::report::layout::{counted_noun, counted_words, format_duration, format_figure};
use crate::report::tune::{describe_nearest, tune_report};
use crate::store::{ProfileFile, file_word, read_profile};
use crate::sweep::merge::{default_output, merge_runs};
use crate::sweep::{
    DeviceClaim, DeviceClaims, Folder, Journal, SweepHistory, SweepOptions, SweepSession, folder,
};
use crate::tune::{
    BestSettings, NextCandidate, Trial, TrialState, Tuning, TuningGoal, TuningLimits, TuningSearch,
    default_starts, refused_flag, starts_of_part,
};
use choice::{TuningChoice, named_file, read_choice};
use hosts::{read_environments, refuse_mixed_hosts, refuse_other_host};
use measure::{TuningMeasure, TuningRun};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of all runs, in the results directory.
const RUNS: &str = "tune";
/// The file of the answer.
const ANSWER_FILE: &str = "tune.json";
/// How the reason for the end begins where --budget is used up.
const BUDGET_USED: &str = "the time";

pub fn run_tune(console: &Console, args: TuneArgs) -> anyhow::Result<ExitCode> {
    let limits = TuningLimits {
        objectives: latency_limits(&args.slo, args.slo_percentile)?,
        headroom_percent: args.headroom,
    };
    run_stoppable(console, async |stop| {
        tune(console, &args, &limits, stop).await
    })
}

async fn tune(
    console: &Console,
    args: &TuneArgs,
    limits: &TuningLimits,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let options = SweepOptions {
        compile_cache: !args.cold_starts,
        ..sweep_options(&args.flags, false, "a tuning")?
    };
    let (machines, flags) = (&args.machines, &args.flags);
    if flags.dry_run && args.resume.is_some() {
        return Err(Failure::usage("--dry-run shows the plan of a new search")
            .hint("leave --resume out, or --dry-run")
            .into());
    }
    let shard = RunPlace::parse_shard(machines)?;
    let elsewhere = machines.submit.is_some() || machines.docker_host.is_some();
    let named = args.resume.as_ref().filter(|p| !p.as_os_str().is_empty());
    let joined = named
        .filter(|path| SweepHistory::first_session(path).is_some_and(|session| session.joined));
    let unneeded = elsewhere || joined.is_some() && named_file(args).is_some();
    let runtime = if unneeded {
        None
    } else {
        Some(unless_stopped(stop, Runtime::connect()).await?)
    };
    let choice = read_choice(console, args, limits, runtime.as_ref(), stop).await?;
    let candidates = choice.servers.len();
    let measure = TuningMeasure::new(&choice, limits, flags);
    let asked = TuningQuestion {
        args,
        choice: &choice,
        measure: &measure,
        goal: args.goal,
        limits,
        max_starts: args
            .max_starts
            .map_or_else(|| default_starts(candidates), |n| n as usize)
            .min(candidates),
    };
    if let Some(path) = joined {
        return asked.answer_joined(console, path);
    }
    let place = RunPlace {
        verb: "tune",
        name: &choice.name,
        runs: flags.results.dir.join(RUNS),
        resume: args.resume.as_ref(),
        output_dir: flags.output_dir.as_ref(),
        retry_failed: false,
        shard,
        machines,
    };
    let Some(runtime) = runtime else {
        return run_elsewhere(console, &asked, &place, stop).await;
    };
    let unfit = what_does_not_fit(&choice, &runtime, &options, stop).await?;
    let mut excluded = unfit.clone();
    if let Some(shard) = shard {
        excluded.extend(asked.not_in_part(shard)?);
    }
    let mut search = asked.begin_search(excluded);
    if flags.dry_run {
        if flags.json {
            console.print_json(&plan_document(&choice, &search, asked.max_starts, &unfit))?;
        } else {
            let plan = describe_plan(&choice, &search, asked.max_starts, &unfit, shard);
            console.write_data(plan.as_bytes())?;
        }
        return Ok(ExitCode::Done);
    }
    let (folder, _) = place.open_folder(console)?;
    let (mut journal, history) = Journal::open_folder(folder.path())?;
    let name = format!("{RUNS}-{}", choice.name);
    same_run(&history, &name, false, shard, folder.path())?;
    refuse_other_host(folder.path(), read_environment(&runtime))?;
    measure.know_run(folder.path(), &history, true);
    // What a part knows of other runs would be missing where the parts are joined.
    if !args.again && shard.is_none() {
        know_earlier_runs(&measure, args, folder.path());
    }
    let started = jiff::Timestamp::now().to_string();
    journal.write_session(&SweepSession::new(&name, started.clone(), false, shard))?;
    drop(journal);
    write_environment(&folder, &runtime)?;
    console.print_note(&format!(
        "{} of {}, {} at most; results: {}",
        counted_noun(candidates, "combination"),
        counted_noun(choice.space.axes.len(), "setting"),
        counted_noun(asked.max_starts, "start"),
        folder.path().display()
    ));
    let run = TuningRun {
        name: &name,
        runtime: &runtime,
        options: &options,
        folder: &folder,
        stop,
    };
    let clock = WorkClock {
        before_s: history.worked_s(),
        since: Instant::now(),
        budget: args.budget,
    };
    let unended = match shard {
        Some(_) => measure.stored_trials(&mut search, &history, false)?,
        None => None,
    };
    let part = shard.map(|shard| (shard, unended));
    let ended = run_search(console, &asked, &run, &mut search, &clock, part).await;
    let (ended_by, failure) = match ended {
        Ok(ended_by) => (ended_by, None),
        Err(failure) => ("the run ended before".to_owned(), Some(failure)),
    };
    let ending = Tuning {
        timestamp: history
            .sessions
            .first()
            .map_or(started, |s| s.started.clone()),
        took_s: clock.worked_s(),
        outcome: match (stop.stop_reason(), &failure) {
            (Some(reason), _) => reason,
            (None, Some(failure)) => RunEnd::Failed(failure.message.clone()),
            (None, None) => RunEnd::Completed,
        },
        ..Tuning::default()
    };
    let answer = asked.publish_answer(console, &search, &folder, ending, &ended_by)?;
    match failure {
        Some(failure) => Err(failure.hint(go_on(folder.path())).into()),
        None if answer.best.is_none() => Err(nothing_keeps_limits(&answer).into()),
        None => Ok(ExitCode::Done),
    }
}

/// The search on a cluster or on another machine.
async fn run_elsewhere(
    console: &Console,
    asked: &TuningQuestion<'_>,
    place: &RunPlace<'_>,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let flags = &asked.args.flags;
    let words = words_to_pass_on(std::env::args_os());
    let text = asked.choice.text.as_deref();
    if let Some(url) = &place.machines.docker_host {
        let remote = RemoteRun {
            words,
            text,
            dry_run: flags.dry_run,
            json: flags.json,
            go_on: &|here| go_on(here),
        };
        return run_remotely(console, url, place, &remote, stop).await;
    }
    let cells = asked.all_cells();
    let work = ShardWork {
        words,
        text,
        cells: &cells.iter().collect::<Vec<&Cell>>(),
        groups: asked.max_starts,
        results: &flags.results.dir,
    };
    match submit_shards(console, place, &work, stop).await? {
        Submission::Ended(code) => Ok(code),
        Submission::Over(_, dirs) => {
            let now = jiff::Zoned::now();
            let merged = merge_runs(&dirs, &default_output(&dirs, &now), &now)?;
            let notes = merged.results.notes.iter();
            notes.for_each(|note| console.print_note(note));
            asked.answer_joined(console, &merged.folder)
        }
    }
}

/// What is asked for, and of what.
struct TuningQuestion<'a> {
    args: &'a TuneArgs,
    choice: &'a TuningChoice,
    measure: &'a TuningMeasure<'a>,
    goal: TuningGoal,
    limits: &'a TuningLimits,
    /// Of all parts together, unless the user sets it.
    max_starts: usize,
}

impl<'a> TuningQuestion<'a> {
    fn begin_search(&self, excluded: BTreeMap<usize, String>) -> TuningSearch<'a> {
        let goal = (self.goal, self.limits);
        let seed = self.args.flags.seed.unwrap_or(0);
        TuningSearch::new(&self.choice.space, goal, seed, self.max_starts, excluded)
    }

    /// Every cell of every candidate.
    fn all_cells(&self) -> Vec<Cell> {
        let candidates = 0..self.choice.servers.len();
        candidates.flat_map(|c| self.measure.cells_of(c)).collect()
    }

    /// The candidates that other parts have, as a sweep deals out its groups.
    fn not_in_part(&self, shard: Shard) -> Result<BTreeMap<usize, String>, Failure> {
        let sweep = SweepDefinition {
            name: self.choice.name.clone(),
            cells: self.all_cells(),
            ..SweepDefinition::default()
        };
        let options = PlanOptions {
            fresh: false,
            shard: Some(shard),
            only: &[],
            known_oom: &OomMemory::default(),
            retry_oom: false,
        };
        let plan = SweepPlan::for_sweep(&sweep, &options)?;
        let servers = self.choice.servers.iter().map(|s| GroupId::of_server(s));
        let others = servers
            .enumerate()
            .filter(|(_, id)| plan.groups.iter().all(|g| g.id != *id));
        Ok(others
            .map(|(candidate, _)| (candidate, "another part of the search has it".to_owned()))
            .collect())
    }

    /// Starts of a part at most: as many as a whole search has, until all other parts are seen to search too.
    fn starts_of_part(&self, shard: Shard, others: u32) -> usize {
        match self.args.max_starts {
            None if others + 1 == shard.of => starts_of_part(self.max_starts, shard.of),
            _ => self.max_starts,
        }
    }

    /// Answers by what the parts of a search measured, and starts nothing.
    fn answer_joined(&self, console: &Console, path: &Path) -> anyhow::Result<ExitCode> {
        let folder = Folder::open_earlier(path, &jiff::Zoned::now())?;
        let history = SweepHistory::read_journal(path)?;
        refuse_mixed_hosts(&[path])?;
        self.measure.know_run(path, &history, true);
        let mut search = self.begin_search(BTreeMap::new());
        self.measure.stored_trials(&mut search, &history, true)?;
        if search.trials.is_empty() {
            return Err(Failure::usage(format!(
                "`{}` has no measurement of these settings under these loads",
                path.display()
            ))
            .hint("repeat the sweep file and the flags of the runs that `plimsoll sweep merge` joined here")
            .into());
        }
        let ending = Tuning {
            timestamp: (history.starts.iter().map(|s| s.at.clone()).min()).unwrap_or_default(),
            took_s: search.trials.iter().map(|t| t.took_s).sum(),
            outcome: RunEnd::Completed,
            ..Tuning::default()
        };
        let ended_by = "no part of the search started it; the reason is in `tune.json` of its part";
        let answer = self.publish_answer(console, &search, &folder, ending, ended_by)?;
        match answer.best {
            None => Err(nothing_keeps_limits(&answer).into()),
            Some(_) => Ok(ExitCode::Done),
        }
    }

    /// `ending`: its start, the time it took and how it ended; `ended_by`: the reason of what was not tried.
    fn publish_answer(
        &self,
        console: &Console,
        search: &TuningSearch<'_>,
        folder: &Folder,
        ending: Tuning,
        ended_by: &str,
    ) -> anyhow::Result<Tuning> {
        console.finish_drawing();
        let (args, choice) = (self.args, self.choice);
        let (engine, engine_version, simulated) = self.measure.engine_facts();
        let goal = (self.goal, self.limits);
        let winner = match search.winner() {
            Some(trial) => winner_facts(choice, trial, goal, engine.as_deref())?,
            None => BestSettings::default(),
        };
        let mut notes = notes_on_trials(search);
        if ended_by.starts_with(BUDGET_USED) {
            notes.push(format!("the search ended early: {ended_by}"));
        }
        // Other parts name their own starts.
        let is_cut_off = ending.outcome != RunEnd::Completed && args.machines.shard.is_none();
        match self.measure.unfinished_loads(search) {
            (starts @ 1.., loads) if is_cut_off => notes.push(format!(
                "{} unfinished, {} kept: --resume goes on with them",
                counted_noun(starts, "start"),
                counted_noun(loads, "load")
            )),
            _ => {}
        }
        let head = Tuning {
            model: common_text(choice, |server| server.model.clone()),
            place: common_text(choice, |server| server.place.place_name().to_owned()),
            engine,
            engine_version,
            simulated,
            seed: args.flags.seed.unwrap_or(0),
            max_starts: u32::try_from(search.max_starts).unwrap_or(u32::MAX),
            budget_s: args.budget.map(|budget| budget.as_secs_f64()),
            lengths: choice.lengths,
            levels: choice.levels.clone(),
            repeats: args.flags.repeats,
            notes,
            ..ending
        };
        let answer = Tuning::conclude_search(head, ended_by, search, goal, winner);
        let path = folder.path().join(ANSWER_FILE);
        publish_document(console, &answer, ("answer", &path), args.flags.json, || {
            Ok(tune_report(&answer))
        })?;
        Ok(answer)
    }
}

/// Time that this and earlier processes worked on a run.
struct WorkClock {
    before_s: f64,
    since: Instant,
    budget: Option<Duration>,
}

impl WorkClock {
    fn worked_s(&self) -> f64 {
        self.before_s + self.since.elapsed().as_secs_f64()
    }

    /// Whether another start would probably end after the budget: it takes as long as those before it, on average.
    fn is_short_for(&self, trials: &[Trial]) -> bool {
        let started = || trials.iter().filter(|t| !t.measured_before);
        let mean = started().map(|t| t.took_s).sum::<f64>() / started().count().max(1) as f64;
        let after = self.worked_s() + mean;
        self.budget
            .is_some_and(|budget| after > budget.as_secs_f64())
    }
}

/// Starts the candidates; gives why it ended, a clause. A part of a search starts one after the other: what is running
/// in a part cannot be seen by the others.
async fn run_search(
    console: &Console,
    asked: &TuningQuestion<'_>,
    run: &TuningRun<'_>,
    search: &mut TuningSearch<'_>,
    clock: &WorkClock,
    part: Option<(Shard, Option<usize>)>,
) -> Result<String, Failure> {
    let measure = asked.measure;
    let mut claims = DeviceClaims::new(run.runtime, run.options.memory);
    let mut claimed = Vec::new();
    for server in &asked.choice.servers {
        // What a candidate lacks is reported when it is started.
        claimed.push(claims.claim_of(&server.place).await.ok());
    }
    let mut unended = part.and_then(|(_, unended)| unended);
    loop {
        if let Some((shard, _)) = part {
            let (others, seen) = measure.other_parts(search, run.folder.path(), shard)?;
            search.know_others(others, asked.starts_of_part(shard, seen));
        }
        // What an earlier process was at comes first.
        let first = unended.take().map(|candidate| NextCandidate {
            candidate,
            predicted_score: search.predicted_score(candidate),
        });
        let Some(first) = first.or_else(|| search.next_candidate()) else {
            break;
        };
        if run.stop.stop_reason().is_some() {
            return Err(run.stop.stop_failure());
        }
        if clock.is_short_for(&search.trials) {
            let budget = clock.budget.unwrap_or_default().as_secs_f64();
            return Ok(format!(
                "{BUDGET_USED} of {} was used",
                format_duration(budget)
            ));
        }
        let next = match part {
            Some(_) => vec![first],
            None => fill_devices(search, &claimed, first),
        };
        let started = search.trials.len() + 1;
        for (number, next) in (started..).zip(&next) {
            let words = search.space.describe_candidate(next.candidate);
            let expected = next.predicted_score.map_or(String::new(), |score| {
                format!(" (expected score {})", format_figure(score))
            });
            console.print_note(&format!("start {number}: {words}{expected}"));
        }
        let candidates: Vec<usize> = next.iter().map(|next| next.candidate).collect();
        let trials = measure
            .measure_candidates(console, run, search, &candidates)
            .await?;
        for ((number, next), mut trial) in (started..).zip(&next).zip(trials) {
            trial.predicted_score = next.predicted_score;
            console.print_note(&format!(
                "start {number}: {}",
                describe_trial(search, &trial)
            ));
            let flag = trial
                .reason
                .as_deref()
                .and_then(refused_flag)
                .map(str::to_owned);
            search.record_trial(trial);
            if let Some(flag) = flag {
                exclude_refused(asked, search, &flag);
            }
        }
    }
    let tried = search.trials.len() + search.excluded.len();
    if tried == search.space.candidates.len() {
        return Ok("nothing is left to try".into());
    }
    let starts = search.trials.iter().filter(|t| !t.measured_before).count();
    Ok(format!("all {} were used", counted_noun(starts, "start")))
}

/// Leaves out the candidates whose engine would be started with a flag that it refused before.
fn exclude_refused(asked: &TuningQuestion<'_>, search: &mut TuningSearch<'_>, flag: &str) {
    let is_flag = |word: &str| word.split('=').next() == Some(flag);
    let tried: BTreeSet<usize> = search.trials.iter().map(|t| t.candidate).collect();
    for (candidate, server) in asked.choice.servers.iter().enumerate() {
        let line = start_commands(server, server.engine.as_deref());
        let line = line.map_or_else(|_| String::new(), |(line, _)| line);
        let has = server.engine_args.iter().any(|word| is_flag(word))
            || line.split_whitespace().any(is_flag);
        if has && !tried.contains(&candidate) {
            search.exclude_candidate(candidate, format!("the engine refuses `{flag}`"));
        }
    }
}

/// A candidate, and as many more as there are devices for beside it.
fn fill_devices(
    search: &TuningSearch<'_>,
    claimed: &[Option<DeviceClaim>],
    first: NextCandidate,
) -> Vec<NextCandidate> {
    let (mut busy, mut running) = (BTreeSet::new(), vec![first]);
    let mut last = first;
    loop {
        let take = |candidate: usize, busy: &BTreeSet<String>| {
            claimed.get(candidate)?.as_ref()?.try_take(busy)
        };
        let Some(taken) = take(last.candidate, &busy) else {
            return running;
        };
        busy.extend(taken.taken);
        let has_place = |candidate| take(candidate, &busy).is_some();
        let Some(next) = search.next_beside(&running, has_place) else {
            return running;
        };
        running.push(next);
        last = next;
    }
}

/// `measured: 812 generated tokens/s at 16 concurrent`, or why not.
fn describe_trial(search: &TuningSearch<'_>, trial: &Trial) -> String {
    let before = if trial.measured_before {
        ", by an earlier run"
    } else {
        ""
    };
    let best = search.final_load(trial);
    let figure = best.map_or(String::new(), |(load, score)| {
        format!(
            ": {} {} at {} concurrent",
            format_figure(score),
            search.goal.score_unit(),
            load.concurrency
        )
    });
    let reason = trial
        .reason
        .as_ref()
        .map_or(String::new(), |why| format!("; {why}"));
    match trial.state {
        TrialState::Measured => format!("measured{before}{figure}"),
        TrialState::Stopped => format!("stopped early{before}{figure}{reason}"),
        TrialState::Failed => format!("failed{before}{reason}"),
    }
}

/// The candidates that cannot fit by the estimate, with the reason.
async fn what_does_not_fit(
    choice: &TuningChoice,
    runtime: &Runtime,
    options: &SweepOptions,
    stop: &StopSignal,
) -> Result<BTreeMap<usize, String>, Failure> {
    let groups: Vec<CellGroup> = choice
        .servers
        .iter()
        .map(|server| CellGroup {
            id: GroupId::of_server(server),
            server: server.clone(),
            cells: Vec::new(),
        })
        .collect();
    let plan = SweepPlan {
        name: choice.name.clone(),
        groups,
        ..SweepPlan::default()
    };
    let verdicts = ask_estimates(&plan, Some(runtime), options.memory, stop).await;
    let refused = plan
        .groups
        .iter()
        .enumerate()
        .filter_map(|(candidate, group)| {
            let verdict = verdicts.get(&group.id)?;
            let why = || (candidate, format!("it does not fit: {}", verdict.why));
            let too_long = group
                .server
                .refused_length(choice.lengths.input, choice.lengths.output);
            match too_long {
                Some(why) => Some((candidate, why)),
                None => (verdict.answer == Answer::DoesNotFit).then(why),
            }
        });
    let excluded: BTreeMap<usize, String> = refused.collect();
    match excluded.values().next() {
        Some(why) if excluded.len() == choice.servers.len() => Err(Failure::new(
            ExitCode::DoesNotFit,
            format!("no combination fits; the first of them: {why}"),
        )
        .hint("give smaller values, or a larger GPU")),
        _ => Ok(excluded),
    }
}

/// Takes in what earlier runs of this host measured.
fn know_earlier_runs(measure: &TuningMeasure<'_>, args: &TuneArgs, own: &Path) {
    let runs = args.flags.results.dir.join(RUNS);
    let names = std::fs::read_dir(&runs).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let here = crate::host::read_facts().hostname;
    let of_here =
        |env: &serde_json::Value| env.pointer("/host/hostname") == Some(&here.as_str().into());
    let mut earlier: Vec<PathBuf> = names
        .flat_map(|name| folder::list_runs(&runs, &name))
        .collect();
    earlier.sort();
    for path in earlier
        .iter()
        .rev()
        .filter(|path| *path != own && read_environments(path).iter().any(of_here))
    {
        match SweepHistory::read_journal(path) {
            Ok(history) => measure.know_run(path, &history, false),
            Err(failure) => log::warn!("{failure}"),
        }
    }
}

/// What all candidates have in common; `None` where they differ.
fn common_text(choice: &TuningChoice, of: fn(&ServerConfig) -> String) -> Option<String> {
    let mut all = choice.servers.iter().map(|server| of(server));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// How to start the winner, and how far the memory estimate was off for it.
fn winner_facts(
    choice: &TuningChoice,
    trial: &Trial,
    (goal, limits): (TuningGoal, &TuningLimits),
    engine: Option<&str>,
) -> Result<BestSettings, Failure> {
    let Some(server) = choice.servers.get(trial.candidate) else {
        return Ok(BestSettings::default());
    };
    let (command, compose) = start_commands(server, engine)?;
    let measured = Trial::best_load(&trial.long_loads, goal, limits);
    let estimate = measured.and_then(|(load, _)| {
        let file = Path::new(&load.profile);
        let Ok(ProfileFile::Profile(profile)) = read_profile(file) else {
            return None;
        };
        let (calculated, _) = calculate(&profile, file);
        let run = RunValidation::validate_run(&profile, &load.profile, &calculated);
        Some(
            run.items
                .into_iter()
                .filter(|item| item.error_pct.is_some())
                .collect(),
        )
    });
    Ok(BestSettings {
        command: Some(command),
        compose,
        estimate: estimate.unwrap_or_default(),
        ..BestSettings::default()
    })
}

/// The line that starts a server, and a Compose file where it has a container of its own.
fn start_commands(
    server: &ServerConfig,
    engine: Option<&str>,
) -> Result<(String, Option<String>), Failure> {
    match &server.place {
        EnginePlace::Image(preset) => {
            let image = server.place.place_name();
            let named = server.engine.as_ref().or(preset.engine.as_ref());
            let (spec, _) = collect::launch_spec(collect::Launch {
                name: file_word(&server.model).to_lowercase(),
                image,
                run_id: "",
                preset,
                engine: engine_of_image(named, image)?,
                model: &server.model,
                settings: &server.settings,
                engine_args: &server.engine_args,
                longest: None,
            })?;
            Ok((spec.docker_line(), Some(spec.compose_file())))
        }
        EnginePlace::Container(name) => {
            let shown = server.redacted();
            let named = shown.engine.as_deref().or(engine);
            let engine = named.map(EngineId::from_name).transpose()?;
            let argv = engine.map_or_else(Vec::new, |engine| {
                engine.serve_argv(&ServeJob {
                    model: &shown.model,
                    port: engine.default_port,
                    settings: &shown.settings,
                    extra_engine_args: &shown.engine_args,
                })
            });
            let words = ["docker", "exec", "-d", name].map(str::to_owned);
            let line = shlex::try_join(words.iter().chain(&argv).map(String::as_str));
            Ok((line.unwrap_or_default() + "\n", None))
        }
    }
}

/// What must be known of the figures.
fn notes_on_trials(search: &TuningSearch<'_>) -> Vec<String> {
    let trials = &search.trials;
    let before = trials.iter().filter(|t| t.measured_before).count();
    let mut notes = Vec::new();
    if before > 0 {
        notes.push(format!(
            "{} measured by an earlier run, with engines of then; --again measures anew",
            counted_words(before, "combination was", "combinations were")
        ));
    }
    let loads = || {
        trials
            .iter()
            .flat_map(|t| t.short_loads.iter().chain(&t.long_loads))
    };
    if loads().next().is_some() && loads().all(|load| load.free_percent().is_none()) {
        notes.push("headroom is unknown: no device that was measured has a memory limit".into());
    }
    notes
}

/// The failure of a search in which nothing keeps the limits.
fn nothing_keeps_limits(answer: &Tuning) -> Failure {
    let failure = Failure::run(describe_nearest(answer));
    let mut reasons = answer.trials.iter().filter_map(|t| t.reason.as_deref());
    if let Some(flag) = reasons
        .find_map(refused_flag)
        .filter(|_| answer.nearest.is_none())
    {
        return failure.hint(format!("correct or leave out `{flag}`, then tune again"));
    }
    if answer.nearest.is_none() {
        return failure;
    }
    failure.hint("ease that limit, give other values to choose among, or fewer concurrent requests: --concurrency")
}

fn go_on(folder: &Path) -> String {
    let quoted = quote_path(folder);
    format!("go on with the same command and --resume={quoted}")
}

/// The plan as a document: settings as `name value`, candidates in words.
fn plan_document(
    choice: &TuningChoice,
    search: &TuningSearch<'_>,
    max_starts: usize,
    unfit: &BTreeMap<usize, String>,
) -> serde_json::Value {
    let words = |candidate: usize| choice.space.describe_candidate(candidate);
    let axes = choice.space.axes.iter();
    let settings: BTreeMap<&str, &[String]> = axes
        .map(|axis| (axis.name.as_str(), axis.values.as_slice()))
        .collect();
    let not_started: BTreeMap<String, &String> = unfit
        .iter()
        .map(|(candidate, why)| (words(*candidate), why))
        .collect();
    serde_json::json!({
        "document": "tune_plan",
        "name": choice.name,
        "combinations": choice.servers.len(),
        "max_starts": max_starts,
        "settings": settings,
        "input_len": choice.lengths.input,
        "output_len": choice.lengths.output,
        "concurrency": choice.levels,
        "first_start": search.next_candidate().map(|first| words(first.candidate)),
        "not_started": not_started,
    })
}

/// What would be run.
fn describe_plan(
    choice: &TuningChoice,
    search: &TuningSearch<'_>,
    max_starts: usize,
    unfit: &BTreeMap<usize, String>,
    shard: Option<Shard>,
) -> String {
    let part = shard.map_or(String::new(), |part| format!(", part {part} of it"));
    let mut text = format!(
        "tune {}{part}: {} of {}, {} at most\n",
        choice.name,
        counted_noun(choice.servers.len(), "combination"),
        counted_noun(choice.space.axes.len(), "setting"),
        counted_noun(max_starts, "start")
    );
    for axis in &choice.space.axes {
        text.push_str(&format!("  {}: {}\n", axis.name, axis.values.join(", ")));
    }
    let levels: Vec<String> = choice.levels.iter().map(u32::to_string).collect();
    text.push_str(&format!(
        "  loads: input {}, output {} tokens, {} concurrent\n",
        choice.lengths.input,
        choice.lengths.output,
        levels.join(", ")
    ));
    if let Some(first) = search.next_candidate() {
        let words = choice.space.describe_candidate(first.candidate);
        text.push_str(&format!("  first start: {words}\n"));
    } else if shard.is_some() {
        text.push_str("  No start falls to this part.\n");
    }
    for (candidate, why) in unfit {
        let words = choice.space.describe_candidate(*candidate);
        text.push_str(&format!("  not started: {words}: {why}\n"));
    }
    text
}
