"""A proxy that protects an API which knows nothing of effects."""
