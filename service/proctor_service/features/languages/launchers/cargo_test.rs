// Runs the tests of one file in turn, each in a thread, and reports them behind the secret word.
extern crate test;

/// Result of a test function, which depends on the version of Rust.
trait Returned: Send + 'static {
    fn is_good(&self) -> bool;
}

impl Returned for () {
    fn is_good(&self) -> bool {
        true
    }
}

impl Returned for Result<(), String> {
    fn is_good(&self) -> bool {
        self.is_ok()
    }
}

fn outcome<R: Returned>(function: fn() -> R, panics: &test::ShouldPanic) -> &'static str {
    let done = std::thread::spawn(function).join();
    let good = match (done, panics) {
        (Ok(returned), test::ShouldPanic::No) => returned.is_good(),
        (Ok(_), _) => false,
        (Err(_), test::ShouldPanic::No) => false,
        (Err(_), test::ShouldPanic::Yes) => true,
        (Err(payload), test::ShouldPanic::YesWithMessage(message)) => {
            let text = payload.downcast_ref::<String>().map(|text| text.as_str());
            text.or_else(|| payload.downcast_ref::<&str>().copied()).map_or(false, |text| text.contains(*message))
        }
    };
    if good { "passed" } else { "failed" }
}

pub fn run(tests: &[&test::TestDescAndFn]) {
    let word = std::fs::read_to_string("/proc/self/fd/3").unwrap();
    std::fs::write("/proc/self/fd/3", "").unwrap();
    let mut report = std::format!("{}\n", word);
    for each in tests {
        let mut found = "skipped";
        if let (test::StaticTestFn(function), false) = (&each.testfn, each.desc.ignore) {
            found = outcome(*function, &each.desc.should_panic);
        }
        report += &std::format!("{} {}\n", found, each.desc.name);
    }
    std::fs::write("/proc/self/fd/3", report).unwrap();
    std::process::exit(0);
}
