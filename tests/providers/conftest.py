from tests.http.conftest import collected, modules_frozen

__all__ = ["collected", "modules_frozen"]
