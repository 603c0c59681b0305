//! How much load an engine holds: the largest number of requests in flight that it serves without
//! preemption, queueing or errors, as predicted from its settings and as measured. Pure.

pub mod document;
pub mod objective;
pub mod observe;
pub mod predict;
pub mod search;
pub mod verdict;

pub use crate::engine::limits::Resource;
pub use document::{Loadline, Measured, Round};
pub use objective::{Objective, Objectives};
pub use observe::Observed;
pub use predict::{Lengths, Limit, Prediction, predict};
pub use search::{Ahead, Outcome, Search, Stride};
pub use verdict::{Fault, judge};
