//! The profile document as JSON: the keys in the order of the types, two spaces, one final newline.

use super::{RenderError, Renderer};
use crate::profile::Profile;

/// The document itself.
pub struct Json;

impl Renderer for Json {
    fn format_name(&self) -> &'static str {
        "json"
    }

    fn render_profile(&self, profile: &Profile) -> Result<Vec<u8>, RenderError> {
        let mut bytes = serde_json::to_vec_pretty(profile).map_err(|e| RenderError {
            format: "json",
            source: e.into(),
        })?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
