"""Code for the service's own interpreter inside of a sandbox: see `sandbox.interface.Operation`."""
