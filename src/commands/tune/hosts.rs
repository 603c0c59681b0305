//! Hosts that the parts of a search ran on: only like ones are compared.

use crate::bounded;
use crate::error::Failure;
use crate::sweep::{folder, merge::numbered_files};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Refuses runs of which some were measured on other GPUs than the rest.
pub fn refuse_mixed_hosts(runs: &[&Path]) -> Result<(), Failure> {
    let envs = runs.iter().flat_map(|run| read_environments(run));
    same_kind(envs)
}

/// Refuses to go on with a run on another kind of host than it was begun on.
pub fn refuse_other_host(run: &Path, now: Value) -> Result<(), Failure> {
    same_kind(read_environments(run).into_iter().chain([now]))
}

fn same_kind(envs: impl Iterator<Item = Value>) -> Result<(), Failure> {
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    for env in envs {
        let name = env.pointer("/host/hostname").and_then(Value::as_str);
        let name = name.unwrap_or("a host without a name").to_owned();
        kinds.entry(host_kind(&env)).or_insert(name);
    }
    if kinds.len() < 2 {
        return Ok(());
    }
    let hosts: Vec<String> = kinds
        .iter()
        .map(|(kind, host)| format!("{host} has {kind}"))
        .collect();
    Err(Failure::usage(format!(
        "scores of different hosts are not compared: {}",
        hosts.join(", ")
    ))
    .hint("run all parts of a search on hosts with the same GPUs")
    .hint("each part has an answer of its own: `tune.json` in its folder"))
}

/// What a run's hosts were: one, or each of those that were joined.
pub fn read_environments(run: &Path) -> Vec<Value> {
    let paths = numbered_files(&[run], folder::ENV_FILE).into_iter();
    let read = |path: PathBuf| bounded::parse_json(&bounded::read_document(&path).ok()?).ok();
    paths.filter_map(read).collect()
}

/// `2 of NVIDIA L4 with 23034 MiB`, or the processors where there is no GPU.
fn host_kind(env: &Value) -> String {
    let Some(devices) = env.pointer("/gpus/devices").and_then(Value::as_array) else {
        let cpus = env
            .pointer("/host/cpus")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let arch = env
            .pointer("/host/arch")
            .and_then(Value::as_str)
            .unwrap_or("an unknown architecture");
        return format!("no GPU and {cpus} processors of {arch}");
    };
    let mut models: BTreeMap<String, u32> = BTreeMap::new();
    for device in devices {
        let name = device["name"].as_str().unwrap_or("a GPU without a name");
        let memory = device["total_bytes"]
            .as_u64()
            .map_or("unknown memory".into(), |b| format!("{} MiB", b >> 20));
        *models.entry(format!("{name} with {memory}")).or_default() += 1;
    }
    let models: Vec<String> = models
        .iter()
        .map(|(model, n)| format!("{n} of {model}"))
        .collect();
    models.join(" and ")
}
