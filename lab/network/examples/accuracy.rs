//! How exact a link is: the time of a call of 100 bytes and of an answer of 1 MB, without a link,
//! through one that plays nothing, and through several round trips.
//!
//!     cargo run --release -p steadfast-lab-network --example accuracy
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use steadfast_lab_network::{Conditions, Link};

const CALLS: usize = 1_000;
const LARGE: usize = 1 << 20;

/// Answers each call of 100 bytes: by so many bytes as the first four say.
fn serve() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || answer(connection));
        }
    });
    Ok(address)
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut call, body) = ([0; 100], vec![0; LARGE]);
    loop {
        connection.read_exact(&mut call)?;
        let length = u32::from_le_bytes(call[..4].try_into().expect("four bytes"));
        connection.write_all(&body[..length as usize])?;
    }
}

/// Microseconds of the calls, in order of their size.
fn calls(server: SocketAddr, count: usize, length: usize) -> std::io::Result<Vec<f64>> {
    let mut connection = TcpStream::connect(server)?;
    connection.set_nodelay(true)?;
    let (mut call, mut body) = ([0; 100], vec![0; length]);
    call[..4].copy_from_slice(&(length as u32).to_le_bytes());
    let mut times = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        connection.write_all(&call)?;
        connection.read_exact(&mut body)?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn main() -> std::io::Result<()> {
    let server = serve()?;
    println!("{:<24} {:>34} {:>34}", "", "100 bytes: median, 5 %, 95 % (us)", "1 MB: median, 5 %, 95 % (us)");
    let tell = |name: &str, address| -> std::io::Result<()> {
        let columns =
            [(CALLS, 100), (CALLS / 10, LARGE)].map(|(count, length)| calls(address, count, length));
        let [small, large] = columns;
        let words = |times: Vec<f64>| {
            let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
            format!("{:.0} {:.0} {:.0}", at(0.5), at(0.05), at(0.95))
        };
        println!("{name:<24} {:>34} {:>34}", words(small?), words(large?));
        Ok(())
    };
    tell("no link", server)?;
    for us in [0, 100, 200, 500, 1_000, 4_000, 20_000] {
        let round_trip = Duration::from_micros(us);
        let link = Link::start(server, Conditions { round_trip, rate: None, loss: None })?;
        tell(&format!("link of {us} us"), link.address())?;
    }
    tell("no link", server)
}
