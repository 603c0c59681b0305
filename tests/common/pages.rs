//! Reports as a terminal shows them.

use plimsoll::profile::Profile;
use plimsoll::report::chapters::build_report;
use plimsoll::report::content::Report;
use plimsoll::report::format::text::{PageDetail, render_page};
use plimsoll::report::material::Material;
use plimsoll::report::page::TextOptions;

/// A terminal without colour of so many cells.
pub fn plain(unicode: bool, width: usize) -> TextOptions {
    TextOptions {
        width,
        color: false,
        unicode,
    }
}

/// The report on a terminal.
pub fn terminal_page(report: &Report, options: TextOptions) -> String {
    render_page(report, options, PageDetail::Essential)
}

/// The report of a profile on a terminal.
pub fn profile_page(profile: &Profile, options: TextOptions) -> String {
    let material = Material::of_profile(profile.clone());
    terminal_page(&build_report(Vec::new(), &material), options)
}
