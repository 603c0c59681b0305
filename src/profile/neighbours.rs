//! Processes of others on a device that is shared: how much they hold, and when they grow.

use super::observation::CaptureObservation;
use super::series::{MOST_BYTES, SampleSeries};
use crate::capture::{AtNs, ProcessMemory};
use crate::engine::facts::Finding;
use crate::units::signed_text;
use crate::wording::count_noun;
use std::collections::BTreeSet;

/// Growth of other processes is reported from this on, bytes.
const REPORTED_BYTES: i64 = 16 << 20;

/// What the processes of others held on one device over time. Lists of processes are read less
/// often than memory.
#[derive(Debug, Clone, Default)]
pub struct Neighbours {
    /// Moment and bytes of each list, in order of time.
    held: Vec<(AtNs, i64)>,
    /// Whether other processes were there and the driver did not report their memory.
    pub unreported: bool,
}

impl Neighbours {
    /// Of one device.
    pub fn neighbours_on(series: &SampleSeries, device: usize) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for sample in series.rows_of_device(device).samples_with_lists() {
            let list = sample.processes.unwrap_or_default();
            let others = list.iter().filter(|p| is_foreign(p));
            let held = others
                .map(|p| p.used_bytes)
                .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
                .filter(|b| *b <= MOST_BYTES);
            match held {
                Some(bytes) => neighbours.held.push((sample.at_ns, bytes as i64)),
                None => neighbours.unreported = true,
            }
        }
        // With a part of it unknown there is no difference to take.
        if neighbours.unreported {
            neighbours.held.clear();
        }
        neighbours
    }

    /// What they held at a moment, by the list nearest to it; 0 where none is known.
    pub fn held_at(&self, at: AtNs) -> i64 {
        let next = self.held.partition_point(|(t, _)| *t <= at);
        let after = self.held.get(next);
        let before = next.checked_sub(1).and_then(|i| self.held.get(i));
        match (before, after) {
            (Some(b), Some(a)) if a.0.saturating_sub(at) < at.saturating_sub(b.0) => a.1,
            (Some(b), _) => b.1,
            (None, Some(a)) => a.1,
            (None, None) => 0,
        }
    }
}

fn is_foreign(p: &ProcessMemory) -> bool {
    p.ours == Some(false)
}

/// Who shares our GPUs, who came during the run, and whether they grew.
pub fn find_neighbours(o: &CaptureObservation<'_>, findings: &mut Vec<Finding>) {
    let mut warn = |code: &str, message: String| {
        findings.push(Finding::new_warning(code, message));
    };
    for device in 0..o.series.device_count() {
        let lists: Vec<_> = o.series.rows_of_device(device).process_lists().collect();
        let Some(first) = lists.first() else { continue };
        let foreign = |list: &[ProcessMemory]| {
            let others = list.iter().filter(|p| is_foreign(p));
            others.map(|p| p.pid).collect::<BTreeSet<_>>()
        };
        let before = foreign(first);
        let entered = lists
            .iter()
            .flat_map(|l| foreign(l))
            .filter(|pid| !before.contains(pid))
            .collect::<BTreeSet<_>>();
        if !before.is_empty() {
            let message = format!(
                "device {device} is shared: {} of others {} on it from the start",
                count_noun(before.len(), "process"),
                if before.len() == 1 { "was" } else { "were" }
            );
            warn("gpu_shared", message);
        }
        if !entered.is_empty() {
            let message = format!(
                "{} of others entered device {device} during the run: the peak may be theirs in part",
                count_noun(entered.len(), "process")
            );
            warn("other_process_entered", message);
        }
        let neighbours = o.neighbours_of(device);
        if neighbours.unreported {
            let message = format!(
                "the driver does not report the memory of other processes on device {device}: their growth during the run is counted as this engine's"
            );
            warn("neighbours_untold", message);
        }
        if let Some(grew) = neighbour_growth(o, device).filter(|b| b.abs() >= REPORTED_BYTES) {
            let (verb, sum) = if grew > 0 {
                ("grew", "is in the baseline of the peak")
            } else {
                ("shrank", "is taken off the baseline of the peak")
            };
            let message = format!(
                "processes of others on device {device} {verb} by {} between the baseline and the peak: that {sum}, not in this engine's parts, and the total holds what they had then",
                signed_text(grew.abs().into())
            );
            warn("neighbours_grew", message);
        }
    }
}

/// What others took on a device from the baseline to the peak, bytes; `None` without both.
pub fn neighbour_growth(o: &CaptureObservation<'_>, device: usize) -> Option<i64> {
    let peaks = &o.top_repeat()?.peaks;
    let peak = peaks.iter().find(|p| p.nearest.device as usize == device)?;
    let before = o.baseline_sample(device)?;
    let neighbours = o.neighbours_of(device);
    Some(neighbours.held_at(peak.nearest.at_ns) - neighbours.held_at(before.at_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::MemorySample;

    fn list(at_ns: AtNs, used_bytes: Option<u64>) -> MemorySample {
        MemorySample {
            at_ns,
            processes: Some(vec![ProcessMemory {
                pid: 1,
                used_bytes,
                ours: Some(false),
                ..ProcessMemory::default()
            }]),
            ..MemorySample::default()
        }
    }

    #[test]
    fn the_nearest_list_speaks_for_a_moment() {
        let series = SampleSeries::new([list(0, Some(5)), list(100, Some(9))]);
        let n = Neighbours::neighbours_on(&series, 0);
        assert_eq!([-5, 40, 50, 60, 900].map(|t| n.held_at(t)), [5, 5, 5, 9, 9]);
        assert!(!n.unreported);
    }

    #[test]
    fn an_unreported_figure_leaves_no_difference() {
        let series = SampleSeries::new([list(0, Some(5)), list(100, None)]);
        let n = Neighbours::neighbours_on(&series, 0);
        assert!(n.unreported);
        assert_eq!(n.held_at(0), n.held_at(100));
    }
}
