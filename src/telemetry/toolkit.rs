//! What this host has to give GPUs to containers: drivers, toolkits, and the specifications of CDI. Files alone are read;
//! no program runs.
//!
//! Which memory backends this host could use, without a container: for `doctor`.

use super::{amd, cgroup, intel, nvml};
use crate::bounded;
use crate::error::Failure;
use crate::report::doctor::{CheckState, DoctorCheck};
use crate::wording::count_noun;
use std::fs;
use std::path::{Path, PathBuf};

/// A specification of devices is no longer than this, bytes.
const LONGEST_SPECIFICATION: u64 = 4 << 20;

/// Where the specifications of CDI are, unless the daemon names other folders.
const CDI_FOLDERS: [&str; 2] = ["etc/cdi", "var/run/cdi"];

/// Where programs are.
const PROGRAM_FOLDERS: [&str; 4] = ["usr/bin", "usr/local/bin", "usr/sbin", "opt/rocm/bin"];

/// A maker of GPUs.
struct Maker {
    name: &'static str,
    /// Its number on the PCI bus.
    pci_vendor: &'static str,
    /// The file with its driver's version.
    driver: &'static str,
    driver_lack: &'static str,
    /// Program of its container toolkit, and the package that has it.
    toolkit: (&'static str, &'static str),
    toolkit_lack: Option<&'static str>,
    /// The beginning of the kind of its devices in CDI.
    kind: &'static str,
    cdi_lack: Option<&'static str>,
}

const MAKERS: [Maker; 2] = [
    Maker {
        name: "NVIDIA",
        pci_vendor: "0x10de",
        driver: "proc/driver/nvidia/version",
        driver_lack: "nvidia_driver",
        toolkit: ("nvidia-ctk", "nvidia-container-toolkit"),
        toolkit_lack: Some("nvidia_toolkit"),
        kind: "nvidia.com/",
        cdi_lack: Some("nvidia_cdi"),
    },
    Maker {
        name: "AMD",
        pci_vendor: "0x1002",
        driver: "sys/module/amdgpu/version",
        driver_lack: "amd_driver",
        toolkit: ("amd-ctk", "amd-container-toolkit"),
        // Containers get its device files without one.
        toolkit_lack: None,
        kind: "amd.com/",
        cdi_lack: None,
    },
];

/// One thing that a host with GPUs has or lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPart {
    /// What.
    pub name: String,
    /// What was found.
    pub found: String,
    /// What is missing, as the table of commands has it; `None` where nothing is.
    pub lack: Option<&'static str>,
}

/// Looks at drivers, toolkits and CDI of the makers whose GPUs are on this host's bus.
pub fn survey_toolkits() -> Vec<HostPart> {
    survey_below(Path::new("/"))
}

fn survey_below(root: &Path) -> Vec<HostPart> {
    let makers = MAKERS.iter().filter(|maker| maker.is_here(root));
    makers.flat_map(|maker| maker.survey(root)).collect()
}

impl Maker {
    /// Whether a GPU of this maker is on the bus, or its driver is loaded.
    fn is_here(&self, root: &Path) -> bool {
        let devices = fs::read_dir(root.join("sys/bus/pci/devices"));
        let mut devices = devices.into_iter().flatten().flatten();
        let is_gpu = |folder: PathBuf| {
            let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
            // Class 03 is what shows pictures, 12 what computes.
            read("vendor").trim() == self.pci_vendor
                && (read("class").starts_with("0x03") || read("class").starts_with("0x12"))
        };
        devices.any(|device| is_gpu(device.path())) || root.join(self.driver).exists()
    }

    fn survey(&self, root: &Path) -> Vec<HostPart> {
        let part = |what: &str, found: Option<String>, lack: Option<&'static str>| HostPart {
            name: format!("{} {what}", self.name),
            lack: lack.filter(|_| found.is_none()),
            found: found.unwrap_or_else(|| "none".to_owned()),
        };
        let driver = fs::read_to_string(root.join(self.driver)).ok();
        // The first line: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  …`, or the version alone.
        let driver = driver.map(|text| {
            let line = text.lines().next().unwrap_or_default();
            let is_version =
                |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
            line.split_ascii_whitespace()
                .find(is_version)
                .unwrap_or(line)
                .to_owned()
        });
        vec![
            part("driver", driver, Some(self.driver_lack)),
            part(
                "container toolkit",
                self.find_toolkit(root),
                self.toolkit_lack,
            ),
            part(
                "devices for containers (CDI)",
                self.find_devices(root),
                self.cdi_lack,
            ),
        ]
    }

    fn find_toolkit(&self, root: &Path) -> Option<String> {
        let (program, package) = self.toolkit;
        let place = PROGRAM_FOLDERS
            .iter()
            .map(|folder| root.join(folder).join(program));
        place.into_iter().find(|file| file.exists())?;
        let packages =
            bounded::read_bytes(&root.join("var/lib/dpkg/status"), 64 << 20).unwrap_or_default();
        let version = package_version(&String::from_utf8_lossy(&packages), package);
        Some(match version {
            Some(version) => format!("{package} {version}"),
            None => format!("{program} is here; its version is not known"),
        })
    }

    fn find_devices(&self, root: &Path) -> Option<String> {
        let mut found = Vec::new();
        for folder in CDI_FOLDERS {
            for file in fs::read_dir(root.join(folder))
                .into_iter()
                .flatten()
                .flatten()
            {
                let text =
                    bounded::read_bytes(&file.path(), LONGEST_SPECIFICATION).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                if let Some((kind, devices)) =
                    read_specification(&text).filter(|(kind, _)| kind.starts_with(self.kind))
                {
                    let devices = count_noun(devices, "device");
                    found.push(format!(
                        "{kind}: {devices} in /{folder}/{}",
                        file.file_name().to_string_lossy()
                    ));
                }
            }
        }
        found.sort();
        (!found.is_empty()).then(|| found.join("\n"))
    }
}

/// The version of a package in Debian's list of installed ones.
fn package_version(status: &str, package: &str) -> Option<String> {
    let wanted = format!("Package: {package}");
    let mut entry = status
        .lines()
        .skip_while(|line| *line != wanted)
        .take_while(|line| !line.is_empty());
    entry
        .find_map(|line| line.strip_prefix("Version: "))
        .map(str::to_owned)
}

/// Kind and number of the devices of a specification, as YAML or JSON. Read by its lines: a device is a list's item that
/// begins with its name.
fn read_specification(text: &str) -> Option<(String, usize)> {
    if let Ok(document) = bounded::parse_json::<serde_json::Value>(text.as_bytes()) {
        let devices = document["devices"].as_array().map_or(0, Vec::len);
        return Some((document["kind"].as_str()?.to_owned(), devices));
    }
    let kind = text.lines().find_map(|line| line.strip_prefix("kind: "))?;
    let after = text
        .lines()
        .skip_while(|line| line.trim_end() != "devices:")
        .skip(1);
    // The list ends where the next key of the document begins.
    let list: Vec<&str> = after
        .take_while(|line| line.starts_with([' ', '-']))
        .collect();
    let indent = list
        .first()
        .map_or(0, |line| line.len() - line.trim_start().len());
    let is_item = |line: &&&str| {
        line[..]
            .get(indent..)
            .is_some_and(|rest| rest.starts_with("- "))
    };
    Some((
        kind.trim_matches(['"', '\'', ' ']).to_owned(),
        list.iter().filter(is_item).count(),
    ))
}

/// Looks at every backend. Where the GPUs of one vendor are read, nothing has to be done about those of others.
pub fn survey_backends() -> Vec<DoctorCheck> {
    let roots = amd::Roots::from_environment();
    let mut nvidia = check_gpus("backend nvml (NVIDIA)", nvml::survey_gpus());
    let parts = survey_toolkits();
    // Without such a GPU its driver is not missing.
    if !nvml::is_named() && !parts.iter().any(|part| part.name.starts_with("NVIDIA")) {
        nvidia.hint = None;
    }
    let mut checks = without_needless_hints(vec![
        nvidia,
        check_gpus("backend amd (AMD)", amd::survey_gpus(&roots)),
        check_gpus("backend intel (Intel)", intel::survey_gpus(&roots)),
    ]);
    checks.push(check_host());
    checks
}

fn without_needless_hints(mut all: Vec<DoctorCheck>) -> Vec<DoctorCheck> {
    if all.iter().any(|check| check.ok) {
        let others = all.iter_mut().filter(|check| !check.ok);
        others.for_each(|check| check.hint = None);
    }
    all
}

fn check_gpus(name: &str, survey: Result<String, Failure>) -> DoctorCheck {
    match survey {
        Ok(found) => DoctorCheck::good_check(name, found),
        Err(why) => DoctorCheck {
            hint: why.hints.into_iter().next(),
            ..DoctorCheck::lacking_check(name, format!("none: {}", why.message))
        },
    }
}

/// The cgroup that the host backend reads; every host has one.
fn check_host() -> DoctorCheck {
    const NAME: &str = "backend host (cgroup)";
    match cgroup::find_cgroup(std::process::id(), "") {
        Ok(found) => DoctorCheck::good_check(NAME, found.version.name().to_owned()),
        Err(_) => DoctorCheck {
            state: CheckState::Broken,
            hint: Some(
                "inside a container, run plimsoll with --pid=host and --cgroupns=host".into(),
            ),
            ..DoctorCheck::lacking_check(NAME, "none: no memory cgroup is visible here".into())
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CDI: &str = "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\ndevices:\n- containerEdits:\n    \
        deviceNodes:\n    - path: /dev/nvidia0\n  name: \"0\"\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia1\n  name: \"1\"\n\
        - containerEdits: {}\n  name: all\nkind: nvidia.com/gpu\n";

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_host_without_gpus_lacks_nothing() {
        let root = host(&[
            ("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:00:1f.0/class", "0x040300\n"),
        ]);
        assert_eq!(survey_below(root.path()), []);
    }

    #[test]
    fn a_bare_gpu_lacks_driver_toolkit_and_devices() {
        let root = host(&[
            ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
        ]);
        let parts = survey_below(root.path());
        let lacks: Vec<_> = parts.iter().map(|part| part.lack.unwrap()).collect();
        assert_eq!(lacks, ["nvidia_driver", "nvidia_toolkit", "nvidia_cdi"]);
        assert!(parts.iter().all(|part| part.found == "none"));
    }

    #[test]
    fn versions_and_devices_are_named() {
        let root = host(&[
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\nGCC version: 12\n",
            ),
            ("usr/bin/nvidia-ctk", ""),
            (
                "var/lib/dpkg/status",
                "Package: nvidia-container-toolkit-base\nVersion: 9\n\nPackage: nvidia-container-toolkit\nStatus: x\nVersion: 1.17.8-1\n\n",
            ),
            ("etc/cdi/nvidia.yaml", CDI),
            (
                "var/run/cdi/amd.json",
                r#"{"kind": "amd.com/gpu", "devices": [{"name": "0"}]}"#,
            ),
            ("sys/module/amdgpu/version", "6.12.12\n"),
        ]);
        let parts = survey_below(root.path());
        let found: Vec<&str> = parts.iter().map(|part| part.found.as_str()).collect();
        assert_eq!(
            found,
            [
                "550.163.01",
                "nvidia-container-toolkit 1.17.8-1",
                "nvidia.com/gpu: 3 devices in /etc/cdi/nvidia.yaml",
                "6.12.12",
                "none",
                "amd.com/gpu: 1 device in /var/run/cdi/amd.json",
            ]
        );
        assert!(parts.iter().all(|part| part.lack.is_none()));
    }

    #[test]
    fn no_text_is_taken_for_a_specification() {
        for text in ["", "kind", "{}", "[1]", "devices:\n- name: a\n"] {
            assert_eq!(read_specification(text), None, "{text}");
        }
        assert_eq!(
            read_specification("kind: a.b/c\n"),
            Some(("a.b/c".to_owned(), 0))
        );
    }
}

#[cfg(test)]
mod survey_tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_read_needs_no_driver_of_another_vendor() {
        let absent = || {
            Err(Failure::environment("there is no AMD GPU on this host").hint("load its driver"))
        };
        let hints = |nvidia| {
            let all = vec![check_gpus("nvidia", nvidia), check_gpus("amd", absent())];
            let all = without_needless_hints(all);
            all.iter().filter(|b| b.hint.is_some()).count()
        };
        assert_eq!(hints(Ok("one GPU".into())), 0);
        assert_eq!(hints(absent()), 2);
    }
}
