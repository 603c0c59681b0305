//! The one clock of a capture: monotonic, with its zero pinned to wall time.

use crate::capture::AtNs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of one capture. Clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock {
    /// Wall time of zero, nanoseconds since the Unix epoch.
    pub wall_start_ns: i64,
    hand: Hand,
}

#[derive(Debug, Clone)]
enum Hand {
    Monotonic(Instant),
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Clock {
        // Two clocks cannot be read at one moment. Of a few tries the one with the least time
        // between its two monotonic readings pins the zero best: to well under a microsecond,
        // unless the thread was interrupted in every one of them.
        let (_, origin, wall_start_ns) = (0..5)
            .map(|_| {
                let before = Instant::now();
                let wall = wall_now_ns();
                let width = before.elapsed();
                (width, before + width / 2, wall)
            })
            .min_by_key(|&(width, ..)| width)
            .unwrap_or_else(|| (Duration::ZERO, Instant::now(), wall_now_ns()));
        Clock {
            wall_start_ns,
            hand: Hand::Monotonic(origin),
        }
    }

    /// A clock that is at zero until [`Clock::advance_to`] moves it (tests, replays). Its zero is
    /// `wall_start_ns`, nanoseconds since the Unix epoch.
    pub fn manual(wall_start_ns: i64) -> Clock {
        Clock {
            wall_start_ns,
            hand: Hand::Manual(Arc::new(AtomicI64::new(0))),
        }
    }

    /// Nanoseconds since the clock was started.
    pub fn now(&self) -> AtNs {
        match &self.hand {
            Hand::Monotonic(origin) => to_nanos(origin.elapsed()),
            Hand::Manual(at) => at.load(Ordering::SeqCst),
        }
    }

    /// The moment of a wall time (nanoseconds since the Unix epoch), as the wall clock stood when
    /// this one was started. Negative for what happened before.
    pub fn from_wall(&self, wall_ns: i64) -> AtNs {
        wall_ns.saturating_sub(self.wall_start_ns)
    }

    /// The moment of an event that another program observed at a wall time and has just reported.
    /// As [`Clock::from_wall`], unless the wall clock was stepped since the start: events before
    /// and after the step then convert differently, and of the two results the later one that is
    /// not in the future is taken. No reported event is in the future.
    pub fn from_reported(&self, wall_ns: i64) -> AtNs {
        moment_of(self.from_wall(wall_ns), self.wall_drift_ns(), self.now())
    }

    /// The moment at which another clock of this process showed zero. Negative when it was started
    /// earlier.
    pub fn zero_of(&self, other: &Clock) -> AtNs {
        match (&self.hand, &other.hand) {
            (Hand::Monotonic(own), Hand::Monotonic(theirs)) => {
                match theirs.checked_duration_since(*own) {
                    Some(later) => to_nanos(later),
                    None => -to_nanos(own.duration_since(*theirs)),
                }
            }
            _ => self.from_wall(other.wall_start_ns),
        }
    }

    /// How far the wall clock was stepped since the start, nanoseconds: positive when it was put
    /// forward. Zero for a manual clock.
    pub fn wall_drift_ns(&self) -> i64 {
        match self.hand {
            Hand::Monotonic(_) => self.from_wall(wall_now_ns()).saturating_sub(self.now()),
            Hand::Manual(_) => 0,
        }
    }

    /// Whether it only moves by hand.
    pub fn is_manual(&self) -> bool {
        matches!(self.hand, Hand::Manual(_))
    }

    /// Moves a manual clock forward to `at`; it never goes back. Does nothing to a real one.
    pub fn advance_to(&self, at: AtNs) {
        if let Hand::Manual(now) = &self.hand {
            now.fetch_max(at, Ordering::SeqCst);
        }
    }
}

/// A wall clock that differs by less was not stepped: two clocks cannot be read at one moment.
const STEP_NS: i64 = 50_000_000;

/// See [`Clock::from_reported`]: `pinned` is the moment as the wall clock stood at the start, `drift` how
/// far it was put forward since.
fn moment_of(pinned: AtNs, drift: i64, now: AtNs) -> AtNs {
    let stepped = if drift.unsigned_abs() >= STEP_NS.unsigned_abs() {
        pinned.saturating_sub(drift)
    } else {
        pinned
    };
    let is_past = |at: &AtNs| *at <= now.saturating_add(STEP_NS);
    let past = [pinned, stepped].into_iter().filter(is_past).max();
    past.unwrap_or(now).min(now)
}

/// Nanoseconds of a duration; 292 years are enough.
pub(crate) fn to_nanos(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn wall_now_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => to_nanos(since),
        Err(before) => -to_nanos(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_at_zero_and_never_goes_back() {
        let clock = Clock::start();
        let same = clock.clone();
        let (a, b) = (clock.now(), same.now());
        assert!((0..=b).contains(&a), "{a} {b}");
    }

    #[test]
    fn wall_times_land_on_it() {
        let clock = Clock::manual(1_000);
        assert_eq!(clock.from_wall(1_500), 500);
        assert_eq!(clock.from_wall(400), -600);
        assert_eq!(clock.from_wall(i64::MIN), i64::MIN);
        assert_eq!(clock.wall_drift_ns(), 0);
    }

    #[test]
    fn a_reported_time_keeps_its_moment_whatever_the_wall_clock_does() {
        const S: i64 = 1_000_000_000;
        for step in [
            -86_400 * S,
            -3_600 * S,
            -2 * S,
            0,
            2 * S,
            3_600 * S,
            86_400 * S,
        ] {
            // At 100 s, after a step at 60 s: just now, and late what was of before the step.
            assert_eq!(moment_of(99 * S + step, step, 100 * S), 99 * S, "{step}");
            if step != 2 * S && step != -2 * S {
                assert_eq!(moment_of(50 * S, step, 100 * S), 50 * S, "{step}");
            }
            // A program with a clock ahead of ours reports no future event.
            assert!(moment_of(100 * S + step, 0, 100 * S) <= 100 * S, "{step}");
        }
        // What was in the log before the start is history.
        assert_eq!(moment_of(-7 * S, 0, S), -7 * S);
    }

    #[test]
    fn a_manual_clock_moves_by_hand_only() {
        let clock = Clock::manual(0);
        assert_eq!(clock.now(), 0);
        clock.advance_to(70);
        clock.advance_to(50);
        assert_eq!(clock.clone().now(), 70);
        let real = Clock::start();
        real.advance_to(i64::MAX);
        assert!(real.now() < i64::MAX);
    }
}
