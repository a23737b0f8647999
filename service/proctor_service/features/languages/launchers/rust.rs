// Calls the main function of the tests; descriptor 3 holds the word that proves the return from it.
use std::process::{ExitCode, Termination};

pub fn main() -> ExitCode {
    let mut word = std::fs::read("/proc/self/fd/3").unwrap();
    std::fs::write("/proc/self/fd/3", "").unwrap();
    let code = super::PROCTOR_NAME::main().report();
    // An exit code has no other way to be compared.
    if format!("{:?}", code) == format!("{:?}", ExitCode::SUCCESS) {
        word.push(b'\n');
        std::fs::write("/proc/self/fd/3", word).unwrap();
    }
    code
}
