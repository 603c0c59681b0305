//! Where `/sys` and `/proc` are read: the real ones, or directories that emulate a machine with AMD
//! GPUs.

use super::smi::Tools;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names a directory to read instead of `/sys`.
pub const SYSFS_VARIABLE: &str = "PLIMSOLL_SYSFS_ROOT";
/// Names a directory to read instead of `/proc` for AMD GPUs.
pub const PROCFS_VARIABLE: &str = "PLIMSOLL_PROCFS_ROOT";

/// The directory named on the command line.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// Reads `path` instead of `/sys` from now on, whatever the environment contains. Only the first
/// call has an effect.
pub fn use_sysfs(path: PathBuf) {
    // A second path would mix two machines.
    let _ = NAMED.set(path);
}

/// Where the data about AMD GPUs is read.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Path of `/sys`.
    pub sys: PathBuf,
    /// Path of `/proc`.
    pub proc: PathBuf,
    /// Product name tables, in lookup order.
    pub names: Vec<PathBuf>,
    /// AMD's tools.
    pub tools: Tools,
}

impl Default for Roots {
    /// This machine's.
    fn default() -> Roots {
        Roots {
            sys: "/sys".into(),
            proc: "/proc".into(),
            names: vec![
                "/usr/share/libdrm/amdgpu.ids".into(),
                "/opt/amdgpu/share/libdrm/amdgpu.ids".into(),
            ],
            tools: Tools::find_installed(),
        }
    }
}

impl Roots {
    /// This machine's, except for what the command line ([`use_sysfs`]) and the environment name
    /// ([`SYSFS_VARIABLE`], [`PROCFS_VARIABLE`]).
    pub fn from_environment() -> Roots {
        let mut roots = Roots::default();
        let named = |variable| std::env::var_os(variable).filter(|v| !v.is_empty());
        let sys = NAMED.get().cloned();
        if let Some(sys) = sys.or_else(|| named(SYSFS_VARIABLE).map(PathBuf::from)) {
            roots.sys = sys;
        }
        if let Some(proc) = named(PROCFS_VARIABLE) {
            roots.proc = proc.into();
        }
        roots
    }

    /// Whether any path differs from the real machine's.
    pub fn is_emulated(&self) -> bool {
        self.sys != Path::new("/sys") || self.proc != Path::new("/proc")
    }
}
