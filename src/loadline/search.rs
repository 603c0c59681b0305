//! Which load is tried next: outwards from the prediction until the line is bracketed, then halving.
//! Rests on one assumption: an engine that does not hold a load holds no larger one either.

/// How far the search goes at a time while the line is not bracketed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stride {
    /// The start is a prediction: first a tolerance away, then further and further.
    Near,
    /// The start is any: double, or half.
    Doubling,
}

/// Steps of [`Stride::Near`] after the first, in parts of the current concurrency; then doubling.
const UP: [f64; 3] = [0.10, 0.30, 0.50];
const DOWN: [f64; 3] = [0.10, 0.25, 0.35];

/// The next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRound {
    /// Requests in flight.
    pub concurrency: u32,
    /// Whether this load has failed already, and the line hangs on it.
    pub again: bool,
}

/// What is known at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchOutcome {
    /// The largest load that a round held; 0 where none did.
    pub holds: u32,
    /// The smallest load above it that a round did not hold.
    pub fails: Option<u32>,
    /// Whether the two are so near to each other that the line is known.
    pub closed: bool,
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct ConcurrencySearch {
    start: u32,
    stride: Stride,
    tolerance: f64,
    most_rounds: u32,
    cap: u32,
    prediction: Option<u32>,
    rounds: Vec<(u32, bool)>,
}

impl ConcurrencySearch {
    /// From `start`, at most `cap`; both at least 1. `tolerance` is a part of the line, above 0:
    /// 0.05 is 5 %.
    pub fn new(
        start: u32,
        cap: u32,
        stride: Stride,
        tolerance: f64,
        most_rounds: u32,
    ) -> ConcurrencySearch {
        let cap = cap.max(1);
        ConcurrencySearch {
            start: start.clamp(1, cap),
            stride,
            tolerance: tolerance.max(0.0),
            most_rounds,
            cap,
            prediction: None,
            rounds: Vec::new(),
        }
    }

    /// A better prediction than that which the search began with: it is tried next, unless the
    /// rounds have answered it already.
    pub fn start_at(&mut self, at: u32) {
        self.prediction = Some(at.clamp(1, self.cap));
    }

    /// The round to make, or `None`: the line is known, or the rounds are used up.
    pub fn next_round(&mut self) -> Option<NextRound> {
        if self.rounds.len() >= self.most_rounds as usize {
            return None;
        }
        let once = |concurrency| {
            Some(NextRound {
                concurrency,
                again: false,
            })
        };
        if self.rounds.is_empty() {
            return once(self.start);
        }
        let SearchOutcome { holds, fails, .. } = self.search_outcome();
        if let Some(prediction) = self.prediction.take() {
            if prediction > holds && fails.is_none_or(|f| prediction < f) {
                return once(prediction);
            }
        }
        match fails {
            None if holds >= self.cap => None,
            None => once(self.up(holds)),
            Some(f) if self.near(holds, f) => {
                // The line hangs on one failure: a hiccup of the host may have been it.
                let tries = self.rounds.iter().filter(|(c, _)| *c == f).count();
                (tries == 1).then_some(NextRound {
                    concurrency: f,
                    again: true,
                })
            }
            Some(f) if holds == 0 => once(self.down(f)),
            Some(f) => once(between(holds, f)),
        }
    }

    /// Takes in whether a round held.
    pub fn record_round(&mut self, concurrency: u32, held: bool) {
        self.rounds.push((concurrency, held));
    }

    /// What is known so far.
    pub fn search_outcome(&self) -> SearchOutcome {
        let held = self.rounds.iter().filter(|(_, held)| *held);
        let holds = held.map(|(c, _)| *c).max().unwrap_or(0);
        let failed = self.rounds.iter().filter(|(c, held)| !held && *c > holds);
        let fails = failed.map(|(c, _)| *c).min();
        SearchOutcome {
            holds,
            fails,
            closed: fails.is_some_and(|f| self.near(holds, f)),
        }
    }

    /// Whether nothing worth a round lies between.
    fn near(&self, holds: u32, fails: u32) -> bool {
        let gap = f64::from(fails - holds);
        gap <= 1.0 || gap <= self.tolerance * f64::from(holds)
    }

    /// Of the rounds, those without an end on the other side of the line: how far it has gone.
    fn steps(&self) -> usize {
        self.rounds.len().saturating_sub(1)
    }

    /// How far the next step goes, in parts of the current concurrency.
    fn step_part(&self, near: [f64; 3], doubling: f64) -> f64 {
        match (self.stride, self.steps()) {
            (Stride::Doubling, _) => doubling,
            (Stride::Near, 0) => self.tolerance,
            (Stride::Near, n) => near.get(n - 1).copied().unwrap_or(doubling),
        }
    }

    fn up(&self, from: u32) -> u32 {
        let to = f64::from(from) * (1.0 + self.step_part(UP, 1.0));
        (to.floor().min(f64::from(u32::MAX)) as u32)
            .max(from.saturating_add(1))
            .min(self.cap)
    }

    fn down(&self, from: u32) -> u32 {
        let to = f64::from(from) * (1.0 - self.step_part(DOWN, 0.5));
        (to.ceil() as u32).min(from.saturating_sub(1)).max(1)
    }
}

/// The middle by ratio, for the tolerance is one; strictly between.
fn between(holds: u32, fails: u32) -> u32 {
    let middle = (f64::from(holds) * f64::from(fails)).sqrt().round() as u32;
    middle.clamp(holds + 1, fails - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a search against an engine that decides for each load whether it holds.
    fn run(
        search: &mut ConcurrencySearch,
        mut engine: impl FnMut(u32) -> bool,
    ) -> Vec<(u32, bool)> {
        while let Some(ahead) = search.next_round() {
            let held = engine(ahead.concurrency);
            search.record_round(ahead.concurrency, held);
        }
        search.rounds.clone()
    }

    proptest! {
        #[test]
        fn a_prediction_within_twofold_ends_within_tolerance_in_nine_rounds(line in 1..5000u32, off in 0.5..=2.0f64, tolerance in prop_oneof![Just(0.05), Just(0.10)]) {
            let start = ((f64::from(line) * off).round() as u32).clamp(line.div_ceil(2), line * 2);
            let mut search = ConcurrencySearch::new(start, u32::MAX, Stride::Near, tolerance, 9);
            let rounds = run(&mut search, |c| c <= line);
            let end = search.search_outcome();
            prop_assert!(rounds.len() <= 9);
            prop_assert!(end.closed, "{line} from {start}: {rounds:?}");
            prop_assert!(end.holds <= line && end.fails.unwrap() > line);
            prop_assert!(f64::from(line - end.holds) <= (tolerance * f64::from(line)).max(0.0), "{line} from {start}: {rounds:?}");
        }

        #[test]
        fn whatever_the_start_no_more_is_claimed_than_was_held(line in 0..100_000u32, start in 1..100_000u32, near: bool, most in 1..20u32, cap in 1..100_000u32) {
            let stride = if near { Stride::Near } else { Stride::Doubling };
            let mut search = ConcurrencySearch::new(start, cap, stride, 0.05, most);
            let rounds = run(&mut search, |c| c <= line);
            let end = search.search_outcome();
            prop_assert!(rounds.len() <= most as usize);
            prop_assert!(rounds.iter().all(|(c, _)| (1..=cap).contains(c)));
            prop_assert!(end.holds <= line && end.holds <= cap);
            prop_assert!(end.holds == 0 || rounds.contains(&(end.holds, true)));
            // Enough rounds always end it.
            let mut long = ConcurrencySearch::new(start, cap, stride, 0.05, 80);
            run(&mut long, |c| c <= line);
            let end = long.search_outcome();
            prop_assert!(end.closed || end.holds == cap);
        }

        #[test]
        fn a_search_ends_whatever_the_engine_answers(answers in proptest::collection::vec(any::<bool>(), 12), start in 1..1000u32) {
            let mut answers = answers.into_iter();
            let mut search = ConcurrencySearch::new(start, 5000, Stride::Near, 0.05, 9);
            let rounds = run(&mut search, |_| answers.next().unwrap_or(false));
            let end = search.search_outcome();
            prop_assert!(rounds.len() <= 9);
            prop_assert!(end.holds == 0 || rounds.contains(&(end.holds, true)));
            prop_assert!(end.fails.is_none_or(|f| f > end.holds && rounds.contains(&(f, false))));
        }
    }

    /// Where a tolerance is less than two requests the last halving may not be one too many.
    #[test]
    fn a_small_line_far_below_its_prediction_is_found() {
        for (line, start) in [(36, 66), (37, 66), (37, 67), (38, 61)] {
            let mut search = ConcurrencySearch::new(start, u32::MAX, Stride::Near, 0.05, 9);
            let rounds = run(&mut search, |c| c <= line);
            assert!(
                search.search_outcome().closed,
                "{line} from {start}: {rounds:?}"
            );
        }
    }

    #[test]
    fn a_right_prediction_takes_three_rounds() {
        let mut search = ConcurrencySearch::new(32, 4096, Stride::Near, 0.05, 9);
        let rounds = run(&mut search, |c| c <= 32);
        assert_eq!(rounds, [(32, true), (33, false), (33, false)]);
        assert_eq!(
            search.search_outcome(),
            SearchOutcome {
                holds: 32,
                fails: Some(33),
                closed: true
            }
        );
    }

    #[test]
    fn a_hiccup_does_not_decide() {
        let mut first = true;
        let mut search = ConcurrencySearch::new(32, 4096, Stride::Near, 0.05, 9);
        let rounds = run(&mut search, |c| {
            c <= 40 && (c != 33 || !std::mem::take(&mut first))
        });
        assert_eq!(rounds[..3], [(32, true), (33, false), (33, true)]);
        assert!(search.search_outcome().holds >= 39, "{rounds:?}");
    }

    #[test]
    fn a_better_prediction_is_tried_next_and_an_answered_one_is_not() {
        let mut search = ConcurrencySearch::new(32, 4096, Stride::Near, 0.05, 9);
        search.next_round();
        search.record_round(32, false);
        search.start_at(20);
        assert_eq!(search.next_round().map(|a| a.concurrency), Some(20));
        search.record_round(20, true);
        search.start_at(40);
        assert_eq!(search.next_round().map(|a| a.concurrency), Some(25));
    }
}
