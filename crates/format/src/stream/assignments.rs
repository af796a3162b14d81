//! Properties as text: `name=value`, each followed by a zero byte.

/// The text of these properties.
pub(super) fn assignments<'p>(properties: impl Iterator<Item = (&'p String, &'p String)>) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, value) in properties {
        assert!(!name.contains(['=', '\0']) && !value.contains('\0'));
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text
}

/// The properties of such a text; `None` if it is malformed.
pub(super) fn assigned(text: &str) -> Option<Vec<(String, String)>> {
    let mut properties = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (one, tail) = rest.split_once('\0')?;
        let (name, value) = one.split_once('=').filter(|(name, _)| !name.is_empty())?;
        properties.push((name.to_owned(), value.to_owned()));
        rest = tail;
    }
    Some(properties)
}
