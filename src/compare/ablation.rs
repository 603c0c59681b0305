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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// An arm, and the profiles of its runs in their order.
pub type ArmRuns = (Arm, Vec<Profile>);

impl Ablation {
    /// From the runs of both arms; `None` where not one run left a profile.
    pub fn compare_arms(
        (mut a, a_profiles): ArmRuns,
        (mut b, b_profiles): ArmRuns,
        model: Option<String>,
        timestamp: String,
    ) -> Option<Ablation> {
        let all = || a_profiles.iter().chain(&b_profiles);
        let first = all().next()?;
        a.add_findings(&a_profiles);
        b.add_findings(&b_profiles);
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
            comparison: compare_groups(&a_profiles, &b_profiles),
            graphs: None,
            a,
            b,
        })
    }
}

impl Arm {
    /// Adds what its runs say: their fullest device, and their warnings and errors, each code once.
    fn add_findings(&mut self, profiles: &[Profile]) {
        let gauges = profiles
            .iter()
            .filter_map(|p| Some(p.fullest_device()?.gauge));
        self.fullest_device = MemoryGauge::fullest_of(gauges);
        let all = profiles.iter().flat_map(|p| &p.findings);
        for finding in all.filter(|f| f.severity >= Severity::Warning) {
            if self.findings.iter().all(|f| f.code != finding.code) {
                self.findings.push(finding.clone());
            }
        }
    }
}
