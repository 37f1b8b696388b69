"""Google: google-genai, google-api-core, and the `google.rpc` error body that both carry."""

from effectonce._core.classification.tables._row import (
    A,
    B,
    M,
    N,
    R,
    Table,
    cls,
    code,
    finish,
    text,
)
from effectonce._core.classification.verdicts import Scope

TABLE = Table(
    name="google",
    checked="google-genai 2.34 and 3.1, google-api-core 2.44",
    packages=("google",),
    headers=("x-goog-",),
    hosts=("googleapis.com",),
    over_http=True,
    rows=(
        # The details of a RESOURCE_EXHAUSTED: the delay is believed before the name of the
        # quota, which says PerDay too often.
        code("quotaValue=0", B.QUOTA, R, "this quota is 0: there is none for this model or plan"),
        code(
            "quotaId=PerDay", B.QUOTA, R, "a quota per day is used up, and no short delay is named"
        ),
        code("quotaId=PerMinute", B.RATE_LIMIT, R, "a quota per minute is used up", settled=True),
        code("quota_exceeded", B.QUOTA, R),
        code("API_KEY_INVALID API_KEY_EXPIRED API_KEY_SERVICE_BLOCKED SERVICE_DISABLED", B.AUTH, R),
        code("RESOURCE_EXHAUSTED", B.RATE_LIMIT, R),
        code("UNAVAILABLE", B.SERVER_ERROR, M),
        code("INTERNAL UNKNOWN DATA_LOSS", B.SERVER_ERROR, M),
        code("DEADLINE_EXCEEDED", B.NO_ANSWER, M),
        code(
            "CANCELLED",
            B.NO_ANSWER,
            M,
            "their side cancelled it; what it had done by then is not known",
            retry=False,
        ),
        code("ABORTED", B.CONFLICT, R, "repeat the whole transaction"),
        code(
            "ALREADY_EXISTS",
            B.CONFLICT,
            R,
            "it is there already, perhaps from an earlier attempt: look",
            retry=False,
        ),
        code("UNAUTHENTICATED PERMISSION_DENIED", B.AUTH, R),
        code("NOT_FOUND", B.NOT_FOUND, R),
        code("FAILED_PRECONDITION", B.CONFIG, R, "a region, billing or a setting is missing"),
        code("INVALID_ARGUMENT OUT_OF_RANGE UNIMPLEMENTED", B.SCHEMA, R),
        cls("RetryError", B.NO_ANSWER, M, "its own retries are used up", weak=True),
        cls("ResourceExhausted TooManyRequests", B.RATE_LIMIT, R),
        cls(
            "ServiceUnavailable BadGateway InternalServerError Unknown DataLoss", B.SERVER_ERROR, M
        ),
        cls("DeadlineExceeded GatewayTimeout", B.NO_ANSWER, M),
        cls("Cancelled", B.NO_ANSWER, M, retry=False),
        cls("Aborted", B.CONFLICT, R),
        cls(
            "AlreadyExists",
            B.CONFLICT,
            R,
            "it is there already, perhaps from an earlier attempt: look",
            retry=False,
        ),
        cls("Unauthorized Unauthenticated Forbidden PermissionDenied", B.AUTH, R),
        cls(
            "DefaultCredentialsError RefreshError MutualTLSChannelError",
            B.AUTH,
            N,
            "google-auth could not get credentials",
        ),
        cls("NotFound", B.NOT_FOUND, R),
        cls("FailedPrecondition", B.CONFIG, R),
        cls("InvalidArgument OutOfRange MethodNotImplemented BadRequest", B.SCHEMA, R),
        finish("SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT", B.CONTENT_POLICY, A),
        finish("SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT", B.CONTENT_POLICY, A),
        finish("IMAGE_RECITATION MODEL_ARMOR JAILBREAK BLOCKED", B.CONTENT_POLICY, A),
        finish(
            "MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MAX_TOKENS",
            B.PARSE,
            A,
        ),
        text(
            "input token count | number of tokens allowed | request payload size exceeds",
            B.CONTEXT_LENGTH,
        ),
        text("api key not valid", B.AUTH),
        text(", limit: 0", B.QUOTA, why="this quota is 0: there is none for this model or plan"),
        text("the model is overloaded | over capacity", B.OVERLOADED, scope=Scope.MODEL),
    ),
)
