//! Tests that cross crates live in this package; it has no code of its own.
