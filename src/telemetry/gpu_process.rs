//! What the driver says about processes on a GPU, made sense of: nonsense recognised, lists
//! merged, processes assigned to the container.

use super::attribution::Attribution;
use crate::capture::ProcessMemory;
use std::path::Path;

/// A process as the driver lists it, its memory in bytes where the driver tells.
pub type Raw = (u32, Option<u64>);

/// Drivers whose process lists are laid out otherwise than their header says: from the second
/// process on they are nonsense, and past the fifteenth they are written beyond the list's end.
/// Versions 535.43 up to 535.97.
pub fn has_broken_lists(driver: &str) -> bool {
    let mut numbers = driver
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .split('.')
        .map(str::parse::<u32>);
    matches!(
        (numbers.next(), numbers.next()),
        (Some(Ok(535)), Some(Ok(43..=97)))
    )
}

/// One list of several (compute, graphics): a process in more than one is there once, with the
/// larger figure, because each list gives the whole of its memory. `None` when the lists are
/// nonsense: one entry that cannot be makes all others doubtful.
pub fn merge(lists: &[Vec<Raw>], total_bytes: u64) -> Option<Vec<Raw>> {
    let mut merged: Vec<Raw> = Vec::new();
    for &(pid, bytes) in lists.iter().flatten() {
        // The idle task and the host's first process are on no GPU.
        if pid <= 1 || i32::try_from(pid).is_err() || bytes.is_some_and(|b| b > total_bytes) {
            return None;
        }
        // A process that holds a context holds memory: 0 is how some drivers say "not told".
        let bytes = bytes.filter(|b| *b > 0);
        match merged.iter_mut().find(|(known, _)| *known == pid) {
            Some((_, known)) => *known = bytes.max(*known),
            None => merged.push((pid, bytes)),
        }
    }
    merged.sort_unstable();
    Some(merged)
}

/// The processes with what this `/proc` says about them, for a reader that keeps nothing in mind
/// between two lists. One that does not exist (any more) is left out.
pub fn identify_in(proc: &Path, raw: Vec<Raw>, container_id: &str) -> Vec<ProcessMemory> {
    Attribution::of(proc, container_id).identify(&raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_broken_drivers_are_known() {
        for broken in [
            "535.43.02",
            "535.54.03",
            "535.86.10",
            "fake-535.54.03",
            "535.97",
        ] {
            assert!(has_broken_lists(broken), "{broken}");
        }
        for good in [
            "535.98",
            "535.104.05",
            "535.261.03",
            "525.60.13",
            "550.163.01",
            "fake-570.1",
            "",
            "fake",
            "535",
        ] {
            assert!(!has_broken_lists(good), "{good}");
        }
    }

    #[test]
    fn a_process_in_two_lists_counts_once() {
        let compute = vec![(20, Some(100)), (10, None), (30, Some(0))];
        let graphics = vec![(20, Some(90)), (10, Some(5)), (40, None)];
        let expected = vec![(10, Some(5)), (20, Some(100)), (30, None), (40, None)];
        assert_eq!(merge(&[compute, graphics], 1000), Some(expected));
        assert_eq!(merge(&[], 1000), Some(vec![]));
    }

    #[test]
    fn nonsense_spoils_the_whole_list() {
        for bad in [
            (0, Some(1002)),
            (1, Some(10)),
            (u32::MAX, Some(0)),
            (77, Some(1001)),
            (0x8000_0000, None),
        ] {
            assert_eq!(merge(&[vec![(10, Some(1)), bad]], 1000), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn merging_keeps_every_process_once(list in proptest::collection::vec((2u32..50, proptest::option::of(1u64..100)), 0..40)) {
            let merged = merge(std::slice::from_ref(&list), 1000).unwrap();
            let mut pids: Vec<u32> = list.iter().map(|r| r.0).collect();
            pids.sort_unstable();
            pids.dedup();
            prop_assert_eq!(merged.iter().map(|r| r.0).collect::<Vec<_>>(), pids);
        }
    }
}
