//! The size of a model's weights in memory by its checkpoint, and when the checkpoint cannot give it.

use super::configuration::WEIGHT_INDEX;
use super::observation::CaptureObservation;
use super::{DtypeMetadata, ModelInfo};
use crate::units::Bytes;
use std::collections::BTreeMap;

/// Bytes that the checkpoint takes in memory, with the words for it. `None` while nothing shows
/// that it was loaded, and where its weights take a size there that their files do not give.
pub fn loaded_bytes(
    o: &CaptureObservation<'_>,
    model: &ModelInfo,
    dtypes: &DtypeMetadata,
) -> Option<(i64, String)> {
    if !o.engine_loaded() || dtypes.quantization.is_some() || is_quantized(&o.capture.model_files) {
        return None;
    }
    let (bytes, quote) = match model.checkpoint_bytes {
        Some(bytes) if o.capture.model_files.contains_key(WEIGHT_INDEX) => {
            (bytes, format!("{WEIGHT_INDEX}: total_size={bytes}"))
        }
        Some(bytes) => (
            bytes,
            format!("model.safetensors: its tensors have {bytes} bytes"),
        ),
        None => {
            let sizes = o.capture.model_file_sizes.values().copied();
            let bytes = sizes.fold(0, u64::saturating_add);
            let size = Bytes(bytes);
            let quote = format!("weight files in the container: {size} ({bytes} bytes)");
            (bytes, quote)
        }
    };
    let (stored, loaded) = (
        model.checkpoint_dtype.as_deref()?,
        dtypes.weights.as_deref()?,
    );
    let (from, to) = (element_bytes(stored)?, element_bytes(loaded)?);
    let in_memory = i64::try_from(bytes).ok()?.checked_mul(to)? / from;
    let quote = if from == to {
        quote
    } else {
        format!("{quote}, stored as {stored} and loaded as {loaded}: times {to}/{from}")
    };
    (in_memory > 0).then_some((in_memory, quote))
}

/// Bytes of a plain floating-point number; `None` for formats with tensors that hold more than their
/// elements.
pub fn element_bytes(dtype: &str) -> Option<i64> {
    match dtype
        .trim_start_matches("torch.")
        .to_ascii_lowercase()
        .as_str()
    {
        "bfloat16" | "float16" | "half" | "bf16" | "fp16" => Some(2),
        "float32" | "float" | "fp32" => Some(4),
        _ => None,
    }
}

/// Whether `config.json` names a quantization of the stored weights.
pub fn is_quantized(files: &BTreeMap<String, String>) -> bool {
    files
        .get("config.json")
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
        .is_some_and(|c| c.get("quantization_config").is_some_and(|q| !q.is_null()))
}
