//! Finds containers and processes that hold GPU memory and should not, says why, and gets the
//! memory back: looked at ([`facts`]), judged ([`verdict`]), acted on, verified.

pub mod facts;
pub mod history;
pub mod never;
pub mod verdict;
