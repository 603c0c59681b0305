//! How figures that an engine prints rank by rank belong to devices and add up.

use crate::engine::ServerSettings;
use crate::engine::facts::{FactKey, FactValue, LogReport, key};
use std::collections::BTreeMap;

/// How many ranks an engine runs on, by kind of parallelism. A rank has one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineRanks {
    /// Ranks that share each layer of one engine: tensor parallel.
    pub tensor: u64,
    /// Ranks of one engine: tensor times pipeline parallel.
    pub per_engine: u64,
    /// Engines: data parallel.
    pub engines: u64,
}

impl EngineRanks {
    /// As the log reports, else as the command asks for, else one.
    pub fn ranks_of_engine(log: &LogReport, settings: &ServerSettings) -> EngineRanks {
        let size = |key: FactKey| {
            let logged = log.number(key).map(|n| n as u64);
            let asked = || settings.values.get(key.name())?.trim().parse().ok();
            logged.or_else(asked).unwrap_or(1).clamp(1, 1 << 16)
        };
        let tensor = size(key::tensor_parallel_size);
        // llama.cpp lays layers on the devices that its buffers name.
        let devices = log
            .fact(key::weights_gib)
            .map_or(0, |f| count_devices(&f.value));
        EngineRanks {
            tensor,
            per_engine: (tensor * size(key::pipeline_parallel_size)).max(devices),
            engines: size(key::data_parallel_size),
        }
    }

    /// All ranks.
    pub fn rank_count(self) -> u64 {
        self.per_engine * self.engines
    }

    /// A figure over all ranks. What one rank printed holds for each; where fewer printed than
    /// there are (others are silent, or a log folds equal lines), the others are like them.
    pub fn total_over_ranks(self, value: &FactValue) -> Option<f64> {
        let ranks = self.rank_count() as f64;
        match value {
            FactValue::Int(v) => Some(*v as f64 * ranks),
            FactValue::Float(v) => Some(v * ranks),
            FactValue::List(list) if list.is_empty() => None,
            FactValue::List(list) => {
                let sum: f64 = list.iter().sum();
                let like_them = (ranks / list.len() as f64).max(1.0);
                Some(sum * like_them)
            }
            FactValue::Record(entries) => {
                let of_ranks: Vec<f64> = numbered_figures(entries).map(|(_, v)| v).collect();
                let sum: f64 = of_ranks.iter().sum();
                let like_them = match of_ranks.len() {
                    0 => 1.0,
                    n => (ranks / n as f64).max(1.0),
                };
                let unnumbered: f64 = entries
                    .iter()
                    .filter(|(label, _)| number_of(label).is_none())
                    .filter_map(|(_, v)| v.number())
                    .sum();
                (!entries.is_empty()).then_some(sum * like_them + unnumbered)
            }
            FactValue::Bool(_) | FactValue::Text(_) | FactValue::Rows(_) => None,
        }
    }

    /// A figure of one rank; `None` for a rank that does not exist.
    pub fn figure_of_rank(self, value: &FactValue, rank: usize) -> Option<f64> {
        if rank as u64 >= self.rank_count() {
            return None;
        }
        match value {
            FactValue::Int(v) => Some(*v as f64),
            FactValue::Float(v) => Some(*v),
            FactValue::List(list) => list
                .get(rank)
                .or_else(|| {
                    list.last()
                        .filter(|_| (list.len() as u64) < self.rank_count())
                })
                .copied(),
            // What lies on a device, in however many buffers (`CUDA0`, `CUDA0_Split`).
            FactValue::Record(entries) => {
                let here = || numbered_figures(entries).filter(|(n, _)| *n == rank as u64);
                here().next()?;
                Some(here().map(|(_, v)| v).sum())
            }
            FactValue::Bool(_) | FactValue::Text(_) | FactValue::Rows(_) => None,
        }
    }
}

/// How many devices the labels of a record name: `CUDA1` is the second of two at least.
fn count_devices(value: &FactValue) -> u64 {
    let FactValue::Record(entries) = value else {
        return 0;
    };
    let of_device = |label: &&String| {
        ["CUDA", "ROCm", "HIP", "Vulkan", "SYCL", "MUSA", "CANN"]
            .iter()
            .any(|kind| label.starts_with(kind))
    };
    let numbers = entries
        .keys()
        .filter(of_device)
        .filter_map(|l| number_of(l));
    numbers.max().map_or(0, |n| n.min(1 << 16) + 1)
}

/// A figure that an engine prints in pieces (`{"conv_gib": 0.2, "ssm_gib": 1.1, "slots": 30}`), in
/// one; any other as it is.
pub fn sum_of_parts(value: &FactValue) -> FactValue {
    let FactValue::Record(entries) = value else {
        return value.clone();
    };
    let pieces = || entries.iter().filter(|(k, _)| k.ends_with("_gib"));
    if pieces().next().is_some() {
        return FactValue::Float(pieces().filter_map(|(_, v)| v.number()).sum());
    }
    let each = entries.iter().map(|(k, v)| (k.clone(), sum_of_parts(v)));
    FactValue::Record(each.collect())
}

/// The figures of a record with labels that name a rank or device, with its number.
fn numbered_figures(
    entries: &BTreeMap<String, FactValue>,
) -> impl Iterator<Item = (u64, f64)> + '_ {
    entries
        .iter()
        .filter_map(|(label, v)| Some((number_of(label)?, v.number()?)))
}

/// `TP3`, `CUDA3`, `ROCm3`: 3. `CPU`, `Host`: none. `DP1 TP0` names a rank by several numbers, of
/// which none alone is its own.
fn number_of(label: &str) -> Option<u64> {
    if label.contains(' ') {
        return None;
    }
    let digits = label.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    digits
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_ranks_add_up() {
        let four = EngineRanks {
            tensor: 2,
            per_engine: 2,
            engines: 2,
        };
        assert_eq!(four.total_over_ranks(&FactValue::Float(1.5)), Some(6.0));
        let all = FactValue::List(vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(four.total_over_ranks(&all), Some(10.0));
        assert_eq!(
            (four.figure_of_rank(&all, 3), four.figure_of_rank(&all, 4)),
            (Some(4.0), None)
        );
        let folded = FactValue::List(vec![1.0, 2.0]);
        assert_eq!(four.total_over_ranks(&folded), Some(6.0));
        assert_eq!(four.figure_of_rank(&folded, 3), Some(2.0));
        assert_eq!(four.total_over_ranks(&FactValue::List(vec![])), None);
        let record = |entries: &[(&str, f64)]| {
            let pairs = entries
                .iter()
                .map(|(k, v)| ((*k).to_owned(), FactValue::Float(*v)));
            FactValue::Record(pairs.collect())
        };
        let devices = record(&[("CUDA0", 1.0), ("CUDA3", 2.0), ("CPU", 5.0)]);
        assert_eq!(super::count_devices(&devices), 4);
        let mamba = record(&[("conv_gib", 0.25), ("ssm_gib", 1.5), ("slots", 30.0)]);
        assert_eq!(sum_of_parts(&mamba), FactValue::Float(1.75));
        assert_eq!(four.figure_of_rank(&devices, 3), Some(2.0));
        assert_eq!(four.figure_of_rank(&devices, 1), None);
        assert_eq!(
            four.total_over_ranks(&record(&[("CPU", 5.0), ("CPU_Mapped", 1.0)])),
            Some(6.0)
        );
        assert_eq!(
            four.total_over_ranks(&record(&[("TP0", 1.0), ("TP1", 1.0)])),
            Some(4.0)
        );
        let grid = record(&[("PP0 TP0", 1.0), ("PP0 TP1", 2.0), ("PP1 TP0", 3.0)]);
        assert_eq!(
            (four.figure_of_rank(&grid, 0), four.total_over_ranks(&grid)),
            (None, Some(6.0))
        );
    }

    #[test]
    fn the_log_gives_their_number_else_the_command() {
        let mut settings = ServerSettings::default();
        settings
            .values
            .insert("tensor_parallel_size".into(), "4".into());
        let asked = EngineRanks::ranks_of_engine(&LogReport::default(), &settings);
        assert_eq!((asked.per_engine, asked.engines), (4, 1));
    }
}
