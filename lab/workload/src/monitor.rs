//! `monitor=`: a file that somebody writes to end a run, or all of them.
//!
//! It is read at the end of each interval. At the start an order that was left in it is taken away,
//! or it would be carried out at once; any other content is somebody's and stays.

use std::fs;
use std::io::Read;

/// An order of a monitor file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// The end of this run.
    EndRun,
    /// The end of all runs.
    EndAll,
}

impl Order {
    /// For the console.
    pub fn sentence(self) -> &'static str {
        match self {
            Order::EndRun => "monitor= asks for the end of this run.",
            Order::EndAll => "monitor= asks for the end of all runs.",
        }
    }
}

/// The order in the file now; a file that is not there or has other words gives none.
pub fn order(path: &str) -> Option<Order> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(64).read_to_string(&mut text).ok()?;
    match text.trim().to_ascii_lowercase().as_str() {
        "end_rd" | "shutdown" => Some(Order::EndRun),
        "end_vdbench" | "terminate" => Some(Order::EndAll),
        _ => None,
    }
}

/// Takes away an order from before the start.
pub(crate) fn clear(path: &str) -> std::io::Result<()> {
    if order(path).is_some() { fs::write(path, "") } else { Ok(()) }
}
