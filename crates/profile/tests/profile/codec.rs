//! Properties of the codec for every profile and for any bytes.

use crate::exercise::with_header;
use crate::strategies;
use ahead_profile::{DecodeError, decode, encode};
use proptest::prelude::*;

/// Bytes of the fixed header.
const HEADER: usize = 28;

proptest! {
    #[test]
    fn round_trip(profile in strategies::profile()) {
        let bytes = encode(&profile).unwrap();
        prop_assert_eq!(&decode(&bytes).unwrap(), &profile);
        prop_assert_eq!(encode(&profile).unwrap(), bytes);
    }

    #[test]
    fn body_is_plain_cbor(profile in strategies::profile()) {
        let bytes = encode(&profile).unwrap();
        let value: ciborium::Value = ciborium::from_reader(&bytes[HEADER..]).unwrap();
        let keys: Vec<_> = value.as_map().unwrap().iter().map(|(key, _)| key.as_text().unwrap()).collect();
        let expected = ["recording", "files", "metadata", "lookups", "milestones", "timeline"];
        prop_assert_eq!(keys, &expected[..5 + usize::from(profile.timeline.is_some())]);
        prop_assert_eq!(with_header(&bytes[HEADER..]), bytes);
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_body_is_refused_or_canonical(body in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(profile) = decode(&with_header(&body)) {
            prop_assert_eq!(decode(&encode(&profile).unwrap()).unwrap(), profile);
        }
    }

    /// The structure mostly survives here, so that the rules after the syntax are tested.
    #[test]
    fn changed_body_is_refused_or_keeps_every_rule(
        profile in strategies::profile(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = encode(&profile).unwrap()[HEADER..].to_vec();
        for (index, byte) in changes {
            let at = index.index(body.len());
            body[at] = byte;
        }
        if let Ok(decoded) = decode(&with_header(&body)) {
            prop_assert_eq!(decode(&encode(&decoded).unwrap()).unwrap(), decoded);
        }
    }

    #[test]
    fn every_flipped_bit_is_detected(profile in strategies::profile(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = encode(&profile).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn every_truncation_is_detected(profile in strategies::profile(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&profile).unwrap();
        let at = at.index(bytes.len());
        let error = decode(&bytes[..at]).unwrap_err();
        let expected = if at == 0 { "not an ahead profile" } else { "truncated" };
        prop_assert!(error.to_string().contains(expected), "{}", error);
    }
}

/// Bodies with errors and a correct checksum, so that the decoder itself is tested.
#[test]
fn errors_have_a_position() {
    let text = |body: &[u8]| decode(&with_header(body)).unwrap_err().to_string();
    assert_eq!(
        text(b""),
        "malformed, so not written by ahead: byte 28 (body): the body ends here, in the middle of an item"
    );
    assert_eq!(text(b"\xa0"), "malformed, so not written by ahead: byte 28 (body): recording is missing");
    assert_eq!(
        text(b"\xa1\x65files\x05"),
        "malformed, so not written by ahead: byte 35 (files): expected an array, found a number"
    );
    assert_eq!(
        text(b"\xa1\x65files\x9a\x00\x0f\xff\xff"),
        "malformed, so not written by ahead: byte 35 (files): 1048575 entries cannot fit into the 0 bytes left"
    );
    assert_eq!(
        text(b"\xa1\x65files\x81\x80            "),
        "malformed, so not written by ahead: byte 36 (files[0]): 0 fields instead of 10"
    );
    assert_eq!(
        text(b"\xa1\x65files\x81\x8a\x18\x20\0\0\0\0\0\0\0\0\0"),
        "malformed, so not written by ahead: byte 37 (files[0].path): expected bytes, found a number"
    );
    assert_eq!(
        text(b"\xa2\x65files\x80\x65files\x80"),
        "malformed, so not written by ahead: byte 36 (body): duplicate key files"
    );
    assert_eq!(text(b"\xff"), "malformed, so not written by ahead: byte 28 (body): an item of unknown length");
    assert_eq!(text(b"\xbf\xff"), "malformed, so not written by ahead: byte 28 (body): an item of unknown length");
}

#[test]
fn unknown_values_are_skipped_but_not_without_bound() {
    let mut deep = b"\xa1\x61x".to_vec();
    deep.extend([0x81; 100_000]);
    assert!(decode(&with_header(&deep)).unwrap_err().to_string().contains("nested deeper than 16 levels"));
    let mut wide = b"\xa1\x61x\x9b".to_vec();
    wide.extend(u64::MAX.to_be_bytes());
    assert!(matches!(decode(&with_header(&wide)), Err(DecodeError::Malformed { .. })));
    let mut map = b"\xa1\x61x\xbb".to_vec();
    map.extend(u64::MAX.to_be_bytes());
    assert!(matches!(decode(&with_header(&map)), Err(DecodeError::Malformed { .. })));
}
