//! Tests that need root.

mod bench;
mod boot;
mod cached;
mod compare;
mod conform;
mod counters;
mod crash;
mod disk;
mod embedded;
mod faults;
mod fetch;
mod hostile;
mod launches;
mod library;
mod live;
mod pack;
mod papers;
mod probe;
mod reclaim;
mod record;
mod scarce;
mod steer;
mod strangers;
mod top;
mod tune;
mod two_worlds;
