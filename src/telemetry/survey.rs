//! Which memory backends this host could use, without a container: for `doctor`.

use super::{amd, cgroup, nvml};

/// One backend, looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Backend and what it reads.
    pub name: String,
    /// What was found.
    pub found: String,
    /// Whether it can be used.
    pub usable: bool,
    /// What would help.
    pub hint: Option<String>,
}

/// Looks at every backend.
pub fn survey() -> Vec<Survey> {
    vec![
        gpus("backend nvml (NVIDIA)", nvml::survey()),
        gpus(
            "backend amd (AMD)",
            amd::survey(&amd::Roots::from_environment()),
        ),
        host(),
    ]
}

fn gpus(name: &str, survey: Result<String, nvml::Unusable>) -> Survey {
    let name = name.to_owned();
    match survey {
        Ok(found) => Survey {
            name,
            found,
            usable: true,
            hint: None,
        },
        Err(unusable) => Survey {
            name,
            found: format!("none: {}", unusable.message),
            usable: false,
            hint: unusable.hint.map(str::to_owned),
        },
    }
}

fn host() -> Survey {
    let name = "backend host (cgroup)".to_owned();
    match cgroup::find(std::process::id(), "") {
        Ok(found) => Survey {
            name,
            found: found.version.name().to_owned(),
            usable: true,
            hint: None,
        },
        Err(_) => Survey {
            name,
            found: "none: no memory cgroup is visible here".into(),
            usable: false,
            hint: Some(
                "inside a container, run plimsoll with --pid=host and --cgroupns=host".into(),
            ),
        },
    }
}
