"""The places that run workers: one interface (``simyard_sites.base``) and a module per provider."""
