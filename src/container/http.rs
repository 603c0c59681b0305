//! Sends one GET to an engine's endpoint, by any route into the container.

use super::Runtime;
use super::exec::argv_of;
use super::exec::{ExecRequest, Input};
use crate::capture::{AtNs, ContainerFacts, ExecEnd, Probe};
use crate::sync::lock_data;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest time for one attempt.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longest body that is read, bytes.
const LONGEST_BODY: usize = 4 * 1024 * 1024;

/// Environment variable that passes the key to the client inside the container; arguments would
/// appear in `docker events` and `ps`.
const KEY_VARIABLE: &str = "PLIMSOLL_BEARER";

/// Asks from inside the container. The URL is the only argument. Redirects are not followed,
/// because the key is for this server.
const PYTHON: &str = r#"
import os, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1])
key = os.environ.get("PLIMSOLL_BEARER")
if key:
    request.add_header("Authorization", "Bearer " + key)
class Here(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None
try:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Here)
    reply = opener.open(request, timeout=3)
except urllib.error.HTTPError as error:
    reply = error
except Exception as error:
    sys.stderr.write(str(error))
    sys.exit(7)
sys.stdout.write("%d\n" % reply.getcode())
sys.stdout.flush()
sys.stdout.buffer.write(reply.read(4 << 20))
"#;

/// A way to an engine's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `host:port` on this machine (or the daemon's), where Docker publishes the port.
    Published(String),
    /// `address:port` on the container's network.
    Address(String),
    /// `127.0.0.1:port`: the container uses the host's network.
    HostNetwork(String),
    /// `curl` in the container.
    Curl,
    /// `python3` in the container.
    Python,
    /// `wget` in the container; it reports no status.
    Wget(&'static [&'static str]),
}

impl Route {
    /// Whether it works without a program inside the container.
    fn is_outside(&self) -> bool {
        matches!(
            self,
            Route::Published(_) | Route::Address(_) | Route::HostNetwork(_)
        )
    }

    /// The name used in a [`Probe`].
    pub fn name(&self) -> &'static str {
        match self {
            Route::Published(_) => "published port",
            Route::Address(_) => "container address",
            Route::HostNetwork(_) => "host network",
            Route::Curl => "exec curl",
            Route::Python => "exec python3",
            Route::Wget(program) if program.len() > 1 => "exec busybox wget",
            Route::Wget(_) => "exec wget",
        }
    }
}

/// Response to a GET.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpReply {
    /// HTTP status; `None` when nothing answered.
    pub status: Option<u16>,
    /// Body as text, cut at 4 MiB. Not redacted.
    pub body: String,
    /// Name of the route that worked; empty if none did.
    pub route: String,
    /// Why there is no response.
    pub error: Option<String>,
}

impl HttpReply {
    /// As what a capture keeps of the reply at `path`. Not redacted either.
    pub fn into_probe(self, path: &str, at_ns: AtNs) -> Probe {
        Probe {
            at_ns,
            path: path.to_owned(),
            route: self.route,
            status: self.status,
            body: self.body,
            error: self.error,
        }
    }
}

/// A GET to a container's port.
#[derive(Clone, Copy)]
struct Question<'a> {
    facts: &'a ContainerFacts,
    port: u16,
    path: &'a str,
    bearer: Option<&'a str>,
}

impl Runtime {
    /// Requests `path` from the engine on `port` of the container. Tries the published port, the
    /// container's addresses, the host's network, then a client inside the container, and remembers
    /// the route that worked. 3 s for each attempt.
    pub async fn get_inside(
        &self,
        facts: &ContainerFacts,
        port: u16,
        path: &str,
        bearer: Option<&str>,
    ) -> HttpReply {
        let question = Question {
            facts,
            port,
            path,
            bearer,
        };
        let memory = (facts.id.clone(), port);
        let known = lock_data(&self.shared.routes).get(&memory).cloned();
        if let Some(route) = known {
            match self.ask_route(&route, question).await {
                Ok(reply) => return reply,
                Err(_) => drop(lock_data(&self.shared.routes).remove(&memory)),
            }
        }
        self.try_routes(self.routes(facts, port), question).await
    }

    /// As [`Self::get_inside`], but never by a client inside the container: for checking whether
    /// anything listens at all.
    pub async fn get_outside(&self, facts: &ContainerFacts, port: u16, path: &str) -> HttpReply {
        let question = Question {
            facts,
            port,
            path,
            bearer: None,
        };
        let routes = self.outside_routes(facts, port);
        self.try_routes(routes, question).await
    }

    /// `host:port` at which this host reaches the port, without help from inside the container, if
    /// `path` gets any answer there. `Err` is the reason why there is none.
    pub async fn outside_address(
        &self,
        facts: &ContainerFacts,
        port: u16,
        path: &str,
        bearer: Option<&str>,
    ) -> Result<String, String> {
        let question = Question {
            facts,
            port,
            path,
            bearer,
        };
        let mut errors: Vec<String> = Vec::new();
        for route in self.outside_routes(facts, port) {
            let (Route::Published(to) | Route::Address(to) | Route::HostNetwork(to)) = &route
            else {
                continue;
            };
            match self.ask_route(&route, question).await {
                Ok(_) => return Ok(to.clone()),
                Err(e) => errors.push(format!("{}: {e}", route.name())),
            }
        }
        Err(errors.join("; "))
    }

    /// Whether the port may be reached from outside the container.
    pub fn has_outside_route(&self, facts: &ContainerFacts, port: u16) -> bool {
        !self.outside_routes(facts, port).is_empty()
    }

    fn outside_routes(&self, facts: &ContainerFacts, port: u16) -> Vec<Route> {
        let mut routes = self.routes(facts, port);
        routes.retain(Route::is_outside);
        routes
    }

    async fn try_routes(&self, routes: Vec<Route>, question: Question<'_>) -> HttpReply {
        let mut errors: Vec<String> = Vec::new();
        let mut outside = Vec::new();
        for route in routes {
            let mut asked = self.ask_route(&route, question).await;
            let mut answers = route;
            if asked.is_ok() && !answers.is_outside() {
                // The engine may have begun to listen since the outside routes were tried. The
                // remembered route is used for the engine's whole life, and each inside route costs
                // a process in the container.
                for route in std::mem::take(&mut outside) {
                    if let Ok(reply) = self.ask_route(&route, question).await {
                        (asked, answers) = (Ok(reply), route);
                        break;
                    }
                }
            }
            match asked {
                Ok(reply) => {
                    lock_data(&self.shared.routes)
                        .insert((question.facts.id.clone(), question.port), answers);
                    return reply;
                }
                Err(e) => {
                    errors.push(format!("{}: {e}", answers.name()));
                    outside.extend(Some(answers).filter(Route::is_outside));
                }
            }
        }
        HttpReply {
            error: Some(errors.join("; ")),
            ..Default::default()
        }
    }

    fn routes(&self, facts: &ContainerFacts, port: u16) -> Vec<Route> {
        let remote = self.shared.remote_host.as_deref();
        let mut routes = Vec::new();
        if let Some(published) = facts.published_ports.get(&port) {
            routes.push(Route::Published(reachable(published, remote)));
        }
        if remote.is_none() {
            let joined = |a: &String| {
                if a.contains(':') {
                    format!("[{a}]:{port}")
                } else {
                    format!("{a}:{port}")
                }
            };
            routes.extend(facts.addresses.iter().map(|a| Route::Address(joined(a))));
        }
        if facts.network_mode == "host" {
            routes.push(Route::HostNetwork(format!(
                "{}:{port}",
                remote.unwrap_or("127.0.0.1")
            )));
        }
        if !self.has_daemon() {
            return routes;
        }
        routes.extend([
            Route::Curl,
            Route::Python,
            Route::Wget(&["wget"]),
            Route::Wget(&["busybox", "wget"]),
        ]);
        routes
    }

    async fn ask_route(&self, route: &Route, question: Question<'_>) -> Result<HttpReply, String> {
        let reply = match route {
            Route::Published(to) | Route::Address(to) | Route::HostNetwork(to) => {
                timeout(PATIENCE, direct(to, question.path, question.bearer))
                    .await
                    .map_err(|_| "no answer in 3 s".to_owned())?
            }
            inside => self.ask_inside(inside, question).await,
        };
        reply.map(|(status, body)| HttpReply {
            status,
            body,
            route: route.name().to_owned(),
            error: None,
        })
    }

    async fn ask_inside(
        &self,
        route: &Route,
        question: Question<'_>,
    ) -> Result<(Option<u16>, String), String> {
        let (bearer, id) = (question.bearer, &question.facts.id);
        let url = format!("http://127.0.0.1:{}{}", question.port, question.path);
        let mut request = ExecRequest::default();
        match route {
            Route::Curl => {
                // Options by standard input, so that the key is not an argument.
                let mut config =
                    format!("url = \"{}\"\n", url.replace(['"', '\\', '\n', '\r'], ""));
                if let Some(key) = bearer {
                    config.push_str(&format!(
                        "header = \"Authorization: Bearer {}\"\n",
                        key.replace('\\', "\\\\")
                            .replace('"', "\\\"")
                            .replace(['\n', '\r'], "")
                    ));
                }
                request.stdin = Some(Input::Bytes(config.into_bytes()));
                let options = "curl -sS -m 3 --noproxy * -K - -w".split(' ');
                request.argv = argv_of(options.chain(["\n%{http_code}"]));
            }
            Route::Python => {
                request.argv = argv_of(["python3", "-c", PYTHON]);
                request.argv.push(url);
                request.env = bearer
                    .map(|k| BTreeMap::from([(KEY_VARIABLE.to_owned(), k.to_owned())]))
                    .unwrap_or_default();
            }
            Route::Wget(_) if bearer.is_some() => return Err("wget would show the key".to_owned()),
            Route::Wget(program) => {
                let options = ["-q", "-T", "3", "-O", "-"];
                request.argv = argv_of(program.iter().copied().chain(options));
                request.argv.push(url);
            }
            _ => return Err("no route inside".to_owned()),
        }
        let output = self
            .command_output(id, request, LONGEST_BODY + 16, PATIENCE * 3)
            .await
            .map_err(|f| f.message)?;
        let complaint = output
            .stderr
            .lines()
            .next_back()
            .unwrap_or_default()
            .trim()
            .to_owned();
        match output.end {
            ExecEnd::Exited(0) => {}
            ExecEnd::NotFound(_) => return Err("not in the image".to_owned()),
            ExecEnd::Exited(code) if complaint.is_empty() => {
                return Err(format!("exit code {code}"));
            }
            ExecEnd::Exited(_) => return Err(complaint),
            ExecEnd::ContainerGone => return Err("the container is gone".to_owned()),
            _ => return Err("no answer in time".to_owned()),
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match route {
            Route::Curl => match text.rsplit_once('\n') {
                Some((body, code)) => {
                    Ok((code.trim().parse().ok().filter(|c| *c > 0), body.to_owned()))
                }
                None => Err("curl reported no status".to_owned()),
            },
            Route::Python => match text.split_once('\n') {
                Some((code, body)) => Ok((code.trim().parse().ok(), body.to_owned())),
                None => Err("python3 reported no status".to_owned()),
            },
            // wget exits with 0 for 2xx only.
            _ => Ok((Some(200), text)),
        }
    }
}

/// The address of a published port: one on all addresses is reached through this machine too.
fn reachable(published: &str, remote: Option<&str>) -> String {
    let Some((host, port)) = published.rsplit_once(':') else {
        return published.to_owned();
    };
    match (host, remote) {
        ("0.0.0.0" | "" | "[::]" | "::", Some(remote)) if remote.contains(':') => {
            format!("[{remote}]:{port}")
        }
        ("0.0.0.0" | "" | "[::]" | "::", remote) => {
            format!("{}:{port}", remote.unwrap_or("127.0.0.1"))
        }
        _ => published.to_owned(),
    }
}

async fn direct(
    to: &str,
    path: &str,
    bearer: Option<&str>,
) -> Result<(Option<u16>, String), String> {
    let stream = TcpStream::connect(to).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let mut request = hyper::Request::get(path)
        .header("host", to)
        .header("accept", "*/*")
        .header("connection", "close");
    if let Some(key) = bearer {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let exchange = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), LONGEST_BODY)
            .collect()
            .await
            .map_err(|e| e.to_string())?;
        Ok((
            Some(status),
            String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        ))
    };
    // Both run on this task, so dropping it closes the connection.
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        done = &mut exchange => done,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(e) => Err(e.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_published_on_all_addresses_is_reached_on_this_machine() {
        assert_eq!(reachable("0.0.0.0:18000", None), "127.0.0.1:18000");
        assert_eq!(reachable("[::]:18000", None), "127.0.0.1:18000");
        assert_eq!(reachable("10.0.0.5:18000", None), "10.0.0.5:18000");
        assert_eq!(reachable("0.0.0.0:18000", Some("gpu-1")), "gpu-1:18000");
    }

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that reads a request and then writes what `next` gives, until the other end goes.
    async fn server(mut next: impl FnMut(usize) -> Option<Vec<u8>> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let mut n = 0;
            while let Some(bytes) = next(n) {
                n += 1;
                if bytes.is_empty() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                } else if stream.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        });
        address
    }

    async fn asked(to: &str) -> Result<(Option<u16>, String), String> {
        let asked = timeout(PATIENCE, direct(to, "/metrics", Some("key"))).await;
        asked.unwrap_or_else(|_| Err("no answer in 3 s".to_owned()))
    }

    #[tokio::test]
    async fn what_hostile_servers_answer_is_bounded() {
        let head = b"HTTP/1.1 200 OK\r\n".to_vec();
        let sized =
            |n: u64| format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\nabc").into_bytes();
        // Headers without an end; a body without an end, in chunks and without; HTTP/0.9; a length
        // that is a lie; one that no number holds.
        let first = head.clone();
        let headers = server(move |n| {
            Some(match n {
                0 => first.clone(),
                n => format!("x-{n}: {}\r\n", "y".repeat(10_000)).into_bytes(),
            })
        });
        let first = [&head[..], b"\r\n"].concat();
        let body = server(move |n| {
            Some(if n == 0 {
                first.clone()
            } else {
                vec![b'x'; 65_536]
            })
        });
        let first = [&head[..], b"Transfer-Encoding: chunked\r\n\r\n"].concat();
        let chunks = server(move |n| {
            Some(match n {
                0 => first.clone(),
                _ => [&b"10000\r\n"[..], &vec![b'x'; 65_536], b"\r\n"].concat(),
            })
        });
        let old = server(|n| (n == 0).then(|| b"I speak the oldest protocol\n".to_vec()));
        let short = sized(100);
        let short = server(move |n| (n == 0).then(|| short.clone()));
        let huge = sized(u64::MAX);
        let huge = server(move |n| (n == 0).then(|| huge.clone()));
        for (what, to) in [
            ("headers", headers.await),
            ("body", body.await),
            ("chunks", chunks.await),
            ("HTTP/0.9", old.await),
            ("short", short.await),
            ("huge", huge.await),
        ] {
            let reply = asked(&to).await;
            assert!(reply.is_err(), "{what}: {reply:?}");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_packed_bytes_stay_packed() {
        let reply = |head: &str, body: &[u8]| {
            let mut bytes =
                format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
            bytes.extend_from_slice(body);
            server(move |n| (n == 0).then(|| bytes.clone()))
        };
        let away = reply("307 Away\r\nLocation: http://169.254.169.254/", b"away").await;
        assert_eq!(asked(&away).await, Ok((Some(307), "away".to_owned())));
        let packed = reply("200 OK\r\nContent-Encoding: gzip", b"\x1f\x8b\x08bomb").await;
        let (status, body) = asked(&packed).await.unwrap();
        assert!(status == Some(200) && body.ends_with("bomb"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dripping_or_silent_server_is_left_after_three_seconds() {
        let begin = tokio::time::Instant::now();
        let drip = server(|n| {
            Some(if n % 2 == 0 {
                Vec::new()
            } else {
                b"H".to_vec()
            })
        })
        .await;
        assert!(asked(&drip).await.is_err());
        let silent = server(|_| Some(Vec::new())).await;
        assert_eq!(asked(&silent).await, Err("no answer in 3 s".to_owned()));
        assert!(begin.elapsed() <= PATIENCE * 2 + Duration::from_secs(1));
    }
}
