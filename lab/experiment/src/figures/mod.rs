//! Figures of many arms (see [`steadfast_lab_report::figures`]), and their place in a document.

pub use steadfast_lab_report::figures::*;

pub(crate) mod markdown;
