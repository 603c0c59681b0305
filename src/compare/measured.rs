//! What a profile measured of each item that is calculated: pool against pool, used against used.

use super::calculated::Item;
use super::settings::{self, ProfileSettings};
use super::subject::source_word;
use crate::breakdown::{Component, EvidenceSource};
use crate::capture::DeviceKind;
use crate::profile::Profile;
use crate::units::GIB;

/// Bytes on the GPU that has most of it, or tokens, and what the figure rests on; or why it is unknown.
pub type MeasuredFigure = Result<(f64, String), String>;

/// A figure that was observed: one that was itself calculated cannot check another calculation.
fn reject_calculated(reading: MeasuredFigure) -> MeasuredFigure {
    let calculated = source_word(EvidenceSource::Architecture);
    match reading {
        Ok((_, source)) if source == calculated => {
            Err(format!("not reported by an engine: it is {calculated}"))
        }
        reading => reading,
    }
}

/// A profile, read item by item.
pub struct MeasuredProfile<'a> {
    profile: &'a Profile,
    settings: ProfileSettings,
}

impl<'a> MeasuredProfile<'a> {
    /// Of this profile.
    pub fn measured_of_profile(profile: &'a Profile) -> MeasuredProfile<'a> {
        MeasuredProfile {
            settings: settings::settings_of_profile(profile),
            profile,
        }
    }

    /// What was measured of an item.
    pub fn reading_of_item(&self, item: Item) -> MeasuredFigure {
        let on_host = self.on_host();
        match item {
            Item::Weights if on_host => {
                reject_calculated(self.alone(self.host_part(Component::ModelWeights)))
            }
            Item::Weights => reject_calculated(self.largest_device_part(Component::ModelWeights)),
            Item::KvPool => self.pool_reading(),
            Item::KvTokens => self.pool_tokens_reading(),
            Item::KvUsed => self.kv_used_reading(),
            _ if on_host => Err("measured in host memory: what is calculated is of a GPU".into()),
            Item::Activation => self.activation(),
            Item::CudaGraphs => self.cuda_graphs_reading(),
            Item::NonTorch => self.largest_device_part(Component::NonTorch),
            Item::Overhead => self.overhead(),
            Item::Total => self.total_reading(),
        }
    }

    /// Whether host memory was measured.
    pub fn on_host(&self) -> bool {
        let devices = &self.profile.gpu_info.devices;
        devices.iter().any(|d| d.kind == DeviceKind::HostCgroup)
    }

    /// Ranks that the engine runs on.
    fn rank_count(&self) -> f64 {
        let kinds = ["tensor", "pipeline", "data"];
        kinds.iter().map(|kind| self.parallel_size(kind)).product()
    }

    fn parallel_size(&self, kind: &str) -> f64 {
        let size = self.settings.get(&format!("{kind}_parallel_size"));
        let size = size.and_then(|v| v.trim().parse::<u32>().ok());
        f64::from(size.unwrap_or(1).max(1))
    }

    /// A figure of host memory, which holds all ranks: of a GPU only where there is one rank.
    fn alone(&self, reading: MeasuredFigure) -> MeasuredFigure {
        if self.rank_count() > 1.0 {
            Err("measured in host memory, over several ranks".into())
        } else {
            reading
        }
    }

    fn host_part(&self, component: Component) -> MeasuredFigure {
        let bytes = super::figures::component_bytes(self.profile, component);
        bytes
            .map(|bytes| (bytes, self.source_of_part(component, None)))
            .ok_or_else(|| self.reason_for_component(component))
    }

    /// A part on the GPU that has most of it.
    fn largest_device_part(&self, component: Component) -> MeasuredFigure {
        let most = (self.profile.memory_breakdown.per_gpu.iter())
            .filter_map(|d| {
                let part = d.parts.iter().find(|p| p.component == component)?;
                Some((part.bytes, d.gpu_id))
            })
            .max_by_key(|(bytes, _)| *bytes);
        most.map(|(bytes, gpu)| (bytes as f64, self.source_of_part(component, Some(gpu))))
            .ok_or_else(|| self.reason_for_component(component))
    }

    /// What a used part rests on.
    fn source_of_part(&self, component: Component, gpu: Option<u32>) -> String {
        let used = (self.profile.evidence.iter())
            .filter(|e| e.used && e.component == component)
            .find(|e| gpu.is_none_or(|g| g == e.gpu_id));
        source_word(used.map_or(EvidenceSource::Residual, |e| e.source)).into()
    }

    /// Why a part is unknown.
    fn reason_for_component(&self, component: Component) -> String {
        let path = super::figures::reason_path(component);
        let reason = self.profile.unknown.get(path).cloned();
        reason.unwrap_or_else(|| "no source of this run reports it".into())
    }

    /// The largest word of the engine itself on a component, whether the breakdown rests on it or
    /// not.
    fn engines_word(&self, component: Component) -> Option<(f64, String)> {
        use EvidenceSource::{EngineInfo, EngineLog, EngineMetrics};
        (self.profile.evidence.iter())
            .filter(|e| e.component == component)
            .filter(|e| matches!(e.source, EngineLog | EngineMetrics | EngineInfo))
            .max_by_key(|e| e.bytes)
            .map(|e| (e.bytes as f64, source_word(e.source).into()))
    }

    /// The pool as reserved. Memory of a host is taken when it is first touched: there the engine's
    /// word counts, and not what was seen.
    fn pool_reading(&self) -> MeasuredFigure {
        if self.grows() {
            return Err("this engine reserves no pool: its cache grows with each request".into());
        }
        let reported = self.engines_word(Component::KvCache);
        match (reported, self.on_host()) {
            (Some(reading), true) => self.alone(Ok(reading)),
            (Some(reading), false) => Ok(reading),
            (None, true) => self.alone(self.host_part(Component::KvCache)),
            (None, false) => self.largest_device_part(Component::KvCache),
        }
    }

    fn pool_tokens_reading(&self) -> MeasuredFigure {
        let tokens = self.profile.vllm_internal_metrics.total_gpu_kv_cache_tokens;
        // Engines beside each other have a pool each.
        let pools = self.parallel_size("data");
        tokens
            .map(|tokens| (tokens as f64 / pools, "the engine's word".into()))
            .ok_or_else(|| self.reason("vllm_internal_metrics.total_gpu_kv_cache_tokens"))
    }

    fn kv_used_reading(&self) -> MeasuredFigure {
        if self.grows() {
            return self.largest_device_part(Component::KvCache);
        }
        let used = self.profile.vllm_internal_metrics.kv_cache_used_gb;
        let source = "the pool times its highest usage";
        used.map(|gib| (gib * GIB / self.rank_count(), source.into()))
            .ok_or_else(|| self.reason("vllm_internal_metrics.kv_cache_used_gb"))
    }

    /// The peak of the engine's own profile run. What a load took is another question.
    fn activation(&self) -> MeasuredFigure {
        if self.grows() {
            return self.largest_device_part(Component::Activations);
        }
        let reported = self.engines_word(Component::Activations);
        reported.ok_or_else(|| "the engine did not report the peak of its own profile run; the activations of this load are another figure".into())
    }

    fn cuda_graphs_reading(&self) -> MeasuredFigure {
        let eager = self.settings.get("enforce_eager");
        let eager = eager.is_some_and(|v| v == "true");
        match self.largest_device_part(Component::CudaGraphs) {
            Err(_) if eager => Ok((0.0, "none: enforce_eager".into())),
            reading => reading,
        }
    }

    /// What is neither weights nor KV nor activations, nor another's, nor the driver's own.
    fn overhead(&self) -> MeasuredFigure {
        use Component::{Activations, KvCache, ModelWeights};
        use Component::{CudaGraphs, NonTorch, Runtime, Unexplained, WarmupGrowth};
        let engines = [CudaGraphs, NonTorch, Runtime, WarmupGrowth, Unexplained];
        let of_device = |parts: &[crate::breakdown::Part]| {
            let known = [ModelWeights, KvCache, Activations];
            let is_known = |c: &Component| parts.iter().any(|p| p.component == *c);
            let all_known = known.iter().all(is_known);
            let bytes = parts.iter().filter(|p| engines.contains(&p.component));
            all_known.then(|| bytes.map(|p| p.bytes as f64).sum::<f64>())
        };
        (self.profile.memory_breakdown.per_gpu.iter())
            .filter_map(|d| of_device(&d.parts))
            .reduce(f64::max)
            .map(|bytes| (bytes, "what the other parts leave".into()))
            .ok_or("weights, KV cache or activations are unknown, and so is what they leave")
            .map_err(str::to_owned)
    }

    /// The peak without what others and the driver held.
    fn total_reading(&self) -> MeasuredFigure {
        (self.profile.memory_breakdown.per_gpu.iter())
            .filter_map(|d| {
                let of = |c| d.parts.iter().find(|p| p.component == c).map(|p| p.bytes);
                let reserved = of(Component::DriverReserved).unwrap_or(0);
                Some(d.peak_bytes as f64 - of(Component::Baseline)? as f64 - reserved as f64)
            })
            .reduce(f64::max)
            .map(|bytes| (bytes, "the peak without what others held".into()))
            .ok_or_else(|| "how much was in use without this engine is unknown".into())
    }

    /// Whether the cache grows with each request.
    fn grows(&self) -> bool {
        self.profile.engine_metadata.engine_type == "transformers"
    }

    fn reason(&self, path: &str) -> String {
        let reason = self.profile.unknown.get(path).cloned();
        reason.unwrap_or_else(|| "not reported by the engine".into())
    }
}
