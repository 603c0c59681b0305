//! Running a sweep: its folder and journal, one start of an engine for many cells, and going on
//! after whatever happened.

pub mod cells;
mod context;
pub mod earlier;
mod engine;
pub mod folder;
pub mod journal;
mod lane;
mod leftovers;
mod measure;
pub mod merge;
pub mod oom;
pub mod outputs;
pub mod preflight;
mod release;
pub mod remote;
mod request;
mod run;
mod schedule;
pub mod slurm;
mod trouble;
mod workdirs;

pub use cells::Cells;
pub use context::{LaneWatcher, SWEEP_LABEL, SweepContext, SweepOptions, SweepWatcher};
pub use folder::Folder;
pub use journal::{Journal, SweepHistory, SweepSession};
pub use oom::OomFile;
pub use run::{SweepWork, run_sweep};
pub use schedule::{DeviceClaim, DeviceClaims};
