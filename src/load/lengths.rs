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
pub struct LengthMix {
    long: Length,
    /// Tokens of a short prompt, and the share of such prompts, 0 to 1.
    short: Option<(u32, f64)>,
}

impl LengthMix {
    /// The same for every request.
    pub fn fixed_length(input: u32, output: u32) -> LengthMix {
        LengthMix {
            long: Length { input, output },
            short: None,
        }
    }

    /// A mix of short prompts, with their share (0 to 1), and long ones.
    pub fn two_lengths((short, share): (u32, f64), long: u32, output: u32) -> LengthMix {
        LengthMix {
            long: Length {
                input: long.max(1),
                output: output.max(1),
            },
            // NaN becomes 0.
            short: Some((short.max(1), share.clamp(0.0, 1.0).max(0.0))),
        }
    }

    /// The prompt lengths as text: `256`, or `64:256:0.5` for a mix of two.
    pub fn input_text(&self) -> String {
        let long = self.long.input;
        match self.short {
            None => long.to_string(),
            Some((short, share)) => format!("{short}:{long}:{share}"),
        }
    }

    /// The lengths of request `number`.
    pub fn length_of(&self, seed: u64, number: u64) -> Length {
        match self.short {
            Some((input, share)) if even_share(seed, number) < share => {
                Length { input, ..self.long }
            }
            _ => self.long,
        }
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
        let mixed = LengthMix::two_lengths((128, 0.9), 2048, 64);
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
        assert_eq!(mixed.input_text(), "128:2048:0.9");
        for (share, only) in [(0.0, 2), (f64::NAN, 2), (1.0, 1)] {
            let mix = LengthMix::two_lengths((1, share), 2, 1);
            assert!((0..1000).all(|n| mix.length_of(0, n).input == only));
        }
    }
}
