//! What must hold for any bytes: shared by the fuzz target and by the tests that replay its corpus.

use ahead_profile::{check, decode, encode, merge};

/// Bytes of the fixed header, and of its part that the checksum covers.
const HEADER: usize = 28;
const COVERED: usize = 24;

/// Decodes the bytes as they are, and with a header that is right about them: a fuzzer would hardly ever guess a
/// checksum, and never see what lies behind it. Gives whether the bytes as they are were a profile.
pub fn bytes(bytes: &[u8]) -> bool {
    if let Some(body) = bytes.get(HEADER..) {
        as_it_is(&with_header(body));
    }
    as_it_is(bytes)
}

/// A body behind a header that is right about it.
pub fn with_header(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x89AHEAD\r\n\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend([0; HEADER - COVERED]);
    bytes.extend(body);
    fix_checksum(&mut bytes);
    bytes
}

/// Makes the checksum right, whatever the rest of the header says.
pub fn fix_checksum(bytes: &mut [u8]) {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bytes[..COVERED]);
    checksum.update(&bytes[HEADER..]);
    bytes[COVERED..HEADER].copy_from_slice(&checksum.finalize().to_le_bytes());
}

fn as_it_is(bytes: &[u8]) -> bool {
    match decode(bytes) {
        Ok(profile) => {
            let again = encode(&profile).expect("what was decoded can be encoded");
            assert_eq!(decode(&again).expect("what was encoded can be decoded"), profile);
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
