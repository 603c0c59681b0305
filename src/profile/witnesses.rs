//! The sources of each part of the peak: what the engine reports, what was measured, what the
//! model's files give. All are kept; of each part and device the best is marked as used.

use super::configuration::{ModelInfo, bytes_of_gib};
use super::elsewhere;
use super::neighbours::neighbour_growth;
use super::observation::{CaptureObservation, Repeat, file_bytes};
use super::placement::Placement;
use super::pool::ExactPool;
use super::ranks::{EngineRanks, sum_of_parts};
use super::series::{DevicePeakReading, MOST_BYTES};
use super::{DtypeMetadata, checkpoint, torch};
use crate::breakdown::{Component, Evidence, EvidenceSource};
use crate::capture::{MemorySample, Mode};
use crate::engine::facts::{EngineStep, FactKey, FactValue, key};
use crate::units::signed_text;

/// The kernel charges memory in batches per processor: a level is known to about this, bytes.
const TOLERANCE_BYTES: i64 = 4 << 20;

/// What some engines print apart, and what belongs to the same part: a draft model's share, and
/// the states that recurrent layers keep instead of keys and values.
const BESIDE: &[(FactKey, &[FactKey])] = &[
    (key::weights_gib, &[key::draft_weights_gib]),
    (
        key::kv_cache_gib,
        &[
            key::draft_kv_cache_gib,
            key::recurrent_state_gib,
            key::mamba,
        ],
    ),
    (
        key::cuda_graph_gib,
        &[key::draft_cuda_graph_gib, key::cuda_graph_prefill_gib],
    ),
];

/// Collects evidence for one device in the order of trust.
pub(super) struct EvidenceCollector<'a, 'b> {
    pub(super) o: &'a CaptureObservation<'b>,
    pub(super) device: usize,
    ranks: EngineRanks,
    placement: &'a Placement,
    found: Vec<Evidence>,
}

/// All evidence for the peaks of the top repeat.
pub fn collect_evidence(
    o: &CaptureObservation<'_>,
    model: &ModelInfo,
    dtypes: &DtypeMetadata,
    pool: &ExactPool,
) -> Vec<Evidence> {
    let Some(top) = o.top_repeat() else {
        return Vec::new();
    };
    let placement = o.rank_placement();
    let mut all = Vec::new();
    for peak in &top.peaks {
        let mut w = EvidenceCollector {
            o,
            device: peak.nearest.device as usize,
            ranks: o.engine_ranks(),
            placement: &placement,
            found: Vec::new(),
        };
        torch::add_probe_evidence(&mut w);
        w.baseline(peak);
        w.runtime();
        // On the GPU it holds neither then.
        if o.is_host(w.device) || !elsewhere::is_asleep(o) {
            w.weights(model, dtypes);
            w.kv_cache(pool);
        }
        if o.is_host(w.device) {
            w.host_load(top, peak);
        } else {
            w.gpu_load(top, peak);
        }
        let mut chosen = w.choose();
        let swapped = swap_evidence(peak, &chosen);
        chosen.extend(swapped);
        all.extend(chosen);
    }
    all
}

impl EvidenceCollector<'_, '_> {
    /// Keeps a figure that a device can hold. Engines and files may say anything.
    pub(super) fn add(
        &mut self,
        component: Component,
        bytes: impl Into<Option<i64>>,
        source: EvidenceSource,
        quote: impl Into<String>,
    ) {
        let possible = |b: &i64| b.unsigned_abs() <= MOST_BYTES;
        let Some(bytes) = bytes.into().filter(possible) else {
            return;
        };
        self.found.push(Evidence {
            component,
            gpu_id: self.device as u32,
            bytes,
            source,
            quote: quote.into(),
            used: source.names_its_device() || self.knows_its_ranks(),
        });
    }

    fn measured(
        &mut self,
        component: Component,
        bytes: impl Into<Option<i64>>,
        quote: impl Into<String>,
    ) {
        self.add(component, bytes, EvidenceSource::MeasuredDelta, quote);
    }

    fn reported(&mut self, component: Component, gib: f64, quote: String) {
        let bytes = bytes_of_gib(gib);
        self.add(component, bytes, EvidenceSource::EngineLog, quote);
    }

    /// Whether it is known which of the engine's figures are this device's. A host's memory holds
    /// all ranks.
    fn knows_its_ranks(&self) -> bool {
        self.o.is_host(self.device) || *self.placement != Placement::Unknown
    }

    /// A figure of the log in GiB, with its line: of this device's rank, or of all ranks where
    /// the device is the host's memory.
    fn logged(&self, key: FactKey) -> Option<(f64, String)> {
        let fact = self.o.log.fact(key)?;
        let value = sum_of_parts(&fact.value);
        let gib = if self.o.is_host(self.device) {
            self.ranks.total_over_ranks(&value)?
        } else {
            let rank = self.placement.rank_on(self.device as u32)?;
            self.ranks.figure_of_rank(&value, rank)?
        };
        // Where each rank printed a line of its own, that one.
        let own = match &fact.value {
            FactValue::List(list) if list.len() == fact.quote.len() => self
                .placement
                .rank_on(self.device as u32)
                .and_then(|rank| fact.quote.get(rank)),
            // The label of the rank, as `TP1`, stands in its line.
            FactValue::Record(entries) if entries.len() as u64 == self.ranks.rank_count() => {
                let rank = self
                    .placement
                    .rank_on(self.device as u32)
                    .map(|r| r.to_string());
                let is_own = |label: &&String| {
                    Some(label.trim_start_matches(|c: char| !c.is_ascii_digit())) == rank.as_deref()
                };
                let label = entries.keys().find(is_own);
                label.and_then(|label| fact.quote.iter().find(|quote| quote.contains(label)))
            }
            _ => None,
        };
        let quote = own.or(fact.quote.first()).cloned().unwrap_or_default();
        Some((gib, quote))
    }

    /// How many ranks' share of a pool lies on this device.
    fn ranks_here(&self) -> u64 {
        if self.o.is_host(self.device) {
            return self.ranks.rank_count();
        }
        let rank = self.placement.rank_on(self.device as u32);
        u64::from(rank.is_some_and(|r| (r as u64) < self.ranks.rank_count()))
    }

    fn add_logged(&mut self, component: Component, key: FactKey) {
        let beside = BESIDE.iter().find(|(k, _)| *k == key);
        if let Some((mut gib, mut quote)) = self.logged(key) {
            for other in beside.iter().flat_map(|(_, others)| others.iter()) {
                if let Some((more, words)) = self.logged(*other) {
                    gib += more;
                    quote = format!("{quote} | {words}");
                }
            }
            self.reported(component, gib, quote);
        }
    }

    fn baseline(&mut self, peak: &DevicePeakReading) {
        let reserved = peak.nearest.reserved_bytes;
        if let Some(reserved) = reserved {
            self.measured(
                Component::DriverReserved,
                reserved as i64,
                "NVML memory v2, `reserved` at the peak",
            );
        }
        let before = self.o.baseline_sample(self.device);
        let (mode, host) = (self.o.capture.mode, self.o.is_host(self.device));
        match (mode, before) {
            (Mode::Serving | Mode::Started, _) if host => {
                self.measured(
                    Component::Baseline,
                    0,
                    "the container's cgroup holds nothing but the container",
                );
            }
            (Mode::Idle | Mode::Started, Some(s)) => {
                // What the driver keeps, and a container's page cache, are lines of their own.
                let bytes =
                    s.used_bytes as i64 - s.reserved_bytes.unwrap_or(0) as i64 - file_bytes(&s);
                self.add_baseline(
                    bytes,
                    "in use before the engine started, median of the baseline phase, page cache left out",
                );
            }
            (Mode::Serving, Some(s)) => {
                if let Some(others) = self.other_tenants(&s) {
                    self.add_baseline(
                        others,
                        "NVML: used less the container's own processes, before the load",
                    );
                }
            }
            _ => {}
        }
    }

    /// What was there before, and what others took since: no part of it is the engine's.
    fn add_baseline(&mut self, before: i64, quote: &str) {
        let grew = neighbour_growth(self.o, self.device).unwrap_or(0);
        let quote = match grew {
            0 => quote.to_owned(),
            _ => format!(
                "{quote}; {} more of others at the peak",
                signed_text(grew.into())
            ),
        };
        let bytes = before.saturating_add(grew);
        self.measured(Component::Baseline, bytes, quote);
    }

    /// Device memory that is not the container's, when every process of it is known.
    fn other_tenants(&self, s: &MemorySample) -> Option<i64> {
        let upto = self.o.series.rows_in_window(self.device, i64::MIN, s.at_ns);
        let processes = upto.process_lists().next_back().or_else(|| {
            self.o
                .series
                .rows_of_device(self.device)
                .process_lists()
                .next()
        })?;
        let ours = processes
            .iter()
            .filter(|p| p.ours != Some(false))
            .try_fold(0u64, |sum, p| sum.checked_add(p.ours.and(p.used_bytes)?))
            .filter(|b| (1..=MOST_BYTES).contains(b))?;
        Some(s.used_bytes as i64 - s.reserved_bytes.unwrap_or(0) as i64 - ours as i64)
    }

    /// The engine's memory before anything of it was loaded.
    fn floor(&self) -> Option<i64> {
        match (self.o.capture.mode, self.o.is_host(self.device)) {
            (Mode::Serving, _) => None,
            (Mode::Started, true) => Some(0),
            _ => self.serving_baseline(),
        }
    }

    /// The engine's memory just before a step.
    fn before(&self, step: EngineStep) -> Option<i64> {
        self.o.before_step(self.device, step)
    }

    /// The engine's memory once a step was passed.
    fn after(&self, step: EngineStep) -> Option<i64> {
        self.o.level_after_step(self.device, step)
    }

    fn runtime(&mut self) {
        let level = self.before(EngineStep::LoadingWeights);
        if let Some((floor, level)) = self.floor().zip(level) {
            self.measured(
                Component::Runtime,
                level - floor,
                "growth from the engine's start until it began to load weights",
            );
        }
    }

    fn weights(&mut self, model: &ModelInfo, dtypes: &DtypeMetadata) {
        self.add_logged(Component::ModelWeights, key::weights_gib);
        if self.ranks.rank_count() == 1 && self.ranks_here() == 1 && !torch::is_spread(self.o) {
            if let Some((bytes, quote)) = checkpoint::loaded_bytes(self.o, model, dtypes) {
                self.add(
                    Component::ModelWeights,
                    bytes,
                    EvidenceSource::Architecture,
                    quote,
                );
            }
        }
        let before = self.before(EngineStep::LoadingWeights);
        if let Some((before, after)) = before.zip(self.after(EngineStep::WeightsLoaded)) {
            // Pages of files are page cache, and in no figure of an engine's memory.
            let mapped = torch::file_mapped_bytes(self.o, self.device);
            let quote = match mapped {
                0 => "growth while the weights were loaded".to_owned(),
                _ => format!(
                    "growth while the weights were loaded, and {} of them mapped from files",
                    signed_text(mapped.into())
                ),
            };
            self.measured(Component::ModelWeights, after - before + mapped, quote);
        }
    }

    fn kv_cache(&mut self, pool: &ExactPool) {
        let probes = &self.o.probes;
        let (ranks, here) = (self.ranks, self.ranks_here());
        if let Some(bytes) = probes.kv_cache_bytes.filter(|_| here > 0) {
            // Engines beside each other are summed up; each has a pool of its own.
            let per_rank = bytes / ranks.engines;
            self.add(
                Component::KvCache,
                product(&[per_rank, here]),
                EvidenceSource::EngineMetrics,
                format!("/metrics: cache_config_info has {per_rank} bytes per rank"),
            );
        }
        self.add_logged(Component::KvCache, key::kv_cache_gib);
        let rounded = |e: &&mut Evidence| {
            e.component == Component::KvCache && e.source == EvidenceSource::EngineLog
        };
        if let Some(logged) = self.found.last_mut().filter(rounded) {
            if let Some((bytes, quote)) = pool.exact_figure_behind(logged.bytes, here) {
                logged.bytes = bytes;
                logged.quote = format!("{} | {quote}", logged.quote);
            }
        }
        if let Some((bytes, quote)) = pool.calculated.as_ref().filter(|_| here > 0) {
            self.add(
                Component::KvCache,
                bytes.checked_mul(here as i64),
                EvidenceSource::Architecture,
                quote,
            );
        }
        // `Profiled` begins the allocation, `WeightsLoaded` ends what came before it.
        let before = self.before(EngineStep::Profiled);
        let before = before.or_else(|| self.after(EngineStep::WeightsLoaded));
        let after = self.after(EngineStep::KvCacheAllocated);
        if let Some(growth) = before.zip(after).map(|(before, after)| after - before) {
            let claim = self
                .found
                .iter()
                .find(|e| e.used && e.component == Component::KvCache)
                .map(|e| e.bytes);
            let (bytes, quote) = match claim {
                Some(claim) if growth > claim => (
                    claim,
                    format!(
                        "growth until the step after the pool: {}, no more of it than the pool counts",
                        signed_text(growth.into())
                    ),
                ),
                _ => (growth, "growth while the KV pool was allocated".to_owned()),
            };
            self.measured(Component::KvCache, bytes, quote);
        }
    }

    /// The engine's memory when it was loaded and had served nothing yet.
    fn loaded(&self, top: &Repeat) -> Option<i64> {
        match self.o.capture.mode {
            Mode::Idle => self
                .o
                .level_before(self.device, top.warmup_at.or(top.bench_at)?),
            Mode::Started => (self.after(EngineStep::Ready)).or_else(|| self.serving_baseline()),
            Mode::Serving => self.serving_baseline(),
        }
    }

    fn serving_baseline(&self) -> Option<i64> {
        self.o
            .baseline_sample(self.device)
            .map(|s| self.o.engine_bytes(self.device, &s))
    }

    /// What load does to a host's memory: page cache, our client, what comes and goes, what stays.
    fn host_load(&mut self, top: &Repeat, peak: &DevicePeakReading) {
        let nearest = &peak.nearest;
        if nearest.host.and_then(|h| h.file_bytes).is_some() {
            let file = file_bytes(nearest);
            // Where the pages are another container's, less is here than is mapped.
            let mapped = Some(torch::file_mapped_bytes(self.o, self.device))
                .filter(|m| (1..=file).contains(m));
            let quote = match mapped {
                None => "memory.stat: page cache at the peak".to_owned(),
                Some(m) => format!(
                    "memory.stat: page cache at the peak, less {} of it that are the model's weights",
                    signed_text(m.into())
                ),
            };
            self.measured(Component::PageCache, file - mapped.unwrap_or(0), quote);
        }
        if let Some(client) = nearest.bench_client_bytes {
            self.measured(
                Component::BenchClient,
                client as i64,
                "anonymous memory of the bench client's processes",
            );
        }
        let Some(bench_at) = top.bench_at else { return };
        let engine_peak = peak.bytes as i64
            - file_bytes(nearest)
            - nearest.bench_client_bytes.unwrap_or(0) as i64;
        let loaded = self.loaded(top);
        // The lowest moment is what stays; the engine of an in-process bench shuts down within
        // the window, so nothing below the loaded level counts.
        let lowest = self
            .o
            .series
            .lowest_readings(self.device, bench_at, self.o.rest_until(top))
            .map(|(low, s)| {
                self.o.engine_bytes(self.device, &s) - (s.used_bytes as i64 - low as i64)
            })
            .filter(|b| loaded.is_none_or(|l| *b >= l - TOLERANCE_BYTES))
            .min();
        let (counted, less) = self.bytes_beside_activations();
        match (lowest, loaded) {
            (Some(lowest), _) => self.measured(
                Component::Activations,
                without_noise((engine_peak - lowest).saturating_sub(counted)),
                format!("the peak less the lowest level in load or after{less}"),
            ),
            (None, Some(loaded)) => self.measured(
                Component::Activations,
                without_noise((engine_peak - loaded).saturating_sub(counted)),
                format!("the peak less the level before any request{less}"),
            ),
            (None, None) => {}
        }
        if let Some((lowest, loaded)) = lowest.zip(loaded) {
            self.measured(
                Component::WarmupGrowth,
                lowest - loaded,
                "the lowest level in load or after, less the level before any request",
            );
        }
    }

    /// What the engine reports of its other device memory, else what the load added.
    fn gpu_load(&mut self, top: &Repeat, peak: &DevicePeakReading) {
        self.add_logged(Component::CudaGraphs, key::cuda_graph_gib);
        if let Some((gib, quote)) = self.logged(key::non_torch_gib) {
            // TensorRT-LLM measures it with a pool in place that is gone when the final one is taken.
            let temporary = self
                .logged(key::temporary_kv_gib)
                .map_or(0.0, |(gib, _)| gib);
            self.reported(Component::NonTorch, gib - temporary, quote);
        }
        if let (Some((consumed, quote)), Some((weights, _))) = (
            self.logged(key::consumed_gib),
            self.logged(key::weights_gib),
        ) {
            self.reported(Component::NonTorch, consumed - weights, quote);
        }
        if let Some((activations, quote)) = self.logged(key::activation_peak_gib) {
            // Since weights and non-torch are printed as one figure, the estimate for CUDA graphs
            // is part of the activation figure; the graphs have a line of their own here.
            let graphs = self
                .logged(key::consumed_gib)
                .and_then(|_| self.logged(key::cuda_graph_estimated_gib))
                .map_or(0.0, |(gib, _)| gib);
            self.reported(Component::Activations, activations - graphs, quote);
        }
        if let Some(loaded) = self.loaded(top).filter(|_| top.bench_at.is_some()) {
            let (counted, less) = self.bytes_beside_activations();
            let neighbours = self.o.neighbours_of(self.device);
            let own = peak.bytes as i64 - neighbours.held_at(peak.nearest.at_ns);
            let source = if neighbours.unreported {
                EvidenceSource::MeasuredShared
            } else {
                EvidenceSource::MeasuredDelta
            };
            self.add(
                Component::Activations,
                without_noise((own - loaded).saturating_sub(counted)),
                source,
                format!("the peak less the level before any request{less}"),
            );
        }
    }

    /// Memory that a probe in the process reports, that comes with the load and that is not an activation: a cache
    /// that grows with each request, and what the allocator keeps.
    fn bytes_beside_activations(&self) -> (i64, &'static str) {
        use Component::{KvCache, NonTorch, WarmupGrowth};
        let beside = |e: &&Evidence| {
            e.source == EvidenceSource::TorchProbe
                && matches!(e.component, KvCache | NonTorch | WarmupGrowth)
        };
        let reported = self.found.iter().filter(beside).map(|e| e.bytes);
        match reported.fold(0, i64::saturating_add) {
            0 => (0, ""),
            bytes => (bytes, ", minus the probe's other figures"),
        }
    }

    /// Marks the best witness of each part as used.
    fn choose(mut self) -> Vec<Evidence> {
        self.found.sort_by_key(|e| e.component);
        let mut last = None;
        for e in self.found.iter_mut().filter(|e| e.used) {
            e.used = last.replace(e.component) != Some(e.component);
        }
        self.prefer_resident_kv();
        self.found
    }

    /// Host memory is committed at first touch: a pool that was reserved and not touched is not
    /// in the measured peak, so there the measured growth counts.
    fn prefer_resident_kv(&mut self) {
        if !self.o.is_host(self.device) {
            return;
        }
        let kv = |e: &Evidence| e.component == Component::KvCache;
        let measured = self
            .found
            .iter()
            .position(|e| kv(e) && e.source == EvidenceSource::MeasuredDelta);
        let claimed = self.found.iter().position(|e| kv(e) && e.used);
        if let (Some(measured), Some(claimed)) = (measured, claimed) {
            if self.found[measured].bytes < self.found[claimed].bytes / 10 * 9 {
                self.found[claimed].used = false;
                self.found[measured].used = true;
            }
        }
    }
}

/// A difference of two readings that lies below 0 by no more than they err: nothing was added.
fn without_noise(bytes: i64) -> i64 {
    if (-TOLERANCE_BYTES..0).contains(&bytes) {
        0
    } else {
        bytes
    }
}

/// What is in swap at the peak and in no part of these: differences of readings hold what was
/// swapped out of them, and so does what an engine reports.
fn swap_evidence(peak: &DevicePeakReading, parts: &[Evidence]) -> Option<Evidence> {
    let swapped = peak.nearest.host?.swap_bytes.filter(|b| *b > 0)? as i64;
    let used = parts.iter().filter(|e| e.used).map(|e| e.bytes);
    let left = used.fold(peak.bytes as i64, i64::saturating_sub);
    Some(Evidence {
        component: Component::Swap,
        gpu_id: peak.nearest.device,
        bytes: swapped.min(left.max(0)),
        source: EvidenceSource::MeasuredDelta,
        quote: format!(
            "swapped out at the peak: {}, less what of it the other parts hold",
            signed_text(swapped.into())
        ),
        used: true,
    })
}

/// The product of figures from outside; `None` where it overflows.
fn product(factors: &[u64]) -> Option<i64> {
    let all = factors.iter().try_fold(1, |p: u64, f| p.checked_mul(*f))?;
    i64::try_from(all).ok()
}
