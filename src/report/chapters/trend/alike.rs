//! Which runs may be held against each other: the same model, load and settings that were asked for.

use crate::compare::settings::{self, Role};
use crate::profile::Profile;
use crate::report::material::ReportRun;
use std::collections::{BTreeMap, BTreeSet};

/// Runs that differ in nothing that was asked of them but the version.
pub(super) struct Alike<'a> {
    /// The model.
    pub model: String,
    /// The model, the engine and the load in words.
    pub title: String,
    /// Whether an engine or a device is simulated.
    pub simulated: bool,
    /// The runs, in order of time.
    pub runs: Vec<&'a ReportRun>,
    key: BTreeMap<String, String>,
}

/// Groups of runs that are alike, the largest first.
pub(super) fn group_alike_runs<'a>(runs: &[&'a ReportRun]) -> Vec<Alike<'a>> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<&ReportRun>> = BTreeMap::new();
    for run in runs {
        let group = groups.entry(comparison_key(&run.profile)).or_default();
        group.push(run);
    }
    let groups = groups.into_iter().map(|(key, mut runs)| {
        runs.sort_by_key(|run| &run.profile.metadata.timestamp);
        let word = |name: &str, unknown: &str| key.get(name).map_or(unknown, |w| w).to_owned();
        let model = word("model", "an unknown model");
        let mut title = format!("{model} on {}", word("engine", "an unknown engine"));
        for (name, word) in [
            ("input_len", "in"),
            ("output_len", "out"),
            ("batch_size", "batch"),
        ] {
            if let Some(value) = key.get(name) {
                title += &format!(", {word} {value}");
            }
        }
        Alike {
            model,
            title,
            simulated: runs.iter().any(|r| r.profile.metadata.simulated),
            runs,
            key,
        }
    });
    let mut groups: Vec<Alike> = groups.collect();
    groups.sort_by_key(|g| std::cmp::Reverse(g.runs.len()));
    groups
}

fn comparison_key(profile: &Profile) -> BTreeMap<String, String> {
    let mut key = settings::settings_of_profile(profile);
    let same = [Role::MustAgree, Role::ShouldAgree, Role::SameInTrend];
    key.retain(|name, _| settings::role_of(name).is_some_and(|role| same.contains(&role)));
    let asked = profile.configuration.requested.iter();
    let flags = settings::parse_flags(&profile.parameters.extra_engine_args);
    let asked = asked.map(|(n, v)| (n.clone(), v.clone())).chain(flags);
    for (name, value) in asked {
        if settings::role_of(&name) != Some(Role::Idle) {
            key.entry(format!("asked {name}")).or_insert(value);
        }
    }
    key.insert("simulated".into(), profile.metadata.simulated.to_string());
    key
}

impl Alike<'_> {
    /// Its first run, as shown.
    pub fn group_name(&self) -> &str {
        self.runs.first().map_or("", |r| &r.name)
    }

    /// In which settings it differs from others.
    pub fn differs_from(&self, other: &Alike<'_>) -> String {
        let names: BTreeSet<&String> = self.key.keys().chain(other.key.keys()).collect();
        let differ = names.into_iter().filter_map(|n| {
            let name = n.strip_prefix("asked ").unwrap_or(n);
            let [own, others] = [self, other].map(|runs| runs.key.get(n));
            let word = |v: Option<&String>| v.map_or("nothing", String::as_str).to_owned();
            let text = || format!("{name} {} instead of {}", word(own), word(others));
            (own != others).then(text)
        });
        let differ: Vec<String> = differ.take(4).collect();
        if differ.is_empty() {
            "it has no neighbour".into()
        } else {
            differ.join(", ")
        }
    }
}

/// Settings in force that are one thing in all runs of the one side and another in all of the
/// other: `block_size 16 to 32`.
pub(super) fn changed_settings(a: &[&ReportRun], b: &[&ReportRun]) -> Vec<String> {
    let of = |runs: &[&ReportRun]| {
        let all = runs.iter();
        let all = all.map(|r| settings::settings_of_profile(&r.profile));
        let same = all.reduce(|mut same, next| {
            same.retain(|name, value| next.get(name) == Some(value));
            same
        });
        same.unwrap_or_default()
    };
    let (a, b) = (of(a), of(b));
    let changed = a.iter().filter_map(|(name, before)| {
        let after = b.get(name).filter(|after| *after != before)?;
        let role = settings::role_of(name);
        let is_idle = matches!(role, Some(Role::Idle | Role::NamesRun));
        (!is_idle).then(|| format!("{name} {before} to {after}"))
    });
    changed.collect()
}
