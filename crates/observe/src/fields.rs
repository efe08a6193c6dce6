//! The members of a structure that a BPF program has written.

/// The bytes of a structure. A member outside of them is a mistake in the decoder, which checks their length first.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// `None`: the bytes have another length.
    pub(crate) fn of<const LENGTH: usize>(bytes: &'a [u8]) -> Option<Fields<'a>> {
        (bytes.len() == LENGTH).then_some(Fields(bytes))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// The bytes from an offset on.
    pub(crate) fn array<const LENGTH: usize>(&self, at: usize) -> [u8; LENGTH] {
        *self.0[at..].first_chunk().expect("a decoder checks the length of the structure")
    }
}
