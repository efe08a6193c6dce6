//! Access patterns: how readers move, from what is seen of their accesses. Pure.
//!
//! ```text
//!     sequential   ├──┤├──┤├──┤  ├──┤      a small gap stays sequential
//!     backward                   ├──┤├──┤├──┤  ◀── the next run is below
//!     stride       ├┤   ├┤   ├┤   ├┤       runs whose beginnings lie at equal steps
//!     random       anything else: nothing is predicted
//! ```
//!
//! All users have the same core: [`Steps`], the last run of a reader and the step that led there. What else they need follows from what
//! they see:
//!
//! ```text
//!     every read of one reader, in bytes          Detector    a program that reads a file (`ahead_read::stream`)
//!     pages of a reader whose pattern is known    Route       a program that maps a file (`ahead_read::advise`)
//!     the last decisions of the kernel, pages     Sample      `ahead top`
//! ```

mod class;
mod detector;
mod route;
mod sample;
mod steps;
mod streams;

pub use class::Class;
pub use detector::{Detector, Pattern};
pub use route::Route;
pub use sample::{Decided, LastWindow, Sample};
pub use steps::Steps;
pub(crate) use streams::{add_stream, find_stream};
