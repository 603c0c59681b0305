//! Measured against calculated, over one run or many: which items are off, where, and by how much.

use super::calculated::{Calculated, Grade, Item, error_pct, median_and_size};
use super::measured::MeasuredProfile;
use crate::profile::Profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::VariantArray as _;

/// Version of the document.
pub const VALIDATION_VERSION: &str = "1.0";

/// Fewer runs than this say nothing about a kind of run.
pub const FEWEST: u64 = 3;

/// Measured against calculated over all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validation {
    /// `validation`.
    pub document: String,
    /// [`VALIDATION_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Each run.
    pub runs: Vec<RunValidation>,
    /// Over all runs, then by engine and by family of models.
    pub groups: Vec<Group>,
    /// What follows from it, sentences.
    pub recommendations: Vec<String>,
    /// Files that were not validated, each with its reason.
    pub skipped: Vec<Skipped>,
    /// What was asked of the errors; null where nothing was.
    pub limit: Option<ErrorLimit>,
}

/// A file that was not validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The file.
    pub file: String,
    /// Why.
    pub why: String,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunValidation {
    /// Its file.
    pub file: String,
    /// Its run.
    pub run_id: String,
    /// The model.
    pub model: Option<String>,
    /// Its family: `llama`.
    pub family: String,
    /// The engine.
    pub engine: String,
    /// Its version.
    pub engine_version: Option<String>,
    /// What the calculation rests on.
    pub basis: String,
    /// Item by item.
    pub items: Vec<ItemRow>,
    /// What must be known of the measured figures, sentences.
    pub warnings: Vec<String>,
}

/// One item of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemRow {
    /// The item.
    pub item: Item,
    /// Measured, bytes on the GPU with most of it, or tokens; null where it is unknown.
    pub measured: Option<f64>,
    /// What that rests on.
    pub measured_source: Option<String>,
    /// Calculated, in the same unit; null where it is unknown.
    pub calculated: Option<u64>,
    /// Calculated less measured, percent of what was measured.
    pub error_pct: Option<f64>,
    /// How far it may be off, percent.
    pub tolerance_pct: f64,
    /// Whether the error is within the tolerance; null where one is unknown.
    pub within_tolerance: Option<bool>,
    /// How good it is.
    pub grade: Option<Grade>,
    /// Whether the measurement lies in the band that was calculated with it; null where there is
    /// no band.
    pub in_band: Option<bool>,
    /// Why it was not compared.
    pub unknown: Option<String>,
}

/// Runs of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// `all`, `engine`, `family`.
    pub by: String,
    /// Which: `vllm 0.11.0`, `llama`; empty for all.
    pub name: String,
    /// Runs in it.
    pub runs: u64,
    /// Item by item; items that no run could compare are left out.
    pub items: Vec<GroupItem>,
}

/// One item over the runs of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupItem {
    /// The item.
    pub item: Item,
    /// Runs that it was compared in.
    pub n: u64,
    /// Runs in which it was within its tolerance.
    pub within_tolerance: u64,
    /// Median of the errors, percent; too much is positive.
    pub median_error_pct: Option<f64>,
    /// Mean of their sizes, percent.
    pub mean_abs_error_pct: Option<f64>,
    /// Largest of their sizes, percent.
    pub max_abs_error_pct: Option<f64>,
    /// Runs that had a band for it.
    pub banded: u64,
    /// Of these, runs with the measurement inside it.
    pub in_band: u64,
}

/// How far items may be off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorLimit {
    /// Percent; null: each item's own tolerance.
    pub percent: Option<f64>,
    /// `file: item` of each that is further off.
    pub exceeded: Vec<String>,
    /// Items that were compared.
    pub judged: u64,
}

impl RunValidation {
    /// Holds what was calculated against the profile in `file`.
    pub fn validate_run(profile: &Profile, file: &str, calculated: &Calculated) -> RunValidation {
        let measured = MeasuredProfile::measured_of_profile(profile);
        let items = Item::VARIANTS.iter();
        let items = items.map(|item| validate_item(*item, &measured, calculated));
        let mut warnings = Vec::new();
        warnings.extend(profile.metadata.outcome.describe());
        if profile.metadata.simulated {
            warnings.push("the engine or a device is simulated".into());
        }
        RunValidation {
            file: file.into(),
            run_id: profile.metadata.run_id.clone(),
            family: model_family(
                profile.model_info.name.as_deref(),
                profile.model_info.architecture.as_deref(),
            ),
            model: profile.model_info.name.clone(),
            engine: profile.engine_metadata.engine_type.clone(),
            engine_version: profile.engine_metadata.engine_version.clone(),
            basis: calculated.basis.clone(),
            items: items.filter(is_shown).collect(),
            warnings,
        }
    }
}

/// A row that neither side knows is left out, unless every reader asks for it.
fn is_shown(row: &ItemRow) -> bool {
    let is_asked = matches!(row.item, Item::Weights | Item::KvPool | Item::Total);
    row.measured.is_some() || row.calculated.is_some() || is_asked
}

fn validate_item(item: Item, measured: &MeasuredProfile<'_>, calculated: &Calculated) -> ItemRow {
    let (reading, claim) = (measured.reading_of_item(item), calculated.claim_for(item));
    let known = reading.as_ref().ok().map(|(value, _)| *value);
    let both = known.zip(claim.value.as_ref().ok().copied());
    let error = both.and_then(|(m, c)| error_pct(c as f64, m));
    // Something for nothing has no percentage, and is out of any tolerance.
    let within = both.map(|_| error.is_some_and(|e| e.abs() <= item.tolerance_percent()));
    let in_band = (both.zip(claim.band))
        .map(|((measured, _), (low, high))| (low as f64..=high as f64).contains(&measured));
    let unknown = match (&reading, &claim.value) {
        (Err(why), Err(other)) => Some(format!("not measured: {why}; not calculated: {other}")),
        (Err(why), Ok(_)) => Some(format!("not measured: {why}")),
        (Ok(_), Err(why)) => Some(format!("not calculated: {why}")),
        (Ok(_), Ok(_)) => None,
    };
    ItemRow {
        item,
        measured: known,
        measured_source: reading.ok().map(|(_, source)| source),
        calculated: claim.value.ok(),
        error_pct: error,
        tolerance_pct: item.tolerance_percent(),
        within_tolerance: within,
        grade: both.map(|_| error.map_or(Grade::Poor, Grade::grade_of_error)),
        in_band,
        unknown,
    }
}

impl Validation {
    /// Over these runs.
    pub fn validate_runs(runs: Vec<RunValidation>, skipped: Vec<Skipped>) -> Validation {
        let mut groups = vec![group("all", "", runs.iter())];
        let engine = |r: &RunValidation| match &r.engine_version {
            Some(version) => format!("{} {version}", r.engine),
            None => r.engine.clone(),
        };
        groups.extend(by(&runs, "engine", engine));
        groups.extend(by(&runs, "family", |r| r.family.clone()));
        Validation {
            document: "validation".into(),
            schema_version: VALIDATION_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            recommendations: recommendations(&groups, &runs),
            runs,
            groups,
            skipped,
            limit: None,
        }
    }

    /// Judges every item that could be compared, against `percent` or its own tolerance.
    pub fn judge_errors(&mut self, percent: Option<f64>) {
        let mut limit = ErrorLimit {
            percent,
            ..ErrorLimit::default()
        };
        for run in &self.runs {
            for row in run.items.iter().filter(|r| r.within_tolerance.is_some()) {
                limit.judged += 1;
                let most = percent.unwrap_or(row.tolerance_pct);
                if row.error_pct.is_none_or(|e| e.abs() > most) {
                    let name = format!("{}: {}", run.file, row.item.document_key());
                    limit.exceeded.push(name);
                }
            }
        }
        self.limit = Some(limit);
    }
}

fn by(runs: &[RunValidation], kind: &str, name: impl Fn(&RunValidation) -> String) -> Vec<Group> {
    let mut sorted: BTreeMap<String, Vec<&RunValidation>> = BTreeMap::new();
    for run in runs {
        sorted.entry(name(run)).or_default().push(run);
    }
    let groups = sorted.iter();
    let groups = groups.map(|(name, runs)| group(kind, name, runs.iter().copied()));
    groups.collect()
}

fn group<'a>(by: &str, name: &str, runs: impl Iterator<Item = &'a RunValidation> + Clone) -> Group {
    let items = Item::VARIANTS.iter().filter_map(|&item| {
        let rows = runs.clone().flat_map(|r| &r.items);
        let rows = rows.filter(|r| r.item == item && r.within_tolerance.is_some());
        let rows: Vec<&ItemRow> = rows.collect();
        let errors = || rows.iter().filter_map(|r| r.error_pct);
        let (median, mean_size) = median_and_size(errors().collect());
        let count = |pick: fn(&ItemRow) -> Option<bool>, is: bool| {
            rows.iter().filter(|r| pick(r) == Some(is)).count() as u64
        };
        let in_band = count(|r| r.in_band, true);
        (!rows.is_empty()).then(|| GroupItem {
            item,
            n: rows.len() as u64,
            within_tolerance: count(|r| r.within_tolerance, true),
            mean_abs_error_pct: mean_size,
            max_abs_error_pct: errors().map(f64::abs).reduce(f64::max),
            median_error_pct: median,
            banded: in_band + count(|r| r.in_band, false),
            in_band,
        })
    });
    Group {
        by: by.into(),
        name: name.into(),
        items: items.collect(),
        runs: runs.count() as u64,
    }
}

/// What follows from the groups, in words.
fn recommendations(groups: &[Group], runs: &[RunValidation]) -> Vec<String> {
    let mut all = Vec::new();
    if groups.first().is_none_or(|g| g.items.is_empty()) {
        let mut items = runs.iter().flat_map(|r| &r.items);
        let why = items.find_map(|i| i.unknown.as_ref());
        all.extend(why.map(|w| format!("nothing could be compared; the first reason: {w}")));
        return all;
    }
    let all_runs = groups.first().map_or(0, |g| g.runs);
    // A group that is all runs would say the same again.
    for group in (groups.iter()).filter(|g| g.by == "all" || g.runs < all_runs) {
        let of = match group.by.as_str() {
            "all" => "all runs".to_owned(),
            _ => format!("{} {}", group.by, group.name),
        };
        for item in &group.items {
            let Some(median) = item.median_error_pct.filter(|_| item.n >= FEWEST) else {
                continue;
            };
            if median.abs() > item.item.tolerance_percent() {
                let side = if median > 0.0 { "high" } else { "low" };
                all.push(format!(
                    "{} is calculated {:.0} % too {side} for {of} (median of {}): {}",
                    item.item.display_label(),
                    median.abs(),
                    item.n,
                    advice(item.item)
                ));
            }
            if item.banded >= FEWEST && item.in_band * 10 < item.banded * 8 {
                all.push(format!(
                    "{}: {} of {} measurements of {of} lie in the 90 % interval: the interval is too narrow",
                    item.item.display_label(),
                    item.in_band,
                    item.banded
                ));
            }
        }
    }
    if all.is_empty() {
        let few = groups[0].items.iter().all(|i| i.n < FEWEST);
        all.push(if few {
            format!("too few runs for advice: it takes {FEWEST} that could be compared")
        } else {
            "no item is off by more than its tolerance in the median: nothing to change".into()
        });
    }
    all
}

fn advice(item: Item) -> &'static str {
    match item {
        Item::Weights => {
            "compare the checkpoint (its index or headers) with its config: quantised or not, tied or not, all experts"
        }
        Item::KvPool | Item::KvTokens => {
            "the pool is what the other items leave of the engine's share: mend these first, then look at the bytes per token and the version's sizing rule"
        }
        Item::KvUsed => {
            "look at the bytes per token (KV heads, KV type, windows) and at the tokens that were in flight at once"
        }
        Item::Activation => {
            "look at max_num_seqs and max_num_batched_tokens in force, and at the sampler of this version"
        }
        Item::CudaGraphs | Item::NonTorch | Item::Overhead => {
            "no formula is accurate for it: `plimsoll calibrate` learns it from these runs"
        }
        Item::Total => "mend the largest item that is off",
    }
}

/// The family of a model, lower case: `llama`, `qwen`, `deepseek`; else `unknown`.
pub fn model_family(name: Option<&str>, architecture: Option<&str>) -> String {
    let letters = |text: &str| -> String {
        let word = text.chars().take_while(char::is_ascii_alphabetic);
        word.collect::<String>().to_ascii_lowercase()
    };
    // A path's or an id's last part is the model.
    let last = name.map(|n| n.trim_end_matches('/').rsplit('/').next().unwrap_or(n));
    let end = "ForCausalLM ForConditionalGeneration LMHeadModel Model".split(' ');
    let class = architecture.map(|a| {
        let bare = end.clone().find_map(|e| a.strip_suffix(e)).unwrap_or(a);
        letters(bare)
    });
    let mut words = class.into_iter().chain(last.map(letters));
    let found = words.find(|word| !word.is_empty());
    found.unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn families_come_from_the_class_else_the_name() {
        for (name, class, family) in [
            (
                Some("meta-llama/Llama-3.1-8B"),
                Some("LlamaForCausalLM"),
                "llama",
            ),
            (Some("my-finetune"), Some("Qwen3MoeForCausalLM"), "qwen"),
            (Some("deepseek-ai/DeepSeek-V3"), None, "deepseek"),
            (Some("/models/mistral-7b/"), None, "mistral"),
            (Some("/models/7b"), None, "unknown"),
            (None, None, "unknown"),
        ] {
            assert_eq!(
                super::model_family(name, class),
                family,
                "{name:?} {class:?}"
            );
        }
    }
}
