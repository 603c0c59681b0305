//! `plimsoll completions` and `plimsoll man`: what is made of the command line for shells and for man.

use super::Cli;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io;
use std::path::PathBuf;

/// `plimsoll completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that shall complete
    pub shell: Shell,
}

impl CompletionsArgs {
    /// The script that the shell reads.
    pub fn script(&self) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "plimsoll", &mut script);
        script
    }
}

/// `plimsoll man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages of all commands; without it the first page is printed
    pub dir: Option<PathBuf>,
}

/// A manual page: the name of its file, and its text as roff.
#[derive(Debug)]
pub struct ManPage {
    /// As `plimsoll-profile.1`.
    pub file: String,
    /// The page.
    pub roff: Vec<u8>,
}

/// The manual pages, that of `plimsoll` first, then one for each command.
///
/// # Errors
/// Of writing to memory: none that is known.
pub fn man_pages() -> io::Result<Vec<ManPage>> {
    // `help` would have a page for each command once more.
    let mut whole = super::whole_command().disable_help_subcommand(true);
    whole.build();
    let mut pages = Vec::new();
    collect(&whole, &mut pages)?;
    Ok(pages)
}

fn collect(command: &clap::Command, pages: &mut Vec<ManPage>) -> io::Result<()> {
    let man = clap_mangen::Man::new(command.clone())
        .manual("plimsoll")
        .source(concat!("plimsoll ", env!("CARGO_PKG_VERSION")));
    let mut roff = Vec::new();
    man.render(&mut roff)?;
    // An empty date would be left out, and what follows it would stand in its place; an empty line
    // between two breaks is a break too many for some that draw pages.
    let roff = String::from_utf8_lossy(&roff)
        .replacen(" 1  \"plimsoll", " 1 \"\" \"plimsoll", 1)
        .replace("\n.br\n\n.br\n", "\n.sp\n");
    pages.push(ManPage {
        file: man.get_filename(),
        roff: roff.into_bytes(),
    });
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        collect(below, pages)?;
    }
    Ok(())
}
