//! `plimsoll report`: what was measured, as one file to read or to hand on.

pub(super) mod capture;
pub(super) mod reading;
mod writing;

use crate::cli::ReportArgs;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::report::chapters;
use crate::report::format::{self, ReportFormat};
use crate::report::material::ReportRun;
use std::path::{Path, PathBuf};

pub fn run_report(console: &Console, args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let formats = formats(args)?;
    let place = writing::ReportPlace::of_args(args, formats.len())?;
    let material = reading::read_material(args)?;
    let runs = material.runs.iter();
    let contradictions = runs.filter_map(ReportRun::find_contradiction);
    for sentence in material.unread.iter().cloned().chain(contradictions) {
        console.print_warning(&sentence);
    }
    let mut report = chapters::build_report(about(args), &material);
    if let Some(title) = &args.title {
        report.title.clone_from(title);
    }
    writing::write_report(console, &report, &formats, &place, args)?;
    Ok(ExitCode::Done)
}

/// Facts under the title. No time of writing: the same material makes the same bytes.
fn about(args: &ReportArgs) -> Vec<(String, String)> {
    let shown = |path: &PathBuf| match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    let paths: Vec<String> = args.paths.iter().map(shown).collect();
    let program = concat!("plimsoll ", env!("CARGO_PKG_VERSION")).to_owned();
    let price = args.gpu_hour_price.map(|price| {
        let currency = args.currency.as_deref().unwrap_or_default();
        let price = format!("{price} {currency}");
        ("price of a GPU's hour", price.trim_end().to_owned())
    });
    let about = [("of", paths.join(", ")), ("made by", program)].into_iter();
    let about = about.chain(price);
    about.map(|(name, fact)| (name.to_owned(), fact)).collect()
}

/// The formats that were asked for, each once; else what the output's name ends in; else HTML.
fn formats(args: &ReportArgs) -> Result<Vec<&'static ReportFormat>, Failure> {
    if args.format.is_empty() {
        let file = args.output.as_deref().filter(|o| !o.is_dir());
        let ending = file.and_then(Path::extension).and_then(|e| e.to_str());
        return Ok(vec![known(ending.unwrap_or("html"))?]);
    }
    let mut all: Vec<&'static ReportFormat> = Vec::new();
    for word in &args.format {
        let found = known(word.trim())?;
        if !all.iter().any(|f| f.format_name() == found.format_name()) {
            all.push(found);
        }
    }
    Ok(all)
}

fn known(word: &str) -> Result<&'static ReportFormat, Failure> {
    format::by_name(&word.to_lowercase()).ok_or_else(|| {
        let names: Vec<&str> = format::ALL.iter().map(|f| f.format_name()).collect();
        Failure::usage(format!("unknown report format `{word}`"))
            .hint(format!("formats: {}", names.join(", ")))
    })
}
