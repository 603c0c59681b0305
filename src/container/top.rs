//! The processes of a container, as Docker lists them.

use super::{Runtime, checked_name};
use bollard::query_parameters::TopOptionsBuilder;
use std::time::Duration;

/// For the daemon's answer, which runs a `ps`.
const PATIENCE: Duration = Duration::from_secs(5);

/// Processes that are looked at.
const MOST: usize = 4096;

impl Runtime {
    /// The command of each process of a running container, split at spaces, because Docker does not
    /// mark where an argument ends. Must not be stored: it can contain secrets. Empty if the daemon
    /// does not report it.
    pub async fn process_commands(&self, container: &str) -> Vec<Vec<String>> {
        if let Some(process) = self.process() {
            return process.commands();
        }
        let (Ok(name), Ok(docker)) = (checked_name(container), self.daemon()) else {
            return Vec::new();
        };
        // Docker runs the host's `ps`. Podman would run the container's, which is often missing;
        // with its own column names it reads the processes itself.
        let columns = if self.version().podman {
            "hpid,args"
        } else {
            "-eo pid,args"
        };
        let options = TopOptionsBuilder::default().ps_args(columns).build();
        let asked = docker.top_processes(name, Some(options));
        let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE, asked).await else {
            return Vec::new();
        };
        let processes = answer.processes.unwrap_or_default();
        processes
            .into_iter()
            .take(MOST)
            .filter_map(|row| row.into_iter().nth(1))
            .map(|args| args.split_whitespace().map(str::to_owned).collect())
            .collect()
    }
}
