//! A real Slurm of four nodes on this machine, for one test.
#![allow(missing_docs)]

use plimsoll::sweep::slurm::Slurm;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Some seconds, and those that a lost node is waited for; a machine may stand still as well.
const LONGEST_JOB: Duration = Duration::from_secs(240);

/// A Slurm of the test's own; ended when dropped, also by a panic.
pub struct Cluster {
    pub scratch: tempfile::TempDir,
}

impl Cluster {
    pub fn start() -> Cluster {
        let cluster = Cluster {
            scratch: tempfile::tempdir().unwrap(),
        };
        cluster.script("start", &[]);
        cluster
    }

    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("cluster")
    }

    pub fn conf(&self) -> PathBuf {
        self.dir().join("slurm.conf")
    }

    #[track_caller]
    fn script(&self, verb: &str, rest: &[&str]) {
        // What lies on the way to munge's socket must be within reach of all.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.scratch.path(), open).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm/local-cluster");
        let ended = Command::new(script)
            .arg(verb)
            .arg(self.dir())
            .args(rest)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{verb}: {ended:?}");
    }

    /// As if the node lost its power.
    pub fn lose(&self, node: &str) {
        self.script("kill", &[node]);
    }

    pub fn slurm(&self, variables: &[(&str, &str)]) -> Slurm {
        let mut environment = vec![("SLURM_CONF".into(), self.conf().into())];
        environment.extend(variables.iter().map(|(k, v)| (k.into(), v.into())));
        Slurm {
            environment,
            pause: Duration::from_millis(200),
        }
    }

    /// What comes of `waiting`; a job that does not end is told with what Slurm says of it.
    pub async fn within<T>(&self, waiting: impl Future<Output = T>) -> T {
        match tokio::time::timeout(LONGEST_JOB, waiting).await {
            Ok(done) => done,
            Err(_) => panic!(
                "a job has not ended in {LONGEST_JOB:?}\n{}\n{}\n{}",
                self.ask("sinfo", &["--Node", "--long"]),
                self.ask("scontrol", &["show", "jobs"]),
                std::fs::read_to_string(self.dir().join("slurmctld.log")).unwrap_or_default()
            ),
        }
    }

    pub fn ask(&self, program: &str, args: &[&str]) -> String {
        let ended = Command::new(program)
            .args(args)
            .env("SLURM_CONF", self.conf())
            .output()
            .unwrap();
        assert!(ended.status.success(), "{program} {args:?}: {ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    }

    /// A folder for a run, on the disk that all nodes share.
    pub fn run_dir(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A program in plimsoll's place.
    pub fn stand_in(&self, text: &str) -> PathBuf {
        let path = self.scratch.path().join("stand-in");
        std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm/local-cluster");
        let _ = Command::new(script).arg("stop").arg(self.dir()).output();
    }
}
