//! Thins the samples of one device: the lowest and the highest of each stretch of time are kept, so
//! no peak is lost however much is thinned.

use super::Stretch;

/// Takes samples one after the other and keeps a bounded number of stretches.
#[derive(Debug, Clone)]
pub struct Envelope {
    range_s: (f64, f64),
    most: usize,
    /// Every sample, until there are more of them than `most`; then one for each part of the range.
    kept: Vec<Stretch>,
    /// Which part each of `kept` is, once it is one for each.
    parts: Option<Vec<Option<Stretch>>>,
    samples: u64,
}

impl Envelope {
    /// For samples from the first to the second moment of `range_s`, seconds, both included; at most
    /// `most` stretches come of them, at least one.
    pub fn new(range_s: (f64, f64), most: usize) -> Envelope {
        Envelope {
            range_s: (range_s.0.min(range_s.1), range_s.0.max(range_s.1)),
            most: most.max(1),
            kept: Vec::new(),
            parts: None,
            samples: 0,
        }
    }

    /// A sample: its moment, and the lowest and the highest that it represents. One outside the
    /// range, or NaN, does not count.
    pub fn add(&mut self, at_s: f64, low: f64, high: f64) {
        self.add_stretch(Stretch {
            from_s: at_s,
            to_s: at_s,
            low,
            high,
        });
    }

    /// A stretch as a sample that lasts; it belongs where it begins.
    pub fn add_stretch(&mut self, stretch: Stretch) {
        let (from, to) = self.range_s;
        let inside = stretch.from_s >= from && stretch.to_s <= to && stretch.from_s <= stretch.to_s;
        if !inside || !stretch.low.is_finite() || !stretch.high.is_finite() {
            return;
        }
        let stretch = Stretch {
            low: stretch.low.min(stretch.high),
            high: stretch.low.max(stretch.high),
            ..stretch
        };
        self.samples += 1;
        if let Some(parts) = &mut self.parts {
            return put_stretch(parts, self.range_s, stretch);
        }
        self.kept.push(stretch);
        if self.kept.len() > self.most {
            let mut parts = vec![None; self.most];
            for stretch in std::mem::take(&mut self.kept) {
                put_stretch(&mut parts, self.range_s, stretch);
            }
            self.parts = Some(parts);
        }
    }

    /// How many samples were in the range.
    pub fn sample_count(&self) -> u64 {
        self.samples
    }

    /// The stretches in order of time.
    pub fn into_stretches(self) -> Vec<Stretch> {
        match self.parts {
            Some(parts) => parts.into_iter().flatten().collect(),
            None => {
                let mut kept = self.kept;
                kept.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
                kept
            }
        }
    }
}

fn put_stretch(parts: &mut [Option<Stretch>], (from, to): (f64, f64), new: Stretch) {
    let share = (new.from_s - from) / (to - from);
    // The last moment of the range belongs to the last part; of a range of no length all do.
    let at = ((share * parts.len() as f64) as usize).min(parts.len() - 1);
    match &mut parts[at] {
        Some(part) => {
            part.from_s = part.from_s.min(new.from_s);
            part.to_s = part.to_s.max(new.to_s);
            part.low = part.low.min(new.low);
            part.high = part.high.max(new.high);
        }
        empty => *empty = Some(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thinned(samples: &[(f64, f64, f64)], range: (f64, f64), most: usize) -> Vec<Stretch> {
        let mut envelope = Envelope::new(range, most);
        for (at, low, high) in samples {
            envelope.add(*at, *low, *high);
        }
        assert_eq!(envelope.sample_count(), samples.len() as u64);
        envelope.into_stretches()
    }

    #[test]
    fn a_spike_of_one_sample_survives_a_day_of_eight_devices() {
        const TICKS: u64 = 864_000;
        for device in 0..8 {
            let spikes: Vec<u64> = (0..5)
                .map(|i| (i * 163_841 + device * 7919) % TICKS)
                .collect();
            let dips: Vec<u64> = spikes.iter().map(|s| (s + 60_000) % TICKS).collect();
            let mut envelope = Envelope::new((0.0, 86_400.0), 2000);
            for tick in 0..TICKS {
                let value = match tick {
                    t if spikes.contains(&t) => 79.5,
                    t if dips.contains(&t) => 3.25,
                    t => 40.0 + (t % 1000) as f64 / 1000.0,
                };
                envelope.add(tick as f64 / 10.0, value, value);
            }
            assert_eq!(envelope.sample_count(), TICKS);
            let stretches = envelope.into_stretches();
            assert_eq!(stretches.len(), 2000);
            assert_eq!((stretches[0].from_s, stretches[1999].to_s), (0.0, 86_399.9));
            let holding = |tick: &u64| {
                let at = *tick as f64 / 10.0;
                let found = stretches.iter().find(|s| s.from_s <= at && at <= s.to_s);
                found.copied().expect("a stretch for each sample")
            };
            assert!(spikes.iter().all(|s| holding(s).high == 79.5), "{device}");
            assert!(dips.iter().all(|s| holding(s).low == 3.25), "{device}");
            let flat = stretches.iter().filter(|s| s.high < 41.0 && s.low >= 40.0);
            assert!(
                flat.count() >= 1990,
                "a spike is where it was and nowhere else"
            );
        }
    }

    #[test]
    fn what_is_no_sample_of_the_range_does_not_count() {
        let mut envelope = Envelope::new((0.0, 10.0), 4);
        for (at, value) in [
            (-1.0, 9.0),
            (11.0, 9.0),
            (f64::NAN, 9.0),
            (5.0, f64::NAN),
            (6.0, 1.0),
        ] {
            envelope.add(at, value, value);
        }
        assert_eq!(envelope.sample_count(), 1);
        assert_eq!(envelope.into_stretches().len(), 1);
        assert!(Envelope::new((0.0, 1.0), 4).into_stretches().is_empty());
        let same = thinned(
            &[(2.0, 1.0, 1.0), (2.0, 5.0, 5.0), (2.0, 3.0, 3.0)],
            (2.0, 2.0),
            2,
        );
        assert_eq!(same.iter().map(|s| s.high).fold(0.0, f64::max), 5.0);
    }

    proptest! {
        #[test]
        fn nothing_low_or_high_is_lost(
            mut samples in prop::collection::vec((0.0..100.0f64, -50.0..50.0f64, 0.0..9.0f64), 1..400),
            most in 1usize..80,
        ) {
            samples.sort_by(|a, b| a.0.total_cmp(&b.0));
            let samples: Vec<(f64, f64, f64)> =
                samples.into_iter().map(|(at, low, more)| (at, low, low + more)).collect();
            let stretches = thinned(&samples, (0.0, 100.0), most);
            prop_assert!(stretches.len() <= most);
            if samples.len() <= most {
                let back: Vec<_> = stretches.iter().map(|s| (s.from_s, s.low, s.high)).collect();
                prop_assert_eq!(&back, &samples);
            }
            // In order, apart, and from the first sample to the last.
            prop_assert!(stretches.windows(2).all(|w| w[0].to_s <= w[1].from_s));
            prop_assert_eq!(stretches[0].from_s, samples[0].0);
            prop_assert_eq!(stretches[stretches.len() - 1].to_s, samples[samples.len() - 1].0);
            for (at, low, high) in &samples {
                prop_assert!(
                    stretches.iter().any(|s| s.from_s <= *at
                        && *at <= s.to_s
                        && s.low <= *low
                        && s.high >= *high),
                    "the sample at {} is in no stretch", at
                );
            }
            // And nothing is invented: each extreme was seen within its stretch.
            for s in &stretches {
                let within = || samples.iter().filter(|x| s.from_s <= x.0 && x.0 <= s.to_s);
                prop_assert!(within().any(|x| x.1 == s.low) && within().any(|x| x.2 == s.high));
            }
        }
    }
}
