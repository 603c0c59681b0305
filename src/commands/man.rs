//! `plimsoll man` and `plimsoll completions`: the manual pages, and a script by which a shell
//! completes what is typed.

use crate::cli::{CompletionsArgs, ManArgs, man_pages};
use crate::console::Console;
use crate::error::ExitCode;
use crate::store::{make_folders, write_atomically};

pub fn run_man(console: &Console, args: &ManArgs) -> anyhow::Result<ExitCode> {
    let pages = man_pages()?;
    let Some(dir) = &args.dir else {
        if let Some(first) = pages.first() {
            console.write_data(&first.roff)?;
        }
        return Ok(ExitCode::Done);
    };
    make_folders(dir)?;
    for page in &pages {
        write_atomically(&dir.join(&page.file), &page.roff)?;
    }
    console.print_note(&format!(
        "{} manual pages are in `{}`",
        pages.len(),
        dir.display()
    ));
    Ok(ExitCode::Done)
}

pub fn write_completions(console: &Console, args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    console.write_data(&args.script())?;
    Ok(ExitCode::Done)
}
