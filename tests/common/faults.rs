//! A socket in front of Docker's that lets some requests go wrong, or hides containers.
#![allow(dead_code, missing_docs)]

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The answer comes so much later.
    Slow(Duration),
    /// Docker hears of it once this file does not say FROZEN any more.
    WhileFrozen(&'static str),
    /// Docker never hears of it and this comes back.
    Answer(u16, &'static str),
    /// The connection is cut before Docker hears of it.
    CutBefore,
    /// Docker does it, and the connection is cut meanwhile.
    CutDuring,
    /// Docker does it, and its answer is lost.
    CutAfter,
}

/// Requests with this method whose path holds this, the first so many of them.
#[derive(Debug, Clone)]
pub struct Rule {
    pub method: Method,
    pub part: &'static str,
    pub fault: Fault,
    pub times: usize,
}

impl Rule {
    pub fn stop(fault: Fault, times: usize) -> Rule {
        Rule::of(Method::POST, "/stop", fault, times)
    }

    pub fn kill(fault: Fault, times: usize) -> Rule {
        Rule::of(Method::POST, "/kill", fault, times)
    }

    pub fn remove(fault: Fault, times: usize) -> Rule {
        Rule::of(Method::DELETE, "/containers/", fault, times)
    }

    pub fn inspect(fault: Fault, times: usize) -> Rule {
        Rule::of(Method::GET, "/json", fault, times)
    }

    fn of(method: Method, part: &'static str, fault: Fault, times: usize) -> Rule {
        Rule {
            method,
            part,
            fault,
            times,
        }
    }
}

/// The socket; gone when dropped.
pub struct FaultySocket {
    folder: tempfile::TempDir,
    rules: Arc<Mutex<Vec<Rule>>>,
    task: JoinHandle<()>,
}

/// Where the real daemon listens.
fn real() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .and_then(|h| h.strip_prefix("unix://").map(str::to_owned))
        .unwrap_or_else(|| "/var/run/docker.sock".into())
}

impl FaultySocket {
    pub fn start(rules: &[Rule]) -> FaultySocket {
        FaultySocket::showing(None, rules)
    }

    /// The same, where Docker lists only containers with `part` in their names, and tells only their
    /// events. (It still answers who asks for another one by its id.)
    pub fn showing(part: Option<&str>, rules: &[Rule]) -> FaultySocket {
        let part: Option<Arc<str>> = part.map(Arc::from);
        let folder = tempfile::tempdir().expect("tempdir");
        let listener = UnixListener::bind(folder.path().join("docker.sock")).expect("socket");
        let rules = Arc::new(Mutex::new(rules.to_vec()));
        let shared = Arc::clone(&rules);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (rules, part) = (Arc::clone(&shared), part.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        show_part(request, part.clone(), Arc::clone(&rules))
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        FaultySocket {
            folder,
            rules,
            task,
        }
    }

    /// What `DOCKER_HOST` would be.
    pub fn host(&self) -> String {
        format!(
            "unix://{}",
            self.folder.path().join("docker.sock").display()
        )
    }

    /// Faults that never came: a test whose fault was not met proves nothing.
    pub fn left(&self) -> usize {
        let rules = self.rules.lock().expect("rules");
        rules.iter().filter(|r| r.times > 0).count()
    }
}

impl Drop for FaultySocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// Answers a request; lists and events have only containers with `part` in their names.
async fn show_part(
    mut request: Request<Incoming>,
    part: Option<Arc<str>>,
    rules: Arc<Mutex<Vec<Rule>>>,
) -> Result<Answer, std::io::Error> {
    let Some(part) = part else {
        return handle(request, rules).await;
    };
    let uri = request.uri();
    let is_events = uri.path().ends_with("/events");
    if uri.path().ends_with("/containers/json") {
        let query = uri.query().unwrap_or_default();
        assert!(!query.contains("filters="), "it has one: {query}");
        let filter = format!("{{\"name\":[\"{part}\"]}}");
        let filter: String = filter.bytes().map(|b| format!("%{b:02X}")).collect();
        let uri = format!("{}?{query}&filters={filter}", uri.path());
        *request.uri_mut() = uri.parse().expect("a path");
    }
    let answer = handle(request, rules).await?;
    if !is_events {
        return Ok(answer);
    }
    // One event a line.
    let mut begun = Vec::new();
    let name = format!("\"name\":\"{part}");
    Ok(answer.map(|body| {
        body.map_frame(move |frame| {
            frame.map_data(|data| {
                begun.extend_from_slice(&data);
                let whole = begun
                    .iter()
                    .rposition(|b| *b == b'\n')
                    .map_or(0, |at| at + 1);
                let lines: Vec<u8> = begun.drain(..whole).collect();
                let lines = String::from_utf8(lines).expect("JSON");
                let shown = lines.split_inclusive('\n').filter(|l| l.contains(&name));
                Bytes::from(shown.collect::<String>())
            })
        })
        .boxed()
    }))
}

async fn handle(
    request: Request<Incoming>,
    rules: Arc<Mutex<Vec<Rule>>>,
) -> Result<Answer, std::io::Error> {
    let path = request.uri().path().to_owned();
    let fault = {
        let mut rules = rules.lock().expect("rules");
        let rule = rules
            .iter_mut()
            .find(|r| r.times > 0 && *request.method() == r.method && path.contains(r.part));
        rule.map(|r| {
            r.times -= 1;
            r.fault
        })
    };
    let cut = || Err(std::io::Error::other("cut"));
    match fault {
        None => forward(request).await,
        Some(Fault::Slow(time)) => {
            let answer = forward(request).await;
            tokio::time::sleep(time).await;
            answer
        }
        Some(Fault::WhileFrozen(file)) => {
            let frozen = || std::fs::read_to_string(file).is_ok_and(|t| t.contains("FROZEN"));
            while frozen() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            forward(request).await
        }
        Some(Fault::Answer(status, message)) => {
            let body = format!("{{\"message\":\"{message}\"}}\n");
            let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
            let answer = Response::builder()
                .status(status)
                .header("Content-Type", "application/json")
                .body(body.boxed());
            Ok(answer.expect("answer"))
        }
        Some(Fault::CutBefore) => cut(),
        Some(Fault::CutDuring) => {
            tokio::spawn(forward(request));
            cut()
        }
        Some(Fault::CutAfter) => {
            let _ = forward(request).await;
            cut()
        }
    }
}

async fn forward(request: Request<Incoming>) -> Result<Answer, std::io::Error> {
    let stream = UnixStream::connect(real()).await?;
    let other = std::io::Error::other;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(other)?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(other)?;
    Ok(answer.map(BodyExt::boxed))
}
