//! A hub of Hugging Face's kind on this host, which says what a test tells it to and remembers what it was asked.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// Headers, names in small letters.
    pub headers: BTreeMap<String, String>,
}

impl Asked {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// `file` of `/owner/name/resolve/revision/file`.
    pub fn file(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        path.split_once("/resolve/")
            .and_then(|(_, rest)| rest.split_once('/'))
            .map_or(path, |(_, file)| file)
    }
}

/// A server that listens until the test ends.
pub struct Hub {
    /// `http://127.0.0.1:PORT`
    pub endpoint: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Hub {
    /// A server; `answer` writes the whole answer, head and all.
    pub fn start(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Hub {
        Hub::at("127.0.0.1", answer)
    }

    /// The same at one of this host's addresses.
    pub fn at(
        address: &str,
        answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static,
    ) -> Hub {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(request) = read(&stream) {
                        seen.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Hub { endpoint, asked }
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
            None => return Some(Asked { path, headers }),
        };
    }
}

/// Writes an answer in one piece. Whoever has heard enough may have gone.
pub fn say(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

/// The part of a file that a request asks for, its size beside it: what lies behind `whole` are weights that nobody has.
pub fn part(stream: &mut TcpStream, asked: &Asked, whole: &[u8], size: u64) {
    let range = asked
        .header("range")
        .and_then(|r| r.strip_prefix("bytes=0-"));
    let last: u64 = range.expect("a range").parse().unwrap();
    let last = last.min(size - 1);
    let mut body = whole.to_vec();
    body.resize(usize::try_from(last).unwrap() + 1, 0);
    let told = format!("bytes 0-{last}/{size}");
    say(
        stream,
        "206 Partial Content",
        &[("Content-Range", &told)],
        &body,
    );
}

/// The header of a safetensors file with these tensors of 16 bits, and the size of the file. `more`: bytes of metadata.
pub fn header(tensors: &[(String, Vec<u64>)], more: usize) -> (Vec<u8>, u64) {
    let mut at = 0;
    let mut entries = serde_json::Map::new();
    entries.insert(
        "__metadata__".into(),
        serde_json::json!({"x": "y".repeat(more)}),
    );
    for (name, shape) in tensors {
        let end = at + 2 * shape.iter().product::<u64>();
        let entry = serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]});
        entries.insert(name.clone(), entry);
        at = end;
    }
    let json = serde_json::Value::Object(entries).to_string();
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    let size = bytes.len() as u64 + at;
    (bytes, size)
}
