"""What workers say, read into typed messages: the only way from a worker's bytes into the control plane. Pure."""
