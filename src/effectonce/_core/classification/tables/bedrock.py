"""AWS: Bedrock's runtime, and botocore for all services. Codes in a stream begin in lower case."""

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
    name="bedrock",
    checked="botocore 1.44",
    packages=("botocore", "boto3"),
    headers=("x-amzn-",),
    hosts=("amazonaws.com",),
    over_http=True,
    rows=(
        code(
            "ThrottlingException Throttling ThrottledException RequestThrottledException"
            " RequestThrottled",
            B.RATE_LIMIT,
            R,
        ),
        code(
            "TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded",
            B.RATE_LIMIT,
            R,
        ),
        code(
            "BandwidthLimitExceeded SlowDown EC2ThrottledException PriorRequestNotComplete",
            B.RATE_LIMIT,
            R,
        ),
        code("TransactionInProgressException", B.RATE_LIMIT, R),
        code("LimitExceededException ServiceQuotaExceededException", B.QUOTA, R),
        code(
            "ModelNotReadyException",
            B.OVERLOADED,
            R,
            "the model is being loaded",
            scope=Scope.MODEL,
        ),
        code(
            "ServiceUnavailableException ServiceUnavailable InternalServerException"
            " InternalFailure",
            B.SERVER_ERROR,
            M,
        ),
        code("ModelErrorException ModelStreamErrorException", B.SERVER_ERROR, M, scope=Scope.MODEL),
        code("ModelTimeoutException RequestTimeout RequestTimeoutException", B.NO_ANSWER, M),
        code(
            "AccessDeniedException AccessDenied UnrecognizedClientException"
            " InvalidSignatureException",
            B.AUTH,
            R,
        ),
        code(
            "ExpiredTokenException ExpiredToken InvalidClientTokenId",
            B.AUTH,
            R,
            "renew the credentials, then once more",
        ),
        code(
            "MPAgreementBeingCreated",
            B.OVERLOADED,
            R,
            "the agreement is being made",
            scope=Scope.ACCOUNT,
            after_s=900,
        ),
        code("ResourceNotFoundException", B.NOT_FOUND, R),
        code("ValidationException", B.SCHEMA, R),
        code("ConflictException", B.CONFLICT, M, retry=False),
        cls("ConnectTimeoutError EndpointConnectionError ProxyConnectionError", B.UNREACHABLE, N),
        cls(
            "ReadTimeoutError ConnectionClosedError ResponseStreamingError IncompleteReadError",
            B.NO_ANSWER,
            M,
        ),
        cls(
            "SSLError",
            B.CONFIG,
            M,
            "TLS failed: during the handshake nothing was sent, later it may have been",
            weak=True,
        ),
        cls("HTTPClientError", B.NO_ANSWER, M, weak=True),
        cls(
            "NoCredentialsError PartialCredentialsError CredentialRetrievalError"
            " TokenRetrievalError",
            B.AUTH,
            N,
        ),
        cls(
            "ParamValidationError UnknownParameterError",
            B.SCHEMA,
            N,
            "botocore refused the arguments",
        ),
        cls("NoRegionError ProfileNotFound ConfigParseError UnknownServiceError", B.CONFIG, N),
        finish("guardrail_intervened content_filtered", B.CONTENT_POLICY, A),
        finish("malformed_model_output malformed_tool_use", B.PARSE, A),
        text("input is too long | input tokens exceeded | too many tokens", B.CONTEXT_LENGTH),
        text("too many input tokens | expected maxlength", B.CONTEXT_LENGTH),
    ),
)
