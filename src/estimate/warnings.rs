//! What to know about an estimate's figures, in sentences.

use super::activation::{Activation, Sampler};
use super::encoder::Encoder;
use super::engines::vllm;
use super::{Deployment, EngineKind, Version, weights::Weights};

/// The versions of vLLM whose rules were read: from the first up to, and without, the second.
const READ: (Version, Version) = (Version::new(0, 3, 0), Version::new(0, 34, 0));

/// Versions before this one sample with FlashInfer wherever it is installed.
const ASKS_FOR_FLASHINFER: Version = Version::new(0, 11, 1);

pub(super) fn of(
    deployment: &Deployment,
    loaded: Option<&Weights>,
    activation: &Activation,
) -> Vec<String> {
    let mut warnings = loaded.map_or_else(Vec::new, |w| w.warnings.clone());
    warnings.extend(of_encoder(activation.encoder).map(str::to_owned));
    if deployment.engine == EngineKind::Vllm {
        warnings.extend(of_version(deployment));
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

fn of_encoder(encoder: Encoder) -> Option<&'static str> {
    match encoder {
        // The weights say what of it is not counted.
        Encoder::None | Encoder::Undescribed => None,
        Encoder::Counted => Some(
            "the model reads images: its encoder is counted for the largest that its family's processor lets through",
        ),
        Encoder::Unknown => Some(
            "the model reads images or sound: the peak of its encoder depends on the processor's limits and is not in it",
        ),
    }
}

fn of_version(deployment: &Deployment) -> Option<String> {
    let v = deployment.version?;
    (v < READ.0 || v >= READ.1).then(|| {
        format!(
            "vLLM's rules were read for the versions from 0.3 to 0.33: those of {}.{}.{} may differ",
            v.major, v.minor, v.patch
        )
    })
}
