"""What goes into a remote sandbox: the warden, and the cell that it forks. Standard library only."""
