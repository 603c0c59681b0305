//! An engine that was named by its process, its cgroup or its pod: read through this host's `/proc`, without a daemon.
//! Nothing is started, stopped or written.

use super::events::ContainerNotice;
use super::inside::Inside;
use super::inspect::InspectedContainer;
use super::inspect::{NOT_KEPT, is_kept};
use super::process_log::{LogSource, ProcessLog};
use super::processes::{HostView, container_cgroup};
use crate::capture::{ContainerFacts, ContainerState};
use crate::clock::wall_now_ns;
use crate::error::Failure;
use crate::host::processes::{
    ProcessId, Stat, all_pids, open_files, parse_cgroup, pids_in, read_cgroups,
};
use crate::redact::Secrets;
use rustix::fs::OFlags;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the kubelet links the log of each container: `POD_NAMESPACE_CONTAINER-ID.log`.
const KUBELET_LOGS: &str = "/var/log/containers";

/// Between two looks at whether the process is alive.
const LOOK: Duration = Duration::from_millis(100);

/// The place of an engine that the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessPlace {
    /// A process of this host.
    Pid(u32),
    /// A cgroup: its path as `/proc/PID/cgroup` has it, or its folder.
    Cgroup(String),
    /// A container of a Kubernetes pod on this node: `[NAMESPACE/]POD[/CONTAINER]`.
    Pod(String),
}

/// One engine, by its processes.
#[derive(Debug)]
pub struct ProcessTarget {
    /// The first of its processes.
    first: ProcessId,
    /// The last part of its cgroup's path; empty where others are in that cgroup too, so that only the process tree is its own.
    id: String,
    name: String,
    pub(super) log: ProcessLog,
}

impl ProcessTarget {
    /// Finds the processes. `container_of`: id of the container that a `/proc/PID/cgroup` names.
    ///
    /// # Errors
    /// No such process runs here, or several fit.
    pub fn find(
        place: &ProcessPlace,
        log: LogSource,
        container_of: fn(&str) -> Option<String>,
    ) -> Result<ProcessTarget, Failure> {
        let (first, id, name, kept_log) = match place {
            ProcessPlace::Pid(pid) => {
                let first = living_process(*pid)?;
                let cgroups = read_cgroups(*pid);
                let id = container_of(&cgroups).or_else(|| own_cgroup(*pid, &cgroups));
                let own = own_output(*pid);
                (first, id.unwrap_or_default(), format!("pid {pid}"), own)
            }
            ProcessPlace::Cgroup(path) => {
                let first = first_in(path)?;
                let last = last_part(path);
                let container = container_of(&read_cgroups(first.pid));
                let id = container.filter(|id| last.contains(id.as_str()));
                let id = id.unwrap_or_else(|| last.to_owned());
                (first, id, last.to_owned(), own_output(first.pid))
            }
            ProcessPlace::Pod(wanted) => {
                let linked = pod_containers(Path::new(KUBELET_LOGS));
                let chosen = choose_container(wanted, linked)?;
                let first = first_of(&chosen.id).ok_or_else(|| {
                    Failure::environment(format!("container `{}` does not run", chosen.name()))
                        .hint("`plimsoll why` takes its log file, below /var/log/pods")
                })?;
                let name = chosen.name();
                (first, chosen.id, name, Some(chosen.log))
            }
        };
        let log = match (log, kept_log) {
            (LogSource::Unnamed, Some(kept)) => LogSource::File(kept),
            (log, _) => log,
        };
        Ok(ProcessTarget {
            first,
            id,
            name,
            log: ProcessLog::new(log),
        })
    }

    /// Its facts, in the form of a container's. What only a runtime knows is empty.
    pub(super) fn inspect(&self) -> InspectedContainer {
        let pid = self.first.pid;
        let words =
            |file: &str| words_of(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        let (argv, environment) = (words("cmdline"), words("environ"));
        let environment: Vec<(&str, &str)> = (environment.iter())
            .filter_map(|line| line.split_once('='))
            .collect();
        let secrets = Secrets::gather_from(environment.iter().copied(), &argv);
        let redactor = secrets.redactor();
        let env = environment.iter().map(|(name, value)| {
            let kept = is_kept(name, &argv).then(|| redactor.redact_setting(name, value));
            (
                (*name).to_owned(),
                kept.unwrap_or_else(|| NOT_KEPT.to_owned()),
            )
        });
        let alive = self.first.is_alive();
        let shares_network = is_same_network(pid);
        let facts = ContainerFacts {
            id: self.id.clone(),
            name: self.name.clone(),
            argv: redactor.redact_argv(&argv),
            env: env.collect(),
            state: ContainerState {
                status: if alive { "running" } else { "exited" }.to_owned(),
                pid: alive.then_some(pid),
                started_ns: started_ns(self.first.started),
                ..ContainerState::default()
            },
            network_mode: if shares_network { "host" } else { "" }.to_owned(),
            addresses: match shares_network {
                true => Vec::new(),
                false => addresses_of(pid),
            },
            devices: self.open_devices(),
            ..ContainerFacts::default()
        };
        InspectedContainer {
            facts,
            secrets,
            ..InspectedContainer::default()
        }
    }

    fn view(&self) -> Option<HostView> {
        HostView::open(self.first.pid, &self.id)
    }

    /// Its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        let view = self.view();
        view.iter().flat_map(HostView::list_pids).collect()
    }

    /// The AMD devices that its processes have open; NVIDIA's driver lists its processes itself.
    fn open_devices(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        for pid in self.pids() {
            let names = open_files(pid).filter_map(|file| file.into_os_string().into_string().ok());
            found.extend(names.filter(|name| name == "/dev/kfd" || name.starts_with("/dev/dri/")));
        }
        found.into_iter().collect()
    }

    /// The command of each of its processes. Must not be stored: it can contain secrets.
    pub(super) fn commands(&self) -> Vec<Vec<String>> {
        let commands = self.pids().into_iter();
        commands
            .filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok())
            .map(|bytes| words_of(&bytes))
            .filter(|words| !words.is_empty())
            .collect()
    }

    /// The beginning of a file as its first process sees it; `None` where there is none.
    pub(super) fn read_file(&self, path: &str, most: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = self.open_inside(path).ok()?;
        file.take(most as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    pub(super) fn file_size(&self, path: &str) -> Option<u64> {
        Some(self.open_inside(path).ok()?.metadata().ok()?.len())
    }

    /// Opens a regular file as the process sees it.
    fn open_inside(&self, path: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(Inside::root_of(self.first.pid)?.open(path, flags)?);
        match file.metadata()?.is_file() && self.first.is_alive() {
            true => Ok(file),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Waits until its first process has ended. With which code, only its parent knows.
    pub(super) async fn wait_for_end(&self) -> ContainerNotice {
        while self.first.is_alive() {
            tokio::time::sleep(LOOK).await;
        }
        ContainerNotice {
            wall_ns: wall_now_ns(),
            action: "die".to_owned(),
            ..ContainerNotice::default()
        }
    }
}

fn living_process(pid: u32) -> Result<ProcessId, Failure> {
    match Stat::read(pid).filter(Stat::is_alive) {
        Some(stat) => Ok(stat.id),
        None => Err(
            Failure::environment(format!("no process {pid} runs on this host")).hint(
                "the number is this host's, not the one inside a container: `pgrep -af vllm`",
            ),
        ),
    }
}

/// The last part of the process' cgroup where nothing else is in it, as of a service of systemd.
fn own_cgroup(pid: u32, cgroups: &str) -> Option<String> {
    let mut parts = parse_cgroup(cgroups).map(|line| last_part(line.path));
    let id = parts.find(|part| !part.is_empty())?;
    let view = HostView::open(pid, id)?;
    let tree = HostView::open(pid, "")?;
    let own: BTreeSet<u32> = tree.list_pids().collect();
    view.list_pids()
        .all(|pid| own.contains(&pid))
        .then(|| id.to_owned())
}

/// The name by which processes are known to be in a cgroup.
fn last_part(path: &str) -> &str {
    let last = path.trim_end_matches('/').rsplit('/').next();
    let last = last.unwrap_or_default();
    last.strip_suffix(".scope").unwrap_or(last)
}

/// The oldest process of a cgroup that no other one of it started.
fn first_in(path: &str) -> Result<ProcessId, Failure> {
    let below = path.trim_start_matches('/');
    if below.is_empty() || Path::new(path) == Path::new("/sys/fs/cgroup") {
        return Err(
            Failure::usage("the root cgroup is the whole host, not an engine")
                .hint("name a service, a scope or a container: `systemd-cgls` shows them"),
        );
    }
    let folders = [
        PathBuf::from(path),
        Path::new("/sys/fs/cgroup").join(below),
        Path::new("/sys/fs/cgroup/memory").join(below),
    ];
    let pids = folders.iter().map(|folder| pids_in(folder));
    let pids = pids.into_iter().find(|pids| !pids.is_empty());
    first_among(pids.unwrap_or_default()).ok_or_else(|| {
        Failure::environment(format!("no process is in cgroup `{path}`"))
            .hint("`cat /proc/PID/cgroup` shows the one of a process")
    })
}

fn first_of(container_id: &str) -> Option<ProcessId> {
    let inside = |pid: &u32| {
        let cgroups = read_cgroups(*pid);
        parse_cgroup(&cgroups).any(|line| container_cgroup(line.path, container_id).is_some())
    };
    first_among(all_pids().filter(inside).collect())
}

fn first_among(pids: Vec<u32>) -> Option<ProcessId> {
    let stats: Vec<Stat> = pids
        .into_iter()
        .filter_map(Stat::read)
        .filter(Stat::is_alive)
        .collect();
    let pids: BTreeSet<u32> = stats.iter().map(|stat| stat.id.pid).collect();
    let roots = stats.iter().filter(|stat| !pids.contains(&stat.parent));
    roots.min_by_key(|stat| stat.id.started).map(|stat| stat.id)
}

/// The file that a process writes its output to, where that is one file.
fn own_output(pid: u32) -> Option<PathBuf> {
    let outputs = [1, 2].map(|fd| {
        let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let file = (metadata.dev(), metadata.ino());
        // Under its own name it can be read when the process has ended, too.
        let named = fs::read_link(&path).ok().filter(|name| {
            fs::metadata(name).is_ok_and(|there| (there.dev(), there.ino()) == file)
        });
        Some((named.unwrap_or(path), file))
    });
    match outputs {
        [Some((path, one)), Some((_, other))] if one == other => Some(path),
        [Some((path, _)), None] | [None, Some((path, _))] => Some(path),
        _ => None,
    }
}

fn words_of(bytes: &[u8]) -> Vec<String> {
    let words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn started_ns(ticks: u64) -> Option<i64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: i64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let since = i64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(per_second)).ok()?;
    boot.checked_mul(1_000_000_000)?.checked_add(since)
}

fn is_same_network(pid: u32) -> bool {
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    network("self").is_some_and(|ours| Some(ours) == network(&pid.to_string()))
}

/// The addresses of a process' network, loopback and link-local ones left out.
fn addresses_of(pid: u32) -> Vec<String> {
    let read =
        |file: &str| fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
    let mut found = local_addresses(&read("fib_trie"));
    found.extend(global_addresses(&read("if_inet6")));
    found
}

/// The local addresses of a `/proc/net/fib_trie`: each is followed by `/32 host LOCAL`.
fn local_addresses(table: &str) -> Vec<String> {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let local = lines.windows(2).filter_map(|pair| match pair {
        [address, "/32 host LOCAL"] => address.strip_prefix("|-- "),
        _ => None,
    });
    let found: BTreeSet<String> = local
        .filter(|a| !a.starts_with("127."))
        .map(str::to_owned)
        .collect();
    found.into_iter().collect()
}

/// The global addresses of a `/proc/net/if_inet6`: 32 digits, and the scope as fourth field.
fn global_addresses(table: &str) -> Vec<String> {
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (digits, scope) = (fields.next()?, fields.nth(2)?);
        let number = u128::from_str_radix(digits, 16)
            .ok()
            .filter(|_| scope == "00")?;
        Some(std::net::Ipv6Addr::from(number).to_string())
    };
    table.lines().filter_map(address).collect()
}

/// A container of a pod, as the kubelet links its log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodContainer {
    pod: String,
    namespace: String,
    container: String,
    id: String,
    log: PathBuf,
}

impl PodContainer {
    /// Reads `POD_NAMESPACE_CONTAINER-ID.log`; none of the names has an underscore.
    fn of_link(log: PathBuf) -> Option<PodContainer> {
        let name = log.file_name()?.to_str()?.strip_suffix(".log")?;
        let (names, id) = name.rsplit_once('-')?;
        let mut names = names.split('_').map(str::to_owned);
        let (pod, namespace, container) = (names.next()?, names.next()?, names.next()?);
        let (true, None) = (is_hex_id(id), names.next()) else {
            return None;
        };
        let id = id.to_owned();
        Some(PodContainer {
            pod,
            namespace,
            container,
            id,
            log,
        })
    }

    fn name(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.pod, self.container)
    }

    fn is_named(&self, wanted: &str) -> bool {
        let (namespace, pod, container) = (
            self.namespace.as_str(),
            self.pod.as_str(),
            self.container.as_str(),
        );
        match wanted.split('/').collect::<Vec<_>>()[..] {
            [one] => one == pod,
            [first, second] => {
                (first, second) == (namespace, pod) || (first, second) == (pod, container)
            }
            [first, second, third] => (first, second, third) == (namespace, pod, container),
            _ => false,
        }
    }
}

fn is_hex_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn pod_containers(folder: &Path) -> Vec<PodContainer> {
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PodContainer> = links
        .filter_map(|link| PodContainer::of_link(link.path()))
        .collect();
    found.sort_by_key(PodContainer::name);
    found
}

/// The container that `wanted` names; of one that was restarted, the one that runs.
fn choose_container(wanted: &str, all: Vec<PodContainer>) -> Result<PodContainer, Failure> {
    let names: BTreeSet<String> = all.iter().map(PodContainer::name).collect();
    let mut fitting: Vec<PodContainer> =
        all.into_iter().filter(|one| one.is_named(wanted)).collect();
    if fitting.len() > 1 {
        let running = fitting.iter().filter(|one| first_of(&one.id).is_some());
        let running: Vec<PodContainer> = running.cloned().collect();
        fitting = if running.is_empty() { fitting } else { running };
    }
    let listed =
        |names: BTreeSet<String>| names.into_iter().take(12).collect::<Vec<_>>().join(", ");
    match fitting.pop() {
        Some(one) if fitting.is_empty() => Ok(one),
        Some(last) => {
            let names = fitting
                .iter()
                .chain([&last])
                .map(PodContainer::name)
                .collect();
            Err(
                Failure::environment(format!("several containers are named `{wanted}`"))
                    .hint(format!("name one of them: {}", listed(names))),
            )
        }
        None if names.is_empty() => Err(Failure::environment(format!(
            "no pod's container `{wanted}` is known: {KUBELET_LOGS}, where Kubernetes keeps logs, has none"
        ))
        .hint("name its process: `crictl inspect ID` shows the pid, for --pid")),
        None => Err(Failure::environment(format!(
            "no container of a pod here is named `{wanted}`"
        ))
        .hint(format!("there are: {}", listed(names)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_addresses_of_another_network_are_read() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.88.0.5\n        /32 host LOCAL\n\
            \u{20}    |-- 10.88.255.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.88.0.5\n        /32 host LOCAL\n";
        assert_eq!(local_addresses(trie), ["10.88.0.5"]);
        let inet6 = "fd000000000000000000000000000005 02 40 00 80     eth0\nfe800000000000000042acfffe110002 02 40 20 80     eth0\n\
            00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(global_addresses(inet6), ["fd00::5"]);
        assert!(local_addresses("").is_empty() && global_addresses("x").is_empty());
    }

    #[test]
    fn a_container_of_a_pod_is_found_by_the_link_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let other = ID.replace('0', "f");
        for (pod, id) in [("llm-0_serving_vllm", ID), ("llm-0_serving_proxy", &other)] {
            fs::write(folder.path().join(format!("{pod}-{id}.log")), "").unwrap();
        }
        fs::write(folder.path().join("notes.txt"), "").unwrap();
        let all = pod_containers(folder.path());
        assert_eq!(all.len(), 2);
        for wanted in ["llm-0/vllm", "serving/llm-0/vllm"] {
            let found = choose_container(wanted, all.clone()).unwrap();
            assert_eq!(
                (found.id.as_str(), found.name().as_str()),
                (ID, "serving/llm-0/vllm")
            );
        }
        for wanted in ["llm-0", "serving/llm-0"] {
            let several = choose_container(wanted, all.clone()).unwrap_err();
            assert!(
                several.hints[0].contains("serving/llm-0/proxy, serving/llm-0/vllm"),
                "{several:?}"
            );
        }
        assert!(choose_container("vllm", all).is_err());
        assert!(
            choose_container("vllm", Vec::new())
                .unwrap_err()
                .message
                .contains("where Kubernetes keeps logs")
        );
    }

    #[test]
    fn a_process_is_described_as_a_container_is_and_its_secrets_are_not() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env_clear()
            .env("HF_TOKEN", "hf_sesame1234567890abcdef")
            .env("OMP_NUM_THREADS", "3")
            .spawn()
            .unwrap();
        let place = ProcessPlace::Pid(child.id());
        let target = ProcessTarget::find(&place, LogSource::Unnamed, |_| None).unwrap();
        let facts = target.inspect().facts;
        assert_eq!(facts.argv, ["sleep", "60"]);
        assert_eq!(facts.env["OMP_NUM_THREADS"], "3");
        assert!(!format!("{facts:?}").contains("sesame"), "{facts:?}");
        assert_eq!(facts.state.pid, Some(child.id()));
        let age = wall_now_ns() - facts.state.started_ns.unwrap();
        assert!(age.abs() < 60_000_000_000, "{age}");
        assert_eq!(
            (facts.network_mode.as_str(), facts.addresses.len()),
            ("host", 0)
        );
        assert!(
            target
                .commands()
                .contains(&vec!["sleep".to_owned(), "60".to_owned()])
        );

        child.kill().unwrap();
        child.wait().unwrap();
        let state = target.inspect().facts.state;
        assert_eq!((state.status.as_str(), state.pid), ("exited", None));
        let gone = ProcessTarget::find(&place, LogSource::Unnamed, |_| None);
        assert!(gone.unwrap_err().message.contains("no process"));
    }

    #[test]
    fn a_link_inside_leads_nowhere_outside() {
        let target = ProcessTarget {
            first: Stat::read(std::process::id()).unwrap().id,
            id: String::new(),
            name: "test".to_owned(),
            log: ProcessLog::new(LogSource::Unnamed),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("config.json"), "{}").unwrap();
        std::os::unix::fs::symlink("config.json", path("link")).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", path("magic")).unwrap();
        assert_eq!(target.read_file(&path("config.json"), 10).unwrap(), b"{}");
        assert_eq!(target.read_file(&path("link"), 1).unwrap(), b"{");
        assert_eq!(target.file_size(&path("config.json")), Some(2));
        for absent in [
            folder.path().to_str().unwrap(),
            &path("none"),
            &path("magic"),
        ] {
            assert_eq!(target.read_file(absent, 10), None, "{absent}");
        }
    }

    #[test]
    fn the_root_cgroup_is_refused_and_an_empty_one_named() {
        for root in ["/", "/sys/fs/cgroup", "/sys/fs/cgroup/"] {
            assert!(
                first_in(root).unwrap_err().message.contains("whole host"),
                "{root}"
            );
        }
        assert!(
            first_in("/no/such.slice")
                .unwrap_err()
                .message
                .contains("no process")
        );
        assert_eq!(last_part("/a.slice/vllm.scope"), "vllm");
        assert_eq!(last_part("/system.slice/vllm.service/"), "vllm.service");
    }
}
