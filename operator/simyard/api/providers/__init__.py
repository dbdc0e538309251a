"""What a CloudSite says of its kind of place: one module for each member of `spec.provider`."""
