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
    candidates(membership, mounts, ID)
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
    let found = candidates("4:memory:/a/b/c\n", V1_MOUNTS, "");
    assert_eq!(found[0].dir, Path::new("/sys/fs/cgroup/memory/a/b/c"));
}

#[test]
fn memory_stat_of_v1() {
    let stat = "cache 5\nrss 6\nshmem 1\nswap 0\nhierarchical_memory_limit 9223372036854771712\n\
                total_cache 7000\ntotal_rss 5000\ntotal_shmem 3000\ntotal_swap 12\n";
    let expected = HostSplit {
        anon_bytes: Some(5000),
        file_bytes: Some(4000),
        shmem_bytes: Some(3000),
        kernel_bytes: Some(77),
        swap_bytes: Some(12),
    };
    assert_eq!(split(Version::V1, stat, Some(77)), expected);
    let flat = split(Version::V1, "cache 7\nrss 6\nshmem 1\n", None);
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
    let old = "anon 5000\nfile 7000\nkernel_stack 10\npagetables 20\npercpu 30\nsock 0\nshmem 3000\nfile_mapped 9\nslab 400\n";
    let expected = HostSplit {
        anon_bytes: Some(5000),
        file_bytes: Some(4000),
        shmem_bytes: Some(3000),
        kernel_bytes: Some(460),
        swap_bytes: Some(0),
    };
    assert_eq!(split(Version::V2, old, Some(0)), expected);
    assert_eq!(
        split(Version::V2, &format!("{old}kernel 999\n"), None).kernel_bytes,
        Some(999)
    );
    assert_eq!(split(Version::V2, "", None), HostSplit::default());
}

#[test]
fn a_number_is_a_number() {
    assert_eq!(
        number("9223372036854771712\n"),
        Some(9_223_372_036_854_771_712)
    );
    assert_eq!(number("max\n"), None);
    assert_eq!(number(""), None);
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(a in "\\PC{0,200}", b in "[0-9a-z:/ .\n\\\\-]{0,200}", id in "[0-9a-f]{0,64}") {
        for (x, y) in [(&a, &b), (&b, &a)] {
            let _ = (candidates(x, y, &id), names_container(x, &id), unescape(x));
            let _ = (split(Version::V1, x, None), split(Version::V2, x, Some(1)));
        }
    }

    #[test]
    fn parts_never_exceed_what_the_kernel_said(cache in any::<u64>(), shmem in any::<u64>()) {
        for (version, stat) in [
            (Version::V1, format!("total_cache {cache}\ntotal_shmem {shmem}\n")),
            (Version::V2, format!("file {cache}\nshmem {shmem}\n")),
        ] {
            let found = split(version, &stat, None);
            prop_assert!(found.file_bytes.unwrap() <= cache);
            prop_assert_eq!(found.shmem_bytes, Some(shmem));
        }
    }
}

#[test]
fn kills_for_lack_of_memory_are_counted_in_both_versions() {
    let dir = tempfile::tempdir().expect("tempdir");
    let count = |file: &str, text: &str| {
        std::fs::write(dir.path().join(file), text).expect("file");
        crate::telemetry::oom_kills(dir.path())
    };
    assert_eq!(crate::telemetry::oom_kills(dir.path()), None);
    let v2 = "low 0\nhigh 3\nmax 9\noom 4\noom_kill 2\noom_group_kill 7\n";
    assert_eq!(count("memory.events", v2), Some(2));
    let v1 = "oom_kill_disable 0\nunder_oom 1\noom_kill 5\n";
    assert_eq!(count("memory.oom_control", v1), Some(5));
    let old = "oom_kill_disable 0\nunder_oom 0\n";
    assert_eq!(
        count("memory.oom_control", old),
        None,
        "kernels before 4.13"
    );
}
