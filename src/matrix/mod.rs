//! What a sweep is: a file of models and settings, the cells that it means, the plan of running
//! them, and the row that comes of each. Pure: no I/O, no clock.

mod cell;
mod coverage;
mod deployment;
mod expand;
mod file;
mod forecast;
mod oom;
mod plan;
mod row;
#[cfg(test)]
pub(crate) mod samples;
mod taken;
mod vary;

pub use cell::{BenchWord, Cell, CellId, CellLoad, EnginePlace, GroupId, ITERATIONS, ServerConfig};
pub use coverage::{interpolate_cells, next_deciding_cell};
pub use deployment::deployment;
pub use expand::{MAX_CELLS, take_out_flag};
pub use file::{Presets, STANDARD_INPUT, read_at_most, read_sweep, sweep_schema};
pub use forecast::{EstimateBasis, Forecast, TimeEstimate};
pub use oom::{OomMemory, OomRecord};
pub use plan::{
    CellGroup, PlanOptions, Shard, SkippedCell, SweepDefinition, SweepPlan, resolved_yaml,
};
pub use row::{CellRow, RowCause, RowFigures, RowPhase, RowStatus};
pub use vary::{MAX_COMBINATIONS, SettingValues, vary_settings};
