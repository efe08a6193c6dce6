//! Any bytes as a pack of ureadahead, and as a plain list: refused, or a list within its limits. Never a panic, never more memory than
//! the input pays for.

#![no_main]

use ahead_files::lists::{Syntax, decode_pack, parse, parse_template};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(list) = decode_pack(bytes) {
        for file in list.files() {
            assert!(file.path.starts_with(b"/"));
            assert!(file.wanted.span().is_none_or(|span| span.end <= i64::MAX as u64));
        }
    }
    for nul in [false, true] {
        let _ = parse(bytes, Syntax { nul, paths_only: false });
    }
    let _ = parse_template(bytes);
});
