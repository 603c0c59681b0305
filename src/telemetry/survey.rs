//! Which memory backends this host could use, without a container: for `doctor`.

use super::{amd, cgroup, intel, nvml, toolkit};

/// One backend, looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSurvey {
    /// Backend and what it reads.
    pub name: String,
    /// What was found.
    pub found: String,
    /// Whether it can be used.
    pub usable: bool,
    /// Whether only some hosts have what it reads.
    pub optional: bool,
    /// What would help.
    pub hint: Option<String>,
}

/// Looks at every backend. Where the GPUs of one vendor are read, nothing has to be done about those of others.
pub fn survey_backends() -> Vec<BackendSurvey> {
    let mut nvidia = survey_gpus("backend nvml (NVIDIA)", nvml::survey_gpus());
    let parts = toolkit::survey_toolkits();
    // Where there is no such GPU, its driver is no lack.
    if !nvml::is_named() && !parts.iter().any(|part| part.name.starts_with("NVIDIA")) {
        nvidia.hint = None;
    }
    without_needless_hints(vec![
        nvidia,
        survey_gpus(
            "backend amd (AMD)",
            amd::survey_gpus(&amd::Roots::from_environment()),
        ),
        survey_gpus(
            "backend intel (Intel)",
            intel::survey_gpus(&amd::Roots::from_environment()),
        ),
        host(),
    ])
}

fn without_needless_hints(mut all: Vec<BackendSurvey>) -> Vec<BackendSurvey> {
    if all.iter().any(|backend| backend.optional && backend.usable) {
        let others = all.iter_mut().filter(|b| b.optional && !b.usable);
        others.for_each(|backend| backend.hint = None);
    }
    all
}

fn survey_gpus(name: &str, survey: Result<String, nvml::Unusable>) -> BackendSurvey {
    let (found, hint) = match &survey {
        Ok(found) => (found.clone(), None),
        Err(unusable) => (
            format!("none: {}", unusable.message),
            unusable.hint.map(str::to_owned),
        ),
    };
    BackendSurvey {
        name: name.to_owned(),
        found,
        usable: survey.is_ok(),
        optional: true,
        hint,
    }
}

fn host() -> BackendSurvey {
    let name = "backend host (cgroup)".to_owned();
    match cgroup::find_cgroup(std::process::id(), "") {
        Ok(found) => BackendSurvey {
            name,
            found: found.version.name().to_owned(),
            usable: true,
            optional: false,
            hint: None,
        },
        Err(_) => BackendSurvey {
            name,
            found: "none: no memory cgroup is visible here".into(),
            usable: false,
            optional: false,
            hint: Some(
                "inside a container, run plimsoll with --pid=host and --cgroupns=host".into(),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml::Unusable;

    #[test]
    fn a_gpu_that_is_read_needs_no_driver_of_another_vendor() {
        let absent = || {
            Err(Unusable {
                message: "there is no AMD GPU on this host".into(),
                hint: Some("load its driver"),
            })
        };
        let hints = |nvidia| {
            let all = vec![survey_gpus("nvidia", nvidia), survey_gpus("amd", absent())];
            let all = without_needless_hints(all);
            all.iter().filter(|b| b.hint.is_some()).count()
        };
        assert_eq!(hints(Ok("one GPU".into())), 0);
        assert_eq!(hints(absent()), 2);
    }
}
