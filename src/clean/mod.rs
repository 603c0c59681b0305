//! Finds containers and processes that hold GPU memory and should not, gives the reason, and gets
//! the memory back: looked at ([`facts`]), judged ([`verdict`]), acted on, verified.

pub mod activity;
pub mod apply;
pub mod document;
pub mod facts;
pub mod history;
pub mod memory;
pub mod never;
pub mod scope;
pub mod survey;
pub mod verdict;
mod verify;
pub mod watch;
