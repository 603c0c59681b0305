//! A server that plays a script over real sockets: what it answers is bytes, so that it can do what
//! no HTTP library would.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

/// A request as it came.
pub struct Asked {
    /// Path.
    pub path: String,
    /// Head, without the empty line.
    pub head: String,
    /// Body; null where it is no JSON.
    pub body: serde_json::Value,
}

/// What follows the bytes of a reply.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// The next request of the connection.
    Next,
    /// The connection is closed.
    Close,
    /// Nothing, for ever.
    Silence,
    /// The last part again and again.
    Again,
}

/// What is answered.
pub struct Reply {
    parts: Vec<Vec<u8>>,
    then: Then,
    gate: Option<Arc<Barrier>>,
    wait: Duration,
}

impl Reply {
    fn new(parts: Vec<Vec<u8>>, then: Then) -> Reply {
        Reply {
            parts,
            then,
            gate: None,
            wait: Duration::ZERO,
        }
    }

    /// These bytes, then the connection is closed.
    pub fn raw(bytes: &[u8]) -> Reply {
        Reply::new(vec![bytes.to_vec()], Then::Close)
    }

    /// A status with a body.
    pub fn status(status: u16, body: &str) -> Reply {
        let head = format!(
            "HTTP/1.1 {status} Status\r\nLocation: /elsewhere\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Reply::new(vec![head.into_bytes()], Then::Next)
    }

    /// 200 with a body.
    pub fn json(body: &str) -> Reply {
        Reply::status(200, body)
    }

    /// Events, each in a chunk of its own.
    pub fn events(events: &[&str]) -> Reply {
        let mut parts = vec![HEAD.to_vec()];
        parts.extend(events.iter().map(|e| chunk(e)));
        parts.push(b"0\r\n\r\n".to_vec());
        Reply::new(parts, Then::Next)
    }

    /// A stream of the same without an end.
    pub fn endless(part: &str) -> Reply {
        // Bigger writes, or it would take its time.
        let many = part.repeat((64 << 10) / part.len() + 1);
        Reply::new(vec![HEAD.to_vec(), chunk(&many)], Then::Again)
    }

    /// Headers without an end.
    pub fn endless_head() -> Reply {
        let header = format!("X-Filler: {}\r\n", "x".repeat(1000)).repeat(10);
        Reply::new(
            vec![b"HTTP/1.1 200 OK\r\n".to_vec(), header.into_bytes()],
            Then::Again,
        )
    }

    /// Without the end of the body: the connection is closed before.
    pub fn cut(mut self) -> Reply {
        self.parts.pop();
        self.then = Then::Close;
        self
    }

    /// Without the end of the body: nothing more comes.
    pub fn then_silence(mut self) -> Reply {
        if self.then == Then::Next {
            self.parts.pop();
        }
        self.then = Then::Silence;
        self
    }

    /// Only when all who wait there have come.
    pub fn after(mut self, gate: Arc<Barrier>) -> Reply {
        self.gate = Some(gate);
        self
    }

    /// Only after so many milliseconds.
    pub fn after_ms(mut self, ms: u64) -> Reply {
        self.wait = Duration::from_millis(ms);
        self
    }
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// A server on the loopback interface. It ends with its runtime.
pub struct Server {
    /// `host:port`.
    pub address: String,
}

impl Server {
    /// Answers every request by the script.
    pub async fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                tokio::spawn(async move {
                    // A client that goes away ends its connection, and nothing else.
                    let _ = serve(stream, &*script).await;
                });
            }
        });
        Server { address }
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &(dyn Fn(&Asked) -> Reply + Send + Sync),
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    while let Some(asked) = request(&mut stream, &mut read).await? {
        let reply = script(&asked);
        if let Some(gate) = &reply.gate {
            gate.wait().await;
        }
        tokio::time::sleep(reply.wait).await;
        for part in &reply.parts {
            stream.write_all(part).await?;
        }
        match reply.then {
            Then::Next => {}
            Then::Close => return Ok(()),
            Then::Silence => std::future::pending().await,
            Then::Again => loop {
                for part in reply.parts.iter().skip(1) {
                    stream.write_all(part).await?;
                }
            },
        }
    }
    Ok(())
}

async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> std::io::Result<Option<Asked>> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let length: usize = head
        .lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    let whole = end + 4 + length;
    while read.len() < whole {
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
    let body = serde_json::from_slice(&read[end + 4..whole]).unwrap_or_default();
    read.drain(..whole);
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Some(Asked { path, head, body }))
}
