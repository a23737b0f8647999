"""Programs that try to be rewarded without solving their problem, and honest ones that look like them."""
