//! Sums and products of counts and bytes. Configurations may be hostile: what does not fit 64 bits is the largest
//! number that does.

/// The product of all factors.
pub(super) fn product<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// What counts only under a condition.
pub(super) fn count_if(condition: bool, count: u64) -> u64 {
    if condition { count } else { 0 }
}

/// The sum of all parts.
pub(super) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
