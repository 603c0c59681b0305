//! The samples of one device as columns: a day of eight GPUs at 100 ms is seven million samples,
//! and most of their figures do not change from one to the next, or are not read at each.

use crate::capture::{AtNs, HostSplit, HostState, MemorySample, ProcessMemory};
use std::collections::HashMap;

/// A column that seldom changes: where a value begins.
#[derive(Debug, Clone, Default)]
struct ConstantRuns<T> {
    rows: Vec<u32>,
    values: Vec<Option<T>>,
}

/// A column that is empty in most rows: the rows that have a value.
#[derive(Debug, Clone, Default)]
struct SparseColumn<T> {
    rows: Vec<u32>,
    values: Vec<T>,
}

impl<T: Copy + PartialEq> ConstantRuns<T> {
    fn push(&mut self, row: u32, value: Option<T>) {
        if self.values.last().copied().flatten() != value {
            self.rows.push(row);
            self.values.push(value);
        }
    }

    fn get(&self, row: u32) -> Option<T> {
        let run = match self.rows.last() {
            Some(last) if *last <= row => self.rows.len(),
            Some(_) => self.rows.partition_point(|r| *r <= row),
            None => 0,
        };
        run.checked_sub(1).and_then(|run| self.values[run])
    }
}

impl<T: Copy> SparseColumn<T> {
    fn push(&mut self, row: u32, value: Option<T>) {
        if let Some(value) = value {
            self.rows.push(row);
            self.values.push(value);
        }
    }

    fn get(&self, row: u32) -> Option<T> {
        let place = self.rows.binary_search(&row).ok()?;
        Some(self.values[place])
    }

    /// The last value in these rows.
    fn last(&self, from: usize, to: usize) -> Option<T> {
        let place = self
            .rows
            .partition_point(|r| (*r as usize) < to)
            .checked_sub(1)?;
        (self.rows[place] as usize >= from).then(|| self.values[place])
    }
}

/// Names of processes and containers that are kept, and bytes of one.
const MOST_NAMES: usize = 50_000;
const LONGEST_NAME: usize = 1024;

/// Process lists, with each name kept once.
#[derive(Debug, Clone, Default)]
struct ProcessListColumn {
    /// Row, and where its entries end; they begin where those of the list before end.
    ends: Vec<(u32, usize)>,
    entries: Vec<ProcessEntry>,
    names: Vec<String>,
    places: HashMap<String, u32>,
}

#[derive(Debug, Clone, Copy)]
struct ProcessEntry {
    pid: u32,
    used_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    ours: Option<bool>,
    name: Option<u32>,
    container: Option<u32>,
}

impl ProcessListColumn {
    fn push(&mut self, row: u32, list: Option<Vec<ProcessMemory>>) {
        let Some(list) = list else { return };
        for p in list {
            let entry = ProcessEntry {
                pid: p.pid,
                used_bytes: p.used_bytes,
                peak_bytes: p.peak_bytes,
                ours: p.ours,
                name: p.name.and_then(|n| self.place_of_name(n)),
                container: p.container_id.and_then(|id| self.place_of_name(id)),
            };
            self.entries.push(entry);
        }
        self.ends.push((row, self.entries.len()));
    }

    /// Index of a kept name; `None` above the limits, which no real host reaches.
    fn place_of_name(&mut self, name: String) -> Option<u32> {
        if let Some(place) = self.places.get(&name) {
            return Some(*place);
        }
        if self.names.len() >= MOST_NAMES || name.len() > LONGEST_NAME {
            return None;
        }
        let place = self.names.len() as u32;
        self.names.push(name.clone());
        self.places.insert(name, place);
        Some(place)
    }

    fn get(&self, row: u32) -> Option<Vec<ProcessMemory>> {
        let place = self.ends.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let name = |place: Option<u32>| place.map(|p| self.names[p as usize].clone());
        let process = |e: &ProcessEntry| ProcessMemory {
            pid: e.pid,
            used_bytes: e.used_bytes,
            ours: e.ours,
            name: name(e.name),
            container_id: name(e.container),
            peak_bytes: e.peak_bytes,
        };
        let entries = &self.entries[start..self.ends[place].1];
        Some(entries.iter().map(process).collect())
    }
}

/// The columns that hold a figure of a sample under the sample's own name, written into and read from in one place.
macro_rules! columns {
    ($($field:ident: $column:ty,)+) => {
        /// Samples of a device in order of time.
        #[derive(Debug, Clone, Default)]
        pub struct SampleColumns {
            device: u32,
            at: Vec<AtNs>,
            used: Vec<u64>,
            burst: ConstantRuns<bool>,
            processes: ProcessListColumn,
            $($field: $column,)+
        }

        impl SampleColumns {
            /// Adds a sample that is not before the last one.
            pub fn push(&mut self, s: MemorySample) {
                let Ok(row) = u32::try_from(self.at.len()) else {
                    return;
                };
                self.device = s.device;
                self.at.push(s.at_ns);
                self.used.push(s.used_bytes);
                self.burst.push(row, s.burst.then_some(true));
                self.processes.push(row, s.processes);
                $(self.$field.push(row, s.$field);)+
            }

            fn sample(&self, row: usize) -> MemorySample {
                let (at_ns, used_bytes, row) = (self.at[row], self.used[row], row as u32);
                MemorySample {
                    at_ns,
                    device: self.device,
                    used_bytes,
                    burst: self.burst.get(row).unwrap_or(false),
                    processes: self.processes.get(row),
                    $($field: self.$field.get(row),)+
                }
            }
        }
    };
}

columns! {
    low_bytes: ConstantRuns<u64>,
    high_bytes: ConstantRuns<u64>,
    kernel_peak_bytes: ConstantRuns<u64>,
    reserved_bytes: ConstantRuns<u64>,
    host: ConstantRuns<HostSplit>,
    whole_host: ConstantRuns<HostState>,
    bench_client_bytes: ConstantRuns<u64>,
    power_mw: SparseColumn<u32>,
    temperature_c: SparseColumn<u32>,
    hotspot_temp_c: SparseColumn<u32>,
    memory_temp_c: SparseColumn<u32>,
    utilization_pct: SparseColumn<u32>,
    mem_utilization_pct: SparseColumn<u32>,
    clock_gfx_mhz: SparseColumn<u32>,
    clock_mem_mhz: SparseColumn<u32>,
    energy_mj: SparseColumn<u64>,
    throttle: SparseColumn<u64>,
}

impl SampleColumns {
    /// Least memory of the host that was available at a sample, bytes.
    pub fn least_available_bytes(&self) -> Option<u64> {
        let hosts = self.whole_host.values.iter().flatten();
        hosts.map(|host| host.available_bytes).min()
    }

    /// The moment of the last sample.
    pub fn last_at(&self) -> Option<AtNs> {
        self.at.last().copied()
    }

    /// All samples.
    pub fn all_rows(&self) -> SampleRows<'_> {
        SampleRows {
            columns: self,
            from: 0,
            to: self.at.len(),
        }
    }

    /// How many samples lie before a moment, or up to it.
    pub fn count_before(&self, at: AtNs, inclusive: bool) -> usize {
        self.at
            .partition_point(|t| *t < at || (inclusive && *t == at))
    }
}

/// Some of a device's samples, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct SampleRows<'a> {
    columns: &'a SampleColumns,
    from: usize,
    to: usize,
}

impl<'a> SampleRows<'a> {
    /// Those from one place to before another, counted in the device's samples.
    pub fn rows_between(columns: &'a SampleColumns, from: usize, to: usize) -> SampleRows<'a> {
        let to = to.min(columns.at.len());
        let from = from.min(to);
        SampleRows { columns, from, to }
    }

    /// How many.
    pub fn len(self) -> usize {
        self.to - self.from
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// One of them by its place here.
    pub fn get(self, place: usize) -> Option<MemorySample> {
        let row = self.from + place;
        (row < self.to).then(|| self.columns.sample(row))
    }

    /// The first.
    pub fn first(self) -> Option<MemorySample> {
        self.get(0)
    }

    /// The last.
    pub fn last(self) -> Option<MemorySample> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All of them.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = MemorySample> + ExactSizeIterator + 'a {
        (self.from..self.to).map(|row| self.columns.sample(row))
    }

    /// When each was taken.
    pub fn sample_times(self) -> &'a [AtNs] {
        &self.columns.at[self.from..self.to]
    }

    /// What each had in use, bytes.
    pub fn used_bytes(self) -> &'a [u64] {
        &self.columns.used[self.from..self.to]
    }

    /// Whether one of them was taken in a burst.
    pub fn is_burst(self, place: usize) -> bool {
        let row = (self.from + place) as u32;
        self.columns.burst.get(row).unwrap_or(false)
    }

    /// The highest use since the sample before, of one of them; bytes.
    pub fn high_bytes_at(self, place: usize) -> Option<u64> {
        self.columns.high_bytes.get((self.from + place) as u32)
    }

    /// The kernel's high-water mark at one of them, bytes.
    pub fn kernel_peak(self, place: usize) -> Option<u64> {
        self.columns
            .kernel_peak_bytes
            .get((self.from + place) as u32)
    }

    /// The most that the device's samples ever had in swap, bytes.
    pub fn most_swapped(self) -> Option<u64> {
        let kinds = self.columns.host.values.iter().flatten();
        kinds.filter_map(|h| h.swap_bytes).max()
    }

    /// Power and temperature of one of them: milliwatts, °C.
    pub fn gauges_at(self, place: usize) -> (Option<u32>, Option<u32>) {
        let row = (self.from + place) as u32;
        (
            self.columns.power_mw.get(row),
            self.columns.temperature_c.get(row),
        )
    }

    /// Page cache at one of them, bytes.
    pub fn file_bytes(self, place: usize) -> Option<u64> {
        let row = (self.from + place) as u32;
        self.columns.host.get(row).and_then(|h| h.file_bytes)
    }

    /// The last reading among these of each gauge, which are read less often than memory; nothing
    /// else is filled.
    pub fn latest_gauges(self) -> MemorySample {
        let (c, from, to) = (self.columns, self.from, self.to);
        MemorySample {
            power_mw: c.power_mw.last(from, to),
            temperature_c: c.temperature_c.last(from, to),
            hotspot_temp_c: c.hotspot_temp_c.last(from, to),
            memory_temp_c: c.memory_temp_c.last(from, to),
            utilization_pct: c.utilization_pct.last(from, to),
            mem_utilization_pct: c.mem_utilization_pct.last(from, to),
            clock_gfx_mhz: c.clock_gfx_mhz.last(from, to),
            clock_mem_mhz: c.clock_mem_mhz.last(from, to),
            ..MemorySample::default()
        }
    }

    /// Those that carry a process list.
    pub fn samples_with_lists(self) -> impl DoubleEndedIterator<Item = MemorySample> + 'a {
        let (columns, from, to) = (self.columns, self.from, self.to);
        let ends = &columns.processes.ends;
        let place = |row: usize| ends.partition_point(|(r, _)| (*r as usize) < row);
        let inside = &ends[place(from)..place(to)];
        inside.iter().map(|(row, _)| columns.sample(*row as usize))
    }

    /// Moments and readings of the counter of energy, millijoules.
    pub fn energy_readings(self) -> impl Iterator<Item = (AtNs, u64)> + 'a {
        let (columns, from, to) = (self.columns, self.from, self.to);
        let rows = columns.energy_mj.rows.iter().zip(&columns.energy_mj.values);
        rows.map(|(row, mj)| (*row as usize, *mj))
            .filter(move |(row, _)| (from..to).contains(row))
            .map(move |(row, mj)| (columns.at[row], mj))
    }

    /// Process lists, as they were read.
    pub fn process_lists(self) -> impl DoubleEndedIterator<Item = Vec<ProcessMemory>> + 'a {
        self.samples_with_lists().filter_map(|s| s.processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From samples of one device in order of time.
    fn columns_of(samples: impl IntoIterator<Item = MemorySample>) -> SampleColumns {
        let mut columns = SampleColumns::default();
        samples.into_iter().for_each(|s| columns.push(s));
        columns
    }

    fn figure() -> impl Strategy<Value = Option<u64>> {
        proptest::option::of(0u64..4)
    }

    fn list() -> impl Strategy<Value = Option<Vec<ProcessMemory>>> {
        let process = (1u32..5, figure(), proptest::option::of("[ab]")).prop_map(
            |(pid, used_bytes, name)| ProcessMemory {
                pid,
                used_bytes,
                ours: used_bytes.map(|b| b > 1),
                container_id: name.clone(),
                name,
                peak_bytes: used_bytes,
            },
        );
        proptest::option::of(proptest::collection::vec(process, 0..3))
    }

    fn sample() -> impl Strategy<Value = MemorySample> {
        let figures = (figure(), figure(), figure(), figure(), figure(), figure());
        (0i64..3, 0u64..3, figures, list(), any::<bool>()).prop_map(
            |(at_ns, used_bytes, (a, b, c, d, e, f), processes, burst)| {
                let small = |v: Option<u64>| v.map(|v| v as u32);
                MemorySample {
                    at_ns,
                    device: 3,
                    used_bytes,
                    low_bytes: a,
                    high_bytes: b,
                    kernel_peak_bytes: c,
                    reserved_bytes: d,
                    host: a.map(|_| HostSplit {
                        file_bytes: b,
                        ..HostSplit::default()
                    }),
                    whole_host: c.map(|available_bytes| HostState {
                        available_bytes,
                        ..HostState::default()
                    }),
                    bench_client_bytes: e,
                    processes,
                    power_mw: small(a),
                    temperature_c: small(b),
                    hotspot_temp_c: small(c),
                    memory_temp_c: small(d),
                    utilization_pct: small(e),
                    mem_utilization_pct: small(f),
                    clock_gfx_mhz: small(b),
                    clock_mem_mhz: small(f),
                    energy_mj: f,
                    throttle: e,
                    burst,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(samples in proptest::collection::vec(sample(), 0..40)) {
            let columns = columns_of(samples.clone());
            let rows = columns.all_rows();
            prop_assert_eq!(rows.iter().collect::<Vec<_>>(), samples.clone());
            prop_assert_eq!(rows.last(), samples.last().cloned());
            prop_assert_eq!(rows.iter().next_back(), samples.last().cloned());
            let lists: Vec<_> = samples.iter().filter_map(|s| s.processes.clone()).collect();
            prop_assert_eq!(rows.process_lists().collect::<Vec<_>>(), lists);
            let listed = samples.iter().rev().find(|s| s.processes.is_some());
            prop_assert_eq!(rows.samples_with_lists().next_back(), listed.cloned());
            let part = SampleRows::rows_between(&columns, 1, samples.len().saturating_sub(1));
            let inside = part.iter().filter(|s| s.processes.is_some());
            prop_assert_eq!(part.samples_with_lists().collect::<Vec<_>>(), inside.collect::<Vec<_>>());
            let power = samples.iter().rev().find_map(|s| s.power_mw);
            prop_assert_eq!(rows.latest_gauges().power_mw, power);
            for (place, s) in samples.iter().enumerate() {
                prop_assert_eq!(rows.high_bytes_at(place), s.high_bytes);
                prop_assert_eq!(rows.is_burst(place), s.burst);
                prop_assert_eq!(rows.gauges_at(place), (s.power_mw, s.temperature_c));
            }
        }
    }

    #[test]
    fn a_day_of_steady_samples_takes_little() {
        let rows = 100_000;
        let columns = columns_of((0..rows).map(|k| MemorySample {
            at_ns: k * 100_000_000,
            used_bytes: 70 << 30,
            high_bytes: Some(70 << 30),
            reserved_bytes: Some(1 << 29),
            power_mw: (k % 2 == 0).then_some(690_000),
            ..MemorySample::default()
        }));
        let whole = size_of::<MemorySample>() * rows as usize;
        let kept = columns.at.len() * 16
            + columns.high_bytes.rows.len() * 20
            + columns.reserved_bytes.rows.len() * 20
            + columns.power_mw.rows.len() * 8;
        assert!(kept * 10 < whole, "{kept} of {whole} bytes");
    }
}
