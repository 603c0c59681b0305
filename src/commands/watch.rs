//! `plimsoll watch`: follows every engine container of this host, and serves what it sees as metrics.

use super::load::run_until_stopped;
use super::why::{check_advice, diagnose_container, diagnose_removed, diagnose_stopped_life};
use crate::capture::Request;
use crate::cli::WatchArgs;
use crate::clock::wall_now_ns;
use crate::collect::{AttachedEngine, CapturePlan, CaptureSession, MemorySource, StopSignal};
use crate::console::Console;
use crate::container::Runtime;
use crate::container::events::ContainerNotice;
use crate::container::inspect::InspectedContainer;
use crate::engine::diagnosis::Diagnosis;
use crate::engine::recognise;
use crate::error::{ExitCode, Failure};
use crate::live::ledger::{DeathRecord, LEDGER_FILE, WatchLedger, memory_in_use};
use crate::live::metrics::MetricsPage;
use crate::live::serve::MetricsServer;
use crate::live::{ContainerScan, LifeEvent, MemoryScan, MemoryWatcher};
use crate::profile::Profile;
use crate::progress::Sink;
use crate::store::{CaptureWriter, RunPaths, SharedFile, make_folders, private, write_atomically};
use crate::telemetry::BackendChoice;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Between two writings of the ledger, where no container started or died.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// How long memory is sampled to read its parts.
const READING: Duration = Duration::from_secs(2);
/// Longest time of a reading, and most readings at once.
const LONGEST_READING: Duration = Duration::from_secs(120);
const MOST_READINGS: usize = 2;
/// Time for them to end once `watch` is stopped.
const READINGS_END: Duration = Duration::from_secs(10);
/// Attempts at a container while its daemon does not answer.
const INSPECTIONS: u32 = 5;
/// Bytes of an engine's log that a reading keeps.
const MOST_LOG: u64 = 16 << 20;

pub fn run_watch(console: &Console, args: &WatchArgs) -> anyhow::Result<ExitCode> {
    run_until_stopped(console, None, async |stop| {
        watch_host(console, args, stop).await
    })
}

/// What the tasks beside the scans report.
enum WatchUpdate {
    Started {
        notice: ContainerNotice,
        /// All events until then are recorded with it.
        until_ns: i64,
    },
    Died {
        until_ns: i64,
        name: String,
        count: u64,
        death: DeathRecord,
    },
    Read {
        container: Box<ContainerScan>,
        in_use: u64,
        profile: Result<Box<Profile>, Failure>,
    },
}

struct HostWatch<'a> {
    console: &'a Console,
    args: &'a WatchArgs,
    stop: &'a StopSignal,
    watcher: MemoryWatcher,
    ledger: WatchLedger,
    file: Option<SharedFile>,
    saved: Instant,
    /// Sends what the tasks report.
    sender: UnboundedSender<WatchUpdate>,
    /// When this watch began, wall nanoseconds since the Unix epoch.
    began_ns: i64,
    /// Whether the daemon's events are followed.
    follows_events: bool,
    /// Sends starts and ends to be explained.
    lives: UnboundedSender<LifeEvent>,
    /// What could not be read at the last scan.
    unread: BTreeSet<String>,
    readings: Arc<Semaphore>,
    /// Serves the metrics; `None` where they were not asked for.
    pages: Option<watch::Sender<MetricsPage>>,
}

async fn watch_host(
    console: &Console,
    args: &WatchArgs,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let began_ns = wall_now_ns();
    let mut pages = None;
    if let Some(address) = args.listen {
        let server = MetricsServer::open(address).await?;
        if let Some(address) = server.local_address() {
            console.print_note(&format!("serving http://{address}/metrics"));
        }
        let (sender, receiver) = watch::channel(MetricsPage::default());
        tokio::spawn(server.serve_pages(receiver));
        pages = Some(sender);
    }
    if let Some(folder) = &args.profiles {
        make_folders(folder)?;
    }
    let file = SharedFile::open_locked(LEDGER_FILE);
    if file.is_none() {
        console.print_warning(
            "counts start anew: the state folder cannot be written, or another `watch` holds it",
        );
    }
    let ledger = file.as_ref().and_then(SharedFile::read_bytes);
    let ledger = ledger.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let ledger: WatchLedger = ledger.unwrap_or_default();
    let (sender, mut updates) = unbounded_channel();
    let (lives, life_events) = unbounded_channel();
    let known = ledger.containers.keys().cloned().collect();
    tokio::spawn(explain_lives(
        life_events,
        sender.clone(),
        known,
        console.clone(),
    ));
    let mut watcher = MemoryWatcher::open().await;
    for absent in watcher.follow_processes(args.places())? {
        console.print_warning(&format!("{absent}: it is looked for again at each scan"));
    }
    let mut host = HostWatch {
        console,
        args,
        stop,
        watcher,
        ledger,
        file,
        saved: Instant::now(),
        sender,
        began_ns,
        follows_events: false,
        lives,
        unread: BTreeSet::new(),
        readings: Arc::new(Semaphore::new(MOST_READINGS)),
        pages,
    };
    if let Some(failure) = host.watcher.why_blind() {
        return Err(failure.into());
    }
    console.print_note(&format!(
        "scanning every {} s; nothing is touched",
        args.interval.as_secs_f64()
    ));
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let update = tokio::select! {
            biased;
            () = stop.token().cancelled() => break,
            update = updates.recv() => update,
            _ = ticks.tick() => None,
        };
        let goes_on = match update {
            Some(update) => host.take_update(update)?,
            None => tokio::select! {
                () = stop.token().cancelled() => break,
                () = host.scan() => true,
            },
        };
        if !goes_on {
            break;
        }
    }
    host.save_ledger();
    host.end_readings().await;
    Ok(ExitCode::Done)
}

impl HostWatch<'_> {
    /// Waits for readings that are under way: their timers need the runtime until they have seen that they are stopped.
    async fn end_readings(&self) {
        let all = u32::try_from(MOST_READINGS).unwrap_or(u32::MAX);
        let _ = timeout(READINGS_END, self.readings.acquire_many(all)).await;
    }

    /// Scans once, and begins what follows from it.
    async fn scan(&mut self) {
        self.watcher.reconnect().await;
        self.follow_events();
        let scan = self.watcher.scan_memory().await;
        for life in self.watcher.take_lives() {
            let _ = self.lives.send(life);
        }
        self.print_unread(&scan);
        self.ledger.record_scan(&scan);
        for container in &scan.containers {
            let is_kept = self
                .profile_path(&container.name)
                .is_none_or(|path| path.exists());
            if container.engine.is_some() && self.ledger.take_due_reading(&scan, container, is_kept)
            {
                self.begin_reading(&scan, container);
            }
        }
        if let Some(pages) = &self.pages {
            pages.send_replace(MetricsPage::of_scan(&scan, &self.ledger));
        }
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save_ledger();
        }
    }

    /// Warns of what cannot be read, once until it can be read again.
    fn print_unread(&mut self, scan: &MemoryScan) {
        let unread: BTreeSet<String> = scan.notes.iter().cloned().collect();
        for note in unread.difference(&self.unread) {
            self.console.print_warning(note);
        }
        self.unread = unread;
    }

    /// Writes the ledger. A full disk is a warning: the counts are served all the same.
    fn save_ledger(&mut self) {
        self.saved = Instant::now();
        let Some(file) = &self.file else {
            return;
        };
        let bytes = serde_json::to_vec(&self.ledger).unwrap_or_default();
        if let Err(failure) = file.write_bytes(&bytes) {
            self.console.print_warning(&failure.message);
        }
    }

    /// Follows starts and deaths from where the last watch ended, at first from when this one began: a container that starts
    /// before the first scan is counted.
    fn follow_events(&mut self) {
        let Some(runtime) = self
            .watcher
            .runtime()
            .filter(|_| !self.follows_events)
            .cloned()
        else {
            return;
        };
        self.follows_events = true;
        let since = match self.ledger.events_until_ns {
            0 => self.began_ns,
            until => until + 1,
        };
        let console = self.console.clone();
        let (lives, cancel) = (self.lives.clone(), self.stop.token().clone());
        tokio::spawn(async move {
            let daemon = runtime.clone();
            let sink = move |notice| {
                let runtime = daemon.clone();
                let _ = lives.send(LifeEvent { runtime, notice });
            };
            let refused = runtime
                .watch_events(None, Some(since), None, &cancel, sink)
                .await;
            if let Some(why) = refused {
                console.print_warning(&format!("starts and deaths are not seen: {why}"));
            }
        });
    }

    fn begin_reading(&self, scan: &MemoryScan, container: &ContainerScan) {
        let Some(runtime) = self.watcher.runtime_of(container).cloned() else {
            return;
        };
        let (sender, stop) = (self.sender.clone(), self.stop.child_stop());
        let readings = Arc::clone(&self.readings);
        let in_use = memory_in_use(scan, container);
        let container = Box::new(container.clone());
        let tasks = tokio::runtime::Handle::current();
        // Its files are read and its profile is derived on that thread.
        tokio::task::spawn_blocking(move || {
            tasks.block_on(async {
                let Ok(_place) = readings.acquire().await else {
                    return;
                };
                let profile = read_parts(&runtime, &container.id, &stop)
                    .await
                    .map(Box::new);
                let _ = sender.send(WatchUpdate::Read {
                    container,
                    in_use,
                    profile,
                });
            });
        });
    }

    /// Takes what a task reports. False once the reader of stdout is gone.
    fn take_update(&mut self, update: WatchUpdate) -> anyhow::Result<bool> {
        match update {
            WatchUpdate::Started { notice, until_ns } => {
                self.ledger
                    .record_start(&notice.name, &notice.id, notice.wall_ns);
                self.ledger.record_until(until_ns);
                self.save_ledger();
                self.print_line(&WatchEvent {
                    event: "start",
                    ..WatchEvent::at(notice.wall_ns, &notice.name)
                })
            }
            WatchUpdate::Died {
                until_ns,
                name,
                count,
                death,
            } => {
                self.ledger.record_death(&name, count, death.clone());
                self.ledger.record_until(until_ns);
                self.save_ledger();
                self.print_line(&WatchEvent {
                    event: "death",
                    count,
                    exit_code: death.exit_code,
                    cause: death.cause.as_deref(),
                    means: death.means.as_deref(),
                    advice: death.advice.as_deref(),
                    ..WatchEvent::at(death.at_ns, &name)
                })
            }
            WatchUpdate::Read {
                container,
                in_use,
                profile,
            } => {
                match profile {
                    Ok(profile) => {
                        self.ledger.record_parts(&container, in_use, &profile);
                        self.keep_profile(&container.name, &profile);
                    }
                    Err(failure) => {
                        let why = failure.describe_with_cause();
                        // It is tried again each minute, and reported once.
                        if self.ledger.record_unread(&container, &why) {
                            let name = &container.name;
                            self.console.print_warning(&format!(
                                "the parts of `{name}` are unknown: {why}"
                            ));
                        }
                    }
                }
                // `top` shows the parts from there.
                self.save_ledger();
                Ok(true)
            }
        }
    }

    /// Where the profile of a container is kept.
    fn profile_path(&self, container: &str) -> Option<PathBuf> {
        let folder = self.args.profiles.as_ref()?;
        // A pod's name has slashes.
        Some(folder.join(format!("{}.json", container.replace('/', "-"))))
    }

    fn keep_profile(&self, container: &str, profile: &Profile) {
        let Some(path) = self.profile_path(container) else {
            return;
        };
        let bytes = serde_json::to_vec_pretty(profile).unwrap_or_default();
        if let Err(failure) = write_atomically(&path, &bytes) {
            self.console.print_warning(&failure.message);
        }
    }

    fn print_line(&self, event: &WatchEvent<'_>) -> anyhow::Result<bool> {
        let mut line = if self.args.json {
            serde_json::to_string(event)?
        } else {
            event.describe_event()
        };
        line.push('\n');
        Ok(self.console.stream_data(line.as_bytes())?)
    }
}

/// A line of stdout.
#[derive(Default, Serialize)]
struct WatchEvent<'a> {
    at: String,
    event: &'static str,
    container: &'a str,
    /// Deaths that this line counts, explained once; of a start 0.
    count: u64,
    exit_code: Option<i64>,
    cause: Option<&'a str>,
    means: Option<&'a str>,
    advice: Option<&'a str>,
}

impl<'a> WatchEvent<'a> {
    fn at(wall_ns: i64, container: &'a str) -> WatchEvent<'a> {
        let at = jiff::Timestamp::from_nanosecond(i128::from(wall_ns)).unwrap_or_default();
        WatchEvent {
            at: at.to_string(),
            container,
            ..WatchEvent::default()
        }
    }

    fn describe_event(&self) -> String {
        let WatchEvent { at, container, .. } = self;
        if self.event == "start" {
            return format!("{at} `{container}` started");
        }
        let code = self
            .exit_code
            .map_or(String::new(), |code| format!(" (exit {code})"));
        let cause = self.means.or(self.cause).unwrap_or("cause unknown");
        let advice = self
            .advice
            .map_or(String::new(), |advice| format!("; {advice}"));
        let times = match self.count {
            0 | 1 => String::new(),
            count => format!(" {count} times"),
        };
        format!("{at} `{container}` died{times}{code}: {cause}{advice}")
    }
}

/// Deaths that wait to be explained: of a container that loops faster than that, those of one exit code as one.
struct WaitingDeath {
    runtime: Runtime,
    last: ContainerNotice,
    count: u64,
    /// When the first of them was, wall nanoseconds since the Unix epoch.
    first_ns: i64,
}

/// Passes on starts, and deaths with their causes, of containers with an engine and of engines that the
/// user named. A start does not wait for deaths to be explained. `engines`: names of such containers.
async fn explain_lives(
    mut lives: UnboundedReceiver<LifeEvent>,
    sender: UnboundedSender<WatchUpdate>,
    mut engines: BTreeSet<String>,
    console: Console,
) {
    let mut waiting: VecDeque<WaitingDeath> = VecDeque::new();
    loop {
        let life = match lives.try_recv() {
            Ok(life) => Ok(life),
            Err(_) => match waiting.pop_front() {
                Some(death) => Err(death),
                None => match lives.recv().await {
                    Some(life) => Ok(life),
                    None => return,
                },
            },
        };
        let LifeEvent { runtime, notice } = match life {
            Ok(life) => life,
            Err(death) => {
                let record = explain_death(&death.runtime, &console, &death.last).await;
                let _ = sender.send(WatchUpdate::Died {
                    until_ns: recorded_until(&waiting, record.at_ns),
                    name: death.last.name,
                    count: death.count,
                    death: record,
                });
                continue;
            }
        };
        let container = inspect_patiently(&runtime, &notice.id).await;
        match &container {
            Some(container) if runtime.has_daemon() && recognise(&container.facts).is_none() => {
                continue;
            }
            Some(_) => drop(engines.insert(notice.name.clone())),
            None if !engines.contains(&notice.name) => continue,
            None => {}
        }
        match notice.action.as_str() {
            "start" => {
                let until_ns = recorded_until(&waiting, notice.wall_ns);
                let _ = sender.send(WatchUpdate::Started { notice, until_ns });
            }
            "die" => {
                let earlier = waiting.iter_mut().rfind(|d| d.last.id == notice.id);
                match earlier.filter(|d| is_same_death(&notice, &d.last)) {
                    Some(death) => (death.count, death.last) = (death.count + 1, notice),
                    None => waiting.push_back(WaitingDeath {
                        runtime,
                        count: 1,
                        first_ns: notice.wall_ns,
                        last: notice,
                    }),
                }
            }
            _ => {}
        }
    }
}

/// Until when all events are recorded once that of `at_ns` is: the next watch begins there.
fn recorded_until(waiting: &VecDeque<WaitingDeath>, at_ns: i64) -> i64 {
    let earlier = waiting.iter().map(|death| death.first_ns - 1);
    earlier.fold(at_ns, i64::min)
}

/// Inspects a container, again while its daemon does not answer. `None`: it was removed, or no answer came.
async fn inspect_patiently(runtime: &Runtime, id: &str) -> Option<InspectedContainer> {
    for _ in 0..INSPECTIONS {
        match runtime.inspect_container(id).await {
            Ok(found) => return found,
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
    None
}

fn is_same_death(one: &ContainerNotice, other: &ContainerNotice) -> bool {
    let exit_code = |notice: &ContainerNotice| notice.attributes.get("exitCode").cloned();
    exit_code(one) == exit_code(other)
}

/// The cause of a death, by what the container, its daemon and its host show now.
async fn explain_death(
    runtime: &Runtime,
    console: &Console,
    notice: &ContainerNotice,
) -> DeathRecord {
    let container = runtime.inspect_container(&notice.id).await.ok().flatten();
    let stopped = diagnose_stopped_life(runtime, notice).await;
    let mut diagnosis = match (stopped, &container) {
        (Some(stopped), _) => stopped,
        (None, Some(container)) => diagnose_container(runtime, container, false).await.0,
        (None, None) => (diagnose_removed(runtime, &notice.name).await).unwrap_or_default(),
    };
    let (name, console) = (notice.name.clone(), console.clone());
    // The estimate reads files and asks the daemon by itself.
    let checked = tokio::task::spawn_blocking(move || {
        check_advice(&console, &name, &mut diagnosis);
        diagnosis
    });
    death_of(notice, checked.await.unwrap_or_default())
}

fn death_of(notice: &ContainerNotice, diagnosis: Diagnosis) -> DeathRecord {
    let code = notice.attributes.get("exitCode");
    DeathRecord {
        at_ns: notice.wall_ns,
        exit_code: code.and_then(|code| code.parse().ok()),
        cause: diagnosis.cause,
        means: diagnosis.means,
        advice: (diagnosis.advice)
            .into_iter()
            .next()
            .map(|advice| advice.text),
    }
}

/// The profile of a container without load, as `profile --bench none` makes it. Nothing of it stays on disk.
async fn read_parts(runtime: &Runtime, id: &str, stop: &StopSignal) -> Result<Profile, Failure> {
    let gone =
        || Failure::run("the container ended before its memory was read; its parts are unknown");
    let container = runtime.inspect_container(id).await?.ok_or_else(gone)?;
    let attached = AttachedEngine::detect(runtime, container, None, stop).await?;
    let silent: Sink = Arc::new(|_| ());
    let session = CaptureSession::begin_session(stop, silent, Some(LONGEST_READING));
    let request = Request {
        sample_interval_ns: 100_000_000,
        timeout_s: LONGEST_READING.as_secs_f64(),
        ..Request::default()
    };
    let plan = CapturePlan {
        watch: Some(READING),
        cooldown: Duration::ZERO,
        ..attached.plan_capture(None, request)
    };
    let setup = session.inspect_engine(&plan).await?;
    let memory = MemorySource::Live(BackendChoice::Auto);
    let memory = session.open_memory(&plan, &memory).await?;
    let cannot = |e| Failure::environment("cannot make a temporary folder").caused_by(e);
    let folder =
        private::temporary_folder(&std::env::temp_dir(), "plimsoll-watch-").map_err(cannot)?;
    let paths = RunPaths {
        profile: folder.path().join("profile.json"),
        capture: folder.path().join("profile.capture"),
    };
    private::create_folder(&paths.capture).map_err(cannot)?;
    let writer = CaptureWriter::create_folder(&paths.capture, MOST_LOG)?;
    let capture = session.start_recording(plan, memory, writer)?;
    let concluded = capture.conclude_capture(Some(setup), &paths).await?;
    match concluded.failure {
        Some(failure) => Err(failure),
        None => Ok(concluded.profile),
    }
}
