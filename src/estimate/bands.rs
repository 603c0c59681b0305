//! Where nine of ten measurements lie around each term: a small table that ships, with how many runs it comes from.
//!
//! What is fitted (CUDA graphs) is measured on architectures that were left out of the fit; the rest are counted or
//! measured constants, with their residuals as they are. Where a term has no measurement like it, there is no band.

use super::{
    Band, Component, Deployment, EngineId, Model, Term, Version,
    activation::{Activation, Sampler},
    encoder::Encoder,
    engines::{self, Generation, Settings, vllm},
    non_torch::{self, NonTorch},
    pooling, speculation,
};
use crate::units::GIB;

/// How far measurements lie below and above a term: GiB, and a share of the term; both count.
#[derive(Debug, Clone, Copy)]
struct Spread {
    gib: (f64, f64),
    share: (f64, f64),
    cases: u64,
    source: &'static str,
}

impl Spread {
    fn band(self, bytes: u64) -> Band {
        let b = bytes as f64;
        let low = b - self.gib.0 * GIB - self.share.0 * b;
        let high = b + self.gib.1 * GIB + self.share.1 * b;
        let ends = [low, high].map(|end| end.max(0.0) as u64);
        Band::new(ends[0], ends[1], self.cases, self.source)
    }
}

const fn spread(
    gib: (f64, f64),
    share: (f64, f64),
    cases: u64,
    source: &'static str,
) -> Option<Spread> {
    Some(Spread {
        gib,
        share,
        cases,
        source,
    })
}

/// Whether the pool's interval is of a few runs of another kind than what is asked: its middle decides nothing.
pub fn is_extrapolated(deployment: &Deployment) -> bool {
    let shared = engines::gpu_model(deployment).and_then(|g| g.shares_host?.off);
    deployment.pp > 1 || shared.is_some()
}

/// Whether few runs like it were measured at all, so that no risk is low.
pub fn has_few_runs(model: &Model, deployment: &Deployment) -> bool {
    let named = deployment.versions.is_none() && deployment.speculation.is_none();
    let foreign = engines::is_foreign(deployment);
    let pools = pooling::is_computed(model, deployment);
    let few = is_extrapolated(deployment) || pools || model.is_compressed();
    few || !named || foreign || deployment.host.weights > 0
}

/// Whether no run of the engine was measured, here or by the user, so that no risk is low.
pub fn has_no_runs(deployment: &Deployment) -> bool {
    let sized_as_asked = deployment.engine.takes_what_is_asked();
    sized_as_asked && deployment.own.non_torch.is_none()
}

/// Puts the bands that the table has into `terms`; a term that has a band keeps it. `forecast`: that of the graphs counts
/// in the cache's size.
pub fn put(
    terms: &mut [Term],
    deployment: &Deployment,
    settings: &Settings,
    peak: &Activation,
    rest: NonTorch,
    forecast: bool,
) {
    for term in terms.iter_mut() {
        let Ok(bytes) = term.bytes else { continue };
        if term.band.is_some() || deployment.engine != EngineId::Vllm {
            continue;
        }
        let spread = match term.component {
            _ if engines::is_foreign(deployment) => None,
            Component::Activation => activation(deployment, peak),
            Component::CudaGraphs => graphs(deployment, settings, peak.kind),
            Component::NonTorch => non_torch(deployment, rest.runs),
            Component::Weights | Component::KvCache | Component::Draft => None,
        };
        term.band = spread.map(|s| s.band(bytes));
    }
    let pool = cache(terms, deployment, settings, forecast);
    let of_pool = |t: &&mut Term| t.component == Component::KvCache && t.band.is_none();
    if let Some(term) = terms.iter_mut().find(of_pool) {
        term.band = pool;
    }
}

/// The profile run's peak.
fn activation(deployment: &Deployment, a: &Activation) -> Option<Spread> {
    let v = vllm::version(deployment);
    if a.encoding > a.forward.max(a.sampler).saturating_add(a.kept) {
        return spread(
            (0.2, 0.2),
            (0.25, 0.25),
            2,
            "built-in: two runs of vLLM 0.24, a model with its peak in the encoder",
        );
    }
    if a.kind == Sampler::Pooler {
        return spread(
            (0.1, 0.3),
            (0.4, 0.4),
            0,
            "no run that pools was measured: as far as other rules of a step err",
        );
    }
    if a.encoder == Encoder::Counted {
        return spread(
            (0.15, 0.15),
            (0.0, 0.15),
            6,
            "built-in: vLLM 0.19 on H100, models that read images",
        );
    }
    if speculation::tokens(deployment) > 0 {
        return spread(
            (0.1, 0.2),
            (0.4, 0.4),
            0,
            "no run with speculative decoding was measured: as far as other rules of a sampler err",
        );
    }
    // Where FlashInfer may have been installed, its sampler takes 14 bytes of each logit and not 38.
    let open = deployment.flashinfer_sampler.is_none()
        && a.kind == Sampler::Sort
        && !vllm::is_v0(deployment)
        && v < Version::new(0, 12, 0);
    if open {
        return spread(
            (0.05, 0.05),
            (0.62, 0.0),
            4,
            "built-in: vLLM 0.8 to 0.11, with FlashInfer and without",
        );
    }
    if a.kind == Sampler::Unprocessed {
        return spread(
            (0.05, 0.05),
            (0.05, 0.20),
            2,
            "built-in: vLLM 0.25 and 0.27, the second model runner",
        );
    }
    if a.forward > a.sampler {
        return spread(
            (0.05, 0.05),
            (0.10, 0.10),
            5,
            "built-in: vLLM 0.6 to 0.19, long steps",
        );
    }
    spread(
        (0.03, 0.06),
        (0.01, 0.01),
        46,
        "built-in: vLLM 0.7 to 0.19 on T4 to H100",
    )
}

/// A peak that the encoder decides: one that was never measured, or between two ways of making it.
pub fn of_encoder([low, high]: [u64; 2], is_unmeasured: bool) -> Band {
    let source = if is_unmeasured {
        "read in vLLM's code: no start with this encoder was measured"
    } else {
        "read in vLLM and transformers: by release, an encoder works on more at once"
    };
    Band::new(low, high, 0, source).widened((0.15 * GIB) as u64)
}

/// A peak that compiling decides, between a start that finds all of it compiled and one that tries kernels beside a step.
pub fn of_compiling([low, high]: [u64; 2]) -> Band {
    let source =
        "built-in: vLLM 0.27 to 0.31, starts that compile and starts from a kept compile cache";
    Band::new(low, high, 14, source).widened((0.05 * GIB) as u64)
}

/// CUDA graphs, on architectures left out.
fn graphs(d: &Deployment, settings: &Settings, sampler: Sampler) -> Option<Spread> {
    if settings.eager {
        return None;
    }
    if sampler == Sampler::Pooler {
        return spread(
            (0.2, 0.9),
            (1.0, 0.9),
            1,
            "built-in: one run that pools, vLLM 0.28 on RTX 5090; none where the model is not compiled",
        );
    }
    if d.graphs.is_any() {
        return spread(
            (0.2, 0.2),
            (0.6, 0.9),
            0,
            "no run with other graphs than by default was measured: as far as those scatter",
        );
    }
    let hopper = engines::generation_of(d) == Some(Generation::Hopper);
    if vllm::is_v0(d) {
        return spread(
            (0.0, 0.0),
            (0.5, 0.6),
            14,
            "built-in: vLLM's V0 engine on T4 to H100",
        );
    }
    if hopper && vllm::version(d) >= Version::new(0, 17, 0) {
        // One run on four GPUs took half of what a single one would.
        let less = if d.tp > 1 { 0.2 } else { 0.0 };
        return spread(
            (less, 0.0),
            (0.12, 0.14),
            29,
            "built-in: vLLM 0.19 on H100, architectures left out",
        );
    }
    // 0.5 of 2.5 and nothing of 1.5 on four and eight GPUs of 0.11.
    let less = if d.tp > 1 { 0.8 } else { 0.6 };
    spread(
        (0.2, 0.2),
        (less, 0.9),
        12,
        "built-in: vLLM 0.8 to 0.20, scattered",
    )
}

/// What PyTorch does not hold.
fn non_torch(deployment: &Deployment, runs: u64) -> Option<Spread> {
    if runs == 0 && deployment.tp.max(deployment.pp) > 1 {
        return spread(
            (0.6, 1.2),
            (0.0, 0.0),
            0,
            "no run like it: as far as one of another kind lay",
        );
    }
    if runs == 0 {
        return None;
    }
    let version = vllm::version(deployment);
    let newer = version >= Version::new(0, 27, 0);
    let generation = engines::generation_of(deployment);
    let hopper = generation == Some(Generation::Hopper);
    let blackwell = generation == Some(Generation::Blackwell);
    let nvlink = engines::has_nvlink(deployment);
    let older = version < Version::new(0, 11, 0);
    let (low, high, source) = match (non_torch::linked_ranks(deployment), runs) {
        _ if non_torch::has_stages_alone(deployment) => (
            0.07,
            0.6,
            "built-in: vLLM 0.19 on H100, stages of a pipeline",
        ),
        (1, _) if newer && hopper => (0.05, 0.5, "built-in: vLLM 0.25 on H100, taken for later"),
        (1, _) if newer => (
            0.3,
            0.9,
            "built-in: vLLM 0.27 to 0.30 on one GPU, scattered",
        ),
        (1, 21..) if hopper => (0.02, 0.21, "built-in: vLLM 0.19 on H100"),
        (1, 21..) => (0.09, 0.21, "built-in: vLLM 0.7 to 0.26 on one GPU"),
        (1, runs) => {
            let below = if runs > 1 { 0.03 } else { 0.06 };
            (below, 0.08, "built-in: vLLM 0.7 to 0.16 on one GPU")
        }
        (_, 2..) if hopper && version >= Version::new(0, 17, 0) => {
            (0.1, 0.4, "built-in: vLLM 0.19 on H100, joined by NVLink")
        }
        (_, 2..) if blackwell && version >= Version::new(0, 21, 0) => (
            0.5,
            1.0,
            "built-in: vLLM of 2026 on GB200 and B300, joined by NVLink",
        ),
        (_, 2..) if nvlink => (0.5, 0.4, "built-in: vLLM, runs on GPUs joined by NVLink"),
        (_, 2..) if older => (
            0.1,
            0.2,
            "built-in: vLLM 0.6 to 0.10 on GPUs joined by PCIe",
        ),
        // 2.6 and 2.5 in one release, 0.2 in a later one.
        (_, 2..) => (
            3.2,
            0.3,
            "built-in: vLLM, runs on GPUs joined by PCIe, scattered",
        ),
        _ => (0.6, 1.0, "built-in: vLLM, one run"),
    };
    // What V0 logged besides then scatters: 0.07 to 0.25.
    let scattered = version < Version::new(0, 7, 0);
    let low = if scattered { f64::max(low, 0.25) } else { low };
    spread((low, high), (0.0, 0.0), runs, source)
}

/// The cache is what is left: its band is the other terms' together, as independent ones; wider where the log of a
/// start would have to say what was asked for.
fn cache(
    terms: &[Term],
    deployment: &Deployment,
    settings: &Settings,
    forecast: bool,
) -> Option<Band> {
    let pool = terms.iter().find(|t| t.component == Component::KvCache)?;
    let bytes = *pool.bytes.as_ref().ok()?;
    if deployment.kv_cache_memory.is_some() {
        return None;
    }
    if deployment.engine == EngineId::Tgi {
        // The warm-up's peak is computed; what the allocator keeps beside it is not.
        return spread(
            (1.0, 1.0),
            (0.25, 0.25),
            4,
            "built-in: public starts of TGI 2.0 to 2.4, not all settings known",
        )
        .map(|s| s.band(bytes));
    }
    if matches!(deployment.engine, EngineId::Sglang | EngineId::TensorRtLlm) {
        // An unknown share may be up to 0.95 of the GPU.
        let gpu = deployment.gpu.as_ref();
        let total = gpu.map_or(0.0, |g| g.total as f64);
        let unsaid = deployment.memory_fraction.is_none() && deployment.engine == EngineId::Sglang;
        let more = (0.95 - settings.fraction).max(0.0) * total / GIB;
        // Settings missing in these runs decided: the share, the build's batch and tokens, reservations.
        return spread(
            (0.0, if unsaid { more } else { 0.0 }),
            (0.35, 0.30),
            5,
            "built-in: SGLang and TensorRT-LLM, not all settings known",
        )
        .map(|s| s.band(bytes));
    }
    let (mut above, mut below) = (0.0f64, 0.0f64);
    // The most that can be left, beyond the cache: the weights at their lowest, and nothing else; a share that was
    // not given may be all of the GPU.
    let gpu = deployment.gpu.as_ref();
    let mut room = match deployment.memory_fraction {
        Some(_) => 0.0,
        None => gpu.map_or(0.0, |g| g.total as f64 * (1.0 - settings.fraction)),
    };
    let mut cases = u64::MAX;
    let mut source = "built-in: the other terms' bands together";
    for term in terms {
        let counted = match term.component {
            Component::KvCache | Component::Draft => false,
            Component::CudaGraphs => forecast,
            _ => true,
        };
        if !counted {
            continue;
        }
        let (Some(band), Ok(b)) = (&term.band, &term.bytes) else {
            return None;
        };
        above += (b.saturating_sub(band.low) as f64).powi(2);
        room += match term.component {
            Component::Weights => b.saturating_sub(band.low) as f64,
            _ => *b as f64,
        };
        below += (band.high.saturating_sub(*b) as f64).powi(2);
        cases = cases.min(band.cases);
    }
    (above, below) = (above.sqrt(), below.sqrt());
    // Of memory that is shared with the host, the host's own part moves the pool.
    let shared = engines::gpu_model(deployment).and_then(|g| g.shares_host?.off);
    if let Some(off) = shared {
        above += off * GIB;
        below += off * GIB;
        cases = cases.min(5);
    }
    if deployment.pp > 1 {
        // Two runs with two stages lay 1.3 GiB below what one GPU's terms leave.
        below += 2.0 * GIB;
        cases = cases.min(2);
    }
    if !settings.batch_known || deployment.memory_fraction.is_none() {
        // Defaults that were assumed: of 14 scattered logs nine in ten lie within this share of the cache.
        above = (above + 0.20 * bytes as f64).min(room);
        below += 0.25 * bytes as f64;
        cases = cases.min(14);
        source = "built-in: defaults that you did not give";
    }
    let low = (bytes as f64 - below).max(0.0) as u64;
    let high = (bytes as f64 + above) as u64;
    Some(Band::new(low, high, cases, source))
}
