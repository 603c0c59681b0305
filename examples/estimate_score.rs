//! Scores the estimator on collected measurements and prints the tables in Markdown.
//!
//! `PLIMSOLL_ESTIMATE` names the folder with `TRUTH-dev.jsonl`, `2026/TRUTH-2026.jsonl`, `vllm-0.19-h100-dev.csv` and `models/`. With `-v` every
//! case is printed. Whatever was fitted is scored on architectures that are left out of the fit. Keys of a case that
//! somebody added after the fact (`hint`) are dropped.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use plimsoll::estimate::{
    Component, Deployment, EngineId, Estimate, Model, Unknown, Version, case, estimate, graphs,
    model::from_config,
};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path, time::Instant};

const GIB: f64 = (1u64 << 30) as f64;

/// Names in the benchmark's table and the configurations that have the same shapes.
const TABLE_MODELS: &[(&str, &str, &str)] = &[
    ("DeepSeek-V2-Lite-Chat", "deepseek-v2-lite", "none"),
    (
        "Qwen2.5-7B-Instruct-fp8-dynamic",
        "qwen2.5-7b",
        "fp8_channel",
    ),
    ("gemma-2-27b-it", "gemma-2-27b", "none"),
    ("gemma-2-2b-it", "gemma-2-2b", "none"),
    ("gemma-2-9b-it", "gemma-2-9b", "none"),
    ("gemma-3-12b-it", "gemma-3-12b-text", "none"),
    ("gemma-3-27b-it", "gemma-3-27b", "none"),
    ("gemma-3-4b-it", "gemma-3-4b-text", "none"),
    ("granite-3.1-8b-instruct", "granite-3.1-8b", "none"),
    ("granite-3.3-8b-instruct", "granite-3.1-8b", "none"),
    (
        "Mistral-Small-3.1-24B-Instruct-2503",
        "mistral-small-3.2-24b",
        "none",
    ),
    (
        "Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8",
        "mistral-small-3.2-24b",
        "int8_channel",
    ),
    ("Kimi-Dev-72B", "qwen2.5-72b", "none"),
    ("Qwen2.5-72B-Instruct", "qwen2.5-72b", "none"),
    ("gpt-oss-20b", "gpt-oss-20b", "mxfp4"),
    ("Qwen2.5-7B-Instruct", "qwen2.5-7b", "none"),
    (
        "Qwen2.5-7B-Instruct-quantized.w8a8",
        "qwen2.5-7b",
        "int8_channel",
    ),
    (
        "Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
        "Meta-Llama-3.1-8B",
        "w4a16",
    ),
    (
        "Meta-Llama-3.1-8B-Instruct-quantized.w8a8",
        "Meta-Llama-3.1-8B",
        "int8_channel",
    ),
];

/// A measured start.
struct Run {
    id: String,
    model: Model,
    deployment: Deployment,
    measured: Value,
    table: bool,
    /// Flags, version and memory are all in the log: nothing is assumed.
    known: bool,
    hinted: bool,
    /// Whoever collected it says that an input is missing which decides: a vision tower, a reservation.
    lacking: bool,
    /// What it is alike to others in: its engine, generation, GPU, and what it was tagged with.
    groups: Vec<String>,
    /// Of the collection of 2026.
    recent: bool,
}

fn number(v: &Value, key: &str) -> Option<f64> {
    match v.get(key)? {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.parse().ok(),
        _ => None,
    }
}

/// Python writes what JSON has no word for.
fn plain(text: &str) -> String {
    text.replace("-Infinity", "null")
        .replace("Infinity", "null")
        .replace(": NaN", ": null")
}

/// What a file of the folder holds.
fn config(folder: &Path, name: &str) -> Result<Value, Unknown> {
    let path = folder.join("models").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Unknown::new(format!("{}: {e}", path.display())))?;
    let json: Value =
        serde_json::from_str(&plain(&text)).map_err(|e| Unknown::new(format!("{name}: {e}")))?;
    Ok(json["config"].clone())
}

/// A configuration of the folder.
fn model(folder: &Path, name: &str) -> Result<Model, Unknown> {
    from_config(name, &config(folder, name)?, "scored")
}

/// The configuration of a row of the table. Of two models of Gemma 3 the folder has the language model only; all but
/// the smallest have the same encoder.
fn table_model(folder: &Path, short: &str, name: &str) -> Result<Model, Unknown> {
    let text = config(folder, name)?;
    if short.starts_with("gemma-3") && text["model_type"] == "gemma3_text" {
        let mut whole = config(folder, "gemma-3-27b")?;
        whole["text_config"] = text;
        return from_config(name, &whole, "scored");
    }
    from_config(name, &text, "scored")
}

/// The groups of a case.
fn groups_of(case: &Value, deployment: &Deployment) -> Vec<String> {
    let mut groups = vec![format!("engine {}", deployment.engine.name)];
    if let (EngineId::Vllm, Some(v)) = (deployment.engine, deployment.version) {
        let generation = match v.minor {
            0..8 => "vLLM before 0.8",
            8..12 => "vLLM 0.8 to 0.11",
            12..21 => "vLLM 0.12 to 0.20",
            _ => "vLLM from 0.21",
        };
        groups.push(generation.to_owned());
    }
    let gpu = deployment
        .gpu
        .as_ref()
        .map_or("unknown", |g| g.name.as_str());
    groups.push(format!("GPU {gpu}"));
    let tags = case["tags"].as_array().into_iter().flatten();
    groups.extend(tags.filter_map(Value::as_str).map(|t| format!("tag {t}")));
    groups
}

/// Every case of a collection.
fn collected(folder: &Path, file: &str, inferred: &Value) -> Vec<Run> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    let recent = file.contains("2026");
    let mut runs = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let Ok(mut json) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let measured = json["measured"].clone();
        let lacking = json["hint"] == "noblind";
        let hinted = json.get("hint").is_some_and(Value::is_string);
        // Whoever collected it took a setting that the source does not name.
        let assumed = json["note"].as_str().is_some_and(|n| {
            ["assumed", "not told", "less sure"]
                .iter()
                .any(|w| n.contains(w))
        });
        if let Some(map) = json.as_object_mut() {
            map.remove("hint");
            map.remove("note");
            map.remove("measured");
        }
        let read = match case::read(&json) {
            Ok(c) => c,
            Err(why) => {
                println!("- {}: {why}", json["id"]);
                continue;
            }
        };
        let found = match &read.config {
            Some(config) => from_config(&read.id, config, "scored"),
            None => model(folder, &read.models[0]),
        };
        let model = match found {
            Ok(m) => m,
            Err(why) => {
                println!("- {}: {why}", read.id);
                continue;
            }
        };
        let d = &read.deployment;
        let guessed = inferred.get(&read.id).and_then(Value::as_array);
        let known = read.warnings.is_empty()
            && d.memory_fraction.is_some()
            && d.max_batched_tokens.is_some()
            && d.max_seqs.is_some()
            && d.gpu.is_some()
            && !guessed.is_some_and(|g| g.iter().any(|k| k != "gpu_total_gib"));
        runs.push(Run {
            id: read.id.clone(),
            model,
            deployment: read.deployment.clone(),
            measured: with_started(measured, &json),
            table: false,
            known: known && !lacking && !assumed,
            hinted,
            lacking,
            groups: groups_of(&json, d),
            recent,
        });
    }
    runs
}

fn with_started(mut measured: Value, case: &Value) -> Value {
    if let (Some(map), Some(started)) = (measured.as_object_mut(), case.get("started")) {
        map.insert("started".into(), started.clone());
    }
    measured
}

/// Every row of the benchmark's table that ran.
fn table(folder: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(folder.join("vllm-0.19-h100-dev.csv")).unwrap_or_default();
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut runs = Vec::new();
    for (n, line) in lines.enumerate() {
        let mut json: Value = heads
            .iter()
            .zip(line.split(','))
            .filter(|(_, v)| !v.is_empty())
            .map(|(k, v)| ((*k).to_owned(), Value::from(v)))
            .collect();
        let name = json["model"].as_str().unwrap_or_default().to_owned();
        let short = name.rsplit('/').next().unwrap_or_default();
        let Some((_, config, quant)) = TABLE_MODELS.iter().find(|(m, ..)| *m == short) else {
            if number(&json, "weight_memory_gib").is_some() {
                println!("- {name}: no configuration");
            }
            continue;
        };
        if number(&json, "weight_memory_gib").is_none() {
            continue;
        }
        let Ok(model) = table_model(folder, short, config) else {
            println!("- {name}: {config} is not understood");
            continue;
        };
        json["config"] = Value::from(*config);
        json["engine_version"] = Value::from("0.19.1");
        json["quant"] = match *quant {
            "none" => Value::Null,
            q => Value::from(q),
        };
        json.as_object_mut().map(|m| m.remove("quantization"));
        let Ok(read) = case::read(&json) else {
            continue;
        };
        let mut measured = serde_json::Map::new();
        for (ours, theirs) in [
            ("weights_gib", "weights_memory_gib"),
            ("kv_gib", "kv_cache_memory_gib"),
            ("kv_tokens", "kv_cache_tokens"),
            ("activation_gib", "activation_memory_gib"),
            ("non_torch_gib", "non_torch_forward_gib"),
            ("graph_gib", "cuda_graph_actual_gib"),
            ("graph_forecast_gib", "cuda_graph_estimated_gib"),
            ("max_concurrency", "max_concurrency"),
        ] {
            if let Some(n) = number(&json, theirs) {
                measured.insert(ours.into(), n.into());
            }
        }
        runs.push(Run {
            id: format!("{}-{short}-tp{}", n + 2, read.deployment.tp),
            model,
            deployment: read.deployment,
            measured: Value::Object(measured),
            table: true,
            known: true,
            hinted: false,
            lacking: false,
            groups: vec!["the table (vLLM 0.19, H100)".to_owned()],
            recent: false,
        });
    }
    runs
}

/// The tokens that a log names.
fn tokens(run: &Run) -> Option<f64> {
    let m = &run.measured;
    let block = run.deployment.block_size.unwrap_or(16) as f64;
    number(m, "kv_tokens")
        .or_else(|| Some(number(m, "num_blocks")? * block))
        .or_else(|| Some(number(m, "max_concurrency")? * run.deployment.max_model_len? as f64))
}

/// Errors of one kind, and their words.
#[derive(Default)]
struct Errors(Vec<f64>);

impl Errors {
    fn sorted(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.0.iter().map(|e| e.abs()).collect();
        all.sort_by(f64::total_cmp);
        all
    }
    fn at(&self, share: f64) -> f64 {
        let all = self.sorted();
        if all.is_empty() {
            return f64::NAN;
        }
        all[((all.len() as f64 * share) as usize).min(all.len() - 1)]
    }
    fn median(&self) -> f64 {
        let all = self.sorted();
        match all.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => all[n / 2],
            n => (all[n / 2 - 1] + all[n / 2]) / 2.0,
        }
    }
    fn mean(&self) -> f64 {
        self.0.iter().map(|e| e.abs()).sum::<f64>() / self.0.len() as f64
    }
    fn percent(&self, goal: &str, what: &str) {
        println!(
            "| {what} | {} | {:.2} % | {:.2} % | {:.2} % | {:.1} % | {goal} |",
            self.0.len(),
            100.0 * self.median(),
            100.0 * self.mean(),
            100.0 * self.at(0.9),
            100.0 * self.at(1.0)
        );
    }
    fn gib(&self, goal: &str, what: &str) {
        println!(
            "| {what} | {} | {:.3} GiB | {:.3} GiB | {:.3} GiB | {:.2} GiB | {goal} |",
            self.0.len(),
            self.median(),
            self.mean(),
            self.at(0.9),
            self.at(1.0)
        );
    }
}

/// Least squares of relative errors, by the normal equations.
fn solve(rows: &[(Vec<f64>, f64)]) -> Option<Vec<f64>> {
    let n = rows.first()?.0.len();
    let mut a = vec![vec![0.0; n + 1]; n];
    for (x, y) in rows {
        for i in 0..n {
            for j in 0..n {
                a[i][j] += x[i] * x[j] / (y * y);
            }
            a[i][n] += x[i] / y;
        }
    }
    // A little of nothing, so that a column that a left-out architecture emptied is solvable.
    for (i, row) in a.iter_mut().enumerate() {
        row[i] += 1e-9;
    }
    for i in 0..n {
        let pivot = (i..n).max_by(|p, q| a[*p][i].abs().total_cmp(&a[*q][i].abs()))?;
        a.swap(i, pivot);
        let by = a[i].clone();
        for (k, row) in a.iter_mut().enumerate() {
            if k != i && by[i] != 0.0 {
                let f = row[i] / by[i];
                for (value, of) in row.iter_mut().zip(&by).skip(i) {
                    *value -= f * of;
                }
            }
        }
    }
    Some((0..n).map(|i| a[i][n] / a[i][i]).collect())
}

/// The inputs of the graphs' fit.
fn features(run: &Run, e: &Estimate) -> Option<Vec<f64>> {
    let g = graphs::of(&run.model, &run.deployment, &e.settings)?;
    let count = (g.captures.piecewise + g.captures.full) as f64 / 1000.0;
    Some(vec![
        1.0,
        g.layers as f64 * count,
        g.routed as f64 * count,
        g.splits,
    ])
}

/// Graphs, each architecture's runs predicted by a fit of the others.
fn graphs_left_out(runs: &[(&Run, Estimate)], key: &str) -> (Errors, Option<Vec<f64>>, Vec<f64>) {
    let rows: Vec<(&Run, Vec<f64>, f64)> = runs
        .iter()
        .filter(|(r, _)| r.table)
        .filter_map(|(r, e)| Some((*r, features(r, e)?, number(&r.measured, key)?)))
        .collect();
    let mut errors = Errors::default();
    let mut residuals = Vec::new();
    for (run, x, y) in &rows {
        let others: Vec<(Vec<f64>, f64)> = rows
            .iter()
            .filter(|(o, ..)| o.model.kind != run.model.kind)
            .map(|(_, x, y)| (x.clone(), *y))
            .collect();
        let Some(fit) = solve(&others) else { continue };
        let said: f64 = fit.iter().zip(x).map(|(f, x)| f * x).sum();
        errors.0.push(said / y - 1.0);
        residuals.push(y - said);
    }
    let all: Vec<(Vec<f64>, f64)> = rows.iter().map(|(_, x, y)| (x.clone(), *y)).collect();
    (errors, solve(&all), residuals)
}

/// The measured constants, each run predicted from runs of other architectures: non-torch as the median of those of
/// the same version and parallelism; the sampler's bytes of a logit as the median where it is the peak.
fn rest_left_out(runs: &[(&Run, Estimate)]) -> (Errors, Errors) {
    let (mut rest, mut logits) = (Errors::default(), Errors::default());
    for table in [false, true] {
        let measured: Vec<(&Run, f64, Option<f64>)> = runs
            .iter()
            .filter(|(r, _)| r.table == table && !r.lacking)
            .filter_map(|(r, e)| {
                let bytes = number(&r.measured, "activation_gib").map(|a| a * GIB);
                let term = e.term(Component::Activation)?;
                let part = |key: &str| term.inputs.get(key).and_then(Value::as_f64);
                let (sampler, forward) = (part("sampler")?, part("forward")?);
                let sorts = term.inputs.get("sampler_kind")?.as_str()? == "sort";
                // As a share of what the formula says: 1 where its bytes of a logit are right.
                let share = bytes
                    .filter(|_| sampler > forward && sorts != table)
                    .and_then(|b| Some((b - part("kept")?) / sampler));
                Some((*r, number(&r.measured, "non_torch_gib")?, share))
            })
            .collect();
        for (run, gib, share) in &measured {
            let others = || {
                measured
                    .iter()
                    .filter(|(o, ..)| o.model.kind != run.model.kind)
            };
            let gpu = |r: &Run| r.deployment.gpu.as_ref().map(|g| g.name.clone());
            let alike: Vec<f64> = others()
                .filter(|(o, ..)| o.deployment.tp == run.deployment.tp && gpu(o) == gpu(run))
                .map(|(_, g, _)| *g)
                .collect();
            if !alike.is_empty() {
                rest.0.push(Errors(alike).median() - gib);
            }
            let shares: Vec<f64> = others().filter_map(|(.., s)| *s).collect();
            if let Some(share) = share.filter(|_| !shares.is_empty()) {
                logits.0.push(Errors(shares).median() / share - 1.0);
            }
        }
    }
    (rest, logits)
}

fn main() {
    let Some(folder) = std::env::var_os("PLIMSOLL_ESTIMATE") else {
        eprintln!("skipped: PLIMSOLL_ESTIMATE is not set");
        return;
    };
    let folder = Path::new(&folder);
    let verbose = std::env::args().any(|a| a == "-v");
    let inferred: Value = std::fs::read_to_string(folder.join("settings_inferred.json"))
        .ok()
        .and_then(|t| serde_json::from_str(&t).ok())
        .unwrap_or(Value::Null);
    let mut runs = collected(folder, "TRUTH-dev.jsonl", &inferred);
    runs.extend(collected(folder, "2026/TRUTH-2026.jsonl", &inferred));
    runs.extend(table(folder));
    let estimates: Vec<(&Run, Estimate)> = runs
        .iter()
        .map(|r| (r, estimate(&r.model, &r.deployment)))
        .collect();

    let mut kinds: BTreeMap<&str, Errors> = BTreeMap::new();
    let mut fits = (0, 0, 0);
    let mut covered: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (run, e) in &estimates {
        let m = &run.measured;
        let said = |c| e.bytes(c).map(|b| b as f64 / GIB);
        let mut row = format!("{:44}", run.id);
        let mut push = |kind: &'static str, value: f64| {
            kinds.entry(kind).or_default().0.push(value);
        };
        let mut one = |name: &str, key: &str, component| -> Option<(f64, f64)> {
            let measured = number(m, key)?;
            let ours = said(component)?;
            row += &format!(" {name} {measured:.2}/{ours:.2}");
            Some((measured, ours))
        };
        if let Some((a, b)) = one("w", "weights_gib", Component::Weights) {
            push("weights", b / a - 1.0);
        }
        if let Some((a, b)) = one("act", "activation_gib", Component::Activation) {
            let kind = match (e.warnings.iter().any(|w| w.contains("images")), run.table) {
                (true, _) => "activation, images",
                (_, true) => "activation, table",
                _ if run.hinted => "activation, hinted",
                _ => "activation, collected",
            };
            push(kind, b - a);
            if kind == "activation, images" {
                push("activation, images, relative", b / a - 1.0);
            }
        }
        if let Some((a, b)) = one("nt", "non_torch_gib", Component::NonTorch) {
            push(
                if run.table {
                    "non-torch, table"
                } else {
                    "non-torch, collected"
                },
                b - a,
            );
        }
        if let Some((a, b)) = one("g", "graph_gib", Component::CudaGraphs) {
            if a > 0.0 {
                push(
                    if run.table {
                        "graphs, table"
                    } else {
                        "graphs, collected"
                    },
                    b / a - 1.0,
                );
                if run.table {
                    if let Some(f) = number(m, "graph_forecast_gib") {
                        push("graphs, vLLM's own", f / a - 1.0);
                    }
                }
            }
        }
        let measured_tokens = tokens(run);
        let kv = number(m, "kv_gib").filter(|k| *k > 0.0);
        let counted = number(m, "kv_tokens").or(number(m, "num_blocks")).is_some();
        if let (Some(kv), Some(t), Ok(layout)) =
            (kv, measured_tokens.filter(|_| counted), &e.layout)
        {
            let ours = layout
                .pool((kv * GIB) as u64, e.settings.max_model_len)
                .tokens as f64;
            row += &format!(" layout {t}/{ours}");
            push("KV layout", ours / t - 1.0);
        }
        if let (Some(kv), Ok(pool)) = (kv, &e.pool) {
            row += &format!(" kv {kv:.2}/{:.2}", pool.bytes as f64 / GIB);
            push(
                if run.known {
                    "KV GiB, flags known"
                } else {
                    "KV GiB, otherwise"
                },
                pool.bytes as f64 / GIB - kv,
            );
        }
        if let (Some(t), Ok(pool)) = (measured_tokens, &e.pool) {
            let error = pool.tokens as f64 / t - 1.0;
            row += &format!(" tok {t:.0}/{} {:+.2}%", pool.tokens, 100.0 * error);
            let kind = match (run.table, run.known) {
                _ if run.lacking => "KV tokens, input lacking",
                (true, _) => "KV tokens, table",
                (_, true) => "KV tokens, flags known",
                _ => "KV tokens, otherwise",
            };
            push(kind, error);
        }
        let started = m.get("started").and_then(Value::as_bool);
        let truth = match (started, number(m, "kv_gib")) {
            (Some(s), _) => Some(s),
            (None, Some(k)) if k < 0.0 => Some(false),
            (None, Some(_)) => Some(true),
            _ => measured_tokens.map(|_| true),
        };
        if verbose && measured_tokens.is_some() && e.pool.is_err() {
            row += &format!(" pool unknown: {}", e.reason);
        }
        if let (Some(truth), Some(said)) = (truth, e.fits) {
            fits.0 += 1;
            fits.1 += u64::from(truth == said);
            fits.2 += u64::from(!truth);
            if truth != said {
                wrong.push(format!("{}: {}", run.id, e.reason));
            }
        }
        for (name, key, component) in [
            ("weights", "weights_gib", Component::Weights),
            ("activation", "activation_gib", Component::Activation),
            ("CUDA graphs", "graph_gib", Component::CudaGraphs),
            ("non-torch", "non_torch_gib", Component::NonTorch),
            ("KV pool", "kv_gib", Component::KvCache),
        ] {
            if let (Some(m), Some(band)) = (
                number(m, key).filter(|m| *m > 0.0),
                e.term(component).and_then(|t| t.band.as_ref()),
            ) {
                let entry = covered.entry(name).or_default();
                entry.0 += 1;
                let (low, high) = (
                    band.low as f64 / GIB - 0.005,
                    band.high as f64 / GIB + 0.005,
                );
                entry.1 += u64::from((low..=high).contains(&m));
            }
        }
        if verbose {
            println!("{row}{}", if run.known { "" } else { " (not all known)" });
        }
    }
    println!(
        "\n| figure | runs | median | mean | p90 | worst | goal |\n|---|---|---|---|---|---|---|"
    );
    let none = Errors::default();
    let get = |k: &str| kinds.get(k).unwrap_or(&none);
    get("weights").percent("1 % (16/8 bit), 3 % (4 bit)", "weights from config alone");
    get("KV layout").percent("p90 0.1 %", "KV tokens from measured KV bytes");
    get("KV tokens, flags known").percent("1 / 5 %", "KV tokens blind, flags known");
    get("KV tokens, table").percent("1 / 5 %", "KV tokens blind, the table");
    get("KV tokens, otherwise").percent("5 / 20 %", "KV tokens blind, otherwise");
    get("KV tokens, input lacking").percent("", "KV tokens blind, a deciding input lacking");
    for kind in ["KV GiB, flags known", "KV GiB, otherwise"] {
        get(kind).gib("", kind);
    }
    for kind in [
        "activation, table",
        "activation, collected",
        "activation, hinted",
        "activation, images",
    ] {
        get(kind).gib("0.05 GiB", kind);
    }
    get("activation, images, relative").percent("15 %", "activation, models that read images");
    for kind in ["non-torch, table", "non-torch, collected"] {
        get(kind).gib("", kind);
    }
    get("graphs, vLLM's own").percent("", "graphs: vLLM's own forecast");
    get("graphs, table").percent("", "graphs, fitted to them");
    let (out, fit, _) = graphs_left_out(&estimates, "graph_gib");
    out.percent("mean 12 %", "graphs, architecture left out");
    let (forecast, forecast_fit, _) = graphs_left_out(&estimates, "graph_forecast_gib");
    forecast.percent("", "vLLM's forecast, architecture left out");
    get("graphs, collected").percent("", "graphs, other versions and GPUs");
    let (rest, shares) = rest_left_out(&estimates);
    rest.gib("", "non-torch, architecture left out");
    shares.percent("", "sampler, architecture left out");
    println!("\nfit of the graphs: {fit:.3?}; of the forecast: {forecast_fit:.3?}");
    let (short, short_right, more) = squeezed(&estimates);
    wrong.extend(more);
    println!(
        "\n| fits | cases | right | of these, do not fit |\n|---|---|---|---|\n| measured | {} | {} | {} |\n| measured needs against a smaller share | {short} | {short_right} | {short} |",
        fits.0, fits.1, fits.2
    );
    for w in &wrong {
        println!("- {w}");
    }
    println!("\n| band | runs | inside |\n|---|---|---|");
    for (name, (n, inside)) in &covered {
        println!(
            "| {name} | {n} | {:.0} % |",
            100.0 * *inside as f64 / *n as f64
        );
    }
    let recent = |(run, _): &&(&Run, Estimate)| run.recent;
    goals("cases of 2026", estimates.iter().filter(recent), false);
    goals(
        "all but the table",
        estimates.iter().filter(|(run, _)| !run.table),
        verbose,
    );
    speed(folder, &estimates);
}

/// A measured figure, and what is answered for it.
struct Figure {
    kind: &'static str,
    measured: f64,
    answer: Option<f64>,
    band: Option<(f64, f64)>,
}

/// What was measured of a run, beside the answers.
fn figures(run: &Run, e: &Estimate) -> Vec<Figure> {
    let m = &run.measured;
    let mut all = Vec::new();
    for (kind, key, component) in [
        ("weights", "weights_gib", Component::Weights),
        ("activation", "activation_gib", Component::Activation),
        ("graphs", "graph_gib", Component::CudaGraphs),
        ("non-torch", "non_torch_gib", Component::NonTorch),
        ("pool", "kv_gib", Component::KvCache),
    ] {
        let Some(measured) = number(m, key).filter(|m| *m > 0.0) else {
            continue;
        };
        let band = e.term(component).and_then(|t| t.band.as_ref());
        // Printed in hundredths of a GiB.
        let round = 0.005;
        all.push(Figure {
            kind,
            measured,
            answer: e.bytes(component).map(|b| b as f64 / GIB),
            band: band.map(|b| (b.low as f64 / GIB - round, b.high as f64 / GIB + round)),
        });
    }
    if let Some(measured) = tokens(run) {
        let pool = e.term(Component::KvCache).and_then(|t| t.band.as_ref());
        let longest = e.settings.max_model_len;
        let band = pool.zip(e.layout.as_ref().ok()).map(|(b, layout)| {
            let of = |bytes| layout.pool(bytes, longest).tokens as f64;
            (of(b.low), of(b.high))
        });
        all.push(Figure {
            kind: "tokens",
            measured,
            answer: e.pool.as_ref().ok().map(|p| p.tokens as f64),
            band,
        });
    }
    all
}

/// The least of `n` that lie in intervals of 90 %, which fewer than one in twenty such intervals miss.
fn least_inside(n: u64) -> u64 {
    let mut below = 0.0;
    let mut chance = 0.1f64.powi(n as i32);
    for k in 0..=n {
        below += chance;
        if below >= 0.05 {
            return k;
        }
        chance *= 9.0 * (n - k) as f64 / (k + 1) as f64;
    }
    n
}

/// The figures of the goals, over all of these runs and in each group of eight figures or more.
fn goals<'a>(title: &str, runs: impl Iterator<Item = &'a (&'a Run, Estimate)>, verbose: bool) {
    let mut kinds: BTreeMap<String, Vec<Figure>> = BTreeMap::new();
    let mut groups: BTreeMap<String, Vec<(bool, Option<bool>, f64)>> = BTreeMap::new();
    let (mut cases, mut negatives, mut right, mut open, mut false_fits) = (0, 0, 0, 0, Vec::new());
    for (run, e) in runs {
        cases += 1;
        if let Some(started) = run.measured.get("started").and_then(Value::as_bool) {
            negatives += u64::from(!started);
            match e.fits {
                None => open += 1,
                Some(said) => right += u64::from(said == started),
            }
            if !started && e.fits == Some(true) {
                false_fits.push(format!("{}: {}", run.id, e.reason));
            }
        }
        for figure in figures(run, e) {
            let inside = figure
                .band
                .map(|(low, high)| (low..=high).contains(&figure.measured));
            let width = figure
                .band
                .map_or(f64::NAN, |(low, high)| (high - low) / figure.measured);
            if verbose && inside != Some(true) {
                println!(
                    "- {} {}: {} is {:?} in {:?}",
                    run.id, figure.kind, figure.measured, figure.answer, figure.band
                );
            }
            let all = std::iter::once("all".to_owned()).chain(run.groups.iter().cloned());
            for group in all {
                let entry = groups.entry(group).or_default();
                entry.push((figure.answer.is_some(), inside, width));
            }
            let known = match figure.kind {
                "tokens" if run.known => "tokens, flags known",
                "tokens" => "tokens, flags not all known",
                kind => kind,
            };
            kinds.entry(known.to_owned()).or_default().push(figure);
        }
    }
    println!(
        "\n{title}: {cases} cases, {negatives} did not start; {right} answers right, {open} open"
    );
    for wrong in &false_fits {
        println!("- fits, and did not start: {wrong}");
    }
    println!("\n| figure | measured | answered | median | p90 | goal |\n|---|---|---|---|---|---|");
    for (kind, figures) in &kinds {
        let errors = Errors(
            figures
                .iter()
                .filter_map(|f| Some(f.answer? / f.measured - 1.0))
                .collect(),
        );
        let goal = match kind.as_str() {
            "tokens, flags known" => "1 and 5 %",
            "tokens, flags not all known" => "5 and 20 %",
            "weights" => "0.3 and 1 % (2 % below 16 bits)",
            "graphs" => "10 %",
            _ => "",
        };
        println!(
            "| {kind} | {} | {} | {:.2} % | {:.1} % | {goal} |",
            figures.len(),
            errors.0.len(),
            100.0 * errors.median(),
            100.0 * errors.at(0.9)
        );
    }
    println!(
        "\n| group | figures | null | with an interval | inside | at least | median width |\n|---|---|---|---|---|---|---|"
    );
    for (group, all) in groups.iter().filter(|(_, all)| all.len() >= 8) {
        let judged: Vec<bool> = all.iter().filter_map(|(_, inside, _)| *inside).collect();
        let inside = judged.iter().filter(|i| **i).count();
        let widths = Errors(all.iter().map(|a| a.2).filter(|w| w.is_finite()).collect());
        println!(
            "| {group} | {} | {} | {} | {inside} | {} | {:.0} % |",
            all.len(),
            all.iter().filter(|a| !a.0).count(),
            judged.len(),
            least_inside(judged.len() as u64),
            100.0 * widths.median()
        );
    }
}

/// Measured starts, asked again with a share that is 3 % less than what they measurably needed beside the cache: none
/// can start.
fn squeezed(estimates: &[(&Run, Estimate)]) -> (u64, u64, Vec<String>) {
    let (mut n, mut right, mut wrong) = (0, 0, Vec::new());
    for (run, _) in estimates {
        let m = &run.measured;
        let (Some(w), Some(a), Some(nt)) = (
            number(m, "weights_gib"),
            number(m, "activation_gib"),
            number(m, "non_torch_gib"),
        ) else {
            continue;
        };
        let Some(gpu) = &run.deployment.gpu else {
            continue;
        };
        let mut less = run.deployment.clone();
        let share = 0.97 * (w + a + nt) * GIB / gpu.total as f64;
        less.memory_fraction = Some(share.min(1.0));
        n += 1;
        let fits = estimate(&run.model, &less);
        if fits.fits == Some(false) {
            right += 1;
        } else {
            wrong.push(format!("{} squeezed: {}", run.id, fits.reason));
        }
    }
    (n, right, wrong)
}

/// How long one estimate takes, and all models of the folder.
fn speed(folder: &Path, estimates: &[(&Run, Estimate)]) {
    let (mut slowest, mut slowest_id) = (0.0f64, "");
    for (run, _) in estimates {
        let begun = Instant::now();
        std::hint::black_box(estimate(&run.model, &run.deployment));
        let took = begun.elapsed().as_secs_f64();
        if took > slowest {
            (slowest, slowest_id) = (took, &run.id);
        }
    }
    let Ok(dir) = std::fs::read_dir(folder.join("models")) else {
        return;
    };
    let configs: Vec<(String, Value)> = dir
        .flatten()
        .filter_map(|f| {
            let text = std::fs::read_to_string(f.path()).ok()?;
            let json: Value = serde_json::from_str(&plain(&text)).ok()?;
            Some((
                f.file_name().to_string_lossy().into_owned(),
                json["config"].clone(),
            ))
        })
        .collect();
    let mut deployment = Deployment::with_defaults(EngineId::Vllm);
    deployment.version = Some(Version::new(0, 19, 1));
    let begun = Instant::now();
    let mut understood = 0;
    for (name, config) in &configs {
        if let Ok(model) = from_config(name, config, "scored") {
            std::hint::black_box(estimate(&model, &deployment));
            understood += 1;
        }
    }
    println!(
        "\nslowest estimate {:.2} ms ({slowest_id}); {understood} of {} models read and estimated in {:.0} ms",
        1000.0 * slowest,
        configs.len(),
        1000.0 * begun.elapsed().as_secs_f64()
    );
}
