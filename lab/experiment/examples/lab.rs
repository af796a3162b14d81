//! The lab without the program it belongs to: `cargo run -p steadfast-lab-experiment --example lab
//! -- run compression --target dir:/mnt/a,/mnt/b`. `STEADFAST` names the executable for runs that
//! make pools.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let context = steadfast_lab_experiment::Context {
        steadfast: std::env::var_os("STEADFAST").map_or_else(|| "steadfast".into(), Into::into),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    std::process::exit(steadfast_lab_experiment::main(&args, &context));
}
