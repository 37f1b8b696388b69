"""The dashboard: what needs a person, every effect with its proof, and the desk where doubts are
settled.

    from effectonce.dashboard import Access, app

    def access(request):
        user = request.user  # found by an authentication middleware outside
        if user.is_authenticated:
            return Access(user.username, acts="support" in user.groups)
        return None

    site.mount("/effects", app(guard, access=access))

It is a Starlette application that can be mounted anywhere; `effectonce serve` runs it alone.
Pages are made on the server, work without JavaScript, and show no arguments, results or keys
unless `Access(reveals=True)` says so. Nothing is changed by a GET.
"""

try:
    import python_multipart  # noqa: F401  # what forms are read with

    from effectonce.dashboard._access import Access, AccessOf
    from effectonce.dashboard._app import app
except ImportError as missing:
    raise ImportError(
        f"The dashboard needs {missing.name}. Install what it needs: pip install"
        " 'effectonce[server]'"
    ) from missing

__all__ = ["Access", "AccessOf", "app"]
