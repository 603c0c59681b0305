//! Loads NVML: where the library is searched, and hints for when it is missing or fails.

use crate::error::Failure;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable with the library to load instead of the system's.
pub const LIBRARY_VARIABLE: &str = "PLIMSOLL_NVML_LIBRARY";
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Where the library is on systems where the loader does not find it: WSL, NixOS, Google's
/// container-optimised OS, and Debian's alternatives.
const EXTRA_DIRECTORIES: [&str; 4] = [
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
];

/// The library path from the command line.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// Loads NVML from `path`, whatever the environment contains. Only the first call has an effect,
/// and only before NVML is used.
pub fn use_library(path: PathBuf) {
    // A later path would have no effect: a library stays loaded for the life of the process.
    let _ = NAMED.set(path);
}

/// Whether a library path was configured.
pub fn is_named() -> bool {
    NAMED.get().is_some() || std::env::var_os(LIBRARY_VARIABLE).is_some_and(|p| !p.is_empty())
}

/// The library, loaded once for the life of the process: devices borrow it, and a sweep opens
/// several backends in turn.
pub fn loaded_library() -> Result<&'static Nvml, Failure> {
    static NVML: OnceLock<Nvml> = OnceLock::new();
    if let Some(nvml) = NVML.get() {
        return Ok(nvml);
    }
    let nvml = load_library()?;
    Ok(NVML.get_or_init(|| nvml))
}

fn unusable(error: NvmlError, hint: &str) -> Failure {
    // Displayed, the error names a Rust library, which helps nobody.
    let why = match error {
        NvmlError::LibloadingError(why) => why.to_string(),
        why => why.to_string(),
    };
    Failure::environment(format!("NVML cannot be used: {why}")).hint(hint)
}

fn load_library() -> Result<Nvml, Failure> {
    let from = |path: &OsStr| Nvml::builder().lib_path(path).init();
    if let Some(path) = NAMED.get() {
        let hint = "the library is the one that --nvml-lib or PLIMSOLL_NVML_LIBRARY names";
        return from(path.as_os_str()).map_err(|e| unusable(e, hint));
    }
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|p| !p.is_empty()) {
        let hint = "the library is the one that PLIMSOLL_NVML_LIBRARY names";
        return from(&path).map_err(|e| unusable(e, hint));
    }
    let mut result = from(OsStr::new(LIBRARY));
    for path in EXTRA_DIRECTORIES.iter().map(|d| Path::new(d).join(LIBRARY)) {
        // Other directories are searched only if the library is missing; a library that fails to
        // start is final.
        if !matches!(result, Err(NvmlError::LibloadingError(_))) {
            break;
        }
        if path.exists() {
            result = from(path.as_os_str());
        }
    }
    result.map_err(|e| {
        let hint = match &e {
            NvmlError::LibloadingError(_) => {
                "install the NVIDIA driver, or name its libnvidia-ml.so.1 with --nvml-lib (or PLIMSOLL_NVML_LIBRARY)"
            }
            NvmlError::DriverNotLoaded => "load the kernel driver: `modprobe nvidia`; `nvidia-smi` should work then",
            NvmlError::LibRmVersionMismatch => {
                "the driver was updated under the running kernel module: reboot, or reload the module"
            }
            NvmlError::NoPermission => "run plimsoll as a user that may use /dev/nvidiactl",
            _ => "run `nvidia-smi` on this host for details",
        };
        unusable(e, hint)
    })
}
