//! A day, compressed: what plimsoll holds does not grow with the time that it runs.

use super::common::e2e::{Live, plimsoll, read, wait_for};
use super::{cleaning, median, number, of_status, open_files, rss_kib, say, slope};
use cleaning::World;
use plimsoll::capture::{BackendFacts, Capture, DeviceFacts, MemorySample};
use plimsoll::clock::Clock;
use plimsoll::store::{CaptureWriter, RecordingHeader, RecordingWriter};
use plimsoll::telemetry::{MemorySampler, ReplayBackend, SamplerOptions};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// Hours that are lived through: `PLIMSOLL_SOAK_HOURS`, or a few.
fn hours(few: u64) -> i64 {
    number("PLIMSOLL_SOAK_HOURS").unwrap_or(few) as i64
}

/// The sampler on a clock that goes as fast as it can: the recorded session of an hour, played again
/// for each hour, read every 100 ms and probed in between, written as `record` writes it.
#[test]
fn the_sampler_for_a_day() {
    let hours = hours(2);
    let device = DeviceFacts {
        total_bytes: Some(80 << 30),
        ..DeviceFacts::default()
    };
    // It ends when the clock is past its last sample.
    let played: Vec<MemorySample> = (0..=hours * 60)
        .map(|minute| MemorySample {
            at_ns: minute * 60 * SECOND,
            used_bytes: (10 << 30) + ((minute as u64 * 7919) % 1000) * (1 << 20),
            ..MemorySample::default()
        })
        .collect();
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("session.jsonl");
    let clock = Clock::manual(0);
    let replay = ReplayBackend::new(&clock, vec![device.clone()], played);
    let header = RecordingHeader {
        backend: BackendFacts::default(),
        devices: vec![device],
        ..RecordingHeader::default()
    };
    let mut writer = RecordingWriter::create_file(&path, header).expect("file");
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay), &clock, SamplerOptions::default())
            .expect("sampler");
    let me = std::process::id();
    let (mut rss, mut files, mut count, mut next) = (Vec::new(), Vec::new(), 0_u64, HOUR / 4);
    while let Ok(read) = samples.recv_timeout(Duration::from_secs(60)) {
        for sample in read {
            writer.write_sample(&sample).expect("written");
            count += 1;
            if sample.at_ns >= next {
                next += HOUR / 4;
                rss.push(rss_kib(me).expect("VmRSS") as f64);
                files.push(open_files(me).expect("fd"));
            }
        }
    }
    let facts = sampler.stop_thread().sampling;
    writer.finish_recording(facts.clone()).expect("written");
    assert_eq!(
        count as i64,
        hours * 36_000 + 1,
        "ten a second, none missed"
    );
    assert_eq!((facts.missed_ticks, facts.failed_readings), (0, 0));
    let (first, last) = (rss[rss.len() / 8], rss[rss.len() - 1]);
    say(&format!(
        "sampler: {hours} h, {count} samples, {:.0} MiB at an eighth, {:.0} MiB at the end; files {:?}",
        first / 1024.0,
        last / 1024.0,
        files.iter().max()
    ));
    assert!(files.windows(2).all(|w| w[0] == w[1]), "{files:?}");
    // A sample is some 200 bytes: kept, those of a day would be 170 MiB.
    assert!(last - first < 4096.0, "{rss:?} KiB");
}

/// A capture as long as that, of a load that comes and goes.
fn long_capture(folder: &Path, hours: i64) -> u64 {
    let example = std::fs::read_dir("results/example").expect("results/example");
    let example = example.flatten().map(|e| e.path());
    let example = example
        .into_iter()
        .find(|p| p.extension().is_some_and(|e| e == "capture"));
    let example = example.expect("a capture");
    let mut capture: Capture =
        serde_json::from_value(read(&example.join("capture.json"))).expect("a capture");
    let text = std::fs::read_to_string(example.join("samples.jsonl")).expect("samples");
    let samples: Vec<MemorySample> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("a sample"))
        .collect();
    std::fs::create_dir(folder).expect("folder");
    let mut writer = CaptureWriter::create_folder(folder, 64 << 20).expect("writer");
    let (mut count, end) = (0_u64, hours * HOUR);
    let devices: Vec<u32> = capture.devices.iter().map(|d| d.index).collect();
    for tick in 0..end / (SECOND / 10) {
        for device in &devices {
            let like = &samples[(tick as usize * 31) % samples.len()];
            writer.write_sample(&MemorySample {
                at_ns: tick * SECOND / 10,
                device: *device,
                ..like.clone()
            });
            count += 1;
        }
    }
    let shift = end - capture.ended_at_ns;
    if let Some(last) = capture.marks.last_mut() {
        last.at_ns += shift;
    }
    capture.ended_at_ns = end;
    writer.finish_capture(&capture).expect("capture");
    count
}

/// Runs it to its end; the most memory that it had, KiB.
fn peak_kib(args: &[&str]) -> u64 {
    let mut live = Live::start(plimsoll(args));
    let mut peak = 0;
    while live.is_running() {
        peak = of_status(live.pid(), "VmHWM:").unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    live.end().expect(0);
    peak
}

#[test]
fn a_day_is_derived_and_reported_within_bounds() {
    let hours = hours(2);
    let dir = tempfile::tempdir().expect("tempdir");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let long = path("long.capture");
    let samples = long_capture(Path::new(&long), hours);
    let derive = peak_kib(&["derive", &long]);
    let report = peak_kib(&[
        "report",
        &path("long.json"),
        "--output",
        &path("report.html"),
    ]);
    let size = std::fs::metadata(path("report.html"))
        .expect("report")
        .len();
    let per_sample = |kib: u64| kib as f64 * 1024.0 / samples as f64;
    say(&format!(
        "{hours} h, {samples} samples: derive {} MiB, report {} MiB ({:.0} and {:.0} bytes a sample), report.html {} KiB",
        derive >> 10,
        report >> 10,
        per_sample(derive),
        per_sample(report),
        size >> 10
    ));
    // Columns: a parsed sample is larger, and its line of JSON is as large again.
    let bound = |kib: u64| kib << 10 <= (96 << 20) + samples * 400;
    assert!(bound(derive) && bound(report), "{derive} and {report} KiB");
    assert!(size < 4 << 20, "thinned, whatever the length: {size} bytes");
}

// ---- services

/// What a service holds after each of its looks.
struct Watched {
    rss: Vec<f64>,
    files: Vec<f64>,
    /// Files that are open once what was open for a while is closed.
    left: f64,
}

/// A connection that was kept for another request is closed within this time (hyper keeps an idle one for 90 s).
const CLOSED_WITHIN: Duration = Duration::from_secs(150);

impl Watched {
    /// Looks so often at a process, after each time that `look` was brought to an end.
    fn through(live: &mut Live, looks: usize, mut look: impl FnMut()) -> Watched {
        let mut watched = Watched {
            rss: Vec::new(),
            files: Vec::new(),
            left: 0.0,
        };
        // Libraries are loaded and buffers grow.
        (0..4).for_each(|_| look());
        for _ in 0..looks {
            look();
            assert!(live.is_running(), "{}", live.stderr());
            watched.rss.push(rss_kib(live.pid()).expect("VmRSS") as f64);
            watched
                .files
                .push(open_files(live.pid()).expect("fd") as f64);
        }
        let end = Instant::now() + CLOSED_WITHIN;
        loop {
            watched.left = open_files(live.pid()).expect("fd") as f64;
            if watched.left <= watched.fewest(1) || Instant::now() >= end {
                return watched;
            }
            look();
        }
    }

    /// The fewest files of a quarter of the looks.
    fn fewest(&self, quarter: usize) -> f64 {
        let long = self.files.len() / 4;
        let looks = &self.files[quarter * long..(quarter + 1) * long];
        looks.iter().copied().fold(f64::MAX, f64::min)
    }

    /// Fails where it grew: by more than noise, and from the second quarter to the last.
    #[track_caller]
    fn is_flat(&self, what: &str) {
        let long = self.rss.len() / 4;
        let quarter = |n: usize| n * long..(n + 1) * long;
        let (early, late) = (median(&self.rss[quarter(1)]), median(&self.rss[quarter(3)]));
        // What is open for a while is no leak: that would not be closed again.
        let files = (self.fewest(1), self.left);
        let grows = slope(&self.rss[self.rss.len() / 4..]) * 1024.0;
        say(&format!(
            "{what}: {} looks, {early:.0} KiB then {late:.0} KiB, {grows:.0} bytes a look; files {files:?}",
            self.rss.len()
        ));
        assert!(late - early < 1024.0, "{what}: {:?}", self.rss);
        // Fewer is no leak: a connection of the start that was kept for a while.
        assert!(files.1 <= files.0, "{what}: {:?}", self.files);
    }
}

/// Waits until a process has looked again: an interval is over, and it has read more.
fn another_look(pid: u32, so_far: &mut u64) {
    let begin = Instant::now();
    *so_far = wait_for("another look", || {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let read = io.lines().find_map(|l| l.strip_prefix("rchar: "))?;
        let read = read.parse::<u64>().ok()?;
        (read > *so_far + 1000 && begin.elapsed() >= INTERVAL).then_some(read)
    });
}

/// The services look once in so long.
const INTERVAL: Duration = Duration::from_secs(1);

fn looks(few: u64) -> usize {
    number("PLIMSOLL_SOAK_LOOKS").unwrap_or(few) as usize
}

#[test]
fn the_exporter_is_asked_again_and_again() {
    needs!(Docker);
    let world = World::new();
    let _theirs = world.theirs("exported");
    let watch = ["watch", "--listen", "127.0.0.1:0", "--interval", "1s"];
    let mut live = Live::start(world.any_command(&watch));
    live.until("serving http://");
    let said = live.stderr();
    let address = said
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let address = address.expect("an address");
    let scrape = || {
        let mut stream = std::net::TcpStream::connect(address).expect("connect");
        let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).expect("asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("answered");
        page.starts_with("HTTP/1.1 200").then_some(())
    };
    wait_for("its first page", scrape);
    let (pid, mut so_far) = (live.pid(), 0);
    let watched = Watched::through(&mut live, looks(8), || {
        (0..20).for_each(|_| scrape().expect("a page"));
        another_look(pid, &mut so_far);
    });
    watched.is_flat("watch, 20 scrapes a scan");
    live.signal(Signal::INT);
    live.end().expect(0);
}

#[test]
fn the_cleaner_watches() {
    needs!(Docker);
    let world = World::new();
    let _theirs = world.theirs("watched");
    let command = world.command(&["--watch", "--interval=1s"]);
    let mut live = Live::start(command);
    let (pid, mut so_far) = (live.pid(), 0);
    let watched = Watched::through(&mut live, looks(8), || another_look(pid, &mut so_far));
    watched.is_flat("clean --watch");
    live.signal(Signal::INT);
    let ended = live.end();
    assert!([0, 130].contains(&ended.code()), "{}", ended.stderr);
}
