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

/// The first name of the line that a method is in.
fn method_family(word: &str) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    let family = METHODS.iter().find(|f| f.contains(&word.as_str()))?;
    family.first().copied()
}

/// The checkpoint's own method, where the engine would refuse the one that is asked for.
pub fn of(model: &Model, engine: EngineId, requested: &str) -> Option<String> {
    if !matches!(engine, EngineId::Vllm | EngineId::Sglang) {
        return None;
    }
    let stored = model.quantization.as_ref()?;
    let own = stored.get("quant_method").and_then(Value::as_str);
    let own = own.or_else(|| stored.get("quantization").map(|_| "modelopt"))?;
    let (asked, has) = (method_family(requested)?, method_family(own)?);
    // vLLM reads a checkpoint of modelopt's as what it is under this name too (seen in 0.20.2).
    let overrides = engine == EngineId::Vllm && has == "modelopt" && asked == "compressed-tensors";
    (asked != has && !overrides).then(|| own.chars().filter(|c| !c.is_control()).take(40).collect())
}

/// Whether the engine reads all of the format from the checkpoint under this name, as without one: names that stand for
/// several formats (vLLM 0.25, `modelopt` of a checkpoint in NVFP4: 20.0 GiB as without it).
pub fn reads_own(model: &Model, requested: &str) -> bool {
    const OPEN: &[&str] = &["modelopt", "compressed-tensors", "quark"];
    let is_open = method_family(requested).is_some_and(|family| OPEN.contains(&family));
    model.quantization.is_some()
        && (is_open || requested.trim().eq_ignore_ascii_case("deepseek_v4_fp8"))
        && of(model, EngineId::Vllm, requested).is_none()
}

/// Whether a copy in the format of its name (as in quantization-names.yaml) is read under the name of a method that covers
/// several formats.
pub fn reads_named(requested: &str, named: &str) -> bool {
    let is_float = named.starts_with("fp8");
    match requested.trim().to_ascii_lowercase().as_str() {
        "modelopt" => is_float || named == "nvfp4",
        "modelopt_fp4" => named == "nvfp4",
        "compressed-tensors" | "compressed_tensors" => {
            let packed = ["w4a16", "w8a16", "w8a8", "int8", "nvfp4"];
            is_float || packed.iter().any(|p| named.starts_with(p))
        }
        "quark" => is_float || named.starts_with("mxfp4"),
        _ => false,
    }
}

/// Whether an engine takes the format from a checkpoint that has it, and this one states none: vLLM 0.33 ends with "Cannot
/// find the config file for awq" (model_loader/weight_utils.py, `get_quant_config`).
pub fn lacks_format(model: &Model, engine: EngineId, requested: &str) -> bool {
    let stored = method_family(requested)
        .is_some_and(|family| ["awq", "gptq", "compressed-tensors"].contains(&family));
    stored && engine == EngineId::Vllm && model.quantization.is_none()
}
