"""Code for a remote sandbox: the supervisor, and its forked child. Standard library only."""
