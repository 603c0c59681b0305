//! Advice on a container, held against the estimate of its start on the GPUs as they are now.

use crate::cli::EstimateArgs;
use crate::commands::estimate::asked::Asked;
use crate::console::Console;
use crate::engine::diagnosis::{Diagnosis, DiagnosisAdvice};
use crate::engine::settings::argument_text;
use crate::error::Failure;
use crate::estimate::question::{Remedy, find_remedies};
use crate::estimate::{Deployment, Unknown};
use crate::report::estimate::describe_hold;
use serde_json::Value;

/// Causes of which a start's estimate decides what helps.
const ESTIMATED: [&str; 3] = [
    "kv_pool_too_small_for_max_model_len",
    "kv_pool_empty",
    "weights_do_not_fit",
];
/// Settings of which remedies are estimated.
const SETTINGS: [&str; 4] = [
    "gpu_memory_utilization",
    "max_model_len",
    "kv_cache_dtype",
    "tensor_parallel_size",
];

/// Gives each setting of the advice the value that the estimate finds to suffice, and leaves out one
/// of which none does. What the engine itself printed stays.
pub fn check_advice(console: &Console, container: &str, found: &mut Diagnosis) {
    if !found
        .cause
        .as_deref()
        .is_some_and(|cause| ESTIMATED.contains(&cause))
    {
        return;
    }
    let asked = match ask_estimate(console, container) {
        Ok(asked) => asked,
        Err(why) => {
            return found
                .unread
                .push(format!("an estimate of the start: {}", why.message));
        }
    };
    let holds = |d: &Deployment| Ok(asked.reading(d)?.on.map_or(0.0, |on| on.concurrency));
    let held: Result<f64, Unknown> = holds(&asked.deployment);
    let held = match held {
        Ok(held) => held,
        Err(why) => {
            return found
                .unread
                .push(format!("an estimate of the start: {}", why.what));
        }
    };
    if held >= 1.0 {
        let text = "by the estimate this start fits, and the engine refused it: no value is taken from the estimate";
        return found.now.push(text.to_owned());
    }
    let read = |d: &Deployment| asked.reading(d);
    let remedies = find_remedies(&asked.model, &asked.deployment, 1, &read);
    let engine = asked.deployment.engine;
    found.advice.retain_mut(|advice| {
        let kind = SETTINGS.iter().find_map(|name| {
            let argument = argument_text(engine, name, "")?;
            let flag = argument.trim_end().to_owned();
            advice.text.contains(&flag).then_some(flag)
        });
        let Some(flag) = kind.filter(|_| advice.value.is_none()) else {
            return true;
        };
        let of_flag = |remedy: &&Remedy| match remedy.arguments.as_slice() {
            [one] => one.starts_with(&flag),
            _ => false,
        };
        let remedy = remedies.iter().find(of_flag);
        if let Some(remedy) = remedy {
            take_value(advice, remedy, &describe_hold(remedy, &asked.model));
        }
        remedy.is_some()
    });
    // What was estimated is surer than what was not.
    found.advice.sort_by_key(|advice| advice.value.is_none());
}

fn take_value(advice: &mut DiagnosisAdvice, remedy: &Remedy, holds: &str) {
    let argument = remedy.argument();
    let value = argument.split_once(' ').map(|(_, value)| value);
    advice.value = value.map(|value| serde_json::from_str(value).unwrap_or(Value::from(value)));
    advice.text = format!("{argument}: by the estimate it {holds}");
}

/// What `estimate --container NAME --gpu detected` is asked about.
fn ask_estimate(console: &Console, container: &str) -> Result<Asked, Failure> {
    let args = EstimateArgs::of_container(container)?;
    Asked::of(console, &args)
}
