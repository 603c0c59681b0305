//! How near memory is to its limit: the one scale for every page and colour.

use std::fmt;
use strum::IntoStaticStr;

/// Free share of a limit, in percent, from which memory is safe.
pub const SAFE_FROM_PERCENT: u32 = 5;
/// Free share of a limit, in percent, from which memory is tight and not critical.
pub const TIGHT_FROM_PERCENT: u32 = 2;

/// Level of the free memory below a limit. The worst of several levels is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Headroom {
    /// At least 5 % of the limit is free.
    Safe,
    /// From 2 % to less than 5 % is free: a longer prompt or a second process may not fit.
    Tight,
    /// Less than 2 % is free: the next large allocation fails.
    Critical,
}

crate::wording::as_written!(Headroom);

impl Headroom {
    /// Level of `free` bytes below a limit of `total` bytes; `None` where there is no limit.
    pub fn of_share(free: u64, total: u64) -> Option<Headroom> {
        // In whole numbers: a share of exactly 5 % must not depend on rounding.
        let reaches =
            |percent: u32| u128::from(free) * 100 >= u128::from(total) * u128::from(percent);
        match total {
            0 => None,
            _ if reaches(SAFE_FROM_PERCENT) => Some(Headroom::Safe),
            _ if reaches(TIGHT_FROM_PERCENT) => Some(Headroom::Tight),
            _ => Some(Headroom::Critical),
        }
    }

    /// The share of `total` bytes that may be used beyond what is, and leave it safe; negative where
    /// that share must be given up first.
    pub fn spare_share(free: u64, total: u64) -> f64 {
        free as f64 / total.max(1) as f64 - f64::from(SAFE_FROM_PERCENT) / 100.0
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_belongs_to_the_better_level() {
        let gib = 1u64 << 30;
        for (free, total, level) in [
            (80 * gib, 80 * gib, Headroom::Safe),
            (4 * gib, 80 * gib, Headroom::Safe),
            (4 * gib - 1, 80 * gib, Headroom::Tight),
            (2, 100, Headroom::Tight),
            (1, 100, Headroom::Critical),
            (0, 1, Headroom::Critical),
            (u64::MAX, u64::MAX, Headroom::Safe),
        ] {
            assert_eq!(
                Headroom::of_share(free, total),
                Some(level),
                "{free} of {total}"
            );
        }
    }

    #[test]
    fn without_a_limit_there_is_no_level() {
        assert_eq!(Headroom::of_share(1, 0), None);
    }

    #[test]
    fn the_worst_level_is_the_maximum() {
        let levels = [Headroom::Tight, Headroom::Critical, Headroom::Safe];
        assert_eq!(levels.into_iter().max(), Some(Headroom::Critical));
        assert_eq!(format!("{:>9}", Headroom::Tight), "    tight");
    }
}
