//! Ends an exec's processes: SIGTERM, then SIGKILL, and counts them.

use super::exec::argv_of;
use super::exec_state::Code;
use super::processes::Tracker;
use super::{EXEC_VARIABLE, Runtime};
use crate::host::processes::ProcessId;
use bollard::exec::{CreateExecOptions, StartExecResults};
use futures::StreamExt;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Time from SIGKILL to giving up.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Time for leftover processes to end by themselves.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);

/// Maximum output of a helper inside the container, bytes: one pid per line.
const LONGEST_LIST: usize = 1 << 20;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Ends processes with a mark in their environment, from inside the container. The program is
/// constant: `$1` is the signal, `$2` the mark. (`grep -F` of busybox stops at the first NUL.)
const KILL_MARKED: &str = r#"
for d in /proc/[0-9]*; do
  p=${d#/proc/}
  [ "$p" = 1 ] || [ "$p" = $$ ] && continue
  grep -q "$2" "$d/environ" 2>/dev/null && kill -"$1" "$p" 2>/dev/null && echo "$p"
done
true"#;

/// Signals processes from inside the container: `$1` is the signal, the other arguments are
/// `PID:TICKS`, a pid there and its start time in ticks since boot. A reused pid has another start
/// time (the 20th field after the name).
const KILL_PIDS: &str = r#"
s=$1; shift
for w; do
  p=${w%:*}
  read -r line 2>/dev/null <"/proc/$p/stat" || continue
  n=0
  for t in ${line##*) }; do n=$((n+1)); [ $n = 20 ] && break; done
  [ "$t" = "${w#*:}" ] && kill -"$s" "$p" 2>/dev/null && echo "$p"
done
true"#;

pub(super) struct Ending<'a> {
    pub runtime: &'a Runtime,
    pub container: &'a str,
    pub exec_id: &'a str,
    pub mark: &'a str,
    pub tracker: Option<Tracker>,
}

impl Ending<'_> {
    /// Ends the leftover processes of a command that has ended. Returns how many were killed, and
    /// how many survived.
    pub(super) async fn end_leftovers(&mut self) -> (u32, u32) {
        let Some(tracker) = &mut self.tracker else {
            return (0, 0);
        };
        let begin = Instant::now();
        while !tracker.observe_processes().is_empty() {
            if begin.elapsed() > LEFTOVER_GRACE {
                return self.end_everything().await;
            }
            sleep(LOOK).await;
        }
        if tracker.has_unreadable_processes() {
            self.end_from_inside().await
        } else {
            (0, 0)
        }
    }

    /// Ends the command and all of its processes. Returns how many were killed, and how many
    /// survived.
    pub(super) async fn end_everything(&mut self) -> (u32, u32) {
        let (killed, survivors) = self.end_from_host().await;
        if self
            .tracker
            .as_ref()
            .is_none_or(Tracker::has_unreadable_processes)
        {
            let (more, left) = self.end_from_inside().await;
            (killed + more, survivors.max(left))
        } else {
            (killed, survivors)
        }
    }

    async fn end_from_host(&mut self) -> (u32, u32) {
        let Some(tracker) = &mut self.tracker else {
            return (0, 0);
        };
        let begin = Instant::now();
        let mut asked: BTreeSet<ProcessId> = BTreeSet::new();
        let mut report_at = Instant::now() - GRACE;
        let mut quiet = false;
        loop {
            let alive = tracker.observe_processes();
            if alive.is_empty() {
                // An exec that was being started has no process yet: look once more after the
                // daemon reported that it does not run.
                if quiet {
                    return (saturating_count(asked.len()), 0);
                }
                quiet = matches!(
                    timeout(GRACE, self.runtime.exit_code(self.exec_id)).await,
                    Ok(Code::Exited(_) | Code::Gone | Code::Unreported)
                );
            } else {
                quiet = false;
            }
            let kill = begin.elapsed() > GRACE;
            if begin.elapsed() > GRACE + AFTER_KILL {
                // No process is visible, but the daemon reports that the command runs.
                let survivors = alive.len().max(usize::from(!quiet));
                return (
                    saturating_count(asked.iter().filter(|p| !alive.contains(p)).count()),
                    saturating_count(survivors),
                );
            }
            let signal = if kill { Signal::KILL } else { Signal::TERM };
            // SIGTERM once per process; SIGKILL until it is gone.
            let due: Vec<ProcessId> = alive
                .iter()
                .copied()
                .filter(|p| kill || !asked.contains(p))
                .collect();
            let refused = tracker.send_signal(&due, signal);
            asked.extend(due.iter().copied());
            // Without permission to signal it (plimsoll without root): let the container's root do
            // it.
            if !refused.is_empty() && report_at.elapsed() >= Duration::from_millis(500) {
                report_at = Instant::now();
                let mut argv = shell(KILL_PIDS, signal);
                argv.extend(refused.iter().map(|p| format!("{}:{}", p.pid, p.started)));
                self.runtime.lines_inside(self.container, argv).await;
            }
            sleep(LOOK).await;
        }
    }

    /// Without a view from the host: by the mark in the environment, if the image has a shell and
    /// `grep`. A process that overwrote its environment is missed, but then the daemon still
    /// reports that the command runs.
    async fn end_from_inside(&mut self) -> (u32, u32) {
        let begin = Instant::now();
        let mut ended: BTreeSet<String> = BTreeSet::new();
        let mark = format!("{EXEC_VARIABLE}={}", self.mark);
        loop {
            let kill = begin.elapsed() > GRACE;
            let mut argv = shell(KILL_MARKED, if kill { Signal::KILL } else { Signal::TERM });
            argv.push(mark.clone());
            let signalled = self
                .runtime
                .lines_inside(self.container, argv)
                .await
                .unwrap_or_default();
            let code = timeout(Duration::from_secs(1), self.runtime.exit_code(self.exec_id)).await;
            let over = matches!(code, Ok(Code::Exited(_) | Code::Gone));
            let none_left = signalled.is_empty();
            ended.extend(signalled);
            if over && none_left {
                return (saturating_count(ended.len()), 0);
            }
            if begin.elapsed() > GRACE + AFTER_KILL {
                return (saturating_count(ended.len()), u32::from(!over));
            }
            sleep(Duration::from_millis(300)).await;
        }
    }
}

fn saturating_count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn shell(program: &str, signal: Signal) -> Vec<String> {
    let name = if signal == Signal::KILL {
        "KILL"
    } else {
        "TERM"
    };
    argv_of(["sh", "-c", program, "plimsoll", name])
}

impl Runtime {
    /// Output lines of a helper run as root in the container; it carries no mark, so it is not
    /// taken for the command to end. `None` when it could not be run.
    async fn lines_inside(&self, container: &str, argv: Vec<String>) -> Option<Vec<String>> {
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(argv),
            user: Some("0".to_owned()),
            ..Default::default()
        };
        let run = async {
            let docker = self.daemon().ok()?;
            let id = docker.create_exec(container, options).await.ok()?.id;
            let StartExecResults::Attached { mut output, .. } =
                docker.start_exec(&id, None).await.ok()?
            else {
                return None;
            };
            let mut bytes = Vec::new();
            while let Some(Ok(frame)) = output.next().await {
                let room = LONGEST_LIST.saturating_sub(bytes.len());
                let frame = frame.as_ref();
                bytes.extend_from_slice(&frame[..frame.len().min(room)]);
            }
            Some(
                String::from_utf8_lossy(&bytes)
                    .lines()
                    .filter(|l| l.bytes().all(|b| b.is_ascii_digit()))
                    .map(str::to_owned)
                    .collect(),
            )
        };
        timeout(Duration::from_secs(5), run).await.ok()?
    }
}

#[cfg(test)]
#[path = "ending_tests.rs"]
mod tests;
