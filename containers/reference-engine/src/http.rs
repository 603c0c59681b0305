//! HTTP/1.1 as a server of short requests needs it: one request per connection, sizes bounded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const HEAD_BYTES: u64 = 16 << 10;
const BODY_BYTES: usize = 1 << 20;
/// Small, because every connection has one and the engine's own memory is to stay tiny.
pub const BUFFER_BYTES: usize = 4096;

pub struct Request {
    pub method: String,
    pub path: String,
    pub body: String,
}

/// What to answer: status and JSON, or plain text.
pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: String,
}

impl Answer {
    pub fn json(body: String) -> Answer {
        Answer { status: 200, kind: "application/json", body }
    }

    pub fn error(status: u16, message: &str) -> Answer {
        let message = crate::json::string(message);
        let body = format!("{{\"error\":{{\"message\":{message},\"code\":{status}}}}}");
        Answer { status, kind: "application/json", body }
    }
}

pub fn read_request(stream: &TcpStream) -> Result<Request, Answer> {
    let broken = |_| Answer::error(400, "the request is incomplete");
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, stream);
    let mut head = (&mut reader).take(HEAD_BYTES);
    let mut line = String::new();
    head.read_line(&mut line).map_err(broken)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(Answer::error(400, "this is not HTTP"));
    };
    let (method, path) = (method.to_string(), target.split('?').next().unwrap_or_default().to_string());
    let mut length = 0;
    let mut wants_to_be_asked = false;
    loop {
        line.clear();
        head.read_line(&mut line).map_err(broken)?;
        if !line.ends_with('\n') {
            return Err(Answer::error(431, "the head is too large or incomplete"));
        }
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| Answer::error(400, "bad content-length"))?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Answer::error(411, "send a content-length"));
        } else if name.eq_ignore_ascii_case("expect") {
            wants_to_be_asked = true;
        }
    }
    if length > BODY_BYTES {
        return Err(Answer::error(413, "the body is too large"));
    }
    if wants_to_be_asked {
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(broken)?;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).map_err(broken)?;
    let body = String::from_utf8(body).map_err(|_| Answer::error(400, "the body is not UTF-8"))?;
    Ok(Request { method, path, body })
}

pub fn write_answer(mut stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(answer.body.as_bytes())
}

/// The end of the body is the end of the connection.
pub fn begin_events(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n",
    )
}

/// An address, or `localhost`. Other names need a resolver, which a static glibc has not.
pub fn address(host: &str, port: u16) -> Option<SocketAddr> {
    let ip = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => host.trim_start_matches('[').trim_end_matches(']').parse().ok()?,
    };
    Some(SocketAddr::new(ip, port))
}

/// Sends one request; the answer's status and a reader that stands at its body.
pub fn send(to: SocketAddr, head: &str, body: &str) -> io::Result<(u16, BufReader<TcpStream>)> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(600)))?;
    stream.set_nodelay(true)?;
    let length = body.len();
    stream.write_all(
        format!(
            "{head} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        )
        .as_bytes(),
    )?;
    stream.write_all(body.as_bytes())?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    while line.trim_end() != "" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((status, reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses() {
        assert_eq!(address("localhost", 80).unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(address("[::1]", 80).unwrap().to_string(), "[::1]:80");
        assert_eq!(address("engine", 80), None);
    }

    /// What the server makes of these bytes.
    fn status_of(bytes: &'static [u8]) -> Result<Request, u16> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(to).unwrap();
            let _ = stream.write_all(bytes);
        });
        let (stream, _) = listener.accept().unwrap();
        let result = read_request(&stream).map_err(|answer| answer.status);
        client.join().unwrap();
        result
    }

    #[test]
    fn requests() {
        let request = status_of(b"POST /v1/x?y=1 HTTP/1.1\r\nCONTENT-length: 3\r\n\r\nabc").ok().unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str(), request.body.as_str()), ("POST", "/v1/x", "abc"));
        let status = |bytes| status_of(bytes).err();
        assert_eq!(status(b""), Some(400));
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: x"), Some(431));
        assert_eq!(status(b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), Some(400));
        assert_eq!(status(b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc"), Some(400));
        assert_eq!(status(b"GET / HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n"), Some(413));
    }
}
