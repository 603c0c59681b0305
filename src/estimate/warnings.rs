//! What to know about an estimate's figures, in sentences.

use super::activation::{Activation, Sampler};
use super::encoder::Encoder;
use super::engines::{Settings, llama_cpp, vllm};
use super::{Deployment, EngineId, Model, Version, weights::Weights};

/// Versions before this one sample with FlashInfer wherever it is installed.
const ASKS_FOR_FLASHINFER: Version = Version::new(0, 11, 1);

/// The first of the releases that were read with `--language-model-only`.
const LANGUAGE_ONLY: Version = Version::new(0, 20, 0);

pub(super) fn of(
    model: &Model,
    deployment: &Deployment,
    settings: &Settings,
    loaded: Option<&Weights>,
    activation: &Activation,
) -> Vec<String> {
    let mut warnings = loaded.map_or_else(Vec::new, |w| w.warnings.clone());
    if activation.encoder == Encoder::Counted {
        warnings.push(
            "the model reads images: its encoder is counted for the largest that its family's processor lets through"
                .into(),
        );
    }
    let unknown = matches!(activation.encoder, Encoder::Unknown | Encoder::Undescribed);
    if unknown && deployment.engine == EngineId::Vllm {
        warnings.push(format!(
            "the encoder is what is unknown: {} leaves it out, for text alone",
            if vllm::version(deployment) >= LANGUAGE_ONLY {
                "--language-model-only"
            } else {
                "--limit-mm-per-prompt '{\"image\": 0, \"video\": 0}'"
            }
        ));
    }
    warnings.extend(llama_cpp::source_of_context(deployment, settings));
    warnings.extend(llama_cpp::dropped_cache_type(model, deployment));
    if deployment.engine == EngineId::Vllm {
        let sorts = !vllm::is_v0(deployment) && activation.kind == Sampler::Sort;
        let early = vllm::version(deployment) < ASKS_FOR_FLASHINFER;
        if sorts && early && deployment.flashinfer_sampler.is_none() {
            warnings.push(
                "where FlashInfer is installed, vLLM up to 0.11.0 samples with it and the peak of the sampler is 14/38 of this"
                    .into(),
            );
        }
    }
    warnings
}
