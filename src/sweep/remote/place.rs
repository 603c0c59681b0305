//! Where a run lies on another machine. It is written down in the run's folder here before anything
//! begins there, so that a connection that breaks off loses nothing but itself.

use crate::error::Failure;
use crate::matrix::Shard;
use crate::store::{bounded, write_atomically};
use crate::sweep::folder::REMOTE_FILE;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A longer file is none of ours, bytes.
const LONGEST: u64 = 64 << 10;

/// The place of a run on another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePlace {
    /// The machine, as `--docker-host` names it.
    pub host: String,
    /// The run's folder there.
    pub folder: String,
    /// The part of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

impl RemotePlace {
    /// As it is written down in a folder here; `None` where the run is of this machine, or where
    /// there is none.
    pub fn read_file(here: &Path) -> Result<Option<RemotePlace>, Failure> {
        let file = here.join(REMOTE_FILE);
        let unreadable = |e: io::Error| {
            Failure::environment(format!("cannot read `{}`", file.display())).caused_by(e)
        };
        match bounded::read_bytes(&file, LONGEST) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(unreadable(e)),
            Ok(bytes) => {
                let place = bounded::parse_json(&bytes);
                place.map(Some).map_err(|e| unreadable(e.into()))
            }
        }
    }

    /// Writes it down.
    pub fn write_file(&self, here: &Path) -> Result<(), Failure> {
        let mut bytes = serde_json::to_vec(self).map_err(|e| {
            Failure::bug("the record of where the sweep runs cannot be made").caused_by(e)
        })?;
        bytes.push(b'\n');
        write_atomically(&here.join(REMOTE_FILE), &bytes)
    }
}
