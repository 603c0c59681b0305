//! What the sampler costs and how well it keeps time, on this machine's own cgroup:
//! `cargo bench --bench sampler [-- SECONDS [BUSY_THREADS]]`. It prints figures and judges nothing.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use plimsoll::clock::Clock;
use plimsoll::telemetry::{
    BackendChoice, MeasuredContainer, MemoryBackend, MemorySampler, SamplerOptions, Wanted,
    open_backend,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    // Test runners start every target once; only `cargo bench` says so.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    let length = Duration::from_secs(numbers.first().copied().unwrap_or(20));
    let busy = numbers.get(1).copied().unwrap_or(0);
    let target = MeasuredContainer {
        init_pid: Some(std::process::id()),
        ..MeasuredContainer::default()
    };
    let mut backend = match open_backend(BackendChoice::Host, &target) {
        Ok(backend) => backend,
        Err(e) => return println!("SKIPPED: {e}"),
    };
    readings(backend.as_mut());

    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..busy {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
    }
    println!("\n{:?} each, {busy} threads busy beside it", length);
    println!("interval  probes  client  core share  ticks  missed  jitter p99  longest gap");
    for (interval, probe, client) in [
        (100, 10, false),
        (100, 25, false),
        (100, 10, true),
        (100, 1000, false),
        (10, 10, false),
        (10, 10, true),
    ] {
        let options = SamplerOptions {
            interval: Duration::from_millis(interval),
            probe_interval: Duration::from_millis(probe),
        };
        run(&target, options, client, length);
    }
    stop.store(true, Ordering::Relaxed);
}

fn readings(backend: &mut dyn MemoryBackend) {
    let clock = Clock::start();
    let mut samples = Vec::new();
    let mut used = Vec::new();
    let client = Wanted {
        bench_client: Some(std::process::id()),
        ..Wanted::default()
    };
    println!(
        "probe         {:>7.1} us",
        each(|| drop(backend.probe(&mut used)))
    );
    for (name, wanted) in [("full", Wanted::default()), ("with client", client)] {
        let cost = each(|| {
            samples.clear();
            let _ = backend.sample(&clock, wanted, &mut samples);
        });
        println!("{name:<13} {cost:>7.1} us");
    }
}

fn each(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..5000 {
        f();
    }
    start.elapsed().as_secs_f64() * 1e6 / 5000.0
}

fn run(target: &MeasuredContainer, options: SamplerOptions, client: bool, length: Duration) {
    let Ok(backend) = open_backend(BackendChoice::Host, target) else {
        return;
    };
    let Ok((sampler, samples)) = MemorySampler::start_thread(backend, &Clock::start(), options)
    else {
        return;
    };
    if client {
        sampler.handle().set_bench_client(target.init_pid);
    }
    let reader = std::thread::spawn(move || samples.iter().flatten().count());
    let start = Instant::now();
    std::thread::sleep(length);
    let cpu = cpu_of_sampler().unwrap_or_default().as_secs_f64() / start.elapsed().as_secs_f64();
    let facts = sampler.stop_thread().sampling;
    let _ = reader.join();
    let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
    println!(
        "{:>8}  {:>6}  {:>6}  {:>9.3}%  {:>5}  {:>6}  {:>10}  {:>11}",
        format!("{:?}", options.interval),
        facts
            .probe_interval_ns
            .map_or("none".into(), |ns| format!("{}ms", ns / 1_000_000)),
        if client { "yes" } else { "no" },
        cpu * 100.0,
        facts.ticks,
        facts.missed_ticks,
        facts.jitter_p99_ns.map_or("-".into(), ms),
        ms(facts.longest_gap_ns),
    );
}

/// Time that the sampling thread was on a processor.
fn cpu_of_sampler() -> Option<Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let task = tasks.flatten().find(|t| {
        std::fs::read_to_string(t.path().join("comm")).is_ok_and(|c| c.trim() == "sampler")
    })?;
    let schedstat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
    Some(Duration::from_nanos(
        schedstat.split(' ').next()?.parse().ok()?,
    ))
}
