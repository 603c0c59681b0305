//! The document of an A/B run: two arms of one engine that differ in some arguments.

use super::{Comparison, compare_groups};
use crate::engine::facts::{Finding, Severity};
use crate::profile::{MemoryGauge, Profile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the document.
pub const ABLATION_VERSION: &str = "1.0";

/// Two arms side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ablation {
    /// `ablation`.
    pub document: String,
    /// [`ABLATION_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Start, RFC 3339, UTC.
    pub timestamp: String,
    /// True when an engine or a device is simulated.
    pub simulated: bool,
    /// The container's name.
    pub container: String,
    /// Its image.
    pub image: String,
    /// The engine.
    pub engine: String,
    /// Its version; null where no run reported it.
    pub engine_version: Option<String>,
    /// The model, as asked for.
    pub model: Option<String>,
    /// The bench.
    pub bench: String,
    /// Memory backend that measured.
    pub memory_backend: String,
    /// The first arm.
    pub a: Arm,
    /// The second arm.
    pub b: Arm,
    /// The arms' figures; every difference is B less A.
    pub comparison: Comparison,
    /// What CUDA graphs cost, where the arms are without and with them.
    pub graphs: Option<super::graphs::GraphReading>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// The engine arguments that it has and the other has not.
    pub engine_args: Vec<String>,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// What its runs' profiles warn of and what they call wrong, each code once.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// How full the device that came nearest to its limit was, over all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fullest_device: Option<MemoryGauge>,
}

/// One run of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its place among the runs of both arms, from 1.
    pub order: u32,
    /// File name of its profile; the capture lies beside it.
    pub profile: String,
    /// How it ended.
    pub outcome: crate::capture::RunEnd,
}

/// An arm with the profiles of its runs.
pub struct ArmRuns {
    /// Its name.
    pub name: String,
    /// Its own engine arguments, redacted.
    pub engine_args: Vec<String>,
    /// Its runs.
    pub runs: Vec<Run>,
    /// Their profiles, in the same order.
    pub profiles: Vec<Profile>,
}

impl Ablation {
    /// From the runs of both arms; `None` where not one run left a profile.
    pub fn compare_arms(
        a: ArmRuns,
        b: ArmRuns,
        model: Option<String>,
        timestamp: String,
    ) -> Option<Ablation> {
        let all = || a.profiles.iter().chain(&b.profiles);
        let first = all().next()?;
        Some(Ablation {
            document: "ablation".into(),
            schema_version: ABLATION_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            timestamp,
            simulated: all().any(|p| p.metadata.simulated),
            container: first.metadata.container.name.clone(),
            image: first.metadata.container.image.clone(),
            engine: first.engine_metadata.engine_type.clone(),
            engine_version: all().find_map(|p| p.engine_metadata.engine_version.clone()),
            model: model.or_else(|| all().find_map(|p| p.model_info.name.clone())),
            bench: first.parameters.bench.clone(),
            memory_backend: first.metadata.memory_backend.name.clone(),
            comparison: compare_groups(&a.profiles, &b.profiles),
            graphs: None,
            a: a.into(),
            b: b.into(),
        })
    }
}

impl From<ArmRuns> for Arm {
    fn from(arm: ArmRuns) -> Arm {
        Arm {
            name: arm.name,
            findings: collect_arm_findings(&arm.profiles),
            fullest_device: MemoryGauge::fullest_of(
                (arm.profiles.iter()).filter_map(|p| Some(p.fullest_device()?.gauge)),
            ),
            engine_args: arm.engine_args,
            runs: arm.runs,
        }
    }
}

/// Warnings and errors of runs of the same settings, each code once.
fn collect_arm_findings(profiles: &[Profile]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for finding in profiles.iter().flat_map(|p| &p.findings) {
        if finding.severity >= Severity::Warning && findings.iter().all(|f| f.code != finding.code)
        {
            findings.push(finding.clone());
        }
    }
    findings
}
