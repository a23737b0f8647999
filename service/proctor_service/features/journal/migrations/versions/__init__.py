"""The migrations, each with its number."""
