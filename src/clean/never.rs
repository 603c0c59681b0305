//! What is never ended, whatever is asked: the host's daemons, the driver's services, a desktop, and
//! what Kubernetes or Slurm rule. Names stand here only to protect; no name is a reason to act.

use super::facts::{ContainerLook, ProcessLook};

/// Bytes of a process' name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// No host numbers its processes beyond this.
const LAST_PID: u32 = 1 << 22;

/// Names of programs, and what such a process is.
const SPARED: &str = "\
runs containers: dockerd containerd containerd-shim containerd-shim-runc-v1 containerd-shim-runc-v2 docker-proxy \
    docker-containerd docker-containerd-shim runc crun youki nvidia-container-runtime nvidia-container-cli nvidia-ctk \
    conmon conmonrs crio podman buildkitd rootlesskit kata-runtime lxd incusd
belongs to Kubernetes: kubelet kube-proxy kube-apiserver k3s k3s-server k3s-agent k0s rke2 nvidia-device-plugin \
    k8s-device-plugin gpu-feature-discovery
belongs to Slurm: slurmd slurmstepd slurmctld slurmdbd
is a service of the GPU's driver: nvidia-persistenced nv-fabricmanager nvidia-fabricmanager nvidia-topologyd \
    nvidia-powerd nvidia-gridd nvidia-vgpu-mgr nvidia-imex nvlsm
is CUDA's MPS, which other processes compute through: nvidia-cuda-mps-control nvidia-cuda-mps-server
watches GPUs: nv-hostengine dcgm-exporter dcgmproftester nvsm_core rdcd gpuagent amd-metrics-exporter \
    amd_smi_exporter
is a desktop: Xorg Xorg.bin X Xwayland gnome-shell gnome-session-binary gdm-x-session gdm-wayland-session kwin_x11 \
    kwin_wayland plasmashell sddm lightdm mutter muffin cinnamon sway weston labwc wayfire Hyprland cosmic-comp";

/// Parts of a cgroup's path, and who rules what is below.
const RULERS: &[(&str, &str)] = &[("kubepods", "Kubernetes"), ("slurm", "Slurm")];

/// Why the process is never touched, as the end of a sentence that begins with its name.
pub fn never_ended_because(process: &ProcessLook) -> Option<&'static str> {
    if process.pid <= 1 {
        return Some("is the first process of the host, or none");
    }
    if process.pid > LAST_PID {
        return Some("has an invalid process id");
    }
    if process.kernel {
        return Some("is a thread of the kernel");
    }
    if process.ancestor {
        return Some("is plimsoll itself, or what started it");
    }
    // A process may give itself another name, and then its command line still has the old one.
    let command = process.command.split_whitespace().next().unwrap_or("");
    let program = command.rsplit('/').next().unwrap_or(command);
    let called = |name: &str| kernel_name(&process.name) == kernel_name(name) || program == name;
    let mut kinds = SPARED.lines().filter_map(|line| line.split_once(": "));
    kinds.find_map(|(what, names)| names.split(' ').any(called).then_some(what))
}

/// Who rules the process, by its cgroup: `Kubernetes`, `Slurm`.
pub fn ruler_of_process(process: &ProcessLook) -> Option<&'static str> {
    process.cgroup.as_deref().and_then(ruler_of_cgroup)
}

/// The scheduler that owns a cgroup, by its path or by the whole text of `/proc/PID/cgroup`. A part
/// of a name is enough: it only protects.
pub fn ruler_of_cgroup(cgroup: &str) -> Option<&'static str> {
    let found = RULERS.iter().find(|(part, _)| cgroup.contains(part));
    found.map(|(_, who)| *who)
}

/// Who rules the container: by the look itself, its labels, its name, its processes' cgroups.
pub fn ruler_of(container: &ContainerLook) -> Option<String> {
    let kubernetes = || {
        let labelled = (container.labels.keys()).any(|key| key.starts_with("io.kubernetes."));
        // As Kubernetes names what it starts through Docker.
        (labelled || container.name.starts_with("k8s_")).then(|| "Kubernetes".to_owned())
    };
    let by_cgroup = || {
        let mut processes = container.processes.iter().flatten();
        processes.find_map(ruler_of_process).map(str::to_owned)
    };
    let ruler = container.ruled_by.clone();
    ruler.or_else(kubernetes).or_else(by_cgroup)
}

/// As much of a name as the kernel keeps.
fn kernel_name(name: &str) -> &[u8] {
    let bytes = name.as_bytes();
    &bytes[..bytes.len().min(NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(name: &str) -> ProcessLook {
        ProcessLook {
            pid: 7,
            name: name.into(),
            ..Default::default()
        }
    }

    #[test]
    fn the_host_s_services_are_known_by_the_names_that_the_kernel_cuts() {
        // As `/proc/<pid>/comm` has them.
        for name in [
            "dockerd",
            "containerd",
            "containerd-shim",
            "runc",
            "conmon",
            "kubelet",
            "slurmstepd",
            "nvidia-persiste",
            "nv-fabricmanage",
            "nvidia-cuda-mps",
            "nv-hostengine",
            "dcgm-exporter",
            "rdcd",
            "gpuagent",
            "Xorg",
            "Xwayland",
            "gnome-shell",
        ] {
            assert!(never_ended_because(&called(name)).is_some(), "{name}");
        }
        // What people run is none of them, nor what only sounds like one.
        for name in [
            "python3",
            "VLLM::EngineCor",
            "docker-init",
            "tini",
            "nvidia-smi",
            "dockerd2",
            "sh",
            "",
        ] {
            assert_eq!(never_ended_because(&called(name)), None, "{name}");
        }
    }

    #[test]
    fn a_service_that_renamed_itself_is_known_by_its_program() {
        let mut renamed = called("worker");
        renamed.command = "/usr/bin/nvidia-cuda-mps-control -d".into();
        assert!(never_ended_because(&renamed).is_some());
        // A user's program may well be given a service's name.
        renamed.command = "python3 watch.py dockerd".into();
        assert_eq!(never_ended_because(&renamed), None);
    }

    #[test]
    fn what_no_signal_may_ever_go_to_has_numbers_too() {
        for pid in [0, 1, u32::MAX, LAST_PID + 1] {
            let process = ProcessLook {
                pid,
                ..called("python3")
            };
            assert!(never_ended_because(&process).is_some(), "{pid}");
        }
        for mark in [
            |p: &mut ProcessLook| p.kernel = true,
            |p: &mut ProcessLook| p.ancestor = true,
        ] {
            let mut process = called("python3");
            mark(&mut process);
            assert!(never_ended_because(&process).is_some());
        }
    }

    #[test]
    fn cluster_managers_are_known_by_cgroup_label_and_name() {
        for (path, who) in [
            ("/kubepods.slice/kubepods-pod1.slice/x", Some("Kubernetes")),
            (
                "/docker/ab/kubelet.slice/kubelet-kubepods.slice",
                Some("Kubernetes"),
            ),
            ("/system.slice/slurmstepd.scope/job_4/step_0", Some("Slurm")),
            ("/slurm/uid_1000/job_4", Some("Slurm")),
            ("/system.slice/docker-ab.scope", None),
        ] {
            let mut process = called("python3");
            process.cgroup = Some(path.into());
            assert_eq!(ruler_of_process(&process), who, "{path}");
            let container = ContainerLook {
                processes: Some(vec![called("sh"), process]),
                ..Default::default()
            };
            assert_eq!(ruler_of(&container).as_deref(), who, "{path}");
        }
        let labelled = ContainerLook {
            labels: [("io.kubernetes.pod.name".into(), "x".into())].into(),
            ..Default::default()
        };
        let named = ContainerLook {
            name: "k8s_engine_pod".into(),
            ..Default::default()
        };
        for container in [labelled, named] {
            assert_eq!(ruler_of(&container).as_deref(), Some("Kubernetes"));
        }
        assert_eq!(ruler_of(&ContainerLook::default()), None);
    }
}
