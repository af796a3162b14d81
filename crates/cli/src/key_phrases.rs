//! First lines of refusals of `zfs load-key`, `unload-key` and `change-key` in the phrases of ZFS.
//!
//! The phrases are those of OpenZFS 2.3 (libzfs_crypto).

use steadfast_control::{Code, Refusal};

/// The first line of a refusal of `doing` ("cannot load the key of 'tank'"), if it is about a key
/// and ZFS has one for it.
#[must_use]
pub fn first_line(doing: &str, refusal: &Refusal) -> Option<String> {
    let (verb, name) = doing.strip_prefix("cannot ")?.split_once(" the key of '")?;
    let name = name.strip_suffix('\'')?;
    let root = || refusal.fields.get("root");
    let problem = match (verb, refusal.code) {
        ("load", Code::KeyLoaded) => format!("Key already loaded for '{name}'."),
        ("load", Code::KeyWrong) => format!("Incorrect key provided for '{name}'."),
        ("load", Code::KeyInherited) => {
            format!("Keys must be loaded for encryption root of '{name}' ({}).", root()?)
        }
        ("unload", Code::KeyInherited) => {
            format!("Keys must be unloaded for encryption root of '{name}' ({}).", root()?)
        }
        ("unload", Code::KeyUnloaded) => format!("Key already unloaded for '{name}'."),
        ("unload", Code::KeyBusy) => format!("'{name}' is busy."),
        ("load" | "unload", Code::KeyNone) => format!("'{name}' is not encrypted."),
        ("change", Code::KeyNone) => "Dataset not encrypted.".to_owned(),
        ("change", Code::KeyNeeded) => "Key must be loaded.".to_owned(),
        _ => return None,
    };
    Some(format!("Key {verb} error: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_a_key_has_the_line_of_zfs() {
        let line = |doing: &str, code, fields: &[(&'static str, &str)]| {
            let refusal = Refusal::new(code, "");
            first_line(
                doing,
                &fields.iter().fold(refusal, |refusal, (name, value)| refusal.with(name, value)),
            )
        };
        let (load, unload) = ("cannot load the key of 'tank/a'", "cannot unload the key of 'tank/a'");
        let root = [("root", "tank")];
        for (doing, code, fields, expected) in [
            (load, Code::KeyLoaded, &[][..], "Key load error: Key already loaded for 'tank/a'."),
            (load, Code::KeyWrong, &[], "Key load error: Incorrect key provided for 'tank/a'."),
            (
                load,
                Code::KeyInherited,
                &root,
                "Key load error: Keys must be loaded for encryption root of 'tank/a' (tank).",
            ),
            (load, Code::KeyNone, &[], "Key load error: 'tank/a' is not encrypted."),
            (unload, Code::KeyBusy, &[], "Key unload error: 'tank/a' is busy."),
            (unload, Code::KeyUnloaded, &[], "Key unload error: Key already unloaded for 'tank/a'."),
            (
                "cannot change the key of 'tank/a'",
                Code::KeyNeeded,
                &[],
                "Key change error: Key must be loaded.",
            ),
        ] {
            assert_eq!(line(doing, code, fields).as_deref(), Some(expected));
        }
        assert_eq!(line("cannot mount 'tank/a'", Code::KeyNeeded, &[]), None);
        assert_eq!(line(load, Code::VdevIo, &[]), None);
    }
}
