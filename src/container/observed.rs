//! Which lines of a log were read, so that reading it again gives each line once.

use super::lines::LogEntry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

pub(super) const SECOND_NS: i64 = 1_000_000_000;

/// The latest time at which a line with this timestamp was written: a whole second covers all of
/// it.
pub(super) fn latest_time(stamp_ns: i64) -> i64 {
    match stamp_ns % SECOND_NS {
        0 => stamp_ns.saturating_add(SECOND_NS - 1),
        _ => stamp_ns,
    }
}

/// Lines of the last seconds, so that repeated ones are recognised.
///
/// The streams' lines are stored slightly out of order, so the newest timestamp alone is not
/// enough: lines are counted by their nanosecond, stream and text. (The text, because podman's
/// timestamps are whole seconds, and its follow sometimes omits a line that a replay contains.)
#[derive(Debug, Clone)]
pub(super) struct ObservedLines {
    /// Lines before this are not asked for.
    pub from_ns: i64,
    /// Stamp of the latest line.
    pub newest_ns: i64,
    /// Whether a line had a stamp of a whole second, and whether one had another.
    whole: bool,
    fine: bool,
    by_second: BTreeMap<i64, LineCounts>,
}

/// How often a line was read, by its nanosecond, stream, and hash of its text.
type LineCounts = HashMap<(i64, u8, u64), u32>;

/// What a replay will repeat.
#[derive(Debug, Default)]
pub(super) struct LineReplay {
    left: LineCounts,
    /// Stamps of the connection's latest lines, by stream.
    latest_ns: [Option<i64>; 3],
}

/// Seconds that are remembered before the newest.
const REMEMBERED: i64 = 2;

impl Default for ObservedLines {
    fn default() -> Self {
        ObservedLines::new(0)
    }
}

impl ObservedLines {
    /// Nothing was read yet.
    pub fn new(from_ns: i64) -> Self {
        ObservedLines {
            from_ns,
            newest_ns: i64::MIN,
            whole: false,
            fine: false,
            by_second: BTreeMap::new(),
        }
    }

    /// Whether the runtime's timestamps are whole seconds.
    pub fn whole_seconds(&self) -> bool {
        self.whole && !self.fine
    }

    /// From when the log is to be read again.
    pub fn since_ns(&self) -> i64 {
        match self.newest_ns {
            i64::MIN => self.from_ns,
            newest => (newest - (REMEMBERED - 1) * 1_000_000_000).max(self.from_ns),
        }
    }

    /// What reading from there will repeat.
    pub fn begin_replay(&self) -> LineReplay {
        let counts = self.by_second.values().flatten();
        LineReplay {
            left: counts.map(|(k, n)| (*k, *n)).collect(),
            latest_ns: [None; 3],
        }
    }

    /// Whether this line was not read before.
    pub fn is_new(&mut self, entry: &LogEntry, replay: &mut LineReplay) -> bool {
        let mut text = DefaultHasher::new();
        (&entry.text, entry.cut).hash(&mut text);
        let key = (entry.wall_ns, entry.stream as u8, text.finish());
        if latest_time(entry.wall_ns) < self.from_ns {
            return false;
        }
        // A stream's lines are stored in order. Docker reads a file again from its beginning when
        // it is rotated under its hands.
        let before = replay.latest_ns[entry.stream as usize].replace(entry.wall_ns);
        let fine = entry.wall_ns % SECOND_NS != 0;
        self.fine |= fine;
        self.whole |= !fine;
        let again = |before| entry.wall_ns < before || (fine && entry.wall_ns == before);
        if before.is_some_and(again) {
            *replay = self.begin_replay();
            replay.latest_ns[entry.stream as usize] = Some(entry.wall_ns);
        }
        if let Some(n) = replay.left.get_mut(&key).filter(|n| **n > 0) {
            *n -= 1;
            return false;
        }
        let second = entry.wall_ns.div_euclid(SECOND_NS);
        // Older than the remembered lines, which were not requested.
        let newest = self.newest_ns.div_euclid(SECOND_NS);
        if self.newest_ns != i64::MIN && second < newest - REMEMBERED {
            return false;
        }
        *self
            .by_second
            .entry(second)
            .or_default()
            .entry(key)
            .or_default() += 1;
        if entry.wall_ns > self.newest_ns {
            self.newest_ns = entry.wall_ns;
            self.by_second = self.by_second.split_off(&(second - REMEMBERED));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Stream;
    use proptest::prelude::*;

    fn entry(wall_ns: i64, stream: Stream) -> LogEntry {
        LogEntry {
            wall_ns,
            stream,
            text: Vec::new(),
            cut: 0,
        }
    }

    #[test]
    fn a_stamp_of_a_whole_second_stands_for_all_of_it() {
        let s = SECOND_NS;
        // A line of the second in which following began may be of after that moment.
        let mut observed = ObservedLines::new(7 * s + 500);
        assert!(observed.is_new(&entry(7 * s, Stream::Stdout), &mut LineReplay::default()));
        assert!(!observed.is_new(
            &entry(7 * s + 499, Stream::Stdout),
            &mut LineReplay::default()
        ));
    }

    #[test]
    fn a_file_that_is_read_again_within_a_connection_gives_no_line_twice() {
        let mut observed = ObservedLines::new(0);
        let mut replay = observed.begin_replay();
        let base = 1_000 * SECOND_NS;
        let line = |n: i64| entry(base + n * 1_000_000 + 7, Stream::Stdout);
        let mut got = Vec::new();
        let mut take = |n: i64| {
            if observed.is_new(&line(n), &mut replay) {
                got.push(n);
            }
        };
        (0..100).for_each(&mut take);
        (87..120).for_each(&mut take);
        // Only its last line.
        (119..121).for_each(&mut take);
        (120..130).for_each(&mut take);
        assert_eq!(got, (0..130).collect::<Vec<_>>());
        // Of long ago it is not known whether it was seen, and it is not asked for either.
        let mut later = entry(base + 60 * SECOND_NS, Stream::Stdout);
        assert!(observed.is_new(&later, &mut replay));
        later.wall_ns = base + 10 * SECOND_NS;
        assert!(!observed.is_new(&later, &mut replay));
    }

    proptest! {
        /// Whatever the connection delivered before it broke, following again gives every line once.
        #[test]
        fn every_line_is_taken_once_over_any_breaks(
            steps in proptest::collection::vec((0i64..700_000_000, any::<bool>()), 1..60),
            breaks in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let mut at = 1_000_000_000_000_i64;
            let log: Vec<LogEntry> = steps.iter().enumerate().map(|(n, (step, err))| {
                at += step / 1000 * 1000;
                // Streams are stored out of order by a hair.
                let stream = if *err { Stream::Stderr } else { Stream::Stdout };
                let text = n.to_string().into_bytes();
                LogEntry { text, ..entry(at - i64::from(*err) * 500, stream) }
            }).collect();
            let mut observed = ObservedLines::new(0);
            let mut got = Vec::new();
            let mut ends: Vec<usize> = breaks.into_iter().filter(|b| *b <= log.len()).collect();
            ends.sort_unstable();
            ends.push(log.len());
            for end in ends {
                let since = observed.since_ns() / 1_000_000_000 * 1_000_000_000;
                let mut replay = observed.begin_replay();
                for e in log[..end].iter().filter(|e| e.wall_ns >= since) {
                    if observed.is_new(e, &mut replay) {
                        got.push(e.clone());
                    }
                }
            }
            prop_assert_eq!(got, log);
        }
    }
}
