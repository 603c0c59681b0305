//! The owner of a listening port. Containers that share a network (the host's, or another
//! container's) see each other's servers under one address, so another container may answer.

use super::Runtime;
use crate::capture::ContainerFacts;
use std::collections::BTreeSet;
use std::fs;

/// Who listens on a port of the network that a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// The container, which is alone on its network or owns the socket.
    Container,
    /// Another process on the same network.
    Other,
    /// No process.
    NoProcess,
    /// This host does not show it, or not to this user.
    Unknown,
}

impl Runtime {
    /// Owner of the listener on `port`, as a client in the container's network reaches it.
    pub fn port_listener(&self, facts: &ContainerFacts, port: u16) -> Listener {
        let mode = facts.network_mode.as_str();
        if mode != "host" && !mode.starts_with("container:") {
            return Listener::Container;
        }
        let (Some(init), Some(view)) = (facts.state.pid, self.host_view(facts)) else {
            return Listener::Unknown;
        };
        let tables = ["tcp", "tcp6"].map(|t| fs::read_to_string(format!("/proc/{init}/net/{t}")));
        let listening: BTreeSet<String> = tables
            .iter()
            .flatten()
            .flat_map(|table| listening_inodes(table, port))
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        if listening.is_empty() {
            return Listener::NoProcess;
        }
        let mut hidden = false;
        for pid in view.list_pids() {
            match fs::read_dir(format!("/proc/{pid}/fd")) {
                Ok(descriptors) => {
                    let holds = descriptors.flatten().any(|fd| {
                        let link = fs::read_link(fd.path()).unwrap_or_default();
                        listening.contains(link.to_string_lossy().as_ref())
                    });
                    if holds {
                        return Listener::Container;
                    }
                }
                Err(_) => hidden = true,
            }
        }
        if hidden {
            Listener::Unknown
        } else {
            Listener::Other
        }
    }
}

/// The inodes of the sockets that listen on `port`, from a table of `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let local = fields.get(1)?.rsplit(':').next()?;
            let ours = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
            ours.then(|| fields.get(9)?.parse().ok())?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_distinguished_from_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \u{20}  0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
            \u{20}  1: 0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n\
            \u{20}  2: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0\n\
            garbage\n";
        assert_eq!(listening_inodes(table, 8000), [4711]);
        assert_eq!(listening_inodes(table, 8002), [0u64; 0]);
        assert_eq!(listening_inodes("", 8000), [0u64; 0]);
    }
}
