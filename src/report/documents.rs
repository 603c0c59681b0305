//! Documents of commands that have a report of their own: for each kind, how its report is made. The command prints the
//! same report.

use super::content::Report;
use super::{
    ablation, calibration, chapters, cleaning, compare, doctor, estimate, given, graphs, tune,
    validation, why,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Makes the report of a document.
type MakeReport = fn(&Value) -> serde_json::Result<Report>;

/// The kinds, as the key `document` names them.
static KINDS: &[(&str, MakeReport)] = &[
    ("ablation", |d| made_by(d, ablation::ablation_report)),
    ("calculation", |d| made_by(d, given::given_report)),
    ("calibration", |d| {
        made_by(d, |found| calibration::calibration_report(found, &[]))
    }),
    ("clean", |d| made_by(d, cleaning::clean_report)),
    ("comparison", |d| made_by(d, compare::pair_report)),
    ("correlations", |d| {
        made_by(d, chapters::correlations_report)
    }),
    ("cuda_graphs", |d| made_by(d, graphs::graphs_report)),
    ("doctor", |d| made_by(d, doctor::doctor_report)),
    (estimate::ESTIMATE_DOCUMENT, |d| {
        made_by(d, |page| estimate::estimate_report(page, false))
    }),
    ("estimate_table", |d| made_by(d, estimate::table_report)),
    ("estimate_versions", |d| {
        made_by(d, estimate::versions_report)
    }),
    ("gpu_choices", |d| made_by(d, estimate::choices_report)),
    (crate::tune::TUNING_DOCUMENT, |d| {
        made_by(d, tune::tune_report)
    }),
    ("validation", |d| made_by(d, validation::validation_report)),
    (why::WHY_DOCUMENT, |d| {
        made_by(d, |why: &why::WhyDocument| {
            why::report_of_diagnosis(&why.subject, &why.diagnosis)
        })
    }),
];

/// The report of a document of this kind; `None` where the kind has none of its own.
pub fn report_of_kind(kind: &str, document: &Value) -> Option<serde_json::Result<Report>> {
    let (_, make) = KINDS.iter().find(|(name, _)| *name == kind)?;
    Some(make(document))
}

/// The report of the document as the type that the command wrote.
fn made_by<T: DeserializeOwned>(
    document: &Value,
    report: fn(&T) -> Report,
) -> serde_json::Result<Report> {
    T::deserialize(document).map(|typed| report(&typed))
}
