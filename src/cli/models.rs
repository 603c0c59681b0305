//! Flags of `models`.

use super::OUTPUT;
use clap::Args;

/// `plimsoll models`
#[derive(Debug, Args)]
#[command(after_help = super::examples::MODELS)]
pub struct ModelsArgs {
    /// Only those with all of these words in a name, an id or the kind: `qwen3 moe`
    #[arg(long, short, value_name = "WORDS", num_args = 1..)]
    pub search: Vec<String>,
    /// Print JSON instead of text
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}
