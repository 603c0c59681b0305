//! A sweep on one other machine: plimsoll is run there over ssh, and its results come back.
//!
//! Memory is read on the host that has it, so a Docker API from afar is not enough: the agent runs
//! where the containers are.

mod host;
mod output;
mod run;
mod unpack;

pub use host::{RemoteHost, RemotePlace};
pub use unpack::UnpackedFiles;
