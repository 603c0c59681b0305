//! One entry of `models:` with the defaults below it, as a matrix.

use super::super::cell::BenchWord;
use super::super::expand::{Axis, AxisKey, Matrix, Setting, Template, complete};
use super::super::taken::{self, Flag};
use super::fault::Fault;
use super::keys::{self, KeySpec};
use super::scalars::{self, wrong};
use super::tree::{At, Key, Node, Value, quoted};
use super::{Presets, patterns};
use crate::preset::{GpuRequest, Preset};
use crate::wording::did_you_mean;
use std::collections::{BTreeMap, HashMap};

/// The longest prompt or output, tokens: beyond what any model reads.
const LONGEST: u64 = 10_000_000;

/// Where the Hugging Face cache lies in a container.
const HF_CACHE: &str = "/root/.cache/huggingface";

/// A map of keys, each known and each given once.
#[derive(Debug, Clone, Default)]
pub struct Given<'n>(BTreeMap<&'static str, (At, &'n Node)>);

impl<'n> Given<'n> {
    /// Sorts a map's keys. `what` is the map, as in "no key of …".
    pub fn of(what: &str, node: &'n Node, known: &'static [KeySpec]) -> Result<Self, Fault> {
        let Value::Map(map) = &node.value else {
            return Err(Fault::new(
                node.at,
                format!("{what} must be a map of keys, not {}", node.shown()),
            ));
        };
        let mut given = BTreeMap::new();
        for (key, value) in map {
            let Some(spec) = keys::find(known, &key.name) else {
                let names = known
                    .iter()
                    .flat_map(|k| k.aliases.iter().chain([&k.name]).copied());
                let message = format!("{} is no key of {what}", quoted(&key.name));
                return Err(Fault::new(key.at, message).maybe(did_you_mean(&key.name, names, 1)));
            };
            if let Some((first, _)) = given.insert(spec.name, (key.at, value)) {
                let message = format!("`{}` is given twice, by two of its names", spec.name);
                return Err(Fault::new(key.at, message).other(first));
            }
        }
        Ok(Given(given))
    }

    /// The value of a key, unless it is unset.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        self.found(name).map(|(_, node)| node)
    }

    /// The same with the key's place.
    pub fn found(&self, name: &str) -> Option<(At, &'n Node)> {
        let found = self.0.get(name).copied();
        found.filter(|(_, node)| !scalars::is_unset(node))
    }

    /// The keys of an entry, and below them those of the defaults. Where an engine runs is one
    /// decision: an entry that makes it drops the other kind from the defaults.
    fn over(&self, defaults: &Given<'n>) -> Given<'n> {
        let mut all = defaults.0.clone();
        if self.get("container_name").is_some() {
            all.retain(|k, _| !matches!(*k, "image" | "preset") && !keys::RUN_OPTIONS.contains(k));
        } else if self.get("image").is_some() || self.get("preset").is_some() {
            all.remove("container_name");
            if self.get("image").is_none() {
                all.remove("image");
            }
        }
        all.extend(self.0.iter().map(|(k, v)| (*k, *v)));
        Given(all)
    }
}

/// An entry's map of this name, below it the defaults'. A null in the entry removes the defaults'
/// map.
fn layers<'n>(own: &Given<'n>, defaults: &Given<'n>, name: &str) -> Vec<&'n Node> {
    let mine = own.get(name);
    let theirs = if own.0.contains_key(name) && mine.is_none() {
        None
    } else {
        defaults.get(name)
    };
    theirs.into_iter().chain(mine).collect()
}

/// A matrix, and where its patterns stand in the file.
#[derive(Debug)]
pub struct Entry {
    pub at: At,
    pub matrix: Matrix,
    /// Places of `exclude`'s patterns, in their order.
    pub exclude_at: Vec<At>,
}

/// Reads one entry.
pub fn read(node: &Node, defaults: &Given<'_>, presets: Presets<'_>) -> Result<Entry, Fault> {
    let own = Given::of("an entry of `models`", node, keys::ENTRY)?;
    let given = own.over(defaults);
    let mut template = Template {
        repeats: 1,
        ..Template::default()
    };
    let place = place(&own, &given, defaults, node.at, presets, &mut template)?;
    engine(&given, &mut template)?;
    load(&given, &mut template)?;
    for name in keys::ARCHITECTURE {
        if let Some(value) = given.get(name) {
            let number = scalars::positive(name, value)?;
            template.architecture.insert(name.to_owned(), number);
        }
    }

    let zips = patterns::zips(&given)?;
    let zipped = |key: &AxisKey| zips.iter().any(|z| z.axes.contains(key));
    let mut axes = Vec::new();
    match given.get("model_id") {
        Some(value) => axes.push(axis(
            AxisKey::Model,
            "model_id",
            value,
            zipped(&AxisKey::Model),
        )?),
        None => match template.preset.as_ref().and_then(|p| p.model.clone()) {
            Some(model) => axes.push(single(AxisKey::Model, model)),
            None => {
                return Err(Fault::new(node.at, "this entry names no model")
                    .hint("model_id: org/name, or a path in the container"));
            }
        },
    }
    axes.push(match place {
        InPlace::Named(name, value) => axis(AxisKey::Place, name, value, zipped(&AxisKey::Place))?,
        InPlace::OfPreset(image) => single(AxisKey::Place, image),
    });
    for name in
        keys::axis_names().filter(|n| !matches!(*n, "model_id" | "container_name" | "image"))
    {
        if let (Some(key), Some(value)) = (keys::axis_of(name), given.get(name)) {
            let zipped = zipped(&key);
            axes.push(axis(key, name, value, zipped)?);
        }
    }
    for (flag, name, value) in arguments(&own, defaults)? {
        let key = AxisKey::Argument(flag);
        let zipped = zipped(&key);
        axes.push(axis(key, name, value, zipped)?);
    }

    said_once(&given, &template, &axes)?;

    // The model has an axis of its own; the preset's was used above.
    if let Some(preset) = &mut template.preset {
        preset.model = None;
    }
    patterns::check_zips(&zips, &axes)?;
    complete(&mut axes, template.bench);
    let (exclude, exclude_at) = patterns::exclude(&given, &template)?.into_iter().unzip();
    let matrix = Matrix {
        include: patterns::include(&given, &template, &axes)?,
        template,
        axes,
        zips: zips.into_iter().map(|z| z.axes).collect(),
        exclude,
    };
    Ok(Entry {
        at: node.at,
        matrix,
        exclude_at,
    })
}

fn single(key: AxisKey, text: String) -> Axis {
    Axis {
        key,
        values: vec![Setting::Text(text)],
    }
}

/// Which containers or images.
enum InPlace<'n> {
    Named(&'static str, &'n Node),
    OfPreset(String),
}

fn place<'n>(
    own: &Given<'n>,
    given: &Given<'n>,
    defaults: &Given<'n>,
    entry: At,
    presets: Presets<'_>,
    template: &mut Template,
) -> Result<InPlace<'n>, Fault> {
    let started = given.found("image").or(given.found("preset"));
    match (given.found("container_name"), started) {
        (Some((at, _)), Some((other, _))) => Err(Fault::new(
            at,
            "an entry runs in a container that is there (`container_name`) or in one that is \
             started for it (`image` or `preset`), not in both",
        )
        .other(other)),
        (None, None) => Err(Fault::new(entry, "this entry does not say where it runs")
            .hint("container_name: NAME for a container that is there")
            .hint("image: IMAGE to start one for each server configuration")),
        (Some((_, value)), None) => {
            for option in keys::RUN_OPTIONS {
                if let Some((at, _)) = given.found(option) {
                    return Err(Fault::new(
                        at,
                        format!(
                            "`{option}` is for a container that is started, and this entry names one that is there"
                        ),
                    ));
                }
            }
            Ok(InPlace::Named("container_name", value))
        }
        (None, Some(_)) => started_for_it(own, given, defaults, presets, template),
    }
}

fn started_for_it<'n>(
    own: &Given<'n>,
    given: &Given<'n>,
    defaults: &Given<'n>,
    presets: Presets<'_>,
    template: &mut Template,
) -> Result<InPlace<'n>, Fault> {
    let mut preset = Preset::default();
    if let Some(value) = given.get("preset") {
        let name = scalars::text("preset", value)?;
        preset = presets(&name).map_err(|failure| {
            // The cause of the failure has the place in the preset.
            let cause = failure.source.as_ref().map(|s| format!(": {s}"));
            let message = format!("{}{}", failure.message, cause.unwrap_or_default());
            let mut fault = Fault::new(value.at, message);
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
        given.found("preset"),
    ) {
        let message = format!("this preset names a model among its arguments (`{word}`)");
        return Err(Fault::new(at, message).hint("`model` in the preset, or `model_id` here"));
    }
    preset.description = String::new();
    for (name, option) in [
        ("shm_size", &mut preset.shm_size),
        ("memory", &mut preset.memory),
    ] {
        if let Some(value) = given.get(name) {
            *option = Some(scalars::size(name, value)?);
        }
    }
    for (name, option) in [("amd", &mut preset.amd), ("ipc_host", &mut preset.ipc_host)] {
        if let Some(value) = given.get(name) {
            *option = scalars::flag(name, value)?;
        }
    }
    if let Some(value) = given.get("gpus") {
        preset.gpus = Some(gpus(value)?);
    }
    for value in layers(own, defaults, "env") {
        for (name, value) in scalars::entries("env", value)? {
            environment(&name.name, name.at, value, &mut preset.env)?;
        }
    }
    if let Some(value) = given.get("volumes") {
        preset.volumes.extend(volumes(value)?);
    }
    if let Some(value) = given.get("hf_cache") {
        let folder = scalars::text("hf_cache", value)?;
        if !folder.starts_with('/') {
            return Err(wrong("hf_cache", "the full path of a folder", value)
                .hint("${HOME}/.cache/huggingface"));
        }
        preset.volumes.push(format!("{folder}:{HF_CACHE}"));
    }
    let image = preset.image.take();
    template.preset = Some(preset);
    match (given.get("image"), given.found("preset"), image) {
        (Some(value), ..) => Ok(InPlace::Named("image", value)),
        (None, _, Some(image)) => Ok(InPlace::OfPreset(image)),
        (None, preset, None) => {
            let at = preset.map(|(at, _)| at).unwrap_or_default();
            Err(Fault::new(at, "this preset names no image").hint("image: IMAGE"))
        }
    }
}

fn environment(
    name: &str,
    at: At,
    value: &Node,
    env: &mut BTreeMap<String, String>,
) -> Result<(), Fault> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Fault::new(
            at,
            format!("`{name}` can be no variable's name"),
        ));
    }
    if value.value == Value::Null {
        env.remove(name);
        return Ok(());
    }
    let text = match &value.value {
        Value::Bool(b) => b.to_string(),
        // 1.10 has become 1.1 by now.
        Value::Float(_) => return Err(wrong(name, "text", value).hint("write it in quotes")),
        _ => scalars::word(name, value)?,
    };
    env.insert(name.to_owned(), text);
    Ok(())
}

fn volumes(node: &Node) -> Result<Vec<String>, Fault> {
    let list = match &node.value {
        Value::List(list) if !list.is_empty() => list.as_slice(),
        Value::Text(_) => std::slice::from_ref(node),
        _ => return Err(wrong("volumes", "a list of SOURCE:TARGET", node)),
    };
    list.iter()
        .map(|volume| {
            let text = scalars::text("volumes", volume)?;
            match text.split_once(':') {
                Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok(text),
                _ => Err(wrong(
                    "volumes",
                    "SOURCE:TARGET or SOURCE:TARGET:ro",
                    volume,
                )),
            }
        })
        .collect()
}

/// A request of GPUs, its ids also as a list.
fn gpus(node: &Node) -> Result<String, Fault> {
    let wanted = "none, all, a count, or a list of ids";
    let text = match &node.value {
        Value::Int(n) if (0..1024).contains(n) => n.to_string(),
        Value::Text(t) => t.trim().to_owned(),
        Value::List(list) if !list.is_empty() => {
            let ids: Result<Vec<String>, Fault> =
                list.iter().map(|id| scalars::word("gpus", id)).collect();
            format!("device={}", ids?.join(","))
        }
        _ => return Err(wrong("gpus", wanted, node)),
    };
    match text.parse::<GpuRequest>() {
        Ok(_) => Ok(text),
        Err(_) if text == "0" => Err(wrong("gpus", wanted, node).hint("the first GPU: `[0]`")),
        Err(_) => Err(wrong("gpus", wanted, node)),
    }
}

fn known_engine(name: &str, at: At) -> Result<String, Fault> {
    super::engine_name(name)
        .map(str::to_owned)
        .map_err(|(message, hint)| Fault::new(at, message).hint(hint))
}

fn engine(given: &Given<'_>, template: &mut Template) -> Result<(), Fault> {
    if let Some(value) = given.get("engine") {
        let name = scalars::text("engine", value)?;
        template.engine = Some(known_engine(&name, value.at)?);
    }
    let Some(value) = given.get("extra_engine_args") else {
        return Ok(());
    };
    let key = "extra_engine_args";
    template.extra_args = match &value.value {
        Value::List(list) if list.is_empty() => {
            scalars::elements(key, value).map(|_| Vec::new())?
        }
        Value::List(list) => list
            .iter()
            .map(|w| scalars::word(key, w))
            .collect::<Result<_, _>>()?,
        Value::Text(line) => shlex::split(line)
            .ok_or_else(|| Fault::new(value.at, format!("`{key}`: a quote is left open")))?,
        _ => return Err(wrong(key, "a line of words or a list of them", value)),
    };
    let words = std::mem::take(&mut template.extra_args);
    let words = words.into_iter().map(|w| scalars::short(key, value, w));
    template.extra_args = words.collect::<Result<_, _>>()?;
    let mut flags = template.extra_args.iter().filter(|w| w.starts_with('-'));
    flags.try_for_each(|word| free(value.at, word))
}

/// Refuses a flag that is not an entry's to give as an argument.
fn free(at: At, flag: &str) -> Result<(), Fault> {
    if let Some(own) = taken::own_key_of(flag) {
        return Err(has_a_key(at, flag, own));
    }
    if taken::is_address(flag) {
        let flag = flag.split('=').next().unwrap_or(flag);
        let message = format!("`{flag}` is not given here: plimsoll says where an engine listens");
        return Err(Fault::new(at, message));
    }
    Ok(())
}

fn has_a_key(at: At, flag: &str, own: &str) -> Fault {
    // What is joined to a short name is its value, perhaps a secret.
    let flag = if flag.starts_with("-q") {
        "-q"
    } else {
        flag.split('=').next().unwrap_or(flag)
    };
    Fault::new(at, format!("`{flag}` has a key of its own: `{own}`"))
        .hint("what is given there is also kept with the results")
}

fn load(given: &Given<'_>, template: &mut Template) -> Result<(), Fault> {
    if let Some(value) = given.get("bench") {
        template.bench = scalars::choice("bench", value, &BenchWord::ALL)?;
    }
    let number = |name: &str, from: u64, to: u64| -> Result<Option<u32>, Fault> {
        let value = given.get(name);
        let number = value
            .map(|v| scalars::whole(name, v, from..=to))
            .transpose()?;
        Ok(number.and_then(|n| u32::try_from(n).ok()))
    };
    let any = u64::from(u32::MAX);
    template.num_prompts = number("num_prompts", 1, any)?;
    template.num_iters = number("num_iters", 1, any)?;
    template.num_iters_warmup = number("num_iters_warmup", 0, any)?;
    template.repeats = number("repeats", 1, 1000)?.unwrap_or(1);
    template.seed = given
        .get("seed")
        .map(|v| scalars::whole("seed", v, 0..=u64::MAX))
        .transpose()?;
    match given.found("request_rates") {
        Some((at, _)) if template.bench.in_process() => Err(no_rate(at, template.bench)),
        _ => Ok(()),
    }
}

/// A rate for a bench that sends no requests.
pub fn no_rate(at: At, bench: BenchWord) -> Fault {
    let bench = bench.as_str();
    let message =
        format!("the {bench} bench has no request rate: it sends no requests to a server");
    Fault::new(at, message).hint("bench: serve or bench: builtin")
}

/// The flag of a key in `engine_args`.
pub fn argument(key: &Key) -> Result<Flag, Fault> {
    let flag = keys::flag(&key.name).ok_or_else(|| {
        Fault::new(key.at, format!("`{}` can be no argument's name", key.name))
            .hint("the flag without its value, as in `max-num-seqs: 64`")
    })?;
    free(key.at, flag.as_str())?;
    Ok(flag)
}

/// The engine's arguments: flag, name as written, value. An entry's own go over the defaults'.
fn arguments<'n>(
    own: &Given<'n>,
    defaults: &Given<'n>,
) -> Result<Vec<(Flag, &'n str, &'n Node)>, Fault> {
    let mut found: Vec<(Flag, &str, &Node)> = Vec::new();
    for node in layers(own, defaults, "engine_args") {
        let mut here: HashMap<Flag, At> = HashMap::new();
        for (key, value) in scalars::entries("engine_args", node)? {
            let flag = argument(key)?;
            let opposite = flag.opposite();
            if let Some(first) = here.get(&flag).or(here.get(&opposite)) {
                return Err(Fault::new(key.at, format!("`{flag}` is given twice")).other(*first));
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
fn said_once(given: &Given<'_>, template: &Template, axes: &[Axis]) -> Result<(), Fault> {
    let Some(value) = given.get("extra_engine_args") else {
        return Ok(());
    };
    let flags = axes.iter().filter_map(|axis| match &axis.key {
        AxisKey::Argument(flag) => Some(flag),
        _ => None,
    });
    for flag in flags {
        let words = template.extra_args.iter().filter(|w| w.starts_with('-'));
        if words.into_iter().any(|word| flag.is_said_by(word)) {
            let message = format!("`{flag}` stands in `engine_args` as well");
            return Err(Fault::new(value.at, message)
                .hint("a flag that is given twice stands in `extra_engine_args` each time"));
        }
    }
    Ok(())
}

/// The values of an axis. In a zip a value may stand several times.
fn axis(key: AxisKey, name: &str, node: &Node, zipped: bool) -> Result<Axis, Fault> {
    let list = match (&key, &node.value) {
        // A comma in an argument is the argument's own.
        (AxisKey::Argument(_), Value::Text(_)) => vec![node.clone()],
        _ => scalars::elements(name, node)?,
    };
    let mut values = Vec::with_capacity(list.len());
    let mut seen: HashMap<String, At> = HashMap::new();
    for element in &list {
        let value = setting(&key, name, element)?;
        if let Some(first) = seen.insert(format!("{value:?}"), element.at) {
            if !zipped {
                let message = format!("{} stands in `{name}` twice", element.shown());
                return Err(Fault::new(element.at, message).other(first));
            }
        }
        values.push(value);
    }
    Ok(Axis { key, values })
}

/// One value of an axis.
pub fn setting(key: &AxisKey, name: &str, node: &Node) -> Result<Setting, Fault> {
    let unset = scalars::is_unset(node);
    match key {
        AxisKey::Model | AxisKey::Place => scalars::text(name, node).map(Setting::Text),
        AxisKey::InputLen | AxisKey::OutputLen => {
            scalars::whole(name, node, 1..=LONGEST).map(Setting::Number)
        }
        AxisKey::BatchSize => {
            scalars::whole(name, node, 1..=u64::from(u32::MAX)).map(Setting::Number)
        }
        _ if unset => Ok(Setting::Unset),
        AxisKey::RequestRate => scalars::positive(name, node).map(Setting::Real),
        AxisKey::Dtype | AxisKey::Quantization | AxisKey::KvCacheDtype => {
            scalars::text(name, node).map(Setting::Text)
        }
        AxisKey::TensorParallelSize => {
            scalars::whole(name, node, 1..=u64::from(u32::MAX)).map(Setting::Number)
        }
        AxisKey::MaxModelLen => scalars::whole(name, node, 1..=u64::MAX).map(Setting::Number),
        AxisKey::GpuMemoryUtilization => scalars::share(name, node).map(Setting::Real),
        AxisKey::EnforceEager => Ok(if scalars::flag(name, node)? {
            Setting::Set
        } else {
            Setting::Unset
        }),
        AxisKey::Argument(_) => match scalars::flag(name, node) {
            Ok(true) => Ok(Setting::Set),
            Ok(false) => Ok(Setting::Unset),
            Err(_) => match scalars::word(name, node) {
                // A value that begins with a dash is a flag to the engine.
                Ok(text) => {
                    let text = scalars::short(name, node, text)?;
                    free(node.at, &text).map(|()| Setting::Text(text))
                }
                Err(_) => Err(wrong(name, "text, a number, true, false or null", node)),
            },
        },
    }
}
