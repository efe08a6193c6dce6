//! For tests: bytes as a BPF program writes them. The layout of a structure comes from the type information (BTF) of a compiled
//! object, so that a decoder that disagrees with the C definition fails its test.

use libbpf_rs::btf::types::{Enum, Int, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};
use std::ffi::OsStr;

/// The types of a compiled object.
pub(crate) struct Layout(Btf<'static>);

impl Layout {
    /// Reads the types of `NAME.bpf.o`.
    pub(crate) fn of(name: &str) -> Layout {
        Layout(Btf::from_path(format!("{}/{name}.bpf.o", env!("OUT_DIR"))).unwrap())
    }

    /// A structure with these values; all other bytes are 0. A member of an inner structure is named `head.type`.
    pub(crate) fn bytes(&self, structure: &str, values: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; self.structure(structure).size()];
        for (path, value) in values {
            let (at, member) = self.member(structure, path);
            let length = Int::try_from(member).unwrap_or_else(|_| panic!("{structure}.{path} is not a number")).size();
            let encoded = value.to_ne_bytes();
            let least = if cfg!(target_endian = "little") { &encoded[..length] } else { &encoded[8 - length..] };
            bytes[at..at + length].copy_from_slice(least);
        }
        bytes
    }

    /// The offset of a member, bytes.
    pub(crate) fn offset(&self, structure: &str, path: &str) -> usize {
        self.member(structure, path).0
    }

    /// The value of an enumerator.
    pub(crate) fn value(&self, enumeration: &str, name: &str) -> u64 {
        let mut known = self.0.type_by_kind::<Enum<'_>>();
        let found = known.find(|found| found.name() == Some(OsStr::new(enumeration)));
        let found = found.unwrap_or_else(|| panic!("no enum {enumeration}"));
        let value = found.iter().find(|member| member.name == Some(OsStr::new(name))).map(|member| member.value);
        value.unwrap_or_else(|| panic!("no {name} in enum {enumeration}")) as u64
    }

    fn structure(&self, name: &str) -> Struct<'_> {
        let found = self.0.type_by_kind::<Struct<'_>>().find(|found| found.name() == Some(OsStr::new(name)));
        found.unwrap_or_else(|| panic!("no struct {name}"))
    }

    fn member(&self, structure: &str, path: &str) -> (usize, BtfType<'_>) {
        let (mut at, mut kind) = (0, *self.structure(structure));
        for name in path.split('.') {
            let outer = Struct::try_from(kind).unwrap();
            let member = outer.iter().find(|member| member.name == Some(OsStr::new(name)));
            let (attr, inner) = member.map(|member| (member.attr, member.ty)).unwrap_or_else(|| panic!("no {path}"));
            let MemberAttr::Normal { offset } = attr else { panic!("{structure}.{path} is a bit field") };
            at += offset as usize / 8;
            kind = self.0.type_by_id::<BtfType<'_>>(inner).unwrap().skip_mods_and_typedefs();
        }
        (at, kind)
    }
}
