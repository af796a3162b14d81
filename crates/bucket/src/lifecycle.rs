//! Lifecycle rules of a bucket: does one of them delete objects below a prefix?

/// Text between the first opening and closing tag of a name.
fn inside<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// True if a rule that is on deletes objects by age or date whose names begin with a prefix, or may
/// begin with it. Ours have no tags: a rule for tagged objects is none of ours.
pub(crate) fn expires(text: &str, prefix: &str) -> bool {
    let ours = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    text.split("<Rule>").skip(1).any(|rest| {
        let rule = rest.split_once("</Rule>").map_or(rest, |(rule, _)| rule);
        let by_age = inside(rule, "Expiration")
            .is_some_and(|expiration| ["<Days>", "<Date>"].iter().any(|word| expiration.contains(word)));
        let of_rule = inside(rule, "Prefix").unwrap_or("");
        inside(rule, "Status") == Some("Enabled")
            && by_age
            && !rule.contains("<Tag>")
            && (ours.starts_with(of_rule) || of_rule.starts_with(&ours))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(prefix: &str, status: &str, body: &str) -> String {
        format!("<Rule><ID>x</ID><Filter>{prefix}</Filter><Status>{status}</Status>{body}</Rule>")
    }

    #[test]
    fn only_a_rule_that_covers_the_prefix_counts() {
        let days = "<Expiration><Days>30</Days></Expiration>";
        for (prefix, covers) in [
            ("", true),
            ("<Prefix></Prefix>", true),
            ("<Prefix>ta</Prefix>", true),
            ("<Prefix>tank/</Prefix>", true),
            ("<Prefix>tank/seg/</Prefix>", true),
            ("<Prefix>tank2/</Prefix>", false),
            ("<Prefix>logs/</Prefix>", false),
            ("<And><Prefix>tank/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And>", false),
        ] {
            assert_eq!(expires(&rule(prefix, "Enabled", days), "tank"), covers, "{prefix}");
        }
        assert!(!expires(&rule("", "Disabled", days), "tank"));
        let markers = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        assert!(!expires(&rule("", "Enabled", markers), "tank"));
        let parts = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation>\
                     </AbortIncompleteMultipartUpload>";
        assert!(!expires(&rule("", "Enabled", parts), "tank"));
        assert!(expires(&rule("<Prefix>logs/</Prefix>", "Enabled", days), ""), "a whole bucket has it all");
        let two = rule("<Prefix>logs/</Prefix>", "Enabled", days)
            + &rule("<Prefix>tank/</Prefix>", "Enabled", days);
        assert!(expires(&two, "tank"));
    }
}
