//! The cross product: lists of values, one per axis, and the cells that they mean.

use super::cell::{BenchWord, Cell, CellLoad, EnginePlace, ServerConfig};
use super::taken::ArgumentFlag;
use crate::capture::RequestedSettings;
use crate::preset::Preset;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most cells of one sweep. At a second each they would take eleven days.
pub const MAX_CELLS: usize = 1_000_000;

/// What can have several values. Their order is the order of the loops: the first is outermost, so
/// that what needs another start of the engine changes least often.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum AxisKey {
    Model,
    /// Container or image.
    Place,
    TensorParallelSize,
    Dtype,
    Quantization,
    KvCacheDtype,
    GpuMemoryUtilization,
    MaxModelLen,
    EnforceEager,
    /// An argument of the engine, by its flag.
    Argument(ArgumentFlag),
    InputLen,
    OutputLen,
    BatchSize,
    RequestRate,
}

/// One value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AxisValue {
    Unset,
    Text(String),
    Number(u64),
    Real(f64),
    /// Only `true`: what is false is unset.
    Set,
}

/// An axis with its values, in the order in which they were given.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MatrixAxis {
    pub key: AxisKey,
    pub values: Vec<AxisValue>,
}

/// What cells must be like to be left out: for each axis named, one of the values.
pub(super) type ExcludePattern = Vec<(AxisKey, Vec<AxisValue>)>;

/// What all cells of a matrix have in common.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CellTemplate {
    pub engine: Option<String>,
    /// `Some`: a container is started for it.
    pub preset: Option<Preset>,
    /// Before all others: arguments that a preset brings.
    pub preset_args: Vec<String>,
    /// Behind all others.
    pub extra_args: Vec<String>,
    pub architecture: BTreeMap<String, f64>,
    /// Load of every cell, but for what the axes set.
    pub load: CellLoad,
}

/// Axes, and what is done to their product.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Matrix {
    pub template: CellTemplate,
    pub axes: Vec<MatrixAxis>,
    /// Axes that go side by side; their lists are of one length.
    pub zips: Vec<Vec<AxisKey>>,
    pub exclude: Vec<ExcludePattern>,
    /// Further cells; an axis that is not named has one value.
    pub include: Vec<Vec<(AxisKey, AxisValue)>>,
}

/// The cells of a matrix.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub cells: Vec<Cell>,
    /// How many cells each pattern of `exclude` left out.
    pub left_out: Vec<usize>,
}

/// Axes that change together, and how many values they have.
struct AxisLoop {
    axes: Vec<usize>,
    len: usize,
}

impl Matrix {
    /// How many cells there are at most, before any is made.
    pub fn max_cells(&self) -> usize {
        let product = self
            .loops()
            .iter()
            .fold(1usize, |n, l| n.saturating_mul(l.len));
        product.saturating_add(self.include.len())
    }

    /// How much there is to look at and to copy for each cell, bytes or thereabouts.
    pub fn cell_weight(&self) -> usize {
        // A value to compare is as much as a short word to copy.
        const VALUE: usize = 16;
        let words = |all: &[String]| all.iter().map(|w| VALUE + w.len()).sum::<usize>();
        let axes = self.axes.iter().map(|axis| {
            let texts = axis.values.iter().map(|value| match value {
                AxisValue::Text(text) => text.len(),
                _ => 0,
            });
            VALUE + texts.max().unwrap_or(0)
        });
        let patterns = self.exclude.iter().flatten();
        let template = &self.template;
        let preset = template.preset.iter().map(|preset| {
            let env = preset.env.iter().map(|(k, v)| VALUE + k.len() + v.len());
            words(&preset.volumes) + env.sum::<usize>()
        });
        axes.sum::<usize>()
            + patterns.map(|(_, v)| VALUE * (1 + v.len())).sum::<usize>()
            + words(&template.preset_args)
            + words(&template.extra_args)
            + preset.sum::<usize>()
    }

    /// The loops, outermost first.
    fn loops(&self) -> Vec<AxisLoop> {
        let mut order: Vec<usize> = (0..self.axes.len()).collect();
        // Arguments of the engine keep the order of the file.
        order.sort_by_key(|&i| axis_rank(&self.axes[i].key));
        let mut loops: Vec<AxisLoop> = Vec::new();
        for i in order {
            let zip = self.zips.iter().find(|z| z.contains(&self.axes[i].key));
            let partner = zip.and_then(|zip| {
                loops
                    .iter_mut()
                    .find(|l| zip.contains(&self.axes[l.axes[0]].key))
            });
            match partner {
                Some(side_by_side) => side_by_side.axes.push(i),
                None => loops.push(AxisLoop {
                    axes: vec![i],
                    len: self.axes[i].values.len(),
                }),
            }
        }
        loops
    }

    /// All cells: the product in the order of the loops, without what is left out, then what is
    /// added; cells of a group beside each other, at the place of the first.
    pub fn expand_cells(&self) -> Expanded {
        let loops = self.loops();
        let mut left_out = vec![0; self.exclude.len()];
        let mut maker = CellMaker {
            template: &self.template,
            last: None,
        };
        let mut cells = Vec::new();
        let mut at = vec![0; loops.len()];
        let mut more = loops.iter().all(|l| l.len > 0);
        while more {
            let mut chosen: Vec<Option<&AxisValue>> = vec![None; self.axes.len()];
            for (l, &i) in loops.iter().zip(&at) {
                for &axis in &l.axes {
                    chosen[axis] = self.axes[axis].values.get(i);
                }
            }
            let values: Vec<(&AxisKey, &AxisValue)> = self
                .axes
                .iter()
                .zip(&chosen)
                .filter_map(|(axis, value)| value.map(|v| (&axis.key, v)))
                .collect();
            let mut kept = true;
            for (pattern, count) in self.exclude.iter().zip(&mut left_out) {
                if matches(pattern, &values) {
                    kept = false;
                    *count += 1;
                }
            }
            if kept {
                cells.push(maker.make_cell(&values));
            }
            more = next_combination(&mut at, &loops);
        }
        for given in &self.include {
            let mut values: Vec<(&AxisKey, &AxisValue)> =
                given.iter().map(|(k, v)| (k, v)).collect();
            for axis in &self.axes {
                if !given.iter().any(|(k, _)| *k == axis.key) {
                    if let Some(only) = axis.values.first() {
                        values.push((&axis.key, only));
                    }
                }
            }
            cells.push(maker.make_cell(&values));
        }
        beside_each_other(&mut cells);
        Expanded { cells, left_out }
    }
}

/// The next combination; false behind the last.
fn next_combination(at: &mut [usize], loops: &[AxisLoop]) -> bool {
    for (i, l) in at.iter_mut().zip(loops).rev() {
        *i += 1;
        if *i < l.len {
            return true;
        }
        *i = 0;
    }
    false
}

fn matches(pattern: &ExcludePattern, values: &[(&AxisKey, &AxisValue)]) -> bool {
    pattern.iter().all(|(key, wanted)| {
        let value = values
            .iter()
            .find(|(k, _)| *k == key)
            .map_or(&AxisValue::Unset, |(_, v)| *v);
        wanted.contains(value)
    })
}

fn beside_each_other(cells: &mut [Cell]) {
    let mut first = HashMap::new();
    for cell in cells.iter() {
        let next = first.len();
        first.entry(cell.group.clone()).or_insert(next);
    }
    // Stable: within a group nothing changes its place.
    cells.sort_by_key(|cell| first.get(&cell.group).copied());
}

/// All arguments have one rank: among them the file's order counts.
fn axis_rank(key: &AxisKey) -> AxisKey {
    match key {
        AxisKey::Argument(_) => AxisKey::Argument("".into()),
        other => other.clone(),
    }
}

/// Makes cells, and one server for all that share it.
struct CellMaker<'t> {
    template: &'t CellTemplate,
    last: Option<Arc<ServerConfig>>,
}

impl CellMaker<'_> {
    fn make_cell(&mut self, values: &[(&AxisKey, &AxisValue)]) -> Cell {
        let server = server_of(self.template, values);
        let server = match &self.last {
            Some(last) if **last == server => last.clone(),
            _ => Arc::new(server),
        };
        self.last = Some(server.clone());
        Cell::new(server, load_of(self.template, values))
    }
}

fn server_of(template: &CellTemplate, values: &[(&AxisKey, &AxisValue)]) -> ServerConfig {
    let mut model = String::new();
    let mut place = String::new();
    let mut settings = RequestedSettings::default();
    let mut flags: Vec<(&str, Option<&str>)> = Vec::new();
    for &(key, value) in values {
        match (key, value) {
            (AxisKey::Model, AxisValue::Text(t)) => model.clone_from(t),
            (AxisKey::Place, AxisValue::Text(t)) => place.clone_from(t),
            (AxisKey::Dtype, AxisValue::Text(t)) => settings.dtype = Some(t.clone()),
            (AxisKey::Quantization, AxisValue::Text(t)) => settings.quantization = Some(t.clone()),
            (AxisKey::KvCacheDtype, AxisValue::Text(t)) => {
                settings.kv_cache_dtype = Some(t.clone())
            }
            (AxisKey::TensorParallelSize, AxisValue::Number(n)) => {
                settings.tensor_parallel_size = u32::try_from(*n).ok();
            }
            (AxisKey::GpuMemoryUtilization, AxisValue::Real(x)) => {
                settings.gpu_memory_utilization = Some(*x);
            }
            (AxisKey::MaxModelLen, AxisValue::Number(n)) => settings.max_model_len = Some(*n),
            (AxisKey::EnforceEager, AxisValue::Set) => settings.enforce_eager = true,
            (AxisKey::Argument(flag), AxisValue::Set) => flags.push((flag.as_str(), None)),
            (AxisKey::Argument(flag), AxisValue::Text(t)) => flags.push((flag.as_str(), Some(t))),
            _ => {}
        }
    }
    // By name: the order in a file changes nothing for the engine, so it changes no id.
    flags.sort();
    let mut engine_args = template.preset_args.clone();
    // The engine takes the last of two: the file must win over the preset.
    for (key, value) in values {
        if let Some(flag) = flag_of(key).filter(|_| **value != AxisValue::Unset) {
            take_out_flag(&mut engine_args, flag);
        }
    }
    for (flag, value) in flags {
        engine_args.push(flag.to_owned());
        engine_args.extend(value.map(str::to_owned));
    }
    engine_args.extend(template.extra_args.iter().cloned());
    ServerConfig {
        model,
        engine: template.engine.clone(),
        place: match &template.preset {
            None => EnginePlace::Container(place),
            Some(preset) => EnginePlace::Image(Box::new(Preset {
                image: Some(place),
                ..preset.clone()
            })),
        },
        settings,
        engine_args,
        architecture: template.architecture.clone(),
    }
}

fn load_of(template: &CellTemplate, values: &[(&AxisKey, &AxisValue)]) -> CellLoad {
    let number = |key: AxisKey| {
        values.iter().find_map(|(k, v)| match v {
            AxisValue::Number(n) if **k == key => u32::try_from(*n).ok(),
            _ => None,
        })
    };
    CellLoad {
        input_len: number(AxisKey::InputLen).unwrap_or(DEFAULT_INPUT_LEN),
        output_len: number(AxisKey::OutputLen).unwrap_or(DEFAULT_OUTPUT_LEN),
        batch_size: number(AxisKey::BatchSize),
        request_rate: values.iter().find_map(|(k, v)| match v {
            AxisValue::Real(x) if **k == AxisKey::RequestRate => Some(*x),
            _ => None,
        }),
        repeats: template.load.repeats.max(1),
        ..template.load.clone()
    }
}

/// Default prompt tokens, as in `profile`.
const DEFAULT_INPUT_LEN: u32 = 256;
/// Default generated tokens, as in `profile`.
const DEFAULT_OUTPUT_LEN: u32 = 128;

/// Adds the default lengths and concurrency: one sequence at once, unless requests come by rate, or
/// the bench takes all there are.
pub(super) fn complete_axes(axes: &mut Vec<MatrixAxis>, bench: BenchWord) {
    let has = |axes: &[MatrixAxis], key| axes.iter().any(|a| a.key == key);
    let by_rate = has(axes, AxisKey::RequestRate);
    for (key, n) in [
        (AxisKey::InputLen, DEFAULT_INPUT_LEN),
        (AxisKey::OutputLen, DEFAULT_OUTPUT_LEN),
        (AxisKey::BatchSize, 1),
    ] {
        let none = key == AxisKey::BatchSize && (by_rate || bench == BenchWord::Throughput);
        if !none && !has(axes, key.clone()) {
            axes.push(MatrixAxis {
                key,
                values: vec![AxisValue::Number(n.into())],
            });
        }
    }
}

/// The flag that an axis becomes.
pub(super) fn flag_of(key: &AxisKey) -> Option<&str> {
    Some(match key {
        AxisKey::TensorParallelSize => "--tensor-parallel-size",
        AxisKey::Dtype => "--dtype",
        AxisKey::Quantization => "--quantization",
        AxisKey::KvCacheDtype => "--kv-cache-dtype",
        AxisKey::GpuMemoryUtilization => "--gpu-memory-utilization",
        AxisKey::MaxModelLen => "--max-model-len",
        AxisKey::EnforceEager => "--enforce-eager",
        AxisKey::Argument(flag) => flag.as_str(),
        _ => return None,
    })
}

/// Takes a flag out of arguments, with its value where one follows.
pub fn take_out_flag(args: &mut Vec<String>, flag: &str) {
    let flag = ArgumentFlag::from(flag);
    let mut kept = Vec::with_capacity(args.len());
    let mut rest = std::mem::take(args).into_iter().peekable();
    while let Some(arg) = rest.next() {
        if !arg.starts_with('-') || !flag.is_named_by(&arg) {
            kept.push(arg);
        } else if !arg.contains('=') {
            rest.next_if(|value| !value.starts_with('-'));
        }
    }
    *args = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(key: AxisKey, values: &[u64]) -> MatrixAxis {
        MatrixAxis {
            key,
            values: values.iter().map(|&n| AxisValue::Number(n)).collect(),
        }
    }

    #[test]
    fn the_load_changes_faster_than_the_engine() {
        let matrix = Matrix {
            axes: vec![
                axis(AxisKey::BatchSize, &[1, 8]),
                axis(AxisKey::TensorParallelSize, &[1, 2]),
                axis(AxisKey::InputLen, &[128, 256]),
            ],
            ..Matrix::default()
        };
        let cells: Vec<(Option<u32>, u32, Option<u32>)> = matrix
            .expand_cells()
            .cells
            .iter()
            .map(|c| {
                let tp = c.server.settings.tensor_parallel_size;
                (tp, c.load.input_len, c.load.batch_size)
            })
            .collect();
        assert_eq!(
            cells,
            [
                (Some(1), 128, Some(1)),
                (Some(1), 128, Some(8)),
                (Some(1), 256, Some(1)),
                (Some(1), 256, Some(8)),
                (Some(2), 128, Some(1)),
                (Some(2), 128, Some(8)),
                (Some(2), 256, Some(1)),
                (Some(2), 256, Some(8)),
            ]
        );
    }

    #[test]
    fn a_group_stays_together_where_a_zip_tears_it_apart() {
        let matrix = Matrix {
            axes: vec![
                axis(AxisKey::TensorParallelSize, &[1, 2, 1]),
                axis(AxisKey::BatchSize, &[1, 1, 8]),
            ],
            zips: vec![vec![AxisKey::TensorParallelSize, AxisKey::BatchSize]],
            ..Matrix::default()
        };
        let expanded = matrix.expand_cells().cells;
        assert_eq!(expanded.len(), 3);
        assert_eq!(expanded[0].group, expanded[1].group);
        let batches: Vec<_> = expanded.iter().map(|c| c.load.batch_size).collect();
        assert_eq!(batches, [Some(1), Some(8), Some(1)]);
        assert_ne!(expanded[1].group, expanded[2].group);
    }

    #[test]
    fn a_key_of_the_file_wins_over_the_preset() {
        let mut args: Vec<String> = ["--enforce-eager", "--max-model-len", "2048", "--seed=3"]
            .map(String::from)
            .to_vec();
        take_out_flag(&mut args, "--max_model_len");
        assert_eq!(args, ["--enforce-eager", "--seed=3"]);
        take_out_flag(&mut args, "--no-enforce-eager");
        take_out_flag(&mut args, "--seed");
        assert!(args.is_empty());
    }
}
