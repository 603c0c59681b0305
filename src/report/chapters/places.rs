//! Where the words of a witness stand: a line of the log, a reply, the second of a sample.

use crate::breakdown::{Component, EvidenceSource};
use crate::profile::{Profile, device_label};
use crate::report::material::ReportRun;

/// A device of a run, in words.
pub(super) fn of_device(profile: &Profile, gpu: u32) -> String {
    let devices = &profile.gpu_info.devices;
    match devices.iter().find(|d| d.index == gpu) {
        Some(facts) => device_label(facts),
        None => format!("device {gpu}"),
    }
}

/// Where the words of a witness stand.
pub(super) fn place_of_evidence(
    run: &ReportRun,
    component: Component,
    source: EvidenceSource,
    quote: &str,
) -> Option<String> {
    let measured = matches!(
        source,
        EvidenceSource::MeasuredDelta | EvidenceSource::MeasuredShared | EvidenceSource::Residual
    );
    if measured {
        return stretch(run, component).or_else(|| moment_of_peak(&run.profile, component));
    }
    // Two lines may stand behind one figure.
    let places: Vec<&str> = quote
        .split(" | ")
        .filter_map(|part| run.places.get(part))
        .map(String::as_str)
        .collect();
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
    Some(format!(
        "samples, seconds {:.3} to {:.3}",
        phase.from_s, phase.to_s
    ))
}

/// The second of the sample that a measured part rests on.
pub(super) fn moment_of_peak(profile: &Profile, component: Component) -> Option<String> {
    let points = &profile.memory_measurements;
    let point = match component {
        Component::Baseline | Component::Runtime => points.baseline.as_ref(),
        Component::WarmupGrowth => points.post_warmup.as_ref(),
        _ => points.peak.as_ref(),
    }?;
    Some(format!("samples, second {:.3}", point.at_ns as f64 / 1e9))
}
