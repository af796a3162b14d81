//! Prices of stores: the operator's file, and the reason why a store has no price.

use crate::refusal::{Code, Refusal};
use crate::stores;
use std::fs;
use std::io;
use std::path::Path;
use steadfast_bucket::prices::{Price, REGION, Table};
use steadfast_bucket::{Location, Scheme};

/// Built-in prices behind those of a file, if there is one.
///
/// # Errors
/// [`Code::FileIo`] if it cannot be read or understood. Then no store has a price, as the row that
/// counts may be in it.
pub fn load(path: &Path) -> Result<Table, Refusal> {
    let refuse = |what: String| Refusal::new(Code::FileIo, what).with("file", path.display());
    match fs::read_to_string(path) {
        Ok(text) => Table::with_file(&text)
            .map_err(|why| refuse(format!("the prices in {} cannot be understood: {why}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Table::default()),
        Err(error) => Err(refuse(format!("the prices in {} cannot be read: {error}", path.display()))),
    }
}

/// The row of a table for a store, or the reason why there is none.
///
/// # Errors
/// The reason.
pub fn find<'t>(table: &'t Table, location: &Location) -> Result<&'t Price, String> {
    // Amazon's prices differ by region, which the keys may name.
    let region = stores::keys(location).ok().and_then(|keys| keys.region().map(str::to_owned));
    table.find(location, region.as_deref()).ok_or_else(|| unpriced(location, region.as_deref()))
}

/// Reason why no row of the table fits a store, whose keys name this region.
#[must_use]
pub fn unpriced(location: &Location, region: Option<&str>) -> String {
    match (location.scheme(), location.endpoint()) {
        (Scheme::File, _) => "a folder of this machine has no price".to_owned(),
        (_, Some(endpoint)) => format!("no price is known for {endpoint}"),
        (Scheme::S3, None) => {
            let region = location.region().or(region).unwrap_or(REGION);
            format!("no price is known for AWS S3 in {region}")
        }
        (scheme, None) => format!("no price is known for {}://", scheme.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_price_says_why() {
        let why = |address: &str| unpriced(&address.parse().unwrap(), Some("eu-west-1"));
        assert_eq!(why("s3://bucket"), "no price is known for AWS S3 in eu-west-1");
        assert_eq!(
            why("s3://bucket?endpoint=http://127.0.0.1:1"),
            "no price is known for http://127.0.0.1:1"
        );
        assert_eq!(why("az://container/a"), "no price is known for az://");
        assert_eq!(why("file:///a"), "a folder of this machine has no price");
    }

    #[test]
    fn a_file_that_is_not_there_is_no_mistake_and_a_wrong_one_is() {
        let path = std::env::temp_dir().join(format!("steadfast-prices-{}.json", std::process::id()));
        let _ = fs::remove_file(&path);
        assert_eq!(load(&path).unwrap(), Table::default());
        fs::write(&path, r#"{"version":1,"prices":[{}]}"#).unwrap();
        let refusal = load(&path).unwrap_err();
        assert_eq!(refusal.code, Code::FileIo);
        assert!(refusal.what.contains("missing field"), "{}", refusal.what);
        fs::remove_file(&path).unwrap();
    }
}
