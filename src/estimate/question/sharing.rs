//! Several models on the same GPUs: in which order they start, which share of the memory each needs, and what is left.

use super::solve::{What, solve};
use super::{Reading, Risk};
use crate::engine::settings::argument_text;
use crate::estimate::engines::vllm;
use crate::estimate::{Deployment, EngineId, Estimate, Model, Unknown};
use std::collections::BTreeMap;

/// Part of a GPU that no plan gives away: contexts and allocators take a little more than is computed.
const SPARE: f64 = 0.02;
/// Models up to which each order is tried.
const MOST_ORDERED: usize = 4;

/// A model that is to be on GPUs beside others.
pub struct Tenant<'a> {
    /// The model.
    pub model: &'a Model,
    /// How it is asked for. What is in use of its GPU is there before any other starts.
    pub deployment: &'a Deployment,
    /// Its GPUs, by their names.
    pub devices: &'a [String],
    /// Requests of the longest length that it must hold at once.
    pub concurrency: u64,
    /// The places of those that serve before it starts.
    pub after: Vec<usize>,
    /// Estimates it.
    pub estimate: &'a dyn Fn(&Deployment) -> Result<Estimate, Unknown>,
}

/// The start of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct StartStep {
    /// Its place in the list that was asked about.
    pub tenant: usize,
    /// The settings that it is to start with, on the GPU as those before it leave it.
    pub deployment: Deployment,
    /// Bytes of each of its GPUs once it serves.
    pub takes: u64,
    /// The cache of it, bytes.
    pub pool: Option<u64>,
    /// Requests of the longest length at once.
    pub concurrency: f64,
    /// How great the risk is.
    pub risk: Risk,
}

impl StartStep {
    /// It starts and holds what is asked for.
    pub fn fits(&self) -> bool {
        self.risk < Risk::DoesNotFit
    }
}

/// Who starts when, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct StartPlan {
    /// In the order in which they start.
    pub steps: Vec<StartStep>,
    /// Nothing has to be changed.
    pub as_asked: bool,
    /// Each order of starting does.
    pub any_order: bool,
}

impl StartPlan {
    /// All of them start and hold what is asked for.
    pub fn fits(&self) -> bool {
        self.steps.iter().all(StartStep::fits)
    }

    /// The argument that gives a model another share than it was asked for with.
    pub fn changed_share(&self, step: &StartStep, tenants: &[Tenant<'_>]) -> Option<String> {
        let share = step.deployment.memory_fraction?;
        let asked = tenants.get(step.tenant)?.deployment.memory_fraction;
        let name = "gpu_memory_utilization";
        (asked != Some(share))
            .then(|| argument_text(step.deployment.engine, name, &format!("{share:.2}")))?
    }
}

/// Plans the start of models on GPUs that they share with what is `held` of them already: as they are asked for where that fits; else with the least share
/// for each, the rest for the one with the most weights. Shares that were asked for are kept where that fits. A plan that
/// does not fit holds the least that each needs. `room`: the rest is given away.
///
/// # Errors
/// The missing input.
pub fn plan_starts(
    tenants: &[Tenant<'_>],
    held: &BTreeMap<String, u64>,
    room: bool,
) -> Result<StartPlan, Unknown> {
    let planner = StartPlanner { tenants, held };
    let needs = |n: usize, other: usize| tenants[n].after.contains(&other);
    let written = order_by_needs((0..tenants.len()).collect(), &needs);
    let order = order_by_needs(planner.starting_order(), &needs);
    let plan = |steps: Vec<StartStep>, as_asked| StartPlan {
        any_order: planner.fits_in_each_order(&steps),
        steps,
        as_asked,
    };
    for order in [&written, &order] {
        let steps = planner.start_each(order, &|_, asked| Ok(asked));
        if let Some(steps) = steps.ok().filter(|s| s.iter().all(StartStep::fits)) {
            return Ok(plan(steps, true));
        }
    }
    let mut last = Vec::new();
    for keeps in [true, false] {
        last = planner.start_each(&order, &|n, asked| planner.least(n, asked, keeps))?;
        if last.iter().all(StartStep::fits) {
            if room {
                for group in planner.groups() {
                    last = planner.widen(&last, &group, keeps).unwrap_or(last);
                }
            }
            return Ok(plan(last, false));
        }
    }
    Ok(plan(last, false))
}

/// The same order, but each after those that it `needs`; those that need each other stay as they are.
pub fn order_by_needs(mut rest: Vec<usize>, needs: &dyn Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut order = Vec::new();
    while !rest.is_empty() {
        let free = |n: &usize| !rest.iter().any(|other| other != n && needs(*n, *other));
        let next = rest.iter().position(free).unwrap_or(0);
        order.push(rest.remove(next));
    }
    order
}

/// When an engine reads the free memory: one with a fixed size, a part of all, or a part of what is free.
fn turn(deployment: &Deployment) -> u8 {
    match deployment.engine {
        _ if deployment.kv_cache_memory.is_some() => 0,
        EngineId::LlamaCpp | EngineId::Transformers => 0,
        // It counts what others hold as its own.
        EngineId::Vllm if vllm::rule(deployment) == vllm::Rule::Absolute => 2,
        EngineId::Vllm => 1,
        _ => 2,
    }
}

struct StartPlanner<'a> {
    tenants: &'a [Tenant<'a>],
    held: &'a BTreeMap<String, u64>,
}

impl StartPlanner<'_> {
    fn weights(&self, n: usize) -> u64 {
        let tenant = &self.tenants[n];
        let loaded = crate::estimate::weights::of(tenant.model, tenant.deployment);
        loaded.map_or(0, |w| w.bytes)
    }

    /// Those that need a fixed size first, those that take of what is free last; the largest last among its like, as it
    /// gets the rest.
    fn starting_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tenants.len()).collect();
        order.sort_by_key(|n| (turn(self.tenants[*n].deployment), self.weights(*n), *n));
        order
    }

    /// Starts one after the other, each with the settings that `choose` gives it.
    fn start_each(
        &self,
        order: &[usize],
        choose: &dyn Fn(usize, Deployment) -> Result<Deployment, Unknown>,
    ) -> Result<Vec<StartStep>, Unknown> {
        let mut taken = self.held.clone();
        let mut steps = Vec::new();
        for n in order {
            let tenant = &self.tenants[*n];
            let others = tenant.devices.iter().filter_map(|d| taken.get(d)).max();
            let others = others.copied().unwrap_or(0);
            let mut asked = tenant.deployment.clone();
            if let Some(gpu) = &mut asked.gpu {
                gpu.in_use = gpu.in_use.saturating_add(others).min(gpu.total);
            }
            let step = self.judge(*n, choose(*n, asked)?)?;
            for device in tenant.devices {
                *taken.entry(device.clone()).or_default() += step.takes;
            }
            steps.push(step);
        }
        Ok(steps)
    }

    /// What comes of one with these settings.
    fn judge(&self, n: usize, deployment: Deployment) -> Result<StartStep, Unknown> {
        let tenant = &self.tenants[n];
        let estimate = (tenant.estimate)(&deployment)?;
        let reading = Reading::of(tenant.model, &deployment, &estimate)?;
        let takes = estimate.held();
        let takes = takes.unwrap_or_else(|| estimate.least(&deployment));
        let free = (deployment.gpu.as_ref()).map_or(0, |g| g.total.saturating_sub(g.in_use));
        let risk = reading.risk(tenant.concurrency);
        let risk = risk.filter(|_| takes <= free).unwrap_or(Risk::DoesNotFit);
        Ok(StartStep {
            tenant: n,
            takes,
            pool: estimate.pool.as_ref().ok().map(|p| p.bytes),
            concurrency: reading.on.map_or(0.0, |on| on.concurrency),
            risk,
            deployment,
        })
    }

    /// Those that share a device, directly or by others; without those that have theirs alone.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for n in 0..self.tenants.len() {
            let devices = self.tenants[n].devices;
            let meets = |group: &Vec<usize>| {
                let mut members = group.iter();
                members.any(|m| self.tenants[*m].devices.iter().any(|d| devices.contains(d)))
            };
            let (joined, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(meets);
            groups = rest;
            groups.push(joined.into_iter().flatten().chain([n]).collect());
        }
        let meets_others = |n: &usize| {
            let tenant = &self.tenants[*n];
            let held = |device: &String| self.held.get(device).is_some_and(|bytes| *bytes > 0);
            let in_use = tenant.deployment.gpu.as_ref().map_or(0, |gpu| gpu.in_use);
            in_use > 0 || tenant.devices.iter().any(held)
        };
        groups.retain(|group| group.len() > 1 || group.iter().any(meets_others));
        groups
    }

    /// The least share that holds what is asked for, also where every term is at the upper end of its band if that can
    /// be; an engine without a share, and one whose share is kept, as it is.
    fn least(&self, n: usize, asked: Deployment, keeps: bool) -> Result<Deployment, Unknown> {
        let name = "gpu_memory_utilization";
        let fixed = keeps && asked.memory_fraction.is_some();
        if fixed || argument_text(asked.engine, name, "0.5").is_none() {
            return Ok(asked);
        }
        let tenant = &self.tenants[n];
        // A smaller share of a GPU that no other uses helps nobody.
        let alone = self.groups().iter().all(|group| !group.contains(&n));
        if alone && self.judge(n, asked.clone())?.fits() {
            return Ok(asked);
        }
        if asked.kv_cache_memory.is_some() {
            // The share decides nothing but whether it starts.
            let fits = |share: &f64| {
                let step = self.judge(n, with_share(&asked, Some(*share)));
                step.is_ok_and(|s| s.fits())
            };
            let found = free_shares(&asked).find(fits);
            return Ok(with_share(&asked, found.or(asked.memory_fraction)));
        }
        for most in [Risk::Medium, Risk::High] {
            let holds = |d: &Deployment| {
                let step = self.judge(n, d.clone()).ok();
                let step = step.filter(|s| s.risk <= most);
                Ok(step.map_or(0.0, |s| s.concurrency))
            };
            let what = What::GpuMemoryUtilization;
            let found = solve(what, tenant.model, &asked, tenant.concurrency, &holds)?;
            if found.value.is_some() {
                return Ok(found.deployment);
            }
        }
        // None is enough: the shortage is reported for the most that it may take.
        let known = |share: &f64| self.judge(n, with_share(&asked, Some(*share))).is_ok();
        let found = free_shares(&asked).find(known);
        Ok(with_share(&asked, found.or(asked.memory_fraction)))
    }

    /// The same plan with the rest of a group's devices given to its largest whose share is not kept; `None` where there
    /// is none.
    fn widen(&self, steps: &[StartStep], group: &[usize], keeps: bool) -> Option<Vec<StartStep>> {
        let free_to_grow = |step: &&StartStep| {
            let asked = self.tenants[step.tenant].deployment;
            let kept = keeps && asked.memory_fraction.is_some();
            let share = step.deployment.memory_fraction.is_some();
            share && !kept && asked.kv_cache_memory.is_none()
        };
        let own = steps.iter().filter(|step| group.contains(&step.tenant));
        let all = own.filter(free_to_grow);
        let wide = all.max_by_key(|step| self.weights(step.tenant))?;
        let gpu = wide.deployment.gpu.as_ref()?;
        let devices = self.tenants[wide.tenant].devices.iter();
        let left = devices.map(|d| self.left_on(d, steps)).min()?;
        // Of what is free where the engine takes a part of that.
        let whole = match wide.deployment.engine {
            EngineId::Vllm => gpu.total,
            _ => gpu.total.saturating_sub(gpu.in_use),
        };
        let spare = (gpu.total as f64 * SPARE) as u64;
        let more = left.saturating_sub(spare) as f64 / whole.max(1) as f64;
        let least = (wide.deployment.memory_fraction? * 100.0).round() as u64;
        let most = (least + (more * 100.0) as u64).min(95);
        let order: Vec<usize> = steps.iter().map(|s| s.tenant).collect();
        // What the estimator adds with a larger share is little: a few steps down are enough.
        let shares = (least + 1..=most).rev().take(5);
        let with = |share: u64| {
            let choose = |n: usize, asked: Deployment| {
                if n == wide.tenant {
                    Ok(with_share(&asked, Some(share as f64 / 100.0)))
                } else if group.contains(&n) {
                    self.least(n, asked, keeps)
                } else {
                    Ok(with_share(&asked, share_of(steps, n)))
                }
            };
            let steps = self.start_each(&order, &choose).ok()?;
            let fits = steps.iter().all(StartStep::fits);
            let spared = |s: &StartStep| {
                let mut devices = self.tenants[s.tenant].devices.iter();
                devices.all(|d| self.left_on(d, &steps) >= spare)
            };
            (fits && steps.iter().all(spared)).then_some(steps)
        };
        shares.into_iter().find_map(with)
    }

    /// Bytes that are left on a GPU.
    fn left_on(&self, device: &String, steps: &[StartStep]) -> u64 {
        let here = |step: &&StartStep| self.tenants[step.tenant].devices.contains(device);
        let taken: u64 = steps.iter().filter(here).map(|s| s.takes).sum();
        let held = self.held.get(device).copied().unwrap_or(0);
        let tenant = self.tenants.iter().find(|t| t.devices.contains(device));
        let gpu = tenant.and_then(|t| t.deployment.gpu.as_ref());
        gpu.map_or(0, |g| g.total.saturating_sub(g.in_use))
            .saturating_sub(taken.saturating_add(held))
    }

    /// The same settings do in each order.
    fn fits_in_each_order(&self, steps: &[StartStep]) -> bool {
        if steps.len() > MOST_ORDERED {
            return false;
        }
        let planned = |n, asked: Deployment| Ok(with_share(&asked, share_of(steps, n)));
        let fits = |order: &Vec<usize>| {
            let started = self.start_each(order, &planned);
            started.is_ok_and(|steps| steps.iter().all(StartStep::fits))
        };
        orders((0..self.tenants.len()).collect()).iter().all(fits)
    }
}

/// The share that a plan gives to one.
fn share_of(steps: &[StartStep], tenant: usize) -> Option<f64> {
    let step = steps.iter().find(|step| step.tenant == tenant)?;
    step.deployment.memory_fraction
}

fn with_share(asked: &Deployment, share: Option<f64>) -> Deployment {
    Deployment {
        memory_fraction: share,
        ..asked.clone()
    }
}

/// Shares of what is free, the largest first, as far down as contexts need.
fn free_shares(asked: &Deployment) -> impl Iterator<Item = f64> {
    let free = asked.gpu.as_ref().map_or(0.0, |gpu| {
        gpu.total.saturating_sub(gpu.in_use) as f64 / gpu.total.max(1) as f64
    });
    let most = match asked.engine {
        EngineId::Vllm => (free * 100.0) as u64,
        _ => 95,
    };
    let shares = (1..=most.min(95)).rev().take(10);
    shares.map(|share| share as f64 / 100.0)
}

/// Each order of these.
fn orders(of: Vec<usize>) -> Vec<Vec<usize>> {
    if of.len() < 2 {
        return vec![of];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        let rest = [&of[..at], &of[at + 1..]].concat();
        let orders = orders(rest).into_iter();
        all.extend(orders.map(|order| [vec![*first], order].concat()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::model::from_config;
    use crate::estimate::{Gpu, Version, estimate};
    use serde_json::json;

    const GIB: u64 = 1 << 30;

    /// A llama of so many layers of 4096: 0.42 GiB and 4 KiB a token each, beside 2 GiB of embeddings.
    fn llama(layers: u64) -> Model {
        let config = json!({
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
            "num_attention_heads": 32, "num_hidden_layers": layers, "num_key_value_heads": 8,
            "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
        });
        from_config("llama", &config, "test").unwrap()
    }

    fn on_h100(engine: EngineId, version: Version, share: Option<f64>) -> Deployment {
        Deployment {
            version: Some(version),
            memory_fraction: share,
            gpu: Some(Gpu {
                name: "H100 SXM 80GB".into(),
                total: 79 * GIB,
                in_use: 0,
            }),
            ..Deployment::with_defaults(engine)
        }
    }

    fn vllm(minor: u32, share: Option<f64>) -> Deployment {
        on_h100(EngineId::Vllm, Version::new(0, minor, 1), share)
    }

    /// The plan of models of 4 and 32 layers, deployed so.
    fn planned(small: &Deployment, large: &Deployment) -> StartPlan {
        let models = [llama(4), llama(32)];
        let devices = ["0".to_owned()];
        let estimates: Vec<_> = models
            .iter()
            .map(|model| |d: &Deployment| Ok(estimate(model, d)))
            .collect();
        let tenants: Vec<Tenant<'_>> = [small, large]
            .iter()
            .enumerate()
            .map(|(n, deployment)| Tenant {
                model: &models[n],
                deployment,
                devices: &devices,
                concurrency: 1,
                after: Vec::new(),
                estimate: &estimates[n],
            })
            .collect();
        let plan = plan_starts(&tenants, &BTreeMap::new(), true).unwrap();
        let taken: u64 = plan.steps.iter().map(|s| s.takes).sum();
        assert!(!plan.fits() || taken <= 79 * GIB, "{plan:?}");
        plan
    }

    fn shares(plan: &StartPlan) -> Vec<f64> {
        let share = |s: &StartStep| s.deployment.memory_fraction.unwrap_or(0.0);
        plan.steps.iter().map(share).collect()
    }

    #[test]
    fn shares_that_were_asked_for_stay_where_they_fit() {
        let plan = planned(&vllm(19, Some(0.15)), &vllm(19, Some(0.8)));
        assert!(plan.fits() && plan.as_asked && plan.any_order, "{plan:?}");
        assert_eq!(shares(&plan), [0.15, 0.8]);
        // One that was not asked for gives way to one that was.
        let plan = planned(&vllm(19, Some(0.3)), &vllm(19, None));
        assert!(plan.fits() && !plan.as_asked, "{plan:?}");
        assert_eq!(shares(&plan)[0], 0.3);
        // Two that exceed the GPU are both changed.
        let plan = planned(&vllm(19, Some(0.9)), &vllm(19, Some(0.9)));
        assert!(plan.fits() && !plan.as_asked, "{plan:?}");
    }

    #[test]
    fn the_largest_gets_what_the_others_do_not_need() {
        let plan = planned(&vllm(19, None), &vllm(19, None));
        let [small, large] = shares(&plan)[..] else {
            panic!("{plan:?}")
        };
        assert_eq!(plan.steps[0].tenant, 0);
        assert!(small < 0.15 && large > 0.75, "{plan:?}");
        assert!(
            plan.any_order && plan.steps[1].concurrency > 30.0,
            "{plan:?}"
        );
        let taken: u64 = plan.steps.iter().map(|s| s.takes).sum();
        let left = 79 * GIB - taken;
        assert!((GIB..4 * GIB).contains(&left), "{left}");
    }

    #[test]
    fn releases_that_count_the_memory_of_others_as_theirs_get_a_share_with_it() {
        // Of its default share, 0.9, the other's 0.4 is a part.
        let plan = planned(&vllm(19, Some(0.4)), &vllm(8, None));
        assert!(plan.as_asked && !plan.any_order, "{plan:?}");
        assert_eq!(plan.steps[1].tenant, 1);
        assert!(plan.steps[1].takes < 45 * GIB, "{plan:?}");
        // 0.5 would leave it 0.1.
        let plan = planned(&vllm(19, Some(0.4)), &vllm(8, Some(0.5)));
        assert!(plan.fits() && !plan.as_asked, "{plan:?}");
    }

    #[test]
    fn what_takes_a_part_of_the_free_memory_starts_last() {
        let sglang = on_h100(EngineId::Sglang, Version::new(0, 5, 5), None);
        let plan = planned(&sglang, &vllm(19, Some(0.6)));
        let order: Vec<usize> = plan.steps.iter().map(|s| s.tenant).collect();
        assert!(
            plan.fits() && order == [1, 0] && !plan.any_order,
            "{plan:?}"
        );
    }

    #[test]
    fn bytes_for_the_cache_do_not_spare_the_look_at_what_is_free() {
        let bytes = Deployment {
            kv_cache_memory: Some(4 * GIB),
            ..vllm(19, None)
        };
        // With the default share, 0.9, it starts only where so much is free.
        let plan = planned(&vllm(19, Some(0.5)), &bytes);
        let large = plan.steps.iter().find(|s| s.tenant == 1).unwrap();
        assert!(plan.fits(), "{plan:?}");
        assert!(large.takes < 25 * GIB, "{plan:?}");
        assert!(plan.steps[0].tenant == 1 || !plan.as_asked, "{plan:?}");
    }

    #[test]
    fn what_has_no_room_is_a_plan_that_does_not_fit() {
        let tiny = |d: Deployment| Deployment {
            gpu: Some(Gpu {
                name: "T4".into(),
                total: 15 * GIB,
                in_use: 0,
            }),
            ..d
        };
        let plan = planned(&tiny(vllm(19, None)), &tiny(vllm(19, None)));
        assert!(!plan.fits() && plan.steps[0].fits(), "{plan:?}");
    }

    #[test]
    fn what_is_needed_starts_first() {
        let needs = |n: usize, other: usize| matches!((n, other), (0, 2) | (2, 3));
        assert_eq!(order_by_needs(vec![0, 1, 2, 3], &needs), [1, 3, 2, 0]);
        let both = |_: usize, _: usize| true;
        assert_eq!(order_by_needs(vec![1, 0], &both), [1, 0]);
    }

    #[test]
    fn each_order_is_each_order() {
        assert_eq!(orders(vec![0, 1, 2]).len(), 6);
    }
}
