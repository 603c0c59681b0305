//! The position of a value along an axis, and which round values are named there.

use super::Scale;
use crate::report::layout;

/// Beyond this a value is drawn as this: sums of any number of values stay finite.
const HUGE: f64 = 1e200;

/// Differences smaller than this share of the values cannot be named apart.
const SAME: f64 = 1e-9;

/// A value that can be drawn.
pub fn finite_value(value: f64) -> Option<f64> {
    value.is_finite().then(|| value.clamp(-HUGE, HUGE))
}

/// A value that has a place on the scale.
pub fn scaled_value(scale: Scale, value: f64) -> Option<f64> {
    finite_value(value).filter(|v| scale != Scale::Log2 || *v > 1e-200)
}

/// The lowest and the highest; `None` of nothing.
pub fn range_of(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let each = values.into_iter().map(|v| (v, v));
    each.reduce(|(low, high), (v, _)| (low.min(v), high.max(v)))
}

/// A figure in words for reading at a mark.
pub fn value_with_unit(value: f64, unit: &str) -> String {
    let figure = match value.abs() {
        m if !m.is_finite() => "not a number".into(),
        m if m >= 1e15 || (m < 5e-4 && m > 0.0) => format!("{value:.3e}"),
        _ if unit.is_empty() && value.fract() == 0.0 && value.abs() < 1000.0 => {
            format!("{value:.0}")
        }
        _ => layout::format_figure(value),
    };
    // A negative zero is shown as zero.
    let figure = layout::unsigned_zero(figure);
    match unit {
        "" => figure,
        "%" => format!("{figure}%"),
        unit => format!("{figure} {unit}"),
    }
}

/// From the lowest to the highest: `1.50 to 2.00 GiB`.
pub fn range_with_unit((low, high): (f64, f64), unit: &str) -> String {
    let (low, high) = (value_with_unit(low, ""), value_with_unit(high, unit));
    format!("{low} to {high}")
}

/// The same for where there is little room: the unit is elsewhere.
pub fn short_value(value: f64) -> String {
    value_with_unit(value, " ").trim_end().to_owned()
}

/// An axis laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisScale {
    /// The values at its ends.
    ends: (f64, f64),
    /// Where these are drawn.
    places: (f64, f64),
    log: bool,
    /// Round values on it, with their words.
    pub ticks: Vec<(f64, String)>,
}

impl AxisScale {
    /// An axis for values from `low` to `high`, drawn between `places`, with about `most` ticks at
    /// most. Its ends are round where `round`.
    pub fn new(
        scale: Scale,
        (low, high): (f64, f64),
        places: (f64, f64),
        most: usize,
        round: bool,
    ) -> AxisScale {
        match scale {
            Scale::Log2 if low > 0.0 => log2((low, high), places, most),
            Scale::FromZero => even((low.min(0.0), high.max(0.0)), places, most, round, true),
            _ => even((low, high), places, most, round, false),
        }
    }

    /// An axis with ends and ticks as they are given.
    pub fn plain_ruler(
        ends: (f64, f64),
        places: (f64, f64),
        ticks: Vec<(f64, String)>,
    ) -> AxisScale {
        AxisScale {
            ends,
            places,
            log: false,
            ticks,
        }
    }

    /// The values at its ends.
    pub fn end_values(&self) -> (f64, f64) {
        self.ends
    }

    /// Where a value is drawn; never beyond the ends.
    pub fn place_of(&self, value: f64) -> f64 {
        let (from, to) = self.ends;
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / from).log2() / (to / from).log2()
        } else {
            (value - from) / (to - from)
        };
        let share = if share.is_finite() { share } else { 0.0 };
        let (at, end) = self.places;
        at + share.clamp(0.0, 1.0) * (end - at)
    }
}

/// Evenly from `low` to `high`.
fn even(
    (low, high): (f64, f64),
    places: (f64, f64),
    most: usize,
    round: bool,
    from_zero: bool,
) -> AxisScale {
    let largest = low.abs().max(high.abs());
    let (low, high) = if high - low > (largest * SAME).max(1e-200) {
        (low, high)
    } else if largest < 1e-200 {
        (0.0, 1.0)
    } else if from_zero {
        (low.min(0.0), high.max(0.0))
    } else {
        // One value alone is in the middle.
        (low - largest * 0.1, high + largest * 0.1)
    };
    let step = round_step((high - low) / most.max(1) as f64, &[1.0, 2.0, 5.0, 10.0]);
    let (mut low, mut high) = (low, high);
    if round {
        low = (low / step + SAME).floor().max(-1e15) * step;
        high = (high / step - SAME).ceil().min(1e15) * step;
    }
    let ticks = multiples(step, low, high).map(|value| (value, tick(value, step, largest)));
    AxisScale::plain_ruler((low, high), places, ticks.collect())
}

/// The smallest of `roundness` times a power of ten that is at least `least`.
fn round_step(least: f64, roundness: &[f64]) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    roundness
        .iter()
        .map(|r| r * power)
        .find(|s| *s >= least * (1.0 - SAME))
        .unwrap_or(power * 10.0)
}

/// Multiples of `step` from `low` to `high`, a bounded number of them.
fn multiples(step: f64, low: f64, high: f64) -> impl Iterator<Item = f64> {
    let first = (low / step - SAME.sqrt()).ceil();
    (0..64)
        .map(move |i| (first + f64::from(i)) * step)
        .take_while(move |v| *v <= high + step * SAME.sqrt())
        // No -0.
        .map(|v| v + 0.0)
}

/// A value of an axis in words, with the decimals that its steps need.
fn tick(value: f64, step: f64, largest: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if largest >= 1e7 || step < 1e-6 {
        let power = |v: f64| (v * (1.0 + SAME)).log10().floor();
        let digits = (power(value.abs()) - power(step)).clamp(0.0, 12.0);
        let text = format!("{value:.0$e}", digits as usize);
        // 2.0e7 is 2e7.
        let parts = text.split_once('e').filter(|(m, _)| m.contains('.'));
        return parts.map_or(text.clone(), |(m, e)| {
            format!("{}e{e}", m.trim_end_matches('0').trim_end_matches('.'))
        });
    }
    let decimals = (-(step * (1.0 + SAME)).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let grouped = whole.parse().map(layout::grouped_count);
    let whole = grouped.unwrap_or_else(|_| whole.into());
    let sign = if value < 0.0 { "−" } else { "" };
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{rest}")
}

/// By powers of two, whole ones at the ends.
fn log2((low, high): (f64, f64), places: (f64, f64), most: usize) -> AxisScale {
    let first = (low.log2() + SAME).floor();
    let last = (high.log2() - SAME).ceil().max(first + 1.0);
    let every = ((last - first) / most.max(1) as f64).ceil().max(1.0);
    let ticks = (0..=most + 1)
        .map(|i| first + i as f64 * every)
        .take_while(|exponent| *exponent <= last)
        .map(|exponent| (exponent.exp2(), power(exponent)))
        .collect();
    AxisScale {
        ends: (first.exp2(), last.exp2()),
        places,
        log: true,
        ticks,
    }
}

fn power(exponent: f64) -> String {
    match exponent as i32 {
        e @ 0..=19 => layout::grouped_count(1 << e),
        e @ -4..=-1 => format!("{}", f64::from(e).exp2()),
        e => format!("2^{e}"),
    }
}

/// Seconds as an axis, with round moments, and what they are in: `s`, `min:s`, `h:min`.
pub fn time_ruler(
    (from, to): (f64, f64),
    places: (f64, f64),
    most: usize,
) -> (AxisScale, &'static str) {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 3600.0;
    let (from, to) = if to - from > (from.abs().max(to.abs()) * SAME).max(1e-9) {
        (from, to)
    } else {
        (from - 0.5, from + 0.5)
    };
    let least = (to - from) / most.max(1) as f64;
    let sixties = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
    let hours = [1.0, 2.0, 3.0, 6.0, 12.0, 24.0].map(|n| n * HOUR);
    let rounds = [sixties, sixties.map(|n| n * MINUTE), hours].concat();
    let fine = round_step(least.min(1.0), &[1.0, 2.0, 5.0, 10.0]);
    let step = match rounds.iter().find(|r| **r >= least) {
        Some(_) if least <= 0.5 => fine,
        Some(round) => *round,
        None => 24.0 * HOUR * round_step(least / (24.0 * HOUR), &[1.0, 2.0, 5.0, 10.0]),
    };
    let largest = from.abs().max(to.abs());
    let unit = match largest {
        l if l > 1e9 || l <= 2.0 * MINUTE || step < 1.0 => "s",
        l if l <= 2.0 * HOUR => "min:s",
        _ => "h:min",
    };
    let sixties = |value: f64, part: f64| {
        let parts = (value.abs() / part).round();
        let sign = if value < 0.0 { "−" } else { "" };
        format!("{sign}{:.0}:{:02.0}", (parts / 60.0).floor(), parts % 60.0)
    };
    let ticks = multiples(step, from, to)
        .map(|value| {
            let words = match unit {
                "s" => tick(value, step, largest),
                "min:s" => sixties(value, 1.0),
                _ => sixties(value, MINUTE),
            };
            (value, words)
        })
        .collect();
    (AxisScale::plain_ruler((from, to), places, ticks), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(ruler: &AxisScale) -> Vec<&str> {
        ruler.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    fn even_words(low: f64, high: f64) -> Vec<String> {
        let ruler = AxisScale::new(Scale::Linear, (low, high), (0.0, 100.0), 5, true);
        words_of(&ruler).iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn ticks_are_round_and_named_with_the_decimals_they_need() {
        assert_eq!(even_words(0.0, 80.0), ["0", "20", "40", "60", "80"]);
        assert_eq!(even_words(-0.3, 1.0), ["−0.5", "0", "0.5", "1.0"]);
        assert_eq!(
            even_words(0.0, 4000.0),
            ["0", "1,000", "2,000", "3,000", "4,000"]
        );
        assert_eq!(
            even_words(0.0, 2.4e7),
            ["0", "5e6", "1e7", "1.5e7", "2e7", "2.5e7"]
        );
        assert_eq!(even_words(7.0, 7.0), ["6.0", "6.5", "7.0", "7.5", "8.0"]);
    }

    #[test]
    fn powers_of_two_are_named_and_thinned() {
        let ruler = AxisScale::new(Scale::Log2, (1.0, 256.0), (0.0, 80.0), 10, true);
        assert_eq!(
            words_of(&ruler),
            ["1", "2", "4", "8", "16", "32", "64", "128", "256"]
        );
        assert_eq!(ruler.place_of(16.0), 40.0);
        let few = AxisScale::new(Scale::Log2, (0.25, 1_048_576.0), (0.0, 80.0), 5, true);
        assert!(few.ticks.len() <= 6, "{few:?}");
        let one = AxisScale::new(Scale::Log2, (5.0, 5.0), (0.0, 80.0), 5, true);
        assert_eq!(words_of(&one), ["4", "8"]);
    }

    #[test]
    fn moments_are_round_in_the_unit_of_the_whole() {
        let (short, unit) = time_ruler((-3.2, 41.0), (0.0, 100.0), 6);
        assert_eq!(
            (words_of(&short).join(" ").as_str(), unit),
            ("0 10 20 30 40", "s")
        );
        let (minutes, unit) = time_ruler((-35.0, 400.0), (0.0, 100.0), 6);
        assert_eq!(words_of(&minutes), ["0:00", "2:00", "4:00", "6:00"]);
        assert_eq!(unit, "min:s");
        let (day, unit) = time_ruler((0.0, 86_400.0), (0.0, 100.0), 6);
        assert_eq!(words_of(&day).join(" "), "0:00 6:00 12:00 18:00 24:00");
        assert_eq!(unit, "h:min");
        let (instant, _) = time_ruler((5.0, 5.0), (0.0, 100.0), 6);
        assert!((instant.place_of(5.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn any_range_has_an_axis() {
        let odd: [f64; 10] = [
            0.0,
            -0.0,
            1e-320,
            1e-9,
            1.0,
            1.0 + 1e-12,
            1e15,
            1e200,
            -1e200,
            -1.0,
        ];
        for scale in [Scale::FromZero, Scale::Linear, Scale::Log2] {
            for a in odd {
                for b in odd {
                    let range = (a.min(b), a.max(b));
                    for ruler in [
                        AxisScale::new(scale, range, (10.0, 90.0), 5, true),
                        time_ruler(range, (10.0, 90.0), 5).0,
                    ] {
                        assert!(ruler.ticks.len() <= 64, "{scale:?} {range:?}");
                        for v in odd {
                            assert!((10.0..=90.0).contains(&ruler.place_of(v)), "{range:?} {v}");
                        }
                        assert!(ruler.ticks.iter().all(|t| t.1.len() < 24), "{ruler:?}");
                    }
                }
            }
        }
    }
}
