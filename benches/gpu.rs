//! What sampling eight GPUs costs and what it catches, against the stand-in NVML and replays:
//! `cargo bench --bench gpu [-- SECONDS]`. It prints figures and judges nothing.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use plimsoll::capture::{BackendFacts, DeviceFacts, MemorySample, SamplingFacts};
use plimsoll::clock::Clock;
use plimsoll::live::ledger::WatchLedger;
use plimsoll::live::screen::TopScreen;
use plimsoll::live::{ContainerScan, GpuLook, MemoryScan};
use plimsoll::telemetry::attribution::Attribution;
use plimsoll::telemetry::{
    MemoryBackend, MemorySampler, ReadingError, ReplayBackend, SamplerHandle, SamplerOptions,
    Wanted, open_host, use_library,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const SCENARIO_VARIABLE: &str = "PLIMSOLL_FAKE_NVML";
const ONCE_VARIABLE: &str = "PLIMSOLL_FAKE_NVML_ONCE";
const MS: i64 = 1_000_000;

fn main() {
    // Test runners start every target once; only `cargo bench` says so.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    let seconds = std::env::args().filter_map(|a| a.parse().ok()).next();
    let seconds: u64 = seconds.unwrap_or(60);
    // A scenario is named by the environment, which must be there before the process begins.
    if std::env::var_os(SCENARIO_VARIABLE).is_none() {
        let dir = match tempfile::tempdir() {
            Ok(dir) => dir,
            Err(e) => return println!("SKIPPED: no place for a scenario: {e}"),
        };
        let scenario = dir.path().join("scenario");
        if let Err(e) = std::fs::write(&scenario, eight_gpus()) {
            return println!("SKIPPED: {e}");
        }
        let again = std::env::current_exe().and_then(|exe| {
            Command::new(exe)
                .args(["--bench", &seconds.to_string()])
                .env(SCENARIO_VARIABLE, &scenario)
                .env(ONCE_VARIABLE, "1")
                .status()
        });
        if let Err(e) = again {
            println!("SKIPPED: {e}");
        }
        return;
    }
    attribution();
    redraws();
    spikes();
    use_library(library());
    ticks();
    let per_sample = sampling(seconds);
    for (interval, each) in per_sample {
        against_spawning(interval, each);
    }
}

/// Eight busy GPUs with four processes each.
fn eight_gpus() -> String {
    let mut text = String::new();
    for gpu in 0..8 {
        text += &format!("gpu GPU-0000000{gpu}-aaaa 81559 551 NVIDIA H100 80GB HBM3\n");
    }
    for gpu in 0..8 {
        text += &format!(
            "at 0 gpu {gpu} used=70000 power=690000 temp=66 util=100 sm=1755 mem=2619 memtemp=80\n"
        );
        for pid in ["self", "parent", "2", "3"] {
            text += &format!("at 0 proc {gpu} {pid} 1000\n");
        }
    }
    text
}

/// The stand-in library, built if nothing else has.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let profile = exe.parent().and_then(Path::parent).map(Path::to_owned);
    let profile = profile.unwrap_or_default();
    let _ = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--quiet",
            "--example",
            "fake_nvml",
            "--target-dir",
        ])
        .arg(profile.parent().unwrap_or(&profile))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    profile.join("examples/libfake_nvml.so")
}

/// Processor time of this thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// One reading after the other, so that nothing but their own work is in the figure.
fn ticks() {
    let Ok(mut backend) = open_host() else {
        return println!("SKIPPED: the stand-in library cannot be loaded");
    };
    // Moved by hand, so that what is read less often is due, or not, at every reading.
    let clock = Clock::manual(0);
    let mut samples = Vec::new();
    let mut probed = Vec::new();
    let rounds = 5_000;
    let mut measure = |name: &str, read: &mut dyn FnMut(&mut dyn MemoryBackend)| {
        let cpu = thread_cpu();
        (0..rounds).for_each(|_| read(backend.as_mut()));
        let each = (thread_cpu() - cpu).as_secs_f64() * 1e6 / f64::from(rounds);
        println!("{name:<50} {each:>7.1} us");
    };
    println!("\neight GPUs, processor time per tick (the stand-in's own included)");
    for (name, step_ms, detail) in [
        ("memory alone", 0, false),
        ("memory and gauges: what 200 ms bring", 200, false),
        ("with lists of processes: what a second brings", 1000, false),
    ] {
        measure(name, &mut |b| {
            clock.advance_to(clock.now() + step_ms * MS);
            samples.clear();
            let wanted = Wanted {
                detail,
                ..Wanted::default()
            };
            let _ = b.sample(&clock, wanted, &mut samples);
        });
    }
    measure("probe", &mut |b| drop(b.probe(&mut probed)));
}

/// The whole sampler, threads and channel included. Returns intervals and processor time per tick,
/// without probes.
fn sampling(seconds: u64) -> Vec<(u64, Duration)> {
    println!("\nsampler on eight GPUs");
    println!("interval  probes  length  ticks  rate off  core share  per tick  jitter p99  missed");
    let mut per_sample = Vec::new();
    for (interval, probes, length) in [
        (10, false, seconds),
        (100, true, seconds.min(30)),
        (100, false, seconds.min(30)),
    ] {
        let Ok(backend) = open_host() else {
            return per_sample;
        };
        let options = SamplerOptions {
            interval: Duration::from_millis(interval),
            probe_interval: if probes {
                SamplerOptions::default().probe_interval
            } else {
                Duration::from_secs(1)
            },
        };
        let Ok((sampler, samples)) = MemorySampler::start_thread(backend, &Clock::start(), options)
        else {
            return per_sample;
        };
        let reader = std::thread::spawn(move || samples.iter().flatten().count());
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs(length));
        let wall = start.elapsed();
        let facts: SamplingFacts = sampler.stop_thread().sampling;
        let _ = reader.join();
        let cpu = Duration::from_nanos(facts.cpu_ns.unwrap_or(0));
        let wanted = wall.as_secs_f64() * 1e3 / interval as f64;
        let each = cpu.as_secs_f64() * 1e6 / facts.ticks.max(1) as f64;
        println!(
            "{:>6}ms  {:>6}  {:>5}s  {:>5}  {:>7.2}%  {:>9.3}%  {:>5.1} us  {:>7.2} ms  {:>6}",
            interval,
            facts
                .probe_interval_ns
                .map_or("none".into(), |ns| format!("{}ms", ns / 1_000_000)),
            length,
            facts.ticks,
            (facts.ticks as f64 / wanted - 1.0) * 100.0,
            cpu.as_secs_f64() / wall.as_secs_f64() * 100.0,
            each,
            facts.jitter_p99_ns.unwrap_or(0) as f64 / 1e6,
            facts.missed_ticks,
        );
        if !probes {
            let each = cpu / u32::try_from(facts.ticks.max(1)).unwrap_or(1);
            per_sample.push((interval, each));
        }
    }
    per_sample
}

/// Processor time of this process and of its ended children, from the kernel's ticks of 10 ms.
fn cpu_with_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = rest
        .split_ascii_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|t| t.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// What others do: a program started for every sample. The stub prints what the real one prints
/// for eight GPUs and does nothing else; the real one also takes 10 to 20 ms to start.
fn against_spawning(interval: u64, per_sample: Duration) {
    let Ok(dir) = tempfile::tempdir() else { return };
    let stub = dir.path().join("nvidia-smi");
    let row = "0, GPU-0000, 70000 MiB, 81559 MiB, 690.00 W, 66, 100 %";
    let rows: Vec<&str> = vec![row; 8];
    let script = format!("#!/bin/sh\ncat <<'END'\n{}\nEND\n", rows.join("\n"));
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    if std::fs::write(&stub, script)
        .and_then(|()| std::fs::set_permissions(&stub, executable))
        .is_err()
    {
        return;
    }
    // At the same rate as the sampler: between two samples everything cools down for both.
    let rounds = 300u32;
    let before = cpu_with_children();
    let mut read = 0;
    let start = Instant::now();
    for round in 0..rounds {
        let due = start + Duration::from_millis(interval) * round;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let Ok(out) = Command::new(&stub).stdin(Stdio::null()).output() else {
            return println!("SKIPPED: a stub cannot be run here");
        };
        read += String::from_utf8_lossy(&out.stdout).lines().count();
    }
    let each = (cpu_with_children() - before) / rounds;
    println!(
        "\na stub nvidia-smi per sample, every {interval} ms: {:.0} us of processor time ({} lines read); plimsoll: {:.0} us; {:.0} times less",
        each.as_secs_f64() * 1e6,
        read,
        per_sample.as_secs_f64() * 1e6,
        each.as_secs_f64() / per_sample.as_secs_f64().max(1e-9)
    );
}

/// Ended when dropped.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A thousand processes, two hundred of them on GPUs.
/// What one redraw of `top` costs with eight GPUs and twenty containers.
fn redraws() {
    let container = |n: u64| ContainerScan {
        id: format!("{n:064x}"),
        name: format!("vllm-{n}"),
        engine: Some("vllm".to_owned()),
        serving: true,
        host_bytes: Some(n << 30),
        host_limit_bytes: Some(64 << 30),
        kv_usage: Some(0.5),
        ..ContainerScan::default()
    };
    let gpu = |index: u32| GpuLook {
        index,
        uuid: format!("GPU-{index}"),
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        total_bytes: Some(80 << 30),
        used_bytes: Some(70 << 30),
        ..GpuLook::default()
    };
    let scan = MemoryScan {
        gpus: (0..8).map(gpu).collect(),
        containers: (0..20).map(container).collect(),
        ..MemoryScan::default()
    };
    for (width, height) in [(80, 24), (200, 60)] {
        let mut screen = TopScreen::with_color(true);
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        let mut taken = Vec::new();
        for second in 0..1000 {
            let mut scan = scan.clone();
            scan.timestamp = f64::from(second);
            screen.take_scan(scan, WatchLedger::default());
            let begin = thread_cpu();
            let Ok(_) = terminal.draw(|frame| screen.draw(frame));
            taken.push(thread_cpu().saturating_sub(begin));
        }
        taken.sort_unstable();
        println!(
            "redraw of top at {width}x{height}: median {:.2} ms, p99 {:.2} ms of processor time",
            taken[500].as_secs_f64() * 1e3,
            taken[990].as_secs_f64() * 1e3
        );
    }
}

fn attribution() {
    let mut crowd = Crowd(Vec::new());
    for _ in 0..1000 {
        match Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
        {
            Ok(child) => crowd.0.push(child),
            Err(e) => return println!("SKIPPED: no thousand processes here: {e}"),
        }
    }
    let on_gpus: Vec<_> = crowd
        .0
        .iter()
        .step_by(5)
        .map(|c| (c.id(), Some(1 << 30)))
        .collect();
    println!(
        "attribution: {} processes on the machine, {} on GPUs",
        crowd.0.len(),
        on_gpus.len()
    );
    let mut attribution = Attribution::new(None);
    for name in ["first list", "lists after it"] {
        let rounds = if name == "first list" { 1 } else { 50 };
        let (start, cpu) = (Instant::now(), thread_cpu());
        (0..rounds).for_each(|_| drop(attribution.identify_processes(&on_gpus)));
        println!(
            "  {name:<16} {:>6.2} ms ({:.2} ms of processor time)",
            start.elapsed().as_secs_f64() * 1e3 / f64::from(rounds),
            (thread_cpu() - cpu).as_secs_f64() * 1e3 / f64::from(rounds)
        );
    }
}

/// A replay that knows of edges of phases, and tells the sampler as the engine's log does.
struct WithEdges {
    inner: ReplayBackend,
    sampler: Arc<OnceLock<SamplerHandle>>,
    edges: Vec<i64>,
}

impl WithEdges {
    fn look(&mut self, now: i64) {
        let passed = self.edges.iter().take_while(|e| **e <= now).count();
        if passed > 0 {
            if let Some(sampler) = self.sampler.get() {
                self.edges.drain(..passed);
                sampler.mark_edge();
            }
        }
    }
}

impl MemoryBackend for WithEdges {
    fn facts(&self) -> BackendFacts {
        self.inner.facts()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.inner.devices()
    }

    fn sample(
        &mut self,
        clock: &Clock,
        wanted: Wanted,
        into: &mut Vec<MemorySample>,
    ) -> Result<(), ReadingError> {
        self.look(clock.now());
        self.inner.sample(clock, wanted, into)
    }

    fn probe_floor(&self) -> Option<Duration> {
        self.inner.probe_floor()
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Result<(), ReadingError> {
        self.inner.probe(into)
    }
}

/// 200 spikes of 5 to 200 ms, one a second; half of them begin within 250 ms after the edge of a
/// phase, as loading, pools and warm-up do.
fn spikes() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut trace = vec![sample(0, 1)];
    let (mut spikes, mut edges) = (Vec::new(), Vec::new());
    for k in 0..200i64 {
        let second = (k + 1) * 1000 * MS + random(100 * MS as u64) as i64;
        let length = 5 * MS + random(195 * MS as u64) as i64;
        let at_edge = k % 2 == 0;
        if at_edge {
            edges.push(second);
        }
        let begin = second + random(250 * MS as u64) as i64;
        trace.push(sample(begin, 1000 + k as u64));
        trace.push(sample(begin + length, 1));
        spikes.push((1000 + k as u64, length, at_edge));
    }
    trace.push(sample(203_000 * MS, 1));
    println!("\n200 spikes of 5 to 200 ms: share caught");
    println!(
        "{:<34} {:>6}  {:>8}  {:>8}",
        "", "all", "at edges", "< 50 ms"
    );
    for (name, interval, probes, bursts) in [
        ("100 ms", 100, false, false),
        ("100 ms, probes every 25 ms", 100, true, false),
        ("100 ms, probes, bursts at edges", 100, true, true),
        ("10 ms", 10, false, false),
    ] {
        let caught = run(&trace, if bursts { &edges } else { &[] }, interval, probes);
        let share = |wanted: &dyn Fn(&(u64, i64, bool)) -> bool| {
            let of: Vec<_> = spikes.iter().filter(|s| wanted(s)).collect();
            let seen = of.iter().filter(|s| caught.contains(&s.0)).count();
            format!("{:.0} %", seen as f64 / of.len().max(1) as f64 * 100.0)
        };
        println!(
            "{name:<34} {:>6}  {:>8}  {:>8}",
            share(&|_| true),
            share(&|s| s.2),
            share(&|s| s.1 < 50 * MS)
        );
    }
}

/// Heights that were seen, in a sample or by a probe.
fn run(trace: &[MemorySample], edges: &[i64], interval: u64, probes: bool) -> Vec<u64> {
    let clock = Clock::manual(0);
    let device = DeviceFacts::default();
    // NVML may be probed every 20 ms.
    let floor = probes.then(|| Duration::from_millis(20));
    let handle = Arc::new(OnceLock::new());
    let backend = WithEdges {
        inner: ReplayBackend::new(&clock, vec![device], trace.to_vec()).probed_every(floor),
        sampler: Arc::clone(&handle),
        edges: edges.to_vec(),
    };
    let options = SamplerOptions {
        interval: Duration::from_millis(interval),
        ..SamplerOptions::default()
    };
    let Ok((sampler, samples)) = MemorySampler::start_thread(Box::new(backend), &clock, options)
    else {
        return Vec::new();
    };
    let _ = handle.set(sampler.handle());
    let mut seen: Vec<u64> = samples
        .iter()
        .flatten()
        .flat_map(|s| [s.used_bytes, s.high_bytes.unwrap_or(0)])
        .collect();
    drop(sampler);
    seen.sort_unstable();
    seen.dedup();
    seen
}

fn sample(at_ns: i64, used_bytes: u64) -> MemorySample {
    MemorySample {
        at_ns,
        used_bytes,
        ..MemorySample::default()
    }
}
