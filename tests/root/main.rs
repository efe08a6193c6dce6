//! Tests.
mod compare;
mod disk;
mod fetch;
mod machine_lock;
mod record;
