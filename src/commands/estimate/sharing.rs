//! Several models on the same GPUs: the services of a file together, or one model beside what is there.

use super::gpu::{self, Neighbour};
use super::launched::{self, engines_of};
use super::{Asked, ended, no_gpu, page};
use crate::cli::EstimateArgs;
use crate::console::Console;
use crate::engine::EngineId;
use crate::engine::settings::argument_text;
use crate::error::{ExitCode, Failure};
use crate::estimate::non_torch::CONTEXT_GIB;
use crate::estimate::question::{Risk, Seat, SeatingPlan, Tenant, find_remedies, plan_seats};
use crate::estimate::{Deployment, Estimate, Unknown, Version, weights};
use crate::launch::Launch;
use crate::preset::GpuRequest;
use crate::report::content::{Action, MOST_ACTIONS};
use crate::report::estimate::{
    EstimatePage, SharedGpu, SharedGpus, SharedTenant, answer_of_estimate, describe_hold,
};
use crate::units::GIB;
use std::collections::{BTreeMap, BTreeSet};

/// A model of the party.
struct Guest {
    name: String,
    asked: Asked,
    devices: Vec<String>,
}

/// What cannot be estimated and takes memory all the same.
struct Stranger {
    name: String,
    devices: Vec<String>,
    /// Its share of the GPU, where that bounds it.
    bytes: Option<u64>,
    reason: String,
}

/// All that are to be on the same GPUs.
pub struct Party {
    guests: Vec<Guest>,
    strangers: Vec<Stranger>,
    neighbours: Vec<Neighbour>,
}

/// The models that are asked about together; `None` where one is asked about alone.
///
/// # Errors
/// One cannot be read, or the GPU is not named.
pub fn read_party(console: &Console, args: &EstimateArgs) -> Result<Option<Party>, Failure> {
    if args.compose.is_none() && args.beside.is_empty() {
        return Ok(None);
    }
    let launches = launched::read_launches(args)?;
    let engines = engines_of(&launches, args)?;
    let several = args.compose.is_some() && engines.len() > 1;
    if !several && args.beside.is_empty() {
        return Ok(None);
    }
    let (alone, _) = gpu::of(args, 1, &GpuRequest::All)?;
    let total = alone.ok_or_else(no_gpu)?.total;
    let mut party = Party {
        guests: Vec::new(),
        strangers: Vec::new(),
        neighbours: gpu::neighbours(args)?,
    };
    if !several {
        let launch = launched::choose(&launches, args)?;
        let asked = Asked::of_launch(console, args, launch)?;
        let name = asked.model.name.clone();
        party.add(name, launch, asked);
        return Ok(Some(party));
    }
    let named = |l: &&Launch| {
        args.service.is_empty() || args.service.iter().any(|s| Some(s) == l.service.as_ref())
    };
    let uses_gpus = |l: &Launch| l.gpus.as_ref().is_some_and(|g| *g != GpuRequest::None) || l.amd;
    for launch in launches.iter().filter(named) {
        let name = launch.service.clone().unwrap_or_default();
        let server = launch.server();
        if server.is_none() && !uses_gpus(launch) {
            continue;
        }
        let failure = match Asked::of_launch(console, args, Some(launch)) {
            Ok(asked) => match asked.estimated(&asked.deployment).map(|e| e.unmodelled) {
                Ok(unmodelled) if unmodelled.is_empty() => {
                    party.add(name, Some(launch), asked);
                    continue;
                }
                Ok(unmodelled) => unmodelled[0].sentence(),
                Err(why) => why.what,
            },
            Err(failure) => failure.message,
        };
        let values = server.as_ref().map(|s| &s.settings.values);
        let number = |name: &str| values?.get(name)?.parse::<f64>().ok();
        let share = number("gpu_memory_utilization");
        // Only vLLM's is a part of all memory.
        let share = share.filter(|_| {
            server
                .as_ref()
                .is_some_and(|s| s.reader == Some(EngineId::Vllm))
        });
        let count = number("tensor_parallel_size").map_or(1, |n| n as u64);
        party.strangers.push(Stranger {
            name,
            devices: launch.devices(count),
            bytes: share.map(|s| (total as f64 * s + CONTEXT_GIB * GIB) as u64),
            reason: failure,
        });
    }
    party.refuse_mixed_names()?;
    if party.guests.is_empty() {
        let Stranger { name, reason, .. } = &party.strangers[0];
        return Err(Failure::usage(format!(
            "none of the services can be estimated: `{name}`: {reason}"
        )));
    }
    Ok(Some(party))
}

impl Party {
    fn add(&mut self, name: String, launch: Option<&Launch>, asked: Asked) {
        let count = asked.deployment.gpus();
        let all = Launch::default();
        let devices = launch.unwrap_or(&all).devices(count);
        self.guests.push(Guest {
            name,
            asked,
            devices,
        });
    }

    fn devices(&self) -> BTreeSet<&String> {
        let guests = self.guests.iter().flat_map(|g| &g.devices);
        guests
            .chain(self.strangers.iter().flat_map(|s| &s.devices))
            .collect()
    }

    /// A GPU's number and its id are not known to be the same GPU.
    fn refuse_mixed_names(&self) -> Result<(), Failure> {
        let (numbers, ids): (Vec<_>, Vec<_>) = self
            .devices()
            .into_iter()
            .partition(|d| d.parse::<u32>().is_ok());
        match (numbers.first(), ids.first()) {
            (Some(number), Some(id)) => Err(Failure::usage(format!(
                "services name GPUs by number (`{number}`) and by id (`{id}`): which are the same is not known"
            ))
            .hint("name all by number, as in device_ids: [\"0\"]")),
            _ => Ok(()),
        }
    }

    /// What is known of those that cannot be estimated, by GPU.
    fn held(&self) -> BTreeMap<String, u64> {
        let mut held = BTreeMap::new();
        for stranger in &self.strangers {
            for device in &stranger.devices {
                *held.entry(device.clone()).or_default() += stranger.bytes.unwrap_or(0);
            }
        }
        held
    }
}

/// Answers for all of them.
///
/// # Errors
/// What is needed is not known.
pub fn show_party(
    console: &Console,
    args: &EstimateArgs,
    party: &Party,
) -> anyhow::Result<ExitCode> {
    let estimates: Vec<_> = party
        .guests
        .iter()
        .map(|guest| {
            move |d: &Deployment| -> Result<Estimate, Unknown> { guest.asked.estimated(d) }
        })
        .collect();
    let tenants: Vec<Tenant<'_>> = party
        .guests
        .iter()
        .zip(&estimates)
        .map(|(guest, estimate)| Tenant {
            model: &guest.asked.model,
            deployment: &guest.asked.deployment,
            devices: &guest.devices,
            concurrency: guest.asked.concurrency,
            estimate,
        })
        .collect();
    // The rest is for those of which nothing is known.
    let room = party.strangers.iter().all(|s| s.bytes.is_some());
    let plan = plan_seats(&tenants, &party.held(), room).map_err(super::unknown)?;
    let main = party.main(&plan);
    let guest = &party.guests[main.tenant];
    let estimate = guest.asked.estimate(&main.deployment)?;
    let mut shown = page::build_page(
        &guest.asked,
        &main.deployment,
        &estimate,
        guest.asked.concurrency,
        None,
    );
    shown.warnings = party.warnings(&shown);
    shown.actions = party.actions(&plan, &tenants);
    shown.shared = Some(party.shared(&plan, main, &tenants));
    let fits = shown.shared.as_ref().and_then(|s| s.fits_as_asked);
    let risk = match fits {
        Some(true) => Some(main.risk),
        Some(false) => Some(Risk::DoesNotFit),
        None => None,
    };
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

impl Party {
    /// The seat of which the page has the parts: that of the model with the most weights.
    fn main<'a>(&self, plan: &'a SeatingPlan) -> &'a Seat {
        let size = |seat: &&Seat| {
            let asked = &self.guests[seat.tenant].asked;
            weights::of(&asked.model, &asked.deployment).map_or(0, |w| w.bytes)
        };
        // A plan of no models is never made.
        plan.seats.iter().max_by_key(size).unwrap_or(&plan.seats[0])
    }

    fn warnings(&self, page: &EstimatePage) -> Vec<String> {
        let others = self
            .guests
            .iter()
            .filter(|g| g.asked.model.name != page.model);
        let of_other = |g: &Guest| -> Vec<String> {
            let said = g.asked.warnings.iter();
            said.map(|w| format!("{}: {w}", g.name)).collect()
        };
        let mut all = page.warnings.clone();
        all.extend(others.flat_map(of_other));
        all
    }

    /// The settings that the plan changes; where it does not fit, what makes the one fit that does not.
    fn actions(&self, plan: &SeatingPlan, tenants: &[Tenant<'_>]) -> Vec<Action> {
        let of_seat = |seat: &Seat, setting: String| Action {
            effect: format!(
                "for `{}`, which takes {}",
                self.guests[seat.tenant].name,
                crate::units::Bytes(seat.takes)
            ),
            setting,
        };
        if plan.fits() {
            let changed = plan
                .seats
                .iter()
                .filter_map(|seat| Some(of_seat(seat, plan.changed_share(seat, tenants)?)));
            return changed.take(MOST_ACTIONS).collect();
        }
        let Some(seat) = plan.seats.iter().find(|s| !s.fits()) else {
            return Vec::new();
        };
        let guest = &self.guests[seat.tenant];
        let holds =
            |d: &Deployment| Ok(guest.asked.reading(d)?.on.map_or(0.0, |on| on.concurrency));
        let found = find_remedies(
            &guest.asked.model,
            &seat.deployment,
            guest.asked.concurrency,
            &holds,
        );
        let one =
            |r: &crate::estimate::question::Remedy| r.deployment.gpus() == seat.deployment.gpus();
        let found = found.into_iter().filter(one).take(MOST_ACTIONS);
        found
            .map(|remedy| Action {
                effect: format!(
                    "`{}` {}",
                    guest.name,
                    describe_hold(&remedy, &guest.asked.model)
                ),
                setting: remedy.argument,
            })
            .collect()
    }

    fn shared(&self, plan: &SeatingPlan, main: &Seat, tenants: &[Tenant<'_>]) -> SharedGpus {
        let known = self.strangers.iter().all(|s| s.bytes.is_some());
        let alone = |name: &str, gpus: &[String], bytes: Option<u64>| SharedTenant {
            name: name.to_owned(),
            gpus: gpus.to_vec(),
            takes_bytes: bytes,
            ..SharedTenant::default()
        };
        let all: Vec<String> = self.devices().into_iter().cloned().collect();
        let named: u64 = self.neighbours.iter().map(|n| n.bytes).sum();
        let before = |device: &String| {
            let guest = self.guests.iter().find(|g| g.devices.contains(device));
            guest.and_then(|g| g.asked.deployment.gpu.as_ref())
        };
        // What the driver reports besides what was named.
        let others = all.iter().filter_map(|d| Some(before(d)?.in_use));
        let others = others.max().unwrap_or(0).saturating_sub(named);
        let held = self.held();
        let held = |device: &String| held.get(device).copied().unwrap_or(0);
        let mut seated = Vec::new();
        if others > 0 {
            seated.push(alone("in use now", &all, Some(others)));
        }
        seated.extend(
            self.neighbours
                .iter()
                .map(|n| alone(&n.name, &all, Some(n.bytes))),
        );
        seated.extend(self.strangers.iter().map(|s| SharedTenant {
            reason: Some(s.reason.clone()),
            ..alone(&s.name, &s.devices, s.bytes)
        }));
        seated.extend(
            plan.seats
                .iter()
                .map(|seat| self.seated(seat, plan, tenants)),
        );
        let taken = |device: &String, but: Option<usize>| -> u64 {
            let here = plan
                .seats
                .iter()
                .filter(|s| self.guests[s.tenant].devices.contains(device));
            let here = here.filter(|s| Some(s.tenant) != but).map(|s| s.takes);
            here.sum::<u64>() + held(device)
        };
        let gpus = all.iter().filter_map(|device| {
            let gpu = before(device)?;
            let left = gpu
                .total
                .saturating_sub(gpu.in_use)
                .saturating_sub(taken(device, None));
            let all_known = self
                .strangers
                .iter()
                .all(|s| s.bytes.is_some() || !s.devices.contains(device));
            Some(SharedGpu {
                gpu: device.clone(),
                total_bytes: gpu.total,
                left_bytes: (all_known && plan.fits()).then_some(left),
            })
        });
        let gpus = gpus.collect();
        let beside = self.guests[main.tenant].devices.iter();
        let beside = beside.filter_map(|d| Some(before(d)?.in_use + taken(d, Some(main.tenant))));
        let sure = |fits: bool| match (fits, self.strangers.is_empty() && known) {
            (true, false) => None,
            (fits, _) => Some(fits),
        };
        SharedGpus {
            tenants: seated,
            gpus,
            fits_as_asked: sure(plan.fits() && plan.as_asked),
            fits: sure(plan.fits()),
            any_order: plan.any_order,
            risk: plan.seats.iter().map(|s| s.risk).max(),
            beside_main_bytes: beside.max().unwrap_or(0),
        }
    }

    fn seated(&self, seat: &Seat, plan: &SeatingPlan, tenants: &[Tenant<'_>]) -> SharedTenant {
        let guest = &self.guests[seat.tenant];
        let asked = &guest.asked;
        let deployment = &seat.deployment;
        // The flag is there since 0.11.
        let has = deployment
            .version
            .is_none_or(|v| v >= Version::new(0, 11, 0));
        let free = deployment.kv_cache_memory.is_none() && self.guests.len() > 1;
        let cache = seat.pool.filter(|_| has && free && seat.fits());
        let reason = match asked.estimated(deployment) {
            Err(why) => Some(why.what),
            Ok(estimate) if !seat.fits() => {
                let page = page::build_page(asked, deployment, &estimate, asked.concurrency, None);
                Some(answer_of_estimate(&page).verdict)
            }
            Ok(estimate) if estimate.lacks_graphs => {
                Some("what its CUDA graphs take is not known and not in it".to_owned())
            }
            Ok(_) => None,
        };
        SharedTenant {
            name: guest.name.clone(),
            model: Some(asked.model.name.clone()),
            gpus: guest.devices.clone(),
            takes_bytes: Some(seat.takes),
            setting: plan.changed_share(seat, tenants),
            cache_setting: cache.and_then(|bytes| {
                argument_text(
                    seat.deployment.engine,
                    "kv_cache_memory_bytes",
                    &bytes.to_string(),
                )
            }),
            concurrency: Some(seat.concurrency),
            max_model_len: seat.deployment.max_model_len.or(asked.model.max_positions),
            fits: Some(seat.fits()),
            reason,
        }
    }
}
