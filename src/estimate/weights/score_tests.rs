//! Weights against what engines printed: the shared cases, where PLIMSOLL_ESTIMATE names their folder.

use crate::estimate::model::from_config;
use crate::estimate::{Deployment, EngineKind, Gpu, Lora, Model, Version, weights};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Cases whose measured figure is of another model than the config that is given for it.
const NOT_OF_THIS_CONFIG: &[&str] = &["uns-qwen25vl-7b-bnb-t4", "nemo3-omni-h100pcie"];

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("PLIMSOLL_ESTIMATE").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: PLIMSOLL_ESTIMATE does not name the folder of measured deployments");
    }
    folder
}

fn model(folder: &Path, name: &str) -> Option<Model> {
    let path = folder.join("models").join(format!("{name}.json"));
    let text = std::fs::read_to_string(path).ok()?;
    // Python writes what JSON does not have.
    let text = text
        .replace("-Infinity", "null")
        .replace("Infinity", "null");
    let whole: Value = serde_json::from_str(&text).unwrap();
    match from_config(name, &whole["config"], "test") {
        Ok(model) => Some(model),
        Err(unknown) => {
            println!("{name}: {unknown}");
            None
        }
    }
}

fn version(text: &str) -> Option<Version> {
    let mut parts = text
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|p| p.parse::<u32>().ok());
    let (major, minor) = (parts.next()?, parts.next()?);
    Some(Version::new(major, minor, parts.next().unwrap_or(0)))
}

fn deployment(case: &Value) -> Option<Deployment> {
    let text = |key: &str| case[key].as_str().map(str::to_owned);
    let count = |key: &str| case[key].as_u64().unwrap_or(1);
    let engine = match case["engine"].as_str()? {
        "vllm" => EngineKind::Vllm,
        "sglang" => EngineKind::Sglang,
        "tgi" => EngineKind::Tgi,
        "trtllm" => EngineKind::TensorRtLlm,
        "transformers" => EngineKind::Transformers,
        _ => return None,
    };
    let mut made = Deployment::of(engine);
    (made.tp, made.pp, made.ep) = (count("tp"), count("pp"), count("ep"));
    made.version = text("engine_version").and_then(|v| version(&v));
    made.dtype = text("dtype");
    made.quantization = text("quant");
    made.gpu = text("gpu").filter(|g| g != "unknown").map(|name| Gpu {
        name,
        total: 0,
        in_use: 0,
    });
    made.lora = case["lora_rank"]
        .as_u64()
        .map(|rank| Lora { rank, slots: 1 });
    Some(made)
}

#[test]
fn weights_are_what_engines_printed() {
    let Some(folder) = folder() else { return };
    let cases = std::fs::read_to_string(folder.join("TRUTH-dev.jsonl")).unwrap();
    let (mut plain, mut small, mut inside) = (Vec::new(), Vec::new(), 0);
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        let Some(measured) = case["measured"]["weights_gib"].as_f64() else {
            continue;
        };
        let told = (
            model(&folder, case["config"].as_str().unwrap()),
            deployment(&case),
        );
        let (Some(model), Some(deployment)) = told else {
            println!("{id:30} no model");
            continue;
        };
        if NOT_OF_THIS_CONFIG.contains(&id) {
            continue;
        }
        let made = match weights::of(&model, &deployment) {
            Ok(made) => made,
            Err(unknown) => {
                println!("{id:30} {unknown}");
                continue;
            }
        };
        let got = made.bytes as f64 / f64::from(1 << 30);
        let off = got / measured - 1.0;
        let within =
            (made.band.low..=made.band.high).contains(&((measured * f64::from(1 << 30)) as u64));
        inside += usize::from(within);
        println!(
            "{id:30} {measured:9.4} {got:9.4} {:7.2} % {} {}",
            100.0 * off,
            if within { "in " } else { "OUT" },
            made.scheme
        );
        let four = ["nf4", "awq", "gptq", "w4a16", "mxfp4", "nvfp4"];
        let four = case["quant"]
            .as_str()
            .is_some_and(|q| four.iter().any(|f| q.contains(f)));
        let list = if four { &mut small } else { &mut plain };
        list.push(off.abs());
    }
    let told = |name: &str, list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        let at = |share: f64| list[((list.len() - 1) as f64 * share).round() as usize];
        println!(
            "{name}: {} cases, median {:.3} %, p90 {:.2} %, most {:.2} %",
            list.len(),
            100.0 * at(0.5),
            100.0 * at(0.9),
            100.0 * at(1.0)
        );
        (at(0.5), at(0.9))
    };
    let all = plain.len() + small.len();
    println!("{inside} of {all} within the band");
    let (median, p90) = told("16 and 8 bits", &mut plain);
    assert!(median <= 0.001 && p90 <= 0.01, "{median} {p90}");
    let (median, _) = told("4 bits", &mut small);
    assert!(median <= 0.03, "{median}");
}
