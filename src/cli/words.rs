//! The flags of a sweep as words again, for the plimsoll that runs it elsewhere.

use super::{BackendArg, SweepRunArgs};
use clap::ValueEnum;
use std::fmt::Display;
use std::time::Duration;

impl SweepRunArgs {
    /// What is to be measured and how, as words of a command line. Left out is what each place
    /// decides for itself: the file, the folders, the shard, `--resume`, `--dry-run`, `--json` and
    /// all flags on where to run.
    pub fn words(&self) -> Vec<String> {
        // Every field by name: a new flag does not compile until this list is adapted.
        let SweepRunArgs {
            file: _,
            config: _,
            dry_run: _,
            fresh,
            fresh_client,
            resume: _,
            begin_or_resume: _,
            retry_failed,
            retry_oom,
            run_anyway,
            only,
            shard: _,
            retries,
            container,
            model,
            engine,
            input_len,
            output_len,
            batch_size,
            model_params,
            num_layers,
            num_heads,
            head_dim,
            hidden_size,
            bench,
            memory_backend,
            sample_interval,
            baseline,
            timeout,
            health_timeout,
            settle_timeout,
            max_log,
            name,
            results: _,
            output_dir: _,
            json: _,
            submit: _,
            nodes: _,
            partition: _,
            gres: _,
            time_limit: _,
            account: _,
            sbatch_arg: _,
            print: _,
            no_wait: _,
            docker_host: _,
        } = self;
        let mut words = Words(Vec::new());
        words.switch("fresh", *fresh);
        words.switch("fresh-client", *fresh_client);
        words.switch("retry-failed", *retry_failed);
        words.switch("retry-oom", *retry_oom);
        words.switch("run-anyway", *run_anyway);
        words.all("only", only);
        words.all("retries", [retries]);
        words.all("container", container);
        words.all("model", model);
        words.all("engine", engine);
        words.all("input-len", input_len);
        words.all("output-len", output_len);
        words.all("batch-size", batch_size);
        words.all("model-params", model_params);
        words.all("num-layers", num_layers);
        words.all("num-heads", num_heads);
        words.all("head-dim", head_dim);
        words.all("hidden-size", hidden_size);
        words.all("bench", bench.iter().filter_map(value));
        words.all("memory-backend", backend(memory_backend));
        words.all("sample-interval", [time(*sample_interval)]);
        words.all("baseline", [time(*baseline)]);
        words.all("timeout", timeout.map(time));
        words.all("health-timeout", health_timeout.map(time));
        words.all("settle-timeout", [time(*settle_timeout)]);
        words.all("max-log", [max_log]);
        words.all("name", name);
        words.0
    }
}

struct Words(Vec<String>);

impl Words {
    fn switch(&mut self, flag: &str, on: bool) {
        self.0.extend(on.then(|| format!("--{flag}")));
    }

    /// One word for flag and value: a value may begin with a dash.
    fn all<T: Display>(&mut self, flag: &str, values: impl IntoIterator<Item = T>) {
        let word = |v: T| format!("--{flag}={v}");
        self.0.extend(values.into_iter().map(word));
    }
}

fn value(choice: &impl ValueEnum) -> Option<String> {
    Some(choice.to_possible_value()?.get_name().to_owned())
}

fn backend(backend: &BackendArg) -> Option<String> {
    match backend {
        BackendArg::Live(word) => value(word),
        BackendArg::Replay(path) => Some(format!("replay:{}", path.display())),
    }
}

/// Whole, and short where it can be.
fn time(time: Duration) -> String {
    match (time.subsec_nanos(), time.subsec_nanos() % 1_000_000) {
        (0, _) => format!("{}s", time.as_secs()),
        (_, 0) => format!("{}ms", time.as_millis()),
        _ => format!("{}ns", time.as_nanos()),
    }
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
        let told = args.words();
        let mut again: Vec<&str> = first.to_vec();
        again.extend(told.iter().map(String::as_str));
        assert_eq!(format!("{:?}", parsed(&again)), format!("{args:?}"));
        told
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
        let told = parsed(&[
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
        assert_eq!(told, parsed(&["a.yaml"]).words());
    }
}
