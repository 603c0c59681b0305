//! Searches over what holds up to some point and not beyond it.

/// The largest of `low..=high` for which `holds`, which is true up to some point and false beyond
/// it; `None` where it does not even hold for `low`.
///
/// # Errors
/// The first that `holds` returns.
pub fn largest<E>(
    low: u64,
    high: u64,
    mut holds: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    if low > high || !holds(low)? {
        return Ok(None);
    }
    // Doubling first: the answer is mostly far below what is possible at all.
    let (mut yes, mut step) = (low, 1_u64);
    let mut no = loop {
        let next = yes.saturating_add(step).min(high);
        if next == yes {
            return Ok(Some(yes));
        }
        if !holds(next)? {
            break next;
        }
        yes = next;
        step = step.saturating_mul(2);
    };
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle)? {
            yes = middle
        } else {
            no = middle
        }
    }
    Ok(Some(yes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_answer_holds_and_one_more_does_not(low in 0_u64..100, length in 0_u64..10_000, edge in 0_u64..12_000) {
            let high = low + length;
            let found = largest(low, high, |n| Ok::<_, ()>(n <= edge)).unwrap();
            prop_assert_eq!(found, (edge >= low).then_some(edge.min(high)));
        }
    }

    #[test]
    fn few_questions_are_asked_of_the_whole_range() {
        let mut asked = 0;
        let found = largest(1, u64::MAX, |n| {
            asked += 1;
            Ok::<_, ()>(n < 40_961)
        });
        assert_eq!(found, Ok(Some(40_960)));
        assert!(asked < 50, "{asked}");
        assert_eq!(
            largest(1, u64::MAX, |_| Ok::<_, ()>(true)),
            Ok(Some(u64::MAX))
        );
        assert_eq!(largest(1, 5, |_| Err("unknown")), Err("unknown"));
    }
}
