//! Packets that get lost on the way, by a seed.

/// Bytes of a packet: what Ethernet carries of a TCP stream.
const PACKET: u64 = 1_448;
/// Times that one packet is lost, at most: then the way would be no way.
const TIMES_MAX: u32 = 8;
/// Parts of the whole.
const WHOLE: u64 = 1_000_000;

/// Which packets are lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Loss {
    /// Of a million packets, so many on average.
    pub per_million: u32,
    /// The same seed loses the same packets of a stream.
    pub seed: u64,
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    /// From the client to the store.
    Up,
    /// Back.
    Down,
}

/// Losses of one direction of one connection.
#[derive(Debug)]
pub(crate) struct Losses {
    loss: Option<Loss>,
    /// Seed of this stream.
    stream: u64,
    /// Bytes that have passed.
    at: u64,
}

/// Losses among some bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Lost {
    /// Packets, each time that it was lost.
    pub packets: u64,
    /// Most times that one of them was.
    pub times: u32,
}

impl Losses {
    pub fn of(loss: Option<Loss>, connection: u64, direction: Direction) -> Losses {
        let seed = loss.map_or(0, |loss| loss.seed);
        Losses { loss, stream: mixed(mixed(seed) ^ (connection << 1 | direction as u64)), at: 0 }
    }

    /// Losses among the next bytes: of the packets that begin in them.
    pub fn next(&mut self, bytes: usize) -> Lost {
        let (first, end) = (self.at.div_ceil(PACKET), (self.at + bytes as u64).div_ceil(PACKET));
        self.at += bytes as u64;
        let Some(loss) = self.loss else { return Lost::default() };
        let mut lost = Lost::default();
        for packet in first..end {
            let draw = |time: u32| mixed(self.stream ^ mixed(packet << 8 | u64::from(time))) % WHOLE;
            let times = (0..TIMES_MAX).take_while(|time| draw(*time) < u64::from(loss.per_million)).count();
            lost.packets += times as u64;
            lost.times = lost.times.max(times as u32);
        }
        lost
    }
}

/// A number that tells nothing of another one (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 10 MB that are lost, by number; read in pieces of so many bytes.
    fn lost(loss: Loss, connection: u64, direction: Direction, piece: usize) -> Vec<u64> {
        let mut losses = Losses::of(Some(loss), connection, direction);
        let mut lost = Vec::new();
        let mut at = 0;
        while at < 10_000_000 {
            let begins = u64::div_ceil(at, PACKET);
            let found = losses.next(piece);
            at += piece as u64;
            if piece as u64 <= PACKET && found.times > 0 {
                lost.push(begins);
            }
        }
        lost
    }

    fn sum(loss: Loss, piece: usize) -> u64 {
        let mut losses = Losses::of(Some(loss), 1, Direction::Up);
        (0..10_000_000 / piece).map(|_| losses.next(piece).packets).sum()
    }

    #[test]
    fn losses_follow_the_seed() {
        let one = Loss { per_million: 10_000, seed: 7 };
        let other = Loss { seed: 8, ..one };
        let once = lost(one, 1, Direction::Up, 100);
        assert_eq!(once, lost(one, 1, Direction::Up, 100), "the same seed");
        // However the bytes come.
        assert_eq!(once, lost(one, 1, Direction::Up, 1_000));
        assert_eq!(sum(one, 100), sum(one, 50_000));
        assert_ne!(once, lost(other, 1, Direction::Up, 100), "another seed");
        assert_ne!(once, lost(one, 2, Direction::Up, 100), "another connection");
        assert_ne!(once, lost(one, 1, Direction::Down, 100), "another direction");
        // 6,907 packets.
        assert!((30..140).contains(&once.len()), "{} of 1 %", once.len());
    }

    #[test]
    fn all_or_nothing_may_be_lost() {
        let all = Losses::of(Some(Loss { per_million: 1_000_000, seed: 1 }), 1, Direction::Up).next(1_449);
        assert_eq!(all, Lost { packets: 16, times: TIMES_MAX });
        let none = Losses::of(Some(Loss { per_million: 0, seed: 1 }), 1, Direction::Up).next(1_000_000);
        assert_eq!((none, Losses::of(None, 1, Direction::Up).next(9)), (Lost::default(), Lost::default()));
    }
}
