//! Sums and products of counts and bytes. Configurations may be hostile: what does not fit 64 bits is the largest
//! number that does.

/// The product of all factors.
pub(super) fn product<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// The sum of all parts.
pub(super) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
