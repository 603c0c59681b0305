//! Documents as JSON: the keys in the order of the types, two spaces, one final newline.

use super::RenderError;
use serde::Serialize;

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
