//! Tests that need root.
mod bench;
mod compare;
mod conform;
mod crash;
mod disk;
mod fetch;
mod hostile;
mod live;
mod machine_lock;
mod mounted;
mod papers;
mod probe;
mod reclaim;
mod record;
mod scarce;
mod strangers;
mod tune;
