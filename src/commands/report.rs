//! `plimsoll report`: what was measured, as one file to read or to hand on.

pub(super) mod capture;
mod reading;
mod writing;

use crate::cli::ReportArgs;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::report::chapters;
use crate::report::format::{self, Format};
use crate::report::material::Run;
use std::path::Path;

pub fn run(console: &Console, args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let formats = formats(args)?;
    let place = writing::Place::of(args, formats.len())?;
    let material = reading::read(args)?;
    let contradictions = material.runs.iter().filter_map(Run::contradiction);
    for sentence in material.unread.iter().cloned().chain(contradictions) {
        console.warning(&sentence);
    }
    let title = args.title.clone();
    let title = title.unwrap_or_else(|| chapters::title(&material));
    let report = chapters::report(title, about(args), &material);
    writing::write(console, &report, &formats, &place, args.force)?;
    Ok(ExitCode::Done)
}

/// Facts under the title. No time of writing: the same material makes the same bytes.
fn about(args: &ReportArgs) -> Vec<(String, String)> {
    let paths: Vec<String> = args.paths.iter().map(|p| p.display().to_string()).collect();
    let mut about = vec![
        ("of".to_owned(), paths.join(", ")),
        (
            "made by".to_owned(),
            format!("plimsoll {}", env!("CARGO_PKG_VERSION")),
        ),
    ];
    if let Some(price) = args.gpu_hour_price {
        let currency = args.currency.as_deref().unwrap_or_default();
        let price = format!("{price} {currency}");
        about.push((
            "price of a GPU's hour".to_owned(),
            price.trim_end().to_owned(),
        ));
    }
    about
}

/// The formats that were asked for, each once; else what the output's name ends in; else HTML.
fn formats(args: &ReportArgs) -> Result<Vec<&'static dyn Format>, Failure> {
    if args.format.is_empty() {
        let file = args.output.as_deref().filter(|o| !o.is_dir());
        let ending = file.and_then(Path::extension).and_then(|e| e.to_str());
        return Ok(vec![known(ending.unwrap_or("html"))?]);
    }
    let mut all: Vec<&'static dyn Format> = Vec::new();
    for word in &args.format {
        let found = known(word.trim())?;
        if !all.iter().any(|f| f.name() == found.name()) {
            all.push(found);
        }
    }
    Ok(all)
}

fn known(word: &str) -> Result<&'static dyn Format, Failure> {
    format::by_name(&word.to_lowercase()).ok_or_else(|| {
        let names: Vec<&str> = format::ALL.iter().map(|f| f.name()).collect();
        Failure::usage(format!("`{word}` is no format of reports"))
            .hint(format!("formats: {}", names.join(", ")))
    })
}
