//! Locks on data that stays good when a thread panics while it holds them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock, also where a thread panicked with it: what it guards is written in one step.
pub fn lock_data<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
