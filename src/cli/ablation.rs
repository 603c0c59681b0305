//! Flags of `ablate` and `cuda-graphs`.

use super::{LoadArgs, arguments, number};
use clap::Args;

const GRAPHS: &str = "Graphs";

/// `plimsoll ablate`
#[derive(Debug, Args)]
pub struct AblateArgs {
    /// Idle container with the engine in it: name or id
    pub container: String,
    /// Engine arguments of the first arm, as one quoted string
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, value_parser = arguments, allow_hyphen_values = true, help_heading = "Arms")]
    pub a: String,
    /// Engine arguments of the second arm
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, value_parser = arguments, allow_hyphen_values = true, help_heading = "Arms")]
    pub b: String,
    /// Name of the first arm
    #[arg(long, value_name = "NAME", default_value = "a", help_heading = "Arms")]
    pub a_name: String,
    /// Name of the second arm
    #[arg(long, value_name = "NAME", default_value = "b", help_heading = "Arms")]
    pub b_name: String,
    /// What `profile` takes too.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// `plimsoll cuda-graphs`
#[derive(Debug, Args)]
pub struct CudaGraphsArgs {
    /// Container with TensorRT-LLM, or an idle one with vLLM: name or id
    pub container: String,
    /// Path of the model in the container
    #[arg(long, alias = "model_path", value_name = "PATH", help_heading = GRAPHS, required_unless_present = "model")]
    pub model_path: Option<String>,
    /// Name of the model in results [default: the last part of its path]
    #[arg(long, alias = "model_name", value_name = "NAME", help_heading = GRAPHS)]
    pub model_name: Option<String>,
    /// Largest batch that graphs are captured for
    #[arg(long, alias = "max_batch_size", value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..), help_heading = GRAPHS)]
    pub max_batch_size: u32,
    /// Longest draft of NGram speculation, tokens
    #[arg(long, alias = "max_draft_len", value_name = "TOKENS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..), help_heading = GRAPHS)]
    pub max_draft_len: u32,
    /// max_concurrency of the second arm
    #[arg(long, alias = "max_concurrency_test", value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..), help_heading = GRAPHS)]
    pub max_concurrency_test: u32,
    /// Longest sequence of TensorRT-LLM's engine, which sizes its KV pool: the same in both arms
    #[arg(long, alias = "max_seq_len", value_name = "TOKENS", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(16..), help_heading = GRAPHS)]
    pub max_seq_len: u32,
    /// Upper bound of a low overhead, MiB
    #[arg(long, value_name = "MIB", default_value_t = 500.0, value_parser = mib, help_heading = GRAPHS)]
    pub low_mib: f64,
    /// Lower bound of a strong overhead, MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048.0, value_parser = mib, help_heading = GRAPHS)]
    pub strong_mib: f64,
    /// What `profile` takes too.
    #[command(flatten)]
    pub load: LoadArgs,
}

fn mib(text: &str) -> Result<f64, String> {
    number(text, |v| v >= 0.0 && v.is_finite(), "must be 0 or more MiB")
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn both_spellings_of_the_flags_are_read() {
        for line in [
            "--model-path /m --model-name N --max-batch-size 8 --max-draft-len 3 --max-concurrency-test 2",
            "--model_path /m --model_name N --max_batch_size 8 --max_draft_len 3 --max_concurrency_test 2",
        ] {
            let words = ["plimsoll", "cuda-graphs", "c"]
                .into_iter()
                .chain(line.split(' '));
            let Command::CudaGraphs(args) = Cli::try_parse_from(words).unwrap().command else {
                panic!("another command");
            };
            assert_eq!(args.model_path.as_deref(), Some("/m"));
            assert_eq!(
                (
                    args.max_batch_size,
                    args.max_draft_len,
                    args.max_concurrency_test
                ),
                (8, 3, 2)
            );
            assert_eq!((args.low_mib, args.strong_mib), (500.0, 2048.0));
        }
    }

    #[test]
    fn arms_are_strings_that_may_begin_with_a_dash_or_be_empty() {
        let line = [
            "plimsoll",
            "ablate",
            "c",
            "--a",
            "--enforce-eager",
            "--b",
            "",
        ];
        let Command::Ablate(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command");
        };
        assert_eq!((args.a.as_str(), args.b.as_str()), ("--enforce-eager", ""));
        let open = ["plimsoll", "ablate", "c", "--a", "--x 'y"];
        assert!(Cli::try_parse_from(open).is_err());
    }
}
