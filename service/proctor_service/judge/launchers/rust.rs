// Calls the main function of the tests; descriptor 3 holds the word that proves the return from it.
#![allow(warnings)]
#[path = "solution.rs"]
mod solution;

fn main() {
    let mut word = std::fs::read("/proc/self/fd/3").unwrap();
    std::fs::write("/proc/self/fd/3", "").unwrap();
    let _ = solution::PROCTOR_NAME::main();
    word.push(b'\n');
    std::fs::write("/proc/self/fd/3", word).unwrap();
}
