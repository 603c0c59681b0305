//! Documents as JSON: the keys in the order of the types, two spaces, one final newline.

use super::RenderError;
use serde::Serialize;
use serde_json::Value;

/// The bytes of a document.
///
/// # Errors
/// Why it could not be written.
pub fn json_bytes(document: &impl Serialize) -> Result<Vec<u8>, RenderError> {
    let mut bytes = serde_json::to_vec_pretty(document).map_err(|e| RenderError {
        format: "json",
        source: e.into(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The keys of several objects, one object after the other.
pub(super) fn joined<const N: usize>(objects: [Value; N]) -> Value {
    let each = objects.into_iter().filter_map(|object| match object {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    Value::Object(each.flatten().collect())
}
