//! Structs of options that can get more fields without breaking their users.

/// Declares a struct of options. It is `#[non_exhaustive]`: another crate starts with its `default()` or `new(…)`, and each field has a method
/// of the same name that sets it.
///
/// ```
/// ahead_model::options! {
///     /// How to read.
///     #[derive(Debug, Default)]
///     pub struct ReadOptions {
///         /// Whether to wait.
///         pub wait: bool,
///         /// The most bytes; `None`: no limit.
///         pub budget_bytes: Option<u64>,
///     }
/// }
/// let options = ReadOptions::default().wait(true).budget_bytes(Some(4096));
/// assert!(options.wait && options.budget_bytes == Some(4096));
/// ```
#[macro_export]
macro_rules! options {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$field_about:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_about])* pub $field: $kind,)*
        }

        impl $name {
            $(
                $(#[$field_about])*
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> $name {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
