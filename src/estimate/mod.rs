//! What a deployment will need before it starts: each term with its formula, its inputs and a band.
//!
//! Pure: facts about a model and settings in, bytes out. Reading a model's files is `models/`.
//!
//! Units: bytes, tokens. `per GPU` is the GPU that needs most.

pub mod activation;
mod arithmetic;
pub mod bands;
pub mod calibration;
pub mod case;
mod compute_buffer;
pub mod deployment;
pub mod document;
pub mod draft;
pub mod encoder;
pub mod engines;
// The verb and its noun are one word here: `estimate::estimate(&model, &deployment)`.
#[allow(clippy::module_inception)]
mod estimate;
mod explain;
mod fields;
mod fits;
pub mod format;
pub mod graphs;
pub mod headers;
pub mod host_memory;
pub mod kv;
pub mod model;
pub mod non_torch;
pub mod own_runs;
pub mod pool;
pub mod pooling;
pub mod question;
pub mod settings;
mod shared_host;
pub mod speculation;
pub mod term;
#[cfg(test)]
mod tests;
pub mod unmodelled;
mod warnings;
pub mod weights;

pub use crate::engine::EngineId;
pub use deployment::{Deployment, Gpu, Lora, Version};
pub use estimate::{Estimate, check, estimate, with_weights};
pub use fits::refused_length;
pub use model::{Mixer, Model, Split, Tensor};
pub use speculation::Proposer;
pub use term::{Band, Component, Term, Unknown};
pub use unmodelled::{Moves, Unmodelled};
