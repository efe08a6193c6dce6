//! One file per algorithm. Each file begins with a description of its algorithm.

pub mod advise;
pub mod ahead;
pub mod amp;
pub mod competitive;
pub mod fadvise;
pub mod fixed;
pub mod linux_1_3;
pub mod linux_2_2;
pub mod linux_2_4;
pub mod linux_2_6;
pub mod linux_2_6_23;
pub mod linux_6_12;
pub mod linux_6_18;
pub mod linux_7_2;
pub mod mapped_reader;
pub mod none;
pub mod on_demand;
pub mod oracle;
pub mod prefetcher;
pub mod read_stream;
pub mod reader;
pub mod roudier;
pub mod steer;
pub mod true_readahead;
pub mod wu_adaptive;
pub mod zfetch;
