//! `plimsoll derive`: the profile of a stored capture, made again.

use super::report::reading::report_of_profile;
use crate::cli::DeriveArgs;
use crate::console::Console;
use crate::error::ExitCode;
use crate::profile;
use crate::report::json::json_bytes;
use crate::store::{StoredCapture, check_overwrite, write_atomically};

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
    let document = json_bytes(&profile)?;
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
    console.print_report(&report_of_profile(&profile, &path))?;
    console.print_note(&format!("profile: {}", path.display()));
    Ok(ExitCode::Done)
}
