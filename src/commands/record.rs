//! `plimsoll record`: a session of device samples, to be replayed.

use super::load::run_stoppable;
use crate::capture::{MemorySample, SamplingFacts};
use crate::cli::{LogArgs, RecordArgs};
use crate::clock::Clock;
use crate::collect::{StopSignal, find_running, unless_stopped};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::profile::DeviceGrowth;
use crate::progress::{Progress, Stage};
use crate::store::{RecordingHeader, RecordingWriter};
use crate::telemetry::{
    self, BackendChoice, MeasuredContainer, MemoryBackend, MemorySampler, SamplerOptions, Stopped,
};
use crate::wording::count_noun;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Between two times that everything is handed to the system: what a crash loses at most.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

pub fn run_record(console: &Console, args: &RecordArgs) -> anyhow::Result<ExitCode> {
    run_stoppable(console, async |stop| {
        record_samples(console, args, stop).await
    })
}

async fn record_samples(
    console: &Console,
    args: &RecordArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let backend = open_backend(args, stop).await?;
    let clock = Clock::start();
    let facts = backend.facts();
    let header = RecordingHeader {
        plimsoll_version: env!("CARGO_PKG_VERSION").into(),
        wall_start_ns: clock.wall_start_ns,
        interval_ns: u64::try_from(args.interval.as_nanos()).unwrap_or(u64::MAX),
        devices: backend.devices(),
        backend: facts.clone(),
        ..RecordingHeader::default()
    };
    let simulated = if facts.simulated { " (simulated)" } else { "" };
    console.print_note(&format!(
        "recording {} by {}{simulated}: {}",
        count_noun(header.devices.len(), "device"),
        facts.name,
        facts.reason
    ));
    let devices = header.devices.clone();
    let writer = RecordingWriter::create_file(&args.output, header)?;
    let options = SamplerOptions {
        interval: args.interval,
        ..SamplerOptions::default()
    };
    (console.sink())(Progress::Stage(Stage::Observe));
    let (sampler, samples) = MemorySampler::start_thread(backend, &clock, options)?;
    // A burst at the start, where there is most to see: who is there, and every gauge.
    sampler.handle().sample_now();
    let full_disk = stop.clone();
    let writing = std::thread::spawn(move || {
        let result = write_samples(writer, &samples);
        if result.is_err() {
            full_disk.token().cancel();
        }
        result
    });
    tokio::select! {
        () = wait_for(args.duration) => {}
        () = stop.token().cancelled() => {}
    }
    sampler.handle().sample_now();
    let Stopped { sampling, .. } = sampler.stop_thread();
    let written = writing
        .join()
        .map_err(|_| Failure::bug("the thread that writes the recording panicked"))?;
    let (writer, count, growth) = written?;
    for event in &sampling.events {
        console.print_warning(&event.message);
    }
    let missed = sampling.missed_ticks + sampling.backed_off_ticks;
    let failed = failed_readings(&sampling);
    writer.finish_recording(sampling)?;
    console.finish_drawing();
    console.print_note(&format!(
        "{count} samples ({missed} ticks missed): {}",
        args.output.display()
    ));
    for sentence in growth.describe_devices(&devices) {
        console.print_note(&sentence);
    }
    match failed {
        Some(failure) => Err(failure.into()),
        None => Ok(ExitCode::Done),
    }
}

/// Readings that failed: the recording of a container that ended reports them.
fn failed_readings(sampling: &SamplingFacts) -> Option<Failure> {
    let failed = sampling.failed_readings;
    if failed == 0 {
        return None;
    }
    let last = sampling.last_error.as_deref().unwrap_or("no reason known");
    Some(
        Failure::run(format!(
            "{failed} reading(s) failed, the last: {last}; the recording lacks them"
        ))
        .hint("did the container end meanwhile? see `docker ps -a`"),
    )
}

async fn wait_for(duration: Option<Duration>) {
    match duration {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn open_backend(
    args: &RecordArgs,
    stop: &StopSignal,
) -> Result<Box<dyn MemoryBackend>, Failure> {
    let target = args
        .process
        .target(args.container.as_deref(), &LogArgs::default());
    match target {
        None if args.memory_backend != BackendChoice::Auto => Err(Failure::usage(
            "--memory-backend needs an engine, and none is named",
        )
        .hint("name it: --container NAME, --pid, --cgroup or --pod")),
        None => telemetry::open_host()
            .map_err(|f| f.hint("to record a container's host memory: --container NAME")),
        Some(target) => {
            let runtime = target.open_runtime(stop).await?;
            let found = unless_stopped(stop, find_running(&runtime, &target.wanted())).await?;
            telemetry::open_with_host(
                args.memory_backend,
                &MeasuredContainer::of_container(&found.facts),
            )
        }
    }
}

/// Writes the samples that come until there are no more; the file, and how many there were.
fn write_samples(
    mut writer: RecordingWriter,
    samples: &Receiver<Vec<MemorySample>>,
) -> Result<(RecordingWriter, u64, DeviceGrowth), Failure> {
    let (mut count, mut flushed) = (0, Instant::now());
    let mut growth = DeviceGrowth::default();
    loop {
        if flushed.elapsed() >= FLUSH_EVERY {
            flushed = Instant::now();
            writer.flush_file()?;
        }
        match samples.recv_timeout(FLUSH_EVERY) {
            Ok(read) => {
                for sample in read {
                    writer.write_sample(&sample)?;
                    growth.add_sample(&sample);
                    count += 1;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok((writer, count, growth)),
        }
    }
}
