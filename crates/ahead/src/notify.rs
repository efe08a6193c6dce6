//! Messages for the user: the library prints nothing by itself.

/// Receives one-line messages for the user.
pub type Notify<'a> = &'a dyn Fn(&str);
