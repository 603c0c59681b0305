//! A quantisation that is asked for against the one that a checkpoint has: engines refuse to start with another.

use super::super::{EngineId, Model};
use serde_json::Value;

/// Methods by the words of engines, those that read the same checkpoints in one line. What is in none is not judged.
/// Source: vLLM 0.11, config/model.py, `_verify_quantization`, and the `override_quantization_method` of each method.
const METHODS: &[&[&str]] = &[
    &["awq", "awq_marlin"],
    &["gptq", "gptq_marlin"],
    &["fp8"],
    &["fbgemm_fp8"],
    &["compressed-tensors", "compressed_tensors"],
    &["bitsandbytes"],
    &["modelopt", "modelopt_fp4", "modelopt_mixed"],
    &["mxfp4"],
    &["quark"],
];

/// The checkpoint's own method, where the engine would refuse the one that is asked for.
pub fn of(model: &Model, engine: EngineId, requested: &str) -> Option<String> {
    if !matches!(engine, EngineId::Vllm | EngineId::Sglang) {
        return None;
    }
    let stored = model.quantization.as_ref()?;
    let own = stored.get("quant_method").and_then(Value::as_str);
    let own = own.or_else(|| stored.get("quantization").map(|_| "modelopt"))?;
    let family = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        METHODS.iter().position(|f| f.contains(&word.as_str()))
    };
    let (asked, has) = (family(requested)?, family(own)?);
    (asked != has).then(|| own.chars().filter(|c| !c.is_control()).take(40).collect())
}

/// Whether the engine reads all of the format from the checkpoint under this name, as without one: names that stand for
/// several formats (vLLM 0.25, `modelopt` of a checkpoint in NVFP4: 20.0 GiB as without it).
pub fn reads_own(model: &Model, requested: &str) -> bool {
    const OPEN: &[&str] = &["modelopt", "compressed-tensors", "quark"];
    let word = requested.trim().to_ascii_lowercase();
    let family = METHODS.iter().find(|f| f.contains(&word.as_str()));
    model.quantization.is_some()
        && (word == "deepseek_v4_fp8" || family.is_some_and(|f| OPEN.contains(&f[0])))
        && of(model, EngineId::Vllm, requested).is_none()
}

/// Whether an engine takes the format from a checkpoint that has it, and this one states none: vLLM 0.33 ends with "Cannot
/// find the config file for awq" (model_loader/weight_utils.py, `get_quant_config`).
pub fn lacks_format(model: &Model, engine: EngineId, requested: &str) -> bool {
    let word = requested.trim().to_ascii_lowercase();
    let stored = (METHODS.iter().find(|f| f.contains(&word.as_str())))
        .is_some_and(|f| ["awq", "gptq", "compressed-tensors"].contains(&f[0]));
    stored && engine == EngineId::Vllm && model.quantization.is_none()
}
