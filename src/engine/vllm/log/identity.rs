//! Who wrote this log: version, generation of the engine, attention backend, ranks.

use super::origin::Role;
use super::readings::Line;
use super::settings::{Settings, Trust};
use crate::engine::facts::FactValue;
use crate::engine::log::figures::{after, holds, number_after};

/// What was seen of the engine's make-up.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Version as the API server announces it.
    server_version: Option<String>,
    /// Version in the engine's banner: wrong in some forks.
    banner_version: Option<String>,
    /// Generation by the shape of messages, with the weight of the evidence.
    generation: Option<(u8, &'static str)>,
    attention: Option<u8>,
    /// Highest ranks seen in prefixes.
    highest_tp: Option<u32>,
    highest_pp: Option<u32>,
    highest_dp: Option<u32>,
}

impl Identity {
    /// The version, the server's word before the engine's.
    pub fn version(&self) -> Option<String> {
        self.server_version
            .clone()
            .or_else(|| self.banner_version.clone())
    }

    /// Reads a line.
    pub fn read(&mut self, line: &Line<'_>, settings: &mut Settings) {
        self.versions(line, settings);
        self.generations(line, settings);
        self.attention_backend(line, settings);
        self.ranks(line, settings);
        self.types(line, settings);
    }

    fn versions(&mut self, line: &Line<'_>, settings: &mut Settings) {
        if !holds(line.text, &["ersion ", "odel", "LLM engine", "platform"]) {
            return;
        }
        let text = line.text;
        for sign in ["vLLM API server version ", "vLLM server version "] {
            if let Some(version) = after(text, sign).and_then(version) {
                self.server_version = Some(version);
            }
        }
        if let Some((_, model)) = text.split_once(", serving model ") {
            let model = model.trim().to_owned();
            settings.set(
                "model",
                FactValue::Text(model),
                Trust::Command,
                line,
                "serving model ",
            );
        }
        // Beside the logo of block letters: `█  version 0.32.0`, `█  model   /models/m`.
        if text.contains('█') || text.contains('▀') {
            let tail = text
                .rsplit(['█', '▀', '▄'])
                .next()
                .unwrap_or_default()
                .trim();
            if let Some(version) = tail.strip_prefix("version ").and_then(version) {
                self.server_version = Some(version);
            }
            if let Some(model) = tail.strip_prefix("model ") {
                settings.set(
                    "model",
                    FactValue::Text(model.trim().to_owned()),
                    Trust::Command,
                    line,
                    "model ",
                );
            }
        }
        if let Some(rest) = after(text, "LLM engine (v") {
            if let Some(version) = version(rest) {
                if text.contains("Initializing a") {
                    settings.set(
                        "version_in_banner",
                        FactValue::Text(version.clone()),
                        Trust::Banner,
                        line,
                        "LLM engine (v",
                    );
                    self.banner_version = Some(version);
                }
            }
        }
        for sign in ["Starting to load model ", "Resolved model: "] {
            if let Some(model) = after(text, sign) {
                let model = model.trim().trim_end_matches("...");
                if !model.is_empty() {
                    settings.set(
                        "model",
                        FactValue::Text(model.to_owned()),
                        Trust::Mentioned,
                        line,
                        sign,
                    );
                }
            }
        }
        if let Some(platform) = after(text, "Automatically detected platform ") {
            let platform = platform
                .split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default();
            if !platform.is_empty() {
                settings.set(
                    "platform",
                    FactValue::Text(platform.to_owned()),
                    Trust::Used,
                    line,
                    "platform ",
                );
            }
        }
    }

    fn generations(&mut self, line: &Line<'_>, settings: &mut Settings) {
        // Nothing is better evidence than a banner.
        if self.generation.is_some_and(|(weight, _)| weight >= 3) {
            return;
        }
        let text = line.text;
        let banner = text.contains("Initializing a");
        let evidence = [
            (banner && text.contains("V1 LLM engine ("), 3, "V1"),
            (
                banner && (text.contains("V0 LLM engine (") || text.contains("an LLM engine (")),
                3,
                "V0",
            ),
            (
                text.contains("the current vLLM instance can use") || text.contains("Swapped: "),
                2,
                "V0",
            ),
            (
                text.contains(" blocks: ") && text.contains(", # CPU blocks: "),
                2,
                "V0",
            ),
            (
                text.contains("model_runner.py") && text.contains("Loading model weights took"),
                0,
                "V0",
            ),
            (
                text.contains("Memory profiling results: ")
                    || text.contains("maximum number of tokens that can be stored"),
                2,
                "V0",
            ),
            (
                text.contains("Available KV cache memory: ") || text.contains("KV cache size: "),
                2,
                "V1",
            ),
            (
                text.contains("Free memory on device")
                    || text.contains("To serve at least one request"),
                2,
                "V1",
            ),
            (
                text.contains("Error in memory profiling") && text.contains("GiB"),
                1,
                "V1",
            ),
            (
                matches!(line.origin.role, Role::Core | Role::Server),
                1,
                "V1",
            ),
            (
                line.origin.role == Role::Worker && line.origin.tp.is_some(),
                1,
                "V1",
            ),
            (
                text.contains("gpu_model_runner.py") || text.contains("on V1 engine"),
                1,
                "V1",
            ),
        ];
        for (seen, weight, generation) in evidence {
            if seen && self.generation.is_none_or(|(known, _)| weight > known) {
                self.generation = Some((weight, generation));
                // Each piece of evidence is better than the one before, so it replaces it.
                settings.set(
                    "engine_generation",
                    FactValue::Text(generation.to_owned()),
                    Trust::Adjusted,
                    line,
                    generation,
                );
            }
        }
    }

    fn attention_backend(&mut self, line: &Line<'_>, settings: &mut Settings) {
        let Some((rank, name, needle)) = attention(line.text) else {
            return;
        };
        if self.attention.is_none_or(|known| rank > known) {
            self.attention = Some(rank);
            settings.set(
                "attention_backend",
                FactValue::Text(name),
                Trust::Adjusted,
                line,
                needle,
            );
        }
    }

    /// Parallel sizes, where no configuration line names them: one more than the highest rank.
    fn ranks(&mut self, line: &Line<'_>, settings: &mut Settings) {
        let text = line.text;
        if let Some(rest) = after(text, " in world size ") {
            if text.contains("is assigned as DP rank") {
                let world = number_after(text, " in world size ").map(|n| n.value);
                let tp = number_after(rest, ", TP rank ").map_or(0.0, |n| n.value) + 1.0;
                let pp = number_after(rest, "PP rank ").map_or(0.0, |n| n.value) + 1.0;
                // Only the last rank's line knows the sizes; a lone line of rank 0 does not.
                if world == Some(tp * pp) {
                    settings.set_count(
                        "tensor_parallel_size",
                        Some(tp),
                        Trust::Mentioned,
                        line,
                        " in world size ",
                    );
                    settings.set_count(
                        "pipeline_parallel_size",
                        Some(pp),
                        Trust::Mentioned,
                        line,
                        " in world size ",
                    );
                }
            }
        }
        for (rank, highest, key) in [
            (line.origin.tp, &mut self.highest_tp, "tensor_parallel_size"),
            (
                line.origin.pp,
                &mut self.highest_pp,
                "pipeline_parallel_size",
            ),
            (line.origin.dp, &mut self.highest_dp, "data_parallel_size"),
        ] {
            // Rank 0 alone says nothing: several releases always print it.
            if let Some(rank) = rank.filter(|r| (1..4096).contains(r)) {
                if highest.is_none_or(|h| rank > h) {
                    *highest = Some(rank);
                    settings.infer_size(key, rank + 1, line);
                }
            }
        }
    }

    fn types(&mut self, line: &Line<'_>, settings: &mut Settings) {
        let text = line.text;
        if let Some((method, needle)) = quantization(text) {
            settings.set(
                "quantization",
                FactValue::Text(method.to_owned()),
                Trust::Inferred,
                line,
                needle,
            );
        }
        if let Some(rest) = after(text, "Using ") {
            if let Some((kind, _)) = rest.split_once(" data type to store kv cache") {
                settings.set(
                    "kv_cache_dtype",
                    FactValue::Text(kind.trim().to_owned()),
                    Trust::Mentioned,
                    line,
                    "Using ",
                );
            }
            if let Some((format, _)) = rest.split_once(" KV cache format.") {
                if let Some(format) = format.split(' ').next_back() {
                    settings.set(
                        "kv_cache_format",
                        FactValue::Text(format.to_owned()),
                        Trust::Used,
                        line,
                        "Using ",
                    );
                }
            }
        }
    }
}

/// `0.8.5` of `0.8.5, serving model X`.
fn version(text: &str) -> Option<String> {
    let version: String = text
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_'))
        .take(80)
        .collect();
    let version = version.trim_end_matches('.');
    version
        .starts_with(|c: char| c.is_ascii_digit() || c == 'd')
        .then(|| version.to_owned())
}

/// The quantization whose code speaks, where no configuration line names it.
fn quantization(text: &str) -> Option<(&'static str, &'static str)> {
    if text.contains("[nvfp4.py:") {
        return Some(("nvfp4", "[nvfp4.py:"));
    }
    // `Selected SomeKernel for Fp8OnlineLinearMethod`, `Using SomeKernel for GPTQMarlinLinearMethod`.
    let (_, method) = text.split_once("Kernel for ")?;
    let method = method
        .split("LinearMethod")
        .next()
        .filter(|m| m.len() < method.len())?;
    let methods = [
        ("Fp8", "fp8"),
        ("AWQ", "awq"),
        ("GPTQ", "gptq"),
        ("CompressedTensors", "compressed-tensors"),
    ];
    methods
        .iter()
        .find(|(sign, _)| method.contains(sign))
        .map(|(_, name)| (*name, "Kernel for "))
}

/// The attention backend that a line names, with how surely it is the language model's.
fn attention(text: &str) -> Option<(u8, String, &'static str)> {
    if let Some(rest) = after(text, "Using ") {
        if let Some((name, _)) = rest.split_once(" attention backend out of potential") {
            return Some((4, short(name)?, "Using "));
        }
        if let Some((name, behind)) = rest.split_once(" backend") {
            // `backend for vit attention` and `MoE backend` are other parts of the model.
            if (behind.is_empty()
                || behind.starts_with(['.', '`'])
                || behind.starts_with(" on V1")
                || behind.starts_with(" with "))
                && is_attention(name)
            {
                return Some((3, short(name)?, "Using "));
            }
        }
        if let Some(version) = rest.strip_prefix("FlashAttention version ") {
            let version = version.split(|c: char| !c.is_alphanumeric()).next()?;
            return Some((2, format!("FlashAttention version {version}"), "Using "));
        }
    }
    let (_, rest) = text.split_once("is not supported with ")?;
    let (name, _) = rest.split_once(" backend (support")?;
    let part = if name.contains("Indexer") {
        "indexer only, from a warning"
    } else {
        "from a warning"
    };
    Some((
        1,
        format!("{} ({part})", short(name)?),
        "is not supported with ",
    ))
}

fn short(name: &str) -> Option<String> {
    let name = name.trim().trim_start_matches("AttentionBackendEnum.");
    (!name.is_empty() && name.len() < 60).then(|| name.to_owned())
}

fn is_attention(name: &str) -> bool {
    let lower = name.to_lowercase();
    let kinds = [
        "attention",
        "attn",
        "xformers",
        "flash",
        "sdpa",
        "mla",
        "triton",
        "pallas",
        "flex",
        "aiter",
        "rocm",
        "turboquant",
    ];
    kinds.iter().any(|kind| lower.contains(kind))
        && !["prefill", "moe", "mxfp4"]
            .iter()
            .any(|other| lower.contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_language_models_backend_counts() {
        let name = |text| attention(text).map(|a| a.1);
        assert_eq!(name("Using XFormers backend."), Some("XFormers".into()));
        assert_eq!(
            name("Using Flash Attention backend on V1 engine."),
            Some("Flash Attention".into())
        );
        assert_eq!(
            name("Using AttentionBackendEnum.TRITON_ATTN backend."),
            Some("TRITON_ATTN".into())
        );
        assert_eq!(
            name("Using FLASHINFER attention backend out of potential backends: ['FLASHINFER']."),
            Some("FLASHINFER".into())
        );
        assert_eq!(
            name(
                "Using FlashInfer backend with HND KV cache layout on V1 engine by default for Blackwell (SM 10.0) GPUs."
            ),
            Some("FlashInfer".into())
        );
        for other in [
            "Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",
            "Using default backend AttentionBackendEnum.TORCH_SDPA for vit attention",
            "Using 'DEEPGEMM_MXFP4' Mxfp4 MoE backend.",
            "Using Marlin backend for WNA16 MoE (group_size=32)",
            "Using FlashAttention MLA prefill backend.",
            "Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
            "uni is not supported on CPU, fallback to mp distributed executor backend.",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn versions_of_releases_and_builds() {
        assert_eq!(version("0.8.5"), Some("0.8.5".into()));
        assert_eq!(version("0.30.0, serving model X"), Some("0.30.0".into()));
        assert_eq!(
            version("0.6.4.dev26+g92d86da2.d20241017) with"),
            Some("0.6.4.dev26+g92d86da2.d20241017".into())
        );
        assert_eq!(version("dev"), Some("dev".into()));
        assert_eq!(version(" "), None);
    }
}
