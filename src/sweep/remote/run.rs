//! Running a sweep on the other machine, to its end or to the user's.

use super::host::RemoteHost;
use super::output::{LineBuffer, read_beginning};
use super::unpack::{UnpackedFiles, unpack_archive};
use crate::error::{ExitCode, Failure};
use crate::sweep::folder::LOCK_FILE;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// What comes before the number of our process there. Lines before it are the shell's own greeting.
const MARK: &[u8] = b"plimsoll-runs-as ";

/// So much of a greeting is looked through.
const GREETING: usize = 64 * 1024;

/// Receives the remote stdout.
pub type DataSink<'a> = &'a mut (dyn FnMut(&[u8]) -> Result<(), Failure> + Send);
/// Receives the remote stderr.
pub type TalkSink<'a> = &'a mut (dyn FnMut(&str) + Send);

async fn read_pipe(
    pipe: &mut Option<impl AsyncRead + Unpin>,
    into: &mut [u8],
) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(into).await,
        None => Ok(0),
    }
}

impl RemoteHost {
    /// Runs `plimsoll WORDS...` there, with `input` as its standard input. Its stdout goes to
    /// `data` and its stderr to `talk`, as it comes, line by line, and harmless to a terminal. When
    /// `stop` fires, it is interrupted there and waited for. Returns its exit code.
    pub async fn run_plimsoll(
        &self,
        words: &[&str],
        input: Option<&[u8]>,
        (data, talk): (DataSink<'_>, TalkSink<'_>),
        stop: &CancellationToken,
    ) -> Result<u8, Failure> {
        // Without a terminal over there no Ctrl-C gets there by itself: it is sent to this number.
        let program = "echo \"plimsoll-runs-as $$\"; exec plimsoll \"$@\"";
        let mut command = self.ssh_shell(program, words)?;
        command
            .stdin(input.map_or_else(Stdio::null, |_| Stdio::piped()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| self.no_ssh(e))?;
        let writing = child.stdin.take().zip(input.map(<[u8]>::to_vec));
        let writing = writing.map(|(mut pipe, bytes)| {
            // One that ends before it has read everything reports why itself.
            tokio::spawn(async move { drop(pipe.write_all(&bytes).await) })
        });
        let broken = |e| {
            Failure::environment(format!("the ssh connection to `{self}` broke off")).caused_by(e)
        };
        let mut out = child.stdout.take();
        let mut err = child.stderr.take();
        let (mut lines, mut complaints) = (LineBuffer::default(), LineBuffer::default());
        let mut write_lines = |whole: Vec<String>| -> Result<(), Failure> {
            let text: String = whole.iter().flat_map(|l| [l.as_str(), "\n"]).collect();
            data(text.as_bytes())
        };
        let mut front = RemoteGreeting::default();
        let mut asked_to_stop = false;
        let (mut buffer, mut complaint) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        while out.is_some() || err.is_some() {
            tokio::select! {
                read = read_pipe(&mut out, &mut buffer), if out.is_some() => match read.map_err(broken)? {
                    0 => out = None,
                    n => if let Some(rest) = front.after_mark(&buffer[..n]) {
                        write_lines(lines.whole_lines(&rest))?;
                    },
                },
                read = read_pipe(&mut err, &mut complaint), if err.is_some() => match read.map_err(broken)? {
                    0 => err = None,
                    n => complaints.whole_lines(&complaint[..n]).iter().for_each(|line| talk(line)),
                },
                () = stop.cancelled(), if !asked_to_stop => {
                    asked_to_stop = true;
                    if let Some(pid) = &front.pid {
                        // Reached or not, we wait for what comes of it; twice Ctrl-C leaves at once.
                        let kill = self.ssh_shell("kill -INT \"$1\"", &[pid])?;
                        drop(self.run_command(kill).await);
                    } else {
                        // Nothing runs there yet.
                        drop(child.start_kill());
                        return Err(Failure::new(ExitCode::Interrupted, "interrupted"));
                    }
                }
            }
        }
        write_lines(lines.last_lines())?;
        complaints.last_lines().iter().for_each(|line| talk(line));
        let status = child.wait().await.map_err(broken)?;
        if let Some(writing) = writing {
            writing.abort();
        }
        match status.code().and_then(|c| u8::try_from(c).ok()) {
            Some(255) | None => Err(Failure::environment(format!(
                "the connection to `{self}` broke off, and the sweep may still run there"
            ))
            .hint("its finished cells are kept there; use --resume to continue")),
            Some(code) => Ok(code),
        }
    }

    /// Whether it is sure that there is no such folder there.
    pub async fn lacks_folder(&self, dir: &str) -> bool {
        let Ok(command) = self.ssh_shell("test -d \"$1\"", &[dir]) else {
            return false;
        };
        matches!(self.run_command(command).await, Ok(Err((1, _))))
    }

    /// Fetches all that lies in a folder there into a folder here.
    pub async fn fetch_folder(
        &self,
        dir: &str,
        into: &Path,
        stop: &CancellationToken,
    ) -> Result<UnpackedFiles, Failure> {
        // Who works on the folder there is not who works on the one here.
        let lock = format!("--exclude=./{LOCK_FILE}");
        let mut command = self.ssh_command(&["tar", "-C", dir, "-cf", "-", &lock, "."])?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| self.no_ssh(e))?;
        let broken = |e| {
            Failure::environment(format!("the ssh connection to `{self}` broke off"))
                .hint("finished cells are kept there: run the same command again with --resume")
                .caused_by(e)
        };
        let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::bug("the output of `ssh` cannot be read"));
        };
        let out = File::from(out.into_owned_fd().map_err(broken)?);
        let into = into.to_owned();
        let unpacking = tokio::task::spawn_blocking(move || unpack_archive(out, &into));
        let complaints = tokio::spawn(async move {
            let bytes = read_beginning(&mut err).await.unwrap_or_default();
            String::from_utf8_lossy(&bytes).trim().to_owned()
        });
        let ended = tokio::select! {
            ended = child.wait() => ended.map_err(broken)?,
            () = stop.cancelled() => {
                drop(child.kill().await);
                return Err(Failure::new(ExitCode::Interrupted, "interrupted while the results were fetched")
                    .hint(format!("they lie in `{dir}` on `{self}`")));
            }
        };
        let unpacked = unpacking.await.map_err(|e| {
            Failure::environment(format!("the results of `{self}` cannot be unpacked here"))
                .hint(format!(
                    "they are kept there, in `{dir}`: try again with --resume"
                ))
                .caused_by(e)
        })?;
        let complaint = complaints.await.unwrap_or_default();
        match ended.code() {
            Some(0) => unpacked,
            Some(255) => Err(self.not_reached(&complaint)),
            _ => match unpacked {
                // What went wrong here is why it ended there.
                Err(failure) if failure.code != ExitCode::Environment => Err(failure),
                _ => Err(Failure::environment(format!(
                    "the results in `{dir}` on `{self}` cannot be fetched: {complaint}"
                ))
                .hint("they are kept there: copy the folder, or try again with --resume")),
            },
        }
    }
}

/// The beginning of the remote output, up to the number of our process.
#[derive(Debug, Default)]
struct RemoteGreeting {
    received: Vec<u8>,
    pid: Option<String>,
    /// No number came: all output is data.
    given_up: bool,
}

impl RemoteGreeting {
    /// What of these bytes is plimsoll's own data.
    fn after_mark(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.pid.is_some() || self.given_up {
            return Some(bytes.to_vec());
        }
        self.received.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.received[begin..]) {
            let line = &self.received[begin..begin + length];
            begin += length + 1;
            // A greeting without a line's end may precede it on the same line.
            let Some(at) = memchr::memmem::find(line, MARK) else {
                continue;
            };
            let digits = String::from_utf8_lossy(&line[at + MARK.len()..])
                .trim()
                .to_owned();
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
                self.pid = Some(digits);
                let rest = self.received.split_off(begin);
                self.received = Vec::new();
                return (!rest.is_empty()).then_some(rest);
            }
        }
        if self.received.len() > GREETING {
            self.given_up = true;
            return Some(std::mem::take(&mut self.received));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However the bytes are cut, the greeting is left out and the data is whole.
        #[test]
        fn a_greeting_is_left_out(
            greeting in "([ -~]{0,20}\n){0,3}[ -~]{0,5}",
            data in prop::collection::vec(any::<u8>(), 0..60),
            cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let mut all = greeting.clone().into_bytes();
            all.extend_from_slice(b"plimsoll-runs-as 4711\n");
            all.extend_from_slice(&data);
            let (mut front, mut got, mut rest) = (RemoteGreeting::default(), Vec::new(), all.as_slice());
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                got.extend(front.after_mark(now).unwrap_or_default());
                rest = later;
                if rest.is_empty() { break }
            }
            prop_assert_eq!(front.pid.as_deref(), Some("4711"));
            prop_assert_eq!(got, data);
        }
    }
}
