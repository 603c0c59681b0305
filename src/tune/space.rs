//! The settings that a tuning chooses among: what differs from candidate to candidate.

use crate::engine::argv::{Flags, Grammar};
use crate::matrix::{EnginePlace, ServerConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The value of a setting that a candidate leaves to its engine.
pub const DEFAULT_VALUE: &str = "default";

/// One setting that differs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingAxis {
    /// Its name with dashes: `max-num-seqs`.
    pub name: String,
    /// Its values: numbers from low to high, words in the order of their letters.
    pub values: Vec<String>,
    /// Whether neighbours in `values` are alike: all of them are numbers.
    pub ordered: bool,
}

/// All candidates, each as the place of its value on every axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettingSpace {
    /// What differs.
    pub axes: Vec<SettingAxis>,
    /// For each candidate, for each axis the index of its value.
    pub candidates: Vec<Vec<usize>>,
}

impl SettingSpace {
    /// Of the settings of each candidate by name.
    pub fn of_candidates(settings: &[BTreeMap<String, String>]) -> SettingSpace {
        let names: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
        let value = |candidate: &BTreeMap<String, String>, name: &String| {
            let value = candidate.get(name).cloned();
            value.unwrap_or_else(|| DEFAULT_VALUE.to_owned())
        };
        let axes: Vec<SettingAxis> = names
            .into_iter()
            .filter_map(|name| {
                let values: BTreeSet<String> = settings.iter().map(|c| value(c, name)).collect();
                (values.len() > 1).then(|| SettingAxis::of_values(name, values))
            })
            .collect();
        let place = |candidate: &BTreeMap<String, String>, axis: &SettingAxis| {
            let value = value(candidate, &axis.name);
            axis.values.iter().position(|v| *v == value).unwrap_or(0)
        };
        let candidates = settings
            .iter()
            .map(|candidate| axes.iter().map(|axis| place(candidate, axis)).collect())
            .collect();
        SettingSpace { axes, candidates }
    }

    /// A candidate's values by name, of the settings that differ.
    pub fn values_of(&self, candidate: usize) -> BTreeMap<String, String> {
        let places = self.candidates.get(candidate).into_iter().flatten();
        let values = self.axes.iter().zip(places).filter_map(|(axis, place)| {
            Some((axis.name.clone(), axis.values.get(*place)?.clone()))
        });
        values.collect()
    }

    /// A candidate in words: `max-num-seqs 16, kv-cache-dtype fp8`.
    pub fn describe_candidate(&self, candidate: usize) -> String {
        describe_settings(&self.values_of(candidate))
    }
}

impl SettingAxis {
    fn of_values(name: &str, values: BTreeSet<String>) -> SettingAxis {
        let mut values: Vec<String> = values.into_iter().collect();
        let number = |text: &String| text.parse::<f64>().ok().filter(|n| n.is_finite());
        let ordered = values.iter().all(|v| number(v).is_some());
        if ordered {
            values.sort_by(|a, b| {
                number(a)
                    .unwrap_or(0.0)
                    .total_cmp(&number(b).unwrap_or(0.0))
            });
        }
        SettingAxis {
            name: name.to_owned(),
            values,
            ordered,
        }
    }
}

/// Settings in words: `max-num-seqs 16, kv-cache-dtype fp8`.
pub fn describe_settings(settings: &BTreeMap<String, String>) -> String {
    if settings.is_empty() {
        return "the only settings".to_owned();
    }
    let words = settings
        .iter()
        .map(|(name, value)| format!("{name} {value}"));
    words.collect::<Vec<_>>().join(", ")
}

/// What a server is started with, by name: model, image, settings, arguments.
pub fn settings_of_server(server: &ServerConfig) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([("model".to_owned(), server.model.clone())]);
    let place = match &server.place {
        EnginePlace::Container(_) => "container",
        EnginePlace::Image(_) => "image",
    };
    all.insert(place.to_owned(), server.place.place_name().to_owned());
    let dashes = |name: &str| name.replace('_', "-");
    let named = server.settings.named().into_iter();
    all.extend(named.map(|(name, value)| (dashes(name), value)));
    let flags = Flags::read(&server.engine_args, &Grammar::default());
    all.extend(flags.texts(&[]).map(|(name, value)| (dashes(&name), value)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(values: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        values.iter().map(own).collect()
    }

    #[test]
    fn only_what_differs_is_an_axis_and_numbers_are_ordered() {
        let space = SettingSpace::of_candidates(&[
            candidate(&[
                ("model", "m"),
                ("max-num-seqs", "128"),
                ("kv-cache-dtype", "fp8"),
            ]),
            candidate(&[("model", "m"), ("max-num-seqs", "16")]),
        ]);
        let axes: Vec<_> = space
            .axes
            .iter()
            .map(|a| (a.name.as_str(), a.ordered))
            .collect();
        assert_eq!(axes, [("kv-cache-dtype", false), ("max-num-seqs", true)]);
        assert_eq!(space.axes[1].values, ["16", "128"]);
        assert_eq!(
            space.describe_candidate(1),
            "kv-cache-dtype default, max-num-seqs 16"
        );
    }

    #[test]
    fn a_server_is_read_with_its_arguments() {
        let mut server = (*crate::matrix::samples::server("m")).clone();
        server.settings.max_model_len = Some(4096);
        server.engine_args = ["--max_num_seqs", "8", "--enable-prefix-caching"]
            .map(String::from)
            .to_vec();
        let settings = settings_of_server(&server);
        assert_eq!(settings["max-num-seqs"], "8");
        assert_eq!(settings["max-model-len"], "4096");
        assert_eq!(settings["enable-prefix-caching"], "true");
    }
}
