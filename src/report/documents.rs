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
    ("ablation", |d| Ok(ablation::ablation_report(&typed(d)?))),
    ("calculation", |d| Ok(given::given_report(&typed(d)?))),
    ("calibration", |d| {
        Ok(calibration::calibration_report(&typed(d)?, &[]))
    }),
    ("clean", |d| Ok(cleaning::clean_report(&typed(d)?))),
    ("comparison", |d| Ok(compare::pair_report(&typed(d)?))),
    ("correlations", |d| {
        Ok(chapters::correlations_report(&typed(d)?))
    }),
    ("cuda_graphs", |d| Ok(graphs::graphs_report(&typed(d)?))),
    ("doctor", |d| Ok(doctor::doctor_report(&typed(d)?))),
    (estimate::ESTIMATE_DOCUMENT, |d| {
        Ok(estimate::estimate_report(&typed(d)?, false))
    }),
    ("estimate_table", |d| Ok(estimate::table_report(&typed(d)?))),
    ("estimate_versions", |d| {
        Ok(estimate::versions_report(&typed(d)?))
    }),
    ("gpu_choices", |d| Ok(estimate::choices_report(&typed(d)?))),
    (crate::tune::TUNING_DOCUMENT, |d| {
        Ok(tune::tune_report(&typed(d)?))
    }),
    ("validation", |d| {
        Ok(validation::validation_report(&typed(d)?))
    }),
    (why::WHY_DOCUMENT, |d| {
        let why: why::WhyDocument = typed(d)?;
        Ok(why::report_of_diagnosis(&why.subject, &why.diagnosis))
    }),
];

/// The report of a document of this kind; `None` where the kind has none of its own.
pub fn report_of_kind(kind: &str, document: &Value) -> Option<serde_json::Result<Report>> {
    let (_, make) = KINDS.iter().find(|(name, _)| *name == kind)?;
    Some(make(document))
}

/// The document as the type that the command wrote.
fn typed<T: DeserializeOwned>(document: &Value) -> serde_json::Result<T> {
    T::deserialize(document)
}
