//! The keys of the file: their names, what each takes, and a sentence on each.

use super::super::expand::AxisKey;
use super::super::taken::ArgumentFlag;

/// A key.
#[derive(Debug)]
pub struct KeySpec {
    /// Its name.
    pub name: &'static str,
    /// Other names that people write.
    pub aliases: &'static [&'static str],
    /// What it takes.
    pub kind: KeyKind,
    /// What it is; for the schema.
    pub about: &'static str,
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
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

/// A table of keys: a name, other names for it in brackets, what it takes, and a sentence on it.
macro_rules! keys {
    ($($name:literal $(($($alias:literal),+))? $kind:ident: $about:literal,)*) => {
        &[$(KeySpec {
            name: $name,
            aliases: &[$($($alias),+)?],
            kind: KeyKind::$kind,
            about: $about,
        }),*]
    };
}

/// Keys of the file itself.
pub const TOP: &[KeySpec] = keys! {
    "schema_version" Version: "Version of this format: 1.",
    "name" Text: "Name of the sweep, and of its folder. Without it: the file's.",
    "timeout" Time: "Longest time for one cell, as 30m.",
    "health_timeout" Time: "Longest time for an engine to serve, as 20m.",
    "defaults" Entry: "Keys for every entry; an entry's own win.",
    "models" Entries: "The entries: each a model with its settings and loads.",
};

/// Keys of an entry.
pub const ENTRY: &[KeySpec] = keys! {
    "model_id" ("hf_model_id") Texts: "Model, as the engine knows it: an id or a path in the container.",
    "container_name" Texts: "Running container to measure in.",
    "image" Texts: "Image to start a container of, for each server configuration.",
    "preset" Text: "Preset with the settings to start the image.",
    "engine" Text: "Engine, where it is not recognised.",
    "gpus" Gpus: "GPUs of the started container: none, all, a count, or ids.",
    "amd" Flag: "AMD GPUs for the started container.",
    "shm_size" Size: "Size of /dev/shm of the started container.",
    "memory" Size: "Memory limit of the started container.",
    "ipc_host" Flag: "Share the host's IPC namespace with the started container.",
    "env" Environment: "Environment of the started container.",
    "volumes" ("volume") Volumes: "Mounts of the started container, as docker's -v.",
    "hf_cache" Text: "Hugging Face cache of the host, mounted into the started container.",
    "input_lengths" ("input_length", "input_lens", "input_len") Counts: "Prompt tokens per request.",
    "output_lengths" ("output_length", "output_lens", "output_len") Counts: "Generated tokens per request.",
    "batch_sizes" ("batch_size") Counts: "Sequences at once.",
    "request_rates" ("request_rate") Rates: "Requests per second, at random moments.",
    "tensor_parallel_size" CountsOrNull: "Tensor parallel size.",
    "dtype" TextsOrNull: "Type of weights and activations.",
    "quantization" TextsOrNull: "Quantization method.",
    "kv_cache_dtype" TextsOrNull: "Type of the KV cache.",
    "gpu_memory_utilization" Shares: "Share of device memory that the engine may take.",
    "max_model_len" CountsOrNull: "Longest sequence, prompt and output together, tokens.",
    "enforce_eager" Flags: "No compilation, no CUDA graphs.",
    "engine_args" Arguments: "Further arguments of the engine, by flag; a list is an axis.",
    "extra_engine_args" Words: "Further arguments of the engine, as they stand.",
    "bench" Bench: "What puts the load on.",
    "num_prompts" Count: "Requests.",
    "num_iters" Count: "Measured iterations.",
    "num_iters_warmup" CountFromZero: "Warm-up iterations or requests.",
    "repeats" Count: "Times the bench runs.",
    "seed" CountFromZero: "Random seed of the bench.",
    "model_params" Number: "Parameters of the model, as 6.7e9; kept with the results.",
    "num_layers" Number: "Layers of the model; kept with the results.",
    "num_heads" Number: "Attention heads of the model; kept with the results.",
    "num_kv_heads" Number: "Key and value heads of the model; kept with the results.",
    "head_dim" Number: "Dimension of a head; kept with the results.",
    "hidden_size" Number: "Hidden size of the model; kept with the results.",
    "zip" Zip: "Lists that go side by side instead of crossed.",
    "include" Include: "Further cells.",
    "exclude" Exclude: "Cells to leave out.",
};

/// Facts on a model, kept with the results.
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
pub fn find_key(keys: &'static [KeySpec], name: &str) -> Option<&'static KeySpec> {
    keys.iter()
        .find(|k| k.name == name || k.aliases.contains(&name))
}

/// Axes with keys of their own, in the order of [`AxisKey`]. `image` is `Place` as well.
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
pub fn flag_of_name(name: &str) -> Option<ArgumentFlag> {
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
