//! A profile as it is held against another: who it is, its settings, its figures and their sources.

use super::figures::{self, OTHERS, Unit};
use super::settings::{self, ProfileSettings};
use crate::breakdown::{Component, EvidenceSource};
use crate::profile::{MemoryGauge, Profile};
use crate::units::GIB;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A profile as it is held against another.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Who it is.
    pub who: Who,
    /// Its settings and its load.
    pub settings: ProfileSettings,
    /// The peak, its parts in reading order, then figures outside the peak.
    pub figures: Vec<SubjectFigure>,
}

/// Who a profile is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Who {
    /// Its file, as it was named.
    pub file: String,
    /// Version of its schema; null where it has none.
    pub schema_version: Option<String>,
    /// Its run.
    pub run_id: Option<String>,
    /// Its start.
    pub timestamp: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The engine.
    pub engine: Option<String>,
    /// Its version.
    pub engine_version: Option<String>,
    /// Why the run is not whole; null where it came to its end.
    pub not_whole: Option<String>,
    /// An engine or a device is simulated.
    pub simulated: bool,
    /// How full the device that came nearest to its limit was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fullest_device: Option<MemoryGauge>,
}

/// Which figures belong together.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The peak.
    Total,
    /// A part of the peak; these sum to it.
    Part,
    /// A part of `framework_overhead`; these sum to it.
    OfOverhead,
    /// No part of the peak.
    Other,
}

/// One figure of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct SubjectFigure {
    /// `model_weights`.
    pub key: String,
    /// As people read it.
    pub label: String,
    /// Where it belongs.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// The figure, or why it is unknown.
    pub value: Result<f64, String>,
    /// What it rests on; `None` where it is unknown.
    pub source: Option<String>,
}

impl Subject {
    /// Of a profile in `file`.
    pub fn subject_of_profile(profile: &Profile, file: &str) -> Subject {
        let meta = &profile.metadata;
        let who = Who {
            file: file.into(),
            schema_version: Some(profile.schema_version.clone()),
            run_id: Some(meta.run_id.clone()),
            timestamp: Some(meta.timestamp.clone()),
            model: profile.model_info.name.clone(),
            engine: Some(profile.engine_metadata.engine_type.clone()),
            engine_version: profile.engine_metadata.engine_version.clone(),
            not_whole: meta.outcome.describe(),
            simulated: meta.simulated,
            fullest_device: profile.fullest_device().map(|device| device.gauge),
        };
        Subject {
            who,
            settings: settings::settings_of_profile(profile),
            figures: figures_of(profile),
        }
    }

    /// Of a document of an earlier schema: the figures that all of them have. Its `_gb` are taken
    /// for GiB.
    pub fn of_older(document: &Value, file: &str) -> Subject {
        let text = |path: &str| document.pointer(path)?.as_str().map(str::to_owned);
        let settings = settings::of_older(document);
        let who = Who {
            file: file.into(),
            schema_version: text("/schema_version"),
            run_id: text("/metadata/run_id").or_else(|| text("/run_id")),
            timestamp: text("/metadata/timestamp").or_else(|| text("/timestamp")),
            model: settings.get("model").cloned(),
            engine: settings.get("engine").cloned(),
            engine_version: settings.get("engine_version").cloned(),
            ..Who::default()
        };
        let figures = OLDER.iter().map(|(key, label, kind)| {
            let bytes = older_gib(document, key).map(|g| (g * GIB).round());
            let bytes = bytes.filter(|b| b.is_finite());
            SubjectFigure {
                key: (*key).into(),
                label: (*label).into(),
                kind: *kind,
                unit: Unit::Bytes,
                value: bytes.ok_or_else(|| "the document does not have it".into()),
                source: bytes.map(|_| "unknown".into()),
            }
        });
        Subject {
            who,
            settings,
            figures: figures.collect(),
        }
    }

    /// A figure by its key.
    pub fn find_figure(&self, key: &str) -> Option<&SubjectFigure> {
        self.figures.iter().find(|f| f.key == key)
    }

    /// Bytes of a figure, or why they are unknown.
    pub fn figure_bytes(&self, key: &str) -> Result<f64, String> {
        match self.find_figure(key) {
            Some(figure) => figure.value.clone(),
            None => Err(SILENT.into()),
        }
    }
}

/// Of a part that a profile does not name.
pub(super) const SILENT: &str =
    "no source of this run reports it: its memory, if any, is unexplained";

/// Key, label and kind of the figures that schemas before 4.0 have.
const OLDER: &[(&str, &str, Kind)] = &[
    ("total", "Total at the peak", Kind::Total),
    ("baseline", "Baseline", Kind::Part),
    ("model_weights", "Model weights", Kind::Part),
    ("kv_cache", "KV cache pool", Kind::Part),
    ("activations", "Activations", Kind::Part),
    ("framework_overhead", "Framework overhead", Kind::Part),
];

/// A figure of an earlier schema, GiB. Some write `total_measured_gb` for the total.
fn older_gib(document: &Value, key: &str) -> Option<f64> {
    let breakdown = document.get("memory_breakdown")?;
    let measured = (key == "total").then(|| breakdown.get("total_measured_gb")?.as_f64());
    let plain = || breakdown.get(format!("{key}_gb"))?.as_f64();
    measured.flatten().or_else(plain)
}

/// Whether a document of an earlier schema has any figure.
pub fn is_older(document: &Value) -> bool {
    let mut keys = OLDER.iter().map(|(key, _, _)| key);
    keys.any(|key| older_gib(document, key).is_some())
}

fn figures_of(profile: &Profile) -> Vec<SubjectFigure> {
    let breakdown = &profile.memory_breakdown;
    let why = |path: &str| {
        let reason = profile.unknown.get(path).cloned();
        reason.unwrap_or_else(|| SILENT.into())
    };
    let figure = |key: &str, label: &str, kind, value: Option<f64>, path: &str, source: String| {
        SubjectFigure {
            key: key.into(),
            label: label.into(),
            kind,
            unit: Unit::Bytes,
            source: value.is_some().then_some(source),
            value: value.filter(|v| v.is_finite()).ok_or_else(|| why(path)),
        }
    };
    let part = |component: Component, kind| {
        figure(
            &figures::component_key(component),
            component.display_label(),
            kind,
            figures::component_bytes(profile, component),
            figures::reason_path(component),
            source_of_part(profile, component),
        )
    };
    let total = figures::peak_bytes(profile);
    let mut all = vec![figure(
        "total",
        "Total at the peak",
        Kind::Total,
        total,
        "memory_breakdown.total_measured_bytes",
        "measured".into(),
    )];
    let outer = [
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::Activations,
    ];
    all.extend(outer.map(|c| part(c, Kind::Part)));
    let inner: Vec<f64> = (breakdown.components.iter())
        .filter(|p| p.component.is_overhead())
        .map(|p| p.bytes as f64)
        .collect();
    all.push(figure(
        "framework_overhead",
        "Framework overhead",
        Kind::Part,
        total.map(|_| inner.iter().sum()),
        "memory_breakdown.framework_overhead_gb",
        "what the other parts leave".into(),
    ));
    let rest = breakdown.components.iter().map(|p| p.component);
    let rest = rest.filter(|c| c.is_overhead());
    all.extend(rest.map(|c| part(c, Kind::OfOverhead)));
    let used = profile.vllm_internal_metrics.kv_cache_used_gb;
    all.push(figure(
        "kv_cache_used",
        "KV cache in use",
        Kind::Other,
        used.map(|gib| (gib * GIB).round()),
        "vllm_internal_metrics.kv_cache_used_gb",
        "the pool times its highest usage".into(),
    ));
    all.extend(OTHERS.iter().map(|o| {
        let value = (o.pick)(profile);
        SubjectFigure {
            unit: o.unit,
            source: None,
            ..figure(o.key, o.label, Kind::Other, value, o.path, String::new())
        }
    }));
    all
}

/// What a part rests on, over all devices.
pub fn source_of_part(profile: &Profile, component: Component) -> String {
    let mut words: Vec<&str> = Vec::new();
    for e in profile
        .evidence
        .iter()
        .filter(|e| e.used && e.component == component)
    {
        let word = source_word(e.source);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if words.is_empty() {
        words.push(source_word(EvidenceSource::Residual));
    }
    words.join(" and ")
}

/// What kind of witness, in words.
pub fn source_word(source: EvidenceSource) -> &'static str {
    match source {
        EvidenceSource::EngineLog => "the engine's log",
        EvidenceSource::EngineMetrics => "the engine's metrics",
        EvidenceSource::EngineInfo => "the engine's endpoints",
        EvidenceSource::MeasuredDelta => "measured",
        EvidenceSource::MeasuredShared => "measured beside other tenants",
        EvidenceSource::TorchProbe => "torch's allocator",
        EvidenceSource::TorchProbeRss => "resident memory",
        EvidenceSource::Architecture => "calculated from the model's files",
        EvidenceSource::Residual => "what the other parts leave",
    }
}
