//! A reply on its way to a client: bytes of its own, and behind them content of a file, which is
//! sent from where it lies in the cache of blocks.

use crate::rpc;
use crate::spare;
use crate::xdr::Writer;
use std::io::IoSlice;
use steadfast_posix::BlockPart;

/// One reply, with its record's mark.
#[derive(Clone, Default)]
pub struct Reply {
    head: Vec<u8>,
    content: Vec<BlockPart>,
    /// Zeros behind the content, up to a multiple of four bytes.
    padding: usize,
}

impl From<Vec<u8>> for Reply {
    fn from(head: Vec<u8>) -> Reply {
        Reply { head, ..Reply::default() }
    }
}

impl Reply {
    /// A reply whose last results are the bytes of `content`; their length is in `head` already.
    pub(crate) fn with_content(head: Writer, content: Vec<BlockPart>) -> Reply {
        let length: usize = content.iter().map(|part| part.len()).sum();
        let padding = length.next_multiple_of(4) - length;
        Reply { head: rpc::record_before(head, length + padding), content, padding }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.content.iter().map(|part| part.len()).sum::<usize>() + self.padding
    }

    /// True if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes behind the first `sent` ones, in pieces that follow each other.
    pub(crate) fn rest(&self, sent: usize) -> Vec<IoSlice<'_>> {
        let pieces = std::iter::once(&self.head[..])
            .chain(self.content.iter().map(|part| &part[..]))
            .chain(std::iter::once(&[0; 3][..self.padding]));
        let mut before = sent;
        let mut rest = Vec::with_capacity(self.content.len() + 2);
        for piece in pieces {
            let skipped = before.min(piece.len());
            before -= skipped;
            if skipped < piece.len() {
                rest.push(IoSlice::new(&piece[skipped..]));
            }
        }
        rest
    }

    /// All bytes in one piece.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        if self.content.is_empty() {
            return self.head;
        }
        self.rest(0).iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    /// It was sent.
    pub(crate) fn done(self) {
        spare::keep(self.head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_dataset::BlockBytes;

    #[test]
    fn all_bytes_are_sent_once_wherever_a_piece_ends() {
        let part = |bytes: &[u8], range| BlockPart::new(BlockBytes::new(bytes.to_vec()), range);
        let mut head = Writer::default();
        head.u32(0).fixed(b"head");
        let reply = Reply::with_content(head, vec![part(b"xcontent", 1..8), part(b"and more", 0..8)]);
        let whole = reply.clone().into_bytes();
        assert_eq!(whole, b"\x80\0\0\x14headcontentand more\0");
        assert_eq!(reply.len(), whole.len());
        for sent in 0..=whole.len() {
            let rest: Vec<u8> = reply.rest(sent).iter().flat_map(|piece| piece.to_vec()).collect();
            assert_eq!(rest, whole[sent..]);
            assert!(reply.rest(sent).iter().all(|piece| !piece.is_empty()));
        }
        assert!(Reply::default().is_empty());
    }
}
