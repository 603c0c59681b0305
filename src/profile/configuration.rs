//! The engine and the model: requested settings, effective settings, figures that the engine reports of itself.

use super::checkpoint;
use super::observation::CaptureObservation;
use super::pool::ExactPool;
use super::unknown::{NullReasons, null_reasons};
use crate::breakdown::Breakdown;
use crate::capture::{Capture, Mode, Phase};
use crate::engine::facts::{
    DEFAULT_UTILIZATION, EngineStep, FactKey, FactValue, Finding, LogReport, key,
};
use crate::engine::settings::{IgnoredSetting, ignored_settings};
use crate::engine::{EngineId, ProbeFacts, ServerSettings, same};
use crate::estimate::headers::{Stored, safetensors};
use crate::estimate::model::Flags;
use crate::units::{GIB, gib_signed, to_gib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EngineMetadata {
    /// `vllm`, ….
    pub engine_type: String,
    /// Version, from `/version` where it answered, else from the log.
    pub engine_version: Option<String>,
    /// True for a simulated engine.
    pub simulated: bool,
    /// How it was recognised.
    pub evidence: String,
}

/// Settings asked for and settings in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// Asked for: command and environment of the container, or plimsoll's own flags.
    pub requested: BTreeMap<String, String>,
    /// In force: read back from the engine's endpoints and log.
    pub effective: BTreeMap<String, String>,
    /// Where the two differ.
    pub differences: Vec<Difference>,
    /// Asked for by plimsoll's own flags, and not taken: the run was without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<IgnoredSetting>,
}

/// A setting that is not in force as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Name, with underscores.
    pub setting: String,
    /// Asked for.
    pub requested: String,
    /// In force.
    pub effective: String,
}

/// The model, from its `config.json` where that could be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// Path or id.
    pub name: Option<String>,
    /// Architecture class.
    pub architecture: Option<String>,
    /// Parameters; from the weight index, else counted in the headers of the weight files.
    pub num_parameters: Option<u64>,
    /// Layers.
    pub num_layers: Option<u64>,
    /// Attention heads.
    pub num_heads: Option<u64>,
    /// Key/value heads.
    pub num_kv_heads: Option<u64>,
    /// Size of the residual stream.
    pub hidden_size: Option<u64>,
    /// Size of one head.
    pub head_dim: Option<u64>,
    /// Type of the weights as they run, as `dtype_metadata.weights`; that of the checkpoint where it is not known.
    pub dtype: Option<String>,
    /// Type of the checkpoint, by its `config.json`.
    #[serde(default)]
    pub checkpoint_dtype: Option<String>,
    /// Bytes of the checkpoint's tensors; from the weight index, else from the headers of the weight files.
    pub checkpoint_bytes: Option<u64>,
}

impl ModelInfo {
    /// From the model's files.
    pub(super) fn read_model_files(
        files: &BTreeMap<String, String>,
        name: Option<String>,
    ) -> ModelInfo {
        let file = |f: &str| {
            files
                .get(f)
                .and_then(|t| serde_json::from_str::<serde_json::Value>(t).ok())
        };
        let config = file("config.json").unwrap_or_default();
        // Models with several towers keep the language model's figures one level down.
        let text = config.get("text_config").unwrap_or(&config);
        let number = |key: &str| text.get(key).and_then(serde_json::Value::as_u64);
        let num_heads = number("num_attention_heads");
        let hidden_size = number("hidden_size");
        let string = |v: Option<&serde_json::Value>| v.and_then(|v| v.as_str()).map(str::to_owned);
        let index = file(WEIGHT_INDEX).unwrap_or_default();
        let total = |key: &str| index.pointer(key).and_then(serde_json::Value::as_u64);
        let (parameters, bytes) = (
            total("/metadata/total_parameters"),
            total("/metadata/total_size"),
        );
        let tensors = match (parameters, bytes) {
            (Some(_), Some(_)) => None,
            _ => stored_tensors(files),
        };
        // Files of a quantized checkpoint hold several parameters in one value.
        let counted = tensors
            .as_ref()
            .filter(|_| !checkpoint::is_quantized(files));
        let stored_dtype = string(
            text.get("dtype")
                .or_else(|| text.get("torch_dtype"))
                .or_else(|| config.get("dtype"))
                .or_else(|| config.get("torch_dtype")),
        );
        ModelInfo {
            name,
            architecture: string(config.pointer("/architectures/0")),
            num_parameters: parameters.or_else(|| {
                let floats = counted?.iter().filter(|t| t.float_bits().is_some());
                Some(floats.fold(0, |sum, t| t.values().saturating_add(sum)))
            }),
            num_layers: number("num_hidden_layers"),
            num_heads,
            num_kv_heads: number("num_key_value_heads"),
            hidden_size,
            head_dim: number("head_dim").or_else(|| hidden_size?.checked_div(num_heads?)),
            dtype: stored_dtype.clone(),
            checkpoint_dtype: stored_dtype,
            checkpoint_bytes: bytes.or_else(|| {
                let all = tensors.as_ref()?.iter();
                Some(all.fold(0, |sum, t| t.bytes.saturating_add(sum)))
            }),
        }
    }

    /// Fills what the model's files do not say with the figures that the user gave.
    pub(super) fn fill_given(&mut self, given: &BTreeMap<String, f64>) {
        if given.is_empty() {
            return;
        }
        let figures = Flags::of_figures(given);
        let fill = |field: &mut Option<u64>, figure: Option<u64>| *field = field.or(figure);
        fill(&mut self.num_parameters, figures.parameters);
        fill(&mut self.num_layers, figures.layers);
        fill(&mut self.num_heads, figures.heads);
        fill(&mut self.num_kv_heads, figures.kv_heads);
        fill(&mut self.hidden_size, figures.hidden);
        let by_heads = self.hidden_size.zip(self.num_heads);
        let by_heads = by_heads.and_then(|(size, heads)| size.checked_div(heads));
        fill(&mut self.head_dim, figures.head_dim.or(by_heads));
    }

    pub(super) fn note_null_reasons(&self, o: &CaptureObservation<'_>, out: &mut NullReasons) {
        let c = o.capture;
        let has = |file: &str| c.model_files.contains_key(file);
        let unread = |what: &str| match &c.model_files_error {
            Some(why) => format!("{what} could not be read: {why}"),
            None => format!("{what} was not found in the container"),
        };
        let no_total = || {
            if has(WEIGHT_INDEX) {
                format!(
                    "{WEIGHT_INDEX} does not have it, and not every shard's header could be read"
                )
            } else if has("model.safetensors") {
                "the header of model.safetensors is damaged".into()
            } else {
                unread(&format!(
                    "{WEIGHT_INDEX} (or a model.safetensors with a header)"
                ))
            }
        };
        null_reasons!(out, "model_info", self;
            name => "neither the command line, the engine nor its log names it";
            num_parameters => if checkpoint::is_quantized(&c.model_files) {
                "the checkpoint is quantized: its files hold packed values, and their number is not that of the parameters".into()
            } else {
                no_total()
            };
            checkpoint_bytes => no_total();
            architecture, num_layers, num_heads, num_kv_heads, hidden_size, head_dim, dtype, checkpoint_dtype =>
                if has("config.json") {
                    "the model's config.json does not say".into()
                } else {
                    unread("the model's config.json")
                };
        );
    }
}

/// The file that lists which shard holds which tensor.
pub(super) const WEIGHT_INDEX: &str = "model.safetensors.index.json";

/// The tensors of all weight files, by their headers; `None` where one's header is missing or damaged.
fn stored_tensors(files: &BTreeMap<String, String>) -> Option<Vec<Stored>> {
    let names = match files.get(WEIGHT_INDEX) {
        Some(index) => safetensors::index_files(index.as_bytes()).ok()?,
        None => vec!["model.safetensors".to_owned()],
    };
    let mut all = Vec::new();
    for name in names {
        all.extend(safetensors::tensors(files.get(&name)?.as_bytes(), None).ok()?);
    }
    Some(all)
}

/// What the engine reports of its own memory, over all its ranks: a figure that it prints for one
/// rank is multiplied. Named after the engine that had it first; for other engines the keys mean
/// the same. GiB where `_gb`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InternalMetrics {
    /// Blocks in the KV pool.
    pub num_gpu_blocks: Option<u64>,
    /// Blocks swapped to host memory; V1 engines have none.
    pub num_cpu_blocks: Option<u64>,
    /// Tokens per block.
    pub block_size: Option<u64>,
    /// Tokens that the KV pool holds.
    pub total_gpu_kv_cache_tokens: Option<u64>,
    /// KV pool, GiB.
    pub total_gpu_kv_cache_gb: Option<f64>,
    /// KV in use at most while the load ran, GiB: the pool times the highest usage that the
    /// engine reported.
    pub kv_cache_used_gb: Option<f64>,
    /// Highest usage of the pool that the engine reported, 0 to 1.
    pub kv_cache_usage_peak: Option<f64>,
    /// Attention backend, the engine's own word.
    pub attention_backend: Option<String>,
    /// Weights, GiB, by the log.
    pub model_weights_gb: Option<f64>,
    /// Peak activations of the engine's own profile run, GiB.
    pub activations_gb: Option<f64>,
    /// CUDA graphs, GiB.
    pub cuda_graphs_gb: Option<f64>,
    /// Weights, KV pool and activations together, GiB.
    pub total_allocated_gb: Option<f64>,
    /// Share of device memory that the engine may take.
    pub gpu_memory_utilization: Option<f64>,
    /// Longest sequence, tokens.
    pub max_model_len: Option<u64>,
    /// Requests of that length that fit, as the log prints it.
    pub max_concurrency: Option<f64>,
    /// Whether CUDA graphs are used.
    pub cuda_graphs_enabled: Option<bool>,
    /// Preemptions while the load ran.
    pub preemptions: Option<u64>,
}

/// Whether a load ran and not one reading of the gauges fell into it: that they show nothing in
/// use means nothing then.
pub(super) fn load_missed(capture: &Capture) -> bool {
    capture.request.bench != "none"
        && !capture.gauges.is_empty()
        && capture.gauges.iter().all(|g| {
            g.requests_running.unwrap_or(0) == 0
                && g.requests_waiting.unwrap_or(0) == 0
                && g.kv_cache_usage.unwrap_or(0.0) == 0.0
        })
}

impl InternalMetrics {
    pub(super) fn reported_metrics(
        o: &CaptureObservation<'_>,
        effective: &BTreeMap<String, String>,
        pool: &ExactPool,
    ) -> InternalMetrics {
        let (capture, log, probes, ranks) = (o.capture, &o.log, &o.probes, o.engine_ranks());
        let count = |key: FactKey| log.number(key).filter(|v| *v >= 0.0).map(|v| v as u64);
        // Pools of engines beside each other add up; a pool's own figure is its smallest rank's.
        let summed = |key: FactKey| match &log.fact(key)?.value {
            FactValue::List(engines) => Some(engines.iter().sum::<f64>() as u64),
            _ => count(key),
        };
        let total = |key: FactKey| ranks.total_over_ranks(&log.fact(key)?.value);
        let least = |key: FactKey| match &log.fact(key)?.value {
            FactValue::List(all) => all.iter().copied().reduce(f64::min),
            _ => log.number(key),
        };
        let kv_bytes = probes
            .kv_cache_bytes
            .and_then(|bytes| bytes.checked_mul(ranks.per_engine))
            .map(to_gib)
            .or_else(|| {
                let rounded = total(key::kv_cache_gib)?;
                let exact = pool.exact_figure_behind(bytes_of_gib(rounded)?, ranks.rank_count());
                Some(exact.map_or(rounded, |(bytes, _)| gib_signed(bytes)))
            });
        let usage = capture
            .gauges
            .iter()
            .filter_map(|g| g.kv_cache_usage)
            .reduce(f64::max)
            .filter(|_| !load_missed(capture));
        let weights = total(key::weights_gib);
        let activations = total(key::activation_peak_gib);
        let graphs = total(key::cuda_graph_gib);
        let preemptions = {
            let counts: Vec<u64> = capture
                .gauges
                .iter()
                .filter_map(|g| g.preemptions)
                .collect();
            counts
                .first()
                .zip(counts.last())
                .map(|(first, last)| last.saturating_sub(*first))
        };
        InternalMetrics {
            num_gpu_blocks: probes
                .num_gpu_blocks
                .or_else(|| summed(key::kv_pool_blocks))
                .or_else(|| count(key::num_gpu_blocks)),
            num_cpu_blocks: probes.num_cpu_blocks.or_else(|| count(key::num_cpu_blocks)),
            block_size: probes.block_size.or_else(|| count(key::block_size)),
            total_gpu_kv_cache_tokens: probes
                .kv_cache_tokens
                .or_else(|| summed(key::kv_pool_tokens))
                .or_else(|| count(key::kv_cache_tokens)),
            total_gpu_kv_cache_gb: kv_bytes,
            kv_cache_used_gb: kv_bytes.zip(usage).map(|(pool, share)| pool * share),
            kv_cache_usage_peak: usage,
            attention_backend: log.text(key::attention_backend).map(str::to_owned),
            model_weights_gb: weights,
            activations_gb: activations,
            cuda_graphs_gb: graphs,
            total_allocated_gb: weights
                .zip(kv_bytes)
                .map(|(w, k)| w + k + activations.unwrap_or(0.0)),
            gpu_memory_utilization: probes
                .gpu_memory_utilization
                .or_else(|| log.number(key::gpu_memory_utilization))
                .or_else(|| {
                    // The log has the arguments, and this one is not among them.
                    let default = |f: &Finding| f.code == DEFAULT_UTILIZATION;
                    log.findings.iter().find(|f| default(f))?;
                    let version = probes
                        .engine_version
                        .as_ref()
                        .or(log.engine_version.as_ref());
                    (o.engine?.default_memory_fraction)(version?)
                }),
            max_model_len: probes.max_model_len.or_else(|| count(key::max_model_len)),
            max_concurrency: least(key::max_concurrency),
            cuda_graphs_enabled: graphs_enabled(log, effective),
            preemptions,
        }
    }

    pub(super) fn note_null_reasons(
        &self,
        parts: &Breakdown,
        o: &CaptureObservation<'_>,
        out: &mut NullReasons,
    ) {
        let c = o.capture;
        // Why the usage of the pool is not known.
        let no_reading = || match c.mode {
            _ if load_missed(c) && read_under_load(o) => {
                "no request was in flight when the engine's metrics were read: each was answered between two readings; longer ones (--output-len) or more concurrent ones (--request-rate) show it"
            }
            _ if load_missed(c) => {
                "the load was over before the engine's metrics were read a second later: a longer one (--num-prompts) shows it"
            }
            _ => no_gauge(c),
        };
        let is_measured = c.marks.iter().any(|m| m.phase == Phase::Bench);
        let unmeasured = c.end.unmeasured().filter(|_| !is_measured);
        let no_usage = || match &unmeasured {
            Some(why) => why.clone(),
            None => no_reading().to_owned(),
        };
        // Why the engine did not report it; `hint` follows where it applies.
        let hint = |applies: bool, hint: &str| {
            let reason = o.not_reported();
            if applies {
                format!("{reason}; {hint}")
            } else {
                reason
            }
        };
        let known = |key: FactKey| o.log.has(key) || o.probes.values.contains_key(key.name());
        let usage_known = || c.gauges.iter().any(|g| g.kv_cache_usage.is_some());
        null_reasons!(out, "vllm_internal_metrics", self;
            kv_cache_used_gb => if !load_missed(c) && usage_known() {
                "its share of the pool is known, the size of the pool is not".to_owned()
            } else {
                no_usage()
            };
            kv_cache_usage_peak => no_usage();
            preemptions => no_gauge(c);
            total_allocated_gb => {
                let parts = [(self.model_weights_gb, "weights"), (self.total_gpu_kv_cache_gb, "KV pool")];
                let missing = parts.iter().filter(|(value, _)| value.is_none()).map(|(_, name)| *name);
                let missing: Vec<&str> = missing.collect();
                format!("needs the engine's own figures; unknown: {}", missing.join(" and "))
            };
            cuda_graphs_enabled => if known(key::enforce_eager) {
                "they are not switched off, and its log does not show that they were captured".into()
            } else {
                o.not_reported()
            };
            num_cpu_blocks => hint(true, "engines of vLLM's V1 design have no blocks on the host");
            block_size => hint(
                o.log.has(key::kv_cache_tokens),
                "it prints the pool in tokens, and a block size only where --block-size sets one",
            );
            cuda_graphs_gb => hint(o.is_host(0), "on CPU there are none");
            model_weights_gb => hint(parts.model_weights_gb.is_some(), "see memory_breakdown.model_weights_gb");
            activations_gb => hint(parts.activations_gb.is_some(), "see memory_breakdown.activations_gb");
            total_gpu_kv_cache_gb => hint(parts.kv_cache_gb.is_some(), "see memory_breakdown.kv_cache_gb");
            num_gpu_blocks, total_gpu_kv_cache_tokens, attention_backend, gpu_memory_utilization, max_model_len,
            max_concurrency => o.not_reported();
        );
    }
}

/// Why a figure of the engine's gauges is not known.
fn no_gauge(c: &Capture) -> &'static str {
    match c.mode {
        Mode::Idle => "an in-process bench has no metrics endpoint to read it from",
        _ if c.gauges.is_empty() => "the engine's metrics were not read while the load ran",
        _ => "not in the engine's metrics",
    }
}

/// Whether a reading of the gauges fell into the measured part of a load.
fn read_under_load(o: &CaptureObservation<'_>) -> bool {
    let loads = || {
        let repeats = o.repeats.iter();
        repeats.filter_map(|r| Some((r.bench_at?, r.window.to)))
    };
    let mut gauges = o.capture.gauges.iter();
    gauges.any(|g| loads().any(|(from, to)| (from..=to).contains(&g.at_ns)))
}

/// Whether CUDA graphs are in use. That they were not switched off does not say so: a capture must
/// have been seen, and releases that print no size of it print its end.
fn graphs_enabled(log: &LogReport, effective: &BTreeMap<String, String>) -> Option<bool> {
    let eager = effective.get("enforce_eager");
    let eager = eager.is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let value = |key: FactKey| log.fact(key).map(|f| &f.value);
    let is = |key: FactKey, word: FactValue| value(key) == Some(&word);
    let count = log.number(key::cuda_graphs);
    let none = count == Some(0.0)
        || is(key::use_cuda_graph, FactValue::Bool(false))
        || is(key::enable_cuda_graphs, FactValue::Bool(false))
        || is(key::device, FactValue::Text("cpu".into()));
    // By the log of any engine, or by SGLang's endpoint.
    let size = value(key::cuda_graph_gib).is_some()
        || (effective.get("cuda_graph_gib"))
            .and_then(|v| v.parse().ok())
            .is_some_and(|gib: f64| gib > 0.0);
    let captured = || {
        log.steps
            .iter()
            .any(|s| s.step == EngineStep::GraphsCaptured)
    };
    if size || count.is_some_and(|n| n > 0.0) || !none && captured() {
        return Some(true);
    }
    (none || eager).then_some(false)
}

/// Requested against effective settings.
pub(super) fn compare_settings(
    capture: &Capture,
    settings: &ServerSettings,
    log: &LogReport,
    probes: &ProbeFacts,
) -> Configuration {
    let mut requested = match capture.mode {
        // The in-process benches take plimsoll's flags, not the idle container's command.
        Mode::Idle => BTreeMap::new(),
        Mode::Serving | Mode::Started => settings.values.clone(),
    };
    let engine = EngineId::from_name(&capture.engine).ok();
    let ignored = engine.map_or_else(Vec::new, |engine| {
        ignored_settings(engine, capture.mode, &capture.request.settings)
    });
    if capture.mode == Mode::Idle {
        let asked = capture.request.settings.named().into_iter();
        let asked = asked.filter(|(name, _)| !ignored.iter().any(|i| i.setting == *name));
        requested.extend(asked.map(|(name, value)| (name.to_owned(), value)));
    }

    let mut effective: BTreeMap<String, String> = BTreeMap::new();
    for key in [
        key::model,
        key::dtype,
        key::quantization,
        key::kv_cache_dtype,
        key::max_model_len,
        key::max_num_batched_tokens,
        key::max_num_seqs,
        key::tensor_parallel_size,
        key::pipeline_parallel_size,
        key::data_parallel_size,
        key::gpu_memory_utilization,
        key::enforce_eager,
    ] {
        if let Some(fact) = log.fact(key) {
            effective.insert(key.name().to_owned(), plain_text(&fact.value));
        }
    }
    // The endpoints speak of what runs now; the log of what was announced.
    effective.extend(probes.values.clone());
    for (key, value) in [
        ("max_model_len", probes.max_model_len.map(|v| v.to_string())),
        ("block_size", probes.block_size.map(|v| v.to_string())),
        (
            "gpu_memory_utilization",
            probes.gpu_memory_utilization.map(|v| v.to_string()),
        ),
        ("served_model_name", probes.served_model_name.clone()),
        ("model", probes.model.clone()),
    ] {
        if let Some(value) = value {
            effective.insert(key.to_owned(), value);
        }
    }

    let mut differences: Vec<Difference> = requested
        .iter()
        .filter_map(|(setting, asked)| {
            let got = effective.get(setting)?;
            (!same::setting(asked, got)).then(|| Difference {
                setting: setting.clone(),
                requested: asked.clone(),
                effective: got.clone(),
            })
        })
        .collect();
    differences.extend(another_model(capture, settings, log, probes));
    Configuration {
        requested,
        effective,
        differences,
        ignored,
    }
}

/// The model that was requested and that the engine knows by no such name: a forgotten variable, or
/// another container than was meant.
fn another_model(
    capture: &Capture,
    settings: &ServerSettings,
    log: &LogReport,
    probes: &ProbeFacts,
) -> Option<Difference> {
    let asked = capture.request.model.as_deref()?;
    if capture.mode == Mode::Idle {
        return None;
    }
    let known = [
        probes.model.as_deref(),
        probes.served_model_name.as_deref(),
        settings.model.as_deref(),
        settings.served_model_name.as_deref(),
        log.text(key::model),
    ];
    let mut known = known.into_iter().flatten().peekable();
    let first = *known.peek()?;
    (!known.any(|name| same::maybe_model(asked, name))).then(|| Difference {
        setting: "model".to_owned(),
        requested: asked.to_owned(),
        effective: first.to_owned(),
    })
}

fn plain_text(value: &FactValue) -> String {
    match value {
        FactValue::List(v) => v.iter().map(f64::to_string).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The engine's metadata.
pub(super) fn engine_metadata(
    capture: &Capture,
    engine: Option<EngineId>,
    log: &LogReport,
    probes: &ProbeFacts,
) -> EngineMetadata {
    EngineMetadata {
        engine_type: capture.engine.clone(),
        engine_version: probes
            .engine_version
            .clone()
            .or_else(|| log.engine_version.clone()),
        simulated: engine.is_some_and(|e| e.simulated)
            || crate::engine::reference::labelled(&capture.container),
        evidence: capture.engine_evidence.clone(),
    }
}

/// GiB printed in a log as bytes; `None` for an impossible number of bytes.
pub(super) fn bytes_of_gib(gib: f64) -> Option<i64> {
    let bytes = (gib * GIB).round();
    (bytes.abs() < i64::MAX as f64).then_some(bytes as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_report_their_graphs_in_their_own_words() {
        let of = |engine: &str, log: &str| {
            let mut parser = crate::engine::parser_of(EngineId::from_name(engine).unwrap());
            log.lines().for_each(|l| parser.line(l.as_bytes(), None));
            graphs_enabled(&parser.report(), &BTreeMap::new())
        };
        let warmed = "Setting max batch total tokens to 50";
        let tgi = |line: &str| of("tgi", &format!("{line}\n{warmed}"));
        assert_eq!(tgi("Cuda Graphs are enabled for sizes [2, 1]"), Some(true));
        let disabled = "Cuda Graphs are disabled (CUDA_GRAPHS=[]).";
        assert_eq!(tgi(disabled), Some(false), "its capture is over at once");
        let began = "Cuda Graphs are enabled for sizes [2, 1]\nDecode cuda graph warmup failed";
        assert_eq!(tgi(began), None);
        let line = "[2031-01-02 03:04:13 TP0] Capture cuda graph end. Time elapsed: 2.00 s.";
        assert_eq!(of("sglang", line), Some(true));
        assert_eq!(of("reference", ""), None);
    }
}
