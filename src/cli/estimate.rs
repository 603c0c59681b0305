//! Flags of `estimate`: a model, how it is to be served, and what is asked of the two.

use super::{share, size, some_text};
use crate::engine::settings::{EstimateFlag, SETTINGS, Setting, ValueKind};
use crate::error::Failure;
use crate::estimate::question::What;
use crate::units::{Bytes, ParseBytesError};
use clap::{Arg, ArgAction, ArgGroup, Args, Parser};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

/// The flags that ask about one deployment: each case of a batch has its own.
const ONE_CASE: &str = "one_case";

/// `plimsoll estimate`
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new(ONE_CASE).multiple(true))]
pub struct EstimateArgs {
    /// Model: Hugging Face id, folder with config.json, or GGUF file
    #[arg(value_name = "MODEL", value_parser = some_text, conflicts_with = "model", group = ONE_CASE)]
    pub model_word: Option<String>,
    /// Model, as a flag
    #[arg(long, short, value_name = "MODEL", value_parser = some_text, help_heading = "Model", group = ONE_CASE)]
    pub model: Option<String>,
    /// A config.json without a folder
    #[arg(long, value_name = "FILE", help_heading = "Model", group = ONE_CASE)]
    pub config: Option<PathBuf>,
    /// Parameters of the model, as in 6.7e9 or 8B (without a config)
    #[arg(long, value_name = "N", value_parser = parameters, help_heading = "Model", group = ONE_CASE)]
    pub model_params: Option<u64>,
    /// Layers of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub num_layers: Option<u64>,
    /// Attention heads of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub num_heads: Option<u64>,
    /// Key and value heads of the model (without a config) [default: the attention heads]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub num_kv_heads: Option<u64>,
    /// Head dimension of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub head_dim: Option<u64>,
    /// Hidden size of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub hidden_size: Option<u64>,
    /// Entries of the vocabulary (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub vocab_size: Option<u64>,
    /// Width of the MLP (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model", group = ONE_CASE)]
    pub intermediate_size: Option<u64>,
    /// Draft model for speculative decoding, as MODEL
    #[arg(long, value_name = "MODEL", value_parser = some_text, help_heading = "Model", group = ONE_CASE)]
    pub draft_model: Option<String>,
    /// Ask the Hugging Face hub for the configuration of an unknown model; weights are not
    /// downloaded
    #[arg(long, help_heading = "Model")]
    pub online: bool,

    /// Engine: vllm, sglang, tgi, tensorrt-llm, llama.cpp, ollama, transformers
    #[arg(
        long,
        value_name = "NAME",
        default_value = "vllm",
        help_heading = "Deployment",
        group = ONE_CASE
    )]
    pub engine: String,
    /// Engine version; several, with commas, are shown side by side [default: latest known]
    #[arg(long, value_name = "VERSION", value_parser = some_text, help_heading = "Deployment", group = ONE_CASE)]
    pub engine_version: Option<String>,
    /// GPU by name (H100, A100-80GB, "RTX 4090"), or detected
    #[arg(long, value_name = "NAME|detected", value_parser = some_text, help_heading = "Deployment", group = ONE_CASE)]
    pub gpu: Option<String>,
    /// Memory of a GPU as its driver reports it; also without --gpu
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = "Deployment", group = ONE_CASE)]
    pub gpu_memory: Option<Bytes>,
    /// Memory used by others: a running container or a size; may be repeated
    #[arg(long, value_name = "NAME|SIZE", value_parser = some_text, help_heading = "Deployment", conflicts_with = "recommend_gpu", group = ONE_CASE)]
    pub beside: Vec<String>,
    /// Settings of the engine
    #[command(flatten)]
    pub settings: SettingFlags,

    /// Concurrent requests of the longest length; several with --table
    #[arg(long, value_name = "N", value_parser = at_least_one, value_delimiter = ',', action = ArgAction::Append, help_heading = "Question", group = ONE_CASE)]
    pub concurrency: Vec<u64>,
    /// Exit with code 6 if it does not fit, 3 if that is unknown
    #[arg(long, help_heading = "Question", conflicts_with_all = ["solve", "recommend_gpu", "table"], group = ONE_CASE)]
    pub check_oom: bool,
    /// Find the limit of one setting with which it still fits
    #[arg(long, value_name = "WHAT", help_heading = "Question", conflicts_with_all = ["recommend_gpu", "table"], group = ONE_CASE)]
    pub solve: Option<What>,
    /// List the GPUs, and how many, that are sufficient; the smallest first
    #[arg(
        long,
        help_heading = "Question",
        conflicts_with_all = ["table", "gpu", "gpu_memory", "tensor_parallel_size", "pipeline_parallel_size"],
        group = ONE_CASE
    )]
    pub recommend_gpu: bool,
    /// GiB for each concurrency and length
    #[arg(long, help_heading = "Question", group = ONE_CASE)]
    pub table: bool,
    /// Lengths of the table [default: 2048, 8192, 32768 and the model's]
    #[arg(long, value_name = "TOKENS", value_parser = tokens, value_delimiter = ',', action = ArgAction::Append, requires = "table", help_heading = "Question", group = ONE_CASE)]
    pub lengths: Vec<u64>,
    /// Print only the risk: low, medium, high, does-not-fit
    #[arg(long, help_heading = "Question", conflicts_with_all = ["solve", "recommend_gpu", "table", "json", "explain"])]
    pub risk: bool,
    /// Read cases from a file with one JSON object per line; needs --json
    #[arg(long, value_name = "CASES.jsonl", help_heading = "Question", requires = "json", conflicts_with = ONE_CASE)]
    pub batch: Option<PathBuf>,

    /// Compose file to read the engine's command from; several services are planned together
    #[arg(long, value_name = "FILE", help_heading = "Model", conflicts_with_all = ["words", "manifest", "container"], group = ONE_CASE)]
    pub compose: Option<PathBuf>,
    /// Kubernetes manifest to read the engine's command from
    #[arg(long, value_name = "FILE", help_heading = "Model", conflicts_with_all = ["words", "container"], group = ONE_CASE)]
    pub manifest: Option<PathBuf>,
    /// Container on this host to read the engine's command from
    #[arg(long, value_name = "NAME", value_parser = some_text, help_heading = "Model", conflicts_with = "words", group = ONE_CASE)]
    pub container: Option<String>,
    /// Service of --compose, or container of --manifest; may be repeated
    #[arg(long, value_name = "NAME", value_parser = some_text, help_heading = "Model", group = ONE_CASE)]
    pub service: Vec<String>,
    /// Print the engine, model, settings and GPUs that the command sets
    #[arg(long, help_heading = "Output", group = ONE_CASE)]
    pub show_settings: bool,

    /// Show each term's formula and its inputs
    #[arg(long, help_heading = "Output", group = ONE_CASE)]
    pub explain: bool,
    /// Print JSON instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Overheads of your own runs [default: the database of `plimsoll calibrate`]
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Model",
        conflicts_with = "no_calibration",
        group = ONE_CASE
    )]
    pub calibration: Option<PathBuf>,
    /// Ignore the overheads of your own runs
    #[arg(long, help_heading = "Model")]
    pub no_calibration: bool,
    /// The engine's command line, or a `docker run` line, after --
    #[arg(last = true, value_name = "COMMAND", group = ONE_CASE)]
    pub words: Vec<String>,
}

/// The settings of the engine, by name, as the flags set them.
#[derive(Debug, Clone, Default)]
pub struct SettingFlags(pub BTreeMap<String, String>);

/// A setting that has a flag.
struct FlaggedSetting {
    setting: &'static Setting,
    flag: &'static EstimateFlag,
    /// The flag without dashes.
    long: String,
    /// What engines call it, so that a flag that a page proposes can be given back.
    others: BTreeSet<String>,
}

/// The settings that `estimate` has a flag for.
static FLAGS: LazyLock<Vec<FlaggedSetting>> = LazyLock::new(|| {
    let flags = SETTINGS.iter().filter_map(|setting| {
        let flag = setting.flag.as_ref()?;
        let long = setting.name.replace('_', "-");
        let mut others = setting.flags_of_engines();
        others.retain(|name| *name != long && flag.alias.as_ref() != Some(name));
        Some(FlaggedSetting {
            setting,
            flag,
            long,
            others,
        })
    });
    flags.collect()
});

impl clap::Args for SettingFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(FLAGS.iter().map(|flagged| {
            let FlaggedSetting {
                setting,
                flag,
                long,
                others,
            } = flagged;
            let arg = Arg::new(setting.name.as_str())
                .long(long.as_str())
                .help(flag.help.as_str())
                .help_heading("Deployment")
                .group(ONE_CASE);
            let arg = match flag.alias.as_deref() {
                Some(alias) => arg.visible_alias(alias),
                None => arg,
            };
            let arg = arg.aliases(others.iter().map(String::as_str));
            let arg = match flag.requires.as_deref() {
                Some(other) => arg.requires(other),
                None => arg,
            };
            if setting.kind == ValueKind::Switch {
                return arg.action(ArgAction::SetTrue);
            }
            let kind = setting.kind;
            arg.value_name(flag.value_name.as_str())
                .value_parser(move |text: &str| setting_value(kind, text))
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let value = |setting: &Setting| match setting.kind {
            ValueKind::Switch => matches.get_flag(&setting.name).then(|| "true".to_owned()),
            _ => matches.get_one(&setting.name).cloned(),
        };
        let set = FLAGS
            .iter()
            .filter_map(|f| Some((f.setting.name.clone(), value(f.setting)?)));
        Ok(SettingFlags(set.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A flag's value as an engine takes it.
fn setting_value(kind: ValueKind, text: &str) -> Result<String, String> {
    match kind {
        ValueKind::Count => at_least_one(text).map(|n| n.to_string()),
        ValueKind::Tokens => tokens(text).map(|n| n.to_string()),
        ValueKind::Share => share(text).map(|n| n.to_string()),
        ValueKind::Bytes => memory(text).map(|bytes| bytes.0.to_string()),
        ValueKind::Text | ValueKind::Switch => Ok(text.to_owned()),
    }
}

/// A count above 0.
fn at_least_one(text: &str) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(0) => Err("must be 1 or more".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("must be a whole number, 1 or more".into()),
    }
}

/// Tokens as vLLM reads them: `8192`, `8k` = 8000, `8K` = 8192.
fn tokens(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, factor) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1000),
        Some('K') => (&text[..text.len() - 1], 1024),
        Some('m') => (&text[..text.len() - 1], 1_000_000),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    match number.parse::<u64>().map(|n| n.checked_mul(factor)) {
        Ok(Some(0)) => Err("must be 1 or more".into()),
        Ok(Some(n)) => Ok(n),
        _ => Err("must be a number of tokens, as 8192, 8k (8000) or 8K (8192)".into()),
    }
}

/// Memory of a GPU or of a cache: what is below a mebibyte was meant in another unit.
fn memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = size(text)?
        .parse()
        .map_err(|e: ParseBytesError| e.to_string())?;
    let bare = text.trim().parse::<f64>().is_ok_and(|n| n > 0.0);
    if bytes.0 >= 1 << 20 {
        Ok(bytes)
    } else if bare {
        Err(format!(
            "must be 1 MiB or more, and a bare number is bytes: {}GiB?",
            text.trim()
        ))
    } else {
        Err("must be 1 MiB or more".into())
    }
}

/// `6.7e9`, `8B`, `70b`, `350M`.
fn parameters(text: &str) -> Result<u64, String> {
    let wrong = || "must be a number of parameters, as 6.7e9, 8B or 350M".to_owned();
    let text = text.trim();
    let (number, factor) = match text.chars().last() {
        Some('t' | 'T') => (&text[..text.len() - 1], 1e12),
        Some('b' | 'B') => (&text[..text.len() - 1], 1e9),
        Some('m' | 'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let n = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    if n.is_finite() && (1.0..1e18).contains(&n) {
        Ok(n.round() as u64)
    } else {
        Err(wrong())
    }
}

/// The flags of `estimate` as a command of their own.
#[derive(Parser)]
struct EstimateWords {
    #[command(flatten)]
    args: EstimateArgs,
}

impl EstimateArgs {
    /// The flags of `estimate --container NAME --gpu detected`.
    ///
    /// # Errors
    /// A name that is not a value of a flag.
    pub fn of_container(name: &str) -> Result<EstimateArgs, Failure> {
        EstimateArgs::on_detected(&[format!("--container={name}")])
    }

    /// These flags with `--gpu detected`.
    ///
    /// # Errors
    /// They are no flags of `estimate`.
    pub fn on_detected(flags: &[String]) -> Result<EstimateArgs, Failure> {
        let own = ["estimate", "--gpu=detected"].map(str::to_owned);
        let words = EstimateWords::try_parse_from(own.iter().chain(flags));
        (words.map(|words| words.args)).map_err(|e| Failure::usage(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        assert_eq!(tokens("8192"), Ok(8192));
        assert_eq!(tokens("8k"), Ok(8000));
        assert_eq!(tokens("128K"), Ok(131_072));
        assert_eq!(parameters("6.7e9"), Ok(6_700_000_000));
        assert_eq!(parameters("8.03B"), Ok(8_030_000_000));
        assert_eq!(parameters("350M"), Ok(350_000_000));
        for wrong in ["", "0", "-1", "é", "k", "1e999", "99999999999999999999K"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
            assert!(at_least_one(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "-1", "é", "B", "nan", "inf", "1e999"] {
            assert!(parameters(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_in_no_unit_is_asked_about() {
        for (right, bytes) in [
            ("80GiB", 80 << 30),
            ("1MiB", 1 << 20),
            ("85899345920", 80 << 30),
        ] {
            assert_eq!(memory(right), Ok(Bytes(bytes)));
        }
        assert!(memory("24g").is_ok());
        assert!(memory("80").unwrap_err().ends_with("80GiB?"));
        for wrong in ["0", "1", "1023KiB", "0GiB"] {
            let message = memory(wrong).unwrap_err();
            assert!(message.starts_with("must be 1 MiB or more"), "{message}");
        }
    }
}
