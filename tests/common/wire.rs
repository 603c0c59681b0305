//! A wire to the real Docker daemon that breaks at one place: between requests, within an answer,
//! within a frame of a stream. It knows bytes and no client, so that streams break as they do in
//! life.
#![allow(dead_code, missing_docs)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A daemon that starts again is away for so long.
const AWAY: Duration = Duration::from_secs(1);

/// A late answer comes so late.
const LATE: Duration = Duration::from_secs(3);

/// What goes wrong with one request, or from it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The answer comes seconds later.
    Late,
    /// The connection ends before the daemon hears of it.
    Refused,
    /// The daemon does it, and its answer is lost.
    Lost,
    /// The connection ends in the middle of the answer.
    Truncated,
    /// The connection ends in the middle of a frame's header.
    InHeader,
    /// The connection ends in the middle of a frame's payload.
    InPayload,
    /// The daemon answers so and does nothing.
    Answer(u16),
    /// No answer ever comes, and the connection stays.
    Silent,
    /// A stream stops in the middle, and the connection stays.
    Mute,
    /// All connections end; for a second nobody listens; then all is well again.
    Restart,
    /// All connections end, and nobody listens any more.
    Gone,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 13] = [
        Fault::Late,
        Fault::Refused,
        Fault::Lost,
        Fault::Truncated,
        Fault::InHeader,
        Fault::InPayload,
        Fault::Answer(404),
        Fault::Answer(409),
        Fault::Answer(500),
        Fault::Silent,
        Fault::Mute,
        Fault::Restart,
        Fault::Gone,
    ];

    /// Whether it needs a stream to break.
    pub fn of_streams(self) -> bool {
        matches!(self, Fault::InHeader | Fault::InPayload | Fault::Mute)
    }

    /// As the table has it.
    pub fn words(self) -> String {
        match self {
            Fault::Late => "answer comes 3 s late".into(),
            Fault::Refused => "cut before the daemon hears".into(),
            Fault::Lost => "done, answer lost".into(),
            Fault::Truncated => "answer cut in the middle".into(),
            Fault::InHeader => "stream cut in a frame's header".into(),
            Fault::InPayload => "stream cut in a frame's payload".into(),
            Fault::Answer(code) => format!("answers {code}"),
            Fault::Silent => "never answers, stays connected".into(),
            Fault::Mute => "stream falls silent, stays connected".into(),
            Fault::Restart => "restart: all cut, away for 1 s".into(),
            Fault::Gone => "gone for good".into(),
        }
    }
}

/// Where it breaks: at the `nth` request of a class, and for streams at which frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub class: String,
    pub nth: usize,
    pub frame: usize,
}

/// A request that came by.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// `POST /exec/ID/start`.
    pub class: String,
    /// Which of its class, from 0.
    pub nth: usize,
    /// Frames of its answer so far; 0 where it is no stream.
    pub frames: usize,
}

struct State {
    asked: Vec<Asked>,
    breaks: Option<(Fault, Place)>,
    met: bool,
    /// Ends the connections of this life of the daemon.
    life: CancellationToken,
}

struct Shared {
    /// Docker lists only containers with this in their names.
    shown: Option<String>,
    /// Whether it lets questions pass alone, as a read-only proxy of the socket does.
    read_only: bool,
    socket: PathBuf,
    state: Mutex<State>,
}

/// The wire; gone when dropped.
pub struct Wire {
    _folder: tempfile::TempDir,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Wire {
    /// Only within a tokio runtime. `shown`: Docker lists only containers with this in their names.
    pub fn start(shown: Option<&str>, breaks: Option<(Fault, Place)>) -> Wire {
        Wire::open(shown, breaks, false)
    }

    /// A proxy that lets GET and HEAD pass and answers anything else as HAProxy does.
    pub fn read_only() -> Wire {
        Wire::open(None, None, true)
    }

    fn open(shown: Option<&str>, breaks: Option<(Fault, Place)>, read_only: bool) -> Wire {
        let folder = tempfile::tempdir().expect("tempdir");
        let socket = folder.path().join("docker.sock");
        let life = CancellationToken::new();
        let state = State {
            asked: Vec::new(),
            breaks,
            met: false,
            life: life.clone(),
        };
        let shared = Arc::new(Shared {
            shown: shown.map(|part| format!("{{\"name\":[\"{part}\"]}}")),
            read_only,
            socket: socket.clone(),
            state: Mutex::new(state),
        });
        let listener = UnixListener::bind(&socket).expect("socket");
        let task = tokio::spawn(listen(Arc::clone(&shared), listener, life));
        Wire {
            _folder: folder,
            shared,
            task,
        }
    }

    /// What `DOCKER_HOST` would be.
    pub fn host(&self) -> String {
        format!("unix://{}", self.shared.socket.display())
    }

    /// Whether the break was reached: a try that did not meet its fault shows nothing.
    pub fn met(&self) -> bool {
        self.shared.state.lock().expect("state").met
    }

    /// What came by so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.state.lock().expect("state").asked.clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.state.lock().expect("state").life.cancel();
    }
}

/// Where the real daemon listens.
fn real() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .and_then(|h| h.strip_prefix("unix://").map(str::to_owned))
        .unwrap_or_else(|| "/var/run/docker.sock".into())
}

async fn listen(shared: Arc<Shared>, mut listener: UnixListener, mut life: CancellationToken) {
    loop {
        tokio::select! {
            met = listener.accept() => if let Ok((client, _)) = met {
                let (shared, life) = (Arc::clone(&shared), life.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = serve(&shared, client) => {}
                        () = life.cancelled() => {}
                    }
                });
            },
            () = life.cancelled() => {
                drop(listener);
                let _ = std::fs::remove_file(&shared.socket);
                let gone = matches!(
                    shared.state.lock().expect("state").breaks,
                    Some((Fault::Gone, _))
                );
                if gone {
                    return;
                }
                tokio::time::sleep(AWAY).await;
                listener = UnixListener::bind(&shared.socket).expect("socket");
                life = CancellationToken::new();
                shared.state.lock().expect("state").life = life.clone();
            }
        }
    }
}

impl Shared {
    /// Notes a request; gives its number, and what goes wrong with it.
    fn arrives(&self, class: String) -> (usize, Option<(Fault, usize)>) {
        let mut state = self.state.lock().expect("state");
        let nth = state.asked.iter().filter(|a| a.class == class).count();
        let wrong = match &state.breaks {
            Some((fault, at)) if !state.met && at.class == class && at.nth == nth => {
                Some((*fault, at.frame))
            }
            _ => None,
        };
        state.asked.push(Asked {
            class,
            nth,
            frames: 0,
        });
        (state.asked.len() - 1, wrong)
    }

    /// The break is reached.
    fn meets(&self) {
        self.state.lock().expect("state").met = true;
    }

    /// Every connection ends.
    fn ends(&self) {
        self.meets();
        self.state.lock().expect("state").life.cancel();
    }

    fn frames(&self, number: usize, frames: usize) {
        self.state.lock().expect("state").asked[number].frames = frames;
    }
}

async fn serve(shared: &Shared, mut client: UnixStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if client.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = head.split(|b| *b == b'\r').next()?.to_vec();
    let line = String::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let class = class(method, target);
    let framed = class == "POST /exec/ID/start" || class == "GET /containers/ID/logs";
    let stream = framed || class == "GET /events";
    let refused = shared.read_only && !matches!(method, "GET" | "HEAD");
    let (number, wrong) = shared.arrives(class);
    if refused {
        let page = "<html><body><h1>403 Forbidden</h1>\nRequest forbidden by administrative rules.\n</body></html>\n";
        let answer = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
            page.len()
        );
        client.write_all(answer.as_bytes()).await.ok()?;
        return client.shutdown().await.ok();
    }
    if let Some(narrowed) = narrowed(target, shared.shown.as_deref()) {
        let new = line.replacen(target, &narrowed, 1);
        head.splice(..line.len(), new.into_bytes());
    }
    let (fault, frame) = match wrong {
        Some((fault, frame)) => (Some(fault), frame),
        None => (None, 0),
    };
    match fault {
        Some(Fault::Refused) => {
            shared.meets();
            return None;
        }
        Some(Fault::Answer(code)) => {
            shared.meets();
            let body = format!("{{\"message\":\"made up by the wire ({code})\"}}\n");
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {code} Made Up\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            client.write_all(answer.as_bytes()).await.ok()?;
            return client.shutdown().await.ok();
        }
        Some(Fault::Restart | Fault::Gone) if !stream || frame == 0 => {
            shared.ends();
            return None;
        }
        _ => {}
    }
    if shared.read_only {
        // Nothing follows on the same connection, which is looked at only once.
        let end = head.windows(2).position(|w| w == b"\r\n")? + 2;
        head.splice(end..end, b"Connection: close\r\n".iter().copied());
    }
    let mut daemon = UnixStream::connect(real()).await.ok()?;
    daemon.write_all(&head).await.ok()?;
    let (from_client, to_client) = client.into_split();
    let (from_daemon, to_daemon) = daemon.into_split();
    let up = up(from_client, to_daemon);
    let down = Down {
        shared,
        number,
        fault,
        frame,
        meter: Meter::new(framed, stream),
    };
    let down = down.pass(from_daemon, to_client);
    tokio::pin!(down);
    tokio::select! {
        done = &mut down => done,
        // The end of what a client sends is not the end of what it gets.
        () = up => down.await,
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 || to.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

struct Down<'a> {
    shared: &'a Shared,
    number: usize,
    fault: Option<Fault>,
    frame: usize,
    meter: Meter,
}

impl Down<'_> {
    /// Hands the daemon's answer on, as far as it gets.
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<()> {
        let mut buffer = vec![0; 16 * 1024];
        let mut first = true;
        loop {
            let n = from.read(&mut buffer).await.ok()?;
            if n == 0 {
                return to.shutdown().await.ok();
            }
            if std::mem::take(&mut first) {
                match self.fault {
                    Some(Fault::Late) => {
                        self.shared.meets();
                        tokio::time::sleep(LATE).await;
                    }
                    Some(Fault::Lost) => {
                        self.shared.meets();
                        return None;
                    }
                    Some(Fault::Silent) => {
                        self.shared.meets();
                        return hold(from).await;
                    }
                    _ => {}
                }
            }
            let cut = (buffer[..n].iter()).position(|b| {
                let at = self.meter.step(*b);
                self.breaks(at)
            });
            self.shared.frames(self.number, self.meter.frames);
            to.write_all(&buffer[..cut.unwrap_or(n)]).await.ok()?;
            if cut.is_none() {
                continue;
            }
            match self.fault {
                Some(Fault::Mute) => {
                    self.shared.meets();
                    return hold(from).await;
                }
                Some(Fault::Restart | Fault::Gone) => self.shared.ends(),
                _ => self.shared.meets(),
            }
            return None;
        }
    }

    /// Whether the wire breaks before this byte.
    fn breaks(&self, at: At) -> bool {
        match (self.fault, at) {
            (Some(Fault::Truncated), At::Header { frame, byte, .. }) => {
                frame == self.frame && byte == 0
            }
            (Some(Fault::Truncated), At::Body { byte, length }) => byte == length / 2,
            (Some(Fault::InHeader), At::Header { frame, byte }) => frame == self.frame && byte == 3,
            (
                Some(Fault::InPayload | Fault::Mute | Fault::Restart | Fault::Gone),
                At::Payload { frame, half },
            ) => frame == self.frame && half,
            _ => false,
        }
    }
}

/// Nothing more is said; the daemon's words are swallowed until it has no more.
async fn hold(mut from: OwnedReadHalf) -> Option<()> {
    let mut buffer = vec![0; 16 * 1024];
    while from.read(&mut buffer).await.ok()? > 0 {}
    std::future::pending().await
}

/// Where in an answer a byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In what HTTP adds.
    Http,
    /// In the body of an answer that is no stream. `length` is 2 where it was not told: it breaks
    /// at the second byte then.
    Body { byte: usize, length: usize },
    /// In a frame's header.
    Header { frame: usize, byte: usize },
    /// In a frame's payload; `half`: at its middle.
    Payload { frame: usize, half: bool },
}

/// Follows an answer byte by byte: HTTP's head, its chunks, Docker's frames.
struct Meter {
    framed: bool,
    stream: bool,
    head: Vec<u8>,
    body: bool,
    chunked: bool,
    /// Bytes left of this chunk; `None`: its size is being read.
    chunk: Option<usize>,
    size: Vec<u8>,
    length: usize,
    seen: usize,
    frames: usize,
    header: Vec<u8>,
    left: usize,
    payload: usize,
}

impl Meter {
    fn new(framed: bool, stream: bool) -> Meter {
        Meter {
            framed,
            stream,
            head: Vec::new(),
            body: false,
            chunked: false,
            chunk: None,
            size: Vec::new(),
            length: 2,
            seen: 0,
            frames: 0,
            header: Vec::new(),
            left: 0,
            payload: 0,
        }
    }

    fn step(&mut self, byte: u8) -> At {
        if !self.body {
            self.head.push(byte);
            if self.head.ends_with(b"\r\n\r\n") {
                self.body = true;
                let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
                self.chunked = head.contains("transfer-encoding: chunked");
                let told = head.lines().find_map(|l| l.strip_prefix("content-length:"));
                self.length = told.and_then(|t| t.trim().parse().ok()).unwrap_or(2);
            }
            return At::Http;
        }
        if self.chunked {
            match self.chunk {
                None => {
                    self.size.push(byte);
                    if self.size.ends_with(b"\r\n") && self.size.len() > 2 {
                        let text = String::from_utf8_lossy(&self.size).trim().to_owned();
                        // Two bytes end a chunk.
                        let size = usize::from_str_radix(&text, 16).unwrap_or(0);
                        self.chunk = (size > 0).then_some(size + 2);
                        self.size.clear();
                    }
                    return At::Http;
                }
                Some(left) => {
                    self.chunk = Some(left - 1).filter(|left| *left > 0);
                    if left <= 2 {
                        return At::Http;
                    }
                }
            }
        }
        match (self.framed, self.stream) {
            (true, _) => self.frame(byte),
            (false, true) => self.line(byte),
            (false, false) => {
                self.seen += 1;
                At::Body {
                    byte: self.seen - 1,
                    length: self.length,
                }
            }
        }
    }

    fn frame(&mut self, byte: u8) -> At {
        let frame = self.frames;
        if self.left == 0 {
            self.header.push(byte);
            let at = self.header.len() - 1;
            if self.header.len() == 8 {
                let length = [4, 5, 6, 7].map(|i| self.header[i]);
                self.left = u32::from_be_bytes(length) as usize;
                self.payload = self.left;
                self.header.clear();
                if self.left == 0 {
                    self.frames += 1;
                }
            }
            return At::Header { frame, byte: at };
        }
        let half = self.left == self.payload - self.payload / 2;
        self.left -= 1;
        if self.left == 0 {
            self.frames += 1;
        }
        At::Payload { frame, half }
    }

    /// An event is a line: its beginning counts as its header.
    fn line(&mut self, byte: u8) -> At {
        let (frame, at) = (self.frames, self.payload);
        self.payload += 1;
        if byte == b'\n' {
            self.frames += 1;
            self.payload = 0;
        }
        match at < 8 {
            true => At::Header { frame, byte: at },
            false => At::Payload {
                frame,
                half: at == 40,
            },
        }
    }
}

/// Method and path, without what differs from run to run.
fn class(method: &str, target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    let mut segments: Vec<&str> = path.split('/').skip(1).collect();
    if segments.first().is_some_and(|s| s.starts_with("v1.")) {
        segments.remove(0);
    }
    let known = ["json", "create"];
    if let [_, id, ..] = segments.as_mut_slice() {
        if !known.contains(id) {
            *id = "ID";
        }
    }
    // An image's name may have slashes.
    if let ["images", _, .., last] = segments.as_slice() {
        segments = vec!["images", "ID", last];
    }
    format!("{method} /{}", segments.join("/"))
}

/// The list of containers with a filter in it.
fn narrowed(target: &str, filter: Option<&str>) -> Option<String> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let filter = filter.filter(|_| path.ends_with("/containers/json"))?;
    assert!(!query.contains("filters="), "it has one: {query}");
    let filter: String = filter.bytes().map(|b| format!("%{b:02X}")).collect();
    Some(format!("{path}?{query}&filters={filter}"))
}
