//! Figures as cells, each with its source or the reason why there is none; and where the words of a source stand: a line
//! of the log, a reply, the second of a sample.

use super::Sources;
use crate::breakdown::{Component, EvidenceSource, Part};
use crate::compare::reason_path;
use crate::compare::subject::source_word;
use crate::experiment::reason_on_path;
use crate::profile::{Profile, device_label};
use crate::report::content::{FigureSource, SourceDetail, SourceId, TableCell};
use crate::report::layout::{format_figure, grouped_count, unsigned_zero};
use crate::report::material::ReportRun;
use crate::units::{GIB, gib_signed};

/// GiB with three decimals, without the unit; a smaller amount is not shown as nought.
pub(super) fn gib_text(gib: f64) -> String {
    match gib {
        g if g > 0.0 && g < 0.0005 => "< 0.001".into(),
        g if g < 0.0 && g > -0.0005 => "> -0.001".into(),
        g => unsigned_zero(format!("{g:.3}")),
    }
}

/// Bytes as a source shows them: `14.960 GiB (16063569920 bytes)`.
pub(super) fn bytes_and_gib(bytes: i64) -> String {
    format!("{} GiB ({bytes} bytes)", gib_text(gib_signed(bytes)))
}

/// Bytes as a cell in GiB.
pub(super) fn gib_cell(bytes: i64) -> TableCell {
    let gib = gib_signed(bytes);
    TableCell::number_cell(gib, gib_text(gib))
}

/// Percent of the peak.
pub(super) fn percent_cell(percent: f64) -> TableCell {
    TableCell::number_cell(percent, unsigned_zero(format!("{percent:.1}")))
}

/// Why a path of the profile is null; a reason covers everything below its path.
pub(super) fn reason_at_path(profile: &Profile, path: &str) -> String {
    let why = reason_on_path(profile, path);
    why.unwrap_or_else(|| "not in the profile".into())
}

/// The path of the peak in the profile.
pub(super) const TOTAL: &str = "memory_breakdown.total_measured_gb";
/// The path of the overhead.
pub(super) const OVERHEAD: &str = "memory_breakdown.framework_overhead_gb";

/// The path of a part in the profile.
fn path(component: Component) -> &'static str {
    match reason_path(component) {
        path if !component.is_overhead() && !path.is_empty() => path,
        _ => OVERHEAD,
    }
}

/// Why a part of the peak is unknown.
pub(super) fn why_part(profile: &Profile, component: Component) -> String {
    match profile.memory_breakdown.total_measured_bytes {
        None => reason_at_path(profile, TOTAL),
        Some(_) => reason_at_path(profile, path(component)),
    }
}

/// The figures of one run, as they become cells: each notes its source.
pub(super) struct SourcedFigures<'a> {
    /// The sources of the report.
    pub sources: &'a mut Sources,
    /// The run.
    pub run: &'a ReportRun,
    /// Whether the report holds several runs: a source then names its own.
    pub many: bool,
}

impl SourcedFigures<'_> {
    /// Notes the source of a figure. Among very many runs those that are shown in brief have one source each: with
    /// every witness of every figure a page would be slow to open.
    fn noted(&mut self, source: FigureSource) -> SourceId {
        if self.run.in_full || !self.sources.crowded {
            return self.sources.note_source(source);
        }
        self.sources.note_source(FigureSource {
            title: self.title("Figures".into()),
            value: "in the profile".into(),
            confidence: None,
            witnesses: vec![SourceDetail {
                kind: "profile".into(),
                quote: "`evidence` of the profile has the witnesses of each figure, and a report of it alone shows them".into(),
                place: Some(self.run.name.clone()),
                used: true,
                ..SourceDetail::default()
            }],
        })
    }

    fn title(&self, title: String) -> String {
        let name = self.many.then(|| format!(", {}", self.run.name));
        title + &name.unwrap_or_default()
    }

    /// Notes the source of a part, on one device or over all.
    pub(super) fn of_part(&mut self, gpu: Option<u32>, part: &Part) -> SourceId {
        let (run, profile) = (self.run, &self.run.profile);
        let component = part.component;
        let several = profile.gpu_info.devices.len() > 1;
        let own = profile.evidence.iter();
        let own = own.filter(|e| e.component == component && gpu.is_none_or(|g| g == e.gpu_id));
        let mut witnesses: Vec<SourceDetail> = own
            .map(|e| {
                let on = (several && gpu.is_none()).then(|| of_device(profile, e.gpu_id) + ": ");
                SourceDetail {
                    kind: source_word(e.source).into(),
                    value: on.unwrap_or_default() + &bytes_and_gib(e.bytes),
                    quote: e.quote.clone(),
                    place: place_of_evidence(run, component, e.source, &e.quote),
                    used: e.used,
                }
            })
            .collect();
        witnesses.sort_by_key(|w| !w.used);
        if !witnesses.iter().any(|w| w.used) {
            let residual = SourceDetail {
                kind: source_word(EvidenceSource::Residual).into(),
                value: bytes_and_gib(part.bytes),
                quote: "the peak minus all known parts".into(),
                place: moment_of_peak(profile, Component::Unexplained),
                used: true,
            };
            witnesses.insert(0, residual);
        }
        let mut title = component.display_label().to_owned();
        if let Some(gpu) = gpu.filter(|_| several) {
            title += &format!(", {}", of_device(profile, gpu));
        }
        self.noted(FigureSource {
            title: self.title(title),
            value: bytes_and_gib(part.bytes),
            confidence: Some(part.confidence.0.clone()),
            witnesses,
        })
    }

    /// Notes the source of the peak, of one device or of all.
    pub(super) fn of_peak(&mut self, gpu: Option<u32>) -> SourceId {
        let profile = &self.run.profile;
        let devices = &profile.memory_breakdown.per_gpu;
        let chosen = || devices.iter().filter(|d| gpu.is_none_or(|g| g == d.gpu_id));
        let bytes = match gpu {
            None => profile.memory_breakdown.total_measured_bytes.unwrap_or(0),
            Some(_) => chosen().map(|d| d.peak_bytes).fold(0, u64::saturating_add),
        };
        let value = |gpu, bytes| format!("{}: {}", of_device(profile, gpu), bytes_and_gib(bytes));
        let witnesses = chosen().map(|d| SourceDetail {
            kind: source_word(EvidenceSource::MeasuredDelta).into(),
            value: value(d.gpu_id, d.peak_bytes as i64),
            quote: d.peak_source.describe_witness().into(),
            place: moment_of_peak(profile, Component::Unexplained),
            used: true,
        });
        let title = match gpu {
            Some(gpu) => format!("Peak, {}", of_device(profile, gpu)),
            None => "Peak".into(),
        };
        self.noted(FigureSource {
            title: self.title(title),
            value: bytes_and_gib(bytes as i64),
            confidence: Some("measured".into()),
            witnesses: witnesses.collect(),
        })
    }

    /// Notes a figure that one key of the profile holds, as reported.
    pub(super) fn of_key(
        &mut self,
        (title, value): (&str, String),
        kind: &str,
        (quote, path): (String, &str),
    ) -> SourceId {
        let mut source = FigureSource::of_one(self.title(title.to_owned()), value, kind, quote);
        for witness in &mut source.witnesses {
            witness.place = Some(format!("profile, {path}"));
        }
        self.noted(source)
    }

    /// A part of the peak as a cell in GiB.
    pub(super) fn part_cell(&mut self, component: Component) -> TableCell {
        match self.run.profile.memory_breakdown.find_part(component) {
            Some(part) => gib_cell(part.bytes).from(self.of_part(None, part)),
            None => TableCell::missing_cell(why_part(&self.run.profile, component)),
        }
    }

    /// The peak as a cell in GiB.
    pub(super) fn peak_cell(&mut self) -> TableCell {
        match self.run.profile.memory_breakdown.total_measured_bytes {
            Some(bytes) => gib_cell(bytes as i64).from(self.of_peak(None)),
            None => TableCell::missing_cell(reason_at_path(&self.run.profile, TOTAL)),
        }
    }

    /// All that is neither baseline nor weights, KV or activations, as a cell in GiB.
    pub(super) fn overhead_cell(&mut self) -> TableCell {
        let b = &self.run.profile.memory_breakdown;
        let Some(gib) = b.framework_overhead_gb else {
            return TableCell::missing_cell(reason_at_path(&self.run.profile, OVERHEAD));
        };
        let bytes = (gib * GIB).round() as i64;
        let parts: Vec<String> = (b.components.iter())
            .filter(|p| p.component.is_overhead())
            .map(|p| format!("{} {}", p.component.display_label(), gib_text(p.gb)))
            .collect();
        let quote = (format!("GiB: {}", parts.join(" + ")), OVERHEAD);
        let kind = source_word(EvidenceSource::Residual);
        let id = self.of_key(("Framework overhead", bytes_and_gib(bytes)), kind, quote);
        gib_cell(bytes).from(id)
    }

    /// A figure of the bench or the engine, from one key of the profile.
    pub(super) fn reported_cell(
        &mut self,
        title: &str,
        kind: &str,
        (value, path): (Option<f64>, &str),
    ) -> TableCell {
        let Some(value) = value.filter(|v| v.is_finite()) else {
            return TableCell::missing_cell(reason_at_path(&self.run.profile, path));
        };
        let text = if value.fract() == 0.0 && value.abs() < 1e15 && value >= 0.0 {
            grouped_count(value as u64)
        } else {
            format_figure(value)
        };
        let quote = (format!("{title}: {value}"), path);
        let id = self.of_key((title, text.clone()), kind, quote);
        TableCell::number_cell(value, text).from(id)
    }
}

/// A device of a run, in words.
pub(super) fn of_device(profile: &Profile, gpu: u32) -> String {
    let devices = &profile.gpu_info.devices;
    match devices.iter().find(|d| d.index == gpu) {
        Some(facts) => device_label(facts),
        None => format!("device {gpu}"),
    }
}

/// Where the words of a witness stand.
fn place_of_evidence(
    run: &ReportRun,
    component: Component,
    source: EvidenceSource,
    quote: &str,
) -> Option<String> {
    use EvidenceSource::{MeasuredDelta, MeasuredShared, Residual};
    if matches!(source, MeasuredDelta | MeasuredShared | Residual) {
        return stretch(run, component).or_else(|| moment_of_peak(&run.profile, component));
    }
    // Two lines may stand behind one figure.
    let places = quote.split(" | ").filter_map(|part| run.places.get(part));
    let places: Vec<&str> = places.map(String::as_str).collect();
    (!places.is_empty()).then(|| places.join(" and "))
}

/// The phase over which a part grew, where the timeline has it.
fn stretch(run: &ReportRun, component: Component) -> Option<String> {
    let label = match component {
        Component::ModelWeights => "weights",
        Component::KvCache => "KV pool",
        Component::CudaGraphs => "CUDA graphs",
        _ => return None,
    };
    let phase = run.timeline.phases.iter().find(|p| p.label == label)?;
    let (from, to) = (phase.from_s, phase.to_s);
    Some(format!("samples, seconds {from:.3} to {to:.3}"))
}

/// The second of the sample that a measured part rests on.
fn moment_of_peak(profile: &Profile, component: Component) -> Option<String> {
    let points = &profile.memory_measurements;
    let point = match component {
        Component::Baseline | Component::Runtime => points.baseline.as_ref(),
        Component::WarmupGrowth => points.post_warmup.as_ref(),
        _ => points.peak.as_ref(),
    }?;
    Some(format!("samples, second {:.3}", point.at_ns as f64 / 1e9))
}
