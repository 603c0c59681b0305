//! Where the system's trees are: the real ones, or directories that stand for them, by which a
//! machine with AMD GPUs is emulated.

use super::smi::Tools;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names a directory to read instead of `/sys`.
pub const SYSFS_VARIABLE: &str = "PLIMSOLL_SYSFS_ROOT";
/// Names a directory to read instead of `/proc` for AMD GPUs.
pub const PROCFS_VARIABLE: &str = "PLIMSOLL_PROCFS_ROOT";

/// The directory named on the command line.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// Reads `path` instead of `/sys` from now on, whatever the environment says. The first call counts.
pub fn use_sysfs(path: PathBuf) {
    // A second name would give half of a machine.
    let _ = NAMED.set(path);
}

/// Where everything about AMD GPUs is read.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Stands for `/sys`.
    pub sys: PathBuf,
    /// Stands for `/proc`.
    pub proc: PathBuf,
    /// Tables of product names, in the order in which they are looked at.
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
            tools: Tools::installed(),
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

    /// Whether the machine is an emulated one.
    pub fn is_emulated(&self) -> bool {
        self.sys != Path::new("/sys") || self.proc != Path::new("/proc")
    }
}
