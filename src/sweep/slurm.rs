//! A sweep as an array job of Slurm: each task of the array runs one shard.
//!
//! Slurm is used by its own commands, so that whatever a cluster wraps around them counts here too.
//! Accounting (`sacct`) is not needed: the results are in the shards' journals.

mod queue;
mod script;
mod submit;

pub use queue::{ShardEnd, WaitOutcome};
pub use script::{SlurmJob, render_script};
pub use submit::{Slurm, SubmittedJob};
