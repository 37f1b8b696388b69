"""HTTP clients and the operating system: how far did the request get?"""

from effectonce._core.classification.tables._row import A, B, M, N, Table, cls, code, errno_
from effectonce._core.classification.verdicts import Scope

HTTPX = Table(
    name="httpx",
    checked="httpx 0.28, httpx2 2.16, and httpcore below them",
    packages=("httpx", "httpx2", "httpcore", "httpcore2"),
    rows=(
        cls("ConnectTimeout ConnectError", B.UNREACHABLE, N),
        cls(
            "PoolTimeout",
            B.UNREACHABLE,
            N,
            "the pool had no connection to give",
            scope=Scope.PROCESS,
        ),
        cls(
            "ProxyError",
            B.NO_ANSWER,
            M,
            "the proxy failed: what it had passed on by then is not known",
        ),
        cls(
            "WriteTimeout WriteError ReadTimeout ReadError CloseError RemoteProtocolError SSEError",
            B.NO_ANSWER,
            M,
        ),
        cls("LocalProtocolError UnsupportedProtocol InvalidURL CookieConflict", B.CONFIG, M),
        cls("TooManyRedirects", B.CONFIG, M),
        cls("StreamError", B.CONFIG, M, "the stream was used in a way it does not allow"),
        cls("DecodingError", B.PARSE, A),
        cls(
            "TransportError NetworkError TimeoutException ProtocolError", B.NO_ANSWER, M, weak=True
        ),
    ),
)
REQUESTS = Table(
    name="requests",
    checked="requests 2.34",
    packages=("requests",),
    rows=(
        cls("ConnectTimeout", B.UNREACHABLE, N),
        # A URL may be wrong in a redirect, and TLS may break after the request has left: only
        # what is inside can tell.
        cls("SSLError", B.CONFIG, M, weak=True),
        cls(
            "ProxyError InvalidURL MissingSchema InvalidSchema InvalidHeader InvalidProxyURL",
            B.CONFIG,
            M,
        ),
        cls("TooManyRedirects UnrewindableBodyError StreamConsumedError", B.CONFIG, M),
        cls("ReadTimeout ChunkedEncodingError ContentDecodingError", B.NO_ANSWER, M),
        cls("JSONDecodeError InvalidJSONError", B.PARSE, A),
        cls("RetryError ConnectionError Timeout", B.NO_ANSWER, M, weak=True),
    ),
)
URLLIB3 = Table(
    name="urllib3",
    checked="urllib3 2.8",
    packages=("urllib3",),
    rows=(
        cls("NewConnectionError NameResolutionError ConnectTimeoutError", B.UNREACHABLE, N),
        cls(
            "EmptyPoolError FullPoolError",
            B.UNREACHABLE,
            N,
            "the pool had no connection to give",
            scope=Scope.PROCESS,
        ),
        cls("ReadTimeoutError ProtocolError IncompleteRead InvalidChunkLength", B.NO_ANSWER, M),
        cls("SSLError", B.CONFIG, M, weak=True),
        cls(
            "ProxyError",
            B.NO_ANSWER,
            M,
            "the proxy failed: what it had passed on by then is not known",
            weak=True,
        ),
        cls("LocationParseError URLSchemeUnknown LocationValueError", B.CONFIG, N),
        cls("DecodeError", B.PARSE, A),
        cls("MaxRetryError", B.NO_ANSWER, M, weak=True),
    ),
)
AIOHTTP = Table(
    name="aiohttp",
    checked="aiohttp 3.14",
    packages=("aiohttp",),
    rows=(
        cls(
            "ClientConnectorCertificateError ClientConnectorSSLError ClientSSLError"
            " ServerFingerprintMismatch",
            B.CONFIG,
            N,
        ),
        cls("InvalidURL InvalidUrlClientError NonHttpUrlClientError", B.CONFIG, N),
        cls(
            "InvalidUrlRedirectClientError NonHttpUrlRedirectClientError TooManyRedirects",
            B.CONFIG,
            M,
        ),
        cls(
            "ClientConnectorError ClientConnectorDNSError ClientProxyConnectionError"
            " ConnectionTimeoutError",
            B.UNREACHABLE,
            N,
        ),
        cls(
            "ServerDisconnectedError ClientOSError ClientConnectionResetError SocketTimeoutError",
            B.NO_ANSWER,
            M,
        ),
        cls("ServerTimeoutError ClientPayloadError UploadAbortedError", B.NO_ANSWER, M),
        cls("ContentTypeError", B.PARSE, A),
        cls(
            "HttpProcessingError",
            B.NO_ANSWER,
            M,
            "the answer is not HTTP: what became of the request is not known",
        ),
        cls("ClientConnectionError", B.NO_ANSWER, M, weak=True),
    ),
)
OS = Table(
    name="os",
    checked="Python 3.11 to 3.13, POSIX",
    packages=(
        "builtins",
        "socket",
        "asyncio",
        "concurrent",
        "http",
        "json",
        "pydantic_core",
        "anyio",
        "urllib",
    ),
    rows=(
        code("EAI_NONAME", B.CONFIG, N, "there is no such host"),
        cls("gaierror", B.UNREACHABLE, N, "the host name did not resolve"),
        cls("ConnectionRefusedError", B.UNREACHABLE, N, "the connection was refused"),
        cls(
            "ConnectionResetError ConnectionAbortedError BrokenPipeError",
            B.NO_ANSWER,
            M,
            "the connection broke",
        ),
        cls("TimeoutError", B.NO_ANSWER, M, "it timed out"),
        cls("ConnectionError", B.NO_ANSWER, M, "the connection broke", weak=True),
        cls("CancelledError KeyboardInterrupt SystemExit GeneratorExit", B.CANCELLED, M),
        cls("JSONDecodeError ValidationError", B.PARSE, M),
        cls("RemoteDisconnected IncompleteRead BadStatusLine", B.NO_ANSWER, M),
        cls("BrokenResourceError ClosedResourceError EndOfStream", B.NO_ANSWER, M),
        errno_("ECONNREFUSED EADDRNOTAVAIL", B.UNREACHABLE, N),
        # A connection that stood can end like this too, and a disk may fill up after the request.
        errno_("EHOSTUNREACH ENETUNREACH ENETDOWN EHOSTDOWN", B.UNREACHABLE, M),
        errno_("ECONNRESET ECONNABORTED EPIPE ETIMEDOUT", B.NO_ANSWER, M),
        errno_(
            "EMFILE ENFILE ENOMEM ENOSPC",
            B.OVERLOADED,
            M,
            "this machine has run out of something",
            scope=Scope.PROCESS,
        ),
        errno_("EACCES EPERM ENOENT", B.CONFIG, M),
    ),
)
SSL = Table(
    name="ssl",
    checked="Python 3.11 to 3.13",
    packages=("ssl", "_ssl"),
    rows=(
        cls(
            "SSLCertVerificationError CertificateError",
            B.CONFIG,
            N,
            "the certificate is not trusted",
        ),
        cls(
            "SSLError",
            B.NO_ANSWER,
            M,
            "TLS failed: during the handshake nothing was sent, later it may have been",
        ),
    ),
)
SUBPROCESS = Table(
    name="subprocess",
    checked="Python 3.11 to 3.13",
    packages=("subprocess",),
    rows=(
        code("returncode=signal", B.NO_ANSWER, M, "the command was killed while it ran"),
        cls("TimeoutExpired", B.NO_ANSWER, M, "the command took too long and was stopped"),
        cls(
            "CalledProcessError",
            B.TOOL_ERROR,
            M,
            "the command failed: its exit status and output are for the model to read",
        ),
    ),
)
TABLES = (HTTPX, REQUESTS, URLLIB3, AIOHTTP, OS, SSL, SUBPROCESS)
