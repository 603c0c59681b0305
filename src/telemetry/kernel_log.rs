//! What the kernel logged about a container's memory and about GPUs: kills for lack of memory, and
//! faults that a driver reports (`NVRM: Xid`, amdgpu resets).

use crate::capture::{LimitLevel, MemoryLimit};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// A record of `/dev/kmsg` is no longer than this (`CONSOLE_EXT_LOG_MAX` of the kernel), bytes.
const LONGEST_RECORD: usize = 8192;
/// Records that are read at most: the kernel keeps fewer.
const MOST_RECORDS: usize = 1 << 18;
/// Words of lines about a GPU that failed.
const GPU_FAULTS: [&str; 6] = [
    "NVRM: Xid",
    "NVRM: GPU",
    "NV_ERR_NO_MEMORY",
    "amdgpu: GPU reset",
    "GPU reset begin",
    "HW Exception by GPU node",
];

/// A line of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// Wall time, nanoseconds since the Unix epoch.
    pub wall_ns: i64,
    /// The message.
    pub text: String,
}

/// What the kernel's log has of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelEvidence {
    /// The limit that was reached when the kernel last killed one of its processes; the host's
    /// memory where none was.
    pub kill: Option<MemoryLimit>,
    /// Whether the log has all of the time that was looked at, and the cgroup of each kill in it: then no
    /// kill of the container is in it.
    pub complete: bool,
    /// The lines that say so, and those about GPUs.
    pub lines: Vec<String>,
}

/// The kernel's log, the oldest line first.
///
/// # Errors
/// A sentence: it takes root, or `kernel.dmesg_restrict=0`.
pub fn read_kernel_log() -> Result<Vec<KernelLine>, String> {
    let unreadable = |e: Errno| match e {
        Errno::PERM | Errno::ACCESS => {
            "the kernel log: it takes root, or kernel.dmesg_restrict=0".to_owned()
        }
        other => format!("the kernel log: {other}"),
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).map_err(unreadable)?;
    let boot_ns = boot_wall_ns();
    let mut buffer = [0; LONGEST_RECORD];
    let mut lines = Vec::new();
    for _ in 0..MOST_RECORDS {
        match rustix::io::read(&log, &mut buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            // Overwritten while it was read: the next read goes on behind the gap.
            Err(Errno::PIPE | Errno::INTR | Errno::INVAL) => {}
            Ok(length) => lines.extend(parse_record(&buffer[..length], boot_ns)),
            Err(other) => return Err(unreadable(other)),
        }
    }
    Ok(lines)
}

/// The wall time at which the clock of the kernel's log was zero.
fn boot_wall_ns() -> i64 {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let since_boot = monotonic.tv_sec * 1_000_000_000 + i64::from(monotonic.tv_nsec as i32);
    crate::clock::wall_now_ns() - since_boot
}

/// `6,339,5140900,-;text`, with further lines for what the message is about
/// (Documentation/ABI/testing/dev-kmsg of the kernel).
fn parse_record(record: &[u8], boot_ns: i64) -> Option<KernelLine> {
    let text = String::from_utf8_lossy(record);
    let (head, message) = text.split_once(';')?;
    let micros: i64 = head.split(',').nth(2)?.parse().ok()?;
    Some(KernelLine {
        wall_ns: boot_ns.saturating_add(micros.saturating_mul(1000)),
        text: message.lines().next().unwrap_or("").to_owned(),
    })
}

/// Domain, bus and device of the first PCI address in a text: `PCI:0000:01:00`, `00000000:01:00.0`.
fn pci_place(text: &str) -> Option<[u32; 3]> {
    let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != ':');
    words.filter_map(place_in_word).next()
}

fn place_in_word(word: &str) -> Option<[u32; 3]> {
    let mut parts = word.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next()?);
    let lengths = (domain.len(), bus.len(), device.len());
    let number = |part: &str| u32::from_str_radix(part, 16).ok();
    matches!(lengths, (4 | 8, 2, 2)).then_some([number(domain)?, number(bus)?, number(device)?])
}

impl KernelEvidence {
    /// What `log` has of the container `id` between two wall times, nanoseconds. A kill counts only
    /// where the kernel names the container's cgroup, a fault of a GPU unless it is at one of
    /// `other_gpus`, the PCI addresses of GPUs that the container does not have.
    pub fn of_container(
        log: &[KernelLine],
        id: &str,
        (from_ns, to_ns): (i64, i64),
        other_gpus: &[String],
    ) -> KernelEvidence {
        // One that fell off the bus is not listed any more: it may be the container's.
        let others: Vec<_> = other_gpus.iter().filter_map(|gpu| pci_place(gpu)).collect();
        let of_another = |text: &str| pci_place(text).is_some_and(|gpu| others.contains(&gpu));
        let mut found = KernelEvidence {
            // The kernel names cgroups, and one without an id has none of its own.
            complete: !id.is_empty() && log.first().is_some_and(|line| line.wall_ns <= from_ns),
            ..KernelEvidence::default()
        };
        let (mut limit_bytes, mut killed_pid, mut described_pid) = (None, None, None);
        for line in log {
            let text = line.text.as_str();
            if !(from_ns..=to_ns).contains(&line.wall_ns) {
                continue;
            }
            if GPU_FAULTS.iter().any(|sign| text.contains(sign)) && !of_another(text) {
                found.lines.push(text.to_owned());
            }
            if text.contains("invoked oom-killer") {
                (limit_bytes, killed_pid) = (None, None);
            }
            // The level that was full: `memory: usage 409600kB, limit 409600kB, failcnt 54`.
            if let Some(rest) = text.strip_prefix("memory: usage ") {
                limit_bytes = number_behind(rest, "limit ").map(|kb| kb << 10);
            }
            if text.starts_with("oom-kill:") {
                described_pid = field(text, "pid=");
            }
            // Of more than ten kills in 5 s the kernel leaves out the lines that name a cgroup (mm/oom_kill.c).
            if let Some((_, rest)) = text.split_once("ut of memory: Killed process ") {
                let pid = rest.split(' ').next();
                found.complete &= described_pid.take() == pid;
            }
            if text.starts_with("oom-kill:") && text.contains(id) && !id.is_empty() {
                let level = field(text, "oom_memcg=").map(|path| match path.contains(id) {
                    true => LimitLevel::Container,
                    false => LimitLevel::Cgroup(path.to_owned()),
                });
                let (bytes, level) = match level {
                    Some(level) => (limit_bytes, level),
                    None => (crate::host::memory_bytes(), LimitLevel::Host),
                };
                found.kill = bytes.map(|bytes| MemoryLimit { bytes, level });
                killed_pid = field(text, "pid=");
            }
            if killed_pid.is_some_and(|pid: &str| text.contains(&format!("process {pid} "))) {
                found.lines.push(text.to_owned());
                killed_pid = None;
            }
        }
        found
    }
}

/// The value of a field of a line of `oom-kill:`, which are separated by commas.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.split(',').filter_map(|part| part.strip_prefix(name));
    fields.next_back()
}

fn number_behind(text: &str, sign: &str) -> Option<u64> {
    let (_, rest) = text.split_once(sign)?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f1c0ffee5f1c0ffee5f1c0ffee5f1c0ffee5f1c0ffee5f1c0ffee5f1c0ffee0";

    fn log(lines: &[String]) -> Vec<KernelLine> {
        let line = |(at, text): (usize, &String)| KernelLine {
            wall_ns: at as i64,
            text: text.clone(),
        };
        lines.iter().enumerate().map(line).collect()
    }

    fn kill(constraint: &str, memcg: &str, id: &str) -> Vec<String> {
        vec![
            "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0".to_owned(),
            "memory: usage 409600kB, limit 409600kB, failcnt 54".to_owned(),
            format!(
                "oom-kill:constraint={constraint},nodemask=(null),cpuset={id},mems_allowed=0{memcg},task_memcg=/docker/{id},task=python3,pid=4711,uid=0"
            ),
            "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB"
                .to_owned(),
        ]
    }

    #[test]
    fn the_level_that_was_full_is_read_of_a_kill() {
        let of = |memcg: &str| {
            let constraint = if memcg.is_empty() {
                "CONSTRAINT_NONE"
            } else {
                "CONSTRAINT_MEMCG"
            };
            KernelEvidence::of_container(&log(&kill(constraint, memcg, ID)), ID, (0, 9), &[])
        };
        let own = of(&format!(",oom_memcg=/docker/{ID}"));
        let limit = |level| {
            Some(MemoryLimit {
                bytes: 400 << 20,
                level,
            })
        };
        assert_eq!(own.kill, limit(LimitLevel::Container));
        assert!(own.lines[0].contains("Killed process 4711"), "{own:?}");
        let slice = of(",oom_memcg=/llm.slice").kill;
        assert_eq!(slice, limit(LimitLevel::Cgroup("/llm.slice".into())));
        let host = of("").kill.expect("a kill");
        assert_eq!(host.level, LimitLevel::Host);
    }

    #[test]
    fn a_kill_in_another_container_or_at_another_time_is_none() {
        let other = ID.replace('5', "6");
        let memcg = format!(",oom_memcg=/docker/{other}");
        let lines = log(&kill("CONSTRAINT_MEMCG", &memcg, &other));
        let none = KernelEvidence {
            complete: true,
            ..KernelEvidence::default()
        };
        assert_eq!(KernelEvidence::of_container(&lines, ID, (0, 9), &[]), none);
        let overwritten = KernelEvidence::of_container(&lines, ID, (-5, 9), &[]);
        assert!(!overwritten.complete, "the log begins later");
        let lines = log(&kill("CONSTRAINT_NONE", "", ID));
        let late = KernelEvidence::of_container(&lines, ID, (50, 90), &[]);
        assert_eq!(late, none);
    }

    #[test]
    fn a_kill_without_its_cgroup_leaves_the_log_incomplete() {
        let memcg = format!(",oom_memcg=/docker/{ID}");
        let mut lines = log(&kill("CONSTRAINT_MEMCG", &memcg, &ID.replace('5', "6")));
        assert!(KernelEvidence::of_container(&lines, ID, (0, 9), &[]).complete);
        lines.retain(|line| !line.text.starts_with("oom-kill:"));
        let left_out = KernelEvidence::of_container(&lines, ID, (0, 9), &[]);
        assert!(
            left_out.kill.is_none() && !left_out.complete,
            "{left_out:?}"
        );
    }

    #[test]
    fn a_record_has_its_time_and_no_fields() {
        let record = b"4,812,5000000,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n";
        let line = parse_record(record, 1_000).expect("a record");
        assert_eq!(line.wall_ns, 5_000_001_000);
        assert!(line.text.ends_with("off the bus."), "{line:?}");
        assert!(parse_record(b"garbage", 0).is_none());
        let faults = |others: &[&str]| {
            let others: Vec<String> = others.iter().map(|gpu| (*gpu).to_owned()).collect();
            let span = (0, i64::MAX);
            KernelEvidence::of_container(std::slice::from_ref(&line), ID, span, &others).lines
        };
        assert_eq!(
            faults(&["00000000:02:00.0"]),
            std::slice::from_ref(&line.text)
        );
        assert!(faults(&["00000000:02:00.0", "00000000:01:00.0"]).is_empty());
    }
}
