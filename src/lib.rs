//! plimsoll: how much memory does this LLM container really use, where does every byte go,
//! and how much load fits before it sinks.
//!
//! ```text
//! collect (async I/O) -> Capture -> derive (pure) -> Profile -> render (pure) -> bytes -> store
//! ```
//!
//! Each module may use only the modules on lower lines, and on the last but one also its
//! neighbours; `tests/seams.rs` checks the rule:
//!
//! ```text
//! main
//! commands
//! cli, console
//! sweep
//! collect, live, clean
//! container, telemetry, load, store, models
//! report
//! tune
//! matrix, loadline
//! compare, experiment
//! profile
//! breakdown
//! launch
//! estimate
//! engine
//! bounded, catalog, clock, error, headroom, host, preset, progress, redact, sync, tables, units, wording
//! capture
//! ```

pub mod bounded;
pub mod breakdown;
pub mod capture;
pub mod catalog;
pub mod clean;
pub mod cli;
pub mod clock;
pub mod collect;
pub mod commands;
pub mod compare;
pub mod console;
pub mod container;
pub mod engine;
pub mod error;
pub mod estimate;
pub mod experiment;
pub mod headroom;
pub mod host;
pub mod launch;
pub mod live;
pub mod load;
pub mod loadline;
pub mod matrix;
pub mod models;
pub mod preset;
pub mod profile;
pub mod progress;
pub mod redact;
pub mod report;
pub mod store;
pub mod sweep;
pub mod sync;
pub mod tables;
pub mod telemetry;
pub mod tune;
pub mod units;
pub mod wording;
