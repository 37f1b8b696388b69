"""The middleware that makes an HTTP API answer a repeated request once."""

from effectonce.http.server.middleware import IdempotencyMiddleware, Route

__all__ = ["IdempotencyMiddleware", "Route"]
