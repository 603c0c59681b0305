//! The search against a latency model: 48 settings, an optimum that the seed draws, noise.

use super::super::document::{BestSettings, Tuning};
use super::super::trial::{RepeatFigures, TrialState};
use super::*;
use crate::loadline::Objectives;
use proptest::prelude::*;
use std::cell::RefCell;

/// Numbers from a seed, 0 to 1 (Lehmer's generator of 1951 modulo 2^31 - 1).
struct Draws(u64);

impl Draws {
    fn of_seed(seed: u64) -> Draws {
        let mut draws = Draws(seed * 2 + 12_345);
        for _ in 0..20 {
            draws.share();
        }
        draws
    }

    fn share(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        self.0 as f64 / 0x7fff_ffff as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// Of a normal distribution, near enough.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

/// Deviation of a request's time in stored runs of a real vLLM, tests/latency_model.rs.
const REQUEST_NOISE: f64 = 0.086;

/// Values of the settings of the model.
const SETTINGS: [(&str, &[&str]); 3] = [
    ("max-num-seqs", &["16", "32", "64", "128"]),
    ("max-num-batched-tokens", &["1024", "2048", "4096", "8192"]),
    ("block-size", &["8", "16", "32"]),
];

/// A latency model: throughput falls with the distance from an optimum, which is no corner.
struct Model {
    optimum: [usize; 3],
    fall: [f64; 3],
    together: f64,
    noise: RefCell<Draws>,
}

impl Model {
    fn of_seed(seed: u64) -> Model {
        let mut draws = Draws::of_seed(seed);
        let optimum = loop {
            let at = SETTINGS.map(|(_, values)| (draws.share() * values.len() as f64) as usize);
            let edge =
                |(at, (_, values)): (&usize, &(&str, &[&str]))| *at == 0 || *at + 1 == values.len();
            if !at.iter().zip(&SETTINGS).all(edge) {
                break at;
            }
        };
        Model {
            optimum,
            fall: SETTINGS.map(|_| draws.between(0.03, 0.15)),
            together: draws.between(-0.04, 0.04),
            noise: RefCell::new(Draws::of_seed(seed + 1000)),
        }
    }

    fn gain(&self, places: &[usize]) -> f64 {
        let apart: Vec<f64> = (places.iter().zip(&self.optimum))
            .map(|(a, b)| *a as f64 - *b as f64)
            .collect();
        let falls: f64 = apart.iter().zip(&self.fall).map(|(d, k)| d * d * k).sum();
        (-falls + self.together * apart[0] * apart[1]).exp()
    }

    /// Of a load without noise: tokens per second, and time to first token in milliseconds.
    fn figures(&self, places: &[usize], concurrency: u32) -> (f64, f64) {
        let (gain, c) = (self.gain(places), f64::from(concurrency));
        (1000.0 * gain * c / (c + 8.0), 20.0 + 3.0 * c / gain)
    }

    /// A load of so many requests in each repeat, as the command sends it.
    fn load(&self, places: &[usize], concurrency: u32, is_long: bool) -> LoadFigures {
        let (speed, ttft) = self.figures(places, concurrency);
        let long = (concurrency * 4).max(16);
        let (requests, repeats) = if is_long {
            (long, 3)
        } else {
            ((long / 4).max(concurrency), 1)
        };
        let noise = REQUEST_NOISE / f64::from(requests).sqrt();
        let noisy = |value: f64| value * (self.noise.borrow_mut().normal() * noise).exp();
        let repeats: Vec<RepeatFigures> = (0..repeats)
            .map(|_| RepeatFigures {
                tokens_per_second: Some(noisy(speed)),
                latency_ms: BTreeMap::from([("ttft p95".to_owned(), noisy(ttft))]),
            })
            .collect();
        let mean = |of: &dyn Fn(&RepeatFigures) -> f64| {
            repeats.iter().map(of).sum::<f64>() / repeats.len() as f64
        };
        LoadFigures {
            concurrency,
            tokens_per_second: Some(mean(&|r| r.tokens_per_second.unwrap_or(0.0))),
            latency_ms: BTreeMap::from([(
                "ttft p95".to_owned(),
                mean(&|r| r.latency_ms["ttft p95"]),
            )]),
            repeats,
            ..LoadFigures::default()
        }
    }
}

fn space() -> SettingSpace {
    let mut all = Vec::new();
    for a in SETTINGS[0].1 {
        for b in SETTINGS[1].1 {
            for c in SETTINGS[2].1 {
                let values = [a, b, c];
                let named = SETTINGS.iter().zip(values);
                all.push(
                    named
                        .map(|((n, _), v)| ((*n).to_owned(), (*v).to_owned()))
                        .collect(),
                );
            }
        }
    }
    SettingSpace::of_candidates(&all)
}

/// A candidate's places in the order of [`SETTINGS`]: the space has its axes by name.
fn places(space: &SettingSpace, candidate: usize) -> Vec<usize> {
    let values = space.values_of(candidate);
    let place =
        |(name, all): &(&str, &[&str])| all.iter().position(|v| *v == values[*name]).unwrap();
    SETTINGS.iter().map(place).collect()
}

fn limits(text: &[&str]) -> TuningLimits {
    let texts: Vec<String> = text.iter().map(|t| (*t).to_owned()).collect();
    TuningLimits {
        objectives: Objectives::parse_objectives(&texts, 95).unwrap(),
        headroom_percent: 5.0,
    }
}

const LEVELS: [u32; 4] = [4, 16, 64, 128];

/// Runs a search as the command does; gives it with every trial.
fn tuned<'a>(
    space: &'a SettingSpace,
    model: &Model,
    limits: &'a TuningLimits,
    seed: u64,
    starts: usize,
) -> TuningSearch<'a> {
    tuned_side_by_side(space, model, limits, seed, (starts, 1))
}

/// The same with so many engines at a time.
fn tuned_side_by_side<'a>(
    space: &'a SettingSpace,
    model: &Model,
    limits: &'a TuningLimits,
    seed: u64,
    (starts, at_a_time): (usize, usize),
) -> TuningSearch<'a> {
    let goal = TuningGoal::Throughput;
    let mut search = TuningSearch::new(space, (goal, limits), seed, starts, BTreeMap::new());
    loop {
        let mut running = Vec::new();
        while running.len() < at_a_time {
            running.extend(match search.next_beside(&running, |_| true) {
                Some(next) => [next],
                None => break,
            });
        }
        if running.is_empty() {
            return search;
        }
        let trials: Vec<Trial> =
            (running.iter().map(|next| start(model, &search, *next))).collect();
        trials
            .into_iter()
            .for_each(|trial| search.record_trial(trial));
    }
}

#[test]
fn engines_side_by_side_find_the_optimum_in_as_many_starts() {
    let (space, limits) = (space(), limits(&[]));
    // A quarter of the starts is the most at a time.
    for (starts, at_a_time) in [(9, 2), (9, 8), (16, 8)] {
        let misses = |seed: &u64| {
            let model = Model::of_seed(*seed);
            let search = tuned_side_by_side(&space, &model, &limits, *seed, (starts, at_a_time));
            let mut tried: Vec<usize> = search.trials.iter().map(|t| t.candidate).collect();
            tried.sort_unstable();
            tried.dedup();
            assert_eq!(
                tried.len(),
                starts,
                "one was started twice, or too few were"
            );
            let speed = |c| best_of_model(&space, &model, c, f64::INFINITY);
            speed(search.winner().unwrap().candidate) / (0..48).map(speed).fold(0.0, f64::max)
                < 0.97
        };
        let missed = (1..=40).filter(misses).count();
        assert!(
            missed <= 3,
            "{at_a_time} at a time, {starts} starts: {missed} of 40"
        );
    }
}

/// One start.
fn start(model: &Model, search: &TuningSearch<'_>, next: NextCandidate) -> Trial {
    let space = search.space;
    let at = places(space, next.candidate);
    let mut trial = Trial {
        candidate: next.candidate,
        settings: space.values_of(next.candidate),
        predicted_score: next.predicted_score,
        ..Trial::default()
    };
    trial.state = TrialState::Measured;
    loop {
        match search.next_load(&trial, &LEVELS, false) {
            Ok(Some(PlannedLoad {
                concurrency,
                is_long: false,
            })) => {
                trial.short_loads.push(model.load(&at, concurrency, false));
            }
            Ok(Some(planned)) => {
                trial
                    .long_loads
                    .push(model.load(&at, planned.concurrency, true));
            }
            Ok(None) => break,
            Err(reason) => {
                trial.state = TrialState::Stopped;
                trial.reason = Some(reason);
                break;
            }
        }
    }
    trial
}

/// The best of the noiseless model within the limits.
fn best_of_model(space: &SettingSpace, model: &Model, candidate: usize, ttft: f64) -> f64 {
    let at = places(space, candidate);
    let held = LEVELS
        .iter()
        .map(|c| model.figures(&at, *c))
        .filter(|(_, ms)| *ms <= ttft);
    held.map(|(speed, _)| speed).fold(0.0, f64::max)
}

#[track_caller]
fn finds_optimum(slo: &[&str], ttft: f64) {
    let (space, limits) = (space(), limits(slo));
    let starts = default_starts(space.candidates.len());
    assert_eq!((space.candidates.len(), starts), (48, 9));
    let mut shares = Vec::new();
    for seed in 1..=20 {
        let model = Model::of_seed(seed);
        let search = tuned(&space, &model, &limits, seed, starts);
        assert!(search.trials.len() <= starts);
        let best = (0..48).map(|c| best_of_model(&space, &model, c, ttft));
        let best = best.fold(0.0, f64::max);
        let winner = search.winner().unwrap().candidate;
        shares.push((seed, best_of_model(&space, &model, winner, ttft) / best));
    }
    let short: Vec<_> = shares.iter().filter(|(_, share)| *share < 0.97).collect();
    assert!(short.is_empty(), "{} of 20 miss: {short:?}", short.len());
}

#[test]
fn a_fifth_of_the_starts_finds_the_optimum_within_3_percent_on_20_seeds() {
    finds_optimum(&[], f64::INFINITY);
}

/// Parts that search at the same time, each over every nth candidate: how many of so many seeds end 3 % from the best.
fn parts_that_miss(parts: usize, starts: usize, tell: bool, seeds: u64) -> usize {
    let (space, limits) = (space(), limits(&[]));
    let misses = |seed: &u64| {
        let model = Model::of_seed(*seed);
        let speed = |c| best_of_model(&space, &model, c, f64::INFINITY);
        let mut searches: Vec<TuningSearch<'_>> = (0..parts)
            .map(|part| {
                let of_others = (0..48).filter(|c| (c * 29 + 7) % 47 % parts != part);
                let excluded = of_others.map(|c| (c, String::new())).collect();
                let goal = (TuningGoal::Throughput, &limits);
                TuningSearch::new(&space, goal, *seed, starts, excluded)
            })
            .collect();
        for _ in 0..starts {
            let before = searches.clone();
            for (part, search) in searches.iter_mut().enumerate() {
                let others = before
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| tell && *other != part);
                let others = others.flat_map(|(_, s)| s.trials.to_vec()).collect();
                search.know_others(others, starts);
                if let Some(next) = search.next_candidate() {
                    let trial = start(&model, search, next);
                    search.record_trial(trial);
                }
            }
        }
        let won = searches.iter().filter_map(|s| Some(s.winner()?.candidate));
        let won = won.map(speed).fold(0.0, f64::max);
        won / (0..48).map(speed).fold(0.0, f64::max) < 0.97
    };
    (1..=seeds).filter(misses).count()
}

#[test]
fn parts_that_learn_from_each_other_share_the_starts() {
    for parts in [2, 3, 4] {
        let starts = starts_of_part(9, parts as u32);
        let missed = parts_that_miss(parts, starts, true, 40);
        assert!(
            missed <= 2,
            "{parts} parts of {starts} starts: {missed} of 40"
        );
        let alone = parts_that_miss(parts, starts, false, 40);
        assert!(
            alone > 4 * missed.max(1),
            "{parts} parts alone: {alone} of 40"
        );
    }
    // Those that see no other need as many starts as a whole search.
    assert!(parts_that_miss(2, 9, false, 40) <= 2);
}

#[test]
fn it_does_so_within_a_latency_limit() {
    // 64 requests keep it everywhere near the optimum, 128 only there.
    finds_optimum(&["ttft=480ms"], 480.0);
}

#[test]
fn equal_seeds_search_alike_and_a_half_of_a_search_goes_on_as_the_whole() {
    let (space, limits) = (space(), limits(&[]));
    let of = |seed| {
        tuned(&space, &Model::of_seed(3), &limits, seed, 9)
            .trials
            .to_vec()
    };
    assert_eq!(of(7), of(7));
    let whole = of(7);
    let mut half = TuningSearch::new(
        &space,
        (TuningGoal::Throughput, &limits),
        7,
        9,
        BTreeMap::new(),
    );
    for trial in &whole {
        let next = half.next_candidate().unwrap();
        assert_eq!(next.candidate, trial.candidate);
        assert_eq!(half.deserves_long_load(trial).err(), trial.reason);
        half.record_trial(trial.clone());
    }
    assert_eq!(half.next_candidate(), None);
}

#[test]
fn a_goal_that_nothing_meets_names_the_part_and_how_far_it_is() {
    let (space, limits) = (space(), limits(&["ttft=5ms"]));
    let search = tuned(&space, &Model::of_seed(1), &limits, 1, 4);
    assert!(search.winner().is_none());
    let goal = (TuningGoal::Throughput, &limits);
    let (head, winner) = (Tuning::default(), BestSettings::default());
    let document = Tuning::conclude_search(head, "", &search, goal, winner);
    assert_eq!(document.best, None);
    let missed = &document.nearest.unwrap().missed[0];
    assert_eq!((missed.part.as_str(), missed.limit), ("ttft p95", 5.0));
    assert!(
        missed.excess > 4.0 && missed.measured.unwrap() > 20.0,
        "{missed:?}"
    );
    assert_eq!(document.not_tried.len(), 44);
}

#[test]
fn the_document_separates_measured_from_expected() {
    let (space, limits) = (space(), limits(&[]));
    let model = Model::of_seed(5);
    let search = tuned(&space, &model, &limits, 5, 9);
    let conclude = |search: &TuningSearch<'_>| {
        let (head, winner) = (Tuning::default(), BestSettings::default());
        let goal = (TuningGoal::Throughput, &limits);
        Tuning::conclude_search(head, "the 9 starts were used", search, goal, winner)
    };
    let document = conclude(&search);
    let best = document.best.clone().unwrap();
    assert_eq!(best.load.repeats.len(), 3);
    assert!(best.spread_percent.unwrap() < 10.0);
    // All other values of all settings, each marked as measured or expected.
    assert_eq!(document.worth.len(), 3 + 3 + 2);
    assert!(document.worth.iter().any(|w| !w.measured));
    // Of one start nothing is learnt about other values.
    let one = tuned(&space, &model, &limits, 5, 1);
    let one = conclude(&one);
    let mut worth = one.worth.iter();
    assert!(worth.all(|w| w.change_percent.is_none() && w.remark.is_some()));
    assert_eq!(document.trials.len() + document.not_tried.len(), 48);
    assert_eq!(document.not_tried[0].reason, "the 9 starts were used");
    let text = serde_json::to_string(&document).unwrap();
    let mut read: Tuning = serde_json::from_str(&text).unwrap();
    for (trial, written) in read.trials.iter_mut().zip(&document.trials) {
        trial.candidate = written.candidate;
    }
    assert_eq!(read, document);
}

#[test]
fn what_cannot_fit_is_never_started_and_what_failed_is_avoided() {
    let (space, limits) = (space(), limits(&[]));
    let goal = TuningGoal::Throughput;
    let excluded: BTreeMap<usize, String> = (0..44).map(|c| (c, "too large".to_owned())).collect();
    let mut search = TuningSearch::new(&space, (goal, &limits), 0, 9, excluded);
    while let Some(next) = search.next_candidate() {
        assert!(next.candidate >= 44);
        search.record_trial(Trial {
            candidate: next.candidate,
            ..Trial::default()
        });
    }
    assert_eq!(search.trials.len(), 4);
    assert_eq!(search.winner(), None);
}

#[test]
fn earlier_figures_cost_no_start() {
    let (space, limits) = (space(), limits(&[]));
    let mut search = TuningSearch::new(
        &space,
        (TuningGoal::Throughput, &limits),
        0,
        1,
        BTreeMap::new(),
    );
    let before = Trial {
        candidate: search.next_candidate().unwrap().candidate,
        measured_before: true,
        ..Trial::default()
    };
    search.record_trial(before);
    assert!(search.next_candidate().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_was_measured_each_candidate_is_started_once(
        scores in prop::collection::vec(prop::option::of(0.01..1e6_f64), 48),
        seed: u64,
        starts in 1..=48_usize,
    ) {
        let (space, limits) = (space(), limits(&[]));
        let goal = TuningGoal::Throughput;
        let mut search = TuningSearch::new(&space, (goal, &limits), seed, starts, BTreeMap::new());
        let mut seen = BTreeSet::new();
        while let Some(next) = search.next_candidate() {
            prop_assert!(seen.insert(next.candidate));
            let loads: Vec<LoadFigures> = scores[next.candidate]
                .map(|score| LoadFigures { tokens_per_second: Some(score), ..LoadFigures::default() })
                .into_iter()
                .collect();
            let mut trial = Trial { candidate: next.candidate, short_loads: loads.clone(), ..Trial::default() };
            if search.deserves_long_load(&trial).is_ok() {
                trial.long_loads = loads;
            }
            search.record_trial(trial);
        }
        prop_assert_eq!(seen.len(), starts);
        // No more is claimed than what was measured, and nothing measured was better.
        let best = seen.iter().filter_map(|c| scores[*c]).fold(f64::NEG_INFINITY, f64::max);
        let winner = search.winner().map(|t| t.long_loads[0].tokens_per_second.unwrap());
        prop_assert_eq!(winner, Some(best).filter(|b| b.is_finite()));
    }
}
