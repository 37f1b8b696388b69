"""Stripe. It stores a 500 under the key and repeats it: do not retry that, ask its API."""

from effectonce._core.classification.tables._row import B, M, R, Table, cls, code, status

STORED = "Stripe keeps the failure under the key: look the payment up, then use a new key"
USED = "the key was used with other arguments, perhaps by an earlier attempt: a person must look"

TABLE = Table(
    name="stripe",
    checked="stripe 16.1",
    packages=("stripe",),
    headers=("stripe-",),
    hosts=("api.stripe.com",),
    over_http=True,
    rows=(
        code(
            "body=none", B.NO_ANSWER, M, "a gateway answered in Stripe's place: the same key again"
        ),
        code("rate_limit", B.RATE_LIMIT, R),
        code(
            "lock_timeout",
            B.CONFLICT_IN_FLIGHT,
            R,
            "another request holds the lock: the same key again",
        ),
        code(
            "idempotency_key_in_use",
            B.CONFLICT_IN_FLIGHT,
            M,
            "the same key is being worked on: the same key again",
        ),
        code("idempotency_error", B.CONFLICT, M, USED, retry=False),
        code("quota_exceeded", B.QUOTA, R),
        code(
            "card_error insufficient_funds invalid_payment_method invalid_payout_method"
            " blocked_by_stripe",
            B.DECLINED,
            R,
        ),
        code("already_canceled not_cancelable cannot_proceed", B.DECLINED, R),
        code("recipient_not_notifiable financial_account_not_open", B.DECLINED, R),
        code(
            "fx_quote_needs_refresh temporary_session_expired verification_required"
            " verification_failed",
            B.DECLINED,
            R,
        ),
        code("feature_not_enabled capability_not_enabled", B.AUTH, R),
        code("api_error", B.SERVER_ERROR, M, STORED, retry=False),
        code("invalid_request_error", B.SCHEMA, R, weak=True),
        cls("RateLimitError", B.RATE_LIMIT, R),
        cls("QuotaExceededError", B.QUOTA, R),
        cls("IdempotencyError", B.CONFLICT, M, USED, retry=False),
        cls(
            "CardError InsufficientFundsError InvalidPaymentMethodError InvalidPayoutMethodError",
            B.DECLINED,
            R,
        ),
        cls(
            "BlockedByStripeError AlreadyCanceledError NotCancelableError CannotProceedError",
            B.DECLINED,
            R,
        ),
        cls(
            "RecipientNotNotifiableError FinancialAccountNotOpenError FxQuoteNeedsRefreshError",
            B.DECLINED,
            R,
        ),
        cls(
            "TemporarySessionExpiredError NonZeroBalanceError AlreadyExistsError"
            " ControlledByDashboardError",
            B.DECLINED,
            R,
        ),
        cls("ControlledByAlternateResourceError", B.DECLINED, R),
        cls("AuthenticationError PermissionError FeatureNotEnabledError", B.AUTH, R),
        cls("SignatureVerificationError", B.SCHEMA, R, "a webhook's signature does not match"),
        cls("InvalidRequestError", B.SCHEMA, R, weak=True),
        cls("APIError", B.SERVER_ERROR, M, STORED, retry=False),
        cls("APIConnectionError", B.NO_ANSWER, M, weak=True),
        status("500", B.SERVER_ERROR, M, STORED, retry=False),
    ),
)
