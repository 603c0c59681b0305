//! When requests are sent: with a constant concurrency, or at random times whatever the server
//! does.

use super::random::Random;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Closed loop: constant concurrency; each finished request makes room for the next.
    Closed {
        /// Concurrent requests; at least 1.
        concurrency: u32,
    },
    /// Open loop: a Poisson process, independent of the server. A request's waiting time, for the
    /// server or for the concurrency limit, counts from its scheduled time.
    Poisson {
        /// Requests per second, above 0.
        per_second: f64,
        /// Maximum concurrency; `None` without a limit.
        max_in_flight: Option<u32>,
    },
}

impl Arrivals {
    fn in_flight(self) -> usize {
        let most = match self {
            Arrivals::Closed { concurrency } => Some(concurrency),
            Arrivals::Poisson { max_in_flight, .. } => max_in_flight,
        };
        most.map_or(usize::MAX, |n| n.max(1) as usize)
    }

    /// Scheduled times of `n` requests, from the start; `None` for a closed loop, where the server
    /// decides. The first is sent at once.
    pub fn schedule_requests(self, n: usize, seed: u64) -> Option<Vec<Duration>> {
        let Arrivals::Poisson { per_second, .. } = self else {
            return None;
        };
        let mut random = Random::new(seed, SCHEDULE_STREAM);
        let mut at = 0.0;
        let mut moments = Vec::with_capacity(n);
        for _ in 0..n {
            moments.push(Duration::try_from_secs_f64(at).unwrap_or(FOREVER));
            at += random.next_exponential() / per_second;
        }
        Some(moments)
    }
}

/// Number of the random stream for schedules; prompts never use it.
const SCHEDULE_STREAM: u64 = u64::MAX;

/// Longer than any run, without overflow in sums with the clock.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Sends `n` requests by the rule, from `start` on. `send` gets the number of a request and its
/// scheduled time, and must itself end soon after `cancel` fires; `done` gets each result, in order
/// of completion. Nothing is sent after `cancel`.
pub async fn drive_requests<T: Send + 'static, F>(
    arrivals: Arrivals,
    n: usize,
    seed: u64,
    start: Instant,
    cancel: &CancellationToken,
    mut send: impl FnMut(usize, Instant) -> F,
    mut done: impl FnMut(T),
) where
    F: Future<Output = T> + Send + 'static,
{
    let schedule = arrivals.schedule_requests(n, seed);
    // In a closed loop a request is due when there is room for it.
    let due = |i: usize| {
        schedule
            .as_ref()
            .and_then(|moments| moments.get(i))
            .map(|after| start + *after)
    };
    let most = arrivals.in_flight();
    let mut flying: JoinSet<T> = JoinSet::new();
    let mut next = 0;
    loop {
        while next < n && flying.len() < most && !cancel.is_cancelled() {
            let now = Instant::now();
            let intended = due(next).unwrap_or(now);
            if intended > now {
                break;
            }
            flying.spawn(send(next, intended));
            next += 1;
        }
        let more = next < n && !cancel.is_cancelled();
        if !more && flying.is_empty() {
            return;
        }
        let wake = due(next).filter(|_| more && flying.len() < most);
        tokio::select! {
            Some(ended) = flying.join_next(), if !flying.is_empty() => match ended {
                Ok(value) => done(value),
                // A bug of ours: propagate the panic.
                Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                Err(_) => {}
            },
            () = sleep_until(wake.unwrap_or(start)), if wake.is_some() => {}
            () = cancel.cancelled(), if more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    fn poisson(per_second: f64) -> Arrivals {
        Arrivals::Poisson {
            per_second,
            max_in_flight: None,
        }
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_schedule(seed: u64, rate in 0.01..1000.0f64) {
            let schedule = poisson(rate).schedule_requests(50, seed).unwrap();
            prop_assert_eq!(&poisson(rate).schedule_requests(50, seed).unwrap(), &schedule);
            prop_assert!(schedule.is_sorted());
            prop_assert_ne!(poisson(rate).schedule_requests(50, seed ^ 1).unwrap(), schedule);
        }
    }

    #[test]
    fn the_mean_rate_is_the_one_asked_for_and_gaps_are_exponential() {
        let n = 100_000;
        let moments = poisson(8.0).schedule_requests(n, 3).unwrap();
        let rate = (n - 1) as f64 / moments[n - 1].as_secs_f64();
        // Three standard deviations of the mean of so many gaps are 1 %.
        assert!((rate / 8.0 - 1.0).abs() < 0.01, "{rate}");
        let long = moments
            .windows(2)
            .filter(|w| (w[1] - w[0]).as_secs_f64() > 1.0 / 8.0)
            .count();
        let share = long as f64 / n as f64;
        assert!((share - (-1.0f64).exp()).abs() < 0.01, "{share}");
        // A rate so low that its moments overflow is waited for, not wrapped.
        assert_eq!(poisson(1e-300).schedule_requests(2, 0).unwrap()[1], FOREVER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_loop_keeps_exactly_so_many_in_flight() {
        let flying = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let mut completed = Vec::new();
        let begin = Instant::now();
        drive_requests(
            Arrivals::Closed { concurrency: 4 },
            12,
            0,
            begin,
            &CancellationToken::new(),
            |i, intended| {
                // Its turn comes when it is sent: nothing is waited for.
                assert_eq!(intended, Instant::now());
                let (flying, most) = (Arc::clone(&flying), Arc::clone(&most));
                async move {
                    most.fetch_max(flying.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    flying.fetch_sub(1, Ordering::SeqCst);
                    i
                }
            },
            |i| completed.push(i),
        )
        .await;
        completed.sort_unstable();
        assert_eq!(completed, (0..12).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), 4);
        assert_eq!(begin.elapsed().as_millis() / 100, 3);
    }

    /// A server that answers within 10 ms, but not between the seconds 2 and 7.
    async fn stalling(from: Instant) {
        let now = Instant::now() - from;
        let stall = Duration::from_secs(2)..Duration::from_secs(7);
        if stall.contains(&now) {
            tokio::time::sleep(stall.end - now).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    /// Latencies of 100 requests, 10 a second, seconds, sorted.
    async fn latencies(max_in_flight: Option<u32>) -> Vec<f64> {
        let arrivals = Arrivals::Poisson {
            per_second: 10.0,
            max_in_flight,
        };
        let begin = Instant::now();
        let mut all = Vec::new();
        drive_requests(
            arrivals,
            100,
            1,
            begin,
            &CancellationToken::new(),
            |_, intended| async move {
                stalling(begin).await;
                (Instant::now() - intended).as_secs_f64()
            },
            |latency| all.push(latency),
        )
        .await;
        all.sort_by(f64::total_cmp);
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_counts_for_everybody_who_was_to_be_served_in_it() {
        for bound in [None, Some(1)] {
            let all = latencies(bound).await;
            assert_eq!(all.len(), 100);
            // About half of them were due in the stall, and waited 2.5 s in the mean. A client
            // that waits with the next until the last is answered would see one slow request.
            let slow = all.iter().filter(|l| **l > 0.5).count();
            assert!((30..=60).contains(&slow), "{bound:?}: {slow} slow");
            assert!(all[98] > 4.5, "{bound:?}: p99 {}", all[98]);
            assert!(
                all[20] < 0.05,
                "{bound:?}: those outside of it are not slow"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_run_sends_nothing_more_and_keeps_what_it_has() {
        let cancel = CancellationToken::new();
        let rows = Mutex::new(Vec::new());
        let stop = cancel.clone();
        drive_requests(
            poisson(1.0),
            1000,
            0,
            Instant::now(),
            &cancel,
            |i, _| {
                let stop = stop.clone();
                async move {
                    if i == 5 {
                        stop.cancel();
                    }
                    i
                }
            },
            |i| rows.lock().unwrap().push(i),
        )
        .await;
        assert_eq!(*rows.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    }
}
