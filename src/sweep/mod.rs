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
pub use context::{Context, LaneWatcher, Options, SWEEP_LABEL, Watcher};
pub use folder::Folder;
pub use journal::{History, Journal, Session};
pub use oom::OomFile;
pub use run::{Work, run};
