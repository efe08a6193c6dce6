//! Who may change the whole machine: a cold recording evicts everything and switches read-ahead off on every disk, and a
//! test that measures a cache or a device at that time would see it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// Held while a test runs: with others, or alone.
pub enum Held {
    Shared { _lock: RwLockReadGuard<'static, ()> },
    Alone { _lock: RwLockWriteGuard<'static, ()> },
}

impl Held {
    pub fn shared() -> Held {
        Held::Shared { _lock: shared() }
    }

    pub fn alone() -> Held {
        Held::Alone { _lock: alone() }
    }
}

/// For a test that needs caches and settings to stay as they are.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that changes them.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}
