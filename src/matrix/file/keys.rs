//! The keys of the file: their names, what each takes, and a sentence on each.

use super::super::expand::AxisKey;
use super::super::taken::Flag;

/// A key.
#[derive(Debug)]
pub struct KeySpec {
    /// Its name.
    pub name: &'static str,
    /// Other names that people write.
    pub aliases: &'static [&'static str],
    /// What it takes.
    pub kind: Kind,
    /// What it is; for the schema.
    pub about: &'static str,
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text or a list of texts.
    Texts,
    /// The same, and null among them.
    TextsOrNull,
    /// A whole number from 1 or a list of them.
    Counts,
    /// The same, and null among them.
    CountsOrNull,
    /// Numbers above 0 and at most 1, null among them.
    Shares,
    /// Numbers above 0, null among them.
    Rates,
    /// true, false or null, or a list of them.
    Flags,
    /// A text.
    Text,
    /// A size.
    Size,
    /// A length of time.
    Time,
    /// A whole number from 1.
    Count,
    /// A whole number from 0.
    CountFromZero,
    /// A number above 0.
    Number,
    /// true or false.
    Flag,
    /// GPUs.
    Gpus,
    /// A bench.
    Bench,
    /// A map of texts.
    Environment,
    /// A list of texts that are not split at commas.
    Volumes,
    /// A map of arguments.
    Arguments,
    /// A list of words, or a line of them.
    Words,
    /// Lists of names of axes.
    Zip,
    /// A list of maps, with one value for each key.
    Include,
    /// A list of maps, with one or several values for each key.
    Exclude,
    /// A map of an entry's keys.
    Entry,
    /// A list of them.
    Entries,
    /// `1`.
    Version,
}

const fn key(
    name: &'static str,
    aliases: &'static [&'static str],
    kind: Kind,
    about: &'static str,
) -> KeySpec {
    KeySpec {
        name,
        aliases,
        kind,
        about,
    }
}

/// Keys of the file itself.
pub const TOP: &[KeySpec] = &[
    key(
        "schema_version",
        &[],
        Kind::Version,
        "Version of this format: 1.",
    ),
    key(
        "name",
        &[],
        Kind::Text,
        "Name of the sweep, and of its folder. Without it: the file's.",
    ),
    key(
        "timeout",
        &[],
        Kind::Time,
        "Longest time for one cell, as 30m.",
    ),
    key(
        "health_timeout",
        &[],
        Kind::Time,
        "Longest time for an engine to serve, as 20m.",
    ),
    key(
        "defaults",
        &[],
        Kind::Entry,
        "Keys for every entry; an entry's own win.",
    ),
    key(
        "models",
        &[],
        Kind::Entries,
        "The entries: each a model with its settings and loads.",
    ),
];

/// Keys of an entry.
pub const ENTRY: &[KeySpec] = &[
    key(
        "model_id",
        &["hf_model_id"],
        Kind::Texts,
        "Model, as the engine knows it: an id or a path in the container.",
    ),
    key(
        "container_name",
        &[],
        Kind::Texts,
        "Container to measure in; it is there already.",
    ),
    key(
        "image",
        &[],
        Kind::Texts,
        "Image to start a container of, for each server configuration.",
    ),
    key(
        "preset",
        &[],
        Kind::Text,
        "Preset that says how to start the image.",
    ),
    key(
        "engine",
        &[],
        Kind::Text,
        "Engine, where it is not recognised.",
    ),
    key(
        "gpus",
        &[],
        Kind::Gpus,
        "GPUs of the started container: none, all, a count, or ids.",
    ),
    key(
        "amd",
        &[],
        Kind::Flag,
        "AMD GPUs for the started container.",
    ),
    key(
        "shm_size",
        &[],
        Kind::Size,
        "Size of /dev/shm of the started container.",
    ),
    key(
        "memory",
        &[],
        Kind::Size,
        "Memory limit of the started container.",
    ),
    key(
        "ipc_host",
        &[],
        Kind::Flag,
        "Share the host's IPC namespace with the started container.",
    ),
    key(
        "env",
        &[],
        Kind::Environment,
        "Environment of the started container.",
    ),
    key(
        "volumes",
        &["volume"],
        Kind::Volumes,
        "Mounts of the started container, as docker's -v.",
    ),
    key(
        "hf_cache",
        &[],
        Kind::Text,
        "Hugging Face cache of the host, mounted into the started container.",
    ),
    key(
        "input_lengths",
        &["input_length", "input_lens", "input_len"],
        Kind::Counts,
        "Prompt tokens per request.",
    ),
    key(
        "output_lengths",
        &["output_length", "output_lens", "output_len"],
        Kind::Counts,
        "Generated tokens per request.",
    ),
    key(
        "batch_sizes",
        &["batch_size"],
        Kind::Counts,
        "Sequences at once.",
    ),
    key(
        "request_rates",
        &["request_rate"],
        Kind::Rates,
        "Requests per second, at random moments.",
    ),
    key(
        "tensor_parallel_size",
        &[],
        Kind::CountsOrNull,
        "Tensor parallel size.",
    ),
    key(
        "dtype",
        &[],
        Kind::TextsOrNull,
        "Type of weights and activations.",
    ),
    key(
        "quantization",
        &[],
        Kind::TextsOrNull,
        "Quantization method.",
    ),
    key(
        "kv_cache_dtype",
        &[],
        Kind::TextsOrNull,
        "Type of the KV cache.",
    ),
    key(
        "gpu_memory_utilization",
        &[],
        Kind::Shares,
        "Share of device memory that the engine may take.",
    ),
    key(
        "max_model_len",
        &[],
        Kind::CountsOrNull,
        "Longest sequence, prompt and output together, tokens.",
    ),
    key(
        "enforce_eager",
        &[],
        Kind::Flags,
        "No compilation, no CUDA graphs.",
    ),
    key(
        "engine_args",
        &[],
        Kind::Arguments,
        "Further arguments of the engine, by flag; a list is an axis.",
    ),
    key(
        "extra_engine_args",
        &[],
        Kind::Words,
        "Further arguments of the engine, as they stand.",
    ),
    key("bench", &[], Kind::Bench, "What puts the load on."),
    key("num_prompts", &[], Kind::Count, "Requests."),
    key("num_iters", &[], Kind::Count, "Measured iterations."),
    key(
        "num_iters_warmup",
        &[],
        Kind::CountFromZero,
        "Warm-up iterations or requests.",
    ),
    key("repeats", &[], Kind::Count, "Times the bench runs."),
    key(
        "seed",
        &[],
        Kind::CountFromZero,
        "Random seed of the bench.",
    ),
    key(
        "model_params",
        &[],
        Kind::Number,
        "Parameters of the model, as 6.7e9; kept with the results.",
    ),
    key(
        "num_layers",
        &[],
        Kind::Number,
        "Layers of the model; kept with the results.",
    ),
    key(
        "num_heads",
        &[],
        Kind::Number,
        "Attention heads of the model; kept with the results.",
    ),
    key(
        "num_kv_heads",
        &[],
        Kind::Number,
        "Key and value heads of the model; kept with the results.",
    ),
    key(
        "head_dim",
        &[],
        Kind::Number,
        "Dimension of a head; kept with the results.",
    ),
    key(
        "hidden_size",
        &[],
        Kind::Number,
        "Hidden size of the model; kept with the results.",
    ),
    key(
        "zip",
        &[],
        Kind::Zip,
        "Lists that go side by side instead of crossed.",
    ),
    key("include", &[], Kind::Include, "Further cells."),
    key("exclude", &[], Kind::Exclude, "Cells to leave out."),
];

/// What is said of a model and kept with the results.
pub const ARCHITECTURE: [&str; 6] = [
    "model_params",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_size",
];

/// How a container is started.
pub const RUN_OPTIONS: [&str; 8] = [
    "gpus", "amd", "shm_size", "memory", "ipc_host", "env", "volumes", "hf_cache",
];

/// The key of a name, or of another name for it.
pub fn find(keys: &'static [KeySpec], name: &str) -> Option<&'static KeySpec> {
    keys.iter()
        .find(|k| k.name == name || k.aliases.contains(&name))
}

/// Axes with keys of their own, in the order of [`AxisKey`]. `image` stands for `Place` as well.
const AXES: &[(&str, AxisKey)] = &[
    ("model_id", AxisKey::Model),
    ("container_name", AxisKey::Place),
    ("image", AxisKey::Place),
    ("tensor_parallel_size", AxisKey::TensorParallelSize),
    ("dtype", AxisKey::Dtype),
    ("quantization", AxisKey::Quantization),
    ("kv_cache_dtype", AxisKey::KvCacheDtype),
    ("gpu_memory_utilization", AxisKey::GpuMemoryUtilization),
    ("max_model_len", AxisKey::MaxModelLen),
    ("enforce_eager", AxisKey::EnforceEager),
    ("input_lengths", AxisKey::InputLen),
    ("output_lengths", AxisKey::OutputLen),
    ("batch_sizes", AxisKey::BatchSize),
    ("request_rates", AxisKey::RequestRate),
];

/// The axis of a key, by its first name.
pub fn axis_of(name: &str) -> Option<AxisKey> {
    AXES.iter()
        .find(|(n, _)| *n == name)
        .map(|(_, key)| key.clone())
}

/// Names of keys that are axes.
pub fn axis_names() -> impl Iterator<Item = &'static str> {
    AXES.iter().map(|(n, _)| *n)
}

/// The key of an axis, as an error names it.
pub fn name_of(axis: &AxisKey) -> String {
    match axis {
        AxisKey::Argument(flag) => format!("engine_args.{}", flag.as_str().trim_start_matches('-')),
        other => AXES
            .iter()
            .find(|(_, key)| key == other)
            .map_or(String::new(), |(n, _)| (*n).to_owned()),
    }
}

/// An argument's name as a flag: `max-num-seqs` → `--max-num-seqs`; what begins with a dash stays.
/// `None` for what can be no flag.
pub fn flag(name: &str) -> Option<Flag> {
    let bare = name.trim_start_matches('-');
    let sound = !bare.is_empty() && !bare.contains(|c: char| c.is_whitespace() || c == '=');
    sound.then(|| {
        if name.starts_with('-') {
            name.into()
        } else {
            format!("--{name}").into()
        }
    })
}
