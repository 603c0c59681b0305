//! What a deployment will need before it starts: each term with its formula, its inputs and a band.
//!
//! Pure: facts about a model and settings in, bytes out. Reading a model's files is `models/`.
//!
//! Units: bytes, tokens. `per GPU` is the GPU that needs most.

pub mod deployment;
pub mod model;
pub mod question;
pub mod settings;
pub mod term;

pub use deployment::{Deployment, EngineKind, Gpu, Lora, Version};
pub use model::{Mixer, Model, Split, Tensor};
pub use term::{Band, Component, Term, Unknown};
