//! `watch` and what it serves.
#![allow(dead_code, missing_docs)]

use crate::common::e2e::{Live, plimsoll, wait_for};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

/// `watch` with a state folder of its own.
pub struct Watched {
    pub live: Live,
    pub address: String,
}

impl Watched {
    pub fn start(state: &Path, args: &[&str]) -> Watched {
        Watched::start_with(state, args, |_| ())
    }

    pub fn start_with(state: &Path, args: &[&str], change: impl FnOnce(&mut Command)) -> Watched {
        let mut all = vec![
            "watch",
            "--listen",
            "127.0.0.1:0",
            "--interval",
            "1s",
            "--json",
        ];
        all.extend(args);
        let mut command = plimsoll(&all);
        command.env("XDG_STATE_HOME", state);
        change(&mut command);
        let mut live = Live::start(command);
        live.until("serving http://");
        let text = live.stderr();
        let address = text
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let address = address.expect("an address").to_owned();
        Watched { live, address }
    }

    /// All lines of one scrape, by name and labels.
    pub fn scrape(&self) -> BTreeMap<String, f64> {
        let page = wait_for("a page", || {
            let mut stream = std::net::TcpStream::connect(&self.address).ok()?;
            let ask = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            stream.write_all(ask.as_bytes()).ok()?;
            let mut page = String::new();
            stream.read_to_string(&mut page).ok()?;
            page.starts_with("HTTP/1.1 200").then_some(page)
        });
        let lines = page.lines().filter(|l| l.starts_with("plimsoll_"));
        let parsed = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        parsed.collect()
    }

    /// The value of a line, once there is one that fits.
    pub fn wait_for(&self, line: &str, fits: impl Fn(f64) -> bool) -> f64 {
        let found = || self.scrape().get(line).copied().filter(|v| fits(*v));
        wait_for(line, found)
    }
}

/// Bytes of each part of a container's host memory.
pub fn parts_of(page: &BTreeMap<String, f64>, container: &str) -> BTreeMap<String, f64> {
    let head = format!(
        "plimsoll_container_breakdown_bytes{{container=\"{container}\",gpu=\"\",component=\""
    );
    let parts = page.iter().filter_map(|(line, bytes)| {
        let part = line.strip_prefix(&head)?.strip_suffix("\"}")?;
        Some((part.to_owned(), *bytes))
    });
    parts.collect()
}
