//! Secrets that no output may hold, and a home whose files everybody could read.
#![allow(dead_code, missing_docs)]

use crate::common::e2e::{Ended, Live, command};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `plimsoll` in a shell that lets everybody read what is created.
pub fn open_handed(args: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let mut all = vec!["-c", "umask 0; exec \"$0\" \"$@\"", program];
    all.extend(args);
    let mut command = command(Path::new("/bin/sh"), &all);
    command.env_remove("HF_TOKEN");
    command
}

/// A home of the test's own, for state and caches.
pub struct Home(tempfile::TempDir);

impl Home {
    pub fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        // As a folder in use is: open to others.
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        home
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    #[track_caller]
    pub fn run(&self, args: &[&str], code: i32) -> Ended {
        let mut command = open_handed(args);
        command
            .env("HOME", self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env("XDG_RUNTIME_DIR", self.path().join("run"));
        Live::start(command).end().expect(code)
    }
}

/// Every file and folder below is its owner's alone; gives how many there are.
#[track_caller]
pub fn alone(folder: &Path) -> usize {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let (mode, wanted) = (
            meta.permissions().mode() & 0o7777,
            if meta.is_dir() { 0o700 } else { 0o600 },
        );
        assert_eq!(mode, wanted, "{} is {mode:o}", path.display());
        seen += 1;
        if meta.is_dir() {
            seen += alone(&path);
        }
    }
    seen
}

/// Secrets of every kind, put together here so that none stands in this file.
pub fn shapes() -> Vec<String> {
    let long = "Q7xPlimsoll0TestSecret9vB2kLmN4rT6wY8zA1cE3gI5";
    vec![
        format!("hf_{}", &long[..34]),
        format!("sk-proj-{long}"),
        format!("sk-ant-api03-{long}"),
        ["AK", "IAQ7XPLIMSOLL0TEST"].concat(),
        format!("ghp_{}", &long[..36]),
        format!("github_pat_{}_{}", &long[..22], &long[22..]),
        format!("AI{}{}", "za", &long[..35]),
        format!("xoxb-{}-{}", "123456789012", &long[..24]),
        format!("nvapi-{long}"),
        [
            "eyJhbGciOiJIUzI1NiJ9",
            "eyJzdWIiOiJwbGltc29sbCJ9",
            &long[..30],
        ]
        .join("."),
    ]
}

/// A secret without a look of its own, and others that only their place gives away.
pub const PASSWORD: &str = "w9 pl1msoll/pass&word";
pub const API_KEY: &str = "pl1msoll-key-of-nobody";
pub const IN_URL: &str = "pl1msollurlpw";
pub const IN_LABEL: &str = "pl1msoll-label-pw";

/// What must be nowhere: each secret, and what it looks like encoded.
pub fn nowhere() -> Vec<String> {
    let mut all = shapes();
    all.extend([PASSWORD, API_KEY, IN_URL, IN_LABEL].map(str::to_owned));
    all.extend(["w9%20pl1msoll%2Fpass%26word", "w9 pl1msoll\\/pass&word"].map(str::to_owned));
    // base64 of `user:` and the password.
    all.push("dXNlcjp3OSBwbDFtc29sbC9wYXNzJndvcmQ".to_owned());
    all
}

/// The words of a look that did not lose its secrets.
#[track_caller]
pub fn tells_nothing(what: &str, text: &str) {
    for secret in nowhere() {
        if let Some(at) = text.find(&secret) {
            let around = &text.as_bytes()[at.saturating_sub(120)..(at + 160).min(text.len())];
            panic!(
                "{what} holds `{secret}`: …{}…",
                String::from_utf8_lossy(around)
            );
        }
    }
}
