//! One entry of `models:` with the defaults below it, as a matrix.

use super::super::cell::{BenchWord, CellLoad};
use super::super::expand::{AxisKey, AxisValue, CellTemplate, Matrix, MatrixAxis, complete_axes};
use super::super::taken::{self, ArgumentFlag};
use super::keys::{self, KeySpec};
use super::scalars::{self, wrong_value};
use super::tree::{FileFault, NodePlace, YamlKey, YamlNode, YamlValue, quote_short};
use super::{Presets, patterns};
use crate::engine::EngineId;
use crate::launch::recipe::cache_mount;
use crate::preset::{GpuRequest, Preset};
use crate::wording::did_you_mean;
use std::collections::{BTreeMap, HashMap};

/// The longest prompt or output, tokens: beyond what any model reads.
const LONGEST: u64 = 10_000_000;

/// A map of keys, each known and each given once.
#[derive(Debug, Clone, Default)]
pub struct GivenKeys<'n>(BTreeMap<&'static str, (NodePlace, &'n YamlNode)>);

impl<'n> GivenKeys<'n> {
    /// Sorts a map's keys. `what` is the map, as in "no key of …".
    pub fn sort_keys(
        what: &str,
        node: &'n YamlNode,
        known: &'static [KeySpec],
    ) -> Result<Self, FileFault> {
        let YamlValue::Map(map) = &node.value else {
            return Err(FileFault::new(
                node.at,
                format!(
                    "{what} must be a map of keys, not {}",
                    node.describe_value()
                ),
            ));
        };
        let mut given = BTreeMap::new();
        for (key, value) in map {
            let Some(spec) = keys::find_key(known, &key.name) else {
                let names = known
                    .iter()
                    .flat_map(|k| k.aliases.iter().chain([&k.name]).map(String::as_str));
                let message = format!("unknown key {} of {what}", quote_short(&key.name));
                return Err(
                    FileFault::new(key.at, message).with_hint_if(did_you_mean(&key.name, names, 1))
                );
            };
            if let Some((first, _)) = given.insert(spec.name.as_str(), (key.at, value)) {
                let message = format!("`{}` is given twice, by two of its names", spec.name);
                return Err(FileFault::new(key.at, message).with_other(first));
            }
        }
        Ok(GivenKeys(given))
    }

    /// The value of a key, unless it is unset.
    pub fn value_of(&self, name: &str) -> Option<&'n YamlNode> {
        self.placed_value(name).map(|(_, node)| node)
    }

    /// The same with the key's place.
    pub fn placed_value(&self, name: &str) -> Option<(NodePlace, &'n YamlNode)> {
        let found = self.0.get(name).copied();
        found.filter(|(_, node)| !scalars::is_unset(node))
    }

    /// The keys of an entry, and below them those of the defaults. Where an engine runs is one
    /// decision: an entry that makes it drops the other kind from the defaults.
    fn over(&self, defaults: &GivenKeys<'n>) -> GivenKeys<'n> {
        let mut all = defaults.0.clone();
        if self.value_of("container_name").is_some() {
            all.retain(|k, _| !matches!(*k, "image" | "preset") && !keys::RUN_OPTIONS.contains(k));
        } else if self.value_of("image").is_some() || self.value_of("preset").is_some() {
            all.remove("container_name");
            if self.value_of("image").is_none() {
                all.remove("image");
            }
        }
        all.extend(self.0.iter().map(|(k, v)| (*k, *v)));
        GivenKeys(all)
    }
}

/// An entry's map of this name, below it the defaults'. A null in the entry removes the defaults'
/// map.
fn map_layers<'n>(own: &GivenKeys<'n>, defaults: &GivenKeys<'n>, name: &str) -> Vec<&'n YamlNode> {
    let entry_map = own.value_of(name);
    let theirs = if own.0.contains_key(name) && entry_map.is_none() {
        None
    } else {
        defaults.value_of(name)
    };
    theirs.into_iter().chain(entry_map).collect()
}

/// A matrix, and where its patterns stand in the file.
#[derive(Debug)]
pub struct ModelEntry {
    pub at: NodePlace,
    pub matrix: Matrix,
    /// Places of `exclude`'s patterns, in their order.
    pub exclude_at: Vec<NodePlace>,
}

/// Reads one entry.
pub fn read_entry(
    node: &YamlNode,
    defaults: &GivenKeys<'_>,
    presets: Presets<'_>,
) -> Result<ModelEntry, FileFault> {
    let own = GivenKeys::sort_keys("an entry of `models`", node, &keys::KEYS.entry)?;
    let given = own.over(defaults);
    let mut template = CellTemplate::default();
    let place = read_place(&own, &given, defaults, node.at, presets, &mut template)?;
    read_engine(&given, &mut template)?;
    read_load(&given, &mut template.load)?;
    for name in keys::ARCHITECTURE {
        if let Some(value) = given.value_of(name) {
            let number = scalars::read_positive(name, value)?;
            template.architecture.insert(name.to_owned(), number);
        }
    }

    let zips = patterns::read_zips(&given)?;
    let zipped = |key: &AxisKey| zips.iter().any(|z| z.axes.contains(key));
    let mut axes = Vec::new();
    match given.value_of("model_id") {
        Some(value) => axes.push(read_axis(
            AxisKey::Model,
            "model_id",
            value,
            zipped(&AxisKey::Model),
        )?),
        None => match template.preset.as_ref().and_then(|p| p.model.clone()) {
            Some(model) => axes.push(single(AxisKey::Model, model)),
            None => {
                return Err(FileFault::new(node.at, "this entry names no model")
                    .with_hint("model_id: org/name, or a path in the container"));
            }
        },
    }
    axes.push(match place {
        PlaceSource::Named(name, value) => {
            read_axis(AxisKey::Place, name, value, zipped(&AxisKey::Place))?
        }
        PlaceSource::OfPreset(image) => single(AxisKey::Place, image),
    });
    for name in
        keys::axis_names().filter(|n| !matches!(*n, "model_id" | "container_name" | "image"))
    {
        if let (Some(key), Some(value)) = (keys::axis_of(name), given.value_of(name)) {
            let zipped = zipped(&key);
            axes.push(read_axis(key, name, value, zipped)?);
        }
    }
    for (flag, name, value) in arguments(&own, defaults)? {
        let key = AxisKey::Argument(flag);
        let zipped = zipped(&key);
        axes.push(read_axis(key, name, value, zipped)?);
    }

    refuse_repeated_flags(&given, &template, &axes)?;

    // The model has an axis of its own; the preset's was used above.
    if let Some(preset) = &mut template.preset {
        preset.model = None;
    }
    patterns::check_zips(&zips, &axes)?;
    complete_axes(&mut axes, template.load.bench);
    check_requests(&own, &template.load, &axes)?;
    let (exclude, exclude_at) = patterns::read_exclude(&given, &template)?
        .into_iter()
        .unzip();
    let matrix = Matrix {
        include: patterns::read_include(&given, &template, &axes)?,
        template,
        axes,
        zips: zips.into_iter().map(|z| z.axes).collect(),
        exclude,
    };
    Ok(ModelEntry {
        at: node.at,
        matrix,
        exclude_at,
    })
}

fn single(key: AxisKey, text: String) -> MatrixAxis {
    MatrixAxis {
        key,
        values: vec![AxisValue::Text(text)],
    }
}

/// Which containers or images.
enum PlaceSource<'n> {
    Named(&'static str, &'n YamlNode),
    OfPreset(String),
}

fn read_place<'n>(
    own: &GivenKeys<'n>,
    given: &GivenKeys<'n>,
    defaults: &GivenKeys<'n>,
    entry: NodePlace,
    presets: Presets<'_>,
    template: &mut CellTemplate,
) -> Result<PlaceSource<'n>, FileFault> {
    let started = given.placed_value("image").or(given.placed_value("preset"));
    match (given.placed_value("container_name"), started) {
        (Some((at, _)), Some((other, _))) => Err(FileFault::new(
            at,
            "an entry runs in a container that is there (`container_name`) or in one that is \
             started for it (`image` or `preset`), not in both",
        )
        .with_other(other)),
        (None, None) => Err(
            FileFault::new(entry, "this entry does not say where it runs")
                .with_hint("container_name: NAME for a container that is there")
                .with_hint("image: IMAGE to start one for each server configuration"),
        ),
        (Some((_, value)), None) => {
            for option in keys::RUN_OPTIONS {
                if let Some((at, _)) = given.placed_value(option) {
                    return Err(FileFault::new(
                        at,
                        format!(
                            "`{option}` is for containers that plimsoll starts, but this entry names an existing one"
                        ),
                    ));
                }
            }
            Ok(PlaceSource::Named("container_name", value))
        }
        (None, Some(_)) => started_for_it(own, given, defaults, presets, template),
    }
}

fn started_for_it<'n>(
    own: &GivenKeys<'n>,
    given: &GivenKeys<'n>,
    defaults: &GivenKeys<'n>,
    presets: Presets<'_>,
    template: &mut CellTemplate,
) -> Result<PlaceSource<'n>, FileFault> {
    let mut preset = Preset::default();
    if let Some(value) = given.value_of("preset") {
        let name = scalars::read_text("preset", value)?;
        preset = presets(&name).map_err(|failure| {
            // The cause of the failure has the place in the preset.
            let cause = failure.source.as_ref().map(|s| format!(": {s}"));
            let message = format!("{}{}", failure.message, cause.unwrap_or_default());
            let mut fault = FileFault::new(value.at, message);
            fault.hints = failure.hints;
            fault
        })?;
        if let Some(engine) = preset.engine.take() {
            template.engine = Some(known_engine(&engine, value.at)?);
        }
    }
    template.preset_args = std::mem::take(&mut preset.engine_args);
    let model = |word: &&String| taken::own_key_of(word) == Some("model_id");
    if let (Some(word), Some((at, _))) = (
        template.preset_args.iter().find(model),
        given.placed_value("preset"),
    ) {
        let message = format!("this preset names a model among its arguments (`{word}`)");
        return Err(
            FileFault::new(at, message).with_hint("set `model` in the preset, or `model_id` here")
        );
    }
    preset.description = String::new();
    for (name, option) in [
        ("shm_size", &mut preset.shm_size),
        ("memory", &mut preset.memory),
    ] {
        if let Some(value) = given.value_of(name) {
            *option = Some(scalars::read_size(name, value)?);
        }
    }
    for (name, option) in [("amd", &mut preset.amd), ("ipc_host", &mut preset.ipc_host)] {
        if let Some(value) = given.value_of(name) {
            *option = scalars::read_flag(name, value)?;
        }
    }
    if let Some(value) = given.value_of("gpus") {
        preset.gpus = Some(read_gpus(value)?);
    }
    for value in map_layers(own, defaults, "env") {
        for (name, value) in scalars::map_entries("env", value)? {
            environment(&name.name, name.at, value, &mut preset.env)?;
        }
    }
    if let Some(value) = given.value_of("volumes") {
        preset.volumes.extend(volumes(value)?);
    }
    if let Some(value) = given.value_of("hf_cache") {
        let folder = scalars::read_text("hf_cache", value)?;
        if !folder.starts_with('/') {
            return Err(wrong_value("hf_cache", "the full path of a folder", value)
                .with_hint("${HOME}/.cache/huggingface"));
        }
        let image = given.value_of("image");
        let image = image.map(|v| scalars::read_text("image", v)).transpose()?;
        let image = image.or(preset.image.clone()).unwrap_or_default();
        preset.volumes.push(cache_mount(&image, &folder));
    }
    let image = preset.image.take();
    template.preset = Some(preset);
    match (given.value_of("image"), given.placed_value("preset"), image) {
        (Some(value), ..) => Ok(PlaceSource::Named("image", value)),
        (None, _, Some(image)) => Ok(PlaceSource::OfPreset(image)),
        (None, preset, None) => {
            let at = preset.map(|(at, _)| at).unwrap_or_default();
            Err(FileFault::new(at, "this preset names no image").with_hint("image: IMAGE"))
        }
    }
}

fn environment(
    name: &str,
    at: NodePlace,
    value: &YamlNode,
    env: &mut BTreeMap<String, String>,
) -> Result<(), FileFault> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(FileFault::new(
            at,
            format!("`{name}` is not a valid variable name"),
        ));
    }
    if value.value == YamlValue::Null {
        env.remove(name);
        return Ok(());
    }
    let text = match &value.value {
        YamlValue::Bool(b) => b.to_string(),
        // 1.10 has become 1.1 by now.
        YamlValue::Float(_) => {
            return Err(wrong_value(name, "text", value).with_hint("write it in quotes"));
        }
        _ => scalars::read_word(name, value)?,
    };
    env.insert(name.to_owned(), text);
    Ok(())
}

fn volumes(node: &YamlNode) -> Result<Vec<String>, FileFault> {
    let list = match &node.value {
        YamlValue::List(list) if !list.is_empty() => list.as_slice(),
        YamlValue::Text(_) => std::slice::from_ref(node),
        _ => return Err(wrong_value("volumes", "a list of SOURCE:TARGET", node)),
    };
    list.iter()
        .map(|volume| {
            let text = scalars::read_text("volumes", volume)?;
            match text.split_once(':') {
                Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok(text),
                _ => Err(wrong_value(
                    "volumes",
                    "SOURCE:TARGET or SOURCE:TARGET:ro",
                    volume,
                )),
            }
        })
        .collect()
}

/// A request of GPUs, its ids also as a list.
fn read_gpus(node: &YamlNode) -> Result<String, FileFault> {
    let wanted = "none, all, a count, or a list of ids";
    let text = match &node.value {
        YamlValue::Int(n) if (0..1024).contains(n) => n.to_string(),
        YamlValue::Text(t) => t.trim().to_owned(),
        YamlValue::List(list) if !list.is_empty() => {
            let ids: Result<Vec<String>, FileFault> = list
                .iter()
                .map(|id| scalars::read_word("gpus", id))
                .collect();
            let ids = ids?;
            let mut before = ids.iter().enumerate();
            if let Some((_, twice)) = before.find(|(n, id)| ids[..*n].contains(id)) {
                let message = format!("`gpus` names {twice} twice");
                return Err(FileFault::new(node.at, message));
            }
            format!("device={}", ids.join(","))
        }
        YamlValue::List(_) => {
            let message = "`gpus` is an empty list";
            return Err(FileFault::new(node.at, message).with_hint("none gives no GPU"));
        }
        _ => return Err(wrong_value("gpus", wanted, node)),
    };
    match text.parse::<GpuRequest>() {
        Ok(_) => Ok(text),
        Err(_) if text.starts_with("device=") => {
            let ids = &text["device=".len()..];
            let message = format!("`gpus` names no GPU by `{ids}`");
            Err(FileFault::new(node.at, message)
                .with_hint("a number as in `nvidia-smi`, or its whole UUID: GPU-…"))
        }
        Err(_) if text == "0" => {
            Err(wrong_value("gpus", wanted, node).with_hint("the first GPU: `[0]`"))
        }
        Err(_) => Err(wrong_value("gpus", wanted, node)),
    }
}

fn known_engine(name: &str, at: NodePlace) -> Result<String, FileFault> {
    EngineId::from_name(name)
        .map(|engine| engine.name.to_owned())
        .map_err(|unknown| FileFault::new(at, unknown.to_string()).with_hint(unknown.hint()))
}

fn read_engine(given: &GivenKeys<'_>, template: &mut CellTemplate) -> Result<(), FileFault> {
    if let Some(value) = given.value_of("engine") {
        let name = scalars::read_text("engine", value)?;
        template.engine = Some(known_engine(&name, value.at)?);
    }
    let Some(value) = given.value_of("extra_engine_args") else {
        return Ok(());
    };
    let key = "extra_engine_args";
    template.extra_args = match &value.value {
        YamlValue::List(list) if list.is_empty() => {
            scalars::list_elements(key, value).map(|_| Vec::new())?
        }
        YamlValue::List(list) => list
            .iter()
            .map(|w| scalars::read_word(key, w))
            .collect::<Result<_, _>>()?,
        YamlValue::Text(line) => shlex::split(line)
            .ok_or_else(|| FileFault::new(value.at, format!("`{key}`: a quote is left open")))?,
        _ => return Err(wrong_value(key, "a line of words or a list of them", value)),
    };
    let words = std::mem::take(&mut template.extra_args);
    let words = words
        .into_iter()
        .map(|w| scalars::check_length(key, value, w));
    template.extra_args = words.collect::<Result<_, _>>()?;
    let mut flags = template.extra_args.iter().filter(|w| w.starts_with('-'));
    flags.try_for_each(|word| free(value.at, word))
}

/// Refuses a flag that is not an entry's to give as an argument.
fn free(at: NodePlace, flag: &str) -> Result<(), FileFault> {
    if let Some(own) = taken::own_key_of(flag) {
        return Err(has_a_key(at, flag, own));
    }
    if taken::is_address(flag) {
        let flag = flag.split('=').next().unwrap_or(flag);
        let message = format!("`{flag}` is not given here: plimsoll says where an engine listens");
        return Err(FileFault::new(at, message));
    }
    Ok(())
}

fn has_a_key(at: NodePlace, flag: &str, own: &str) -> FileFault {
    // What is joined to a short name is its value, perhaps a secret.
    let flag = if flag.starts_with("-q") {
        "-q"
    } else {
        flag.split('=').next().unwrap_or(flag)
    };
    FileFault::new(at, format!("`{flag}` has a key of its own: `{own}`"))
        .with_hint("what is given there is also kept with the results")
}

fn read_load(given: &GivenKeys<'_>, load: &mut CellLoad) -> Result<(), FileFault> {
    if let Some(value) = given.value_of("bench") {
        load.bench = scalars::read_choice("bench", value, &BenchWord::ALL)?;
    }
    let number = |name: &str, from: u64, to: u64| -> Result<Option<u32>, FileFault> {
        let value = given.value_of(name);
        let number = value
            .map(|v| scalars::read_whole(name, v, from..=to))
            .transpose()?;
        Ok(number.and_then(|n| u32::try_from(n).ok()))
    };
    let any = u64::from(u32::MAX);
    load.num_prompts = number("num_prompts", 1, any)?;
    load.num_iters = number("num_iters", 1, any)?;
    load.num_iters_warmup = number("num_iters_warmup", 0, any)?;
    load.repeats = number("repeats", 1, 1000)?.unwrap_or(1);
    load.seed = given
        .value_of("seed")
        .map(|v| scalars::read_whole("seed", v, 0..=u64::MAX))
        .transpose()?;
    match given.placed_value("request_rates") {
        Some((at, _)) if load.bench.in_process() => Err(no_rate(at, load.bench)),
        _ => Ok(()),
    }
}

/// Refuses numbers that the bench would not keep: it measured the same under another name.
fn check_requests(
    own: &GivenKeys<'_>,
    load: &CellLoad,
    axes: &[MatrixAxis],
) -> Result<(), FileFault> {
    let batches = axes.iter().find(|axis| axis.key == AxisKey::BatchSize);
    let batches = batches.into_iter().flat_map(|axis| &axis.values);
    let batches: Vec<u64> = batches
        .filter_map(|value| match value {
            AxisValue::Number(n) => Some(*n),
            _ => None,
        })
        .collect();
    // What is for all entries may suit others; by a rate, a batch is no more than a bound.
    let Some((at, _)) = own.placed_value("num_prompts") else {
        return Ok(());
    };
    let by_rate = axes.iter().any(|axis| axis.key == AxisKey::RequestRate);
    let may_leave_out = by_rate || own.value_of("exclude").is_some();
    let prompts = load.num_prompts.map_or(u64::MAX, u64::from);
    match load.bench {
        BenchWord::Latency => {
            let message = "the latency bench repeats its batch: `num_prompts` changes nothing";
            Err(FileFault::new(at, message).with_hint("num_iters: 10"))
        }
        BenchWord::Throughput if batches.len() > 1 => {
            let message = "the throughput bench sends all requests at once: `batch_sizes` changes nothing where `num_prompts` is set";
            Err(FileFault::new(at, message).with_hint("leave one of the two out"))
        }
        BenchWord::Serve | BenchWord::Builtin if !may_leave_out => {
            match batches.iter().find(|n| **n > prompts) {
                Some(batch) => {
                    let message = format!(
                        "batch {batch} keeps {batch} requests at once, and there are {prompts} of them"
                    );
                    Err(FileFault::new(at, message)
                        .with_hint("give more of them, or none: they then follow from the batch"))
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A rate for a bench that sends no requests.
pub fn no_rate(at: NodePlace, bench: BenchWord) -> FileFault {
    let bench = bench.as_str();
    let message =
        format!("the {bench} bench has no request rate: it sends no requests to a server");
    FileFault::new(at, message).with_hint("bench: serve or bench: builtin")
}

/// The flag of a key in `engine_args`.
pub fn argument_flag(key: &YamlKey) -> Result<ArgumentFlag, FileFault> {
    let flag = keys::flag_of_name(&key.name).ok_or_else(|| {
        FileFault::new(key.at, format!("`{}` can be no argument's name", key.name))
            .with_hint("the flag without its value, as in `max-num-seqs: 64`")
    })?;
    free(key.at, flag.as_str())?;
    Ok(flag)
}

/// The engine's arguments: flag, name as written, value. An entry's own go over the defaults'.
fn arguments<'n>(
    own: &GivenKeys<'n>,
    defaults: &GivenKeys<'n>,
) -> Result<Vec<(ArgumentFlag, &'n str, &'n YamlNode)>, FileFault> {
    let mut found: Vec<(ArgumentFlag, &str, &YamlNode)> = Vec::new();
    for node in map_layers(own, defaults, "engine_args") {
        let mut here: HashMap<ArgumentFlag, NodePlace> = HashMap::new();
        for (key, value) in scalars::map_entries("engine_args", node)? {
            let flag = argument_flag(key)?;
            let opposite = flag.opposite_flag();
            if let Some(first) = here.get(&flag).or(here.get(&opposite)) {
                return Err(
                    FileFault::new(key.at, format!("`{flag}` is given twice")).with_other(*first)
                );
            }
            here.insert(flag.clone(), key.at);
            let earlier = found.iter().position(|f| f.0 == flag || f.0 == opposite);
            match earlier.and_then(|i| found.get_mut(i)) {
                Some(place) => *place = (flag, &key.name, value),
                None => found.push((flag, &key.name, value)),
            }
        }
    }
    Ok(found)
}

/// Refuses further words that repeat a flag of `engine_args`: the engine takes the last.
fn refuse_repeated_flags(
    given: &GivenKeys<'_>,
    template: &CellTemplate,
    axes: &[MatrixAxis],
) -> Result<(), FileFault> {
    let Some(value) = given.value_of("extra_engine_args") else {
        return Ok(());
    };
    let flags = axes.iter().filter_map(|axis| match &axis.key {
        AxisKey::Argument(flag) => Some(flag),
        _ => None,
    });
    for flag in flags {
        let words = template.extra_args.iter().filter(|w| w.starts_with('-'));
        if words.into_iter().any(|word| flag.is_named_by(word)) {
            let message = format!("`{flag}` stands in `engine_args` as well");
            return Err(FileFault::new(value.at, message)
                .with_hint("put a flag that is given twice into `extra_engine_args`, each time"));
        }
    }
    Ok(())
}

/// The values of an axis. In a zip a value may stand several times.
fn read_axis(
    key: AxisKey,
    name: &str,
    node: &YamlNode,
    zipped: bool,
) -> Result<MatrixAxis, FileFault> {
    let list = match (&key, &node.value) {
        // A comma in an argument is the argument's own.
        (AxisKey::Argument(_), YamlValue::Text(_)) => vec![node.clone()],
        _ => scalars::list_elements(name, node)?,
    };
    let mut values = Vec::with_capacity(list.len());
    let mut seen: HashMap<String, NodePlace> = HashMap::new();
    for element in &list {
        let value = read_setting(&key, name, element)?;
        if let Some(first) = seen.insert(format!("{value:?}"), element.at) {
            if !zipped {
                let message = format!("{} stands in `{name}` twice", element.describe_value());
                return Err(FileFault::new(element.at, message).with_other(first));
            }
        }
        values.push(value);
    }
    Ok(MatrixAxis { key, values })
}

/// One value of an axis.
pub fn read_setting(key: &AxisKey, name: &str, node: &YamlNode) -> Result<AxisValue, FileFault> {
    let unset = scalars::is_unset(node);
    match key {
        AxisKey::Model | AxisKey::Place => scalars::read_text(name, node).map(AxisValue::Text),
        AxisKey::InputLen | AxisKey::OutputLen => {
            scalars::read_whole(name, node, 1..=LONGEST).map(AxisValue::Number)
        }
        AxisKey::BatchSize => {
            scalars::read_whole(name, node, 1..=u64::from(u32::MAX)).map(AxisValue::Number)
        }
        _ if unset => Ok(AxisValue::Unset),
        AxisKey::RequestRate => scalars::read_positive(name, node).map(AxisValue::Real),
        AxisKey::Dtype | AxisKey::Quantization | AxisKey::KvCacheDtype => {
            scalars::read_text(name, node).map(AxisValue::Text)
        }
        AxisKey::TensorParallelSize => {
            scalars::read_whole(name, node, 1..=u64::from(u32::MAX)).map(AxisValue::Number)
        }
        AxisKey::MaxModelLen => {
            scalars::read_whole(name, node, 1..=u64::MAX).map(AxisValue::Number)
        }
        AxisKey::GpuMemoryUtilization => scalars::read_share(name, node).map(AxisValue::Real),
        AxisKey::EnforceEager => Ok(if scalars::read_flag(name, node)? {
            AxisValue::Set
        } else {
            AxisValue::Unset
        }),
        AxisKey::Argument(_) => match scalars::read_flag(name, node) {
            Ok(true) => Ok(AxisValue::Set),
            Ok(false) => Ok(AxisValue::Unset),
            Err(_) => match scalars::read_word(name, node) {
                // A value that begins with a dash is a flag to the engine.
                Ok(text) => {
                    let text = scalars::check_length(name, node, text)?;
                    free(node.at, &text).map(|()| AxisValue::Text(text))
                }
                Err(_) => Err(wrong_value(
                    name,
                    "text, a number, true, false or null",
                    node,
                )),
            },
        },
    }
}
