"""What the journal has, over HTTP: questions, and the process that answers them."""
