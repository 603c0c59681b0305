//! The pages of help as they are read on a terminal of 80 columns: a change of one is seen in its snapshot.

use crate::common;
use clap::{Command, CommandFactory};
use common::e2e::{Live, plimsoll};
use plimsoll::cli::Cli;

/// Every verb, and the verbs below it, as words of a command line.
fn verbs(command: &Command, above: &[String]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for sub in command.get_subcommands() {
        let mut words = above.to_vec();
        words.push(sub.get_name().to_owned());
        all.push(words.clone());
        all.extend(verbs(sub, &words));
    }
    all
}

/// What `plimsoll WORDS… FLAG` prints on a terminal so wide.
fn page(words: &[String], flag: &str, columns: u32) -> String {
    let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
    args.push(flag);
    let mut command = plimsoll(&args);
    command.env("COLUMNS", columns.to_string());
    Live::start(command).end().expect(0).stdout
}

#[test]
fn the_short_help_of_each_verb() {
    insta::assert_snapshot!("help", page(&[], "-h", 80));
    for words in verbs(&Cli::command(), &[]) {
        let name = format!("help_{}", words.join("_").replace('-', "_"));
        insta::assert_snapshot!(name, page(&words, "-h", 80));
    }
}

/// On each page: what it does, in a sentence that fits on two lines; an example; and no line that is wider than the terminal.
#[test]
fn each_page_begins_with_what_the_verb_does_and_ends_with_an_example() {
    for words in verbs(&Cli::command(), &[]) {
        let name = words.join(" ");
        for (flag, columns) in [("-h", 80), ("--help", 120)] {
            let page = page(&words, flag, columns);
            let (first, rest) = page
                .split_once("\n\nUsage: ")
                .expect("a sentence, then the usage");
            assert!(first.lines().count() <= 2, "{name}: {first}");
            assert!(
                rest.starts_with(&format!("plimsoll {name}")),
                "{name}: {rest}"
            );
            let with_examples = words.len() == 1;
            assert!(
                !with_examples
                    || rest.contains(&format!("plimsoll {name}")) && rest.contains("Examples:\n"),
                "{name} has no example:\n{page}"
            );
            let wide = |l: &&str| l.chars().count() > columns.min(100) as usize;
            let wide: Vec<&str> = page.lines().filter(wide).collect();
            assert!(wide.is_empty(), "{name}: {wide:?}");
        }
    }
}

/// A short page fits on a terminal of 24 lines and 80 columns, with three examples; a flag that is for tests is on no page.
#[test]
fn a_short_page_fits_on_one_screen() {
    let mut faults = Vec::new();
    for words in verbs(&Cli::command(), &[]) {
        let name = words.join(" ");
        let short = page(&words, "-h", 80);
        let lines = short.lines().count();
        let examples = short.split("Examples:\n").nth(1).unwrap_or_default();
        let examples = examples.lines().filter(|l| l.contains("plimsoll ")).count();
        if lines > 24 || words.len() == 1 && examples != 3 {
            faults.push(format!(
                "{name}: {lines} lines, {examples} examples\n{short}"
            ));
        }
        if short.contains("--sysfs-root") || page(&words, "--help", 80).contains("--sysfs-root") {
            faults.push(format!("{name} shows --sysfs-root"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The list of verbs has each of them once, on one line, with its purpose.
#[test]
fn the_list_of_verbs_is_grouped() {
    let list = page(&[], "--help", 80);
    for group in ["Measure", "Plan", "Fix", "Look", "Results", "Set up"] {
        assert!(list.contains(&format!("\n{group}:\n")), "{group}:\n{list}");
    }
    for verb in Cli::command().get_subcommands() {
        let about = verb.get_about().expect("a purpose").to_string();
        let row = format!("  {:<11}  {about}\n", verb.get_name());
        assert_eq!(list.matches(&row).count(), 1, "{row}{list}");
        assert!(row.chars().count() <= 81, "{row}");
    }
}

/// An example is copied: it stands on one line of a terminal of 80 columns.
#[test]
fn examples_stand_on_one_line() {
    let mut examples = 0;
    for verb in plimsoll::cli::whole_command().get_subcommands() {
        let help = verb.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        for line in help.lines().filter(|l| l.starts_with("  plimsoll ")) {
            assert!(line.chars().count() <= 80, "{line}");
            examples += 1;
        }
    }
    assert!(examples > 40, "only {examples} examples were found");
}

/// The same flag is explained in the same words, unless what it is of differs.
#[test]
fn flags_of_several_verbs_are_called_alike() {
    let cli = Cli::command();
    let mut seen: std::collections::BTreeMap<String, Vec<(String, String)>> = Default::default();
    for verb in cli.get_subcommands() {
        for arg in verb.get_arguments() {
            if let (Some(long), Some(help)) = (arg.get_long(), arg.get_help()) {
                let told = (verb.get_name().to_owned(), help.to_string());
                seen.entry(long.to_owned()).or_default().push(told);
            }
        }
    }
    let mut faults = Vec::new();
    for (flag, told) in seen {
        let begin = |help: &str| {
            let word = help.split_whitespace().next().unwrap_or_default();
            word.trim_end_matches([',', ':']).to_owned()
        };
        let differ = told
            .iter()
            .any(|(_, help)| begin(help) != begin(&told[0].1));
        // What these are of differs from verb to verb.
        let own = [
            "container",
            "image",
            "preset",
            "name",
            "interval",
            "timeout",
            "output",
            "output-dir",
            "config",
            "concurrency",
            "force",
            "compare",
            "fresh",
            "max-concurrency",
            "num-prompts",
            "bench",
        ];
        if differ && !own.contains(&flag.as_str()) {
            faults.push(format!("--{flag}: {told:#?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
