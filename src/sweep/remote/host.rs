//! Another machine, as a URL names it, a command on it, and where a run lies there.

use super::output::read_beginning;
use crate::error::Failure;
use crate::matrix::Shard;
use crate::store::{bounded, write_atomically};
use crate::sweep::folder::REMOTE_FILE;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Where people put binaries that are theirs alone; a shell without a login does not look there.
const PLACES: &str = "PATH=$PATH:$HOME/.local/bin:$HOME/.cargo/bin; export PATH";

/// A machine that is reached by ssh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteHost {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    /// The ssh client.
    pub ssh: OsString,
}

impl RemoteHost {
    /// `ssh://[USER@]HOST[:PORT]`. Other kinds of URL are refused, with the reason.
    pub fn parse_url(url: &str) -> Result<RemoteHost, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!("`--docker-host {url}`: {why}"))
                .hint("write it as ssh://[USER@]HOST[:PORT]")
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(wrong("invalid URL"));
        };
        if !scheme.eq_ignore_ascii_case("ssh") {
            return Err(Failure::usage(format!(
                "`--docker-host {url}`: memory is sampled on the host itself, so plimsoll must run there; a Docker API from afar is not enough"
            ))
            .hint("--docker-host ssh://[USER@]HOST[:PORT] runs it there")
            .hint("for another daemon of this machine: DOCKER_HOST"));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(wrong("it contains more than a host name"));
        }
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        if user.is_some_and(|u| u.contains(':')) {
            return Err(wrong("leave the password out: ssh uses keys here"));
        }
        let (host, port) = match place.strip_prefix('[') {
            // An IPv6 address has colons of its own.
            Some(inside) => match inside.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => (host, port.strip_prefix(':')),
                None => return Err(wrong("a bracket is left open")),
            },
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port = match port {
            None => None,
            Some(digits) => match digits.parse::<u16>() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(wrong(&format!("invalid port `{digits}`"))),
            },
        };
        // A host that begins with a dash would be a flag of ssh; a blank ends it.
        let plain = |c: char| !c.is_whitespace() && !c.is_control();
        let name = |n: &str| !n.is_empty() && !n.starts_with('-') && n.chars().all(plain);
        if !name(host) {
            return Err(wrong("it names no host"));
        }
        if user.is_some_and(|u| !name(u)) {
            return Err(wrong("the user before the `@` is missing"));
        }
        Ok(RemoteHost {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            ssh: "ssh".into(),
        })
    }

    /// An ssh that runs these words there: exactly these, whatever is in them.
    pub(super) fn ssh_command(&self, words: &[&str]) -> Result<Command, Failure> {
        self.ssh_shell("exec \"$@\"", words)
    }

    /// An ssh that runs a constant program of `sh` there, with words as its arguments.
    pub(super) fn ssh_shell(&self, program: &str, words: &[&str]) -> Result<Command, Failure> {
        let program = format!("{PLACES}; {program}");
        let mut line = vec!["sh", "-c", &program, "sh"];
        line.extend(words);
        // ssh joins what it is given with blanks, and a shell over there reads it.
        let line = shlex::try_join(line).map_err(|_| {
            Failure::usage("a path or setting for the other machine contains a NUL character, which no command line can hold")
                .hint("look in the sweep file for one")
        })?;
        let mut command = Command::new(&self.ssh);
        // No questions: no user is there to answer. A dead line is noticed within a minute.
        for option in [
            "BatchMode=yes",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=4",
        ] {
            command.args(["-o", option]);
        }
        command.arg("-T");
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(user) = &self.user {
            command.args(["-l", user]);
        }
        command.args(["--", &self.host]).arg(line);
        command.stdin(Stdio::null()).kill_on_drop(true);
        // Ctrl-C is for us; we pass it on in order. ssh would end at once, and its command stay.
        command.process_group(0);
        Ok(command)
    }

    /// The output of a command there, when it ended well; the exit code and complaint otherwise.
    pub(super) async fn run_command(
        &self,
        mut command: Command,
    ) -> Result<Result<String, (i32, String)>, Failure> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| self.no_ssh(e))?;
        let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::bug("the output of `ssh` cannot be read"));
        };
        let (output, complaint, ended) = tokio::join!(
            read_beginning(&mut out),
            read_beginning(&mut err),
            child.wait()
        );
        let ended = ended.map_err(|e| self.no_ssh(e))?;
        let text = |output: io::Result<Vec<u8>>| {
            String::from_utf8_lossy(&output.unwrap_or_default()).into_owned()
        };
        let complaint = text(complaint).trim().to_owned();
        match ended.code() {
            Some(0) => Ok(Ok(text(output))),
            // ssh's own; a command of ours does not end so.
            Some(255) => Err(self.not_reached(&complaint)),
            code => Ok(Err((code.unwrap_or(-1), complaint))),
        }
    }

    /// plimsoll is there, and it is the same.
    pub async fn check_version(&self) -> Result<(), Failure> {
        let ours = env!("CARGO_PKG_VERSION");
        let install = format!(
            "plimsoll {ours} must be in its PATH, in ~/.local/bin or in ~/.cargo/bin: build it there, or copy this one: \
             ssh {0} mkdir -p .local/bin && scp {1}\"$(command -v plimsoll)\" {2}:.local/bin/",
            self.ssh_words(),
            (self.port).map_or(String::new(), |p| format!("-P {p} ")),
            self.address(),
        );
        let command = self.ssh_command(&["plimsoll", "--version"])?;
        match self.run_command(command).await? {
            Ok(text) => {
                // Before it a shell may have greeted.
                let version = text.lines().rev().find_map(|l| l.strip_prefix("plimsoll "));
                match version.map(str::trim) {
                    Some(version) if version == ours => Ok(()),
                    Some(version) => Err(Failure::environment(format!(
                        "plimsoll on `{self}` is {version}, this one is {ours}: nothing was run, as their results may differ"
                    ))
                    .hint(install)),
                    None => Err(Failure::environment(format!(
                        "`plimsoll --version` on `{self}` printed no version: it is broken, or another program"
                    ))
                    .hint(install)),
                }
            }
            Err((126 | 127, _)) => {
                Err(Failure::environment(format!("there is no plimsoll on `{self}`")).hint(install))
            }
            Err((code, complaint)) => Err(Failure::environment(format!(
                "plimsoll on `{self}` does not run (exit {code}): {complaint}"
            ))
            .hint(install)),
        }
    }

    pub(super) fn no_ssh(&self, e: io::Error) -> Failure {
        match e.kind() {
            io::ErrorKind::NotFound => Failure::environment("there is no `ssh` on this machine")
                .hint("install OpenSSH's client (Debian: openssh-client)"),
            _ => Failure::bug("the output of `ssh` cannot be read").caused_by(e),
        }
    }

    pub(super) fn not_reached(&self, complaint: &str) -> Failure {
        let why = match complaint.lines().rfind(|l| !l.trim().is_empty()) {
            Some(line) => format!(": {}", line.trim()),
            None => String::new(),
        };
        Failure::environment(format!("`{self}` cannot be reached by ssh{why}")).hint(format!(
            "this must work without a prompt: ssh -o BatchMode=yes {} true",
            self.ssh_words()
        ))
    }

    /// As arguments of ssh.
    fn ssh_words(&self) -> String {
        let port = (self.port).map_or(String::new(), |p| format!("-p {p} "));
        let user = (self.user.as_ref()).map_or(String::new(), |u| format!("{u}@"));
        format!("{port}{user}{}", self.host)
    }

    /// As scp and rsync write it.
    fn address(&self) -> String {
        let user = (self.user.as_ref()).map_or(String::new(), |u| format!("{u}@"));
        if self.host.contains(':') {
            format!("{user}[{}]", self.host)
        } else {
            format!("{user}{}", self.host)
        }
    }
}

impl fmt::Display for RemoteHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// A longer file of a place is none of ours, bytes.
const LONGEST: u64 = 64 << 10;

/// The place of a run on another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePlace {
    /// The machine, as `--docker-host` names it.
    pub host: String,
    /// The run's folder there.
    pub folder: String,
    /// The part of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

impl RemotePlace {
    /// As it is written down in a folder here; `None` where the run is of this machine, or where
    /// there is none.
    pub fn read_file(here: &Path) -> Result<Option<RemotePlace>, Failure> {
        let file = here.join(REMOTE_FILE);
        let unreadable = |e: io::Error| {
            Failure::environment(format!("cannot read `{}`", file.display())).caused_by(e)
        };
        match bounded::read_bytes(&file, LONGEST) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(unreadable(e)),
            Ok(bytes) => {
                let place = bounded::parse_json(&bytes);
                place.map(Some).map_err(|e| unreadable(e.into()))
            }
        }
    }

    /// Writes it down.
    pub fn write_file(&self, here: &Path) -> Result<(), Failure> {
        let mut bytes = serde_json::to_vec(self).map_err(|e| {
            Failure::bug("the record of where the sweep runs cannot be made").caused_by(e)
        })?;
        bytes.push(b'\n');
        write_atomically(&here.join(REMOTE_FILE), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitCode;

    type Parts = (Option<&'static str>, &'static str, Option<u16>);

    #[test]
    fn urls_that_name_a_machine() {
        let good: [(&str, Parts); 7] = [
            ("ssh://node", (None, "node", None)),
            ("ssh://node/", (None, "node", None)),
            (
                "SSH://me@node.example:2222",
                (Some("me"), "node.example", Some(2222)),
            ),
            ("ssh://10.0.0.7:22", (None, "10.0.0.7", Some(22))),
            ("ssh://[::1]:2222", (None, "::1", Some(2222))),
            ("ssh://me@[fe80::1]", (Some("me"), "fe80::1", None)),
            ("ssh://me@site@node", (Some("me@site"), "node", None)),
        ];
        for (url, (user, host, port)) in good {
            let remote = RemoteHost::parse_url(url).unwrap();
            assert_eq!(
                (remote.user.as_deref(), remote.host.as_str(), remote.port),
                (user, host, port),
                "{url}"
            );
        }
    }

    #[test]
    fn urls_that_do_not() {
        for (url, why) in [
            ("node", "invalid URL"),
            ("ssh://", "names no host"),
            ("ssh://me@", "no host"),
            ("ssh://@node", "user before"),
            ("ssh://-oProxyCommand=x", "no host"),
            ("ssh://-l@node", "user before"),
            ("ssh://no de", "no host"),
            ("ssh://node:", "invalid port"),
            ("ssh://node:0", "invalid port"),
            ("ssh://node:70000", "invalid port"),
            ("ssh://[::1", "bracket"),
            ("ssh://node/var/run/docker.sock", "more than a host name"),
            ("ssh://me:secret@node", "password"),
            ("unix:///var/run/docker.sock", "sampled on the host"),
            ("tcp://node:2375", "sampled on the host"),
        ] {
            let failure = RemoteHost::parse_url(url).unwrap_err();
            assert_eq!(failure.code, ExitCode::Usage);
            assert!(failure.message.contains(why), "{url}: {failure}");
            assert!(failure.hints.iter().any(|h| h.contains("ssh://")), "{url}");
        }
    }

    #[test]
    fn the_words_reach_the_shell_over_there_as_they_are() {
        let words = ["plimsoll", "it's \"$(x)\"", "", "a\nb", "-x", "`y`", "!"];
        let mut remote = RemoteHost::parse_url("ssh://me@node:2222").unwrap();
        remote.ssh = "/bin/true".into();
        let command = remote.ssh_shell("printf '%s\\0' \"$@\"", &words).unwrap();
        let arguments: Vec<_> = command.as_std().get_args().collect();
        let [.., dashes, host, line] = arguments.as_slice() else {
            panic!("{arguments:?}");
        };
        assert_eq!((dashes.to_str(), host.to_str()), (Some("--"), Some("node")));
        // What sshd does with it.
        let ended = std::process::Command::new("sh")
            .arg("-c")
            .arg(line)
            .output()
            .unwrap();
        let output = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(output.split_terminator('\0').collect::<Vec<_>>(), words);
    }
}
