//! Resume tokens: where an interrupted receive stopped, for `zfs send -t`.

/// Prefixes of tokens: plain, raw and compressed streams.
const TOKENS: [&str; 3] = ["1-", "2-", "3-"];

/// Position at which a receive was interrupted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Token {
    /// Of the snapshot that was received.
    pub guid: u64,
    /// GUID of the snapshot that the increment is upon; 0 for none.
    pub base: u64,
    /// File at which the stream broke off.
    pub inode: u64,
    /// Position in it.
    pub offset: u64,
    /// Form of the stream.
    pub form: Form,
}

/// Form of a stream, in the order of [`TOKENS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Content.
    Plain,
    /// Blocks as they are stored, encrypted too.
    Raw,
    /// Blocks as they are compressed.
    Compressed,
}

impl Token {
    /// As text.
    #[must_use]
    pub fn encode(self) -> String {
        let mut bytes = Vec::with_capacity(32);
        for number in [self.guid, self.base, self.inode, self.offset] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        format!("{}{:016x}-{}", TOKENS[self.form as usize], check_of(&bytes), hex(&bytes))
    }

    /// From text, unless it was changed or cut.
    #[must_use]
    pub fn decode(text: &str) -> Option<Token> {
        let forms = [Form::Plain, Form::Raw, Form::Compressed];
        let form = forms.into_iter().find(|form| text.starts_with(TOKENS[*form as usize]))?;
        let token = TOKENS[form as usize];
        let (check, body) = text.strip_prefix(token)?.split_once('-')?;
        if body.len() != 64 || !body.is_ascii() {
            return None;
        }
        let bytes: Option<Vec<u8>> =
            (0..32).map(|at| u8::from_str_radix(&body[2 * at..2 * at + 2], 16).ok()).collect();
        let bytes = bytes?;
        if u64::from_str_radix(check, 16).ok()? != check_of(&bytes)
            || format!("{token}{check}-{}", hex(&bytes)) != text
        {
            return None;
        }
        let number =
            |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        Some(Token { guid: number(0), base: number(1), inode: number(2), offset: number(3), form })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// FNV-1a: detects a mistyped or cut token. It does not prevent forgery, which gains nothing.
fn check_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_back_and_changed_ones_are_not() {
        let raw = Token { guid: 1, base: 0, inode: 9, offset: 8, form: Form::Raw };
        assert_eq!(Token::decode(&raw.encode()), Some(raw));
        for (digit, form) in [("1", Form::Plain), ("3", Form::Compressed)] {
            let other = Token { form, ..raw };
            assert_eq!(Token::decode(&raw.encode().replacen('2', digit, 1)), Some(other));
            assert_eq!(Token::decode(&other.encode()), Some(other));
        }
        let token = Token { guid: u64::MAX, base: 3, inode: 12, offset: 1 << 40, form: Form::Plain };
        let text = token.encode();
        assert_eq!(Token::decode(&text), Some(token));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            assert_eq!(Token::decode(&String::from_utf8(changed).unwrap()), None, "byte {at}");
            assert_eq!(Token::decode(&text[..at]), None, "cut at {at}");
        }
        assert_eq!(Token::decode("1-é-é"), None);
    }
}
