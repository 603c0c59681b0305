//! The pages of help: the verbs in groups, and what of each verb is on its short page.

use super::Cli;
use crate::error::ExitCode;
use crate::launch::read_line;
use crate::tables::read_table;
use clap::builder::StyledStr;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::sync::LazyLock;

/// The verbs by purpose, in the order of the list. A verb in no group is listed last.
const GROUPS: &[(&str, &str)] = &[
    (
        "Measure",
        "profile run sweep experiment ablate cuda-graphs loadline record",
    ),
    ("Plan", "estimate tune calibrate validate gpus models"),
    ("Fix", "why clean doctor"),
    ("Look", "top watch replay parse"),
    ("Results", "report compare derive schema"),
];
const OTHER: &str = "Set up";

/// What pages of help have beside their flags, by verb.
static PAGES: LazyLock<BTreeMap<String, HelpPage>> =
    LazyLock::new(|| read_table(include_str!("../../configs/help.yaml")));

/// A row of `configs/help.yaml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HelpPage {
    /// The flags of the short page (`-h`), by their long names. All others are on the long page alone.
    short: Option<String>,
    /// The end of the page: notes, examples that work as written, and exit codes.
    end: Option<String>,
}

/// Examples on a short page.
const EXAMPLES: usize = 3;

impl Cli {
    /// Reads the arguments of this process.
    ///
    /// # Errors
    /// Arguments that are wrong, or a page of help that was asked for.
    pub fn from_arguments() -> Result<Cli, clap::Error> {
        let mut command = command_with_pages();
        let words: Vec<OsString> = std::env::args_os().collect();
        let read = command.try_get_matches_from_mut(&words);
        let matches = read.or_else(|error| {
            let line = estimate_of_line(&words).filter(|_| error.use_stderr());
            line.ok_or(error)
        })?;
        Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
    }

    /// Reads a command line of our own.
    ///
    /// # Errors
    /// As [`Cli::from_arguments`].
    pub fn from_words(words: impl Iterator<Item = String>) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words)
    }
}

/// `estimate` with an engine's command line that no `--` sets apart: it begins with the first word from which on the words
/// start an engine. `--gpu` is none of theirs.
fn estimate_of_line(words: &[OsString]) -> Option<ArgMatches> {
    let is_estimate = words.get(1).is_some_and(|verb| verb == "estimate");
    if !is_estimate || words.iter().any(|w| w == "--") {
        return None;
    }
    let text: Vec<String> = words.iter().map(|w| w.to_string_lossy().into()).collect();
    let starts = (2..words.len()).filter(|at| {
        let line = &text[*at..];
        !line[0].starts_with('-') && read_line(line).server().is_some()
    });
    let mut read = starts.filter_map(|at| {
        let mut own = words[..at].to_vec();
        let mut line = words[at..].to_vec();
        if let Some(gpu) = line.iter().position(|w| w == "--gpu") {
            own.extend(line.drain(gpu..line.len().min(gpu + 2)));
        }
        let apart = own.into_iter().chain(["--".into()]).chain(line);
        command_with_pages().try_get_matches_from(apart).ok()
    });
    read.next()
}

/// The command line, each page of help with its end.
pub fn whole_command() -> Command {
    let end_of = |name: &str| PAGES.get(name)?.end.clone();
    let codes = ExitCode::ALL.iter();
    let codes: Vec<String> = codes
        .map(|(code, words)| format!("{} {words}", *code as u8))
        .collect();
    let end = end_of("plimsoll").unwrap_or_default();
    let end = format!("{end}\n\nExit codes: {}", codes.join(", "));
    Cli::command()
        .after_help(end)
        .mut_subcommands(|verb| match end_of(verb.get_name()) {
            Some(end) => verb.after_help(end),
            None => verb,
        })
}

/// The command line with its short pages of help.
fn command_with_pages() -> Command {
    let command = whole_command();
    let page = list_of_verbs(&command);
    command
        .help_template(page)
        .mut_subcommands(|verb| with_short_page(verb, ""))
}

fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|w| w == word)
}

/// The page of `plimsoll` itself, as a template of clap.
fn list_of_verbs(command: &Command) -> StyledStr {
    let (header, literal) = (
        command.get_styles().get_header(),
        command.get_styles().get_literal(),
    );
    let listed = |name: &str| GROUPS.iter().any(|(_, verbs)| has_word(verbs, name));
    let verbs = command.get_subcommands().map(Command::get_name);
    let others: Vec<&str> = verbs.filter(|name| !listed(name)).collect();
    let others = others.join(" ");
    let mut page = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (group, verbs) in GROUPS.iter().copied().chain([(OTHER, others.as_str())]) {
        let _ = write!(page, "\n{header}{group}:{header:#}\n");
        for verb in verbs.split(' ') {
            let Some(verb) = command.find_subcommand(verb) else {
                continue;
            };
            let about = verb
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let name = verb.get_name();
            let _ = writeln!(page, "  {literal}{name:<11}{literal:#}  {about}");
        }
    }
    let _ = write!(
        page,
        "\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    StyledStr::from(page)
}

/// A verb, `above` being the names before its own: flags that are not listed are left out of its short page, and so are all
/// examples but the first three.
fn with_short_page(verb: Command, above: &str) -> Command {
    let name = format!("{above} {}", verb.get_name())
        .trim_start()
        .to_owned();
    let shown = PAGES.get(&name).and_then(|page| page.short.as_deref());
    let full = verb.get_after_help().map(ToString::to_string);
    let verb = match full {
        Some(full) => {
            let examples = full
                .lines()
                .filter(|l| l.starts_with("  plimsoll ") || l.contains("| plimsoll "));
            let first: Vec<&str> = examples.take(EXAMPLES).collect();
            verb.after_help(format!("Examples:\n{}", first.join("\n")))
                .after_long_help(full)
        }
        None => verb,
    };
    let verb = verb.mut_args(|arg| match (shown, arg.get_long()) {
        (Some(flags), Some(flag)) if !has_word(flags, flag) => arg.hide_short_help(true),
        _ => arg,
    });
    verb.mut_subcommands(|below| with_short_page(below, &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_its_page_and_every_page_a_verb() {
        let verbs: Vec<String> = Cli::command()
            .get_subcommands()
            .map(|verb| verb.get_name().to_owned())
            .collect();
        for verb in &verbs {
            let end = PAGES.get(verb).and_then(|page| page.end.as_ref());
            assert!(end.is_some_and(|end| end.contains("Examples:")), "{verb}");
        }
        for name in PAGES.keys().filter(|name| *name != "plimsoll") {
            let verb = name.split(' ').next().unwrap_or_default();
            assert!(verbs.iter().any(|v| v == verb), "{name}");
        }
    }
}
