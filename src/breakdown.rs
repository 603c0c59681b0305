//! Where every byte of the peak goes: parts with their witnesses, and a residual so that the
//! parts always sum to the peak.

use crate::units::{gib_signed, to_gib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the peak. The order is the order in which people read it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// In use on the device without this engine: other tenants, and what the container held
    /// before the engine started.
    Baseline,
    /// Kept by the driver for itself.
    DriverReserved,
    /// Model weights.
    ModelWeights,
    /// The KV pool as reserved, whether used or not.
    KvCache,
    /// Transient memory of computing: what comes and goes with the load.
    Activations,
    /// CUDA graphs.
    CudaGraphs,
    /// Taken by the engine outside its tensor allocator: CUDA context, communication buffers.
    NonTorch,
    /// The engine's processes before any weights: interpreter, libraries, device context.
    Runtime,
    /// Taken after start-up and kept: allocator caches, lazily built kernels and buffers.
    WarmupGrowth,
    /// Page cache; the kernel gives it back under pressure.
    PageCache,
    /// The bench client that plimsoll runs in the container beside the engine.
    BenchClient,
    /// Swapped out, and in no other part: parts that are differences of readings, or that the
    /// engine reports, hold their own swapped memory.
    Swap,
    /// What no source explains. Negative when the sources report more than was measured.
    Unexplained,
}

impl Component {
    /// As people read it.
    pub fn display_label(self) -> &'static str {
        match self {
            Component::Baseline => "Baseline",
            Component::DriverReserved => "Driver reserved",
            Component::ModelWeights => "Model weights",
            Component::KvCache => "KV cache pool",
            Component::Activations => "Activations",
            Component::CudaGraphs => "CUDA graphs",
            Component::NonTorch => "Non-torch",
            Component::Runtime => "Engine runtime",
            Component::WarmupGrowth => "Growth after start-up",
            Component::PageCache => "Page cache",
            Component::BenchClient => "Bench client",
            Component::Swap => "Swapped out",
            Component::Unexplained => "Unexplained",
        }
    }

    /// Whether it counts into `framework_overhead_gb`: all that is neither baseline nor one of
    /// the three parts every engine has.
    pub fn is_overhead(self) -> bool {
        !matches!(
            self,
            Component::Baseline
                | Component::ModelWeights
                | Component::KvCache
                | Component::Activations
        )
    }
}

/// What kind of witness a figure rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// A line of the engine's log.
    EngineLog,
    /// The engine's `/metrics`.
    EngineMetrics,
    /// Another endpoint of the engine.
    EngineInfo,
    /// Measured from outside: a reading, or the difference of two.
    MeasuredDelta,
    /// Measured so on a device where others may have taken some of it: the driver does not report
    /// how much they hold.
    MeasuredShared,
    /// A probe in the engine's process: bytes of its tensors, or torch's allocator.
    TorchProbe,
    /// A probe in the engine's process, by the process' resident memory: coarser.
    TorchProbeRss,
    /// Calculated from the model's own files.
    Architecture,
    /// What the other parts leave.
    Residual,
}

impl EvidenceSource {
    /// Whether such a figure is of one device by how it was taken, and not of a rank that some
    /// device holds.
    pub fn names_its_device(self) -> bool {
        use EvidenceSource::{MeasuredDelta, MeasuredShared, TorchProbe, TorchProbeRss};
        matches!(
            self,
            MeasuredDelta | MeasuredShared | TorchProbe | TorchProbeRss
        )
    }
}

/// How sure a figure is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Confidence(pub String);

impl Confidence {
    /// `high_from_<engine>_logs`, `high_from_<engine>_metrics`, `high_from_torch_probe`,
    /// `high_calculated`, `medium_from_torch_probe_rss`, `medium_measured_delta`, `low_estimated` or `calculated_residual`.
    pub fn confidence_of_source(source: EvidenceSource, engine: &str) -> Confidence {
        Confidence(match source {
            EvidenceSource::EngineLog => format!("high_from_{engine}_logs"),
            EvidenceSource::EngineMetrics | EvidenceSource::EngineInfo => {
                format!("high_from_{engine}_metrics")
            }
            EvidenceSource::TorchProbe => "high_from_torch_probe".into(),
            EvidenceSource::TorchProbeRss => "medium_from_torch_probe_rss".into(),
            EvidenceSource::Architecture => "high_calculated".into(),
            EvidenceSource::MeasuredDelta => "medium_measured_delta".into(),
            EvidenceSource::MeasuredShared => "low_estimated".into(),
            EvidenceSource::Residual => "calculated_residual".into(),
        })
    }

    /// For a part without a source.
    pub fn unknown_confidence() -> Confidence {
        Confidence("unknown".into())
    }

    /// `medium_measured_delta` becomes `low_measured_delta`; what others report stays as it is.
    fn doubt_difference(&mut self) {
        if self.0 == "medium_measured_delta" {
            self.0 = "low_measured_delta".into();
        }
    }

    /// For a part that cannot be: `high_from_vllm_logs` becomes `low_from_vllm_logs`.
    fn lowered(self) -> Confidence {
        let rest = ["high", "medium"]
            .iter()
            .find_map(|p| self.0.strip_prefix(p));
        rest.map(|rest| Confidence(format!("low{rest}")))
            .unwrap_or(self)
    }

    /// Whether the figure is not to be relied on.
    pub fn is_low(&self) -> bool {
        self.confidence_rank() == 1
    }

    /// Higher is surer.
    fn confidence_rank(&self) -> u8 {
        match self.0.as_str() {
            c if c.starts_with("high") => 3,
            c if c.starts_with("medium") => 2,
            c if c.starts_with("low") => 1,
            _ => 0,
        }
    }
}

/// One witness of one part on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The part.
    pub component: Component,
    /// The device.
    pub gpu_id: u32,
    /// Bytes it speaks of.
    pub bytes: i64,
    /// What kind of witness.
    pub source: EvidenceSource,
    /// Its words: the log line, the metric, or how the difference was taken.
    pub quote: String,
    /// Whether the breakdown rests on it. Of several witnesses one is used, the others are
    /// compared with it.
    pub used: bool,
}

/// A part of the peak of one device, or of all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Which.
    pub component: Component,
    /// Bytes. The parts of a device sum to its peak.
    pub bytes: i64,
    /// The same, GiB.
    pub gb: f64,
    /// Percent of the peak.
    pub percent: f64,
    /// How sure.
    pub confidence: Confidence,
}

/// The peak of one device in parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceBreakdown {
    /// Device index.
    pub gpu_id: u32,
    /// Its peak, bytes.
    pub peak_bytes: u64,
    /// How the peak was seen.
    pub peak_source: PeakSource,
    /// The parts; they sum to `peak_bytes`.
    pub parts: Vec<Part>,
}

/// How sure each part is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfidenceLevels {
    /// The least sure of weights, KV cache and activations.
    pub overall: Confidence,
    /// Weights.
    pub weights: Confidence,
    /// KV cache.
    pub kv_cache: Confidence,
    /// Activations.
    pub activations: Confidence,
    /// Framework overhead.
    pub overhead: Confidence,
}

/// Which parts rest on the engine's own word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedValuesUsed {
    /// Weights.
    pub weights: bool,
    /// KV cache.
    pub kv_cache: bool,
    /// Activations.
    pub activations: bool,
}

/// Where every byte of the peak goes. The total is the peak of the load, each device at its own
/// highest moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Breakdown {
    /// Peak over all devices, bytes; null when nothing was measured.
    pub total_measured_bytes: Option<u64>,
    /// The same, GiB.
    pub total_measured_gb: Option<f64>,
    /// In use without this engine, GiB.
    pub baseline_gb: Option<f64>,
    /// Total less baseline, GiB.
    pub net_increase_gb: Option<f64>,
    /// Weights, GiB.
    pub model_weights_gb: Option<f64>,
    /// KV pool as reserved, GiB.
    pub kv_cache_gb: Option<f64>,
    /// Activations, GiB.
    pub activations_gb: Option<f64>,
    /// Total less baseline, weights, KV cache and activations, GiB: everything that `components`
    /// lists below them. Can be negative.
    pub framework_overhead_gb: Option<f64>,
    /// The same in percent of the total.
    pub overhead_percentage: Option<f64>,
    /// What no witness explains, bytes. Can be negative.
    pub unexplained_bytes: Option<i64>,
    /// How the figures were made.
    pub estimation_method: String,
    /// How sure they are.
    pub confidence_levels: ConfidenceLevels,
    /// Which rest on the engine's own word (the name is of the engine that had it first).
    pub vllm_reported_values_used: ReportedValuesUsed,
    /// The repeat of the bench that had the highest peak, from 1; null without a bench.
    pub repeat: Option<u32>,
    /// The parts over all devices; they sum to `total_measured_bytes`.
    pub components: Vec<Part>,
    /// Each device.
    pub per_gpu: Vec<DeviceBreakdown>,
}

/// Where the highest figure of a window came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeakSource {
    /// The kernel's own high-water mark, which rose during the window: exact.
    KernelPeak,
    /// Fast probing between two samples.
    Probe,
    /// A sample.
    Sample,
}

impl PeakSource {
    /// What saw the peak, and how exact that is; the end of a sentence.
    pub fn describe_witness(self) -> &'static str {
        match self {
            PeakSource::KernelPeak => "the kernel's own high-water mark: exact",
            PeakSource::Probe => "a fast probe between two samples",
            PeakSource::Sample => "the highest sample: a shorter spike may have been missed",
        }
    }
}

/// The measured peak of one device, to be explained.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePeak {
    /// Device index.
    pub gpu_id: u32,
    /// Bytes.
    pub bytes: u64,
    /// How it was seen.
    pub source: PeakSource,
}

impl Breakdown {
    /// A part over all devices.
    pub fn find_part(&self, component: Component) -> Option<&Part> {
        self.components.iter().find(|p| p.component == component)
    }

    /// The figures that contradict each other, by name; `None` where the parts of each device and of all sum to the
    /// peak, and the figures in GiB are those parts. A document may have been changed by hand.
    pub fn find_contradiction(&self) -> Option<String> {
        let sum = |parts: &[Part]| parts.iter().map(|p| i128::from(p.bytes)).sum::<i128>();
        let mut wrong: Vec<String> = Vec::new();
        if let Some(total) = self.total_measured_bytes {
            if sum(&self.components) != i128::from(total) {
                wrong.push("components and total_measured_bytes".into());
            }
            if !agree(self.total_measured_gb, Some(to_gib(total))) {
                wrong.push("total_measured_gb and total_measured_bytes".into());
            }
        }
        for device in &self.per_gpu {
            if sum(&device.parts) != i128::from(device.peak_bytes) {
                wrong.push(format!(
                    "the parts of device {} and its peak",
                    device.gpu_id
                ));
            }
        }
        for (key, stated, component) in [
            ("baseline_gb", self.baseline_gb, Component::Baseline),
            (
                "model_weights_gb",
                self.model_weights_gb,
                Component::ModelWeights,
            ),
            ("kv_cache_gb", self.kv_cache_gb, Component::KvCache),
            (
                "activations_gb",
                self.activations_gb,
                Component::Activations,
            ),
        ] {
            let part = self.find_part(component);
            if !agree(stated, part.map(|p| gib_signed(p.bytes))) {
                wrong.push(format!("{key} and its component"));
            }
        }
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    /// Lowers the confidence of the activations: a load that left no trace in the readings was missed, or took nothing.
    pub fn doubt_activations(&mut self) {
        let levels = &mut self.confidence_levels;
        levels.overall.doubt_difference();
        levels.activations.doubt_difference();
        let devices = self.per_gpu.iter_mut().flat_map(|d| &mut d.parts);
        let parts = self.components.iter_mut().chain(devices);
        let activations = parts.filter(|p| p.component == Component::Activations);
        activations.for_each(|p| p.confidence.doubt_difference());
    }

    /// Lowers the confidence of differences of readings: the steps between them are reported late.
    pub fn doubt_differences(&mut self) {
        let levels = &mut self.confidence_levels;
        levels.overall.doubt_difference();
        levels.weights.doubt_difference();
        levels.kv_cache.doubt_difference();
        levels.activations.doubt_difference();
        let devices = self.per_gpu.iter_mut().flat_map(|d| &mut d.parts);
        let parts = self.components.iter_mut().chain(devices);
        parts.for_each(|p| p.confidence.doubt_difference());
    }
}

/// The same figure, but for the last digits that a decimal number loses.
fn agree(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs().max(1.0),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Explains the peaks with the evidence marked `used`; of several used witnesses of one part on
/// one device the first counts. The parts of each device sum to its peak.
pub fn explain_component(
    peaks: &[DevicePeak],
    evidence: &[Evidence],
    engine: &str,
    repeat: Option<u32>,
) -> Breakdown {
    let per_gpu: Vec<DeviceBreakdown> = peaks
        .iter()
        .map(|peak| explain_device(peak, evidence, engine))
        .collect();
    let total = peaks.iter().map(|p| p.bytes).reduce(u64::saturating_add);
    let components = sum_parts(&per_gpu, total.unwrap_or(0));

    let part = |c: Component| components.iter().find(|p| p.component == c);
    let gb = |c: Component| part(c).map(|p| p.gb);
    let confidence = |c: Component| {
        part(c).map_or_else(Confidence::unknown_confidence, |p| p.confidence.clone())
    };
    let reported = |c: Component| {
        evidence.iter().any(|e| {
            e.used
                && e.component == c
                && matches!(
                    e.source,
                    EvidenceSource::EngineLog
                        | EvidenceSource::EngineMetrics
                        | EvidenceSource::EngineInfo
                        | EvidenceSource::TorchProbe
                )
        })
    };
    let bytes = |c: Component| part(c).map_or(0, |p| p.bytes);
    let overhead = total.map(|_| {
        components
            .iter()
            .filter(|p| p.component.is_overhead())
            .map(|p| p.bytes)
            .fold(0, i64::saturating_add)
    });
    let (weights, kv_cache, activations) = (
        confidence(Component::ModelWeights),
        confidence(Component::KvCache),
        confidence(Component::Activations),
    );
    let overall = [&weights, &kv_cache, &activations]
        .into_iter()
        .min_by_key(|c| c.confidence_rank())
        .cloned()
        .unwrap_or_else(Confidence::unknown_confidence);

    Breakdown {
        total_measured_bytes: total,
        total_measured_gb: total.map(to_gib),
        baseline_gb: gb(Component::Baseline),
        net_increase_gb: total.and_then(|t| {
            Some(gib_signed(
                whole_bytes(t).saturating_sub(part(Component::Baseline)?.bytes),
            ))
        }),
        model_weights_gb: gb(Component::ModelWeights),
        kv_cache_gb: gb(Component::KvCache),
        activations_gb: gb(Component::Activations),
        framework_overhead_gb: overhead.map(gib_signed),
        overhead_percentage: overhead.zip(total).map(|(o, t)| percent_of(o, t)),
        unexplained_bytes: total.map(|_| bytes(Component::Unexplained)),
        estimation_method: "plimsoll_evidence_v4".into(),
        confidence_levels: ConfidenceLevels {
            overall,
            weights,
            kv_cache,
            activations,
            overhead: if total.is_some() {
                Confidence::confidence_of_source(EvidenceSource::Residual, engine)
            } else {
                Confidence::unknown_confidence()
            },
        },
        vllm_reported_values_used: ReportedValuesUsed {
            weights: reported(Component::ModelWeights),
            kv_cache: reported(Component::KvCache),
            activations: reported(Component::Activations),
        },
        repeat,
        components,
        per_gpu,
    }
}

fn explain_device(peak: &DevicePeak, evidence: &[Evidence], engine: &str) -> DeviceBreakdown {
    let mut parts: Vec<Part> = Vec::new();
    let mut left = whole_bytes(peak.bytes);
    for e in evidence
        .iter()
        .filter(|e| e.used && e.gpu_id == peak.gpu_id && e.component != Component::Unexplained)
    {
        if parts.iter().any(|p| p.component == e.component) {
            continue;
        }
        left = left.saturating_sub(e.bytes);
        let mut confidence = Confidence::confidence_of_source(e.source, engine);
        if e.bytes > whole_bytes(peak.bytes) {
            confidence = confidence.lowered();
        }
        parts.push(make_part(e.component, e.bytes, peak.bytes, confidence));
    }
    parts.push(make_part(
        Component::Unexplained,
        left,
        peak.bytes,
        Confidence::confidence_of_source(EvidenceSource::Residual, engine),
    ));
    parts.sort_by_key(|p| p.component);
    DeviceBreakdown {
        gpu_id: peak.gpu_id,
        peak_bytes: peak.bytes,
        peak_source: peak.source,
        parts,
    }
}

fn sum_parts(devices: &[DeviceBreakdown], total: u64) -> Vec<Part> {
    let mut sums: Vec<Part> = Vec::new();
    for part in devices.iter().flat_map(|d| &d.parts) {
        match sums.iter_mut().find(|s| s.component == part.component) {
            Some(sum) => {
                let bytes = sum.bytes.saturating_add(part.bytes);
                let lower = std::cmp::min_by_key(&sum.confidence, &part.confidence, |c| {
                    c.confidence_rank()
                });
                *sum = make_part(part.component, bytes, total, lower.clone());
            }
            None => {
                let confidence = part.confidence.clone();
                sums.push(make_part(part.component, part.bytes, total, confidence));
            }
        }
    }
    sums.sort_by_key(|p| p.component);
    sums
}

fn make_part(component: Component, bytes: i64, total: u64, confidence: Confidence) -> Part {
    Part {
        component,
        bytes,
        gb: gib_signed(bytes),
        percent: percent_of(bytes, total),
        confidence,
    }
}

fn whole_bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn percent_of(part: i64, total: u64) -> f64 {
    if total == 0 {
        0.0
    } else {
        part as f64 / total as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMPONENTS: [Component; 13] = [
        Component::Baseline,
        Component::DriverReserved,
        Component::ModelWeights,
        Component::KvCache,
        Component::Activations,
        Component::CudaGraphs,
        Component::NonTorch,
        Component::Runtime,
        Component::WarmupGrowth,
        Component::PageCache,
        Component::BenchClient,
        Component::Swap,
        Component::Unexplained,
    ];

    fn evidence() -> impl Strategy<Value = Evidence> {
        (
            0..12usize,
            0..4u32,
            -(1i64 << 40)..(1i64 << 40),
            any::<bool>(),
        )
            .prop_map(|(c, gpu_id, bytes, used)| Evidence {
                component: COMPONENTS[c],
                gpu_id,
                bytes,
                source: EvidenceSource::EngineLog,
                quote: String::new(),
                used,
            })
    }

    proptest! {
        #[test]
        fn parts_always_sum_to_the_peak(
            peaks in proptest::collection::vec(0u64..(1 << 40), 0..4),
            evidence in proptest::collection::vec(evidence(), 0..40),
        ) {
            let peaks: Vec<DevicePeak> = peaks
                .into_iter()
                .enumerate()
                .map(|(i, bytes)| DevicePeak { gpu_id: i as u32, bytes, source: PeakSource::Sample })
                .collect();
            let b = explain_component(&peaks, &evidence, "vllm", None);
            for device in &b.per_gpu {
                prop_assert_eq!(device.parts.iter().map(|p| p.bytes).sum::<i64>(), device.peak_bytes as i64);
            }
            if let Some(total) = b.total_measured_bytes {
                prop_assert_eq!(b.components.iter().map(|p| p.bytes).sum::<i64>(), total as i64);
                let named = [b.baseline_gb, b.model_weights_gb, b.kv_cache_gb, b.activations_gb, b.framework_overhead_gb];
                let sum: f64 = named.into_iter().flatten().sum();
                prop_assert!((sum - b.total_measured_gb.unwrap()).abs() < 1e-6);
            } else {
                prop_assert!(b.components.is_empty() && b.framework_overhead_gb.is_none());
            }
        }
    }

    #[test]
    fn claims_beyond_the_peak_leave_a_negative_residual() {
        let peaks = [DevicePeak {
            gpu_id: 0,
            bytes: 100,
            source: PeakSource::Sample,
        }];
        let claim = Evidence {
            component: Component::KvCache,
            gpu_id: 0,
            bytes: 130,
            source: EvidenceSource::EngineLog,
            quote: String::new(),
            used: true,
        };
        let b = explain_component(&peaks, &[claim], "vllm", None);
        assert_eq!(b.unexplained_bytes, Some(-30));
        assert_eq!(b.confidence_levels.kv_cache.0, "low_from_vllm_logs");
        assert_eq!(b.model_weights_gb, None, "unknown is not zero");
        assert_eq!(b.confidence_levels.overall.0, "unknown");
    }
}
