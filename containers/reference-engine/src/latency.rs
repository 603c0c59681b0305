//! The latency model: how fast a server answers, by its settings and its load. The optimum of the settings is drawn by
//! a seed, so that a search for it can be tried against what is known.

use crate::args::{Args, Flag, Kind, Stop};
use std::time::Duration;

pub const FLAGS: &[Flag] = &[
    Flag::new("max-num-seqs", Kind::Count, "256", "completions that run at once; others wait"),
    Flag::new("max-num-batched-tokens", Kind::Count, "2048", "a setting of the latency model"),
    Flag::new("num-scheduler-steps", Kind::Count, "1", "a setting of the latency model"),
    Flag::new("latency-seed", Kind::Count, "0", "draws the optimum of the latency model; 0: the times are constant"),
    Flag::new("latency-noise", Kind::Count, "150", "noise of a completion's times, thousandths"),
];

/// Requests that run at once at which a token takes twice as long as with none. This and the default of `latency-noise`
/// are fitted to stored load lines of a real vLLM on two cores, by the test in tests/engines.rs: medians by concurrency
/// of tests/fixtures/vllm/json/load-line.json and of docs/EXPERIMENTS.md; spread of each request of bench-serve*.json.
const DOUBLING_LOAD: f64 = 5.7;
/// Prompt tokens that are read in the time of one that is written.
const PREFILL_SPEED: f64 = 16.0;

pub struct Latency {
    seed: u64,
    noise: f64,
    /// Times as slow as with the best settings.
    pub slowdown: f64,
    pub max_num_seqs: u64,
}

impl Latency {
    pub fn read(args: &Args) -> Result<Latency, Stop> {
        let seed = args.count("latency-seed")?;
        let max_num_seqs = args.count("max-num-seqs")?.max(1);
        let settings = [max_num_seqs, args.count("max-num-batched-tokens")?, args.count("num-scheduler-steps")?];
        Ok(Latency {
            seed,
            noise: args.count("latency-noise")? as f64 / 1000.0,
            slowdown: if seed == 0 { 1.0 } else { slowdown(seed, settings) },
            max_num_seqs,
        })
    }

    /// Time of a prompt of so many tokens.
    pub fn prefill(&self, token: Duration, tokens: u64, request: u64) -> Duration {
        if self.seed == 0 {
            return Duration::ZERO;
        }
        token.mul_f64(tokens as f64 / PREFILL_SPEED * self.slowdown * self.noise_of(request))
    }

    /// Time of one token while so many requests run.
    pub fn token(&self, token: Duration, running: u64, request: u64) -> Duration {
        if self.seed == 0 {
            return token;
        }
        let load = (1.0 + running.max(1) as f64 / DOUBLING_LOAD) / (1.0 + 1.0 / DOUBLING_LOAD);
        token.mul_f64(load * self.slowdown * self.noise_of(request))
    }

    fn noise_of(&self, request: u64) -> f64 {
        1.0 + self.noise * (2.0 * share(self.seed, 1000 + request) - 1.0)
    }
}

/// The settings that are fastest: 16 or 32 sequences, 1024 or 2048 tokens, 1, 2 or 4 steps.
pub fn optimum(seed: u64) -> [u64; 3] {
    let drawn = |n: u64, of: u64| (share(seed, n) * of as f64) as u32;
    [16 << drawn(1, 2), 1024 << drawn(2, 2), 1 << drawn(3, 3)]
}

/// Each doubling away from the optimum costs by its square, 4 to 12 % for the first.
fn slowdown(seed: u64, settings: [u64; 3]) -> f64 {
    let each = settings.iter().zip(optimum(seed)).zip(10..);
    let falls = each.map(|((own, best), n)| {
        let apart = ((*own).max(1) as f64).log2() - (best as f64).log2();
        apart * apart * (0.04 + 0.08 * share(seed, n))
    });
    falls.sum::<f64>().exp()
}

/// A number from 0 to 1 that a seed draws, the nth: multiplied by large odd numbers, folded by shifts.
fn share(seed: u64, n: u64) -> f64 {
    let mut bits = (seed.wrapping_mul(1_000_003).wrapping_add(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    bits ^= bits >> 32;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimum_is_the_fastest_and_no_corner() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 1..50 {
            let best = optimum(seed);
            seen.insert(best);
            assert_eq!(slowdown(seed, best), 1.0);
            for seqs in [8, 16, 32, 64] {
                for tokens in [512, 1024, 2048, 4096] {
                    for steps in [1, 2, 4] {
                        let own = [seqs, tokens, steps];
                        assert!(own == best || slowdown(seed, own) > 1.03, "{seed}: {own:?}");
                    }
                }
            }
        }
        assert!(seen.len() > 6, "{seen:?}");
    }

    #[test]
    fn more_at_once_is_more_in_all_and_slower_for_each() {
        let latency = Latency { seed: 1, noise: 0.0, slowdown: 1.0, max_num_seqs: 8 };
        let token = |running| latency.token(Duration::from_millis(6), running, 0).as_secs_f64();
        assert!((token(1) - 0.006).abs() < 1e-9);
        assert!(token(8) > token(1) && 8.0 / token(8) > 3.0 / token(1));
        let off = Latency { seed: 0, noise: 0.5, slowdown: 1.0, max_num_seqs: 8 };
        assert_eq!(off.token(Duration::from_millis(6), 8, 3), Duration::from_millis(6));
        assert_eq!(off.prefill(Duration::from_millis(6), 100, 3), Duration::ZERO);
    }
}
