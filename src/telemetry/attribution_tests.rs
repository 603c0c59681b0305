//! Tests of attribution: every form of cgroup name, and a `/proc` made by hand.

use super::*;
use proptest::prelude::*;
use std::fs;

const A: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";
const B: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

#[test]
fn every_runtime_names_its_containers_in_its_way() {
    let pod = "pod01234567_89ab_cdef_0123_456789abcdef";
    for (membership, expected) in [
        (
            format!("0::/system.slice/docker-{A}.scope"),
            vec![A.to_owned()],
        ),
        (
            format!("9:memory:/docker/{A}\n0::/system.slice/containerd.service"),
            vec![A.to_owned()],
        ),
        (
            format!("12:rdma:/\n9:memory:/docker/{A}/docker/{B}\n0::/docker/{A}"),
            vec![A.to_owned(), B.to_owned()],
        ),
        (
            format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope"),
            vec![A.to_owned()],
        ),
        (format!("0::/../docker-{A}.scope"), vec![A.to_owned()]),
        (
            format!("0::/system.slice/docker-{A}.scope (deleted)"),
            vec![A.to_owned()],
        ),
        (
            format!("0::/docker/{A}/system.slice/cron.service"),
            vec![A.to_owned()],
        ),
        (format!("0::/jobs/{A}"), vec![A.to_owned()]),
        (format!("4:memory:/{A}"), vec![A.to_owned()]),
        (
            format!("0::/machine.slice/libpod-{A}.scope/container"),
            vec![A.to_owned()],
        ),
        (format!("0::/machine.slice/libpod-conmon-{A}.scope"), vec![]),
        (
            format!("0::/kubepods.slice/kubepods-{pod}.slice/cri-containerd-{A}.scope"),
            vec![A.to_owned()],
        ),
        (
            format!(
                "0::/system.slice/containerd.service/kubepods-burstable-{pod}.slice:cri-containerd:{A}"
            ),
            vec![A.to_owned()],
        ),
        (
            format!("0::/kubepods.slice/x.slice/crio-{A}.scope/container"),
            vec![A.to_owned()],
        ),
        (
            format!("0::/kubepods.slice/x.slice/crio-conmon-{A}.scope"),
            vec![],
        ),
        (
            format!("11:devices:/kubepods/besteffort/{pod}/{A}/proxy"),
            vec![A.to_owned()],
        ),
        (
            format!("0::/system.slice/nerdctl-{A}.scope"),
            vec![A.to_owned()],
        ),
        (
            "0::/lxc.payload.web/system.slice/app.service".into(),
            vec!["web".into()],
        ),
        (
            "0::/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-77".into(),
            vec!["0123456789abcdef0123456789abcdef-77".into()],
        ),
        ("0::/system.slice/docker.service".into(), vec![]),
        (
            "0::/user.slice/app.slice/docker-desktop.scope".into(),
            vec![],
        ),
        ("0::/jobs/0123456789abcdef0123456789abcdef".into(), vec![]),
        (format!("0::/docker/{}", A.to_uppercase()), vec![]),
        ("0::/\n".into(), vec![]),
        (String::new(), vec![]),
    ] {
        assert_eq!(containers_of(&membership), expected, "{membership}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", lines in "([0-9:/a-f.-]|docker|libpod|lxc.payload.|ecs/|\n)*") {
        let _ = (containers_of(&text), containers_of(&lines));
    }
}

/// A `/proc` made by hand.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(namespace: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("self/ns")).unwrap();
        std::os::unix::fs::symlink(namespace, dir.path().join("self/ns/pid")).unwrap();
        Machine(dir)
    }

    fn process(&self, pid: u32, started: u64, name: &str, membership: &str) {
        let dir = self.0.path().join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        let stat =
            format!("{pid} ({name}) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {started} 1 1\n");
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("cgroup"), membership).unwrap();
    }

    fn attribution(&self, target: Option<(u32, &str)>) -> Attribution {
        Attribution {
            proc: self.0.path().to_owned(),
            refusal: refusal(self.0.path(), target),
            target: target.map(|(_, id)| (id.to_owned(), None)),
            ..Attribution::default()
        }
    }
}

fn of(found: &[ProcessMemory], pid: u32) -> (Option<&str>, Option<bool>) {
    let process = found.iter().find(|p| p.pid == pid).unwrap();
    (process.container_id.as_deref(), process.ours)
}

#[test]
fn processes_go_to_their_containers_and_the_dead_are_left_out() {
    let machine = Machine::new(HOST_PID_NAMESPACE);
    machine.process(10, 5, "engine (1) x", &format!("0::/docker/{A}"));
    machine.process(11, 6, "other", &format!("0::/docker/{B}/docker/{A}"));
    machine.process(12, 7, "Xorg", "0::/user.slice/session-1.scope");
    machine.process(13, 8, "zombie", "");
    let mut attribution = machine.attribution(Some((10, A)));
    assert_eq!(attribution.refusal(), None);
    let raw: Vec<_> = [10, 11, 12, 13, 99].map(|pid| (pid, Some(1))).into();
    let found = attribution.identify_processes(&raw);
    assert_eq!(found.len(), 4);
    assert_eq!(found[0].name.as_deref(), Some("engine (1) x"));
    assert_eq!(of(&found, 10), (Some(A), Some(true)));
    // Nested in another container, yet it is the one that was asked for.
    assert_eq!(of(&found, 11), (Some(A), Some(true)));
    assert_eq!(of(&found, 12), (None, Some(false)));
    assert_eq!(of(&found, 13), (None, None), "unknown is not no");
    // Without a container of interest the outermost counts: the host knows no other.
    let found = machine.attribution(None).identify_processes(&raw);
    assert_eq!(of(&found, 11), (Some(B), None));
}

#[test]
fn a_number_that_goes_to_another_process_is_noticed() {
    let machine = Machine::new(HOST_PID_NAMESPACE);
    machine.process(10, 5, "engine", &format!("0::/docker/{A}"));
    let mut attribution = machine.attribution(None);
    let raw = [(10, Some(1))];
    assert_eq!(of(&attribution.identify_processes(&raw), 10).0, Some(A));
    // The same process is not read again, whatever stands there now.
    fs::write(
        machine.0.path().join("10/cgroup"),
        format!("0::/docker/{B}"),
    )
    .unwrap();
    assert_eq!(of(&attribution.identify_processes(&raw), 10).0, Some(A));
    machine.process(10, 900, "thief", &format!("0::/docker/{B}"));
    assert_eq!(of(&attribution.identify_processes(&raw), 10).0, Some(B));
    // What is not seen any more is forgotten.
    for _ in 0..70 {
        attribution.identify_processes(&[]);
    }
    assert!(attribution.known.is_empty());
}

#[test]
fn a_process_on_many_devices_is_looked_at_once_in_each_reading() {
    let machine = Machine::new("pid:[4026531836]");
    machine.process(7, 100, "x", &format!("0::/docker/{A}\n"));
    let mut attribution = machine.attribution(None);
    let container = |attribution: &mut Attribution| {
        let found = attribution.identify_processes(&[(7, Some(1))]);
        found.first().and_then(|p| p.container_id.clone())
    };
    attribution.begin_reading();
    assert_eq!(container(&mut attribution).as_deref(), Some(A));
    // The number goes to another process of another container: the next reading notices.
    machine.process(7, 200, "y", &format!("0::/docker/{B}\n"));
    assert_eq!(container(&mut attribution).as_deref(), Some(A));
    attribution.begin_reading();
    assert_eq!(container(&mut attribution).as_deref(), Some(B));
}

#[test]
fn a_restarted_container_is_known_by_its_new_processes_and_whatever_runs_inside() {
    let machine = Machine::new("pid:[4026531836]");
    machine.process(
        7,
        100,
        "python",
        &format!("0::/system.slice/docker-{A}.scope\n"),
    );
    let mut attribution = machine.attribution(Some((7, A)));
    assert_eq!(
        of(&attribution.identify_processes(&[(7, Some(1))]), 7),
        (Some(A), Some(true))
    );
    fs::remove_dir_all(machine.0.path().join("7")).unwrap();
    let inner = format!("0::/system.slice/docker-{A}.scope/system.slice/serve.service\n");
    machine.process(9001, 300, "python", &inner);
    let found = attribution.identify_processes(&[(7, Some(1)), (9001, Some(2))]);
    assert_eq!(found.len(), 1, "the old one is gone");
    assert_eq!(of(&found, 9001), (Some(A), Some(true)));
}

#[test]
fn a_name_of_any_bytes_hides_no_process() {
    let machine = Machine::new("pid:[4026531836]");
    machine.process(7, 100, "x", &format!("0::/docker/{A}\n"));
    let stat = machine.0.path().join("7/stat");
    let text = fs::read(&stat).unwrap();
    let at = text.iter().position(|b| *b == b'x').unwrap();
    let name = b"\xff\xfe) S (\n";
    fs::write(&stat, [&text[..at], name, &text[at + 1..]].concat()).unwrap();
    let found = machine
        .attribution(None)
        .identify_processes(&[(7, Some(1))]);
    assert_eq!(of(&found, 7).0, Some(A));
}

#[test]
fn it_refuses_where_pids_mean_something_else() {
    let machine = Machine::new("pid:[4026532777]");
    machine.process(10, 5, "engine", &format!("0::/docker/{A}"));
    let refusal = |target| refusal(machine.0.path(), target);
    let why = refusal(None).unwrap();
    assert!(why.contains("--pid=host"), "{why}");
    // A pid of another machine may be anybody here.
    assert_eq!(refusal(Some((10, B))), Some(why));
    // The daemon's pid leads to its container: it sees what we see.
    assert_eq!(refusal(Some((10, A))), None);
}

#[test]
fn the_members_of_a_cgroup_need_no_file_of_their_own() {
    let machine = Machine::new(HOST_PID_NAMESPACE);
    let group = tempfile::tempdir().unwrap();
    fs::create_dir(group.path().join("sub")).unwrap();
    fs::write(group.path().join("cgroup.procs"), "10\n").unwrap();
    fs::write(group.path().join("sub/cgroup.procs"), "11\n0\n").unwrap();
    for pid in [10, 11, 12] {
        // As a reader sees it that may not see the host's cgroups.
        machine.process(pid, 5, "p", "0::/\n");
    }
    let mut attribution = machine.attribution(Some((10, A)));
    attribution.target = Some((A.to_owned(), Some(group.path().to_owned())));
    let found = attribution.identify_processes(&[(10, None), (11, None), (12, None)]);
    assert_eq!(of(&found, 11), (Some(A), Some(true)));
    assert_eq!(of(&found, 12), (None, Some(false)));
}
