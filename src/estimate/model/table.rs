//! The tensor table as it is filled: one call for each tensor of a layer.

use super::{Split, Tensor};

/// The tensors so far, and the layer that the next one is in.
#[derive(Default)]
pub(super) struct Table {
    pub tensors: Vec<Tensor>,
    layer: Option<u32>,
}

impl Table {
    /// What follows is in this layer; `None`: outside of the layers.
    pub fn enter(&mut self, layer: Option<u32>) {
        self.layer = layer;
    }

    fn add(&mut self, role: &'static str, rows: u64, columns: u64, split: Split) -> &mut Tensor {
        self.tensors.push(Tensor {
            role,
            rows,
            columns,
            count: 1,
            layer: self.layer,
            split,
            quantizable: false,
            float32: false,
        });
        let last = self.tensors.len() - 1;
        &mut self.tensors[last]
    }

    /// A linear layer that a quantisation takes.
    pub fn linear(&mut self, role: &'static str, rows: u64, columns: u64, split: Split) {
        self.add(role, rows, columns, split).quantizable = true;
    }

    /// The same for each expert.
    pub fn experts(&mut self, role: &'static str, shape: (u64, u64), split: Split, count: u64) {
        let tensor = self.add(role, shape.0, shape.1, split);
        tensor.quantizable = true;
        tensor.count = count;
    }

    /// A vector for each expert.
    pub fn expert_vectors(&mut self, role: &'static str, rows: u64, split: Split, count: u64) {
        self.add(role, rows, 1, split).count = count;
    }

    /// A matrix that no quantisation takes.
    pub fn plain(&mut self, role: &'static str, rows: u64, columns: u64, split: Split) {
        self.add(role, rows, columns, split);
    }

    /// A vector that each GPU has whole; nothing where it is empty.
    pub fn vector(&mut self, role: &'static str, rows: u64) {
        if rows > 0 {
            self.add(role, rows, 1, Split::Replicated);
        }
    }

    /// A vector that is split as the outputs are.
    pub fn split_vector(&mut self, role: &'static str, rows: u64, split: Split) {
        self.add(role, rows, 1, split);
    }

    /// In 32 bits, whatever the model's type is.
    pub fn float32(&mut self, role: &'static str, rows: u64, columns: u64, split: Split) {
        self.add(role, rows, columns, split).float32 = true;
    }
}
