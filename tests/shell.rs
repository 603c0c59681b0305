//! What shells and `man` get: completions that complete, pages that render.
#![allow(missing_docs)]

use crate::common;
use common::e2e::{plimsoll, program};
use common::skip;
use std::path::Path;
use std::process::{Command, Output};

fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn script(shell: &str, dir: &Path) -> std::path::PathBuf {
    let file = dir.join(format!("completions.{shell}"));
    let text = plimsoll(&["completions", shell]).output().expect("runs");
    std::fs::write(&file, said(text)).expect("script");
    file
}

/// What bash offers for a line whose last word is being typed.
fn bash_offers(script: &Path, words: &[&str]) -> Vec<String> {
    // As readline calls it: the words, which of them is being typed, then the function that `complete` registered.
    const ASK: &str = r#"
source "$1"; shift
registered=$(complete -p plimsoll) || exit 1
function=${registered##* -F }; function=${function%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"$function" plimsoll "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
    let output = Command::new("bash")
        .args(["--norc", "-c", ASK, "ask"])
        .arg(script)
        .args(words)
        .output()
        .expect("bash");
    said(output).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    if program("bash").is_none() {
        skip::skip("bash_completes_commands_flags_and_values", "no bash");
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let script = script("bash", dir.path());
    let commands = bash_offers(&script, &["plimsoll", "pro"]);
    assert_eq!(commands, ["profile"]);
    let flags = bash_offers(&script, &["plimsoll", "profile", "--sample"]);
    assert_eq!(flags, ["--sample-interval"]);
    let below = bash_offers(&script, &["plimsoll", "config", "ch"]);
    assert_eq!(below, ["check"]);
    let values = bash_offers(&script, &["plimsoll", "profile", "--bench", "thr"]);
    assert_eq!(values, ["throughput"]);
}

#[test]
fn the_other_shells_can_read_theirs() {
    let dir = tempfile::tempdir().expect("tempdir");
    for (shell, word) in [
        ("zsh", "#compdef plimsoll"),
        ("fish", "complete -c plimsoll"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = script(shell, dir.path());
        let text = std::fs::read_to_string(&script).expect("text");
        assert!(
            text.contains(word) && text.contains("loadline"),
            "{shell}: {text}"
        );
        // Those that are here say whether it is one.
        if let Some(program) = program(shell) {
            let read = Command::new(program).arg("-n").arg(&script).output();
            assert!(read.expect("runs").status.success(), "{shell}");
        }
    }
}

#[test]
fn an_unknown_shell_is_told_which_are_known() {
    let output = plimsoll(&["completions", "tcsh"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("bash") && said.contains("zsh"), "{said}");
}

/// Every command in the help has a page, and none has two.
#[test]
fn every_command_has_its_page() {
    let dir = tempfile::tempdir().expect("tempdir");
    let into = dir.path().join("share/man1");
    let output = plimsoll(&["man"]).arg(&into).output().expect("runs");
    said(output);
    let mut pages: Vec<String> = std::fs::read_dir(&into)
        .expect("folder")
        .map(|e| e.expect("entry").file_name().into_string().expect("UTF-8"))
        .collect();
    pages.sort();
    assert!(pages.contains(&"plimsoll.1".to_owned()), "{pages:?}");
    let help = said(plimsoll(&["help"]).output().expect("runs"));
    let commands = help
        .lines()
        .skip_while(|l| *l != "Measure:")
        .take_while(|l| *l != "Options:")
        .filter_map(|l| l.strip_prefix("  "))
        .filter_map(|l| l.split(' ').next());
    let mut count = 0;
    for command in commands {
        let page = format!("plimsoll-{command}.1");
        assert!(pages.contains(&page), "{page} is not in {pages:?}");
        count += 1;
    }
    assert!(count > 20, "{help}");
    assert!(pages.contains(&"plimsoll-config-check.1".to_owned()));
    assert!(!pages.iter().any(|p| p.contains("help")), "{pages:?}");
    // The first page alone is what is printed.
    let printed = said(plimsoll(&["man"]).output().expect("runs"));
    let first = std::fs::read_to_string(into.join("plimsoll.1")).expect("page");
    assert_eq!(printed, first);

    render(&into, &pages);
}

/// `man` draws them without a warning, and what they say is there.
fn render(folder: &Path, pages: &[String]) {
    let (Some(man), Some(_)) = (program("man"), program("nroff")) else {
        skip::skip(
            "every_command_has_its_page",
            "pages are not rendered: no man (Debian: man-db)",
        );
        return;
    };
    let page = Command::new(&man)
        .args(["--warnings", "-l", "-Tutf8"])
        .arg(folder.join("plimsoll-profile.1"))
        .env("MANWIDTH", "100")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("man");
    // Lines are filled with spaces.
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let flag = "Print the profile as JSON instead of text";
    assert!(words.join(" ").contains(flag), "{text}");
    // One call for all of them; the names stand in the warnings.
    let all = Command::new(&man)
        .args(["--warnings", "-l", "-Tutf8", "-P", "cat"])
        .args(pages.iter().map(|p| folder.join(p)))
        .env("MANWIDTH", "100")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("man");
    assert_eq!(String::from_utf8_lossy(&all.stderr), "");
}
