//! Profiles as bytes: one file per format. Pure: no I/O, no clock, no terminal.
//!
//! A new format is one new file here and one line in [`ALL`].

pub mod ablation;
pub mod calibration;
pub mod chapters;
pub mod chart;
pub mod compare;
pub mod content;
pub mod estimate;
pub mod experiment;
pub mod facts;
mod figures;
pub mod fitted;
pub mod format;
pub mod given;
pub mod graphs;
pub mod json;
pub mod lanes;
pub mod layout;
pub mod loadline;
pub mod material;
mod page;
pub mod spreadsheet;
pub mod sweep;
pub mod terminal;
pub mod text;
pub mod validation;

use crate::profile::Profile;

/// Why a profile could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("the profile could not be written as {format}")]
pub struct RenderError {
    /// [`Renderer::format_name`].
    pub format: &'static str,
    /// What went wrong.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// One output format.
pub trait Renderer: Sync {
    /// The name in flags, and the extension of a file: `json`.
    fn format_name(&self) -> &'static str;

    /// The whole document. The same profile gives the same bytes.
    fn render_profile(&self, profile: &Profile) -> Result<Vec<u8>, RenderError>;
}

/// Every format.
pub static ALL: &[&dyn Renderer] = &[&json::Json, &text::Text];

/// The format called `name`, as in `--format`.
pub fn by_name(name: &str) -> Option<&'static dyn Renderer> {
    ALL.iter().copied().find(|r| r.format_name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_own_name_only() {
        for renderer in ALL {
            let found = by_name(renderer.format_name()).map(|r| r.format_name());
            assert_eq!(found, Some(renderer.format_name()));
        }
        assert!(by_name("docx").is_none());
    }
}
