//! `plimsoll schema`: the JSON Schema of the profile document.

use crate::console::Console;
use crate::error::ExitCode;

pub fn run(console: &Console) -> anyhow::Result<ExitCode> {
    let mut text = serde_json::to_vec_pretty(&crate::profile::schema())?;
    text.push(b'\n');
    console.data(&text)?;
    Ok(ExitCode::Done)
}
