//! What was learned from runs: overheads by kind of deployment, and the last start of each model.
//!
//! Pure: the database is made by `compare::calibrate` and read from disk by whoever asks.

use super::model::Model;
use super::term::Band;
use serde::{Deserialize, Serialize};

/// Version of the document.
pub const CALIBRATION_VERSION: &str = "1.0";

/// Fewer runs than this are no data.
pub const FEWEST_RUNS: u64 = 3;

/// What overheads depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The engine's name: `vllm`.
    pub engine: String,
    /// Its version: `0.11.0`.
    pub version: String,
    /// What kind of attention the model has: `mha`, `gqa`, `mqa`, `mla`, `hybrid`.
    pub attention: String,
    /// Type of the weights: `bfloat16`.
    pub dtype: String,
    /// Tensor parallelism.
    pub tp: u64,
    /// The GPU, by its name in the shipped facts where it has one.
    pub gpu: String,
}

/// What was measured in one run, bytes on the GPU that has most of it. `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationRun {
    /// Identifies the run.
    pub run_id: String,
    /// Its start, RFC 3339.
    pub timestamp: String,
    /// What it was.
    pub key: Key,
    /// The model, as the engine was given it.
    pub model: String,
    /// `max_num_seqs` in force.
    pub max_num_seqs: Option<u64>,
    /// `max_num_batched_tokens` in force.
    pub max_num_batched_tokens: Option<u64>,
    /// `max_model_len` in force, tokens.
    pub max_model_len: Option<u64>,
    /// Whether the engine ran without CUDA graphs; null where that is not known.
    pub eager: Option<bool>,
    /// The peak of the engine's own profile run.
    pub activation: Option<u64>,
    /// The engine's memory outside torch.
    pub non_torch: Option<u64>,
    /// CUDA graphs.
    pub cuda_graphs: Option<u64>,
}

/// What several runs have in common.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Runs that knew it.
    pub n: u64,
    /// Their figures; null for fewer than [`FEWEST_RUNS`]: no data.
    pub figures: Option<Figures>,
}

/// Figures of some runs, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Median.
    pub median: u64,
    /// Median of the distances from the median.
    pub mad: u64,
    /// First quartile.
    pub q1: u64,
    /// Third quartile.
    pub q3: u64,
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
}

impl Learned {
    /// From the figures of runs, in any order.
    pub fn of(mut bytes: Vec<u64>) -> Learned {
        bytes.sort_unstable();
        let n = bytes.len() as u64;
        let figures = || {
            let median = quantile(&bytes, 0.5)?;
            let mut distances: Vec<u64> = bytes.iter().map(|b| b.abs_diff(median)).collect();
            distances.sort_unstable();
            Some(Figures {
                median,
                mad: quantile(&distances, 0.5)?,
                q1: quantile(&bytes, 0.25)?,
                q3: quantile(&bytes, 0.75)?,
                min: *bytes.first()?,
                max: *bytes.last()?,
            })
        };
        Learned {
            n,
            figures: if n < FEWEST_RUNS { None } else { figures() },
        }
    }

    /// Where the next run is expected: the whole range of these.
    pub fn band(&self) -> Option<Band> {
        let f = self.figures?;
        let source = format!("learned from {} of your own runs", self.n);
        Some(Band::new(f.min, f.max, self.n, source))
    }
}

/// The quantile of sorted figures, linear between neighbours.
fn quantile(sorted: &[u64], q: f64) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (
        sorted.get(at.floor() as usize)?,
        sorted.get(at.ceil() as usize)?,
    );
    let part = (high - low) as f64 * at.fract();
    Some(low.saturating_add(part.round() as u64))
}

/// Overheads of one kind of deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What kind.
    pub key: Key,
    /// The peak of the engine's own profile run. It follows `max_num_seqs` and the vocabulary as
    /// well: a formula that knows them goes before it.
    pub activation: Learned,
    /// The engine's memory outside torch.
    pub non_torch: Learned,
    /// CUDA graphs, of the runs that had any.
    pub cuda_graphs: Learned,
}

/// Everything that was learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `calibration`.
    pub document: String,
    /// [`CALIBRATION_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// By kind of deployment.
    pub entries: Vec<Entry>,
    /// Every run that it rests on, oldest first.
    pub runs: Vec<CalibrationRun>,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration::of(Vec::new())
    }
}

impl Calibration {
    /// From runs; of two of the same id the later in the list counts.
    pub fn of(runs: Vec<CalibrationRun>) -> Calibration {
        let mut kept: Vec<CalibrationRun> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for run in runs.into_iter().rev() {
            if seen.insert(run.run_id.clone()) {
                kept.push(run);
            }
        }
        kept.sort_by(|a, b| (&a.timestamp, &a.run_id).cmp(&(&b.timestamp, &b.run_id)));
        let mut keys: Vec<&Key> = kept.iter().map(|r| &r.key).collect();
        keys.sort();
        keys.dedup();
        let entries = keys
            .into_iter()
            .map(|key| {
                let all = |pick: fn(&CalibrationRun) -> Option<u64>| {
                    let of = kept.iter().filter(|r| r.key == *key);
                    Learned::of(of.filter_map(pick).collect())
                };
                Entry {
                    key: key.clone(),
                    activation: all(|r| r.activation),
                    non_torch: all(|r| r.non_torch),
                    cuda_graphs: all(|r| r.cuda_graphs.filter(|_| r.eager != Some(true))),
                }
            })
            .collect();
        Calibration {
            document: "calibration".into(),
            schema_version: CALIBRATION_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            entries,
            runs: kept,
        }
    }

    /// With more runs: of a run that is known already the new figures count.
    pub fn with(self, more: Vec<CalibrationRun>) -> Calibration {
        let mut runs = self.runs;
        runs.extend(more);
        Calibration::of(runs)
    }

    /// The last start of a model, in a deployment `of` a kind, that logged its CUDA graphs. What it took
    /// then it takes again, where the same settings are in force.
    pub fn last_start(&self, model: &str, of: impl Fn(&Key) -> bool) -> Option<&CalibrationRun> {
        self.runs.iter().rev().find(|r| {
            r.model == model && of(&r.key) && r.cuda_graphs.is_some() && r.eager != Some(true)
        })
    }
}

/// What kind of attention a model has, as [`Key::attention`] names it.
pub fn attention_kind(model: &Model) -> &'static str {
    match (model.is_recurrent(), model.is_latent()) {
        (true, _) => "hybrid",
        (false, true) => "mla",
        (false, false) => by_heads(model.heads, model.kv_heads),
    }
}

/// The same by the heads of an attention layer.
pub fn by_heads(heads: u64, kv_heads: u64) -> &'static str {
    match (heads, kv_heads) {
        (0, _) | (_, 0) => "none",
        (heads, kv_heads) if heads == kv_heads => "mha",
        (_, 1) => "mqa",
        _ => "gqa",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            engine: "vllm".into(),
            version: "0.11.0".into(),
            attention: "gqa".into(),
            dtype: "bfloat16".into(),
            tp: 1,
            gpu: "H100 SXM 80GB".into(),
        }
    }

    fn run(id: &str, at: &str, graphs: Option<u64>) -> CalibrationRun {
        CalibrationRun {
            run_id: id.into(),
            timestamp: at.into(),
            key: key(),
            model: "org/m".into(),
            max_num_seqs: None,
            max_num_batched_tokens: None,
            max_model_len: None,
            eager: Some(false),
            activation: None,
            non_torch: Some(100),
            cuda_graphs: graphs,
        }
    }

    #[test]
    fn two_runs_are_no_data_and_three_are() {
        assert_eq!(Learned::of(vec![1, 2]).figures, None);
        let three = Learned::of(vec![30, 10, 20]);
        let f = three.figures.unwrap();
        assert_eq!((f.median, f.mad, f.q1, f.q3), (20, 10, 15, 25));
        let band = three.band().unwrap();
        assert_eq!((band.low, band.high, band.cases), (10, 30, 3));
        assert!(Learned::of(vec![u64::MAX; 4]).figures.is_some());
    }

    #[test]
    fn a_run_given_twice_counts_once() {
        let db = Calibration::of(vec![run("a", "1", Some(5)), run("b", "2", Some(6))]);
        let db = db.with(vec![run("a", "1", Some(7)), run("c", "3", None)]);
        assert_eq!(db.runs.len(), 3);
        let of = |key: Key| db.entries.iter().find(|e| e.key == key);
        let entry = of(key()).unwrap();
        assert_eq!((entry.cuda_graphs.n, entry.non_torch.n), (2, 3));
        assert_eq!(entry.non_torch.figures.unwrap().median, 100);
        assert_eq!(entry.cuda_graphs.figures, None);
        let other = Key { tp: 2, ..key() };
        assert!(of(other).is_none());
    }

    #[test]
    fn the_last_start_is_the_latest_with_a_count_of_graphs() {
        let mut eager = run("z", "9", Some(0));
        eager.eager = Some(true);
        let db = Calibration::of(vec![
            run("b", "2", Some(6)),
            run("a", "1", Some(5)),
            run("c", "3", None),
            eager,
        ]);
        let last = |model, tp| db.last_start(model, |k| k.tp == tp && k.version == "0.11.0");
        assert_eq!(last("org/m", 1).unwrap().cuda_graphs, Some(6));
        assert!(last("org/m", 2).is_none() && last("org/n", 1).is_none());
    }

    #[test]
    fn the_database_is_read_as_it_was_written() {
        let db = Calibration::of(vec![run("a", "1", Some(5))]);
        let text = serde_json::to_string(&db).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), db);
    }
}
