"""The aggregated API ``subresources.simyard.dev``: actions, attributes and logs as subresources. Stateless."""
