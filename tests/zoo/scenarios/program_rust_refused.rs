fn reserve(rows: usize) -> Vec<u64> {
    Vec::with_capacity(rows)
}

fn main() {
    let rows = if std::env::args().any(|word| word == "--control") { 1 << 10 } else { 1 << 59 };
    println!("{}", reserve(rows).capacity());
}
