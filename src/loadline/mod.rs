//! How much load an engine holds: the largest number of requests in flight that it serves without
//! preemption, queueing or errors, as predicted from its settings and as measured. Pure.

pub mod document;
pub mod objective;
pub mod observe;
pub mod predict;
pub mod search;
pub mod verdict;

pub use crate::engine::limits::Resource;
pub use document::{Loadline, LoadlineRound, MeasuredLine};
pub use objective::{Metric, Objective, Objectives};
pub use observe::RoundObservation;
pub use predict::{Prediction, ResourceLimit, TokenLengths, predict_concurrency};
pub use search::{ConcurrencySearch, NextRound, SearchOutcome, Stride};
pub use verdict::{RoundFailure, check_round};
