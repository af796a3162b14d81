//! Send and receive.

pub(crate) mod notes;
pub(crate) mod properties;
pub(crate) mod raw_receive;
pub(crate) mod raw_send;
pub(crate) mod receive;
pub(crate) mod receive_end;
pub(crate) mod receive_fill;
pub(crate) mod receive_in_place;
pub(crate) mod receive_repeats;
pub(crate) mod receive_tree;
pub(crate) mod send;
pub(crate) mod send_ahead;
pub(crate) mod state;
pub(crate) mod stream_io;
