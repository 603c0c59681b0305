//! Lengths of prompts and outputs: one for all, or a mix.

use super::random::Random;

/// A prompt and an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Tokens (or words) of the prompt.
    pub input: u32,
    /// Tokens of the output.
    pub output: u32,
}

/// A mix of lengths; the seed decides which request gets which.
#[derive(Debug, Clone, PartialEq)]
pub struct LengthMix(Vec<(Length, f64)>);

impl LengthMix {
    /// The same for every request.
    pub fn fixed_length(input: u32, output: u32) -> LengthMix {
        LengthMix(vec![(Length { input, output }, 1.0)])
    }

    /// Lengths with their weights; `Err` is the reason they are invalid.
    pub fn weighted_mix(shares: Vec<(Length, f64)>) -> Result<LengthMix, String> {
        let total: f64 = shares.iter().map(|(_, weight)| weight).sum();
        let bad = shares
            .iter()
            .any(|(l, w)| l.input == 0 || l.output == 0 || !w.is_finite() || *w < 0.0);
        if bad || !total.is_finite() || total <= 0.0 {
            return Err("lengths must be at least 1, weights 0 or more and not all 0".into());
        }
        Ok(LengthMix(shares))
    }

    /// `short:long:ratio`: prompt tokens and the share of short prompts (0 to 1), all with the same
    /// output.
    pub fn short_long(text: &str, output: u32) -> Result<LengthMix, String> {
        let wrong = || format!("invalid mix `{text}`: write it as SHORT:LONG:SHARE OF SHORT");
        let parts: Vec<&str> = text.split(':').collect();
        let [short, long, ratio] = parts[..] else {
            return Err(wrong());
        };
        let ratio: f64 = ratio.trim().parse().map_err(|_| wrong())?;
        let length = |text: &str| {
            let input = text.trim().parse().map_err(|_| wrong())?;
            Ok::<_, String>(Length { input, output })
        };
        if !(0.0..=1.0).contains(&ratio) {
            return Err(wrong());
        }
        LengthMix::weighted_mix(vec![(length(short)?, ratio), (length(long)?, 1.0 - ratio)])
    }

    /// A mix of short prompts, with their share (0 to 1), and long ones.
    pub fn two_lengths((short, share): (u32, f64), long: u32, output: u32) -> LengthMix {
        let length = |input: u32| Length {
            input: input.max(1),
            output: output.max(1),
        };
        // NaN becomes 0.
        let share = share.clamp(0.0, 1.0).max(0.0);
        LengthMix(vec![(length(short), share), (length(long), 1.0 - share)])
    }

    /// The prompt lengths as text: `256`, or `64:256:0.5` for a mix of two.
    pub fn input_text(&self) -> String {
        match self.0.as_slice() {
            [(only, _)] => only.input.to_string(),
            [(short, share), (long, _)] => format!("{}:{}:{share}", short.input, long.input),
            many => format!("{} lengths", many.len()),
        }
    }

    /// The lengths of request `number`.
    pub fn length_of(&self, seed: u64, number: u64) -> Length {
        let total: f64 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut left = even_share(seed, number) * total;
        for (length, weight) in &self.0 {
            left -= weight;
            if left < 0.0 {
                return *length;
            }
        }
        // After rounding errors: the last possible length.
        let possible = self.0.iter().rev().find(|(_, weight)| *weight > 0.0);
        possible.map_or(
            Length {
                input: 1,
                output: 1,
            },
            |(length, _)| *length,
        )
    }
}

/// Number of consecutive requests with evenly spread shares.
const BLOCK: u64 = 16;

/// A share for each request in [0, 1): in random order, but spread evenly over every block of
/// requests, so that a short run has the requested mix.
fn even_share(seed: u64, number: u64) -> f64 {
    // Another random stream than the prompt's words, so that length and words are independent.
    let draw = |number| Random::new(!seed, number).next_share();
    let mut random = Random::new(!seed, number);
    // Its position within the stratum must not depend on the stratum.
    let (own, within) = (random.next_share(), random.next_share());
    let first = number - number % BLOCK;
    let before = (first..first.saturating_add(BLOCK)).filter(|other| {
        let theirs = draw(*other);
        theirs < own || theirs == own && *other < number
    });
    (before.count() as f64 + within) / BLOCK as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_comes_in_its_shares() {
        let mixed = LengthMix::short_long("128:2048:0.9", 64).unwrap();
        let short = (0..10_000)
            .filter(|n| mixed.length_of(5, *n).input == 128)
            .count();
        assert!((8_800..9_200).contains(&short), "{short}");
        assert_eq!(mixed.length_of(5, 77), mixed.length_of(5, 77));
        assert_eq!(mixed.length_of(5, 1).output, 64);
        let fixed = LengthMix::fixed_length(8, 2);
        assert_eq!(
            fixed.length_of(1, 2),
            Length {
                input: 8,
                output: 2
            }
        );
        // Every sixteen have the mixture, not only many.
        let half = LengthMix::two_lengths((1, 0.5), 2, 1);
        for block in 0..100 {
            let of = |n: u64| half.length_of(9, 16 * block + n).input;
            assert_eq!((0..16).filter(|n| of(*n) == 1).count(), 8, "{block}");
        }
        let order: Vec<u32> = (0..32).map(|n| half.length_of(9, n).input).collect();
        assert_ne!(order[..16], order[16..], "and in no order");
        let same = LengthMix::two_lengths((128, 0.9), 2048, 64);
        assert_eq!(same.length_of(5, 77), mixed.length_of(5, 77));
        assert_eq!(same.input_text(), "128:2048:0.9");
        let only_long = LengthMix::short_long("1:2:0", 1).unwrap();
        assert!((0..1000).all(|n| only_long.length_of(0, n).input == 2));
    }

    #[test]
    fn an_invalid_mixture_is_refused() {
        for text in [
            "",
            "1:2",
            "1:2:3",
            "a:2:0.5",
            "0:2:0.5",
            "1:2:nan",
            "1:2:0.5:4",
        ] {
            assert!(LengthMix::short_long(text, 1).is_err(), "{text}");
        }
        assert!(LengthMix::weighted_mix(vec![]).is_err());
        assert!(
            LengthMix::weighted_mix(vec![(
                Length {
                    input: 1,
                    output: 1
                },
                0.0
            )])
            .is_err()
        );
    }
}
