//! One process that outlived its container: ended through a descriptor that cannot come to mean
//! another one.

use super::namespace::Namespaces;
use super::process::own_ancestors;
use super::processes::container_cgroup;
use crate::host::processes::{ProcessId, parse_cgroup, read_cgroups, read_name};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A process as it was judged.
#[derive(Debug, Clone, Copy)]
pub struct Stray<'a> {
    /// Which.
    pub id: ProcessId,
    /// Its name (`comm`): what runs another program by now was not judged.
    pub name: &'a str,
    /// Id of the container of its cgroup.
    pub container: &'a str,
}

/// How its end came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrayEnd {
    /// It has ended.
    Ended {
        /// Whether it took SIGKILL.
        killed: bool,
        /// From the first signal on.
        after: Duration,
    },
    /// It was gone already, or its number is another process' by now: nothing was signalled.
    Gone,
    /// It is not what was judged any more: nothing was signalled.
    Changed(String),
    /// It is still there: a sentence.
    Survived(String),
}

/// Ends a process if it is still the one that was examined: SIGTERM, after `grace` SIGKILL, both
/// through the same descriptor. After another `grace` it gives up.
pub async fn end_stray(stray: Stray<'_>, grace: Duration) -> StrayEnd {
    let pid = i32::try_from(stray.id.pid).ok().filter(|p| *p > 1);
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return StrayEnd::Changed("it is not a process of this host".into());
    };
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return StrayEnd::Gone,
        Err(e) => {
            return StrayEnd::Survived(format!("the process cannot be opened to end it: {e}"));
        }
    };
    // The descriptor holds whoever has the number now; only then is it checked who that is.
    if !stray.id.is_alive() {
        return StrayEnd::Gone;
    }
    let began = Instant::now();
    for signal in [Signal::TERM, Signal::KILL] {
        // What was asked to end may be something else by the time it is killed.
        if let Some(why) = changed(&stray).filter(|_| stray.id.is_alive()) {
            return if signal == Signal::KILL {
                StrayEnd::Survived(format!("it got SIGTERM, and no SIGKILL: {why}"))
            } else {
                StrayEnd::Changed(why)
            };
        }
        match pidfd_send_signal(&fd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return StrayEnd::Survived(format!("it cannot be signalled: {e}")),
        }
        let until = Instant::now() + grace;
        while stray.id.is_alive() && Instant::now() < until {
            sleep(LOOK).await;
        }
        if !stray.id.is_alive() {
            return StrayEnd::Ended {
                killed: signal == Signal::KILL,
                after: began.elapsed(),
            };
        }
    }
    StrayEnd::Survived(format!(
        "it is still there {} s after SIGKILL",
        grace.as_secs()
    ))
}

/// Why it is not what was judged any more.
fn changed(stray: &Stray<'_>) -> Option<String> {
    let pid = stray.id.pid;
    if own_ancestors().contains(&pid) {
        return Some("plimsoll runs below it".into());
    }
    let name = read_name(pid);
    if name != stray.name {
        return Some(format!("it is `{name}` by now"));
    }
    let cgroups = read_cgroups(pid);
    // Hybrid hosts have the id in some of the lines only.
    let in_it = parse_cgroup(&cgroups).any(|l| container_cgroup(l.path, stray.container).is_some());
    if !in_it {
        return Some("it is not in the container's cgroup any more".into());
    }
    match Namespaces::read().pid_sharers(pid, stray.container) {
        Some(others) => others_why(&others),
        None => Some("who else is in its pid namespace cannot be seen from here".into()),
    }
}

/// Why nothing ends that takes these processes with it.
pub fn others_why(others: &[u32]) -> Option<String> {
    let all: Vec<String> = others.iter().map(|pid| process_name(*pid)).collect();
    let all = all.join(", ");
    (!others.is_empty()).then(|| format!("{all} in its pid namespace would end with it"))
}

/// `pid 7 (sleep)`.
pub fn process_name(pid: u32) -> String {
    format!("pid {pid} ({})", read_name(pid))
}
