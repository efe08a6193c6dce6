//! The lock on the whole machine. A cold recording evicts all cached pages and switches read-ahead off on every disk.
//! This would disturb a concurrent test that measures a cache or a device.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// The lock during a test: shared or exclusive.
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

/// For a test that needs unchanged caches and settings.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that changes caches or settings.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}
