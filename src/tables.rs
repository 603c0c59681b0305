//! Tables that ship in the binary: the YAML files under configs/.

use serde::de::DeserializeOwned;

/// Reads a table that ships. Empty where it cannot be read, which a test of each table rules out.
pub fn read_table<T: DeserializeOwned + Default>(yaml: &str) -> T {
    serde_yaml::from_str(yaml).unwrap_or_default()
}
