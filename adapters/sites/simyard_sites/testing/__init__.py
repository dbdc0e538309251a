"""Simulators of clouds for tests: shipped, so that authors of providers and adapters can use them."""
