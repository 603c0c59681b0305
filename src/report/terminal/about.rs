//! The lines above a run's timeline: its identity, and the statistics of its memory.

use crate::engine::shown_name;
use crate::profile::Profile;
use crate::report::layout::{format_figure, grouped_count};

/// Who a run is, of a profile that was read at `name`: labels and values. A recording has no engine and no load.
pub fn describe_run(name: &str, profile: &Profile) -> Vec<(String, String)> {
    let mut facts = vec![("run".to_owned(), name.to_owned())];
    let mut put = |label: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.push((label.to_owned(), value));
        }
    };
    let engine = &profile.engine_metadata;
    let version = engine.engine_version.as_deref();
    let engine = match engine.engine_type.as_str() {
        "" => None,
        name => Some(format!(
            "{} {}",
            shown_name(name),
            version.unwrap_or("of unknown version")
        )),
    };
    put("model", profile.model_info.name.clone());
    put("engine", engine);
    let devices = profile.gpu_info.devices.iter();
    let devices: Vec<String> = devices.map(|d| format!("{} {}", d.index, d.name)).collect();
    put("devices", Some(devices.join(", ")));
    let breakdown = &profile.memory_breakdown;
    let peak = breakdown
        .total_measured_gb
        .filter(|_| !profile.parameters.bench.is_empty());
    put("peak", peak.map(|gib| format!("{gib:.3} GiB")));
    let memory = &profile.memory_timeline;
    let known = [
        ("lowest", memory.min_gb),
        ("median", memory.median_gb),
        ("mean", memory.mean_gb),
        ("95th percentile", memory.p95_gb),
        ("highest", memory.max_gb),
    ];
    let words: Vec<String> = known
        .iter()
        .filter_map(|(word, gib)| Some(format!("{word} {:.3}", (*gib)?)))
        .collect();
    if !words.is_empty() {
        put(
            "samples",
            Some(format!(
                "{} of all devices, GiB: {}",
                grouped_count(memory.num_samples),
                words.join(", ")
            )),
        );
    }
    let power = memory.extended.as_ref().and_then(|e| e.power.as_ref());
    put(
        "power",
        power.map(|p| {
            format!(
                "mean {} W, highest {} W",
                format_figure(p.mean_w),
                format_figure(p.max_w)
            )
        }),
    );
    facts
}
