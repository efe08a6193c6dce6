//! Any bytes as a profile: refused, or decoded into something that keeps every rule. Never a panic, never more memory
//! than the input pays for (libFuzzer's limit of 2 GiB stands guard).

#![no_main]

#[path = "../../crates/profile/tests/profile/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::bytes(bytes);
});
