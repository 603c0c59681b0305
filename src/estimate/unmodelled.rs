//! What moves memory and is not modelled: flags, versions, machines and parts of models, each named, with the terms it
//! moves. Such a term has no interval from other cases, and what can add memory never "fits".

use super::activation::Activation;
use super::arithmetic::sum;
use super::encoder::{self, Encoder};
use super::engines::{self, Generation, Settings, vllm};
use super::pooling;
use super::settings::json_value;
use super::speculation::{self, Proposer, Speculation};
use super::weights::shard::offloaded;
use super::{Band, Component, Deployment, EngineId, Estimate, Model, Term, Unknown, Version};
use crate::engine::settings::{Setting, flag_names};
use crate::tables::read_table;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The table that ships.
const TABLE: &str = include_str!("../../configs/engine-flags.yaml");

/// Tokens of the longest step with images that was measured.
const LONGEST_IMAGE_STEP: u64 = 65_536;

/// How far the activations of attention over compressed keys may lie from what is computed, 1.5 GiB in bytes: 2.99 GiB of DeepSeek-V4-Flash
/// where 2.34 are computed (vLLM 0.26 on B300, a draft beside), 2.03 on each of four GB10.
const COMPRESSED_PEAK: u64 = 3 << 29;

/// In which direction something moves what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moves {
    /// More is needed.
    Up,
    /// Less is needed.
    Down,
    /// More or less.
    Either,
}

impl Moves {
    /// More may be needed than is computed.
    pub fn adds(self) -> bool {
        self != Moves::Down
    }

    /// Less may be needed than is computed.
    pub fn lowers(self) -> bool {
        self != Moves::Up
    }
}

/// Something that moves memory and is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmodelled {
    /// `--cpu-offload-gb`, `speculative decoding (mtp)`.
    pub name: String,
    /// In which direction.
    pub moves: Moves,
    /// The terms that it moves; none for memory outside the GPU and for a length that the engine chooses.
    pub terms: Vec<Component>,
    /// The part of a model that it is about: of a model without it nothing moves.
    #[serde(skip)]
    part: Option<ModelPart>,
    /// The most that it moves, bytes: the interval is that much wider, and the figure stays.
    #[serde(skip)]
    most: Option<u64>,
}

/// A part of a model or of a deployment that others do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModelPart {
    /// An encoder of images or sound.
    Tower,
    /// Recurrent states.
    States,
    /// Experts.
    Experts,
    /// Layers that keep a window, or states beside attention.
    Windows,
    /// What several GPUs say to each other.
    Ranks,
    /// Layers that keep something of a token.
    Cached,
}

impl ModelPart {
    fn is_in(self, model: &Model, deployment: &Deployment) -> bool {
        match self {
            ModelPart::Tower => !deployment.language_only && encoder::has_encoder(model),
            ModelPart::States => model.is_recurrent(),
            ModelPart::Ranks => deployment.tp > 1,
            ModelPart::Cached => !pooling::keeps_nothing(model, deployment),
            ModelPart::Experts => model.experts_per_token.is_some_and(|n| n > 0),
            ModelPart::Windows => {
                model.is_recurrent() || model.mixers.iter().any(|m| m.window().is_some())
            }
        }
    }
}

impl Unmodelled {
    /// From its parts.
    pub fn new(name: impl Into<String>, moves: Moves, terms: &[Component]) -> Unmodelled {
        Unmodelled {
            name: name.into(),
            moves,
            terms: terms.to_vec(),
            part: None,
            most: None,
        }
    }

    /// More may be needed than is computed, and it is not known how much.
    fn adds(&self) -> bool {
        self.most.is_none() && self.moves.adds()
    }

    /// Less may be needed than is computed, and it is not known how much.
    fn lowers(&self) -> bool {
        self.most.is_none() && self.moves.lowers()
    }

    /// A draft model that is not computed with.
    pub fn draft_model(name: String) -> Unmodelled {
        Unmodelled::new(format!("the draft model `{name}`"), Moves::Up, MODEL)
    }

    /// Speculative decoding by this method, or with this draft model.
    pub(super) fn speculation(method: &str) -> Unmodelled {
        Unmodelled::new(format!("speculative decoding ({method})"), Moves::Up, MODEL)
    }

    /// vLLM's `--max-model-len auto`.
    pub fn fitted_length() -> Unmodelled {
        let name = "--max-model-len auto, which fits the length to the memory";
        Unmodelled::new(name, Moves::Down, &[])
    }

    /// A flag of which nothing is known.
    fn unknown_flag(engine: EngineId, own: &str, flag: &str) -> Unmodelled {
        let name = match near_flag(engine, own) {
            Some(near) => format!(
                "{flag} ({} has no such flag: did you mean --{}?)",
                engine.shown(),
                near.replace('_', "-")
            ),
            None => format!("{flag} (unknown flag)"),
        };
        Unmodelled::new(name, Moves::Either, ALL)
    }

    /// Settings that a line names and that cannot be read here.
    pub fn unread(name: String) -> Unmodelled {
        Unmodelled::new(name, Moves::Either, ALL)
    }

    /// A tower for images or sound.
    fn is_tower(&self) -> bool {
        self.name.starts_with("the vision tower") || self.name.starts_with("the audio tower")
    }

    /// One sentence without a full stop: `not modelled: --cpu-offload-gb, which may lower weights`.
    pub fn sentence(&self) -> String {
        let verb = match self.moves {
            Moves::Up => "may raise",
            Moves::Down => "may lower",
            Moves::Either => "may change",
        };
        let terms: Vec<String> = self.terms.iter().map(|t| t.words().to_owned()).collect();
        if terms.is_empty() && self.moves == Moves::Up {
            format!(
                "not modelled: {}, which takes memory of the host",
                self.name
            )
        } else if terms.is_empty() {
            format!("not modelled: {}", self.name)
        } else {
            let most = self.most.map_or(String::new(), |most| {
                format!(" by up to {}", crate::units::Bytes(most))
            });
            format!(
                "not modelled: {}, which {verb} {}{most}",
                self.name,
                terms.join(", ")
            )
        }
    }
}

/// Parts of the names of flags of speculative decoding.
const SPECULATION: &[&str] = &[
    "--spec",
    "--num-speculative",
    "--ngram",
    "--draft",
    "--model-draft",
    "--lookup-cache",
    "eagle",
];

/// The terms that depend on how a model runs, not on its geometry.
pub(super) const RUNNING: &[Component] = &[
    Component::Activation,
    Component::CudaGraphs,
    Component::NonTorch,
];
/// All terms of an estimate but a draft's.
pub(super) const ALL: &[Component] = &[
    Component::Weights,
    Component::KvCache,
    Component::Activation,
    Component::CudaGraphs,
    Component::NonTorch,
];
const MODEL: &[Component] = &[
    Component::Weights,
    Component::KvCache,
    Component::Activation,
    Component::CudaGraphs,
];

/// The table as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    engines: BTreeMap<String, WrittenEngine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEngine {
    versions: Option<[String; 2]>,
    #[serde(default)]
    least_compute: BTreeMap<String, f64>,
    #[serde(default)]
    triton_attention: String,
    #[serde(default)]
    no_float16: BTreeMap<String, String>,
    model: String,
    no_memory: String,
    #[serde(default)]
    host: String,
    #[serde(default)]
    computed: String,
    #[serde(default)]
    shown: BTreeMap<String, String>,
    #[serde(default)]
    no_graphs: Vec<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    gone: BTreeMap<String, String>,
    #[serde(default)]
    absent: BTreeMap<String, String>,
    not_modelled: Vec<WrittenMove>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMove {
    flags: String,
    moves: Moves,
    terms: Vec<Component>,
    unless: Option<Vec<String>>,
    /// It chooses kernels, or how ranks speak with each other.
    #[serde(default)]
    kernels: bool,
    /// It is about CUDA graphs alone: with `--enforce-eager` it moves nothing.
    #[serde(default)]
    of_graphs: bool,
    part: Option<ModelPart>,
    /// The most that it moves, MiB.
    most_mib: Option<u64>,
}

/// What a flag does to the GPU's memory.
enum Effect<'a> {
    /// It is computed, or moves nothing.
    None,
    /// It takes memory of the host, or moves the GPU's, and is computed.
    Host,
    /// It moves memory, and is not computed.
    Moves(&'a WrittenMove),
    /// No engine of this kind is known to have it.
    Unknown,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static READ: LazyLock<Written> = LazyLock::new(|| read_table(TABLE));

fn engine_table(engine: EngineId) -> Option<&'static WrittenEngine> {
    let mut engines = READ.engines.iter();
    let found = engines.find(|(name, _)| EngineId::from_name(name) == Ok(engine));
    found.map(|(_, table)| table)
}

/// The least compute capability of NVIDIA's that the engine needs for a quantisation, a type of values or `any` model, where
/// the GPU has less.
pub(super) fn missing_compute(deployment: &Deployment, name: &str) -> Option<f64> {
    let least = *engine_table(deployment.engine)?.least_compute.get(name)?;
    let own = engines::gpu_model(deployment)?.compute_capability()?;
    (own < least).then_some(least)
}

/// Whether the engine computes the attention of models of this kind by Triton on GPUs before Hopper.
pub(super) fn computes_by_triton(engine: EngineId, kind: &str) -> bool {
    let kinds = engine_table(engine).map_or("", |table| &table.triton_attention);
    lists(kinds, kind)
}

/// Whether a text of the table has this word.
fn lists(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|w| w == word)
}

/// Whether the engine, which is vLLM, refuses to compute models of this kind in float16.
pub(super) fn lacks_float16(deployment: &Deployment, kind: &str) -> bool {
    let Some(table) = engine_table(deployment.engine) else {
        return false;
    };
    let version = vllm::version(deployment);
    table.no_float16.iter().any(|(since, kinds)| {
        Version::leading(since).is_some_and(|v| version >= v) && lists(kinds, kind)
    })
}

/// The engine's flag that a misspelt one is most like: a slip away, not a part of it.
fn near_flag(engine: EngineId, flag: &str) -> Option<String> {
    nearest(flag, flag_names(engine))
}

/// The name that is a slip away from this one, or goes on where it ends.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = known.filter_map(|k| {
        let edits = strsim::damerau_levenshtein(name, k);
        let most = name.len().min(k.len()) / 4;
        (k.len() > 1 && edits > 0 && edits <= most).then_some((edits, k))
    });
    near.min().map(|(_, k)| k.to_owned())
}

fn effect(engine: EngineId, flag: &str) -> Effect<'static> {
    let Some(table) = engine_table(engine) else {
        return Effect::None;
    };
    let has = |words: &String| lists(words, flag);
    if let Some(found) = table.not_modelled.iter().find(|m| has(&m.flags)) {
        Effect::Moves(found)
    } else if has(&table.host) || has(&table.computed) {
        Effect::Host
    } else if Setting::of_engine(engine, flag).is_some()
        || has(&table.model)
        || has(&table.no_memory)
    {
        Effect::None
    } else {
        Effect::Unknown
    }
}

/// The common name of a flag or variable that moves memory or places the model, for `--show-settings`.
pub fn shown_name(engine: EngineId, flag: &str) -> Option<String> {
    let own = flag.split('.').next().unwrap_or(flag);
    let shown = engine_table(engine).and_then(|t| t.shown.get(own));
    if let Some(shown) = shown {
        return Some(shown.clone());
    }
    let variable = own.chars().any(|c| c.is_ascii_uppercase());
    if let Some(setting) = Setting::of_engine(engine, own) {
        // A variable without a flag is among those that move memory.
        return (!variable || setting.flag.is_some()).then(|| setting.name.clone());
    }
    match effect(engine, own) {
        Effect::Host => Some(flag.to_owned()),
        Effect::Moves(found) if !found.kernels && !variable => Some(flag.to_owned()),
        _ => None,
    }
}

/// The flags that switch CUDA graphs off, where all of them have the value for it.
pub(super) fn without_graphs(
    engine: EngineId,
    values: &BTreeMap<String, String>,
) -> Option<&'static BTreeMap<String, Vec<String>>> {
    let values = with_parts(values);
    let all = engine_table(engine)?.no_graphs.iter();
    let mut all = all.filter(|flags| {
        flags.iter().all(|(name, off)| {
            let value = values.get(name).map(|v| v.trim().to_ascii_lowercase());
            value.is_some_and(|v| off.contains(&v))
        })
    });
    all.next()
}

/// The values, some objects as their parts: `compilation_config.cudagraph_mode`.
pub(super) fn with_parts(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = values.clone();
    for whole in ["compilation_config", "hf_overrides"] {
        if let Value::Object(parts) = json_value(values, whole) {
            all.remove(whole);
            let parts = parts
                .iter()
                .map(|(k, v)| (format!("{whole}.{k}"), text_of(v)));
            all.extend(parts);
        }
    }
    all
}

/// A sentence for each flag that the engine's release, or the newest that is known, does not have: it refuses to start with
/// it. `sure`: only those that no release of the same minor version has, since a row may be right from its last patch on.
pub fn foreign_flags(
    engine: EngineId,
    version: Option<Version>,
    values: &BTreeMap<String, String>,
    sure: bool,
) -> Vec<String> {
    let Some(table) = engine_table(engine) else {
        return Vec::new();
    };
    let newest = || Version::leading(&table.versions.as_ref()?[1]);
    let Some(version) = version.or_else(newest) else {
        return Vec::new();
    };
    let in_release = |name: &str| {
        let from = |(v, words): (&String, &String)| {
            let minor = |v: Version| (v.major, v.minor);
            Version::leading(v)
                .is_some_and(|v| version >= v && (!sure || minor(version) > minor(v)))
                && lists(words, name)
        };
        let until = |(v, words): (&String, &String)| {
            Version::leading(v).is_some_and(|v| Version { post: 0, ..version } <= v)
                && lists(words, name)
        };
        !table.gone.iter().any(from) && !table.absent.iter().any(until)
    };
    let names = values.keys().filter(|name| !in_release(name));
    names
        .map(|name| {
            format!(
                "{} {version} has no --{}: it refuses to start with it",
                engine.shown(),
                name.replace('_', "-")
            )
        })
        .collect()
}

/// The flags that are in no list of the engine.
pub fn unknown_flags(engine: EngineId, values: &BTreeMap<String, String>) -> Vec<String> {
    let unknown = |name: &&String| {
        let own = name.split('.').next().unwrap_or(name);
        let variable = own.chars().any(|c| c.is_ascii_uppercase());
        engine_table(engine).is_some()
            && !variable
            && matches!(effect(engine, own), Effect::Unknown)
    };
    let flags = values.keys().filter(unknown);
    flags
        .map(|name| format!("--{}", name.replace('_', "-")))
        .collect()
}

/// What of an engine's flags, name with underscores → value, moves memory and is not computed; and the flags that are
/// in no list of the engine.
pub fn of_flags(engine: EngineId, values: &BTreeMap<String, String>) -> Vec<Unmodelled> {
    let off = without_graphs(engine, values);
    let eager = Setting::named("enforce_eager").is_some_and(|setting| {
        let set = setting.value(engine, values);
        set.into_iter().any(|(_, value)| value == "true")
    });
    let values = with_parts(values);
    let set = values
        .iter()
        .filter(|(name, _)| !off.is_some_and(|off| off.contains_key(*name)));
    let found = set.filter_map(|(name, value)| {
        // `--compilation-config.mode` is a part of a flag; variables of the environment are in capitals.
        let own = name.split('.').next().unwrap_or(name);
        let variable = own.chars().any(|c| c.is_ascii_uppercase());
        let dashed = name.replace('_', "-");
        let flag = match value.as_str() {
            _ if variable => name.clone(),
            // The one engine with a `--no-` form of its switches.
            "false" if engine == EngineId::Vllm => format!("--no-{dashed}"),
            _ => format!("--{dashed}"),
        };
        let part_is_listed = !matches!(effect(engine, name), Effect::Unknown);
        // For a part that is not listed, no value is known with which nothing moves.
        let knows_unset = part_is_listed || !name.contains('.');
        match effect(engine, if part_is_listed { name } else { own }) {
            Effect::None | Effect::Host => None,
            Effect::Unknown if variable => None,
            Effect::Unknown => Some(Unmodelled::unknown_flag(engine, own, &flag)),
            Effect::Moves(found) if knows_unset && is_unset(value, found.unless.as_deref()) => None,
            Effect::Moves(found) if found.of_graphs && (eager || off.is_some()) => None,
            Effect::Moves(found) => Some(Unmodelled {
                part: found.part,
                most: found.most_mib.map(|mib| mib << 20),
                ..Unmodelled::new(flag, found.moves, &found.terms)
            }),
        }
    });
    found.collect()
}

/// A value with which nothing moves.
fn is_unset(value: &str, unless: Option<&[String]>) -> bool {
    let value = value.trim().to_ascii_lowercase();
    let none = ["", "none", "null"].contains(&value.as_str());
    none || match unless {
        Some(values) => values.iter().any(|v| v.eq_ignore_ascii_case(&value)),
        None => ["auto", "false", "0", "0.0", "{}", "[]"].contains(&value.as_str()),
    }
}

/// What is asked for beside the settings that have a field of their own.
#[derive(Debug, Default)]
pub struct Besides {
    /// What is not modelled, with all flags of speculative decoding as one.
    pub unmodelled: Vec<Unmodelled>,
    /// Speculative decoding that is computed.
    pub speculation: Option<Speculation>,
    /// The name of a draft that is a model of its own, which is computed too.
    pub draft: Option<String>,
}

/// What of an engine's settings is not modelled, and how it speculates.
pub fn of_settings(engine: EngineId, values: &BTreeMap<String, String>) -> Besides {
    let (drafts, unmodelled): (Vec<_>, Vec<_>) = (of_flags(engine, values).into_iter())
        .partition(|u| SPECULATION.iter().any(|word| u.name.contains(word)));
    let mut found = Besides {
        unmodelled,
        ..Besides::default()
    };
    let mut config = json_value(values, "speculative_config");
    // vLLM takes a key of it as a flag too: `--speculative-config.method mtp`.
    for (name, text) in values {
        if let Some(key) = name.strip_prefix("speculative_config.") {
            if !config.is_object() {
                config = Value::Object(Map::new());
            }
            config[key] = serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into());
        }
    }
    let set = |name: &&str| {
        let value = values.get(*name)?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let first = |names: &[&str], key: &str| {
        let own = names.iter().find_map(&set);
        own.or_else(|| Some(config.get(key)?.as_str()?.to_owned()))
    };
    let methods = [&speculation::METHODS[..], &["speculate"]].concat();
    let method = first(&methods, "method");
    let draft = first(&speculation::MODELS, "model");
    let method = method.filter(|m| !(draft.is_some() && m == "draft_model"));
    found.draft = draft.filter(|_| method.is_none());
    if drafts.is_empty() || found.draft.is_some() {
        return found;
    }
    found.speculation = Speculation::read(engine, values, &config);
    if found.speculation.is_none() {
        let named = method.as_deref().unwrap_or("its draft is not described");
        found.unmodelled.push(Unmodelled::speculation(named));
    }
    found
}

/// The keys of a batch's line that are flags of the engine, with their values.
pub fn flags_of_case(engine: EngineId, line: &Value) -> BTreeMap<String, String> {
    // `config` is the model's here; other keys of a line are its author's own.
    let is_flag = |key: &str| key != "config" && !matches!(effect(engine, key), Effect::Unknown);
    let pairs = line.as_object().into_iter().flatten();
    pairs
        .map(|(key, value)| match key.as_str() {
            "speculative" => ("speculative_config", value),
            key => (key, value),
        })
        .filter(|(key, value)| {
            // An engine without the flag speculates all the same, by flags of its own.
            is_flag(key) || *key == "speculative_config" && !is_unset(&text_of(value), None)
        })
        .map(|(key, value)| (key.to_owned(), text_of(value)))
        .collect()
}

/// A JSON value as a command line would have it.
fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A version that cannot be parsed: the newest rules are used, which need not be its.
pub fn unclear_version(version: &str) -> Unmodelled {
    let name = format!("the engine's version: `{version}` does not identify it");
    Unmodelled::new(name, Moves::Either, RUNNING)
}

/// All that moves the memory of this deployment and is not modelled.
pub(super) fn of(
    model: &Model,
    deployment: &Deployment,
    settings: &Settings,
    activation: &Activation,
    from_files: bool,
) -> Vec<Unmodelled> {
    use Component::{Activation as Peak, CudaGraphs, KvCache, Weights};
    use Moves::{Either, Up};
    let d = deployment;
    let served = !d.engine.takes_what_is_asked();
    let mut all = d.unmodelled.clone();
    all.retain(|u| u.part.is_none_or(|part| part.is_in(model, d)));
    // The file of an encoder that the model's configuration describes.
    let described = model.tensors.iter().any(|t| t.role == "vision");
    if d.engine == EngineId::LlamaCpp && (described || d.language_only) {
        all.retain(|u| !matches!(u.name.as_str(), "--mmproj" | "--mmproj-url"));
    }
    // Layers on the processor have part of their inputs, and in long prompts their weights, in the GPU's compute buffer.
    if offloaded(model.mixers.len() as u64, d).is_some() {
        let name = "the compute buffer beside layers on the processor".to_owned();
        all.push(Unmodelled::new(name, Up, &[Peak]));
    }
    // Files name each tensor: what the configuration leaves open of the weights is known there.
    for part in &model.unmodelled {
        let known = |t: &&Component| !(from_files && **t == Weights);
        let terms: Vec<Component> = part.terms.iter().filter(known).copied().collect();
        let left_out = d.language_only && part.is_tower();
        if !terms.is_empty() && !left_out {
            all.push(Unmodelled::new(&part.name, part.moves, &terms));
        }
    }
    if let Some((newest, version)) = newer(d) {
        let name = format!("version {version}: rules are known up to {newest}");
        all.push(Unmodelled::new(name, Either, RUNNING));
    }
    let machine =
        engines::gpu_model(d).filter(|m| m.shares_host.is_some_and(|s| s.stopped.is_none()));
    if let Some(machine) = machine {
        let name = format!("memory that {} shares with its host", machine.name);
        let measured = machine.shares_host.is_some_and(|s| s.off.is_some());
        let terms = if measured { &[] } else { RUNNING };
        all.push(Unmodelled::new(name, Either, terms));
    }
    // Of vLLM two runs with two stages were measured, and agree.
    if d.pp > 1 && served && d.engine != EngineId::Vllm {
        all.push(Unmodelled::new("pipeline parallelism", Either, ALL));
    }
    if let Some(asked) = &d.speculation {
        let lacks = asked.proposer == Proposer::Predictor && model.predictor.mixers.is_empty();
        match asked.proposer {
            _ if lacks => all.push(Unmodelled::speculation(&asked.method)),
            // What llama.cpp keeps of a state to go back to, where tokens are only looked up.
            Proposer::Lookup if d.engine == EngineId::LlamaCpp && model.is_recurrent() => {
                let name = format!("speculative decoding ({}) with states", asked.method);
                all.push(Unmodelled::new(name, Up, &[KvCache]));
            }
            _ => {}
        }
    }
    if d.engine == EngineId::Vllm && model.is_compressed() {
        let name = "the peak of attention over compressed keys";
        let most = Some(COMPRESSED_PEAK);
        all.push(Unmodelled {
            most,
            ..Unmodelled::new(name, Either, &[Peak])
        });
    }
    let mut put = |name: &str, moves, terms: &[Component]| {
        all.push(Unmodelled::new(name, moves, terms));
    };
    // Of dense models on vLLM runs with LoRA were measured, and agree.
    let experts = model.experts_per_token.is_some_and(|n| n > 0);
    if d.lora.is_some() && served && (experts || d.engine != EngineId::Vllm) {
        put("LoRA's buffers and graphs", Up, &[Peak, CudaGraphs]);
    }
    match activation.encoder {
        Encoder::Unknown => put("the peak of the encoder of images or sound", Up, &[Peak]),
        Encoder::Counted if settings.batched_tokens > LONGEST_IMAGE_STEP => {
            let name = format!("images in steps of more than {LONGEST_IMAGE_STEP} tokens");
            put(&name, Up, &[Peak]);
        }
        _ => {}
    }
    // Hybrids ran on V0 until 0.10.2, which keeps the states of all sequences beside the pool.
    let of_v0 = d.engine == EngineId::Vllm && d.vllm_v0 != Some(false);
    if of_v0 && model.is_recurrent() && vllm::version(d) < Version::new(0, 10, 2) {
        let name = "the states that the V0 engine keeps of its sequences";
        put(name, Up, &[KvCache, Peak]);
    }
    let pools = served && d.engine != EngineId::Vllm;
    let estimated = d.engine == EngineId::Sglang && d.speculation.is_none();
    if pools && model.is_recurrent() && !estimated {
        put("the engine's pool of recurrent states", Either, &[KvCache]);
    }
    let fp8 = d.kv_dtype.as_deref().is_some_and(|t| t.contains("fp8"));
    // SGLang's rows depend on the backend, which by default is another one on Blackwell and AMD's.
    let usual = matches!(
        engines::generation_of(d),
        Some(Generation::Hopper | Generation::Ampere | Generation::Ada)
    );
    let rows_known = d.engine == EngineId::Sglang && usual;
    if pools && fp8 && model.is_indexed() && !rows_known {
        let name = "rows of a sparse attention's cache in 8 bits";
        put(name, Either, &[KvCache]);
    }
    let padded = served && d.gpu.is_some() && engines::gpu_model(d).is_none();
    if padded && is_mxfp4(model, d) {
        put("how mxfp4 is padded on this GPU", Either, &[Weights]);
    }
    if pooling::is_asked(model, d) && !pooling::is_computed(model, d) {
        let name = "a runner that pools (embeddings, scores)";
        put(name, Either, &[KvCache, Peak, CudaGraphs]);
    }
    all.dedup();
    all
}

/// The newest release with known rules, and the deployment's where that is newer or older than all of these.
fn newer(deployment: &Deployment) -> Option<(&'static String, Version)> {
    let version = deployment.version?;
    let [first, last] = engine_table(deployment.engine)?.versions.as_ref()?;
    let (from, to) = (Version::leading(first)?, Version::leading(last)?);
    // Of a release without a patch all patches count.
    let patch = last.matches('.').count() > 1;
    let beyond = if patch {
        Version { post: 0, ..version } > to
    } else {
        (version.major, version.minor) > (to.major, to.minor)
    };
    (beyond || version < from).then_some((last, version))
}

fn is_mxfp4(model: &Model, deployment: &Deployment) -> bool {
    let named = deployment.quantization.as_deref().or(model.quant_method());
    named.is_some_and(|n| n.to_ascii_lowercase().contains("mxfp4"))
}

/// Whether a deployment fits where not all of it is modelled. `point` is by the figures that are computed; `least_exceeds`:
/// what is needed at least is more than there is.
pub fn settle(point: Option<bool>, unmodelled: &[Unmodelled], least_exceeds: bool) -> Option<bool> {
    match point {
        _ if least_exceeds => Some(false),
        Some(true) if unmodelled.iter().any(Unmodelled::adds) => None,
        Some(false) if unmodelled.iter().any(Unmodelled::lowers) => None,
        point => point,
    }
}

/// Takes what is not modelled out of an estimate: terms that it can raise are at least so much, terms that it can only
/// lower are at most so much, and whether it fits is as sure as the rest.
pub(super) fn apply(estimate: &mut Estimate, deployment: &Deployment, forecast: bool) {
    let unmodelled = estimate.unmodelled.clone();
    let on = |component| {
        unmodelled
            .iter()
            .filter(move |u| u.terms.contains(&component))
    };
    for term in &mut estimate.terms {
        limit(term, &on(term.component).collect::<Vec<_>>());
    }
    // The pool is what these leave.
    let counted: &[Component] = match deployment.engine {
        _ if deployment.kv_cache_memory.is_some() => &[],
        EngineId::LlamaCpp | EngineId::Transformers => &[],
        EngineId::Sglang => &[Component::Weights, Component::NonTorch],
        // The pool itself moves it in any case.
        EngineId::Vllm if forecast => ALL,
        _ => &[
            Component::Weights,
            Component::Activation,
            Component::NonTorch,
        ],
    };
    let direct: Vec<&Unmodelled> = on(Component::KvCache).collect();
    let counts = |t: &Component| *t == Component::KvCache || counted.contains(t);
    let moving = unmodelled.iter().filter(|u| u.terms.iter().any(counts));
    let most = sum(moving.clone().filter_map(|u| u.most));
    let moved: Vec<&Unmodelled> = moving.filter(|u| u.most.is_none()).collect();
    let adds = moved.iter().any(|u| u.adds());
    let budget = estimate.budget;
    let pool = estimate.term_mut(Component::KvCache);
    if let (Some(why), Some(pool)) = (reason(&moved).filter(|_| adds), pool) {
        if pool.bytes.is_ok() {
            pool.bytes = Err(why.clone());
        }
        // What takes more elsewhere leaves it less.
        if !counted.is_empty() {
            (pool.at_least, pool.band) = (None, None);
        }
        estimate.pool = Err(why.clone());
        estimate.max_concurrency = Err(why);
    } else if let Some(pool) = estimate.term_mut(Component::KvCache) {
        if let (Some(why), Ok(bytes)) = (reason(&moved), &pool.bytes) {
            let most = budget.unwrap_or(*bytes).max(*bytes);
            let low = pool.band.as_ref().map_or(*bytes, |b| b.low.min(*bytes));
            pool.band = Some(Band::new(low, most, 0, why.what));
        }
    }
    if let Some(pool) = estimate.term_mut(Component::KvCache) {
        pool.band = pool.band.take().map(|band| band.widened(most));
    }
    if let Some(why) = reason(&direct).filter(|_| direct.iter().any(|u| u.adds())) {
        estimate.layout = Err(why.clone());
        estimate.kv_bytes_per_token = Err(why);
    }
    if let Some(why) = estimate.terms.iter().find_map(|t| t.bytes.as_ref().err()) {
        estimate.total = Err(why.clone());
    }
    let least = estimate.least(deployment);
    let exceeds = estimate.fits != Some(true) && estimate.cannot_start(deployment);
    let settled = settle(estimate.fits, &unmodelled, exceeds);
    if exceeds && (estimate.fits.is_none() || !unmodelled.is_empty()) || settled != estimate.fits {
        estimate.reason = match settled {
            Some(_) => format!(
                "at least {} are needed, and the engine may take {}",
                crate::units::Bytes(least),
                crate::units::Bytes(estimate.budget.unwrap_or(0))
            ),
            None => {
                let all: Vec<&Unmodelled> = unmodelled.iter().collect();
                reason(&all).map_or_else(String::new, |why| why.what)
            }
        };
    }
    estimate.fits = settled;
}

/// Why a figure is not known.
fn reason(moved: &[&Unmodelled]) -> Option<Unknown> {
    let mut names: Vec<&str> = Vec::new();
    for name in moved.iter().map(|u| u.name.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let what = format!("not modelled: {}", names.join("; "));
    (!names.is_empty()).then(|| Unknown::new(what))
}

/// A term that is moved: its bound instead of an interval of other cases; where it is known how far, a wider interval.
fn limit(term: &mut Term, moved: &[&Unmodelled]) {
    let most = sum(moved.iter().filter_map(|u| u.most));
    term.band = term.band.take().map(|band| band.widened(most));
    let moved: Vec<&Unmodelled> = (moved.iter().copied())
        .filter(|u| u.most.is_none())
        .collect();
    let moved = moved.as_slice();
    let (Some(why), Ok(bytes)) = (reason(moved), term.bytes.clone()) else {
        return;
    };
    let band = term.band.take();
    if moved.iter().any(|u| u.adds()) {
        let lowers = moved.iter().any(|u| u.lowers());
        let low = band.map_or(bytes, |b| b.low.min(bytes));
        term.at_least = (!lowers).then_some(low);
        term.bytes = Err(why);
    } else {
        let high = band.map_or(bytes, |b| b.high.max(bytes));
        term.band = Some(Band::new(0, high, 0, why.what));
    }
}

/// Whether vLLM subtracts its forecast of the graphs from the pool.
pub fn forecasts(deployment: &Deployment) -> bool {
    deployment.engine == EngineId::Vllm && vllm::rule(deployment) == vllm::Rule::SnapshotAndGraphs
}

#[cfg(test)]
mod tests;
