//! Tests.
mod compare;
mod crash;
mod disk;
mod fetch;
mod machine_lock;
mod record;
mod strangers;
