//! The flags of a sweep as words again, for the plimsoll that runs it elsewhere.

use super::{BackendArg, SweepRunArgs};
use clap::ValueEnum;
use std::fmt::Display;
use std::time::Duration;

/// Words of the flags that are listed, each by the function that writes its value. The others are listed
/// as well: a new flag does not compile until it is in one of the lists.
macro_rules! words {
    ($args:expr; $($how:ident $flag:ident),*; left out: $($left:ident)*) => {{
        let SweepRunArgs { $($flag,)* $($left: _,)* } = $args;
        let mut words = Vec::new();
        $(words.extend($how($flag).into_iter().map(|value| {
            format!("--{}{value}", stringify!($flag).replace('_', "-"))
        }));)*
        words
    }};
}

impl SweepRunArgs {
    /// What is to be measured and how, as words of a command line. Left out is what each place
    /// decides for itself: the file, the folders, the shard, `--resume`, `--dry-run`, `--json` and
    /// all flags on where to run.
    pub fn words(&self) -> Vec<String> {
        words! { self;
            switch fresh, switch fresh_client, switch compile_cache, all adaptive, switch retry_failed, switch retry_oom, switch run_anyway,
            all only, one retries, all container, all model, all engine, all input_len, all output_len,
            all batch_size, all model_params, all num_layers, all num_heads, all num_kv_heads, all head_dim, all hidden_size,
            choice bench, backend memory_backend, one_time sample_interval, one_time baseline, time timeout,
            time health_timeout, one_time settle_timeout, one max_log, all name;
            left out: file config dry_run resume begin_or_resume shard results output_dir json submit nodes
                partition gres time_limit account sbatch_arg print no_wait docker_host
        }
    }
}

fn switch(on: &bool) -> Option<String> {
    on.then(String::new)
}

// Value and flag are one word: a value may begin with a dash.
fn one(value: &impl Display) -> Option<String> {
    Some(format!("={value}"))
}

fn all<'a, T: Display + 'a>(values: impl IntoIterator<Item = &'a T>) -> Vec<String> {
    values.into_iter().filter_map(one).collect()
}

fn choice(word: &Option<impl ValueEnum>) -> Option<String> {
    one(&word.as_ref()?.to_possible_value()?.get_name())
}

fn backend(backend: &BackendArg) -> Option<String> {
    match backend {
        BackendArg::Live(word) => choice(&Some(*word)),
        BackendArg::Replay(path) => one(&format!("replay:{}", path.display())),
    }
}

fn time(time: &Option<Duration>) -> Option<String> {
    one_time(time.as_ref()?)
}

/// Whole, and short where it can be.
fn one_time(time: &Duration) -> Option<String> {
    Some(
        match (time.subsec_nanos(), time.subsec_nanos() % 1_000_000) {
            (0, _) => format!("={}s", time.as_secs()),
            (_, 0) => format!("={}ms", time.as_millis()),
            _ => format!("={}ns", time.as_nanos()),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Sweep {
        #[command(flatten)]
        run: SweepRunArgs,
    }

    fn parsed(words: &[&str]) -> SweepRunArgs {
        Sweep::try_parse_from(["sweep"].iter().chain(words))
            .unwrap_or_else(|e| panic!("{words:?}: {e}"))
            .run
    }

    /// Words of flags, read again, are the same flags.
    #[track_caller]
    fn there_and_back(words: &[&str], first: &[&str]) -> Vec<String> {
        let args = parsed(words);
        let passed_on = args.words();
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
                "--name=-it's \"$(x)\"\n",
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
        let passed_on = parsed(&[
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
        ])
        .words();
        assert_eq!(passed_on, parsed(&["a.yaml"]).words());
    }
}
