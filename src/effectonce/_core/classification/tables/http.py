"""HTTP itself, for servers that send no code of their own."""

from effectonce._core.classification.tables._row import A, B, M, N, R, Table, code, status, text

TABLE = Table(
    name="http",
    checked="RFC 9110, 6585, 7725, 8470, draft-ietf-httpapi-idempotency-key-header-07",
    over_http=True,
    rows=(
        status("400", B.SCHEMA, R),
        status("401", B.AUTH, R, "renew the credentials, then once more"),
        status("402", B.QUOTA, R),
        status("403", B.AUTH, R),
        status("404 410", B.NOT_FOUND, R),
        status("405 406 411 414 415 416 417", B.SCHEMA, R),
        status("407", B.CONFIG, N, "the proxy wants credentials"),
        status("408", B.NO_ANSWER, M),
        status(
            "409+retry-after",
            B.CONFLICT_IN_FLIGHT,
            M,
            "it says when to come back: the key is in use",
        ),
        status(
            "409", B.CONFLICT, M, "with what is not said: perhaps with our own request", retry=False
        ),
        status("412 428", B.SCHEMA, R, "it was changed meanwhile: read it again"),
        status("413", B.CONTEXT_LENGTH, R),
        status("421", B.UNREACHABLE, R, "the wrong server answered: another connection may do"),
        status("422", B.SCHEMA, R, "not valid, or the key was used with another body"),
        status("423", B.CONFLICT, R, "it is locked"),
        status("425", B.RATE_LIMIT, R, "too early: they do not want to risk a replay"),
        status("429", B.RATE_LIMIT, R),
        status("431", B.SCHEMA, R),
        status("451", B.CONTENT_POLICY, R, "not available for legal reasons"),
        status("499", B.CANCELLED, M),
        status("4xx", B.SCHEMA, R),
        status("500", B.SERVER_ERROR, M),
        status("501 505 511", B.CONFIG, R),
        status(
            "502 504 520 524", B.NO_ANSWER, M, "a gateway had no answer from the server behind it"
        ),
        status("503+retry-after", B.OVERLOADED, R, "it says when to come back"),
        status("503", B.SERVER_ERROR, M),
        status("521 522 523", B.UNREACHABLE, M, "the gateway did not reach the server behind it"),
        status(
            "525 526", B.CONFIG, M, "the gateway and the server behind it have no TLS in common"
        ),
        status("529", B.OVERLOADED, R),
        status("5xx", B.SERVER_ERROR, M),
        status(
            "3xx", B.CONFIG, M, "a redirect that was not followed: it may have been done before"
        ),
        status("1xx 2xx", B.OK, A),
        code("rate_limited too_many_requests", B.RATE_LIMIT, R),
        text("rate limit | too many requests", B.RATE_LIMIT),
        text("quota exceeded", B.QUOTA, weak=True),
        text("overloaded", B.OVERLOADED),
        text(
            "certificate_verify_failed | certificate verify failed",
            B.CONFIG,
            why="the certificate is not trusted",
        ),
    ),
)
