//! The summary that a person reads: one page, the peak and its parts first.

mod load;
mod memory;
mod page;
mod run;
mod torch;
mod verdicts;

use super::content::Answer;
use super::page::TextPage;
use super::{RenderError, Renderer};
use crate::profile::Profile;
use page::ProfilePage;

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
    fn format_name(&self) -> &'static str {
        "text"
    }

    fn render_profile(&self, profile: &Profile) -> Result<Vec<u8>, RenderError> {
        Ok(render_text(profile, None, TextOptions::default()).into_bytes())
    }
}

/// The summary as it suits a terminal: the answer comes last, where a reader looks.
pub fn render_text(profile: &Profile, answer: Option<&Answer>, options: TextOptions) -> String {
    let mut page = ProfilePage::new(options, profile);
    run::write_headline(&mut page, profile);
    memory::write_breakdown(&mut page, profile);
    memory::write_devices(&mut page, profile);
    memory::kv_cache(&mut page, profile);
    load::write_timeline(&mut page, profile);
    load::write_latency(&mut page, profile);
    torch::write_process(&mut page, profile);
    torch::write_layers(&mut page, profile);
    verdicts::write_confidence(&mut page, profile);
    verdicts::write_settings(&mut page, profile);
    verdicts::write_findings(&mut page, profile);
    let mut last = TextPage::new(options);
    if let Some(answer) = answer {
        last.write_line("");
        last.write_answer(answer);
    }
    page.into_text() + &last.into_text()
}
