//! Tests that cross crates are in this package; it has no other code.
