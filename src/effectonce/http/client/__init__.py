"""Clients of HTTP and other protocols that send the effect's key and see what left."""

from effectonce.http.client.protect import named, protect

__all__ = ["named", "protect"]
