//! The flags of a run as words again, for the plimsoll that runs it elsewhere.

use super::Cli;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory};
use std::ffi::OsString;

/// The flag of [`super::STARTING`] that also holds where an engine is started in a container that exists.
pub const HEALTH_TIMEOUT: &str = "--health-timeout";

/// What each place decides for itself: the folders, the part, what is printed, and where it runs. Also what a
/// file has no use for and is not for other eyes.
const LEFT_OUT: &str = "config dry_run resume begin_or_resume shard results_dir output_dir json \
    submit nodes partition gres time_limit account sbatch_arg print no_wait docker_host env name";

/// What is to be measured and how, of a command line: its flags, each one word with its value. Positional arguments are
/// left out, and `LEFT_OUT`.
pub fn words_to_pass_on(line: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let of_flag = |flag: &Arg, long: &str, given: &ArgMatches| {
        let id = flag.get_id().as_str();
        if LEFT_OUT.split(' ').any(|left_out| left_out == id) {
            return Vec::new();
        }
        if !flag.get_action().takes_values() {
            return vec![format!("--{long}")];
        }
        // Value and flag are one word: a value may begin with a dash.
        let values = given.get_raw(id).into_iter().flatten();
        let words = values.map(|value| format!("--{long}={}", value.to_string_lossy()));
        words.collect()
    };
    read_typed_flags(line, of_flag)
}

/// The flags of a command line that stand under these headings of its help, or are these: `--gpus`.
pub fn flags_under_headings(
    line: impl IntoIterator<Item = OsString>,
    headings: &[&str],
    others: &[&str],
) -> Vec<String> {
    let of_flag = |flag: &Arg, long: &str, _: &ArgMatches| {
        let heading = flag
            .get_help_heading()
            .is_some_and(|h| headings.contains(&h));
        let is_one = heading || others.contains(&long);
        is_one.then(|| format!("--{long}")).into_iter().collect()
    };
    read_typed_flags(line, of_flag)
}

/// What is made of each flag that was typed.
fn read_typed_flags(
    line: impl IntoIterator<Item = OsString>,
    of_flag: impl Fn(&Arg, &str, &ArgMatches) -> Vec<String>,
) -> Vec<String> {
    let mut command = &Cli::command();
    let Ok(matches) = command.clone().try_get_matches_from(line) else {
        return Vec::new();
    };
    let mut given = &matches;
    // The flags are those of the last verb: `experiment concurrency`.
    while let Some((verb, below)) = given.subcommand() {
        let Some(found) = command.find_subcommand(verb) else {
            break;
        };
        (command, given) = (found, below);
    }
    let flags = command.get_arguments();
    flags
        .filter(|flag| given.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine))
        .filter_map(|flag| Some(of_flag(flag, flag.get_long()?, given)))
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, SweepRunArgs};
    use clap::Parser;

    fn line<'a>(verb: &'a str, words: &'a [&str]) -> impl Iterator<Item = &'a str> {
        ["plimsoll", verb].into_iter().chain(words.iter().copied())
    }

    #[test]
    fn flags_are_found_by_the_heading_of_their_help() {
        let words = [
            "f.yaml",
            "--gpus=device=0",
            "--seed=1",
            "--set=a=1,2",
            "--dtype=half",
        ];
        let typed = line("tune", &words).map(OsString::from);
        let found = flags_under_headings(typed, &[crate::cli::STARTING], &["set"]);
        assert_eq!(found, ["--set", "--gpus"]);
        let words = ["concurrency", "idle", "--levels=1", "--gpus=all"];
        let typed = line("experiment", &words).map(OsString::from);
        assert_eq!(
            flags_under_headings(typed, &[crate::cli::STARTING], &[]),
            ["--gpus"]
        );
    }

    fn parsed(words: &[&str]) -> SweepRunArgs {
        match Cli::try_parse_from(line("sweep", words)).unwrap().command {
            Command::Sweep(args) => args.run,
            _ => panic!("{words:?} is no sweep"),
        }
    }

    fn passed_on(verb: &str, words: &[&str]) -> Vec<String> {
        words_to_pass_on(line(verb, words).map(OsString::from))
    }

    /// Words of flags, read again, are the same flags.
    #[track_caller]
    fn there_and_back(words: &[&str], first: &[&str]) -> Vec<String> {
        let args = parsed(words);
        let passed_on = passed_on("sweep", words);
        let mut again: Vec<&str> = first.to_vec();
        again.extend(passed_on.iter().map(String::as_str));
        assert_eq!(format!("{:?}", parsed(&again)), format!("{args:?}"));
        passed_on
    }

    #[test]
    fn flags_of_a_file_come_back() {
        there_and_back(&["a.yaml"], &["a.yaml"]);
        there_and_back(
            &[
                "a.yaml",
                "--fresh",
                "--retry-failed",
                "--retry-oom",
                "--run-anyway",
                "--only",
                "3f",
                "--only=-x y",
                "--fresh-client",
                "--retries",
                "0",
                "--bench",
                "builtin",
                "--memory-backend",
                "nvml",
                "--sample-interval",
                "10ms",
                "--baseline",
                "0",
                "--timeout",
                "1h30m",
                "--health-timeout",
                "90.5",
                "--settle-timeout",
                "1.000000001",
                "--max-log",
                "1 GiB",
            ],
            &["a.yaml"],
        );
    }

    #[test]
    fn flags_without_a_file_come_back() {
        there_and_back(
            &[
                "--container",
                "a",
                "b c",
                "--model",
                "m",
                "n",
                "--engine",
                "vllm",
                "--input-len",
                "256",
                "512",
                "--output-len",
                "1",
                "--batch-size",
                "1",
                "8",
                "--model-params",
                "6.7e9",
                "--num-layers",
                "32",
                "--num-heads",
                "32",
                "--head-dim",
                "128",
                "--hidden-size",
                "4096",
                "--memory-backend",
                "replay:some file.jsonl",
            ],
            &[],
        );
    }

    #[test]
    fn where_to_run_is_not_passed_on() {
        let elsewhere = [
            "a.yaml",
            "--submit",
            "slurm",
            "--nodes",
            "4",
            "--partition",
            "p",
            "--gres",
            "gpu:8",
            "--time-limit",
            "1:00",
            "--account",
            "a",
            "--sbatch-arg",
            "--qos=x",
            "--no-wait",
            "--output-dir",
            "d",
            "--results-dir",
            "r",
            "--json",
        ];
        assert_eq!(passed_on("sweep", &elsewhere), Vec::<String>::new());
        let begun = ["a.yaml", "--shard=1/2", "--begin-or-resume=d", "--name=x"];
        assert_eq!(passed_on("sweep", &begun), Vec::<String>::new());
    }

    #[test]
    fn what_a_tuning_asks_for_is_passed_on_and_no_secret() {
        let asked = [
            "a.yaml",
            "--slo",
            "ttft=2s",
            "--slo=itl=-1 ms",
            "--levels",
            "2,8",
            "--again",
            "--env",
            "TOKEN=x",
            "--verbose",
            "--max-starts=4",
        ];
        let passed = passed_on("tune", &asked);
        let words = [
            "--slo=ttft=2s",
            "--slo=itl=-1 ms",
            "--max-starts=4",
            "--again",
            "--concurrency=2",
            "--concurrency=8",
        ];
        assert_eq!(passed, words);
    }
}
