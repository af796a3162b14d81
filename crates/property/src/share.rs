//! Values of `sharenfs`: who may use a file system over NFS, and as whom (ZFS: `sharenfs`; the
//! options are those of exports(5)).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// User and group of nobody, unless the options say otherwise.
const NOBODY: u32 = 65_534;
/// Longest value.
const BYTES_MAX: usize = 1_024;
/// Options of exports(5) that are not offered, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("crossmnt", "each file system is shared and mounted by itself"),
    ("nohide", "each file system is shared and mounted by itself"),
    ("subtree_check", "a client may use all of a file system, or none of it"),
    ("fsid", "handles carry the numbers of pool and dataset"),
    ("mp", "a file system that is not mounted is not shared"),
    ("mountpoint", "a file system that is not mounted is not shared"),
    ("refer", "there are no referrals in NFS version 3"),
    ("replicas", "there are no referrals in NFS version 3"),
    ("pnfs", "there is no NFS version 4 here"),
    ("security_label", "there is no NFS version 4 here"),
    ("auth_nlm", "there is no lock manager here; mount with `nolock`"),
    ("insecure_locks", "there is no lock manager here; mount with `nolock`"),
];

/// A range of addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Network {
    /// As 128 bits; addresses of IPv4 in their mapped form.
    bits: u128,
    /// How many of these count.
    prefix: u32,
}

impl Network {
    const ALL: Network = Network { bits: 0, prefix: 0 };

    fn parse(text: &str) -> Option<Network> {
        if text == "*" {
            return Some(Network::ALL);
        }
        let text = text.strip_prefix('@').unwrap_or(text);
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let address: IpAddr = address.parse().ok()?;
        let (own, before) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let prefix = match length {
            None => own,
            Some(length) if length.contains('.') && address.is_ipv4() => mask(length.parse().ok()?)?,
            Some(length) => length.parse().ok().filter(|length| *length <= own)?,
        };
        let network = Network { bits: bits(address), prefix: before + prefix };
        Some(Network { bits: network.bits & network.mask(), ..network })
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0)
    }

    fn holds(self, address: IpAddr) -> bool {
        bits(address) & self.mask() == self.bits
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Network::ALL {
            return f.write_str("*");
        }
        let address = Ipv6Addr::from_bits(self.bits);
        match address.to_ipv4_mapped().filter(|_| self.prefix >= 96) {
            Some(address) if self.prefix == 128 => write!(f, "{address}"),
            Some(address) => write!(f, "{address}/{}", self.prefix - 96),
            None if self.prefix == 128 => write!(f, "{address}"),
            None => write!(f, "{address}/{}", self.prefix),
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Length of a mask such as `255.255.0.0`.
fn mask(mask: Ipv4Addr) -> Option<u32> {
    let bits = mask.to_bits();
    (bits.leading_ones() == bits.count_ones()).then_some(bits.leading_ones())
}

/// How a client may use a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShareAccess {
    /// Read it.
    ReadOnly,
    /// Read and change it.
    ReadWrite,
}

/// A parsed value of `sharenfs` other than `off`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShareOptions {
    rules: Vec<(Network, ShareAccess)>,
    /// Root, and the group of root, become the anonymous user.
    pub root_squash: bool,
    /// Everybody becomes the anonymous user.
    pub all_squash: bool,
    /// The anonymous user.
    pub anonuid: u32,
    /// Its group.
    pub anongid: u32,
    /// Changes of names and attributes are durable before they are answered.
    pub sync: bool,
    /// Clients must use a port below 1,024, which only root of the client's machine can.
    pub secure: bool,
}

impl ShareOptions {
    /// Reads a value; `None` for `off`.
    ///
    /// # Errors
    /// The reason, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Option<ShareOptions>, String> {
        if text == "off" {
            return Ok(None);
        }
        if text.len() > BYTES_MAX {
            return Err(format!("the value has more than {BYTES_MAX} bytes"));
        }
        let mut options = ShareOptions {
            rules: Vec::new(),
            root_squash: true,
            all_squash: false,
            anonuid: NOBODY,
            anongid: NOBODY,
            sync: true,
            secure: true,
        };
        if text != "on" {
            for option in text.split(',') {
                options.take(option)?;
            }
        }
        if options.rules.is_empty() {
            options.rules.push((Network::ALL, ShareAccess::ReadWrite));
        }
        // The longest prefix speaks for an address; of two equal ones, the one that allows less.
        options.rules.sort_by_key(|(network, access)| {
            (std::cmp::Reverse(network.prefix), *access == ShareAccess::ReadWrite)
        });
        Ok(Some(options))
    }

    fn take(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let number = |value: Option<&str>| {
            let number = value.and_then(|value| value.parse::<u32>().ok());
            // The number that stands for "no change" in chown(2).
            number.filter(|number| *number != u32::MAX).ok_or_else(|| format!("'{option}' needs a number"))
        };
        match (name, value) {
            ("rw", value) => self.allow(value, ShareAccess::ReadWrite)?,
            ("ro", value) => self.allow(value, ShareAccess::ReadOnly)?,
            ("root_squash", None) => self.root_squash = true,
            ("no_root_squash", None) => self.root_squash = false,
            ("all_squash", None) => self.all_squash = true,
            ("no_all_squash", None) => self.all_squash = false,
            ("anonuid", value) => self.anonuid = number(value)?,
            ("anongid", value) => self.anongid = number(value)?,
            ("sync", None) => self.sync = true,
            ("async", None) => self.sync = false,
            ("secure", None) => self.secure = true,
            ("insecure", None) => self.secure = false,
            // The way it is here, or a matter of speed that needs no choice.
            ("no_subtree_check" | "hide" | "wdelay" | "no_wdelay", None) => {}
            ("sec", Some("sys")) => {}
            ("sec", _) => return Err("there is no Kerberos here; use sec=sys".into()),
            ("", None) => {
                return Err("an option is empty; write on, off, or options separated by commas".into());
            }
            _ => {
                let why = ELSEWHERE.iter().find(|(known, _)| *known == name).map(|(_, why)| *why);
                return Err(match why {
                    Some(why) => format!("'{name}' is not offered: {why}"),
                    None => format!(
                        "'{option}' is not an option: write on, off, or some of rw[=CLIENTS], ro[=CLIENTS], sync, async, secure, \
                         insecure, root_squash, no_root_squash, all_squash, anonuid=N, anongid=N, sec=sys"
                    ),
                });
            }
        }
        Ok(())
    }

    fn allow(&mut self, clients: Option<&str>, access: ShareAccess) -> Result<(), String> {
        let Some(clients) = clients else {
            self.rules.push((Network::ALL, access));
            return Ok(());
        };
        for client in clients_of(clients) {
            let network = Network::parse(client).ok_or_else(|| {
                format!("'{client}' is not a client: write an address, @NETWORK/LENGTH or *, separated by ':', and IPv6 in []")
            })?;
            self.rules.push((network, access));
        }
        Ok(())
    }

    /// How a client may use the file system; `None` if it may not.
    #[must_use]
    pub fn access(&self, client: IpAddr) -> Option<ShareAccess> {
        self.rules.iter().find(|(network, _)| network.holds(client)).map(|(_, access)| *access)
    }

    /// Clients that may use it, as `showmount -e` lists them.
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        let mut clients: Vec<String> = self.rules.iter().map(|(network, _)| network.to_string()).collect();
        clients.dedup();
        clients
    }
}

/// The clients of a list: colons separate them, except inside brackets.
fn clients_of(list: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    list.split(move |at: char| {
        inside = (inside || at == '[') && at != ']';
        at == ':' && !inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ShareOptions {
        ShareOptions::parse(text).unwrap_or_else(|why| panic!("{text}: {why}")).expect("not off")
    }

    fn access(text: &str, client: &str) -> Option<ShareAccess> {
        parse(text).access(client.parse().expect("an address"))
    }

    use ShareAccess::{ReadOnly, ReadWrite};

    #[test]
    fn the_narrowest_network_speaks_for_a_client() {
        assert_eq!(access("on", "192.0.2.1"), Some(ReadWrite));
        assert_eq!(access("ro", "2001:db8::1"), Some(ReadOnly));
        let lists = "rw=@10.0.0.0/8:192.0.2.7,ro=@10.1.0.0/255.255.0.0:[2001:db8::1]:@[2001:db8:1::]/48";
        for (client, expected) in [
            ("10.2.3.4", Some(ReadWrite)),
            ("10.1.3.4", Some(ReadOnly)),
            ("192.0.2.7", Some(ReadWrite)),
            ("192.0.2.8", None),
            ("::ffff:10.2.3.4", Some(ReadWrite)),
            ("2001:db8::1", Some(ReadOnly)),
            ("2001:db8::2", None),
            ("2001:db8:1:2::3", Some(ReadOnly)),
        ] {
            assert_eq!(access(lists, client), expected, "{client}");
        }
        assert_eq!(access("ro,rw=10.0.0.1", "10.0.0.1"), Some(ReadWrite));
        assert_eq!(access("ro,rw=10.0.0.1", "10.0.0.2"), Some(ReadOnly));
        assert_eq!(access("rw=10.0.0.1,ro=10.0.0.1", "10.0.0.1"), Some(ReadOnly), "the one that allows less");
        assert_eq!(access("rw=*", "10.0.0.1"), Some(ReadWrite));
    }

    #[test]
    fn options_of_exports_5_count() {
        let on = parse("on");
        assert_eq!((on.root_squash, on.all_squash, on.anonuid), (true, false, 65_534));
        assert!(on.sync && on.secure);
        assert!(!parse("no_root_squash").root_squash);
        assert!(parse("all_squash,no_root_squash").all_squash, "whatever the order");
        let all = parse("rw,all_squash,anonuid=1000,anongid=50,async,insecure,no_subtree_check,sec=sys");
        let values = (all.all_squash, all.anonuid, all.anongid, all.sync, all.secure);
        assert_eq!(values, (true, 1000, 50, false, false));
        assert_eq!(ShareOptions::parse("off"), Ok(None));
        assert_eq!(parse("rw=@10.0.0.0/8:192.0.2.7,ro").clients(), ["192.0.2.7", "10.0.0.0/8", "*"]);
    }

    #[test]
    fn an_option_that_is_not_kept_is_refused_with_the_reason() {
        for (text, word) in [
            ("sec=krb5p", "Kerberos"),
            ("crossmnt", "by itself"),
            ("fsid=0", "numbers"),
            ("rw=client.example.org", "address"),
            ("rw=10.0.0.0/33", "address"),
            ("rw=10.0.0.0/255.0.255.0", "address"),
            ("rw=", "address"),
            ("anonuid=joe", "number"),
            ("anongid=4294967295", "number"),
            ("sync=1", "not an option"),
            ("", "empty"),
            ("rw,", "empty"),
        ] {
            let why = ShareOptions::parse(text).expect_err(text);
            assert!(why.contains(word), "{text}: {why}");
        }
        assert!(ShareOptions::parse(&"rw,".repeat(400)).is_err());
    }
}
