//! What `doctor` found of this host, as a document and as a report.

use super::content::{
    Action, Answer, AnswerState, Chapter, ContentBlock, MOST_ACTIONS, Report, plain_note,
};
use super::layout::counted_noun;
use super::tables::TableBuilder;
use crate::engine::facts::Severity;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Version of the document.
const DOCTOR_VERSION: &str = "1.0";

/// All checks of one look at the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DoctorDocument {
    /// `doctor`.
    pub document: String,
    /// Version of the document.
    pub schema_version: String,
    /// Version of the plimsoll that wrote it.
    pub profiler_version: String,
    /// Whether profiling can begin: no check is broken.
    #[serde(default)]
    pub ready: bool,
    /// The checks, in their order.
    pub checks: Vec<DoctorCheck>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorCheck {
    /// What.
    pub name: String,
    /// What was found, a line for each; `none` is a finding too.
    pub found: String,
    /// Whether profiling can do with it.
    pub ok: bool,
    /// The same, with the reason in a word.
    pub state: CheckState,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The one command that mends it on this host's distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl DoctorCheck {
    /// A check that found what it looked for.
    pub fn good_check(name: &str, found: String) -> DoctorCheck {
        DoctorCheck {
            name: name.into(),
            found,
            ok: true,
            state: CheckState::Ok,
            hint: None,
            mend: None,
        }
    }

    /// A check that found nothing; profiling works without it.
    pub fn lacking_check(name: &str, found: String) -> DoctorCheck {
        DoctorCheck {
            ok: false,
            state: CheckState::Missing,
            ..DoctorCheck::good_check(name, found)
        }
    }

    /// What to do about it, with the command.
    fn remedy(&self) -> Option<String> {
        match (&self.hint, &self.mend) {
            (Some(hint), Some(mend)) if !hint.contains(mend.as_str()) => {
                Some(format!("{hint}: `{mend}`"))
            }
            (None, Some(mend)) => Some(format!("`{mend}`")),
            (hint, _) => hint.clone(),
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// Absent, and needed only by some hosts.
    Missing,
    /// Needed and unusable.
    Broken,
}

crate::wording::as_written!(CheckState);

impl DoctorDocument {
    /// Of these checks.
    pub fn of_checks(checks: Vec<DoctorCheck>) -> DoctorDocument {
        DoctorDocument {
            document: "doctor".into(),
            schema_version: DOCTOR_VERSION.into(),
            profiler_version: env!("CARGO_PKG_VERSION").into(),
            ready: checks.iter().all(|c| c.state != CheckState::Broken),
            checks,
        }
    }
}

/// The report: whether profiling can begin, every check, what to do.
pub fn doctor_report(document: &DoctorDocument) -> Report {
    let checks = &document.checks;
    let lines = checks.iter().flat_map(|check| {
        let found = check.found.split('\n').enumerate();
        found.map(move |(n, line)| (Some(check).filter(|_| n == 0), line))
    });
    let table = TableBuilder::of_items(lines)
        .known_words("state", "state", |(check, _)| {
            Some(check.as_ref()?.state.as_str())
        })
        .known_words("check", "check", |(check, _)| {
            Some(check.as_ref()?.name.as_str())
        })
        .words("found", "found", |(_, line)| line)
        .grid("checks", "");
    let mut blocks = vec![ContentBlock::Table(table)];
    blocks.extend(checks.iter().filter_map(|check| {
        let severity = match check.state {
            CheckState::Ok => Severity::Info,
            CheckState::Missing => Severity::Warning,
            CheckState::Broken => Severity::Error,
        };
        let text = format!("{}: {}", check.name, check.remedy()?);
        Some(plain_note(severity, text))
    }));
    let broken = checks.iter().filter(|c| c.state == CheckState::Broken);
    let names: Vec<&str> = broken.clone().map(|c| c.name.as_str()).collect();
    let (state, verdict) = match names.as_slice() {
        [] => (AnswerState::Safe, "Ready to profile.".to_owned()),
        names => {
            let many = counted_noun(names.len(), "check");
            let text = format!("Not ready: {many} failed: {}.", names.join(", "));
            (AnswerState::Failed, text)
        }
    };
    let hints = broken.filter_map(DoctorCheck::remedy);
    let actions = hints.take(MOST_ACTIONS).map(Action::of_advice);
    let answer = Answer {
        actions: actions.collect(),
        ..Answer::of_verdict(state, verdict)
    };
    let chapter = Chapter::of_blocks("checks", "Checks", blocks);
    Report::of_chapters("This host", answer, vec![chapter])
}
