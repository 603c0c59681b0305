//! Several models on the same GPUs: the services of a file together, or one model beside what is running.

use super::gpu::{self, Neighbour};
use super::launched::{self, engines_of};
use super::{Asked, ended, no_gpu, page};
use crate::cli::EstimateArgs;
use crate::console::Console;
use crate::engine::EngineId;
use crate::engine::settings::argument_text;
use crate::error::{ExitCode, Failure};
use crate::estimate::non_torch::CONTEXT_GIB;
use crate::estimate::question::{
    Risk, StartPlan, StartStep, Tenant, find_remedies, longest, plan_starts,
};
use crate::estimate::{Deployment, Estimate, Version, weights};
use crate::launch::Launch;
use crate::preset::GpuRequest;
use crate::report::content::{Action, MOST_ACTIONS};
use crate::report::estimate::{
    EstimatePage, SharedGpu, SharedGpus, SharedTenant, answer_of_estimate, describe_hold,
};
use crate::units::{Bytes, GIB};
use std::collections::{BTreeMap, BTreeSet};

/// A model that can be estimated.
struct PlannedModel {
    name: String,
    asked: Asked,
    devices: Vec<String>,
    /// The names of those that it needs.
    after: Vec<String>,
}

/// What cannot be estimated and takes memory all the same.
struct UnplannedService {
    name: String,
    devices: Vec<String>,
    /// Its share of the GPU, where that bounds it.
    bytes: Option<u64>,
    reason: String,
}

/// All that are to be on the same GPUs.
pub struct GpuGroup {
    planned_models: Vec<PlannedModel>,
    unplanned: Vec<UnplannedService>,
    neighbours: Vec<Neighbour>,
}

/// The models that are asked about together; `None` where one is asked about alone.
///
/// # Errors
/// One cannot be read, or the GPU is not named.
pub fn read_group(console: &Console, args: &EstimateArgs) -> Result<Option<GpuGroup>, Failure> {
    if args.compose.is_none() && args.beside.is_empty() {
        return Ok(None);
    }
    let launches = launched::read_launches(args)?;
    if args.compose.is_some() && engines_of(&launches, &args.service)?.len() > 1 {
        let named = |l: &&Launch| {
            args.service.is_empty() || args.service.iter().any(|s| Some(s) == l.service.as_ref())
        };
        let named: Vec<&Launch> = launches.iter().filter(named).collect();
        return GpuGroup::of_services(console, args, &named).map(Some);
    }
    if args.beside.is_empty() {
        return Ok(None);
    }
    let (mut group, _) = GpuGroup::beside(args)?;
    let launch = launched::choose(&launches, args)?;
    let asked = Asked::of_launch(console, args, launch)?;
    let name = asked.model.name.clone();
    group.add(name, launch, asked);
    Ok(Some(group))
}

/// A sentence for each container beside an engine's that gets GPUs of it, and is no engine that is known.
pub(super) fn warn_of_others(launches: &[Launch], chosen: &Launch) -> Vec<String> {
    let mine = chosen.devices(MOST_DEVICES);
    let others = launches
        .iter()
        .filter(|l| l.server().is_none() && uses_gpus(l));
    let beside = others.filter(|l| l.devices(MOST_DEVICES).iter().any(|d| mine.contains(d)));
    let names = beside.filter_map(|l| l.service.as_ref());
    let sentence =
        |name| format!("service `{name}` may get the same GPU, and its memory is not counted");
    names.map(sentence).collect()
}

/// More than any container gets: all of its devices are meant.
const MOST_DEVICES: u64 = 64;

/// Whether a container gets a GPU.
fn uses_gpus(launch: &Launch) -> bool {
    launch.gpus.as_ref().is_some_and(|g| *g != GpuRequest::None) || launch.amd
}

impl GpuGroup {
    /// None yet, beside what the flags name; and the memory of a GPU, bytes.
    fn beside(args: &EstimateArgs) -> Result<(GpuGroup, u64), Failure> {
        let (alone, _) = gpu::of(args, 1, &GpuRequest::All)?;
        let total = alone.ok_or_else(no_gpu)?.total;
        let group = GpuGroup {
            planned_models: Vec::new(),
            unplanned: Vec::new(),
            neighbours: gpu::neighbours(args)?,
        };
        Ok((group, total))
    }

    /// Those of these services that take memory of a GPU.
    ///
    /// # Errors
    /// None can be estimated, or the GPU is not named.
    pub fn of_services(
        console: &Console,
        args: &EstimateArgs,
        launches: &[&Launch],
    ) -> Result<GpuGroup, Failure> {
        let (mut group, total) = GpuGroup::beside(args)?;
        for launch in launches {
            let name = launch.service.clone().unwrap_or_default();
            let server = launch.server();
            if server.is_none() && !uses_gpus(launch) {
                continue;
            }
            let failure = match Asked::of_launch(console, args, Some(launch)) {
                Ok(asked) => match asked.estimated(&asked.deployment).map(|e| e.unmodelled) {
                    Ok(unmodelled) if unmodelled.is_empty() => {
                        group.add(name, Some(launch), asked);
                        continue;
                    }
                    Ok(unmodelled) => unmodelled[0].sentence(),
                    Err(why) => why.what,
                },
                Err(failure) => match failure.hints.last() {
                    Some(hint) => format!("{} ({hint})", failure.message),
                    None => failure.message,
                },
            };
            let values = server.as_ref().map(|s| &s.settings.values);
            let number = |name: &str| values?.get(name)?.parse::<f64>().ok();
            // Only vLLM's is a part of all memory.
            let is_vllm = (server.as_ref()).is_some_and(|s| s.reader == Some(EngineId::Vllm));
            let share = number("gpu_memory_utilization").filter(|_| is_vllm);
            let count = number("tensor_parallel_size").map_or(1, |n| n as u64);
            group.unplanned.push(UnplannedService {
                name,
                devices: launch.devices(count),
                bytes: share.map(|s| (total as f64 * s + CONTEXT_GIB * GIB) as u64),
                reason: failure,
            });
        }
        group.refuse_mixed_names()?;
        if group.planned_models.is_empty() {
            let UnplannedService { name, reason, .. } = &group.unplanned[0];
            return Err(Failure::usage(format!(
                "no service of the file can be estimated; the first of them, `{name}`: {reason}"
            ))
            .hint("`plimsoll estimate --compose FILE --service NAME --show-settings --json` shows what is read of one"));
        }
        Ok(group)
    }

    fn add(&mut self, name: String, launch: Option<&Launch>, asked: Asked) {
        let count = asked.deployment.gpus();
        let all = Launch::default();
        let devices = launch.unwrap_or(&all).devices(count);
        self.planned_models.push(PlannedModel {
            name,
            asked,
            devices,
            after: launch.map_or(Vec::new(), |l| l.after.clone()),
        });
    }

    fn devices(&self) -> BTreeSet<&String> {
        let planned = self.planned_models.iter().flat_map(|g| &g.devices);
        let unplanned = self.unplanned.iter().flat_map(|s| &s.devices);
        planned.chain(unplanned).collect()
    }

    /// A GPU's number and its id are not known to be the same GPU.
    fn refuse_mixed_names(&self) -> Result<(), Failure> {
        let (numbers, ids): (Vec<_>, Vec<_>) = self
            .devices()
            .into_iter()
            .partition(|d| d.parse::<u32>().is_ok());
        match (numbers.first(), ids.first()) {
            (Some(number), Some(id)) => Err(Failure::usage(format!(
                "services name GPUs by number (`{number}`) and by id (`{id}`): whether these are the same GPU is not known"
            ))
            .hint("name all by number, as in device_ids: [\"0\"]")),
            _ => Ok(()),
        }
    }

    /// What is known of those that cannot be estimated, by GPU.
    fn held(&self) -> BTreeMap<String, u64> {
        let mut held = BTreeMap::new();
        for service in &self.unplanned {
            for device in &service.devices {
                *held.entry(device.clone()).or_default() += service.bytes.unwrap_or(0);
            }
        }
        held
    }
}

/// The answer for all services together.
pub struct GroupAnswer {
    /// Who starts when, and what is left; the parts are those of the largest.
    pub page: EstimatePage,
    estimate: Estimate,
    risk: Option<Risk>,
}

/// Answers for all of them.
///
/// # Errors
/// What is needed is not known.
pub fn show_group(
    console: &Console,
    args: &EstimateArgs,
    group: &GpuGroup,
) -> anyhow::Result<ExitCode> {
    let GroupAnswer {
        page: shown,
        estimate,
        risk,
    } = group.answer()?;
    if args.risk {
        let risk = risk.ok_or_else(|| Failure::environment(answer_of_estimate(&shown).verdict))?;
        console.write_data(format!("{}\n", risk.as_str()).as_bytes())?;
        return Ok(ended(args, Some(risk)));
    }
    super::print_page(console, args, &shown, &estimate, risk, None)?;
    if args.check_oom && risk.is_none() {
        return Err(Failure::environment(answer_of_estimate(&shown).verdict).into());
    }
    Ok(ended(args, risk))
}

impl GpuGroup {
    /// Plans their starts.
    ///
    /// # Errors
    /// What is needed is not known.
    pub fn answer(&self) -> Result<GroupAnswer, Failure> {
        let planned_models = &self.planned_models;
        let estimates: Vec<_> = (planned_models.iter())
            .map(|planned| move |d: &Deployment| planned.asked.estimated(d))
            .collect();
        let place = |name: &String| planned_models.iter().position(|p| p.name == *name);
        let tenants: Vec<Tenant<'_>> = planned_models
            .iter()
            .zip(&estimates)
            .map(|(planned, estimate)| Tenant {
                model: &planned.asked.model,
                deployment: &planned.asked.deployment,
                devices: &planned.devices,
                concurrency: planned.asked.concurrency,
                after: planned.after.iter().filter_map(place).collect(),
                estimate,
            })
            .collect();
        // The rest is for those of which nothing is known.
        let room = self.unplanned.iter().all(|s| s.bytes.is_some());
        let plan = plan_starts(&tenants, &self.held(), room).map_err(super::unknown)?;
        let main = self.main(&plan);
        let asked = &planned_models[main.tenant].asked;
        let estimate = asked.estimate(&main.deployment)?;
        let mut page =
            page::build_page(asked, &main.deployment, &estimate, asked.concurrency, None);
        page.warnings = self.warnings(&page);
        page.actions = self.actions(&plan, &tenants);
        let shared = self.shared(&plan, main, &tenants);
        let risk =
            (shared.fits_as_asked).map(|fits| if fits { main.risk } else { Risk::DoesNotFit });
        page.shared = Some(shared);
        Ok(GroupAnswer {
            page,
            estimate,
            risk,
        })
    }

    /// The step of which the page has the parts: that of the model with the most weights.
    fn main<'a>(&self, plan: &'a StartPlan) -> &'a StartStep {
        let size = |step: &&StartStep| {
            let asked = &self.planned_models[step.tenant].asked;
            weights::of(&asked.model, &asked.deployment).map_or(0, |w| w.bytes)
        };
        // A plan of no models is never made.
        plan.steps.iter().max_by_key(size).unwrap_or(&plan.steps[0])
    }

    fn warnings(&self, page: &EstimatePage) -> Vec<String> {
        let mut all = page.warnings.clone();
        for other in &self.planned_models {
            if other.asked.model.name != page.model {
                let warnings = other.asked.warnings.iter();
                all.extend(warnings.map(|w| format!("{}: {w}", other.name)));
            }
        }
        all
    }

    /// The settings that the plan changes; where it does not fit, what makes the one fit that does not.
    fn actions(&self, plan: &StartPlan, tenants: &[Tenant<'_>]) -> Vec<Action> {
        let of_step = |step: &StartStep, setting: String| Action {
            effect: format!(
                "for `{}`, which takes {}",
                self.planned_models[step.tenant].name,
                Bytes(step.takes)
            ),
            setting,
        };
        if plan.fits() {
            let changed = plan
                .steps
                .iter()
                .filter_map(|step| Some(of_step(step, plan.changed_share(step, tenants)?)));
            return changed.take(MOST_ACTIONS).collect();
        }
        let Some(step) = plan.steps.iter().find(|s| !s.fits()) else {
            return Vec::new();
        };
        let planned = &self.planned_models[step.tenant];
        let asked = &planned.asked;
        let read = |d: &Deployment| asked.reading(d);
        let found = find_remedies(&asked.model, &step.deployment, asked.concurrency, &read);
        let found = found.into_iter();
        let found = found.filter(|r| r.deployment.gpus() == step.deployment.gpus());
        let found = found.take(MOST_ACTIONS);
        found
            .map(|remedy| Action {
                effect: format!(
                    "`{}` {}",
                    planned.name,
                    describe_hold(&remedy, &asked.model)
                ),
                setting: remedy.argument(),
            })
            .collect()
    }

    fn shared(&self, plan: &StartPlan, main: &StartStep, tenants: &[Tenant<'_>]) -> SharedGpus {
        let alone = |name: &str, gpus: &[String], bytes: Option<u64>| SharedTenant {
            name: name.to_owned(),
            gpus: gpus.to_vec(),
            takes_bytes: bytes,
            ..SharedTenant::default()
        };
        let all: Vec<String> = self.devices().into_iter().cloned().collect();
        let named: u64 = self.neighbours.iter().map(|n| n.bytes).sum();
        let before = |device: &String| {
            let mut all = self.planned_models.iter();
            let planned = all.find(|g| g.devices.contains(device))?;
            planned.asked.deployment.gpu.as_ref()
        };
        // What the driver reports besides what was named.
        let others = all.iter().filter_map(|d| Some(before(d)?.in_use));
        let others = others.max().unwrap_or(0).saturating_sub(named);
        let held = self.held();
        let held = |device: &String| held.get(device).copied().unwrap_or(0);
        let mut tenants_shown = Vec::new();
        if others > 0 {
            tenants_shown.push(alone("in use now", &all, Some(others)));
        }
        let neighbours = self.neighbours.iter();
        tenants_shown.extend(neighbours.map(|n| alone(&n.name, &all, Some(n.bytes))));
        tenants_shown.extend(self.unplanned.iter().map(|s| SharedTenant {
            reason: Some(s.reason.clone()),
            ..alone(&s.name, &s.devices, s.bytes)
        }));
        let steps = plan.steps.iter();
        tenants_shown.extend(steps.map(|step| self.tenant_of_step(step, plan, tenants)));
        let taken = |device: &String, but: Option<usize>| -> u64 {
            let here = |s: &&StartStep| {
                let devices = &self.planned_models[s.tenant].devices;
                devices.contains(device) && Some(s.tenant) != but
            };
            plan.steps.iter().filter(here).map(|s| s.takes).sum::<u64>() + held(device)
        };
        let gpus = all.iter().filter_map(|device| {
            let gpu = before(device)?;
            let left = gpu.total.saturating_sub(gpu.in_use);
            let left = left.saturating_sub(taken(device, None));
            let mut unplanned = self.unplanned.iter();
            let all_known = unplanned.all(|s| s.bytes.is_some() || !s.devices.contains(device));
            Some(SharedGpu {
                gpu: device.clone(),
                total_bytes: gpu.total,
                left_bytes: (all_known && plan.fits()).then_some(left),
            })
        });
        let gpus = gpus.collect();
        let beside = self.planned_models[main.tenant].devices.iter();
        let beside = beside.filter_map(|d| Some(before(d)?.in_use + taken(d, Some(main.tenant))));
        let sure = |fits: bool| (!fits || self.unplanned.is_empty()).then_some(fits);
        SharedGpus {
            tenants: tenants_shown,
            gpus,
            fits_as_asked: sure(plan.fits() && plan.as_asked),
            fits: sure(plan.fits()),
            any_order: plan.any_order,
            risk: plan.steps.iter().map(|s| s.risk).max(),
            beside_main_bytes: beside.max().unwrap_or(0),
        }
    }

    fn tenant_of_step(
        &self,
        step: &StartStep,
        plan: &StartPlan,
        tenants: &[Tenant<'_>],
    ) -> SharedTenant {
        let planned = &self.planned_models[step.tenant];
        let asked = &planned.asked;
        let deployment = &step.deployment;
        // The flag is there since 0.11.
        let has = !deployment.is_before(Version::new(0, 11, 0));
        let free = deployment.kv_cache_memory.is_none() && self.planned_models.len() > 1;
        let made = |pool: &u64| *pool > 0 && has && free && step.fits();
        let cache = step.pool.filter(made);
        let reason = match asked.estimated(deployment) {
            Err(why) => Some(why.what),
            Ok(estimate) if !step.fits() => {
                let page = page::build_page(asked, deployment, &estimate, asked.concurrency, None);
                Some(answer_of_estimate(&page).verdict)
            }
            Ok(estimate) if estimate.lacks_graphs => {
                Some("the memory of its CUDA graphs is unknown and not included".to_owned())
            }
            Ok(_) => None,
        };
        SharedTenant {
            name: planned.name.clone(),
            model: Some(asked.model.name.clone()),
            gpus: planned.devices.clone(),
            takes_bytes: Some(step.takes),
            setting: plan.changed_share(step, tenants),
            cache_setting: cache.and_then(|bytes| {
                let name = "kv_cache_memory_bytes";
                argument_text(deployment.engine, name, &bytes.to_string())
            }),
            concurrency: Some(step.concurrency),
            max_model_len: longest(&asked.model, deployment).ok(),
            fits: Some(step.fits()),
            reason,
        }
    }
}
