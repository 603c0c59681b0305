//! Tests of the sampler: on a clock that is moved by hand, so that no machine is too slow for them.

use super::*;
use crate::clock::to_nanos;
use crate::telemetry::ReplayBackend;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: i64 = 1_000_000;

fn device(index: u32) -> DeviceFacts {
    DeviceFacts {
        index,
        ..DeviceFacts::default()
    }
}

fn at(ms: i64, device: u32, used_bytes: u64) -> MemorySample {
    MemorySample {
        at_ns: ms * MS,
        device,
        used_bytes,
        ..MemorySample::default()
    }
}

fn every(ms: u64) -> SamplerOptions {
    SamplerOptions {
        interval: Duration::from_millis(ms),
        probe_interval: Duration::from_millis(10),
    }
}

/// A simulated problem of one reading.
enum Upset {
    /// It takes this long.
    Slow(Duration),
    /// It fails.
    Fail(ReadingError),
}

/// A replay of which some full readings, by their numbers from 0, fail or take long.
struct UpsetReplay {
    replay: ReplayBackend,
    upsets: BTreeMap<u64, Upset>,
    readings: u64,
}

impl UpsetReplay {
    fn new(replay: ReplayBackend, upsets: impl IntoIterator<Item = (u64, Upset)>) -> UpsetReplay {
        UpsetReplay {
            replay,
            upsets: upsets.into_iter().collect(),
            readings: 0,
        }
    }
}

impl MemoryBackend for UpsetReplay {
    fn facts(&self) -> BackendFacts {
        self.replay.facts()
    }

    fn devices(&self) -> Vec<DeviceFacts> {
        self.replay.devices()
    }

    fn sample(
        &mut self,
        clock: &Clock,
        wanted: Wanted,
        into: &mut Vec<MemorySample>,
    ) -> Result<(), ReadingError> {
        let reading = self.readings;
        self.readings += 1;
        match self.upsets.get(&reading) {
            Some(Upset::Slow(time)) => clock.advance_to(clock.now() + to_nanos(*time)),
            Some(Upset::Fail(error)) => return Err(error.clone()),
            None => {}
        }
        self.replay.sample(clock, wanted, into)
    }

    fn probe_floor(&self) -> Option<Duration> {
        self.replay.probe_floor()
    }

    fn probe(&mut self, into: &mut Vec<u64>) -> Result<(), ReadingError> {
        self.replay.probe(into)
    }
}

/// Plays the samples to their end and returns what the sampler made of them.
fn play<B: MemoryBackend + 'static>(
    replay: impl FnOnce(&Clock) -> B,
    options: SamplerOptions,
) -> (Vec<MemorySample>, SamplingFacts) {
    let clock = Clock::manual(0);
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay(&clock)), &clock, options).unwrap();
    let samples = samples.iter().flatten().collect();
    (samples, sampler.stop_thread().sampling)
}

#[test]
fn ticks_come_at_their_interval_and_all_are_there() {
    let (samples, facts) = play(
        |c| ReplayBackend::new(c, vec![device(0)], vec![at(0, 0, 7), at(1000, 0, 8)]),
        every(100),
    );
    let times: Vec<i64> = samples.iter().map(|s| s.at_ns / MS).collect();
    assert_eq!(times, (0..=10).map(|k| k * 100).collect::<Vec<_>>());
    assert_eq!((samples[9].used_bytes, samples[10].used_bytes), (7, 8));
    // The last tick, at 1100 ms, is the one that found the end.
    assert_eq!(
        (facts.ticks, facts.missed_ticks, facts.failed_readings),
        (12, 0, 0)
    );
    assert_eq!(
        (facts.interval_ns, facts.longest_gap_ns),
        (100_000_000, 100_000_000)
    );
    assert_eq!(facts.jitter_p99_ns, Some(0));
}

#[test]
fn a_spike_between_two_ticks_shows_in_the_high_bytes() {
    // 30 ms of 9 GiB, between the ticks at 100 and 200 ms.
    let spike = vec![
        at(0, 0, 1),
        at(135, 0, 9 << 30),
        at(165, 0, 2),
        at(400, 0, 2),
    ];
    let (samples, facts) = play(
        |c| ReplayBackend::new(c, vec![device(0)], spike),
        every(100),
    );
    let highs: Vec<_> = samples.iter().map(|s| s.high_bytes).collect();
    assert_eq!(
        highs,
        [None, Some(1), Some(9 << 30), Some(2), Some(2)],
        "and only in the sample after it"
    );
    assert!(samples.iter().all(|s| s.used_bytes < 10));
    assert_eq!(facts.probe_interval_ns, Some(10_000_000));
}

#[test]
fn a_spike_of_three_ticks_is_in_the_samples_themselves() {
    let spike = vec![at(0, 0, 1), at(100, 0, 5), at(400, 0, 1), at(600, 0, 1)];
    let (samples, _) = play(
        |c| ReplayBackend::new(c, vec![device(0)], spike),
        every(100),
    );
    let used: Vec<u64> = samples.iter().map(|s| s.used_bytes).collect();
    assert_eq!(used, [1, 5, 5, 5, 1, 1, 1]);
    assert!(
        samples
            .iter()
            .skip(1)
            .all(|s| s.high_bytes >= Some(s.used_bytes)),
        "the high is never below the sample"
    );
}

#[test]
fn devices_are_probed_each_for_itself() {
    let spikes = vec![
        at(0, 0, 1),
        at(0, 1, 1),
        at(150, 1, 50),
        at(160, 1, 1),
        at(300, 0, 1),
    ];
    let (samples, _) = play(
        |c| ReplayBackend::new(c, vec![device(0), device(1)], spikes),
        every(100),
    );
    let high = |ms: i64, device: u32| {
        samples
            .iter()
            .find(|s| s.at_ns == ms * MS && s.device == device)
            .and_then(|s| s.high_bytes)
    };
    assert_eq!((high(200, 0), high(200, 1)), (Some(1), Some(50)));
}

#[test]
fn no_probes_where_there_is_no_room_or_no_leave_for_them() {
    let samples = || vec![at(0, 0, 1), at(50, 0, 9), at(55, 0, 1), at(300, 0, 1)];
    for (floor, options) in [
        (None, every(100)),
        (Some(Duration::from_millis(1)), every(10)),
        (Some(Duration::from_millis(60)), every(100)),
    ] {
        let (samples, facts) = play(
            |c| ReplayBackend::new(c, vec![device(0)], samples()).probed_every(floor),
            options,
        );
        assert!(
            samples.iter().all(|s| s.high_bytes.is_none()),
            "{floor:?} {options:?}"
        );
        assert_eq!(facts.probe_interval_ns, None);
    }
}

#[test]
fn a_slow_reading_misses_ticks_and_nothing_bursts() {
    let replay = |c: &Clock| {
        let samples = vec![at(0, 0, 1), at(1000, 0, 1)];
        let slow = Upset::Slow(Duration::from_millis(370));
        UpsetReplay::new(ReplayBackend::new(c, vec![device(0)], samples), [(2, slow)])
    };
    let (samples, facts) = play(replay, every(100));
    let times: Vec<i64> = samples.iter().map(|s| s.at_ns / MS).collect();
    // The reading of 200 ms ends at 570: 300, 400 and 500 are missed, 600 is on time again.
    assert_eq!(times, [0, 100, 570, 600, 700, 800, 900, 1000]);
    assert_eq!((facts.missed_ticks, facts.longest_gap_ns), (3, 470_000_000));
    assert_eq!(facts.ticks + facts.missed_ticks, 12);
}

#[test]
fn a_failed_reading_is_counted_and_the_next_is_made() {
    let replay = |c: &Clock| {
        let samples = vec![at(0, 0, 1), at(400, 0, 1)];
        let stumbled = ReadingError::Failed("the driver stumbled".into());
        let gone = ReadingError::Gone("the container is gone".into());
        UpsetReplay::new(
            ReplayBackend::new(c, vec![device(0)], samples),
            [(1, Upset::Fail(stumbled)), (2, Upset::Fail(gone))],
        )
    };
    let (samples, facts) = play(replay, every(100));
    assert_eq!(
        samples.iter().map(|s| s.at_ns / MS).collect::<Vec<_>>(),
        [0, 300, 400]
    );
    assert_eq!(
        (facts.failed_readings, facts.longest_gap_ns),
        (2, 300_000_000)
    );
    assert_eq!(facts.last_error.as_deref(), Some("the container is gone"));
}

#[test]
fn a_reading_that_is_asked_for_comes_with_detail_and_shifts_no_tick() {
    // A real clock: the request has to come from another thread while the sampler waits.
    let clock = Clock::start();
    let processes = Some(vec![Default::default()]);
    let sample = MemorySample {
        processes,
        bench_client_bytes: Some(3),
        ..at(0, 0, 1)
    };
    let end = at(1_000_000, 0, 1);
    let replay = ReplayBackend::new(&clock, vec![device(0)], vec![sample, end]).probed_every(None);
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay), &clock, every(3_600_000)).unwrap();
    let first = samples.recv().unwrap().remove(0);
    assert_eq!((first.processes, first.bench_client_bytes), (None, None));
    sampler.handle().set_bench_client(Some(77));
    sampler.handle().sample_now();
    let asked = samples.recv().unwrap().remove(0);
    assert!(asked.processes.is_some());
    assert_eq!(asked.bench_client_bytes, Some(3));
    // A request made just before the end is still served.
    sampler.handle().sample_now();
    let stopped = sampler.stop_thread();
    assert_eq!(samples.iter().flatten().count(), 1);
    assert_eq!(
        (stopped.sampling.ticks, stopped.sampling.missed_ticks),
        (1, 0)
    );
    assert_eq!(stopped.backend.name, "replay");
}

#[test]
fn it_ends_when_the_samples_have_no_reader() {
    let clock = Clock::manual(0);
    let replay = ReplayBackend::new(
        &clock,
        vec![device(0)],
        vec![at(0, 0, 1), at(1_000_000, 0, 1)],
    );
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay), &clock, every(100)).unwrap();
    drop(samples);
    while !sampler.thread.as_ref().is_some_and(JoinHandle::is_finished) {
        std::thread::yield_now();
    }
    let facts = sampler.stop_thread().sampling;
    assert!(
        facts
            .last_error
            .is_some_and(|e| e.contains("reader of the samples"))
    );
}

#[test]
fn a_reader_that_stands_still_cannot_hang_the_end() {
    let clock = Clock::manual(0);
    let replay = ReplayBackend::new(
        &clock,
        vec![device(0)],
        vec![at(0, 0, 1), at(1_000_000_000, 0, 1)],
    );
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay), &clock, every(10)).unwrap();
    // Nothing is read: a quarter of a second's ticks at a time fill the channel, and those that
    // come after them wait for room.
    let together = (HOLD_NS / (10 * MS)) as usize + 1;
    let fit = WAITING * together;
    while clock.now() < (fit + together - 1) as i64 * 10 * MS {
        std::thread::yield_now();
    }
    let facts = sampler.stop_thread().sampling;
    assert_eq!(samples.iter().flatten().count(), fit);
    assert_eq!(facts.ticks as usize, fit + together);
    assert!(
        facts
            .last_error
            .is_some_and(|e| e.contains("samples were lost"))
    );
}

#[test]
fn too_short_an_interval_is_refused() {
    let clock = Clock::manual(0);
    let replay = ReplayBackend::new(&clock, vec![], vec![]);
    let refused = MemorySampler::start_thread(Box::new(replay), &clock, every(9))
        .err()
        .unwrap();
    assert_eq!(refused.code, ExitCode::Usage);
}

#[test]
fn dear_probes_are_made_less_often() {
    struct Dear(Clock, i64, u32);
    impl MemoryBackend for Dear {
        fn facts(&self) -> BackendFacts {
            BackendFacts::default()
        }
        fn devices(&self) -> Vec<DeviceFacts> {
            vec![device(0)]
        }
        fn sample(
            &mut self,
            _: &Clock,
            _: Wanted,
            _: &mut Vec<MemorySample>,
        ) -> Result<(), ReadingError> {
            Ok(())
        }
        fn probe(&mut self, into: &mut Vec<u64>) -> Result<(), ReadingError> {
            self.2 += 1;
            self.0.advance_to(self.0.now() + self.1);
            *into = vec![1];
            Ok(())
        }
    }
    // 0.2 ms each: every 20 ms. 2 ms each: not at all, but for a look every 16 ticks.
    for (cost, expected) in [(MS / 20, 10 * MS), (MS / 5, 20 * MS), (2 * MS, 200 * MS)] {
        let clock = Clock::manual(0);
        let mut backend = Dear(clock.clone(), cost, 0);
        let mut probing = Probing::new(Some(Duration::from_millis(1)), every(100), 1);
        for _ in 0..15 {
            probing.make_probe(&mut backend, &clock);
        }
        assert_eq!(probing.interval_ns, expected);
        let now = clock.now();
        let looks = (0..160)
            .filter(|_| probing.next(now, now + 100 * MS).is_some())
            .count();
        assert_eq!(looks, if expected > 50 * MS { 10 } else { 160 });
        assert_eq!(backend.2, 15);
    }
}

/// The longest stretch without a look at the memory, probes included, ms.
fn longest_blind_ms(interval: u64, options: impl Fn(u64) -> SamplerOptions) -> i64 {
    /// Notes when it is asked.
    struct Noting(ReplayBackend, Clock, Arc<Mutex<Vec<AtNs>>>);
    impl MemoryBackend for Noting {
        fn facts(&self) -> BackendFacts {
            self.0.facts()
        }
        fn devices(&self) -> Vec<DeviceFacts> {
            self.0.devices()
        }
        fn sample(
            &mut self,
            clock: &Clock,
            wanted: Wanted,
            into: &mut Vec<MemorySample>,
        ) -> Result<(), ReadingError> {
            self.2.lock().unwrap().push(self.1.now());
            self.0.sample(clock, wanted, into)
        }
        fn probe_floor(&self) -> Option<Duration> {
            self.0.probe_floor()
        }
        fn probe(&mut self, into: &mut Vec<u64>) -> Result<(), ReadingError> {
            self.2.lock().unwrap().push(self.1.now());
            self.0.probe(into)
        }
    }
    let clock = Clock::manual(0);
    let looks = Arc::new(Mutex::new(Vec::new()));
    let replay = ReplayBackend::new(&clock, vec![device(0)], vec![at(0, 0, 1), at(5000, 0, 1)]);
    let replay = replay.probed_every(Some(Duration::from_millis(10)));
    let backend = Noting(replay, clock.clone(), Arc::clone(&looks));
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(backend), &clock, options(interval)).unwrap();
    let _ = samples.iter().flatten().count();
    drop(sampler);
    let looks = looks.lock().unwrap();
    looks.windows(2).map(|w| (w[1] - w[0]) / MS).max().unwrap()
}

#[test]
fn no_stretch_without_a_look_is_longer_than_the_probes_interval() {
    let with_default_probes = |ms| SamplerOptions {
        interval: Duration::from_millis(ms),
        ..SamplerOptions::default()
    };
    for interval in [
        10, 20, 25, 26, 30, 36, 37, 40, 49, 50, 60, 90, 100, 110, 130, 1000,
    ] {
        let blind = longest_blind_ms(interval, with_default_probes);
        assert!(blind <= 25, "{blind} ms between looks, every {interval} ms");
    }
}

proptest! {
    #[test]
    fn every_tick_is_taken_or_missed(interval in 1i64..1000, taken in 0i64..100_000) {
        let (next, missed) = next_due(0, interval, taken);
        prop_assert_eq!(next, (missed + 1) * interval);
        prop_assert!(missed >= 0);
        // The next is not so late that it should have been left out, nor one left out too many.
        prop_assert!(taken - next <= interval / 2);
        prop_assert!(missed == 0 || taken - (next - interval) > interval / 2);
    }
}

#[test]
fn an_edge_is_followed_by_a_burst() {
    let clock = Clock::manual(0);
    let spike = vec![at(0, 0, 1), at(12, 0, 77), at(19, 0, 2), at(60_000, 0, 2)];
    let replay = ReplayBackend::new(&clock, vec![device(0)], spike).probed_every(None);
    let mut run = SamplerRun::new(
        Box::new(replay),
        clock.clone(),
        every(100),
        Arc::default(),
        sync_channel(4096).0,
    );
    let (sender, samples) = sync_channel(4096);
    run.reader = sender;
    run.shared.change(|w| {
        w.sample_now = true;
        w.burst = true;
    });
    run.sample_until_stopped();
    let samples: Vec<MemorySample> = samples.try_iter().flatten().collect();
    let burst: Vec<i64> = samples
        .iter()
        .filter(|s| s.burst)
        .map(|s| s.at_ns / MS)
        .collect();
    assert_eq!(burst.first(), Some(&10));
    assert!(
        (25..=30).contains(&burst.len()) && burst.iter().all(|t| *t <= 300),
        "{burst:?}"
    );
    assert_eq!(run.facts.burst_readings as usize, burst.len());
    // The ticks stay where they were.
    assert!(samples.iter().any(|s| s.at_ns == 500 * MS && !s.burst));
    assert!(!samples.iter().any(|s| s.at_ns == 450 * MS));
}

#[test]
fn slow_readings_are_spaced_out_and_that_is_reported() {
    let clock = Clock::manual(0);
    let replay = ReplayBackend::new(&clock, vec![device(0)], vec![at(0, 0, 1), at(60_000, 0, 1)]);
    let slow = (0..1000).map(|reading| (reading, Upset::Slow(Duration::from_millis(40))));
    let replay = UpsetReplay::new(replay.probed_every(None), slow);
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(replay), &clock, every(100)).unwrap();
    let times: Vec<i64> = samples.iter().flatten().map(|s| s.at_ns / MS).collect();
    let facts = sampler.stop_thread().sampling;
    // 40 ms are a tenth of 400.
    let last: Vec<i64> = times
        .windows(2)
        .rev()
        .take(50)
        .map(|w| w[1] - w[0])
        .collect();
    assert!(last.iter().all(|d| *d == 400), "{last:?}");
    assert!(facts.backed_off_ticks > 400, "{facts:?}");
    assert_eq!(facts.missed_ticks, 0);
    assert_eq!(facts.calls[0].name, "reading");
    assert!(
        (40 * MS as u64..45 * MS as u64).contains(&facts.calls[0].mean_ns),
        "{:?}",
        facts.calls
    );
    assert_eq!(
        facts.cpu_ns, None,
        "a clock that is moved by hand tells nothing of it"
    );
}

#[test]
fn a_gpu_that_repeats_itself_for_hours_fills_no_memory() {
    /// Reports an Xid at every reading, and a lost GPU late.
    struct Troubled(ReplayBackend, u32);
    impl MemoryBackend for Troubled {
        fn facts(&self) -> BackendFacts {
            self.0.facts()
        }
        fn devices(&self) -> Vec<DeviceFacts> {
            self.0.devices()
        }
        fn sample(
            &mut self,
            clock: &Clock,
            wanted: Wanted,
            into: &mut Vec<MemorySample>,
        ) -> Result<(), ReadingError> {
            self.1 += 1;
            self.0.sample(clock, wanted, into)
        }
        fn take_events(&mut self) -> Vec<DeviceEvent> {
            let code = if self.1 == 900 { "gpu_lost" } else { "gpu_xid" };
            vec![DeviceEvent {
                code: code.into(),
                ..DeviceEvent::default()
            }]
        }
    }
    let clock = Clock::manual(0);
    let replay = ReplayBackend::new(
        &clock,
        vec![device(0)],
        vec![at(0, 0, 1), at(100_000, 0, 1)],
    );
    let backend = Troubled(replay, 0);
    let (sampler, samples) =
        MemorySampler::start_thread(Box::new(backend), &clock, every(100)).unwrap();
    assert_eq!(samples.iter().flatten().count(), 1001);
    let events = sampler.stop_thread().sampling.events;
    assert_eq!(events.len(), MOST_EVENTS + 1);
    assert_eq!(
        events.last().unwrap().code,
        "gpu_lost",
        "what is new is kept"
    );
}
