//! What a report can be made of, read and ready: runs, sweeps, experiments, load lines.

use super::chart::Timeline;
use crate::profile::Profile;
use serde_json::Value;

/// All that was read.
#[derive(Debug, Default)]
pub struct Material {
    /// Profiles, in order of time.
    pub runs: Vec<Run>,
    /// Documents of sweeps (`results.json`).
    pub sweeps: Vec<Stored>,
    /// Documents of experiments (`experiment.json`).
    pub experiments: Vec<Stored>,
    /// Documents of load lines (`loadline.json`).
    pub load_lines: Vec<Stored>,
    /// What could not be read, a sentence each.
    pub unread: Vec<String>,
    /// What an hour of one GPU costs, in the user's money.
    pub gpu_hour_price: Option<f64>,
    /// Whether the two runs are held against each other, the second less the first.
    pub compare: bool,
}

/// A profile with what lies beside it.
#[derive(Debug)]
pub struct Run {
    /// Where it was read, as people are told.
    pub name: String,
    /// The profile.
    pub profile: Box<Profile>,
    /// From the samples of its capture, where that is there; else the profile's own points.
    pub timeline: Timeline,
    /// What the estimator says of the same deployment (`compare::calculated`), where it can.
    pub calculated: Option<Value>,
}

/// A document as it lies on the disk.
#[derive(Debug)]
pub struct Stored {
    /// Where it was read.
    pub name: String,
    /// The document.
    pub document: Value,
}
