//! The parts that verdicts and their sentences are made of.

use super::{CleanAct, CleanRule, CleanVerdict, VerdictSubject};
use crate::clean::facts::{ProcessLook, StuckThread, total_bytes};
use crate::report::layout;
use crate::units::Bytes;
use std::collections::BTreeMap;

/// Threads that nothing can interrupt for less than this merely wait for a disk, seconds.
const STUCK_S: u64 = 60;
/// Longest command line in a sentence.
const COMMAND_CELLS: usize = 80;

/// A decision without what it is of.
#[derive(Debug)]
pub(super) struct Ruling {
    pub act: CleanAct,
    pub rule: CleanRule,
    pub why: String,
    pub advice: Option<String>,
}

impl Ruling {
    pub fn new(act: CleanAct, rule: CleanRule, why: impl Into<String>) -> Ruling {
        Ruling {
            act,
            rule,
            why: why.into(),
            advice: None,
        }
    }

    pub fn keep(rule: CleanRule, why: impl Into<String>) -> Ruling {
        Ruling::new(CleanAct::Keep, rule, why)
    }

    pub fn report(rule: CleanRule, why: impl Into<String>) -> Ruling {
        Ruling::new(CleanAct::Report, rule, why)
    }

    pub fn advise(mut self, advice: impl Into<String>) -> Ruling {
        self.advice = Some(advice.into());
        self
    }

    pub fn into_verdict(self, of: VerdictSubject, name: String) -> CleanVerdict {
        CleanVerdict {
            of,
            name,
            act: self.act,
            rule: self.rule,
            why: self.why,
            advice: self.advice,
        }
    }
}

/// A length of time.
pub(super) fn format_span(seconds: u64) -> String {
    layout::format_duration(seconds as f64)
}

/// `21.30 GiB on GPU-0a1b`, `42.60 GiB on 2 GPUs`; `None` where nothing is known to be held.
pub(super) fn describe_held(gpu_bytes: &BTreeMap<String, u64>) -> Option<String> {
    let bytes = Bytes(total_bytes(gpu_bytes));
    let mut on = gpu_bytes.iter().filter(|(_, bytes)| **bytes > 0);
    match (on.next(), on.count()) {
        (None, _) => None,
        (Some((device, _)), 0) => Some(format!("{bytes} on {device}")),
        (Some(_), more) => Some(format!("{bytes} on {} GPUs", more + 1)),
    }
}

/// The same as the end of a sentence: `; holds 21.30 GiB on GPU-0a1b`, or nothing.
pub(super) fn and_holds(gpu_bytes: Option<&BTreeMap<String, u64>>) -> String {
    let held = gpu_bytes.and_then(describe_held);
    held.map_or_else(String::new, |held| format!("; holds {held}"))
}

/// `pid 7 (python3)`.
pub(super) fn describe_process(process: &ProcessLook) -> String {
    let name = layout::clean_text(&process.name, true);
    format!("pid {} ({name})", process.pid)
}

/// `pid 7 (python3) of user 1000, `python3 -m x``.
pub(super) fn describe_holder(process: &ProcessLook) -> String {
    let mut text = describe_process(process);
    if let Some(uid) = process.uid {
        text += &format!(" of user {uid}");
    }
    let command = layout::clean_text(process.command.trim(), true);
    if !command.is_empty() {
        let command = layout::truncate_text(&command, COMMAND_CELLS, "…");
        text += &format!(", `{command}`");
    }
    text
}

/// A thread of the process that nothing can interrupt for too long: the one for the longest time.
pub(super) fn longest_stuck(process: &ProcessLook) -> Option<&StuckThread> {
    let long = process.stuck.iter().filter(|t| t.for_s >= STUCK_S);
    long.max_by_key(|t| (t.for_s, std::cmp::Reverse(t.tid)))
}

/// The sentence on such a thread.
pub(super) fn stuck_why(process: &ProcessLook, thread: &StuckThread) -> String {
    let place = match thread.waits_in.as_deref() {
        Some(place) => format!("waits in {}", layout::clean_text(place, true)),
        None => "waits in the kernel".into(),
    };
    let (tid, time) = (thread.tid, format_span(thread.for_s));
    format!(
        "thread {tid} of {} {place} for {time}",
        describe_process(process)
    )
}

/// What a person can do about such a thread.
pub(super) const STUCK_ADVICE: &str = "no signal can end it: look into the kernel's log for a GPU \
     that is lost (Xid 79), and at mounts whose server is gone (NFS, FUSE)";
