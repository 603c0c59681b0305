//! Every way in which an engine misbehaves, on demand: `KIND[=VALUE][@PHASE[:N]]`.

use crate::args::{Flag, Stop, usage};
use crate::memory::Region;
use crate::phases::{Phase, Phases, say};
use crate::{signals, size};
use std::io::Write;
use std::time::Duration;

pub const FLAGS: &[Flag] = &[Flag::optional(
    "fault",
    "KIND[@PHASE[:N]], repeatable; also REFERENCE_FAULT, comma separated. PHASE: as in the log [start].\n\
     \x20                            hang | crash[=CODE] | oom | flood[=SIZE] | orphan[=setsid] | secret |\n\
     \x20                            exit-after-ready=MS | ignore-sigterm | bad-json | no-json",
)];

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Hang,
    Crash(i32),
    Oom,
    /// This many bytes, or until killed.
    Flood(Option<u64>),
    Orphan {
        new_session: bool,
    },
    Secret,
    ExitAfterReady(Duration),
    IgnoreSigterm,
    BadJson,
    NoJson,
}

#[derive(Debug, PartialEq)]
pub struct Fault {
    pub kind: Kind,
    phase: Phase,
    /// It strikes when its phase is entered for the nth time.
    nth: u64,
}

pub fn parse_all<'a>(faults: impl Iterator<Item = &'a str>) -> Result<Vec<Fault>, Stop> {
    faults.map(|text| parse(text).map_err(|why| usage("fault", &format!("{why}: '{text}'")))).collect()
}

fn parse(text: &str) -> Result<Fault, &'static str> {
    let (what, when) = match text.split_once('@') {
        Some((what, when)) => (what, Some(when)),
        None => (text, None),
    };
    let (name, value) = match what.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (what, None),
    };
    let kind = match (name, value) {
        ("hang", None) => Kind::Hang,
        ("crash", None) => Kind::Crash(1),
        ("crash", Some(code)) => Kind::Crash(code.parse::<u8>().map_err(|_| "an exit code is 0 to 255")?.into()),
        ("oom", None) => Kind::Oom,
        ("flood", None) => Kind::Flood(None),
        ("flood", Some(bytes)) => Kind::Flood(Some(size::parse(bytes).map_err(|_| "not a size")?)),
        ("orphan", None) => Kind::Orphan { new_session: false },
        ("orphan", Some("setsid")) => Kind::Orphan { new_session: true },
        ("secret", None) => Kind::Secret,
        ("exit-after-ready", Some(ms)) => {
            let ms: u32 = ms.parse().map_err(|_| "not a number of milliseconds")?;
            Kind::ExitAfterReady(Duration::from_millis(ms.into()))
        }
        ("ignore-sigterm", None) => Kind::IgnoreSigterm,
        ("bad-json", None) => Kind::BadJson,
        ("no-json", None) => Kind::NoJson,
        _ => return Err("unknown fault"),
    };
    let own_time = matches!(kind, Kind::ExitAfterReady(_) | Kind::IgnoreSigterm | Kind::BadJson | Kind::NoJson);
    let (phase, nth) = match when {
        Some(_) if own_time => return Err("this fault takes no phase"),
        None if matches!(kind, Kind::ExitAfterReady(_)) => (Phase::Ready, 1),
        None => (Phase::Start, 1),
        Some(when) => {
            let (phase, nth) = when.split_once(':').unwrap_or((when, "1"));
            let nth = nth.parse().ok().filter(|&n| n > 0).ok_or("not a number from 1")?;
            (Phase::parse(phase).ok_or("unknown phase")?, nth)
        }
    };
    Ok(Fault { kind, phase, nth })
}

impl Fault {
    pub fn is_due(&self, phase: Phase, times: u64) -> bool {
        self.phase == phase && self.nth == times
    }

    /// Returns where the engine goes on, and does not where it cannot.
    pub fn strike(&self, phases: &Phases) {
        match self.kind {
            Kind::Hang => signals::wait_forever(),
            Kind::Crash(code) => crash(code),
            Kind::Oom => fill_the_cgroup(),
            Kind::Flood(bytes) => flood(bytes),
            Kind::Orphan { new_session } => {
                orphan(new_session, phases.has(|fault| fault.kind == Kind::IgnoreSigterm));
            }
            Kind::Secret => match std::env::var("HF_TOKEN") {
                Ok(token) => say(&format!("reference-engine downloading with HF_TOKEN={token}")),
                Err(_) => say("reference-engine HF_TOKEN is not set"),
            },
            Kind::ExitAfterReady(time) => {
                std::thread::spawn(move || {
                    std::thread::sleep(time);
                    crash(1);
                });
            }
            // Asked for where they matter: the signal thread, and the writer of results.
            Kind::IgnoreSigterm | Kind::BadJson | Kind::NoJson => {}
        }
    }
}

/// As real engines do it: the cause stands first, far above what the log ends with.
fn crash(code: i32) -> ! {
    let mut text = String::from(
        "ERROR reference-engine worker: simulated fault: layer 17 does not fit its shard\n\
         ERROR reference-engine executor: a worker ended unexpectedly\n\
         ERROR reference-engine: engine core initialization failed, see root cause above\n",
    );
    for step in 1..=12 {
        text += &format!("INFO reference-engine shutdown: releasing resource {step} of 12\n");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
    std::process::exit(code)
}

/// Only inside a limit: without one it is the host that would run out.
fn fill_the_cgroup() -> ! {
    const FILES: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = FILES.iter().find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    if limit.is_none_or(|bytes| bytes >= 1 << 50) {
        eprintln!("error: fault oom: refused, because this container has no memory limit");
        std::process::exit(3);
    }
    const STEP: usize = 4 << 20;
    loop {
        match Region::reserve(STEP) {
            Ok(mut region) => {
                region.touch(0, STEP);
                std::mem::forget(region);
            }
            Err(why) => {
                eprintln!("error: fault oom: {why}");
                std::process::exit(1);
            }
        }
    }
}

fn flood(bytes: Option<u64>) {
    // Whole lines, many per write: the reader is to be the slow side.
    let line = "reference-engine flood: the quick brown engine logs over the lazy reader, again and again ......\n";
    let block = line.repeat(640);
    let mut left = bytes.unwrap_or(u64::MAX);
    let mut out = std::io::stdout().lock();
    while left > 0 {
        let part = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if out.write_all(&block.as_bytes()[..part]).is_err() {
            break; // nobody reads any more
        }
        left -= part as u64;
    }
    if bytes.is_some_and(|bytes| bytes % line.len() as u64 != 0) {
        let _ = out.write_all(b"\n");
    }
    let _ = out.flush();
}

/// A worker that nobody stops. Like a real one it keeps its parent's output open, and its memory.
fn orphan(new_session: bool, ignores_sigterm: bool) {
    // SAFETY: the child of this threaded process calls async-signal-safe functions only.
    unsafe {
        match libc::fork() {
            0 => {
                if new_session {
                    libc::setsid();
                }
                libc::prctl(libc::PR_SET_NAME, c"ref-orphan".as_ptr());
                if !ignores_sigterm {
                    signals::give_back();
                }
                loop {
                    libc::pause();
                }
            }
            -1 => eprintln!("error: fault orphan: {}", std::io::Error::last_os_error()),
            pid => say(&format!("reference-engine worker pid={pid}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_moments() {
        let of = |text| parse(text).unwrap();
        assert_eq!(of("hang"), Fault { kind: Kind::Hang, phase: Phase::Start, nth: 1 });
        assert_eq!(of("crash@ready"), Fault { kind: Kind::Crash(1), phase: Phase::Ready, nth: 1 });
        let third = Fault { kind: Kind::Crash(0), phase: Phase::BenchIteration, nth: 3 };
        assert_eq!(of("crash=0@bench_iteration:3"), third);
        assert!(!third.is_due(Phase::BenchIteration, 2) && third.is_due(Phase::BenchIteration, 3));
        assert_eq!(of("flood=1MiB").kind, Kind::Flood(Some(1 << 20)));
        assert_eq!(of("orphan=setsid@bench_end").kind, Kind::Orphan { new_session: true });
        assert_eq!(of("exit-after-ready=500").phase, Phase::Ready);
    }

    #[test]
    fn nonsense() {
        for text in ["", "boom", "hang=1", "crash=256", "crash=-1", "crash=", "flood=x", "orphan=x", "exit-after-ready"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["hang@", "hang@noon", "hang@ready:0", "hang@ready:x", "bad-json@ready", "ignore-sigterm@start"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse_all(["boom"].into_iter()).unwrap_err();
        assert_eq!(error, Stop::Usage("argument --fault: unknown fault: 'boom'".into()));
    }
}
