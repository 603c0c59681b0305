//! Runs a tool found on the path, with a time limit and without killing it. Killed in the middle of
//! a call, these tools leave a lock in `/dev/shm` that blocks every later call.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Where the tools are, and whether one of them is running.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    directories: Vec<PathBuf>,
    running: Arc<AtomicBool>,
}

/// Result of running a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutcome {
    /// It ended. The exit status is ignored on purpose: some fail with 0, and some succeed with
    /// 255.
    Text {
        /// Standard output.
        text: String,
        /// First non-empty line of standard error.
        error: Option<String>,
        /// The tool's own pid: older releases list themselves among the GPU's processes.
        pid: u32,
    },
    /// It could not be started.
    Failed(String),
    /// It exceeded its time, or an earlier call still runs. It is left to end by itself; a
    /// sentence.
    StillRunning(String),
}

impl Tools {
    /// Those on `PATH` and in ROCm's own directory.
    pub fn find_installed() -> Tools {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        directories.push("/opt/rocm/bin".into());
        Tools::in_directories(directories)
    }

    /// Those in these directories.
    pub fn in_directories(directories: Vec<PathBuf>) -> Tools {
        Tools {
            directories,
            running: Arc::default(),
        }
    }

    /// Path of the tool; `None` where it is not installed, which is not an error.
    pub fn find_tool(&self, name: &str) -> Option<PathBuf> {
        self.directories
            .iter()
            .filter(|d| d.is_absolute())
            .map(|d| d.join(name))
            .find(|p| p.is_file())
    }

    /// Runs a tool and waits for its end, `patience` at most.
    pub fn run_tool(&self, tool: &Path, arguments: &str, patience: Duration) -> ToolOutcome {
        let name = tool
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        if self.running.swap(true, Ordering::AcqRel) {
            return ToolOutcome::StillRunning(format!(
                "{name} is not started again before the one that hangs has ended"
            ));
        }
        let child = Command::new(tool)
            .args(arguments.split_ascii_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("LC_ALL", "C.UTF-8")
            // Ctrl-C at our terminal must not reach it.
            .process_group(0)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(e) => {
                self.running.store(false, Ordering::Release);
                return ToolOutcome::Failed(format!("{name} cannot be started: {e}"));
            }
        };
        let pid = child.id();
        let (sender, ended) = channel();
        let running = Arc::clone(&self.running);
        // The thread waits for the tool's end without limit, so that no zombie is left.
        let waiter = std::thread::Builder::new()
            .name("smi".into())
            .spawn(move || {
                let output = child.wait_with_output();
                running.store(false, Ordering::Release);
                let _ = sender.send(output);
            });
        if let Err(e) = waiter {
            return ToolOutcome::StillRunning(format!(
                "no thread can be started to wait for {name}: {e}"
            ));
        }
        match ended.recv_timeout(patience) {
            Ok(Ok(output)) => ToolOutcome::Text {
                text: String::from_utf8_lossy(&output.stdout).into_owned(),
                error: String::from_utf8_lossy(&output.stderr)
                    .lines()
                    .map(str::trim)
                    .find(|l| !l.is_empty())
                    .map(str::to_owned),
                pid,
            },
            Ok(Err(e)) => ToolOutcome::Failed(format!("{name} cannot be read: {e}")),
            Err(_) => ToolOutcome::StillRunning(format!(
                "{name} has not ended within {} s; it is left running (pid {pid}), because killing it can block every later one",
                patience.as_secs_f64()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tool(script: &str) -> (tempfile::TempDir, Tools, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("amd-smi");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let tools = Tools::in_directories(vec!["relative".into(), dir.path().to_owned()]);
        assert_eq!(tools.find_tool("amd-smi"), Some(path.clone()));
        assert_eq!(tools.find_tool("rocm-smi"), None);
        (dir, tools, path)
    }

    #[test]
    fn what_it_prints_is_returned_whatever_its_status() {
        let (_dir, tools, path) = tool("echo \"$1\"; echo; echo ' no driver' >&2; exit 255");
        match tools.run_tool(&path, "metric", Duration::from_secs(20)) {
            ToolOutcome::Text { text, error, pid } => {
                assert_eq!(
                    (text.as_str(), error.as_deref()),
                    ("metric\n\n", Some("no driver"))
                );
                assert!(pid > 1);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_that_hangs_is_left_alone_and_no_second_is_started() {
        let (dir, tools, path) = tool("sleep 1; echo done > \"$(dirname \"$0\")/ended\"");
        let outcome = tools.run_tool(&path, "", Duration::from_millis(50));
        assert!(
            matches!(&outcome, ToolOutcome::StillRunning(why) if why.contains("left running")),
            "{outcome:?}"
        );
        let outcome = tools.run_tool(&path, "", Duration::from_secs(20));
        assert!(
            matches!(&outcome, ToolOutcome::StillRunning(why) if why.contains("not started again")),
            "{outcome:?}"
        );
        // It was not killed: it comes to its end, and then the next may run.
        let ended = dir.path().join("ended");
        for _ in 0..600 {
            if ended.exists() && !tools.running.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(ended.exists());
        assert!(matches!(
            tools.run_tool(&path, "", Duration::from_secs(20)),
            ToolOutcome::Text { .. }
        ));
    }

    #[test]
    fn one_that_is_no_program_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("amd-smi");
        std::fs::write(&path, "text").unwrap();
        let tools = Tools::in_directories(vec![dir.path().to_owned()]);
        for _ in 0..2 {
            let outcome = tools.run_tool(&path, "", Duration::from_secs(1));
            assert!(matches!(outcome, ToolOutcome::Failed(_)), "{outcome:?}");
        }
    }
}
