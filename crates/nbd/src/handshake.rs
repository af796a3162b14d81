//! The handshake: what client and server agree on before the first request.

use std::io::{Read, Write};

use crate::wire::{self, answer, decode_contexts, decode_go, export, info, option};
use crate::{Agreed, Error, Export, Exports, OPTION_BYTES_MAX, OPTIONS_MAX, REQUEST_BYTES_MAX};

/// The context of BLOCK_STATUS.
const ALLOCATION: &str = "base:allocation";
/// Number of that context.
pub(crate) const ALLOCATION_ID: u32 = 1;
/// Bytes of an option that is too long and is passed over; after more the client is left.
const PASSED_OVER_MAX: u32 = 1 << 20;

/// Terms agreed on so far.
#[derive(Default)]
struct Terms {
    no_zeroes: bool,
    structured: bool,
    /// Export for which the context was chosen.
    context_of: Option<String>,
}

/// Shakes hands. `None`: the client left.
pub(crate) fn shake(
    stream: &mut (impl Read + Write),
    exports: &dyn Exports,
) -> Result<Option<Agreed>, Error> {
    let mut greeting = Vec::new();
    greeting.extend_from_slice(&wire::MAGIC.to_be_bytes());
    greeting.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&(wire::FIXED_NEWSTYLE | wire::NO_ZEROES).to_be_bytes());
    stream.write_all(&greeting)?;
    let flags = u32::from_be_bytes(take(stream)?);
    if flags & !u32::from(wire::FIXED_NEWSTYLE | wire::NO_ZEROES) != 0 {
        return Err(Error::Protocol("it has flags that no version of the protocol knows"));
    }
    let mut terms = Terms { no_zeroes: flags & u32::from(wire::NO_ZEROES) != 0, ..Terms::default() };
    for _ in 0..OPTIONS_MAX {
        if u64::from_be_bytes(take(stream)?) != wire::OPTION_MAGIC {
            return Err(Error::Protocol("an option does not begin as options do"));
        }
        let number = u32::from_be_bytes(take(stream)?);
        let length = u32::from_be_bytes(take(stream)?);
        let Some(data) = option_data(stream, length)? else {
            reply(stream, number, answer::TOO_BIG, b"the option is too long")?;
            continue;
        };
        match number {
            option::EXPORT_NAME => {
                // The protocol has no other answer here than to hang up.
                let name = str::from_utf8(&data).map_err(|_| Error::Protocol("a name that is no text"))?;
                let Ok(export) = exports.open(name) else { return Ok(None) };
                let mut out = export.size().to_be_bytes().to_vec();
                out.extend_from_slice(&flags_of(&*export, terms.structured).to_be_bytes());
                out.resize(out.len() + if terms.no_zeroes { 0 } else { 124 }, 0);
                stream.write_all(&out)?;
                return Ok(Some(terms.agree(export, name)));
            }
            option::GO | option::INFO => {
                if let Some(agreed) = go(stream, exports, number, &data, &terms)? {
                    return Ok(Some(agreed));
                }
            }
            option::ABORT => {
                // The client need not wait for the answer.
                let _ = reply(stream, number, answer::ACK, b"");
                return Ok(None);
            }
            option::LIST if data.is_empty() => {
                for name in exports.list() {
                    let mut out = u32::try_from(name.len()).unwrap_or(0).to_be_bytes().to_vec();
                    out.extend_from_slice(name.as_bytes());
                    reply(stream, number, answer::SERVER, &out)?;
                }
                reply(stream, number, answer::ACK, b"")?;
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                terms.structured = true;
                reply(stream, number, answer::ACK, b"")?;
            }
            option::LIST | option::STRUCTURED_REPLY => {
                reply(stream, number, answer::INVALID, b"the option takes no data")?;
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                contexts(stream, exports, number, &data, &mut terms)?;
            }
            option::STARTTLS => {
                let why = b"no TLS here: the socket is its owner's alone; carry it with ssh";
                reply(stream, number, answer::POLICY, why)?;
            }
            _ => reply(stream, number, answer::UNSUPPORTED, b"the option is not offered")?,
        }
    }
    Err(Error::Protocol("it has more options than anybody needs"))
}

impl Terms {
    fn agree(&self, export: Box<dyn Export>, name: &str) -> Agreed {
        let allocation = self.structured && self.context_of.as_deref() == Some(name);
        Agreed { export, structured: self.structured, allocation }
    }
}

/// Answers INFO and GO. An export, if the client got one to go on with.
fn go(
    stream: &mut impl Write,
    exports: &dyn Exports,
    number: u32,
    data: &[u8],
    terms: &Terms,
) -> Result<Option<Agreed>, Error> {
    let Some((name, kinds)) = decode_go(data) else {
        reply(stream, number, answer::INVALID, b"the option is cut short, or its name is no text")?;
        return Ok(None);
    };
    let export = match exports.open(name) {
        Ok(export) => export,
        Err(why) => {
            reply(stream, number, answer::UNKNOWN, why.as_bytes())?;
            return Ok(None);
        }
    };
    let mut out = info::EXPORT.to_be_bytes().to_vec();
    out.extend_from_slice(&export.size().to_be_bytes());
    out.extend_from_slice(&flags_of(&*export, terms.structured).to_be_bytes());
    reply(stream, number, answer::INFO, &out)?;
    if kinds.contains(&info::NAME) {
        let mut out = info::NAME.to_be_bytes().to_vec();
        out.extend_from_slice(name.as_bytes());
        reply(stream, number, answer::INFO, &out)?;
    }
    let mut out = info::BLOCK_SIZE.to_be_bytes().to_vec();
    for bytes in [1, export.block_bytes().max(4096), REQUEST_BYTES_MAX] {
        out.extend_from_slice(&bytes.to_be_bytes());
    }
    reply(stream, number, answer::INFO, &out)?;
    reply(stream, number, answer::ACK, b"")?;
    Ok((number == option::GO).then(|| terms.agree(export, name)))
}

/// Answers what is asked about contexts of BLOCK_STATUS.
fn contexts(
    stream: &mut impl Write,
    exports: &dyn Exports,
    number: u32,
    data: &[u8],
    terms: &mut Terms,
) -> Result<(), Error> {
    let sets = number == option::SET_META_CONTEXT;
    let Some((name, queries)) = decode_contexts(data).filter(|_| terms.structured || !sets) else {
        let why = b"the option is cut short, or STRUCTURED_REPLY did not come before it";
        return reply(stream, number, answer::INVALID, why);
    };
    if let Err(why) = exports.open(name) {
        return reply(stream, number, answer::UNKNOWN, why.as_bytes());
    }
    let all = |query: &str| query == ALLOCATION || !sets && query == "base:";
    let wanted = queries.iter().copied().any(all) || !sets && queries.is_empty();
    if wanted {
        let id = if sets { ALLOCATION_ID } else { 0 };
        let mut out = id.to_be_bytes().to_vec();
        out.extend_from_slice(ALLOCATION.as_bytes());
        reply(stream, number, answer::META_CONTEXT, &out)?;
    }
    if sets {
        terms.context_of = wanted.then(|| name.to_owned());
    }
    reply(stream, number, answer::ACK, b"")
}

/// Abilities of an export.
fn flags_of(export: &dyn Export, structured: bool) -> u16 {
    let mut flags = export::HAS_FLAGS | export::SEND_FLUSH | export::CAN_MULTI_CONN | export::SEND_CACHE;
    flags |= match export.is_read_only() {
        true => export::READ_ONLY,
        false => export::SEND_FUA | export::SEND_TRIM | export::SEND_WRITE_ZEROES | export::SEND_FAST_ZERO,
    };
    if structured { flags | export::SEND_DF } else { flags }
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> Result<(), Error> {
    let mut out = wire::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(data);
    Ok(stream.write_all(&out)?)
}

/// The data of an option; `None` if that is too long to be looked at.
fn option_data(stream: &mut impl Read, length: u32) -> Result<Option<Vec<u8>>, Error> {
    if length > PASSED_OVER_MAX {
        return Err(Error::Protocol("an option is longer than any"));
    }
    let mut data = Vec::new();
    let mut left = length as usize;
    let mut piece = [0; 4096];
    while left > 0 {
        let take = left.min(piece.len());
        stream.read_exact(&mut piece[..take])?;
        if length as usize <= OPTION_BYTES_MAX {
            data.extend_from_slice(&piece[..take]);
        }
        left -= take;
    }
    Ok((length as usize <= OPTION_BYTES_MAX).then_some(data))
}

pub(crate) fn take<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
