//! The summary that a person reads: one page, the peak and its parts first.

mod load;
mod memory;
mod page;
mod run;
mod torch;
mod verdicts;

use super::{RenderError, Renderer};
use crate::profile::Profile;
use page::Page;

/// How the text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Cells per line. Figures are never cut: a narrow page is wider than asked for.
    pub width: usize,
    /// ANSI colour and weight. The page has the same text without.
    pub color: bool,
    /// Lines and marks beyond ASCII.
    pub unicode: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            width: 88,
            color: false,
            unicode: true,
        }
    }
}

/// The summary without colour, for files.
pub struct Text;

impl Renderer for Text {
    fn format(&self) -> &'static str {
        "text"
    }

    fn render(&self, profile: &Profile) -> Result<Vec<u8>, RenderError> {
        Ok(render(profile, TextOptions::default()).into_bytes())
    }
}

/// The summary as it suits a terminal.
pub fn render(profile: &Profile, options: TextOptions) -> String {
    let mut page = Page::new(options, profile);
    run::headline(&mut page, profile);
    memory::breakdown(&mut page, profile);
    memory::devices(&mut page, profile);
    memory::kv_cache(&mut page, profile);
    load::timeline(&mut page, profile);
    load::latency(&mut page, profile);
    torch::process(&mut page, profile);
    torch::layers(&mut page, profile);
    verdicts::confidence(&mut page, profile);
    verdicts::settings(&mut page, profile);
    verdicts::findings(&mut page, profile);
    page.finish()
}
