//! Which memory backends this host could use, without a container: for `doctor`.

use super::{amd, cgroup, nvml};

/// One backend, looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSurvey {
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
pub fn survey_backends() -> Vec<BackendSurvey> {
    vec![
        survey_gpus("backend nvml (NVIDIA)", nvml::survey_gpus()),
        survey_gpus(
            "backend amd (AMD)",
            amd::survey_gpus(&amd::Roots::from_environment()),
        ),
        host(),
    ]
}

fn survey_gpus(name: &str, survey: Result<String, nvml::Unusable>) -> BackendSurvey {
    let name = name.to_owned();
    match survey {
        Ok(found) => BackendSurvey {
            name,
            found,
            usable: true,
            hint: None,
        },
        Err(unusable) => BackendSurvey {
            name,
            found: format!("none: {}", unusable.message),
            usable: false,
            hint: unusable.hint.map(str::to_owned),
        },
    }
}

fn host() -> BackendSurvey {
    let name = "backend host (cgroup)".to_owned();
    match cgroup::find_cgroup(std::process::id(), "") {
        Ok(found) => BackendSurvey {
            name,
            found: found.version.name().to_owned(),
            usable: true,
            hint: None,
        },
        Err(_) => BackendSurvey {
            name,
            found: "none: no memory cgroup is visible here".into(),
            usable: false,
            hint: Some(
                "inside a container, run plimsoll with --pid=host and --cgroupns=host".into(),
            ),
        },
    }
}
