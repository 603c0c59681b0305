//! `plimsoll derive`: the profile of a stored capture, made again.

use super::report::reading::answer_of_profile;
use crate::cli::DeriveArgs;
use crate::console::Console;
use crate::error::ExitCode;
use crate::report::Renderer;
use crate::store::{StoredCapture, check_overwrite, write_atomically};
use crate::{profile, report};

pub fn run_derive(console: &Console, args: &DeriveArgs) -> anyhow::Result<ExitCode> {
    if let Some(output) = &args.output {
        check_overwrite(output)?;
    }
    let stored = StoredCapture::open(&args.capture)?;
    let profile = profile::derive_profile(
        &stored.capture,
        stored.read_samples()?,
        stored.read_lines()?,
    );
    let document = report::json::Json.render_profile(&profile)?;
    if args.json {
        console.write_data(&document)?;
        return Ok(ExitCode::Done);
    }
    let path = match &args.output {
        Some(output) => output.clone(),
        None if args.capture.is_file() => args.capture.clone(),
        None => stored.profile_path()?,
    };
    write_atomically(&path, &document)?;
    let answer = answer_of_profile(&profile, &path);
    let page = report::text::render_text(&profile, answer.as_ref(), console.text_options());
    console.write_data(page.as_bytes())?;
    console.print_note(&format!("profile: {}", path.display()));
    Ok(ExitCode::Done)
}
