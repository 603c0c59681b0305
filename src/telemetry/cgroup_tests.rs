//! Tests of finding and reading cgroups, over texts as kernels and runtimes write them.

use super::*;
use proptest::prelude::*;

const ID: &str = "c1d2e3f405162738495a6b7c8d9eafb0c1d2e3f405162738495a6b7c8d9eafb0";
const OTHER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const V1_MOUNTS: &str = "\
25 30 0:23 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
26 25 0:24 / /sys/fs/cgroup/systemd rw,nosuid shared:10 - cgroup cgroup rw,xattr,name=systemd
27 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct
28 25 0:28 / /sys/fs/cgroup/memory rw,nosuid shared:12 - cgroup cgroup rw,memory
";
const V2_MOUNTS: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

fn dirs(membership: &str, mounts: &str) -> Vec<String> {
    candidate_cgroups(membership, mounts, ID)
        .into_iter()
        .map(|c| format!("{} {}", c.version.name(), c.dir.display()))
        .collect()
}

#[test]
fn every_layout_leads_to_the_containers_own_directory() {
    let hybrid = format!(
        "{V1_MOUNTS}31 25 0:30 / /sys/fs/cgroup/unified rw shared:13 - cgroup2 cgroup2 rw\n"
    );
    let cases = [
        (
            "v1, cgroupfs",
            format!(
                "12:pids:/docker/{ID}\n9:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n"
            ),
            V1_MOUNTS,
            vec![format!("cgroup v1 /sys/fs/cgroup/memory/docker/{ID}")],
        ),
        (
            "v1, another parent",
            format!("4:memory:/llm/{ID}\n"),
            V1_MOUNTS,
            vec![format!("cgroup v1 /sys/fs/cgroup/memory/llm/{ID}")],
        ),
        (
            "v2, systemd",
            format!("0::/system.slice/docker-{ID}.scope\n"),
            V2_MOUNTS,
            vec![format!(
                "cgroup v2 /sys/fs/cgroup/system.slice/docker-{ID}.scope"
            )],
        ),
        (
            "v2, cgroupfs",
            format!("0::/docker/{ID}\n"),
            V2_MOUNTS,
            vec![format!("cgroup v2 /sys/fs/cgroup/docker/{ID}")],
        ),
        (
            "v2, rootless",
            format!(
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope\n"
            ),
            V2_MOUNTS,
            vec![format!(
                "cgroup v2 /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope"
            )],
        ),
        (
            "v2, an init system inside",
            format!("0::/docker/{ID}/init.scope\n"),
            V2_MOUNTS,
            vec![format!("cgroup v2 /sys/fs/cgroup/docker/{ID}")],
        ),
        (
            "v2, Podman",
            format!("0::/machine.slice/libpod-{ID}.scope/container\n"),
            V2_MOUNTS,
            vec![format!(
                "cgroup v2 /sys/fs/cgroup/machine.slice/libpod-{ID}.scope"
            )],
        ),
        (
            "v2, an inner container",
            format!("0::/docker/{ID}/docker/{OTHER}\n"),
            V2_MOUNTS,
            vec![format!("cgroup v2 /sys/fs/cgroup/docker/{ID}")],
        ),
        (
            "v2, we are the inner daemon's host",
            format!("0::/docker/{OTHER}/docker/{ID}\n"),
            V2_MOUNTS,
            vec![format!(
                "cgroup v2 /sys/fs/cgroup/docker/{OTHER}/docker/{ID}"
            )],
        ),
        (
            "hybrid",
            format!("5:memory:/docker/{ID}\n0::/system.slice/containerd.service\n"),
            hybrid.as_str(),
            vec![
                format!("cgroup v1 /sys/fs/cgroup/memory/docker/{ID}"),
                "cgroup v2 /sys/fs/cgroup/unified/system.slice/containerd.service".to_owned(),
            ],
        ),
        (
            "Kubernetes",
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-{ID}.scope\n"
            ),
            V2_MOUNTS,
            vec![format!(
                "cgroup v2 /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-{ID}.scope"
            )],
        ),
        (
            "no memory hierarchy mounted",
            format!("9:memory:/docker/{ID}\n"),
            V2_MOUNTS,
            vec![],
        ),
    ];
    for (name, membership, mounts, expected) in cases {
        assert_eq!(dirs(&membership, mounts), expected, "{name}");
        assert!(names_container(&membership, ID), "{name}");
    }
}

#[test]
fn only_the_container_itself_is_named() {
    for membership in [
        format!("0::/system.slice/docker-{OTHER}.scope\n"),
        format!("0::/machine.slice/libpod-conmon-{ID}.scope\n"),
        "0::/system.slice/docker.service\n".to_owned(),
        "0::/\n".to_owned(),
        String::new(),
    ] {
        assert!(!names_container(&membership, ID), "{membership}");
    }
    for membership in [
        format!("0::/system.slice/docker-{ID}.scope (deleted)\n"),
        format!("11:pids:/docker/{ID}\n0::/system.slice/containerd.service\n"),
        format!(
            "1:name=systemd:/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}\n"
        ),
        format!("0::/wsl-user/distro-1/systemd/system.slice/docker-{ID}.scope\n"),
    ] {
        assert!(names_container(&membership, ID), "{membership}");
    }
    assert!(!names_container("0::/\n", ""), "no id names nothing");
}

#[test]
fn a_mount_of_a_part_shows_that_part_only() {
    let of_ours =
        format!("40 39 0:28 /docker/{ID} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    assert_eq!(
        dirs(&format!("4:memory:/docker/{ID}\n"), &of_ours),
        ["cgroup v1 /sys/fs/cgroup/memory"]
    );
    let of_other =
        format!("40 39 0:28 /docker/{OTHER} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    assert_eq!(
        dirs(&format!("4:memory:/docker/{ID}\n"), &of_other),
        [""; 0]
    );
    // In a cgroup namespace of our own, containers beside ours are above its root.
    let beside = format!("0::/../docker-{ID}.scope\n");
    assert_eq!(dirs(&beside, V2_MOUNTS), [""; 0]);
    let hosts = "50 49 0:26 /.. /host/cgroup ro - cgroup2 cgroup2 rw\n";
    assert_eq!(
        dirs(&beside, hosts),
        [format!("cgroup v2 /host/cgroup/docker-{ID}.scope")]
    );
    // The name of a mount's root is no prefix of words.
    let alike = "40 39 0:28 /dock /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    assert_eq!(dirs(&format!("4:memory:/docker/{ID}\n"), alike), [""; 0]);
}

#[test]
fn mount_points_are_unescaped() {
    let mounts = "28 25 0:28 / /mnt/my\\040groups\\134x rw - cgroup cgroup rw,memory\n";
    assert_eq!(
        dirs(&format!("4:memory:/docker/{ID}\n"), mounts),
        [format!("cgroup v1 /mnt/my groups\\x/docker/{ID}")]
    );
    assert_eq!(unescape("a\\04"), "a\\04");
    assert_eq!(unescape("\\777"), "\\777");
}

#[test]
fn without_an_id_the_process_own_cgroup_counts() {
    let found = candidate_cgroups("4:memory:/a/b/c\n", V1_MOUNTS, "");
    assert_eq!(found[0].dir, Path::new("/sys/fs/cgroup/memory/a/b/c"));
}

#[test]
fn memory_stat_of_v1() {
    let stat = "cache 5\nrss 6\nshmem 1\nswap 0\nhierarchical_memory_limit 9223372036854771712\n\
                total_cache 7000\ntotal_rss 5000\ntotal_shmem 3000\ntotal_swap 12\ntotal_unevictable 40\n";
    let expected = HostSplit {
        anon_bytes: Some(5000),
        file_bytes: Some(4000),
        shmem_bytes: Some(3000),
        kernel_bytes: Some(77),
        swap_bytes: Some(12),
        locked_bytes: Some(40),
    };
    assert_eq!(read_split(CgroupVersion::V1, stat, Some(77)), expected);
    let flat = read_split(CgroupVersion::V1, "cache 7\nrss 6\nshmem 1\n", None);
    assert_eq!(
        (
            flat.anon_bytes,
            flat.file_bytes,
            flat.kernel_bytes,
            flat.swap_bytes
        ),
        (Some(6), Some(6), None, None)
    );
}

#[test]
fn memory_stat_of_v2() {
    let old = "anon 5000\nfile 7000\nkernel_stack 10\npagetables 20\npercpu 30\nsock 0\nshmem 3000\nfile_mapped 9\nslab 400\nunevictable 8\n";
    let expected = HostSplit {
        anon_bytes: Some(5000),
        file_bytes: Some(4000),
        shmem_bytes: Some(3000),
        kernel_bytes: Some(460),
        swap_bytes: None,
        locked_bytes: Some(8),
    };
    assert_eq!(read_split(CgroupVersion::V2, old, None), expected);
    assert_eq!(
        read_split(CgroupVersion::V2, &format!("{old}kernel 999\n"), None).kernel_bytes,
        Some(999)
    );
    assert_eq!(
        read_split(CgroupVersion::V2, "", None),
        HostSplit::default()
    );
}

#[test]
fn a_number_is_a_number() {
    assert_eq!(
        parse_number("9223372036854771712\n"),
        Some(9_223_372_036_854_771_712)
    );
    assert_eq!(parse_number("max\n"), None);
    assert_eq!(parse_number(""), None);
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(a in "\\PC{0,200}", b in "[0-9a-z:/ .\n\\\\-]{0,200}", id in "[0-9a-f]{0,64}") {
        for (x, y) in [(&a, &b), (&b, &a)] {
            let _ = (candidate_cgroups(x, y, &id), names_container(x, &id), unescape(x));
            let _ = (read_split(CgroupVersion::V1, x, None), read_split(CgroupVersion::V2, x, None));
        }
    }

    #[test]
    fn parts_never_exceed_the_kernels_figure(cache in any::<u64>(), shmem in any::<u64>()) {
        for (version, stat) in [
            (CgroupVersion::V1, format!("total_cache {cache}\ntotal_shmem {shmem}\n")),
            (CgroupVersion::V2, format!("file {cache}\nshmem {shmem}\n")),
        ] {
            let found = read_split(version, &stat, None);
            prop_assert!(found.file_bytes.unwrap() <= cache);
            prop_assert_eq!(found.shmem_bytes, Some(shmem));
        }
    }
}

/// A hierarchy of files in the place of the kernel's: levels from the root down, each with its files.
struct Tree {
    dir: tempfile::TempDir,
    cgroup: Cgroup,
}

type Level<'a> = (&'a str, &'a [(&'a str, &'a str)]);

impl Tree {
    fn new(version: CgroupVersion, levels: &[Level<'_>]) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let path = levels.last().unwrap().0.to_owned();
        let mount = dir.path().to_owned();
        let cgroup = Cgroup {
            version,
            dir: mount.join(path.trim_start_matches('/')),
            path,
            mount,
        };
        let tree = Tree { dir, cgroup };
        for (path, files) in levels {
            for (name, text) in *files {
                tree.write(path, name, text);
            }
        }
        tree
    }

    fn write(&self, level: &str, name: &str, text: &str) {
        let dir = self.dir.path().join(level.trim_start_matches('/'));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(name), format!("{text}\n")).unwrap();
    }

    fn limit(&self) -> (u64, LimitLevel) {
        let limit = self.cgroup.effective_limit(Some(HOST)).unwrap();
        (limit.bytes, limit.level)
    }
}

/// Memory of the host in these tests, bytes.
const HOST: u64 = 9000;
const NONE: &str = "9223372036854771712";

#[test]
fn the_smallest_limit_of_the_path_is_the_effective_one() {
    let above = |path: &str| LimitLevel::Cgroup(path.into());
    let v1 = |bytes| [("memory.limit_in_bytes", bytes)];
    let v2 = |bytes| [("memory.max", bytes)];
    type Case<'a> = (
        &'a str,
        CgroupVersion,
        Vec<(&'a str, &'a str)>,
        (u64, LimitLevel),
    );
    let cases: Vec<Case<'_>> = vec![
        (
            "its own",
            CgroupVersion::V2,
            vec![
                ("/system.slice", "max"),
                ("/system.slice/docker-x.scope", "400"),
            ],
            (400, LimitLevel::Container),
        ),
        (
            "the parent of --cgroup-parent",
            CgroupVersion::V2,
            vec![("/llm.slice", "400"), ("/llm.slice/docker-x.scope", "max")],
            (400, above("/llm.slice")),
        ),
        (
            "the parent is smaller than its own",
            CgroupVersion::V1,
            vec![("/", NONE), ("/llm", "300"), ("/llm/x", "400")],
            (300, above("/llm")),
        ),
        (
            "a user's slice, rootless",
            CgroupVersion::V2,
            vec![
                ("/user.slice", "max"),
                ("/user.slice/user-1000.slice", "500"),
                ("/user.slice/user-1000.slice/user@1000.service", "max"),
                (
                    "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-x.scope",
                    "600",
                ),
            ],
            (500, above("/user.slice/user-1000.slice")),
        ),
        (
            "a job of Slurm",
            CgroupVersion::V1,
            vec![
                ("/slurm", NONE),
                ("/slurm/uid_1000", NONE),
                ("/slurm/uid_1000/job_7", "700"),
                ("/slurm/uid_1000/job_7/step_batch", "800"),
                ("/slurm/uid_1000/job_7/step_batch/x", NONE),
            ],
            (700, above("/slurm/uid_1000/job_7")),
        ),
        (
            "a job of Slurm, v2",
            CgroupVersion::V2,
            vec![
                ("/system.slice/slurmstepd.scope", "max"),
                ("/system.slice/slurmstepd.scope/job_7", "700"),
                (
                    "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
                    "max",
                ),
            ],
            (700, above("/system.slice/slurmstepd.scope/job_7")),
        ),
        (
            "none is set",
            CgroupVersion::V1,
            vec![("/", NONE), ("/docker", NONE), ("/docker/x", NONE)],
            (HOST, LimitLevel::Host),
        ),
        (
            "a limit above what the host has",
            CgroupVersion::V2,
            vec![("/docker/x", "90000")],
            (HOST, LimitLevel::Host),
        ),
        (
            "equal ones: the innermost",
            CgroupVersion::V2,
            vec![("/pod", "400"), ("/pod/x", "400")],
            (400, LimitLevel::Container),
        ),
    ];
    for (what, version, levels, expected) in cases {
        let files: Vec<_> = levels
            .iter()
            .map(|(path, bytes)| {
                (
                    *path,
                    if version == CgroupVersion::V1 {
                        v1(*bytes)
                    } else {
                        v2(*bytes)
                    },
                )
            })
            .collect();
        let levels: Vec<Level<'_>> = files.iter().map(|(p, f)| (*p, &f[..])).collect();
        assert_eq!(Tree::new(version, &levels).limit(), expected, "{what}");
    }
}

#[test]
fn v1_knows_of_limits_above_what_is_mounted() {
    let stat = |limit: &str| format!("cache 1\nhierarchical_memory_limit {limit}");
    let tree = Tree::new(
        CgroupVersion::V1,
        &[("/x", &[("memory.limit_in_bytes", "800")])],
    );
    tree.write("/x", "memory.stat", &stat("600"));
    assert_eq!(tree.limit(), (600, LimitLevel::Cgroup("/..".into())));
    tree.write("/x", "memory.stat", &stat("800"));
    assert_eq!(tree.limit(), (800, LimitLevel::Container));
}

#[test]
fn a_v1_level_that_is_counted_apart_limits_nothing_below() {
    let apart: [Level<'_>; 2] = [
        (
            "/llm",
            &[
                ("memory.limit_in_bytes", "300"),
                ("memory.use_hierarchy", "0"),
            ],
        ),
        ("/llm/x", &[("memory.limit_in_bytes", "400")]),
    ];
    assert_eq!(
        Tree::new(CgroupVersion::V1, &apart).limit(),
        (400, LimitLevel::Container)
    );
}

fn kill(look: &OomLook) -> (Option<u64>, Option<(u64, LimitLevel)>) {
    let limit = look.limit.clone().map(|l| (l.bytes, l.level));
    (look.kills, limit)
}

#[test]
fn the_level_that_reached_its_limit_is_named_on_v2() {
    let events = |oom: u64, kills: u64| {
        format!("low 0\nhigh 0\nmax 9\noom {oom}\noom_kill {kills}\noom_group_kill 0")
    };
    let tree = Tree::new(
        CgroupVersion::V2,
        &[
            ("/llm.slice", &[("memory.max", "400")]),
            ("/llm.slice/x", &[("memory.max", "600")]),
        ],
    );
    let write = |level: &str, oom, kills| {
        // The kernel counts a kill where the process was, and the limit where it was reached.
        tree.write(level, "memory.events.local", &events(oom, kills));
        tree.write(level, "memory.events", &events(oom, kills));
    };
    write("/llm.slice", 3, 0);
    write("/llm.slice/x", 1, 1);
    let mut watch = OomWatch::start_counting(&tree.cgroup, false);
    assert_eq!(
        kill(&watch.look_again()),
        (Some(0), None),
        "of earlier runs"
    );
    write("/llm.slice", 4, 0);
    write("/llm.slice/x", 1, 2);
    let slice = LimitLevel::Cgroup("/llm.slice".into());
    assert_eq!(kill(&watch.look_again()), (Some(1), Some((400, slice))));
    write("/llm.slice/x", 2, 4);
    assert_eq!(
        kill(&watch.look_again()),
        (Some(2), Some((600, LimitLevel::Container)))
    );
    write("/llm.slice/x", 2, 5);
    let host = watch.look_again().limit.unwrap();
    assert_eq!(host.level, LimitLevel::Host, "no level was at its limit");
    let mut since = OomWatch::start_counting(&tree.cgroup, true);
    assert_eq!(
        since.look_again().kills,
        Some(5),
        "all of a container of ours"
    );
}

#[test]
fn a_container_that_ended_before_it_was_looked_at_may_have_run_out_of_memory() {
    for kills in [None, Some(1)] {
        let tree = Tree::new(CgroupVersion::V2, &[("/x", &[("memory.max", "600")])]);
        if let Some(kills) = kills {
            tree.write(
                "/x",
                "memory.events.local",
                &format!("oom 1\noom_kill {kills}"),
            );
            tree.write("/x", "memory.events", &format!("oom 1\noom_kill {kills}"));
        }
        let mut watch = OomWatch::start_counting(&tree.cgroup, true);
        std::fs::remove_dir_all(&tree.cgroup.dir).unwrap();
        let look = watch.look_again();
        assert_eq!((look.kills, look.gone), (None, true), "{kills:?}");
    }
}

#[test]
fn a_kill_before_the_first_look_is_by_the_limit_that_counted_it() {
    let tree = Tree::new(CgroupVersion::V2, &[("/x", &[("memory.max", "600")])]);
    for file in ["memory.events.local", "memory.events"] {
        tree.write("/x", file, "oom 1\noom_kill 1");
    }
    let mut watch = OomWatch::start_counting(&tree.cgroup, true);
    let own = (600, LimitLevel::Container);
    assert_eq!(kill(&watch.look_again()), (Some(1), Some(own)));
}

/// A runtime removes a container's cgroup some milliseconds after its end, and its counter with it.
#[test]
fn a_kill_that_only_the_cgroup_above_counted_is_the_containers_own() {
    let levels: &[(&str, &[(&str, &str)])] = &[
        ("/llm.slice", &[]),
        ("/llm.slice/x", &[("memory.max", "600")]),
    ];
    let tree = Tree::new(CgroupVersion::V2, levels);
    let events = |level: &str, kills: u64| {
        tree.write(level, "memory.events", &format!("oom 0\noom_kill {kills}"));
    };
    events("/llm.slice", 3);
    events("/llm.slice/x", 0);
    let mut watch = OomWatch::start_counting(&tree.cgroup, true);
    // A neighbour is killed while the container lives.
    events("/llm.slice", 4);
    assert_eq!(kill(&watch.look_again()), (Some(0), None));
    events("/llm.slice", 5);
    std::fs::remove_dir_all(&tree.cgroup.dir).unwrap();
    let look = watch.look_again();
    assert!(look.gone);
    let own = (600, LimitLevel::Container);
    assert_eq!(kill(&look), (Some(1), Some(own)));
}

#[test]
fn the_level_that_reached_its_limit_is_named_on_v1() {
    let control = |kills: u64| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}");
    let files: &[(&str, &str)] = &[
        ("memory.limit_in_bytes", "400"),
        ("memory.failcnt", "0"),
        ("memory.memsw.failcnt", "0"),
    ];
    let tree = Tree::new(CgroupVersion::V1, &[("/llm", files), ("/llm/x", files)]);
    tree.write("/llm/x", "memory.limit_in_bytes", "600");
    let kills = |n| tree.write("/llm/x", "memory.oom_control", &control(n));
    kills(0);
    let mut watch = OomWatch::start_counting(&tree.cgroup, false);
    tree.write("/llm", "memory.failcnt", "20");
    assert_eq!(
        kill(&watch.look_again()),
        (Some(0), None),
        "it still reclaims"
    );
    kills(1);
    let parent = LimitLevel::Cgroup("/llm".into());
    assert_eq!(
        kill(&watch.look_again()),
        (Some(1), Some((400, parent.clone())))
    );
    // What swaps reaches the limit on its memory all the time; the limit on both is what kills.
    tree.write("/llm/x", "memory.failcnt", "500");
    tree.write("/llm", "memory.memsw.failcnt", "1");
    kills(2);
    assert_eq!(kill(&watch.look_again()), (Some(1), Some((400, parent))));
    tree.write("/llm/x", "memory.failcnt", "501");
    kills(3);
    assert_eq!(
        kill(&watch.look_again()),
        (Some(1), Some((600, LimitLevel::Container)))
    );
    // Linux 6.18 leaves those counters at 0.
    for (level, highest) in [("/llm", "400"), ("/llm/x", "390")] {
        tree.write(level, "memory.max_usage_in_bytes", highest);
    }
    watch = OomWatch::start_counting(&tree.cgroup, false);
    kills(4);
    let parent = LimitLevel::Cgroup("/llm".into());
    assert_eq!(kill(&watch.look_again()), (Some(1), Some((400, parent))));
    // Removed with its container: nothing was killed on the host since.
    std::fs::remove_dir_all(&tree.cgroup.dir).unwrap();
    let gone = watch.look_again();
    assert_eq!((gone.kills, gone.gone), (Some(0), true));
}
