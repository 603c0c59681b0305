//! Terms as the user's own runs measured them, in place of formulas that are less exact.

use super::calibration::{Calibration, Figures, Learned, attention_kind};
use super::{Band, Component, Deployment, Model, Term, Version, engines};
use crate::engine::EngineId;
use serde_json::{Map, json};

/// Terms as the user's own runs have them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnRuns {
    /// Outside torch.
    pub non_torch: Option<Own>,
    /// CUDA graphs.
    pub cuda_graphs: Option<Own>,
}

/// One term of theirs.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// Bytes on the GPU that has most of it.
    pub bytes: u64,
    /// Where the runs lay.
    pub band: Option<Band>,
    /// Runs that it comes from.
    pub runs: u64,
    /// Which they are: `the last start of this model, 2026-11-21T10:00:00Z`.
    pub from: String,
}

impl OwnRuns {
    /// What is known of a deployment with a named engine version and GPU: of the last start of
    /// the same model, else of runs of the same kind.
    pub fn of(calibration: &Calibration, model: &Model, deployment: &Deployment) -> OwnRuns {
        let (Some(version), Some(gpu)) = (deployment.version, &deployment.gpu) else {
            return OwnRuns::default();
        };
        let shipped = engines::gpu_model(deployment).map(|g| g.name.as_str());
        let here = |key: &super::calibration::Key| {
            EngineId::from_name(&key.engine)
                .is_ok_and(|engine| engine.estimated_as == Some(deployment.engine))
                && Version::leading(&key.version) == Some(version)
                && key.tp == deployment.tp
                && (key.gpu == gpu.name || Some(key.gpu.as_str()) == shipped)
        };
        let attention = attention_kind(model);
        let entry = calibration.entries.iter().find(|e| {
            let dtype = deployment.dtype.as_deref().is_none_or(|d| e.key.dtype == d);
            here(&e.key) && e.key.attention == attention && dtype
        });
        let last = calibration.last_start(&model.name, here);
        let last = last.and_then(|run| {
            Some(Own {
                bytes: run.cuda_graphs?,
                band: entry.and_then(|e| e.cuda_graphs.band()),
                runs: 1,
                from: format!("the last start of this model, {}", run.timestamp),
            })
        });
        let graphs = last.or_else(|| median(&entry?.cuda_graphs));
        OwnRuns {
            non_torch: entry.and_then(|e| median(&e.non_torch)),
            cuda_graphs: graphs.filter(|_| deployment.eager != Some(true)),
        }
    }

    /// Puts them in place of the formulas'.
    pub fn put(&self, terms: &mut [Term]) {
        for term in terms {
            let own = match term.component {
                Component::NonTorch => &self.non_torch,
                Component::CudaGraphs => &self.cuda_graphs,
                _ => continue,
            };
            let Some(own) = own else { continue };
            term.bytes = Ok(own.bytes);
            term.band = own.band.clone();
            term.formula = format!("measured: {}", own.from);
            term.inputs = Map::from_iter([("runs".to_owned(), json!(own.runs))]);
        }
    }
}

fn median(learned: &Learned) -> Option<Own> {
    let Figures { median, .. } = learned.figures?;
    Some(Own {
        bytes: median,
        band: learned.band(),
        runs: learned.n,
        from: format!("the median of {} of your own runs", learned.n),
    })
}

#[cfg(test)]
mod tests {
    use super::super::calibration::{CalibrationRun, Key};
    use super::super::model::from_config;
    use super::super::{EngineId, Gpu, estimate};
    use super::*;

    fn run(id: u32, model: &str, graphs: u64, rest: u64) -> CalibrationRun {
        CalibrationRun {
            run_id: id.to_string(),
            timestamp: format!("2026-11-2{id}T10:00:00Z"),
            key: Key {
                engine: "vllm".into(),
                version: "0.11.0".into(),
                attention: "gqa".into(),
                dtype: "bfloat16".into(),
                tp: 1,
                gpu: "L4".into(),
            },
            model: model.into(),
            max_num_seqs: None,
            max_num_batched_tokens: None,
            max_model_len: None,
            eager: None,
            activation: None,
            non_torch: Some(rest),
            cuda_graphs: Some(graphs),
        }
    }

    fn asked() -> (Model, Deployment) {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
            "vocab_size": 128_256, "max_position_embeddings": 8192, "tie_word_embeddings": false,
        });
        let model = from_config("mine", &config, "a test").unwrap();
        let deployment = Deployment {
            version: Some(Version::new(0, 11, 0)),
            gpu: Some(Gpu {
                name: "L4".into(),
                total: 22 << 30,
                in_use: 0,
            }),
            ..Deployment::with_defaults(EngineId::Vllm)
        };
        (model, deployment)
    }

    #[test]
    fn the_last_start_of_the_same_model_goes_before_the_kind() {
        let runs = vec![
            run(1, "mine", 100 << 20, 10 << 20),
            run(2, "other", 300 << 20, 30 << 20),
            run(3, "other", 500 << 20, 50 << 20),
        ];
        let calibration = Calibration::of(runs);
        let (model, mut deployment) = asked();
        let own = OwnRuns::of(&calibration, &model, &deployment);
        assert_eq!(own.cuda_graphs.as_ref().unwrap().bytes, 100 << 20);
        assert_eq!(own.non_torch.as_ref().unwrap().bytes, 30 << 20);

        let before = estimate(&model, &deployment);
        deployment.own = own;
        let after = estimate(&model, &deployment);
        assert_eq!(after.bytes(Component::CudaGraphs), Some(100 << 20));
        assert_eq!(after.bytes(Component::NonTorch), Some(30 << 20));
        let term = after.term(Component::NonTorch).unwrap();
        assert!(term.band.as_ref().unwrap().source.contains("your own runs"));
        // What the rest takes more is not there for the cache.
        let moved = |e: &super::super::Estimate| {
            e.bytes(Component::KvCache).unwrap() + e.bytes(Component::NonTorch).unwrap()
        };
        assert!(
            moved(&before).abs_diff(moved(&after)) <= 2 << 20,
            "a block is lost at most"
        );
    }

    #[test]
    fn runs_of_another_version_gpu_or_width_do_not_count() {
        let calibration =
            Calibration::of((1..4).map(|i| run(i, "mine", 1 << 20, 1 << 20)).collect());
        let (model, deployment) = asked();
        let nothing = |d: Deployment| {
            assert_eq!(OwnRuns::of(&calibration, &model, &d), OwnRuns::default());
        };
        nothing(Deployment {
            version: Some(Version::new(0, 11, 1)),
            ..deployment.clone()
        });
        nothing(Deployment {
            version: None,
            ..deployment.clone()
        });
        nothing(Deployment {
            tp: 2,
            ..deployment.clone()
        });
        nothing(Deployment {
            engine: EngineId::Sglang,
            ..deployment.clone()
        });
        nothing(Deployment {
            gpu: Some(Gpu {
                name: "T4".into(),
                total: 15 << 30,
                in_use: 0,
            }),
            ..deployment.clone()
        });
        let eager = Deployment {
            eager: Some(true),
            ..deployment
        };
        assert_eq!(OwnRuns::of(&calibration, &model, &eager).cuda_graphs, None);
    }

    #[test]
    fn engines_are_known_by_the_names_that_profiles_give_them() {
        let (model, deployment) = asked();
        for (name, engine) in [
            ("tensorrt_llm", EngineId::TensorRtLlm),
            ("llama_cpp", EngineId::LlamaCpp),
            ("sglang", EngineId::Sglang),
        ] {
            let mut runs: Vec<_> = (1..4).map(|i| run(i, "mine", 1 << 20, 1 << 20)).collect();
            runs.iter_mut().for_each(|r| r.key.engine = name.into());
            let deployment = Deployment {
                engine,
                ..deployment.clone()
            };
            let own = OwnRuns::of(&Calibration::of(runs), &model, &deployment);
            assert!(own.non_torch.is_some(), "{name}");
        }
    }
}
