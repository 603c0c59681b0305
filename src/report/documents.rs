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
    ("ablation", |d| report_from(d, ablation::ablation_report)),
    ("calculation", |d| report_from(d, given::given_report)),
    ("calibration", |d| {
        report_from(d, |found| calibration::calibration_report(found, &[]))
    }),
    ("clean", |d| report_from(d, cleaning::clean_report)),
    ("comparison", |d| report_from(d, compare::pair_report)),
    ("correlations", |d| {
        report_from(d, chapters::correlations_report)
    }),
    ("cuda_graphs", |d| report_from(d, graphs::graphs_report)),
    ("doctor", |d| report_from(d, doctor::doctor_report)),
    (estimate::ESTIMATE_DOCUMENT, |d| {
        report_from(d, |page| estimate::estimate_report(page, false))
    }),
    ("estimate_table", |d| report_from(d, estimate::table_report)),
    ("estimate_versions", |d| {
        report_from(d, estimate::versions_report)
    }),
    ("gpu_choices", |d| report_from(d, estimate::choices_report)),
    (crate::tune::TUNING_DOCUMENT, |d| {
        report_from(d, tune::tune_report)
    }),
    ("validation", |d| {
        report_from(d, validation::validation_report)
    }),
    (why::WHY_DOCUMENT, |d| {
        report_from(d, |why: &why::WhyDocument| {
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
fn report_from<T: DeserializeOwned>(
    document: &Value,
    report: fn(&T) -> Report,
) -> serde_json::Result<Report> {
    T::deserialize(document).map(|typed| report(&typed))
}
