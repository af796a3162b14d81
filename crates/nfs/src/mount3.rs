//! The mount protocol, version 3 (RFC 1813, appendix I): a client asks for the handle of an export.

use crate::xdr::{Reader, Result, Writer};

/// Number of the program.
pub const PROGRAM: u32 = 100_005;
/// Its version.
pub const VERSION: u32 = 3;
/// Longest path.
pub const PATH_MAX: usize = 1_024;

/// A call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call<'a> {
    /// Does nothing.
    Null,
    /// Asks for the handle of a path.
    Mnt(&'a [u8]),
    /// Asks who has mounted what.
    Dump,
    /// Says that a path is no longer mounted.
    Umnt(&'a [u8]),
    /// Says that nothing is mounted any more.
    UmntAll,
    /// Asks for the list of exports.
    Export,
}

impl<'a> Call<'a> {
    /// Reads the arguments of a procedure; `None` if there is no such procedure.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn decode(procedure: u32, reader: &mut Reader<'a>) -> Result<Option<Call<'a>>> {
        Ok(Some(match procedure {
            0 => Call::Null,
            1 => Call::Mnt(reader.opaque(PATH_MAX)?),
            2 => Call::Dump,
            3 => Call::Umnt(reader.opaque(PATH_MAX)?),
            4 => Call::UmntAll,
            5 => Call::Export,
            _ => return Ok(None),
        }))
    }
}

/// Why a path has no handle for this client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Refusal {
    /// No such path.
    NoEntry = 2,
    /// The device failed.
    Io = 5,
    /// Not for this client.
    Access = 13,
    /// Not a directory.
    NotDirectory = 20,
    /// The path is too long.
    NameTooLong = 63,
    /// The server is about to stop.
    ServerFault = 10_006,
}

/// One line of the list of exports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Its path.
    pub path: Vec<u8>,
    /// Clients that may mount it, in words. None: everybody.
    pub clients: Vec<String>,
}

/// Result of MNT: a handle and the kinds of credentials that are taken (`AUTH_SYS`).
pub fn write_mounted(out: &mut Writer, handle: &[u8]) {
    out.u32(0).opaque(handle).u32(1).u32(1);
}

/// Result of EXPORT: two lists in which each element says whether another one follows.
pub fn write_exports(out: &mut Writer, exports: &[Listed]) {
    for export in exports {
        out.bool(true).opaque(&export.path);
        for client in &export.clients {
            out.bool(true).opaque(client.as_bytes());
        }
        out.bool(false);
    }
    out.bool(false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Garbage;

    #[test]
    fn calls_and_results_have_the_bytes_of_rfc_1813() {
        let decode = |procedure, bytes| Call::decode(procedure, &mut Reader::new(bytes));
        assert_eq!(decode(1, b"\0\0\0\x02/a\0\0"), Ok(Some(Call::Mnt(b"/a"))));
        assert_eq!(decode(1, b"\0\0\x04\x01"), Err(Garbage), "longer than a path may be");
        assert_eq!(decode(5, b""), Ok(Some(Call::Export)));
        assert_eq!(decode(6, b""), Ok(None));
        let mut out = Writer::default();
        write_mounted(&mut out, b"handle!!");
        assert_eq!(out.out, b"\0\0\0\0\0\0\0\x08handle!!\0\0\0\x01\0\0\0\x01");
        let mut out = Writer::default();
        let export = |path: &[u8], clients: &[&str]| Listed {
            path: path.to_vec(),
            clients: clients.iter().map(ToString::to_string).collect(),
        };
        write_exports(&mut out, &[export(b"/a", &["10/8"]), export(b"/bb", &[])]);
        let expected = b"\0\0\0\x01\0\0\0\x02/a\0\0\0\0\0\x01\0\0\0\x0410/8\0\0\0\0\0\0\0\x01\0\0\0\x03/bb\0\0\0\0\0\0\0\0\0";
        assert_eq!(out.out, expected);
    }
}
