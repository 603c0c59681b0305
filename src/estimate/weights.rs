//! Stand-in until the real one is merged.
use super::{Deployment, Model, Split, Unknown};
pub struct Weights {
    pub bytes: u64,
    pub warnings: Vec<String>,
}
pub fn of(model: &Model, d: &Deployment) -> Result<Weights, Unknown> {
    let tp = d.tp as f64;
    let q = d.quantization.as_deref().unwrap_or("");
    let per = if q.contains("fp8") || q.contains("int8") { 1.0 } else if q.contains("4") { 0.53 } else { 2.0 };
    let b: f64 = model.tensors.iter().map(|t| {
        let b = if t.float32 { 4.0 } else if t.quantizable && (!(q.contains("experts")||q.contains("mxfp4")) || t.role.starts_with("exp")) { per } else { 2.0 };
        let s = match t.split { Split::Replicated | Split::ExpertReplicated => 1.0, Split::KvHeads => tp.min(model.kv_heads as f64), _ => tp };
        t.values() as f64 * b / s
    }).sum();
    let rope = model.rope.map_or(0, |r| r.positions * r.dim * r.tables * r.value_bytes);
    Ok(Weights { bytes: b as u64 + rope, warnings: vec![] })
}
