"""The pages under /console: what was judged and why, a log-in, and a playground."""
