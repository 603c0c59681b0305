//! Which GPUs hold a model, and how many of each.

use super::solve::{MACHINE, tensor_sizes};
use super::{Reading, Risk};
use crate::estimate::{Deployment, Gpu, Model, Unknown};
use serde::{Deserialize, Serialize};

/// GPUs that hold it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The GPU's name.
    pub gpu: String,
    /// How many, by tensor parallelism.
    pub count: u64,
    /// Memory of one as planned with, bytes.
    pub memory: u64,
    /// Requests of the longest length at once.
    pub max_concurrency: f64,
    /// How many times what was asked for that is.
    pub headroom: f64,
    /// How great the risk is.
    pub risk: Risk,
}

/// GPUs that hold `concurrency` requests of the longest length, least memory in all first; of each
/// GPU the least number that does, and no more of it than divide the attention heads.
///
/// # Errors
/// The missing input, the same for all GPUs.
pub fn recommend(
    model: &Model,
    asked: &Deployment,
    gpus: &[Gpu],
    concurrency: u64,
    read: &dyn Fn(&Deployment) -> Result<Reading, Unknown>,
) -> Result<Vec<Choice>, Unknown> {
    let wanted = concurrency.max(1);
    let mut choices = Vec::new();
    for gpu in gpus {
        for count in tensor_sizes(model, MACHINE) {
            let with = Deployment {
                gpu: Some(gpu.clone()),
                ..asked.spread_over(count, 1)
            };
            let reading = read(&with)?;
            let (Some(on), Some(risk)) = (reading.on, reading.risk(wanted)) else {
                continue;
            };
            if reading.fits(wanted) != Some(true) {
                continue;
            }
            choices.push(Choice {
                gpu: gpu.name.clone(),
                count,
                memory: gpu.total,
                max_concurrency: on.concurrency,
                headroom: on.concurrency / wanted as f64,
                risk,
            });
            break;
        }
    }
    choices.sort_by(|a, b| {
        let size = |c: &Choice| c.memory.saturating_mul(c.count);
        (size(a), a.count, &a.gpu).cmp(&(size(b), b.count, &b.gpu))
    });
    Ok(choices)
}
