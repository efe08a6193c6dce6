//! Properties for any bytes: shared by the fuzz target and the tests that replay its corpus.

use ahead_profile::{check, decode, encode, merge};

/// Length of the fixed header, and of the part that the checksum covers.
const HEADER: usize = 28;
const COVERED: usize = 24;

/// Decodes the bytes unchanged, and with a correct header: a fuzzer would hardly guess a checksum, and never reach the code
/// after that check. Returns whether the unchanged bytes were a profile.
pub fn bytes(bytes: &[u8]) -> bool {
    if let Some(body) = bytes.get(HEADER..) {
        check_decoding(&with_header(body));
    }
    check_decoding(bytes)
}

/// A body with a correct header.
pub fn with_header(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x89AHEAD\r\n\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend([0; HEADER - COVERED]);
    bytes.extend(body);
    fix_checksum(&mut bytes);
    bytes
}

/// Corrects the checksum, for any content of the rest of the header.
pub fn fix_checksum(bytes: &mut [u8]) {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bytes[..COVERED]);
    checksum.update(&bytes[HEADER..]);
    bytes[COVERED..HEADER].copy_from_slice(&checksum.finalize().to_le_bytes());
}

fn check_decoding(bytes: &[u8]) -> bool {
    match decode(bytes) {
        Ok(profile) => {
            let again = encode(&profile).expect("a decoded profile can be encoded");
            assert_eq!(decode(&again).expect("an encoded profile can be decoded"), profile);
            let extents: usize = profile.files.iter().map(|file| file.extents.len()).sum();
            assert_eq!(profile.in_order().len(), extents);
            check(&merge(vec![profile.clone(), profile])).expect("merging keeps every rule");
            true
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
            false
        }
    }
}
