//! What is done to an entry's product: lists side by side, cells left out, cells added.

use super::super::expand::{AxisKey, AxisValue, CellTemplate, ExcludePattern, MatrixAxis};
use super::entry::{GivenKeys, argument_flag, no_rate, read_setting};
use super::keys;
use super::scalars::{self, wrong_value};
use super::tree::{FileFault, NodePlace, YamlKey, YamlNode, YamlValue};
use crate::wording::{count_noun, did_you_mean};
use std::collections::HashMap;

/// The entries of a map of the file.
type MapEntries = [(YamlKey, YamlNode)];

/// Axes that go side by side.
#[derive(Debug)]
pub struct Zip {
    pub axes: Vec<AxisKey>,
    /// Where each is named.
    at: Vec<NodePlace>,
}

/// Reads `zip`: a list of lists of names, or one such list.
pub fn read_zips(given: &GivenKeys<'_>) -> Result<Vec<Zip>, FileFault> {
    let Some(node) = given.value_of("zip") else {
        return Ok(Vec::new());
    };
    let wanted = "a list of lists of keys, as in [[input_lengths, output_lengths]]";
    let YamlValue::List(list) = &node.value else {
        return Err(wrong_value("zip", wanted, node));
    };
    let flat = list.iter().all(|n| matches!(n.value, YamlValue::Text(_)));
    let groups: Vec<&YamlNode> = if flat {
        vec![node]
    } else {
        list.iter().collect()
    };
    let mut seen: HashMap<AxisKey, NodePlace> = HashMap::new();
    let mut zips = Vec::new();
    for group in groups {
        let YamlValue::List(names) = &group.value else {
            return Err(wrong_value("zip", wanted, group));
        };
        if names.len() < 2 {
            return Err(FileFault::new(
                group.at,
                "`zip` wants two lists or more that go side by side",
            ));
        }
        let mut zip = Zip {
            axes: Vec::new(),
            at: Vec::new(),
        };
        for name in names {
            let key = axis_named(&scalars::read_text("zip", name)?, name)?;
            if let Some(first) = seen.insert(key.clone(), name.at) {
                let message = format!("{} is in `zip` twice", name.describe_value());
                return Err(FileFault::new(name.at, message).with_other(first));
            }
            zip.axes.push(key);
            zip.at.push(name.at);
        }
        zips.push(zip);
    }
    Ok(zips)
}

/// The axis of a name in `zip`: a key, or an argument of the engine as `engine_args.NAME` or `--NAME`.
fn axis_named(name: &str, node: &YamlNode) -> Result<AxisKey, FileFault> {
    let argument = name
        .strip_prefix("engine_args.")
        .or(Some(name).filter(|n| n.starts_with('-')));
    if let Some(flag) = argument.and_then(keys::flag_of_name) {
        return Ok(AxisKey::Argument(flag));
    }
    keys::find_key(&keys::KEYS.entry, name)
        .and_then(|spec| keys::axis_of(&spec.name))
        .ok_or_else(|| {
            FileFault::new(
                node.at,
                format!(
                    "{} is not a list that can go side by side",
                    node.describe_value()
                ),
            )
            .with_hint_if(did_you_mean(name, keys::axis_names(), 1).filter(|_| !node.secret))
        })
}

/// Whether lists that go side by side are there, of one length, and no pair of values comes twice.
pub fn check_zips(zips: &[Zip], axes: &[MatrixAxis]) -> Result<(), FileFault> {
    for zip in zips {
        let mut lists: Vec<&MatrixAxis> = Vec::new();
        for (key, at) in zip.axes.iter().zip(&zip.at) {
            let Some(axis) = axes.iter().find(|a| a.key == *key) else {
                let message = format!(
                    "`zip` names `{}`, which this entry does not have",
                    keys::name_of(key)
                );
                return Err(FileFault::new(*at, message));
            };
            if let Some(first) = lists.first() {
                if first.values.len() != axis.values.len() {
                    return Err(FileFault::new(
                        *at,
                        format!(
                            "`{}` has {} and `{}` {}: lists that go side by side must be of one length",
                            keys::name_of(&first.key),
                            count_noun(first.values.len(), "value"),
                            keys::name_of(key),
                            count_noun(axis.values.len(), "value"),
                        ),
                    ));
                }
            }
            lists.push(axis);
        }
        let mut seen = HashMap::new();
        let len = lists.first().map_or(0, |l| l.values.len());
        for i in 0..len {
            let tuple: Vec<Option<&AxisValue>> = lists.iter().map(|l| l.values.get(i)).collect();
            if let Some(first) = seen.insert(format!("{tuple:?}"), i + 1) {
                let message = format!("values {first} and {} of these lists are the same", i + 1);
                return Err(FileFault::new(
                    zip.at.first().copied().unwrap_or_default(),
                    message,
                ));
            }
        }
    }
    Ok(())
}

/// Reads `exclude`: each pattern with its place.
pub fn read_exclude(
    given: &GivenKeys<'_>,
    template: &CellTemplate,
) -> Result<Vec<(ExcludePattern, NodePlace)>, FileFault> {
    maps("exclude", given)?
        .into_iter()
        .map(|(at, map)| {
            let mut pattern = ExcludePattern::new();
            for (key, name, value) in axes_of("exclude", map, template)? {
                let list = match (&key, &value.value) {
                    (AxisKey::Argument(_), YamlValue::Text(_)) => vec![value.clone()],
                    _ => scalars::list_elements(name, value)?,
                };
                let wanted: Result<Vec<AxisValue>, FileFault> = list
                    .iter()
                    .map(|v| {
                        if scalars::is_unset(v) {
                            Ok(AxisValue::Unset)
                        } else {
                            read_setting(&key, name, v)
                        }
                    })
                    .collect();
                pattern.push((key, wanted?));
            }
            Ok((pattern, at))
        })
        .collect()
}

/// Reads `include`: for each cell one value of each axis that it names; of the others there must
/// be one only.
pub fn read_include(
    given: &GivenKeys<'_>,
    template: &CellTemplate,
    axes: &[MatrixAxis],
) -> Result<Vec<Vec<(AxisKey, AxisValue)>>, FileFault> {
    maps("include", given)?
        .into_iter()
        .map(|(at, map)| {
            let mut cell = Vec::new();
            for (key, name, value) in axes_of("include", map, template)? {
                if matches!(value.value, YamlValue::List(_)) {
                    return Err(wrong_value(name, "one value in `include`", value));
                }
                if key == AxisKey::RequestRate && template.load.bench.in_process() {
                    return Err(no_rate(value.at, template.load.bench));
                }
                if let AxisKey::Argument(flag) = &key {
                    let opposite = AxisKey::Argument(flag.opposite_flag());
                    if let Some(other) = axes.iter().find(|a| a.key == opposite) {
                        let message = format!(
                            "`{flag}` and `{}` say the same thing twice",
                            keys::name_of(&other.key)
                        );
                        return Err(FileFault::new(at, message));
                    }
                }
                cell.push((key.clone(), read_setting(&key, name, value)?));
            }
            let sets = |cell: &[(AxisKey, AxisValue)], key| cell.iter().any(|(k, _)| *k == key);
            if sets(&cell, AxisKey::RequestRate)
                && !sets(&cell, AxisKey::BatchSize)
                && given.value_of("batch_sizes").is_none()
            {
                cell.push((AxisKey::BatchSize, AxisValue::Unset));
            }
            match axes
                .iter()
                .find(|a| a.values.len() > 1 && !cell.iter().any(|(k, _)| *k == a.key))
            {
                Some(open) => Err(FileFault::new(
                    at,
                    format!(
                        "this cell does not say which of the {} in `{}`",
                        count_noun(open.values.len(), "value"),
                        keys::name_of(&open.key)
                    ),
                )),
                None => Ok(cell),
            }
        })
        .collect()
}

/// The maps of a list, each with something in it.
fn maps<'n>(
    name: &str,
    given: &GivenKeys<'n>,
) -> Result<Vec<(NodePlace, &'n MapEntries)>, FileFault> {
    let Some(node) = given.value_of(name) else {
        return Ok(Vec::new());
    };
    let YamlValue::List(list) = &node.value else {
        return Err(wrong_value(name, "a list of maps", node));
    };
    list.iter()
        .map(|node| match &node.value {
            YamlValue::Map(map) if !map.is_empty() => Ok((node.at, map.as_slice())),
            YamlValue::Map(_) => Err(FileFault::new(node.at, format!("`{name}`: an empty map"))),
            _ => Err(wrong_value(name, "a list of maps", node)),
        })
        .collect()
}

/// The axes that a map names, each with its name as written and its value.
fn axes_of<'n>(
    what: &str,
    map: &'n MapEntries,
    template: &CellTemplate,
) -> Result<Vec<(AxisKey, &'n str, &'n YamlNode)>, FileFault> {
    let mut found: Vec<(AxisKey, &str, &YamlNode)> = Vec::new();
    for (key, value) in map {
        if key.name == "engine_args" {
            for (flag, value) in scalars::map_entries("engine_args", value)? {
                let axis = AxisKey::Argument(argument_flag(flag)?);
                push_axis(&mut found, axis, flag, value)?;
            }
            continue;
        }
        let spec = keys::find_key(&keys::KEYS.entry, &key.name);
        let Some(axis) = spec.and_then(|s| keys::axis_of(&s.name)) else {
            let known = keys::axis_names().chain(["engine_args"]);
            let message = match spec {
                Some(_) => format!("`{}` is the same for all cells of an entry", key.name),
                None => format!("unknown key `{}` of `{what}`", key.name),
            };
            let near = did_you_mean(&key.name, known, 1).filter(|_| spec.is_none());
            return Err(FileFault::new(key.at, message).with_hint_if(near));
        };
        let place = spec.map_or("", |s| s.name.as_str());
        let started = template.preset.is_some();
        if place == "image" && !started || place == "container_name" && started {
            let message = format!("`{place}` is not where this entry runs");
            return Err(FileFault::new(key.at, message));
        }
        push_axis(&mut found, axis, key, value)?;
    }
    Ok(found)
}

fn push_axis<'n>(
    found: &mut Vec<(AxisKey, &'n str, &'n YamlNode)>,
    axis: AxisKey,
    key: &'n YamlKey,
    value: &'n YamlNode,
) -> Result<(), FileFault> {
    if found.iter().any(|(k, ..)| *k == axis) {
        let message = format!("`{}` is a duplicate", keys::name_of(&axis));
        return Err(FileFault::new(key.at, message));
    }
    found.push((axis, &key.name, value));
    Ok(())
}
