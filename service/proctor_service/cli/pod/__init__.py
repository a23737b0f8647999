"""What a pod lacks, and which component of deploy/components mends it: `doctor --kubernetes`."""
