"""The kinds of ``simyard.dev/v1alpha1`` as pydantic models; ``crds/`` is generated from them."""
