//! Access patterns: how readers move, from what is seen of their accesses. Pure.
//!
//! ```text
//!     sequential   ├──┤├──┤├──┤  ├──┤      a small gap stays sequential
//!     backward                   ├──┤├──┤├──┤  ◀── the next run is below
//!     stride       ├┤   ├┤   ├┤   ├┤       runs whose beginnings lie at equal steps
//!     random       anything else: nothing is predicted
//! ```
//!
//! All users have the same core: [`Steps`], the last run of a reader and the step that led there. What they add to it follows from what
//! they see:
//!
//! ```text
//!     every read of one reader, in bytes          Detector             a program that reads a file (`reading`)
//!     pages of a reader whose pattern is known    Route                a program that maps a file (`ahead_read::advise`)
//!     the last decided pages, without lengths     Sample               `ahead top`
//!     every decision of the kernel                steering::streams    readers of an open file; cached reads are not seen
//!     every call for a file                       policies::ahead      readers of a file, with the waits of each
//! ```
//!
//! The last two have several readers. An access belongs to the stream that it continues best; otherwise it begins one.

mod class;
mod detector;
mod route;
mod sample;
mod steps;
mod streams;

pub use class::Class;
pub use detector::{Detector, Pattern};
pub use route::Route;
pub use sample::Sample;
pub use steps::Steps;
pub(crate) use streams::{add_stream, find_stream};
