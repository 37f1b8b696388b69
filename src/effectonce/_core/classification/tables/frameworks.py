"""Agent frameworks and breakers: what they classified, and what is not an error but their stop."""

from effectonce._core.classification.tables._row import A, B, M, N, R, Table, cls, code
from effectonce._core.classification.verdicts import Scope

PYDANTIC_AI = Table(
    name="pydantic-ai",
    checked="pydantic-ai 2.66",
    packages=("pydantic_ai",),
    rows=(
        code(
            "phase=pool",
            B.UNREACHABLE,
            N,
            "the pool had no connection to give",
            scope=Scope.PROCESS,
        ),
        code("phase=connect", B.UNREACHABLE, N),
        code("phase=write phase=read", B.NO_ANSWER, M),
        cls("ModelRateLimitError", B.RATE_LIMIT, R),
        cls("ModelQuotaExceededError", B.QUOTA, R),
        cls("ModelOverloadedError", B.OVERLOADED, R, scope=Scope.MODEL),
        cls("ModelUnavailableError ModelServerError", B.SERVER_ERROR, M),
        cls(
            "ModelConnectionError ModelTimeoutError ModelRequestTimeout", B.NO_ANSWER, M, weak=True
        ),
        cls("ModelContextWindowExceededError", B.CONTEXT_LENGTH, R),
        cls("ModelAuthenticationError", B.AUTH, R),
        cls("ModelNotFoundError", B.NOT_FOUND, R),
        cls("ModelRequestRejectedError", B.SCHEMA, R, weak=True),
        cls("ContentFilterError", B.CONTENT_POLICY, A),
        cls("UsageLimitExceeded", B.QUOTA, M, "the limit that this run was given is used up"),
        cls(
            "ConcurrencyLimitExceeded",
            B.RATE_LIMIT,
            N,
            "the limit of this process",
            scope=Scope.PROCESS,
        ),
        cls("ToolFailed ModelRetry", B.TOOL_ERROR, M),
        cls("UnexpectedModelBehavior", B.PARSE, A),
        cls(
            "CallDeferred ApprovalRequired SkipModelRequest SkipToolValidation SkipToolExecution",
            B.CONTROL_FLOW,
            M,
        ),
        cls("RunTimedOut RunCancelled", B.CANCELLED, M),
    ),
)
LANGCHAIN = Table(
    name="langchain",
    checked="langchain-core 1.7, langgraph 1.2",
    packages=("langchain_core", "langchain", "langgraph"),
    rows=(
        cls(
            "ModelRateLimitError",
            B.RATE_LIMIT,
            R,
            "langchain does not tell a used-up quota from a rate limit",
            weak=True,
        ),
        cls("ModelAPIError", B.SERVER_ERROR, M, weak=True),
        cls("ModelConnectionError ModelTimeoutError", B.NO_ANSWER, M, weak=True),
        cls("ModelAuthenticationError ModelPermissionDeniedError", B.AUTH, R, weak=True),
        cls("ModelInvalidRequestError", B.SCHEMA, R, weak=True),
        cls("ModelNotFoundError", B.NOT_FOUND, R, weak=True),
        cls("ContextOverflowError", B.CONTEXT_LENGTH, R),
        cls("OutputParserException", B.PARSE, A),
        cls("ToolException", B.TOOL_ERROR, M),
        cls("GraphBubbleUp GraphInterrupt ParentCommand", B.CONTROL_FLOW, M),
        cls("NodeCancelledError", B.CANCELLED, M),
        cls("NodeTimeoutError", B.NO_ANSWER, M),
        cls("GraphRecursionError InvalidUpdateError EmptyInputError", B.CONFIG, M),
    ),
)
LITELLM = Table(
    name="litellm",
    checked="litellm 1.106, by name",
    packages=("litellm",),
    over_http=True,
    rows=(
        cls("ContextWindowExceededError", B.CONTEXT_LENGTH, R),
        cls("ContentPolicyViolationError GuardrailRaisedException", B.CONTENT_POLICY, R),
        cls("PaymentRequiredError", B.QUOTA, R),
        cls("BudgetExceededError", B.QUOTA, M, "the budget that litellm was given is used up"),
        cls("MidStreamFallbackError", B.SERVER_ERROR, M, "the stream broke off"),
        cls("JSONSchemaValidationError", B.PARSE, A),
        cls("RateLimitError", B.RATE_LIMIT, R, weak=True),
        cls("ServiceUnavailableError", B.SERVER_ERROR, M, weak=True),
        cls("BadGatewayError Timeout", B.NO_ANSWER, M, weak=True),
    ),
)
INSTRUCTOR = Table(
    name="instructor",
    checked="instructor 1.17",
    packages=("instructor",),
    rows=(
        cls(
            "ResponseParsingError AsyncValidationError IncompleteOutputException ValidationError",
            B.PARSE,
            A,
        ),
        cls("InstructorRetryException", B.PARSE, A, "its own attempts are used up", weak=True),
    ),
)
TEMPORAL = Table(
    name="temporal",
    checked="temporalio 1.35",
    packages=("temporalio",),
    rows=(
        cls("CancelledError TerminatedError", B.CANCELLED, M),
        cls("TimeoutError", B.NO_ANSWER, M),
        cls(
            "WorkflowAlreadyStartedError ActivityAlreadyStartedError",
            B.CONFLICT,
            R,
            "it runs already",
            retry=False,
        ),
        cls("ServerError", B.SERVER_ERROR, M, weak=True),
        cls("ContinueAsNewError", B.CONTROL_FLOW, M),
    ),
)
BREAKERS = Table(
    name="breakers",
    checked="circuitbreaker 2.1, purgatory 3.0",
    packages=("circuitbreaker", "purgatory", "effectonce"),
    rows=(cls("CircuitBreakerError OpenedState CircuitOpen", B.CIRCUIT_OPEN, N),),
)
PYBREAKER = Table(
    name="pybreaker",
    checked="pybreaker 1.4; aiobreaker by name",
    packages=("pybreaker", "aiobreaker"),
    rows=(
        cls(
            "CircuitBreakerError",
            B.CIRCUIT_OPEN,
            M,
            "also raised for the very call that opens the breaker, after it was sent",
        ),
    ),
)
TABLES = (PYDANTIC_AI, LANGCHAIN, LITELLM, INSTRUCTOR, TEMPORAL, BREAKERS, PYBREAKER)
