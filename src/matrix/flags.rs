//! A matrix from flags in a file's place.

use super::cell::{BenchWord, Cell, CellLoad};
use super::expand::{
    AxisKey, AxisValue, CellTemplate, MAX_CELLS, Matrix, MatrixAxis, complete_axes,
};
use crate::error::Failure;
use std::collections::{BTreeMap, HashSet};

/// What the flags of `sweep` say where there is no file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlagMatrix {
    /// Name of the sweep.
    pub name: String,
    /// Containers, at least one.
    pub containers: Vec<String>,
    /// Models, at least one.
    pub models: Vec<String>,
    /// Engine, where it is named.
    pub engine: Option<String>,
    /// Prompt tokens; none: 256.
    pub input_lens: Vec<u32>,
    /// Generated tokens; none: 128.
    pub output_lens: Vec<u32>,
    /// Sequences at once; none: 1.
    pub batch_sizes: Vec<u32>,
    /// What puts the load on.
    pub bench: BenchWord,
    /// Facts on the model that are kept with the results.
    pub architecture: BTreeMap<String, f64>,
}

impl FlagMatrix {
    /// The cells, in the order that a file's have. A value that is given twice counts once.
    ///
    /// # Errors
    /// No container, no model, an engine that is not known, or more cells than can be.
    pub fn expand_cells(&self) -> Result<Vec<Cell>, Failure> {
        if self.containers.is_empty() {
            return Err(
                Failure::usage("say which container to measure in").hint("--container NAME")
            );
        }
        if self.models.is_empty() {
            return Err(Failure::usage("say which model to load").hint("--model MODEL"));
        }
        let engine = self
            .engine
            .as_deref()
            .map(super::file::engine_name)
            .transpose()
            .map_err(|(message, hint)| Failure::usage(message).hint(hint))?;
        let texts = |key, values: &[String]| MatrixAxis {
            key,
            values: each_once(values).map(AxisValue::Text).collect(),
        };
        let numbers = |key, values: &[u32]| MatrixAxis {
            key,
            values: each_once(values)
                .map(|n| AxisValue::Number(n.into()))
                .collect(),
        };
        let lists = [
            texts(AxisKey::Model, &self.models),
            texts(AxisKey::Place, &self.containers),
            numbers(AxisKey::InputLen, &self.input_lens),
            numbers(AxisKey::OutputLen, &self.output_lens),
            numbers(AxisKey::BatchSize, &self.batch_sizes),
        ];
        let mut axes = lists.into_iter().filter(|a| !a.values.is_empty()).collect();
        complete_axes(&mut axes, self.bench);
        let matrix = Matrix {
            template: CellTemplate {
                engine: engine.map(str::to_owned),
                architecture: self.architecture.clone(),
                load: CellLoad {
                    bench: self.bench,
                    ..CellLoad::default()
                },
                ..CellTemplate::default()
            },
            axes,
            ..Matrix::default()
        };
        if matrix.max_cells() > MAX_CELLS {
            let cells = matrix.max_cells();
            let message = format!("{cells} cells are more than a sweep may have, {MAX_CELLS}");
            return Err(Failure::usage(message));
        }
        Ok(matrix.expand_cells().cells)
    }
}

fn each_once<T: Clone + Eq + std::hash::Hash>(values: &[T]) -> impl Iterator<Item = T> {
    let mut seen = HashSet::new();
    values.iter().filter(move |v| seen.insert(*v)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> FlagMatrix {
        FlagMatrix {
            containers: vec!["a".into()],
            models: vec!["m".into()],
            input_lens: vec![256, 512, 256],
            batch_sizes: vec![1, 8],
            ..FlagMatrix::default()
        }
    }

    #[test]
    fn flags_are_a_cross_product() {
        let cells = matrix().expand_cells().unwrap();
        let words: Vec<String> = cells.iter().map(|c| c.describe_load()).collect();
        assert_eq!(
            words,
            [
                "in 256 out 128 batch 1",
                "in 256 out 128 batch 8",
                "in 512 out 128 batch 1",
                "in 512 out 128 batch 8",
            ]
        );
    }

    #[test]
    fn more_cells_than_can_be_are_refused_before_they_are_made() {
        let many: Vec<u32> = (1..=2000).collect();
        let failure = FlagMatrix {
            input_lens: many.clone(),
            batch_sizes: many,
            ..matrix()
        }
        .expand_cells()
        .unwrap_err();
        assert!(failure.message.starts_with("4000000 cells"), "{failure}");
    }
}
