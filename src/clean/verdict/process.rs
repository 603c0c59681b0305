//! What is to be done about a process that holds memory in no container that Docker knows.

use super::words::{self, Ruling};
use super::{CleanAct, CleanRule, CleanVerdict, VerdictSubject};
use crate::clean::facts::{ProcessLook, Survey};
use crate::clean::never;
use crate::container::leftovers::Owner;

/// Shortest form of an id that still names one container.
const SHORT_ID: usize = 12;

/// `None` for one that is in a container of the survey: that is judged as a whole.
pub(super) fn judge_process(look: &ProcessLook, survey: &Survey) -> Option<CleanVerdict> {
    let ruling = match shielded(look) {
        Some(ruling) => ruling,
        None if in_known_container(look, survey) => return None,
        None => orphan(look).unwrap_or_else(|| foreign(look)),
    };
    Some(ruling.into_verdict(
        VerdictSubject::Process(look.pid, look.started),
        words::describe_process(look),
    ))
}

fn shielded(look: &ProcessLook) -> Option<Ruling> {
    if let Some(what) = never::never_ended_because(look) {
        let why = format!("it {what}{}", words::and_holds(Some(&look.gpu_bytes)));
        return Some(Ruling::keep(CleanRule::NeverTouched, why));
    }
    if let Some(who) = never::ruler_of_process(look) {
        let why = format!("{who} rules it{}", words::and_holds(Some(&look.gpu_bytes)));
        return Some(Ruling::keep(CleanRule::RuledByOthers, why));
    }
    let mark = look.mark.as_ref().filter(|m| m.owner == Owner::Alive)?;
    let why = format!("run {} started it, and lives", mark.run_id);
    Some(Ruling::keep(CleanRule::OwnerLives, why))
}

/// Whether its cgroup is that of a container in the survey, or lies in one: of nested containers
/// the daemon knows the outer one.
fn in_known_container(look: &ProcessLook, survey: &Survey) -> bool {
    let inner = look.container.as_deref();
    survey.containers.iter().any(|known| {
        let id = known.id.as_str();
        let same = inner.is_some_and(|inner| {
            let short = inner.len().min(id.len());
            inner == id || short >= SHORT_ID && inner.get(..short) == id.get(..short)
        });
        let around = id.len() >= SHORT_ID && look.cgroup.as_ref().is_some_and(|c| c.contains(id));
        same || around
    })
}

/// The ruling on a process of a container that plimsoll started; `None` where it is not in one, or
/// that is not known.
fn orphan(look: &ProcessLook) -> Option<Ruling> {
    let record = look.record.as_ref()?;
    if look.container.as_deref() != Some(record.container.as_str()) || record.container.is_empty() {
        return None;
    }
    let held = words::and_holds(Some(&look.gpu_bytes));
    let keep_because = |lack: &str| {
        let why = format!(
            "outlived `{}`, which plimsoll started, but {lack}",
            record.name
        );
        Some(Ruling::report(CleanRule::Orphan, why + &held))
    };
    match record.owner {
        Owner::Alive => {
            let why = format!("the plimsoll that started `{}` lives", record.name);
            return Some(Ruling::keep(CleanRule::OwnerLives, why));
        }
        Owner::Unknown => return keep_because("whether its owner lives is not known"),
        Owner::Dead => {}
    }
    if look.cgroup.is_none() {
        return keep_because("its cgroup could not be read");
    }
    let reused = |lack: &str| {
        let why = format!(
            "has the number of a process of `{}`, but {lack}",
            record.name
        );
        Some(Ruling::keep(CleanRule::PidReused, why))
    };
    match look.started {
        None => return reused("when it started is not known"),
        Some(started) if started < record.started => return reused("is older than that container"),
        Some(_) => {}
    }
    if let Some(thread) = words::longest_stuck(look) {
        let ruling = Ruling::report(CleanRule::Uninterruptible, words::stuck_why(look, thread));
        return Some(ruling.advise(words::STUCK_ADVICE));
    }
    match look.state {
        Some('Z' | 'X' | 'x') => {
            let why = format!("has ended, and its parent does not collect it{held}");
            let parent = look.parent.map(|pid| format!(" (pid {pid})"));
            let advice = format!("end its parent{}", parent.unwrap_or_default());
            Some(Ruling::report(CleanRule::Zombies, why).advise(advice))
        }
        Some('D') => keep_because("nothing can interrupt it now"),
        None => keep_because("its state could not be read"),
        Some(_) if !look.shared_by.is_empty() => {
            let pids: Vec<String> = look.shared_by.iter().map(u32::to_string).collect();
            let (name, pids) = (&record.name, pids.join(", "));
            let why = format!(
                "outlived `{name}`, which plimsoll started, but with it would end what shares its \
                 pid namespace: pid {pids}{held}"
            );
            Some(Ruling::report(CleanRule::Shared, why).advise("end that first"))
        }
        Some(_) => {
            let why = format!(
                "outlived `{}`, which plimsoll started with this Docker daemon; the daemon no \
                 longer knows it, and its owner has ended{held}",
                record.name
            );
            Some(Ruling::new(CleanAct::EndProcess, CleanRule::Orphan, why))
        }
    }
}

fn foreign(look: &ProcessLook) -> Ruling {
    let held = words::describe_held(&look.gpu_bytes).unwrap_or_else(|| "GPU memory".into());
    let why = format!(
        "{} holds {held}, and is not ours",
        words::describe_holder(look)
    );
    let ruling = Ruling::report(CleanRule::Foreign, why);
    match words::longest_stuck(look) {
        Some(thread) => {
            let stuck = words::stuck_why(look, thread);
            ruling.advise(format!("{stuck}: {}", words::STUCK_ADVICE))
        }
        None => ruling.advise("ask its user to end it"),
    }
}
