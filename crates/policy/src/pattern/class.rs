//! The class of an open file.

use std::fmt;

/// The pattern of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Too few decisions.
    #[default]
    Unknown,
    /// Ascending without gaps.
    Sequential,
    /// Descending without gaps.
    Backward,
    /// Equal steps with gaps, in either direction.
    Stride,
    /// Several sequential streams through one open file.
    Interleaved,
    /// Calls in no order.
    RandomRead,
    /// Faults in no order.
    RandomMapped,
    /// Read once from start to end, without a need for more read-ahead.
    OnceOnly,
    /// The program has set its own advice: left alone.
    Advised,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 9] = [
        Class::Unknown,
        Class::Sequential,
        Class::Backward,
        Class::Stride,
        Class::Interleaved,
        Class::RandomRead,
        Class::RandomMapped,
        Class::OnceOnly,
        Class::Advised,
    ];

    /// Its name in reports: `random mmap`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Unknown => "unknown",
            Class::Sequential => "sequential",
            Class::Backward => "backward",
            Class::Stride => "stride",
            Class::Interleaved => "interleaved",
            Class::RandomRead => "random read",
            Class::RandomMapped => "random mmap",
            Class::OnceOnly => "once-only",
            Class::Advised => "advised",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
