//! Cleans up the driver's process lists: detects nonsense, merges lists, assigns processes to the
//! container.

use super::attribution::Attribution;
use crate::capture::ProcessMemory;
use std::path::Path;

/// Pid and memory in bytes of a process in the driver's list; `None` if the driver does not report
/// the memory.
pub type Raw = (u32, Option<u64>);

/// Whether the driver's process lists have another layout than its header: from the second process
/// on they are nonsense, and beyond the fifteenth they overflow the buffer. Versions 535.43 to
/// 535.97.
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

/// Merges several lists (compute, graphics). A process in more than one has the larger figure,
/// because each list counts all of its memory. `None` when an entry is impossible, which makes the
/// other entries doubtful too.
pub fn merge_lists(lists: &[Vec<Raw>], total_bytes: u64) -> Option<Vec<Raw>> {
    let mut merged: Vec<Raw> = Vec::new();
    for &(pid, bytes) in lists.iter().flatten() {
        // The idle task and the host's init are never on a GPU.
        if pid <= 1 || i32::try_from(pid).is_err() || bytes.is_some_and(|b| b > total_bytes) {
            return None;
        }
        // A process with a context always has memory: some drivers write 0 for "not available".
        let bytes = bytes.filter(|b| *b > 0);
        match merged.iter_mut().find(|(known, _)| *known == pid) {
            Some((_, known)) => *known = bytes.max(*known),
            None => merged.push((pid, bytes)),
        }
    }
    merged.sort_unstable();
    Some(merged)
}

/// The processes with their names and containers from `proc`, without those that have ended. Keeps
/// no cache between two lists.
pub fn identify_in(proc: &Path, raw: Vec<Raw>, container_id: &str) -> Vec<ProcessMemory> {
    Attribution::for_container(proc, container_id).identify_processes(&raw)
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
        assert_eq!(merge_lists(&[compute, graphics], 1000), Some(expected));
        assert_eq!(merge_lists(&[], 1000), Some(vec![]));
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
            assert_eq!(
                merge_lists(&[vec![(10, Some(1)), bad]], 1000),
                None,
                "{bad:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn merging_keeps_every_process_once(list in proptest::collection::vec((2u32..50, proptest::option::of(1u64..100)), 0..40)) {
            let merged = merge_lists(std::slice::from_ref(&list), 1000).unwrap();
            let mut pids: Vec<u32> = list.iter().map(|r| r.0).collect();
            pids.sort_unstable();
            pids.dedup();
            prop_assert_eq!(merged.iter().map(|r| r.0).collect::<Vec<_>>(), pids);
        }
    }
}
