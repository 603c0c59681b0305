//! Candidates measured: the cells of each as a group of a sweep, each load decided by those before it.

use super::choice::TuningChoice;
use super::hosts::refuse_mixed_hosts;
use crate::capture::ContainerFacts;
use crate::cli::ExperimentFlags;
use crate::commands::sweep::watch::BoardWatcher;
use crate::console::{BoardWords, Console};
use crate::error::Failure;
use crate::matrix::{
    BenchWord, Cell, CellGroup, CellId, CellLoad, CellRow, Forecast, GroupId, RowCause, RowStatus,
    Shard, SweepPlan,
};
use crate::report::layout::format_figure;
use crate::store::{ProfileFile, StoredCapture, read_profile};
use crate::sweep::{
    Cells, Folder, Journal, LaneWatcher, OomFile, SweepContext, SweepHistory, SweepOptions,
    SweepWatcher, SweepWork, folder,
};
use crate::sync::lock_data;
use crate::tune::{LoadFigures, PlannedLoad, Trial, TrialState, TuningLimits, TuningSearch};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Requests of a long load for each concurrent one,
const WAVES: u32 = 4;
/// but no fewer than these: percentiles of less say little.
const FEWEST: u32 = 16;
/// Requests of a long load for one of a short load.
const SHORT_PART: u32 = 4;
/// Seeds are less than this: benches take no more than 32 bits.
const SEEDS: u64 = 1 << 32;

/// A row and the folder of the run that it is of.
#[derive(Debug, Clone)]
struct KnownRow {
    row: CellRow,
    folder: PathBuf,
    /// Whether it is of this run or of another part of it: its engines are of one image then.
    of_this_run: bool,
}

/// The rows of all runs that are known, and the cells of each candidate.
pub struct TuningMeasure<'a> {
    choice: &'a TuningChoice,
    limits: &'a TuningLimits,
    flags: &'a ExperimentFlags,
    rows: Mutex<HashMap<CellId, KnownRow>>,
    /// Profiles are read once.
    figures: Mutex<HashMap<CellId, LoadFigures>>,
    /// Starts of engines by group, seconds.
    starts: Mutex<BTreeMap<String, f64>>,
    /// Ids of images, by their names.
    images: Mutex<BTreeMap<String, String>>,
}

/// What a candidate's trial is so far, by the rows that are known.
enum TrialProgress {
    /// It is complete.
    Complete(Trial),
    /// This cell is next.
    Next(CellId),
}

impl<'a> TuningMeasure<'a> {
    /// Before anything is known.
    pub fn new(
        choice: &'a TuningChoice,
        limits: &'a TuningLimits,
        flags: &'a ExperimentFlags,
    ) -> TuningMeasure<'a> {
        TuningMeasure {
            choice,
            limits,
            flags,
            rows: Mutex::default(),
            figures: Mutex::default(),
            starts: Mutex::default(),
            images: Mutex::default(),
        }
    }

    /// Takes in what a run measured. What failed for its surroundings may fare better now; what failed in another run
    /// than this is tried again.
    pub fn know_run(&self, folder: &Path, history: &SweepHistory, is_this_run: bool) {
        let mut rows = lock_data(&self.rows);
        for row in history.rows.values() {
            let done = row.status == RowStatus::Done && row.profile.is_some();
            let failed_here = is_this_run && row.cause.is_some_and(|c| !c.is_environmental());
            if done || failed_here {
                rows.entry(row.cell.clone()).or_insert_with(|| KnownRow {
                    row: row.clone(),
                    folder: folder.to_owned(),
                    of_this_run: is_this_run,
                });
            }
        }
        if is_this_run {
            let mut starts = lock_data(&self.starts);
            for start in &history.starts {
                starts.insert(start.group.0.clone(), start.took_s);
            }
        }
    }

    /// Facts of a row of any trial: engine, version, and whether it is simulated.
    pub fn engine_facts(&self) -> (Option<String>, Option<String>, bool) {
        let rows = lock_data(&self.rows);
        let ids = self
            .choice
            .servers
            .iter()
            .zip(0..)
            .flat_map(|(_, c)| self.cells_of(c));
        let found = ids
            .filter_map(|cell| rows.get(&cell.id))
            .map(|known| &known.row.figures);
        let mut facts = (None, None, false);
        for figures in found {
            facts.0 = facts.0.or_else(|| figures.engine.clone());
            facts.1 = facts.1.or_else(|| figures.engine_version.clone());
            facts.2 |= figures.simulated;
        }
        facts
    }

    /// Starts of this run that are no trial yet, and their loads that were measured.
    pub fn unfinished_loads(&self, search: &TuningSearch<'_>) -> (usize, usize) {
        let tried: Vec<usize> = search.trials.iter().map(|t| t.candidate).collect();
        let untried = (0..self.choice.servers.len()).filter(|c| !tried.contains(c));
        let (rows, starts) = (lock_data(&self.rows), lock_data(&self.starts));
        let loads = untried.filter_map(|candidate| {
            let cells = self.cells_of(candidate);
            starts.get(&cells.first()?.group.0)?;
            let is_kept = |cell: &&Cell| {
                let known = rows.get(&cell.id);
                known.is_some_and(|k| k.of_this_run && k.row.status == RowStatus::Done)
            };
            Some(cells.iter().filter(is_kept).count())
        });
        let loads: Vec<usize> = loads.collect();
        (loads.len(), loads.iter().sum())
    }

    /// The cells of a candidate: short loads from few requests to many, then the long ones.
    pub fn cells_of(&self, candidate: usize) -> Vec<Cell> {
        let Some(server) = self.choice.servers.get(candidate) else {
            return Vec::new();
        };
        let seed = self.flags.seed.unwrap_or(0);
        let levels = self.choice.levels.iter();
        let all = levels
            .clone()
            .map(|l| (*l, false))
            .chain(levels.map(|l| (*l, true)));
        let cell = |((concurrency, is_long), place): ((u32, bool), u64)| {
            let enough = concurrency.saturating_mul(WAVES).max(FEWEST);
            let long = self.flags.num_prompts.unwrap_or(enough).max(concurrency);
            let short = (long / SHORT_PART).max(concurrency);
            let tokens = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            let load = CellLoad {
                bench: BenchWord::Builtin,
                input_len: tokens(self.choice.lengths.input),
                output_len: tokens(self.choice.lengths.output),
                batch_size: Some(concurrency),
                num_prompts: Some(if is_long { long } else { short }),
                num_iters_warmup: self.flags.num_iters_warmup,
                repeats: if is_long { self.flags.repeats } else { 1 },
                // No load has prompts of another on the same engine: its cache of prefixes would answer for them.
                seed: Some(seed.wrapping_add(place) % SEEDS),
                ..CellLoad::default()
            };
            Cell::new(server.clone(), load)
        };
        all.zip(0..).map(cell).collect()
    }

    /// The figures of a row that was measured.
    fn figures_of(&self, known: &KnownRow, concurrency: u32) -> Result<LoadFigures, Failure> {
        if let Some(figures) = lock_data(&self.figures).get(&known.row.cell) {
            return Ok(figures.clone());
        }
        let path = known
            .folder
            .join(known.row.profile.as_deref().unwrap_or_default());
        let ProfileFile::Profile(profile) = read_profile(&path)? else {
            let shown = path.display();
            return Err(
                Failure::usage(format!("`{shown}` was written by an older plimsoll"))
                    .hint("--again measures it again"),
            );
        };
        if known.of_this_run {
            self.check_image(&path)?;
        }
        let shown = path.display().to_string();
        let figures = LoadFigures::figures_of_profile(concurrency, self.limits, &profile, shown);
        lock_data(&self.figures).insert(known.row.cell.clone(), figures.clone());
        Ok(figures)
    }

    /// Refuses an engine of another image than those before it, where both have one name.
    fn check_image(&self, profile: &Path) -> Result<(), Failure> {
        // A copy of a run may lack its captures.
        let Ok(stored) = StoredCapture::open(profile) else {
            return Ok(());
        };
        let ContainerFacts {
            image, image_id, ..
        } = stored.capture.container;
        let mut images = lock_data(&self.images);
        let known = images.entry(image.clone()).or_insert(image_id.clone());
        if *known == image_id {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "`{}` was measured on another image of the name {image}: scores of different images are not compared",
            profile.display()
        ))
        .hint("begin a new run, with one image on all machines: `docker image inspect` shows its id"))
    }

    /// The candidates that engines were started for, in the order of time.
    fn started_candidates(&self, history: &SweepHistory) -> Vec<usize> {
        let mut starts: Vec<(&str, &GroupId)> =
            (history.starts.iter().map(|s| (s.at.as_str(), &s.group))).collect();
        starts.sort();
        let groups = self
            .choice
            .servers
            .iter()
            .map(|server| GroupId::of_server(server));
        let groups: Vec<GroupId> = groups.collect();
        let mut started = Vec::new();
        for (_, group) in starts {
            let candidate = groups.iter().position(|other| other == group);
            started.extend(candidate.filter(|c| !started.contains(c)));
        }
        started
    }

    /// Adds the trials of a run as they are stored, in the order of their starts. With `ended` all of them; else the last
    /// may not be over, and its candidate is given then.
    pub fn stored_trials(
        &self,
        search: &mut TuningSearch<'_>,
        history: &SweepHistory,
        ended: bool,
    ) -> Result<Option<usize>, Failure> {
        let started = self.started_candidates(history);
        for (place, candidate) in started.iter().enumerate() {
            let as_stored = ended || place + 1 < started.len();
            match self.replay_trial(search, *candidate, as_stored)? {
                TrialProgress::Complete(trial) => search.record_trial(trial),
                TrialProgress::Next(_) => return Ok(Some(*candidate)),
            }
        }
        Ok(None)
    }

    /// What the other parts of the search measured so far, where their folders lie beside this one's; and how many of
    /// them there are.
    pub fn other_parts(
        &self,
        search: &TuningSearch<'_>,
        own: &Path,
        shard: Shard,
    ) -> Result<(Vec<Trial>, u32), Failure> {
        let (mut trials, mut parts) = (Vec::new(), 0);
        let Some((own, beside)) = own.canonicalize().ok().and_then(|own| {
            let beside = own.parent()?.to_owned();
            Some((own, beside))
        }) else {
            return Ok((trials, parts));
        };
        for dir in folder::list_shards(&beside)
            .iter()
            .filter(|dir| **dir != own)
        {
            // A journal that is being written to may be torn at its end; the next look has it whole.
            let Ok(history) = SweepHistory::read_journal(dir) else {
                continue;
            };
            let session = history.sessions.first().and_then(|session| session.shard);
            if !session.is_some_and(|other| other.of == shard.of && other != shard) {
                continue;
            }
            refuse_mixed_hosts(&[&own, dir])?;
            parts += 1;
            self.know_run(dir, &history, true);
            let mut part = search.without_trials();
            self.stored_trials(&mut part, &history, false)?;
            trials.extend(part.trials.iter().cloned());
        }
        Ok((trials, parts))
    }

    /// A candidate's trial by the rows that are known: the same rows make the same trial, whoever measured them. As it
    /// is stored: no other loads are asked for.
    fn replay_trial(
        &self,
        search: &TuningSearch<'_>,
        candidate: usize,
        as_stored: bool,
    ) -> Result<TrialProgress, Failure> {
        let cells = self.cells_of(candidate);
        let levels = self.choice.levels.iter();
        let shorts = levels.clone().map(|level| (level, false));
        let planned = shorts.chain(levels.map(|level| (level, true)));
        let planned = planned.map(|(concurrency, is_long)| PlannedLoad {
            concurrency: *concurrency,
            is_long,
        });
        let mut stored = (planned.zip(&cells))
            .filter(|(_, cell)| as_stored && lock_data(&self.rows).contains_key(&cell.id));
        let mut trial = Trial {
            candidate,
            settings: self.choice.space.values_of(candidate),
            state: TrialState::Measured,
            measured_before: true,
            ..Trial::default()
        };
        let mut used: Vec<KnownRow> = Vec::new();
        let mut failed: Option<String> = None;
        loop {
            let next = if as_stored {
                Ok(stored.next().map(|(planned, _)| planned))
            } else {
                search.next_load(&trial, &self.choice.levels, failed.is_some())
            };
            let planned = match next {
                Ok(Some(planned)) => planned,
                Ok(None) => break,
                Err(reason) => {
                    trial.state = TrialState::Stopped;
                    trial.reason = Some(failed.take().unwrap_or(reason));
                    break;
                }
            };
            let Some(cell) = self.planned_cell(&cells, planned) else {
                break;
            };
            let Some(known) = lock_data(&self.rows).get(&cell.id).cloned() else {
                return Ok(TrialProgress::Next(cell.id.clone()));
            };
            if known.row.status == RowStatus::Done {
                let figures = self.figures_of(&known, planned.concurrency)?;
                if planned.is_long {
                    trial.long_loads.push(figures);
                } else {
                    trial.short_loads.push(figures);
                }
                used.push(known);
                continue;
            }
            let cause = known.row.cause.map_or("unknown", RowCause::as_str);
            let message = known.row.message.clone().unwrap_or_default();
            failed = Some(format!(
                "{cause} at {} concurrent: {message}",
                planned.concurrency
            ));
            used.push(known);
            if planned.is_long {
                trial.state = TrialState::Stopped;
                trial.reason = failed.take();
                break;
            }
        }
        if as_stored && trial.long_loads.is_empty() {
            trial.state = TrialState::Stopped;
            let why = || search.deserves_long_load(&trial).err();
            let reason = failed.take().or_else(why);
            trial.reason = reason.or(Some("stopped in its part of the search".into()));
        }
        if trial.short_loads.is_empty() {
            trial.state = TrialState::Failed;
        }
        trial.took_s = used.iter().map(|k| k.row.took_s).sum();
        let group = cells
            .first()
            .map(|cell| cell.group.0.clone())
            .unwrap_or_default();
        if let Some(start) = lock_data(&self.starts).get(&group) {
            trial.measured_before = false;
            trial.took_s += start;
        }
        Ok(TrialProgress::Complete(trial))
    }

    fn planned_cell<'c>(&self, cells: &'c [Cell], planned: PlannedLoad) -> Option<&'c Cell> {
        let levels = &self.choice.levels;
        let place = levels
            .iter()
            .position(|level| *level == planned.concurrency)?;
        cells.get(if planned.is_long {
            levels.len() + place
        } else {
            place
        })
    }

    /// The trials of candidates, measured as far as no run has measured them: side by side where they share no device.
    /// Each is decided by the trials before all of them, so that a run that goes on decides alike.
    pub async fn measure_candidates(
        &self,
        console: &Console,
        run: &TuningRun<'_>,
        search: &TuningSearch<'_>,
        candidates: &[usize],
    ) -> Result<Vec<Trial>, Failure> {
        let mut groups = BTreeMap::new();
        for &candidate in candidates {
            if let TrialProgress::Next(_) = self.replay_trial(search, candidate, false)? {
                let cells = self.cells_of(candidate);
                let first = cells.first().ok_or_else(|| {
                    Failure::usage("there are no loads to measure").hint("--concurrency 4,16,64")
                })?;
                let group = CellGroup {
                    id: first.group.clone(),
                    server: first.server.clone(),
                    cells,
                };
                groups.insert(candidate, group);
            }
        }
        if !groups.is_empty() {
            self.measure_groups(console, run, search, &groups).await?;
        }
        let mut trials = Vec::new();
        for &candidate in candidates {
            match self.replay_trial(search, candidate, false)? {
                TrialProgress::Complete(trial) => match self.environmental_failure(candidate) {
                    Some(message) if trial.state == TrialState::Failed => {
                        return Err(Failure::environment(message)
                            .hint("correct that, then go on with --resume"));
                    }
                    _ => trials.push(trial),
                },
                TrialProgress::Next(_) => return Err(run.stop.stop_failure()),
            }
        }
        Ok(trials)
    }

    /// Measures the groups of candidates.
    async fn measure_groups(
        &self,
        console: &Console,
        run: &TuningRun<'_>,
        search: &TuningSearch<'_>,
        groups: &BTreeMap<usize, CellGroup>,
    ) -> Result<(), Failure> {
        let candidates: HashMap<&GroupId, usize> =
            groups.iter().map(|(c, group)| (&group.id, *c)).collect();
        let cells: Vec<&Cell> = groups.values().flat_map(|group| &group.cells).collect();
        let plan = SweepPlan {
            name: run.name.to_owned(),
            groups: groups.values().cloned().collect(),
            ..SweepPlan::default()
        };
        let path = run.folder.path();
        let mut known = Cells::read_file(path)?.unwrap_or_default();
        known.add_missing(Cells::of_plan(&plan).cells.iter());
        known.write_file(path)?;
        let (journal, history) = Journal::open_folder(path)?;
        let board = console.show_board(BoardWords::TUNING, cells.len() as u64, 0);
        let lines = self.row_lines(groups);
        let watcher = TuningWatcher {
            board: BoardWatcher::with_text(console.clone(), board.clone(), lines),
            expected: (self.choice.levels.len() as u64 + 1) * groups.len() as u64,
            take: &|row| {
                let folder = path.to_owned();
                let row = row.clone();
                let known = KnownRow {
                    of_this_run: true,
                    folder,
                    row: row.clone(),
                };
                lock_data(&self.rows).insert(row.cell, known);
            },
        };
        let next = |group: &CellGroup, left: &[&Cell], _: &HashMap<CellId, CellRow>| {
            let candidate = *candidates.get(&group.id)?;
            match self.replay_trial(search, candidate, false) {
                Ok(TrialProgress::Next(id)) => left.iter().position(|cell| cell.id == id),
                // What cannot be read is reported below.
                Ok(TrialProgress::Complete(_)) | Err(_) => None,
            }
        };
        let context = SweepContext::new(
            run.runtime,
            run.options,
            run.folder,
            run.stop,
            &watcher,
            journal,
        )
        .choose_cells(&next);
        let work = SweepWork {
            plan: &plan,
            history: &history,
            retry_failed: false,
            retry_oom: false,
        };
        let ooms = OomFile::open_in_folder(path)?;
        let ended = crate::sweep::run_sweep(&context, &work, Forecast::default(), ooms).await;
        board.finish_board();
        drop(context);
        let after = SweepHistory::read_journal(path)?;
        self.know_run(path, &after, true);
        ended
    }

    /// Why a cell failed that would fare better elsewhere: every other candidate would fail as it did.
    fn environmental_failure(&self, candidate: usize) -> Option<String> {
        let cells = self.cells_of(candidate);
        let rows = lock_data(&self.rows);
        let mut known = cells.iter().filter_map(|cell| rows.get(&cell.id));
        let failed = known.find(|k| k.row.cause.is_some_and(RowCause::is_environmental))?;
        failed.row.message.clone()
    }

    /// The line when a load ends: its name, with the settings where several candidates are measured, and its figures or
    /// why there are none.
    fn row_lines(
        &self,
        groups: &BTreeMap<usize, CellGroup>,
    ) -> impl Fn(&Cell, &CellRow) -> (String, String) + Send + Sync + 'static {
        let mut names: HashMap<CellId, String> = HashMap::new();
        for (candidate, group) in groups {
            let settings = match groups.len() {
                1 => String::new(),
                _ => format!("{}: ", self.choice.space.describe_candidate(*candidate)),
            };
            // Short loads come first.
            let short = group.cells.len() / 2;
            for (place, cell) in group.cells.iter().enumerate() {
                let kind = if place < short { "short" } else { "long" };
                let concurrency = cell.load.batch_size.unwrap_or(0);
                let name = format!("{settings}{kind} load, {concurrency} concurrent");
                names.insert(cell.id.clone(), name);
            }
        }
        move |cell, row| {
            let name = names.get(&cell.id).cloned().unwrap_or_default();
            if row.status != RowStatus::Done {
                return (name, row.describe_cause());
            }
            let figures = &row.figures;
            let parts = [
                figures
                    .tokens_per_second
                    .map(|t| format!("{} tok/s", format_figure(t))),
                figures
                    .ttft_mean_ms
                    .map(|ms| format!("TTFT {} ms", format_figure(ms))),
                figures
                    .tpot_mean_ms
                    .map(|ms| format!("TPOT {} ms", format_figure(ms))),
            ];
            (
                name,
                parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
            )
        }
    }
}

/// Where and how the engines run.
pub struct TuningRun<'a> {
    /// Name in the journal.
    pub name: &'a str,
    /// The daemon.
    pub runtime: &'a crate::container::Runtime,
    /// How loads are measured.
    pub options: &'a SweepOptions,
    /// Where the results go.
    pub folder: &'a Folder,
    /// Stops it.
    pub stop: &'a crate::collect::StopSignal,
}

/// Hands the rows on as they come, and the progress to the board.
struct TuningWatcher<'a> {
    board: BoardWatcher,
    /// Loads of a candidate that is not stopped.
    expected: u64,
    take: &'a (dyn Fn(&CellRow) + Send + Sync),
}

impl SweepWatcher for TuningWatcher<'_> {
    fn begin_lane(&self, label: &str) -> Box<dyn LaneWatcher> {
        self.board.begin_lane(label)
    }

    fn cell_ended(&self, cell: &Cell, row: &CellRow, done: u64, _of: u64) {
        (self.take)(row);
        self.board
            .cell_ended(cell, row, done, self.expected.max(done));
    }

    /// What a candidate's other loads would take is not known before they are wanted.
    fn time_left(&self, _seconds: Option<f64>) {}

    fn note(&self, text: &str) {
        self.board.note(text);
    }

    fn warning(&self, text: &str) {
        self.board.warning(text);
    }
}
