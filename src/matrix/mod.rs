//! What a sweep is: a file of models and settings, the cells that it means, the plan of running
//! them, and the row that comes of each. Pure: no I/O, no clock.

mod cell;
mod deployment;
mod expand;
mod figures;
mod file;
mod flags;
mod forecast;
mod oom;
mod plan;
mod resolved;
mod row;
#[cfg(test)]
pub(crate) mod samples;
mod taken;

pub use cell::{BenchWord, Cell, CellId, GroupId, Load, Place, Server};
pub use deployment::deployment;
pub use expand::MAX_CELLS;
pub use file::{Presets, STANDARD_INPUT, read, read_at_most, schema};
pub use flags::FlagMatrix;
pub use forecast::{Basis, Estimate, Forecast};
pub use oom::{OomMemory, OomRecord};
pub use plan::{Group, Plan, PlanOptions, Shard, ShardError, Skip, Sweep};
pub use resolved::resolved_yaml;
pub use row::{Cause, Figures, Row, RowPhase, Status};
