//! What a report can be made of, read and ready: runs, sweeps, experiments, load lines, and documents with a report of
//! their own.

use super::chart::ChartTimeline;
use super::content::Report;
use super::documents::report_of_kind;
use crate::compare::validate::RunValidation;
use crate::estimate::{Deployment, Model};
use crate::profile::Profile;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// All that was read.
#[derive(Debug, Default)]
pub struct Material {
    /// Profiles, in order of time; in the order in which they were named where two are compared.
    pub runs: Vec<ReportRun>,
    /// Documents of sweeps (`results.json`).
    pub sweeps: Vec<StoredDocument>,
    /// Documents of experiments (`experiment.json`).
    pub experiments: Vec<StoredDocument>,
    /// Documents of load lines (`loadline.json`).
    pub load_lines: Vec<StoredDocument>,
    /// Documents with a report of their own, by where they were read: estimates, ablations, comparisons.
    pub reports: Vec<(String, Report)>,
    /// Profiles of earlier schemas, and of the tools before us.
    pub older: Vec<StoredDocument>,
    /// What could not be read, a sentence each.
    pub unread: Vec<String>,
    /// What an hour of one GPU costs, in the user's money.
    pub gpu_hour_price: Option<f64>,
    /// The word for that money, behind amounts; empty where the user gave none.
    pub currency: String,
    /// Whether the two runs are held against each other, the second less the first.
    pub compare: bool,
}

/// The newest format of documents beside profiles that is read: the number before the point of their `schema_version`.
const DOCUMENTS_MAJOR: u64 = 1;

impl Material {
    /// Adds a document of this kind, its key `document`; `None`, or the document that no chapter is of.
    pub fn add_document(&mut self, kind: &str, stored: StoredDocument) -> Option<StoredDocument> {
        let version = stored.document["schema_version"].as_str();
        let major = version.and_then(|v| v.split('.').next()?.parse::<u64>().ok());
        if major.is_some_and(|major| major > DOCUMENTS_MAJOR) {
            self.unread.push(format!(
                "`{}` was written by a newer plimsoll: update plimsoll",
                stored.name
            ));
            return None;
        }
        let of_kind = match kind {
            "sweep" => &mut self.sweeps,
            "experiment" => &mut self.experiments,
            "load_line" | "loadline" => &mut self.load_lines,
            _ => {
                let name = stored.name.clone();
                match report_of_kind(kind, &stored.document) {
                    Some(Ok(report)) => self.reports.push((name, report)),
                    Some(Err(why)) => self.unread.push(format!(
                        "`{name}`, a document of the kind `{kind}`, cannot be read: {why}"
                    )),
                    None => return Some(stored),
                }
                return None;
            }
        };
        of_kind.push(stored);
        None
    }

    /// Kinds of documents beside runs: how many there are of each, with its word.
    pub fn document_counts(&self) -> Vec<(usize, &'static str)> {
        let all = self
            .asked_documents()
            .map(|(word, of_kind)| (of_kind.len(), word));
        let all = all
            .into_iter()
            .chain([(self.reports.len(), "other document")]);
        all.filter(|(n, _)| *n > 0).collect()
    }

    /// Documents that have chapters of their own, under the word of their kind.
    pub fn asked_documents(&self) -> [(&'static str, &[StoredDocument]); 3] {
        [
            ("sweep", &self.sweeps),
            ("experiment", &self.experiments),
            ("load line", &self.load_lines),
        ]
    }

    /// One document that was made by this program.
    ///
    /// # Errors
    /// Why it is not JSON.
    pub fn of_document(kind: &str, document: &impl Serialize) -> serde_json::Result<Material> {
        let mut material = Material::default();
        let stored = StoredDocument {
            name: String::new(),
            document: serde_json::to_value(document)?,
        };
        material.add_document(kind, stored);
        Ok(material)
    }

    /// One profile, without its samples.
    pub fn of_profile(profile: Profile) -> Material {
        let name = profile.metadata.container.name.clone();
        Material {
            runs: vec![ReportRun::of_profile(name, Box::new(profile))],
            ..Material::default()
        }
    }
}

/// A profile with what lies beside it.
#[derive(Debug)]
pub struct ReportRun {
    /// Where it was read, as shown: as much of the path as distinguishes it from the others.
    pub name: String,
    /// The profile.
    pub profile: Box<Profile>,
    /// From the samples of its capture, where that exists; else the profile's own points. Without
    /// lanes where the run is not shown in full.
    pub timeline: ChartTimeline,
    /// What is calculated for the same deployment, held against it.
    pub calculated: Option<RunValidation>,
    /// What was deployed, as far as it can be estimated.
    pub plan: Option<RunPlan>,
    /// Words that a figure rests on, by themselves → where they stand: `log.txt, line 12`.
    pub places: BTreeMap<String, String>,
    /// Whether it is shown in full: timeline, repeats, log. Of very many runs only the first are.
    pub in_full: bool,
}

/// A model and how it was served, to estimate what a change would do.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The model.
    pub model: Model,
    /// How it was served.
    pub deployment: Deployment,
}

impl ReportRun {
    /// One that is shown in full, without its samples.
    pub fn of_profile(name: String, profile: Box<Profile>) -> ReportRun {
        ReportRun {
            name,
            profile,
            timeline: ChartTimeline::default(),
            calculated: None,
            plan: None,
            places: BTreeMap::new(),
            in_full: true,
        }
    }

    /// What of its own figures does not agree, a sentence.
    pub fn find_contradiction(&self) -> Option<String> {
        let wrong = self.profile.memory_breakdown.find_contradiction()?;
        Some(format!(
            "{}: figures of the document disagree: {wrong}",
            self.name
        ))
    }
}

/// A document as it lies on the disk.
#[derive(Debug)]
pub struct StoredDocument {
    /// Where it was read.
    pub name: String,
    /// The document.
    pub document: Value,
}
