//! The daemon's counters of requests, and the difference of two looks.

use serde_json::Value;

/// Seconds of NFS requests, by where they went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// The portal's own processing.
    pub own: f64,
    /// Waiting for reads.
    pub reads: f64,
    /// Waiting for writes.
    pub writes: f64,
    /// Requests.
    pub requests: f64,
}

impl Totals {
    /// Reads `iostat --requests -jp --json-int` of one pool.
    pub fn parse(text: &str) -> Option<Totals> {
        let document: Value = serde_json::from_str(text).ok()?;
        let (_, pool) = document["pools"].as_object()?.iter().next()?;
        let mut totals = Totals::default();
        for requests in pool["requests"].as_array()? {
            if requests["from"] != "nfs" {
                continue;
            }
            let seconds = |name: &str| requests[name].as_f64().map(|ns| ns / 1e9);
            totals.own += seconds("own_ns")?;
            totals.reads += seconds("read_ns")?;
            totals.writes += seconds("write_ns")?;
            totals.requests += requests["requests"].as_f64()?;
        }
        Some(totals)
    }

    /// Those since `earlier`; all of them if the pool was imported meanwhile.
    pub fn since(self, earlier: Totals) -> Totals {
        Totals {
            own: self.own - earlier.own,
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            requests: self.requests - earlier.requests,
        }
    }
}

/// Use of a node cache since the import.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NodeUse {
    /// Bytes held.
    pub bytes: f64,
    /// Nodes found.
    pub hits: f64,
    /// Nodes read.
    pub misses: f64,
    /// Nodes that went.
    pub evictions: f64,
}

impl NodeUse {
    /// Reads `daemon memory -j` of a daemon with one pool.
    pub fn parse(text: &str) -> Option<NodeUse> {
        let document: Value = serde_json::from_str(text).ok()?;
        let nodes = &document["memory"]["pools"].as_array()?.first()?["nodes"];
        let number = |name: &str| nodes[name].as_f64();
        Some(NodeUse {
            bytes: number("bytes")?,
            hits: number("hits")?,
            misses: number("misses")? + number("shared")?,
            evictions: number("evictions")?,
        })
    }

    /// Found among those looked for, in percent.
    pub fn hit_rate(&self) -> f64 {
        100.0 * self.hits / (self.hits + self.misses).max(1.0)
    }

    /// Mean bytes of a node, if all that is held was read.
    pub fn node_bytes(&self) -> Option<f64> {
        let held = self.misses - self.evictions;
        (held >= 1.0 && self.bytes > 0.0).then(|| self.bytes / held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_network_clients_are_summed() {
        let requests = |from: &str, ns: u64| {
            format!(
                "{{\"from\":\"{from}\",\"operation\":\"create\",\"cache\":\"hot\",\"requests\":2,\"own_ns\":{ns},\
                 \"read_ns\":2000000000,\"write_ns\":0,\"histogram\":[]}}"
            )
        };
        let [one, other, local] =
            [("nfs", 500_000_000), ("nfs", 0), ("local", 7)].map(|(a, b)| requests(a, b));
        let text = format!("{{\"pools\":{{\"tank\":{{\"requests\":[{one},{other},{local}]}}}}}}");
        let totals = Totals::parse(&text).unwrap();
        assert_eq!(totals, Totals { own: 0.5, reads: 4.0, writes: 0.0, requests: 4.0 });
        assert_eq!(totals.since(totals), Totals::default());
        assert_eq!(Totals::parse("{\"pools\":{\"tank\":{}}}"), None);
    }

    #[test]
    fn the_use_of_the_node_cache_is_read() {
        let nodes = "{\"bytes\":4000,\"hits\":90,\"misses\":8,\"shared\":2,\"evictions\":6}";
        let text = format!("{{\"memory\":{{\"pools\":[{{\"name\":\"tank\",\"nodes\":{nodes}}}]}}}}");
        let told = NodeUse::parse(&text).unwrap();
        assert_eq!((told.hit_rate(), told.node_bytes()), (90.0, Some(1_000.0)));
        assert_eq!(NodeUse::parse("{}"), None);
    }
}
