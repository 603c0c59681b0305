//! Profiles against figures that were calculated elsewhere and are given by hand.

use super::calculated::{Grade, error_pct, median_and_size};
use super::profiles::Limit;
use super::settings::ProfileSettings;
use super::subject::{Subject, Who};
use crate::units::{GIB, to_gib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the document.
pub const GIVEN_VERSION: &str = "1.0";

/// Beyond this many percent a figure is worth a look.
pub const LOOK_PERCENT: f64 = 15.0;
/// Beyond this many it is wrong.
pub const WRONG_PERCENT: f64 = 30.0;

/// Externally calculated figures, bytes over all GPUs; `None` where nothing was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExternalFigures {
    /// Weights.
    pub weights: Option<u64>,
    /// KV cache.
    pub kv: Option<u64>,
    /// Activations.
    pub activations: Option<u64>,
    /// All else.
    pub overhead: Option<u64>,
    /// What the KV figure is of.
    pub basis: KvBasis,
}

impl ExternalFigures {
    /// Whether anything was given.
    pub fn has_any_figure(&self) -> bool {
        [self.weights, self.kv, self.activations, self.overhead]
            .iter()
            .any(Option::is_some)
    }

    /// The sum, where all four were given.
    fn sum_of_figures(&self) -> Option<u64> {
        let parts = [self.weights?, self.kv?, self.activations?, self.overhead?];
        Some(parts.into_iter().fold(0, u64::saturating_add))
    }
}

/// What a figure for the KV cache is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvBasis {
    /// The pool as the engine reserves it.
    #[default]
    Pool,
    /// What the requests used of it at most.
    Used,
}

/// Profiles against given figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GivenReport {
    /// `calculation`.
    pub document: String,
    /// [`GIVEN_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// What the KV figure is of.
    pub kv_basis: KvBasis,
    /// Each profile.
    pub profiles: Vec<GivenProfile>,
    /// Each component over all profiles.
    pub summary: Vec<GivenSummary>,
    /// What was asked of the errors; null where nothing was.
    pub limit: Option<Limit>,
}

/// One profile against the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GivenProfile {
    /// Who it is.
    pub profile: Who,
    /// Component by component.
    pub rows: Vec<GivenRow>,
    /// What must be known of the measured figures, sentences.
    pub warnings: Vec<String>,
    /// What to change in the calculation, sentences.
    pub recommendations: Vec<String>,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GivenRow {
    /// `model_weights`, `kv_cache`, `activations`, `framework_overhead`, `total`.
    pub component: String,
    /// As people read it.
    pub label: String,
    /// Measured, GiB; null where it is unknown.
    pub measured_gb: Option<f64>,
    /// Calculated, GiB.
    pub calculated_gb: f64,
    /// Calculated less measured, GiB.
    pub diff_gb: Option<f64>,
    /// The same in percent of what was measured.
    pub error_pct: Option<f64>,
    /// How good that is.
    pub grade: Option<Grade>,
    /// Why it was not compared.
    pub unknown: Option<String>,
}

/// One component over all profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GivenSummary {
    /// Its key.
    pub component: String,
    /// As people read it.
    pub label: String,
    /// Profiles that it was compared in.
    pub n: u64,
    /// Median of the errors, percent; too much is positive.
    pub median_error_pct: Option<f64>,
    /// Mean of their sizes, percent.
    pub mean_abs_error_pct: Option<f64>,
}

impl GivenReport {
    /// Holds the figures against each profile.
    pub fn compare_with_given(subjects: &[Subject], given: &ExternalFigures) -> GivenReport {
        let profiles: Vec<GivenProfile> =
            subjects.iter().map(|s| compare_profile(s, given)).collect();
        GivenReport {
            document: "calculation".into(),
            schema_version: GIVEN_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            kv_basis: given.basis,
            summary: summarize_components(&profiles),
            profiles,
            limit: None,
        }
    }

    /// Judges every error.
    pub fn judge_errors(&mut self, percent: f64, ignore_below_bytes: u64) {
        let mut limit = Limit::new(Some(percent), ignore_below_bytes);
        for row in self.profiles.iter().flat_map(|p| &p.rows) {
            let list = match (row.diff_gb, row.error_pct) {
                (None, _) => &mut limit.not_judged,
                (Some(d), _) if (d * GIB).abs() <= ignore_below_bytes as f64 => continue,
                (Some(_), Some(e)) if e.abs() <= percent => continue,
                (Some(_), _) => &mut limit.exceeded,
            };
            if !list.contains(&row.component) {
                list.push(row.component.clone());
            }
        }
        self.limit = Some(limit);
    }
}

fn compare_profile(subject: &Subject, given: &ExternalFigures) -> GivenProfile {
    let (kv, kv_label) = match given.basis {
        KvBasis::Pool => (subject.figure_bytes("kv_cache"), "KV cache pool"),
        KvBasis::Used => (subject.figure_bytes("kv_cache_used"), "KV cache in use"),
    };
    // What others held is in no calculation.
    let others = subject.figure_bytes("baseline").unwrap_or(0.0);
    let total = subject.figure_bytes("total").map(|total| total - others);
    // With KV in use the rest of the pool would be missing.
    let sum = (given.sum_of_figures()).filter(|_| given.basis == KvBasis::Pool);
    let rows: Vec<GivenRow> = [
        ("model_weights", "Model weights", given.weights),
        ("kv_cache", kv_label, given.kv),
        ("activations", "Activations", given.activations),
        ("framework_overhead", "Framework overhead", given.overhead),
        ("total", "Total", sum),
    ]
    .into_iter()
    .filter_map(|(key, label, calculated)| {
        let measured = match key {
            "kv_cache" => kv.clone(),
            "total" => total.clone(),
            key => subject.figure_bytes(key),
        };
        Some(compare_component(key, label, calculated?, measured))
    })
    .collect();
    GivenProfile {
        profile: subject.who.clone(),
        warnings: warnings(subject),
        recommendations: recommendations(subject, given, &rows),
        rows,
    }
}

fn compare_component(
    key: &str,
    label: &str,
    calculated: u64,
    measured: Result<f64, String>,
) -> GivenRow {
    let known = measured.as_ref().ok().copied();
    let error = known.and_then(|m| error_pct(calculated as f64, m));
    GivenRow {
        component: key.into(),
        label: label.into(),
        measured_gb: known.map(|m| m / GIB),
        calculated_gb: to_gib(calculated),
        diff_gb: known.map(|m| (calculated as f64 - m) / GIB),
        error_pct: error,
        // An error against nothing has no percentage, and is poor.
        grade: known.map(|_| error.map_or(Grade::Poor, Grade::grade_of_error)),
        unknown: measured.err(),
    }
}

fn warnings(subject: &Subject) -> Vec<String> {
    let mut all: Vec<String> = subject.who.not_whole.iter().cloned().collect();
    if subject.who.simulated {
        all.push(
            "the engine or a device is simulated: the figures do not describe a real one".into(),
        );
    }
    if subject.settings.get("memory").is_some_and(|m| m == "host") {
        all.push("measured in host memory: what is calculated for a GPU has no runtime, no page cache and no bench client in it".into());
    }
    if let Some(gpus) = subject.settings.get("gpus").filter(|n| n.as_str() != "1") {
        all.push(format!(
            "the measured figures are sums over {gpus} GPUs: calculate for all of them"
        ));
    }
    let overhead = subject.figure_bytes("framework_overhead");
    if overhead.is_ok_and(|bytes| bytes < 0.0) {
        all.push("the overhead is negative: the witnesses of the other parts claim more than was measured; the total holds all the same".into());
    }
    all
}

/// What to change, for each figure that is off by more than [`LOOK_PERCENT`].
fn recommendations(subject: &Subject, given: &ExternalFigures, rows: &[GivenRow]) -> Vec<String> {
    let mut all = Vec::new();
    for row in rows {
        let off = row.error_pct.unwrap_or(f64::INFINITY);
        if row.unknown.is_some() || off.abs() <= LOOK_PERCENT || row.component == "total" {
            continue;
        }
        let size = match row.error_pct {
            Some(e) => {
                let side = if e > 0.0 { "high" } else { "low" };
                let is_wrong = e.abs() > WRONG_PERCENT;
                let wrong = if is_wrong { ", which is wrong" } else { "" };
                format!("{:.0} % too {side}{wrong}", e.abs())
            }
            None => "something, and there was nothing".into(),
        };
        let advice = match row.component.as_str() {
            "model_weights" => weights_advice(&subject.settings, off),
            "kv_cache" => kv_advice(subject, given, off),
            "activations" => "they follow the largest batch that the engine prepares for (max_num_batched_tokens, and max_num_seqs times the vocabulary), not the batch of this load".into(),
            _ => "CUDA context, graphs and communication buffers are constant for an engine's version and a GPU, and no share of the model: take them from runs (`plimsoll calibrate`)".into(),
        };
        all.push(format!("{}: calculated {size}; {advice}", row.label));
    }
    all
}

fn weights_advice(settings: &ProfileSettings, off: f64) -> String {
    let setting = |name: &str, none| settings.get(name).map_or(none, String::as_str);
    let dtype = setting("weights_dtype", "unknown");
    let quantised = setting("quantization", "none is reported");
    let tp = setting("tensor_parallel_size", "1");
    if off > 0.0 {
        format!(
            "look at the bytes of a parameter (type {dtype}, quantisation: {quantised}) and whether the output layer is the embedding and was counted twice"
        )
    } else {
        format!(
            "look at the parameters (all experts, not the active ones; an output layer of its own; a vision tower), at what quantisation leaves in 16 bits ({quantised}), and at what each of {tp} GPUs keeps whole"
        )
    }
}

fn kv_advice(subject: &Subject, given: &ExternalFigures, off: f64) -> String {
    let nearer_to_used = || {
        let pool = subject.figure_bytes("kv_cache").ok()?;
        let used = subject.figure_bytes("kv_cache_used").ok()?;
        let calculated = given.kv? as f64;
        ((calculated - used).abs() < (calculated - pool).abs()).then_some(used)
    };
    if given.basis == KvBasis::Pool {
        if let Some(used) = nearer_to_used() {
            return format!(
                "the figure is nearer to the {:.2} GiB that were in use than to the pool: --kv-basis used compares it with that",
                used / GIB
            );
        }
        if off < 0.0 {
            return "the engine reserves what is left of its share of the GPU, whatever the load: calculate the pool, or compare with --kv-basis used".into();
        }
    }
    "a token takes 2 x layers x KV heads x head size x bytes of the KV type: KV heads, not attention heads or the hidden size; layers with a window, latent attention or a shared cache take less".into()
}

fn summarize_components(profiles: &[GivenProfile]) -> Vec<GivenSummary> {
    let mut all: Vec<GivenSummary> = Vec::new();
    let rows = || profiles.iter().flat_map(|p| &p.rows);
    for row in rows() {
        if all.iter().any(|s| s.component == row.component) {
            continue;
        }
        let of = rows().filter(|r| r.component == row.component);
        let errors: Vec<f64> = of.filter_map(|r| r.error_pct).collect();
        let n = errors.len() as u64;
        let (median, mean_size) = median_and_size(errors);
        all.push(GivenSummary {
            component: row.component.clone(),
            label: row.label.clone(),
            n,
            mean_abs_error_pct: mean_size,
            median_error_pct: median,
        });
    }
    all
}
