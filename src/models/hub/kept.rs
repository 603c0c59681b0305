//! A hub's answer about a model, as it is kept for the next question.

use super::Facts;
use crate::estimate::headers::{Headers, Stored};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Grows where the fields change: what an older plimsoll kept is asked for again.
const VERSION: u32 = 1;

/// Name, type, shape and bytes of a tensor: models have up to 100,000.
type Row = (String, String, Vec<u64>, u64);

/// The fields on the disk.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    id: String,
    endpoint: String,
    revision: String,
    asked: String,
    config: Value,
    tensors: Option<Vec<Row>>,
    note: Option<String>,
}

/// Facts as text.
pub(super) fn write(facts: &Facts) -> Option<String> {
    let tensors = facts.headers.as_ref().map(|headers| {
        let each = headers.tensors.iter();
        each.map(|t| (t.name.clone(), t.dtype.clone(), t.shape.clone(), t.bytes))
            .collect()
    });
    serde_json::to_string(&Kept {
        version: VERSION,
        id: facts.id.clone(),
        endpoint: facts.endpoint.clone(),
        revision: facts.revision.clone(),
        asked: facts.asked.clone(),
        config: facts.config.clone(),
        tensors,
        note: facts.note.clone(),
    })
    .ok()
}

/// Facts of this model from this hub; `None` where the text is none of ours.
pub(super) fn read(text: &str, id: &str, endpoint: &str) -> Option<Facts> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    if kept.version != VERSION || kept.id != id || kept.endpoint != endpoint {
        return None;
    }
    let mut facts = Facts {
        id: kept.id,
        endpoint: kept.endpoint,
        revision: kept.revision,
        asked: kept.asked,
        config: kept.config,
        headers: None,
        note: kept.note,
    };
    let source = facts.source();
    facts.headers = kept.tensors.map(|tensors| Headers {
        tensors: tensors
            .into_iter()
            .map(|(name, dtype, shape, bytes)| Stored {
                name,
                dtype,
                shape,
                bytes,
            })
            .collect(),
        gguf: false,
        source,
    });
    Some(facts)
}
