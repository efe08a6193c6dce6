//! Messages for the user: the library prints nothing by itself.

/// Takes one line for the user.
pub type Notify<'a> = &'a dyn Fn(&str);
