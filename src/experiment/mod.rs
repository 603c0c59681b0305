//! An experiment: one thing varied over a few levels, and what was measured at each. Pure: no I/O,
//! no clock. Every sentence and figure follows from the rows and the profiles of the levels.

mod level;
mod reading;
mod record;
#[cfg(test)]
pub(crate) mod samples;

pub use level::{ExperimentLevel, LevelRun, LevelState, OfLength, reason_on_path};
pub use record::RequestRecord;

use crate::capture::{DeviceKind, ShortPrompts};
use crate::profile::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// Version of the document. Fields are added, never renamed.
pub const EXPERIMENT_VERSION: &str = "1.0";

/// What an experiment varies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExperimentKind {
    /// Requests at once.
    #[default]
    Concurrency,
    /// Tokens of the prompts.
    Seqlen,
    /// Short prompts, long prompts, and both together.
    Mixed,
}

crate::wording::as_written!(ExperimentKind);

impl ExperimentKind {
    /// Label of the x axis of its plots.
    pub fn axis_label(self) -> &'static str {
        match self {
            ExperimentKind::Concurrency => "requests at once",
            ExperimentKind::Seqlen => "prompt tokens",
            ExperimentKind::Mixed => "prompt tokens, mean",
        }
    }

    /// The same as a word of file names: `fig1_mem_vs_concurrency`.
    pub fn axis_word(self) -> &'static str {
        match self {
            ExperimentKind::Concurrency => "concurrency",
            ExperimentKind::Seqlen | ExperimentKind::Mixed => "seqlen",
        }
    }
}

/// The load of a level, as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedLoad {
    /// Requests at once.
    pub concurrency: u32,
    /// Prompt tokens; of a mixture those of the long ones.
    pub prompt_tokens: u32,
    /// The short prompts of a mixture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_prompts: Option<ShortPrompts>,
    /// Generated tokens.
    pub output_tokens: u32,
    /// Requests, in each repeat.
    pub requests: u32,
    /// Times that the load was run.
    pub repeats: u32,
}

impl RequestedLoad {
    /// Requests over all repeats.
    pub fn all_requests(&self) -> u64 {
        u64::from(self.requests) * u64::from(self.repeats)
    }

    /// Prompt tokens, mean over the requests.
    pub fn mean_prompt_tokens(&self) -> f64 {
        let long = f64::from(self.prompt_tokens);
        match self.short_prompts {
            None => long,
            Some(short) => long - short.share * (long - f64::from(short.input_len)),
        }
    }
}

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// `experiment`.
    pub document: String,
    /// [`EXPERIMENT_VERSION`].
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// What was varied.
    pub kind: ExperimentKind,
    /// Start, RFC 3339, UTC.
    pub timestamp: String,
    /// From its start to its end, seconds.
    pub took_s: f64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// True when an engine or a device is simulated.
    pub simulated: bool,
    /// The model, as the engine knows it.
    pub model: String,
    /// The container's name; null where one was started for it.
    pub container: Option<String>,
    /// The image that was started; null where the container was there already.
    pub image: Option<String>,
    /// The engine; null where no level reported it.
    pub engine: Option<String>,
    /// Its version.
    pub engine_version: Option<String>,
    /// The bench that put the load on.
    pub bench: String,
    /// Memory backend that measured; null where none did.
    pub memory_backend: Option<String>,
    /// Which memory it measured: `GPU memory`, or `host memory of the container`.
    pub memory_of: Option<String>,
    /// The devices' names, each once.
    pub devices: Vec<String>,
    /// The levels, in the order of what is varied.
    pub levels: Vec<ExperimentLevel>,
    /// Figure of levels → why it is not known where it is null.
    pub not_measured: BTreeMap<String, String>,
    /// What the figures show; sentences.
    pub readings: Vec<String>,
    /// What must be known of the figures; sentences.
    pub notes: Vec<String>,
}

impl Experiment {
    /// From the levels as they were run; in the order of what is varied whatever theirs is. `head` has what is known
    /// beside the levels.
    pub fn experiment_of_runs(head: Experiment, runs: &[LevelRun]) -> Experiment {
        let mut runs: Vec<&LevelRun> = runs.iter().collect();
        let place = |run: &&LevelRun| {
            let RequestedLoad { concurrency, .. } = run.asked;
            (run.asked.mean_prompt_tokens(), concurrency)
        };
        runs.sort_by(|a, b| {
            let ((a_tokens, a), (b_tokens, b)) = (place(a), place(b));
            a_tokens.total_cmp(&b_tokens).then(a.cmp(&b))
        });
        let levels: Vec<ExperimentLevel> = runs
            .iter()
            .copied()
            .map(|r| ExperimentLevel::level_of_run(head.kind, r))
            .collect();
        let profiles = || runs.iter().filter_map(|r| r.profile.as_deref());
        let first_known = |pick: fn(&Profile) -> Option<&str>| {
            let word = profiles().find_map(pick);
            word.filter(|w| !w.is_empty()).map(str::to_owned)
        };
        let mut devices: Vec<String> = Vec::new();
        for device in profiles().flat_map(|p| &p.gpu_info.devices) {
            if !devices.contains(&device.name) {
                devices.push(device.name.clone());
            }
        }
        let mut experiment = Experiment {
            document: "experiment".into(),
            schema_version: EXPERIMENT_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            simulated: profiles().any(|p| p.metadata.simulated),
            engine: first_known(|p| Some(&p.engine_metadata.engine_type)),
            engine_version: first_known(|p| p.engine_metadata.engine_version.as_deref()),
            bench: first_known(|p| Some(&p.parameters.bench)).unwrap_or(head.bench),
            memory_backend: first_known(|p| Some(&p.metadata.memory_backend.name)),
            memory_of: profiles().find_map(memory_of).map(str::to_owned),
            devices,
            not_measured: level::not_measured(&runs, &levels),
            levels,
            notes: level::collect_notes(&runs),
            ..head
        };
        experiment.readings = reading::describe_results(&experiment);
        experiment
    }

    /// The levels that were measured.
    pub fn completed_levels(&self) -> impl Iterator<Item = &ExperimentLevel> {
        self.levels.iter().filter(|l| l.state == LevelState::Done)
    }

    /// The levels that were tried and failed.
    pub fn failed_levels(&self) -> impl Iterator<Item = &ExperimentLevel> {
        self.levels.iter().filter(|l| l.state == LevelState::Failed)
    }

    /// Why a figure of the levels is not known.
    pub fn reason_for_figure(&self, figure: &str) -> Option<&str> {
        self.not_measured.get(figure).map(String::as_str)
    }
}

/// What kind of memory was measured.
fn memory_of(profile: &Profile) -> Option<&'static str> {
    let kind = profile.gpu_info.devices.first()?.kind;
    Some(match kind {
        DeviceKind::Gpu => "GPU memory",
        DeviceKind::HostCgroup => "host memory of the container",
    })
}

#[cfg(test)]
mod tests;
