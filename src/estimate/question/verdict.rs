//! Whether an engine will start with a model, in one word and one sentence, and how sure that is.

use crate::estimate::{Deployment, Estimate, Unknown};
use crate::units::Bytes;
use serde::Serialize;

/// Whether it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It starts, and holds one request of its longest length.
    Fits,
    /// By the estimate it does not, and the estimate may be wrong by as much.
    MayNotFit,
    /// It does not, also where every part is at the lower end of its band.
    DoesNotFit,
    /// It is unknown.
    Unknown,
}

/// Whether it fits, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether it fits.
    pub answer: Answer,
    /// Why, or what is missing: a sentence, lower case, no full stop.
    pub why: String,
}

impl Verdict {
    /// It is unknown.
    pub fn unknown(why: impl Into<String>) -> Verdict {
        Verdict {
            answer: Answer::Unknown,
            why: why.into(),
        }
    }

    /// Of a deployment with its GPU. `settled`: nothing was asked for that is not computed with;
    /// else nothing is sure.
    pub fn of(deployment: &Deployment, estimate: &Estimate, settled: bool) -> Verdict {
        let Some(gpu) = &deployment.gpu else {
            return Verdict::unknown("the GPU is not known");
        };
        let answer = match estimate.fits {
            None => return Verdict::unknown(estimate.reason.clone()),
            Some(true) => Answer::Fits,
            Some(false) if settled && estimate.cannot_start(deployment) => Answer::DoesNotFit,
            Some(false) => Answer::MayNotFit,
        };
        let each = match deployment.gpus() {
            1 => String::new(),
            n => format!("each of {n} x "),
        };
        Verdict {
            answer,
            why: format!(
                "{}, on {each}{} of {}",
                estimate.reason,
                gpu.name,
                Bytes(gpu.total)
            ),
        }
    }
}

impl From<Unknown> for Verdict {
    fn from(why: Unknown) -> Verdict {
        Verdict::unknown(why.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use crate::estimate::{EngineId, Gpu, Model, estimate};
    use serde_json::json;

    /// Llama of 8 billion parameters: 15 GiB of bfloat16, 128 KiB a token.
    fn llama() -> Model {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
        });
        from_config("llama", &config, "test").unwrap()
    }

    fn verdict(engine: EngineId, gib: u64, settled: bool) -> Verdict {
        let deployment = Deployment {
            gpu: Some(Gpu {
                name: "NVIDIA GeForce RTX 4090".into(),
                total: gib << 30,
                in_use: 0,
            }),
            // Its default is another one from 20 GiB on.
            memory_fraction: (engine == EngineId::Sglang).then_some(0.8),
            ..Deployment::with_defaults(engine)
        };
        Verdict::of(&deployment, &estimate(&llama(), &deployment), settled)
    }

    #[test]
    fn a_model_that_is_larger_than_the_gpu_does_not_fit() {
        let found = verdict(EngineId::Vllm, 12, true);
        assert_eq!(found.answer, Answer::DoesNotFit, "{found:?}");
        assert!(
            found
                .why
                .ends_with("on NVIDIA GeForce RTX 4090 of 12.00 GiB"),
            "{}",
            found.why
        );
        let found = verdict(EngineId::Vllm, 24, true);
        assert_eq!(found.answer, Answer::Fits, "{found:?}");
        assert!(found.why.contains("of 8192 tokens"), "{}", found.why);
    }

    #[test]
    fn only_what_is_certain_is_reported_as_certain() {
        let answer = |engine, gib, settled| verdict(engine, gib, settled).answer;
        // What is not computed with may make it fit.
        assert_eq!(answer(EngineId::Vllm, 12, false), Answer::MayNotFit);
        // It keeps layers on the host.
        assert_eq!(answer(EngineId::LlamaCpp, 12, true), Answer::MayNotFit);
        // From the GPU that holds it downwards there is a size that is uncertain.
        let downwards: Vec<Answer> = (12..=24)
            .rev()
            .map(|gib| answer(EngineId::Sglang, gib, true))
            .collect();
        let mut distinct = downwards.clone();
        distinct.dedup();
        assert_eq!(
            distinct,
            [
                Answer::Fits,
                // It starts, with a pool below one request.
                Answer::Unknown,
                Answer::MayNotFit,
                Answer::DoesNotFit
            ],
            "{downwards:?}"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let model = llama();
        let nowhere = Deployment::with_defaults(EngineId::Vllm);
        let found = Verdict::of(&nowhere, &estimate(&model, &nowhere), true);
        assert_eq!(found, Verdict::unknown("the GPU is not known"));
        let odd = Deployment {
            tp: 3,
            gpu: Some(Gpu {
                name: "A".into(),
                total: 12 << 30,
                in_use: 0,
            }),
            ..nowhere
        };
        let found = Verdict::of(&odd, &estimate(&model, &odd), true);
        assert_eq!(found.answer, Answer::Unknown);
        assert!(found.why.contains("32 attention heads"), "{}", found.why);
    }
}
