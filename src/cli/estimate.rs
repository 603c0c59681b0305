//! Flags of `estimate`: a model, how it is to be served, and what is asked of the two.

use super::{share, size, some_text};
use crate::units::{Bytes, ParseBytesError};
use clap::{ArgAction, Args, ValueEnum};
use std::path::PathBuf;

/// What the cases of a batch say for themselves, and what is not asked of them.
const ALL_BUT_BATCH: [&str; 42] = [
    "model_word",
    "model",
    "config",
    "model_params",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_size",
    "vocab_size",
    "intermediate_size",
    "draft_model",
    "engine",
    "engine_version",
    "gpu",
    "gpu_memory",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "enable_expert_parallel",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_batched_tokens",
    "max_num_seqs",
    "block_size",
    "enforce_eager",
    "max_lora_rank",
    "max_loras",
    "kv_cache_memory_bytes",
    "concurrency",
    "check_oom",
    "solve",
    "recommend_gpu",
    "table",
    "lengths",
    "explain",
    "calibration",
    "words",
];

/// `plimsoll estimate`
#[derive(Debug, Clone, Args)]
#[command(after_help = super::examples::ESTIMATE)]
pub struct EstimateArgs {
    /// Model: an id as on Hugging Face, a folder with config.json, or a GGUF file
    #[arg(value_name = "MODEL", value_parser = some_text, conflicts_with = "model")]
    pub model_word: Option<String>,
    /// Model, as MODEL, by a flag
    #[arg(long, short, value_name = "MODEL", value_parser = some_text, help_heading = "Model")]
    pub model: Option<String>,
    /// A config.json, where there is no folder with one
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub config: Option<PathBuf>,
    /// Parameters of the model, as in 6.7e9 or 8B (without a config)
    #[arg(long, value_name = "N", value_parser = parameters, help_heading = "Model")]
    pub model_params: Option<u64>,
    /// Layers of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub num_layers: Option<u64>,
    /// Attention heads of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub num_heads: Option<u64>,
    /// Key and value heads of the model (without a config) [default: the attention heads]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub num_kv_heads: Option<u64>,
    /// Head dimension of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub head_dim: Option<u64>,
    /// Hidden size of the model (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub hidden_size: Option<u64>,
    /// Entries of the vocabulary (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub vocab_size: Option<u64>,
    /// Width of the MLP (without a config)
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Model")]
    pub intermediate_size: Option<u64>,
    /// Draft model for speculative decoding, named as MODEL is
    #[arg(long, value_name = "MODEL", value_parser = some_text, help_heading = "Model")]
    pub draft_model: Option<String>,
    /// Ask the Hugging Face hub for a model that is not here: its config.json and the headers of its files, with
    /// HF_TOKEN where that is set; never the weights
    #[arg(long, help_heading = "Model")]
    pub online: bool,

    /// Engine: vllm, sglang, tgi, tensorrt-llm, llama-cpp, ollama, transformers
    #[arg(
        long,
        value_name = "NAME",
        default_value = "vllm",
        help_heading = "Deployment"
    )]
    pub engine: String,
    /// Its version; defaults and sizing rules changed with it [default: the newest that is known]
    #[arg(long, value_name = "VERSION", value_parser = some_text, help_heading = "Deployment")]
    pub engine_version: Option<String>,
    /// GPU: a name as `plimsoll gpus` lists it (H100, A100-80GB, "RTX 4090"), or detected
    #[arg(long, value_name = "NAME|detected", value_parser = some_text, help_heading = "Deployment")]
    pub gpu: Option<String>,
    /// Memory of a GPU as its driver reports it, instead of what is known of the GPU; or alone
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = "Deployment")]
    pub gpu_memory: Option<String>,
    /// Tensor parallel size
    #[arg(long, visible_alias = "tp", value_name = "N", value_parser = at_least_one, help_heading = "Deployment")]
    pub tensor_parallel_size: Option<u64>,
    /// Pipeline parallel size
    #[arg(long, visible_alias = "pp", value_name = "N", value_parser = at_least_one, help_heading = "Deployment")]
    pub pipeline_parallel_size: Option<u64>,
    /// Data parallel size
    #[arg(long, visible_alias = "dp", value_name = "N", value_parser = at_least_one, help_heading = "Deployment")]
    pub data_parallel_size: Option<u64>,
    /// Decode context parallel size
    #[arg(long, visible_alias = "dcp", value_name = "N", value_parser = at_least_one, help_heading = "Deployment")]
    pub decode_context_parallel_size: Option<u64>,
    /// Whole experts on each GPU instead of a part of each
    #[arg(long, visible_alias = "expert-parallel", help_heading = "Deployment")]
    pub enable_expert_parallel: bool,
    /// Type of weights and activations
    #[arg(long, value_name = "TYPE", help_heading = "Deployment")]
    pub dtype: Option<String>,
    /// Quantization, instead of what the model's config says
    #[arg(long, value_name = "METHOD", help_heading = "Deployment")]
    pub quantization: Option<String>,
    /// Type of the KV cache
    #[arg(long, value_name = "TYPE", help_heading = "Deployment")]
    pub kv_cache_dtype: Option<String>,
    /// Longest sequence, prompt and output together, as 8192, 8k or 8K (1024) [default: the model's]
    #[arg(long, value_name = "TOKENS", value_parser = tokens, help_heading = "Deployment")]
    pub max_model_len: Option<u64>,
    /// Share of a GPU's memory that the engine may take, above 0 to 1 (SGLang: --mem-fraction-static)
    #[arg(long, visible_alias = "mem-fraction-static", value_name = "SHARE", value_parser = share, help_heading = "Deployment")]
    pub gpu_memory_utilization: Option<f64>,
    /// Tokens of a step, as 8192 or 8k
    #[arg(long, value_name = "TOKENS", value_parser = tokens, help_heading = "Deployment")]
    pub max_num_batched_tokens: Option<u64>,
    /// Sequences at once
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Deployment")]
    pub max_num_seqs: Option<u64>,
    /// Tokens of a block of the KV cache
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, help_heading = "Deployment")]
    pub block_size: Option<u64>,
    /// No compilation, no CUDA graphs
    #[arg(long, help_heading = "Deployment")]
    pub enforce_eager: bool,
    /// Rank of the LoRA adapters that may be loaded
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Deployment")]
    pub max_lora_rank: Option<u64>,
    /// LoRA adapters in one batch [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one, requires = "max_lora_rank", help_heading = "Deployment")]
    pub max_loras: Option<u64>,
    /// Memory of the KV cache on each GPU, instead of the engine's own sizing
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = "Deployment")]
    pub kv_cache_memory_bytes: Option<String>,

    /// Requests of the longest length that must fit at once; several with --table
    #[arg(long, value_name = "N", value_parser = at_least_one, value_delimiter = ',', action = ArgAction::Append, help_heading = "Question")]
    pub concurrency: Vec<u64>,
    /// End with 6 where it does not fit, 3 where that cannot be told
    #[arg(long, help_heading = "Question", conflicts_with_all = ["solve", "recommend_gpu", "table"])]
    pub check_oom: bool,
    /// The largest (or least) of one setting with which it fits, all others as given
    #[arg(long, value_name = "WHAT", help_heading = "Question", conflicts_with_all = ["recommend_gpu", "table"])]
    pub solve: Option<SolveWord>,
    /// Which of the known GPUs, and how many, hold it; the smallest first
    #[arg(
        long,
        help_heading = "Question",
        conflicts_with_all = ["table", "gpu", "gpu_memory", "tensor_parallel_size", "pipeline_parallel_size"]
    )]
    pub recommend_gpu: bool,
    /// GiB for each concurrency and length
    #[arg(long, help_heading = "Question")]
    pub table: bool,
    /// Lengths of the table [default: 2048, 8192, 32768 and the model's, as far as it reads]
    #[arg(long, value_name = "TOKENS", value_parser = tokens, value_delimiter = ',', action = ArgAction::Append, requires = "table", help_heading = "Question")]
    pub lengths: Vec<u64>,
    /// Only how likely it is to run out of memory, in a word: low, medium, high, does-not-fit
    #[arg(long, help_heading = "Question", conflicts_with_all = ["solve", "recommend_gpu", "table", "json", "explain"])]
    pub risk: bool,
    /// Answer the cases of a file, one JSON object a line, - for standard input; needs --json
    #[arg(long, value_name = "CASES.jsonl", help_heading = "Question", requires = "json", conflicts_with_all = ALL_BUT_BATCH)]
    pub batch: Option<PathBuf>,

    /// Show each term's formula and its inputs
    #[arg(long, help_heading = "Output")]
    pub explain: bool,
    /// Print JSON instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Overheads of your own runs [default: what `plimsoll calibrate` keeps]
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Model",
        conflicts_with = "no_calibration"
    )]
    pub calibration: Option<PathBuf>,
    /// Leave out what your own runs have taught
    #[arg(long, help_heading = "Model")]
    pub no_calibration: bool,
    /// The engine's own command line, after --: its flags go before those here
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["model_word", "model"])]
    pub words: Vec<String>,
}

/// What can be solved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SolveWord {
    /// Requests of --max-model-len at once
    MaxConcurrency,
    /// The longest sequence, at --concurrency
    MaxModelLen,
    /// The largest --max-num-seqs whose sequences all fit
    MaxBatch,
    /// The fewest GPUs of this kind, by tensor parallelism, then pipeline parallelism
    MinGpus,
    /// The least share of the memory
    GpuMemoryUtilization,
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
fn memory(text: &str) -> Result<String, String> {
    let bytes: Bytes = size(text)?
        .parse()
        .map_err(|e: ParseBytesError| e.to_string())?;
    let bare = text.trim().parse::<f64>().is_ok_and(|n| n > 0.0);
    match bytes.0 >= 1 << 20 {
        true => Ok(text.to_owned()),
        false if bare => Err(format!(
            "must be 1 MiB or more, and a bare number is bytes: {}GiB?",
            text.trim()
        )),
        false => Err("must be 1 MiB or more".into()),
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
        for right in ["80GiB", "1MiB", "85899345920", "24g"] {
            assert_eq!(memory(right), Ok(right.to_owned()));
        }
        assert!(memory("80").unwrap_err().ends_with("80GiB?"));
        for wrong in ["0", "1", "1023KiB", "0GiB"] {
            let said = memory(wrong).unwrap_err();
            assert!(said.starts_with("must be 1 MiB or more"), "{said}");
        }
    }
}
