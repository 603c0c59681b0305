//! llama.cpp and Ollama: the cache has as many cells as the context that is asked for, whatever the GPU has.

use super::Settings;
use crate::engine::settings::argument_text;
use crate::estimate::unmodelled::{Moves, Unmodelled};
use crate::estimate::{Component, Deployment, EngineId, Model, Proposer, Version, speculation};
use crate::tables::read_table;
use crate::units::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Requests that llama-server serves at a time where nobody says (tools/server/server.cpp, `n_parallel = 4`).
const AUTO_SLOTS: u64 = 4;
/// Cells are multiples of this number (llama.cpp, src/llama-context.cpp, `GGML_PAD(cparams.n_ctx, 256)`).
pub const PADDING: u64 = 256;
/// What llama.cpp's `--fit` leaves free of each GPU (`--fit-target`), bytes.
pub const FIT_MARGIN: u64 = 1 << 30;
/// Tokens of a step (`-ub`).
const STEP: u64 = 512;

/// The table that ships.
const TABLE: &str = include_str!("../../../configs/llama-cpp.yaml");

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Releases {
    flash_attention: FlashAttention,
    logits_of_a_step: StepLogits,
    own_engine: OwnEngine,
    contexts: Vec<OwnContext>,
}

/// Ollama's context by default.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OwnContext {
    from: String,
    /// Requests at a time that each have it, where they fit.
    parallel: u64,
    /// GiB of all GPUs from which on, and tokens; the most first.
    by_gib: Vec<(u64, u64)>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FlashAttention {
    llama_cpp: u32,
    ollama: BTreeMap<String, String>,
    others: String,
    lacks: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StepLogits {
    llama_cpp: [u32; 2],
    ollama: [String; 2],
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OwnEngine {
    from: String,
    until: String,
    window: u64,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static RELEASES: LazyLock<Releases> = LazyLock::new(|| read_table(TABLE));

/// What llama.cpp and Ollama are asked for, besides what other engines have too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LlamaAsked {
    /// Attention without a matrix of scores; `None`: as the release does.
    pub flash_attention: Option<bool>,
    /// The type of cached values, where it is not that of the keys.
    pub values_dtype: Option<String>,
    /// Slots share one stream of cells; `None`: where the number of slots is not given.
    pub unified: Option<bool>,
    /// Layers with a window keep all cells.
    pub full_windows: bool,
    /// Layers, from the first on, with their experts in the host's memory.
    pub host_experts: u64,
    /// The context is the model's whole one, and is not shortened to what fits: `-c 0`, or without `--fit`.
    pub whole_context: bool,
}

impl LlamaAsked {
    /// As a command line asks for it. `keys`: the type of cached keys, which is that of the values too unless they have
    /// their own.
    pub fn read(values: &BTreeMap<String, String>, keys: &mut Option<String>) -> LlamaAsked {
        let is = |name: &str, on: bool| switch(values, name) == Some(on);
        let set = |name: &str| values.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
        let own = |name: &str| set(name).filter(|_| !values.contains_key("kv_cache_dtype"));
        let values_dtype = match (own("cache_type_k"), own("cache_type_v")) {
            (Some(_), None) => Some("f16".to_owned()),
            (_, of_values) => of_values.map(str::to_owned),
        };
        if values_dtype.is_some() {
            keys.get_or_insert_with(|| "f16".to_owned());
        }
        let all = is("cpu_moe", true) || set("override_tensor").is_some_and(moves_all_experts);
        let first = set("n_cpu_moe").and_then(|n| n.parse().ok());
        let separate = is("no_kv_unified", true) || is("kv_unified", false);
        LlamaAsked {
            flash_attention: ["flash_attn", "OLLAMA_FLASH_ATTENTION"]
                .iter()
                .find_map(|name| switch(values, name)),
            values_dtype: values_dtype.filter(|v| Some(v) != keys.as_ref()),
            unified: (is("kv_unified", true) || separate).then_some(!separate),
            full_windows: is("swa_full", true),
            whole_context: set("fit") == Some("off")
                || ["ctx_size", "max_model_len"]
                    .iter()
                    .any(|name| set(name) == Some("0")),
            host_experts: if all { u64::MAX } else { first.unwrap_or(0) },
        }
    }

    /// Takes out of what is not modelled what of `--override-tensor` is, and names what is not of experts on the host.
    pub fn settle(
        &self,
        values: &BTreeMap<String, String>,
        gpus: u64,
        unmodelled: &mut Vec<Unmodelled>,
    ) {
        if values
            .get("override_tensor")
            .is_some_and(|v| moves_all_experts(v))
        {
            unmodelled.retain(|u| u.name != "--override-tensor");
        }
        if self.host_experts > 0 && self.host_experts < u64::MAX && gpus > 1 {
            let name = "experts of some layers on the processor, beside several GPUs";
            unmodelled.push(Unmodelled::new(name, Moves::Down, &[Component::Weights]));
        }
    }

    /// Whether a tensor of a layer stays in the host's memory.
    pub fn is_on_host(&self, role: &str, layer: u64) -> bool {
        layer < self.host_experts && role.starts_with("exp_")
    }
}

/// Whether a tensor of a layer is in the host's memory on each GPU. Of some layers alone it is on the first GPUs, and the
/// last has the most.
pub fn leaves_out(deployment: &Deployment, role: &str, layer: u64) -> bool {
    let each = deployment.llama.host_experts == u64::MAX || deployment.gpus() == 1;
    each && deployment.llama.is_on_host(role, layer)
}

/// A pattern of `--override-tensor` that moves the experts of every layer, and nothing else: `exps=CPU`.
fn moves_all_experts(text: &str) -> bool {
    let Some(pattern) = text.trim().strip_suffix("=CPU") else {
        return false;
    };
    let kinds = ["up", "gate", "down"].map(|kind| pattern.contains(kind));
    let kinds = kinds.iter().filter(|named| **named).count();
    // A digit chooses layers.
    let layers = pattern.contains(|c: char| c.is_ascii_digit());
    pattern.contains("exps") && !pattern.contains([',', '=']) && !layers && matches!(kinds, 0 | 3)
}

fn switch(values: &BTreeMap<String, String>, name: &str) -> Option<bool> {
    match values.get(name)?.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "enabled" => Some(true),
        "false" | "0" | "no" | "off" | "disabled" => Some(false),
        _ => None,
    }
}

/// Tokens of a step, where they are asked for: no more than a batch has.
pub fn own_step(values: &BTreeMap<String, String>) -> Option<u64> {
    let count = |name: &str| {
        let n = values.get(name)?.trim().parse::<u64>().ok();
        n.filter(|n| *n > 0)
    };
    let batch = count("batch_size").filter(|n| *n < count("ubatch_size").unwrap_or(STEP));
    batch.or(count("ubatch_size"))
}

/// No encoder is loaded on the GPU: it is a file of its own (`--mmproj`), which llama.cpp looks for beside a model of a
/// repository alone (common/arg.cpp, `-hf`).
pub fn lacks_encoder(values: &BTreeMap<String, String>) -> bool {
    let has = |name: &str| values.contains_key(name);
    let off = switch(values, "no_mmproj") == Some(true)
        || switch(values, "mmproj_auto") == Some(false)
        || switch(values, "mmproj_offload") == Some(false)
        || switch(values, "no_mmproj_offload") == Some(true);
    let from_file = (has("model") || has("model_url")) && !has("hf_repo") && !has("docker_repo");
    off || from_file && !has("mmproj") && !has("mmproj_url")
}

/// Requests of a server that share its context; Ollama gives each one of its own.
pub fn slots(deployment: &Deployment) -> u64 {
    match deployment.named() {
        EngineId::LlamaCpp => deployment.max_seqs.unwrap_or(AUTO_SLOTS).max(1),
        _ => 1,
    }
}

/// Parts into which the context is divided (src/llama-kv-cache.cpp, `n_stream`).
pub fn streams(deployment: &Deployment) -> u64 {
    let shared = deployment.llama.unified;
    if shared.unwrap_or(deployment.max_seqs.is_none()) {
        1
    } else {
        slots(deployment)
    }
}

/// Requests for each of which the whole context is allocated: Ollama's (llm/server.go, `KvSize`).
pub fn whole_requests(deployment: &Deployment) -> u64 {
    match deployment.named() {
        EngineId::Ollama => {
            let own = || own_context(deployment).map_or(1, |rule| rule.parallel);
            deployment.max_seqs.unwrap_or_else(own).max(1)
        }
        _ => 1,
    }
}

/// Tokens of a layer's window, as far as it bounds what is kept.
pub fn reach(deployment: &Deployment, window: Option<u64>) -> Option<u64> {
    let window = window.filter(|_| !deployment.llama.full_windows)?;
    let Some(version) = ollama_version(deployment) else {
        return Some(window);
    };
    let own = &RELEASES.own_engine;
    if version < release(&own.from) {
        return None;
    }
    Some(if version < release(&own.until) {
        window.max(own.window)
    } else {
        window
    })
}

fn release(text: &str) -> Version {
    Version::leading(text).unwrap_or(Version::new(0, 0, 0))
}

/// The release of Ollama, where it is named.
fn ollama_version(deployment: &Deployment) -> Option<Version> {
    let ollama = deployment.named() == EngineId::Ollama;
    deployment.version.filter(|_| ollama)
}

/// The build of llama.cpp that a version names: `b9124`, `9124`, `b9124-abc1234`.
pub fn build_of(text: &str) -> Option<Version> {
    let word = text.split_whitespace().next()?;
    let word = word
        .split('-')
        .next()
        .filter(|w| w.starts_with('b') || !word.contains('-'))?;
    let digits = word.strip_prefix('b').unwrap_or(word);
    let build = digits.parse::<u32>().ok()?;
    // A year is no build, unless it is called one.
    let year = digits == word && (2020..2100).contains(&build);
    (digits.len() >= 3 && !year).then(|| Version::new(0, build, 0))
}

/// Whether attention is computed without a matrix of scores; `None`: it may be.
pub fn flash_attention(model: &Model, deployment: &Deployment) -> Option<bool> {
    let table = &RELEASES.flash_attention;
    let kind = model.kind.replace(['_', '-'], "");
    let lacks = table.lacks.iter().find(|(name, _)| kind.starts_with(*name));
    let unable = lacks.zip(ollama_version(deployment));
    if let Some(asked) = deployment.llama.flash_attention {
        return Some(asked && unable.is_none_or(|((_, until), own)| own >= release(until)));
    }
    let Some(version) = deployment.version else {
        return Some(true);
    };
    if deployment.named() == EngineId::LlamaCpp {
        return Some(version.minor >= table.llama_cpp);
    }
    let own = table
        .ollama
        .iter()
        .find(|(name, _)| kind.starts_with(*name));
    if version >= release(&RELEASES.own_engine.until) {
        return Some(true);
    }
    match own {
        Some((_, since)) => Some(version >= release(since)),
        None if version >= release(&table.others) => None,
        None => Some(false),
    }
}

/// Whether logits of every token of a step are reserved; `None`: those, or one for each sequence.
pub fn reserves_every_logit(deployment: &Deployment) -> Option<bool> {
    let table = &RELEASES.logits_of_a_step;
    let version = deployment.version?;
    let [last, first] = match deployment.named() {
        EngineId::Ollama => [0, 1].map(|at| release(&table.ollama[at])),
        _ => table.llama_cpp.map(|build| Version::new(0, build, 0)),
    };
    // Ollama's own engine reserves them by the model.
    let own = &RELEASES.own_engine;
    let is_own = ollama_version(deployment)
        .is_some_and(|v| v >= release(&own.from) && v < release(&own.until));
    match version {
        _ if is_own => None,
        v if v <= last => Some(true),
        v if v >= first => Some(false),
        _ => None,
    }
}

/// Sequences of a step with the tokens that are verified for each.
pub fn verified_tokens(deployment: &Deployment) -> u64 {
    let loaded = deployment.speculation.as_ref();
    let ahead = match loaded.map(|s| s.proposer) {
        Some(Proposer::Predictor) => speculation::tokens(deployment),
        _ => 0,
    };
    let sequences = slots(deployment).max(whole_requests(deployment));
    sequences.saturating_mul(ahead.saturating_add(1))
}

fn is_quantized(dtype: Option<&str>) -> bool {
    dtype.is_some_and(|t| t.starts_with('q') || t.starts_with("iq"))
}

/// Ollama leaves a quantised type of the cache out where attention has a matrix of scores (llm/server.go: "quantized kv cache
/// requested but flash attention disabled").
pub fn drops_cache_type(model: &Model, deployment: &Deployment) -> bool {
    deployment.named() == EngineId::Ollama
        && is_quantized(deployment.kv_dtype.as_deref())
        && flash_attention(model, deployment) != Some(true)
}

/// A sentence on a type that is left out.
pub fn dropped_cache_type(model: &Model, deployment: &Deployment) -> Option<String> {
    let dtype = deployment.kv_dtype.as_deref()?;
    let why = match deployment.llama.flash_attention {
        None => "does not take it for this model by itself: OLLAMA_FLASH_ATTENTION=1 asks for it",
        Some(_) => "does not compute this model with it",
    };
    drops_cache_type(model, deployment).then(|| {
        format!(
            "the cache is counted in 16 bits: Ollama leaves its type `{dtype}` out without flash attention, and this release {why}"
        )
    })
}

/// Why llama-server refuses the types of its cache (src/llama-context.cpp: "V cache quantization requires flash_attn").
pub fn refused_cache_type(model: &Model, deployment: &Deployment) -> Option<String> {
    let llama = &deployment.llama;
    let of_values = llama.values_dtype.as_ref().or(deployment.kv_dtype.as_ref());
    let refused = deployment.named() == EngineId::LlamaCpp
        && is_quantized(of_values.map(String::as_str))
        && flash_attention(model, deployment) == Some(false);
    refused.then(|| {
        "llama.cpp quantizes the cache of values with flash attention alone: add --flash-attn on"
            .to_owned()
    })
}

/// Tokens of a context that one request gets.
pub fn slot_length(deployment: &Deployment, context: u64) -> u64 {
    context / streams(deployment).max(1)
}

/// A sentence where all would have room, and llama.cpp's `--fit` moves layers for its margin all the same.
pub fn fit_margin(
    deployment: &Deployment,
    total: Option<&u64>,
    room: Option<u64>,
) -> Option<String> {
    let fits = deployment.named() == EngineId::LlamaCpp && deployment.moves_layers;
    let left = room?.checked_sub(*total?).filter(|_| fits)?;
    (left < FIT_MARGIN).then(|| {
        format!(
            "{} are left, and llama.cpp's --fit leaves {} free: it keeps layers on the processor then",
            Bytes(left),
            Bytes(FIT_MARGIN)
        )
    })
}

/// The settings of a deployment (llama.cpp, common/arg.cpp: `-c`, `-b 2048`, `-ub 512`).
pub fn settings(model: &Model, deployment: &Deployment) -> Settings {
    let mut settings = Settings {
        fraction: 1.0,
        block: 1,
        ..Settings::with_defaults(model, deployment, STEP, 1, 1)
    };
    // Ollama takes no context above the model's, its own or an asked one (llm/server.go).
    let asked = (settings.max_model_len).filter(|_| deployment.named() == EngineId::Ollama);
    if let Some(context) = ollama_context(deployment).or(asked) {
        let most = model.max_positions.unwrap_or(context);
        settings.max_model_len = Some(context.min(most));
    }
    let longest = settings.max_model_len.unwrap_or(u64::MAX).max(1);
    settings.batched_tokens = settings.batched_tokens.min(longest);
    settings
}

/// Memory of all GPUs, bytes, where Ollama chooses its context by it.
fn decides(deployment: &Deployment) -> Option<u64> {
    let chooses = deployment.named() == EngineId::Ollama && deployment.max_model_len.is_none();
    let gpu = deployment.gpu.as_ref().filter(|_| chooses)?;
    Some(gpu.total.saturating_mul(deployment.gpus()))
}

/// The rule of the deployment's release.
fn own_context(deployment: &Deployment) -> Option<&'static OwnContext> {
    let own = |rule: &&OwnContext| !deployment.is_before(release(&rule.from));
    RELEASES.contexts.iter().rfind(own)
}

fn ollama_context(deployment: &Deployment) -> Option<u64> {
    let memory = decides(deployment)?;
    let rows = &own_context(deployment)?.by_gib;
    let row = rows.iter().find(|(gib, _)| memory >> 30 >= *gib);
    row.map(|(_, tokens)| *tokens)
}

/// Where the context comes from, if Ollama chooses it: a sentence.
pub fn source_of_context(deployment: &Deployment, settings: &Settings) -> Option<String> {
    let memory = Bytes(decides(deployment)?);
    let context = settings.max_model_len?;
    let chosen = ollama_context(deployment)?;
    let other = argument_text(EngineId::Ollama, "max_model_len", "TOKENS")?;
    // The variable is there since 0.5.13 (commit 314573bf).
    let settable = !deployment.is_before(Version::new(0, 5, 13));
    let limit = if chosen > context {
        format!(", and the model reads {context}")
    } else if settable {
        format!("; set another with {other}")
    } else {
        String::new()
    };
    let each = match whole_requests(deployment) {
        1 => String::new(),
        n => format!(" for each of {n} requests (of one where these do not fit)"),
    };
    let by_memory = own_context(deployment)?.by_gib.len() > 1;
    let with = if by_memory {
        format!("with {memory} of GPU memory Ollama")
    } else {
        "this release of Ollama".to_owned()
    };
    Some(format!(
        "{with} chooses a context of {chosen} tokens{each}{limit}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let table: Releases = serde_yaml::from_str(TABLE).unwrap();
        assert!(table.own_engine.window > 0 && !table.flash_attention.ollama.is_empty());
        assert!(table.contexts.iter().all(|rule| !rule.by_gib.is_empty()));
    }

    #[test]
    fn builds_are_numbers_and_years_are_not() {
        let build = |text| build_of(text).map(|v| v.minor);
        for text in ["b9124", "9124", "b9124-abc1234", "9124 (abc1234)"] {
            assert_eq!(build(text), Some(9124), "{text}");
        }
        for text in ["2026", "2026-05", "0.12.6", "main", "5"] {
            assert_eq!(build(text), None, "{text}");
        }
    }

    #[test]
    fn the_default_context_is_of_the_release_and_the_memory() {
        let context = |version, gib: u64| {
            let mut d = Deployment::with_defaults(EngineId::Ollama);
            (d.named, d.version) = (Some(EngineId::Ollama), version);
            d.gpu = Some(crate::estimate::Gpu {
                name: "L4".into(),
                total: gib << 30,
                in_use: 0,
            });
            ollama_context(&d)
        };
        assert_eq!(context(Some(Version::new(0, 5, 7)), 80), Some(2_048));
        assert_eq!(context(Some(Version::new(0, 12, 6)), 80), Some(4_096));
        assert_eq!(context(Some(Version::new(0, 15, 5)), 24), Some(32_768));
        assert_eq!(context(None, 80), Some(262_144));
        let mut d = Deployment::with_defaults(EngineId::Ollama);
        d.named = Some(EngineId::Ollama);
        let mut requests = |version| {
            d.version = version;
            whole_requests(&d)
        };
        assert_eq!(requests(Some(Version::new(0, 5, 7))), 4);
        assert_eq!(requests(Some(Version::new(0, 6, 8))), 2);
        assert_eq!(requests(None), 1);
    }

    #[test]
    fn an_encoder_is_a_file_of_its_own() {
        let lacks = |flags: &[&str]| {
            let set = flags
                .iter()
                .map(|f| f.split_once('=').unwrap_or((f, "true")));
            lacks_encoder(&set.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
        };
        assert!(lacks(&["model=m.gguf"]) && lacks(&["hf_repo=a/b", "no_mmproj"]));
        assert!(lacks(&["hf_repo=a/b", "mmproj_offload=false"]));
        assert!(!lacks(&["hf_repo=a/b"]) && !lacks(&["model=m.gguf", "mmproj=p.gguf"]));
        assert!(!lacks(&[]));
    }

    #[test]
    fn experts_of_some_layers_are_on_the_first_gpus() {
        let out = |gpus, layers| {
            let mut d = Deployment::with_defaults(EngineId::LlamaCpp);
            (d.tp, d.llama.host_experts) = (gpus, layers);
            leaves_out(&d, "exp_w2", 0)
        };
        assert!(out(1, 1) && out(2, u64::MAX) && !out(2, 1) && !out(1, 0));
    }

    #[test]
    fn only_patterns_of_all_experts_are_computed() {
        for all in [
            "exps=CPU",
            r".ffn_.*_exps.=CPU",
            "ffn_(up|gate|down)_exps=CPU",
        ] {
            assert!(moves_all_experts(all), "{all}");
        }
        for part in [
            "ffn_up_exps=CPU",
            "blk.1.ffn_.*_exps=CPU",
            "attn=CPU",
            "exps=CUDA0",
        ] {
            assert!(!moves_all_experts(part), "{part}");
        }
    }
}
