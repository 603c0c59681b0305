//! What is to be done about a container.
//!
//! First what shields it, then what nothing helps against, and only then the reasons to act.

use super::choice::ChosenBy;
use super::words::{self, Ruling, format_span};
use super::{CleanAct, CleanRule, CleanVerdict, PROTECT_LABEL, VerdictSubject};
use crate::clean::facts::{
    Activity, ContainerLook, EngineHealth, ProcessLook, add_held, total_bytes,
};
use crate::clean::never;
use crate::container::RUN_LABEL;
use crate::container::is_protected;
use crate::container::leftovers::Owner;
use crate::report::layout;
use crate::wording::count_noun;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Docker removes a container in less, seconds.
const REMOVAL_S: u64 = 30;
/// Time that an engine of unknown owner may fail to answer, seconds: large models load for minutes.
const ILL_GRACE_S: u64 = 600;

/// Docker's words for how a container is, as far as they matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerPhase {
    /// Processes may run in it.
    Live,
    Created,
    Ended,
    /// Docker removes it, or could not.
    Going,
    /// A word of another runtime.
    Other,
}

fn phase(look: &ContainerLook) -> ContainerPhase {
    let runs = look.processes.as_ref().is_some_and(|p| !p.is_empty());
    match look.status.as_str() {
        "running" | "paused" | "restarting" => ContainerPhase::Live,
        "created" if runs => ContainerPhase::Live,
        "created" => ContainerPhase::Created,
        "exited" => ContainerPhase::Ended,
        "removing" | "dead" => ContainerPhase::Going,
        _ => ContainerPhase::Other,
    }
}

pub(super) fn judge_container(
    look: &ContainerLook,
    all: &[ContainerLook],
    chosen: Option<ChosenBy<'_>>,
    idle: Option<Duration>,
) -> CleanVerdict {
    let ruling = shielded(look, chosen)
        .or_else(|| helpless(look))
        .unwrap_or_else(|| reason_ruling(look, chosen, idle));
    let ruling = if ruling.act.changes_anything() && unseen(look) {
        blind(&ruling)
    } else {
        with_sharers(ruling, look, all, chosen)
    };
    let name = if look.name.is_empty() {
        look.id.chars().take(12).collect()
    } else {
        look.name.clone()
    };
    ruling.into_verdict(VerdictSubject::Container(look.id.clone()), name)
}

/// What keeps it whatever is asked.
fn shielded(look: &ContainerLook, chosen: Option<ChosenBy<'_>>) -> Option<Ruling> {
    if is_protected(&look.labels) {
        let ruling = Ruling::keep(
            CleanRule::Protected,
            format!("has the label {PROTECT_LABEL}"),
        );
        return Some(match chosen {
            Some(_) => ruling.advise("such a label stays: create the container without it"),
            None => ruling,
        });
    }
    if look.this_one {
        return Some(Ruling::keep(
            CleanRule::ThisOne,
            "plimsoll itself runs in it",
        ));
    }
    if let Some(who) = never::ruler_of(look) {
        let ruling = Ruling::keep(CleanRule::RuledByOthers, format!("{who} rules it"));
        return Some(ruling.advise(format!("end its job or pod with {who}'s own tools")));
    }
    if let Some((process, what)) =
        processes_of(look).find_map(|p| Some((p, never::never_ended_because(p)?)))
    {
        let why = format!("{} in it {what}", words::describe_process(process));
        return Some(Ruling::keep(CleanRule::NeverTouched, why));
    }
    owner_lives(look, chosen)
}

fn owner_lives(look: &ContainerLook, chosen: Option<ChosenBy<'_>>) -> Option<Ruling> {
    let marks = || processes_of(look).filter_map(|p| p.mark.as_ref());
    let why = if look.owner == Owner::Alive {
        format!("its owner{} lives", run_label(look))
    } else if look.locked {
        "a plimsoll that lives works on it".into()
    } else if let Some(mark) = marks().find(|mark| mark.owner == Owner::Alive) {
        format!("run {} works in it, and lives", shorten_word(&mark.run_id))
    } else {
        return None;
    };
    let ruling = Ruling::keep(CleanRule::OwnerLives, why);
    Some(match chosen {
        Some(_) => ruling.advise("that plimsoll cleans up itself when it ends"),
        None => ruling,
    })
}

/// What no signal and no call to Docker can help against.
fn helpless(look: &ContainerLook) -> Option<Ruling> {
    if let Some(state) = &look.freezer {
        let frozen = "Docker does not answer about it, and its processes are frozen";
        if look.ours && look.owner == Owner::Dead {
            let why = format!(
                "its owner{} has ended; {frozen}{}",
                run_label(look),
                and_holds(look)
            );
            return Some(Ruling::new(CleanAct::Stop, CleanRule::OwnerDead, why));
        }
        let ruling = Ruling::report(
            CleanRule::RemovalStuck,
            format!("{frozen}{}", and_holds(look)),
        );
        return Some(ruling.advise(format!(
            "thaw it, then Docker continues: `echo THAWED | sudo tee {state}`"
        )));
    }
    if phase(look) == ContainerPhase::Going {
        return Some(match look.status_for_s {
            Some(s) if s >= REMOVAL_S => Ruling::report(
                CleanRule::RemovalStuck,
                format!("Docker has it as `{}` for {}", look.status, format_span(s)),
            )
            .advise("see what keeps it: a thread in state D, a busy mount; then `docker rm` again"),
            Some(s) => Ruling::keep(
                CleanRule::NothingWrong,
                format!("Docker removes it, for {}", format_span(s)),
            ),
            None => Ruling::keep(
                CleanRule::NothingWrong,
                "Docker is removing it; since when is unknown",
            ),
        });
    }
    let mut all = processes_of(look).filter_map(|p| Some((p, words::longest_stuck(p)?)));
    let (process, thread) = all.next()?;
    let ruling = Ruling::report(
        CleanRule::Uninterruptible,
        words::stuck_why(process, thread),
    );
    Some(ruling.advise(words::STUCK_ADVICE))
}

/// The reasons to act, and if there is none, why it is kept.
fn reason_ruling(
    look: &ContainerLook,
    chosen: Option<ChosenBy<'_>>,
    idle: Option<Duration>,
) -> Ruling {
    let (granted, refused) = parted(chosen.and_then(|chosen| wished(look, chosen, idle)));
    let (collected, uncollected) = parted(zombies(look));
    owner_dead(look)
        .or_else(|| gone_wrong(look))
        .or(granted)
        .or(collected)
        .or_else(|| leftover(look))
        .or(uncollected)
        .or(refused)
        .unwrap_or_else(|| nothing(look))
}

/// Separates rulings that act from those that only report, so that a report never hides an act.
fn parted(ruling: Option<Ruling>) -> (Option<Ruling>, Option<Ruling>) {
    match ruling {
        Some(ruling) if ruling.act.changes_anything() => (Some(ruling), None),
        other => (None, other),
    }
}

fn owner_dead(look: &ContainerLook) -> Option<Ruling> {
    if !look.ours || look.owner != Owner::Dead {
        return None;
    }
    let (run, held) = (run_label(look), and_holds(look));
    let why = format!("its owner{run} has ended{held}");
    match phase(look) {
        ContainerPhase::Live => Some(Ruling::new(CleanAct::Stop, CleanRule::OwnerDead, why)),
        ContainerPhase::Created | ContainerPhase::Ended => {
            Some(Ruling::new(CleanAct::Remove, CleanRule::OwnerDead, why))
        }
        ContainerPhase::Going | ContainerPhase::Other => None,
    }
}

/// Ours, of unknown owner, and its engine fails.
fn gone_wrong(look: &ContainerLook) -> Option<Ruling> {
    if !unowned(look) {
        return None;
    }
    let stop = |rule, why: String| {
        let why = format!("ours, its owner is not known, {why}{}", and_holds(look));
        Some(Ruling::new(CleanAct::Stop, rule, why))
    };
    let ill_s = match look.health {
        EngineHealth::Ill { for_s } => for_s,
        EngineHealth::Well | EngineHealth::Starting | EngineHealth::Unknown => 0,
    };
    if let Some(past @ 1..) = look.past_deadline_s {
        let time = format_span(past.unsigned_abs());
        return stop(
            CleanRule::PastDeadline,
            format!("it is {time} past its deadline"),
        );
    }
    // Who set a deadline that is ahead wants it until then.
    let wanted = look.past_deadline_s.is_some_and(|past| past < 0);
    if ill_s >= ILL_GRACE_S && !wanted {
        let why = format!("its engine does not answer for {}", format_span(ill_s));
        return stop(CleanRule::Unhealthy, why);
    }
    None
}

/// The ruling that follows from the user's choice; `None` where the choice does not apply to a
/// container like this.
fn wished(look: &ContainerLook, chosen: ChosenBy<'_>, idle: Option<Duration>) -> Option<Ruling> {
    let by = match chosen {
        ChosenBy::Name => "you named it".to_owned(),
        ChosenBy::Label(label) => format!("it has the label {label}"),
        ChosenBy::Image(pattern) => format!("its image is like {pattern}"),
        ChosenBy::AllGpu => "you asked for all that hold GPU memory".to_owned(),
    };
    let named = chosen == ChosenBy::Name;
    let rule = if named {
        CleanRule::Named
    } else {
        CleanRule::Selected
    };
    let held = and_holds(look);
    match (phase(look), idle) {
        (ContainerPhase::Live, None) => {
            Some(Ruling::new(CleanAct::Stop, rule, format!("{by}{held}")))
        }
        (ContainerPhase::Live, Some(wanted)) => Some(match too_young(&look.activity, wanted) {
            None => {
                let time = format_span(look.activity.idle_s().unwrap_or(0));
                let why = format!("{by}, and it did nothing for {time}{held}");
                Ruling::new(CleanAct::Stop, CleanRule::Idle, why)
            }
            Some(lack) => Ruling::keep(CleanRule::NotIdle, format!("{by}, but {lack}")),
        }),
        (ContainerPhase::Created | ContainerPhase::Ended, None) if named && look.ours => {
            let why = format!("{by}; it is ours, and nothing runs in it");
            Some(Ruling::new(CleanAct::Remove, CleanRule::Named, why))
        }
        (ContainerPhase::Created | ContainerPhase::Ended, _) => {
            let why = format!("{by}, but nothing runs in it: it holds no memory");
            Some(Ruling::keep(CleanRule::Ended, why).advise("`docker rm` removes it"))
        }
        (ContainerPhase::Going | ContainerPhase::Other, _) => None,
    }
}

/// Why it does not count as idle for `wanted`; `None`: it does.
fn too_young(activity: &Activity, wanted: Duration) -> Option<String> {
    if (activity.idle_s()).is_some_and(|s| Duration::from_secs(s) >= wanted) {
        return None;
    }
    let lacks = [
        ("its GPUs are idle", activity.gpu_idle_s),
        ("no request came", activity.requests_idle_s),
    ]
    .into_iter()
    .filter_map(|(what, s)| match s {
        None => Some(format!("for how long {what} is not known")),
        Some(s) if Duration::from_secs(s) < wanted => {
            Some(format!("{what} for only {}", format_span(s)))
        }
        Some(_) => None,
    });
    let lacks: Vec<String> = lacks.collect();
    Some(lacks.join("; "))
}

/// Ended processes that were not collected and still hold memory.
fn zombies(look: &ContainerLook) -> Option<Ruling> {
    let zombie = |p: &&ProcessLook| p.state == Some('Z') && total_bytes(&p.gpu_bytes) > 0;
    let all: Vec<&ProcessLook> = processes_of(look).filter(zombie).collect();
    if all.is_empty() || phase(look) != ContainerPhase::Live {
        return None;
    }
    let mut sum = BTreeMap::<String, u64>::new();
    all.iter().for_each(|p| add_held(&mut sum, &p.gpu_bytes));
    let held = words::describe_held(&sum).unwrap_or_default();
    let why = format!(
        "{} ended and not collected; hold {held}",
        count_noun(all.len(), "process")
    );
    let ruling = if unowned(look) {
        Ruling::new(CleanAct::Stop, CleanRule::Zombies, why)
    } else {
        // Its end would give the memory back, but that is not ours to bring about.
        Ruling::report(CleanRule::Zombies, why)
    };
    Some(ruling.advise("start it with `--init`: a first process that collects the ended ones"))
}

/// Processes that ended runs left in a container of another owner.
fn leftover(look: &ContainerLook) -> Option<Ruling> {
    if look.ours || phase(look) != ContainerPhase::Live {
        return None;
    }
    let left = processes_of(look).filter(|p| {
        let alive = p.state.is_some_and(|s| !matches!(s, 'Z' | 'X' | 'x'));
        alive && p.started.is_some()
    });
    let mut runs = BTreeSet::new();
    let mut number = 0;
    for mark in left.filter_map(|p| p.mark.as_ref()) {
        if mark.owner == Owner::Dead {
            runs.insert(shorten_word(&mark.run_id));
            number += 1;
        }
    }
    if number == 0 {
        return None;
    }
    let runs: Vec<String> = runs.into_iter().collect();
    let why = format!(
        "{} that run {} left in it when it ended",
        count_noun(number, "process"),
        runs.join(", ")
    );
    Some(if look.status == "paused" {
        Ruling::report(CleanRule::Leftover, why)
            .advise("a paused container takes no signal: `docker unpause` it first")
    } else {
        Ruling::new(CleanAct::EndMarked, CleanRule::Leftover, why)
    })
}

/// Why it is kept when nothing speaks for anything else.
fn nothing(look: &ContainerLook) -> Ruling {
    let held = and_holds(look);
    if !look.ours {
        let ruling = Ruling::keep(CleanRule::Foreign, format!("not ours, and not named{held}"));
        return if held.is_empty() || phase(look) != ContainerPhase::Live {
            ruling
        } else {
            ruling.advise("name it, and it is stopped")
        };
    }
    match phase(look) {
        ContainerPhase::Created | ContainerPhase::Ended => Ruling::keep(
            CleanRule::Ended,
            "ours, and nothing runs in it; its owner is not known",
        )
        .advise("name it, and it is removed"),
        _ => {
            let how = match look.health {
                EngineHealth::Well => "its engine answers".to_owned(),
                EngineHealth::Starting => "its engine starts".to_owned(),
                EngineHealth::Ill { .. } if look.past_deadline_s.is_some_and(|past| past < 0) => {
                    "its engine does not answer, yet its deadline is ahead".to_owned()
                }
                EngineHealth::Ill { for_s } => {
                    format!(
                        "its engine was seen not to answer only for {}",
                        format_span(for_s)
                    )
                }
                EngineHealth::Unknown => "nothing is known to be wrong with it".to_owned(),
            };
            let why = format!("ours, its owner is not known, and {how}{held}");
            Ruling::keep(CleanRule::NothingWrong, why).advise("name it, and it is stopped")
        }
    }
}

/// Whether processes run in it that cannot be seen from here. (Between two starts of a container
/// that is `restarting`, none run.)
fn unseen(look: &ContainerLook) -> bool {
    look.processes.is_none() && matches!(look.status.as_str(), "running" | "paused")
}

/// There is a reason to act, and nothing is done because it cannot be seen on what.
fn blind(reason: &Ruling) -> Ruling {
    let why = format!("{}; but its processes cannot be seen from here", reason.why);
    Ruling::report(CleanRule::Unseen, why).advise(
        "run plimsoll on Docker's own host, as root, in its pid namespace; or `docker stop`",
    )
}

/// What shares its pid namespace ends with it: only who names the container means that, and never what is itself kept
/// when it is named.
fn with_sharers(
    ruling: Ruling,
    look: &ContainerLook,
    all: &[ContainerLook],
    chosen: Option<ChosenBy<'_>>,
) -> Ruling {
    if ruling.act != CleanAct::Stop || look.shared_by.is_empty() {
        return ruling;
    }
    let mut sharers = all.iter().filter(|one| look.shared_by.contains(&one.name));
    let kept = sharers.find_map(|one| Some((one, shielded(one, None)?)));
    if let Some((one, shield)) = kept {
        let why = format!(
            "{}; but with it would end {}, which shares its pid namespace: {}",
            ruling.why,
            shorten_word(&one.name),
            shield.why
        );
        return Ruling::report(CleanRule::Shared, why).advise("end that one first");
    }
    let names: Vec<String> = look
        .shared_by
        .iter()
        .map(|name| shorten_word(name))
        .collect();
    let (names, why) = (names.join(", "), &ruling.why);
    if chosen == Some(ChosenBy::Name) {
        let why = format!("{why}; with it ends what shares its pid namespace: {names}");
        return Ruling { why, ..ruling };
    }
    let why = format!("{why}; but with it would end what shares its pid namespace: {names}");
    Ruling::report(CleanRule::Shared, why).advise("end that first, or name this one: both end then")
}

/// Live, ours, and of unknown owner.
fn unowned(look: &ContainerLook) -> bool {
    look.ours && look.owner == Owner::Unknown && phase(look) == ContainerPhase::Live
}

fn processes_of(look: &ContainerLook) -> impl Iterator<Item = &ProcessLook> {
    look.processes.iter().flatten()
}

fn and_holds(look: &ContainerLook) -> String {
    words::and_holds(look.gpu_bytes.as_ref())
}

/// ` (run 0a1b)`, where the label names the run.
fn run_label(look: &ContainerLook) -> String {
    let run = look.labels.get(RUN_LABEL).filter(|run| !run.is_empty());
    run.map_or_else(String::new, |run| format!(" (run {})", shorten_word(run)))
}

/// A word from outside, made harmless and short.
fn shorten_word(word: &str) -> String {
    layout::truncate_text(&layout::clean_text(word, true), 40, "…")
}
