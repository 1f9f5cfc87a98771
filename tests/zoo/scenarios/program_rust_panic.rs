fn pick(index: usize) -> i32 {
    let rows = vec![1, 2, 3];
    rows[index]
}

fn main() {
    let control = std::env::args().any(|word| word == "--control");
    println!("working");
    println!("{}", pick(if control { 1 } else { 8 }));
}
