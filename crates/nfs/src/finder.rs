//! The port mapper (RFC 1833) says where programs listen: version 2 with numbers of ports, versions
//! 3 and 4 with addresses. A Linux client asks there for the lock protocol, whose port no mount
//! option names, and `showmount` for the mount protocol.

use crate::xdr::{Reader, Result, Writer};
use crate::{acl3, mount3, nfs3, nlm4, nsm};
use std::net::SocketAddr;

/// Number of the program.
pub const PROGRAM: u32 = 100_000;
/// Its lowest version.
pub const VERSION_MIN: u32 = 2;
/// Its highest version.
pub const VERSION_MAX: u32 = 4;
/// Its well-known port.
pub const PORT: u16 = 111;
/// GETPORT, and GETADDR of the later versions.
pub const GET: u32 = 3;
/// Number of TCP.
pub const TCP: u32 = 6;
/// Number of UDP.
const UDP: u32 = 17;
/// Longest string that is read.
const STRING_MAX: usize = 256;

/// Programs and versions at the front's port.
pub(crate) const SERVED: [(u32, u32); 5] = [
    (nfs3::PROGRAM, nfs3::VERSION),
    (acl3::PROGRAM, acl3::VERSION),
    (mount3::PROGRAM, mount3::VERSION),
    (nlm4::PROGRAM, nlm4::VERSION),
    (nsm::PROGRAM, nsm::VERSION),
];

/// A call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call<'a> {
    /// Does nothing.
    Null,
    /// Asks for a program's port.
    GetPort {
        /// Its number.
        program: u32,
        /// In which version.
        version: u32,
        /// Over TCP or UDP.
        transport: u32,
    },
    /// Asks for a program's address, over a kind of network.
    GetAddress {
        /// Its number.
        program: u32,
        /// In which version.
        version: u32,
        /// Its name, as `tcp6`.
        network: &'a [u8],
    },
    /// Asks for the list of all.
    Dump,
}

impl<'a> Call<'a> {
    /// Reads the arguments of a procedure of a version; `None` if there is none with this number
    /// here. Nobody registers anything with us.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn decode(version: u32, procedure: u32, r: &mut Reader<'a>) -> Result<Option<Call<'a>>> {
        Ok(Some(match (procedure, version) {
            (0, _) => Call::Null,
            (GET, 2) => Call::GetPort { program: r.u32()?, version: r.u32()?, transport: r.u32()? },
            (GET, _) => {
                let (program, version, network) = (r.u32()?, r.u32()?, r.opaque(STRING_MAX)?);
                Call::GetAddress { program, version, network }
            }
            (4, _) => Call::Dump,
            _ => return Ok(None),
        }))
    }
}

/// Ports at which the front listens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ports {
    /// All programs, over TCP.
    pub tcp: u16,
    /// The status protocol alone, over UDP; 0 if it does not.
    pub udp: u16,
}

impl Ports {
    /// The port of a program; 0 for what is not served. A version that is not there is answered
    /// with the port of those that are, so that the client hears which.
    #[must_use]
    fn of(self, program: u32, transport: u32) -> u16 {
        let is_served = SERVED.iter().any(|(served, _)| *served == program);
        match transport {
            TCP if is_served => self.tcp,
            UDP if program == nsm::PROGRAM => self.udp,
            _ => 0,
        }
    }

    /// Puts the results of a call that came to `server`, in a version of the program.
    pub fn answer(self, call: &Call<'_>, version: u32, server: SocketAddr, out: &mut Writer) {
        let port = |program, transport| match program {
            // Some ask where it is that they ask.
            PROGRAM if matches!(transport, TCP | UDP) => server.port(),
            _ => self.of(program, transport),
        };
        let server = server.ip().to_canonical();
        match call {
            Call::Null => {}
            Call::GetPort { program, transport, .. } => {
                out.u32(u32::from(port(*program, *transport)));
            }
            Call::GetAddress { program, network, .. } => {
                let (transport, is_six) = match *network {
                    b"tcp" => (TCP, false),
                    b"tcp6" => (TCP, true),
                    b"udp" => (UDP, false),
                    b"udp6" => (UDP, true),
                    _ => (0, false),
                };
                let port = port(*program, transport);
                let address = if port == 0 || is_six != server.is_ipv6() {
                    String::new()
                } else {
                    universal(SocketAddr::new(server, port))
                };
                out.opaque(address.as_bytes());
            }
            Call::Dump => {
                for (program, served) in SERVED {
                    out.bool(true).u32(program).u32(served);
                    if version == 2 {
                        out.u32(TCP).u32(u32::from(self.tcp));
                    } else {
                        let address = universal(SocketAddr::new(server, self.tcp));
                        let network: &[u8] = if server.is_ipv6() { b"tcp6" } else { b"tcp" };
                        out.opaque(network).opaque(address.as_bytes()).opaque(b"superuser");
                    }
                }
                out.bool(false);
            }
        }
    }
}

/// A universal address (RFC 5665): the port's two bytes are two numbers behind the address.
#[must_use]
pub fn universal(address: SocketAddr) -> String {
    let port = address.port();
    format!("{}.{}.{}", address.ip(), port >> 8, port & 0xff)
}

/// The port of a universal address.
#[must_use]
pub fn port_of_universal(address: &[u8]) -> Option<u16> {
    let mut parts = std::str::from_utf8(address).ok()?.rsplitn(3, '.');
    let mut next = || parts.next()?.parse::<u8>().ok().map(u16::from);
    let (low, high) = (next()?, next()?);
    parts.next().map(|_| high << 8 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { tcp: 2_049, udp: 2_050 };

    fn ask(version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let call = Call::decode(version, procedure, &mut Reader::new(arguments));
        let mut out = Writer::default();
        PORTS.answer(&call.expect("read").expect("there"), version, ([10, 0, 0, 1], 111).into(), &mut out);
        out.out
    }

    #[test]
    fn programs_are_found_by_number_and_transport() {
        let port = |program: u32, transport: u32| {
            let mut out = Writer::default();
            out.u32(program).u32(4).u32(transport).u32(0);
            ask(2, GET, &out.out)
        };
        assert_eq!(port(nlm4::PROGRAM, TCP), b"\0\0\x08\x01");
        assert_eq!(port(nlm4::PROGRAM, UDP), b"\0\0\0\0");
        assert_eq!(port(nsm::PROGRAM, UDP), b"\0\0\x08\x02");
        assert_eq!(port(100_011, TCP), b"\0\0\0\0", "quotas");
        assert_eq!((port(PROGRAM, TCP), port(PROGRAM, 5)), (b"\0\0\0\x6f".to_vec(), vec![0; 4]), "itself");
        let address = |network: &[u8]| {
            let mut out = Writer::default();
            out.u32(nfs3::PROGRAM).u32(3).opaque(network).opaque(b"").opaque(b"");
            ask(4, GET, &out.out)
        };
        assert_eq!(address(b"tcp"), b"\0\0\0\x0c10.0.0.1.8.1");
        assert_eq!(address(b"tcp6"), b"\0\0\0\0");
        assert_eq!(ask(2, 4, b"").len(), 5 * 20 + 4);
        assert_eq!(Call::decode(2, 1, &mut Reader::new(&[0; 16])), Ok(None), "SET");
    }

    #[test]
    fn a_universal_address_has_its_port() {
        let address = universal("[::1]:2049".parse().expect("an address"));
        assert_eq!((address.as_str(), port_of_universal(b"::1.8.1")), ("::1.8.1", Some(2_049)));
        assert_eq!([&b"1.2"[..], b"", b"a.b.c", b"1.2.3.4.256.1"].map(port_of_universal), [None; 4]);
    }
}
