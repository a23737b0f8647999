"""What faults are made with: real replicas, nginx, Redis, and cables between them that can be cut."""
