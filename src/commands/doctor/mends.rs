//! The table of what `doctor` looks for, and of the commands that mend what is missing.

use crate::host;
use crate::tables::read_table;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoctorTable {
    /// Python packages to name.
    pub packages: Vec<String>,
    /// Where they are in an image.
    pub package_folders: Vec<String>,
    mends: BTreeMap<String, BTreeMap<String, String>>,
}

impl DoctorTable {
    /// The one that ships.
    pub fn shipped() -> DoctorTable {
        read_table(include_str!("../../../configs/doctor.yaml"))
    }

    /// The command that mends `lack` on this host; `None` where none is known for its distribution.
    pub fn mend(&self, lack: &str) -> Option<String> {
        self.mend_on(lack, &host::distribution())
    }

    /// The same for a distribution, by its name and those that it is like.
    fn mend_on(&self, lack: &str, distribution: &[String]) -> Option<String> {
        let commands = self.mends.get(lack)?;
        let mut names = distribution.iter().map(String::as_str).chain(["any"]);
        names.find_map(|name| commands.get(name)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ships_with_a_command_for_each_lack() {
        let table = DoctorTable::shipped();
        assert!(table.packages.contains(&"torch".to_owned()));
        assert!(table.mends.len() >= 8, "{table:?}");
        for (lack, commands) in &table.mends {
            assert!(commands.values().all(|c| c.starts_with("sudo ")), "{lack}");
            let on = |ids: &[&str]| {
                let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
                table.mend_on(lack, &ids)
            };
            assert!(
                on(&["debian"]).is_some() && on(&["ubuntu", "debian"]).is_some(),
                "{lack}"
            );
        }
        let on = |lack: &str, ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            table.mend_on(lack, &ids)
        };
        assert_eq!(
            on("nvidia_driver", &["linuxmint", "ubuntu", "debian"]).unwrap(),
            "sudo ubuntu-drivers install"
        );
        assert_eq!(
            on("docker_silent", &["alpine"]).unwrap(),
            "sudo rc-service docker start"
        );
        assert_eq!(
            on("docker_silent", &["nixos"]).unwrap(),
            "sudo systemctl start docker"
        );
        assert_eq!(on("docker_absent", &["nixos"]), None);
        assert_eq!(on("no_such_lack", &["debian"]), None);
    }
}
