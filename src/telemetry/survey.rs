//! Which memory backends this host could use, without a container: for `doctor`.

use super::{amd, cgroup, intel, nvml, toolkit};
use crate::error::Failure;
use crate::report::doctor::{CheckState, DoctorCheck};

/// Looks at every backend. Where the GPUs of one vendor are read, nothing has to be done about those of others.
pub fn survey_backends() -> Vec<DoctorCheck> {
    let roots = amd::Roots::from_environment();
    let mut nvidia = check_gpus("backend nvml (NVIDIA)", nvml::survey_gpus());
    let parts = toolkit::survey_toolkits();
    // Where there is no such GPU, its driver is no lack.
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
