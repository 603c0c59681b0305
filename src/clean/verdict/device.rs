//! Reports on a GPU. Plimsoll never acts on one.

use super::words::{self, Ruling};
use super::{CleanRule, CleanVerdict, VerdictSubject};
use crate::clean::facts::DeviceLook;
use crate::engine::diagnosis::Diagnosis;
use crate::report::layout;
use crate::units::Bytes;

/// Less than this the driver keeps for itself, bytes.
const UNLISTED_BYTES: u64 = 256 << 20;
/// A process that just starts or ends is not listed for a moment.
const UNLISTED_READINGS: u32 = 3;
/// Most processes that are named.
const SHOWN: usize = 5;

/// `None` where there is nothing to report.
pub(super) fn judge_device(look: &DeviceLook) -> Option<CleanVerdict> {
    let ruling = broken(look)
        .or_else(|| mps(look))
        .or_else(|| unlisted(look))?;
    let name = if look.name.is_empty() {
        look.id.clone()
    } else {
        format!("{} ({})", look.name, look.id)
    };
    Some(ruling.into_verdict(VerdictSubject::Device(look.id.clone()), name))
}

fn broken(look: &DeviceLook) -> Option<Ruling> {
    let what = look.broken.as_deref()?;
    let found = Diagnosis::of_text(what);
    let means = found.means.as_deref().filter(|_| found.names_failure());
    let advice = found.advice.first().filter(|_| means.is_some());
    let advice = advice.map_or("look into the kernel's log for what it reports", |a| {
        &a.text
    });
    let means = means.map_or(String::new(), |means| format!("{means}: "));
    let why = format!("it is broken: {means}{}", layout::clean_text(what, true));
    let advice = format!("{advice}; a person has to, plimsoll does not");
    Some(Ruling::report(CleanRule::DeviceBroken, why).advise(advice))
}

fn mps(look: &DeviceLook) -> Option<Ruling> {
    let used = match look.used_bytes {
        Some(bytes) => format!("; {} in use", Bytes(bytes)),
        None => String::new(),
    };
    let why =
        format!("CUDA's MPS server runs on it: its memory belongs to that server's clients{used}");
    let advice = "end a client by itself, or through `terminate_client` of \
                  `nvidia-cuda-mps-control`; never the server first";
    look.mps
        .then(|| Ruling::report(CleanRule::Mps, why).advise(advice))
}

fn unlisted(look: &DeviceLook) -> Option<Ruling> {
    let bytes = look
        .unlisted_bytes
        .filter(|bytes| *bytes > UNLISTED_BYTES)?;
    if look.unlisted_readings < UNLISTED_READINGS {
        return None;
    }
    let (bytes, readings) = (Bytes(bytes), look.unlisted_readings);
    let why = format!("{bytes} that no listed process holds, at {readings} readings in a row");
    if !look.open_by.is_empty() {
        let holders = look.open_by.iter().map(words::describe_holder);
        let mut all: Vec<String> = holders.take(SHOWN).collect();
        if let more @ 1.. = look.open_by.len().saturating_sub(SHOWN) {
            all.push(format!("{more} more"));
        }
        let why = format!("{why}; it is open in {}", all.join("; "));
        let advice = "one of these may hold it: ask their users";
        return Some(Ruling::report(CleanRule::UnlistedMemory, why).advise(advice));
    }
    let nvidia = look.id.starts_with("GPU-") || look.id.starts_with("MIG-");
    let advice = if nvidia {
        "a process of another pid namespace or virtual machine may hold it; else the driver \
             has lost it, and only a reset by a person gives it back"
    } else {
        "a stale context of the kernel's KFD may hold it; else the driver has lost it, and \
             only a reset or a boot by a person gives it back"
    };
    let why = format!("{why}; no process has it open");
    Some(Ruling::report(CleanRule::UnlistedMemory, why).advise(advice))
}
