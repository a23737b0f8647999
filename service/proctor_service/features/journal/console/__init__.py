"""The pages under /console: evaluations with reasons, a log-in, and a playground."""
