//! Answers fit, and one more does not.

use super::*;
use crate::estimate::{EngineId, Gpu};
use proptest::prelude::*;
use serde_json::Value;

fn model(heads: u64, layers: usize, positions: Option<u64>) -> Model {
    Model {
        name: "toy".into(),
        kind: "llama".into(),
        hidden: 64,
        heads,
        kv_heads: heads,
        head_dim: 8,
        vocab: 100,
        max_positions: positions,
        lends_positions: false,
        tied: false,
        rope: None,
        mixers: vec![crate::estimate::Mixer::None; layers],
        tensors: Vec::new(),
        experts_per_token: None,
        value_bytes: 2,
        quantization: None,
        config: Value::Null,
        predictor: Default::default(),
        unmodelled: Vec::new(),
        warnings: Vec::new(),
        source: "test".into(),
    }
}

/// A machine on which a token takes a byte: its memory, what is needed besides, a sequence's share
/// of the sampler.
#[derive(Debug, Clone, Copy)]
struct Toy {
    memory: u64,
    weights: u64,
    sampler: u64,
}

impl Toy {
    fn read(self, d: &Deployment) -> Reading {
        let fraction = d.memory_fraction.unwrap_or(0.9);
        let budget = (self.memory as f64 * fraction) as u64;
        let besides = self.weights / d.gpus() + self.sampler * d.max_seqs.unwrap_or(1);
        let pool = budget.saturating_sub(besides);
        let length = d.max_model_len.unwrap_or(100);
        Reading {
            lacks_graphs: false,
            least_cache: 0,
            more_graphs: 0,
            extrapolated: false,
            unmeasured: false,
            pool_high: 0,
            refused: false,
            serves_shorter: false,
            is_fitted: false,
            moves_layers: false,
            besides,
            outside: 0,
            besides_high: besides + besides / 10,
            request: length,
            on: Some(OnGpu {
                free: self.memory,
                budget,
                pool,
                grows: false,
                concurrency: pool as f64 / length as f64,
            }),
        }
    }

    fn concurrency(self, d: &Deployment) -> f64 {
        self.read(d).on.unwrap().concurrency
    }
}

fn toys() -> impl Strategy<Value = Toy> {
    (1_u64..100_000, 0_u64..100_000, 0_u64..50).prop_map(|(memory, weights, sampler)| Toy {
        memory,
        weights,
        sampler,
    })
}

fn asked(length: u64) -> Deployment {
    Deployment {
        max_model_len: Some(length),
        ..Deployment::with_defaults(EngineId::Vllm)
    }
}

proptest! {
    #[test]
    fn the_answer_fits_and_one_more_does_not(toy in toys(), length in 1_u64..5000, wanted in 1_u64..20) {
        let model = model(8, 4, Some(4000));
        let asked = asked(length);
        let holds = |d: &Deployment| Ok(toy.concurrency(d));
        let solved = |what| solve(what, &model, &asked, wanted, &holds).unwrap();

        let found = solved(What::MaxConcurrency).value;
        let at_once = toy.concurrency(&asked);
        prop_assert_eq!(found, (at_once >= 1.0).then(|| at_once.floor()));

        let longer = |n: u64| toy.concurrency(&Deployment { max_model_len: Some(n), ..asked.clone() }) >= wanted as f64;
        match solved(What::MaxModelLen) {
            Solution { value: Some(n), deployment, .. } => {
                prop_assert!(longer(n as u64) && deployment.max_model_len == Some(n as u64));
                prop_assert!(n as u64 == 4000 || !longer(n as u64 + 1));
            }
            Solution { value: None, .. } => prop_assert!(!longer(1)),
        }

        let batch = |n: u64| toy.concurrency(&Deployment { max_seqs: Some(n), ..asked.clone() }) >= n as f64;
        match solved(What::MaxBatch).value {
            Some(n) => prop_assert!(batch(n as u64) && !batch(n as u64 + 1)),
            None => prop_assert!(!batch(1)),
        }

        let share = |n: u64| toy.concurrency(&Deployment { memory_fraction: Some(n as f64 / 100.0), ..asked.clone() }) >= wanted as f64;
        match solved(What::GpuMemoryUtilization).value {
            Some(v) => {
                let n = (v * 100.0).round() as u64;
                prop_assert!(share(n) && (n == 1 || !share(n - 1)));
            }
            None => prop_assert!(!share(100)),
        }

        let least = solve::parallel(&model, &asked);
        match solved(What::MinGpus) {
            Solution { value: Some(n), deployment, .. } => {
                prop_assert!(toy.concurrency(&deployment) >= wanted as f64);
                for fewer in least.iter().filter(|d| (d.gpus() as f64) < n) {
                    prop_assert!(toy.concurrency(fewer) < wanted as f64);
                }
            }
            Solution { value: None, .. } => {
                prop_assert!(least.iter().all(|d| toy.concurrency(d) < wanted as f64));
            }
        }
    }

    #[test]
    fn what_is_recommended_holds_it(toy in toys(), sizes in proptest::collection::vec(1_u64..100_000, 1..6), wanted in 1_u64..20) {
        let model = model(12, 4, None);
        let asked = asked(100);
        let gpus: Vec<Gpu> = sizes.iter().map(|total| Gpu { name: total.to_string(), total: *total, in_use: 0 }).collect();
        let read = |d: &Deployment| Ok(Toy { memory: d.gpu.as_ref().map_or(0, |g| g.total), ..toy }.read(d));
        let choices = recommend(&model, &asked, &gpus, wanted, &read).unwrap();
        for c in &choices {
            prop_assert!(c.headroom >= 1.0 && c.risk != Risk::DoesNotFit && [1, 2, 4].contains(&c.count), "{c:?}");
        }
        prop_assert!(choices.is_sorted_by_key(|c| c.memory * c.count));
    }
}

#[test]
fn heads_decide_how_far_tensor_parallelism_goes() {
    let sizes = |heads| solve::tensor_sizes(&model(heads, 1, None), 8);
    assert_eq!(sizes(32), [1, 2, 4, 8]);
    assert_eq!(sizes(28), [1, 2, 4]);
    assert_eq!(sizes(25), [1]);
    let more = solve::parallel(&model(28, 3, None), &asked(1));
    let counts: Vec<(u64, u64)> = more.iter().map(|d| (d.tp, d.pp)).collect();
    let all = [
        (1, 1),
        (2, 1),
        (1, 2),
        (1, 3),
        (4, 1),
        (2, 2),
        (2, 3),
        (4, 2),
        (4, 3),
    ];
    assert_eq!(counts, all);
}

#[test]
fn a_missing_length_is_asked_for() {
    let holds = |_: &Deployment| Ok(1.0);
    let asked = Deployment::with_defaults(EngineId::Vllm);
    let unknown = solve(What::MaxConcurrency, &model(8, 1, None), &asked, 1, &holds).unwrap_err();
    assert_eq!(unknown.hint.as_deref(), Some("give --max-model-len"));
    let by_hand = Deployment {
        kv_cache_memory: Some(1),
        ..super::tests::asked(1)
    };
    let solution = solve(
        What::GpuMemoryUtilization,
        &model(8, 1, None),
        &by_hand,
        1,
        &holds,
    );
    assert!(solution.is_err());
}
