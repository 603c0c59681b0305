//! `plimsoll replay`: a stored run's memory over time, in the terminal.

use super::load::run_until_stopped;
use super::report::capture::read_beside;
use crate::capture::{Capture, DeviceKind, MemorySample, RunEnd};
use crate::cli::ReplayArgs;
use crate::collect::StopSignal;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::profile::{self, Profile};
use crate::report::chart::ChartTimeline;
use crate::report::lanes::{self, CaptureLog};
use crate::report::terminal::{self, TimelineView};
use crate::store::{
    ProfileFile, Recording, StoredCapture, begins_recording, bounded, find_profiles, read_profile,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Stretches of all lanes: a day of one GPU can still be looked into.
const STRETCHES: usize = 1 << 20;
/// Runs of a folder that are named where there are several.
const NAMED: usize = 20;
/// Between two pictures while it is played.
const FRAME: Duration = Duration::from_millis(100);

pub fn run_replay(console: &Console, args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let stored = StoredRun::read_path(&args.path)?;
    let timeline = of_device(stored.timeline, &stored.profile, args.device)?;
    let view = window(&timeline, args)?;
    let about = terminal::describe_run(&stored.name, &stored.profile);
    match args.speed {
        Some(speed) if console.draws_pages() => run_until_stopped(console, None, async |stop| {
            play(console, (&timeline, &about, view), speed, stop).await
        }),
        played => {
            if played.is_some() {
                console.print_note("standard output is not a terminal: the timeline is printed whole, without playing it");
            }
            let page = terminal::render_timeline(&timeline, &about, view, console.text_options());
            console.write_data(page.as_bytes())?;
            Ok(ExitCode::Done)
        }
    }
}

/// Draws the run as it went on, `speed` times as fast.
async fn play(
    console: &Console,
    (timeline, about, view): (&ChartTimeline, &[(String, String)], TimelineView),
    speed: f64,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let from = view.from_s.unwrap_or(timeline.range_s.0);
    let to = view.to_s.unwrap_or(timeline.range_s.1);
    let began = Instant::now();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = stop.token().cancelled() => return Ok(ExitCode::Done),
            _ = frames.tick() => {}
        }
        let now = from + began.elapsed().as_secs_f64() * speed;
        let view = TimelineView {
            until_s: (now < to).then_some(now),
            ..view
        };
        let page = terminal::render_timeline(timeline, about, view, console.text_options());
        if !console.redraw_page(&page)? || view.until_s.is_none() {
            return Ok(ExitCode::Done);
        }
    }
}

/// What is shown of it.
fn window(timeline: &ChartTimeline, args: &ReplayArgs) -> Result<TimelineView, Failure> {
    let (first, last) = timeline.range_s;
    let (from, to) = (args.from.unwrap_or(first), args.to.unwrap_or(last));
    if args.from.is_some() || args.to.is_some() {
        let whole = format!("the run is from second {first:.1} to second {last:.1}");
        if from >= to {
            let message = format!("no sample from second {from} to second {to}");
            return Err(Failure::usage(message).hint(whole));
        }
        if from > last || to < first {
            let message = format!("second {from} to second {to} is not of this run");
            return Err(Failure::usage(message).hint(whole));
        }
    }
    Ok(TimelineView {
        from_s: args.from,
        to_s: args.to,
        until_s: None,
    })
}

/// The lanes of one device, and those that are of none.
fn of_device(
    mut timeline: ChartTimeline,
    profile: &Profile,
    index: Option<u32>,
) -> Result<ChartTimeline, Failure> {
    let Some(index) = index else {
        return Ok(timeline);
    };
    let devices = &profile.gpu_info.devices;
    let Some(device) = devices.iter().find(|d| d.index == index) else {
        let known: Vec<String> = devices.iter().map(|d| d.index.to_string()).collect();
        let failure = Failure::usage(format!("device {index} was not measured in this run"));
        return Err(if known.is_empty() {
            failure
        } else {
            failure.hint(format!("measured were: {}", known.join(", ")))
        });
    };
    let label = match device.kind {
        DeviceKind::Gpu => format!("GPU {index} memory"),
        DeviceKind::HostCgroup => "Container memory".to_owned(),
    };
    timeline
        .lanes
        .retain(|l| l.unit != "GiB" || l.label == label);
    if timeline.lanes.iter().all(|l| l.unit != "GiB") {
        return Err(Failure::usage(format!(
            "the profile has only the sum over its devices, and the readings of device {index} alone are missing"
        ))
        .hint("put the capture, the folder that ends in `.capture`, beside the profile; or leave the device out"));
    }
    Ok(timeline)
}

/// A run as it was stored.
struct StoredRun {
    name: String,
    profile: Box<Profile>,
    timeline: ChartTimeline,
}

impl StoredRun {
    fn read_path(path: &Path) -> Result<StoredRun, Failure> {
        let found = std::fs::metadata(path).map_err(|e| bounded::unreadable_input(path, e))?;
        if !found.is_dir() {
            return StoredRun::of_file(path);
        }
        if ends_in_capture(path) {
            StoredRun::of_capture(path)
        } else {
            StoredRun::of_file(&only_run(path)?)
        }
    }

    fn of_file(path: &Path) -> Result<StoredRun, Failure> {
        if path.is_dir() {
            return StoredRun::of_capture(path);
        }
        if bounded::read_beginning(path, 4096).is_ok_and(|head| begins_recording(&head)) {
            return Ok(StoredRun::of_recording(
                path,
                Recording::read_recording(path)?,
            ));
        }
        let profile = match read_profile(path)? {
            ProfileFile::Profile(profile) => profile,
            ProfileFile::Older(_) => {
                let message = format!("`{}` is of an earlier schema", path.display());
                return Err(Failure::usage(message)
                    .hint("memory over time is read from schema 4.0 on only"));
            }
        };
        Ok(StoredRun::of_profile(path, profile))
    }

    fn of_profile(path: &Path, profile: Box<Profile>) -> StoredRun {
        let timeline = match read_beside(path, &profile, STRETCHES) {
            Some((timeline, _)) => timeline,
            None => lanes::of_profile(&profile),
        };
        StoredRun {
            name: path.display().to_string(),
            profile,
            timeline,
        }
    }

    fn of_capture(folder: &Path) -> Result<StoredRun, Failure> {
        let stored = StoredCapture::open(folder)?;
        let profile = profile::derive_profile(
            &stored.capture,
            stored.read_samples()?,
            stored.read_lines()?,
        );
        Ok(StoredRun::of_profile(folder, Box::new(profile)))
    }

    fn of_recording(path: &Path, recording: Recording) -> StoredRun {
        let header = recording.header;
        let last = recording.samples.iter().map(|s| s.at_ns).max();
        let capture = Capture {
            wall_start_ns: header.wall_start_ns,
            ended_at_ns: last.unwrap_or(0),
            backend: header.backend,
            sampling: recording.sampling.unwrap_or_default(),
            end: RunEnd::Completed,
            ..Capture::default()
        }
        .with_devices(header.devices);
        let samples = || recording.samples.iter().cloned();
        let profile = profile::derive_profile(&capture, samples(), std::iter::empty());
        let samples: Box<dyn Iterator<Item = MemorySample>> = Box::new(samples());
        StoredRun {
            name: path.display().to_string(),
            timeline: lanes::of_capture(
                &capture,
                samples,
                &CaptureLog::default(),
                &profile,
                STRETCHES,
            ),
            profile: Box::new(profile),
        }
    }
}

/// Whether a folder is a capture, whole or left behind.
fn ends_in_capture(folder: &Path) -> bool {
    let named = folder.extension().is_some_and(|e| e == "capture");
    named || folder.join("capture.json").is_file()
}

/// The one run that lies in a folder: its profile, or its capture where it has none.
fn only_run(folder: &Path) -> Result<PathBuf, Failure> {
    let found = find_profiles(std::slice::from_ref(&folder.to_path_buf()))?;
    let mut runs: Vec<PathBuf> = Vec::new();
    for file in found.files {
        if matches!(read_profile(&file), Ok(ProfileFile::Profile(_))) {
            runs.push(file);
        }
        // More are not named, and reading them takes its time.
        if runs.len() > NAMED {
            break;
        }
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut alone: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "capture") && path.is_dir())
        .filter(|path| !runs.contains(&path.with_extension("json")))
        .collect();
    alone.sort();
    runs.extend(alone);
    match runs.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Failure::usage(format!("no run in `{}`", folder.display()))
            .hint("profiles are written by `plimsoll profile` and `run`, to results/ as a rule")
            .hint("for a recording of `plimsoll record`, name the file itself")),
        several => {
            let mut failure = Failure::usage(format!(
                "`{}` holds several runs: name one of these",
                folder.display()
            ));
            for run in several.iter().take(NAMED) {
                failure = failure.hint(run.display().to_string());
            }
            Err(if several.len() > NAMED {
                failure.hint("and more")
            } else {
                failure
            })
        }
    }
}
