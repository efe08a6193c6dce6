//! A function of the C library that a program has itself.

/// Defines the C library's `pow` in a program, by a function of Rust, so that libm is not linked: seven reads of a cold start. For programs only:
/// a library would replace it for all that link the library.
#[macro_export]
macro_rules! own_pow {
    ($pow:path) => {
        // SAFETY: this is the C function of that name, with its types; it has its meaning.
        #[unsafe(no_mangle)]
        extern "C" fn pow(base: f64, exponent: f64) -> f64 {
            $pow(base, exponent)
        }
    };
}
