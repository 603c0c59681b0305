//! Questions to an estimate: the largest setting that fits, which GPU holds a model, a table, how
//! great the risk is, whether it fits in one word.

pub mod reading;
pub mod recommend;
pub mod remedies;
pub mod search;
pub mod sharing;
pub mod solve;
pub mod table;
pub mod verdict;

pub use reading::{OnGpu, Reading, Risk};
pub use recommend::{Choice, recommend};
pub use remedies::{Remedy, change_share, find_remedies, find_smaller_share};
pub use sharing::{StartPlan, StartStep, Tenant, order_by_needs, plan_starts};
pub use solve::{Solution, What, solve};
pub use table::{Entry, table};
pub use verdict::{Answer, Verdict};

use super::{Deployment, Model, Unknown, engines};

/// The longest sequence that is asked for, tokens: the flag's, else what the model reads.
///
/// # Errors
/// Neither is known.
pub fn longest(model: &Model, deployment: &Deployment) -> Result<u64, Unknown> {
    engines::settings(model, deployment)
        .max_model_len
        .ok_or_else(|| {
            Unknown::new("the longest sequence is not known: the model's configuration names none")
                .hint("give --max-model-len")
        })
}

/// Whether a number of requests of the longest length fit at once.
fn fits_at(holds: Result<f64, Unknown>, concurrency: u64) -> Result<bool, Unknown> {
    Ok(holds? >= concurrency as f64)
}

#[cfg(test)]
mod tests;
